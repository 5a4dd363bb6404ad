//! The tasks of the executor: each is done after the step that asked for it, and its result is the next input of the replica.
//!
//! A batch waits for one of three reasons. If the last batch took long, the next one waits until the frames that are
//! ready have been sent, so that the other replicas do not wait for this execution (PR-7). It is executed then, even if
//! each burst brings input (L100). Or a page that it needs cannot be read: the page is fetched from the
//! others, or a state transfer begins. Or too much of the state is only in memory, and an image is being written:
//! afterwards pages can be dropped. That wait ends by itself, because nothing is executed in the meantime that could
//! delay the image. If no image is being written there is nothing to wait for, because the next image needs the next
//! stable checkpoint. So memory is bounded by one and a half times the limit, plus the pages written between two
//! stable checkpoints. Agreement continues in the meantime, within the window.
//!
//! A read waits for the next turn if this one has spent enough on reads (RO-7). No batch waits for it: a read sees the committed
//! state, and a later one is as good.

use alloc::sync::Arc;

use quorate_pbft::Now;
use quorate_pbft::step::{CachedReply, Input, ReadResult, SignatureCheck, Ticket};
use quorate_service::parallel::{Done, Early};
use quorate_service::{PageFault, Service, Task, Unanswered};
use quorate_wire::life::Lives;
use quorate_wire::reply::{Reply, ReplyOutcome};
use quorate_wire::{Batch, Body, ClientId, Digest, ReplicaId, Replies, SeqNum};

use super::Process;
use super::transfer::{is_past, take_ahead};
use crate::ahead::{Ahead, SettledBatch};
use crate::core::Core;
use crate::observer::{Observer, Part};
use crate::options::Execution;
use crate::reads::LateRead;
use crate::storage::queue::DiskQueue;
use crate::storage::store::Store;

/// A batch that takes longer than this is slow, in nanoseconds.
const SLOW_NS: u64 = 1_000_000;

impl<S: Service, P: Store, D: DiskQueue, C: Core> Process<S, P, D, C> {
    /// Does the tasks that can be done, in order. Their results may add others.
    #[inline]
    pub(super) fn run_tasks(&mut self, now: Now, watch: &mut impl Observer<S, P>) {
        if self.ahead.is_some() {
            return self.run_ahead(now, watch);
        }
        // Most steps leave none.
        if !self.queue.is_empty() || !self.late.is_empty() {
            self.run_queue(now, watch);
        }
    }

    #[inline(never)]
    fn run_queue(&mut self, now: Now, watch: &mut impl Observer<S, P>) {
        loop {
            if self.reads.is_spent() || !self.late.is_empty() {
                self.sort_reads();
            }
            let Some(task) = self.next_task() else { break };
            self.run(now, task, watch);
        }
    }

    /// Lets the next reads wait for the next turn if this one has spent enough on reads. If not, takes one that waited (RO-7).
    #[cold]
    fn sort_reads(&mut self) {
        if self.is_working || self.queue.is_parked() {
            return;
        }
        if self.reads.is_spent() {
            while let Some(Task::Read { .. }) = self.queue.first()
                && let Some(Task::Read { ticket, request }) = self.queue.take()
            {
                self.late.push(LateRead { ticket, request, is_due: false });
            }
        } else if let Some(LateRead { ticket, request, .. }) = self.late.pop() {
            self.queue.push_first(Task::Read { ticket, request });
        }
    }

    /// A worker has run a job.
    #[cold]
    pub(super) fn ran(&mut self, now: Now, done: Done, watch: &mut impl Observer<S, P>) {
        let Some(ahead) = &mut self.ahead else { return };
        // Several short jobs settle together. After the last one, or at the end of the burst.
        if !ahead.finish(done) {
            self.run_ahead(now, watch);
        }
    }

