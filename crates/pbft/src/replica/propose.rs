//! What the primary proposes next: batches of waiting requests, at most `W` of them in parallel
//! ([OSDI99 §4.2] on buffering requests; spec §5.2).

use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::batch::{Batch, Body};
use quorate_wire::frame::FRAME_BYTES_MAX;
use quorate_wire::message::{Kind, encode_pre_prepare, pre_prepare_bytes_besides};

use crate::io::config::Config;
use crate::io::step::{Actions, Milestone, Now, Recipient, Timer};
use crate::order::choice;
use crate::order::slot::{Proposal, Slot};
use crate::replica::Replica;
use crate::requests::table::enough;

/// Bytes of a batch's separate requests (PR-9). All are kept until a checkpoint is stable (SR-6), so this bounds the log.
const APART_BYTES_MAX: usize = 256 << 10;

/// Returns how long the others of a client's requests of this kind wait after one, in nanoseconds (PR-8): after the
/// longest for half of the smallest time-out, so that its client does not wait for longer than a time-out (TM-1).
fn pause_ns(request: &Body, config: &Config) -> u64 {
    let bytes = u64::try_from(request.frame().len()).unwrap_or(u64::MAX);
    config.request_timeout_min_ns / 2 * bytes / FRAME_BYTES_MAX as u64
}

impl Replica {
    /// Returns whether this replica, as primary, may assign the next number (PR-2).
    fn may_propose(&self) -> bool {
        let next = self.batcher.assigned().next();
        self.is_normal()
            && self.is_primary()
            && !self.recovery.is_active()
            && !self.recovery.forbids_leading(self.views.view())
            && !self.lives.is_void()
            && !self.views.is_handing_off()
            && next <= self.exec.done().plus(self.config.pipeline)
            && next <= self.log.high()
            && next > self.views.last_fixed()
    }

    /// Notes that waiting requests may be proposed. They are at the end of the burst ([`Input::BurstEnd`]): of
    /// requests that have come together the first does not become a batch of its own.
    ///
    /// [`Input::BurstEnd`]: crate::io::step::Input::BurstEnd
    pub(super) fn propose(&mut self) {
        self.batcher.owe();
    }

    /// Returns whether the driver is to say when its burst has ended.
    #[inline]
    pub fn owes_proposal(&self) -> bool {
        self.batcher.owes()
    }

    /// Proposes waiting requests while the window is open. There is no delay for batching: an idle
    /// system proposes at once, under load requests queue behind `W` [OSDI99 §4.2]. And behind a batch whose results
    /// are not back yet, until as many wait as it has: a batch costs the same however many requests it has.
    pub(super) fn on_burst_end(&mut self, now: Now, out: &mut Actions) {
        self.batcher.end_burst();
        while !self.batcher.is_empty()
            && self.may_propose()
            && (self.is_idle() || self.batcher.has_another(now.mono_ns))
        {
            let Some(batch) = self.next_batch(now) else { break };
            self.assign(now, batch, out);
        }
        let (clients, others) = (&self.clients, self.cluster.quorum() - 1);
        if let Some(at) = self.batcher.pause_until(now.mono_ns, |client| clients.is_held_by(client, others)) {
            Self::set_timer(out, Timer::Pause, at);
        }
    }

    /// Returns whether no batch is in progress: the results of the last one are back, or it has committed, for a
    /// primary that fetches state instead of executing.
    fn is_idle(&self) -> bool {
        let last = self.batcher.assigned();
        last <= self.exec.returned() || self.log.get(last).is_none_or(|slot| slot.committed().is_some())
    }

    /// Returns the latest choice in a proposal of this view.
    pub(super) fn latest_proposed_choice(&self) -> u64 {
        let proposed = self.log.iter().filter_map(Slot::proposed);
        proposed.filter_map(|batch| choice::decode(batch.choice())).max().unwrap_or(0)
    }

    /// Proposes an empty batch, where PR-6 allows one.
    pub(super) fn propose_null(&mut self, now: Now, out: &mut Actions) {
        if !self.may_propose() {
            return;
        }
        let batch = self.null_batch();
        out.report(Milestone::NullProposed { seq: self.batcher.assigned().next() });
        self.assign(now, batch, out);
    }

