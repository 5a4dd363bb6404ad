//! The service's side of a process: its tasks in order, the walk of a state transfer, the disk.

use std::sync::Arc;

use quorate_pbft::config::Durability;
use quorate_pbft::step::{CachedReply, Input, Lsn, Now, ReadResult, Recipient, SignatureCheck, Ticket};
use quorate_service::image::CopiedPages;
use quorate_service::transfer::Refusal;
use quorate_service::{PageFault, Step, Task, Unanswered};
use quorate_wire::codec::Writer;
use quorate_wire::message::Fetch;
use quorate_wire::{Batch, ClientId, Digest, Kind, ReplicaId, Replies, SeqNum};

use super::{Event, World};
use crate::app::App;
use crate::checker::{Root, Violation};
use crate::describe;
use crate::disk::Imaged;
use crate::host::Parcel;
use crate::network::Frame;
use crate::trace::What;

/// When an image that found the disk full is written again.
const RETRY_NS: u64 = 20_000_000;

impl<A: App> World<A> {
    /// Puts a task in the service's queue.
    pub(super) fn task(&mut self, h: usize, task: Task<(ClientId, Arc<SignatureCheck>)>) {
        if let Some(process) = self.process(h) {
            process.tasks.push(task);
        }
    }

    /// Does the tasks that are waiting: at once, or one after the other, each taking its time. What
    /// comes of them goes to the replica in their order.
    pub(super) fn run_tasks(&mut self, h: usize) {
        let ((low, high), inline) = (self.task_time, self.inline);
        let (node, life) = (self.hosts[h].node, self.hosts[h].life);
        while let Some(process) = self.process(h)
            && !process.busy
            && process.tasks.has_next()
        {
            process.busy = true;
            let long = !inline || process.tasks.first().is_some_and(Task::is_long);
            if high > 0 && long {
                let took = self.task_rng.between(low, high);
                if inline {
                    (self.hosts[h].away_since, self.hosts[h].busy_until) = (self.at, self.at + took);
                }
                return self.schedule(self.at + took, node, Event::Ran { life });
            }
            self.end_task(h);
        }
    }

    /// The task in progress is done.
    pub(super) fn ran(&mut self, h: usize) {
        if self.inline {
            let (host, at) = (&mut self.hosts[h], self.at);
            host.clock.away(host.away_since, at);
        }
        self.end_task(h);
        self.run_tasks(h);
    }

    fn end_task(&mut self, h: usize) {
        // Still busy until then: what the replica adds now comes after this task.
        if let Some(process) = self.process(h)
            && let Some(task) =
                if process.tasks.is_parked() { process.tasks.take_ahead() } else { process.tasks.take() }
        {
            self.do_task(h, task);
        }
        if let Some(process) = self.process(h) {
            process.busy = false;
        }
    }

    fn do_task(&mut self, h: usize, task: Task<(ClientId, Arc<SignatureCheck>)>) {
        match task {
            Task::Execute { seq, batch, tentative } => self.execute(h, seq, &batch, tentative),
            Task::Merge(seq) => {
                if let Some(process) = self.process(h) {
                    process.executor.merge(seq);
                }
                self.admit_clients(h, false);
            }
            Task::Undo(after) => {
                if let Some(process) = self.process(h) {
                    process.executor.undo(after);
                }
            }
            Task::Read { ticket, request } => {
                let Some(process) = self.process(h) else { return };
                let mut result = Vec::new();
                let whose = (request.client, request.timestamp, &request.digest);
                let digest = process.executor.read(whose, request.operation(), &mut result);
                let result = match digest {
                    Some(digest) => ReadResult::Done { result: &result, digest },
                    None => ReadResult::NeedsOrder,
                };
                self.feed(h, Input::Read { ticket: Ticket(ticket), result });
            }
            Task::Resend(client) => {
                let Some(process) = self.process(h) else { return };
                let mut bytes = Vec::new();
                let cached = process.executor.cached(client).map(|cached| {
                    bytes.extend_from_slice(cached.result.unwrap_or(&[]));
                    (cached.timestamp, cached.digest, cached.result.is_some())
                });
                let reply = cached.map(|(timestamp, digest, full)| CachedReply {
                    timestamp,
                    digest,
                    result: full.then_some(bytes.as_slice()),
                });
                self.feed(h, Input::Cached { client, reply });
            }
            Task::Checkpoint(seq) => self.cut(h, seq),
            Task::Discard(below) => {
                if let Some(process) = self.process(h) {
                    process.executor.discard(below);
                }
                self.admit_clients(h, true);
                self.flush(h, below, false);
            }
            Task::Fetch { seq, root, check } => {
                let host = &mut self.hosts[h];
                let (id, mono) = (host.id, host.clock.mono(self.at));
                let peers: Vec<ReplicaId> = self.config.cluster.replicas().filter(|r| *r != id).collect();
                let Some(process) = &mut host.process else { return };
                process.executor.fetch(mono, seq, root, check, &peers, &mut self.steps);
                self.perform_steps(h);
            }
            Task::Check((client, check)) => {
                let Some(process) = self.process(h) else { return };
                let valid = process.door.check_signature(client, &check.request, &check.signature);
                self.counters.signatures += 1;
                self.feed(h, Input::SignatureChecked { request: check.request, valid });
            }
        }
    }

