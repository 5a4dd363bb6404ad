//! State transfer as the executor's callers see it: messages and deadlines in, [`Steps`] out.

use quorate_wire::message::{Data, Fetch, MetaData};
use quorate_wire::{Digest, ReplicaId, SeqNum};

use super::Executor;
use crate::page::{PageFault, PageStore};
use crate::service::Service;
use crate::transfer::{Event, Progress, Steps};

impl<S: Service, P: PageStore> Executor<S, P> {
    /// Starts to bring the state to checkpoint `seq` with root `root`, which a weak certificate
    /// vouches for (ST-1), or turns a transfer in progress to it; what has come and fits is kept (ST-4).
    ///
    /// Drops the tentative batch. Until [`Step::Installed`](crate::Step::Installed) nothing is executed, merged or cut; reads
    /// and [`Self::cached`] see the old state. With `check` the pages that are here are not trusted:
    /// each is digested again (CK-6), and `seq` may be below the last batch executed (ST-8). `peers`
    /// are the replicas to ask, this one not among them.
    pub fn fetch(
        &mut self,
        now_ns: u64,
        seq: SeqNum,
        root: Digest,
        check: bool,
        peers: &[ReplicaId],
        steps: &mut Steps,
    ) {
        assert!(check || seq >= self.last_executed, "what was executed is not given up (ST-8)");
        self.undo(self.last_executed);
        self.transfer_on(now_ns, Event::Fetch { target: (seq, root), check, peers }, steps);
    }

    /// Has a page brought from `peers` that could not be read: [`Step::PageRestored`](crate::Step::PageRestored) tells when it is here. A transfer
    /// that is in progress, or comes, brings it as well.
    pub fn repair(&mut self, now_ns: u64, fault: PageFault, peers: &[ReplicaId], steps: &mut Steps) {
        self.transfer_on(now_ns, Event::Unreadable { page: fault.page, peers }, steps);
    }

    /// Answers another replica's FETCH from a complete checkpoint (ST-7), or not at all.
    pub fn on_fetch(&mut self, now_ns: u64, from: ReplicaId, question: &Fetch, steps: &mut Steps) {
        self.transfer_on(now_ns, Event::Question(from, question), steps);
    }

    /// Takes an answer to a FETCH for the children of a node.
    pub fn on_meta_data(&mut self, now_ns: u64, from: ReplicaId, answer: &MetaData<'_>, steps: &mut Steps) {
        self.transfer_on(now_ns, Event::MetaData(from, answer), steps);
    }

    /// Takes an answer to a FETCH for a page.
    pub fn on_data(&mut self, now_ns: u64, from: ReplicaId, answer: &Data<'_>, steps: &mut Steps) {
        self.transfer_on(now_ns, Event::Data(from, answer), steps);
    }

    /// Continues when [`Self::deadline`] has passed. Harmless at any other time.
    pub fn on_deadline(&mut self, now_ns: u64, steps: &mut Steps) {
        self.transfer_on(now_ns, Event::Deadline, steps);
    }

    /// Returns the moment, on the clock of `now_ns`, at which [`Self::on_deadline`] is due. Changes
    /// with each call; none: there is nothing to wait for.
    pub fn deadline(&self) -> Option<u64> {
        self.transfer.deadline()
    }

    /// Returns whether a transfer is in progress.
    pub fn is_fetching(&self) -> bool {
        self.transfer.is_fetching()
    }

    /// Returns how many pages other replicas have brought since the start.
    pub fn fetched(&self) -> u64 {
        self.transfer.fetched()
    }

    /// Returns how far the transfer is, if one is in progress.
    pub fn progress(&self) -> Option<Progress> {
        self.transfer.progress()
    }

    fn transfer_on(&mut self, now_ns: u64, event: Event<'_>, steps: &mut Steps) {
        if let Some(seq) = self.transfer.step(now_ns, event, &mut self.state, steps) {
            self.adopt(seq);
        }
    }
}

#[cfg(test)]
mod late;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
