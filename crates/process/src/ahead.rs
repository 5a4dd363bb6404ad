//! Parallel execution in a process: committed batches are inserted, workers run their requests, and the replica's thread
//! settles them in order ([`quorate_service::parallel`]).
//!
//! A task that needs the state after the batches before it, such as a checkpoint, is kept until they have settled. Later
//! batches are inserted in the meantime (PX-5, PX-6).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use quorate_pbft::step::SignatureCheck;
use quorate_service::page::PageStore;
use quorate_service::parallel::{
    Answer, Counters, Done, Early, EngineKind, Full, Job, MatrixError, Question, Rules, Runs, Settled,
    WrongRule,
};
use quorate_service::{Effort, Executor, PageFault, Service, Task, Unanswered};
use quorate_wire::message::WorkerStats;
use quorate_wire::{Batch, ClientId, Replies, SeqNum};

/// The settings of parallel execution.
pub struct Parallel {
    /// The number of workers.
    pub workers: usize,
    /// How dependencies are found.
    pub engine: EngineKind,
    /// Which requests depend on each other.
    pub rules: Box<dyn Rules + Send>,
    /// Replies to certain requests leave before the requests settle (PX-C).
    pub replies_early: bool,
    /// The driver runs short operations itself, and gives only long ones to workers. While nothing is unsettled, a
    /// batch without long operations is executed on pages immediately (PX-E).
    pub short_on_pages: bool,
    /// A random number of this replica's own.
    pub secret: u64,
}

impl fmt::Debug for Parallel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parallel")
            .field("workers", &self.workers)
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

/// For each worker, the number of jobs that wait for it: a worker that is done begins the next job at once. All workers take
/// jobs from one queue, so no job waits behind a long one while another worker is free.
const JOBS_AHEAD: usize = 1;
/// Maximum number of short jobs that need no worker.
const SHORT_JOBS_MAX: usize = 64;

/// A client's signature that is to be checked.
pub(crate) type Check = (ClientId, Arc<SignatureCheck>);

/// The unsettled batches of a process, and its workers.
pub(crate) struct Ahead {
    runs: Runs<Box<dyn Rules + Send>>,
    workers: usize,
    /// Jobs that were taken and are not done, also those that were dropped since.
    busy: usize,
    /// Jobs without a worker.
    jobs: VecDeque<Job>,
    /// Short jobs that need no worker.
    short_jobs: VecDeque<Job>,
    /// The batches that were inserted and have not settled.
    batches: VecDeque<(SeqNum, Arc<Batch>)>,
    /// Tasks, each with the batch after which it is done.
    behind: VecDeque<(SeqNum, Task<Check>)>,
    /// Replies that may leave before their batches have settled.
    held: VecDeque<Early>,
    /// The number of replies that have left early.
    early: u64,
    /// The replies of the batch that is settling.
    replies: Replies,
    /// The next request cannot settle: a page is not here.
    is_parked: bool,
    short_on_pages: bool,
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unsettled: Vec<SeqNum> = self.batches.iter().map(|(seq, _)| *seq).collect();
        f.debug_struct("Ahead")
            .field("unsettled", &unsettled)
            .field("busy", &self.busy)
            .finish_non_exhaustive()
    }
}

/// A batch that has settled.
#[derive(Debug)]
pub(crate) struct SettledBatch {
    pub(crate) seq: SeqNum,
    pub(crate) batch: Arc<Batch>,
    pub(crate) replies: Replies,
}

impl Ahead {
    /// Returns what a process needs that has executed nothing yet.
    ///
    /// # Errors
    ///
    /// The rules are not symmetric.
    pub(crate) fn new(parallel: Parallel) -> Result<Self, MatrixError> {
        let Parallel { workers, engine, rules, replies_early, short_on_pages, secret } = parallel;
        Ok(Self {
            runs: Runs::new(engine, rules, secret, replies_early)?.with_workers(workers),
            workers,
            busy: 0,
            jobs: VecDeque::new(),
            short_jobs: VecDeque::new(),
            batches: VecDeque::new(),
            behind: VecDeque::new(),
            held: VecDeque::new(),
            early: 0,
            replies: Replies::new(),
            is_parked: false,
            short_on_pages,
        })
    }

    /// Inserts a committed batch.
    ///
    /// # Errors
    ///
    /// Too much is unsettled (PX-G).
    pub(crate) fn insert<S: Service, P: PageStore>(
        &mut self,
        executor: &mut Executor<S, P>,
        seq: SeqNum,
        batch: &Arc<Batch>,
    ) -> Result<(), Full> {
        self.runs.insert(executor, seq, batch)?;
        self.batches.push_back((seq, Arc::clone(batch)));
        Ok(())
    }

