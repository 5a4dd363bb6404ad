//! What a state transfer asks its caller to do (spec §9).

use alloc::vec::Vec;

use quorate_wire::codec::Writer;
use quorate_wire::message::Fetch;
use quorate_wire::{Digest, Kind, ReplicaId, SeqNum};

/// Maximum number of questions on their way at a time, over all holders (ST-3).
pub const OUTSTANDING_MAX: usize = 256;

/// A range of bytes in [`Steps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: usize,
    len: usize,
}

/// A step that a transfer requests.
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
    /// Nothing to do: a message was rejected (K13).
    Refused {
        /// The sender.
        from: ReplicaId,
        /// Why.
        why: Refusal,
    },
    /// Nothing to do: the digests kept here did not belong to the pages. The walk begins again and
    /// trusts no page without its digest (CK-6).
    Distrusted,
    /// The page that could not be read is here again, or nothing needs it any more ([`Executor::repair`](crate::Executor::repair)).
    PageRestored {
        /// The page.
        page: u32,
    },
    /// The page that cannot be read was asked for at every replica, and none has given it. The questions go on.
    PageMissing {
        /// The page.
        page: u32,
    },
    /// A part of the target was asked for at every replica, more than once, and none has given it. The questions go on.
    Stalled,
    /// The state is now the one of checkpoint `seq`, the only one held. [`Executor::clients`](crate::Executor::clients) has
    /// its clients.
    Installed {
        /// The checkpoint.
        seq: SeqNum,
        /// Its root.
        root: Digest,
    },
}

/// Why a message of a state transfer was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// An answer to no question of ours, or to one that has been asked again since (ST-3).
    Unasked,
    /// An answer that does not have the digest asked for: its sender is faulty, and is asked again only
    /// if there is nobody else (ST-2).
    Lie,
    /// A question whose number is not above those seen from its sender: a replay (ST-3).
    Replay,
    /// Too many questions in too short a time.
    TooMany,
    /// A question about a checkpoint, or a part of it, that is not here (ST-7).
    NotHeld,
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

    pub(crate) fn push(&mut self, step: Step) {
        self.list.push(step);
    }

    pub(crate) fn refuse(&mut self, from: ReplicaId, why: Refusal) {
        self.push(Step::Refused { from, why });
    }

    pub(crate) fn answer(&mut self, to: ReplicaId, kind: Kind, write: impl FnOnce(&mut Writer<'_>)) {
        let start = self.bytes.len();
        write(&mut Writer::new(&mut self.bytes));
        let body = Span { start, len: self.bytes.len() - start };
        self.push(Step::Answer { to, kind, body });
    }
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The checkpoint to reach.
    pub seq: SeqNum,
    /// Pages that have been brought.
    pub fetched: u64,
    /// Those, and what is known to be missing still. Grows while the tree is walked and the target moves.
    pub total: u64,
}
