//! A replica's process: its input is events, its output is what [`Process::flush`] hands over.
//!
//! One thread does all of this, from the datagram to the answer: handing over to another core would cost more than
//! the whole step (ADR 8). Nothing waits inside: a world runs what waits, such as a sync of the log.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_pbft::Replica;
use quorate_pbft::config::Config;
use quorate_pbft::step::{Actions, Input, Lsn, Now, SignatureCheck, Timer};
use quorate_service::image::ImageCopy;
use quorate_service::page::PageLabel;
use quorate_service::parallel::{Answer, Done, Job, MatrixError, Question};
use quorate_service::{Executor, Queue, Service, Steps};
use quorate_wire::{ClientId, Digest, Door, Principal, ReplicaId, Replies, SeqNum, Timestamp};

use crate::admission::{Admission, KeySource};
use crate::ahead::{Ahead, Check, Parallel};
use crate::collector::Collector;
use crate::core::Core;
use crate::counters::Counters;
use crate::deadlines::Deadlines;
use crate::endpoint::{Directory, Endpoint, Transport};
use crate::event::{DiskEvent, Event};
use crate::observer::{Observer, Part};
use crate::options::{Execution, ImagePace};
use crate::reads::{Late, Turn};
use crate::statement::StatementSource;
use crate::storage::queue::DiskQueue;
use crate::storage::store::Store;
use crate::transfer_meter::TransferMeter;

mod collect;
mod image;
mod milestones;
mod perform;
mod receive;
mod send;
mod statement;
mod tasks;
mod transfer;

/// A replica's process. See the module.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Process<S: Service, P: Store, D: DiskQueue = (), C: Core = Replica> {
    id: ReplicaId,
    core: C,
    endpoint: Endpoint,
    executor: Executor<S, P>,
    disk: D,
    /// The other replicas.
    peers: Vec<ReplicaId>,
    deadlines: Deadlines,
    counters: Counters,
    /// The work of the executor.
    queue: Queue<Check>,
    execution: Execution,
    /// The requests that workers run, if there are workers.
    ahead: Option<Box<Ahead>>,
    /// The authenticator does not know the view.
    hears_old_views: bool,
    /// The first task has begun, and ends with [`Event::Work`].
    is_working: bool,
    /// How long the deferred task that is being done has taken already, in nanoseconds.
    worked_ns: u64,
    /// What the reads of this turn have taken, and those that wait for the next one.
    reads: Turn,
    late: Late,
    /// The checkpoint that is being copied.
    saving: Option<ImageCopy>,
    pace: ImagePace,
    /// The last batch was slow.
    is_slow: bool,
    /// It was executed in this burst.
    is_slow_now: bool,
    /// Frames may be ready that have not been sent.
    is_unsent: bool,
    /// The last state that was fetched.
    fetched: SeqNum,
    /// A state that was fetched, and that the core does not know of yet.
    installing: Option<(SeqNum, Digest)>,
    /// Slots of pages that the executor does not know yet.
    stored: Vec<(PageLabel, u32)>,
    admission: Admission,
    collector: Collector,
    statements: StatementSource,
    transfer_meter: TransferMeter,
    // Buffers that are reused in every step.
    actions: Actions,
    steps: Steps,
    replies: Replies,
    result: Vec<u8>,
    frame: Vec<u8>,
    body: Vec<u8>,
    clients: Vec<(ClientId, Timestamp)>,
}

