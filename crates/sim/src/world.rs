//! One world: simulated time, a queue of events, hosts that run replicas, clients, a network between them, and the
//! checkers. Everything that happens follows from the seed.
//!
//! | Part | Where |
//! |---|---|
//! | the queue, time, what an event does | here |
//! | the events of a process, what it sends, its tasks and its disk | `run.rs` |
//! | what is observed of a process | `watch.rs` |
//! | the beginning | `build.rs` |
//! | clients and their workload | `clients.rs` |
//! | crashes, restarts, pauses, clocks, healing | `faults.rs` |

use std::collections::{BTreeMap, VecDeque};

use quorate_pbft::Config;
use quorate_pbft::client::step::ClientActions;
use quorate_process::{Directory, Event as Happens, ImagePace};
use quorate_service::registry::Client;
use quorate_wire::{Kind, Principal, ReplicaId, Source};

use crate::adversary::maker::LiarMaker;
use crate::app::App;
use crate::checker::{Checkers, Violation};
use crate::event::Event;
use crate::hash::TraceHash;
use crate::host::{Host, HostProcess, MISSED_MAX};
use crate::network::{Flight, Frame, Network, NodeId};
use crate::queue::{Queue, Scheduled};
use crate::rng::Rng;
use crate::setup::Keys;
use crate::summary::Counters;
use crate::trace::{Line, Trace, What};
use crate::work::Work;

mod build;
mod clients;
pub mod evidence;
mod faults;
mod look;
mod observer;
mod run;
mod turn;
mod watch;

pub use clients::{ClientHost, Lane, Load, Seen};
use evidence::Evidence;

/// A world. See the module.
#[derive(Debug)]
pub struct World<A: App> {
    pub(crate) app: A,
    pub(crate) seed: u64,
    pub(crate) config: Config,
    pub(crate) keys: Keys,
    /// World time, in nanoseconds.
    pub(crate) at: u64,
    /// How many events have happened.
    pub(crate) step: u64,
    /// After this many steps the world stops: for looking at a moment.
    pub(crate) halt_at: u64,
    queue: Queue<(NodeId, Event)>,
    pub(crate) hosts: Vec<Host<A::Service>>,
    pub(crate) clients: Vec<ClientHost>,
    /// The hosts of each replica: two if it has a twin.
    pub(crate) addresses: Vec<Vec<NodeId>>,
    pub(crate) network: Network,
    pub(crate) checkers: Checkers,
    load: Load,
    /// The clients' history.
    pub(crate) seen: Seen,
    pub(crate) counters: Counters,
    hash: TraceHash,
    pub(crate) trace: Option<Trace>,
    /// The notes of a scenario.
    pub(crate) evidence: Option<Evidence>,
    /// How long executions take, and who runs requests.
    work: Work,
    adversary_rng: Rng,
    keys_rng: Rng,
    page_bytes: usize,
    pages_in_memory: usize,
    log_bytes_max: usize,
    image_pace: ImagePace,
    /// The clients that are accepted from the start, if the state has a client registry.
    founders: Option<BTreeMap<u64, Client>>,
    /// The number of clients, accepted or not.
    clients_max: usize,
    liars: BTreeMap<ReplicaId, LiarMaker>,
    /// The message that is being handled, and whose it is: for the trace.
    heard: Option<(Kind, Principal)>,
    /// In scripts a frame may be held back: what is sent is handed out instead of being queued.
    pub(crate) held: Option<VecDeque<Flight>>,
    /// The replicas whose inputs are recorded.
    recorded: Vec<ReplicaId>,
    client_actions: ClientActions,
    /// The places of the nodes.
    directory: Directory,
    flights: Vec<Flight>,
}

impl<A: App> World<A> {
    /// Puts an event in the queue.
    pub(crate) fn schedule(&mut self, at: u64, node: NodeId, event: Event) {
        let bytes = if let Event::Arrive(frame) = &event { frame.len() } else { 0 };
        self.queue.push(at.max(self.at), bytes, (node, event));
    }

    /// Returns the time of the next event.
    pub fn next_at(&self) -> Option<u64> {
        self.queue.peek().map(|next| next.at)
    }

    /// Returns the node to which the next event happens.
    pub fn next_node(&self) -> Option<NodeId> {
        self.queue.peek().map(|next| next.event.0)
    }

    /// Processes the next event. Returns whether there was one.
    pub fn step(&mut self) -> bool {
        let Some(Scheduled { at, event: (node, event), .. }) = self.queue.pop() else { return false };
        self.happen(at, node, event);
        true
    }

    /// Schedules an event at a node, at `at` or now if that is over.
    pub(crate) fn happen(&mut self, at: u64, node: NodeId, event: Event) {
        self.at = self.at.max(at);
        self.step += 1;
        match self.host_at(node) {
            Some(h) => self.on_host(h, event),
            None => self.on_client_event(node, event),
        }
    }

    /// Lets disks and services finish what is due, and started processes begin; timers wait. For
    /// scripts, in which time passes only when they say so.
    pub(crate) fn finish_work(&mut self) {
        let mut timers = Vec::new();
        while let Some(next) = self.queue.pop() {
            if next.at <= self.at && !matches!(next.event.1, Event::Wake) {
                self.happen(next.at, next.event.0, next.event.1);
            } else {
                timers.push(next);
            }
        }
        for timer in timers {
            self.queue.put(timer);
        }
    }

