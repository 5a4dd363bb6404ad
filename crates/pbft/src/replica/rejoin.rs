//! Rejoining after a loss of state (spec §14.4, RC-3 to RC-9). A replica that has lost its log, or whose disk is
//! stale, is faulty until its old messages can have no effect any more. It determines a limit on what it may have
//! sent, has all replicas note a point in the order, and votes again once a checkpoint beyond both is stable.
//! [TOCS02, on proactive recovery].

use alloc::vec::Vec;

use quorate_wire::codec::Writer;
use quorate_wire::id::{Principal, ReplicaId, SeqNum, Timestamp, ViewNum};
use quorate_wire::life::{Lives, Recovered, Recovery as Request};
use quorate_wire::message::{
    Kind, QueryStable, Reply, ReplyStable, RequestBody, RequestFlags, SuspectReason,
};
use quorate_wire::{Digest, frame, sign};

use crate::io::config::MS;
use crate::io::step::{Actions, Lsn, Milestone, Now, Recipient, Reject, Timer};
use crate::order::votes::Votes;
use crate::recovery::estimate::Estimate;
use crate::replica::{Replica, Status};

/// How often an unanswered question is asked again, in nanoseconds.
const RETRY_NS: u64 = 100 * MS;

/// The progress of a rejoining replica.
#[derive(Debug, Default)]
enum Phase {
    /// It votes.
    #[default]
    Member,
    /// It has its log, and waits for the others to confirm that they saw it start (§14.3).
    AwaitingEchoes,
    /// RC-4: how far may its old statements reach?
    Estimating { nonce: u64, estimate: Estimate, views: Votes<ViewNum> },
    /// RC-6: its recovery request is on its way through the order.
    Requesting {
        bound: SeqNum,
        /// `u`: in the life that the request opens this replica votes in no view below it (RC-11c).
        floor: ViewNum,
        frame: Vec<u8>,
        timestamp: Timestamp,
        replies: Votes<(Digest, SeqNum)>,
        /// Timestamps of replies to later requests than this one: of an earlier life, by a clock ahead.
        later: Votes<Timestamp>,
        views: Votes<ViewNum>,
    },
    /// RC-9: it waits for a stable checkpoint at or above this number.
    CatchingUp { until: SeqNum },
}

/// Recoveries: this replica's own, and those of others that are not over.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    phase: Phase,
    /// It sends nothing about numbers up to here, nor about views up to there (§14.4).
    silent_to: SeqNum,
    silent_view: Option<ViewNum>,
    /// The highest number that ever prepared here; no view change lowers it (RC-4).
    prepared: SeqNum,
    /// `n_R` of the last recovery request of each replica (RC-6). At most one a replica.
    noted: Vec<(ReplicaId, Timestamp, SeqNum)>,
    null_timer: bool,
    /// The last executed batch at the last tick of the null timer, and since when it has not changed.
    still: (SeqNum, u64),
}

