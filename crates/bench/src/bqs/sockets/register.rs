//! Servers and clients of registers on the sockets of a cell: the processes and the liars of the simulator.
//!
//! A frame has the kind, the message with its channel counter, the signatures that are longer than the message has room
//! for, and a MAC under the key of the pair.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use quorate_quorum::step::{Call, Outcome};
use quorate_quorum::{Action, Input, Message, Out, Process, Settings};
use quorate_quorum_sim::history::OperationKind;
use quorate_quorum_sim::keys::{Jobs, Keys, Wallet};
use quorate_quorum_sim::lab::{Measured, received, sent};
use quorate_quorum_sim::profile::{Behaviour, Group, Scene};
use quorate_quorum_sim::rng::Rng;
use quorate_wire::{ClientId, Principal};

use super::clock::lock;
use super::rsa::Long;
use super::station::{Ended, OBJECT, Resident, Work};

const MAC_BYTES: usize = 16;

/// What a process begins with.
pub(super) struct Parts {
    pub(super) me: Principal,
    pub(super) process: Box<dyn Process + Send>,
    /// What it does when liars begin.
    pub(super) lies: Option<Box<dyn Behaviour + Send>>,
    pub(super) settings: Arc<Settings>,
    pub(super) keys: Keys,
    /// Signatures that no message has room for.
    pub(super) long: Option<Long>,
    pub(super) group: Arc<Mutex<Group>>,
    pub(super) rng: Rng,
    /// The places of all processes.
    pub(super) places: Arc<BTreeMap<u64, usize>>,
    pub(super) names: Arc<Vec<Principal>>,
}

/// A process. See the module.
pub(super) struct Register {
    me: Principal,
    process: Box<dyn Process + Send>,
    lies: Option<Box<dyn Behaviour + Send>>,
    is_lying: bool,
    settings: Arc<Settings>,
    keys: Keys,
    long: Option<Long>,
    group: Arc<Mutex<Group>>,
    rng: Rng,
    places: Arc<BTreeMap<u64, usize>>,
    names: Arc<Vec<Principal>>,
    counter: u64,
    /// What its client does.
    kind: OperationKind,
}

/// Returns the key of a pair: of a test, for the time of a cell.
fn pair(a: Principal, b: Principal) -> [u8; 32] {
    let (a, b) = (a.to_wire().min(b.to_wire()), a.to_wire().max(b.to_wire()));
    blake3::derive_key("quorate/1/bench/pair", &[a.to_le_bytes(), b.to_le_bytes()].concat())
}

fn mac(a: Principal, b: Principal, bytes: &[u8]) -> [u8; MAC_BYTES] {
    let whole = blake3::keyed_hash(&pair(a, b), bytes);
    whole.as_bytes().first_chunk().copied().unwrap_or_default()
}

