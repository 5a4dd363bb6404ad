//! What is known of the others, by their STATUS: how far they are, how often they have started (spec §10, §14.3).

use alloc::vec::Vec;

use quorate_wire::Cluster;
use quorate_wire::codec::Writer;
use quorate_wire::id::{ReplicaId, SeqNum, ViewNum};
use quorate_wire::message::{Echoes, Start, Status};

use crate::io::config::{Config, MS};
use crate::io::milestone::Reject;
use crate::io::step::{Action, Actions, Deadline, Now, Timer};

/// An older counter is a replay only this soon after a newer one: a replica whose clock went back
/// together with its memory is heard again, and a replay costs one answer a second (SM-2).
const REPLAY_NS: u64 = 1_000 * MS;
/// The most digests that one peer may ask for in each `status_min_ns`: as many as a pipeline of full batches
/// names, which is far more than the bytes allow to answer.
const LOOKUPS_MAX: usize = 8 * 1024;
/// A replica that catches up may ask, and is answered, this many times in the time in which others may ask once.
const CATCH_UP_SHARE: u64 = 20;

/// What a peer was sent is forgotten at most once in this time: one that pretends to start again and again gains a copy of
/// the log each time.
const FORGET_NS: u64 = 30_000 * MS;

/// Low bits of an incarnation that are random, so that two starts from one image differ (§14.3).
const INCARNATION_RANDOM_BITS: u32 = 20;
/// The most starts that an incarnation can count.
const STARTS_MAX: u64 = u64::MAX >> INCARNATION_RANDOM_BITS;
/// A count of starts is believed up to the time of day in seconds, from which it begins where it was lost (D8), and
/// so much more, for clocks differ ...
const STARTS_AHEAD: u64 = 1 << 20;
/// ... and above that as long as it goes in steps no longer than this. So a liar cannot use up the numbers of the
/// replica that it pretends to be, which has to outgrow them when it is itself again.
const STARTS_STEP: u64 = 1 << 10;

/// What a peer's incarnation is to what is known of it.
pub(crate) enum Incarnation {
    New,
    Known,
    Old,
}

/// What a STATUS is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing: it comes too soon.
    Nothing,
    /// Everything that it lacks, within the budget.
    Everything,
    /// What has committed after all that it was sent before, and it has executed that.
    Next,
}

/// What is known of one other replica.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    counter: u64,
    heard_at: u64,
    answered_at: u64,
    /// How far along the views it was when it was last answered: its view, and whether it worked in it.
    answered_in: (ViewNum, bool),
    /// The highest number for which it was sent a COMMITTED.
    shown: SeqNum,
    /// The highest number of which it was sent the batch because it asked.
    copied: SeqNum,
    /// Bytes of such batches since `copied_at`.
    copied_bytes: usize,
    copied_at: u64,
    /// When that and `shown` were last forgotten.
    forgotten_at: u64,
    /// The latest start of it that was seen.
    start: Start,
    /// When that was seen first.
    started_at: u64,
    /// What it has executed, it says.
    executed: SeqNum,
    /// Its stable checkpoint, it says.
    stable: SeqNum,
    /// Bytes sent again to it since `budget_at`.
    sent_bytes: usize,
    /// Digests that it has asked for since then.
    lookups: usize,
    budget_at: u64,
    /// It echoes this replica's start.
    echoes_us: bool,
    /// The last echo of it whose token was checked.
    echo: Start,
    /// The count of starts of another incarnation of this replica that it has seen, not below this one's:
    /// an old disk was put back, or the count was lost with a disk.
    later: Option<u64>,
    /// What it says of its settings, once that was other than ours.
    settings: Option<u64>,
}

impl Peer {
    /// It has started again, perhaps with less than it was sent: it may be sent all that once more.
    fn forget_sent(&mut self, now: u64) {
        let soon = self.forgotten_at != 0 && now < self.forgotten_at.saturating_add(FORGET_NS);
        if (self.shown, self.copied) != (SeqNum(0), SeqNum(0)) && !soon {
            (self.shown, self.copied) = (SeqNum(0), SeqNum(0));
            self.forgotten_at = now.max(1);
        }
    }
}

