//! Clients: hosts with an authenticator and some lanes, each of which has at most one request outstanding.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use quorate_pbft::Client;
use quorate_pbft::client::step::{ClientAction, ClientInput, ClientMilestone, Members, Path};
use quorate_pbft::step::Now;
use quorate_service::registry::Table;
use quorate_wire::Admitted;
use quorate_wire::codec::Reader;
use quorate_wire::frame::Frame as WireFrame;
use quorate_wire::message::RequestBody;
use quorate_wire::{ClientId, Door, Message, Principal, ReplicaId, Timestamp};

use super::{Event, World};
use crate::app::{App, Ask, History};
use crate::checker::linearizable::Call;
use crate::describe;
use crate::network::{Frame, NodeId};
use crate::orders::address;
use crate::rng::{Concern, Rng};
use crate::trace::{Line, What};

/// The clients' own activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Nothing: a script asks.
    Idle,
    /// Each lane asks again after a pause from the first to the second, in nanoseconds.
    Busy(u64, u64),
}

/// A client's host: a principal with its lanes.
#[derive(Debug)]
pub struct ClientHost {
    /// Its place in the network.
    pub node: NodeId,
    /// Its authenticator.
    pub door: Door,
    /// Where it sends to the replicas.
    pub(crate) book: Vec<SocketAddr>,
    /// Its lanes.
    pub lanes: Vec<Lane>,
    /// With how many replicas it has exchanged no keys, as its lanes know; the largest before they know anything.
    keys_missing: usize,
    /// World time of the next event that wakes it, or the largest.
    wake_at: u64,
    rng: Rng,
    /// The first timestamp of this run.
    first: u64,
    /// On its disk: below this number every timestamp may have been used (CL-10).
    kept: u64,
}

/// How many timestamps a client takes at a time.
const TIMESTAMPS: u64 = 4;

/// Returns `wrong` while a seeded bug is on.
fn mutant(id: u32, right: u64, wrong: u64) -> u64 {
    if quorate_pbft::mutants::is_active(id) { wrong } else { right }
}

/// One lane.
#[derive(Debug)]
pub struct Lane {
    /// Its name on the wire.
    pub id: ClientId,
    client: Client,
    /// When its client wants to be woken.
    deadline: Option<u64>,
    /// When it asks next, if it is busy.
    asks_at: Option<u64>,
    /// Its request, and where that is in the history.
    pub outstanding: Option<(Ask, usize)>,
    /// The last result, for scripts.
    pub last_result: Option<Vec<u8>>,
}

/// The operations and results of all clients.
#[derive(Debug, Default)]
pub struct Seen {
    /// The history.
    pub history: History,
    /// Of each call that was answered: who asked, under which number, and whether it was ordered.
    pub answers: Vec<Option<(ClientId, Timestamp, bool)>>,
    /// Orders invocations and returns.
    pub moment: u64,
    /// The value of the next write.
    pub tag: u64,
    /// Requests answered.
    pub answered: u64,
    /// The replicas whose replies f + 1 others contradicted: how often, and when last.
    pub accused: BTreeMap<ReplicaId, (u64, u64)>,
}

impl ClientHost {
    /// Returns client `index` of a world, with its lanes.
    pub(crate) fn new<A: App>(world: &mut World<A>, index: usize, lanes: u16) -> Self {
        let principal = u64::try_from(index).unwrap_or(0) + 1;
        let mut rng = Rng::nth(world.seed, Concern::Workload, index);
        let lane = |lane| {
            let id = ClientId::new(principal, lane);
            Lane {
                id,
                client: Client::new(id, &world.config, Timestamp(1), rng.bits()),
                deadline: None,
                asks_at: None,
                outstanding: None,
                last_result: None,
            }
        };
        let lanes = (0..lanes).map(lane).collect();
        let own = Principal::Client(ClientId::new(principal, 0));
        let entropy = world.keys_rng.bytes();
        let door = world.keys.door(own, world.config.cluster, entropy, crate::clock::EPOCH_NS);
        let node = NodeId::at(world.hosts.len() + index);
        let keys_missing = usize::MAX;
        let book = world.config.cluster.replicas().map(|id| address(id.index())).collect();
        Self { node, door, book, lanes, keys_missing, wake_at: u64::MAX, rng, first: 1, kept: 1 }
    }
}

impl<A: App> World<A> {
    /// Sets what the clients do by themselves.
    pub fn set_load(&mut self, load: Load) {
        self.load = load;
        for c in 0..self.clients.len() {
            for l in 0..self.clients[c].lanes.len() {
                self.plan(c, l);
            }
            self.settle_client(c);
        }
    }