    /// Runs until `stop` holds, nothing is left to happen, a rule is broken, or world time `until` is
    /// reached. Returns whether `stop` holds.
    pub fn run(&mut self, until: u64, mut stop: impl FnMut(&mut Self) -> bool) -> bool {
        loop {
            if let Some(text) = self.queue.exceeded() {
                self.checkers.note(Err(Violation::new("bounded", text, &[])));
            }
            if self.checkers.violation().is_some() {
                return false;
            }
            if stop(self) {
                return true;
            }
            match self.next_at().filter(|_| self.step < self.halt_at) {
                Some(at) if at <= until => _ = self.step(),
                _ => {
                    self.at = self.at.max(until);
                    return stop(self);
                }
            }
        }
    }

    fn host_at(&self, node: NodeId) -> Option<usize> {
        (node.index() < self.hosts.len()).then_some(node.index())
    }

    fn on_host(&mut self, h: usize, event: Event) {
        let host = &mut self.hosts[h];
        if let Some(missed) = &mut host.missed
            && !matches!(event, Event::Resume | Event::Restart)
        {
            let room = !matches!(event, Event::Arrive(_)) || missed.len() < MISSED_MAX;
            if room {
                missed.push_back(event);
            } else {
                self.counters.overflowed += 1;
            }
            return;
        }
        if self.at < host.busy_until && !matches!(event, Event::Ran { .. } | Event::Resume | Event::Restart) {
            let (until, node) = (host.busy_until, host.node);
            return self.schedule(until, node, event);
        }
        let life = host.life;
        let mut dies = None;
        match event {
            Event::Start { life: of } if of == life => self.feed(h, Happens::Start),
            Event::Arrive(frame) => {
                self.heard = head_of(&frame);
                self.feed(h, Happens::Datagram { source: Source::UNKNOWN, bytes: &frame });
                self.heard = None;
            }
            Event::Wake => self.wake(h),
            Event::Synced { life: of, job } if of == life => dies = self.synced(h, job),
            Event::Flushed { life: of } if of == life => dies = self.flushed(h),
            Event::Ran { life: of, job } if of == life => self.ran(h, job),
            Event::Start { .. } | Event::Synced { .. } | Event::Flushed { .. } | Event::Ran { .. } => {}
            Event::Resume => self.resume(h),
            Event::Restart => self.restart(h),
        }
        if let Some(how) = dies {
            self.die(h, how);
        }
        self.settle(h);
    }

    /// Whatever has a deadline and is due.
    fn wake(&mut self, h: usize) {
        let life = &mut self.hosts[h].life_of;
        // Otherwise an earlier deadline has been moved since.
        if self.at >= life.wake_at {
            life.wake_at = u64::MAX;
            self.feed(h, Happens::Clock);
        }
    }

    /// After each event: what may leave leaves, jobs of the disk begin, and the next wake-up is scheduled.
    pub(crate) fn settle(&mut self, h: usize) {
        self.flush(h);
        let host = &mut self.hosts[h];
        let (node, life) = (host.node, host.life);
        let Some(process) = &mut host.process else { return };
        let due = process.due();
        let wake = (due != u64::MAX).then(|| host.clock.when(due));
        let wake = wake.filter(|at| *at < host.life_of.wake_at);
        if let Some(at) = wake {
            host.life_of.wake_at = at;
        }
        let (job, pages) = (host.disk.begin_log_job(), host.disk.begin_pages());
        if let Some(took) = pages {
            self.schedule(self.at + took, node, Event::Flushed { life });
        }
        if let Some(at) = wake {
            self.schedule(at, node, Event::Wake);
        }
        if let Some((job, took)) = job {
            self.schedule(self.at + took, node, Event::Synced { life, job });
        }
    }

    /// Adds which message it is about to the reason for turning one away.
    pub(crate) fn with_what_was_heard(&self, reason: String) -> String {
        match self.heard {
            Some((kind, from)) => format!("{reason} ({} of {from})", kind.name()),
            None => reason,
        }
    }

    /// Appends a line to the trace, if there is one.
    pub(crate) fn tell(&mut self, h: usize, what: impl FnOnce() -> What) {
        if let Some(trace) = &mut self.trace {
            let who = self.hosts[h].name.clone();
            trace.push(Line { step: self.step, at: self.at, who, what: what() });
        }
    }

    /// Hands a frame to the network.
    pub(crate) fn transmit(&mut self, from: NodeId, to: NodeId, frame: &Frame) {
        self.network.send(self.at, from, to, frame, &mut self.flights);
        while let Some(flight) = self.flights.pop() {
            match &mut self.held {
                Some(held) => held.push_back(flight),
                None => self.schedule(flight.at, flight.to, Event::Arrive(flight.frame)),
            }
        }
    }

    /// Returns the process of host `h`.
    pub(crate) fn process(&mut self, h: usize) -> Option<&mut HostProcess<A::Service>> {
        self.hosts[h].process.as_deref_mut()
    }

    /// Returns the host that runs replica `id`; the first, if it has a twin.
    pub fn host_of(&self, id: ReplicaId) -> usize {
        self.addresses[id.index()].first().map_or(0, |node| node.index())
    }
}

/// Returns the body of a frame that has been admitted.
fn body_of(frame: &[u8]) -> &[u8] {
    quorate_wire::frame::Frame::decode(frame).map_or(&[], |frame| frame.body)
}

/// Returns the kind of a frame and who says that it is theirs.
fn head_of(frame: &[u8]) -> Option<(Kind, Principal)> {
    let kind = Kind::from_wire(*frame.get(3)?).ok()?;
    let sender = frame.get(8..16)?.try_into().ok()?;
    Some((kind, Principal::from_wire(u64::from_le_bytes(sender))))
}
