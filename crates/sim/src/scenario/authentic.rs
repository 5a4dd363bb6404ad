//! Requests that some replicas take for authentic and others do not (AU-1 to AU-6).

use quorate_pbft::config::MS;
use quorate_pbft::step::Reject;

use super::row::{Expect, Scenario};
use crate::adversary::sly::ReadOfItsOwn;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[Scenario::new(
    "l126_a_replica_calls_its_request_a_read",
    &["L126", "K17"],
    "A signature does not cover the flag: a replica's request that says it is read-only is refused, or no batch with it prepares (AU-1)",
)
.expects(&[Expect::Reject(Reject::UnprovenRequest)])
.views_max(|_| 0)
.with(|setup| setup.lying_backups(ReadOfItsOwn::default))
.play(|stage| {
    stage.busy(40)?;
    stage.pass(1_000 * MS)
})];
