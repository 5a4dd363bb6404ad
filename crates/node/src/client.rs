//! A client's process without its sockets: many lanes that share one authenticator (CL-1).

use std::collections::BTreeMap;
use std::ops::Range;

use quorate_pbft::client::step::{ClientAction, ClientActions, ClientInput, ClientMilestone, Members, Path};
use quorate_pbft::config::Config;
use quorate_pbft::step::Lsn;
use quorate_pbft::{Client, Now};
use quorate_wire::codec::Reader;
use quorate_wire::frame::Frame;
use quorate_wire::message::{Message, RequestBody, Statement};
use quorate_wire::{Admitted, ClientId, Cluster, Door, DoorError, Principal, ReplicaId, Timestamp, Verified};

use crate::directory::Directory;
use crate::meter::{Meter, Part};
use crate::observe::{Class, Ledger};
use crate::outbox::{Outbox, Transport};

mod questions;

/// How often the authenticator gets the time, in nanoseconds.
const TICK_NS: u64 = 100_000_000;

/// A finished operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The lane that invoked it.
    pub lane: u16,
    /// The request's number.
    pub timestamp: Timestamp,
    /// How its result was obtained.
    pub path: Path,
    /// Whether it took effect, but its result was too long for replicas to store and was lost.
    pub result_lost: bool,
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
pub struct ClientDrive<M: Meter = ()> {
    cluster: Cluster,
    door: Door,
    lanes: Vec<Lane>,
    directory: Directory,
    /// No lane's timer expires before this.
    earliest: u64,
    tick_at: u64,
    outbox: Outbox,
    counters: ClientCounters,
    meter: M,
    done: Vec<Done>,
    results: Vec<u8>,
    /// At most one of each replica.
    statements: Vec<(ReplicaId, Statement)>,
    ledger: Ledger,
    /// The time of day at the last tick, in seconds since 1970.
    wall_s: u64,
    // Buffers that are reused in every step.
    actions: ClientActions,
    frame: Vec<u8>,
}

impl<M: Meter> ClientDrive<M> {
    /// Returns `lanes` lanes of the client principal of this authenticator. `first` is above every timestamp that one
    /// of them has ever used.
    pub fn new(
        config: &Config,
        door: Door,
        lanes: u16,
        directory: Directory,
        first: Timestamp,
        meter: M,
    ) -> Self {
        let principal = door.own().as_client().principal();
        let lanes = (0..lanes).map(|lane| {
            let id = ClientId::new(principal, lane);
            Lane { client: Client::new(id, config, first, config.seed ^ id.0), deadline: u64::MAX }
        });
        Self {
            cluster: config.cluster,
            lanes: lanes.collect(),
            door,
            directory,
            earliest: u64::MAX,
            tick_at: 0,
            outbox: Outbox::default(),
            counters: ClientCounters::default(),
            meter,
            done: Vec::new(),
            results: Vec::new(),
            statements: Vec::new(),
            ledger: Ledger::default(),
            wall_s: 0,
            actions: ClientActions::new(),
            frame: Vec::new(),
        }
    }

    /// Starts an operation in a lane without one.
    pub fn invoke(&mut self, now: Now, lane: u16, operation: &[u8], read_only: bool) {
        self.meter.start();
        self.step(now, usize::from(lane), ClientInput::Invoke { operation, read_only });
    }

