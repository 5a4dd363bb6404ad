//! Inputs and outputs of a replica: its complete interface.
//!
//! The contract (`ARCHITECTURE.md`): the same inputs give the same actions. Actions are performed in order, except
//! that a [`Action::Send`] waits until its `after` is durable. A message may be lost, late, duplicated or reordered.
//! A timer has a name, and setting it again restarts it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::batch::{Batch, Body};
use quorate_wire::codec::Writer;
use quorate_wire::id::{ClientId, ReplicaId, SeqNum, Timestamp};
use quorate_wire::life::Lives;
use quorate_wire::message::{Kind, Message};
use quorate_wire::reply::{Replies, Reply};
use quorate_wire::{Digest, Verified};

pub use crate::io::milestone::{Milestone, Reject};

/// The time, as the driver reads it once per burst. Part of every recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic, in nanoseconds, from an origin of the driver's.
    pub mono_ns: u64,
    /// Time of day in nanoseconds since 1970. Used for the primary's choice alone.
    pub wall_ns: u64,
}

/// A position in the write-ahead log. 0 depends on nothing and is always durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lsn(pub u64);

/// Names a read-only execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A moment of the monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(pub u64);

/// The timers of a replica. Each is running or not; there is one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// `T_REQ`: the oldest pending request was not executed in time (TM-1).
    Request,
    /// `T_VC`: no NEW-VIEW in time (TM-3).
    NewView,
    /// `T_STATUS`: say what this replica has and lacks (SM-1).
    Status,
    /// Piggybacked commits found no carrier in time (PB-1).
    Flush,
    /// Bodies, batches or VIEW-CHANGEs asked for have not come (SR-2).
    BodyFetch,
    /// Requests relayed to the primary are due for a further measure (TM-2).
    Relay,
    /// QUERY-STABLE or the recovery request is due again (RC-4, RC-6).
    Recovery,
    /// A null batch is due for a recovery in progress (RC-10).
    NullBatch,
    /// A client's next long request may be proposed (PR-8).
    Pause,
}

impl Timer {
    /// How many there are: the size of a driver's array of deadlines.
    pub const COUNT: usize = 9;

    /// Every timer.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Request,
        Self::NewView,
        Self::Status,
        Self::Flush,
        Self::BodyFetch,
        Self::Relay,
        Self::Recovery,
        Self::NullBatch,
        Self::Pause,
    ];

    /// Returns the timer's place in an array of deadlines.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// The result of a read-only execution.
#[derive(Clone, Copy, Debug)]
pub enum ReadResult<'a> {
    /// The result and its digest over (client, timestamp, result).
    Done {
        /// The result.
        result: &'a [u8],
        /// Its digest.
        digest: Digest,
    },
    /// The service will not answer this without ordering it; the client falls back (CL-2).
    NeedsOrder,
}

/// The reply that the state holds for a client's last request.
#[derive(Clone, Copy, Debug)]
pub struct CachedReply<'a> {
    /// The request's number.
    pub timestamp: Timestamp,
    /// Digest over (client, timestamp, result).
    pub digest: Digest,
    /// The result, unless only its digest is kept.
    pub result: Option<&'a [u8]>,
}

