//! A client's process without its sockets: many lanes that share one authenticator (CL-1).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use quorate_pbft::client::step::{ClientAction, ClientActions, ClientInput, ClientMilestone, Members, Path};
use quorate_pbft::config::Config;
use quorate_pbft::{Client, Now};
use quorate_process::{Directory, Endpoint, Meter, Part, Transport};
use quorate_service::registry::Table;
use quorate_wire::codec::Reader;
use quorate_wire::frame::Frame;
use quorate_wire::message::{Message, RequestBody, Statement};
use quorate_wire::{
    Admitted, ClientId, Cluster, Digest, Door, DoorError, Principal, ReplicaId, Source, Timestamp, Verified,
};

use self::ledger::{Class, Ledger};
use self::moves::Moves;
use crate::home::timestamps::Timestamps;

pub mod ledger;
mod moves;
mod questions;
#[cfg(test)]
mod tests;

/// One lane of those that wait asks again after so long at most, in nanoseconds.
const ALONE_NS: u64 = 400_000_000;
/// Lanes are told that others are answered no more often than this, in nanoseconds.
const HEARD_NS: u64 = 250_000_000;

/// The keys go to all replicas again no more often than this, however many lanes ask for it, in nanoseconds.
const ANNOUNCE_NS: u64 = 10_000_000;

/// On a crowded machine a lane waits this many times as long before it sends a request again.
const CROWDED_WAITS: u64 = 4;

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has a result.
    Result,
    /// It was done, but its result is longer than what replicas keep, and was lost on its way.
    ResultLost,
    /// The identity was used with later timestamps: whether it was done, nobody can say (RP-5).
    Overtaken,
}

/// A finished operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The lane that invoked it.
    pub lane: u16,
    /// The request's number.
    pub timestamp: Timestamp,
    /// How its result was obtained.
    pub path: Path,
    /// How it ended.
    pub end: End,
    result: Range<usize>,
}

/// Counters of messages. Bounded: one entry for each reason.
#[derive(Clone, Debug, Default)]
pub struct ClientCounters {
    /// Frames received.
    pub received: u64,
    /// Requests sent, each counted once for all replicas.
    pub sent: u64,
    /// Retransmitted requests.
    pub retransmitted: u64,
    /// Frames rejected by the authenticator, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Messages rejected by the client, by reason.
    pub rejected: BTreeMap<&'static str, u64>,
}

/// One lane, and when its timer runs out.
#[derive(Debug)]
struct Lane {
    client: Client,
    deadline: u64,
}

/// The lanes of one client with their authenticator. See the module.
#[derive(Debug)]
pub struct ClientProcess<M: Meter = ()> {
    cluster: Cluster,
    endpoint: Endpoint,
    lanes: Vec<Lane>,
    timestamps: Timestamps,
    /// No lane's timer runs out before this.
    earliest: u64,
    /// Some lane may be waiting for long.
    patient: bool,
    /// When lanes were last told that others are answered.
    heard_at: u64,
    /// With how many replicas no keys have been exchanged.
    keys_missing: usize,
    /// Before this time, the keys are not announced again.
    announce_at: u64,
    /// More threads want to run on this machine than there are cores.
    crowded: bool,
    counters: ClientCounters,
    meter: M,
    done: Vec<Done>,
    results: Vec<u8>,
    /// At most one of each replica.
    statements: Vec<(ReplicaId, Statement)>,
    ledger: Ledger,
    /// None: the addresses are those of the start.
    moves: Option<Moves>,
    /// The time of day at the last tick, in seconds since 1970.
    wall_s: u64,
    // Buffers that are reused in every step.
    actions: ClientActions,
    frame: Vec<u8>,
}

impl<M: Meter> ClientProcess<M> {
    /// Returns `lanes` lanes of the client principal of this authenticator. `first` is above every timestamp that one
    /// of them has ever used.
    pub fn new(
        config: &Config,
        door: Door,
        lanes: u16,
        directory: Directory,
        timestamps: impl Into<Timestamps>,
        meter: M,
    ) -> Self {
        let timestamps = timestamps.into();
        let (first, domains) = (timestamps.next(), Arc::new(config.domains()));
        let principal = door.own().as_client().principal();
        let lanes = (0..lanes).map(|lane| {
            let id = ClientId::new(principal, lane);
            let client = Client::with_domains(id, config, domains.clone(), first, config.seed ^ id.0);
            Lane { client, deadline: u64::MAX }
        });
        Self {
            cluster: config.cluster,
            lanes: lanes.collect(),
            endpoint: Endpoint::new(door, directory),
            timestamps,
            earliest: u64::MAX,
            patient: false,
            heard_at: 0,
            keys_missing: config.cluster.n(),
            announce_at: 0,
            crowded: false,
            counters: ClientCounters::default(),
            meter,
            done: Vec::new(),
            results: Vec::new(),
            statements: Vec::new(),
            ledger: Ledger::default(),
            moves: None,
            wall_s: 0,
            actions: ClientActions::new(),
            frame: Vec::new(),
        }
    }