/// The records of the others. One entry per replica.
#[derive(Debug)]
pub(crate) struct Peers {
    others: Vec<Peer>,
    /// `f + 1`.
    weak: usize,
    counter: u64,
    /// This replica's own start.
    own: Start,
    /// A count of starts that somebody has shown a token of this replica's for, not below its own (§14.3).
    proven: Option<u64>,
    sent_at: Option<u64>,
    soon: bool,
    /// The time between two of this replica's statuses.
    min_ns: u64,
    /// What a correct one of the others says to have executed.
    ahead: SeqNum,
    /// This replica is far behind that, and asks for more as soon as it has executed what it was sent.
    catches_up: bool,
    /// What this replica had executed when it last said so.
    said: SeqNum,
}

impl Peers {
    /// Returns the knowledge of a replica that has just started.
    pub(crate) fn new(cluster: Cluster, min_ns: u64) -> Self {
        Self {
            others: alloc::vec![Peer::default(); cluster.n()],
            weak: cluster.weak(),
            counter: 0,
            own: Start::default(),
            proven: None,
            sent_at: None,
            soon: false,
            min_ns,
            ahead: SeqNum(0),
            catches_up: false,
            said: SeqNum(0),
        }
    }

    /// Returns this replica's own start.
    pub(crate) fn own(&self) -> Start {
        self.own
    }

    /// This replica starts, or outgrows what others know of its earlier starts.
    pub(crate) fn start(&mut self, own: Start) {
        self.own = own;
        self.proven = None;
        self.others.iter_mut().for_each(|peer| peer.later = None);
    }

    /// Returns whether somebody has shown a token of a later start of this replica.
    pub(crate) fn has_proof_of_later(&self) -> bool {
        self.proven.is_some()
    }

    /// Returns when the next STATUS may be sent.
    pub(crate) fn earliest(&self) -> u64 {
        self.sent_at.map_or(0, |at| at.saturating_add(self.min_ns))
    }

    /// Sends a status soon: there is evidence of being behind, or a request waits (SM-1).
    pub(crate) fn send_soon(&mut self, now: Now, out: &mut Actions) {
        if !core::mem::replace(&mut self.soon, true) {
            out.push(Action::SetTimer(Timer::Status, Deadline(self.earliest().max(now.mono_ns))));
        }
    }

    /// Sends a status at once: a view begins here, and what the others have said in it already was turned
    /// away, because this replica had not entered it. They answer at once, too.
    pub(crate) fn send_now(&mut self, now: Now, out: &mut Actions) {
        self.soon = true;
        out.push(Action::SetTimer(Timer::Status, Deadline(now.mono_ns)));
    }

    /// The status timer has run out.
    pub(crate) fn stop_hurry(&mut self) {
        self.soon = false;
    }

    /// Nothing more can be executed after `executed`. A replica that is over a pipeline behind asks for more as soon as
    /// it has executed what it was sent, until it has caught up (SM-1).
    #[inline]
    pub(crate) fn note_stalled(&mut self, now: Now, executed: SeqNum, pipeline: u64, out: &mut Actions) {
        if self.ahead <= executed {
            self.catches_up = false;
            return;
        }
        self.catches_up |= mutant!(M162, self.ahead > executed.plus(pipeline), false);
        if self.catches_up && executed > self.said && !core::mem::replace(&mut self.soon, true) {
            let earliest = self.sent_at.map_or(0, |at| at.saturating_add(self.min_ns / CATCH_UP_SHARE));
            out.push(Action::SetTimer(Timer::Status, Deadline(earliest.max(now.mono_ns))));
        }
    }

    /// A STATUS is sent. Returns its counter.
    pub(crate) fn count_status(&mut self, now: Now, executed: SeqNum) -> u64 {
        self.sent_at = Some(now.mono_ns);
        self.said = executed;
        self.counter = (self.counter + 1).max(now.wall_ns);
        self.counter
    }

    /// Takes a peer's STATUS. Returns the stable checkpoint that it had before.
    pub(crate) fn hear(&mut self, now: Now, from: ReplicaId, m: &Status<'_>) -> Result<SeqNum, Reject> {
        let Some(peer) = self.others.get_mut(from.index()) else { return Err(Reject::WrongSender) };
        let recently = peer.heard_at != 0 && now.mono_ns < peer.heard_at.saturating_add(REPLAY_NS);
        if m.counter <= peer.counter && recently {
            return Err(Reject::OldStatus);
        }
        peer.counter = m.counter;
        peer.executed = m.executed;
        peer.heard_at = now.mono_ns.max(1);
        let stable = core::mem::replace(&mut peer.stable, m.stable);
        self.ahead = self.executed_by(self.weak);
        Ok(stable)
    }

