//! Attacks of spec §16.2 on view changes, checkpoints and reads that have no key in `docs/faults.md`.

use super::Scenario;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[];
