//! How backups lie, and what comes of it: nothing (K1-K18).

use super::Scenario;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[];
