//! Requests on their way from the agreed order to the state: inserted, run on cells, replied to, settled on pages.
//!
//! A driver calls [`Runs::insert`] for each committed batch; [`Runs::start`], [`Runs::run`] and [`Runs::finish`] for each
//! worker; and [`Runs::settle`] for as long as it returns something. The order of these calls decides nothing but the
//! moment of a reply.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::reply::ReplyOutcome;
use quorate_wire::{Batch, Replies, SeqNum};

use crate::executor::{Executor, Ready, settle};
use crate::page::{PageFault, PageStore};
use crate::parallel::engine::EngineKind;
use crate::parallel::inserted::{Inserted, Open, Status, at, low_half};
use crate::parallel::job::{Answer, Counters, Declared, Done, Early, Job, Question, Settled, WrongRule};
use crate::parallel::parallelizer::{Full, Parallelizer, Position};
use crate::parallel::reads::Reads;
use crate::parallel::rules::{MatrixError, Rules};
use crate::parallel::unsettled::Unsettled;
use crate::registry;
use crate::service::{Context, Effort, Service};
use crate::state::cell::{Cell, Seen};
use crate::state::index::Index;

/// The unsettled requests of a replica.
#[derive(Debug)]
pub struct Runs<R> {
    parallelizer: Parallelizer<R>,
    kind: EngineKind,
    unsettled: Unsettled,
    reads: Reads,
    batches: VecDeque<Open>,
    requests: VecDeque<Inserted>,
    /// Of each lane with an unsettled request, the one with the last timestamp: the low half of its ordinal.
    lanes: Index,
    /// Requests that do not depend on all others, and whose lane is not in the client table. When they settle, they may
    /// remove another lane.
    doubtful: BTreeSet<u64>,
    /// Settled requests whose writes others may have missed: the ordinal of each, and the first that cannot have.
    past: VecDeque<(u64, u64, Inserted)>,
    /// No agreed time so far is above this one.
    time_max: u64,
    /// The most pages that unsettled requests can take.
    reserved: u64,
    replies_early: bool,
    /// A rule was wrong: everything is sequential from now on.
    is_distrusted: bool,
    wrong: Vec<WrongRule>,
    generation: u64,
    under_way: u64,
    /// Jobs above this number wait for a worker.
    workers: u64,
    counters: Counters,
}

impl<R: Rules> Runs<R> {
    /// Returns a driver's state without requests. `secret` is a random number of this replica's own.
    ///
    /// # Errors
    ///
    /// The rules are not symmetric.
    pub fn new(kind: EngineKind, rules: R, secret: u64, replies_early: bool) -> Result<Self, MatrixError> {
        // Where nobody waits, nothing is known of the requests below that have not run.
        let replies_early = replies_early && kind != EngineKind::Free;
        Ok(Self {
            reads: Reads::new(rules.matrices()?, secret, replies_early),
            parallelizer: Parallelizer::new(kind, rules, secret)?,
            kind,
            unsettled: Unsettled::default(),
            batches: VecDeque::new(),
            requests: VecDeque::new(),
            lanes: Index::default(),
            doubtful: BTreeSet::new(),
            past: VecDeque::new(),
            time_max: 0,
            reserved: 0,
            replies_early,
            is_distrusted: false,
            wrong: Vec::new(),
            generation: 0,
            under_way: 0,
            workers: u64::MAX,
            counters: Counters::default(),
        })
    }

    /// Returns the same for this number of workers: if more jobs are started, the others do not count as under way.
    #[must_use]
    pub fn with_workers(self, workers: usize) -> Self {
        Self { workers: u64::try_from(workers).unwrap_or(u64::MAX), ..self }
    }

