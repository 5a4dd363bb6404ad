//! The laboratory: closed loops of clients on a model of network and processors, without losses
//! (§9, §11). Each process has a machine of its own; handlers take no time but for cryptography, which
//! occupies the processor before anything else; sending comes before receiving.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use quorate_quorum::step::{Call, Outcome, Path};
use quorate_quorum::version::ObjectId;
use quorate_quorum::{Action, Body, Input, Message, Out, Process, ServerId, Settings};
use quorate_wire::{ClientId, Principal};

use crate::history::{History, Kind, Operation};
use crate::keys::{Jobs, Keys, Wallet};
use crate::model::{Costs, Model, UNIT, ticks};
use crate::profile::{Behaviour, Group, Scene};
use crate::rng::Rng;

/// The object of every cell.
const OBJECT: ObjectId = ObjectId([6; 32]);

/// An operation of the measured client.
#[derive(Clone, Debug)]
pub struct Measured {
    /// From just before the first send to just after the deciding answer, in units of the model.
    pub latency: f64,
    /// How it went.
    pub path: Path,
    /// A forwarded store arrived for this read, up to the client's next operation (`listener_any`).
    pub listener_any: bool,
}

/// What a client does in a loop.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) kind: Kind,
    /// Ticks between operations.
    pub(crate) think: u64,
    /// Operations; 0: as long as the measured client runs.
    pub(crate) operations: usize,
}

/// What a handler wants, once its cryptography is done.
struct Work {
    cost: u64,
    sends: VecDeque<(usize, Message)>,
    done: Option<Outcome>,
}

struct Host {
    me: Principal,
    process: Box<dyn Process + Send>,
    behaviour: Option<Box<dyn Behaviour>>,
    job: Option<Loop>,
    started: Option<(u64, usize)>,
    finished: usize,
    samples: Vec<Measured>,
    busy: bool,
    work: VecDeque<Work>,
    sending: VecDeque<(usize, Message)>,
    network: VecDeque<(usize, Message)>,
    receiving: VecDeque<(usize, Message)>,
}

enum Event {
    Invoke(usize),
    Worked(usize, Work),
    Sent(usize, usize, Message),
    Carried(usize, usize, Message),
    Arrived(usize, usize, Message),
    Received(usize, usize, Message),
}

/// What all processes did while the measured client ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages.
    pub messages: u64,
    /// Their bytes, without frames.
    pub bytes: u64,
    /// Cryptography.
    pub jobs: Jobs,
    /// Events of the simulation.
    pub events: u64,
}

/// One cell under way.
pub(crate) struct Lab {
    settings: Arc<Settings>,
    model: Model,
    costs: Costs,
    rng: Rng,
    keys: Keys,
    group: Group,
    hosts: Vec<Host>,
    numbers: BTreeMap<u64, usize>,
    now: u64,
    sequence: u64,
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<Event>>,
    free: Vec<usize>,
    network_busy: bool,
    last_served: usize,
    written: u64,
    pub(crate) history: History,
    pub(crate) traffic: Traffic,
}

impl Lab {
    pub(crate) fn new(settings: Settings, model: Model, costs: Costs, seed: u64) -> Self {
        let settings = Arc::new(settings);
        let mut lab = Self {
            model,
            costs,
            rng: Rng::new(seed, 1),
            keys: Keys::table(),
            group: Group::default(),
            hosts: Vec::new(),
            numbers: BTreeMap::new(),
            now: 0,
            sequence: 0,
            heap: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            network_busy: false,
            last_served: usize::MAX,
            written: 0,
            history: History::default(),
            traffic: Traffic::default(),
            settings: Arc::clone(&settings),
        };
        for server in settings.thresholds.servers() {
            let process = quorate_quorum::server(server, Arc::clone(&settings), quorate_quorum::Past::Whole);
            lab.add(server.into(), process, None, None);
        }
        lab
    }

    fn add(
        &mut self,
        me: Principal,
        process: Box<dyn Process + Send>,
        behaviour: Option<Box<dyn Behaviour>>,
        job: Option<Loop>,
    ) -> usize {
        self.numbers.insert(me.to_wire(), self.hosts.len());
        self.hosts.push(Host {
            me,
            process,
            behaviour,
            job,
            started: None,
            finished: 0,
            samples: Vec::new(),
            busy: false,
            work: VecDeque::new(),
            sending: VecDeque::new(),
            network: VecDeque::new(),
            receiving: VecDeque::new(),
        });
        self.hosts.len() - 1
    }

    /// Makes a server lie from now on.
    pub(crate) fn corrupt(&mut self, server: usize, behaviour: Box<dyn Behaviour>) {
        self.group.liars.push(ServerId::at(server));
        self.hosts[server].behaviour = Some(behaviour);
    }

