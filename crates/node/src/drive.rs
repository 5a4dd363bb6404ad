//! A replica's process without its sockets: its input is datagrams and the time, its output is datagrams.
//!
//! ```text
//!             +------+   +---------+   +-------+   +----------+
//! receive --> | door |-->| replica |-->| queue |-->| executor |   Input::Executed goes back to the replica
//!             +------+   +---------+   +-------+   +----------+
//!                             | Action::Send
//!                             v
//!             +------+   +--------+
//!    flush <--| pack |<--|  door  |   sealed once, packed by place, held until durable
//!             +------+   +--------+
//! ```
//!
//! One thread does all of this, from the datagram to the answer: handing over to another core would cost more than
//! the whole step (ADR 8). Benchmarks without sockets use the same code.

use std::collections::BTreeMap;
use std::sync::Arc;

use quorate_pbft::config::{Config, Durability};
use quorate_pbft::recording::Recorder;
use quorate_pbft::step::{Action, Actions, Input, Lsn, Now, SignatureCheck};
use quorate_pbft::{Replica, Resume};
use quorate_service::image::ImageCopy;
use quorate_service::page::PageLabel;
use quorate_service::{Executor, Options, Queue, Service, Steps, Task};
use quorate_wire::sign::Signer;
use quorate_wire::{ClientId, Door, ReplicaId, Replies, SeqNum, Timestamp};

use crate::core::Core;
use crate::directory::Directory;
use crate::journal::Journal;
use crate::meter::{Meter, Part};
use crate::outbox::{Outbox, Transport};
use crate::storage::Paged;
use crate::timers::Deadlines;
use admission::Admission;

mod admission;
mod error;
mod image;
mod liar;
mod life;
mod milestones;
mod receive;
mod send;
mod statement;
mod tasks;
mod transfer;
mod transfer_meter;

pub use self::error::DriveError;

/// How many checkpoints may pass while the image of one is copied.
const COPYING_CHECKPOINTS: u64 = 30;
/// How often the authenticator gets the time, in nanoseconds.
const TICK_NS: u64 = 100_000_000;

/// Counters of messages. Bounded: one entry for each reason.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Frames received.
    pub received: u64,
    /// Frames sealed or forwarded, each counted once for all receivers.
    pub sent: u64,
    /// Frames that were too long to be sent.
    pub too_long: u64,
    /// Frames for a principal without a known place.
    pub nowhere: u64,
    /// Frames rejected by the authenticator, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Views left.
    pub view_changes: u64,
    /// Requests executed, including undone ones.
    pub requests: u64,
    /// Messages rejected by the protocol, by reason.
    pub rejected: BTreeMap<&'static str, u64>,
}

/// A replica with its authenticator, its service and its timers. See the module.
#[derive(Debug)]
pub struct Drive<S: Service, M: Meter = (), J: Journal = (), C: Core = Replica> {
    id: ReplicaId,
    door: Door,
    core: C,
    executor: Executor<S, Paged>,
    directory: Directory,
    /// The other replicas.
    peers: Vec<ReplicaId>,
    deadlines: Deadlines,
    outbox: Outbox,
    counters: Counters,
    meter: M,
    journal: J,
    recorder: Option<Recorder>,
    /// The checkpoint that is being copied.
    saving: Option<ImageCopy>,
    /// The last state that was fetched.
    fetched: SeqNum,
    /// Slots of pages that the executor has not been told of yet.
    stored: Vec<(PageLabel, u32)>,
    /// The work of the executor.
    queue: Queue<(ClientId, Arc<SignatureCheck>)>,
    admission: Admission,
    tick_at: u64,
    sayings: statement::Sayings,
    transfer_meter: transfer_meter::TransferMeter,
    // Buffers that are reused in every step.
    actions: Actions,
    steps: Steps,
    replies: Replies,
    result: Vec<u8>,
    frame: Vec<u8>,
    body: Vec<u8>,
    clients: Vec<(ClientId, Timestamp)>,
}