    /// Says whether a peer's STATUS is answered now by a replica in `view`.
    ///
    /// Never the same to the same peer more than once in `min_ns` (SM-2). What it needs in a view that it
    /// has just come to is not the same: at most two answers for each of this replica's own views. Nor is
    /// what comes after all that it was sent, once it has executed that and is behind `executed`: each number is told that
    /// way at most once.
    pub(crate) fn may_answer(
        &mut self,
        now: Now,
        from: ReplicaId,
        m: &Status<'_>,
        (view, executed): (ViewNum, SeqNum),
    ) -> Answer {
        let min_ns = self.min_ns;
        let Some(peer) = self.others.get_mut(from.index()) else { return Answer::Nothing };
        let along = (m.view, m.normal);
        let arrives = along > peer.answered_in && m.view <= view;
        let since = |ns: u64| peer.answered_at == 0 || now.mono_ns >= peer.answered_at.saturating_add(ns);
        let next = peer.shown.max(SeqNum(1))..executed;
        let answer = if since(min_ns) || arrives {
            Answer::Everything
        } else if next.contains(&m.executed) {
            return Answer::Next;
        } else {
            return Answer::Nothing;
        };
        peer.answered_at = now.mono_ns.max(1);
        if m.view <= view {
            peer.answered_in = peer.answered_in.max(along);
        }
        answer
    }

    /// Returns whether `to`, which asks for the batch at `seq`, may be sent it whatever its budget: once for each number of
    /// those that are executed here, in their order, and once more when it has started again. So a replica can catch up
    /// with any rate of requests. A Byzantine one gains one more copy of what was agreed, 64 KiB at a time.
    pub(crate) fn allow_copy(
        &mut self,
        to: ReplicaId,
        now: u64,
        seq: SeqNum,
        len: usize,
        config: &Config,
    ) -> bool {
        let Some(peer) = self.others.get_mut(to.index()) else { return false };
        if now >= peer.copied_at.saturating_add(config.status_min_ns / CATCH_UP_SHARE) {
            (peer.copied_at, peer.copied_bytes) = (now, 0);
        }
        let fits = peer.copied_bytes == 0 || peer.copied_bytes + len <= config.retransmit_bytes;
        if seq <= peer.copied || !fits {
            return false;
        }
        peer.copied = seq;
        peer.copied_bytes += len;
        true
    }

    /// Returns those that say to have executed `seq`.
    pub(crate) fn that_executed(&self, seq: SeqNum) -> impl Iterator<Item = ReplicaId> {
        (0..)
            .map(ReplicaId::at)
            .zip(&self.others)
            .filter(move |(_, peer)| peer.executed >= seq)
            .map(|(id, _)| id)
    }

    /// Returns whether `to` may be sent a COMMITTED of `len` bytes for `seq`: for each number once whatever its budget, which
    /// votes may have used up, and within that again.
    pub(crate) fn allow_committed(
        &mut self,
        to: ReplicaId,
        now: u64,
        seq: SeqNum,
        len: usize,
        config: &Config,
    ) -> bool {
        let Some(peer) = self.others.get_mut(to.index()) else { return false };
        if seq <= peer.shown {
            return self.allow(to, now, len, config);
        }
        peer.shown = seq;
        true
    }

    /// Another replica says which start of this one it has seen last. Says whether that is a later start whose token has
    /// to be checked.
    pub(crate) fn note_echo(&mut self, now: Now, from: ReplicaId, echo: Start) -> bool {
        let own = self.own;
        let Some(peer) = self.others.get_mut(from.index()) else { return false };
        peer.echoes_us = echo == own;
        let starts = echo.incarnation >> INCARNATION_RANDOM_BITS;
        let is_later = echo != own && starts >= own.incarnation >> INCARNATION_RANDOM_BITS;
        let news = is_later && core::mem::replace(&mut peer.echo, echo) != echo;
        peer.later = is_later.then_some(starts);
        // A count that no clock explains was used up by somebody who had this replica's key: it is outgrown when f + 1
        // know of it.
        let ahead = (now.wall_ns / 1_000_000_000).saturating_add(STARTS_AHEAD);
        // Two processes that run from copies of one directory have the same count: no later start, and f + 1 have to say so.
        let beyond = starts > own.incarnation >> INCARNATION_RANDOM_BITS;
        news && beyond && starts <= ahead
    }

