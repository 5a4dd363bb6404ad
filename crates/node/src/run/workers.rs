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

use crate::error::{NodeError, NodeErrorKind};
use crate::net::wake::Waker;
use crate::run::clock::Clock;

/// Maximum number of jobs that the replica's thread runs itself before it looks at its input again.
const OWN_JOBS_MAX: usize = 64;

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
        // If nobody listens any more, the node has stopped.
        if self.to.send(call).is_ok() {
            self.said.fetch_add(1, Ordering::SeqCst);
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

/// The workers of a replica.
#[derive(Debug)]
pub struct Workers {
    jobs: Sender<Job>,
    calls: Receiver<Call>,
    said: Arc<AtomicU64>,
    heard: u64,
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
        let (jobs, waiting) = mpsc::channel();
        let (to, calls) = mpsc::channel();
        let (waiting, said) = (Arc::new(Mutex::new(waiting)), Arc::new(AtomicU64::new(0)));
        for number in 0..count {
            let (service, waiting) = (Arc::clone(service), Arc::clone(&waiting));
            let voice = Voice { to: to.clone(), said: Arc::clone(&said), waker: waker.clone() };
            thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || work(&*service, part, &waiting, &voice))
                .map_err(|error| {
                    NodeError::new(NodeErrorKind::Rule, format!("workers = {count}: no thread: {error}"))
                })?;
        }
        Ok(Self { jobs, calls, said, heard: 0 })
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
        while let Ok(call) = self.calls.try_recv() {
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
            if process.executor().is_long(job.operation()) {
                // A worker lives as long as this.
                let _ = self.jobs.send(job);
                continue;
            }
            // If it panics, the operation is executed on pages in its turn (PX-G).
            let done = catch_unwind(AssertUnwindSafe(|| process.run_job(&job)));
            let done = done.unwrap_or_else(|_| job.failed());
            process.step(clock.now(), Event::Ran(done), watch);
        }
        served
    }
}

fn work<S: Service>(service: &S, part: ServicePart, waiting: &Mutex<Receiver<Job>>, voice: &Voice) {
    loop {
        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // If it panics, the operation is executed on pages in its turn (PX-G).
        let ran = catch_unwind(AssertUnwindSafe(|| job.run(service, &part, voice)));
        voice.say(Call::Ran(ran.unwrap_or_else(|_| job.failed())));
    }
}
