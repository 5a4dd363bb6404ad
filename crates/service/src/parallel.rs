//! Parallel execution: independent requests at the same time, and one state whatever the schedule [CBASE04 §4].
//!
//! | Part | Module | Source |
//! |---|---|---|
//! | `insert`, `next_request`, `remove_request`, `sync` | [`parallelizer`] | [CBASE04 §5.1] |
//! | rules: parser, OCM, AAF, OACM | [`rules`] | [CBASE04 §5.2] |
//! | engines: how dependencies are found | [`engine`] | spec §17.4 |
//! | runs on cells, replies that leave early, settling in order | [`runs`], [`job`] | spec §17.0 |
//! | reads beside unsettled requests | `reads` | PX-8 |

pub mod engine;
mod groups;
mod inserted;
pub mod job;
pub mod parallelizer;
mod reads;
pub mod rules;
pub mod runs;
#[cfg(test)]
mod tests;
mod unsettled;

pub use crate::executor::ServicePart;
pub use crate::state::cell::Cell;
pub use engine::EngineKind;
pub use job::{Answer, Counters, Declared, Done, Early, Job, Question, Questions, Settled, WrongRule};
pub use parallelizer::{Full, Parallelizer, Position};
pub use rules::{AllDependent, Arguments, KeyRules, Matrices, MatrixError, Rules};
pub use runs::Runs;
#[cfg(test)]
pub(crate) use unsettled::Unsettled;
