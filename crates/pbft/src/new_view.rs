//! What a new view takes over from the views before it: [OSDI99 §4.4] in mode `Hybrid` (spec §11.4,
//! §11.6, §11.7).
//!
//! In OSDI99 a batch in P comes with signed prepares, which prove that it prepared, and the new
//! primary takes "the highest view number in V" for each sequence number. With MACs a replica can
//! only *claim* that a batch prepared. So the claim has to be one that a quorum cannot contradict
//! (A1), and that a correct replica must have made possible (A2):
//!
//! ```text
//! for each n:  A1  a quorum has prepared nothing later or different at n       nothing else committed
//!              A2  f + 1 replicas pre-prepared d at n in that view or later    some correct one did
//!              A3  the batch is here
//!              B   a quorum has prepared nothing at n                          nothing committed
//! ```
//!
//! Pure functions: the new primary decides with [`decide`], each backup checks with [`check`], and
//! both stand on the same conditions. Any decision that satisfies them is safe (DP-1, spec §11.10).

use alloc::vec::Vec;
use core::cmp::Reverse;

use quorate_wire::message::{self, NewView, Prepared, ViewChange, Want};
use quorate_wire::{Cluster, Digest, ReplicaId, SeqNum, ViewNum};

use crate::certificate::{bit, size};
use crate::step::Reject;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

/// A well-formed VIEW-CHANGE and the replica that signed it. Only [`Self::new`] makes one, which checks it.
#[derive(Clone, Copy, Debug)]
pub struct ViewChangeOf<'a> {
    replica: ReplicaId,
    message: &'a ViewChange,
}

impl<'a> ViewChangeOf<'a> {
    /// Checks `message`, which `replica` has signed. `interval` is K and `window` is L.
    ///
    /// # Errors
    ///
    /// The rule that it breaks (VC-5).
    pub fn new(
        cluster: Cluster,
        interval: u64,
        window: u64,
        replica: ReplicaId,
        message: &'a ViewChange,
    ) -> Result<Self, Reject> {
        if !cluster.contains(replica) {
            return Err(Reject::WrongSender);
        }
        well_formed(cluster, interval, window, message)?;
        Ok(Self { replica, message })
    }

    /// Returns who signed it.
    pub fn replica(&self) -> ReplicaId {
        self.replica
    }

    /// Returns the message.
    pub fn message(&self) -> &'a ViewChange {
        self.message
    }
}

/// What the new primary can say so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Every number is decided: what a NEW-VIEW says.
    Complete {
        /// The checkpoint to start from: `n*` and `d*`.
        checkpoint: (SeqNum, Digest),
        /// X: the batch for each number from `n* + 1` to `max_x`, the null batch where nothing can
        /// have committed. At most L.
        chosen: Vec<Digest>,
    },
    /// Something is missing. A further VIEW-CHANGE can only help (DP-5).
    Waiting {
        /// What stands in the way first.
        why: Lack,
        /// Batches that would be chosen if they were here (A3).
        batches: Vec<Digest>,
        /// Claims that PROOFs could support (A2, DP-4). At most [`message::WANTS_MAX`].
        wants: Vec<Want>,
    },
}

/// What stands in the way of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// There are fewer VIEW-CHANGEs than a quorum.
    ViewChanges,
    /// No checkpoint is vouched for by a correct replica and within reach of a quorum.
    Checkpoint,
    /// Neither A nor B holds for this number yet.
    Choice(SeqNum),
}

/// What a backup finds in a NEW-VIEW.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every condition holds.
    Valid,
    /// Nothing is wrong, but these claims lack support (A2) that PROOFs could give (VV-4).
    Missing {
        /// At most [`message::WANTS_MAX`].
        wants: Vec<Want>,
    },
    /// A condition fails that no further message can repair: the primary is faulty (VV-4).
    Invalid(Violation),
}

/// Which condition a NEW-VIEW violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// V is smaller than a quorum, or names someone who is not a member (VV-1).
    ViewChanges,
    /// A VIEW-CHANGE in V is for another view.
    OtherView,
    /// The checkpoint is not one, or V does not support it.
    Checkpoint,
    /// X reaches further than the window.
    TooLong,
    /// X ends before what a quorum of V allows (DP-3).
    TooShort,
    /// Neither A1 for the batch chosen nor B for null holds at this number.
    Choice(SeqNum),
}

