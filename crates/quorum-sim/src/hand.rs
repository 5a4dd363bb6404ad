//! A cluster whose messages are delivered by hand: for schedules that are written out (§17).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quorate_quorum::crypto::{Signature, Statement};
use quorate_quorum::step::{Call, Failure, Outcome};
use quorate_quorum::version::{ObjectId, Value};
use quorate_quorum::{
    Action, Body, Input, Message, Mutant, Out, Process, Protocol, ServerId, Settings, Thresholds, Timer,
};
use quorate_wire::{ClientId, Principal, ReplicaId};

use crate::checker;
use crate::history::{History, Operation, OperationKind};
use crate::keys::{Jobs, Keys, Wallet};
use crate::rng::Rng;

/// The object of every scenario.
pub const OBJECT: ObjectId = ObjectId([4; 32]);

/// A message on its way.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Who sent it.
    pub from: Principal,
    /// Whom it is for.
    pub to: Principal,
    /// What it is.
    pub message: Message,
}

impl Packet {
    /// Says whether it goes between a client and one of these servers.
    pub fn between(&self, client: ClientId, servers: &[u16]) -> bool {
        let client = Principal::from(client);
        let among =
            |end: Principal| servers.iter().any(|server| end == Principal::Replica(ReplicaId(*server)));
        (self.from == client && among(self.to)) || (self.to == client && among(self.from))
    }

    /// Says whether it goes to this server.
    pub fn is_to(&self, server: u16) -> bool {
        self.to == Principal::Replica(ReplicaId(server))
    }
}

/// Where a scenario is played: with which bug, and what was seen.
#[derive(Clone, Debug, Default)]
pub struct Stage {
    /// The bug that is planted.
    pub mutant: Option<Mutant>,
    /// The lines of the trace.
    pub lines: Vec<String>,
}

/// Four servers and some clients.
pub struct Hand<'a> {
    settings: Arc<Settings>,
    keys: Keys,
    rng: Rng,
    hosts: BTreeMap<u64, Box<dyn Process + Send>>,
    timers: BTreeSet<(u64, Timer)>,
    running: BTreeMap<ClientId, usize>,
    results: BTreeMap<ClientId, Vec<Result<Outcome, Failure>>>,
    time: u64,
    /// What is on its way.
    pub pool: Vec<Packet>,
    /// What clients were told.
    pub history: History,
    trace: &'a mut Vec<String>,
}

/// Returns the client with this number, from 1.
pub fn client(number: u64) -> ClientId {
    ClientId::new(number, 0)
}

/// Returns the server with this number, from 0.
pub fn server(number: u16) -> Principal {
    Principal::Replica(ReplicaId(number))
}

/// Returns a value.
pub fn value(text: &str) -> Value {
    text.as_bytes().into()
}

