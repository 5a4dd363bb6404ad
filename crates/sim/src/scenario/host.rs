//! Hosts that crash, stop, forget and go wrong (H1-H11).

use super::Scenario;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[];
