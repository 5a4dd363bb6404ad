//! The threads that run long operations, and what they ask the replica's thread (PX-1).
//!
//! The state belongs to the replica's thread. A worker asks it for each cell that its operation reads, and hands the
//! result over when it is done. Short operations are not worth a hand-over: the replica's thread runs them itself. If a
//! short operation has to be written to a store, a worker does that after the run (PX-H).
//! Nobody waits for a worker, not even when the node stops: a worker may hang (PX-10).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use quorate_process::{Core, DiskQueue, Event, Observer, Process, Store};
use quorate_service::parallel::{Answer, Done, Job, Question, Questions, ServicePart};
use quorate_service::{Effort, Service};

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

/// What a worker gets: a job, and what its run has given, if only the store is left.
type Work = (Job, Option<Done>);

/// The work that waits for a worker. Each piece wakes one worker, if one is idle.
#[derive(Debug, Default)]
struct Waiting {
    list: Mutex<WorkList>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct WorkList {
    works: VecDeque<Work>,
    /// Workers without work.
    idle: usize,
    /// The node has stopped.
    is_closed: bool,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, WorkList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, work: Work) {
        let mut list = self.lock();
        list.works.push_back(work);
        let is_awaited = list.idle > 0;
        drop(list);
        if is_awaited {
            self.came.notify_one();
        }
    }

    /// Takes the oldest piece, and waits for it. None: the node has stopped.
    fn take(&self) -> Option<Work> {
        let mut list = self.lock();
        list.idle += 1;
        while list.works.is_empty() && !list.is_closed {
            list = self.came.wait(list).unwrap_or_else(PoisonError::into_inner);
        }
        list.idle -= 1;
        list.works.pop_front()
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.came.notify_all();
    }
}

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

/// When the run of a worker began, and 0 between two runs. The time is real: the replica's clock shows its own time, in
/// which it counts little that the replica was away (TM-7), and so falls behind.
#[derive(Debug)]
struct Began {
    origin: Instant,
    at_ns: AtomicU64,
}

impl Began {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn begin(&self) {
        self.at_ns.store(self.now_ns().max(1), Ordering::Relaxed);
    }

    fn end(&self) {
        self.at_ns.store(0, Ordering::Relaxed);
    }

    /// Returns when the present run began, if that is long ago.
    fn long_since(&self, now_ns: u64) -> Option<u64> {
        let at_ns = self.at_ns.load(Ordering::Relaxed);
        (at_ns > 0 && now_ns.saturating_sub(at_ns) >= LONG_RUN_NS).then_some(at_ns)
    }
}

/// The workers of a replica.
#[derive(Debug)]
pub struct Workers {
    waiting: Arc<Waiting>,
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
    ) -> Result<Self, NodeError> {
        let (to, calls) = mpsc::channel();
        let (waiting, said) = (Arc::new(Waiting::default()), Arc::new(AtomicU64::new(0)));
        let origin = Instant::now();
        let began = || Arc::new(Began { origin, at_ns: AtomicU64::new(0) });
        let began: Vec<_> = std::iter::repeat_with(began).take(count).collect();
        for (number, began) in began.iter().enumerate() {
            let (service, waiting, began) = (Arc::clone(service), Arc::clone(&waiting), Arc::clone(began));
            let voice = Voice { to: to.clone(), said: Arc::clone(&said), waker: waker.clone() };
            thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || work(&*service, part, &waiting, &voice, &began))
                .map_err(|error| {
                    NodeError::new(NodeErrorKind::Rule, format!("workers = {count}: no thread: {error}"))
                })?;
        }
        let (reported, waker) = (vec![0; count], waker.clone());
        Ok(Self { waiting, calls, said, heard: 0, waker, began, reported, look_at: 0, is_of_use: false })
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
        let now = clock.now();
        for _ in 0..OWN_JOBS_MAX {
            let Some(job) = process.take_job() else { break };
            served += 1;
            let mut done = None;
            if job.effort() != Effort::Long {
                // If it panics, the operation is executed on pages in its turn (PX-G).
                let ran = catch_unwind(AssertUnwindSafe(|| process.run_job(&job)));
                done = Some(ran.unwrap_or_else(|_| job.failed()));
            }
            match done {
                Some(done) if job.effort() == Effort::Short => {
                    process.step(now, Event::Ran(done), watch);
                }
                done => {
                    self.waiting.put((job, done));
                    self.is_of_use = true;
                }
            }
        }
        if self.look_at <= clock.mono_ns() {
            self.look_at = clock.mono_ns().saturating_add(LOOK_NS);
            self.report(process.counters().requests);
        }
        served
    }

    /// Reports runs that take long, and workers that have nothing to do.
    #[cold]
    fn report(&mut self, requests: u64) {
        for (worker, (began, reported)) in self.began.iter().zip(&mut self.reported).enumerate() {
            if let Some(since) = began.long_since(began.now_ns()).filter(|since| since != reported) {
                *reported = since;
                warn!(worker, "a worker has run one operation for 10 s: what depends on it waits (PX-9)");
            }
        }
        if !self.is_of_use && self.began.len() > 1 && requests >= IDLE_REQUESTS {
            self.is_of_use = true;
            let workers = self.began.len();
            warn!(
                workers,
                "the workers have no effect: the service has declared none of its first {IDLE_REQUESTS} operations as long"
            );
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.waiting.close();
    }
}

fn work<S: Service>(service: &S, part: ServicePart, waiting: &Waiting, voice: &Voice, began: &Began) {
    while let Some((job, done)) = waiting.take() {
        began.begin();
        let ran = catch_unwind(AssertUnwindSafe(|| match done {
            None => job.run(service, &part, voice),
            Some(done) => {
                job.store(service, &done);
                done
            }
        }));
        began.end();
        let done = ran.unwrap_or_else(|_| {
            warn!("an operation has panicked on a worker: it is executed again in its turn (PX-G)");
            job.failed()
        });
        voice.say(Call::Ran(done));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// PX-9: a run is measured by the real time, which goes on while the replica's thread is away.
    #[test]
    fn px9_a_long_run_is_told_from_a_short_one_and_from_none() {
        let origin = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        let began = Began { origin, at_ns: AtomicU64::new(0) };
        assert_eq!(began.long_since(u64::MAX), None, "nothing has run");
        began.begin();
        let at_ns = began.at_ns.load(Ordering::Relaxed);
        assert!((1_000_000_000..=began.now_ns()).contains(&at_ns));
        assert_eq!(began.long_since(at_ns + LONG_RUN_NS - 1), None, "it has just begun");
        assert_eq!(began.long_since(at_ns + LONG_RUN_NS), Some(at_ns));
        began.end();
        assert_eq!(began.long_since(u64::MAX), None, "nothing runs");
    }
}
