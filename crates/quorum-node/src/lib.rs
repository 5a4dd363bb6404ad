//! Registers without a leader on real sockets, timers and disks (`docs/quorum.md`, ADR 14).
//!
//! | Part | Module |
//! |---|---|
//! | `register.toml`, and the directories of a new register | [`config`], [`init`] |
//! | the one `match` over `Action`; timers | [`drive`] |
//! | frames to and from sockets, counters of channels | [`link`] |
//! | messages that no protocol needs: watching, fetching, asking for the state | [`note`] |
//! | signatures, with those that were right before remembered | [`crypto`] |
//! | a server, its disk, its watchers, and how it can be made to lie | [`server`], [`store`], `watchers`, [`lie`] |
//! | what was seen of servers that are wrong, and what can be proved | [`suspicion`], [`evidence`] |
//! | latency, messages and signatures of an operation; the time of a repair | [`measure`] |
//! | a client without a thread, and what it fetches | [`core`] |
//! | a client that threads share; typed registers; watching | [`client`] |
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]

pub mod client;
pub mod config;
pub mod core;
pub mod crypto;
pub mod drive;
pub mod envelope;
pub mod evidence;
pub mod init;
pub mod lie;
pub mod link;
pub mod measure;
pub mod note;
pub mod server;
pub mod store;
pub mod suspicion;
mod watchers;

pub use client::typed::{Item, Register};
pub use client::{CallError, Client, VersionedValue, Watch};
pub use config::Config;
pub use init::NewRegister;
pub use server::Server;
