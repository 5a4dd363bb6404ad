//! Where a rejoin stands, and the recoveries of the others (spec §14.4, RC-3 to RC-9).

use alloc::vec::Vec;

use quorate_wire::id::{ReplicaId, SeqNum, Timestamp, ViewNum};
use quorate_wire::life::{Life, Lives, Recovered, Recovery as Request};
use quorate_wire::message::{QueryStable, Reply, ReplyStable};
use quorate_wire::{Cluster, Digest};

use crate::io::milestone::Reject;
use crate::order::votes::Votes;
use crate::recovery::estimate::Estimate;

/// The progress of a rejoining replica.
#[derive(Debug, Default)]
#[allow(clippy::large_enum_variant, reason = "a replica has one")]
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
        request: Request,
        frame: Vec<u8>,
        timestamp: Timestamp,
        replies: Votes<(Digest, SeqNum)>,
        /// This replica's present life, as others tell it.
        told: Votes<Life>,
        /// Timestamps of replies to later requests than this one: of an earlier life, by a clock ahead.
        later: Votes<Timestamp>,
        /// Who says that the request has opened no life, and never will (EX-2), and which life there is instead.
        refused: Votes<Option<Life>>,
        views: Votes<ViewNum>,
    },
    /// RC-9: it waits for a stable checkpoint at or above this number.
    CatchingUp { until: SeqNum },
}

/// What a rejoining replica asks the others.
pub(crate) enum Question<'a> {
    /// How far their logs reach (RC-4).
    Stable(QueryStable),
    /// To order its recovery request, of which this is the frame (RC-6).
    Recover(&'a [u8]),
}

/// What the replies to a recovery request say so far.
pub(crate) enum Answered {
    /// Too little.
    NotYet,
    /// A later request of this replica is known: the next one needs a later timestamp.
    TooOld { next: Timestamp, request: Request },
    /// It was executed at `noted`, and the others are in `view`.
    Noted { noted: SeqNum, bound: SeqNum, view: ViewNum },
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

