//! The loop of a front door: connections of clients on one side, lanes of the cluster's client on the other.
//!
//! ```text
//!   clients                          the door                            the cluster
//!      --- TCP ---> Talk::receive -> Talk::question --- lane, UDP ---> replicas
//!      <----------- Talk::output <- Talk::answer <-- result, q replies agree ---
//! ```
//!
//! What is spoken is a [`Talk`], which knows no socket: [`resp`](crate::resp) and [`nfs`](crate::nfs) are two.
//! What is behind it is a [`Backing`]: the cluster, or for comparison one [service without replicas](Unreplicated).
//! One thread does all of it. The door believes no single replica; its clients believe the door, so each
//! machine that uses it runs its own.
//!
//! Nothing grows without bound: connections, lanes, what each connection holds, and all of it together have
//! a bound, named in [`Limits`] or kept by the talk. A client that does not take its replies gets no more
//! done; one that stands still in the middle of something is let go.

use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

pub use self::alone::Unreplicated;
pub use self::backing::{Backing, Cluster};
pub use self::run::FrontDoor;
use crate::ports::{Port, holder};
use crate::trouble::{Kind, Trouble};

mod alone;
mod backing;
mod connection;
mod run;
#[cfg(test)]
mod tests;

/// Input that is read at a time, in bytes.
pub(crate) const INPUT_BYTES: usize = 64 << 10;
/// The bounds of a door.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The lanes of the client: how many operations are under way at a time.
    pub lanes: u16,
    /// The most connections; further ones are told so, as far as the protocol has words for it.
    pub connections_max: usize,
    /// The most memory that buffers may take, in bytes; then large commands are refused, and the connections that
    /// hold much and have stood still longest are let go.
    pub memory_bytes_max: usize,
    /// How long the cluster may take for an operation before the client is answered without it, in
    /// nanoseconds.
    pub deadline_ns: u64,
    /// How long a client may stand still in the middle of a command or of taking its replies, in
    /// nanoseconds.
    pub stall_ns: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            lanes: 256,
            connections_max: 4096,
            memory_bytes_max: 256 << 20,
            deadline_ns: 10_000_000_000,
            stall_ns: 60_000_000_000,
        }
    }
}

/// What a door counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Connections that are open.
    pub connections: usize,
    /// Connections that ever were.
    pub connections_total: u64,
    /// Commands or calls that came.
    pub commands_total: u64,
    /// Since when the door is open, in seconds.
    pub uptime_s: u64,
    opened_ns: u64,
}

/// Why a connection is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There are as many as may be.
    Connections,
    /// What it sends needs more memory than there is.
    Memory,
}

/// What an operation came to that has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No answer came in time, and nothing was done, nor will be.
    NothingDone,
    /// No answer came in time: it may have been done, or may be done yet.
    Unknown,
    /// It was done, and its result was too long to be kept.
    ResultLost,
    /// Replicas have no place for another lane of the gateway's client: nothing was done.
    NoLane,
}

/// An operation for the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The talk's own name for it. Comes back with the answer.
    pub ticket: u64,
    /// It may go the short way.
    pub read_only: bool,
    /// The client is answered after the deadline although it may have been done, or may be done yet. If not, it is
    /// waited for.
    pub may_give_up: bool,
}

/// What a talk does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There may be more to do, once the output is written.
    Again,
    /// Nothing, until something comes.
    Rest,
}

/// One connection's side of a protocol, without its socket. Holds bounded memory.
pub trait Talk: Debug + Sized {
    /// What all connections of a door share.
    type Protocol: Debug;
    /// Returns the talk with a client at `peer`, the door's connection number `id`.
    fn open(protocol: &Self::Protocol, peer: SocketAddr, id: u64) -> Self;
    /// Says that the connection is not served, if the protocol has words for it, and ends it.
    fn refuse(&mut self, why: Refused);
    /// Says whether more input is wanted.
    fn wants_input(&self) -> bool;
    /// Says whether it needs more than a usual share of memory.
    fn is_large(&self) -> bool;
    /// Takes input: at most 64 KiB, when it is wanted.
    fn receive(&mut self, protocol: &Self::Protocol, bytes: &[u8]);
    /// There will be no more input.
    fn hang_up(&mut self);
    /// Does what can be done without the cluster.
    fn work(&mut self, protocol: &Self::Protocol, counts: &mut Counts) -> Turn;
    /// Makes `operation` the next one for the cluster; none if there is none.
    fn question(&mut self, operation: &mut Vec<u8>) -> Option<Question>;
    /// Says whether [`Self::question`] has one.
    fn has_question(&self) -> bool;
    /// Takes the result of an operation.
    fn answer(&mut self, protocol: &Self::Protocol, ticket: u64, result: &[u8], counts: &Counts);
    /// An operation has no result.
    fn fail(&mut self, ticket: u64, failure: Failure);
    /// Returns the bytes for the client.
    fn output(&self) -> &[u8];
    /// The client has taken so many of them.
    fn sent(&mut self, count: usize);
    /// Says whether it is over, once the output is taken.
    fn has_ended(&self) -> bool;
    /// Says whether the client is in the middle of something: a command that is not whole, or replies that
    /// it does not take.
    fn is_stalled(&self) -> bool;
    /// Returns how many bytes are held.
    fn held(&self) -> usize;
}

/// Returns the trouble of a door that could not be opened.
pub fn not_open(protocol: &str, address: SocketAddr, error: &io::Error) -> Trouble {
    let port = address.port();
    let trouble = if error.kind() == ErrorKind::AddrInUse {
        let who = holder(Port::Tcp, address).map_or(String::new(), |who| format!(" by {who}"));
        let next = format!(
            "stop the other process (ss -tlpn 'sport = {port}'), or choose another address with --listen"
        );
        Trouble::new(Kind::Taken, format!("port {port} is taken{who}")).next(next)
    } else if error.kind() == ErrorKind::AddrNotAvailable {
        Trouble::new(Kind::Rule, format!("{} is not an address of this machine", address.ip()))
    } else {
        Trouble::new(Kind::Network, format!("cannot listen: {error}"))
    };
    trouble.at(format!("door {protocol}, address {address}"))
}
