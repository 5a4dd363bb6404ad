//! Views: what a NEW-VIEW must say, and what supports it.

pub(crate) mod candidate;
pub mod decision;
