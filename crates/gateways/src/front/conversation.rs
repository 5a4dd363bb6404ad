//! The protocol of a connection, and what it exchanges with the gateway around it.

use std::fmt::Debug;
use std::net::SocketAddr;

use quorate_node::descriptors;

/// Bytes of input that are read at a time.
pub(crate) const INPUT_BYTES: usize = 64 << 10;

/// The limits of a gateway.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Number of lanes of the client: operations in progress.
    pub lanes: u16,
    /// Maximum number of connections, if the process may open as many. Beyond it, a new connection takes the place of
    /// one that nobody has used for a while, or is refused, with an error if the protocol has one.
    pub connections_max: usize,
    /// Maximum memory for buffers, in bytes. Beyond it large commands are refused, and the connections that hold much
    /// and have been idle longest are closed.
    pub memory_bytes_max: usize,
    /// Deadline of an operation, after which the user is answered without a result, in nanoseconds.
    pub deadline_ns: u64,
    /// How long a user may stall in the middle of a command or a reply, in nanoseconds.
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

/// Descriptors that a gateway needs for itself: its listener, its poller, the sockets of its client, files, and a
/// connection that is refused.
const OWN_DESCRIPTORS: usize = 64;

impl Limits {
    /// Returns the limits as far as this process may open descriptors, so that the gateway can refuse a connection in
    /// words.
    pub(crate) fn within_descriptors(self) -> Self {
        let most = descriptors::most().saturating_sub(OWN_DESCRIPTORS).max(1);
        Self { connections_max: self.connections_max.min(most), ..self }
    }
}

/// Requests of a gateway to the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Requests sent, retransmissions included.
    pub sent: u64,
    /// Retransmissions.
    pub resent: u64,
}

/// The counters of a gateway.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Connections that are open.
    pub connections: usize,
    /// Connections so far.
    pub connections_total: u64,
    /// Commands or calls so far.
    pub commands_total: u64,
    /// Requests to the cluster so far, and how many of them were retransmissions.
    pub requests: Requests,
    /// Since when the gateway has been open, in seconds.
    pub uptime_s: u64,
    pub(super) opened_ns: u64,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The maximum number of connections is reached.
    Connections,
    /// Its input needs more memory than is left.
    Memory,
}

/// Why an operation has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It timed out, and did not and will not take effect.
    NothingDone,
    /// It timed out, and may or may not take effect.
    Unknown,
    /// It took effect, but its result was too long to be stored.
    ResultLost,
    /// Replicas have no place for another lane of the gateway's client: nothing was done.
    NoLane,
    /// The gateway's client was removed from the cluster, or lacks the right: nothing was done.
    NotAllowed,
}

/// An operation for the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The conversation's number of the operation, returned with the answer.
    pub ticket: u64,
    /// Whether it may be served without ordering.
    pub read_only: bool,
    /// Whether the user is answered after the deadline although the operation may or may not take effect. If not, the
    /// answer is awaited.
    pub may_give_up: bool,
}

/// The next step of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There may be more to do after the output is written.
    Again,
    /// Nothing until there is input.
    Rest,
}

/// How readily a connection is closed to make room for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Goes {
    /// Before others, whatever it brings: its user has not given the password.
    First,
    /// Nobody has used it for a while, and nobody waits for it.
    Idle,
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The user's.
    pub peer: SocketAddr,
    /// The gateway's.
    pub own: SocketAddr,
}

/// The protocol of one connection, without its socket. Its memory is bounded.
pub trait Conversation: Debug + Sized {
    /// The data shared by all connections of a gateway.
    type Protocol: Debug;
    /// Returns the conversation between these ends, connection number `id`.
    fn open(protocol: &Self::Protocol, ends: Ends, id: u64) -> Self;
    /// Reports that the connection is refused, if the protocol has an error for it, and ends it.
    fn refuse(&mut self, why: Refused);
    /// Returns whether more input is wanted.
    fn wants_input(&self) -> bool;
    /// Returns whether it needs more than the usual share of memory.
    fn is_large(&self) -> bool;
    /// Takes input: at most 64 KiB, if it is wanted.
    fn receive(&mut self, protocol: &Self::Protocol, bytes: &[u8]);
    /// There will be no more input.
    fn hang_up(&mut self);
    /// Does what is possible without the cluster.
    fn work(&mut self, protocol: &Self::Protocol, counts: &mut Counts) -> Progress;
    /// Writes the next operation for the cluster to `operation`, if there is one.
    fn question(&mut self, operation: &mut Vec<u8>) -> Option<Question>;
    /// Returns whether [`Self::question`] has an operation.
    fn has_question(&self) -> bool;
    /// Takes the result of an operation.
    fn answer(&mut self, protocol: &Self::Protocol, ticket: u64, result: &[u8], counts: &Counts);
    /// An operation has no result.
    fn fail(&mut self, ticket: u64, failure: Failure);
    /// Returns the bytes for the user.
    fn output(&self) -> &[u8];
    /// The user has taken this number of bytes.
    fn sent(&mut self, count: usize);
    /// Returns whether it ends once the output is taken.
    fn has_ended(&self) -> bool;
    /// Returns whether the user is in the middle of a command, or of replies that it does not read.
    fn is_stalled(&self) -> bool;
    /// Returns how readily it may be closed to make room for another one. None: not at all. No bytes have come or gone
    /// for `idle_ns`.
    fn may_go(&self, idle_ns: u64) -> Option<Goes>;
    /// Returns the number of bytes it holds.
    fn held(&self) -> usize;
}
