//! What a world observes of a process: every input and action goes into the hash, the checkers and the trace.

use std::sync::Arc;

use quorate_pbft::config::Durability;
use quorate_pbft::step::{Deadline, Form, Input, Lsn, Milestone, Now, ReadResult, Recipient, Timer};
use quorate_process::{Observer, Outgoing, Store as _};
use quorate_service::parallel::{Counters as Runs, WrongRule};
use quorate_service::{Executor, Refusal};
use quorate_wire::message::Checkpoint;
use quorate_wire::{
    Batch, Body, ClientId, Digest, DoorError, Kind, Message, Principal, ReplicaId, Replies, SeqNum, Verified,
};

use super::World;
use crate::app::App;
use crate::checker::{Root, Violation};
use crate::describe;
use crate::disk::Paged;
use crate::hash::{Tag, TraceHash};
use crate::trace::What;

/// The observer of the process on a host. The process is not in the host while it steps.
pub(super) struct Watch<'a, A: App> {
    world: &'a mut World<A>,
    h: usize,
    id: ReplicaId,
    correct: bool,
}

impl<'a, A: App> Watch<'a, A> {
    /// Observes the process on host `h`.
    pub(super) fn new(world: &'a mut World<A>, h: usize) -> Self {
        let (id, correct) = (world.hosts[h].id, world.hosts[h].correct);
        Self { world, h, id, correct }
    }

    fn hash(&mut self, tag: Tag, numbers: &[u64], bytes: &[u8]) {
        if self.correct {
            let node = self.world.hosts[self.h].node.0;
            self.world.hash.action(node, tag, numbers, bytes);
        }
    }

    fn tell(&mut self, what: impl FnOnce() -> What) {
        self.world.tell(self.h, what);
    }

    /// A message of a correct replica's own leaves: what it announces has to be on its disk (D5).
    fn announces(&mut self, kind: Kind, body: &[u8]) {
        if kind != Kind::Checkpoint || self.world.config.durability != Durability::Sync {
            return;
        }
        let image = self.world.hosts[self.h].disk.newest().unwrap_or_default();
        if let Ok(checkpoint) = Checkpoint::decode(body) {
            self.world.checkers.announces(self.id, &checkpoint, image);
        }
    }

    fn tell_executed(&mut self, seq: SeqNum, batch: &Batch, tentative: bool, replies: &Replies) {
        let mark = if tentative { " tentatively" } else { "" };
        let executed = format!("executed n={}{mark}", seq.0);
        if batch.is_empty() {
            return self.tell(|| What::Executed(format!("{executed} [null]")));
        }
        for (request, reply) in batch.requests().zip(replies.iter()) {
            let app = &self.world.app;
            let operation = describe::operation(request.operation, app);
            let result = match reply.result {
                Some(result) => describe::result(request.client, result, app),
                None => format!("{:?}", reply.outcome).to_lowercase(),
            };
            let text = format!("{executed} [{}: {operation}] -> {result}", request.client);
            self.tell(|| What::Executed(text));
        }
    }
}

