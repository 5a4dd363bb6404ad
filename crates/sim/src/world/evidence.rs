//! What is recorded while a scenario runs, to show that its fault really happened.

use std::collections::{BTreeMap, BTreeSet};

use quorate_pbft::step::Milestone;
use quorate_wire::message::NewView;
use quorate_wire::reply::{Replies, ReplyOutcome};
use quorate_wire::{Digest, Kind, Message, ReplicaId, SeqNum, ViewNum};

/// A milestone to be counted as it is reported.
#[derive(Clone, Copy, Debug)]
struct Watch {
    matches: fn(ReplicaId, &Milestone) -> bool,
    count: u64,
}

/// A proposal that a correct replica has accepted, or a choice of a NEW-VIEW that it has taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// In which view.
    pub view: ViewNum,
    /// The batch.
    pub digest: Digest,
    /// By whom.
    pub by: ReplicaId,
}

/// A PREPARE or COMMIT of a faulty replica that a correct one has admitted, whatever became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Vote {
    seq: SeqNum,
    view: ViewNum,
    digest: Digest,
    /// The replica that was told.
    at: ReplicaId,
}

/// The recorded events, at correct replicas only.
#[derive(Debug, Default)]
pub struct Evidence {
    watches: Vec<Watch>,
    /// By number.
    accepted: BTreeMap<u64, Vec<Accepted>>,
    /// Messages of faulty replicas that were admitted, by kind.
    heard: BTreeMap<Kind, u64>,
    /// The same, by who said something to whom.
    said: BTreeMap<(ReplicaId, ReplicaId), u64>,
    votes: BTreeSet<Vote>,
    /// VIEW-CHANGEs of faulty replicas that NEW-VIEWs named.
    named: u64,
    /// Requests in final or tentative batches that had been executed before.
    skipped: u64,
}

impl Evidence {
    /// Counts milestones of which `matches` holds, too.
    pub(crate) fn watch(&mut self, matches: fn(ReplicaId, &Milestone) -> bool) {
        self.watches.push(Watch { matches, count: 0 });
    }

    /// Returns the counts of milestones, in the order of [`Self::watch`].
    pub(crate) fn watched(&self) -> impl Iterator<Item = u64> {
        self.watches.iter().map(|watch| watch.count)
    }

    /// A correct replica, in this view, reports a milestone.
    pub(crate) fn milestone(&mut self, by: ReplicaId, view: ViewNum, milestone: &Milestone) {
        for watch in &mut self.watches {
            watch.count += u64::from((watch.matches)(by, milestone));
        }
        if let Milestone::PrePrepared { seq, digest } = *milestone {
            self.accepted.entry(seq.0).or_default().push(Accepted { view, digest, by });
        }
    }

    /// Correct replica `at` has admitted a message of a faulty one.
    pub(crate) fn heard(&mut self, from: ReplicaId, at: ReplicaId, kind: Kind, message: &Message<'_>) {
        *self.heard.entry(kind).or_default() += 1;
        *self.said.entry((from, at)).or_default() += 1;
        if let Message::Commit(m) = message {
            self.votes.insert(Vote { seq: m.seq, view: m.view, digest: m.digest, at });
        } else if let Message::Prepare(m) = message {
            let riding = m.piggyback.iter().map(|(seq, digest)| Vote { seq, view: m.view, digest, at });
            self.votes.extend(riding);
            self.votes.insert(Vote { seq: m.seq, view: m.view, digest: m.digest, at });
        }
    }

    /// A correct replica has been given a NEW-VIEW.
    pub(crate) fn new_view(&mut self, new_view: &NewView, is_faulty: impl Fn(ReplicaId) -> bool) {
        let named = new_view.view_changes.iter().filter(|(replica, _)| is_faulty(*replica));
        self.named += u64::try_from(named.count()).unwrap_or(0);
    }

    /// The service of a correct replica has executed a batch.
    pub(crate) fn executed(&mut self, replies: &Replies) {
        let skipped = replies
            .iter()
            .filter(|reply| matches!(reply.outcome, ReplyOutcome::Repeated | ReplyOutcome::Superseded));
        self.skipped += u64::try_from(skipped.count()).unwrap_or(0);
    }

    /// Returns what was accepted at each number.
    pub fn accepted(&self) -> &BTreeMap<u64, Vec<Accepted>> {
        &self.accepted
    }

    /// Returns how many messages of this kind correct replicas have admitted from faulty ones.
    pub fn heard_of(&self, kind: Kind) -> u64 {
        self.heard.get(&kind).copied().unwrap_or(0)
    }

    /// Returns how many messages of `from`, which is faulty, `at` has admitted.
    pub fn said(&self, from: ReplicaId, at: ReplicaId) -> u64 {
        self.said.get(&(from, at)).copied().unwrap_or(0)
    }

    /// Returns how many votes of faulty replicas were for another batch than the one that the correct
    /// replica they came to has accepted in that view at that number.
    pub fn astray(&self) -> u64 {
        let other = |vote: &&Vote| {
            let mut accepted = self.accepted.get(&vote.seq.0).into_iter().flatten();
            accepted.any(|a| a.by == vote.at && a.view == vote.view && a.digest != vote.digest)
        };
        u64::try_from(self.votes.iter().filter(other).count()).unwrap_or(0)
    }

    /// Returns how many VIEW-CHANGEs of faulty replicas the NEW-VIEWs at correct ones have named.
    pub fn named(&self) -> u64 {
        self.named
    }

    /// Returns how often a request in a batch was found to have been executed before.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Returns at how many numbers two correct replicas have accepted different batches in one view.
    pub fn split(&self) -> u64 {
        let split = self
            .accepted
            .values()
            .filter(|all| all.iter().any(|a| all.iter().any(|b| a.view == b.view && a.digest != b.digest)));
        u64::try_from(split.count()).unwrap_or(0)
    }

    /// Returns the most different batches that correct replicas have accepted at one number, in whatever
    /// views.
    pub fn digests_max(&self) -> usize {
        let digests = |all: &Vec<Accepted>| all.iter().map(|a| a.digest).collect::<BTreeSet<_>>().len();
        self.accepted.values().map(digests).max().unwrap_or(0)
    }
}
