//! A gateway's side of one connection: records in, operations out; results in, records out. No socket.
//!
//! ```text
//! client -- bytes --> Connection::receive -- Connection::submit --> the cluster's client
//! client <-- bytes -- Connection::outgoing <-- Connection::replied --
//! ```
//!
//! Many calls are in flight on a connection, and their replies leave in the order in which they come. A
//! peer costs bounded memory: one record that is coming in, the calls in flight, and the replies that it
//! has not taken, each with its bound. At a bound the connection takes no more bytes, and the network
//! waits ([`Connection::receive`] says how many it took).
//!
//! A call that reads, and for which no quorum answers, is answered by JUKEBOX, which tells the client to try again in
//! a while: a hard mount rides out a view change without an error to the application. MNT has no such word and fails.
//! A change that is in progress stays without an answer for as long as it takes: it may have been done, or may be done
//! yet, and the client would send it again under another number, so that it is done twice.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use quorate_wire::message::OPERATION_BYTES_MAX;

use crate::mount3::{self, MountReply, MountStat};
use crate::nfs3::{self, Procedure, Reply, Stat};
use crate::operation::{HEAD_BYTES, Operation};
use crate::record::{RecordError, Records, put_record};
use crate::rpc::{CallHead, ReplyHead, Status};
use crate::service::Fs;
use crate::settings::Procedures;
use crate::xdr::{Reader, Xdr};

/// The bounds of one connection.
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

/// What is kept of the memory for replies when the client has taken all of them, in bytes.
const IDLE_BYTES_MAX: usize = 64 << 10;

/// Names a call in flight on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A call for the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submit<'a> {
    /// Comes back with the result.
    pub ticket: Ticket,
    /// The operation.
    pub operation: &'a [u8],
    /// It may go the short way.
    pub read_only: bool,
    /// The client may be told that it was not done although it may be done yet, or may be done twice: it reads, or it
    /// is MOUNT's.
    pub may_give_up: bool,
}

/// A call in flight: what is needed to ask again, or if nobody answers it.
#[derive(Clone, Debug)]
struct Flying {
    xid: u32,
    program: u32,
    procedure: u32,
    operation: Vec<u8>,
}

impl Flying {
    /// Returns whether the client may be told that it was not done, whatever becomes of it.
    fn may_give_up(&self) -> bool {
        let reads = |procedure| Procedures::reading().has(procedure);
        self.program == mount3::PROGRAM || Procedure::from_number(self.procedure).is_some_and(reads)
    }
}

/// One connection of a client.
#[derive(Debug)]
pub struct Connection {
    address: [u8; 16],
    limits: Limits,
    records: Records,
    next_ticket: u64,
    /// Calls that the driver has not taken yet. Part of those in flight.
    waiting: VecDeque<(Ticket, bool)>,
    /// At most `calls_max`.
    flying: BTreeMap<Ticket, Flying>,
    /// Bytes of the calls in flight.
    call_bytes: usize,
    outgoing: Vec<u8>,
    /// How much of it the client has taken.
    outgoing_at: usize,
}

impl Connection {
    /// Returns a connection with a client at `address`.
    pub fn new(address: [u8; 16], limits: Limits) -> Self {
        Self {
            address,
            limits,
            records: Records::new(OPERATION_BYTES_MAX - HEAD_BYTES),
            next_ticket: 0,
            waiting: VecDeque::new(),
            flying: BTreeMap::new(),
            call_bytes: 0,
            outgoing: Vec::new(),
            outgoing_at: 0,
        }
    }

    /// Returns whether it takes bytes now.
    pub fn is_open(&self) -> bool {
        self.flying.len() < self.limits.calls_max
            && self.call_bytes <= self.limits.call_bytes_max
            && self.has_room_for_replies()
    }

    /// Takes bytes from the client. Returns how many: fewer than there are, if too much is in flight; the
    /// rest is to be offered again later.
    ///
    /// # Errors
    ///
    /// The stream breaks a bound. The connection is of no more use.
    pub fn receive(&mut self, fs: &Fs, bytes: &[u8]) -> Result<usize, RecordError> {
        let mut taken = 0;
        while taken < bytes.len() && self.is_open() {
            let (count, record) = self.records.take(&bytes[taken..])?;
            taken += count;
            if let Some(call) = record {
                self.call(fs, &call);
            }
        }
        Ok(taken)
    }

