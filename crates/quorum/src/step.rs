//! The contact of a client or server with the world: an input in, actions out. No I/O and no clock.
//!
//! 1. Actions are performed in order. A `Send` after a `Persist` waits until that object is durable
//!    (§2.5), where durability is asked for.
//! 2. A message may be lost, late, doubled or reordered.
//! 3. A timer is named. Setting it again restarts it.
//! 4. What a peer or client sends never makes a step panic: it is dropped with a [`Reject`].

use alloc::vec::Vec;

use quorate_wire::codec::{DecodeError, Decoded};
use quorate_wire::{ClientId, Principal};

use crate::crypto::Crypto;
use crate::message::{Body, Message, Op};
use crate::thresholds::{ServerId, Thresholds};
use crate::version::{ObjectId, Value, Version};

/// Something that happens to a process.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// It starts, for the first time or again.
    Start,
    /// An authentic message.
    Message {
        /// Whose channel it came by.
        from: Principal,
        /// What it is.
        message: &'a Message,
    },
    /// A timer has run out.
    Timer(Timer),
    /// Clients: the user asks for an operation.
    Invoke {
        /// On which object.
        object: ObjectId,
        /// What to do.
        call: Call,
    },
    /// Servers: from now on this client may, or may not, write (§15).
    Access {
        /// The client.
        client: ClientId,
        /// Whether it may write.
        allowed: bool,
    },
}

/// An operation of a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Returns the value.
    Read,
    /// Replaces the value.
    Write(Value),
}

/// A timer of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Clients: the current phase on this object is sent again.
    Operation(ObjectId),
    /// Clients: the last STORE on this object is sent again, after completion too (§2.3).
    Stores(ObjectId),
    /// Servers: listeners expire (§4).
    Leases,
    /// Servers: FSTORE is sent again (§5).
    Relays,
    /// Servers: PULL is sent again (§15).
    Repair,
    /// Servers: they compare their access lists (§15).
    Access,
    /// Servers: what was acknowledged is signed (§6.4). Its wait is 0: it runs once what came before it was sent.
    Late,
}

/// Something that a process wants done.
#[allow(clippy::large_enum_variant, reason = "most actions are sends")]
#[derive(Clone, Debug)]
pub enum Action {
    /// Send a message.
    Send {
        /// To whom.
        to: Principal,
        /// What.
        message: Message,
    },
    /// Make this object durable.
    Persist(ObjectId),
    /// Start a timer, or restart it.
    SetTimer {
        /// Which.
        timer: Timer,
        /// Microseconds from now.
        after: u64,
    },
    /// An operation has ended.
    Done {
        /// On which object.
        object: ObjectId,
        /// How.
        result: Result<Outcome, Failure>,
    },
    /// A message was dropped.
    Reject {
        /// Who sent it.
        from: Principal,
        /// Why.
        reason: Reject,
    },
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The version written or read.
    pub version: Version,
    /// The value written or read.
    pub value: Value,
    /// How it went.
    pub path: Path,
    /// The phases that it took.
    pub phases: u8,
    /// MINIMAL: the most candidates that a read held, at most f + 1.
    pub candidates: u8,
}

/// How an operation went (§2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Path {
    /// No extra phase.
    Fast,
    /// A read that wrote back.
    WriteBack,
    /// A read of MINIMAL whose deciding answers contained a forwarded store.
    ListenerNeeded,
    /// A write of BFT-BC in two phases.
    TwoPhase,
    /// A write of BFT-BC in three phases or more.
    ThreePhase,
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The counter of versions is used up (§2.1).
    TimestampExhausted,
    /// One operation for each client and object (§2.3).
    Busy,
    /// The value is longer than the limit.
    ValueTooLarge,
    /// Too many objects have a STORE that some server has not acknowledged.
    Backlog,
    /// Servers say that the client has no right to this, and the others are no quorum. One of those that say so is correct. A
    /// write may still take effect.
    NotAllowed,
    /// A write of this client was refused after it had signed a version. It signs no other one with the same counter: that
    /// would be evidence against it (§15).
    Unfinished,
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::TimestampExhausted => "the counter of versions is used up",
            Self::Busy => "the client already has an operation on this object",
            Self::ValueTooLarge => "the value is too long",
            Self::Backlog => "too many objects have a store that some server has not acknowledged",
            Self::NotAllowed => "the client has no right to this operation",
            Self::Unfinished => "a write that was refused before is unfinished: start the client again",
        })
    }
}

/// Why a message was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reject {
    /// Not for this protocol, or not from such a sender.
    NotExpected,
    /// The client may not write this object, or the version is another client's.
    NotAllowed,
    /// A signature, certificate or evidence is not valid, or the value does not hash to the version.
    BadProof,
    /// Not the successor of its predecessor.
    NotSuccessor,
    /// The client has another write in progress (§6.1 c), or had another version with this counter approved (§6.1 d).
    Occupied,
    /// The request does not cover what was evicted (H2).
    NotCovered,
    /// A bound of this server is reached.
    Full,
    /// An old rid, operation or phase.
    Stale,
    /// This server lost its lists and approves nothing in this epoch (§15).
    ListsLost,
}

