//! The laboratory: closed loops of clients of a register on [`Machines`] (§9, §11).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use quorate_quorum::step::{Call, Failure, Outcome, Path};
use quorate_quorum::version::ObjectId;
use quorate_quorum::{Action, Body, Input, Message, Out, Process, Protocol, ServerId, Settings};
use quorate_wire::{ClientId, Principal};

use crate::client_profile::{ClientProfile, Part};
use crate::guest::{self, Guest};
use crate::history::{History, Operation, OperationKind, Rogue};
use crate::keys::{Jobs, Keys, Wallet};
use crate::machines::{Event, Machines, Payload};
use crate::model::{Costs, Model, UNIT, ticks};
use crate::placement::Placement;
use crate::profile::{Behaviour, Group, Scene};
use crate::rng::Rng;
use crate::rogue::Actor;

/// Calls of a machine: an operation begins, a client with a script acts, a client is stopped.
const INVOKE: u64 = 0;
const ACT: u64 = 1;
const STOP: u64 = 2;
/// How long a client with a script rests between acts: its own time, stretched to that of machines of 2006.
const REST: u64 = 40;
/// An operation that takes longer never ends.
const LONGEST: u64 = 60_000 * UNIT;
/// When a client is stopped.
const STOP_AFTER: u64 = 100 * UNIT;

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
    /// Messages that an undisturbed operation does not have (`extra_msgs`): VALs beyond one of each server, and messages
    /// of a write-back. Below zero as long as servers have not answered.
    pub extra: i64,
}

impl Measured {
    /// Returns an operation that has not ended.
    pub fn begun(kind: OperationKind, settings: &Settings) -> Self {
        let listens = matches!(settings.protocol, Protocol::MinimalC | Protocol::MinimalF);
        let n = i64::try_from(settings.thresholds.servers().count()).unwrap_or(i64::MAX);
        let extra = if kind == OperationKind::Read && listens { -n } else { 0 };
        Self { latency: f64::NAN, path: Path::Fast, listener_any: false, extra }
    }
}

/// Returns what a message that a client receives adds to `extra`, and whether it is a forwarded store.
pub fn received(body: &Body) -> (i64, bool) {
    if let Body::Val { forwarded, .. } = body { (1, *forwarded) } else { (0, false) }
}

/// Returns what a message that a client sends, in an operation of this kind, adds to `extra`.
pub fn sent(kind: OperationKind, body: &Body) -> i64 {
    let writes_back = matches!(body, Body::Store { .. } | Body::Write { .. });
    i64::from(kind == OperationKind::Read && writes_back)
}

/// What a client does in a loop.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) kind: OperationKind,
    /// Ticks between operations.
    pub(crate) think: u64,
    /// Operations; 0: as long as the measured client runs.
    pub(crate) operations: usize,
}

/// What a handler wants, once its cryptography is done.
struct Work {
    sends: VecDeque<(usize, Message)>,
    done: Option<Outcome>,
}

struct Host {
    me: Principal,
    process: Box<dyn Process + Send>,
    behaviour: Option<Box<dyn Behaviour>>,
    /// A client with a script, in the place of the process.
    actor: Option<Box<dyn Actor>>,
    job: Option<Loop>,
    /// When the operation began, and its place in the history, which has those of good clients only.
    started: Option<(u64, Option<usize>)>,
    finished: usize,
    /// Why its last operation has no result.
    failed: Option<Failure>,
    samples: Vec<Measured>,
}

impl Payload for Message {
    fn bytes(&self) -> usize {
        self.encoded_len()
    }
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
}

/// One cell under way.
pub(crate) struct Lab {
    settings: Arc<Settings>,
    guest: Option<Guest>,
    machines: Machines<Message, Work>,
    costs: Costs,
    placement: Placement,
    keys: Keys,
    group: Group,
    hosts: Vec<Host>,
    numbers: BTreeMap<u64, usize>,
    written: u64,
    jobs: Jobs,
    pub(crate) history: History,
}

impl Lab {
    pub(crate) fn new(
        (settings, guest): (Settings, Option<Guest>),
        (model, costs, placement): (Model, Costs, Placement),
        seed: u64,
    ) -> Self {
        let settings = Arc::new(settings);
        let mut lab = Self {
            guest,
            machines: Machines::new(model, Rng::new(seed, 1)),
            costs,
            placement,
            keys: Keys::table(),
            group: Group::default(),
            hosts: Vec::new(),
            numbers: BTreeMap::new(),
            written: 0,
            jobs: Jobs::default(),
            history: History::default(),
            settings: Arc::clone(&settings),
        };
        for server in settings.thresholds.servers() {
            let process = guest::server(guest, server, &settings, quorate_quorum::Past::Whole);
            let machine = placement.of_server(usize::from(server.0));
            lab.add(server.into(), process, None, machine);
        }
        lab
    }

    fn add(
        &mut self,
        me: Principal,
        process: Box<dyn Process + Send>,
        job: Option<Loop>,
        machine: usize,
    ) -> usize {
        self.numbers.insert(me.to_wire(), self.hosts.len());
        self.hosts.push(Host {
            me,
            process,
            behaviour: None,
            actor: None,
            job,
            started: None,
            finished: 0,
            failed: None,
            samples: Vec::new(),
        });
        self.machines.add_on(machine)
    }