/// Decides what the new view takes over, as its primary (spec §11.6).
///
/// `s` is S, valid VIEW-CHANGEs for one view. `null` is the digest of the null batch. `proofs` gives
/// the replicas known to have pre-prepared a digest at a number in that view or later, by PROOF or
/// because it is this one; `have_batch` says whether a batch and all its bodies are here. To be
/// called again after every change of what it is given.
pub fn decide(
    cluster: Cluster,
    window: u64,
    null: Digest,
    s: &[ViewChangeOf<'_>],
    proofs: impl Fn(SeqNum, &Digest, ViewNum) -> u64,
    have_batch: impl Fn(&Digest) -> bool,
) -> Decision {
    let reports = Reports::new(cluster, s);
    let waiting = |why| Decision::Waiting { why, batches: Vec::new(), wants: Vec::new() };
    if reports.of.len() < cluster.quorum() {
        return waiting(Lack::ViewChanges);
    }
    let Some(checkpoint) = reports.checkpoint() else { return waiting(Lack::Checkpoint) };
    let last = reports.last(checkpoint.0);
    // A quorum has its low water mark at n* or below, and no entry above that plus L.
    assert!(last <= checkpoint.0.plus(window));

    let mut chosen = Vec::new();
    let mut open = Open::default();
    reports.each(checkpoint.0, last, |number| match number.choose(null, &proofs, &have_batch, &mut open) {
        Some(digest) => chosen.push(digest),
        None => open.first = open.first.or(Some(number.seq)),
    });
    if let Some(seq) = open.first {
        return Decision::Waiting { why: Lack::Choice(seq), batches: open.batches, wants: open.wants };
    }
    mutant!(M6, (), prune_nulls(&mut chosen, null));
    Decision::Complete { checkpoint, chosen }
}

/// Checks what the primary of a new view has decided, as a backup (VV-3).
///
/// `v` holds exactly the messages that `new_view` names, found by their digests. The conditions are
/// those of [`decide`], but the choice may be another than the one computed here: "a lower eligible
/// checkpoint or another eligible choice is safe".
pub fn check(
    cluster: Cluster,
    interval: u64,
    window: u64,
    null: Digest,
    v: &[ViewChangeOf<'_>],
    proofs: impl Fn(SeqNum, &Digest, ViewNum) -> u64,
    new_view: &NewView,
) -> Verdict {
    assert!(v.iter().map(|m| m.replica).eq(new_view.view_changes.iter().map(|(replica, _)| *replica)));
    if let Err(violation) = well_formed_new_view(cluster, interval, window, new_view) {
        return Verdict::Invalid(violation);
    }
    // "if the view-change messages it contains are valid for view v+1" [OSDI99 §4.4].
    if v.iter().any(|m| m.message.view != new_view.view) {
        return Verdict::Invalid(Violation::OtherView);
    }
    let reports = Reports::new(cluster, v);
    if !reports.supports_checkpoint(new_view.checkpoint) {
        return Verdict::Invalid(Violation::Checkpoint);
    }
    // Above the end of X the primary may propose anew: a quorum has nothing there (DP-3).
    if mutant!(M6, !reports.end_by(new_view.last()), !reports.only_nulls_above(new_view, null, &proofs)) {
        return Verdict::Invalid(Violation::TooShort);
    }
    let mut wants = Vec::new();
    let mut violation = None;
    let mut chosen = new_view.chosen.iter();
    reports.each(new_view.checkpoint.0, new_view.last(), |number| {
        let Some(digest) = chosen.next() else { return };
        match number.admits(*digest, null, &proofs) {
            Admits::Yes => {}
            Admits::Perhaps(want) => ask(&mut wants, want),
            Admits::No => violation = violation.or(Some(Violation::Choice(number.seq))),
        }
    });
    match violation {
        Some(violation) => Verdict::Invalid(violation),
        None if wants.is_empty() => Verdict::Valid,
        None => Verdict::Missing { wants },
    }
}

/// Checks the form of a NEW-VIEW, for which the VIEW-CHANGEs that it names need not be here (VV-1).
pub fn well_formed_new_view(
    cluster: Cluster,
    interval: u64,
    window: u64,
    new_view: &NewView,
) -> Result<(), Violation> {
    // Different replicas: a set of them, however often V names one (B1).
    let named = new_view.view_changes.iter().fold(0, |set, (replica, _)| set | bit(*replica));
    let members = new_view.view_changes.iter().all(|(replica, _)| cluster.contains(*replica));
    if !members || size(named) < cluster.quorum() || size(named) != new_view.view_changes.len() {
        return Err(Violation::ViewChanges);
    }
    if !new_view.checkpoint.0.0.is_multiple_of(interval) {
        return Err(Violation::Checkpoint);
    }
    if new_view.last() > new_view.checkpoint.0.plus(window) {
        return Err(Violation::TooLong);
    }
    Ok(())
}

/// Checks the form of a VIEW-CHANGE: every validity rule of spec §11.4 (VC-5). `interval` is K and
/// `window` is L.
///
/// A field that is absent is a rule broken, not a check skipped (B27), and a list that names a number
/// twice is refused: counting entries for replicas would give one liar many voices (A17).
pub fn well_formed(cluster: Cluster, interval: u64, window: u64, m: &ViewChange) -> Result<(), Reject> {
    let high = m.stable.plus(window);
    let rule = |holds: bool| if holds { Ok(()) } else { Err(Reject::BadViewChange) };
    // v > 0: view 0 begins without a view change.
    rule(m.view > ViewNum(0))?;
    // h is a checkpoint.
    rule(m.stable.0.is_multiple_of(interval))?;

    // C: the sender's checkpoints, "incl. h", h <= n <= h + L, strictly increasing.
    rule(m.checkpoints.first().is_some_and(|(seq, _)| *seq == m.stable))?;
    rule(m.checkpoints.iter().all(|(seq, _)| seq.0.is_multiple_of(interval) && *seq <= high))?;
    rule(m.checkpoints.is_sorted_by(|a, b| a.0 < b.0))?;

    // Q: h < n <= h + L, strictly increasing, u < v, different digests, at most f + 2 for a number (VC-4).
    rule(m.pre_prepared.iter().all(|q| m.stable < q.seq && q.seq <= high))?;
    rule(m.pre_prepared.is_sorted_by(|a, b| a.seq < b.seq))?;
    for q in &m.pre_prepared {
        rule((1..=cluster.f() + 2).contains(&q.claims.len()))?;
        rule(q.claims.iter().all(|(_, view)| *view < m.view))?;
        rule(q.claims.iter().enumerate().all(|(i, a)| q.claims.iter().skip(i + 1).all(|b| a.0 != b.0)))?;
    }

    // P: h < n <= h + L, strictly increasing, u < v, and whoever prepared a batch had pre-prepared it (VC-3).
    rule(m.prepared.iter().all(|p| m.stable < p.seq && p.seq <= high && p.view < m.view))?;
    rule(m.prepared.is_sorted_by(|a, b| a.seq < b.seq))?;
    rule(m.prepared.iter().all(|p| {
        let claims = m.pre_prepared.binary_search_by_key(&p.seq, |q| q.seq).ok();
        let claims = claims.and_then(|at| m.pre_prepared.get(at)).map_or(&[][..], |q| &q.claims);
        claims.iter().any(|(digest, view)| *digest == p.digest && *view >= p.view)
    }))?;
    may_leave(cluster, m)
}

/// Checks the `LeaveCert`: "w SUSPECTs for v from distinct replicas, or one from primary(v) itself" (LV-2).
///
/// The signatures have been checked at the door.
fn may_leave(cluster: Cluster, m: &ViewChange) -> Result<(), Reject> {
    let left = ViewNum(m.view.0.saturating_sub(1));
    let suspects = &m.leave.suspects;
    if suspects.iter().any(|(replica, suspect)| !cluster.contains(*replica) || suspect.view != left) {
        return Err(Reject::BadLeaveCert);
    }
    let distinct = suspects.iter().fold(0, |set, (replica, _)| set | bit(*replica));
    let enough = mutant!(M7, cluster.weak(), cluster.f());
    let handed_over = distinct & bit(cluster.primary(left)) != 0;
    if size(distinct) >= enough || handed_over { Ok(()) } else { Err(Reject::BadLeaveCert) }
}

/// What the replicas of S report, at most once each (VC-6, B1).
struct Reports<'a> {
    cluster: Cluster,
    of: Vec<Report<'a>>,
}

#[derive(Clone, Copy)]
struct Report<'a> {
    replica: ReplicaId,
    message: &'a ViewChange,
}

