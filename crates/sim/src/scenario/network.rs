//! Networks that lose, double, delay, damage and divide (N1-N9).

use super::Scenario;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[];