    /// Returns the next call for the cluster. There is none while the client does not take its replies.
    pub fn submit(&mut self) -> Option<Submit<'_>> {
        if !self.has_submit() {
            return None;
        }
        let (ticket, read_only) = self.waiting.pop_front()?;
        let call = self.flying.get(&ticket)?;
        Some(Submit { ticket, operation: &call.operation, read_only, may_give_up: call.may_give_up() })
    }

    /// Returns whether there is one.
    pub fn has_submit(&self) -> bool {
        !self.waiting.is_empty() && self.has_room_for_replies()
    }

    fn has_room_for_replies(&self) -> bool {
        self.outgoing().len() <= self.limits.reply_bytes_max
    }

    /// Asks once more: the call was done, and its result was too long to be kept by the replicas for a
    /// client that missed it. What must not be done twice has its reply in the state (`replies`).
    pub fn ask_again(&mut self, ticket: Ticket) {
        if self.flying.contains_key(&ticket) {
            self.waiting.push_back((ticket, false));
        }
    }

    /// Returns whether a call has come in part.
    pub fn is_amid(&self) -> bool {
        self.records.is_amid()
    }

    /// Returns how many bytes are held: calls in part and in flight, and replies that were not taken.
    pub fn held(&self) -> usize {
        self.records.held() + self.call_bytes + self.outgoing.capacity()
    }

    /// Takes the result of a call: the RPC reply. An empty one says that the service could not even
    /// answer, because its state is damaged: that is a fault of the server. Whose call is not in flight any
    /// more is dropped.
    pub fn replied(&mut self, ticket: Ticket, reply: &[u8]) {
        match self.land(ticket) {
            Some(call) if reply.is_empty() => self.fail(&call, Stat::ServerFault),
            Some(_) => put_record(&mut self.outgoing, reply),
            None => {}
        }
    }

    /// Answers a call in the place of a cluster that does not: try again later. The caller knows that it was not done,
    /// or it may be given up.
    pub fn unanswered(&mut self, ticket: Ticket) {
        if let Some(call) = self.land(ticket) {
            self.fail(&call, Stat::Jukebox);
        }
    }

    /// Answers a call in the form of its procedure.
    fn fail(&mut self, call: &Flying, stat: Stat) {
        let mut reply = Vec::new();
        ReplyHead { xid: call.xid, status: Status::Success }.encode(&mut reply);
        if call.program == nfs3::PROGRAM {
            let procedure = Procedure::from_number(call.procedure);
            if let Some(failed) = procedure.and_then(|p| Reply::failed(p, stat)) {
                failed.encode(&mut reply);
            }
        } else if call.procedure == mount3::Procedure::Mnt as u32 {
            // MOUNT has no status for "later", so the mount fails now. If it is recorded nevertheless, the list of mounts
            // has an extra line until the client mounts again.
            MountReply::Failed(MountStat::ServerFault).encode(&mut reply);
        } else {
            reply.clear();
            ReplyHead { xid: call.xid, status: Status::SystemErr }.encode(&mut reply);
        }
        put_record(&mut self.outgoing, &reply);
    }

    /// Returns the bytes for the client.
    pub fn outgoing(&self) -> &[u8] {
        &self.outgoing[self.outgoing_at..]
    }

    /// Records that the client has taken so many of them.
    pub fn sent(&mut self, count: usize) {
        self.outgoing_at = self.outgoing.len().min(self.outgoing_at.saturating_add(count));
        // Half of it may be gone before the rest moves up.
        if self.outgoing_at * 2 >= self.outgoing.len() {
            self.outgoing.drain(..self.outgoing_at);
            self.outgoing_at = 0;
            // Who has everything costs little, whatever it once was.
            if self.outgoing.is_empty() && self.outgoing.capacity() > IDLE_BYTES_MAX {
                self.outgoing = Vec::new();
            }
        }
    }

    /// Returns whether calls are in flight.
    pub fn is_idle(&self) -> bool {
        self.flying.is_empty()
    }

    fn call(&mut self, fs: &Fs, call: &[u8]) {
        let mut operation = Vec::with_capacity(HEAD_BYTES + call.len());
        Operation { address: self.address, call }.encode(&mut operation);
        // What no state is needed for is answered here: nonsense is not worth a round of the cluster.
        if let Some(reply) = fs.immediate(call) {
            if !reply.is_empty() {
                put_record(&mut self.outgoing, &reply);
            }
            return;
        }
        let Ok(head) = CallHead::decode(&mut Reader::new(call)) else { return };
        let CallHead { xid, program, procedure, .. } = head;
        // A call that comes again while it is in flight gets the one reply that is on its way.
        let is_same = |other: &Flying| {
            (other.xid, other.program, other.procedure) == (xid, program, procedure)
                && other.operation == operation
        };
        if self.flying.values().any(is_same) {
            return;
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.call_bytes += operation.len();
        let read_only = quorate_service::Service::is_read_only(fs, &operation);
        self.flying.insert(ticket, Flying { xid, program, procedure, operation });
        self.waiting.push_back((ticket, read_only));
    }

    fn land(&mut self, ticket: Ticket) -> Option<Flying> {
        let call = self.flying.remove(&ticket)?;
        self.call_bytes -= call.operation.len();
        Some(call)
    }
}
