//! A gateway's side of one connection: records in, operations out; results in, records out. No socket.
//!
//! ```text
//! client -- bytes --> Connection::receive -- Connection::submit --> the cluster's client
//! client <-- bytes -- Connection::outgoing <-- Connection::replied --
//! ```
//!
//! Many calls can be in flight on a connection; replies are sent in order of arrival. The memory for a peer is
//! bounded: one incoming record, the calls in flight, and the replies that it has not read, each with its limit. At a
//! limit the connection takes no more bytes, and the network waits ([`Connection::receive`] returns how many it
//! took).
//!
//! A read without an answer of a quorum is answered with JUKEBOX, which tells the client to try again later: a hard
//! mount survives a view change without an error in the application. MNT has no such status and fails. A change in
//! progress gets no answer for as long as it takes: it may still take effect, and the client would send it again with
//! another number, so that it might be executed twice.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use quorate_wire::message::OPERATION_BYTES_MAX;

use crate::nfs3::Stat;
use crate::nfs3::acts_as::ActsAs;
use crate::nfs3::operation::{HEAD_BYTES, Operation};
use crate::nfs3::service::{AnyProcedure, Examined, Fs};
use crate::rpc::AUTH_BYTES_MAX;
use crate::rpc::record::{RecordError, Records, put_record};

/// The limits of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of calls in flight.
    pub calls_max: usize,
    /// Maximum bytes of calls in flight, in addition to one call.
    pub call_bytes_max: usize,
    /// Maximum bytes of replies that wait for the client to read them, in addition to those of the calls in flight.
    pub reply_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { calls_max: 128, call_bytes_max: 8 << 20, reply_bytes_max: 8 << 20 }
    }
}

/// Memory for replies that is kept when the client has read all of them, in bytes.
const IDLE_BYTES_MAX: usize = 64 << 10;

/// Identifies a call in flight on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A call for the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submit<'a> {
    /// Returned with the result.
    pub ticket: Ticket,
    /// The operation.
    pub operation: &'a [u8],
    /// Whether it may be served without ordering.
    pub read_only: bool,
    /// Whether the client may be told that it was not executed although it may still take effect, or be executed
    /// twice: it reads, or belongs to MOUNT.
    pub may_give_up: bool,
}

/// A call in flight: the data to send it again, or to answer it without a result.
#[derive(Clone, Debug)]
struct InFlight {
    xid: u32,
    procedure: AnyProcedure,
    operation: Vec<u8>,
}

impl InFlight {
    /// Returns whether the client may be told that it was not executed, whatever happens to it.
    fn may_give_up(&self) -> bool {
        match self.procedure {
            AnyProcedure::Nfs(procedure) => procedure.kind().reads(),
            AnyProcedure::Mount(_) => true,
        }
    }
}

/// One connection of a client.
#[derive(Debug)]
pub struct Connection {
    address: [u8; 16],
    acts_as: ActsAs,
    limits: Limits,
    records: Records,
    next_ticket: u64,
    /// Calls that the driver has not taken yet: a part of those in flight.
    waiting: VecDeque<(Ticket, bool)>,
    /// At most `calls_max`.
    in_flight: BTreeMap<Ticket, InFlight>,
    /// Bytes of the calls in flight.
    call_bytes: usize,
    outgoing: Vec<u8>,
    /// How much of the output the client has read.
    outgoing_at: usize,
}

impl Connection {
    /// Returns a connection with a client at `address`, which may act for any user.
    pub fn new(address: [u8; 16], limits: Limits) -> Self {
        Self {
            address,
            acts_as: ActsAs::Anyone,
            limits,
            // Another user takes more bytes than the one that a call names.
            records: Records::new(OPERATION_BYTES_MAX - HEAD_BYTES - AUTH_BYTES_MAX),
            next_ticket: 0,
            waiting: VecDeque::new(),
            in_flight: BTreeMap::new(),
            call_bytes: 0,
            outgoing: Vec::new(),
            outgoing_at: 0,
        }
    }

    /// Returns the connection with a client whose calls have these rights.
    #[must_use]
    pub fn acting_as(self, acts_as: ActsAs) -> Self {
        Self { acts_as, ..self }
    }

    /// Returns whether it takes bytes now.
    pub fn is_open(&self) -> bool {
        self.in_flight.len() < self.limits.calls_max
            && self.call_bytes <= self.limits.call_bytes_max
            && self.has_room_for_replies()
    }

    /// Takes bytes from the client. Returns how many: fewer than offered if too much is in flight; the rest must be
    /// offered again later.
    ///
    /// # Errors
    ///
    /// The stream violates a limit. The connection is unusable.
    pub fn receive(&mut self, fs: &Fs, bytes: &[u8]) -> Result<usize, RecordError> {
        let mut taken = 0;
        while taken < bytes.len() && self.is_open() {
            let (count, record) = self.records.take(&bytes[taken..])?;
            taken += count;
            if let Some(call) = record {
                let call = self.acts_as.apply(call);
                self.call(fs, &call);
            }
        }
        Ok(taken)
    }