    /// Decides when a lane asks next.
    fn plan(&mut self, c: usize, l: usize) {
        let client = &mut self.clients[c];
        let lane = &mut client.lanes[l];
        lane.asks_at = match self.load {
            _ if self.orders.front().is_some() && (c, l) == (0, 0) && lane.outstanding.is_none() => {
                Some(self.at)
            }
            Load::Busy(low, high) if lane.outstanding.is_none() => {
                Some(self.at + client.rng.between(low, high))
            }
            Load::Busy(..) | Load::Idle => None,
        };
    }

    /// Ends the process of client `c` and starts it again, with a clock that says `wall`. What was outstanding stays
    /// open: nobody waits for it any more.
    pub fn restart_client(&mut self, c: usize, wall: u64) {
        let client = &mut self.clients[c];
        let kept = mutant(72, client.kept, client.first.saturating_add(1));
        client.first = wall.max(kept);
        let first = client.first;
        client.keys_missing = usize::MAX;
        for lane in &mut client.lanes {
            lane.client = Client::new(lane.id, &self.config, Timestamp(first), client.rng.bits());
            (lane.deadline, lane.outstanding, lane.last_result) = (None, None, None);
        }
        self.client_keyed(c); // its authenticator stays
        for l in 0..self.clients[c].lanes.len() {
            self.plan(c, l);
        }
        self.settle_client(c);
    }

    /// Puts the disk of client `c` back to what it was in the beginning, and starts it again with the clock of that
    /// time: it does not know what it has used.
    pub fn put_client_back(&mut self, c: usize) {
        (self.clients[c].first, self.clients[c].kept) = (0, 1);
        self.restart_client(c, 1);
    }

    /// Says how many requests are outstanding, and shows the oldest.
    pub fn outstanding(&self) -> (usize, String) {
        let lanes = self.clients.iter().flat_map(|client| &client.lanes);
        let waiting: Vec<_> =
            lanes.filter_map(|lane| lane.outstanding.as_ref().map(|o| (lane.id, o))).collect();
        let oldest = waiting.iter().min_by_key(|(_, (_, call))| *call);
        let oldest = oldest.map(|(id, (ask, _))| format!("{id} \"{}\"", self.app.operation(&ask.operation)));
        (waiting.len(), oldest.unwrap_or_default())
    }

    /// Returns the places in the history of all requests that are outstanding.
    pub(crate) fn asked(&self) -> Vec<usize> {
        let lanes = self.clients.iter().flat_map(|client| &client.lanes);
        lanes.filter_map(|lane| lane.outstanding.as_ref().map(|(_, call)| *call)).collect()
    }

    /// Says for how many of these requests a client still waits. One that ended without a result counts no more: its
    /// client was told so, or it started again.
    pub(crate) fn unanswered(&self, asked: &[usize]) -> usize {
        self.asked().iter().filter(|call| asked.contains(call)).count()
    }

    /// Says whether all of these requests have their answers.
    pub(crate) fn is_answered(&self, asked: &[usize]) -> bool {
        self.unanswered(asked) == 0
    }

    /// Lets a lane ask for something. Says whether it was free.
    pub fn ask_for(&mut self, c: usize, l: usize, ask: &Ask) -> bool {
        let Some(lane) = self.clients.get_mut(c).and_then(|client| client.lanes.get_mut(l)) else {
            return false;
        };
        if lane.outstanding.is_some() {
            return false;
        }
        self.seen.moment += 1;
        let call = Call { invoked: self.seen.moment, returned: None, operation: ask.operation.clone() };
        lane.outstanding = Some((ask.clone(), self.seen.history.len()));
        self.seen.history.push(call);
        self.seen.answers.push(None);
        let input = ClientInput::Invoke { operation: &ask.operation, read_only: ask.read_only };
        self.step_client(c, l, input);
        self.settle_client(c);
        true
    }

    /// Something happens to a client.
    pub(super) fn on_client_event(&mut self, node: NodeId, event: Event) {
        let Some(c) = node.index().checked_sub(self.hosts.len()) else { return };
        match event {
            Event::Arrive(frame) => self.client_arrive(c, &frame),
            Event::Wake => self.client_wake(c),
            Event::Start { .. }
            | Event::Synced { .. }
            | Event::Flushed { .. }
            | Event::Ran { .. }
            | Event::Resume
            | Event::Restart => {}
        }
        self.settle_client(c);
    }