    /// Starts an operation in a lane without one.
    pub fn invoke(&mut self, now: Now, lane: u16, operation: &[u8], read_only: bool) {
        self.meter.start();
        if let Some(lane) = self.lanes.get_mut(usize::from(lane)) {
            lane.client.raise(self.timestamps.next());
        }
        self.step(now, usize::from(lane), ClientInput::Invoke { operation, read_only });
    }

    /// Takes one datagram, which may hold many frames.
    pub fn receive(&mut self, now: Now, datagram: &[u8]) {
        self.receive_from(now, Source::UNKNOWN, datagram);
    }

    /// Takes one datagram, or what came as one, from `source`. Returns who has made a frame in it that is
    /// authentic.
    #[inline]
    pub fn receive_from(&mut self, now: Now, source: Source, datagram: &[u8]) -> Option<Principal> {
        self.meter.start();
        let (mut reader, mut by) = (Reader::new(datagram), None);
        while !reader.is_empty() {
            self.counters.received += 1;
            let frame = match Frame::take(&mut reader) {
                Ok(frame) => frame,
                Err(error) => {
                    self.refuse(DoorError::from(error).name());
                    return by;
                }
            };
            let admitted = self.endpoint.admit(now.mono_ns, source, &frame);
            by = if admitted.is_ok() { Some(frame.sender) } else { by };
            if let (Ok(Admitted::Message(_)), Principal::Replica(replica)) = (&admitted, frame.sender)
                && let Some(moves) = &mut self.moves
            {
                moves.note_heard(now, replica);
            }
            self.meter.lap(Part::Admit);
            match &admitted {
                Ok(Admitted::Message(message)) => {
                    self.on_message(now, message);
                    // A replica that uses our keys has them.
                    if self.keys_missing > self.cluster.f() {
                        self.count_keys(now);
                    }
                }
                Ok(Admitted::Keys) => {
                    self.send_keys();
                    self.heard(now);
                    self.count_keys(now);
                }
                Err(error) => {
                    self.refuse(error.name());
                    if let DoorError::NotAuthentic(Principal::Replica(replica)) = error {
                        self.accuse(Class::BadMac, *replica);
                    }
                    if matches!(error, DoorError::NoKey(_) | DoorError::NotAuthentic(_)) {
                        self.send_keys(); // it may have missed ours (KX-2)
                    }
                }
            }
        }
        by
    }

    /// Handles the timers that are due at `now`.
    pub fn expire(&mut self, now: Now) {
        self.meter.start();
        if now.mono_ns >= self.earliest {
            for lane in 0..self.lanes.len() {
                if self.lanes[lane].deadline <= now.mono_ns {
                    self.lanes[lane].deadline = u64::MAX;
                    self.step(now, lane, ClientInput::Timer);
                }
            }
            self.earliest = self.lanes.iter().map(|lane| lane.deadline).min().unwrap_or(u64::MAX);
        }
        if now.mono_ns >= self.endpoint.tick_at() {
            self.endpoint.tick(now);
            self.tend_evidence(now);
            self.read_moves(now);
            self.send_keys();
        }
    }

    /// Returns the moment of the monotonic clock at which [`Self::expire`] is due, or earlier.
    #[inline]
    pub fn due(&self) -> u64 {
        self.earliest.min(self.endpoint.tick_at())
    }

    /// Sends everything that may leave.
    #[inline]
    pub fn flush(&mut self, transport: &mut impl Transport) {
        self.endpoint.flush(transport);
    }

    /// Returns the operations that have finished since [`Self::clear_done`].
    pub fn done(&self) -> &[Done] {
        &self.done
    }

    /// Returns the result of a finished operation.
    pub fn result(&self, done: &Done) -> &[u8] {
        self.results.get(done.result.clone()).unwrap_or(&[])
    }

    /// Forgets the finished operations, and keeps the memory.
    pub fn clear_done(&mut self) {
        self.done.clear();
        self.results.clear();
    }