    /// Adds a client, which begins after a delay.
    pub(crate) fn client(&mut self, job: Loop, delay: u64) -> usize {
        let number = u64::try_from(self.hosts.len()).unwrap_or(0);
        let me = ClientId::new(number, 0);
        let process = quorate_quorum::client(me, 1, Arc::clone(&self.settings));
        let host = self.add(me.into(), process, None, Some(job));
        self.after(delay, Event::Invoke(host));
        host
    }

    /// Gives a client that is idle something new to do.
    pub(crate) fn again(&mut self, host: usize, job: Loop) {
        self.hosts[host].job = Some(job);
        self.hosts[host].finished = 0;
        self.hosts[host].samples.clear();
        self.after(1, Event::Invoke(host));
    }

    /// Nothing happens any more: what is counted begins here, and the network serves server 0 first.
    pub(crate) fn settle(&mut self) {
        self.traffic = Traffic::default();
        self.last_served = usize::MAX;
    }

    /// Returns what a client measured, without its first operations.
    pub(crate) fn samples(&self, host: usize, warm_up: usize) -> Vec<Measured> {
        self.hosts[host].samples.iter().skip(warm_up).cloned().collect()
    }

    fn after(&mut self, delay: u64, event: Event) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(event);
        self.sequence += 1;
        self.heap.push(Reverse((self.now + delay, self.sequence, place)));
    }

    /// Runs until this client is done, or, without one, until nothing happens any more. Says whether
    /// the client is done.
    pub(crate) fn run(&mut self, until: Option<usize>) -> bool {
        loop {
            if let Some(host) = until
                && self.hosts[host]
                    .job
                    .as_ref()
                    .is_some_and(|job| self.hosts[host].finished >= job.operations)
            {
                return true;
            }
            let Some(Reverse((now, _, place))) = self.heap.pop() else { return until.is_none() };
            self.now = now;
            self.traffic.events += 1;
            let Some(event) = self.events[place].take() else { continue };
            self.free.push(place);
            match event {
                Event::Invoke(host) => self.invoke(host),
                Event::Worked(host, work) => {
                    self.hosts[host].busy = false;
                    self.finish(host, work);
                    self.serve(host);
                }
                Event::Sent(host, to, message) => {
                    self.hosts[host].busy = false;
                    if let Some(delay) = self.model.wire(host, to, &mut self.rng) {
                        self.after(delay, Event::Arrived(host, to, message));
                    } else {
                        self.hosts[host].network.push_back((to, message));
                        self.carry();
                    }
                    self.serve(host);
                }
                Event::Carried(from, to, message) => {
                    self.network_busy = false;
                    self.carry();
                    self.arrived(from, to, message);
                }
                Event::Arrived(from, to, message) => self.arrived(from, to, message),
                Event::Received(host, from, message) => {
                    self.hosts[host].busy = false;
                    self.deliver(host, from, &message);
                    self.serve(host);
                }
            }
        }
    }

    fn arrived(&mut self, from: usize, to: usize, message: Message) {
        self.hosts[to].receiving.push_back((from, message));
        self.serve(to);
    }

    /// The shared network serves hosts in turn, one message at a time.
    fn carry(&mut self) {
        if self.network_busy {
            return;
        }
        let count = self.hosts.len();
        for step in 1..=count {
            let host = self.last_served.wrapping_add(step) % count;
            if let Some((to, message)) = self.hosts[host].network.pop_front() {
                self.network_busy = true;
                self.last_served = host;
                return self.after(UNIT, Event::Carried(host, to, message));
            }
        }
    }

    /// A processor does the work of handlers first, then sends, then receives.
    fn serve(&mut self, host: usize) {
        while !self.hosts[host].busy {
            let place = &mut self.hosts[host];
            if let Some(work) = place.work.pop_front() {
                if work.cost == 0 {
                    self.finish(host, work);
                } else {
                    place.busy = true;
                    self.after(work.cost, Event::Worked(host, work));
                }
            } else if let Some((to, message)) = place.sending.pop_front() {
                place.busy = true;
                self.traffic.messages += 1;
                self.traffic.bytes += u64::try_from(message.encoded_len()).unwrap_or(0);
                self.after(self.model.cpu(), Event::Sent(host, to, message));
            } else if let Some((from, message)) = place.receiving.pop_front() {
                place.busy = true;
                self.after(self.model.cpu(), Event::Received(host, from, message));
            } else {
                return;
            }
        }
    }

    fn invoke(&mut self, host: usize) {
        let Some(job) = self.hosts[host].job.clone() else { return };
        let Principal::Client(client) = self.hosts[host].me else { return };
        let (call, value) = match job.kind {
            Kind::Read => (Call::Read, Vec::new()),
            Kind::Write => {
                self.written += 1;
                // 64 bytes, all different.
                let mut value = vec![0_u8; 64];
                value[..8].copy_from_slice(&self.written.to_le_bytes());
                value[8..16].copy_from_slice(&client.0.to_le_bytes());
                (Call::Write(value.as_slice().into()), value)
            }
        };
        self.sequence += 1;
        self.hosts[host].started = Some((self.now, self.history.operations.len()));
        self.history.operations.push(Operation {
            client,
            object: OBJECT,
            kind: job.kind,
            invoked: self.sequence,
            responded: None,
            value,
            version: None,
        });
        self.hosts[host].samples.push(Measured { latency: f64::NAN, path: Path::Fast, listener_any: false });
        self.step(host, &Input::Invoke { object: OBJECT, call });
        self.serve(host);
    }

    fn deliver(&mut self, host: usize, from: usize, message: &Message) {
        if let Body::Val { forwarded: true, .. } = message.body
            && let Some(last) = self.hosts[host].samples.last_mut()
        {
            last.listener_any = true;
        }
        let from = self.hosts[from].me;
        let pass = self.behave(host, |behaviour, scene| behaviour.incoming(from, message, scene));
        if pass.unwrap_or(true) {
            self.step(host, &Input::Message { from, message });
        }
    }

    /// Lets the behaviour of a host act, and sends what it sends.
    fn behave<T>(
        &mut self,
        host: usize,
        act: impl FnOnce(&mut Box<dyn Behaviour>, &mut Scene<'_>) -> T,
    ) -> Option<T> {
        let place = &mut self.hosts[host];
        let behaviour = place.behaviour.as_mut()?;
        let mut scene = Scene {
            me: place.me,
            now: self.now / 1000,
            settings: &self.settings,
            rng: &mut self.rng,
            keys: &mut self.keys,
            group: &mut self.group,
            sends: Vec::new(),
            tick: None,
        };
        let result = act(behaviour, &mut scene);
        for (_, to, message) in scene.sends {
            if let Some(to) = self.numbers.get(&to.to_wire()) {
                place.sending.push_back((*to, message));
            }
        }
        Some(result)
    }

    fn step(&mut self, host: usize, input: &Input<'_>) {
        let place = &mut self.hosts[host];
        let mut out = Out::default();
        let mut jobs = Jobs::default();
        let mut wallet = Wallet { me: place.me, keys: &mut self.keys, rng: &mut self.rng, jobs: &mut jobs };
        place.process.step(self.now / 1000, input.clone(), &mut wallet, &mut out);
        self.traffic.jobs.signs += jobs.signs;
        self.traffic.jobs.verifies += jobs.verifies;
        let cost = jobs.signs * self.costs.sign + jobs.verifies * self.costs.verify;
        let mut work = Work { cost, sends: VecDeque::new(), done: None };
        for action in out.actions {
            match action {
                Action::Send { to, message } => {
                    if let Some(to) = self.numbers.get(&to.to_wire()) {
                        work.sends.push_back((*to, message));
                    }
                }
                Action::Done { result, .. } => work.done = result.ok(),
                Action::Persist(_) | Action::SetTimer { .. } | Action::Reject { .. } => {}
            }
        }
        self.hosts[host].work.push_back(work);
    }

    /// The cryptography of a handler is done: it sends, and what it completed is complete.
    fn finish(&mut self, host: usize, work: Work) {
        if let Some(outcome) = work.done {
            self.done(host, &outcome);
        }
        for (to, message) in work.sends {
            let me = self.hosts[to].me;
            if self.hosts[host].behaviour.is_some() {
                self.behave(host, |behaviour, scene| behaviour.outgoing(me, message, scene));
            } else {
                self.hosts[host].sending.push_back((to, message));
            }
        }
    }

    fn done(&mut self, host: usize, outcome: &Outcome) {
        let Some((started, operation)) = self.hosts[host].started.take() else { return };
        self.sequence += 1;
        let record = &mut self.history.operations[operation];
        record.responded = Some(self.sequence);
        record.version = Some(outcome.version);
        record.value = outcome.value.to_vec();
        let place = &mut self.hosts[host];
        place.finished += 1;
        if let Some(sample) = place.samples.last_mut() {
            sample.latency = ticks(self.now - started) / ticks(UNIT);
            sample.path = outcome.path;
        }
        let Some(job) = place.job.clone() else { return };
        if job.operations == 0 || place.finished < job.operations {
            self.after(job.think, Event::Invoke(host));
        }
    }
}
