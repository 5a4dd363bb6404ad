//! The simulator of the registers of `quorate-quorum`.
//!
//! | Part | Module |
//! |---|---|
//! | chance | [`rng`] |
//! | signatures: a table of who signed what, or Ed25519 | [`keys`] |
//! | the network: weights, losses, doubles, reordering | [`network`] |
//! | one simulated cluster | [`world`] |
//! | faulty servers (§10) | [`profile`] |
//! | faulty clients (§10) | [`rogue`] |
//! | clients without the right to write, and who takes it from them (§15) | `unlisted`, `administrator` |
//! | runs from seeds (§17) | [`swarm`] |
//! | a cluster whose messages are delivered by hand, and the scenarios (§17) | [`hand`], [`scenario`] |
//! | the hunt for seeded bugs | [`hunt`] |
//! | the framework: models of network and processors (§11), closed loops on them, one cell (§12) | [`model`], [`geo`], [`machines`], [`lab`], [`cell`], [`placement`], [`stats`] |
//! | a register of one's own in all of this | [`guest`] |
//! | what clients were told, and whether a register could have said so (§14) | [`history`], [`checker`] |
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a message that is not meant is passed over, whatever it is"
)]

mod administrator;
pub mod cell;
pub mod checker;
pub mod client_profile;
pub mod geo;
pub mod guest;
pub mod hand;
pub mod history;
pub mod hunt;
pub mod keys;
pub mod lab;
pub mod machines;
pub mod model;
pub mod network;
pub mod placement;
pub mod profile;
pub mod rng;
pub mod rogue;
pub mod scenario;
pub mod stats;
pub mod swarm;
mod unlisted;
pub mod world;
