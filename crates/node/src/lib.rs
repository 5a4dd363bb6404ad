//! The real drivers around the cores: sockets, timers and disk.
//!
//! | Part | Module |
//! |---|---|
//! | a replica's process without its sockets; the one `match` over `Action` | [`drive`] |
//! | a client's process without its sockets | [`client`] |
//! | what is on its way out: held until durable, packed by place | [`outbox`] |
//! | who is where | [`directory`] |
//! | UDP | [`socket`] |
//! | the loop of a process, and what it does when idle | [`process`], [`idle`] |
//! | the clocks | [`clock`] |
//! | where the time goes | [`meter`] |
//! | identities for benchmarks and tests | [`identity`] |
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]

pub mod client;
pub mod clock;
pub mod directory;
pub mod drive;
pub mod identity;
pub mod idle;
pub mod meter;
pub mod outbox;
pub mod process;
pub mod socket;
mod timers;

pub use client::{ClientCounters, ClientDrive, Done};
pub use clock::Clock;
pub use directory::{Directory, Place};
pub use drive::{Counters, Drive, DriveError};
pub use identity::TestKeys;
pub use idle::Waiting;
pub use meter::{Meter, Part};
pub use outbox::Transport;
pub use process::{ClientProcess, run_replica};
pub use socket::Socket;