impl Recovery {
    /// Returns whether this replica is rejoining: it follows, and says nothing that counts.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Estimating { .. } | Phase::Requesting { .. } | Phase::CatchingUp { .. })
    }

    /// Returns whether this replica must not vote about `seq`.
    pub(crate) fn forbids(&self, seq: SeqNum) -> bool {
        mutant!(M42, self.is_active(), false)
            || self.waits_for_echoes()
            || seq <= mutant!(M42, self.silent_to, SeqNum(0))
    }

    /// Returns whether this replica must not send a VIEW-CHANGE. Once it has rejoined it may, for any view:
    /// all that it can have forgotten is below its stable checkpoint, and there a VIEW-CHANGE says nothing.
    /// If it stayed silent about old views, two replicas that rejoined could leave the others short of a
    /// quorum forever.
    pub(crate) fn forbids_view_change(&self) -> bool {
        self.is_active() || self.waits_for_echoes()
    }

    /// Returns whether this replica must not send a NEW-VIEW for `view`, nor propose in it: it may have
    /// done so before.
    pub(crate) fn forbids_leading(&self, view: ViewNum) -> bool {
        self.forbids_view_change() || self.silent_view.is_some_and(|silent| view <= silent)
    }

    /// Returns whether the others have still to confirm this start.
    pub(crate) fn waits_for_echoes(&self) -> bool {
        matches!(self.phase, Phase::AwaitingEchoes)
    }

    /// Waits for the others to confirm this start.
    pub(crate) fn await_echoes(&mut self) {
        self.phase = Phase::AwaitingEchoes;
    }

    /// The others have confirmed it.
    pub(crate) fn heard_echoes(&mut self) {
        self.phase = Phase::Member;
    }

    /// Records that a number has prepared here.
    pub(crate) fn note_prepared(&mut self, seq: SeqNum) {
        self.prepared = self.prepared.max(seq);
    }

    /// Records a replica's recovery request, executed at `seq`: `n_R` (RC-6).
    pub(crate) fn note_request(&mut self, replica: ReplicaId, timestamp: Timestamp, seq: SeqNum) {
        match self.noted.iter_mut().find(|(r, ..)| *r == replica) {
            Some((_, last, at)) if *last < timestamp => (*last, *at) = (timestamp, seq),
            Some(_) => {}
            None => self.noted.push((replica, timestamp, seq)),
        }
    }

    /// Notes recovery requests that a transferred state shows as executed; no later than its number.
    pub(crate) fn note_transfer(&mut self, lives: &[(ReplicaId, Lives)], seq: SeqNum) {
        for (replica, lives) in lives {
            self.note_request(*replica, lives.life.timestamp, seq);
        }
    }
}

impl Replica {
    /// Starts over without a memory.
    pub(crate) fn start_rejoin(&mut self, now: Now, out: &mut Actions) {
        let nonce = self.rng.next();
        let estimate = Estimate::new(self.cluster, self.config.checkpoint_interval, self.id);
        let views = Votes::new(self.cluster.n());
        self.recovery.phase = Phase::Estimating { nonce, estimate, views };
        self.on_recovery_timer(now, out);
    }

    /// Asks again what has not been answered.
    pub(crate) fn on_recovery_timer(&mut self, now: Now, out: &mut Actions) {
        match &self.recovery.phase {
            Phase::Member | Phase::AwaitingEchoes | Phase::CatchingUp { .. } => return,
            Phase::Estimating { nonce, .. } => {
                let query = QueryStable { nonce: *nonce };
                out.send(Recipient::All, Kind::QueryStable, Lsn(0), |w| query.encode(w));
            }
            Phase::Requesting { frame, .. } => out.forward(Recipient::All, Kind::Request, Lsn(0), frame),
        }
        Self::set_timer(out, Timer::Recovery, now.mono_ns.saturating_add(RETRY_NS));
    }

    /// Another replica rejoins: tell it how far this one's log reaches (RC-4).
    pub(crate) fn on_query_stable(&mut self, from: ReplicaId, m: QueryStable, out: &mut Actions) {
        if self.recovery.is_active() {
            return out.reject(Reject::Recovering);
        }
        let newest = self.checkpoints.own.last_key_value().map_or(self.log.stable(), |(seq, _)| *seq);
        let prepared = self.recovery.prepared.max(newest);
        let reply = ReplyStable { nonce: m.nonce, checkpoint: newest, prepared, view: self.view };
        let after = self.last_lsn();
        out.send(Recipient::Replica(from), Kind::ReplyStable, after, |w| reply.encode(w));
    }

    /// A bound from another replica. Enough of them bound what this one may have said (RC-4).
    pub(crate) fn on_reply_stable(&mut self, now: Now, from: ReplicaId, m: &ReplyStable, out: &mut Actions) {
        let Phase::Estimating { nonce, estimate, views } = &mut self.recovery.phase else {
            return out.reject(Reject::Unwanted);
        };
        if *nonce != m.nonce {
            return out.reject(Reject::WrongNonce);
        }
        estimate.note(from, m.checkpoint, m.prepared);
        views.replace(from, m.view);
        let Some(checkpoint) = estimate.result() else { return };
        let floor = told_by(views, self.cluster.weak());
        let bound = checkpoint.plus(mutant!(M58, self.config.window, 0));
        self.recovery.silent_to = self.recovery.silent_to.max(bound);
        self.send_recovery_request(now, Timestamp(now.wall_ns.max(1)), (bound, floor), out);
    }

