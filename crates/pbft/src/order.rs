//! The normal case: the log with its slots, own votes, the primary's numbers, bodies and batches by digest.

pub(crate) mod archive;
pub(crate) mod batcher;
pub(crate) mod bodies;
pub mod choice;
pub(crate) mod log;
pub(crate) mod lookup;
pub(crate) mod pace;
pub(crate) mod piggyback;
pub(crate) mod promises;
pub(crate) mod proposal;
pub(crate) mod slot;
pub mod votes;