    /// Takes one datagram, which may hold many frames.
    pub fn receive(&mut self, now: Now, datagram: &[u8]) {
        self.meter.start();
        let mut reader = Reader::new(datagram);
        while !reader.is_empty() {
            self.counters.received += 1;
            let frame = match Frame::take(&mut reader) {
                Ok(frame) => frame,
                Err(error) => return self.refuse(DoorError::from(error).name()),
            };
            let admitted = self.door.admit(now.mono_ns, frame);
            self.meter.lap(Part::Admit);
            match &admitted {
                Ok(Admitted::Message(message)) => self.on_message(now, message),
                Ok(Admitted::Keys) => self.send_keys(),
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
        if now.mono_ns >= self.tick_at {
            self.tick_at = now.mono_ns.saturating_add(TICK_NS);
            self.door.tick(now.mono_ns, now.wall_ns);
            self.tend_evidence(now);
            self.send_keys();
        }
    }

    /// Returns the moment of the monotonic clock at which [`Self::expire`] is due, or earlier.
    #[inline]
    pub fn due(&self) -> u64 {
        self.earliest.min(self.tick_at)
    }

    /// Sends everything that may leave.
    #[inline]
    pub fn flush(&mut self, transport: &mut impl Transport) {
        self.outbox.flush(transport);
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
        self.step(now, lane, ClientInput::Message(verified));
    }

    #[inline]
    fn step(&mut self, now: Now, lane: usize, input: ClientInput<'_>) {
        let Some(Lane { client, .. }) = self.lanes.get_mut(lane) else { return };
        let mut actions = core::mem::take(&mut self.actions);
        client.step(now, input, &mut actions);
        self.meter.lap(Part::Step);
        for action in actions.list() {
            self.perform(lane, action, &actions);
        }
        self.actions = actions;
        self.actions.clear();
    }

    fn perform(&mut self, lane: usize, action: &ClientAction, actions: &ClientActions) {
        match action {
            ClientAction::Send { to, timestamp, flags, replier, operation, sign } => {
                let operation = actions.bytes(*operation);
                let body = RequestBody { timestamp: *timestamp, flags: *flags, replier: *replier, operation };
                self.send(lane, *to, &body, *sign);
            }
            ClientAction::SetTimer(deadline) => {
                self.lanes[lane].deadline = deadline.0;
                self.earliest = self.earliest.min(deadline.0);
            }
            ClientAction::StopTimer => self.lanes[lane].deadline = u64::MAX,
            ClientAction::SendKeys => {
                self.door.announce();
                self.send_keys();
            }
            ClientAction::Done { timestamp, result, path } => {
                let start = self.results.len();
                self.results.extend_from_slice(actions.bytes(*result));
                let lane = self.lanes[lane].client.id().lane();
                let result = start..self.results.len();
                self.done.push(Done { lane, timestamp: *timestamp, path: *path, result_lost: false, result });
            }
            ClientAction::DoneWithoutResult { timestamp, .. } => {
                let lane = self.lanes[lane].client.id().lane();
                let end = self.results.len();
                let (timestamp, path) = (*timestamp, Path::Ordered);
                self.done.push(Done { lane, timestamp, path, result_lost: true, result: end..end });
            }
            ClientAction::Report(milestone) => match milestone {
                ClientMilestone::Rejected { reason, .. } => self.reject(reason.name()),
                ClientMilestone::Retransmitted { .. } => self.counters.retransmitted += 1,
                ClientMilestone::Invoked { .. }
                | ClientMilestone::Refused(_)
                | ClientMilestone::AskedRest { .. }
                | ClientMilestone::FellBack { .. }
                | ClientMilestone::ResultMissing { .. }
                | ClientMilestone::ViewLearned { .. }
                | ClientMilestone::Signing => {}
                ClientMilestone::WrongReply { from, .. } => self.accuse(Class::WrongReplies, *from),
            },
        }
    }

    /// Seals a request, and puts it into the outbox.
    fn send(&mut self, lane: usize, to: Members, body: &RequestBody<'_>, sign: bool) {
        let id = self.lanes[lane].client.id();
        self.frame.clear();
        self.door.seal_request(body, id, sign, &mut self.frame);
        self.counters.sent += 1;
        let places = to.of(self.cluster()).filter_map(|replica| self.directory.replica(replica));
        self.outbox.post(places, &self.frame, Lsn(0));
        self.meter.lap(Part::Seal);
    }

    /// Sends the pending NEW-KEYs of the authenticator.
    fn send_keys(&mut self) {
        while let Some((to, frame)) = self.door.take_outgoing() {
            if let Principal::Replica(replica) = to {
                self.outbox.post(self.directory.replica(replica).into_iter(), &frame, Lsn(0));
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
