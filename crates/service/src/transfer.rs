//! State transfer: the walk down the digest tree, and the answers to others' walks (spec §9).
//!
//! Everything is checked against a digest that chains to the certified root, so one correct replica
//! that answers suffices, and a liar is known by its first lie (ST-2).

use alloc::vec::Vec;

use quorate_wire::message::{Data, Fetch, MetaData};
use quorate_wire::{Digest, Kind, ReplicaId, SeqNum};

use crate::executor::Executor;
use crate::service::Service;

/// The most questions on their way at a time, over all holders (ST-3).
pub const OUTSTANDING_MAX: usize = 32;

/// Where some bytes of [`Steps`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: usize,
    len: usize,
}

/// What a transfer wants done.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Send a FETCH to one replica.
    Ask {
        /// For whom.
        to: ReplicaId,
        /// The question.
        question: Fetch,
    },
    /// Send a META-DATA or DATA to one replica.
    Answer {
        /// For whom.
        to: ReplicaId,
        /// Which of the two.
        kind: Kind,
        /// Its body, for [`Steps::bytes`].
        body: Span,
    },
    /// Nothing to do: an answer was wrong, or to no question of ours (K13).
    Refused {
        /// Who sent it.
        from: ReplicaId,
        /// Its digest did not fit: the sender is faulty.
        lie: bool,
    },
    /// The state is now the one of checkpoint `seq`, the only one held. [`Executor::clients`] has
    /// its clients.
    Installed {
        /// The checkpoint.
        seq: SeqNum,
        /// Its root.
        root: Digest,
    },
}

/// The steps of one call, and the bytes they refer to. The driver clears it and never drops it.
#[derive(Debug, Default)]
pub struct Steps {
    list: Vec<Step>,
    bytes: Vec<u8>,
}

impl Steps {
    /// Returns an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the list and keeps its memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
    }

    /// Returns the steps in order.
    pub fn list(&self) -> &[Step] {
        &self.list
    }

    /// Returns the bytes of an answer.
    pub fn bytes(&self, span: Span) -> &[u8] {
        self.bytes.get(span.start..span.start + span.len).unwrap_or(&[])
    }
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The checkpoint to reach.
    pub seq: SeqNum,
    /// Pages that differ and are here.
    pub fetched: u64,
    /// Pages known to differ. Grows while the tree is walked.
    pub total: u64,
}

/// The transfer's own `step`: questions, answers and a deadline in, [`Steps`] out.
impl<S: Service> Executor<S> {
    /// Starts to bring the state to checkpoint `seq` with root `root`, which a weak certificate
    /// vouches for (ST-1), or turns a transfer under way to it; what has come and fits is kept (ST-4).
    ///
    /// Drops the tentative batch. Until [`Step::Installed`] nothing is executed, merged or cut; reads
    /// and [`Self::cached`] see the old state. With `check` the pages that are here are not trusted:
    /// each is digested again (CK-6), and `seq` may be below the last batch executed (ST-8). `peers`
    /// are the replicas to ask, this one not among them.
    pub fn fetch(
        &mut self,
        _now_ns: u64,
        _seq: SeqNum,
        _root: Digest,
        _check: bool,
        _peers: &[ReplicaId],
        _steps: &mut Steps,
    ) {
        todo!()
    }

    /// Takes an answer to a FETCH for the children of a node.
    pub fn on_meta_data(&mut self, _now_ns: u64, _from: ReplicaId, _answer: &MetaData<'_>, _steps: &mut Steps) {
        todo!()
    }

    /// Takes an answer to a FETCH for a page.
    pub fn on_data(&mut self, _now_ns: u64, _from: ReplicaId, _answer: &Data<'_>, _steps: &mut Steps) {
        todo!()
    }

    /// Goes on when [`Self::deadline`] has come. Harmless at any other time.
    pub fn on_deadline(&mut self, _now_ns: u64, _steps: &mut Steps) {
        todo!()
    }

    /// Answers another replica's FETCH from a complete checkpoint (ST-7), or not at all.
    pub fn on_fetch(&mut self, _now_ns: u64, _from: ReplicaId, _question: &Fetch, _steps: &mut Steps) {
        todo!()
    }

    /// Returns the moment, on the clock of `now_ns`, at which [`Self::on_deadline`] is due. Changes
    /// with each call; none: no transfer is under way.
    pub fn deadline(&self) -> Option<u64> {
        todo!()
    }

    /// Returns how far the transfer is, if one is under way.
    pub fn progress(&self) -> Option<Progress> {
        todo!()
    }
}
