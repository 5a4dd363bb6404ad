//! A process of a cell: one thread, its connections, its emulated machine. One message is handled to its end, what the
//! handler sends included, before the next one is received.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use quorate_quorum::step::Path;
use quorate_quorum::version::{ObjectId, Version};
use quorate_quorum_sim::history::{Operation, OperationKind};
use quorate_quorum_sim::lab::Measured;
use quorate_quorum_sim::rng::Rng;
use quorate_wire::ClientId;

use super::clock::{Clock, Lateness, Machine, Prices};
use super::mesh::Ends;

/// How long a process sleeps at most, so that it hears of the end.
const NAP: Duration = Duration::from_millis(5);
/// The object of every history.
pub(super) const OBJECT: ObjectId = ObjectId([6; 32]);

/// What a handler has done and wants.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) signs: u64,
    pub(super) verifies: u64,
    pub(super) sends: Vec<(usize, Vec<u8>)>,
    pub(super) done: Option<Ended>,
    /// A forwarded store has come.
    pub(super) heard: bool,
    /// Messages that an undisturbed operation does not have; below zero at the start of one.
    pub(super) extra: i64,
}

/// An operation that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) value: Vec<u8>,
    pub(super) version: Option<Version>,
    pub(super) path: Option<Path>,
}

/// A server or client of some register.
pub(super) trait Resident: Send {
    /// Takes a frame.
    fn receive(&mut self, now: u64, from: usize, frame: &[u8], work: &mut Work);
    /// Clients: begins an operation.
    fn invoke(&mut self, now: u64, kind: OperationKind, value: &[u8], work: &mut Work);
    /// Runs its timers.
    fn expire(&mut self, now: u64, work: &mut Work);
    /// Returns when the next timer runs out.
    fn due(&self) -> u64;
    /// From now on it lies, if it is one that does.
    fn corrupt(&mut self);
}

/// What all processes of a cell share: counts, and the order of events for the checkers.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    /// Liars lie.
    pub(super) lying: AtomicBool,
    /// How many processes know that.
    pub(super) aware: AtomicU64,
    pub(super) order: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) messages: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) signs: AtomicU64,
    pub(super) verifies: AtomicU64,
}

impl Shared {
    pub(super) fn next(&self) -> u64 {
        self.order.fetch_add(1, Ordering::SeqCst)
    }
}

/// What a client does in a loop; 0 operations: until the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) kind: OperationKind,
    pub(super) operations: usize,
    pub(super) think: u64,
    /// Before its first operation.
    pub(super) delay: u64,
}

/// What a process has seen when it ends.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) operations: Vec<Operation>,
    pub(super) samples: Vec<Measured>,
    pub(super) late: Lateness,
}

/// What a process begins with.
pub(super) struct Berth {
    pub(super) resident: Box<dyn Resident>,
    pub(super) me: Option<ClientId>,
    pub(super) ends: Ends,
    pub(super) machine: Arc<Machine>,
    pub(super) prices: Prices,
    pub(super) clock: Clock,
    pub(super) shared: Arc<Shared>,
    pub(super) jobs: Receiver<Job>,
    /// Told when a job has ended.
    pub(super) tell: Sender<()>,
    /// What the time that it thinks is drawn from.
    pub(super) rng: Rng,
}

/// See the module.
pub(super) struct Station {
    resident: Box<dyn Resident>,
    me: Option<ClientId>,
    ends: Ends,
    machine: Arc<Machine>,
    prices: Prices,
    clock: Clock,
    shared: Arc<Shared>,
    jobs: Receiver<Job>,
    tell: Sender<()>,
    rng: Rng,
    job: Option<(Job, usize)>,
    /// When the client invokes next.
    next_at: u64,
    /// When the operation under way began.
    began: Option<u64>,
    seen: Seen,
}

impl Station {
    pub(super) fn new(berth: Berth) -> Self {
        let Berth { resident, me, ends, machine, prices, clock, shared, jobs, tell, rng } = berth;
        let (job, next_at, began, seen) = (None, 0, None, Seen::default());
        Self {
            resident,
            me,
            ends,
            machine,
            prices,
            clock,
            shared,
            jobs,
            tell,
            rng,
            job,
            next_at,
            began,
            seen,
        }
    }