    /// Inserts the requests of the next committed batch.
    ///
    /// # Errors
    ///
    /// Too much is unsettled: nothing was inserted (PX-G).
    pub fn insert<S: Service, P: PageStore>(
        &mut self,
        executor: &mut Executor<S, P>,
        seq: SeqNum,
        batch: &Batch,
    ) -> Result<(), Full> {
        let count = batch.requests().count();
        let bytes = batch.requests().map(|request| request.operation.len()).sum();
        if !self.requests.is_empty() && !self.parallelizer.has_room(count, bytes) {
            return Err(Full);
        }
        match settle::known_time(executor) {
            Ok(time_ns) if self.batches.is_empty() => self.time_max = time_ns,
            Ok(_) => {}
            // No prediction is certain.
            Err(_) => self.time_max = u64::MAX,
        }
        let chosen = batch.choice().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let is_timely = chosen > self.time_max;
        self.time_max = chosen.max(self.time_max.saturating_add(1));
        let room = executor.room();
        for (index, request) in (0_u32..).zip(batch.requests()) {
            let (client, operation) = (request.client, request.operation);
            // A lane whose page is away counts as one that is not there.
            let settled = settle::lane_timestamp(executor, client).unwrap_or(None);
            let ordinal = self.unsettled.settled() + u64::try_from(self.requests.len()).unwrap_or(u64::MAX);
            let back = self.lanes.get(client.0).map(|last| at(low_half(ordinal).wrapping_sub(last).into()));
            let before = back.and_then(|back| self.requests.get(self.requests.len().checked_sub(back)?));
            let last = before.map(|before| before.timestamp).max(settled);
            let barrier = self.is_distrusted
                || client.replica().is_some()
                || operation.starts_with(&registry::MAGIC)
                || last.is_none();
            if !barrier && settled.is_none() {
                self.doubtful.insert(ordinal);
            }
            let cost = executor.cost(operation);
            self.reserved = self.reserved.saturating_add(cost.unwrap_or(0));
            let has_room = plant!(26, cost.is_some() && self.reserved <= room, true);
            let (position, effort) = (Position { seq, index }, executor.effort(operation));
            self.parallelizer.admit(position, client.0, operation, barrier, effort == Effort::Short);
            self.reads.insert(self.parallelizer.parsed());
            self.requests.push_back(Inserted {
                position,
                client,
                timestamp: request.timestamp,
                digest: request.digest,
                replier: request.replier,
                time_ns: self.time_max,
                operation: operation.into(),
                effort,
                has_lane: settled.is_some(),
                barrier,
                is_certain: is_timely && has_room && last.is_some_and(|last| request.timestamp > last),
                cost: cost.unwrap_or(0),
                status: Status::Waiting,
            });
            if last.is_none_or(|last| request.timestamp > last) {
                self.lanes.insert(client.0, low_half(ordinal));
            }
        }
        let requests = u32::try_from(count).unwrap_or(u32::MAX);
        let choice = batch.choice().to_vec();
        self.batches.push_back(Open { seq, choice, requests, settled: 0, time_ns: None });
        Ok(())
    }

    /// Returns the next job for a worker, if a request is ready.
    pub fn start<S: Service, P: PageStore>(&mut self, executor: &mut Executor<S, P>) -> Option<Job> {
        self.start_next(executor, Parallelizer::next_any)
    }

    /// As [`Self::start`], only for requests that take long, or only for those that do not.
    pub fn start_of<S: Service, P: PageStore>(
        &mut self,
        executor: &mut Executor<S, P>,
        is_short: bool,
    ) -> Option<Job> {
        self.start_next(executor, |parallelizer| parallelizer.next_of(is_short))
    }

    fn start_next<S: Service, P: PageStore>(
        &mut self,
        executor: &mut Executor<S, P>,
        next: impl Fn(&mut Parallelizer<R>) -> Option<(u64, Position)>,
    ) -> Option<Job> {
        while let Some((ordinal, position)) = next(&mut self.parallelizer) {
            let request = &mut self.requests[at(ordinal - self.unsettled.settled())];
            let is_known = request.has_lane && !self.doubtful.contains(&ordinal)
                || matches!(settle::lane_timestamp(executor, request.client), Ok(Some(_)));
            let may_run =
                !request.barrier && is_known && executor.may_execute(request.client, &request.operation);
            if !may_run {
                request.status = Status::OnPages;
                continue;
            }
            request.status = Status::Running;
            let cx = Context {
                client: request.client,
                timestamp: request.timestamp,
                seq: position.seq,
                index: position.index,
                time_ns: request.time_ns,
                read_only: false,
            };
            self.under_way += 1;
            self.counters = self.counters.with_start(self.under_way.min(self.workers));
            return Some(Job {
                ordinal,
                generation: self.generation,
                cx,
                operation: Arc::clone(&request.operation),
                effort: request.effort,
            });
        }
        None
    }

