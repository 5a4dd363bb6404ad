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
//! | | |
//! |---|---|
//! | what is enough; which condition fails | `rule` |
//! | the form of a VIEW-CHANGE and of a NEW-VIEW | `form` |
//! | the checkpoint `n*`, and how far the decision reaches | `reports` |
//! | the conditions A1, A2, A3 and B at one number | `number` |
//!
//! Pure functions: the new primary decides with [`decide`], each backup checks with [`check`], and both use the same
//! conditions. Any decision that satisfies them is safe (DP-1, spec §11.10).

use alloc::vec::Vec;

use quorate_wire::message::{NewView, Want};
use quorate_wire::{Cluster, Digest, SeqNum, ViewNum};

pub use self::form::{ViewChangeOf, well_formed, well_formed_new_view};
use self::number::{Admits, Open};
use self::reports::Reports;
pub use self::rule::Violation;
use self::rule::enough;

mod form;
#[cfg(test)]
mod model;
mod number;
mod reports;
mod rule;
#[cfg(test)]
mod tests;

/// The state of the new primary's decision.
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
        /// Batches that would be chosen if they were here (A3). At most one for each replica and number.
        batches: Vec<Digest>,
        /// Claims that PROOFs could support (A2, DP-4). At most one for each replica and number.
        wants: Vec<Want>,
    },
}

/// The obstacles to a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// There are fewer VIEW-CHANGEs than a quorum.
    ViewChanges,
    /// No checkpoint is vouched for by a correct replica and within reach of a quorum.
    Checkpoint,
    /// Neither A nor B holds for this number yet.
    Choice(SeqNum),
}

/// A backup's verdict on a NEW-VIEW.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every condition holds.
    Valid,
    /// Nothing is wrong, but these claims lack support (A2) that PROOFs could give (VV-4).
    Missing {
        /// At most one for each number.
        wants: Vec<Want>,
    },
    /// A condition fails that no further message can repair: the primary is faulty (VV-4).
    Invalid(Violation),
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
    if reports.len() < enough(cluster) {
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
    assert!(
        v.iter().map(ViewChangeOf::replica).eq(new_view.view_changes.iter().map(|(replica, _)| *replica))
    );
    if let Err(violation) = well_formed_new_view(cluster, interval, window, new_view) {
        return Verdict::Invalid(violation);
    }
    // "if the view-change messages it contains are valid for view v+1" [OSDI99 §4.4].
    if v.iter().any(|m| m.message().view != new_view.view) {
        return Verdict::Invalid(Violation::OtherView);
    }
    let reports = Reports::new(cluster, v);
    if !reports.supports_checkpoint(new_view.checkpoint) {
        return Verdict::Invalid(Violation::Checkpoint);
    }
    // Above the end of X the primary may propose other batches: a quorum has nothing there (DP-3).
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
            Admits::Perhaps(want) => wants.push(want),
            Admits::No => violation = violation.or(Some(Violation::Choice(number.seq))),
        }
    });
    match violation {
        Some(violation) => Verdict::Invalid(violation),
        None if wants.is_empty() => Verdict::Valid,
        None => Verdict::Missing { wants },
    }
}

/// What mutant M6 does: numbers that are null at the end of X are proposed for again.
fn prune_nulls(chosen: &mut Vec<Digest>, null: Digest) {
    while chosen.last() == Some(&null) {
        chosen.pop();
    }
}
