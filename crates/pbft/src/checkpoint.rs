//! Checkpoints: statements about them, and the one that is fetched.

pub(crate) mod checkpoints;
pub(crate) mod target;
