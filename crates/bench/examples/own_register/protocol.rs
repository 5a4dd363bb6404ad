//! The protocol: the register of Attiya, Bar-Noy and Dolev, with 3f + 1 servers of which f may stop, and none may lie.

use std::collections::BTreeMap;
use std::sync::Arc;

use quorate_quorum::crypto::Crypto;
use quorate_quorum::message::{Op, Proof};
use quorate_quorum::step::{Call, Outcome, Path};
use quorate_quorum::{Action, Body, Input, Message, ObjectId, Out, Past, Process, ServerId, Settings, Timer};
use quorate_quorum::{Value, Version};
use quorate_quorum_sim::guest::Own;
use quorate_wire::codec::Decoded;
use quorate_wire::{ClientId, Principal};

const FSTORE: u8 = 74; // the kind of what is on disk
pub(crate) const ABD: Own = Own { name: "abd", server, client };

fn server(_me: ServerId, _settings: Arc<Settings>, _past: Past) -> Box<dyn Process + Send> {
    Box::new(Server::default())
}

fn client(me: ClientId, incarnation: u32, settings: Arc<Settings>) -> Box<dyn Process + Send> {
    Box::new(Client { me, incarnation, settings, number: 0, running: BTreeMap::new() })
}

fn send(out: &mut Out, to: Principal, object: ObjectId, body: Body) {
    out.actions.push(Action::Send { to, message: Message { object, body } });
}

/// A server keeps the largest version of each object.
#[derive(Default)]
struct Server(BTreeMap<ObjectId, (Version, Value)>);

impl Process for Server {
    fn step(&mut self, _now: u64, input: Input<'_>, _crypto: &mut dyn Crypto, out: &mut Out) {
        let Input::Message { from, message: Message { object, body } } = input else { return };
        let (held, value) = self.0.get(object).cloned().unwrap_or((Version::GENESIS, [].into()));
        let answer = match body {
            Body::Rd { op } => Body::RdVal { op: *op, version: held, value, proof: Proof::default() },
            Body::Store { op, version, value, .. } => {
                if *version > held {
                    self.0.insert(*object, (*version, Arc::clone(value)));
                    out.actions.push(Action::Persist(*object));
                }
                Body::Ack { op: *op, version: *version }
            }
            _ => return,
        };
        send(out, from, *object, answer);
    }

    fn crash(&mut self) {} // everything is on disk: an object is a message that would store it

    fn save(&self, object: &ObjectId, out: &mut Vec<u8>) -> bool {
        let held = self.0.get(object).cloned();
        let body = held.map(|(version, value)| Body::Fstore { version, value, proof: Proof::default() });
        body.map(|body| Message { object: *object, body }.encode(0, out)).is_some()
    }

    fn load(&mut self, object: ObjectId, saved: &[u8]) -> Decoded<()> {
        if let Body::Fstore { version, value, .. } = Message::decode(FSTORE, saved)?.1.body {
            self.0.insert(object, (version, value));
        }
        Ok(())
    }
}

/// An operation under way: what it asks for, and who has answered.
struct Running {
    op: Op,
    asks: Body,
    write: Option<Value>,
    answers: BTreeMap<ServerId, (Version, Value)>,
    chosen: Option<Outcome>,
}

struct Client {
    me: ClientId,
    incarnation: u32,
    settings: Arc<Settings>,
    number: u64,
    running: BTreeMap<ObjectId, Running>,
}

impl Client {
    /// Sends what an operation asks for, and again until its phase is over.
    fn ask(&self, object: ObjectId, out: &mut Out) {
        let Some(running) = self.running.get(&object) else { return };
        for server in self.settings.thresholds.servers() {
            send(out, server.into(), object, running.asks.clone());
        }
        let (timer, after) = (Timer::Operation(object), self.settings.timing.first);
        out.actions.extend((after > 0).then_some(Action::SetTimer { timer, after }));
    }

    /// With q answers, the largest version is chosen, or its successor, and stored at q servers.
    fn answered(&mut self, object: ObjectId, crypto: &mut dyn Crypto, out: &mut Out) -> Option<()> {
        let running = self.running.get_mut(&object)?;
        if running.answers.len() < self.settings.thresholds.q() {
            return None;
        }
        if let Some(chosen) = running.chosen.take() {
            self.running.remove(&object);
            out.actions.push(Action::Done { object, result: Ok(chosen) });
            return None;
        }
        let (mut version, mut value) = running.answers.values().max_by_key(|answer| answer.0)?.clone();
        if let Some(written) = running.write.take() {
            (version, value) = (version.next(self.me, crypto.digest(&written))?, written);
        }
        running.answers.clear();
        running.op.phase = 2;
        let (op, proof) = (running.op, Proof::default());
        running.asks = Body::Store { op, version, value: Arc::clone(&value), proof, write_back: false };
        running.chosen = Some(Outcome { version, value, path: Path::Fast, phases: 2, candidates: 0 });
        self.ask(object, out);
        None
    }
}

impl Process for Client {
    fn step(&mut self, _now: u64, input: Input<'_>, crypto: &mut dyn Crypto, out: &mut Out) {
        match input {
            Input::Invoke { object, call } => {
                self.number += 1;
                let op = Op { incarnation: self.incarnation, number: self.number, phase: 1 };
                let write = if let Call::Write(value) = call { Some(value) } else { None };
                let (asks, answers) = (Body::Rd { op }, BTreeMap::new());
                self.running.insert(object, Running { op, asks, write, answers, chosen: None });
                self.ask(object, out);
            }
            Input::Timer(Timer::Operation(object)) => self.ask(object, out),
            Input::Message { from: Principal::Replica(from), message: Message { object, body } } => {
                let (about, answer) = match body {
                    Body::Ack { op, version } => (op, (*version, [].into())),
                    Body::RdVal { op, version, value, .. } => (op, (*version, Arc::clone(value))),
                    _ => return,
                };
                if let Some(running) = self.running.get_mut(object).filter(|running| running.op == *about) {
                    running.answers.insert(from, answer);
                    self.answered(*object, crypto, out);
                }
            }
            _ => {}
        }
    }

    fn crash(&mut self) {}
}
