//! Fetches a page of the state that cannot be read from its disk from other replicas.
//!
//! The page has not changed since it was written, so its label is known and every checkpoint of this replica contains
//! it. One other replica at a time is asked for it, as a page of one of these checkpoints. Content with the right
//! digest is the page, from any sender (ST-2). Until then no operation that needs the page is executed. If the other
//! replicas no longer hold any of these checkpoints, a state transfer follows, which treats the page as one that
//! differs.

use alloc::vec::Vec;

use quorate_wire::message::{Data, Fetch};
use quorate_wire::{ReplicaId, SeqNum};

use crate::executor::Executor;
use crate::page::{PageFault, PageStore};
use crate::service::Service;
use crate::state::tree::Label;
use crate::transfer::step::{Refusal, Step, Steps};

/// How long an answer is waited for, in nanoseconds.
const WAIT_NS: u64 = 50_000_000;

/// A page that is asked for.
#[derive(Debug)]
pub(crate) struct Mending {
    page: u32,
    label: Label,
    peers: Vec<ReplicaId>,
    /// Questions so far.
    attempts: usize,
    rid: u64,
    asked: ReplicaId,
    due_ns: u64,
}

impl Mending {
    /// Returns when to ask another replica.
    pub(crate) fn deadline(&self) -> u64 {
        self.due_ns
    }
}

impl<S: Service, P: PageStore> Executor<S, P> {
    /// Has a page brought from `peers` that could not be read: [`Step::Mended`] tells when it is here. A transfer
    /// that is in progress, or comes, brings it as well.
    pub fn mend(&mut self, now_ns: u64, fault: PageFault, peers: &[ReplicaId], steps: &mut Steps) {
        let page = fault.page;
        self.state.lack(page);
        let is_asked = self.mending.as_ref().is_some_and(|mending| mending.page == page);
        let Some(&asked) = peers.first().filter(|_| !is_asked && self.walk.is_none()) else { return };
        let label = self.state.tree().label(0, page);
        let peers = peers.to_vec();
        self.mending = Some(Mending { page, label, peers, attempts: 0, rid: 0, asked, due_ns: now_ns });
        self.mend_on(now_ns, steps);
    }

    /// Asks the next one, if it is time: one replica after the other about each checkpoint, oldest first, for the
    /// stable one is what all have mostly.
    pub(crate) fn mend_on(&mut self, now_ns: u64, steps: &mut Steps) {
        let Some(mending) = self.mending.as_mut().filter(|mending| mending.due_ns <= now_ns) else { return };
        let (page, label) = (mending.page, mending.label);
        let state = &self.state;
        let held = state.checkpoints().map(|(seq, _)| seq);
        let held: Vec<SeqNum> = held.filter(|seq| state.label_at(*seq, 0, page) == label).collect();
        mending.due_ns = now_ns.saturating_add(WAIT_NS);
        let (peers, count) = (mending.peers.len(), held.len().max(1));
        let Some(&checkpoint) = held.get(mending.attempts / peers % count) else { return };
        mending.asked = mending.peers[mending.attempts % peers];
        mending.attempts += 1;
        mending.rid = self.next_rid;
        self.next_rid += 1;
        let question = Fetch { rid: mending.rid, level: 0, index: u64::from(page), checkpoint };
        steps.push(Step::Ask { to: mending.asked, question });
    }

    /// Takes an answer.
    pub(crate) fn on_mending(&mut self, now_ns: u64, from: ReplicaId, answer: &Data<'_>, steps: &mut Steps) {
        let asked = self.mending.as_mut().filter(|mending| {
            (mending.asked, mending.rid, u64::from(mending.page)) == (from, answer.rid, answer.index)
        });
        let Some(mending) = asked else { return steps.refuse(from, Refusal::Unasked) };
        let page = mending.page;
        let found = self.state.tree_mut().leaf(page, answer.modified, Some(answer.page));
        if found != mending.label || answer.page.len() != self.state.page_bytes() {
            steps.refuse(from, Refusal::Lie);
            mending.due_ns = now_ns;
            return self.mend_on(now_ns, steps);
        }
        self.state.mend(page, answer.page);
        self.mending = None;
        self.fetched += 1;
        steps.push(Step::Mended { page });
    }
}
