//! The normal case: slots, votes and certificates, the primary's choice.

pub(crate) mod archive;
pub mod choice;
pub(crate) mod log;
pub mod votes;