    /// Returns whether a batch is to be executed on pages immediately: nothing is unsettled, and no request takes long.
    pub(crate) fn is_for_pages<S: Service, P: PageStore>(
        &self,
        executor: &Executor<S, P>,
        batch: &Batch,
    ) -> bool {
        self.short_on_pages
            && self.batches.is_empty()
            && self.behind.is_empty()
            && batch.requests().all(|request| executor.effort(request.operation) == Effort::Short)
    }

    /// Keeps a task until the batches before it have settled. Returns it if they have.
    pub(crate) fn put_behind(&mut self, task: Task<Check>) -> Option<Task<Check>> {
        if self.batches.is_empty() && self.behind.is_empty() {
            return Some(task);
        }
        let last = self.batches.back().map_or(SeqNum(0), |(last, _)| *last);
        self.behind.push_back((last, task));
        None
    }

    /// Returns the agreed time at which a read may be executed now. None: it waits (PX-8).
    pub(crate) fn time_of_read<S: Service, P: PageStore>(
        &mut self,
        executor: &Executor<S, P>,
        operation: &[u8],
    ) -> Option<u64> {
        self.runs.time_of_read(executor, operation)
    }

    /// Takes a task that the settled batches are no longer in front of.
    pub(crate) fn take_due(&mut self) -> Option<Task<Check>> {
        let (after, _) = self.behind.front()?;
        let is_due = self.batches.front().is_none_or(|(next, _)| after < next);
        if is_due { self.behind.pop_front().map(|(_, task)| task) } else { None }
    }

    /// Makes jobs for the workers, as far as requests are ready: one for each, and [`JOBS_AHEAD`]. Makes jobs of the short
    /// operations that the replica's thread runs itself, even if all workers are busy. Returns whether there was one.
    pub(crate) fn find_jobs<S: Service, P: PageStore>(&mut self, executor: &mut Executor<S, P>) -> bool {
        let before = self.jobs.len() + self.short_jobs.len();
        let short_apart = self.short_on_pages;
        while self.busy + self.jobs.len() < self.workers * (1 + JOBS_AHEAD) {
            let job =
                if short_apart { self.runs.start_of(executor, false) } else { self.runs.start(executor) };
            let Some(job) = job else { break };
            self.jobs.push_back(job);
        }
        while short_apart
            && self.short_jobs.len() < SHORT_JOBS_MAX
            && let Some(job) = self.runs.start_of(executor, true)
        {
            self.short_jobs.push_back(job);
        }
        self.jobs.len() + self.short_jobs.len() > before
    }

    /// Gives a job to a worker, or a short one to the caller: those for workers first, so that none stays idle.
    pub(crate) fn take_job(&mut self) -> Option<Job> {
        let job = self.jobs.pop_front().or_else(|| self.short_jobs.pop_front())?;
        self.busy += 1;
        Some(job)
    }

    /// Runs a job. Changes nothing.
    pub(crate) fn run<S: Service, P: PageStore>(&self, executor: &Executor<S, P>, job: &Job) -> Done {
        self.runs.run(executor, job)
    }

    /// Answers a run on another thread. None: the run is nobody's (PX-10).
    pub(crate) fn answer<S: Service, P: PageStore>(
        &self,
        executor: &Executor<S, P>,
        question: &Question,
    ) -> Option<Answer> {
        self.runs.answer(executor, question)
    }

    /// A worker is done with its job. Returns whether another job is here: the caller of [`Self::take_job`] takes it soon.
    pub(crate) fn finish(&mut self, done: Done) -> bool {
        self.busy -= 1;
        self.held.extend(self.runs.finish(done));
        !self.jobs.is_empty() || !self.short_jobs.is_empty()
    }

    /// Takes a reply that leaves before its batch has settled. None, too, while the next request to settle is a job that nobody
    /// has taken. This job is taken first. If the batch settles then, its replies leave together, as in sequential execution.
    pub(crate) fn take_early(&mut self) -> Option<Early> {
        let first = self.jobs.front().into_iter().chain(self.short_jobs.front());
        if !self.held.is_empty() && first.into_iter().any(|job| self.runs.is_next(job)) {
            return None;
        }
        let early = self.held.pop_front()?;
        self.early += 1;
        Some(early)
    }

    /// Settles requests up to the end of a batch. None: the next one has not run, or cannot settle.
    ///
    /// # Errors
    ///
    /// A page is not here. Nothing settles until [`Self::resume`].
    pub(crate) fn settle<S: Service, P: PageStore>(
        &mut self,
        executor: &mut Executor<S, P>,
    ) -> Result<Option<SettledBatch>, PageFault> {
        while !self.is_parked {
            match self.runs.settle(executor, &mut self.replies) {
                Ok(None) => break,
                Ok(Some(Settled::Request(_))) => {}
                Ok(Some(Settled::Batch(seq))) => {
                    let Some((_, batch)) = self.batches.pop_front() else { unreachable!("it was inserted") };
                    self.held.retain(|early| early.position.seq > seq);
                    let replies = core::mem::take(&mut self.replies);
                    return Ok(Some(SettledBatch { seq, batch, replies }));
                }
                Err(fault) => {
                    self.is_parked = true;
                    return Err(fault);
                }
            }
        }
        Ok(None)
    }

