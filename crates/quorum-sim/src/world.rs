//! One simulated cluster: events in order, and everything random from the seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use quorate_quorum::accusation::{Collector, Witness};
use quorate_quorum::step::{Call, Failure, Outcome, Reject};
use quorate_quorum::version::ObjectId;
use quorate_quorum::{Action, Input, Message, Out, ServerId, Settings, Timer};
use quorate_wire::{ClientId, Principal};

use crate::guest::{self, Guest};
use crate::history::{History, Operation, OperationKind, Rogue};
use crate::keys::{Jobs, Keys, Wallet};
use crate::network::Network;
use crate::profile::{Behaviour, Group, Scene};
use crate::rng::Rng;
use crate::rogue::Actor;

mod checks;
mod counts;
mod host;

use host::{Host, Part, Plan};

pub use counts::{Counts, End};

/// What happens next.
#[derive(Debug)]
enum Event {
    Deliver { to: usize, from: Principal, counter: u64, message: Box<Message> },
    Timer { host: usize, timer: Timer, generation: u64 },
    Invoke { host: usize },
    Tick { host: usize },
    Crash { host: usize, down: u64 },
    Restart { host: usize },
    Stop { host: usize },
    Revoke { server: usize, client: ClientId },
}

/// One simulated cluster.
pub struct World {
    pub(crate) settings: Arc<Settings>,
    /// Another register in the place of the settings'.
    guest: Option<Guest>,
    pub(crate) rng: Rng,
    pub(crate) keys: Keys,
    pub(crate) group: Group,
    pub(crate) history: History,
    pub(crate) counts: Counts,
    /// Retransmissions end here: an operation that is running then is hung.
    pub(crate) deadline: u64,
    network: Network,
    now: u64,
    sequence: u64,
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<Event>>,
    free: Vec<usize>,
    hosts: Vec<Host>,
    waiting: usize,
    wrong: Option<String>,
    /// The number of each server's access list.
    lists: Vec<u64>,
    /// Good clients whose writes may be refused.
    unsure: Vec<ClientId>,
}

impl World {
    /// Returns a world without hosts.
    pub fn new(settings: Arc<Settings>, network: Network, keys: Keys, rng: Rng) -> Self {
        Self {
            settings,
            guest: None,
            rng,
            keys,
            group: Group::default(),
            history: History::default(),
            counts: Counts::default(),
            deadline: u64::MAX,
            network,
            now: 0,
            sequence: 0,
            heap: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            hosts: Vec::new(),
            waiting: 0,
            wrong: None,
            lists: Vec::new(),
            unsure: Vec::new(),
        }
    }

    /// From now on, what is added is of another register.
    pub(crate) fn invite(&mut self, guest: Option<Guest>) {
        self.guest = guest;
    }

    /// Returns what good clients were told.
    pub fn history(&self) -> &History {
        &self.history
    }

    fn add(&mut self, me: Principal, part: Part) -> usize {
        self.hosts.push(Host {
            me,
            part,
            timers: BTreeMap::new(),
            generation: 0,
            plan: Plan::default(),
            disk: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            incoming: BTreeMap::new(),
            jobs: Jobs::default(),
            collector: Collector::default(),
        });
        self.hosts.len() - 1
    }

    /// Adds the servers, in their order, before any client.
    pub fn server(&mut self, behaviour: Option<Box<dyn Behaviour>>) {
        let me = ServerId::at(self.hosts.len());
        let process = guest::server(self.guest, me, &self.settings, quorate_quorum::Past::Whole);
        self.add(me.into(), Part::Process { process, behaviour, up: true });
    }

    /// Adds a client with its operations. One with a behaviour is not good.
    pub fn client(
        &mut self,
        me: ClientId,
        calls: Vec<(ObjectId, Call)>,
        behaviour: Option<Box<dyn Behaviour>>,
    ) {
        let process = guest::client(self.guest, me, &self.settings);
        if behaviour.is_some() {
            self.history.rogues.push(Rogue { client: me, stopped: None });
        } else {
            self.waiting += calls.len();
        }
        let think = self.rng.between(1, 400);
        let host = self.add(me.into(), Part::Process { process, behaviour, up: true });
        self.hosts[host].plan = Plan { calls, next: 0, running: None, think };
        let after = self.rng.below(400);
        self.after(after, Event::Invoke { host });
    }