    /// Runs a job on cells. Of [`Effort::Stored`], [`Job::store`] is left for a worker.
    pub fn run<S: Service, P: PageStore>(&self, executor: &Executor<S, P>, job: &Job) -> Done {
        let ran = executor.run_on_cells(job.cx, &job.operation, &self.unsettled.below(job.ordinal));
        let done = Done { ordinal: job.ordinal, generation: job.generation, ran };
        if plant!(35, job.effort != Effort::Stored, false) {
            job.store(executor.service(), &done);
        }
        done
    }

    /// Answers a run on another thread. None: the run is nobody's (PX-10).
    pub fn answer<S: Service, P: PageStore>(
        &self,
        executor: &Executor<S, P>,
        question: &Question,
    ) -> Option<Answer> {
        let below = self.unsettled.below(question.ordinal);
        let is_known = question.generation == self.generation;
        is_known.then(|| Answer(executor.answer(&question.asked, &below)))
    }

    /// Takes the result of a job. Returns its reply if that may leave.
    pub fn finish(&mut self, done: Done) -> Option<Early> {
        if done.generation != self.generation {
            return None; // nobody's result (PX-10)
        }
        self.under_way -= 1;
        let settled = self.unsettled.settled();
        let Some(mut ran) = done.ran else {
            self.requests[at(done.ordinal - settled)].status = Status::OnPages;
            return None;
        };
        self.counters.runs += 1;
        let bytes = ran.run.bytes() + ran.result.len();
        let reads = ran.run.take_reads();
        // A run that saw a request whose outcome is not certain is not certain itself.
        let is_certain = plant!(27, self.unsettled.is_current(done.ordinal, &reads), true)
            && ran.run.is_unconditional()
            && reads.iter().all(|(_, seen)| match seen {
                Seen::Unsettled(writer, _) if *writer >= settled => {
                    plant!(28, self.requests[at(writer - settled)].is_certain, true)
                }
                Seen::Unsettled(..) | Seen::Settled(_) => true,
            });
        self.unsettled.publish((done.ordinal, 0), &ran.run);
        let request = &mut self.requests[at(done.ordinal - settled)];
        request.is_certain &= is_certain;
        let is_doubtful = self.doubtful.first().is_some_and(|doubtful| *doubtful <= done.ordinal);
        let has_replied = self.replies_early && request.is_certain && plant!(34, !is_doubtful, true);
        let early = has_replied.then(|| Early {
            position: request.position,
            client: request.client,
            timestamp: request.timestamp,
            request: request.digest,
            replier: request.replier,
            result: ran.result.clone(),
        });
        if has_replied {
            self.counters.early += 1;
            self.reads.replied(request.position.seq, request.time_ns);
        }
        self.parallelizer.remove_request(request.position, bytes);
        request.status = Status::Ran { ran, reads, has_replied };
        early
    }

    /// Settles the next request, if it has run, or ends its batch. The reply is appended to `replies`.
    ///
    /// # Errors
    ///
    /// A page is not here: nothing has been done.
    pub fn settle<S: Service, P: PageStore>(
        &mut self,
        executor: &mut Executor<S, P>,
        replies: &mut Replies,
    ) -> Result<Option<Settled>, PageFault> {
        let settled = self.settle_next(executor, replies);
        self.counters.parked += u64::from(settled.is_err());
        settled
    }

