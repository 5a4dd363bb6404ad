//! The state transfer's part of a drive. It has its own messages, which agreement never handles.

use quorate_pbft::Now;
use quorate_pbft::step::{Form, Input, Lsn, Recipient};
use quorate_service::transfer::Refusal;
use quorate_service::{Executor, Queue, Service, Step, Steps, Task};
use quorate_wire::codec::Writer;
use quorate_wire::{Digest, Kind, ReplicaId, SeqNum};

use super::Process;
use crate::core::Core;
use crate::observer::Observer;
use crate::storage::queue::DiskQueue;
use crate::storage::store::Store;

impl<S: Service, P: Store, D: DiskQueue, C: Core> Process<S, P, D, C> {
    /// Returns whether a page that an image needs can be fetched.
    #[inline]
    pub(super) fn can_repair(&self) -> bool {
        !self.peers.is_empty() && self.executor.missing_page().is_some()
    }

    /// Returns whether a page of the state could not be read, and there is no other replica to fetch it from: this one cannot
    /// go on.
    #[inline]
    pub fn has_lost_a_page(&self) -> bool {
        self.peers.is_empty() && self.counters.rejected.contains_key("page-unreadable")
    }

    /// Fetches the state of a certified checkpoint.
    pub(super) fn fetch(
        &mut self,
        now: Now,
        seq: SeqNum,
        root: Digest,
        check: bool,
        watch: &mut impl Observer<S, P>,
    ) {
        let runs = self.executor.is_fetching();
        self.transfer_meter.aim(seq, runs, now.mono_ns, self.state_pages());
        self.installing = None;
        let mut steps = core::mem::take(&mut self.steps);
        steps.clear();
        self.executor.fetch(now.mono_ns, seq, root, check, &self.peers, &mut steps);
        self.perform_transfer(now, &steps, watch);
        self.steps = steps;
    }

    /// Lets the state transfer take a step.
    pub(super) fn transfer(
        &mut self,
        now: Now,
        watch: &mut impl Observer<S, P>,
        step: impl FnOnce(&mut Executor<S, P>, &mut Steps),
    ) {
        let mut steps = core::mem::take(&mut self.steps);
        steps.clear();
        step(&mut self.executor, &mut steps);
        self.perform_transfer(now, &steps, watch);
        self.steps = steps;
        self.run_tasks(now, watch);
    }

    /// Performs the steps of a transfer, and tells the replica when the state is installed.
    pub(super) fn perform_transfer(&mut self, now: Now, steps: &Steps, watch: &mut impl Observer<S, P>) {
        for step in steps.list() {
            match step {
                Step::Ask { to, question } => {
                    let mut body = core::mem::take(&mut self.body);
                    body.clear();
                    question.encode(&mut Writer::new(&mut body));
                    self.say(*to, Kind::Fetch, &body, watch);
                    self.body = body;
                }
                Step::Answer { to, kind, body } => {
                    self.say(*to, *kind, steps.bytes(*body), watch);
                }
                Step::Refused { from, why } => {
                    watch.transfer_refused(*from, *why);
                    *self.counters.rejected.entry(refusal(*why)).or_default() += 1;
                }
                Step::Distrusted => {
                    watch.distrusted();
                    *self.counters.rejected.entry("own-pages-distrusted").or_default() += 1;
                }
                Step::PageRestored { page } => {
                    watch.restored(*page);
                    self.queue.resume();
                    if let Some(ahead) = &mut self.ahead {
                        ahead.resume();
                    }
                    self.install(now, watch);
                }
                Step::PageMissing { .. } | Step::Stalled => {
                    let executed = self.executor.last_executed();
                    self.step_core(now, Input::Unreadable { executed }, &[], watch);
                }
                Step::Installed { seq, root } => {
                    self.transfer_meter.end(*seq, now.mono_ns, self.state_pages());
                    self.disk.land();
                    self.installing = Some((*seq, *root));
                    self.install(now, watch);
                }
            }
        }
    }

    /// Returns the number of pages in the state.
    fn state_pages(&self) -> u64 {
        let pages = self.executor.store().pages();
        u64::try_from(pages.in_memory + pages.on_disk).unwrap_or(u64::MAX)
    }

    /// Sends a message of the state transfer, unless the core withholds or changes it.
    fn say(&mut self, to: ReplicaId, kind: Kind, body: &[u8], watch: &mut impl Observer<S, P>) {
        if !self.core.is_byzantine() {
            return self.send(Recipient::Replica(to), kind, Form::Body, body, Lsn(0), watch);
        }
        let mut changed = body.to_vec();
        if self.core.answer(kind, &mut changed) {
            self.send(Recipient::Replica(to), kind, Form::Body, &changed, Lsn(0), watch);
        }
    }
}

fn refusal(why: Refusal) -> &'static str {
    match why {
        Refusal::Unasked => "transfer-unasked",
        Refusal::Lie => "transfer-lie",
        Refusal::Replay => "transfer-replay",
        Refusal::TooMany => "transfer-too-many",
        Refusal::NotHeld => "transfer-not-held",
    }
}

/// Takes a task that can be done while the others wait. A fetch drops those before it, so first it is seen whether it is
/// still needed.
#[cold]
pub(super) fn take_ahead<S: Service, P: Store, C>(
    queue: &mut Queue<C>,
    executor: &Executor<S, P>,
) -> Option<Task<C>> {
    if !executor.is_fetching() {
        queue.forget_past(executor.last_executed());
    }
    queue.take_ahead()
}

/// Says whether a checkpoint that is to be fetched has been reached by executing since the replica decided: the page that
/// could not be read has come. The replica sees that by the results (L66).
pub(super) fn is_past<S: Service, P: Store>(executor: &Executor<S, P>, seq: SeqNum, check: bool) -> bool {
    !check && !executor.is_fetching() && seq <= executor.last_executed()
}
