//! Clients that lie and clients that are lied about (C1-C7).

use super::Scenario;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[];
