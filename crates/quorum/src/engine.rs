//! The operation engine of clients (§2.3): one machine for each object, phases that are sent again
//! until they are answered, and answers that count once for each server.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::{ClientId, Principal};

use crate::crypto::Crypto;
use crate::message::{Body, Op};
use crate::mutants::Mutant;
use crate::settings::{Limits, Settings};
use crate::step::{Action, Call, Failure, Input, Out, Outcome, Process, Reject, Timer};
use crate::thresholds::{ServerId, ServerSet};
use crate::version::{ObjectId, Value, Version};

/// What a machine works with during a step.
pub(crate) struct Context<'a> {
    pub(crate) me: ClientId,
    pub(crate) incarnation: u32,
    pub(crate) object: ObjectId,
    /// Some server has refused the present request.
    refused: bool,
    pub(crate) settings: &'a Settings,
    pub(crate) crypto: &'a mut dyn Crypto,
    pub(crate) out: &'a mut Out,
}

impl Context<'_> {
    pub(crate) fn q(&self) -> usize {
        self.settings.thresholds.q()
    }

    pub(crate) fn broadcast(&mut self, body: &Body) {
        self.out.broadcast(self.settings.thresholds.servers(), self.object, body);
    }

    pub(crate) fn done(&mut self, result: Result<Outcome, Failure>) {
        self.out.actions.push(Action::Done { object: self.object, result });
    }

    /// Sets a timer to `wait` and up to a quarter more, so that clients do not march in step.
    pub(crate) fn set_timer(&mut self, timer: Timer, wait: u64) {
        if self.settings.retransmits() {
            let jitter = u64::try_from(self.crypto.random() & 0xffff).unwrap_or(0);
            self.out.timer(timer, wait + wait / 4 * jitter / 0x1_0000);
        }
    }

    /// Notes what a server sent that is not valid. Returns whether it is.
    pub(crate) fn valid(&mut self, from: ServerId, valid: bool) -> bool {
        self.judged(from, valid.then_some(()).ok_or(Reject::BadProof))
    }

    /// Notes why something that a server sent does not count. Returns whether it does.
    pub(crate) fn judged(&mut self, from: ServerId, judged: Result<(), Reject>) -> bool {
        if let Err(reason) = judged {
            self.out.reject(from.into(), reason);
        }
        judged.is_ok()
    }

    /// Says whether some server has refused the present request: then those that have answered are asked again as well, because
    /// they may refuse by now (§15).
    pub(crate) fn is_refused(&self) -> bool {
        self.refused && !self.settings.wrong(Mutant::RefusedAskedOnce)
    }

    pub(crate) fn longer(&self, wait: u64) -> u64 {
        wait.saturating_mul(2).min(self.settings.timing.longest)
    }
}