impl<S: Service, M: Meter> Drive<S, M> {
    /// Returns replica `id` with its authenticator and service, about to start without earlier state and without a
    /// disk. `incarnation` is higher than at every earlier start.
    ///
    /// # Errors
    ///
    /// The settings break a rule, or ask for a log on disk.
    #[allow(clippy::too_many_arguments, reason = "a replica's parts, put together once")]
    pub fn new(
        id: ReplicaId,
        config: Config,
        signer: Signer,
        door: Door,
        directory: Directory,
        service: S,
        incarnation: u64,
        meter: M,
    ) -> Result<Self, DriveError> {
        if config.durability != Durability::Memory {
            return Err(DriveError::Durability(config.durability));
        }
        let (domains, options) = (config.domains(), options(&config, incarnation));
        let store = Paged::in_memory(domains.clone(), options.page_bytes);
        let executor = Executor::with_store(service, domains, options, store);
        let resume = Resume::Fresh { incarnation };
        Self::resume(id, config, signer, door, directory, executor, resume, meter, ())
    }
}

/// Returns an executor's options for these settings. `first_rid` is above the number of every FETCH that
/// this replica has sent (ST-3).
pub(crate) fn options(config: &Config, first_rid: u64) -> Options {
    // More than the window needs, for the checkpoint whose image is being copied.
    let held = config.window / config.checkpoint_interval.max(1) + 2 + COPYING_CHECKPOINTS;
    Options {
        clients_max: u32::try_from(config.clients_max).unwrap_or(u32::MAX),
        lanes_max: u32::try_from(config.lanes_max).unwrap_or(u32::MAX),
        checkpoints_max: usize::try_from(held).unwrap_or(usize::MAX),
        first_rid,
        ..Options::default()
    }
}

impl<S: Service, M: Meter, J: Journal> Drive<S, M, J> {
    /// Returns replica `id` with its authenticator and its earlier state, about to start. Its records go to
    /// `journal`; [`Self::durable`] reports when they are durable.
    ///
    /// # Errors
    ///
    /// The settings break a rule.
    #[allow(clippy::too_many_arguments, reason = "a replica's parts, put together once")]
    pub fn resume(
        id: ReplicaId,
        config: Config,
        signer: Signer,
        door: Door,
        directory: Directory,
        executor: Executor<S, Paged>,
        resume: Resume,
        meter: M,
        journal: J,
    ) -> Result<Self, DriveError> {
        let sayings =
            statement::Sayings::new(config.durability, executor.page_bytes(), executor.checkpoints());
        let peers = config.cluster.replicas().filter(|peer| *peer != id).collect();
        let replica = Replica::new(id, config, signer, resume).map_err(DriveError::Config)?;
        Ok(Self {
            id,
            door,
            core: replica,
            executor,
            directory,
            peers,
            deadlines: Deadlines::default(),
            outbox: Outbox::default(),
            counters: Counters::default(),
            meter,
            journal,
            recorder: None,
            saving: None,
            fetched: SeqNum(0),
            stored: Vec::new(),
            queue: Queue::default(),
            admission: Admission::default(),
            tick_at: 0,
            sayings,
            transfer_meter: transfer_meter::TransferMeter::default(),
            actions: Actions::new(),
            steps: Steps::new(),
            replies: Replies::new(),
            result: Vec::new(),
            frame: Vec::new(),
            body: Vec::new(),
            clients: Vec::new(),
        })
    }
}

impl<S: Service, M: Meter, J: Journal, C: Core> Drive<S, M, J, C> {
    /// Starts the replica. Call it once, first.
    pub fn start(&mut self, now: Now) {
        self.admit_clients(true);
        self.feed(now, Input::Start, &[]);
        self.tick(now);
    }

    /// Handles the timers that are due at `now`.
    pub fn expire(&mut self, now: Now) {
        self.meter.start();
        if self.core.due() <= now.mono_ns {
            self.wake(now);
        }
        // At most once per timer: a step may set one that is due again.
        for _ in 0..quorate_pbft::Timer::COUNT {
            let Some(timer) = self.deadlines.take_due(now.mono_ns) else { break };
            self.feed(now, Input::Timer(timer), &[]);
        }
        if self.executor.deadline().is_some_and(|at| at <= now.mono_ns) {
            self.transfer(now, |executor, steps| executor.on_deadline(now.mono_ns, steps));
        }
        self.run_tasks(now);
        // Of a state that was fetched since, this would be the one before.
        if let Some(seq) = self.journal.take_kept().filter(|_| !self.journal.is_image_due()) {
            self.feed(now, Input::Kept { seq }, &[]);
        }
        if now.mono_ns >= self.tick_at {
            self.tick(now);
        }
    }