impl<'a> Hand<'a> {
    /// Returns four servers (f = 1) without any traffic.
    pub fn new(
        protocol: Protocol,
        stage: &'a mut Stage,
        adjust: impl FnOnce(&mut Settings),
    ) -> Result<Self, String> {
        let thresholds = Thresholds::tolerating(1).map_err(|error| error.to_string())?;
        let mut settings = Settings::new(thresholds, protocol);
        settings.complete = false;
        settings.late = false;
        adjust(&mut settings);
        if let Some(mutant) = stage.mutant {
            settings = settings
                .planted(mutant)
                .ok_or("this build has no mutants: build it with the feature `mutants`")?;
        }
        let settings = Arc::new(settings);
        let mut hand = Self {
            settings: Arc::clone(&settings),
            keys: Keys::table(),
            rng: Rng::new(1, 1),
            hosts: BTreeMap::new(),
            timers: BTreeSet::new(),
            running: BTreeMap::new(),
            results: BTreeMap::new(),
            time: 0,
            pool: Vec::new(),
            history: History::default(),
            trace: &mut stage.lines,
        };
        for server in thresholds.servers() {
            let process = quorate_quorum::server(server, Arc::clone(&settings), quorate_quorum::Past::Whole);
            hand.hosts.insert(Principal::from(server).to_wire(), process);
        }
        Ok(hand)
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Signs as anybody: scenarios do it for liars and for clients that are not good.
    pub fn sign(&mut self, signer: impl Into<Principal>, statement: &Statement) -> Signature {
        self.keys.sign(signer.into(), &OBJECT, statement)
    }

    /// The same about another object.
    pub fn sign_about(
        &mut self,
        object: ObjectId,
        signer: impl Into<Principal>,
        statement: &Statement,
    ) -> Signature {
        self.keys.sign(signer.into(), &object, statement)
    }

    /// Returns the time of the history.
    pub fn now(&self) -> u64 {
        self.time
    }

    /// A good client asks for an operation.
    pub fn invoke(&mut self, client: ClientId, call: Call) {
        self.time += 1;
        let (kind, value) = match &call {
            Call::Read => (OperationKind::Read, Vec::new()),
            Call::Write(value) => (OperationKind::Write, value.to_vec()),
        };
        let name = match kind {
            OperationKind::Read => "read".to_string(),
            OperationKind::Write => format!("write {}", String::from_utf8_lossy(&value)),
        };
        self.trace.push(format!("{client} {name}"));
        self.running.insert(client, self.history.operations.len());
        self.history.operations.push(Operation {
            client,
            object: OBJECT,
            kind,
            invoked: self.time,
            responded: None,
            value,
            version: None,
        });
        let settings = Arc::clone(&self.settings);
        self.hosts
            .entry(Principal::from(client).to_wire())
            .or_insert_with(|| quorate_quorum::client(client, 1, settings));
        self.step(client.into(), &Input::Invoke { object: OBJECT, call });
    }

    fn step(&mut self, host: Principal, input: &Input<'_>) {
        let Some(process) = self.hosts.get_mut(&host.to_wire()) else { return };
        let mut out = Out::default();
        let mut jobs = Jobs::default();
        let mut wallet = Wallet { me: host, keys: &mut self.keys, rng: &mut self.rng, jobs: &mut jobs };
        process.step(self.time, input.clone(), &mut wallet, &mut out);
        for action in out.actions {
            match action {
                Action::Send { to, message } => self.pool.push(Packet { from: host, to, message }),
                Action::SetTimer { timer, .. } => _ = self.timers.insert((host.to_wire(), timer)),
                Action::Done { result, .. } => self.done(host, result),
                Action::Reject { reason, .. } => self.trace.push(format!("  {host} rejects: {reason:?}")),
                Action::Persist(_) => {}
            }
        }
    }

    fn done(&mut self, host: Principal, result: Result<Outcome, Failure>) {
        self.time += 1;
        let client = host.as_client();
        let says = match &result {
            Ok(outcome) => {
                format!("{} ({:?})", String::from_utf8_lossy(&outcome.value), outcome.version)
            }
            Err(failure) => format!("{failure:?}"),
        };
        self.trace.push(format!("{client} done: {says}"));
        if let Some(running) = self.running.remove(&client)
            && let Ok(outcome) = &result
        {
            let operation = &mut self.history.operations[running];
            operation.responded = Some(self.time);
            operation.version = Some(outcome.version);
            operation.value = outcome.value.to_vec();
        }
        self.results.entry(client).or_default().push(result);
    }

    /// Delivers what matches, and what follows from it and matches, until nothing does.
    pub fn deliver(&mut self, matches: impl Fn(&Packet) -> bool) {
        while let Some(at) = self.pool.iter().position(&matches) {
            let packet = self.pool.remove(at);
            self.put(&packet);
        }
    }

    /// Delivers one packet.
    pub fn put(&mut self, packet: &Packet) {
        let Packet { from, to, message } = packet;
        self.trace.push(format!("  {from} -> {to}: {}", message.body.name()));
        self.step(*to, &Input::Message { from: *from, message });
    }

    /// Delivers everything between a client and these servers.
    pub fn exchange(&mut self, client: ClientId, servers: &[u16]) {
        self.deliver(|packet| packet.between(client, servers));
    }

    /// Loses what matches.
    pub fn lose(&mut self, matches: impl Fn(&Packet) -> bool) {
        self.pool.retain(|packet| !matches(packet));
    }

    /// Sends a message by hand and delivers it.
    pub fn tell(&mut self, from: impl Into<Principal>, to: Principal, body: Body) {
        let message = Message { object: OBJECT, body };
        self.put(&Packet { from: from.into(), to, message });
    }

    /// The same about another object.
    pub fn tell_about(&mut self, object: ObjectId, from: impl Into<Principal>, to: Principal, body: Body) {
        let message = Message { object, body };
        self.put(&Packet { from: from.into(), to, message });
    }

    /// Lets every timer of a process run out once.
    pub fn fire(&mut self, host: impl Into<Principal>) {
        let host = host.into();
        let due: Vec<Timer> =
            self.timers.iter().filter(|(of, _)| *of == host.to_wire()).map(|(_, timer)| *timer).collect();
        for timer in due {
            self.timers.remove(&(host.to_wire(), timer));
            self.trace.push(format!("{host} timer"));
            self.step(host, &Input::Timer(timer));
        }
    }

    /// A server hears that a client may not write any more.
    pub fn revoke(&mut self, number: u16, client: ClientId) {
        self.trace.push(format!("r{number} hears that {client} may not write"));
        self.step(server(number), &Input::Access { client, allowed: false });
    }

    /// A client process ends.
    pub fn end(&mut self, client: ClientId) {
        self.hosts.remove(&Principal::from(client).to_wire());
        self.trace.push(format!("{client} ends"));
    }

    /// A server crashes and starts again with what is durable.
    pub fn restart(&mut self, number: u16) {
        if let Some(process) = self.hosts.get_mut(&u64::from(number)) {
            process.crash();
        }
        self.timers.retain(|(host, _)| *host != u64::from(number));
        self.trace.push(format!("r{number} restarts"));
        self.step(server(number), &Input::Start);
    }

    /// A server loses its disk and starts again.
    pub fn wipe(&mut self, number: u16) {
        let process = quorate_quorum::server(
            ServerId::at(number.into()),
            Arc::clone(&self.settings),
            quorate_quorum::Past::Repaired,
        );
        self.hosts.insert(u64::from(number), process);
        self.trace.push(format!("r{number} loses its disk"));
        self.step(server(number), &Input::Start);
    }

    /// Returns what the last operation of a client returned.
    pub fn last(&self, client: ClientId) -> Option<&Result<Outcome, Failure>> {
        self.results.get(&client)?.last()
    }

    /// Returns how many operations of a client have ended.
    pub fn ended(&self, client: ClientId) -> usize {
        self.results.get(&client).map_or(0, Vec::len)
    }

    /// Requires that the last operation of a client has returned this value.
    pub fn expect(&self, client: ClientId, text: &str) -> Result<(), String> {
        match self.last(client) {
            Some(Ok(outcome)) if !self.running.contains_key(&client) => {
                let got = String::from_utf8_lossy(&outcome.value);
                if got == text { Ok(()) } else { Err(format!("{client} got {got:?} instead of {text:?}")) }
            }
            Some(Err(failure)) => Err(format!("an operation of {client} failed: {failure:?}")),
            _ => Err(format!("hang: an operation of {client} has not ended")),
        }
    }

    /// Returns the bodies of what is on its way from one to another.
    pub fn sent(&self, from: impl Into<Principal>, to: Principal) -> Vec<Body> {
        let from = from.into();
        let packets = self.pool.iter().filter(|packet| packet.from == from && packet.to == to);
        packets.map(|packet| packet.message.body.clone()).collect()
    }

    /// Checks the history by versions, by values and by search.
    pub fn check(&self) -> Result<(), String> {
        checker::check(&self.history)?;
        if self.history.rogues.is_empty() { checker::general::check(&self.history) } else { Ok(()) }
    }
}