/// The client side of one object: one protocol's states of an operation.
pub(crate) trait Machine: Default {
    /// Says whether no operation is running.
    fn is_idle(&self) -> bool;
    /// Returns the bytes of the last STORE, if some server has not acknowledged it.
    fn backlog(&self) -> Option<usize> {
        None
    }
    /// Forgets the last STORE, as if this client had ended, unless the write itself still needs it. Says whether it did.
    fn forget_store(&mut self) -> bool {
        false
    }
    /// Returns the request that servers are to answer now.
    fn request(&self) -> Option<Op>;
    /// Ends the operation without a result.
    fn give_up(&mut self, cx: &mut Context<'_>);
    /// Starts an operation. The machine is idle.
    fn invoke(&mut self, call: Call, cx: &mut Context<'_>);
    /// Takes an answer.
    fn message(&mut self, from: ServerId, body: &Body, cx: &mut Context<'_>);
    /// The phase is to be sent again.
    fn again(&mut self, cx: &mut Context<'_>);
    /// The last STORE is to be sent again.
    fn store_again(&mut self, _cx: &mut Context<'_>) {}
}

/// A client: machines for the objects that it has used.
#[derive(Debug)]
pub(crate) struct Engine<M> {
    me: ClientId,
    incarnation: u32,
    settings: Arc<Settings>,
    objects: BTreeMap<ObjectId, Place<M>>,
    /// The objects whose last STORE some server has not acknowledged. The one that has waited longest is the first.
    backlog: VecDeque<ObjectId>,
    /// The bytes of these STOREs.
    backlog_bytes: usize,
}

/// A machine, and which servers have refused its request (§15).
#[derive(Debug, Default)]
struct Place<M> {
    machine: M,
    refused: Option<(Op, ServerSet)>,
}

impl<M: Machine> Place<M> {
    /// Returns the servers that have refused the present request.
    fn refused(&self) -> ServerSet {
        let of = |(op, servers): (Op, ServerSet)| (self.machine.request() == Some(op)).then_some(servers);
        self.refused.and_then(of).unwrap_or_default()
    }
}

impl<M: Machine> Engine<M> {
    pub(crate) fn new(me: ClientId, incarnation: u32, settings: Arc<Settings>) -> Self {
        Self {
            me,
            incarnation,
            settings,
            objects: BTreeMap::new(),
            backlog: VecDeque::new(),
            backlog_bytes: 0,
        }
    }

    /// Runs `act` on the machine of `object`, if there is one.
    fn with(
        &mut self,
        object: ObjectId,
        crypto: &mut dyn Crypto,
        out: &mut Out,
        act: impl FnOnce(&mut M, &mut Context<'_>),
    ) {
        let Some(place) = self.objects.get_mut(&object) else { return };
        let refused = !place.refused().is_empty();
        let machine = &mut place.machine;
        let before = machine.backlog();
        let mut cx = Context {
            me: self.me,
            incarnation: self.incarnation,
            object,
            refused,
            settings: &self.settings,
            crypto,
            out,
        };
        act(machine, &mut cx);
        let after = machine.backlog();
        self.note_backlog(object, before, after);
    }

    fn note_backlog(&mut self, object: ObjectId, before: Option<usize>, after: Option<usize>) {
        if before.is_none() && after.is_some() {
            self.backlog.push_back(object);
        } else if before.is_some() && after.is_none() {
            self.backlog.retain(|other| *other != object);
        }
        self.backlog_bytes = self.backlog_bytes + after.unwrap_or(0) - before.unwrap_or(0);
    }

    /// Makes room for another STORE that some server may never acknowledge: those that have waited longest are not repeated any
    /// more. A quorum has them, and the readers or the servers pass them on, as if this client had ended. Says whether there is room:
    /// what a quorum has not acknowledged stays.
    fn makes_room(&mut self) -> bool {
        let Limits { unacknowledged, unacknowledged_bytes, .. } = self.settings.limits;
        while self.backlog.len() >= unacknowledged || self.backlog_bytes > unacknowledged_bytes {
            let objects = &mut self.objects;
            let forgotten = self.backlog.iter().find_map(|object| {
                let machine = &mut objects.get_mut(object)?.machine;
                let before = machine.backlog();
                machine.forget_store().then_some((*object, before))
            });
            let Some((object, before)) = forgotten else { break };
            self.note_backlog(object, before, None);
        }
        self.backlog.len() < unacknowledged
    }

    /// A server says that the client has no right to its request. The operation ends when no quorum is left: one of those that
    /// say so is correct then.
    fn refused(
        &mut self,
        (from, object, op): (ServerId, ObjectId, Op),
        crypto: &mut dyn Crypto,
        out: &mut Out,
    ) {
        let Some(place) = self.objects.get_mut(&object) else { return };
        if place.machine.request() != Some(op) {
            return out.reject(from.into(), Reject::Stale);
        }
        let mut servers = place.refused();
        servers.insert(from);
        place.refused = Some((op, servers));
        let Settings { thresholds, .. } = &*self.settings;
        let few = self.settings.wrong(Mutant::RefusedByFew);
        if servers.len() >= if few { thresholds.f() } else { thresholds.refusals() } {
            self.with(object, crypto, out, |machine, cx| {
                machine.give_up(cx);
                cx.done(Err(Failure::NotAllowed));
            });
        }
    }

    fn refusal(&mut self, object: ObjectId, call: &Call) -> Option<Failure> {
        let machine = self.objects.get(&object).map(|place| &place.machine);
        if machine.is_some_and(|machine| !machine.is_idle()) {
            return Some(Failure::Busy);
        }
        let Call::Write(value) = call else { return None };
        if value.len() > self.settings.limits.value {
            return Some(Failure::ValueTooLarge);
        }
        let pending = machine.is_some_and(|machine| machine.backlog().is_some());
        (!pending && !self.makes_room()).then_some(Failure::Backlog)
    }
}

impl<M: Machine> Process for Engine<M> {
    fn step(&mut self, _now: u64, input: Input<'_>, crypto: &mut dyn Crypto, out: &mut Out) {
        match input {
            Input::Invoke { object, call } => {
                if let Some(failure) = self.refusal(object, &call) {
                    out.actions.push(Action::Done { object, result: Err(failure) });
                    return;
                }
                self.objects.entry(object).or_default();
                self.with(object, crypto, out, |machine, cx| machine.invoke(call, cx));
            }
            Input::Message { from: Principal::Replica(server), message } => {
                if !self.settings.thresholds.contains(server) {
                    return;
                }
                if let Body::Refused { op } = message.body {
                    return self.refused((server, message.object, op), crypto, out);
                }
                self.with(message.object, crypto, out, |machine, cx| {
                    machine.message(server, &message.body, cx);
                });
            }
            Input::Timer(Timer::Operation(object)) => {
                self.with(object, crypto, out, Machine::again);
            }
            Input::Timer(Timer::Stores(object)) => {
                self.with(object, crypto, out, Machine::store_again);
            }
            Input::Start
            | Input::Message { from: Principal::Client(_), .. }
            | Input::Timer(Timer::Leases | Timer::Relays | Timer::Repair | Timer::Access | Timer::Late)
            | Input::Access { .. } => {}
        }
    }

    /// A client that crashes comes back under a new incarnation or identity.
    fn crash(&mut self) {
        self.objects.clear();
        self.backlog.clear();
        self.backlog_bytes = 0;
    }

    fn backlog(&self) -> usize {
        self.backlog.len()
    }
}

/// One phase: a request that all servers get, again and again until they have answered.
#[derive(Debug)]
pub(crate) struct Round {
    op: Op,
    body: Body,
    skip: ServerSet,
    wait: u64,
}

impl Round {
    /// Sends a request to all servers that are not in `skip`.
    pub(crate) fn start(op: Op, body: Body, skip: ServerSet, cx: &mut Context<'_>) -> Self {
        let round = Self { op, body, skip, wait: cx.settings.timing.first };
        round.send(cx);
        round
    }

    fn send(&self, cx: &mut Context<'_>) {
        let (skip, refused) = (self.skip, cx.is_refused());
        let servers = cx.settings.thresholds.servers().filter(|server| refused || !skip.contains(*server));
        cx.out.broadcast(servers, cx.object, &self.body);
        cx.set_timer(Timer::Operation(cx.object), self.wait);
    }

    /// Returns its operation.
    pub(crate) fn op(&self) -> Op {
        self.op
    }

    /// Notes an answer. False: this server had answered, and does not count twice.
    pub(crate) fn answered(&mut self, server: ServerId) -> bool {
        self.skip.insert(server)
    }

    /// Returns its operation and its request, which its owner repeats from now on.
    pub(crate) fn into_request(self) -> (Op, Body) {
        (self.op, self.body)
    }

    /// Sends it again to those that have not answered.
    pub(crate) fn again(&mut self, cx: &mut Context<'_>) {
        self.wait = cx.longer(self.wait);
        self.send(cx);
    }
}

/// The answers of a phase in their order: the first q that are not discarded count (§1, §3).
#[derive(Debug)]
pub(crate) struct Answers<T> {
    list: Vec<(ServerId, Version, T)>,
    discarded: ServerSet,
}

/// What q counted answers amount to.
pub(crate) struct Chosen<T> {
    pub(crate) version: Version,
    pub(crate) item: T,
    /// All q counted answers carry this version.
    pub(crate) unanimous: bool,
}

impl<T> Default for Answers<T> {
    fn default() -> Self {
        Self { list: Vec::new(), discarded: ServerSet::default() }
    }
}

impl<T: Clone> Answers<T> {
    /// Notes a server's answer, unless the server has answered or was discarded.
    pub(crate) fn add(&mut self, server: ServerId, version: Version, item: T) {
        if !self.discarded.contains(server) && self.list.iter().all(|(other, ..)| *other != server) {
            self.list.push((server, version, item));
        }
    }

    /// Removes a server from this phase.
    pub(crate) fn discard(&mut self, server: ServerId) {
        self.discarded.insert(server);
        self.list.retain(|(other, ..)| *other != server);
    }

    /// Returns the first q answers, if there are q.
    pub(crate) fn counted(&self, q: usize) -> Option<&[(ServerId, Version, T)]> {
        self.list.get(..q)
    }

    /// Returns all answers.
    pub(crate) fn all(&self) -> &[(ServerId, Version, T)] {
        &self.list
    }

    /// Lazy verification (§3): takes the largest of q counted answers; if it is not valid, discards
    /// its server and counts the next answer instead.
    pub(crate) fn choose(
        &mut self,
        q: usize,
        mut valid: impl FnMut(ServerId, Version, &T) -> bool,
    ) -> Option<Chosen<T>> {
        loop {
            let counted = self.list.get(..q)?;
            let (server, version, item) = counted.iter().max_by_key(|(_, version, _)| *version)?;
            if valid(*server, *version, item) {
                let unanimous = counted.iter().all(|(_, other, _)| other == version);
                return Some(Chosen { version: *version, item: item.clone(), unanimous });
            }
            let server = *server;
            self.discard(server);
        }
    }
}

/// The result of an operation that held no candidates.
pub(crate) fn outcome(version: Version, value: Value, path: crate::step::Path, phases: u8) -> Outcome {
    Outcome { version, value, path, phases, candidates: 0 }
}