    /// Somebody has shown a later start of this replica with its token.
    pub(crate) fn prove(&mut self, later: Start) {
        let starts = later.incarnation >> INCARNATION_RANDOM_BITS;
        self.proven = Some(self.proven.map_or(starts, |known| known.max(starts)));
    }

    /// Says whether an incarnation can count more starts than this.
    pub(crate) fn can_outgrow(starts: u64) -> bool {
        starts < STARTS_MAX
    }

    /// Returns the incarnation that goes beyond this count of starts, with these random bits.
    pub(crate) fn incarnation_after(starts: u64, random: u64) -> u64 {
        ((starts + 1) << INCARNATION_RANDOM_BITS) | random >> (u64::BITS - INCARNATION_RANDOM_BITS)
    }

    /// Returns whether `len` more bytes may be sent again to `to`, and counts them: at most `retransmit_bytes` in
    /// each `status_min_ns`, so that no replica can cause unlimited work (K14).
    pub(crate) fn allow(&mut self, to: ReplicaId, now: u64, len: usize, config: &Config) -> bool {
        let Some(peer) = self.budget(to, now, config) else { return false };
        // One item of any size passes: a request of 1 MiB must be obtainable.
        let allowed = peer.sent_bytes == 0 || peer.sent_bytes + len <= config.retransmit_bytes;
        if allowed {
            peer.sent_bytes += len;
        }
        allowed
    }

    /// Returns whether `from` may ask for `count` more digests, and counts them whether they are here or not: at
    /// most [`LOOKUPS_MAX`] in each `status_min_ns` (K14).
    pub(crate) fn allow_lookups(&mut self, from: ReplicaId, now: u64, count: usize, config: &Config) -> bool {
        let Some(peer) = self.budget(from, now, config) else { return false };
        let allowed = peer.lookups + count <= LOOKUPS_MAX;
        if allowed {
            peer.lookups += count;
        }
        allowed
    }

    /// Returns a peer with its budgets of the interval that `now` is in.
    fn budget(&mut self, of: ReplicaId, now: u64, config: &Config) -> Option<&mut Peer> {
        let peer = self.others.get_mut(of.index())?;
        if now >= peer.budget_at.saturating_add(config.status_min_ns) {
            peer.budget_at = now;
            peer.sent_bytes = 0;
            peer.lookups = 0;
        }
        Some(peer)
    }

    /// Returns how many others say that their stable checkpoint is `seq` or a later one.
    pub(crate) fn stable_at(&self, seq: SeqNum) -> usize {
        self.others.iter().filter(|p| p.stable >= seq).count()
    }

    /// Returns the stable checkpoint of a peer that has said so in this life.
    pub(crate) fn known_stable(&self, of: ReplicaId) -> Option<SeqNum> {
        self.others.get(of.index()).filter(|p| p.heard_at != 0).map(|p| p.stable)
    }

    /// Returns how many others echo this replica's start.
    pub(crate) fn echoes(&self) -> usize {
        self.others.iter().filter(|p| p.echoes_us).count()
    }

