//! Agreement: the Castro-Liskov replication protocol as a value with one method,
//! `Replica::step`. No I/O, no clock, no service.
#![no_std]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic"))]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[macro_use]
pub mod mutants;

pub mod certificate;
pub mod config;
pub mod new_view;
pub mod step;

pub use config::{Config, ConfigError};
pub use step::{Action, Actions, Input, Milestone, Now, Reject, Timer};