    fn client_arrive(&mut self, c: usize, bytes: &Frame) {
        let at = self.at;
        let client = &mut self.clients[c];
        let admitted = match WireFrame::take(&mut Reader::new(bytes)) {
            Ok(frame) => client.door.admit(at, frame),
            Err(why) => Err(why.into()),
        };
        let verified = match admitted {
            Ok(Admitted::Message(verified)) => verified,
            Ok(Admitted::Keys) => return self.client_keyed(c),
            Err(why) => return self.counters.client_turned_away(why.name()),
        };
        // To the lane that it names; to any, if it is no reply.
        let lane = if let Message::Reply(reply) = verified.message() {
            client.lanes.iter().position(|lane| lane.id == reply.client)
        } else {
            Some(0)
        };
        if let Some(l) = lane {
            self.step_client(c, l, ClientInput::Message(&verified));
        }
        if self.clients[c].keys_missing > self.config.cluster.f() {
            self.client_keyed(c);
        }
    }

    /// A replica has sent or used keys, perhaps: the lanes of client `c` are told with how many none have been exchanged.
    pub(super) fn client_keyed(&mut self, c: usize) {
        let client = &mut self.clients[c];
        let missing = client.door.keys_missing();
        if std::mem::replace(&mut client.keys_missing, missing) != missing {
            (0..client.lanes.len()).for_each(|l| self.step_client(c, l, ClientInput::Keys { missing }));
        }
    }

    fn client_wake(&mut self, c: usize) {
        let at = self.at;
        if at < self.clients[c].wake_at {
            return; // an earlier deadline has been moved since
        }
        self.clients[c].wake_at = u64::MAX;
        self.clients[c].door.tick(at, 0);
        for l in 0..self.clients[c].lanes.len() {
            let lane = &mut self.clients[c].lanes[l];
            if lane.deadline.is_some_and(|deadline| deadline <= at) {
                lane.deadline = None;
                self.step_client(c, l, ClientInput::Timer);
            }
            let lane = &mut self.clients[c].lanes[l];
            if lane.asks_at.is_some_and(|asks_at| asks_at <= at) {
                lane.asks_at = None;
                self.seen.tag += 1;
                let order = if (c, l) == (0, 0) { self.orders.pop_front() } else { None };
                let ask = order.unwrap_or_else(|| self.draw(c));
                self.ask_for(c, l, &ask);
            }
        }
    }

    /// Draws what client `c` asks for. Where replicas move, it sometimes asks where they are.
    fn draw(&mut self, c: usize) -> Ask {
        let rng = &mut self.clients[c].rng;
        if self.has_moves && rng.one_in(16) {
            return Ask { operation: Table::read().to_vec(), read_only: true };
        }
        self.app.draw(rng, self.seen.tag)
    }

    /// Lets the first lane of client 0 ask for this as soon as it is free.
    pub(crate) fn order(&mut self, ask: Ask) {
        self.orders.push_back(ask);
        self.plan(0, 0);
        self.settle_client(0);
    }

    /// Returns whether all orders have been asked for.
    pub(crate) fn has_ordered(&self) -> bool {
        self.orders.is_empty()
    }

    /// Drops the orders that have not been asked for. Returns what the first lane of client 0 has asked for.
    pub(crate) fn drop_orders(&mut self) -> Option<Ask> {
        self.orders.clear();
        let lane = self.clients.first()?.lanes.first()?;
        lane.outstanding.as_ref().map(|(ask, _)| ask.clone())
    }

    /// Client `c` has read where the replicas are.
    fn find_replicas(&mut self, c: usize, table: &Table) {
        let client = &mut self.clients[c];
        let at = |id: ReplicaId| table.replicas.get(&id).copied().unwrap_or_else(|| address(id.index()));
        let book: Vec<SocketAddr> = self.config.cluster.replicas().map(at).collect();
        if std::mem::replace(&mut client.book, book) != client.book {
            client.door.announce();
        }
    }

    /// Gives a client one input and does what it then wants.
    fn step_client(&mut self, c: usize, l: usize, input: ClientInput<'_>) {
        let now = Now { mono_ns: self.at, wall_ns: crate::clock::EPOCH_NS + self.at };
        let mut actions = std::mem::take(&mut self.client_actions);
        self.clients[c].lanes[l].client.step(now, input, &mut actions);
        for action in actions.list() {
            match action {
                ClientAction::Send { to, timestamp, flags, replier, operation, sign, digest: _ } => {
                    let (timestamp, flags, replier) = (*timestamp, *flags, *replier);
                    let operation = actions.bytes(*operation);
                    let body = RequestBody { timestamp, flags, replier, operation };
                    self.send_request(c, l, *to, &body, *sign);
                }
                ClientAction::SetTimer(at) => self.clients[c].lanes[l].deadline = Some(at.0),
                ClientAction::StopTimer => self.clients[c].lanes[l].deadline = None,
                ClientAction::SendKeys => self.clients[c].door.announce(),
                ClientAction::Done { timestamp, result, path } => {
                    let result = actions.bytes(*result);
                    self.done(c, l, *timestamp, result, *path);
                }
                ClientAction::DoneWithoutResult { .. } | ClientAction::Overtaken { .. } => {
                    // Its history stays open: it took effect at some time, with a result that nobody saw; or it did
                    // not, which nobody knows.
                    self.clients[c].lanes[l].outstanding = None;
                    self.plan(c, l);
                }
                ClientAction::Report(milestone) => self.report_client(c, l, milestone),
            }
        }
        actions.clear();
        self.client_actions = actions;
    }

