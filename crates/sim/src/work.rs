//! How long services take, and the workers that run requests side by side: what a world decides about executions.

use std::collections::BTreeMap;

use quorate_process::{Execution, Parallel};
use quorate_service::parallel::{Arguments, Done, EngineKind, Job, Matrices, MatrixError, Rules};
use quorate_wire::{ClientId, Digest, Replies, SeqNum, Timestamp};

use crate::rng::{Concern, Rng};

/// How long the service takes for one task, in nanoseconds; 0 to 0: it is done at once.
pub type TaskTime = (u64, u64);

/// The engines, in the order in which the replicas of a mixed cluster take them.
const ENGINES: [EngineKind; 4] =
    [EngineKind::Sequential, EngineKind::Matrix, EngineKind::GroupIndex, EngineKind::Free];
/// The numbers of workers, in that order.
const COUNTS: [usize; 4] = [1, 2, 8, 16];
/// How long a run takes that hangs: longer than a request may wait for its execution.
const HANG_NS: u64 = 1_500_000_000;
/// The first byte of an operation that adds to a counter of the key-value store.
const INCR: u8 = 5;

/// The workers of all replicas. Without them, one request is executed after the other.
#[derive(Clone, Debug)]
pub struct Workers {
    /// Engine and number of workers of each replica. After the last, they begin again.
    pub replicas: Vec<(EngineKind, usize)>,
    /// How long a run takes, in nanoseconds. It reads at some moment in between.
    pub run_ns: TaskTime,
    /// Of a million runs, the ones that panic. Such a run means nothing.
    pub panics: u32,
    /// Of a million runs, the ones that take `HANG_NS`.
    pub hangs: u32,
    /// Replies to certain requests leave before the requests settle.
    pub replies_early: bool,
    /// A planted error: the rules leave out the keys of operations that begin with this byte.
    pub hidden: Option<u8>,
    /// A wrong rule is counted, and breaks nothing.
    pub forgives: bool,
}

impl Workers {
    /// Returns workers that differ between replicas: 1, 2, 8 and 16 of them, with four engines.
    pub fn mixed(seed: u64) -> Self {
        let mut rng = Rng::nth(seed, Concern::Executor, 1);
        let (counts, engines) = (rng.index(4), rng.index(4));
        let replicas = (0..4).map(|r| (ENGINES[(r + engines) % 4], COUNTS[(r + counts) % 4])).collect();
        let most = rng.pick(&[50_000, 2_000_000, 30_000_000]).unwrap_or(2_000_000);
        let (panics, hangs) = (5_000, 1_000);
        let run_ns = (1_000, most);
        Self { replicas, run_ns, panics, hangs, replies_early: true, hidden: None, forgives: false }
    }

    /// As [`Self::mixed`], with rules that call an addition independent of everything else.
    pub fn misled(seed: u64) -> Self {
        Self { hidden: Some(INCR), ..Self::mixed(seed) }
    }

    /// As [`Self::misled`]. Nobody stops at a wrong rule, and replies wait until their requests settle.
    pub fn misled_and_forgiven(seed: u64) -> Self {
        Self { replies_early: false, forgives: true, ..Self::misled(seed) }
    }
}

/// Rules with a planted error.
struct Hidden {
    rules: Box<dyn Rules + Send>,
    first: u8,
}

impl Rules for Hidden {
    fn matrices(&self) -> Result<Matrices, MatrixError> {
        self.rules.matrices()
    }

    fn parse(&self, operation: &[u8], arguments: &mut Arguments) {
        if operation.first() == Some(&self.first) {
            arguments.begin(0);
        } else {
            self.rules.parse(operation, arguments);
        }
    }
}

/// What a world decides about executions.
#[derive(Debug)]
pub struct Work {
    task_time: TaskTime,
    /// How long the service takes for each request of a batch in addition, in nanoseconds.
    request_ns: u64,
    /// A task keeps its whole process from everything else.
    inline: bool,
    workers: Option<Workers>,
    seed: u64,
    rng: Rng,
}

impl Work {
    /// Returns work that takes this time.
    pub fn new(
        seed: u64,
        task_time: TaskTime,
        request_ns: u64,
        inline: bool,
        workers: Option<Workers>,
    ) -> Self {
        Self { task_time, request_ns, inline, workers, seed, rng: Rng::new(seed, Concern::Executor) }
    }

    /// Returns whether a task keeps its whole process from everything else.
    pub fn is_inline(&self) -> bool {
        self.inline
    }

    /// Returns when the tasks of a process are done.
    pub fn execution(&self) -> Execution {
        let takes_time = self.task_time.1 > 0 || self.request_ns > 0;
        match (takes_time, self.inline) {
            (false, _) => Execution::Inline,
            (true, true) => Execution::ServiceDeferred,
            (true, false) => Execution::Deferred,
        }
    }

