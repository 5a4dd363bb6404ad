//! Rejoining after a loss of state (spec §14.4, RC-3 to RC-9). A replica that has lost its log, or whose disk is
//! stale, is faulty until its old messages can have no effect any more. It determines a limit on what it may have
//! sent, has all replicas note a point in the order, and votes again once a checkpoint beyond both is stable.
//! [TOCS02, on proactive recovery].

use alloc::vec::Vec;

use quorate_wire::codec::Writer;
use quorate_wire::id::{Principal, ReplicaId, SeqNum, Timestamp};
use quorate_wire::life::Recovery as Request;
use quorate_wire::message::{
    Kind, QueryStable, Reply, ReplyStable, RequestBody, RequestFlags, SuspectReason,
};
use quorate_wire::{frame, sign};

use crate::io::config::MS;
use crate::io::record::Record;
use crate::io::step::{Actions, Lsn, Milestone, Now, Recipient, Reject, Timer};
use crate::recovery::phase::{Answered, Question};
use crate::replica::Replica;

/// How often an unanswered question is asked again, in nanoseconds.
const RETRY_NS: u64 = 100 * MS;
/// A question for the bound counts as this many questions for bodies, so two are answered in each `status_min_ns`.
const QUESTION_LOOKUPS: usize = 4 * 1024;

impl Replica {
    /// Starts over without a memory.
    pub(super) fn start_rejoin(&mut self, now: Now, out: &mut Actions) {
        let nonce = self.rng.next();
        self.recovery.start(nonce, self.cluster, self.config.checkpoint_interval, self.id);
        // RC-5, where it has voted in this run: a COMMIT that waits for a carrier is not sent any more (L31).
        mutant!(M119, self.piggyback.sent(out), ());
        self.on_recovery_timer(now, out);
    }

    /// Asks again what has not been answered.
    pub(super) fn on_recovery_timer(&mut self, now: Now, out: &mut Actions) {
        if let Some((next, request)) = self.recovery.refused_by(self.cluster.weak()) {
            return self.send_recovery_request(now, next.max(Timestamp(now.wall_ns)), request, out);
        }
        match self.recovery.question() {
            None => return,
            Some(Question::Stable(query)) => {
                out.send(Recipient::All, Kind::QueryStable, Lsn(0), |w| query.encode(w));
            }
            Some(Question::Recover(frame)) => out.forward(Recipient::All, Kind::Request, Lsn(0), frame),
        }
        Self::set_timer(out, Timer::Recovery, now.mono_ns.saturating_add(RETRY_NS));
    }

    /// Another replica rejoins: tell it how far this one's log reaches (RC-4).
    #[cold]
    pub(super) fn on_query_stable(&mut self, now: Now, from: ReplicaId, m: QueryStable, out: &mut Actions) {
        // Before others have confirmed its start it records no view, and names none that a crash takes back (L104).
        if self.recovery.is_active() || self.recovery.waits_for_echoes() {
            return out.reject(Reject::Recovering);
        }
        // Answers wait for the disk, and a liar's must not take the places of votes there (L135).
        if !self.peers.allow_lookups(from, now.mono_ns, QUESTION_LOOKUPS, &self.config) {
            return out.reject(Reject::TooSoon);
        }
        let newest = self.checkpoints.own().last_key_value().map_or(self.log.stable(), |(seq, _)| *seq);
        let prepared = self.recovery.prepared().max(newest);
        let reply = ReplyStable { nonce: m.nonce, checkpoint: newest, prepared, view: self.views.view() };
        let after = self.promises.last();
        out.send(Recipient::Replica(from), Kind::ReplyStable, after, |w| reply.encode(w));
    }