    /// Returns what is asked again until it is answered.
    pub(crate) fn question(&self) -> Option<Question<'_>> {
        match &self.phase {
            Phase::Member | Phase::AwaitingEchoes | Phase::CatchingUp { .. } => None,
            Phase::Estimating { nonce, .. } => Some(Question::Stable(QueryStable { nonce: *nonce })),
            Phase::Requesting { frame, .. } => Some(Question::Recover(frame)),
        }
    }

    /// Returns the highest number that ever prepared here.
    pub(crate) fn prepared(&self) -> SeqNum {
        self.prepared
    }

    /// Returns the number at which a stable checkpoint ends the rejoin.
    pub(crate) fn until(&self) -> Option<SeqNum> {
        match self.phase {
            Phase::CatchingUp { until } => Some(until),
            Phase::Member | Phase::AwaitingEchoes | Phase::Estimating { .. } | Phase::Requesting { .. } => {
                None
            }
        }
    }

    /// Starts over: how far may the old statements of `own`, one of a group, reach? `interval` is K.
    pub(crate) fn start(&mut self, nonce: u64, cluster: Cluster, interval: u64, own: ReplicaId) {
        let estimate = Estimate::new(cluster, interval, own);
        self.phase = Phase::Estimating { nonce, estimate, views: Votes::new(cluster.n()) };
    }

    /// Takes a bound from another replica. Returns the checkpoint and the view that bound what this one may have
    /// said, once enough have answered.
    pub(crate) fn take_bound(
        &mut self,
        from: ReplicaId,
        m: &ReplyStable,
        weak: usize,
    ) -> Result<Option<(SeqNum, ViewNum)>, Reject> {
        let Phase::Estimating { nonce, estimate, views } = &mut self.phase else {
            return Err(Reject::Unwanted);
        };
        if *nonce != m.nonce {
            return Err(Reject::WrongNonce);
        }
        estimate.note(from, m.checkpoint, m.prepared);
        views.replace(from, m.view);
        Ok(estimate.result().map(|checkpoint| (checkpoint, told_by(views, weak))))
    }

    /// The recovery request is on its way: nothing may be sent about numbers up to its bound, nor be voted in views below
    /// its floor.
    pub(crate) fn request(&mut self, frame: Vec<u8>, timestamp: Timestamp, request: Request, n: usize) {
        self.silent_to = self.silent_to.max(request.bound);
        let (replies, told, later) = (Votes::new(n), Votes::new(n), Votes::new(n));
        let (refused, views) = (Votes::new(n), Votes::new(n));
        self.phase = Phase::Requesting { request, frame, timestamp, replies, told, later, refused, views };
    }

    /// Returns the next recovery request, and the timestamp that it needs at least, if this one has opened no life at `count`
    /// replicas, so at a correct one: there was no place for its reply, and the same request gets none later (L40), an earlier
    /// life of this replica has used its timestamp (L63), or it names another life than the present one (L125). They say the
    /// same, so that the next request names the right one.
    pub(crate) fn refused_by(&self, count: usize) -> Option<(Timestamp, Request)> {
        match &self.phase {
            Phase::Requesting { request, timestamp, told, refused, .. }
                if refused.said_by(count).is_some() =>
            {
                Some((Timestamp(timestamp.0.saturating_add(1)), next(request, told, count)))
            }
            Phase::Requesting { .. }
            | Phase::Member
            | Phase::AwaitingEchoes
            | Phase::Estimating { .. }
            | Phase::CatchingUp { .. } => None,
        }
    }

    /// Takes another replica's reply to the recovery request.
    pub(crate) fn take_reply(
        &mut self,
        from: ReplicaId,
        m: &Reply<'_>,
        cluster: Cluster,
    ) -> Result<Answered, Reject> {
        let Phase::Requesting { request, timestamp, replies, told, later, refused, views, .. } =
            &mut self.phase
        else {
            return Err(Reject::Unwanted);
        };
        let recovered = m.result.and_then(Recovered::decode);
        if let Some(recovered) = recovered.filter(|_| m.timestamp >= *timestamp) {
            told.replace(from, recovered.life);
        }
        if m.timestamp > *timestamp {
            // f + 1 replicas know a later request of ours: a correct one does, so ours has to be later.
            later.replace(from, m.timestamp);
            let mut known: Vec<Timestamp> = later.iter().map(|(_, t)| *t).collect();
            known.sort_unstable();
            let newest = known.iter().rev().nth(cluster.f());
            return Ok(newest.map_or(Answered::NotYet, |newest| Answered::TooOld {
                next: Timestamp(newest.0.saturating_add(1)),
                request: next(request, told, cluster.weak()),
            }));
        }
        if m.timestamp != *timestamp || m.tentative {
            return Err(Reject::WrongNonce);
        }
        let opened = Life { timestamp: *timestamp, bits: request.bits };
        let Some(Recovered { seq: noted, .. }) = recovered.filter(|recovered| recovered.life == opened)
        else {
            refused.replace(from, recovered.map(|recovered| recovered.life));
            return Err(Reject::Unwanted);
        };
        replies.replace(from, (m.digest, noted));
        views.replace(from, m.view);
        let Some(((_, noted), count)) = replies.most() else { return Ok(Answered::NotYet) };
        if count < cluster.quorum() {
            return Ok(Answered::NotYet);
        }
        // RC-11c: in no view below the floor that the others go by.
        let view = told_by(views, cluster.weak()).max(request.floor);
        Ok(Answered::Noted { noted, bound: request.bound, view })
    }

    /// The request was executed: this replica waits for a stable checkpoint at `until`, and is silent about numbers up to
    /// there and views up to `view`.
    pub(crate) fn catch_up(&mut self, until: SeqNum, view: ViewNum) {
        self.silent_to = self.silent_to.max(until);
        self.lead_only_above(view);
        self.phase = Phase::CatchingUp { until };
    }

    /// It sends no NEW-VIEW for views up to this one, nor proposes in them.
    pub(crate) fn lead_only_above(&mut self, view: ViewNum) {
        self.silent_view = Some(view);
    }

    /// The rejoin is over.
    pub(crate) fn finish(&mut self) {
        self.phase = Phase::Member;
    }

    /// Returns the numbers at which the last recovery request of each replica was executed.
    pub(crate) fn noted(&self) -> impl Iterator<Item = SeqNum> {
        self.noted.iter().map(|(_, _, noted)| *noted)
    }

    /// Returns whether the timer for null batches runs.
    pub(crate) fn null_timer_runs(&self) -> bool {
        self.null_timer
    }

    /// The timer for null batches starts or has run out.
    pub(crate) fn set_null_timer(&mut self, runs: bool) {
        self.null_timer = runs;
    }

    /// Returns the last executed batch at the last tick of the null timer, and since when it has not changed.
    pub(crate) fn still(&self) -> (SeqNum, u64) {
        self.still
    }

    /// The last executed batch is this one since `now`.
    pub(crate) fn note_still(&mut self, executed: SeqNum, now: u64) {
        self.still = (executed, now);
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

    /// Notes recovery requests that the state after `seq` shows as executed: where it says that they were, or no later than
    /// its number.
    pub(crate) fn note_lives(&mut self, lives: &[(ReplicaId, Lives)], seq: SeqNum) {
        for (replica, lives) in lives {
            let is_known = mutant!(M175, lives.noted > SeqNum(0), false);
            self.note_request(*replica, lives.life.timestamp, if is_known { lives.noted } else { seq });
        }
    }
}

/// Returns the recovery request after `request`, but for its bits. It names the life that `count` replicas have told, so a
/// correct one.
fn next(request: &Request, told: &Votes<Life>, count: usize) -> Request {
    let life = told.most().filter(|(_, by)| *by >= count).map(|(life, _)| life);
    Request { before: life.unwrap_or(request.before), ..*request }
}

/// Returns the highest view that `count` replicas have told to be in, or beyond: with `f + 1` a correct one is.
fn told_by(views: &Votes<ViewNum>, count: usize) -> ViewNum {
    let mut told: Vec<ViewNum> = views.iter().map(|(_, view)| *view).collect();
    told.sort_unstable();
    told.iter().rev().nth(count.saturating_sub(1)).copied().unwrap_or_default()
}