    /// Returns the null batch.
    pub(super) fn null_batch(&self) -> Arc<Batch> {
        let mut batch = Batch::default();
        batch.seal(&self.domains, &[]);
        Arc::new(batch)
    }

    /// Takes requests from the queue into a batch, in the queue's order, inlined ones first.
    fn next_batch(&mut self, now: Now) -> Option<Arc<Batch>> {
        // Never below what is proposed already: when that has been executed, the backups would turn this down.
        let last = self.exec.earliest_choice().max(self.batcher.choice());
        let (enough, others) = (enough(self.cluster), self.cluster.quorum() - 1);
        let (clients, config, domains) = (&mut self.clients, &self.config, &self.domains);
        let (executed, next) = (self.exec.executed(), self.batcher.assigned().next());
        let auth = (config.request_auth, enough);
        let requests_max = if config.batching { usize::from(config.batch_requests_max) } else { 1 };
        // PR-7: nobody hears anything while it executes.
        let in_time = self.exec.requests_within(config.request_timeout_min_ns / 2);
        let requests_max = requests_max.min(mutant!(M111, in_time, usize::MAX));
        let choice = choice::propose(now, last);
        let mut separate = Vec::new();
        let overhead = pre_prepare_bytes_besides(self.cluster.n(), self.piggyback.commits().len());
        self.batcher.fill(|queue, batch| {
            let (mut bytes, mut bytes_apart) = (overhead, 0);
            while let Some(turn) = queue.next(now.mono_ns, |client| clients.is_held_by(client, others)) {
                let pending = clients.proposable(turn.1, executed, auth, now.mono_ns);
                let Some(pending) = pending else {
                    queue.skip(turn); // executed or superseded by now, or its client has to sign
                    continue;
                };
                let apart = config.separate && pending.request().operation().len() > config.separate_above;
                let cost = if apart { 32 } else { pending.request().frame().len() + 4 };
                let count = batch.len() + separate.len();
                let cost_apart = if apart { pending.request().frame().len() } else { 0 };
                // A single request above the bound goes alone (spec §1.3).
                let is_full =
                    bytes + cost > config.batch_bytes_max || bytes_apart + cost_apart > APART_BYTES_MAX;
                if count >= requests_max || (count > 0 && is_full) {
                    break;
                }
                bytes += cost;
                bytes_apart += cost_apart;
                pending.set_proposed(Some(next));
                if apart {
                    separate.push(pending.request().clone());
                } else {
                    batch.push_stored(pending.request());
                }
                let pause_ns = if pending.has_pause() { pause_ns(pending.request(), config) } else { 0 };
                queue.serve(turn, now.mono_ns, pause_ns);
            }
            for body in separate.drain(..) {
                batch.push_separate(body.digest, Some(body));
            }
            if batch.is_empty() {
                return Err(());
            }
            batch.seal(domains, &choice);
            Ok(())
        })
    }

    /// Assigns the next number to a batch: "the primary, p, assigns a sequence number, n, to the
    /// request, multicasts a pre-prepare message [...] and appends the message to its log"
    /// [OSDI99 §4.2] (PR-5).
    fn assign(&mut self, now: Now, batch: Arc<Batch>, out: &mut Actions) {
        let seq = self.batcher.assign(choice::decode(batch.choice()).unwrap_or(0), self.log.high());
        let digest = batch.digest();
        let view = self.views.view();
        let vote = self.record_vote(view, seq, digest, out);
        out.report(Milestone::PrePrepared { seq, digest });
        let after = vote.max(self.piggyback.after());
        out.send(Recipient::All, Kind::PrePrepare, after, |w| {
            encode_pre_prepare(view, seq, &batch, self.piggyback.commits(), w);
        });
        self.piggyback.sent(out);
        let Some(slot) = self.log.slot_mut(seq) else { unreachable!("may_propose checks the window") };
        slot.accept(Proposal { digest, batch: Some(batch), authentic: true, since: now.mono_ns });
        self.watch_requests(now, out);
        self.advance(now, seq, out);
    }
}