    /// Returns the counters.
    pub fn counters(&self) -> &ClientCounters {
        &self.counters
    }

    /// Says whether more threads want to run on this machine than there are cores. Then answers come late although
    /// nothing is lost, and requests that are sent again are more work for the same cores.
    #[inline]
    pub fn set_crowded(&mut self, crowded: bool) {
        self.crowded = crowded;
    }

    /// Returns the meter.
    pub fn meter(&mut self) -> &mut M {
        &mut self.meter
    }

    fn on_message(&mut self, now: Now, verified: &Verified<Message<'_>>) {
        if let Message::Statement(statement) = verified.message() {
            return self.on_statement(verified.sender(), statement);
        }
        let Message::Reply(reply) = verified.message() else { return self.reject("not-a-reply") };
        let lane = usize::from(reply.client.lane());
        if lane >= self.lanes.len() {
            return self.reject("other-lane");
        }
        let done = self.done.len();
        self.step(now, lane, ClientInput::Message(verified));
        if self.done.len() > done {
            self.heard(now);
        }
    }

    /// A replica has sent or used keys: what was asked without them may be sent again, or has to wait (CL-11).
    #[cold]
    fn count_keys(&mut self, now: Now) {
        let missing = self.endpoint.door_mut().keys_missing();
        if core::mem::replace(&mut self.keys_missing, missing) != missing {
            (0..self.lanes.len()).for_each(|lane| self.step(now, lane, ClientInput::Keys { missing }));
        }
    }

    /// Somebody was answered, or a replica has new keys: lanes that wait for long may ask soon.
    #[inline]
    fn heard(&mut self, now: Now) {
        if self.patient && now.mono_ns >= self.heard_at.saturating_add(HEARD_NS) {
            self.wake_patient(now);
        }
    }

    #[cold]
    fn wake_patient(&mut self, now: Now) {
        (self.patient, self.heard_at) = (false, now.mono_ns);
        let long = now.mono_ns.saturating_add(ALONE_NS);
        for lane in 0..self.lanes.len() {
            if (long..u64::MAX).contains(&self.lanes[lane].deadline) {
                self.step(now, lane, ClientInput::Answered);
            }
        }
    }

    /// Sets a lane's timer. One lane at least asks twice a second, however long all have waited: it finds out for
    /// the others when the cluster is there again.
    fn set_timer(&mut self, now: Now, lane: usize, deadline: u64) {
        let reader = self.moves.as_ref().map(Moves::lane);
        let soon = now.mono_ns.saturating_add(ALONE_NS);
        let waits = if self.crowded { CROWDED_WAITS } else { 1 };
        let wait = deadline.saturating_sub(now.mono_ns).saturating_mul(waits);
        let mut deadline = now.mono_ns.saturating_add(wait);
        // A read that is given up finds nothing out for others.
        if deadline > soon && reader != Some(lane) {
            let others = self.lanes.iter().enumerate();
            let mut others = others.filter(|(other, _)| *other != lane && Some(*other) != reader);
            if others.all(|(_, other)| other.deadline > soon || other.deadline <= now.mono_ns) {
                deadline = soon;
            }
            self.patient = true;
        }
        self.lanes[lane].deadline = deadline;
        self.earliest = self.earliest.min(deadline);
    }

    #[inline]
    fn step(&mut self, now: Now, lane: usize, input: ClientInput<'_>) {
        let Some(Lane { client, .. }) = self.lanes.get_mut(lane) else { return };
        let mut actions = core::mem::take(&mut self.actions);
        client.step(now, input, &mut actions);
        self.meter.lap(Part::Step);
        for action in actions.list() {
            self.perform(now, lane, action, &actions);
        }
        self.actions = actions;
        self.actions.clear();
    }

