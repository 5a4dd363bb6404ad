//! What the primary proposes next: batches of waiting requests, at most `W` of them in parallel
//! ([OSDI99 §4.2] on buffering requests; spec §5.2).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::batch::{Batch, BatchPool};
use quorate_wire::id::{ClientId, SeqNum};
use quorate_wire::message::{Kind, encode_pre_prepare, pre_prepare_bytes_besides};

use crate::io::step::{Actions, Milestone, Now, Recipient, Timer};
use crate::order::choice;
use crate::order::log::Proposal;
use crate::replica::Replica;

/// The lanes whose request is not in a proposal yet, by principal. Principals take turns, and the lanes of one take
/// turns with its turns (PR-3): a principal with many lanes has no more of the primary than others. A lane is there once,
/// since it has one request outstanding (CL-1); so it is never longer than the table of lanes.
#[derive(Debug)]
pub(crate) struct Batcher {
    /// Principals with lanes that wait, in the order of their turns.
    turns: VecDeque<u64>,
    /// Their lanes. What is empty stays, for the memory: one a principal.
    lanes: BTreeMap<u64, VecDeque<u16>>,
    pool: BatchPool,
    /// The last number assigned by this replica as primary, or fixed by the NEW-VIEW.
    pub(crate) assigned: SeqNum,
    /// The latest choice in a proposal of this view, whether of its NEW-VIEW or proposed here (ND-1).
    pub(crate) choice: u64,
}

impl Batcher {
    /// Returns an empty queue.
    pub(crate) fn new(window: u64) -> Self {
        let pooled = usize::try_from(window).unwrap_or(usize::MAX).saturating_mul(2);
        let (turns, lanes) = (VecDeque::new(), BTreeMap::new());
        Self { turns, lanes, pool: BatchPool::new(pooled), assigned: SeqNum(0), choice: 0 }
    }

    /// Appends a lane whose request is new, unless it waits already.
    pub(crate) fn push(&mut self, client: ClientId) {
        let lanes = self.lanes.entry(client.principal()).or_default();
        if lanes.is_empty() {
            self.turns.push_back(client.principal());
        }
        if !lanes.contains(&client.lane()) {
            lanes.push_back(client.lane());
        }
    }

    /// Empties the queue, as a view ends.
    pub(crate) fn clear(&mut self) {
        self.turns.clear();
        self.lanes.clear();
    }

    /// Returns the lane whose turn it is.
    fn front(&self) -> Option<ClientId> {
        let principal = *self.turns.front()?;
        Some(ClientId::new(principal, *self.lanes.get(&principal)?.front()?))
    }

    /// Takes the lane away whose turn it is. `next`: the turn goes on to the next principal.
    fn pop(&mut self, next: bool) {
        let Some(principal) = self.turns.front().copied() else { return };
        let more = self.lanes.get_mut(&principal).is_some_and(|lanes| {
            lanes.pop_front();
            !lanes.is_empty()
        });
        if !more || next {
            self.turns.pop_front();
        }
        if more && next {
            self.turns.push_back(principal);
        }
    }
}

impl Replica {
    /// Returns whether this replica, as primary, may assign the next number (PR-2).
    fn may_propose(&self) -> bool {
        let next = self.batcher.assigned.next();
        self.is_normal()
            && self.is_primary()
            && !self.recovery.is_active()
            && !self.recovery.forbids_leading(self.view)
            && !self.lives.void
            && !self.handing_off
            && next <= self.exec.executed.plus(self.config.pipeline)
            && next <= self.log.high()
            && next > self.views.last_fixed
    }

    /// Proposes waiting requests while the window is open. There is no delay for batching: an idle
    /// system proposes at once, under load requests queue behind `W` [OSDI99 §4.2].
    pub(crate) fn propose(&mut self, now: Now, out: &mut Actions) {
        while !self.batcher.turns.is_empty() && self.may_propose() {
            let Some(batch) = self.next_batch(now) else { return };
            self.assign(now, batch, out);
        }
    }

    /// Returns the latest choice in a proposal of this view.
    pub(crate) fn latest_proposed_choice(&self) -> u64 {
        let proposed = self.log.iter().filter_map(|slot| slot.proposal.as_ref()?.batch.as_ref());
        proposed.filter_map(|batch| choice::decode(batch.choice())).max().unwrap_or(0)
    }

