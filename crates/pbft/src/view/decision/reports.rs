//! The reports of the replicas in S together: which checkpoint to start from, and how far to decide.

use alloc::vec::Vec;

use quorate_wire::message::{NewView, ViewChange};
use quorate_wire::{Cluster, Digest, ReplicaId, SeqNum, ViewNum};

use super::form::ViewChangeOf;
use super::number::{Admits, Number, Row};
use super::rule::enough;
use crate::order::votes::bit;

/// The reports of the replicas in S, at most one each (VC-6, B1).
pub(super) struct Reports<'a> {
    cluster: Cluster,
    of: Vec<Report<'a>>,
}

#[derive(Clone, Copy)]
struct Report<'a> {
    replica: ReplicaId,
    message: &'a ViewChange,
}

impl<'a> Reports<'a> {
    pub(super) fn new(cluster: Cluster, s: &[ViewChangeOf<'a>]) -> Self {
        let mut seen = 0;
        let mut of = Vec::with_capacity(s.len());
        for (replica, message) in s.iter().map(|m| (m.replica(), m.message())) {
            if seen & bit(replica) == 0 {
                seen |= bit(replica);
                of.push(Report { replica, message });
            }
        }
        Self { cluster, of }
    }

    /// Returns how many replicas report.
    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    fn count(&self, holds: impl Fn(&ViewChange) -> bool) -> usize {
        self.of.iter().filter(|report| holds(report.message)).count()
    }

    /// The checkpoint condition of spec §11.6.
    pub(super) fn supports_checkpoint(&self, (seq, digest): (SeqNum, Digest)) -> bool {
        let has = |m: &ViewChange| m.checkpoints.contains(&(seq, digest));
        // "the latest stable checkpoint in V" [OSDI99 §4.4] is in reach: a quorum has not gone past it.
        // Over all of S and not only over those that have this checkpoint, or replicas whose low
        // water marks are staggered deadlock (A19, B2).
        let within = mutant!(M8, self.count(|m| m.stable <= seq), self.count(|m| m.stable <= seq && has(m)));
        // "whose checkpoint messages certified its correctness": one of f + 1 is correct and holds it.
        let vouched = self.count(has);
        within >= enough(self.cluster) && vouched >= self.cluster.weak()
    }

    /// Returns the latest checkpoint that S supports: `(n*, d*)`.
    pub(super) fn checkpoint(&self) -> Option<(SeqNum, Digest)> {
        let candidates = self.of.iter().flat_map(|report| &report.message.checkpoints).copied();
        candidates.filter(|candidate| self.supports_checkpoint(*candidate)).max()
    }

    /// Returns whether a quorum reports nothing above `seq`.
    pub(super) fn end_by(&self, seq: SeqNum) -> bool {
        self.count(|m| top(m) <= seq) >= enough(self.cluster)
    }

    /// Returns `max_x`: the smallest number from `low` on above which a quorum reports nothing (DP-3).
    pub(super) fn last(&self, low: SeqNum) -> SeqNum {
        let tops = self.of.iter().map(|report| top(report.message));
        tops.chain([low]).filter(|x| *x >= low && self.end_by(*x)).min().unwrap_or(low)
    }

    /// The insufficient test of mutant M6: all that X leaves out could be null.
    pub(super) fn only_nulls_above(
        &self,
        new_view: &NewView,
        null: Digest,
        proofs: impl Fn(SeqNum, &Digest, ViewNum) -> u64,
    ) -> bool {
        let mut only_nulls = true;
        self.each(new_view.last(), self.last(new_view.checkpoint.0), |number| {
            only_nulls &= matches!(number.admits(null, null, &proofs), Admits::Yes);
        });
        only_nulls
    }

    /// Calls `number` with what S says about each number above `low` up to `high`, in order.
    pub(super) fn each(&self, low: SeqNum, high: SeqNum, mut number: impl FnMut(&Number<'a>)) {
        // P and Q are sorted by number: one pass over each.
        let of = self.of.iter();
        let cursors =
            of.map(|r| (r, r.message.prepared.iter().peekable(), r.message.pre_prepared.iter().peekable()));
        let mut cursors: Vec<_> = cursors.collect();
        let mut column = Number { cluster: self.cluster, seq: low, rows: Vec::with_capacity(self.of.len()) };
        while column.seq < high {
            column.seq = column.seq.next();
            let seq = column.seq;
            column.rows.clear();
            for (report, prepared, pre_prepared) in &mut cursors {
                while prepared.next_if(|p| p.seq < seq).is_some() {}
                while pre_prepared.next_if(|q| q.seq < seq).is_some() {}
                column.rows.push(Row {
                    replica: report.replica,
                    stable: report.message.stable,
                    prepared: prepared.next_if(|p| p.seq == seq),
                    claims: pre_prepared.next_if(|q| q.seq == seq).map_or(&[], |q| &q.claims),
                });
            }
            number(&column);
        }
    }
}

/// Returns the highest number about which `m` says anything: `top(m)`.
fn top(m: &ViewChange) -> SeqNum {
    let prepared = m.prepared.last().map_or(m.stable, |p| p.seq);
    let pre_prepared = m.pre_prepared.last().map_or(m.stable, |q| q.seq);
    m.stable.max(prepared).max(pre_prepared)
}