impl Body {
    /// Says whether a server that lost its disk may take this before it is repaired (§15). It may store
    /// and be told, because what it acknowledges then it holds; it must not answer from what it holds.
    pub fn is_for_lost_server(&self) -> bool {
        match self {
            Self::Store { .. }
            | Self::Fstore { .. }
            | Self::Fack { .. }
            | Self::Rc { .. }
            | Self::Write { .. }
            | Self::Complete { .. }
            | Self::Access { .. }
            | Self::AccessRank { .. }
            | Self::Copies { .. } => true,
            Self::Qts { .. }
            | Self::Tsr { .. }
            | Self::Ack { .. }
            | Self::Rd { .. }
            | Self::RdVal { .. }
            | Self::Read { .. }
            | Self::Val { .. }
            | Self::Gone { .. }
            | Self::ReadTs { .. }
            | Self::ReadTsReply { .. }
            | Self::Prepare { .. }
            | Self::PrepareReply { .. }
            | Self::WriteReply { .. }
            | Self::BcRead { .. }
            | Self::BcReadReply { .. }
            | Self::ReadTsPrep { .. }
            | Self::ReadTsPrepReply { .. }
            | Self::Refused { .. }
            | Self::Pull => false,
        }
    }
}

/// The actions of a step, in order.
#[derive(Debug, Default)]
pub struct Out {
    /// The actions.
    pub actions: Vec<Action>,
}

impl Out {
    pub(crate) fn send(&mut self, to: impl Into<Principal>, object: ObjectId, body: Body) {
        self.actions.push(Action::Send { to: to.into(), message: Message { object, body } });
    }

    pub(crate) fn broadcast(
        &mut self,
        servers: impl Iterator<Item = ServerId>,
        object: ObjectId,
        body: &Body,
    ) {
        for server in servers {
            self.send(server, object, body.clone());
        }
    }

    /// Drops a request, to which its sender has no right. A client is told so: one short answer to each request (§15).
    pub(crate) fn refuse(&mut self, from: Principal, object: ObjectId, op: Op) {
        if let Principal::Client(_) = from {
            self.send(from, object, Body::Refused { op });
        }
        self.reject(from, Reject::NotAllowed);
    }

    pub(crate) fn persist(&mut self, object: ObjectId) {
        self.actions.push(Action::Persist(object));
    }

    pub(crate) fn timer(&mut self, timer: Timer, after: u64) {
        self.actions.push(Action::SetTimer { timer, after });
    }

    pub(crate) fn reject(&mut self, from: Principal, reason: Reject) {
        self.actions.push(Action::Reject { from, reason });
    }
}

/// A client or server of a register.
pub trait Process {
    /// Takes an input.
    fn step(&mut self, now: u64, input: Input<'_>, crypto: &mut dyn Crypto, out: &mut Out);

    /// Drops what a crash loses: everything that is not durable (§2.5). `Input::Start` follows.
    fn crash(&mut self);

    /// Servers: appends what `Action::Persist` of this object makes durable. False: there is nothing.
    fn save(&self, _object: &ObjectId, _out: &mut Vec<u8>) -> bool {
        false
    }

    /// Servers: takes up again what [`Self::save`] wrote, before `Input::Start`. It is this server's own
    /// disk, so nothing is verified.
    fn load(&mut self, _object: ObjectId, _saved: &[u8]) -> Decoded<()> {
        Err(DecodeError::NotCanonical)
    }

    /// Servers: whether this server holds everything that it ever promised (§15). Until then it
    /// counts as faulty, and must be asked for nothing that it would answer from what it holds.
    fn is_repaired(&self) -> bool {
        true
    }

    /// Servers: returns the version that it holds of an object.
    fn held(&self, _object: &ObjectId) -> Option<Version> {
        None
    }

    /// Servers: says whether a client may read an object now (§15).
    fn may_read(&self, _from: Principal, _object: &ObjectId) -> bool {
        true
    }

    /// Servers: returns the number of the access list that it has. 0: none.
    fn access_number(&self) -> u64 {
        0
    }

    /// Clients: returns how many objects have a STORE that some server has not acknowledged (§2.3).
    fn backlog(&self) -> usize {
        0
    }

    /// Servers: returns how many objects it holds.
    fn objects(&self) -> usize {
        0
    }
}

/// Servers other than `me`.
pub(crate) fn peers(thresholds: Thresholds, me: ServerId) -> impl Iterator<Item = ServerId> {
    thresholds.servers().filter(move |server| *server != me)
}