    /// A bound from another replica. Enough of them bound what this one may have said (RC-4).
    #[cold]
    pub(super) fn on_reply_stable(&mut self, now: Now, from: ReplicaId, m: &ReplyStable, out: &mut Actions) {
        let (checkpoint, floor) = match self.recovery.take_bound(from, m, self.cluster.weak()) {
            Ok(Some(bounds)) => bounds,
            Ok(None) => return,
            Err(reason) => return out.reject(reason),
        };
        let bound = checkpoint.plus(mutant!(M58, self.config.window, 0));
        // Without the state, its life is not known. If it is not the first, the others tell which.
        let request = Request { bound, bits: 0, floor, before: self.own_life() };
        self.send_recovery_request(now, Timestamp(now.wall_ns.max(1)), request, out);
    }

    fn send_recovery_request(&mut self, now: Now, timestamp: Timestamp, request: Request, out: &mut Actions) {
        // RC-11: nobody can have signed for this life before, because nobody can have known its bits.
        let request = Request { bits: self.rng.next(), ..request };
        let frame = self.recovery_request(timestamp, &request);
        self.recovery.request(frame, timestamp, request, self.cluster.n());
        self.on_recovery_timer(now, out);
    }

    /// Makes the recovery request: signed, because MACs may have been stolen or forgotten (RC-6).
    fn recovery_request(&self, timestamp: Timestamp, request: &Request) -> Vec<u8> {
        let mut operation = Vec::new();
        request.encode(&mut operation);
        let sender = Principal::Replica(self.id);
        let flags = RequestFlags { read_only: false, signed: true };
        let body = RequestBody { timestamp, flags, replier: None, operation: &operation };
        let mut bytes = Vec::new();
        body.encode(&mut Writer::new(&mut bytes));
        let digest = self.domains.request(sender.to_wire(), timestamp.0, &operation);
        let signature = self.signer.sign(&sign::request_digest(&self.domains, 0, sender, &digest));
        let mut out = Vec::new();
        frame::begin(Kind::Request, 0, sender, &bytes, &mut out);
        frame::end_signed(&signature, &mut out);
        out
    }

    /// The others' replies to the recovery request: `n_R`, and the views they are in (RC-7).
    #[cold]
    pub(super) fn on_recovery_reply(&mut self, now: Now, from: ReplicaId, m: &Reply<'_>, out: &mut Actions) {
        let (noted, bound, view) = match self.recovery.take_reply(from, m, self.cluster) {
            Ok(Answered::NotYet) => return,
            Ok(Answered::TooOld { next, request }) => {
                return self.send_recovery_request(now, next, request, out);
            }
            Ok(Answered::Noted { noted, bound, view }) => (noted, bound, view),
            Err(reason) => return out.reject(reason),
        };
        let interval = self.config.checkpoint_interval;
        // Rounded up: the safe side.
        let window = mutant!(M58, self.config.window, 0);
        let settled = SeqNum(noted.0.div_ceil(interval).saturating_mul(interval)).plus(window);
        let until = bound.max(settled);
        self.recovery.catch_up(until, view.max(self.views.view()));
        if view > self.views.view() {
            // The NEW-VIEW of that view comes with the others' statuses.
            self.stop_normal_operation(out);
            self.views.follow(view);
            self.judge_view();
            out.report(Milestone::ViewChangeStarted { view });
            self.follow_kept(now, out);
        }
        if mutant!(M190, !self.is_normal(), false) {
            // RC-11c: it has sent no VIEW-CHANGE for this view, so no other record takes a restart back to it (L151).
            self.promises.persist(Record::ViewChange { view: self.views.view(), frame: &[] }, out);
        }
        self.peers.send_soon(now, out);
        self.look_at_rejoin(now, out);
        self.watch_recoveries(now, out);
    }

