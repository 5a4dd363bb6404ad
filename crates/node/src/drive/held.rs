//! Batches that cannot be executed yet, and later ones, in order (EX-1).
//!
//! A batch waits for one of three reasons. If the last batch took long, the next one waits until the frames that are
//! ready have been sent, so that the other replicas do not wait for this execution (PR-7). Otherwise, either a page that it needs cannot be read: the page is fetched from the
//! others, or a state transfer begins. Or too much of the state is only in memory, and an image is being written:
//! afterwards pages can be dropped. That wait ends by itself, because nothing is executed in the meantime that could
//! delay the image. If no image is being written there is nothing to wait for, because the next image needs the next
//! stable checkpoint. So memory is bounded by one and a half times the limit, plus the pages written between two
//! stable checkpoints. Agreement continues in the meantime, within the window.

use std::collections::VecDeque;

use quorate_pbft::Now;
use quorate_pbft::step::{Action, Actions, Input, ReadResult, Ticket};
use quorate_service::{PageFault, Service};
use quorate_wire::{Replies, SeqNum};

use super::{Drive, Outcome};
use crate::core::Core;
use crate::journal::Journal;
use crate::meter::Meter;

/// A batch that takes longer than this is slow, in nanoseconds.
const SLOW_NS: u64 = 1_000_000;

/// What the replica expects of held work.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owed {
    Results(SeqNum),
    Read(Ticket),
    Nothing,
}

/// When the next batch may be executed, if the last one was slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// When all frames that are ready have been sent.
    #[default]
    Unsent,
    /// With the held work.
    Sent,
    /// Now.
    Granted,
}

/// Work for the executor that has to wait. Bounded by the window.
#[derive(Debug, Default)]
pub(super) struct Held {
    work: VecDeque<(Action, Owed)>,
    /// A page is missing.
    is_lacking: bool,
    /// The last batch was slow.
    is_slow: bool,
    turn: Turn,
    /// Work that will not be done, because the state is fetched instead.
    given_up: Vec<Owed>,
}

impl<S: Service, M: Meter, J: Journal, C: Core> Drive<S, M, J, C> {
    /// Returns whether new work for the executor has to wait in the queue.
    #[inline]
    pub(super) fn holds(&self) -> bool {
        !self.held.work.is_empty()
    }

    /// Returns whether a batch has to wait.
    #[inline]
    pub(super) fn holds_batches(&mut self) -> bool {
        self.executor.relax();
        self.holds() || self.has_no_room() || self.held.is_slow && !self.take_turn()
    }

    /// Returns whether a slow batch may be executed now; the next one may not.
    #[cold]
    fn take_turn(&mut self) -> bool {
        let granted = self.held.turn == Turn::Granted;
        if granted {
            self.held.turn = Turn::Sent;
        }
        granted
    }

    /// Notes how long a batch took.
    #[inline]
    pub(super) fn note_took(&mut self, took_ns: u64) {
        self.held.is_slow = took_ns > SLOW_NS;
    }

    /// All frames that are ready have been sent.
    #[inline]
    pub(super) fn note_sent(&mut self) {
        if self.held.turn == Turn::Unsent {
            self.held.turn = Turn::Sent;
        }
    }

    /// Returns whether too much of the state is only in memory, and an image will change that.
    #[inline]
    fn has_no_room(&self) -> bool {
        let max = self.executor.store().pages_max();
        let here = self.executor.store().pages().in_memory;
        // Usually there is much less than the limit.
        here > max / 2
            && here + self.executor.pages_of_checkpoints() > max.saturating_add(max / 2)
            && (self.saving.is_some() || self.journal.is_imaging() || !self.stored.is_empty())
    }

    #[cold]
    pub(super) fn hold(&mut self, action: &Action, owed: Owed) -> Option<Outcome> {
        self.held.work.push_back((action.clone(), owed));
        self.held.turn = Turn::Unsent;
        None
    }

    /// Requests a page that the next batch needs.
    #[cold]
    pub(super) fn repair(&mut self, now: Now, fault: PageFault) {
        *self.counters.rejected.entry("page-unreadable").or_default() += 1;
        self.held.is_lacking = true;
        let mut steps = core::mem::take(&mut self.steps);
        steps.clear();
        self.executor.repair(now.mono_ns, fault, &self.peers, &mut steps);
        self.perform_transfer(now, &steps);
        self.steps = steps;
    }

    /// The page has arrived.
    pub(super) fn note_mended(&mut self) {
        self.held.is_lacking = false;
    }

    /// Returns whether held work can be done now.
    #[inline]
    pub(super) fn can_go_on(&self) -> bool {
        let waits = self.held.is_lacking || self.held.is_slow && self.held.turn == Turn::Unsent;
        self.holds() && !waits && !self.has_no_room()
    }

    /// Does the held work, if that is possible.
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
        self.held.turn = Turn::Granted;
        self.perform(now, &mut actions);
        self.take_turn();
        actions.clear();
        self.actions = actions;
    }

    /// A state is being fetched that includes the effect of all held work.
    pub(super) fn give_up_held(&mut self) {
        let given_up = self.held.work.drain(..).map(|(_, owed)| owed);
        self.held.given_up.extend(given_up);
        self.held.is_lacking = false;
    }

    /// Answers the replica for abandoned work: the fetched state replaces it.
    pub(super) fn settle_held(&mut self, now: Now, out: &mut Actions) {
        for owed in core::mem::take(&mut self.held.given_up) {
            let none = Replies::new();
            let input = match owed {
                Owed::Results(seq) => Input::Executed { seq, replies: &none, took_ns: 0 },
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