    /// Adds a client that follows a script of its own; after `stop` its requests are refused.
    pub fn actor(&mut self, me: ClientId, actor: Box<dyn Actor>, stop: Option<u64>) {
        self.history.rogues.push(Rogue { client: me, stopped: None });
        let host = self.add(me.into(), Part::Actor(actor));
        self.after(1, Event::Tick { host });
        if let Some(stop) = stop {
            self.after(stop, Event::Stop { host });
        }
    }

    /// A server crashes at `at`, and starts again after `down`.
    pub fn crash(&mut self, host: usize, at: u64, down: u64) {
        self.after(at, Event::Crash { host, down });
    }

    /// A server loses its disk at `at`.
    pub fn wipe(&mut self, host: usize) {
        let me = ServerId::at(host);
        let lost = quorate_quorum::server(me, Arc::clone(&self.settings), quorate_quorum::Past::Repaired);
        if let Part::Process { process, .. } = &mut self.hosts[host].part {
            *process = lost;
        }
        self.hosts[host].disk.clear();
        self.counts.wipes += 1;
        self.step(host, &Input::Start);
    }

    /// A client may not write any more: a server hears of it at `at`.
    pub fn revoke(&mut self, server: usize, client: ClientId, at: u64) {
        self.after(at, Event::Revoke { server, client });
    }

