//! Inputs and outputs of a client, in the form of a replica's [`crate::io::step`].

use alloc::vec::Vec;

use quorate_wire::codec::Writer;
use quorate_wire::message::RequestFlags;
use quorate_wire::{Cluster, Digest, Message, ReplicaId, Timestamp, Verified, ViewNum};

use crate::io::step::{Deadline, Span};

/// Some of the replicas: bit `i` is replica `i`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Members(u64);

impl Members {
    /// Returns all of a cluster.
    pub fn all(cluster: Cluster) -> Self {
        // At most 64 of them.
        Self(u64::MAX >> (64 - cluster.n()))
    }

    /// Returns one.
    pub fn one(replica: ReplicaId) -> Self {
        Self(1 << replica.index())
    }

    /// Returns whether a replica is among them.
    pub fn contains(self, replica: ReplicaId) -> bool {
        self.0 >> replica.index() & 1 == 1
    }

    /// Returns these and not those.
    #[must_use]
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Returns them in the order of their ids.
    pub fn of(self, cluster: Cluster) -> impl Iterator<Item = ReplicaId> {
        cluster.replicas().filter(move |replica| self.contains(*replica))
    }

    /// Returns how many they are.
    pub fn count(self) -> usize {
        usize::try_from(self.0.count_ones()).unwrap_or(usize::MAX)
    }

    pub(super) fn insert(&mut self, replica: ReplicaId) {
        self.0 |= 1 << replica.index();
    }
}

/// Each thing that can happen to a client.
#[derive(Clone, Copy, Debug)]
pub enum ClientInput<'a> {
    /// Somebody wants an operation done. One at a time (CL-1): the next after [`ClientAction::Done`].
    Invoke {
        /// The operation, opaque here.
        operation: &'a [u8],
        /// It changes nothing, as far as the caller knows. The service judges for itself (RO-1).
        read_only: bool,
    },
    /// An authentic message, not yet believed.
    Message(&'a Verified<Message<'a>>),
    /// The timer has run out.
    Timer,
    /// Others are answered, or a replica is there again: what has waited for long may be asked for soon.
    Answered,
    /// Keys have been exchanged with all replicas but `missing` of them. Until this is said, with none.
    Keys {
        /// How many.
        missing: usize,
    },
}

/// How a result was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// The operation was ordered.
    Ordered,
    /// Each replica executed it without ordering [OSDI99 §5.1].
    ReadOnly,
    /// It was to be read-only, found no certificate, and was ordered (CL-2).
    FellBack,
}

/// An action that a client requests.
#[derive(Clone, Debug)]
pub enum ClientAction {
    /// Send a REQUEST, which the authenticator seals.
    Send {
        /// The primary, a quorum, or all.
        to: Members,
        /// The client's number for it. It may leave once it is on disk that this number is used (CL-10).
        timestamp: Timestamp,
        /// Of client, timestamp and operation.
        digest: Digest,
        /// Read-only, signed.
        flags: RequestFlags,
        /// The replica that is to return the full result; none: all of them.
        replier: Option<u16>,
        /// The operation.
        operation: Span,
        /// With a signature (AU-5); `flags` say the same.
        sign: bool,
    },
    /// Start the timer, or start it again.
    SetTimer(Deadline),
    /// Stop the timer.
    StopTimer,
    /// Send NEW-KEY to every replica, before what follows (CL-3).
    SendKeys,
    /// The operation has this result.
    Done {
        /// The request's number, in the end: see [`ClientMilestone::FellBack`].
        timestamp: Timestamp,
        /// The result.
        result: Span,
        /// How it was obtained.
        path: Path,
    },
    /// The operation was done, once, but its result is longer than what replicas keep for a client
    /// (`RESULT_CACHE`), and the reply that had it was lost. Never for a read, which is read again.
    DoneWithoutResult {
        /// The request's number.
        timestamp: Timestamp,
        /// The digest of the result.
        digest: quorate_wire::Digest,
    },
    /// This lane's identity has been used with a later timestamp, which this run of it does not know: whether the
    /// operation was done before that, nobody can say. It is not asked for any more (RP-5).
    Overtaken {
        /// The request's number.
        timestamp: Timestamp,
        /// A number that has been used.
        by: Timestamp,
    },
    /// Nothing to do: something worth knowing has happened.
    Report(ClientMilestone),
}