    /// Inserts batches, finds jobs, and settles what has run, until nothing is left that can be done. Then replies to other
    /// requests leave early.
    #[cold]
    pub(super) fn run_ahead(&mut self, now: Now, watch: &mut impl Observer<S, P>) {
        loop {
            let is_new = self.take_tasks(now, watch);
            let Some(ahead) = &mut self.ahead else { return };
            let is_found = ahead.find_jobs(&mut self.executor);
            if !self.settle_next(now, watch) && !is_new && !is_found {
                break;
            }
        }
        while let Some(early) = self.ahead.as_mut().and_then(|ahead| ahead.take_early()) {
            let Early { position, client, timestamp, request, replier, result } = &early;
            let (client, timestamp) = (*client, *timestamp);
            let digest = self.executor.reply_digest((client, timestamp, request), result);
            let outcome = ReplyOutcome::Executed;
            let reply = Reply { client, timestamp, digest, replier: *replier, outcome, result: Some(result) };
            self.step_core(now, Input::Replied { seq: position.seq, reply }, &[], watch);
        }
        let Some(ahead) = &mut self.ahead else { return };
        let runs = ahead.take_counters();
        self.counters.runs = self.counters.runs.plus(runs);
        watch.ran(&runs);
        for wrong in ahead.take_wrong() {
            watch.wrong_rule(&wrong);
        }
    }

    /// Inserts the batches of the queue. A task that needs their effects is kept until they have settled. Returns whether
    /// there was a task.
    fn take_tasks(&mut self, now: Now, watch: &mut impl Observer<S, P>) -> bool {
        let mut is_new = false;
        while let Some(ahead) = &mut self.ahead
            && let Some(task) = if self.queue.is_parked() {
                take_ahead(&mut self.queue, &self.executor)
            } else {
                self.queue.take()
            }
        {
            is_new = true;
            match task {
                Task::Execute { seq, batch, tentative } => {
                    assert!(!tentative, "workers run committed batches only (PX-7)");
                    if ahead.is_for_pages(&self.executor, &batch) && !self.waits_for_room() {
                        self.execute(now, seq, batch, tentative, watch);
                        continue;
                    }
                    let Some(ahead) = &mut self.ahead else { break };
                    if ahead.insert(&mut self.executor, seq, &batch).is_err() {
                        self.queue.park(Task::Execute { seq, batch, tentative });
                    }
                }
                Task::Check(_) => self.run(now, task, watch),
                Task::Fetch { seq, check, .. } => {
                    if is_past(&self.executor, seq, check) {
                        continue;
                    }
                    self.queue.owe(ahead.drain(&mut self.executor));
                    self.run(now, task, watch);
                }
                Task::Read { ticket, request } if self.reads.is_spent() || !self.late.is_empty() => {
                    self.late.push(LateRead { ticket, request, is_due: false });
                }
                Task::Read { ticket, request } => self.read_beside(now, ticket, request, watch),
                Task::Merge(_) | Task::Undo(_) | Task::Resend(_) | Task::Checkpoint(_) | Task::Discard(_) => {
                    if let Some(task) = ahead.put_behind(task) {
                        self.run(now, task, watch);
                    }
                }
            }
        }
        is_new
    }

    /// Does the tasks whose batches have settled, and settles the next batch. Returns whether something was done.
    fn settle_next(&mut self, now: Now, watch: &mut impl Observer<S, P>) -> bool {
        if !self.reads.is_spent()
            && let Some(LateRead { ticket, request, is_due }) = self.late.pop()
        {
            if is_due {
                self.read(now, (ticket, self.executor.time_ns()), &request, watch);
            } else {
                self.read_beside(now, ticket, request, watch);
            }
            return true;
        }
        let Some(ahead) = &mut self.ahead else { return false };
        match ahead.take_due() {
            Some(Task::Read { ticket, request }) if self.reads.is_spent() || !self.late.is_empty() => {
                self.late.push(LateRead { ticket, request, is_due: true });
                return true;
            }
            Some(task) => {
                self.run(now, task, watch);
                return true;
            }
            None => {}
        }
        if ahead.is_due() && ahead.begins_batch() && self.waits_for_room() {
            return false;
        }
        let Some(ahead) = &mut self.ahead else { return false };
        match ahead.settle(&mut self.executor) {
            Ok(None) => false,
            Ok(Some(SettledBatch { seq, batch, replies })) => {
                watch.lap(Part::Execute);
                self.counters.requests += u64::try_from(batch.len()).unwrap_or(0);
                self.queue.resume();
                self.admit_clients(false);
                watch.executed(seq, &batch, false, &replies);
                self.step_core(now, Input::Executed { seq, replies: &replies, took_ns: 0 }, &[], watch);
                if let Some(ahead) = &mut self.ahead {
                    ahead.reuse(replies);
                }
                true
            }
            Err(fault) => {
                self.repair(now, fault, watch);
                true
            }
        }
    }

