//! The threads that run long operations, and what they ask the replica's thread (PX-1).
//!
//! The state belongs to the replica's thread. A worker asks it for each cell that its operation reads, and hands the
//! result over when it is done. Short operations are not worth a hand-over: the replica's thread runs them itself.
//! Nobody waits for a worker, not even when the node stops: a worker may hang (PX-10).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use quorate_process::{Core, DiskQueue, Event, Observer, Process, Store};
use quorate_service::Service;
use quorate_service::parallel::{Answer, Done, Job, Question, Questions, ServicePart};

use tracing::warn;

use crate::error::{NodeError, NodeErrorKind};
use crate::net::wake::Waker;
use crate::run::clock::Clock;

/// Maximum number of jobs that the replica's thread runs itself before it looks at its input again.
const OWN_JOBS_MAX: usize = 64;
/// Maximum number of calls that it takes before it looks at its input again: a worker may ask without end.
const CALLS_MAX: usize = 256;
/// A run that takes longer than this is reported, in nanoseconds.
const LONG_RUN_NS: u64 = 10_000_000_000;
/// How often runs are looked at, in nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;
/// After this number of requests, workers that have had nothing to do are reported.
const IDLE_REQUESTS: u64 = 10_000;

/// What a worker says.
enum Call {
    Asks(Question, Sender<Option<Answer>>),
    Ran(Done),
}

/// The way from a worker to the replica's thread.
#[derive(Clone, Debug)]
struct Voice {
    to: Sender<Call>,
    /// How much was said so far.
    said: Arc<AtomicU64>,
    waker: Waker,
}

impl Voice {
    fn say(&self, call: Call) {
        // Counted before it can be heard: what is counted and not heard is on its way.
        self.said.fetch_add(1, Ordering::SeqCst);
        // If nobody listens any more, the node has stopped.
        if self.to.send(call).is_ok() {
            self.waker.wake();
        }
    }
}

impl Questions for Voice {
    fn ask(&self, question: Question) -> Option<Answer> {
        let (to, from) = mpsc::channel();
        self.say(Call::Asks(question, to));
        from.recv().ok()?
    }
}

/// When the run of a worker began, and 0 between two runs.
#[derive(Debug, Default)]
struct Began(AtomicU64);

/// The workers of a replica.
#[derive(Debug)]
pub struct Workers {
    jobs: Sender<Job>,
    calls: Receiver<Call>,
    said: Arc<AtomicU64>,
    heard: u64,
    waker: Waker,
    began: Vec<Arc<Began>>,
    /// The last reported run of each worker.
    reported: Vec<u64>,
    look_at: u64,
    /// A worker has had a job, or it was reported that none had.
    is_of_use: bool,
}

impl Workers {
    /// Starts `count` workers. They wake the replica's thread with `waker`.
    ///
    /// # Errors
    ///
    /// There are too many threads.
    pub fn start<S: Service + Send + 'static>(
        count: usize,
        service: &Arc<S>,
        part: ServicePart,
        waker: &Waker,
        clock: &Clock,
    ) -> Result<Self, NodeError> {
        let (jobs, waiting) = mpsc::channel();
        let (to, calls) = mpsc::channel();
        let (waiting, said) = (Arc::new(Mutex::new(waiting)), Arc::new(AtomicU64::new(0)));
        let began: Vec<Arc<Began>> = (0..count).map(|_| Arc::default()).collect();
        for (number, began) in began.iter().enumerate() {
            let (service, waiting, began) = (Arc::clone(service), Arc::clone(&waiting), Arc::clone(began));
            let voice = Voice { to: to.clone(), said: Arc::clone(&said), waker: waker.clone() };
            let clock = *clock;
            thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || work(&*service, part, &waiting, &voice, (&began, &clock)))
                .map_err(|error| {
                    NodeError::new(NodeErrorKind::Rule, format!("workers = {count}: no thread: {error}"))
                })?;
        }
        let (reported, waker) = (vec![0; count], waker.clone());
        Ok(Self { jobs, calls, said, heard: 0, waker, began, reported, look_at: 0, is_of_use: false })
    }

    /// Returns what the workers wake the replica's thread with.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Returns whether a worker has said something.
    pub fn has_news(&self) -> bool {
        self.said.load(Ordering::SeqCst) > self.heard
    }

    /// Answers the workers, takes what they have done, and hands out jobs. Returns how much there was to do.
    pub fn serve<S: Service, P: Store, D: DiskQueue, C: Core>(
        &mut self,
        process: &mut Process<S, P, D, C>,
        clock: &Clock,
        watch: &mut impl Observer<S, P>,
    ) -> usize {
        let mut served = 0;
        while served < CALLS_MAX
            && let Ok(call) = self.calls.try_recv()
        {
            (self.heard, served) = (self.heard + 1, served + 1);
            match call {
                // A worker waits for the answer as long as it lives.
                Call::Asks(question, to) => _ = to.send(process.answer(&question)),
                Call::Ran(done) => _ = process.step(clock.now(), Event::Ran(done), watch),
            }
        }
        for _ in 0..OWN_JOBS_MAX {
            let Some(job) = process.take_job() else { break };
            served += 1;
            if job.is_long() {
                // A worker lives as long as this.
                let _ = self.jobs.send(job);
                self.is_of_use = true;
                continue;
            }
            // If it panics, the operation is executed on pages in its turn (PX-G).
            let done = catch_unwind(AssertUnwindSafe(|| process.run_job(&job)));
            let done = done.unwrap_or_else(|_| job.failed());
            process.step(clock.now(), Event::Ran(done), watch);
        }
        if self.look_at <= clock.mono_ns() {
            self.look_at = clock.mono_ns().saturating_add(LOOK_NS);
            self.report(clock.mono_ns(), process.counters().requests);
        }
        served
    }

    /// Reports runs that take long, and workers that have nothing to do.
    #[cold]
    fn report(&mut self, now_ns: u64, requests: u64) {
        for (number, (began, reported)) in self.began.iter().zip(&mut self.reported).enumerate() {
            let began = began.0.load(Ordering::Relaxed);
            if began > 0 && began != *reported && now_ns.saturating_sub(began) >= LONG_RUN_NS {
                *reported = began;
                warn!(
                    worker = number,
                    "a worker has run one operation for 10 s: what depends on it waits (PX-9)"
                );
            }
        }
        if !self.is_of_use && requests >= IDLE_REQUESTS {
            self.is_of_use = true;
            let workers = self.began.len();
            warn!(
                workers,
                "the workers have no effect: the service has declared none of its first {IDLE_REQUESTS} operations as long"
            );
        }
    }
}

fn work<S: Service>(
    service: &S,
    part: ServicePart,
    waiting: &Mutex<Receiver<Job>>,
    voice: &Voice,
    (began, clock): (&Began, &Clock),
) {
    loop {
        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        began.0.store(clock.mono_ns().max(1), Ordering::Relaxed);
        let ran = catch_unwind(AssertUnwindSafe(|| job.run(service, &part, voice)));
        began.0.store(0, Ordering::Relaxed);
        let done = ran.unwrap_or_else(|_| {
            warn!("an operation has panicked on a worker: it is executed again in its turn (PX-G)");
            job.failed()
        });
        voice.say(Call::Ran(done));
    }
}
