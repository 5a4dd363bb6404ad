//! The state card: the state of a replica in one stable form for all tools.

use alloc::vec::Vec;
use core::fmt;

use quorate_wire::Digest;
use quorate_wire::id::{ReplicaId, SeqNum, ViewNum};

use crate::replica::Replica;

/// A snapshot of a replica for people, tests and checkers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each says something else")]
pub struct StateCard {
    /// Who.
    pub id: ReplicaId,
    /// Its view.
    pub view: ViewNum,
    /// Whether it takes part in it.
    pub normal: bool,
    /// `h`.
    pub stable: SeqNum,
    /// The lowest number of the view.
    pub low: SeqNum,
    /// `H`.
    pub high: SeqNum,
    /// `last_exec`.
    pub executed: SeqNum,
    /// `last_tent`: the last batch handed to the executor.
    pub handed_over: SeqNum,
    /// `max_x`.
    pub last_fixed: SeqNum,
    /// The last number assigned as primary.
    pub assigned: SeqNum,
    /// It fetches state.
    pub transferring: bool,
    /// It rejoins and does not vote.
    pub recovering: bool,
    /// It has started again, and the others have not confirmed that they saw it (§14.3).
    pub unconfirmed: bool,
    /// Requests that wait here.
    pub pending: usize,
    /// Reads are served from here on.
    pub read_floor: SeqNum,
    /// P: what prepared, with the newest view.
    pub prepared: Vec<(SeqNum, Digest, ViewNum)>,
    /// Own checkpoints from `h` on.
    pub checkpoints: Vec<(SeqNum, Digest)>,
}

impl fmt::Display for StateCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match (self.recovering, self.transferring, self.normal) {
            _ if self.unconfirmed => "unconfirmed",
            (true, ..) => "rejoining",
            (false, true, _) => "transferring",
            (false, false, true) => "normal",
            (false, false, false) => "view-change",
        };
        write!(
            f,
            "{} v={} {mode} h={} low={} executed={} handed={} fixed={} pending={}",
            self.id,
            self.view.0,
            self.stable.0,
            self.low.0,
            self.executed.0,
            self.handed_over.0,
            self.last_fixed.0,
            self.pending
        )
    }
}

impl Replica {
    /// Returns what the replica is, in one stable form.
    pub fn state(&self) -> StateCard {
        let prepared = self.log.iter().filter_map(|slot| {
            let (view, batch) = slot.prepared()?;
            Some((slot.seq(), batch.digest(), view))
        });
        StateCard {
            id: self.id,
            view: self.views.view(),
            normal: self.is_normal(),
            stable: self.log.stable(),
            low: self.log.low(),
            high: self.log.high(),
            executed: self.exec.executed(),
            handed_over: self.exec.handed_over(),
            last_fixed: self.views.last_fixed(),
            assigned: self.batcher.assigned(),
            transferring: self.target.is_active(),
            recovering: self.recovery.is_active(),
            unconfirmed: self.recovery.waits_for_echoes(),
            pending: self.clients.pending().count(),
            read_floor: self.reads.floor(),
            prepared: prepared.collect(),
            checkpoints: self.checkpoints.own().iter().map(|(seq, root)| (*seq, *root)).collect(),
        }
    }
}
