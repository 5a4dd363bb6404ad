//! The form of VIEW-CHANGE and NEW-VIEW: what can be checked in one message alone (VC-5, VV-1).

use quorate_wire::message::{NewView, ViewChange};
use quorate_wire::{Cluster, ReplicaId, ViewNum};

use super::rule::{Violation, enough};
use crate::io::step::Reject;
use crate::order::votes::{bit, size};

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
    if !members || size(named) < enough(cluster) || size(named) != new_view.view_changes.len() {
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
/// A missing field breaks a rule; it does not skip a check (B27). A list that names a number twice is refused:
/// counting entries instead of replicas would give one Byzantine replica several votes (A17).
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

    // P: h < n <= h + L, strictly increasing, u < v, and a replica that prepared a batch had pre-prepared it (VC-3).
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
/// The signatures have been checked at the authenticator.
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
