//! Fetches a page of the state that cannot be read from its disk from other replicas.
//!
//! The page had not changed since it was written, so its label is known, and the checkpoints of this replica contain it.
//! One other replica at a time is asked for it, as a page of one of these checkpoints. Content with the right
//! digest is the page, from any sender (ST-2). Until then no operation that needs the page is executed. The other
//! replicas may no longer hold any of these checkpoints. So each time that all were asked, agreement hears of it
//! ([`Step::PageMissing`]). A state transfer then treats the page as one that differs.
//!
//! An operation that replaces the page, or frees it, does not need it. The page is still missing then, but only in the
//! checkpoints before that. When none of them is held any more, nobody is asked.

use alloc::vec::Vec;

use quorate_wire::message::{Data, Fetch};
use quorate_wire::{ReplicaId, SeqNum};

use crate::page::PageStore;
use crate::state::State;
use crate::state::tree::Label;
use crate::transfer::step::{Step, Steps};

/// How long an answer is waited for, in nanoseconds.
const WAIT_NS: u64 = 50_000_000;

/// A page that is asked for.
#[derive(Debug)]
pub(super) struct PageRepair {
    page: u32,
    label: Label,
    /// Not empty.
    peers: Vec<ReplicaId>,
    /// Questions so far.
    attempts: usize,
    /// The last question: its number, and the replica that was asked.
    asked: Option<(u64, ReplicaId)>,
    due_ns: u64,
}

impl PageRepair {
    /// Returns one that asks for a page with this label as soon as it may.
    pub(super) fn new(page: u32, label: Label, peers: &[ReplicaId], now_ns: u64) -> Self {
        Self { page, label, peers: peers.to_vec(), attempts: 0, asked: None, due_ns: now_ns }
    }

    /// Returns the page.
    pub(super) fn page(&self) -> u32 {
        self.page
    }

    /// Returns whether a checkpoint has the page.
    pub(super) fn is_needed<P: PageStore>(&self, state: &State<P>) -> bool {
        self.held(state).next().is_some()
    }

    /// Returns the checkpoints that have it, oldest first.
    fn held<P: PageStore>(&self, state: &State<P>) -> impl Iterator<Item = SeqNum> {
        let held = state.checkpoints().map(|(seq, _)| seq);
        held.filter(|seq| state.label_at(*seq, 0, self.page) == self.label)
    }

    /// Returns when to ask another replica.
    pub(super) fn deadline(&self) -> u64 {
        self.due_ns
    }

    /// Asks the next one, if it is time: one replica after the other about each checkpoint, oldest first, for the
    /// stable one is what all have mostly.
    pub(super) fn ask<P: PageStore>(
        &mut self,
        now_ns: u64,
        state: &State<P>,
        next_rid: &mut u64,
        steps: &mut Steps,
    ) {
        if self.due_ns > now_ns {
            return;
        }
        let page = self.page;
        let held: Vec<SeqNum> = self.held(state).collect();
        self.due_ns = now_ns.saturating_add(WAIT_NS);
        let (peers, count) = (self.peers.len(), held.len().max(1));
        if self.attempts > 0 && self.attempts.is_multiple_of(peers) {
            steps.push(Step::PageMissing { page });
        }
        let Some(&checkpoint) = held.get(self.attempts / peers % count) else { return };
        let (rid, to) = (*next_rid, self.peers[self.attempts % peers]);
        self.attempts += 1;
        self.asked = Some((rid, to));
        *next_rid += 1;
        let question = Fetch { rid, level: 0, index: u64::from(page), checkpoint };
        steps.push(Step::Ask { to, question });
    }

    /// Asks the next one at once.
    pub(super) fn ask_again<P: PageStore>(
        &mut self,
        now_ns: u64,
        state: &State<P>,
        next_rid: &mut u64,
        steps: &mut Steps,
    ) {
        self.due_ns = now_ns;
        self.ask(now_ns, state, next_rid, steps);
    }

    /// Returns whether an answer is to the last question.
    pub(super) fn is_about(&self, from: ReplicaId, answer: &Data<'_>) -> bool {
        (self.asked, u64::from(self.page)) == (Some((answer.rid, from)), answer.index)
    }

    /// Puts the page back if an answer is the page. Returns whether it is.
    pub(super) fn is_answered<P: PageStore>(&self, answer: &Data<'_>, state: &mut State<P>) -> bool {
        let found = state.tree_mut().leaf(self.page, answer.modified, Some(answer.page));
        let is_it = found == self.label && answer.page.len() == state.page_bytes();
        if is_it {
            state.repair(self.page, self.label, answer.page);
        }
        is_it
    }
}