    fn send_recovery_request(
        &mut self,
        now: Now,
        timestamp: Timestamp,
        (bound, floor): (SeqNum, ViewNum),
        out: &mut Actions,
    ) {
        // RC-11: nobody can have signed for this life before, because nobody can have known its bits.
        let bits = self.rng.next();
        let frame = self.recovery_request(timestamp, &Request { bound, bits, floor });
        let n = self.cluster.n();
        let (replies, later, views) = (Votes::new(n), Votes::new(n), Votes::new(n));
        self.recovery.phase = Phase::Requesting { bound, floor, frame, timestamp, replies, later, views };
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
    pub(crate) fn on_recovery_reply(&mut self, now: Now, from: ReplicaId, m: &Reply<'_>, out: &mut Actions) {
        let quorum = self.cluster.quorum();
        let interval = self.config.checkpoint_interval;
        let Phase::Requesting { bound, floor, timestamp, replies, later, views, .. } =
            &mut self.recovery.phase
        else {
            return out.reject(Reject::Unwanted);
        };
        if m.timestamp > *timestamp {
            // f + 1 replicas know a later request of ours: a correct one does, so ours has to be later.
            later.replace(from, m.timestamp);
            let mut known: Vec<Timestamp> = later.iter().map(|(_, t)| *t).collect();
            known.sort_unstable();
            if let Some(newest) = known.iter().rev().nth(self.cluster.f()) {
                let (next, bounds) = (Timestamp(newest.0.saturating_add(1)), (*bound, *floor));
                self.send_recovery_request(now, next, bounds, out);
            }
            return;
        }
        if m.timestamp != *timestamp || m.tentative {
            return out.reject(Reject::WrongNonce);
        }
        let Some(Recovered { seq: noted, .. }) = m.result.and_then(Recovered::decode) else {
            return out.reject(Reject::Unwanted);
        };
        replies.replace(from, (m.digest, noted));
        views.replace(from, m.view);
        let Some(((_, noted), count)) = replies.most() else { return };
        if count < quorum {
            return;
        }
        // Rounded up: the safe side.
        let window = mutant!(M58, self.config.window, 0);
        let settled = SeqNum(noted.0.div_ceil(interval).saturating_mul(interval)).plus(window);
        let until = (*bound).max(settled);
        // RC-11c: in no view below the floor that the others go by.
        let view = told_by(views, self.cluster.weak()).max(*floor);
        self.recovery.silent_to = self.recovery.silent_to.max(until);
        self.recovery.silent_view = Some(view.max(self.view));
        self.recovery.phase = Phase::CatchingUp { until };
        if view > self.view {
            // The NEW-VIEW of that view comes with the others' statuses.
            self.stop_normal_operation(out);
            self.view = view;
            self.judge_view();
            self.status = Status::ViewChange;
            out.report(Milestone::ViewChangeStarted { view });
        }
        self.status_soon(now, out);
        self.recovery_made_stable(now, out);
    }

    /// A checkpoint has become stable here, which may end a rejoin, this replica's or another's.
    pub(crate) fn recovery_made_stable(&mut self, now: Now, out: &mut Actions) {
        self.look_at_rejoin(now, out);
        self.watch_recoveries(now, out);
    }

    /// RC-9, RC-9a: recovered once a stable checkpoint at or beyond the bound is held, here and at a quorum. Only then
    /// can nothing that was signed in an earlier life decide a number up to that bound: fewer than a quorum could vote
    /// for it.
    pub(crate) fn look_at_rejoin(&mut self, now: Now, out: &mut Actions) {
        let Phase::CatchingUp { until } = self.recovery.phase else { return };
        let stable = self.log.stable();
        let alone = self.peers.stable_at(until) + 1 < self.cluster.quorum();
        if stable < until || mutant!(M90, alone, false) {
            return;
        }
        self.recovery.phase = Phase::Member;
        out.report(Milestone::Rejoined { seq: stable });
        for seq in self.log.numbers() {
            self.advance(now, seq, out);
        }
        self.on_view_changes_grown(now, out);
    }

    /// Returns up to where the order has to come for every recovery that is noted to end (RC-7, RC-9).
    fn null_batches_to(&self) -> SeqNum {
        let (interval, window) = (self.config.checkpoint_interval, self.config.window);
        let needed = |noted: SeqNum| SeqNum(noted.0.div_ceil(interval).saturating_mul(interval)).plus(window);
        self.recovery.noted.iter().map(|(_, _, noted)| needed(*noted)).max().unwrap_or_default()
    }

    /// Says whether a recovery is under way that needs the order to move on (RC-10).
    fn null_batches_needed(&self) -> bool {
        self.null_batches_to() > self.log.stable()
    }

    /// Says whether a null batch may stand at `seq`: a recovery needs the order to come that far, whether it has ended
    /// here already or not, or a batch between here and there will begin one. This replica may lag behind the primary
    /// or be ahead of it; the number says the same to all (PR-6).
    pub(crate) fn null_batch_allowed_at(&self, seq: SeqNum) -> bool {
        let mut before = (self.exec.executed.0 + 1..seq.0).filter_map(|n| self.log.get(SeqNum(n)));
        mutant!(M50, seq <= self.null_batches_to(), true)
            || before.any(|slot| {
                let batch = slot.proposal.as_ref().and_then(|p| p.batch.as_ref());
                batch.is_some_and(|batch| batch.requests().any(|r| r.client.replica().is_some()))
            })
    }

    /// Runs the null timer while a recovery needs it.
    pub(crate) fn watch_recoveries(&mut self, now: Now, out: &mut Actions) {
        if !self.recovery.null_timer && mutant!(M86, self.null_batches_needed(), false) {
            self.recovery.null_timer = true;
            self.recovery.still = (self.exec.executed, now.mono_ns);
            Self::set_timer(out, Timer::NullBatch, now.mono_ns.saturating_add(self.config.null_batch_ns));
        }
    }

    /// RC-10: so that idle systems finish a recovery, the primary issues null batches; one that does
    /// not is suspected.
    pub(crate) fn on_null_batch_timer(&mut self, now: Now, out: &mut Actions) {
        self.recovery.null_timer = false;
        if !self.null_batches_needed() {
            return;
        }
        let (executed, since) = self.recovery.still;
        if self.exec.executed > executed {
            self.recovery.still = (self.exec.executed, now.mono_ns);
        }
        if self.is_primary() {
            // As many as may be in progress: on slow disks they come as slowly as those can take them.
            let needed = self.null_batches_to();
            for _ in 0..self.config.pipeline {
                if self.batcher.assigned < needed {
                    self.propose_null(now, out);
                }
            }
        } else if self.is_normal()
            && !self.is_primary()
            && self.exec.executed <= executed
            && now.mono_ns.saturating_sub(since) > 4 * (self.config.null_batch_ns + self.patience())
        {
            self.recovery.still = (self.exec.executed, now.mono_ns);
            self.suspect(now, SuspectReason::Timeout, out);
        }
        let still = self.recovery.still;
        self.watch_recoveries(now, out);
        self.recovery.still = still;
    }
}

/// Returns the highest view that `count` replicas have told to be in, or beyond: with `f + 1` a correct one is.
fn told_by(views: &Votes<ViewNum>, count: usize) -> ViewNum {
    let mut told: Vec<ViewNum> = views.iter().map(|(_, view)| *view).collect();
    told.sort_unstable();
    told.iter().rev().nth(count.saturating_sub(1)).copied().unwrap_or_default()
}