impl<'a> Reports<'a> {
    fn new(cluster: Cluster, s: &[ViewChangeOf<'a>]) -> Self {
        let mut seen = 0;
        let mut of = Vec::with_capacity(s.len());
        for ViewChangeOf { replica, message } in s.iter().copied() {
            if seen & bit(replica) == 0 {
                seen |= bit(replica);
                of.push(Report { replica, message });
            }
        }
        Self { cluster, of }
    }

    fn count(&self, holds: impl Fn(&ViewChange) -> bool) -> usize {
        self.of.iter().filter(|report| holds(report.message)).count()
    }

    /// The checkpoint condition of spec §11.6.
    fn supports_checkpoint(&self, (seq, digest): (SeqNum, Digest)) -> bool {
        let has = |m: &ViewChange| m.checkpoints.contains(&(seq, digest));
        // "the latest stable checkpoint in V" [OSDI99 §4.4] is in reach: a quorum has not gone past it.
        // Over all of S and not only over those that have this checkpoint, or replicas whose low
        // water marks are staggered deadlock (A19, B2).
        let within = mutant!(M8, self.count(|m| m.stable <= seq), self.count(|m| m.stable <= seq && has(m)));
        // "whose checkpoint messages certified its correctness": one of f + 1 is correct and holds it.
        let vouched = self.count(has);
        within >= self.cluster.quorum() && vouched >= self.cluster.weak()
    }

    /// Returns the latest checkpoint that S supports: `(n*, d*)`.
    fn checkpoint(&self) -> Option<(SeqNum, Digest)> {
        let candidates = self.of.iter().flat_map(|report| &report.message.checkpoints).copied();
        candidates.filter(|candidate| self.supports_checkpoint(*candidate)).max()
    }

    /// Says whether a quorum reports nothing above `seq`.
    fn end_by(&self, seq: SeqNum) -> bool {
        self.count(|m| top(m) <= seq) >= self.cluster.quorum()
    }

    /// Returns `max_x`: the smallest number from `low` on above which a quorum reports nothing (DP-3).
    fn last(&self, low: SeqNum) -> SeqNum {
        let tops = self.of.iter().map(|report| top(report.message));
        tops.chain([low]).filter(|x| *x >= low && self.end_by(*x)).min().unwrap_or(low)
    }

    /// What mutant M6 takes for enough: all that X leaves out could be null.
    fn only_nulls_above(
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
    fn each(&self, low: SeqNum, high: SeqNum, mut number: impl FnMut(&Number<'a>)) {
        // P and Q are sorted by number: one pass over each.
        let mut rest: Vec<_> = self
            .of
            .iter()
            .map(|r| (r, r.message.prepared.iter().peekable(), r.message.pre_prepared.iter().peekable()))
            .collect();
        let mut column = Number { cluster: self.cluster, seq: low, rows: Vec::with_capacity(self.of.len()) };
        while column.seq < high {
            column.seq = column.seq.next();
            let seq = column.seq;
            column.rows.clear();
            for (report, prepared, pre_prepared) in &mut rest {
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

/// What S says about one sequence number.
struct Number<'a> {
    cluster: Cluster,
    seq: SeqNum,
    rows: Vec<Row<'a>>,
}

/// What one replica says about it.
struct Row<'a> {
    replica: ReplicaId,
    stable: SeqNum,
    prepared: Option<&'a Prepared>,
    claims: &'a [(Digest, ViewNum)],
}

/// What is missing for the numbers that are not decided.
#[derive(Default)]
struct Open {
    first: Option<SeqNum>,
    batches: Vec<Digest>,
    wants: Vec<Want>,
}

/// Whether a choice may stand.
enum Admits {
    Yes,
    /// With support for this claim.
    Perhaps(Want),
    No,
}

impl Number<'_> {
    /// Returns the batch for this number, or adds to `open` what is missing for one.
    fn choose(
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
                ask(&mut open.wants, Want { seq: self.seq, digest: p.digest, view: p.view });
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

    /// Says whether the new primary may have chosen `digest` (VV-3).
    fn admits(
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
        mutant!(M1, agrees.count() >= self.cluster.quorum(), true)
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
        nothing.count() >= self.cluster.quorum()
    }
}

/// Asks for support of a claim, once, as far as one STATUS has room.
fn ask(wants: &mut Vec<Want>, want: Want) {
    if wants.len() < usize::from(message::WANTS_MAX) && !wants.contains(&want) {
        wants.push(want);
    }
}

/// What mutant M6 does: numbers that are null at the end of X are proposed for anew.
fn prune_nulls(chosen: &mut Vec<Digest>, null: Digest) {
    while chosen.last() == Some(&null) {
        chosen.pop();
    }
}