/// What has happened inside a client, for traces, checkers, metrics and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientMilestone {
    /// An operation has become a request.
    Invoked {
        /// Its number.
        timestamp: Timestamp,
        /// It is tried without ordering first.
        read_only: bool,
    },
    /// An operation was not taken.
    Refused(Refusal),
    /// The request is not sent yet: too few replicas could check it (CL-11).
    LacksKeys {
        /// Its number.
        timestamp: Timestamp,
    },
    /// Nothing came in time: the request was sent again.
    Retransmitted {
        /// Its number.
        timestamp: Timestamp,
        /// How often, under this number.
        times: u32,
    },
    /// The replicas that a read was sent to are late, or did not agree: the others are asked, too.
    AskedRest {
        /// The request's number.
        timestamp: Timestamp,
    },
    /// A read-only request is ordered under a new number.
    FellBack {
        /// The number that is given up.
        from: Timestamp,
        /// The new one.
        to: Timestamp,
    },
    /// An earlier run of this lane has used the number for another operation: this one has a new number (RP-5).
    TimestampTaken {
        /// The number that is given up.
        from: Timestamp,
        /// The new one.
        to: Timestamp,
    },
    /// The certificate is complete, the full result not there yet (CL-6).
    ResultMissing {
        /// The request's number.
        timestamp: Timestamp,
        /// The result's digest.
        digest: Digest,
    },
    /// A certificate shows a later view: requests go to another replica from now on (CL-5).
    ViewLearned {
        /// The view.
        view: ViewNum,
    },
    /// Requests carry signatures for a while (AU-5).
    Signing,
    /// A replica's reply was contradicted by `f + 1` others that agree. At most once for each replica and
    /// request; a correct replica is never reported, as long as no more than `f` are faulty.
    WrongReply {
        /// The sender.
        from: ReplicaId,
        /// The request's number.
        timestamp: Timestamp,
    },
    /// A message was rejected.
    Rejected {
        /// The sender, if it is a replica.
        from: Option<ReplicaId>,
        /// Why.
        reason: ClientReject,
    },
}

/// Why an operation was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another one is outstanding (CL-1).
    Busy,
    /// It is longer than the longest operation.
    TooLong,
    /// There is no timestamp left.
    Exhausted,
}

/// Why a client turned a message away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientReject {
    /// It is not a replica's REPLY.
    NotAReply,
    /// It is for another lane of this client.
    OtherLane,
    /// It answers another request than the outstanding one.
    OtherRequest,
    /// It answers another operation under the timestamp of the outstanding one (RP-5).
    OtherOperation,
    /// Its sender has said something later or firmer already.
    Superseded,
    /// A tentative reply to a read-only request, which no correct replica sends (RO-2).
    TentativeRead,
}

impl ClientReject {
    /// Every reason.
    pub const ALL: &'static [Self] = &[
        Self::NotAReply,
        Self::OtherLane,
        Self::OtherRequest,
        Self::OtherOperation,
        Self::Superseded,
        Self::TentativeRead,
    ];

    /// Returns the name used in traces, metrics and scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotAReply => "not-a-reply",
            Self::OtherLane => "other-lane",
            Self::OtherRequest => "other-request",
            Self::OtherOperation => "other-operation",
            Self::Superseded => "superseded",
            Self::TentativeRead => "tentative-read",
        }
    }
}

/// What a step wants done: a list and the bytes that it refers to. The driver clears it and never
/// drops it, so that a step allocates nothing.
#[derive(Debug, Default)]
pub struct ClientActions {
    list: Vec<ClientAction>,
    bytes: Vec<u8>,
}

impl ClientActions {
    /// Returns an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the list and keeps its memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
    }

    /// Returns the actions in order.
    pub fn list(&self) -> &[ClientAction] {
        &self.list
    }

    /// Returns the bytes that an action refers to.
    pub fn bytes(&self, span: Span) -> &[u8] {
        span.of(&self.bytes)
    }

    /// Appends an action.
    #[inline]
    pub fn push(&mut self, action: ClientAction) {
        self.list.push(action);
    }

    /// Appends a milestone.
    #[inline]
    pub fn report(&mut self, milestone: ClientMilestone) {
        self.push(ClientAction::Report(milestone));
    }

    /// Copies bytes and returns where they are.
    #[inline]
    pub fn copy(&mut self, bytes: &[u8]) -> Span {
        Span::write(&mut self.bytes, |w: &mut Writer<'_>| w.bytes(bytes))
    }
}

const _: () = assert!(size_of::<ClientAction>() <= 96);