impl Register {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { me, process, lies, settings, keys, long, group, rng, places, names } = parts;
        let (is_lying, counter, kind) = (false, 0, OperationKind::Read);
        Self { me, process, lies, is_lying, settings, keys, long, group, rng, places, names, counter, kind }
    }

    fn seal(&mut self, to: Principal, message: &Message) -> Vec<u8> {
        self.counter += 1;
        let mut frame = vec![message.body.kind(), 0, 0, 0, 0];
        message.encode(self.counter, &mut frame);
        let length = u32::try_from(frame.len() - 5).unwrap_or(u32::MAX);
        frame[1..5].copy_from_slice(&length.to_le_bytes());
        if let Some(long) = &self.long {
            long.append(&mut frame);
        }
        let tag = mac(self.me, to, &frame);
        frame.extend_from_slice(&tag);
        frame
    }

    fn open(&mut self, from: Principal, frame: &[u8]) -> Option<Message> {
        let (bytes, tag) = frame.split_at_checked(frame.len().checked_sub(MAC_BYTES)?)?;
        if mac(self.me, from, bytes) != *tag {
            return None;
        }
        let (kind, rest) = bytes.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (body, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        if let Some(long) = &self.long {
            long.learn(body, rest);
        }
        Message::decode(*kind, body).ok().map(|(_, message)| message)
    }

    /// Lets a liar act, and returns what it sends.
    fn lie<T>(
        &mut self,
        now: u64,
        act: impl FnOnce(&mut dyn Behaviour, &mut Scene<'_>) -> T,
    ) -> Option<(T, Sends)> {
        if !self.is_lying {
            return None;
        }
        let behaviour = self.lies.as_mut()?;
        let mut group = lock(&self.group);
        let mut scene = Scene {
            me: self.me,
            now: now / 1000,
            settings: &self.settings,
            rng: &mut self.rng,
            keys: &mut self.keys,
            group: &mut group,
            sends: Vec::new(),
            tick: None,
        };
        let result = act(&mut **behaviour, &mut scene);
        Some((result, scene.sends.into_iter().map(|(_, to, message)| (to, message)).collect()))
    }

    fn put(&mut self, sends: Sends, work: &mut Work) {
        for (to, message) in sends {
            if let Some(place) = self.places.get(&to.to_wire()).copied() {
                let frame = self.seal(to, &message);
                work.sends.push((place, frame));
            }
        }
    }

    fn step(&mut self, now: u64, input: Input<'_>, work: &mut Work) {
        let (mut out, mut jobs) = (Out::default(), Jobs::default());
        let mut wallet = Wallet { me: self.me, keys: &mut self.keys, rng: &mut self.rng, jobs: &mut jobs };
        self.process.step(now / 1000, input, &mut wallet, &mut out);
        (work.signs, work.verifies) = (work.signs + jobs.signs, work.verifies + jobs.verifies);
        for action in out.actions {
            if let Action::Send { to, message } = action {
                work.extra += sent(self.kind, &message.body);
                if self.is_lying {
                    let lies = self.lie(now, |liar, scene| liar.outgoing(to, message, scene));
                    self.put(lies.map(|((), sends)| sends).unwrap_or_default(), work);
                } else {
                    self.put(vec![(to, message)], work);
                }
            } else if let Action::Done { result, .. } = action {
                work.done = result.ok().as_ref().map(ended);
            }
        }
    }
}

type Sends = Vec<(Principal, Message)>;

fn ended(outcome: &Outcome) -> Ended {
    Ended { value: outcome.value.to_vec(), version: Some(outcome.version), path: Some(outcome.path) }
}

impl Resident for Register {
    fn receive(&mut self, now: u64, from: usize, frame: &[u8], work: &mut Work) {
        let Some(from) = self.names.get(from).copied() else { return };
        let Some(message) = self.open(from, frame) else { return };
        (work.extra, work.heard) = received(&message.body);
        if self.is_lying {
            let pass = self.lie(now, |liar, scene| liar.incoming(from, &message, scene));
            let Some((pass, sends)) = pass else { return };
            self.put(sends, work);
            if !pass {
                return;
            }
        }
        self.step(now, Input::Message { from, message: &message }, work);
    }

    fn invoke(&mut self, now: u64, kind: OperationKind, value: &[u8], work: &mut Work) {
        self.kind = kind;
        work.extra = Measured::begun(kind, &self.settings).extra;
        let call = if kind == OperationKind::Write { Call::Write(value.into()) } else { Call::Read };
        self.step(now, Input::Invoke { object: OBJECT, call }, work);
    }

    fn expire(&mut self, _now: u64, _work: &mut Work) {}

    /// Nothing is lost, so nothing is sent again.
    fn due(&self) -> u64 {
        u64::MAX
    }

    fn corrupt(&mut self) {
        self.is_lying = self.lies.is_some();
    }
}

/// Returns the name of a client on the mesh of a cell.
pub(super) fn client(place: usize) -> ClientId {
    ClientId::new(u64::try_from(place).unwrap_or(0), 0)
}