    /// Executes a read beside unsettled batches, or keeps it until they have settled (PX-8).
    fn read_beside(&mut self, now: Now, ticket: u64, request: Body, watch: &mut impl Observer<S, P>) {
        let Some(ahead) = &mut self.ahead else { return };
        if let Some(time_ns) = ahead.time_of_read(&self.executor, request.operation()) {
            self.read(now, (ticket, time_ns), &request, watch);
        } else if let Some(task) = ahead.put_behind(Task::Read { ticket, request }) {
            self.run(now, task, watch);
        }
    }

    /// The time of the first task is over: does the task, and begins the next.
    #[cold]
    pub(super) fn work(&mut self, now: Now, took_ns: u64, watch: &mut impl Observer<S, P>) {
        if !core::mem::take(&mut self.is_working) {
            return;
        }
        // Everything was sent before its time began.
        let task = if self.waits_for_pages() { self.queue.take_ahead() } else { self.queue.take() };
        if let Some(task) = task {
            self.worked_ns = took_ns;
            self.run(now, task, watch);
            self.worked_ns = 0;
        }
        self.run_tasks(now, watch);
    }

    /// Returns whether a task can be done now that could not be done when it was added.
    #[inline]
    pub(super) fn can_run(&self) -> bool {
        let has_room = |ahead: &Ahead| !ahead.begins_batch() || !self.has_no_room();
        if self.ahead.as_ref().is_some_and(|ahead| ahead.is_due() && has_room(ahead)) {
            return true;
        }
        if !self.late.is_empty() && (self.ahead.is_some() || !self.is_working && !self.queue.is_parked()) {
            return true;
        }
        let waits = self.is_working || self.queue.is_parked() || self.must_send_first();
        !self.queue.is_empty() && !waits && !self.has_no_room()
    }

    #[inline]
    fn next_task(&mut self) -> Option<Task<(ClientId, Arc<SignatureCheck>)>> {
        if self.queue.is_empty() || self.execution != Execution::Inline && self.begins_to_work() {
            return None;
        }
        let waits = self.must_send_first() && self.is_batch_first() || self.waits_for_pages();
        if waits { take_ahead(&mut self.queue, &self.executor) } else { self.queue.take() }
    }

    /// Returns whether the next task needs some time, where tasks are deferred. It has begun then.
    fn begins_to_work(&mut self) -> bool {
        if !self.is_working {
            let waits = self.waits_for_pages();
            let is_long = !waits && self.queue.first().is_some_and(Task::is_long);
            let is_there = !waits || self.queue.has_ahead();
            self.is_working = is_long || is_there && self.execution == Execution::Deferred;
        }
        self.is_working
    }

    #[inline]
    pub(super) fn is_batch_first(&self) -> bool {
        matches!(self.queue.first(), Some(Task::Execute { .. }))
    }

    /// Returns whether the first task waits for a page that cannot be read, or is a batch for whose pages there is no
    /// room.
    #[inline]
    fn waits_for_pages(&mut self) -> bool {
        self.queue.is_parked() || self.is_batch_first() && self.waits_for_room()
    }

    /// Returns whether the next batch waits because there is no room for its pages.
    #[inline]
    fn waits_for_room(&mut self) -> bool {
        self.executor.relax();
        self.has_no_room()
    }

