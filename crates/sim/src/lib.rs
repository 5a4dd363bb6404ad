//! A simulated world: time, network and disks derived from a seed, real replicas and clients, Byzantine ones, and
//! checkers that run after every step.
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]

pub mod adversary;
pub mod app;
pub mod checker;
pub mod clock;
pub mod command;
pub mod core;
pub mod describe;
pub mod disk;
pub mod event;
pub mod expected;
pub mod follow;
pub mod governed;
pub mod hash;
pub mod host;
#[cfg(feature = "mutants")]
pub mod hunt;
pub mod lanes;
pub mod network;
mod orders;
mod panics;
pub mod pool;
mod queue;
pub mod recording;
pub mod report;
pub mod rng;
pub mod scenario;
pub mod script;
pub mod setup;
pub mod summary;
pub mod swarm;
pub mod trace;
pub mod work;
pub mod world;