impl<S: Service, P: Store, D: DiskQueue, C: Core> Process<S, P, D, C> {
    /// Returns the process of replica `id`, about to start. Its records and images go to `disk`.
    pub fn new(
        id: ReplicaId,
        config: &Config,
        core: C,
        door: Door,
        directory: Directory,
        executor: Executor<S, P>,
        disk: D,
    ) -> Self {
        let statements =
            StatementSource::new(config.durability, executor.page_bytes(), executor.checkpoints());
        Self {
            id,
            core,
            endpoint: Endpoint::new(door, directory),
            executor,
            disk,
            peers: config.cluster.replicas().filter(|peer| *peer != id).collect(),
            deadlines: Deadlines::default(),
            counters: Counters::default(),
            queue: Queue::default(),
            execution: Execution::Inline,
            ahead: None,
            hears_old_views: false,
            is_working: false,
            worked_ns: 0,
            reads: Turn::default(),
            late: Late::default(),
            saving: None,
            pace: ImagePace::default(),
            is_slow: false,
            is_slow_now: false,
            is_unsent: true,
            fetched: SeqNum(0),
            installing: None,
            stored: Vec::new(),
            admission: Admission::default(),
            collector: Collector::new(id, config.cluster),
            statements,
            transfer_meter: TransferMeter::default(),
            actions: Actions::new(),
            steps: Steps::new(),
            replies: Replies::new(),
            result: Vec::new(),
            frame: Vec::new(),
            body: Vec::new(),
            clients: Vec::new(),
        }
    }

    /// Replaces the core.
    pub fn with_core<E: Core>(self, put: impl FnOnce(C) -> E) -> Process<S, P, D, E> {
        Process {
            id: self.id,
            core: put(self.core),
            endpoint: self.endpoint,
            executor: self.executor,
            disk: self.disk,
            peers: self.peers,
            deadlines: self.deadlines,
            counters: self.counters,
            queue: self.queue,
            execution: self.execution,
            ahead: self.ahead,
            hears_old_views: self.hears_old_views,
            is_working: self.is_working,
            worked_ns: self.worked_ns,
            reads: self.reads,
            late: self.late,
            saving: self.saving,
            pace: self.pace,
            is_slow: self.is_slow,
            is_slow_now: self.is_slow_now,
            is_unsent: self.is_unsent,
            fetched: self.fetched,
            installing: self.installing,
            stored: self.stored,
            admission: self.admission,
            collector: self.collector,
            statements: self.statements,
            transfer_meter: self.transfer_meter,
            actions: self.actions,
            steps: self.steps,
            replies: self.replies,
            result: self.result,
            frame: self.frame,
            body: self.body,
            clients: self.clients,
        }
    }

    /// Lets tasks be done at another time. The world sees in [`Self::has_work`] that one has begun.
    #[must_use]
    pub fn with_execution(self, execution: Execution) -> Self {
        Self { execution, ..self }
    }

    /// Runs requests with workers, several at a time (PX-1). The world takes jobs with [`Self::take_job`]. Batches must not be
    /// executed tentatively (PX-7).
    ///
    /// # Errors
    ///
    /// The rules are not symmetric.
    pub fn with_workers(self, parallel: Parallel) -> Result<Self, MatrixError> {
        Ok(Self { ahead: Some(Box::new(Ahead::new(parallel)?)), ..self })
    }

    /// Works on images at another pace.
    #[must_use]
    pub fn with_image_pace(self, pace: ImagePace) -> Self {
        Self { pace, ..self }
    }

    /// Takes the keys of registered clients from `keys`.
    #[must_use]
    pub fn with_keys(mut self, keys: Box<dyn KeySource>) -> Self {
        self.admission = Admission::new(keys);
        self
    }

    /// Lets the core see signed messages of views that are over. The core rejects them; the authenticator would do so
    /// before it checks the signature.
    #[must_use]
    pub fn with_old_views(self) -> Self {
        Self { hears_old_views: true, ..self }
    }

    /// Sends each frame in a datagram of its own.
    #[must_use]
    pub fn unpacked(mut self) -> Self {
        self.endpoint.unpack();
        self
    }

    /// Takes one event. Nothing leaves before [`Self::flush`]. Returns the sender of an authentic frame in a datagram:
    /// a replica, if there is a frame of any.
    #[inline]
    pub fn step(&mut self, now: Now, event: Event<'_>, watch: &mut impl Observer<S, P>) -> Option<Principal> {
        let mut sender = None;
        self.is_unsent |= !matches!(event, Event::Clock);
        self.collector.set_time(now.mono_ns);
        match event {
            Event::Datagram { source, bytes } => sender = self.receive(now, source, bytes, watch),
            Event::Clock => self.expire(now, watch),
            Event::Disk(DiskEvent::Durable(lsn)) => self.durable(now, lsn, watch),
            Event::Start => {
                self.admit_clients(true);
                self.feed(now, Input::Start, &[], watch);
            }
            Event::Expired(timer) => {
                self.deadlines.stop(timer);
                self.feed(now, Input::Timer(timer), &[], watch);
            }
            Event::Work { took_ns } => self.work(now, took_ns, watch),
            Event::Ran(done) => self.ran(now, done, watch),
            Event::Shutdown => self.with_actions(now, watch, |core, out| core.shut_down(now, out)),
        }
        self.send_keys(watch);
        sender
    }

