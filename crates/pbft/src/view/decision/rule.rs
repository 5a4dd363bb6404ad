//! What is enough for a NEW-VIEW, and the conditions that one can violate (spec §11.7).

use quorate_wire::{Cluster, SeqNum};

/// Which condition a NEW-VIEW violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// V is smaller than a quorum, or names a replica that is not a member (VV-1).
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

/// A quorum of VIEW-CHANGEs; without one of them for mutant M70.
pub(super) fn enough(cluster: Cluster) -> usize {
    mutant!(M70, cluster.quorum(), cluster.quorum() - 1)
}