/// Each thing that can happen to a replica.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The first input, once, after `Replica::new`.
    Start,
    /// An authentic message, not yet believed.
    Message(&'a Verified<Message<'a>>),
    /// A timer that this replica had set has run out.
    Timer(Timer),
    /// The result of an [`Action::CheckSignature`].
    SignatureChecked {
        /// The request.
        request: Digest,
        /// The signature is its client's.
        valid: bool,
    },
    /// A batch has been executed. Comes in the order of the `Execute` actions.
    Executed {
        /// The batch.
        seq: SeqNum,
        /// One reply for each of its requests, in order.
        replies: &'a Replies,
        /// How long the service was at work on it, in nanoseconds of real time; 0 if that is not known.
        took_ns: u64,
    },
    /// A request of a batch has run, and the result that the batch will give it is certain. The batch follows with
    /// [`Self::Executed`] (PX-C).
    Replied {
        /// The batch.
        seq: SeqNum,
        /// The reply.
        reply: Reply<'a>,
    },
    /// A read-only execution is done.
    Read {
        /// Which.
        ticket: Ticket,
        /// The result.
        result: ReadResult<'a>,
    },
    /// The answer to an [`Action::Resend`].
    Cached {
        /// The client.
        client: ClientId,
        /// The reply that the state holds, if any.
        reply: Option<CachedReply<'a>>,
    },
    /// The state's digest after executing `seq`.
    Checkpointed {
        /// The last batch that the state reflects.
        seq: SeqNum,
        /// The root of the digest tree.
        root: Digest,
    },
    /// State transfer is complete: the state is now the one after `seq`.
    Fetched {
        /// The checkpoint.
        seq: SeqNum,
        /// Its root, recomputed from the state.
        root: &'a Digest,
        /// The last executed timestamp of each client lane in the new state, in any order.
        clients: &'a [(ClientId, Timestamp)],
        /// The lives of the replicas that have had more than one, in the new state (RC-11). None: they cannot be
        /// read; then this replica votes in no view that rests on VIEW-CHANGEs.
        lives: Option<&'a [(ReplicaId, Lives)]>,
        /// The last agreed time in the new state, in nanoseconds (ND-2).
        time_ns: u64,
    },
    /// Every record up to here is on disk.
    Durable(Lsn),
    /// An image of the state after `seq` is on disk (D5).
    Kept {
        /// The checkpoint.
        seq: SeqNum,
    },
    /// The next batch needs a page that cannot be read, and no other replica has given it so far. Nothing is executed
    /// before it comes, or the state is fetched. Or a part of the state that is fetched is given by nobody.
    Unreadable {
        /// The last batch that the executor has executed: results may still be on their way.
        executed: SeqNum,
    },
    /// All input that was waiting has been taken. Comes before the driver sends anything or waits, while
    /// `Replica::owes_proposal` (PR-2).
    BurstEnd,
}

/// The receivers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// All other replicas.
    All,
    /// One other replica.
    Replica(ReplicaId),
    /// A client.
    Client(ClientId),
    /// A client, by way of the replica that sends all replies to a request at once (RP-6).
    Collected {
        /// The client.
        client: ClientId,
        /// The replica.
        by: ReplicaId,
    },
}

/// A part of [`Actions::bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// Writes bytes behind those in `arena` and returns where they are.
    #[inline]
    pub(crate) fn write(arena: &mut Vec<u8>, write: impl FnOnce(&mut Writer<'_>)) -> Self {
        let start = arena.len();
        write(&mut Writer::new(arena));
        let (Ok(start), Ok(len)) = (u32::try_from(start), u32::try_from(arena.len() - start)) else {
            unreachable!("a step writes less than 4 GiB")
        };
        Self { start, len }
    }

    /// Returns the bytes in `arena` that this names.
    #[inline]
    pub(crate) fn of(self, arena: &[u8]) -> &[u8] {
        let (Ok(start), Ok(len)) = (usize::try_from(self.start), usize::try_from(self.len)) else {
            return &[];
        };
        arena.get(start..start + len).unwrap_or(&[])
    }
}

/// The content of the bytes of an [`Action::Send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A body of this kind, which the authenticator seals as [`Kind::seal`] says.
    Body,
    /// A whole frame, signed here or made by someone else, to be sent as it is.
    Frame,
}

