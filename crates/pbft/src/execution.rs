//! Execution: how far it has come, and reads.

pub(crate) mod progress;
pub(crate) mod reads;
