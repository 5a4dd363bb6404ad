//! Performs a replica's actions: the one `match` over `Action` of the simulator.

use std::sync::Arc;

use quorate_pbft::config::Durability;
use quorate_pbft::step::{Action, Actions, Form, Input, Lsn, Milestone, Now, ReadResult, Recipient};
use quorate_service::Task;
use quorate_wire::message::{Checkpoint, RequestBody};
use quorate_wire::{ClientId, Kind, Principal, SeqNum};

use super::World;
use super::faults::INCARNATION_RANDOM_BITS;
use crate::app::App;
use crate::describe;
use crate::hash::{Tag, TraceHash};
use crate::host::Parcel;
use crate::network::{Frame, NodeId};
use crate::trace::What;

impl<A: App> World<A> {
    /// Performs the actions of one step, in order.
    pub(crate) fn perform(&mut self, h: usize, actions: &Actions) {
        let (id, node, correct) = (self.hosts[h].id, self.hosts[h].node.0, self.hosts[h].correct);
        for action in actions.list() {
            let hashed = |world: &mut Self, tag: Tag, numbers: &[u64], bytes: &[u8]| {
                if correct {
                    world.hash.action(node, tag, numbers, bytes);
                }
            };
            match action {
                Action::Send { to, kind, form, bytes, after } => {
                    let bytes = actions.bytes(*bytes);
                    hashed(self, Tag::Send, &[recipient(*to), u64::from(kind.to_wire()), after.0], bytes);
                    self.send(h, *to, *kind, *form, bytes, *after);
                }
                Action::Persist { lsn, bytes } => {
                    let bytes = actions.bytes(*bytes);
                    hashed(self, Tag::Persist, &[lsn.0], bytes);
                    if let Some((promises, facts)) = self.checkers.disk(id).filter(|_| correct) {
                        promises.persists(facts, *lsn, bytes);
                    }
                    self.hosts[h].disk.append(*lsn, bytes);
                    self.counters.records += 1;
                }
                Action::SetTimer(timer, deadline) => {
                    hashed(self, Tag::SetTimer, &[place(timer.index()), deadline.0], &[]);
                    if let Some(process) = self.process(h) {
                        process.deadlines[timer.index()] = Some(deadline.0);
                    }
                }
                Action::StopTimer(timer) => {
                    hashed(self, Tag::StopTimer, &[place(timer.index())], &[]);
                    if let Some(process) = self.process(h) {
                        process.deadlines[timer.index()] = None;
                    }
                }
                Action::CheckSignature { client, request } => {
                    hashed(self, Tag::CheckSignature, &[client.0], &request.request.0);
                    self.task(h, Task::Check((*client, request.clone())));
                }
                Action::Execute { seq, batch, tentative } => {
                    hashed(self, Tag::Execute, &[seq.0, u64::from(*tentative)], &batch.digest().0);
                    if correct {
                        self.checkers.execute(id, *seq, batch, *tentative);
                    }
                    let (seq, batch, tentative) = (*seq, Arc::clone(batch), *tentative);
                    self.task(h, Task::Execute { seq, batch, tentative });
                }
                Action::Merge { seq } => {
                    hashed(self, Tag::Merge, &[seq.0], &[]);
                    if correct {
                        self.checkers.merge(id, *seq);
                    }
                    self.task(h, Task::Merge(*seq));
                }
                Action::Undo { after } => {
                    hashed(self, Tag::Undo, &[after.0], &[]);
                    if correct {
                        self.checkers.undo(id, *after);
                    }
                    self.task(h, Task::Undo(*after));
                }
                Action::Read { ticket, request } => {
                    hashed(self, Tag::ReadAction, &[ticket.0], &request.digest.0);
                    if correct {
                        self.checkers.read(id, request.client, request.timestamp);
                    }
                    self.task(h, Task::Read { ticket: ticket.0, request: request.clone() });
                }
                Action::Resend { client } => {
                    hashed(self, Tag::Resend, &[client.0], &[]);
                    self.task(h, Task::Resend(*client));
                }
                Action::Checkpoint { seq } => {
                    hashed(self, Tag::Checkpoint, &[seq.0], &[]);
                    if correct {
                        self.checkers.cut(id, *seq);
                    }
                    self.task(h, Task::Checkpoint(*seq));
                }
                Action::Discard { below } => {
                    hashed(self, Tag::Discard, &[below.0], &[]);
                    self.task(h, Task::Discard(*below));
                }
                Action::Fetch { seq, root, check } => {
                    hashed(self, Tag::Fetch, &[seq.0, u64::from(*check)], &root.0);
                    self.task(h, Task::Fetch { seq: *seq, root: *root, check: *check });
                }
                Action::Report(milestone) => {
                    if correct {
                        self.report(h, milestone);
                    }
                }
            }
        }
    }