    /// Makes a server lie from now on.
    pub(crate) fn corrupt(&mut self, server: usize, behaviour: Box<dyn Behaviour>) {
        self.group.liars.push(ServerId::at(server));
        self.hosts[server].behaviour = Some(behaviour);
    }

    /// Adds a client, which begins after a delay. The measured one has place 0.
    pub(crate) fn client(&mut self, job: Loop, delay: u64, place: usize) -> usize {
        let number = u64::try_from(self.hosts.len()).unwrap_or(0);
        let me = ClientId::new(number, 0);
        let process = guest::client(self.guest, me, &self.settings);
        let n = self.settings.thresholds.servers().count();
        let host = self.add(me.into(), process, Some(job), self.placement.of_client(place, n));
        self.machines.call(host, delay, INVOKE);
        host
    }

    /// Adds a client that is not good.
    pub(crate) fn rogue(&mut self, profile: ClientProfile, think: u64, place: usize) {
        let part = profile.part(self.settings.protocol, OBJECT);
        let (kind, delay) = (
            if let Part::Behind(_, false) = part { OperationKind::Read } else { OperationKind::Write },
            UNIT / 3,
        );
        let host = self.client(Loop { kind, think, operations: 0 }, delay, place);
        if let Principal::Client(client) = self.hosts[host].me {
            self.history.rogues.push(Rogue { client, stopped: None });
        }
        match part {
            Part::Behind(behaviour, _) => self.hosts[host].behaviour = Some(behaviour),
            Part::Script(actor, stopped) => {
                (self.hosts[host].actor, self.hosts[host].job) = (Some(actor), None);
                self.machines.call(host, delay, ACT);
                if stopped {
                    self.machines.call(host, STOP_AFTER, STOP);
                }
            }
        }
    }

    /// Servers hear that a client is stopped.
    fn stop(&mut self, host: usize) {
        let Principal::Client(client) = self.hosts[host].me else { return };
        for server in 0..self.settings.thresholds.n() {
            self.step(server, &Input::Access { client, allowed: false });
        }
        self.group.stopped.insert(client);
        let time = self.machines.next_number();
        for rogue in self.history.rogues.iter_mut().filter(|rogue| rogue.client == client) {
            rogue.stopped = Some(time);
        }
    }

    /// Gives a client that is idle something new to do.
    pub(crate) fn again(&mut self, host: usize, job: Loop) {
        self.hosts[host].job = Some(job);
        self.hosts[host].finished = 0;
        self.hosts[host].samples.clear();
        self.machines.call(host, 1, INVOKE);
    }

    /// Nothing happens any more: what is counted begins here, and the network serves server 0 first.
    pub(crate) fn settle(&mut self) {
        self.jobs = Jobs::default();
        self.machines.settle();
    }

    /// Returns why an operation of a client has no result.
    pub(crate) fn failed(&self, host: usize) -> Option<Failure> {
        self.hosts[host].failed
    }

    /// Returns what everybody did since it was settled.
    pub(crate) fn traffic(&self) -> Traffic {
        let sent = self.machines.sent();
        Traffic { messages: sent.messages, bytes: sent.bytes, jobs: self.jobs }
    }