    /// Returns whether the last batch was slow, and frames may be ready that have not been sent.
    #[inline]
    fn must_send_first(&self) -> bool {
        self.is_slow && self.is_unsent
    }

    /// Returns whether the disk is too far behind for another batch: too many records wait for it, or too much of the
    /// state is only in memory, and an image will change that.
    #[inline]
    fn has_no_room(&self) -> bool {
        self.disk.is_behind() || self.has_no_memory()
    }

    #[inline]
    fn has_no_memory(&self) -> bool {
        let max = self.executor.store().pages_max();
        let here = self.executor.store().pages().in_memory;
        // Usually there is much less than the limit.
        here > max / 2
            && here + self.executor.pages_of_checkpoints() > max.saturating_add(max / 2)
            && (self.saving.is_some() || self.disk.is_imaging() || !self.stored.is_empty())
    }

    #[inline]
    fn run(
        &mut self,
        now: Now,
        task: Task<(ClientId, Arc<SignatureCheck>)>,
        watch: &mut impl Observer<S, P>,
    ) {
        match task {
            Task::Execute { seq, batch, tentative } => self.execute(now, seq, batch, tentative, watch),
            Task::Merge(seq) => {
                self.executor.merge(seq);
                watch.lap(Part::Execute);
                self.admit_clients(false);
            }
            Task::Undo(after) => self.executor.undo(after),
            Task::Read { ticket, request } => {
                self.read(now, (ticket, self.executor.time_ns()), &request, watch);
            }
            Task::Resend(client) => self.resend(now, client, watch),
            Task::Checkpoint(seq) => {
                let root = self.executor.checkpoint(seq);
                watch.lap(Part::Execute);
                watch.checkpointed(seq, root, &self.executor);
                self.step_core(now, Input::Checkpointed { seq, root }, &[], watch);
            }
            Task::Discard(stable) => {
                self.discard(now.mono_ns, stable);
                watch.lap(Part::Execute);
                self.admit_clients(true);
                watch.discarded(stable, &self.executor);
            }
            Task::Fetch { seq, check, .. } if is_past(&self.executor, seq, check) => {}
            Task::Fetch { seq, root, check } => {
                // The state is replaced: agreement gets no results of it any more.
                self.queue.owe(self.late.drain().map(Unanswered::Read));
                self.give_up_image();
                self.fetch(now, seq, root, check, watch);
            }
            Task::Check((client, check)) => {
                let valid = self.endpoint.door().check_signature(client, &check.request, &check.signature);
                watch.lap(Part::Admit);
                self.step_core(now, Input::SignatureChecked { request: check.request, valid }, &[], watch);
            }
        }
    }

    #[inline]
    fn execute(
        &mut self,
        now: Now,
        seq: SeqNum,
        batch: Arc<Batch>,
        tentative: bool,
        watch: &mut impl Observer<S, P>,
    ) {
        let mut replies = core::mem::take(&mut self.replies);
        let began_ns = watch.clock_ns();
        match self.executor.execute(seq, &batch, tentative, &mut replies) {
            Ok(()) => {
                watch.lap(Part::Execute);
                self.counters.requests += u64::try_from(batch.len()).unwrap_or(0);
                self.admit_clients(false);
                watch.executed(seq, &batch, tentative, &replies);
                let took_ns = self.worked_ns + watch.clock_ns().saturating_sub(began_ns);
                (self.is_slow, self.is_unsent) = (took_ns > SLOW_NS, true);
                self.is_slow_now |= self.is_slow;
                self.step_core(now, Input::Executed { seq, replies: &replies, took_ns }, &[], watch);
            }
            Err(fault) => {
                self.queue.park(Task::Execute { seq, batch, tentative });
                self.repair(now, fault, watch);
            }
        }
        self.replies = replies;
    }

