//! Agreement: the Castro-Liskov replication protocol as a value with one method, [`Replica::step`].
//! No I/O, no clock, no service.
//!
//! Each section of the papers has one file, and only that file changes its state:
//!
//! | Section | File |
//! |---|---|
//! | inputs and outputs; events worth recording | [`step`], [`milestone`] |
//! | settings and their rules | [`config`] |
//! | the replica: its parts, dispatch, invariants | `replica.rs` |
//! | requests, retransmission, vouchers [OSDI99 §4.1] | `request.rs`, `client_table.rs` |
//! | normal case [OSDI99 §4.2] | `normal.rs`, `log.rs`, `batch.rs` |
//! | checkpoints, garbage collection [OSDI99 §4.3] | `checkpoint.rs` |
//! | leaving a view, entering the next [OSDI99 §4.4] | `view_change.rs`, `enter_view.rs`, `candidate.rs` |
//! | what a new view takes over: pure functions | [`new_view`] |
//! | what else supports that | `proofs.rs` |
//! | time-outs [OSDI99 §4.4, §4.5.2] | `timers.rs`, [`away`] |
//! | the primary's choice [OSDI99 §4.6] | [`choice`] |
//! | tentative execution, reads, digest replies [OSDI99 §5.1] | `optimistic.rs` |
//! | bodies and batches by digest | `bodies.rs`, `lookup.rs` |
//! | retransmission by status | `status.rs` |
//! | state transfer: when, and to where | `transfer.rs` |
//! | what must not be forgotten; starting again | [`record`], [`restart`] |
//! | coming back without a memory | `recovery.rs`, [`estimate`] |
//! | what a replica said in a life that has ended | [`lives`] |
//! | votes and certificates | [`certificate`] |
//! | seeded bugs, for testing the tests | [`mutants`] |
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

pub mod away;
pub mod certificate;
pub mod choice;
pub mod client;
pub mod config;
pub mod estimate;
pub mod lives;
pub mod milestone;
pub mod new_view;
pub mod record;
pub mod recording;
pub mod restart;
pub mod step;

mod archive;
mod batch;
mod bodies;
mod candidate;
mod card;
mod checkpoint;
mod client_table;
mod enter_view;
mod log;
mod lookup;
mod normal;
mod optimistic;
mod pace;
mod proofs;
mod recovery;
mod replica;
mod request;
mod rng;
mod starts;
mod status;
mod timers;
mod transfer;
mod view_change;

pub use card::StateCard;
pub use client::Client;
pub use config::{Config, ConfigError};
pub use replica::{Replica, Status};
pub use restart::{Committed, Restart, Resume};
pub use step::{Action, Actions, Input, Milestone, Now, Reject, Timer};
