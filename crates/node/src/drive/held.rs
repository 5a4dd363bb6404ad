//! Batches that cannot be executed yet, and what comes behind them: in their order (EX-1).
//!
//! A batch waits for two reasons. A page that it needs cannot be read: it comes from the others, or a state transfer
//! comes. Or too much of the state is in memory and nowhere else, and an image is on its way to the disk: when
//! it is there, pages can be dropped. That ends by itself, because nothing is executed that would make the image
//! wait; and if no image is on its way there is nothing to wait for, for the next one needs the next stable
//! checkpoint. So memory is bounded by half as much again as the limit, and what is written between two stable
//! checkpoints. Agreement goes on meanwhile, as far as the window goes.

use std::collections::VecDeque;

use quorate_pbft::Now;
use quorate_pbft::step::{Action, Actions, Input, ReadResult, Ticket};
use quorate_service::{PageFault, Service};
use quorate_wire::{Replies, SeqNum};

use super::{Drive, Outcome};
use crate::core::Core;
use crate::journal::Journal;
use crate::meter::Meter;

/// What the replica expects of work that is held.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owed {
    Results(SeqNum),
    Read(Ticket),
    Nothing,
}

/// Work for the executor that has to wait. As much as the window admits.
#[derive(Debug, Default)]
pub(super) struct Held {
    work: VecDeque<(Action, Owed)>,
    /// A page is not here.
    is_lacking: bool,
    /// What will not be done, because the state is fetched.
    given_up: Vec<Owed>,
}

impl<S: Service, M: Meter, J: Journal, C: Core> Drive<S, M, J, C> {
    /// Says whether work for the executor has to wait for its turn.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        !self.held.work.is_empty()
    }

    /// Says whether a batch has to wait.
    #[inline]
    pub(super) fn holds_batches(&mut self) -> bool {
        self.executor.relax();
        self.holds() || self.has_no_room()
    }

    /// Says whether too much is in memory alone, and that will be better soon.
    #[inline]
    fn has_no_room(&self) -> bool {
        let max = self.executor.store().pages_max();
        let here = self.executor.store().pages().in_memory;
        // Most have much less than the limit.
        here > max / 2
            && here + self.executor.pages_of_checkpoints() > max.saturating_add(max / 2)
            && (self.saving.is_some() || self.journal.is_imaging() || !self.stored.is_empty())
    }

    #[cold]
    pub(super) fn hold(&mut self, action: &Action, owed: Owed) -> Option<Outcome> {
        self.held.work.push_back((action.clone(), owed));
        None
    }

    /// Has a page brought that the next batch needs.
    #[cold]
    pub(super) fn mend(&mut self, now: Now, fault: PageFault) {
        *self.counters.rejected.entry("page-unreadable").or_default() += 1;
        self.held.is_lacking = true;
        let mut steps = core::mem::take(&mut self.steps);
        steps.clear();
        self.executor.mend(now.mono_ns, fault, &self.peers, &mut steps);
        self.perform_transfer(now, &steps);
        self.steps = steps;
    }

    /// The page is here.
    pub(super) fn note_mended(&mut self) {
        self.held.is_lacking = false;
    }

    /// Says whether what is held can be done.
    #[inline]
    pub(super) fn can_go_on(&self) -> bool {
        self.holds() && !self.held.is_lacking && !self.has_no_room()
    }

    /// Does what is held, if it can be done.
    #[inline]
    pub(super) fn go_on(&mut self, now: Now) {
        if self.can_go_on() {
            self.release(now);
        }
    }

    #[cold]
    fn release(&mut self, now: Now) {
        let mut actions = core::mem::take(&mut self.actions);
        for (action, _) in core::mem::take(&mut self.held.work) {
            actions.push(action);
        }
        self.perform(now, &mut actions);
        actions.clear();
        self.actions = actions;
    }

    /// A state is fetched that has all of it behind it.
    pub(super) fn give_up_held(&mut self) {
        let given_up = self.held.work.drain(..).map(|(_, owed)| owed);
        self.held.given_up.extend(given_up);
        self.held.is_lacking = false;
    }

    /// Gives the replica what it waits for of what was given up: the state that it has fetched counts.
    pub(super) fn settle_held(&mut self, now: Now, out: &mut Actions) {
        for owed in core::mem::take(&mut self.held.given_up) {
            let none = Replies::new();
            let input = match owed {
                Owed::Results(seq) => Input::Executed { seq, replies: &none },
                Owed::Read(ticket) => Input::Read { ticket, result: ReadResult::NeedsOrder },
                Owed::Nothing => continue,
            };
            if let Some(recorder) = &mut self.recorder {
                recorder.note(now, &input, &[]);
            }
            self.core.step(now, input, out);
        }
    }
}