    /// The world has no more input at hand: ends the burst and hands over everything that may leave.
    #[inline]
    pub fn flush(&mut self, now: Now, transport: &mut impl Transport, watch: &mut impl Observer<S, P>) {
        self.end_burst(now, watch);
        self.send_out(transport);
        // The next burst does not keep a batch waiting (L100). At most one slow batch runs between two looks at the input.
        if self.is_slow && !self.is_slow_now && self.is_batch_first() && self.can_run() {
            self.run_tasks(now, watch);
            self.send_out(transport);
        }
        self.is_slow_now = false;
    }

    /// Ends a burst (PR-2), for worlds that cannot lend out their transport and their observer at once.
    #[inline]
    pub fn end_burst(&mut self, now: Now, watch: &mut impl Observer<S, P>) {
        if self.ahead.is_some() {
            self.run_ahead(now, watch);
        }
        if self.core.replica().owes_proposal() {
            self.feed(now, Input::BurstEnd, &[], watch);
        }
        self.send_collected(watch);
    }

    /// Hands over everything that may leave, and continues the work on the disk's pages.
    #[inline]
    pub fn send_out(&mut self, transport: &mut impl Transport) {
        self.disk.flush();
        self.endpoint.flush(transport);
        self.is_unsent = false;
        self.reads = Turn::default();
        self.executor.relax();
        self.look_after_image();
    }

    /// Returns the moment of the monotonic clock at which [`Event::Clock`] is due, or earlier.
    #[inline]
    pub fn due(&self) -> u64 {
        let is_busy = self.saving.is_some() && self.disk.has_room() || !self.stored.is_empty();
        if is_busy || self.can_run() || self.disk.has_kept() || self.can_repair() {
            return 0;
        }
        let transfer = self.executor.deadline().unwrap_or(u64::MAX);
        self.deadlines
            .earliest()
            .min(self.endpoint.tick_at())
            .min(transfer)
            .min(self.core.due())
            .min(self.collector.deadline())
    }

    /// Returns whether a deferred task has begun: it ends with [`Event::Work`].
    #[inline]
    pub fn has_work(&self) -> bool {
        self.is_working
    }

    /// Returns a job for a worker. It ends with [`Event::Ran`].
    pub fn take_job(&mut self) -> Option<Job> {
        self.ahead.as_mut()?.take_job()
    }

    /// Runs a job.
    pub fn run_job(&self, job: &Job) -> Done {
        match &self.ahead {
            Some(ahead) => ahead.run(&self.executor, job),
            None => job.failed(),
        }
    }

    /// Answers a job that runs on another thread. None: the job is nobody's.
    pub fn answer(&self, question: &Question) -> Option<Answer> {
        self.ahead.as_ref()?.answer(&self.executor, question)
    }

