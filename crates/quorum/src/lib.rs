//! Byzantine quorum systems: registers that need no leader, no total order and no timing assumption.
//!
//! | Part | Module |
//! |---|---|
//! | quorum sizes, computed once (§1) | [`thresholds`] |
//! | objects, values, versions (§2.1) | [`version`] |
//! | counters of a channel (§2.2) | [`channel`] |
//! | signed statements, and who checks them | [`crypto`] |
//! | certificates and evidence | [`cert`] |
//! | what no correct process signs (§15) | [`accusation`] |
//! | messages and their encoding | [`message`] |
//! | an input in, actions out | [`step`] |
//! | what the processes of a cluster agree on | [`settings`] |
//! | operations of clients (§2.3) | `engine` |
//! | PHALANX (§3) | `phalanx` |
//! | MINIMAL-C and MINIMAL-F (§4, §5) | `minimal` |
//! | BFT-BC (§6) | `bftbc` |
//! | who may read and write (§15), and whom a server lets | [`access`], `admission` |
//! | repair (§15) | `repair` |
//! | what a server keeps on its disk (§2.5) | `saved` |
//! | seeded bugs | [`mutants`] |
//!
//! The rules and their sections (§1 to §18) are those of `docs/quorum.md`, which says on which page each
//! section is. A client or a server is a [`Process`]: `step(now, input, crypto, out)`.
//! There is no I/O here, no clock and no randomness: they are passed in.
#![no_std]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a message that is not expected is rejected, whatever it is"
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod access;
pub mod accusation;
mod admission;
pub mod bftbc;
pub mod cert;
pub mod channel;
pub mod crypto;
mod engine;
pub mod message;
mod minimal;
pub mod mutants;
mod phalanx;
mod repair;
mod saved;
pub mod settings;
pub mod step;
pub mod thresholds;
pub mod version;

use alloc::boxed::Box;
use alloc::sync::Arc;

use quorate_wire::ClientId;

pub use message::{Body, Message};
pub use mutants::Mutant;
pub use saved::Past;
pub use settings::{Protocol, Settings};
pub use step::{Action, Input, Out, Process, Timer};
pub use thresholds::{ServerId, Thresholds};
pub use version::{ObjectId, Value, Version};

/// Returns a client. `incarnation` rises with each start under one identity.
pub fn client(me: ClientId, incarnation: u32, settings: Arc<Settings>) -> Box<dyn Process + Send> {
    match settings.protocol {
        Protocol::Phalanx => {
            Box::new(engine::Engine::<phalanx::client::Register>::new(me, incarnation, settings))
        }
        Protocol::MinimalC | Protocol::MinimalF => {
            Box::new(engine::Engine::<minimal::client::Register>::new(me, incarnation, settings))
        }
        Protocol::BftBc(_) => {
            Box::new(engine::Engine::<bftbc::client::Register>::new(me, incarnation, settings))
        }
    }
}

/// Returns a server. One that was lost pulls what it can from its peers ([`Process::is_repaired`]).
pub fn server(me: ServerId, settings: Arc<Settings>, past: Past) -> Box<dyn Process + Send> {
    let lost = past == Past::Lost;
    match settings.protocol {
        Protocol::Phalanx => Box::new(phalanx::server::Server::new(me, settings, lost)),
        Protocol::MinimalC | Protocol::MinimalF => Box::new(minimal::server::Server::new(me, settings, lost)),
        Protocol::BftBc(_) => Box::new(bftbc::server::Server::new(me, settings, past)),
    }
}