    /// Returns a number that `count` others say to have executed.
    pub(crate) fn executed_by(&self, count: usize) -> SeqNum {
        let mut executed: Vec<SeqNum> = self.others.iter().map(|p| p.executed).collect();
        executed.sort_unstable();
        executed.iter().rev().nth(count.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// Returns the latest start seen of each replica, as bytes.
    pub(crate) fn seen(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.others.len() * Start::BYTES);
        self.others.iter().for_each(|peer| peer.start.encode(&mut Writer::new(&mut bytes)));
        bytes
    }

    /// Restores what [`Self::seen`] returned in an earlier life.
    pub(crate) fn restore(&mut self, seen: &[u8]) {
        let seen = Echoes::new(seen);
        for (index, peer) in self.others.iter_mut().enumerate() {
            peer.start = seen.of(ReplicaId::at(index));
        }
    }

    /// Notes what a peer says of its settings. Returns whether that is a difference that was not known yet.
    pub(crate) fn note_settings(&mut self, from: ReplicaId, settings: u64, own: u64) -> bool {
        let Some(peer) = self.others.get_mut(from.index()) else { return false };
        let differs = (settings != own).then_some(settings);
        let news = differs.is_some() && peer.settings != differs;
        peer.settings = differs;
        news
    }

    /// Returns a count of starts that `count` others have seen this replica exceed or reach in another life, or that
    /// one of them has a token of.
    pub(crate) fn later_known_to(&self, count: usize) -> Option<u64> {
        if let Some(proven) = self.proven {
            return Some(proven);
        }
        let mut later: Vec<u64> = self.others.iter().filter_map(|p| p.later).collect();
        later.sort_unstable();
        later.iter().rev().nth(count.saturating_sub(1)).copied()
    }

    /// Notes an incarnation: the counter in its high bits must rise; the same counter with other random
    /// bits is a second start from one image. It rises by no more than starts can explain, and not again before
    /// `min_ns` have passed.
    pub(crate) fn note_start(&mut self, now: Now, from: ReplicaId, start: Start, min_ns: u64) -> Incarnation {
        let Some(peer) = self.others.get_mut(from.index()) else { return Incarnation::Old };
        let (known, new) =
            (peer.start.incarnation >> INCARNATION_RANDOM_BITS, start.incarnation >> INCARNATION_RANDOM_BITS);
        if new > known {
            let ahead = (now.wall_ns / 1_000_000_000).saturating_add(STARTS_AHEAD);
            let believed = ahead.max(known.saturating_add(STARTS_STEP));
            let soon = peer.started_at != 0 && now.mono_ns < peer.started_at.saturating_add(min_ns);
            if mutant!(M63, new > believed || soon, false) {
                return Incarnation::Old;
            }
            peer.start = start;
            peer.started_at = now.mono_ns.max(1);
            peer.forget_sent(now.mono_ns);
            return Incarnation::New;
        }
        if peer.start == start { Incarnation::Known } else { Incarnation::Old }
    }
}

#[cfg(test)]
mod tests {
    use quorate_wire::ClusterId;

    use super::*;

    const R1: ReplicaId = ReplicaId(1);

    fn starts(peers: &mut Peers, ms: u64, count: u64) -> bool {
        let now = Now { mono_ns: ms * MS, wall_ns: 0 };
        let start = Start { incarnation: count << INCARNATION_RANDOM_BITS, token: 0 };
        matches!(peers.note_start(now, R1, start, 100 * MS), Incarnation::New)
    }

    /// SM-2: what it was sent before a restart, a replica may need again, and is sent again as fast. One that starts all the
    /// time is not.
    #[test]
    fn a_replica_that_has_started_again_is_sent_all_once_more() {
        let cluster = Cluster::tolerating(1).unwrap();
        let config = Config::new(cluster, ClusterId([0; 32]));
        let mut peers = Peers::new(cluster, config.status_min_ns);
        assert!(starts(&mut peers, 1_000, 1));
        // Whether it is sent something of number 3, when nothing else fits into its budget.
        let is_sent = |peers: &mut Peers, ms: u64| {
            let (now, len) = (ms * MS, config.retransmit_bytes);
            peers.allow(R1, now, len, &config);
            let copy = peers.allow_copy(R1, now, SeqNum(3), 100, &config);
            (copy, peers.allow_committed(R1, now, SeqNum(3), 100, &config))
        };
        assert_eq!(is_sent(&mut peers, 1_000), (true, true));
        assert_eq!(is_sent(&mut peers, 1_200), (false, false), "once");
        assert!(starts(&mut peers, 2_000, 2));
        assert_eq!(is_sent(&mut peers, 2_000), (true, true));
        assert!(starts(&mut peers, 3_000, 3));
        assert_eq!(is_sent(&mut peers, 3_000), (false, false), "soon after the last time");
        assert!(starts(&mut peers, 32_000, 4));
        assert_eq!(is_sent(&mut peers, 32_000), (true, true));
    }
}
