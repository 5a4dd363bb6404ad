//! Agreement: the Castro-Liskov replication protocol as a value with one method, [`Replica::step`].
//! No I/O, no clock, no service.
//!
//! State and handlers are apart. A *part* is a struct whose fields are private to its file. A *handler* is a method of
//! [`Replica`] in a child of the module `replica`: it decides by asking parts, and changes them by their verbs. No part
//! uses the replica.
//!
//! | Section | Parts | Handlers |
//! |---|---|---|
//! | inputs and outputs; events worth recording; settings; records | [`step`], [`milestone`], [`config`], [`record`] | |
//! | the replica: its parts, dispatch, invariants | | `replica.rs` |
//! | requests, retransmission, vouchers [OSDI99 §4.1] | `requests` | `replica/request.rs` |
//! | normal case [OSDI99 §4.2] | `order/log.rs`, [`votes`] | `replica/normal.rs`, `replica/propose.rs` |
//! | checkpoints, garbage collection [OSDI99 §4.3] | | `replica/checkpoint.rs` |
//! | leaving a view, entering the next [OSDI99 §4.4] | `view` | `replica/view_change.rs`, `replica/new_view.rs` |
//! | what a new view takes over: pure functions | [`decision`] | |
//! | what else supports that | | `replica/proofs.rs` |
//! | time-outs [OSDI99 §4.4, §4.5.2] | [`away`] | `replica/request_timer.rs` |
//! | the primary's choice [OSDI99 §4.6] | [`choice`] | `replica/propose.rs` |
//! | tentative execution, reads, digest replies [OSDI99 §5.1] | | `replica/execute.rs` |
//! | bodies and batches by digest | `order/archive.rs` | `replica/fetch_bodies.rs`, `replica/answer_bodies.rs` |
//! | retransmission by status | | `replica/status.rs` |
//! | state transfer: when, and to where | | `replica/transfer.rs` |
//! | starting again | | [`restart`], `replica/starts.rs` |
//! | coming back without a memory | [`estimate`] | `replica/rejoin.rs` |
//! | what a replica said in a life that has ended | [`lives`] | |
//! | seeded bugs, for testing the tests | [`mutants`] | |
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
pub mod client;
pub mod recording;

mod io;
mod order;
mod recovery;
mod replica;
mod requests;
mod view;

pub use client::Client;
pub use io::config::{Config, ConfigError};
pub use io::step::{Action, Actions, Input, Milestone, Now, Reject, Timer};
pub use io::{config, milestone, record, step};
pub use order::{choice, votes};
pub use recovery::{estimate, lives};
pub use replica::card::StateCard;
pub use replica::restart::{self, Committed, Restart, Resume};
pub use replica::{Replica, Status};
pub use view::decision;