    /// RC-9, RC-9a: recovered once a stable checkpoint at or beyond the bound is held, here and at a quorum. Only then
    /// can nothing that was signed in an earlier life decide a number up to that bound: fewer than a quorum could vote
    /// for it.
    pub(super) fn look_at_rejoin(&mut self, now: Now, out: &mut Actions) {
        let Some(until) = self.recovery.until() else { return };
        let stable = self.log.stable();
        let alone = self.peers.stable_at(until) + 1 < self.cluster.quorum();
        if stable < until || mutant!(M90, alone, false) {
            return;
        }
        self.recovery.finish();
        out.report(Milestone::Rejoined { seq: stable });
        // What waits for this record waits until the disk knows that the rejoin has ended (L54).
        if let Some(root) = self.checkpoints.root(stable) {
            self.promises.persist_stable(stable, root, out);
            self.checkpoints.wait_for(self.promises.last());
        }
        for seq in self.log.numbers() {
            self.advance(now, seq, out);
        }
        self.on_view_changes_grown(now, out);
    }

    /// Returns up to where the order has to come for every recovery that is noted to end (RC-7, RC-9).
    fn null_batches_to(&self) -> SeqNum {
        let (interval, window) = (self.config.checkpoint_interval, self.config.window);
        let needed = |noted: SeqNum| SeqNum(noted.0.div_ceil(interval).saturating_mul(interval)).plus(window);
        self.recovery.noted().map(needed).max().unwrap_or_default()
    }

    /// Says whether a recovery is under way that needs the order to move on (RC-10).
    fn null_batches_needed(&self) -> bool {
        self.null_batches_to() > self.log.stable()
    }

    /// Says whether a null batch may stand at `seq`: a recovery needs the order to come that far, whether it has ended
    /// here already or not, or a batch between here and there will begin one. This replica may lag behind the primary
    /// or be ahead of it; the number says the same to all (PR-6).
    pub(super) fn null_batch_allowed_at(&self, seq: SeqNum) -> bool {
        let mut before = (self.exec.executed().0 + 1..seq.0).filter_map(|n| self.log.get(SeqNum(n)));
        mutant!(M50, seq <= self.null_batches_to(), true)
            || before.any(|slot| {
                slot.proposed().is_some_and(|batch| batch.requests().any(|r| r.client.replica().is_some()))
            })
    }

    /// Runs the null timer while a recovery needs it.
    pub(super) fn watch_recoveries(&mut self, now: Now, out: &mut Actions) {
        if self.run_null_timer(now, out) {
            self.recovery.note_still(self.exec.executed(), now.mono_ns);
        }
    }

    /// Starts the null timer if a recovery needs it. Says whether it did not run.
    fn run_null_timer(&mut self, now: Now, out: &mut Actions) -> bool {
        let starts = !self.recovery.null_timer_runs() && mutant!(M86, self.null_batches_needed(), false);
        if starts {
            self.recovery.set_null_timer(true);
            Self::set_timer(out, Timer::NullBatch, now.mono_ns.saturating_add(self.config.null_batch_ns));
        }
        starts
    }

    /// RC-10: so that idle systems finish a recovery, the primary issues null batches; one that does
    /// not is suspected.
    pub(super) fn on_null_batch_timer(&mut self, now: Now, out: &mut Actions) {
        self.recovery.set_null_timer(false);
        if !self.null_batches_needed() {
            return;
        }
        let (executed, since) = self.recovery.still();
        if self.exec.executed() > executed {
            self.recovery.note_still(self.exec.executed(), now.mono_ns);
        }
        if self.is_primary() {
            // As many as may be in progress: on slow disks they come as slowly as those can take them.
            let needed = self.null_batches_to();
            for _ in 0..self.config.pipeline {
                if self.batcher.assigned() < needed {
                    self.propose_null(now, out);
                }
            }
        } else if self.is_normal()
            && !self.is_primary()
            && self.exec.executed() <= executed
            && now.mono_ns.saturating_sub(since) > 4 * (self.config.null_batch_ns + self.patience(now))
        {
            self.recovery.note_still(self.exec.executed(), now.mono_ns);
            self.suspect(now, SuspectReason::Timeout, out);
        }
        self.run_null_timer(now, out);
    }
}