    /// Returns what a client measured, without its first operations.
    pub(crate) fn samples(&self, host: usize, warm_up: usize) -> Vec<Measured> {
        self.hosts[host].samples.iter().skip(warm_up).cloned().collect()
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
            if until.is_some_and(|host| self.is_over(host)) {
                return false;
            }
            match self.machines.next_event() {
                None => return until.is_none(),
                Some(Event::Called { host, tag: ACT }) => {
                    self.act(host, |actor, scene| actor.tick(scene));
                }
                Some(Event::Called { host, tag: STOP }) => self.stop(host),
                Some(Event::Called { host, .. }) => self.invoke(host),
                Some(Event::Worked { host, work }) => self.finish(host, work),
                Some(Event::Received { host, from, message }) => self.deliver(host, from, &message),
            }
        }
    }

    /// Says whether the operation of a client has failed, or never ends.
    fn is_over(&self, host: usize) -> bool {
        let Host { failed, started, .. } = &self.hosts[host];
        failed.is_some() || started.is_some_and(|(begun, _)| self.machines.now() - begun > LONGEST)
    }

    fn invoke(&mut self, host: usize) {
        let Some(job) = self.hosts[host].job.clone() else { return };
        let Principal::Client(client) = self.hosts[host].me else { return };
        let (call, value) = match job.kind {
            OperationKind::Read => (Call::Read, Vec::new()),
            OperationKind::Write => {
                self.written += 1;
                // 64 bytes, all different.
                let mut value = vec![0_u8; 64];
                value[..8].copy_from_slice(&self.written.to_le_bytes());
                value[8..16].copy_from_slice(&client.0.to_le_bytes());
                (Call::Write(value.as_slice().into()), value)
            }
        };
        let place = (!self.history.is_rogue(client)).then_some(self.history.operations.len());
        self.hosts[host].started = Some((self.machines.now(), place));
        if place.is_some() {
            let invoked = self.machines.next_number();
            self.history.operations.push(Operation {
                client,
                object: OBJECT,
                kind: job.kind,
                invoked,
                responded: None,
                value,
                version: None,
            });
        }
        self.hosts[host].samples.push(Measured::begun(job.kind, &self.settings));
        self.step(host, &Input::Invoke { object: OBJECT, call });
    }

    fn deliver(&mut self, host: usize, from: usize, message: &Message) {
        if let Some(last) = self.hosts[host].samples.last_mut() {
            let (extra, heard) = received(&message.body);
            (last.extra, last.listener_any) = (last.extra + extra, last.listener_any || heard);
        }
        let from = self.hosts[from].me;
        if self.hosts[host].actor.is_some() {
            return self.act(host, |actor, scene| actor.message(from, message, scene));
        }
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
        let mut behaviour = self.hosts[host].behaviour.take()?;
        let result = self.play(host, |scene| act(&mut behaviour, scene));
        self.hosts[host].behaviour = Some(behaviour);
        Some(result)
    }

    /// Lets a client with a script act.
    fn act(&mut self, host: usize, act: impl FnOnce(&mut Box<dyn Actor>, &mut Scene<'_>)) {
        let Some(mut actor) = self.hosts[host].actor.take() else { return };
        self.play(host, |scene| act(&mut actor, scene));
        self.hosts[host].actor = Some(actor);
    }

    fn play<T>(&mut self, host: usize, act: impl FnOnce(&mut Scene<'_>) -> T) -> T {
        let mut scene = Scene {
            me: self.hosts[host].me,
            now: self.machines.now() / 1000,
            settings: &self.settings,
            rng: &mut self.machines.rng,
            keys: &mut self.keys,
            group: &mut self.group,
            sends: Vec::new(),
            tick: None,
        };
        let result = act(&mut scene);
        let Scene { sends, tick, .. } = scene;
        for (delay, to, message) in sends {
            match self.numbers.get(&to.to_wire()) {
                Some(to) if delay > 0 => self.machines.send_after(host, *to, message, delay * 1000),
                Some(to) => self.machines.send(host, *to, message),
                None => {}
            }
        }
        if let Some(after) = tick {
            self.machines.call(host, after * 1000 * REST, ACT);
        }
        result
    }

    fn step(&mut self, host: usize, input: &Input<'_>) {
        let now = self.machines.now() / 1000;
        let place = &mut self.hosts[host];
        let mut out = Out::default();
        let mut jobs = Jobs::default();
        let mut wallet =
            Wallet { me: place.me, keys: &mut self.keys, rng: &mut self.machines.rng, jobs: &mut jobs };
        place.process.step(now, input.clone(), &mut wallet, &mut out);
        self.jobs.signs += jobs.signs;
        self.jobs.verifies += jobs.verifies;
        let cost = jobs.signs * self.costs.sign + jobs.verifies * self.costs.verify;
        let mut work = Work { sends: VecDeque::new(), done: None };
        for action in out.actions {
            match action {
                Action::Send { to, message } => {
                    if let Some(to) = self.numbers.get(&to.to_wire()) {
                        work.sends.push_back((*to, message));
                    }
                }
                Action::Done { result: Ok(outcome), .. } => work.done = Some(outcome),
                Action::Done { result: Err(failure), .. } => {
                    self.hosts[host].failed = Some(failure);
                }
                Action::Persist(_) | Action::SetTimer { .. } | Action::Reject { .. } => {}
            }
        }
        self.machines.work(host, cost, work);
    }

    /// The cryptography of a handler is done: it sends, and what it completed is complete.
    fn finish(&mut self, host: usize, work: Work) {
        if let Some(outcome) = work.done {
            self.done(host, &outcome);
        }
        for (to, message) in work.sends {
            if let Host { job: Some(job), samples, .. } = &mut self.hosts[host]
                && let Some(last) = samples.last_mut()
            {
                last.extra += sent(job.kind, &message.body);
            }
            let me = self.hosts[to].me;
            if self.hosts[host].behaviour.is_some() {
                self.behave(host, |behaviour, scene| behaviour.outgoing(me, message, scene));
            } else {
                self.machines.send(host, to, message);
            }
        }
    }

    fn done(&mut self, host: usize, outcome: &Outcome) {
        let Some((started, operation)) = self.hosts[host].started.take() else { return };
        let responded = self.machines.next_number();
        if let Some(record) = operation.map(|operation| &mut self.history.operations[operation]) {
            record.responded = Some(responded);
            record.version = Some(outcome.version);
            record.value = outcome.value.to_vec();
        }
        let now = self.machines.now();
        let place = &mut self.hosts[host];
        place.finished += 1;
        if let Some(sample) = place.samples.last_mut() {
            sample.latency = ticks(now - started) / ticks(UNIT);
            sample.path = outcome.path;
        }
        let Some(job) = place.job.clone() else { return };
        if job.operations == 0 || place.finished < job.operations {
            self.machines.call(host, job.think, INVOKE);
        }
    }
}
