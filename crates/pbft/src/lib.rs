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
//! | requests, retransmission, vouchers [OSDI99 §4.1] | `requests/table.rs` | `replica/request.rs` |
//! | normal case [OSDI99 §4.2] | `order/slot.rs`, `order/log.rs`, `order/promises.rs`, [`votes`] | `replica/normal.rs` |
//! | proposing [OSDI99 §4.2, §4.6] | `order/batcher.rs`, [`choice`] | `replica/propose.rs` |
//! | checkpoints, garbage collection [OSDI99 §4.3] | `checkpoint/checkpoints.rs` | `replica/checkpoint.rs` |
//! | leaving a view [OSDI99 §4.4] | `view/views.rs`, `view/evidence.rs` | `replica/view_change.rs` |
//! | making and examining a NEW-VIEW | [`decision`], `view/candidate.rs`, `view/proofs.rs` | `replica/new_view.rs` |
//! | entering a view | | `replica/enter_view.rs` |
//! | time-outs [OSDI99 §4.4, §4.5.2] | `requests/watch.rs`, [`away`] | `replica/request_timer.rs` |
//! | tentative execution, reads, digest replies [OSDI99 §5.1] | `execution` | `replica/execute.rs`, `replica/read.rs` |
//! | commits that ride on other messages [OSDI99 §5.1] | `order/piggyback.rs` | `replica/normal.rs` |
//! | bodies and batches by digest | `order/{bodies,lookup,archive}.rs` | `replica/{fetch_bodies,answer_bodies}.rs` |
//! | retransmission by status | `status/peers.rs` | `replica/status.rs` |
//! | state transfer: when, and to where | `checkpoint/target.rs` | `replica/transfer.rs` |
//! | starting again | `recovery/history.rs` | `replica/restart.rs`, `replica/starts.rs` |
//! | coming back without a memory | `recovery/phase.rs`, [`estimate`] | `replica/rejoin.rs` |
//! | what a replica said in a life that has ended | [`lives`] | `replica/lives.rs` |
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

mod checkpoint;
mod execution;
mod io;
mod order;
mod recovery;
mod replica;
mod requests;
mod status;
mod view;

pub use client::Client;
pub use io::config::{Config, ConfigError};
pub use io::resume::{Restart, Resume};
pub use io::step::{Action, Actions, Input, Milestone, Now, Reject, Timer};
pub use io::{config, milestone, record, step};
pub use order::{choice, votes};
pub use recovery::history::Committed;
pub use recovery::{estimate, lives};
pub use replica::Replica;
pub use replica::card::StateCard;
pub use view::decision;
pub use view::views::Status;
