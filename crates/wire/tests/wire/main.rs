//! What crosses the wire, tried from outside: every kind of message, and what liars make of it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant")]

mod batches;
mod bodies;
mod exchange;
mod floods;
mod refusals;
mod requests;
mod samples;
mod vectors;
mod world;
