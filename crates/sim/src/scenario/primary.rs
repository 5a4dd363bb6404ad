//! How primaries lie, and what comes of it: nothing, after a view change at most (P1-P17).

use quorate_pbft::step::Reject;

use super::{Expect, Scenario};
use crate::adversary::primary::EquivocateToHalves;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[Scenario::new(
    "p1_equivocating_primary",
    &["P1"],
    "The primary proposes one batch to half of the backups and another to the rest",
)
.expects(&[Expect::Reject(Reject::OtherView), Expect::Count("view changes", |c| c.view_changes)])
.with(|setup| setup.lying_primaries(|| EquivocateToHalves))];