    /// Proposes an empty batch, where PR-6 allows one.
    pub(crate) fn propose_null(&mut self, now: Now, out: &mut Actions) {
        if !self.may_propose() {
            return;
        }
        let batch = self.null_batch();
        out.report(Milestone::NullProposed { seq: self.batcher.assigned.next() });
        self.assign(now, batch, out);
    }

    /// Returns the null batch.
    pub(crate) fn null_batch(&mut self) -> Arc<Batch> {
        let mut batch = Batch::default();
        batch.seal(&self.domains, &[]);
        Arc::new(batch)
    }

    /// Takes requests from the queue into a batch, in the queue's order, inlined ones first.
    fn next_batch(&mut self, now: Now) -> Option<Arc<Batch>> {
        // Never below what is proposed already: when that has been executed, the backups would turn this down.
        let last = self.last_choice.max(self.batcher.choice);
        // The batch is filled from the queue beside it.
        let mut pool = core::mem::replace(&mut self.batcher.pool, BatchPool::new(0));
        let queue = &mut self.batcher;
        let weak = self.cluster.weak();
        let (clients, config, domains) = (&mut self.clients, &self.config, &self.domains);
        let requests_max = if config.batching { usize::from(config.batch_requests_max) } else { 1 };
        let choice = choice::propose(now, last);
        let mut separate = Vec::new();
        let overhead = pre_prepare_bytes_besides(self.cluster.n(), self.piggyback.commits.len());
        let filled = pool.fill(|batch| {
            let mut bytes = overhead;
            while let Some(client) = queue.front() {
                let pending = clients.proposable(client, config.request_auth, weak, now.mono_ns);
                let Some(pending) = pending else {
                    queue.pop(false); // executed or superseded by now, or its client has to sign
                    continue;
                };
                let apart = config.separate && pending.request.operation().len() > config.separate_above;
                let cost = if apart { 32 } else { pending.request.frame().len() + 4 };
                let count = batch.len() + separate.len();
                // A single request above the bound goes alone (spec §1.3).
                if count >= requests_max || (count > 0 && bytes + cost > config.batch_bytes_max) {
                    break;
                }
                bytes += cost;
                pending.proposed = true;
                if apart {
                    separate.push(pending.request.clone());
                } else {
                    batch.push_stored(&pending.request);
                }
                queue.pop(true);
            }
            for body in separate.drain(..) {
                batch.push_separate(body.digest, Some(body));
            }
            if batch.is_empty() {
                return Err(());
            }
            batch.seal(domains, &choice);
            Ok(())
        });
        self.batcher.pool = pool;
        filled.ok()
    }

    /// Assigns the next number to a batch: "the primary, p, assigns a sequence number, n, to the
    /// request, multicasts a pre-prepare message [...] and appends the message to its log"
    /// [OSDI99 §4.2] (PR-5).
    fn assign(&mut self, now: Now, batch: Arc<Batch>, out: &mut Actions) {
        let seq = self.batcher.assigned.next();
        self.batcher.assigned = seq;
        self.batcher.choice = self.batcher.choice.max(choice::decode(batch.choice()).unwrap_or(0));
        let digest = batch.digest();
        let view = self.view;
        let vote = self.record_vote(view, seq, digest, out);
        out.report(Milestone::PrePrepared { seq, digest });
        let after = vote.max(self.piggyback.after);
        out.send(Recipient::All, Kind::PrePrepare, after, |w| {
            encode_pre_prepare(view, seq, &batch, &self.piggyback.commits, w);
        });
        self.piggyback_sent(out);
        let Some(slot) = self.log.get_mut(seq) else { unreachable!("may_propose checks the window") };
        slot.proposal = Some(Proposal { digest, batch: Some(batch), authentic: true, since: now.mono_ns });
        self.watch_requests(now, out);
        self.advance(now, seq, out);
    }

    /// The carrier of the piggybacked commits has been sent (PB-1).
    pub(crate) fn piggyback_sent(&mut self, out: &mut Actions) {
        if !self.piggyback.commits.is_empty() {
            self.piggyback.commits.clear();
            self.piggyback.after = crate::io::step::Lsn(0);
            out.push(crate::io::step::Action::StopTimer(Timer::Flush));
        }
    }
}
