//! The real drivers around the cores: sockets, timers and disk.
//!
//! | Part | Module |
//! |---|---|
//! | a replica's process without its sockets; the one `match` over `Action` | [`drive`] |
//! | what a process drives: a replica, or what stands in front of one | [`core`] |
//! | a client's process without its sockets | [`client`] |
//! | a client that threads and tasks share | [`caller`] |
//! | a replica's directory: opened, run, stopped; a client's | [`replica`], [`client_node`] |
//! | what a replica must not forget | [`journal`], [`storage`] |
//! | `node.toml`, `cluster.toml`, key files, and making them | [`settings`], [`members`], [`init`] |
//! | looking at a directory without touching it; who holds a port | [`examine`], [`ports`] |
//! | clients that come and go while the cluster runs | [`enlist`] |
//! | what goes wrong, for whoever runs it; being asked to stop | [`trouble`], [`signals`] |
//! | what is on its way out: held until durable, packed by place | [`outbox`] |
//! | who is where | [`directory`] |
//! | UDP, and TCP beside it for what is too long | [`socket`] |
//! | the loop of a process, what it does when idle, what wakes it | [`process`], [`idle`], [`wake`] |
//! | a front door: connections on one side, lanes of the client on the other | [`front`] |
//! | the Redis protocol for the key-value store | [`resp`] |
//! | the clocks; memory and disk of the process | [`clock`], [`surroundings`] |
//! | what people and machines see of a cluster | [`observe`] |
//! | NFS for the file system; its files without NFS | [`nfs`], [`files`] |
//! | whether the file system of a replica that does not run is in order | [`fsck`] |
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
pub mod directory;
pub mod drive;
pub mod enlist;
pub mod examine;
pub mod files;
pub mod front;
pub mod fsck;
pub mod identity;
pub mod idle;
pub mod init;
pub mod journal;
pub mod members;
pub mod meter;
pub mod nfs;
pub mod observe;
pub mod outbox;
pub mod ports;
pub mod process;
pub mod replica;
pub mod resp;
mod secret;
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
pub use front::FrontDoor;
pub use identity::TestKeys;
pub use idle::Waiting;
pub use meter::{Meter, Part};
pub use nfs::NfsDoor;
pub use outbox::Transport;
pub use process::{ClientProcess, run_replica};
pub use replica::ReplicaNode;
pub use resp::RespDoor;
pub use settings::Settings;
pub use socket::Socket;
pub use trouble::Trouble;