    /// Everything up to `lsn` is durable: frames that waited for it may be sent.
    pub fn durable(&mut self, now: Now, lsn: Lsn) {
        self.outbox.release(lsn);
        self.feed(now, Input::Durable(lsn), &[]);
    }

    /// Returns the moment of the monotonic clock at which [`Self::expire`] is due, or earlier.
    #[inline]
    pub fn due(&self) -> u64 {
        let is_busy = self.saving.is_some() && self.journal.has_room() || !self.stored.is_empty();
        if is_busy || self.can_run() || self.journal.has_kept() {
            return 0;
        }
        let transfer = self.executor.deadline().unwrap_or(u64::MAX);
        self.deadlines.earliest().min(self.tick_at).min(transfer).min(self.core.due())
    }

    /// Sends everything that may leave.
    #[inline]
    pub fn flush(&mut self, transport: &mut impl Transport) {
        self.journal.flush();
        self.outbox.flush(transport);
        self.executor.relax();
        self.look_after_image();
    }

    /// Passes an input to the replica, and does the work that follows from it.
    #[inline]
    fn feed(&mut self, now: Now, input: Input<'_>, frame: &[u8]) {
        self.step_core(now, input, frame);
        self.run_tasks(now);
    }

    /// Steps the core. This is the only function that does so, and that passes inputs to the recorder.
    #[inline]
    fn step_core(&mut self, now: Now, input: Input<'_>, frame: &[u8]) {
        if let Some(recorder) = &mut self.recorder {
            recorder.note(now, &input, frame);
        }
        let mut actions = core::mem::take(&mut self.actions);
        self.core.step(now, input, &mut actions);
        self.meter.lap(Part::Step);
        self.perform(&actions);
        actions.clear();
        self.actions = actions;
    }

    /// Performs actions in order. Nothing is executed here. This is the node's only `match` over `Action`.
    fn perform(&mut self, actions: &Actions) {
        for action in actions.list() {
            match action {
                Action::Send { to, kind, form, bytes, after } => {
                    self.send(*to, *kind, *form, actions.bytes(*bytes), *after);
                }
                Action::Persist { lsn, bytes } => self.journal.append(*lsn, actions.bytes(*bytes)),
                Action::SetTimer(timer, deadline) => self.deadlines.set(*timer, *deadline),
                Action::StopTimer(timer) => self.deadlines.stop(*timer),
                Action::CheckSignature { client, request } => {
                    self.queue.push(Task::Check((*client, Arc::clone(request))));
                }
                Action::Execute { seq, batch, tentative } => {
                    let (seq, batch, tentative) = (*seq, Arc::clone(batch), *tentative);
                    self.queue.push(Task::Execute { seq, batch, tentative });
                }
                Action::Merge { seq } => self.queue.push(Task::Merge(*seq)),
                Action::Undo { after } => self.queue.push(Task::Undo(*after)),
                Action::Read { ticket, request } => {
                    self.queue.push(Task::Read { ticket: ticket.0, request: request.clone() });
                }
                Action::Resend { client } => self.queue.push(Task::Resend(*client)),
                Action::Checkpoint { seq } => self.queue.push(Task::Checkpoint(*seq)),
                Action::Discard { below } => self.queue.push(Task::Discard(*below)),
                Action::Fetch { seq, root, check } => {
                    self.queue.push(Task::Fetch { seq: *seq, root: *root, check: *check });
                }
                Action::Report(milestone) => self.note(milestone),
            }
        }
    }

    fn tick(&mut self, now: Now) {
        self.tick_at = now.mono_ns.saturating_add(TICK_NS);
        self.door.tick(now.mono_ns, now.wall_ns);
        self.sayings.note_time(now.mono_ns);
        self.send_keys();
    }

    #[cold]
    fn refuse(&mut self, reason: &'static str) {
        *self.counters.refused.entry(reason).or_default() += 1;
    }
}