    #[inline]
    fn read(
        &mut self,
        now: Now,
        (ticket, time_ns): (u64, u64),
        request: &Body,
        watch: &mut impl Observer<S, P>,
    ) {
        self.reads.begin(|| watch.clock_ns());
        let mut bytes = core::mem::take(&mut self.result);
        let whose = (request.client, request.timestamp, &request.digest);
        let digest = self.executor.read_at(time_ns, whose, request.operation(), &mut bytes);
        self.reads.end(self.worked_ns + watch.clock_ns(), bytes.len());
        watch.lap(Part::Execute);
        let result = match digest {
            Some(digest) => ReadResult::Done { result: &bytes, digest },
            None => ReadResult::NeedsOrder,
        };
        self.step_core(now, Input::Read { ticket: Ticket(ticket), result }, &[], watch);
        self.result = bytes;
    }

    fn resend(&mut self, now: Now, client: ClientId, watch: &mut impl Observer<S, P>) {
        let mut bytes = core::mem::take(&mut self.result);
        bytes.clear();
        let found = self.executor.cached(client).map(|cached| {
            let cached = cached?;
            bytes.extend_from_slice(cached.result.unwrap_or(&[]));
            Some((cached.timestamp, cached.digest, cached.result.is_some()))
        });
        match found {
            Ok(cached) => {
                let reply = cached.map(|(timestamp, digest, is_whole)| CachedReply {
                    timestamp,
                    digest,
                    result: is_whole.then_some(bytes.as_slice()),
                });
                self.step_core(now, Input::Cached { client, reply }, &[], watch);
            }
            // No batch may ever need that page. The client asks again, and by then the page is here (D8).
            Err(fault) => self.repair(now, fault, watch),
        }
        self.result = bytes;
    }

    /// Requests a page that the next batch needs, or an image.
    #[cold]
    pub(super) fn repair(&mut self, now: Now, fault: PageFault, watch: &mut impl Observer<S, P>) {
        *self.counters.rejected.entry("page-unreadable").or_default() += 1;
        watch.unreadable(fault.page);
        let mut steps = core::mem::take(&mut self.steps);
        steps.clear();
        self.executor.repair(now.mono_ns, fault, &self.peers, &mut steps);
        self.perform_transfer(now, &steps, watch);
        self.steps = steps;
    }

    /// The state of a checkpoint is here, if one was fetched. Tells the replica, once the tables in that state can be
    /// read: what agreement takes from them must be complete, and they are on pages that can be unreadable as any other
    /// (D6). Until then the transfer is not over.
    pub(super) fn install(&mut self, now: Now, watch: &mut impl Observer<S, P>) {
        let Some((seq, root)) = self.installing else { return };
        match self.executor.tables() {
            Ok(lives) => {
                self.installing = None;
                self.installed(now, (seq, root), &lives, watch);
            }
            Err(fault) => self.repair(now, fault, watch),
        }
    }

    /// The state of a checkpoint is installed: tells the replica, and answers it for dropped tasks, which the state
    /// replaces.
    fn installed(
        &mut self,
        now: Now,
        (seq, root): (SeqNum, Digest),
        lives: &[(ReplicaId, Lives)],
        watch: &mut impl Observer<S, P>,
    ) {
        watch.installed(seq, root, &self.executor);
        let mut clients = core::mem::take(&mut self.clients);
        self.admit_clients(true);
        self.executor.clients(&mut clients);
        clients.sort_unstable();
        self.disk.image_soon();
        self.fetched = seq;
        self.statements.note_checkpoint(seq, root);
        let time_ns = self.executor.time_ns();
        let input = Input::Fetched { seq, root: &root, clients: &clients, lives: Some(lives), time_ns };
        self.step_core(now, input, &[], watch);
        self.clients = clients;
        let none = Replies::new();
        for unanswered in self.queue.take_unanswered() {
            let input = match unanswered {
                Unanswered::Batch(seq) => Input::Executed { seq, replies: &none, took_ns: 0 },
                Unanswered::Read(ticket) => {
                    Input::Read { ticket: Ticket(ticket), result: ReadResult::NeedsOrder }
                }
            };
            self.step_core(now, input, &[], watch);
        }
    }
}