    fn settle_next<S: Service, P: PageStore>(
        &mut self,
        executor: &mut Executor<S, P>,
        replies: &mut Replies,
    ) -> Result<Option<Settled>, PageFault> {
        // A batch is not opened before its first request has run: pages stay in memory while a batch is open.
        if self.begins_batch() && !self.can_settle() {
            return Ok(None);
        }
        let Some(open) = self.batches.front_mut() else { return Ok(None) };
        let time_ns = match open.time_ns {
            Some(time_ns) => time_ns,
            None => *open.time_ns.insert(settle::open_batch(executor, open.seq, &open.choice)?),
        };
        if open.settled == open.requests {
            let seq = open.seq;
            settle::close_batch(executor, seq);
            self.reads.settled(open.requests);
            self.batches.pop_front();
            return Ok(Some(Settled::Batch(seq)));
        }
        let Some(request) = self.requests.front() else { unreachable!("a batch has its requests") };
        let mut ready = match &request.status {
            Status::Waiting | Status::Running => return Ok(None),
            Status::Ran { ran, reads, .. } => {
                let is_timely = time_ns == request.time_ns;
                let is_same = self.unsettled.stale(reads).is_none() && plant!(29, is_timely, true);
                Some(Ready::new(ran, reads, is_same, is_timely))
            }
            Status::OnPages => None,
        };
        let place = (open.seq, open.settled, time_ns);
        let written = settle::settle(executor, place, &request.ordered(), ready.as_mut(), replies)?;
        let is_applied = ready.is_some_and(|ready| ready.is_applied());
        open.settled += 1;
        if written.has_released {
            self.doubt_lanes(executor);
        }
        self.settled(executor, is_applied, written.cells, replies);
        Ok(Some(Settled::Request(Position { seq: place.0, index: place.1 })))
    }

    /// Returns whether [`Self::settle`] would do something.
    pub fn can_settle(&self) -> bool {
        let is_waiting = |request: &Inserted| matches!(request.status, Status::Waiting | Status::Running);
        self.batches.front().is_some_and(|open| {
            open.settled == open.requests || self.requests.front().is_some_and(|request| !is_waiting(request))
        })
    }

    /// The request that settles now has removed lanes. Some later requests may be of these lanes.
    #[cold]
    fn doubt_lanes<S: Service, P: PageStore>(&mut self, executor: &mut Executor<S, P>) {
        let ordinals = self.unsettled.settled()..;
        for (ordinal, request) in ordinals.zip(&self.requests).skip(1) {
            let lane = settle::lane_timestamp(executor, request.client);
            if !request.barrier && !matches!(lane, Ok(Some(_))) {
                self.doubtful.insert(ordinal);
            }
        }
    }

    /// Returns whether a job is that of the next request to settle.
    pub fn is_next(&self, job: &Job) -> bool {
        job.generation == self.generation && job.ordinal == self.unsettled.settled()
    }

    /// Returns whether [`Self::settle`] would begin a batch.
    pub fn begins_batch(&self) -> bool {
        self.batches.front().is_some_and(|open| open.time_ns.is_none())
    }

    /// The oldest request is part of the state.
    fn settled<S: Service, P: PageStore>(
        &mut self,
        executor: &Executor<S, P>,
        is_applied: bool,
        written: Vec<Cell>,
        replies: &Replies,
    ) {
        let ordinal = self.unsettled.settled();
        let end = ordinal + u64::try_from(self.requests.len()).unwrap_or(u64::MAX);
        let Some(mut request) = self.requests.pop_front() else { unreachable!("it was looked at") };
        self.doubtful.remove(&ordinal);
        self.reserved = self.reserved.saturating_sub(request.cost);
        if self.lanes.get(request.client.0) == Some(low_half(ordinal)) {
            self.lanes.remove(request.client.0);
        }
        match core::mem::replace(&mut request.status, Status::OnPages) {
            Status::Ran { ran, reads, has_replied } => {
                let ran_again = !is_applied
                    && replies.iter().last().is_some_and(|reply| reply.outcome == ReplyOutcome::Executed);
                self.counters.again += u64::from(ran_again);
                // The result of an uncertain run may differ for other reasons: the time, or want of room.
                if ran_again && request.is_certain && executor.last_result() != ran.result {
                    self.detect(&request, &reads, has_replied);
                }
                self.unsettled.settle(u32::from(!is_applied), written.into_iter(), Some(&ran.run), end);
            }
            Status::Waiting | Status::Running | Status::OnPages => {
                self.counters.on_pages += 1;
                self.parallelizer.remove_request(request.position, 0);
                self.unsettled.settle(0, written.into_iter(), None, end);
            }
        }
        self.parallelizer.settled();
        self.past.push_back((ordinal, end, request));
        while self.past.front().is_some_and(|(_, end, _)| *end <= self.unsettled.settled()) {
            self.past.pop_front();
        }
    }