    /// Returns the disk.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Returns the disk.
    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }

    /// Ends the process and returns its disk.
    pub fn into_disk(self) -> D {
        self.disk
    }

    /// Returns the core.
    pub fn core(&self) -> &C {
        &self.core
    }

    /// Returns the replica.
    pub fn replica(&self) -> &Replica {
        self.core.replica()
    }

    /// Returns the service's state.
    pub fn executor(&self) -> &Executor<S, P> {
        &self.executor
    }

    /// Returns the service's state, to damage it: for simulators.
    pub fn executor_mut(&mut self) -> &mut Executor<S, P> {
        &mut self.executor
    }

    /// Returns the tasks.
    pub fn queue(&self) -> &Queue<(ClientId, Arc<SignatureCheck>)> {
        &self.queue
    }

    /// Returns when a timer expires, if it runs.
    pub fn deadline(&self, timer: Timer) -> Option<u64> {
        self.deadlines.at(timer)
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the end of the wire.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the end of the wire.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Begins a new generation of session keys (KX-2). `entropy` is fresh and secret.
    pub fn renew_keys(&mut self, now: Now, entropy: [u8; 32], watch: &mut impl Observer<S, P>) {
        self.endpoint.renew_keys(now, entropy);
        self.send_keys(watch);
    }

    /// Performs actions that the core did not ask for: for scripts with Byzantine replicas.
    pub fn inject(&mut self, actions: &Actions, watch: &mut impl Observer<S, P>) {
        self.perform(actions, watch);
    }

    /// Accepts the clients in the state. With `shut_out`, no others are accepted any more.
    #[inline]
    pub fn admit_clients(&mut self, shut_out: bool) {
        self.admission.follow(&self.executor, &mut self.endpoint, shut_out);
    }

    /// Handles the timers that are due at `now`.
    fn expire(&mut self, now: Now, watch: &mut impl Observer<S, P>) {
        watch.start();
        if now.mono_ns >= self.endpoint.tick_at() {
            self.endpoint.tick(now);
            self.statements.note_time(now.mono_ns);
        }
        if self.executor.deadline().is_some_and(|at| at <= now.mono_ns) {
            self.transfer(now, watch, |executor, steps| executor.on_deadline(now.mono_ns, steps));
            self.install(now, watch);
        }
        if let Some(fault) = self.executor.missing_page() {
            self.repair(now, fault, watch);
        }
        if self.collector.deadline() <= now.mono_ns {
            self.collector.expire();
        }
        if self.core.due() <= now.mono_ns {
            self.with_actions(now, watch, |core, out| core.wake(now, out));
        }
        if self.deadlines.earliest() <= now.mono_ns {
            for timer in Timer::ALL {
                if self.deadlines.take_due(timer, now.mono_ns) {
                    self.feed(now, Input::Timer(timer), &[], watch);
                }
            }
        }
        self.run_tasks(now, watch);
        // Of a state that was fetched since, this would be the one before.
        if let Some(seq) = self.disk.take_kept().filter(|_| !self.disk.is_image_due()) {
            self.feed(now, Input::Kept { seq }, &[], watch);
        }
    }

    /// Everything up to `lsn` is durable: frames that waited for it may be sent.
    fn durable(&mut self, now: Now, lsn: Lsn, watch: &mut impl Observer<S, P>) {
        if !self.endpoint.note_durable(lsn) {
            return;
        }
        watch.durable(lsn);
        for held in self.endpoint.take_released() {
            self.let_go(held.to, held.kind, &held.frame, watch);
        }
        self.feed(now, Input::Durable(lsn), &[], watch);
    }

    /// Passes an input to the core, and does the work that follows from it.
    #[inline]
    fn feed(&mut self, now: Now, input: Input<'_>, frame: &[u8], watch: &mut impl Observer<S, P>) {
        self.step_core(now, input, frame, watch);
        self.run_tasks(now, watch);
    }

    /// Steps the core. No other function does so, or passes an input to the observer.
    #[inline]
    fn step_core(&mut self, now: Now, input: Input<'_>, frame: &[u8], watch: &mut impl Observer<S, P>) {
        watch.input(now, &input, frame);
        self.core.step(now, input, &mut self.actions);
        watch.lap(Part::Step);
        if self.actions.list().is_empty() {
            return;
        }
        let actions = core::mem::take(&mut self.actions);
        self.perform(&actions, watch);
        self.actions = actions;
        self.actions.clear(); // in its place: it is slow to move what was just changed
    }

    /// Lets the core act without an input.
    #[cold]
    fn with_actions(
        &mut self,
        now: Now,
        watch: &mut impl Observer<S, P>,
        act: impl FnOnce(&mut C, &mut Actions),
    ) {
        let mut actions = core::mem::take(&mut self.actions);
        act(&mut self.core, &mut actions);
        self.perform(&actions, watch);
        actions.clear();
        self.actions = actions;
        self.run_tasks(now, watch);
    }
}
