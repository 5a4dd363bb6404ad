//! The reports of S about one sequence number, and the conditions under which it is decided.

use alloc::vec::Vec;
use core::cmp::Reverse;

use quorate_wire::message::{Prepared, Want};
use quorate_wire::{Cluster, Digest, ReplicaId, SeqNum, ViewNum};

use super::rule::enough;
use crate::order::votes::{bit, size};

/// The statements in S about one sequence number.
pub(super) struct Number<'a> {
    pub(super) cluster: Cluster,
    pub(super) seq: SeqNum,
    pub(super) rows: Vec<Row<'a>>,
}

/// One replica's statement about it.
pub(super) struct Row<'a> {
    pub(super) replica: ReplicaId,
    pub(super) stable: SeqNum,
    pub(super) prepared: Option<&'a Prepared>,
    pub(super) claims: &'a [(Digest, ViewNum)],
}

/// The missing data for the undecided numbers.
#[derive(Default)]
pub(super) struct Open {
    pub(super) first: Option<SeqNum>,
    pub(super) batches: Vec<Digest>,
    pub(super) wants: Vec<Want>,
}

/// Whether a choice may stand.
pub(super) enum Admits {
    Yes,
    /// With support for this claim.
    Perhaps(Want),
    No,
}

impl Number<'_> {
    /// Returns the batch for this number, or adds to `open` what is missing for one.
    pub(super) fn choose(
        &self,
        null: Digest,
        proofs: impl Fn(SeqNum, &Digest, ViewNum) -> u64,
        have_batch: impl Fn(&Digest) -> bool,
        open: &mut Open,
    ) -> Option<Digest> {
        let (batches, wants) = (open.batches.len(), open.wants.len());
        let mut decided = None;
        // "with the highest view number in V" [OSDI99 §4.4]: highest view first (DP-1).
        for p in self.candidates() {
            if !self.a1(p) {
                continue;
            }
            if !self.a2(p, &proofs) {
                open.wants.push(Want { seq: self.seq, digest: p.digest, view: p.view });
                continue;
            }
            // A3: "the batch with digest d and all its bodies are present". The null batch always is.
            if p.digest != null && !have_batch(&p.digest) {
                open.batches.push(p.digest);
                continue;
            }
            decided = Some(p.digest);
            break;
        }
        // "In the second case, it creates a new pre-prepare [... for] a special null request", but
        // prefer A over B (DP-1).
        if decided.is_none() && self.b() {
            decided = Some(null);
        }
        if decided.is_some() {
            open.batches.truncate(batches);
            open.wants.truncate(wants);
        }
        decided
    }

    /// Returns whether the new primary may have chosen `digest` (VV-3).
    pub(super) fn admits(
        &self,
        digest: Digest,
        null: Digest,
        proofs: impl Fn(SeqNum, &Digest, ViewNum) -> u64,
    ) -> Admits {
        // "B for null".
        if digest == null && self.b() {
            return Admits::Yes;
        }
        // "A1 and A2 for the chosen d with some P entry (d, v') in V".
        let mut admits = Admits::No;
        for p in self.candidates().into_iter().filter(|p| p.digest == digest) {
            if !self.a1(p) {
                continue;
            }
            if self.a2(p, &proofs) {
                return Admits::Yes;
            }
            // The last is of the oldest view, for which support is easiest to find.
            admits = Admits::Perhaps(Want { seq: self.seq, digest, view: p.view });
        }
        admits
    }

    /// Returns what someone claims to have prepared here, each once, the highest view first.
    fn candidates(&self) -> Vec<&Prepared> {
        let mut candidates: Vec<&Prepared> = Vec::new();
        for p in self.rows.iter().filter_map(|row| row.prepared) {
            if !candidates.contains(&p) {
                candidates.push(p);
            }
        }
        mutant!(M5, candidates.sort_by_key(|p| Reverse(p.view)), ());
        candidates
    }

    /// A1: a quorum has prepared nothing here that could have committed instead of `chosen`.
    fn a1(&self, chosen: &Prepared) -> bool {
        let agrees = self.rows.iter().filter(|row| {
            // A replica with h >= n has discarded its entries for n: its silence says nothing (DP-2).
            mutant!(M3, row.stable < self.seq, true)
                // "m.P[n] = none, or m.P[n].v < v', or m.P[n] = (d, v')".
                && row.prepared.is_none_or(|p| {
                    mutant!(M5, p.view < chosen.view, p.view != chosen.view) || p == chosen
                })
        });
        mutant!(M1, agrees.count() >= enough(self.cluster), true)
    }

    /// A2: `f + 1` replicas pre-prepared `chosen` in its view or later, so that a correct one did, and
    /// by induction nothing else had committed.
    fn a2(&self, chosen: &Prepared, proofs: impl Fn(SeqNum, &Digest, ViewNum) -> u64) -> bool {
        let claims = |row: &&Row<'_>| {
            row.claims.iter().any(|(digest, view)| *digest == chosen.digest && *view >= chosen.view)
        };
        let claimed = self.rows.iter().filter(claims).fold(0, |set, row| set | bit(row.replica));
        // A replica that claims it and sends a PROOF as well is one replica.
        let support = claimed | proofs(self.seq, &chosen.digest, chosen.view);
        mutant!(M2, size(support) >= self.cluster.weak(), true)
    }

    /// B: a quorum has prepared nothing here, so that nothing has committed.
    fn b(&self) -> bool {
        let nothing = self.rows.iter().filter(|row| {
            // A replica with h >= n has discarded its entries for n: its silence says nothing (DP-2).
            mutant!(M4, row.stable < self.seq, true) && row.prepared.is_none()
        });
        nothing.count() >= enough(self.cluster)
    }
}