    /// A correct replica has reached something.
    fn report(&mut self, h: usize, milestone: &Milestone) {
        let host = &mut self.hosts[h];
        // A driver's other duty: the disk does not count as the replica's state until it has rejoined.
        if let Milestone::RejoinStarted { incarnation } = milestone {
            (host.amnesic, host.old_disk) = (true, false);
            host.disk.distrust(incarnation >> INCARNATION_RANDOM_BITS);
            self.checkers.forgets(host.id);
        }
        if let Milestone::Rejoined { .. } = milestone {
            host.amnesic = false;
            host.disk.rejoined();
        }
        let (id, node) = (host.id, host.node.0);
        let (tag, number, digest) = describe::milestone_numbers(milestone);
        self.hash.action(node, Tag::Report, &[tag, number], &digest.0);
        self.counters.milestone(milestone);
        if let Some(evidence) = &mut self.evidence {
            evidence.milestone(id, self.checkers.facts(id).view, milestone);
        }
        // What was executed is told with its requests and results.
        if self.trace.is_some() && !matches!(milestone, Milestone::Executed { .. }) {
            let mut text = describe::milestone(milestone);
            if matches!(milestone, Milestone::Rejected(_)) {
                text = self.with_what_was_heard(text);
            }
            self.tell(h, || What::Milestone(text));
        }
        self.checkers.milestone(id, milestone);
    }

    /// Seals a message and lets it go, or keeps it until what it says is on the disk (GC-1, I11).
    fn send(&mut self, h: usize, to: Recipient, kind: Kind, form: Form, bytes: &[u8], after: Lsn) {
        let host = &mut self.hosts[h];
        if host.correct && form == Form::Body {
            self.checkers.says(host.id, kind, bytes);
        }
        let Some(process) = &mut host.process else { return };
        let mut frame = std::mem::take(&mut self.buffer);
        frame.clear();
        let own = Principal::Replica(host.id);
        match form {
            Form::Frame => process.door.escort(None, bytes, &mut frame),
            Form::Body if kind == Kind::Request => {
                if let Ok(body) = RequestBody::decode(bytes) {
                    process.door.seal_request(&body, own.as_client(), true, &mut frame);
                }
            }
            Form::Body => process.door.seal(kind, principal(to), bytes, &mut frame),
        }
        if kind == Kind::NewView && host.correct {
            self.checkers.new_view(host.id, super::body_of(&frame));
        }
        let sealed: Frame = frame.as_slice().into();
        self.buffer = frame;
        let parcel = Parcel { to, kind, frame: sealed };
        if after <= process.durable {
            return self.release(h, &parcel);
        }
        let order = self.queue.next_order();
        process.outbox.insert((after, order), parcel);
    }

    /// A message leaves.
    pub(super) fn release(&mut self, h: usize, parcel: &Parcel) {
        let Parcel { to, kind, frame } = parcel;
        let host = &self.hosts[h];
        let (id, from, correct) = (host.id, host.node, host.correct);
        if correct {
            self.counters.sent(*kind);
            let own = Principal::Replica(id);
            if let Ok(decoded) = quorate_wire::frame::Frame::decode(frame)
                && decoded.sender == own
            {
                self.checkers.sends(id, *kind, decoded.body);
                self.announces(h, *kind, decoded.body);
            }
        }
        if self.trace.is_some() {
            let text = describe::frame(frame, &self.app);
            let to = receiver_name(*to);
            self.tell(h, || What::Sent { to, text });
        }
        match *to {
            Recipient::All => {
                for index in 0..self.addresses.len() {
                    if index != id.index() {
                        self.deliver(h, from, index, frame);
                    }
                }
            }
            Recipient::Replica(to) => self.deliver(h, from, to.index(), frame),
            Recipient::Client(client) => match client.replica() {
                Some(replica) => self.deliver(h, from, replica.index(), frame),
                None => {
                    if let Some(to) = self.client_node(client) {
                        self.hand_over(h, from, to, frame);
                    }
                }
            },
        }
    }

