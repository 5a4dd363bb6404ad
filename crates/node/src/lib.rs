//! Runs the cores on real sockets, timers and disks.
//!
//! | Part | Module |
//! |---|---|
//! | a replica's process is in the crate `process`; here: one without a disk | [`memory`] |
//! | a client's process without its sockets | [`client`] |
//! | a client that threads and tasks share | [`caller`] |
//! | a replica or a client, from its directory | [`replica`], [`client_node`] |
//! | a replica's durable state | [`storage`] |
//! | `node.toml`, `cluster.toml`, key files; creating a cluster | [`settings`], [`members`], [`init`] |
//! | the built-in services | [`services`] |
//! | examining a directory without changing it; locking a file in it; which process holds a port | [`examine`], [`place`], [`ports`] |
//! | a node of another protocol than agreement, from its directory | [`member`] |
//! | adding and removing clients of a running cluster | [`enlist`] |
//! | errors for the operator; signals to stop | [`error`], [`signals`] |
//! | UDP, and TCP for long frames | [`socket`] |
//! | addresses and names as users write them | [`names`] |
//! | which user has the other end of a connection within this machine | [`other_end`] |
//! | the loop of a process, what it does when idle, what wakes it | [`supervise`], [`idle`], [`wake`] |
//! | the clocks; memory, disk and descriptors of the process | [`clock`], [`surroundings`], [`descriptors`] |
//! | the status of a cluster | [`observe`] |
//! | a client of the file system | [`files`] |
//! | checking the file system of a stopped replica | [`fsck`] |
//! | identities for benchmarks and tests | [`identity`] |
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]

pub mod error;
pub mod files;
mod home;
mod net;
pub mod observe;
mod patience;
mod run;
pub mod services;
pub mod storage;
#[cfg(test)]
mod testing;

pub use home::{examine, fsck, identity, init, members, place, settings, timestamps};
pub use net::{crowd, descriptors, idle, names, other_end, ports, socket, wake};
pub use run::{
    caller, client, client_node, clock, enlist, key_times, member, memory, replica, signals, supervise,
    surroundings, workers,
};

pub use caller::{CallError, Caller, Pending, RequestId};
pub use client::{ClientCounters, ClientProcess, Done};
pub use client_node::{ClientNode, OpenClient};
pub use clock::Clock;
pub use error::NodeError;
pub use identity::TestKeys;
pub use idle::{Idle, Waiting};
pub use key_times::KeyTimes;
pub use member::Member;
pub use memory::{MemoryProcess, ProcessError};
pub use quorate_process::{
    Core, Counters, Directory, Event, Meter, Metered, Observer, Parallel, Part, Place, Process, Transport,
};
pub use replica::ReplicaNode;
pub use settings::Settings;
pub use socket::Socket;
pub use supervise::run_replica;
pub use workers::Workers;
