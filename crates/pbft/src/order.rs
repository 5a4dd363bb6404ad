//! The normal case: slots, votes and certificates, the primary's choice.

pub(crate) mod archive;
pub(crate) mod batcher;
pub(crate) mod bodies;
pub mod choice;
pub(crate) mod log;
pub(crate) mod lookup;
pub(crate) mod piggyback;
pub(crate) mod promises;
pub(crate) mod slot;
pub mod votes;
