//! Agreement: the Castro-Liskov replication protocol as a value with one method,
//! `Replica::step`. No I/O, no clock, no service.
#![no_std]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[macro_use]
pub mod mutants;

pub mod certificate;
pub mod choice;
pub mod config;
pub mod estimate;
pub mod milestone;
pub mod new_view;
pub mod record;
pub mod restart;
pub mod step;

mod batch;
mod bodies;
mod card;
mod checkpoint;
mod client_table;
mod enter_view;
mod log;
mod normal;
mod optimistic;
mod recovery;
mod replica;
mod request;
mod rng;
mod status;
mod timers;
mod transfer;
mod view_change;

pub use card::StateCard;
pub use config::{Config, ConfigError};
pub use replica::{Replica, Status};
pub use restart::{Restart, Resume};
pub use step::{Action, Actions, Input, Milestone, Now, Reject, Timer};