    fn perform(&mut self, now: Now, lane: usize, action: &ClientAction, actions: &ClientActions) {
        if let Some(moves) = self.moves.as_mut().filter(|moves| moves.lane() == lane) {
            if let ClientAction::Done { result, .. } = action {
                return self.learn_moves(now, actions.bytes(*result));
            }
            if moves.gives_up(now, action) {
                return;
            }
        }
        match action {
            ClientAction::Send { to, timestamp, digest, flags, replier, operation, sign } => {
                let operation = actions.bytes(*operation);
                let body = RequestBody { timestamp: *timestamp, flags: *flags, replier: *replier, operation };
                self.send(lane, *to, &body, digest, *sign);
            }
            ClientAction::SetTimer(deadline) => self.set_timer(now, lane, deadline.0),
            ClientAction::StopTimer => self.lanes[lane].deadline = u64::MAX,
            ClientAction::SendKeys => {
                if now.mono_ns >= self.announce_at {
                    self.announce_at = now.mono_ns.saturating_add(ANNOUNCE_NS);
                    self.endpoint.door_mut().announce();
                }
                self.send_keys();
            }
            ClientAction::Done { timestamp, result, path } => {
                let start = self.results.len();
                self.results.extend_from_slice(actions.bytes(*result));
                let lane = self.lanes[lane].client.id().lane();
                let result = start..self.results.len();
                self.done.push(Done { lane, timestamp: *timestamp, path: *path, end: End::Result, result });
            }
            ClientAction::DoneWithoutResult { timestamp, .. } => {
                self.end_without(lane, *timestamp, End::ResultLost);
            }
            ClientAction::Overtaken { timestamp, .. } => self.end_without(lane, *timestamp, End::Overtaken),
            ClientAction::Report(milestone) => match milestone {
                ClientMilestone::Rejected { reason, .. } => self.reject(reason.name()),
                ClientMilestone::Retransmitted { .. } => self.counters.retransmitted += 1,
                ClientMilestone::Invoked { .. }
                | ClientMilestone::Refused(_)
                | ClientMilestone::LacksKeys { .. }
                | ClientMilestone::AskedRest { .. }
                | ClientMilestone::FellBack { .. }
                | ClientMilestone::TimestampTaken { .. }
                | ClientMilestone::ResultMissing { .. }
                | ClientMilestone::ViewLearned { .. }
                | ClientMilestone::Signing => {}
                ClientMilestone::WrongReply { from, .. } => self.accuse(Class::WrongReplies, *from),
            },
        }
    }

    /// Begins a read of where the replicas are, if it is time for one (ADR 23).
    fn read_moves(&mut self, now: Now) {
        let Some(moves) = self.moves.as_mut().filter(|moves| moves.is_due(now)) else { return };
        let (lane, first) = (moves.lane(), self.timestamps.next());
        if moves.begin(now) {
            self.lanes[lane].client = moves.client(first);
            let missing = self.endpoint.door().keys_missing();
            self.step(now, lane, ClientInput::Keys { missing });
        }
        self.lanes[lane].client.raise(first);
        self.step(now, lane, ClientInput::Invoke { operation: &Table::read(), read_only: true });
    }

    #[cold]
    fn learn_moves(&mut self, now: Now, result: &[u8]) {
        let Some(moved) = self.moves.as_mut().and_then(|moves| moves.learn(now, result)) else { return };
        let (door, directory) = self.endpoint.parts_mut();
        if directory.move_replicas(moved) {
            door.announce(); // what was sent to the old address is lost
        }
        self.send_keys();
    }

    #[cold]
    fn end_without(&mut self, lane: usize, timestamp: Timestamp, end: End) {
        let (lane, at) = (self.lanes[lane].client.id().lane(), self.results.len());
        self.done.push(Done { lane, timestamp, path: Path::Ordered, end, result: at..at });
    }

    /// Seals a request and puts it into the outbox, if its number may be used. If not, the lane asks again later.
    fn send(&mut self, lane: usize, to: Members, body: &RequestBody<'_>, digest: &Digest, sign: bool) {
        if !self.timestamps.may_use(body.timestamp) {
            return self.refuse("timestamps-not-kept");
        }
        let id = self.lanes[lane].client.id();
        if let Some(moves) = self.moves.as_mut().filter(|moves| moves.lane() != lane) {
            moves.note_used();
        }
        self.frame.clear();
        self.endpoint.door_mut().seal_digested(body, id, digest, sign, &mut self.frame);
        self.counters.sent += 1;
        self.endpoint.post_replicas(to.of(self.cluster), &self.frame);
        self.meter.lap(Part::Seal);
    }

    /// Sends the pending NEW-KEYs of the authenticator.
    fn send_keys(&mut self) {
        while let Some((to, frame)) = self.endpoint.take_keys() {
            if let Principal::Replica(_) = to {
                self.endpoint.post(to, &frame);
            }
        }
    }

    #[cold]
    fn refuse(&mut self, reason: &'static str) {
        *self.counters.refused.entry(reason).or_default() += 1;
    }

    #[cold]
    fn reject(&mut self, reason: &'static str) {
        *self.counters.rejected.entry(reason).or_default() += 1;
    }
}