    /// Draws how long a task with this number of requests takes.
    pub fn task_ns(&mut self, requests: u64) -> u64 {
        let (low, high) = self.task_time;
        let drawn = if high > 0 { self.rng.between(low, high) } else { 0 };
        drawn + requests * self.request_ns
    }

    /// Returns how many workers a replica has. One executes one request after the other.
    pub fn workers_of(&self, replica: usize) -> u64 {
        let replicas = self.workers.iter().flat_map(|workers| workers.replicas.iter().cycle());
        replicas
            .map(|(_, count)| *count)
            .nth(replica)
            .and_then(|count| u64::try_from(count).ok())
            .unwrap_or(1)
    }

    /// Returns the workers of a replica, if there are any. `rules` are those of its service.
    pub fn parallel(&self, replica: usize, rules: Box<dyn Rules + Send>) -> Option<Parallel> {
        let Workers { replicas, replies_early, hidden, .. } = self.workers.as_ref()?;
        let (engine, workers) = replicas[replica % replicas.len()];
        let rules = match *hidden {
            None => rules,
            Some(first) => Box::new(Hidden { rules, first }),
        };
        let secret = Rng::nth(self.seed, Concern::Executor, replica + 2).bits();
        Some(Parallel {
            workers,
            engine,
            rules,
            replies_early: *replies_early,
            short_on_pages: false,
            secret,
        })
    }

    /// No worker hangs any more. One that does ends its run.
    pub fn heal(&mut self) {
        if let Some(workers) = &mut self.workers {
            workers.hangs = 0;
        }
    }

    /// Draws how a run goes.
    pub fn course(&mut self) -> Course {
        let Some(Workers { run_ns: (low, high), panics, hangs, .. }) = self.workers else {
            return Course { reads_ns: 0, ends_ns: 0, panics: false, hangs: false };
        };
        let hangs = self.rng.chance(hangs);
        let ends_ns = if hangs { HANG_NS } else { self.rng.between(low, high) };
        Course { reads_ns: self.rng.between(0, ends_ns), ends_ns, panics: self.rng.chance(panics), hangs }
    }

    /// Returns whether a wrong rule breaks nothing.
    pub fn forgives(&self) -> bool {
        self.workers.as_ref().is_some_and(|workers| workers.forgives)
    }
}

/// How a run goes.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// After what time it reads, in nanoseconds.
    pub reads_ns: u64,
    /// After what time it ends, in nanoseconds.
    pub ends_ns: u64,
    /// It panics.
    pub panics: bool,
    /// It takes as long as a worker that hangs.
    pub hangs: bool,
}

#[derive(Debug)]
enum Under {
    Begun(Job),
    /// It will panic.
    Doomed(Job),
    Ran(Done),
}

/// The jobs that workers of one process have, and the replies that left before their batches had settled.
#[derive(Debug, Default)]
pub struct Jobs {
    next: u64,
    under_way: BTreeMap<u64, Under>,
    replied: BTreeMap<(SeqNum, ClientId, Timestamp), Digest>,
}

impl Jobs {
    /// A worker begins a job. Returns its number.
    pub fn begin(&mut self, job: Job, panics: bool) -> u64 {
        self.next += 1;
        self.under_way.insert(self.next, if panics { Under::Doomed(job) } else { Under::Begun(job) });
        self.next
    }

    /// A job reads, or is done: then returns its result.
    pub fn go_on(&mut self, number: u64, run: impl FnOnce(Job) -> Done) -> Option<Done> {
        match self.under_way.remove(&number)? {
            Under::Begun(job) => {
                self.under_way.insert(number, Under::Ran(run(job)));
                None
            }
            Under::Doomed(job) => {
                self.under_way.insert(number, Under::Ran(job.failed()));
                None
            }
            Under::Ran(done) => Some(done),
        }
    }

    /// A reply leaves before its batch has settled.
    pub fn replied(&mut self, seq: SeqNum, client: ClientId, timestamp: Timestamp, digest: Digest) {
        self.replied.insert((seq, client, timestamp), digest);
    }

    /// A batch has settled. Returns a request whose reply had left and was another one, if there is any.
    pub fn settled(&mut self, seq: SeqNum, replies: &Replies) -> Option<(ClientId, Timestamp)> {
        let later = self.replied.split_off(&(seq.next(), ClientId(0), Timestamp(0)));
        let mut left = std::mem::replace(&mut self.replied, later);
        for reply in replies.iter() {
            let key = (seq, reply.client, reply.timestamp);
            if left.get(&key) == Some(&reply.digest) {
                left.remove(&key);
            }
        }
        let of_this = left.into_keys().find(|(of, ..)| *of == seq);
        of_this.map(|(_, client, timestamp)| (client, timestamp))
    }
}