    /// Takes back the buffer of replies.
    pub(crate) fn reuse(&mut self, mut replies: Replies) {
        replies.clear();
        self.replies = replies;
    }

    /// A page has come.
    pub(crate) fn resume(&mut self) {
        self.is_parked = false;
    }

    /// Returns whether a request could settle that could not before.
    pub(crate) fn is_due(&self) -> bool {
        !self.is_parked && self.runs.can_settle()
    }

    /// Returns whether the next request to settle is the first of its batch.
    pub(crate) fn begins_batch(&self) -> bool {
        self.runs.begins_batch()
    }

    /// Drops everything that has not settled, without waiting for a worker (PX-10). Returns what agreement expects of it.
    pub(crate) fn drain<S: Service, P: PageStore>(
        &mut self,
        executor: &mut Executor<S, P>,
    ) -> Vec<Unanswered> {
        self.runs.drain(executor);
        self.jobs.clear();
        self.short_jobs.clear();
        self.held.clear();
        self.replies.clear();
        self.is_parked = false;
        let batches = self.batches.drain(..).map(|(seq, _)| Unanswered::Batch(seq));
        let reads = self.behind.drain(..).filter_map(|(_, task)| match task {
            Task::Read { ticket, .. } => Some(Unanswered::Read(ticket)),
            Task::Execute { .. }
            | Task::Merge(_)
            | Task::Undo(_)
            | Task::Resend(_)
            | Task::Checkpoint(_)
            | Task::Discard(_)
            | Task::Fetch { .. }
            | Task::Check(_) => None,
        });
        batches.chain(reads).collect()
    }

    /// Returns what a statement says of these counts.
    pub(crate) fn says(&self, counted: &Counters) -> WorkerStats {
        let Counters { runs, again, on_pages, early, starts, at_once, most, parked, wrong_rules, .. } =
            *counted;
        let workers = u64::try_from(self.workers).unwrap_or(u64::MAX);
        WorkerStats { workers, starts, at_once, most, runs, again, on_pages, early, parked, wrong_rules }
    }

    /// Takes the wrong rules that were found.
    pub(crate) fn take_wrong(&mut self) -> Vec<WrongRule> {
        self.runs.take_wrong()
    }

    /// Takes what was counted.
    pub(crate) fn take_counters(&mut self) -> Counters {
        Counters { early: core::mem::take(&mut self.early), ..self.runs.take_counters() }
    }
}

#[cfg(test)]
mod tests {
    use quorate_service::parallel::KeyRules;
    use quorate_service::{Access, Context, Options, Stop, View};
    use quorate_wire::digest::Domains;
    use quorate_wire::{ClusterId, Timestamp};

    use super::*;

    /// Each operation has a key of its own, which is its first byte. Key 0 takes long.
    struct Keys;

    impl Service for Keys {
        fn is_read_only(&self, _operation: &[u8]) -> bool {
            false
        }

        fn access(&self, operation: &[u8], keys: &mut Access) {
            operation.iter().take(1).for_each(|key| keys.write(u64::from(*key)));
            if operation == [0] {
                keys.long();
            }
        }

        fn execute(&self, _: Context, _: &[u8], _: &mut View<'_>, _: &mut Vec<u8>) -> Result<(), Stop> {
            Ok(())
        }
    }

    /// PX-2, PX-E: short requests, however many are ready, keep no worker from a long one.
    #[test]
    fn px2_short_requests_are_not_in_front_of_a_long_one() {
        let domains = Domains::new(ClusterId([1; 32]));
        let mut executor = Executor::new(Keys, domains.clone(), Options::default());
        let parallel = Parallel {
            workers: 2,
            engine: EngineKind::GroupIndex,
            rules: Box::new(KeyRules::new(Keys)),
            replies_early: true,
            short_on_pages: true,
            secret: 1,
        };
        let mut ahead = Ahead::new(parallel).unwrap();
        let batch = |seq: u64, last: &[u8]| {
            let mut batch = Batch::default();
            for key in (1..=200).chain(last.iter().copied()) {
                batch.push_operation(&domains, ClientId::new(u64::from(key) + 1, 0), Timestamp(seq), &[key]);
            }
            batch.seal(&domains, &seq.to_le_bytes());
            Arc::new(batch)
        };
        // The first request of a client depends on all others.
        executor.execute(SeqNum(1), &batch(1, &[0]), false, &mut Replies::new()).unwrap();
        ahead.insert(&mut executor, SeqNum(2), &batch(2, &[0])).unwrap();
        assert!(ahead.find_jobs(&mut executor));
        let jobs: Vec<_> = core::iter::from_fn(|| ahead.take_job()).map(|job| job.effort()).collect();
        assert_eq!((jobs.len(), jobs[0]), (1 + SHORT_JOBS_MAX, Effort::Long));
    }
}