    fn after(&mut self, delay: u64, event: Event) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(event);
        self.sequence += 1;
        self.heap.push(Reverse((self.now.saturating_add(delay), self.sequence, place)));
    }

    /// Runs until every good operation has ended or can never end.
    pub fn run(&mut self) -> End {
        for host in 0..self.hosts.len() {
            self.step(host, &Input::Start);
        }
        while (self.waiting > 0 || !self.lists_are_spread()) && self.wrong.is_none() {
            let Some(Reverse((now, _, place))) = self.heap.pop() else { break };
            if now > self.deadline {
                break;
            }
            self.now = now;
            self.counts.events += 1;
            let Some(event) = self.events[place].take() else { continue };
            self.free.push(place);
            self.perform(event);
        }
        if let Some(wrong) = self.wrong.take() {
            return End::Wrong(wrong);
        }
        if self.waiting == 0 && self.lists_are_spread() {
            return End::Complete;
        }
        if self.waiting == 0 {
            return End::Wrong(format!("an access list does not reach all servers: {:?}", self.lists));
        }
        let pending = self.history.operations.iter().filter(|operation| operation.responded.is_none());
        End::Hung(pending.map(|one| format!("{:?} by {}", one.kind, one.client)).collect())
    }

    fn perform(&mut self, event: Event) {
        match event {
            Event::Deliver { to, from, counter, message } => self.deliver(to, from, counter, &message),
            Event::Timer { host, timer, generation } => {
                if self.hosts[host].timers.get(&timer) == Some(&generation) {
                    self.hosts[host].timers.remove(&timer);
                    self.step(host, &Input::Timer(timer));
                }
            }
            Event::Invoke { host } => self.invoke(host),
            Event::Tick { host } => self.act(host, None),
            Event::Crash { host, down } => {
                if let Part::Process { process, up, .. } = &mut self.hosts[host].part {
                    process.crash();
                    *up = false;
                    self.hosts[host].timers.clear();
                    self.after(down, Event::Restart { host });
                }
            }
            Event::Restart { host } => {
                let Host { part, disk, .. } = &mut self.hosts[host];
                if let Part::Process { process, up, .. } = part {
                    *up = true;
                    for (object, saved) in disk {
                        let loaded = process.load(*object, saved);
                        assert!(loaded.is_ok(), "a server reads its own disk");
                    }
                    self.counts.restarts += 1;
                    self.step(host, &Input::Start);
                }
            }
            Event::Revoke { server, client } => {
                self.step(server, &Input::Access { client, allowed: false });
            }
            Event::Stop { host } => {
                let Principal::Client(client) = self.hosts[host].me else { return };
                for server in 0..self.settings.thresholds.n() {
                    self.step(server, &Input::Access { client, allowed: false });
                }
                self.counts.stops += 1;
                self.group.stopped.insert(client);
                let time = self.tick();
                for rogue in &mut self.history.rogues {
                    if rogue.client == client {
                        rogue.stopped = Some(time);
                    }
                }
            }
        }
    }

    /// Returns the next time of the history: no two events have the same.
    fn tick(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn deliver(&mut self, to: usize, from: Principal, counter: u64, message: &Message) {
        if !self.hosts[to].incoming.entry(from.to_wire()).or_default().accept(counter) {
            self.counts.replays += 1;
            return;
        }
        self.counts.messages += 1;
        let honest = self.is_correct(from);
        if honest && self.counts.messages.is_multiple_of(61) && !Self::encodes(counter, message) {
            self.wrong = Some(format!("{} does not encode canonically", message.body.name()));
        }
        let host = &mut self.hosts[to];
        if matches!(host.part, Part::Actor(_)) {
            return self.act(to, Some((from, message)));
        }
        if let Part::Process { behaviour: Some(behaviour), up: true, .. } = &mut host.part {
            let mut scene = Scene {
                me: host.me,
                now: self.now,
                settings: &self.settings,
                rng: &mut self.rng,
                keys: &mut self.keys,
                group: &mut self.group,
                sends: Vec::new(),
                tick: None,
            };
            let pass = behaviour.incoming(from, message, &mut scene);
            let sends = scene.sends;
            self.send_all(to, sends);
            if !pass {
                return;
            }
        }
        self.step(to, &Input::Message { from, message });
    }

    /// Says whether this is a process without a behaviour of its own.
    fn is_correct(&self, principal: Principal) -> bool {
        let host = self.index_of(principal).and_then(|index| self.hosts.get(index));
        host.is_some_and(|host| matches!(host.part, Part::Process { behaviour: None, .. }))
    }

    fn act(&mut self, host: usize, heard: Option<(Principal, &Message)>) {
        let place = &mut self.hosts[host];
        let Part::Actor(actor) = &mut place.part else { return };
        let mut scene = Scene {
            me: place.me,
            now: self.now,
            settings: &self.settings,
            rng: &mut self.rng,
            keys: &mut self.keys,
            group: &mut self.group,
            sends: Vec::new(),
            tick: None,
        };
        match heard {
            Some((from, message)) => actor.message(from, message, &mut scene),
            None => actor.tick(&mut scene),
        }
        let (sends, tick) = (scene.sends, scene.tick);
        self.send_all(host, sends);
        if let Some(after) = tick {
            self.after(after, Event::Tick { host });
        }
    }

    fn invoke(&mut self, host: usize) {
        let plan = &mut self.hosts[host].plan;
        let Some((object, call)) = plan.calls.get(plan.next).cloned() else { return };
        plan.next += 1;
        let Principal::Client(client) = self.hosts[host].me else { return };
        if !self.history.is_rogue(client) {
            let invoked = self.tick();
            let (kind, value) = match &call {
                Call::Read => (OperationKind::Read, Vec::new()),
                Call::Write(value) => (OperationKind::Write, value.to_vec()),
            };
            self.hosts[host].plan.running = Some(self.history.operations.len());
            self.history.operations.push(Operation {
                client,
                object,
                kind,
                invoked,
                responded: None,
                value,
                version: None,
            });
        }
        self.step(host, &Input::Invoke { object, call });
    }

    fn step(&mut self, host: usize, input: &Input<'_>) {
        let place = &mut self.hosts[host];
        let Part::Process { process, up: true, .. } = &mut place.part else { return };
        let mut out = Out::default();
        let mut wallet =
            Wallet { me: place.me, keys: &mut self.keys, rng: &mut self.rng, jobs: &mut place.jobs };
        process.step(self.now, input.clone(), &mut Witness::new(&mut wallet, &mut place.collector), &mut out);
        if let Input::Message { message, .. } = input {
            let refused = out.actions.iter().any(|action| {
                matches!(action, Action::Reject { reason: Reject::BadProof | Reject::NotSuccessor, .. })
            });
            place.collector.stepped(message, refused, &self.settings, &mut wallet);
            let (by_client, found) = (matches!(place.me, Principal::Client(_)), place.collector.take());
            for accusation in found {
                self.judge(&accusation);
                self.counts.found_by_clients += u64::from(by_client);
            }
        }
        if !self.group.lists.is_empty() {
            let time = self.tick();
            self.note_list(host, time);
        }
        for action in out.actions {
            match action {
                Action::Send { to, message } => self.send(host, to, message),
                Action::Persist(object) => {
                    let Host { part: Part::Process { process, .. }, disk, .. } = &mut self.hosts[host] else {
                        continue;
                    };
                    let mut saved = Vec::new();
                    process.save(&object, &mut saved);
                    disk.insert(object, saved);
                }
                Action::SetTimer { timer, after } => {
                    let place = &mut self.hosts[host];
                    place.generation += 1;
                    let generation = place.generation;
                    place.timers.insert(timer, generation);
                    self.after(after.max(1), Event::Timer { host, timer, generation });
                }
                Action::Done { result, .. } => self.done(host, result),
                Action::Reject { .. } => self.counts.rejects += 1,
            }
        }
    }

    fn done(&mut self, host: usize, result: Result<Outcome, Failure>) {
        let think = self.rng.below(self.hosts[host].plan.think * 2);
        self.after(think, Event::Invoke { host });
        let Some(running) = self.hosts[host].plan.running.take() else { return };
        self.waiting -= 1;
        let time = self.tick();
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(Failure::NotAllowed | Failure::Unfinished) if self.may_be_refused(running) => {
                self.counts.refused += 1;
                return;
            }
            Err(failure) => {
                self.wrong = Some(format!("an operation of {} failed: {failure:?}", self.hosts[host].me));
                return;
            }
        };
        let most = self.settings.thresholds.weak();
        if usize::from(outcome.candidates) > most {
            self.wrong = Some(format!("a read held {} candidates, at most {most}", outcome.candidates));
        }
        self.counts.done += 1;
        match outcome.path {
            quorate_quorum::step::Path::WriteBack => self.counts.write_backs += 1,
            quorate_quorum::step::Path::ListenerNeeded => self.counts.listeners += 1,
            quorate_quorum::step::Path::TwoPhase => self.counts.two_phases += 1,
            quorate_quorum::step::Path::Fast | quorate_quorum::step::Path::ThreePhase => {}
        }
        let operation = &mut self.history.operations[running];
        operation.responded = Some(time);
        operation.version = Some(outcome.version);
        operation.value = outcome.value.to_vec();
    }

    /// Sends what a process wants to send, or what its behaviour makes of it.
    fn send(&mut self, host: usize, to: Principal, message: Message) {
        let place = &mut self.hosts[host];
        if let Part::Process { behaviour: Some(behaviour), .. } = &mut place.part {
            let mut scene = Scene {
                me: place.me,
                now: self.now,
                settings: &self.settings,
                rng: &mut self.rng,
                keys: &mut self.keys,
                group: &mut self.group,
                sends: Vec::new(),
                tick: None,
            };
            behaviour.outgoing(to, message, &mut scene);
            let sends = scene.sends;
            self.send_all(host, sends);
        } else {
            self.transmit(host, to, &message, 0);
        }
    }

    fn send_all(&mut self, host: usize, sends: Vec<(u64, Principal, Message)>) {
        for (delay, to, message) in sends {
            self.transmit(host, to, &message, delay);
        }
    }

    fn transmit(&mut self, from: usize, to: Principal, message: &Message, delay: u64) {
        let Some(to) = self.index_of(to) else { return };
        let counter = self.hosts[from].outgoing.entry(to).or_default().advance();
        let me = self.hosts[from].me;
        let arrivals = self.network.carry(self.now, from, to, delay, &mut self.rng);
        if arrivals.is_empty() {
            self.counts.lost += 1;
        }
        for arrival in arrivals {
            let message = Box::new(message.clone());
            self.after(arrival, Event::Deliver { to, from: me, counter, message });
        }
    }

    fn index_of(&self, principal: Principal) -> Option<usize> {
        match principal {
            Principal::Replica(server) => {
                (server.index() < self.settings.thresholds.n()).then_some(server.index())
            }
            Principal::Client(_) => self.hosts.iter().position(|host| host.me == principal),
        }
    }
}
