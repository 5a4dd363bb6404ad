//! Runs the cores on real sockets, timers and disks.
//!
//! | Part | Module |
//! |---|---|
//! | a replica's process without its sockets; the one `match` over `Action` | [`drive`] |
//! | the core that a process drives: a replica, or a wrapper around one | [`core`] |
//! | a client's process without its sockets | [`client`] |
//! | a client that threads and tasks share | [`caller`] |
//! | a replica or a client, from its directory | [`replica`], [`client_node`] |
//! | a replica's durable state | [`journal`], [`storage`] |
//! | `node.toml`, `cluster.toml`, key files; creating a cluster | [`settings`], [`members`], [`init`] |
//! | the built-in services | [`services`] |
//! | examining a directory without changing it; which process holds a port | [`examine`], [`ports`] |
//! | a node of another protocol than agreement, from its directory | [`member`] |
//! | adding and removing clients of a running cluster | [`enlist`] |
//! | errors for the operator; signals to stop | [`trouble`], [`signals`] |
//! | outgoing frames: held until durable, packed by place | [`outbox`] |
//! | the addresses of nodes | [`directory`] |
//! | UDP, and TCP for long frames | [`socket`] |
//! | the loop of a process, what it does when idle, what wakes it | [`process`], [`idle`], [`wake`] |
//! | the clocks; memory and disk of the process | [`clock`], [`surroundings`] |
//! | the status of a cluster | [`observe`] |
//! | a client of the file system | [`files`] |
//! | checking the file system of a stopped replica | [`fsck`] |
//! | where the time goes | [`meter`] |
//! | identities for benchmarks and tests | [`identity`] |
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]

pub mod caller;
pub mod client;
pub mod client_node;
pub mod clock;
pub mod core;
pub mod crowd;
pub mod directory;
pub mod drive;
pub mod enlist;
pub mod examine;
pub mod files;
pub mod fsck;
mod hex;
pub mod identity;
pub mod idle;
pub mod init;
pub mod journal;
pub mod member;
pub mod members;
pub mod meter;
pub mod observe;
pub mod outbox;
pub mod ports;
pub mod process;
pub mod replica;
mod secret;
pub mod services;
pub mod settings;
mod side_channel;
pub mod signals;
pub mod socket;
pub mod storage;
pub mod surroundings;
#[cfg(test)]
mod testing;
mod timers;
pub mod timestamps;
pub mod trouble;
pub mod wake;

pub use caller::{CallError, Caller, Pending, RequestId};
pub use client::{ClientCounters, ClientDrive, Done};
pub use client_node::{ClientNode, OpenClient};
pub use clock::Clock;
pub use core::Core;
pub use directory::{Directory, Place};
pub use drive::{Counters, Drive, DriveError};
pub use identity::TestKeys;
pub use idle::{Idle, Waiting};
pub use member::Member;
pub use meter::{Meter, Part};
pub use outbox::Transport;
pub use process::{ClientProcess, run_replica};
pub use replica::ReplicaNode;
pub use settings::Settings;
pub use socket::Socket;
pub use trouble::Trouble;
