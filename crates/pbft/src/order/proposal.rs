//! The proposal for one number, and which of its requests are not authentic here.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use quorate_wire::Digest;
use quorate_wire::batch::Batch;
use quorate_wire::id::ReplicaId;

use crate::order::votes::{bit, size};

/// The primary's proposal for a number in the log's view, or the choice of the NEW-VIEW.
#[derive(Clone, Debug)]
pub(crate) struct Proposal {
    pub(crate) digest: Digest,
    /// Absent while it is being fetched: a NEW-VIEW names digests only.
    pub(crate) batch: Option<Arc<Batch>>,
    /// Every request in it is authentic here, or enough replicas vouch for it (PP-5, AU-2).
    pub(crate) authentic: bool,
    /// When it was accepted, in nanoseconds of the monotonic clock.
    pub(crate) since: u64,
}

impl Proposal {
    /// Returns the batch once every body is here.
    pub(crate) fn complete(&self) -> Option<&Arc<Batch>> {
        self.batch.as_ref().filter(|batch| batch.is_complete())
    }
}

/// The requests of a proposal that are not authentic here, and which other backups have sent REQ-ACK for each (AU-2). Never
/// more than the proposal has.
#[derive(Debug, Default)]
pub(crate) struct Doubtful {
    acks: BTreeMap<Digest, u64>,
    /// When copies with signatures were last asked for (AU-5), in nanoseconds.
    asked: Option<u64>,
}

impl Doubtful {
    /// Takes the requests, each with those that have vouched for it already.
    pub(super) fn set(&mut self, requests: &[(Digest, u64)]) {
        let known = core::mem::take(&mut self.acks);
        let before = |digest| known.get(digest).copied().unwrap_or(0);
        self.acks = requests.iter().map(|(digest, by)| (*digest, by | before(digest))).collect();
    }

    pub(super) fn clear(&mut self) {
        self.acks.clear();
        self.asked = None;
    }

    /// Returns whether copies with signatures are asked for now: again after `every_ns`.
    pub(super) fn ask(&mut self, now_ns: u64, every_ns: u64) -> bool {
        let is_due = self.asked.is_none_or(|asked| now_ns >= asked.saturating_add(every_ns));
        if is_due {
            self.asked = Some(now_ns);
        }
        is_due
    }

    /// Another backup vouches for a request. Says whether that is new, and the request is one of these. What it says later
    /// of the next request of its client takes nothing back.
    pub(super) fn note(&mut self, request: &Digest, from: ReplicaId) -> bool {
        let Some(by) = self.acks.get_mut(request) else { return false };
        let before = *by;
        *by |= bit(from);
        *by != before
    }

    /// Says whether a request is authentic, or f others vouch for it: by a REQ-ACK, or as they have `prepared`. With the
    /// primary these are f + 1 replicas, so a correct one.
    pub(super) fn is_accepted(&self, request: &Digest, prepared: u64, f: usize) -> bool {
        let vouched = |acks: &u64| f > 0 && size(mutant!(M182, acks | prepared, prepared)) >= f;
        self.acks.get(request).is_none_or(vouched)
    }

    /// Says whether there are any, and enough others vouch for each of them.
    pub(super) fn are_accepted(&self, prepared: u64, f: usize) -> bool {
        !self.acks.is_empty() && self.acks.keys().all(|request| self.is_accepted(request, prepared, f))
    }
}
