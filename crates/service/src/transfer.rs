//! State transfer: inputs and outputs (spec §9).
//!
//! The walk down the digest tree is in `walk.rs`, the answers to other replicas' walks in `source.rs`. Both are
//! independent of clocks and networks: the driver passes the time and the messages, and performs the resulting steps.

pub(crate) mod repair;
pub(crate) mod source;
pub(crate) mod step;
pub(crate) mod walk;

pub use step::{OUTSTANDING_MAX, Progress, Refusal, Span, Step, Steps};

use quorate_wire::message::{Data, MetaData};
use quorate_wire::{Digest, ReplicaId, SeqNum};

use crate::executor::Executor;
use crate::page::PageStore;
use crate::service::Service;
use crate::transfer::repair::Mending;
use crate::transfer::walk::{Hands, Walk};

/// The transfer's own `step`: messages and deadlines in, [`Steps`] out.
impl<S: Service, P: PageStore> Executor<S, P> {
    /// Starts to bring the state to checkpoint `seq` with root `root`, which a weak certificate
    /// vouches for (ST-1), or turns a transfer in progress to it; what has come and fits is kept (ST-4).
    ///
    /// Drops the tentative batch. Until [`Step::Installed`] nothing is executed, merged or cut; reads
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
        self.mending = None;
        self.undo(self.last_executed);
        let base = if self.state.root_at(seq).is_some() { seq } else { self.state.newest() };
        let mut walk = self.walk.take().unwrap_or_default();
        walk.take_attic(core::mem::take(&mut self.attic));
        walk.aim((seq, root), base, check, peers, &self.state);
        self.walk_on(walk, now_ns, steps, |_, _| {});
    }

    /// Takes an answer to a FETCH for the children of a node.
    pub fn on_meta_data(&mut self, now_ns: u64, from: ReplicaId, answer: &MetaData<'_>, steps: &mut Steps) {
        match self.walk.take() {
            Some(walk) => {
                self.walk_on(walk, now_ns, steps, |walk, hands| walk.on_meta_data(from, answer, hands));
            }
            None => steps.refuse(from, Refusal::Unasked),
        }
    }

    /// Takes an answer to a FETCH for a page.
    pub fn on_data(&mut self, now_ns: u64, from: ReplicaId, answer: &Data<'_>, steps: &mut Steps) {
        match self.walk.take() {
            Some(walk) => self.walk_on(walk, now_ns, steps, |walk, hands| walk.on_data(from, answer, hands)),
            None => self.on_mending(now_ns, from, answer, steps),
        }
    }

    /// Continues when [`Self::deadline`] has passed. Harmless at any other time.
    pub fn on_deadline(&mut self, now_ns: u64, steps: &mut Steps) {
        if let Some(walk) = self.walk.take() {
            self.walk_on(walk, now_ns, steps, Walk::on_deadline);
        }
        self.mend_on(now_ns, steps);
    }

    /// Returns the moment, on the clock of `now_ns`, at which [`Self::on_deadline`] is due. Changes
    /// with each call; none: there is nothing to wait for.
    pub fn deadline(&self) -> Option<u64> {
        if self.walk.as_ref().is_some_and(|walk| walk.may_land(self.landed_max)) {
            return Some(0);
        }
        let mending = self.mending.as_ref().map(Mending::deadline);
        self.walk.as_ref().and_then(Walk::deadline).into_iter().chain(mending).min()
    }

    /// Returns whether a transfer is in progress.
    pub fn is_fetching(&self) -> bool {
        self.walk.is_some()
    }

    /// Returns how many pages other replicas have brought since the start.
    pub fn fetched(&self) -> u64 {
        self.fetched + self.progress().map_or(0, |progress| progress.fetched)
    }

    /// Returns how far the transfer is, if one is in progress.
    pub fn progress(&self) -> Option<Progress> {
        Some(self.walk.as_ref()?.progress())
    }

    /// Lets the walk take in what `event` is, go as far as it can, and install what it has when it is
    /// at its end.
    fn walk_on(
        &mut self,
        mut walk: Walk,
        now_ns: u64,
        steps: &mut Steps,
        event: impl FnOnce(&mut Walk, &mut Hands<'_, P>),
    ) {
        let mut hands = Hands {
            state: &mut self.state,
            next_rid: &mut self.next_rid,
            now_ns,
            staged_max: self.staged_max,
            steps: &mut *steps,
        };
        event(&mut walk, &mut hands);
        walk.advance(&mut hands);
        while walk.may_land(self.landed_max) {
            let (seq, root) = walk.target();
            self.fetched += walk.take_fetched();
            if walk.install(hands.state) {
                self.adopt(seq);
                steps.push(Step::Installed { seq, root });
                return;
            }
            hands.steps.push(Step::Distrusted);
            walk.aim((seq, root), seq, true, &[], hands.state);
            walk.advance(&mut hands);
        }
        if walk.is_done() {
            walk.wait(now_ns);
        }
        self.walk = Some(walk);
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