    fn execute(&mut self, h: usize, seq: SeqNum, batch: &Arc<Batch>, tentative: bool) {
        let mut replies = std::mem::take(&mut self.replies);
        replies.clear();
        let (id, correct) = (self.hosts[h].id, self.hosts[h].correct);
        let Some(process) = self.process(h) else { return };
        if let Err(fault) = process.executor.execute(seq, batch, tentative, &mut replies) {
            process.tasks.park(Task::Execute { seq, batch: Arc::clone(batch), tentative });
            self.replies = replies;
            return self.repair(h, fault);
        }
        self.admit_clients(h, false);
        if correct {
            self.checkers.executed(id, seq, batch.digest(), &replies);
            if let Some(evidence) = &mut self.evidence {
                evidence.executed(&replies);
            }
        }
        if correct && self.trace.is_some() {
            self.tell_executed(h, seq, batch, tentative, &replies);
        }
        self.feed(h, Input::Executed { seq, replies: &replies });
        self.replies = replies;
    }

    fn tell_executed(&mut self, h: usize, seq: SeqNum, batch: &Batch, tentative: bool, replies: &Replies) {
        let mark = if tentative { " tentatively" } else { "" };
        let executed = format!("executed n={}{mark}", seq.0);
        if batch.is_empty() {
            return self.tell(h, || What::Executed(format!("{executed} [null]")));
        }
        for (request, reply) in batch.requests().zip(replies.iter()) {
            let operation = describe::operation(request.operation, &self.app);
            let result = match reply.result {
                Some(result) => describe::result(request.client, result, &self.app),
                None => format!("{:?}", reply.outcome).to_lowercase(),
            };
            let text = format!("{executed} [{}: {operation}] -> {result}", request.client);
            self.tell(h, || What::Executed(text));
        }
    }

    /// Asks the others for a page that cannot be read (H4).
    fn repair(&mut self, h: usize, fault: PageFault) {
        let host = &mut self.hosts[h];
        let (id, mono) = (host.id, host.clock.mono(self.at));
        let peers: Vec<ReplicaId> = self.config.cluster.replicas().filter(|r| *r != id).collect();
        let Some(process) = &mut host.process else { return };
        process.executor.repair(mono, fault, &peers, &mut self.steps);
        self.counters.disk("page faults");
        self.perform_steps(h);
    }

    /// Takes a checkpoint, and compares the incremental root with a recomputed one (I17).
    fn cut(&mut self, h: usize, seq: SeqNum) {
        let (id, correct) = (self.hosts[h].id, self.hosts[h].correct);
        let Some(process) = self.process(h) else { return };
        let root = process.executor.checkpoint(seq);
        if correct {
            let faults = process.executor.store().pages().faults;
            let computed = process.executor.recompute();
            // What cannot be read cannot be compared.
            let is_read = process.executor.store().pages().faults == faults;
            if computed != root && is_read && !self.is_suspect(h) {
                let text = format!("{id} cuts n={} with root {root}; its pages give {computed}", seq.0);
                self.checkers.note(Err(Violation::new("checkpoint (I17)", text, &[id])));
            }
            self.checkers.root(id, seq, root, Root::Cut);
        }
        self.feed(h, Input::Checkpointed { seq, root });
    }

    /// Begins to write the image of a stable checkpoint, unless one is being written (D5); or of a state that was
    /// `fetched`, whatever is being written.
    fn flush(&mut self, h: usize, seq: SeqNum, fetched: bool) {
        let durability = self.config.durability;
        let host = &mut self.hosts[h];
        let (node, life) = (host.node, host.life);
        let Some(process) = &mut host.process else { return };
        let newer = host.disk.newest().is_none_or(|newest| newest < seq);
        let needless = !fetched && (process.flushing.is_some() || !newer);
        if durability == Durability::Memory || needless {
            return;
        }
        let Some(root) = process.executor.root_at(seq) else { return };
        let Some(mut saving) = process.executor.begin_save(seq) else { return };
        let mut copied = CopiedPages::default();
        if !process.executor.save(&mut saving, usize::MAX, &mut copied) {
            return process.executor.abandon_save(saving);
        }
        host.disk.image(copied, seq, root);
        process.flushing = Some((seq, root));
        let took = host.disk.image_ns();
        let at = self.at + host.image_ns.unwrap_or(took);
        process.flushed_at = at;
        self.schedule(at, node, Event::Flushed { life });
    }

