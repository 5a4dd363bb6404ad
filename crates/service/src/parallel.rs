//! Parallel execution: independent requests at the same time, and one state whatever the schedule [CBASE04 §4].
//!
//! | Part | Module | Source |
//! |---|---|---|
//! | `insert`, `next_request`, `remove_request`, `sync` | [`parallelizer`] | [CBASE04 §5.1] |
//! | rules: parser, OCM, AAF, OACM | [`rules`] | [CBASE04 §5.2] |
//! | engines: how dependencies are found | [`engine`] | spec §17.4 |

#[macro_use]
mod planted;

pub mod engine;
mod groups;
pub mod parallelizer;
pub mod rules;
#[cfg(test)]
mod tests;

pub use engine::Kind;
pub use parallelizer::{Full, Parallelizer, Position};
pub use rules::{AllDependent, Arguments, KeyRules, Matrices, MatrixError, Rules};
