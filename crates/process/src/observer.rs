//! Everything in a process that a world can observe. An observer changes nothing: recorders, meters, logs and the checkers
//! of the simulator are observers.

use alloc::sync::Arc;

use quorate_pbft::step::{Deadline, Form, Input, Lsn, Milestone, Now, Recipient, Timer};
use quorate_service::page::PageStore;
use quorate_service::parallel::{Counters, WrongRule};
use quorate_service::{Executor, Refusal, Service};
use quorate_wire::{
    Batch, Body, ClientId, Digest, DoorError, Kind, Message, ReplicaId, Replies, SeqNum, Verified,
};

/// A part of the work on one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Authenticating, decoding and digesting input.
    Admit,
    /// The protocol's own step.
    Step,
    /// Executing, merging, checkpoints.
    Execute,
    /// Encoding and authenticating output.
    Seal,
}

impl Part {
    /// Number of parts.
    pub const COUNT: usize = 4;

    /// Every part.
    pub const ALL: [Self; Self::COUNT] = [Self::Admit, Self::Step, Self::Execute, Self::Seal];

    /// Returns its index in an array.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Step => "step",
            Self::Execute => "execute",
            Self::Seal => "seal",
        }
    }
}

/// Records how a process spends its time.
pub trait Meter {
    /// Work begins; the time since the last call is not counted.
    fn start(&mut self);

    /// The time since the last call was spent on `part`.
    fn lap(&mut self, part: Part);
}

/// No meter, without cost.
impl Meter for () {
    #[inline]
    fn start(&mut self) {}

    #[inline]
    fn lap(&mut self, _part: Part) {}
}

/// A meter as an observer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Metered<M>(M);

impl<M> Metered<M> {
    /// Returns an observer that is this meter.
    pub fn new(meter: M) -> Self {
        Self(meter)
    }

    /// Returns the meter.
    pub fn meter(&mut self) -> &mut M {
        &mut self.0
    }
}

impl<S: Service, P: PageStore, M: Meter> Observer<S, P> for Metered<M> {
    #[inline]
    fn start(&mut self) {
        self.0.start();
    }

    #[inline]
    fn lap(&mut self, part: Part) {
        self.0.lap(part);
    }
}

/// A message that the core sends, before it is sealed.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The receivers.
    pub to: Recipient,
    /// The kind.
    pub kind: Kind,
    /// Whether the bytes are a body or a whole frame.
    pub form: Form,
    /// The bytes.
    pub bytes: &'a [u8],
    /// The record that must be durable before the message is sent.
    pub after: Lsn,
}

/// Observes a process. The methods from [`Self::send`] to [`Self::milestone`] are the actions of the core, in their
/// order. By default nothing is observed, without cost.
#[allow(unused_variables, reason = "nothing is observed by default")]
pub trait Observer<S: Service, P: PageStore> {
    /// Work begins; the time since the last call is not counted.
    #[inline]
    fn start(&mut self) {}

    /// The time since the last call was spent on `part`.
    #[inline]
    fn lap(&mut self, part: Part) {}

    /// Returns the time of a clock of the world, by which executions are measured; always 0 if they take no time.
    #[inline]
    fn clock_ns(&mut self) -> u64 {
        0
    }

    /// The authenticator has rejected a frame.
    #[inline]
    fn refused(&mut self, why: &DoorError) {}

    /// The authenticator has accepted a frame.
    #[inline]
    fn admitted(&mut self, now: Now, message: &Verified<Message<'_>>, frame: &[u8]) {}

    /// The core is about to take an input. `frame` is empty unless the input is a message.
    #[inline]
    fn input(&mut self, now: Now, input: &Input<'_>, frame: &[u8]) {}

    /// The core sends a message.
    #[inline]
    fn send(&mut self, message: &Outgoing<'_>) {}

    /// The core appends a record to its log.
    #[inline]
    fn persist(&mut self, lsn: Lsn, record: &[u8]) {}

    /// The core starts a timer.
    #[inline]
    fn set_timer(&mut self, timer: Timer, deadline: Deadline) {}

    /// The core stops a timer.
    #[inline]
    fn stop_timer(&mut self, timer: Timer) {}

    /// The core asks for a signature to be checked.
    #[inline]
    fn check_signature(&mut self, client: ClientId, request: &Digest) {}

    /// The core asks for a batch to be executed.
    #[inline]
    fn execute(&mut self, seq: SeqNum, batch: &Arc<Batch>, tentative: bool) {}

    /// The tentative batch has committed.
    #[inline]
    fn merge(&mut self, seq: SeqNum) {}

    /// The tentative batch is dropped if it is above `after`.
    #[inline]
    fn undo(&mut self, after: SeqNum) {}

    /// The core asks for a read.
    #[inline]
    fn read(&mut self, ticket: u64, request: &Body) {}

    /// The core asks for the cached reply of a client.
    #[inline]
    fn resend(&mut self, client: ClientId) {}

    /// The core asks for a checkpoint.
    #[inline]
    fn cut(&mut self, seq: SeqNum) {}

    /// A checkpoint is stable.
    #[inline]
    fn discard(&mut self, below: SeqNum) {}

    /// The core asks for the state of a checkpoint.
    #[inline]
    fn fetch(&mut self, seq: SeqNum, root: &Digest, check: bool) {}

    /// The core has reached something.
    #[inline]
    fn milestone(&mut self, milestone: &Milestone) {}

    /// A message of this process has been sealed.
    #[inline]
    fn sealed(&mut self, kind: Kind, frame: &[u8]) {}

    /// A frame may leave now: its record is durable.
    #[inline]
    fn sent(&mut self, to: Recipient, kind: Kind, frame: &[u8]) {}

    /// Records up to here are durable.
    #[inline]
    fn durable(&mut self, lsn: Lsn) {}

    /// A batch has been executed.
    #[inline]
    fn executed(&mut self, seq: SeqNum, batch: &Batch, tentative: bool, replies: &Replies) {}

    /// Workers have run requests: what was counted since the last call.
    #[inline]
    fn ran(&mut self, counters: &Counters) {}

    /// A rule of the service is wrong: two requests depend on each other, and the rules say that they do not (PX-C).
    #[inline]
    fn wrong_rule(&mut self, wrong: &WrongRule) {}

    /// A checkpoint has been cut.
    #[inline]
    fn checkpointed(&mut self, seq: SeqNum, root: Digest, executor: &Executor<S, P>) {}

    /// Checkpoints below a stable one have been dropped.
    #[inline]
    fn discarded(&mut self, stable: SeqNum, executor: &Executor<S, P>) {}

    /// The state is now that of a fetched checkpoint.
    #[inline]
    fn installed(&mut self, seq: SeqNum, root: Digest, executor: &Executor<S, P>) {}

    /// The state transfer has rejected a message.
    #[inline]
    fn transfer_refused(&mut self, from: ReplicaId, why: Refusal) {}

    /// The state transfer found that pages of this process were wrong.
    #[inline]
    fn distrusted(&mut self) {}

    /// A page that the next batch needs cannot be read.
    #[inline]
    fn unreadable(&mut self, page: u32) {}

    /// A page that could not be read has come from another replica.
    #[inline]
    fn restored(&mut self, page: u32) {}
}

/// No observer.
impl<S: Service, P: PageStore> Observer<S, P> for () {}