    /// A message of a correct replica's own leaves: what it announces has to be on its disk (D5).
    fn announces(&mut self, h: usize, kind: Kind, body: &[u8]) {
        if kind != Kind::Checkpoint || self.config.durability != Durability::Sync {
            return;
        }
        let host = &self.hosts[h];
        let image = host.disk.newest().map_or(SeqNum(0), |image| image.seq);
        if let Ok(checkpoint) = Checkpoint::decode(body) {
            self.checkers.announces(host.id, &checkpoint, image);
        }
    }

    /// Sends a frame to every host of a replica.
    fn deliver(&mut self, h: usize, from: NodeId, replica: usize, frame: &Frame) {
        let count = self.addresses.get(replica).map_or(0, Vec::len);
        for i in 0..count {
            let to = self.addresses[replica][i];
            self.hand_over(h, from, to, frame);
        }
    }

    /// Hands a frame to the network, unless a liar has its hands in it.
    fn hand_over(&mut self, h: usize, from: NodeId, to: NodeId, frame: &Frame) {
        if let Some(process) = self.process(h)
            && process.core.tampers()
        {
            let mut bytes = frame.to_vec();
            if process.core.tamper(to, &mut bytes) {
                self.transmit(from, to, &bytes.into());
            }
            return;
        }
        self.transmit(from, to, frame);
    }

    /// Sends a NEW-KEY that the authenticator owes.
    pub(super) fn deliver_keys(&mut self, h: usize, to: Principal, frame: Vec<u8>) {
        let to = match to {
            Principal::Replica(id) => Recipient::Replica(id),
            Principal::Client(client) => Recipient::Client(client),
        };
        self.release(h, &Parcel { to, kind: Kind::NewKey, frame: frame.into() });
    }

    /// Returns where a client is.
    pub(super) fn client_node(&self, client: ClientId) -> Option<NodeId> {
        let index = usize::try_from(client.principal().checked_sub(1)?).ok()?;
        self.clients.get(index).map(|host| host.node)
    }
}

fn principal(to: Recipient) -> Option<Principal> {
    match to {
        Recipient::All => None,
        Recipient::Replica(id) => Some(Principal::Replica(id)),
        Recipient::Client(client) => Some(Principal::from_wire(client.0)),
    }
}

fn receiver_name(to: Recipient) -> String {
    match to {
        Recipient::All => "*".to_owned(),
        Recipient::Replica(id) => id.to_string(),
        Recipient::Client(client) => client.to_string(),
    }
}

fn recipient(to: Recipient) -> u64 {
    match to {
        Recipient::All => u64::MAX,
        Recipient::Replica(id) => u64::from(id.0),
        Recipient::Client(client) => client.0,
    }
}

fn place(index: usize) -> u64 {
    u64::try_from(index).unwrap_or(0)
}

/// Takes an input into the hash. A frame has been taken in when it was admitted.
pub(super) fn hash_input(hash: &mut TraceHash, host: u16, now: Now, input: &Input<'_>) {
    let mut note = |tag, numbers: &[u64], bytes: &[u8]| hash.input(host, now, tag, numbers, bytes);
    match input {
        Input::Start => note(Tag::Start, &[], &[]),
        Input::Message(_) => {}
        Input::Timer(timer) => note(Tag::Timer, &[place(timer.index())], &[]),
        Input::SignatureChecked { request, valid } => {
            note(Tag::SignatureChecked, &[u64::from(*valid)], &request.0);
        }
        Input::Executed { seq, replies, took_ns: _ } => {
            for reply in replies.iter() {
                note(Tag::Executed, &[seq.0, reply.client.0, reply.timestamp.0], &reply.digest.0);
            }
        }
        Input::Read { ticket, result } => match result {
            ReadResult::Done { digest, .. } => note(Tag::Read, &[ticket.0], &digest.0),
            ReadResult::NeedsOrder => note(Tag::Read, &[ticket.0], &[]),
        },
        Input::Cached { client, reply } => match reply {
            Some(reply) => note(Tag::Cached, &[client.0, reply.timestamp.0], &reply.digest.0),
            None => note(Tag::Cached, &[client.0], &[]),
        },
        Input::Checkpointed { seq, root } => note(Tag::Checkpointed, &[seq.0], &root.0),
        Input::Fetched { seq, root, clients, .. } => {
            note(Tag::Fetched, &[seq.0, place(clients.len())], &root.0);
        }
        Input::Durable(lsn) => note(Tag::Durable, &[lsn.0], &[]),
        Input::Kept { seq } => note(Tag::Kept, &[seq.0], &[]),
        Input::BurstEnd => note(Tag::BurstEnd, &[], &[]),
    }
}