    /// An image is on the disk: what it and the stable checkpoint make needless goes (D6).
    pub(super) fn flushed(&mut self, h: usize) {
        let at = self.at;
        let host = &mut self.hosts[h];
        let Some(process) = &mut host.process else { return };
        if process.flushed_at > at {
            return;
        }
        let Some((seq, _)) = process.flushing else { return };
        match host.disk.end_image() {
            Imaged::Done { stored, is_cut } => {
                process.executor.note_stored(&stored);
                host.amnesic &= !core::mem::take(&mut host.imageless);
                if is_cut {
                    self.counters.disk("logs cut");
                }
            }
            Imaged::Nothing => {}
            Imaged::Full => {
                let (node, life) = (host.node, host.life);
                self.counters.disk("images on a full disk");
                return self.schedule(at + RETRY_NS, node, Event::Flushed { life });
            }
        }
        process.flushing = None;
        self.counters.images += 1;
        self.counters.disk("images written");
        let id = host.id;
        self.checkers.kept(id, seq);
        self.feed(h, Input::Kept { seq });
    }

    /// Records are durable: the messages that waited for them are sent, and the replica is told.
    pub(super) fn synced(&mut self, h: usize) {
        let host = &mut self.hosts[h];
        let Some(lsn) = host.disk.end_sync() else { return };
        let Some(process) = &mut host.process else { return };
        if lsn <= process.durable {
            return;
        }
        process.durable = lsn;
        if let Some((promises, facts)) = self.checkers.disk(host.id).filter(|_| host.correct) {
            promises.durable(facts.id, lsn);
        }
        let later = process.outbox.split_off(&(Lsn(lsn.0 + 1), 0));
        let ready = std::mem::replace(&mut process.outbox, later);
        for parcel in ready.values() {
            self.release(h, parcel);
        }
        self.feed(h, Input::Durable(lsn));
    }

    /// Performs the actions of a state transfer's walk.
    pub(super) fn perform_steps(&mut self, h: usize) {
        let mut steps = std::mem::take(&mut self.steps);
        for step in steps.list() {
            match *step {
                Step::Ask { to, question } => self.ask(h, to, &question),
                Step::Answer { to, kind, body } => self.send_own(h, to, kind, steps.bytes(body).to_vec()),
                Step::Refused { from, why } => self.refused(h, from, why),
                Step::Distrusted => self.tell(h, || What::Milestone("distrusts its own pages".to_owned())),
                Step::PageRestored { .. } => {
                    self.counters.disk("pages repaired");
                    if let Some(process) = self.process(h) {
                        process.tasks.resume();
                    }
                    self.run_tasks(h);
                }
                Step::Installed { seq, root } => self.installed(h, seq, root),
            }
        }
        steps.clear();
        self.steps = steps;
    }

    /// Asks for a partition of the state.
    fn ask(&mut self, h: usize, to: ReplicaId, question: &Fetch) {
        let mut body = Vec::new();
        question.encode(&mut Writer::new(&mut body));
        self.send_own(h, to, Kind::Fetch, body);
    }

    /// Seals and sends a message of the state transfer's; a liar may change it.
    fn send_own(&mut self, h: usize, to: ReplicaId, kind: Kind, mut body: Vec<u8>) {
        let Some(process) = self.process(h) else { return };
        if !process.core.answer(kind, &mut body) {
            return;
        }
        let mut sealed = Vec::new();
        process.door.seal(kind, Some(to.into()), &body, &mut sealed);
        let frame: Frame = sealed.into();
        self.release(h, &Parcel { to: Recipient::Replica(to), kind, frame });
    }

    /// A message of a transfer's was rejected.
    fn refused(&mut self, h: usize, from: ReplicaId, why: Refusal) {
        if self.hosts[h].correct {
            self.counters.refused(why);
            self.tell(h, || What::Milestone(format!("turned away {from}'s answer: {why:?}")));
        }
    }

    /// The state is that of a fetched checkpoint now.
    fn installed(&mut self, h: usize, seq: SeqNum, root: Digest) {
        let (id, correct) = (self.hosts[h].id, self.hosts[h].correct);
        if correct {
            let is_kept = self.config.durability != Durability::Sync;
            self.checkers.root(id, seq, root, if is_kept { Root::Kept } else { Root::Fetched });
        }
        let mut clients = Vec::new();
        let Some(process) = self.process(h) else { return };
        process.executor.clients(&mut clients);
        clients.sort_unstable();
        let lives = process.executor.lives();
        self.admit_clients(h, true);
        self.hosts[h].disk.adopt();
        self.flush(h, seq, true);
        self.feed(h, Input::Fetched { seq, root, clients: &clients, lives: lives.as_deref() });
        // The new state replaces what was to be executed before it.
        let dropped = self.process(h).map(|process| process.tasks.take_unanswered()).unwrap_or_default();
        let none = Replies::new();
        for unanswered in dropped {
            match unanswered {
                Unanswered::Batch(seq) => self.feed(h, Input::Executed { seq, replies: &none }),
                Unanswered::Read(ticket) => {
                    self.feed(h, Input::Read { ticket: Ticket(ticket), result: ReadResult::NeedsOrder });
                }
            }
        }
    }

    /// Returns the time as host `h` sees it.
    pub(crate) fn now(&self, h: usize) -> Now {
        let clock = &self.hosts[h].clock;
        Now { mono_ns: clock.mono(self.at), wall_ns: clock.wall(self.at) }
    }
}
