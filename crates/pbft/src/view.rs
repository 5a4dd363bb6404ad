//! Views: the one that a replica is in, what a NEW-VIEW must say, and what supports it.

pub(crate) mod candidate;
pub mod decision;
pub(crate) mod evidence;
pub(crate) mod proofs;
pub(crate) mod views;
