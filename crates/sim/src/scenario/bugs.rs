//! Bugs that other implementations of this family had, each tried here (B1-B37).

use super::Scenario;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[];