    /// Runs until the end of the cell. Returns the connections, too: others may still send to this process.
    pub(super) fn run(mut self) -> io::Result<(Seen, Ends)> {
        let _ = nix::sys::prctl::set_timerslack(1);
        let mut lied = false;
        // When whatever is there at once was ready, at the latest.
        let mut ready = None;
        while !self.shared.stop.load(Ordering::Relaxed) {
            if !lied && self.shared.lying.load(Ordering::Relaxed) {
                self.resident.corrupt();
                lied = true;
                self.shared.aware.fetch_add(1, Ordering::Relaxed);
            }
            if let Ok(job) = self.jobs.try_recv() {
                self.job = Some((job, 0));
                self.next_at = self.clock.now() + job.delay;
                self.seen.samples.clear();
            }
            let now = self.clock.now();
            if self.began.is_none() && self.job.is_some() && self.next_at <= now {
                ready = Some(self.invoke(now)?);
            } else if let Some((from, frame)) = self.ends.receive()? {
                let message = self.prices.message;
                let at = ready.unwrap_or(now);
                let at = self.machine.occupy(self.clock, (at, message), &mut self.seen.late);
                let mut work = Work::default();
                self.resident.receive(self.clock.now(), from, &frame, &mut work);
                ready = Some(self.perform(at, work)?);
            } else if self.resident.due() <= now {
                let mut work = Work::default();
                self.resident.expire(now, &mut work);
                ready = Some(self.perform(now, work)?);
            } else {
                ready = None;
                let invoke_at =
                    if self.began.is_none() && self.job.is_some() { self.next_at } else { u64::MAX };
                let until = invoke_at.min(self.resident.due()).saturating_sub(now);
                self.ends.wait(Duration::from_nanos(until).min(NAP))?;
            }
        }
        Ok((self.seen, self.ends))
    }

    fn invoke(&mut self, now: u64) -> io::Result<u64> {
        let (Some((job, _)), Some(client)) = (self.job, self.me) else { return Ok(now) };
        let value = if job.kind == OperationKind::Write {
            // 64 bytes, all different.
            let mut value = vec![0_u8; 64];
            let number = self.shared.written.fetch_add(1, Ordering::Relaxed) + 1;
            value[..8].copy_from_slice(&number.to_le_bytes());
            value[8..16].copy_from_slice(&client.0.to_le_bytes());
            value
        } else {
            Vec::new()
        };
        self.began = Some(now);
        let mut work = Work::default();
        let invoked = self.shared.next();
        self.resident.invoke(now, job.kind, &value, &mut work);
        self.seen.operations.push(Operation {
            client,
            object: OBJECT,
            kind: job.kind,
            invoked,
            responded: None,
            value,
            version: None,
        });
        self.seen.samples.push(Measured {
            latency: f64::NAN,
            path: Path::ThreePhase,
            listener_any: false,
            extra: 0,
        });
        self.perform(now, work)
    }

    /// Signatures first, then the end of an operation, then what is sent.
    fn perform(&mut self, ready: u64, work: Work) -> io::Result<u64> {
        let Work { signs, verifies, sends, done, heard, extra } = work;
        let takes = signs * self.prices.sign + verifies * self.prices.verify;
        self.shared.signs.fetch_add(signs, Ordering::Relaxed);
        self.shared.verifies.fetch_add(verifies, Ordering::Relaxed);
        let mut at = ready;
        if takes > 0 {
            at = self.machine.occupy(self.clock, (at, takes), &mut self.seen.late);
        }
        if let Some(last) = self.seen.samples.last_mut() {
            (last.listener_any, last.extra) = (last.listener_any || heard, last.extra + extra);
        }
        if let Some(ended) = done {
            self.done(at, ended);
        }
        for (to, frame) in sends {
            at = self.machine.occupy(self.clock, (at, self.prices.message), &mut self.seen.late);
            self.shared.messages.fetch_add(1, Ordering::Relaxed);
            self.shared.bytes.fetch_add(frame.len() as u64, Ordering::Relaxed);
            self.ends.send(to, &frame)?;
        }
        Ok(at)
    }

    fn done(&mut self, at: u64, ended: Ended) {
        let Some(began) = self.began.take() else { return };
        let now = self.clock.now();
        if let Some(sample) = self.seen.samples.last_mut() {
            sample.latency = Duration::from_nanos(now - began).as_secs_f64() * 1e3;
            // Anything but the fast path, where only that is known.
            sample.path = ended.path.unwrap_or(Path::ThreePhase);
        }
        if let Some(operation) = self.seen.operations.last_mut() {
            operation.version = ended.version;
            operation.value = ended.value;
            operation.responded = Some(self.shared.next());
        }
        let Some((job, count)) = &mut self.job else { return };
        *count += 1;
        // Half to one and a half: clients that think for equally long fall into step, and then all reads meet the same
        // part of a write.
        self.next_at = at.max(now) + job.think / 2 + self.rng.below(job.think + 1);
        if job.operations > 0 && *count >= job.operations {
            self.job = None;
            let _ = self.tell.send(());
        }
    }
}