    fn report_client(&mut self, c: usize, l: usize, milestone: &ClientMilestone) {
        if let ClientMilestone::Rejected { reason, .. } = milestone {
            self.counters.client_reject(*reason);
        }
        if let ClientMilestone::WrongReply { from, .. } = milestone {
            self.counters.wrong_replies += 1;
            let (count, last) = self.seen.accused.entry(*from).or_default();
            (*count, *last) = (*count + 1, self.at);
            self.checkers.accused(*from);
        }
        if let ClientMilestone::FellBack { .. } = milestone {
            self.counters.read_fallbacks += 1;
        }
        let quiet = matches!(milestone, ClientMilestone::Invoked { .. } | ClientMilestone::Rejected { .. });
        if let Some(trace) = &mut self.trace
            && !quiet
        {
            let what = What::Milestone(describe::client_milestone(milestone));
            let who = self.clients[c].lanes[l].id.to_string();
            trace.push(Line { step: self.step, at: self.at, who, what });
        }
    }

    fn send_request(&mut self, c: usize, l: usize, to: Members, body: &RequestBody<'_>, sign: bool) {
        let client = &mut self.clients[c];
        let id = client.lanes[l].id;
        if body.timestamp.0 >= client.kept {
            client.kept = body.timestamp.0.saturating_add(TIMESTAMPS); // before it leaves
        }
        let mut sealed = Vec::new();
        client.door.seal_request(body, id, sign, &mut sealed);
        let frame: Frame = sealed.into();
        self.tell_client(c, l, to, &frame);
        self.counters.sent(quorate_wire::Kind::Request);
        for to in to.of(self.config.cluster) {
            self.client_deliver(c, to, &frame);
        }
    }

    fn done(&mut self, c: usize, l: usize, timestamp: Timestamp, result: &[u8], path: Path) {
        let lane = &mut self.clients[c].lanes[l];
        let (id, Some((ask, call))) = (lane.id, lane.outstanding.take()) else { return };
        lane.last_result = Some(result.to_vec());
        if let Some(table) = Table::decode(result) {
            self.find_replicas(c, &table);
        }
        self.counters.accepted += 1;
        self.seen.answered += 1;
        self.checkers.accepted((id, timestamp), &ask.operation, result, path != Path::ReadOnly);
        self.seen.moment += 1;
        if let Some(trace) = &mut self.trace {
            let what = What::Milestone(format!("accepts t={} {}", timestamp.0, self.app.result(result)));
            trace.push(Line { step: self.step, at: self.at, who: id.to_string(), what });
        }
        self.seen.history[call].returned = Some((self.seen.moment, result.to_vec()));
        self.seen.answers[call] = Some((id, timestamp, path != Path::ReadOnly));
        self.plan(c, l);
    }

    fn client_deliver(&mut self, c: usize, to: ReplicaId, frame: &Frame) {
        let ClientHost { node, book, .. } = &self.clients[c];
        let from = *node;
        for to in self.listening(book[to.index()]) {
            self.transmit(from, to, frame);
        }
    }

    fn tell_client(&mut self, c: usize, l: usize, to: Members, frame: &Frame) {
        if let Some(trace) = &mut self.trace {
            let to = if to == Members::all(self.config.cluster) {
                "*".to_owned()
            } else {
                to.of(self.config.cluster).map(|id| id.to_string()).collect::<Vec<_>>().join(",")
            };
            let what = What::Sent { to, text: describe::frame(frame, &self.app) };
            let who = self.clients[c].lanes[l].id.to_string();
            trace.push(Line { step: self.step, at: self.at, who, what });
        }
    }

    /// After each event: sends the keys that the authenticator owes, and schedules the next wake-up.
    fn settle_client(&mut self, c: usize) {
        while let Some((to, frame)) = self.clients[c].door.take_outgoing() {
            if let Principal::Replica(to) = to {
                self.client_deliver(c, to, &frame.into());
            }
        }
        let client = &mut self.clients[c];
        let due = client.lanes.iter().flat_map(|lane| [lane.deadline, lane.asks_at]).flatten().min();
        if let Some(due) = due.filter(|due| *due < client.wake_at) {
            client.wake_at = due;
            let node = client.node;
            self.schedule(due, node, Event::Wake);
        }
    }
}