    /// Returns the next call for the cluster. There is none while the client does not read its replies.
    pub fn submit(&mut self) -> Option<Submit<'_>> {
        if !self.has_submit() {
            return None;
        }
        let (ticket, read_only) = self.waiting.pop_front()?;
        let call = self.in_flight.get(&ticket)?;
        Some(Submit { ticket, operation: &call.operation, read_only, may_give_up: call.may_give_up() })
    }

    /// Returns whether there is one.
    pub fn has_submit(&self) -> bool {
        !self.waiting.is_empty() && self.has_room_for_replies()
    }

    fn has_room_for_replies(&self) -> bool {
        self.outgoing().len() <= self.limits.reply_bytes_max
    }

    /// Sends the operation again: it was executed, but its result was too long for the replicas to store for a client
    /// that missed it. Calls that must not be executed twice have their reply in the state (`reply_cache`).
    pub fn ask_again(&mut self, ticket: Ticket) {
        if self.in_flight.contains_key(&ticket) {
            self.waiting.push_back((ticket, false));
        }
    }

    /// Returns whether a call has arrived incompletely.
    pub fn is_amid(&self) -> bool {
        self.records.is_amid()
    }

    /// Returns the number of bytes it holds: incomplete calls, calls in flight, and unread replies.
    pub fn held(&self) -> usize {
        self.records.held() + self.call_bytes + self.outgoing.capacity()
    }

    /// Takes the result of a call: the RPC reply. An empty one means that the service could not answer because its
    /// state is damaged, which is a fault of the server. Results of calls no longer in flight are dropped.
    pub fn replied(&mut self, ticket: Ticket, reply: &[u8]) {
        match self.finish(ticket) {
            Some(call) if reply.is_empty() => self.fail(&call, Stat::ServerFault),
            Some(_) => put_record(&mut self.outgoing, reply),
            None => {}
        }
    }

    /// Returns whether the client may be told that a call was not executed, whatever happens to it.
    pub fn may_give_up(&self, ticket: Ticket) -> bool {
        self.in_flight.get(&ticket).is_none_or(InFlight::may_give_up)
    }

    /// Answers a call that the cluster refuses to this gateway: nothing was done.
    pub fn refused(&mut self, ticket: Ticket) {
        if let Some(call) = self.finish(ticket) {
            self.fail(&call, Stat::Access);
        }
    }

    /// Answers a call for a cluster that does not answer: try again later. The caller knows that the call was not
    /// executed, or that it [may be abandoned](Self::may_give_up).
    pub fn unanswered(&mut self, ticket: Ticket) {
        if let Some(call) = self.finish(ticket) {
            self.fail(&call, Stat::Jukebox);
        }
    }

    /// Answers a call in the format of its procedure.
    fn fail(&mut self, call: &InFlight, stat: Stat) {
        let mut reply = Vec::new();
        // MOUNT has no status for "later", so the mount fails now. If it is recorded nevertheless, the list of mounts
        // has an extra line until the client mounts again.
        call.procedure.fail(call.xid, Some(stat), &mut reply);
        put_record(&mut self.outgoing, &reply);
    }

    /// Returns the bytes for the client.
    pub fn outgoing(&self) -> &[u8] {
        &self.outgoing[self.outgoing_at..]
    }

    /// The client has read this number of bytes.
    pub fn sent(&mut self, count: usize) {
        self.outgoing_at = self.outgoing.len().min(self.outgoing_at.saturating_add(count));
        // Half of the buffer may be free before the rest is moved.
        if self.outgoing_at * 2 >= self.outgoing.len() {
            self.outgoing.drain(..self.outgoing_at);
            self.outgoing_at = 0;
            // A client that has read everything costs little memory, whatever it used before.
            if self.outgoing.is_empty() && self.outgoing.capacity() > IDLE_BYTES_MAX {
                self.outgoing = Vec::new();
            }
        }
    }

    /// Returns whether calls are in flight.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    fn call(&mut self, fs: &Fs, call: &[u8]) {
        // Calls that need no state are answered here: invalid ones are not worth a round of the cluster.
        let Examined { xid, procedure, read_only } = match fs.examine(call) {
            Ok(examined) => examined,
            Err(reply) => {
                if !reply.is_empty() {
                    put_record(&mut self.outgoing, &reply);
                }
                return;
            }
        };
        let mut operation = Vec::with_capacity(HEAD_BYTES + call.len());
        Operation { address: self.address, call }.encode(&mut operation);
        // A call that is repeated while it is in flight gets the one reply.
        if self.in_flight.values().any(|other| other.operation == operation) {
            return;
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.call_bytes += operation.len();
        self.in_flight.insert(ticket, InFlight { xid, procedure, operation });
        self.waiting.push_back((ticket, read_only));
    }

    fn finish(&mut self, ticket: Ticket) -> Option<InFlight> {
        let call = self.in_flight.remove(&ticket)?;
        self.call_bytes -= call.operation.len();
        Some(call)
    }
}
