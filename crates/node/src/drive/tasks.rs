//! The tasks of the executor: each is done after the step that asked for it, and its result is the next input of the replica.
//!
//! A batch waits for one of two reasons. Either a page that it needs cannot be read: the page is fetched from the
//! others, or a state transfer begins. Or too much of the state is only in memory, and an image is being written:
//! afterwards pages can be dropped. That wait ends by itself, because nothing is executed in the meantime that could
//! delay the image. If no image is being written there is nothing to wait for, because the next image needs the next
//! stable checkpoint. So memory is bounded by one and a half times the limit, plus the pages written between two
//! stable checkpoints. Agreement continues in the meantime, within the window.

use std::sync::Arc;

use quorate_pbft::Now;
use quorate_pbft::step::{CachedReply, Input, ReadResult, SignatureCheck, Ticket};
use quorate_service::{PageFault, Service, Task, Unanswered};
use quorate_wire::{Batch, Body, ClientId, Digest, Replies, SeqNum};

use super::Drive;
use crate::core::Core;
use crate::journal::Journal;
use crate::meter::{Meter, Part};

impl<S: Service, M: Meter, J: Journal, C: Core> Drive<S, M, J, C> {
    /// Does the tasks that can be done, in order. Their results may add others.
    #[inline]
    pub(super) fn run_tasks(&mut self, now: Now) {
        while let Some(task) = self.next_task() {
            self.run(now, task);
        }
    }

    /// Returns whether a task can be done now that could not be done when it was added.
    #[inline]
    pub(super) fn can_run(&self) -> bool {
        !self.queue.is_empty() && !self.queue.is_parked() && !self.has_no_room()
    }

    #[inline]
    fn next_task(&mut self) -> Option<Task<(ClientId, Arc<SignatureCheck>)>> {
        if self.queue.is_empty() {
            return None;
        }
        if self.queue.is_parked() || self.must_wait() { self.queue.take_ahead() } else { self.queue.take() }
    }

    /// Returns whether the first task is a batch, and there is no room for its pages.
    #[inline]
    fn must_wait(&mut self) -> bool {
        if !matches!(self.queue.first(), Some(Task::Execute { .. })) {
            return false;
        }
        self.executor.relax();
        self.has_no_room()
    }

    /// Returns whether too much of the state is only in memory, and an image will change that.
    #[inline]
    fn has_no_room(&self) -> bool {
        let max = self.executor.store().pages_max();
        let here = self.executor.store().pages().in_memory;
        // Usually there is much less than the limit.
        here > max / 2
            && here + self.executor.pages_of_checkpoints() > max.saturating_add(max / 2)
            && (self.saving.is_some() || self.journal.is_imaging() || !self.stored.is_empty())
    }

    #[inline]
    fn run(&mut self, now: Now, task: Task<(ClientId, Arc<SignatureCheck>)>) {
        match task {
            Task::Execute { seq, batch, tentative } => self.execute(now, seq, batch, tentative),
            Task::Merge(seq) => {
                self.executor.merge(seq);
                self.meter.lap(Part::Execute);
                self.admit_clients(false);
            }
            Task::Undo(after) => self.executor.undo(after),
            Task::Read { ticket, request } => self.read(now, ticket, &request),
            Task::Resend(client) => self.resend(now, client),
            Task::Checkpoint(seq) => {
                let root = self.executor.checkpoint(seq);
                self.meter.lap(Part::Execute);
                self.step_core(now, Input::Checkpointed { seq, root }, &[]);
            }
            Task::Discard(stable) => {
                self.discard(stable);
                self.meter.lap(Part::Execute);
                self.admit_clients(true);
            }
            Task::Fetch { seq, root, check } => {
                self.give_up_image();
                self.fetch(now, seq, root, check);
            }
            Task::Check((client, check)) => {
                let valid = self.door.check_signature(client, &check.request, &check.signature);
                self.meter.lap(Part::Admit);
                self.step_core(now, Input::SignatureChecked { request: check.request, valid }, &[]);
            }
        }
    }

    #[inline]
    fn execute(&mut self, now: Now, seq: SeqNum, batch: Arc<Batch>, tentative: bool) {
        let mut replies = core::mem::take(&mut self.replies);
        match self.executor.execute(seq, &batch, tentative, &mut replies) {
            Ok(()) => {
                self.meter.lap(Part::Execute);
                self.counters.requests += u64::try_from(batch.len()).unwrap_or(0);
                self.admit_clients(false);
                self.step_core(now, Input::Executed { seq, replies: &replies }, &[]);
            }
            Err(fault) => {
                self.queue.park(Task::Execute { seq, batch, tentative });
                self.repair(now, fault);
            }
        }
        self.replies = replies;
    }

    #[inline]
    fn read(&mut self, now: Now, ticket: u64, request: &Body) {
        let mut bytes = core::mem::take(&mut self.result);
        let whose = (request.client, request.timestamp, &request.digest);
        let digest = self.executor.read(whose, request.operation(), &mut bytes);
        self.meter.lap(Part::Execute);
        let result = match digest {
            Some(digest) => ReadResult::Done { result: &bytes, digest },
            None => ReadResult::NeedsOrder,
        };
        self.step_core(now, Input::Read { ticket: Ticket(ticket), result }, &[]);
        self.result = bytes;
    }

    fn resend(&mut self, now: Now, client: ClientId) {
        let mut bytes = core::mem::take(&mut self.result);
        bytes.clear();
        let cached = self.executor.cached(client).map(|cached| {
            bytes.extend_from_slice(cached.result.unwrap_or(&[]));
            (cached.timestamp, cached.digest, cached.result.is_some())
        });
        let reply = cached.map(|(timestamp, digest, is_whole)| CachedReply {
            timestamp,
            digest,
            result: is_whole.then_some(bytes.as_slice()),
        });
        self.step_core(now, Input::Cached { client, reply }, &[]);
        self.result = bytes;
    }

    /// Requests a page that the next batch needs.
    #[cold]
    fn repair(&mut self, now: Now, fault: PageFault) {
        *self.counters.rejected.entry("page-unreadable").or_default() += 1;
        let mut steps = core::mem::take(&mut self.steps);
        steps.clear();
        self.executor.repair(now.mono_ns, fault, &self.peers, &mut steps);
        self.perform_transfer(now, &steps);
        self.steps = steps;
    }

    /// The state of a checkpoint is installed: tells the replica, and answers it for dropped tasks, which the state
    /// replaces.
    pub(super) fn installed(&mut self, now: Now, seq: SeqNum, root: Digest) {
        let lives = self.executor.lives();
        let mut clients = core::mem::take(&mut self.clients);
        self.admit_clients(true);
        self.executor.clients(&mut clients);
        clients.sort_unstable();
        self.journal.image_soon();
        self.fetched = seq;
        self.sayings.note_checkpoint(seq, root);
        self.step_core(now, Input::Fetched { seq, root, clients: &clients, lives: lives.as_deref() }, &[]);
        self.clients = clients;
        let none = Replies::new();
        for unanswered in self.queue.take_unanswered() {
            let input = match unanswered {
                Unanswered::Batch(seq) => Input::Executed { seq, replies: &none },
                Unanswered::Read(ticket) => {
                    Input::Read { ticket: Ticket(ticket), result: ReadResult::NeedsOrder }
                }
            };
            self.step_core(now, input, &[]);
        }
    }
}
