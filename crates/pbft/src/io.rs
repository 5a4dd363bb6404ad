//! What goes in and out: steps, milestones, records, settings.

pub mod config;
pub mod milestone;
pub mod record;
pub(crate) mod resume;
pub(crate) mod rng;
pub mod step;