    /// A request ran again with another result. If it missed what the first run of another request wrote, the two depend
    /// on each other, and the rules do not say so.
    fn detect(&mut self, request: &Inserted, reads: &[(Cell, Seen)], has_replied: bool) {
        let Some((cell, (other, run))) = self.unsettled.stale(reads) else { return };
        if run > 0 || self.kind == EngineKind::Free {
            return;
        }
        let found = self.past.binary_search_by_key(&other, |(ordinal, ..)| *ordinal);
        let Ok(at) = found else { unreachable!("a version is known for as long as its request") };
        let mut declared = |request: &Inserted| Declared {
            position: request.position,
            client: request.client,
            timestamp: request.timestamp,
            keys: self.parallelizer.parse(&request.operation).declared(),
        };
        let (request, other) = (declared(request), declared(&self.past[at].2));
        self.wrong.push(WrongRule { request, other, cell: cell.clone(), has_replied });
        self.counters.wrong_rules += 1;
        self.is_distrusted = true;
    }

    /// Returns the agreed time at which a read-only operation may be executed on the settled state now: that state shows
    /// it each request to which a reply has left. None: it waits for the unsettled batches (PX-8).
    pub fn time_of_read<S: Service, P: PageStore>(
        &mut self,
        executor: &Executor<S, P>,
        operation: &[u8],
    ) -> Option<u64> {
        if self.reads.is_shown(executor.last_executed()) {
            return Some(executor.time_ns());
        }
        let is_known = !self.is_distrusted && !operation.starts_with(&registry::MAGIC);
        let depends = !is_known || self.reads.depends(self.parallelizer.parse(operation));
        let waits = mutant!(M167, depends, false);
        let count = if waits { &mut self.counters.reads_kept } else { &mut self.counters.reads_beside };
        *count += 1;
        (!waits).then(|| self.reads.time_ns())
    }

    /// Drops everything that has not settled, the open batch included (PX-10). Waits for no worker: late results are
    /// nobody's.
    pub fn drain<S: Service, P: PageStore>(&mut self, executor: &mut Executor<S, P>) {
        if self.batches.front().is_some_and(|open| open.time_ns.is_some()) {
            settle::abandon_batch(executor);
        }
        let end = self.unsettled.settled() + u64::try_from(self.requests.len()).unwrap_or(u64::MAX);
        self.parallelizer.drain();
        self.unsettled.drain(end);
        self.reads.clear();
        self.batches.clear();
        self.requests.clear();
        self.lanes.clear();
        self.doubtful.clear();
        self.past.clear();
        (self.reserved, self.time_max, self.under_way) = (0, 0, 0);
        self.generation += 1;
    }

    /// Returns the parallelizer, for `sync` and for what is pending.
    pub fn parallelizer(&mut self) -> &mut Parallelizer<R> {
        &mut self.parallelizer
    }

    /// Returns the wrong rules that were found.
    pub fn wrong(&self) -> &[WrongRule] {
        &self.wrong
    }

    /// Takes the wrong rules that were found since the last call.
    pub fn take_wrong(&mut self) -> Vec<WrongRule> {
        core::mem::take(&mut self.wrong)
    }

    /// Returns what was counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes what was counted since the last call.
    pub fn take_counters(&mut self) -> Counters {
        core::mem::take(&mut self.counters)
    }

    /// Returns how many versions are kept.
    #[cfg(test)]
    pub(super) fn versions(&self) -> usize {
        self.unsettled.len()
    }
}