/// An action that a replica requests.
#[derive(Clone, Debug)]
pub enum Action {
    /// Send a message once everything up to `after` is durable.
    Send {
        /// For whom.
        to: Recipient,
        /// The kind.
        kind: Kind,
        /// A body to seal, or a whole frame.
        form: Form,
        /// The bytes.
        bytes: Span,
        /// The record that must be durable before it is sent (spec §14.1).
        after: Lsn,
    },
    /// Append a record to the write-ahead log; [`Input::Durable`] tells when it is on disk.
    Persist {
        /// Its position.
        lsn: Lsn,
        /// The encoded `record::Record`.
        bytes: Span,
    },
    /// Start a timer, or start it again.
    SetTimer(Timer, Deadline),
    /// Stop a timer.
    StopTimer(Timer),
    /// Verify a client's signature over a request's digest, outside of the step.
    CheckSignature {
        /// Whose.
        client: ClientId,
        /// The signed statement.
        request: Arc<SignatureCheck>,
    },
    /// Execute a batch; the next number in order.
    Execute {
        /// Its number.
        seq: SeqNum,
        /// The requests, all bodies present, and the primary's choice.
        batch: Arc<Batch>,
        /// Into an overlay: it has prepared but not committed (TE-2).
        tentative: bool,
    },
    /// The tentative batch has committed: make the overlay part of the state.
    Merge {
        /// The batch.
        seq: SeqNum,
    },
    /// Drop the overlay of a tentative batch, if there is one.
    Undo {
        /// The last batch that stays executed.
        after: SeqNum,
    },
    /// Execute a read-only request on the committed state.
    Read {
        /// Names the answer.
        ticket: Ticket,
        /// The request.
        request: Body,
    },
    /// Look up the reply that the state holds for a client; [`Input::Cached`] brings it.
    Resend {
        /// The client.
        client: ClientId,
    },
    /// Cut a checkpoint: the state now, exactly after `seq`; [`Input::Checkpointed`] tells its digest.
    Checkpoint {
        /// The last batch executed.
        seq: SeqNum,
    },
    /// Checkpoints before `below` are not needed any more.
    Discard {
        /// The stable checkpoint.
        below: SeqNum,
    },
    /// Bring the state to a certified checkpoint; [`Input::Fetched`] tells when it is there, and, where there
    /// is a disk, [`Input::Kept`] when it, or a later one, is there as an image (D5, ST-6). A later one replaces
    /// the target of an earlier one.
    Fetch {
        /// The checkpoint.
        seq: SeqNum,
        /// Its root.
        root: Digest,
        /// Do not trust the pages that are here: recompute their digests first (CK-6).
        check: bool,
    },
    /// Nothing to do: something worth knowing has happened.
    Report(Milestone),
}

/// A signature to be verified.
#[derive(Clone, Debug)]
pub struct SignatureCheck {
    /// The request's digest.
    pub request: Digest,
    /// The signature.
    pub signature: [u8; 64],
}

/// What a step wants done: a list and the bytes that it refers to. The driver clears it and never
/// drops it, so that a step allocates nothing.
#[derive(Debug, Default)]
pub struct Actions {
    list: Vec<Action>,
    bytes: Vec<u8>,
}

impl Actions {
    /// Returns an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the list and keeps its memory.
    #[inline]
    pub fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
    }

    /// Returns the actions in order.
    pub fn list(&self) -> &[Action] {
        &self.list
    }

    /// Returns the bytes that an action refers to.
    pub fn bytes(&self, span: Span) -> &[u8] {
        span.of(&self.bytes)
    }

    /// Appends an action.
    #[inline]
    pub fn push(&mut self, action: Action) {
        if self.list.len() == self.list.capacity() {
            self.grow();
        }
        self.list.push(action); // written in place, now that there is room
    }

    #[cold]
    fn grow(&mut self) {
        self.list.reserve(16);
    }

    /// Appends a milestone.
    #[inline]
    pub fn report(&mut self, milestone: Milestone) {
        self.push(Action::Report(milestone));
    }

    /// Appends the reason why a message was rejected.
    #[inline]
    pub fn reject(&mut self, reason: Reject) {
        self.report(Milestone::Rejected(reason));
    }

    /// Writes bytes and returns where they are.
    #[inline]
    pub fn write(&mut self, write: impl FnOnce(&mut Writer<'_>)) -> Span {
        Span::write(&mut self.bytes, write)
    }

    /// Sends a message whose body `write` encodes.
    #[inline]
    pub fn send(&mut self, to: Recipient, kind: Kind, after: Lsn, write: impl FnOnce(&mut Writer<'_>)) {
        let bytes = self.write(write);
        self.push(Action::Send { to, kind, form: Form::Body, bytes, after });
    }

    /// Sends a frame as it is.
    pub fn forward(&mut self, to: Recipient, kind: Kind, after: Lsn, frame: &[u8]) {
        let bytes = self.write(|w| w.bytes(frame));
        self.push(Action::Send { to, kind, form: Form::Frame, bytes, after });
    }
}

const _: () = assert!(size_of::<Action>() <= 64);
const _: () = assert!(size_of::<Input<'_>>() <= 80);