impl<A: App> Observer<A::Service, Paged> for Watch<'_, A> {
    fn refused(&mut self, why: &DoorError) {
        if self.correct {
            self.world.counters.turned_away(why.name());
            let what = self.world.with_what_was_heard(format!("turned away: {}", why.name()));
            self.tell(|| What::Milestone(what));
        }
    }

    fn admitted(&mut self, now: Now, verified: &Verified<Message<'_>>, bytes: &[u8]) {
        let Self { world, h, id, correct } = self;
        if *correct {
            world.hash.input(world.hosts[*h].node.0, now, Tag::Frame, &[], bytes);
        }
        if let Message::NewView(m) = verified.message() {
            world.checkers.new_view(*id, super::body_of(m.frame()));
        }
        if let Message::ViewChange(m) = verified.message() {
            world.checkers.view_change(m.sender(), m.digest(), m.body());
        }
        if let Some(evidence) = world.evidence.as_mut().filter(|_| *correct)
            && let Principal::Replica(from) = verified.sender()
        {
            if let Some(Ok(kind)) = bytes.get(3).copied().map(Kind::from_wire)
                && !world.checkers.watches(from)
            {
                evidence.heard(from, *id, kind, verified.message());
            }
            if let Message::NewView(m) = verified.message() {
                evidence.new_view(m.body(), |id| !world.checkers.watches(id));
            }
        }
    }

    fn input(&mut self, now: Now, input: &Input<'_>, frame: &[u8]) {
        let Self { world, h, correct, .. } = self;
        let host = &mut world.hosts[*h];
        if *correct {
            hash_input(&mut world.hash, host.node.0, now, input);
        }
        if let Some(recorder) = &mut host.life_of.recorder {
            recorder.note(now, input, frame);
        }
        world.counters.steps += 1;
        world.counters.signatures += u64::from(matches!(input, Input::SignatureChecked { .. }));
        if let Input::Replied { seq, reply } = input {
            let jobs = &mut world.hosts[*h].life_of.jobs;
            jobs.replied(*seq, reply.client, reply.timestamp, reply.digest);
        }
    }

    fn send(&mut self, message: &Outgoing<'_>) {
        let Outgoing { to, kind, form, bytes, after } = *message;
        self.hash(Tag::Send, &[recipient(to), u64::from(kind.to_wire()), after.0], bytes);
        if self.correct && form == Form::Body {
            self.world.checkers.says(self.id, kind, bytes);
        }
    }

    fn persist(&mut self, lsn: Lsn, record: &[u8]) {
        self.hash(Tag::Persist, &[lsn.0], record);
        if let Some((promises, facts)) = self.world.checkers.disk(self.id).filter(|_| self.correct) {
            promises.persists(facts, lsn, record);
        }
        self.world.counters.records += 1;
    }

    fn set_timer(&mut self, timer: Timer, deadline: Deadline) {
        self.hash(Tag::SetTimer, &[place(timer.index()), deadline.0], &[]);
    }

    fn stop_timer(&mut self, timer: Timer) {
        self.hash(Tag::StopTimer, &[place(timer.index())], &[]);
    }

    fn check_signature(&mut self, client: ClientId, request: &Digest) {
        self.hash(Tag::CheckSignature, &[client.0], &request.0);
    }

    fn execute(&mut self, seq: SeqNum, batch: &Arc<Batch>, tentative: bool) {
        self.hash(Tag::Execute, &[seq.0, u64::from(tentative)], &batch.digest().0);
        if self.correct {
            self.world.checkers.execute(self.id, seq, batch, tentative);
        }
    }

    fn merge(&mut self, seq: SeqNum) {
        self.hash(Tag::Merge, &[seq.0], &[]);
        if self.correct {
            self.world.checkers.merge(self.id, seq);
        }
    }

    fn undo(&mut self, after: SeqNum) {
        self.hash(Tag::Undo, &[after.0], &[]);
        if self.correct {
            self.world.checkers.undo(self.id, after);
        }
    }

    fn read(&mut self, ticket: u64, request: &Body) {
        self.hash(Tag::ReadAction, &[ticket], &request.digest.0);
        if self.correct {
            self.world.checkers.read(self.id, request.client, request.timestamp);
        }
    }

    fn resend(&mut self, client: ClientId) {
        self.hash(Tag::Resend, &[client.0], &[]);
    }

    fn cut(&mut self, seq: SeqNum) {
        self.hash(Tag::Checkpoint, &[seq.0], &[]);
        if self.correct {
            self.world.checkers.cut(self.id, seq);
        }
    }

    fn discard(&mut self, below: SeqNum) {
        self.hash(Tag::Discard, &[below.0], &[]);
    }

    fn fetch(&mut self, seq: SeqNum, root: &Digest, check: bool) {
        self.hash(Tag::Fetch, &[seq.0, u64::from(check)], &root.0);
    }

    /// A replica has reached something.
    fn milestone(&mut self, milestone: &Milestone) {
        if !self.correct {
            return;
        }
        let Self { world, h, id, .. } = self;
        let (h, id) = (*h, *id);
        let host = &mut world.hosts[h];
        // Where a log is written, both count when they are noted there.
        if let Milestone::RejoinStarted { .. } = milestone {
            (host.amnesic, host.old_disk) = (true, host.old_disk && host.disk.is_written());
            world.checkers.forgets(id);
        }
        if let Milestone::Rejoined { .. } = milestone {
            host.amnesic &= host.disk.is_written();
        }
        let (tag, number, digest) = describe::milestone_numbers(milestone);
        self.hash(Tag::Report, &[tag, number], &digest.0);
        let world = &mut *self.world;
        world.counters.milestone(milestone);
        if let Some(evidence) = &mut world.evidence {
            evidence.milestone(id, world.checkers.facts(id).view, milestone);
        }
        // What was executed is told with its requests and results.
        if world.trace.is_some() && !matches!(milestone, Milestone::Executed { .. }) {
            let mut text = describe::milestone(milestone);
            if matches!(milestone, Milestone::Rejected(_)) {
                text = world.with_what_was_heard(text);
            }
            world.tell(h, || What::Milestone(text));
        }
        world.checkers.milestone(id, milestone);
    }

    fn sealed(&mut self, kind: Kind, frame: &[u8]) {
        if kind == Kind::NewView && self.correct {
            self.world.checkers.new_view(self.id, super::body_of(frame));
        }
    }

    fn sent(&mut self, to: Recipient, kind: Kind, frame: &[u8]) {
        if self.correct {
            self.world.counters.sent(kind);
            if let Ok(decoded) = quorate_wire::frame::Frame::decode(frame)
                && decoded.sender == Principal::Replica(self.id)
            {
                self.world.checkers.sends(self.id, kind, decoded.body);
                self.announces(kind, decoded.body);
            }
        }
        if self.world.trace.is_some() {
            let text = describe::frame(frame, &self.world.app);
            self.tell(|| What::Sent { to: receiver_name(to), text });
        }
    }

    fn durable(&mut self, lsn: Lsn) {
        if let Some((promises, facts)) = self.world.checkers.disk(self.id).filter(|_| self.correct) {
            promises.durable(facts.id, lsn);
        }
    }

    fn executed(&mut self, seq: SeqNum, batch: &Batch, tentative: bool, replies: &Replies) {
        if !self.correct {
            return;
        }
        self.world.checkers.executed(self.id, seq, batch.digest(), replies);
        let wrong = self.world.hosts[self.h].life_of.jobs.settled(seq, replies);
        // A page that was damaged since can have another lane, or another value.
        let forgives = self.world.work.forgives() || self.world.is_suspect(self.h);
        if let Some((client, timestamp)) = wrong.filter(|_| !forgives) {
            let text = format!(
                "{} answered {client}'s {} before it had settled, and otherwise",
                self.id, timestamp.0
            );
            self.world.checkers.note(Err(Violation::new("early replies (PX-C)", text, &[self.id])));
        }
        if let Some(evidence) = &mut self.world.evidence {
            evidence.executed(replies);
        }
        if self.world.trace.is_some() {
            self.tell_executed(seq, batch, tentative, replies);
        }
    }

    fn ran(&mut self, counters: &Runs) {
        if self.correct {
            self.world.counters.ran(counters);
        }
    }

    fn wrong_rule(&mut self, wrong: &WrongRule) {
        if !self.correct {
            return;
        }
        self.world.counters.fault("wrong rule found");
        if !self.world.work.forgives() && !self.world.is_suspect(self.h) {
            let text = format!("{}: the rules call two requests independent. {wrong}", self.id);
            self.world.checkers.note(Err(Violation::new("rules of the service (PX-C)", text, &[self.id])));
        }
    }

    /// Compares the incremental root of a checkpoint with a recomputed one (I17).
    fn checkpointed(&mut self, seq: SeqNum, root: Digest, executor: &Executor<A::Service, Paged>) {
        if !self.correct {
            return;
        }
        let (id, faults) = (self.id, executor.store().pages().faults);
        let computed = executor.recompute();
        // What cannot be read cannot be compared.
        let is_read = executor.store().pages().faults == faults;
        if computed != root && is_read && !self.world.is_suspect(self.h) {
            let text = format!("{id} cuts n={} with root {root}; its pages give {computed}", seq.0);
            self.world.checkers.note(Err(Violation::new("checkpoint (I17)", text, &[id])));
        }
        self.world.checkers.root(id, seq, root, Root::Cut);
    }

    fn installed(&mut self, seq: SeqNum, root: Digest, _executor: &Executor<A::Service, Paged>) {
        if self.correct {
            let is_kept = self.world.config.durability != Durability::Sync;
            self.world.checkers.root(self.id, seq, root, if is_kept { Root::Kept } else { Root::Fetched });
        }
    }

    fn unreadable(&mut self, page: u32) {
        self.world.counters.disk("page faults");
        self.tell(|| What::Milestone(format!("cannot read page {page}")));
    }

    fn restored(&mut self, page: u32) {
        self.world.counters.disk("pages repaired");
        self.tell(|| What::Milestone(format!("has page {page} again")));
    }

    fn transfer_refused(&mut self, from: ReplicaId, why: Refusal) {
        if self.correct {
            self.world.counters.refused(why);
            self.tell(|| What::Milestone(format!("turned away {from}'s answer: {why:?}")));
        }
    }

    fn distrusted(&mut self) {
        self.tell(|| What::Milestone("distrusts its own pages".to_owned()));
    }
}

fn receiver_name(to: Recipient) -> String {
    match to {
        Recipient::All => "*".to_owned(),
        Recipient::Replica(id) => id.to_string(),
        Recipient::Client(client) | Recipient::Collected { client, .. } => client.to_string(),
    }
}

fn recipient(to: Recipient) -> u64 {
    match to {
        Recipient::All => u64::MAX,
        Recipient::Replica(id) => u64::from(id.0),
        Recipient::Client(client) | Recipient::Collected { client, .. } => client.0,
    }
}

fn place(index: usize) -> u64 {
    u64::try_from(index).unwrap_or(0)
}

/// Takes an input into the hash. A frame has been taken in when it was admitted.
fn hash_input(hash: &mut TraceHash, host: u16, now: Now, input: &Input<'_>) {
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
        Input::Unreadable { executed } => note(Tag::Unreadable, &[executed.0], &[]),
        Input::Replied { seq, reply } => {
            note(Tag::Replied, &[seq.0, reply.client.0, reply.timestamp.0], &reply.digest.0);
        }
        Input::BurstEnd => note(Tag::BurstEnd, &[], &[]),
    }
}
