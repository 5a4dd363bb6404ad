//! Invariants, and the checkers that verify them (spec §18, "S").
//!
//! They receive every action of correct replicas and every result that clients accept, and run after every step. Byzantine
//! replicas and second copies of a replica are not checked.
//!
//! | Rule | Watcher |
//! |---|---|
//! | I1 I2 I3 I4 one order for all | [`agreement`] |
//! | I13 I15 each request once, with the result of a sequential machine | [`exactly_once`] |
//! | I16 I18 equal digests at equal checkpoints, of committed effects only | [`checkpoint`] |
//! | I5 I7 I8 I19 VC-5 RC-5 what may be said, across restarts | [`invariants`] |
//! | PC-1 what commits has a quorum of COMMITs of one view | [`one_view`] |
//! | RC-11 RC-11a a life begins when its request has committed; no vote in a view that rests on a life that has ended | [`ended`] |
//! | I4 no new view that could be made leaves out what has committed | [`omniscient`] |
//! | I11 I3 what leaves, and what has committed, is on disks | [`promises`] |
//! | RO-4 D5 nobody answers below what it has shown, or announces what its disk has not | [`shown`] |
//! | I14 what the clients saw is linearizable | [`linearizable`], [`order`] |
//! | a client accuses no correct replica | [`Checkers::accused`] |
//! | I23 I24 after the faults, everything finishes | [`progress`] |

#![allow(clippy::wildcard_enum_match_arm, reason = "a watcher looks for some of many kinds")]

use std::sync::Arc;

use quorate_pbft::step::Milestone;
use quorate_service::registry::Table;
use quorate_wire::digest::Domains;
use quorate_wire::message::{Checkpoint, NewView, Reply, ViewChange};
use quorate_wire::{Batch, ClientId, Cluster, Digest, Kind, ReplicaId, Replies, SeqNum, Timestamp, ViewNum};

pub mod agreement;
pub mod checkpoint;
pub mod ended;
pub mod exactly_once;
pub mod facts;
pub mod invariants;
mod lanes;
pub mod linearizable;
pub mod omniscient;
pub mod one_view;
pub mod order;
pub mod progress;
pub mod promises;
pub mod shown;
#[cfg(test)]
mod tests;
mod verdict;

use agreement::Agreement;
use checkpoint::Checkpoints;
use ended::Ended;
use exactly_once::ExactlyOnce;
use facts::Facts;
pub use facts::Root;
use invariants::Votes;
use omniscient::Omniscient;
use one_view::OneView;
use order::Effect;
use promises::Promises;
use shown::Shown;
pub use verdict::{Verdict, Violation};

use crate::app::Double;

/// All watchers of one world.
pub struct Checkers {
    facts: Vec<Facts>,
    agreement: Agreement,
    exactly_once: ExactlyOnce,
    checkpoints: Checkpoints,
    votes: Votes,
    omniscient: Omniscient,
    one_view: OneView,
    ended: Ended,
    shown: Shown,
    /// Where replicas wait for their disks.
    promises: Option<Promises>,
    /// The first rule that was broken.
    violation: Option<Violation>,
}

impl std::fmt::Debug for Checkers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkers").field("violation", &self.violation).finish_non_exhaustive()
    }
}

impl Checkers {
    /// Returns the watchers of the replicas in `correct`, the only ones that keep to the protocol. `lanes`: the most of
    /// all clients, and of one.
    pub fn new(
        cluster: Cluster,
        (interval, window): (u64, u64),
        domains: Domains,
        correct: &[ReplicaId],
        lanes: (usize, usize),
        double: Box<dyn Double>,
    ) -> Self {
        let facts = cluster.replicas().map(|id| Facts::new(id, correct.contains(&id))).collect();
        Self {
            facts,
            agreement: Agreement::new(cluster),
            omniscient: Omniscient::new(cluster, interval, window, domains.null_batch()),
            one_view: OneView::new(cluster, window),
            ended: Ended::default(),
            shown: Shown::new(cluster),
            promises: None,
            exactly_once: ExactlyOnce::new(domains, lanes, double),
            checkpoints: Checkpoints::new(cluster),
            votes: Votes::new(cluster, (interval, window)),
            violation: None,
        }
    }

    /// Replicas wait for their disks: what leaves has to be there.
    pub fn watch_disks(&mut self, cluster: Cluster) {
        self.promises = Some(Promises::new(cluster));
    }

    /// Returns what watches the disks, if that is of use for replica `id`, and what is known of it.
    pub(crate) fn disk(&mut self, id: ReplicaId) -> Option<(&mut Promises, &Facts)> {
        let facts = &self.facts[id.index()];
        self.promises.as_mut().filter(|_| facts.correct).map(|promises| (promises, facts))
    }

    /// Returns the first rule that was broken.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Returns what is known of replica `id`.
    pub fn facts(&self, id: ReplicaId) -> &Facts {
        &self.facts[id.index()]
    }

    /// Returns the highest number that is final anywhere.
    pub fn committed(&self) -> SeqNum {
        self.agreement.last()
    }

    /// Returns how many requests took effect.
    pub fn commands(&self) -> u64 {
        self.exactly_once.commands
    }

    /// Notes a verdict; the first violation stays.
    pub fn note(&mut self, verdict: Verdict) {
        let Err(violation) = verdict else { return };
        if self.violation.is_none() {
            self.violation = Some(violation);
        }
    }

    /// A client reports that replica `id` contradicts the others. That must be true of it: it lies, or its
    /// state has been corrupted in memory.
    pub fn accused(&mut self, id: ReplicaId) {
        let facts = &self.facts[id.index()];
        let truthful = facts.correct && !facts.was_faulty;
        if truthful {
            self.note(Err(Violation::new(
                "evidence",
                format!("a client accuses {id}, which is correct"),
                &[id],
            )));
        }
    }

    /// Returns whether replica `id` keeps to the protocol, and is watched.
    pub fn watches(&self, id: ReplicaId) -> bool {
        self.facts.get(id.index()).is_some_and(|facts| facts.correct)
    }

    /// Replica `id` starts from its disk: the numbers of its image and of its stable checkpoint, its view
    /// and whether that is in normal operation, and what it had prepared.
    pub fn restarted(
        &mut self,
        id: ReplicaId,
        seqs: (SeqNum, SeqNum),
        view: (ViewNum, bool),
        prepared: &[(SeqNum, ViewNum, Digest)],
    ) {
        self.exactly_once.undone(id);
        self.shown.restarted(id, seqs.0);
        self.facts[id.index()].restart(seqs, view, prepared);
    }

    /// Replica `id` starts with nothing.
    pub fn forgot(&mut self, id: ReplicaId) {
        self.exactly_once.undone(id);
        self.facts[id.index()].forget();
        self.votes.forgot(id);
        self.shown.restarted(id, SeqNum(0));
        self.promises.iter_mut().for_each(|promises| promises.forgot(id));
    }

    /// Replica `id` lies from now on.
    pub fn turned(&mut self, id: ReplicaId) {
        self.exactly_once.undone(id);
        self.facts[id.index()].correct = false;
    }

    /// Replica `id` has lied, and keeps to the protocol from its next start on. What it has said may still arrive.
    pub fn cleaned(&mut self, id: ReplicaId) {
        self.exactly_once.undone(id);
        let facts = &mut self.facts[id.index()];
        *facts = Facts::new(id, true);
        facts.was_faulty = true;
    }

    /// Replica `id` has had an old disk put in.
    pub fn misled(&mut self, id: ReplicaId) {
        self.facts[id.index()].misled = true;
    }

    /// Replica `id` has found out that it has no memory.
    pub fn forgets(&mut self, id: ReplicaId) {
        self.facts[id.index()].forgets();
        self.votes.forgot(id);
    }

    /// The state of replica `id` was corrupted in memory.
    pub fn damaged(&mut self, id: ReplicaId) {
        self.facts[id.index()].damage();
    }

    /// Replica `id` reports a milestone.
    pub fn milestone(&mut self, id: ReplicaId, milestone: &Milestone) {
        if !self.watches(id) {
            return;
        }
        let verdict = self.facts[id.index()].milestone(milestone);
        self.note(verdict);
        let Self { facts, agreement, one_view, checkpoints, promises, .. } = self;
        let verdict = match *milestone {
            Milestone::Prepared { seq, digest } => {
                let truthful = |id: ReplicaId| facts[id.index()].correct && !facts[id.index()].was_faulty;
                let vote = (facts[id.index()].view, seq, digest);
                let own = promises.as_ref().is_none_or(|p| p.has_voted(id, vote));
                let in_one_view = one_view.prepared(id, vote, own, truthful);
                let in_one_view = in_one_view.map_err(|text| Violation::new("one view (PC-1)", text, &[id]));
                agreement.prepared(&facts[id.index()], seq, digest).and(in_one_view)
            }
            Milestone::Rejoined { .. } => {
                let (sizes, quorum) = self.votes.sizes();
                self.exactly_once.lives.rejoined(facts, id, sizes, quorum)
            }
            Milestone::Committed { seq, digest } => {
                let on_disks = promises.as_ref().map_or(Ok(()), |p| p.committed(facts, id, seq, digest));
                let truthful = |id: ReplicaId| facts[id.index()].correct && !facts[id.index()].was_faulty;
                let own = |view| promises.as_ref().is_none_or(|p| p.has_prepared_in(id, (view, seq, digest)));
                let in_one_view = one_view.committed(id, seq, digest, own, truthful);
                let in_one_view = in_one_view.map_err(|text| Violation::new("one view (PC-1)", text, &[id]));
                agreement.committed(facts, id, seq, digest).and(on_disks).and(in_one_view)
            }
            Milestone::ViewEntered { view, last } => agreement.entered(id, view, last),
            Milestone::Stable { seq, root } => checkpoints.stable(facts, id, seq, root),
            _ => Ok(()),
        };
        self.note(verdict);
    }

    /// Replica `id` has a batch executed.
    pub fn execute(&mut self, id: ReplicaId, seq: SeqNum, batch: &Arc<Batch>, tentative: bool) {
        if !self.watches(id) {
            return;
        }
        let verdict = self.facts[id.index()].execute(seq, batch, tentative);
        self.note(verdict);
        if !tentative {
            self.settle(id, seq, batch);
        }
    }

    /// Replica `id` makes its tentative batch final.
    pub fn merge(&mut self, id: ReplicaId, seq: SeqNum) {
        if !self.watches(id) {
            return;
        }
        match self.facts[id.index()].merge(seq) {
            Ok(batch) => self.settle(id, seq, &batch),
            Err(violation) => self.note(Err(violation)),
        }
        if !self.facts[id.index()].damaged {
            let verdict = self.exactly_once.merged(id, seq);
            self.note(verdict);
        }
    }

    /// A batch has become a final part of a replica's state.
    fn settle(&mut self, id: ReplicaId, seq: SeqNum, batch: &Arc<Batch>) {
        match self.agreement.executed(id, seq, batch.digest()) {
            Ok(true) => {
                self.omniscient.settled(seq);
                let verdict = self.exactly_once.settle(seq, batch);
                self.note(verdict);
            }
            Ok(false) => {}
            Err(violation) => self.note(Err(violation)),
        }
    }

    /// Replica `id` drops its tentative batch, if there is one above `after`.
    pub fn undo(&mut self, id: ReplicaId, after: SeqNum) {
        if self.watches(id) {
            self.facts[id.index()].undo(after);
            self.exactly_once.undone(id);
        }
    }

    /// The service of replica `id` has executed a batch. Results of a batch that the replica has dropped since are
    /// ignored.
    pub fn executed(&mut self, id: ReplicaId, seq: SeqNum, batch: Digest, replies: &Replies) {
        let facts = &self.facts[id.index()];
        if !self.watches(id) || facts.damaged {
            return;
        }
        let settled = facts.executed >= seq;
        let tentative = facts.tentative.as_ref().filter(|(tentative, _)| *tentative == seq);
        let held =
            if settled { self.agreement.digest(seq) } else { tentative.map(|(_, batch)| batch.digest()) };
        if held == Some(batch) {
            let verdict = self.exactly_once.executed(id, seq, replies, settled);
            self.note(verdict);
        }
    }

    /// Replica `id` serves a client's read outside of the order.
    pub fn read(&mut self, id: ReplicaId, client: ClientId, timestamp: Timestamp) {
        if self.watches(id) {
            let facts = &self.facts[id.index()];
            let verdict = invariants::may_read(facts);
            let verdict = verdict.and(self.shown.read(facts, client, timestamp));
            self.note(verdict);
        }
    }

    /// Replica `id` announces a checkpoint, also of a damaged state, with an image on its disk (D5).
    pub fn announces(&mut self, id: ReplicaId, m: &Checkpoint, image: SeqNum) {
        if self.watches(id) && !self.checkpoints.contradicts(m.seq, m.digest) {
            let verdict = self.shown.announces(&self.facts[id.index()], m.seq, image);
            self.note(verdict);
        }
    }

    /// Replica `id` cuts a checkpoint.
    pub fn cut(&mut self, id: ReplicaId, seq: SeqNum) {
        if self.watches(id) {
            let verdict = checkpoint::may_cut(&self.facts[id.index()], seq);
            self.note(verdict);
        }
    }

    /// The state of replica `id` after `seq` has this root.
    pub fn root(&mut self, id: ReplicaId, seq: SeqNum, root: Digest, from: Root) {
        if !self.watches(id) {
            return;
        }
        let facts = &mut self.facts[id.index()];
        facts.hold(seq, from);
        if from == Root::Cut {
            self.shown.cut(id, seq, root);
        } else {
            facts.executed = seq;
            facts.tentative = None;
            self.exactly_once.undone(id);
            self.shown.fetched(id, seq, root);
        }
        if !facts.damaged {
            let verdict = self.checkpoints.root(id, seq, root);
            self.note(verdict);
        }
    }

    /// Says whether what replica `id` takes for the lives of the others follows from what it has executed (RC-11).
    pub fn lives(&self, id: ReplicaId, table: &quorate_pbft::lives::Table) -> Verdict {
        self.exactly_once.lives.known_at(&self.facts[id.index()], table)
    }

    /// An image of the state of replica `id` after `seq` is on its disk.
    pub fn kept(&mut self, id: ReplicaId, seq: SeqNum) {
        self.facts[id.index()].keep(seq);
        self.promises.iter_mut().for_each(|promises| promises.imaged(id, seq));
    }

    /// Replica `id` wants a message sent. It may still wait for the disk.
    pub fn says(&mut self, id: ReplicaId, kind: Kind, body: &[u8]) {
        if self.watches(id) {
            let facts = &self.facts[id.index()];
            let verdict = self.votes.says(facts, kind, body);
            let verdict = verdict.and(self.ended.votes(facts, &self.exactly_once.lives, kind, body));
            self.note(verdict);
        }
    }

    /// A message of replica `id`'s own leaves.
    pub fn sends(&mut self, id: ReplicaId, kind: Kind, body: &[u8]) {
        if self.watches(id) {
            let verdict = self.votes.sends(&self.facts[id.index()], kind, body);
            self.note(verdict);
            let Self { facts, omniscient, one_view, promises, exactly_once, .. } = self;
            let (lives, by) = (&exactly_once.lives, &facts[id.index()]);
            let watcher =
                promises.as_mut().filter(|_| !promises::is_of_the_first_time(exactly_once, by, kind, body));
            let kept = watcher.map_or(Ok(()), |p| p.sends(by, kind, body));
            let _ = invariants::for_each_vote(kind, body, |vote| {
                if !vote.commit {
                    one_view.agreed(id, (vote.view, vote.seq, vote.digest));
                }
                Ok(())
            });
            let verdict = invariants::for_each_commit(kind, body, |vote| {
                one_view.voted(id, vote);
                omniscient.voted(facts, lives, id, vote)
            });
            self.note(verdict);
            self.note(kept);
            self.binds(id, kind, body);
        }
    }

    /// Notes what a message that leaves binds its sender to.
    fn binds(&mut self, id: ReplicaId, kind: Kind, body: &[u8]) {
        let facts = &self.facts[id.index()];
        match kind {
            Kind::Reply => {
                let Some(reply) = Reply::decode(body).ok().filter(|reply| !reply.tentative) else { return };
                let ordered = self.exactly_once.place(reply.client, reply.timestamp);
                let shown = self.shown.replied(facts, reply.client, reply.timestamp, ordered);
                // A refusal shows nothing.
                let promises = self.promises.as_ref().filter(|_| reply.digest != Digest::ZERO);
                let verdict = promises.map_or(Ok(()), |p| p.shows(facts, shown));
                self.note(verdict);
            }
            Kind::ViewChange => {
                let Ok(message) = ViewChange::decode(body) else { return };
                let verdict = self.omniscient.said(&self.facts, &self.exactly_once.lives, id, message);
                self.note(verdict);
            }
            _ => {}
        }
    }

    /// Returns what took effect, in order.
    pub fn effects(&self) -> &[Effect] {
        &self.exactly_once.effects
    }

    /// Returns the addresses of replicas and the settings that were ordered.
    pub fn table(&self) -> Table {
        self.exactly_once.table()
    }

    /// Replica `id` is given a NEW-VIEW, or has made one.
    pub fn new_view(&mut self, id: ReplicaId, body: &[u8]) {
        if self.watches(id) {
            self.agreement.new_view(id, body);
            if let Ok(m) = NewView::decode(body) {
                self.ended.given(id, &m);
            }
        }
    }

    /// A VIEW-CHANGE of `by` has been admitted.
    pub fn view_change(&mut self, by: ReplicaId, digest: Digest, m: &ViewChange) {
        self.ended.signed(by, digest, m.life, m.view);
    }

    /// A client has accepted a result. `ordered`: not from the read-only path.
    pub fn accepted(&mut self, whose: (ClientId, Timestamp), operation: &[u8], result: &[u8], ordered: bool) {
        if ordered {
            let verdict = self.exactly_once.accepted(whose, operation, result);
            self.note(verdict);
        }
    }

    /// Returns whether a client has accepted what is not final anywhere yet: `q` tentative replies.
    pub fn is_early(&self) -> bool {
        self.exactly_once.is_early()
    }

    /// Everything has finished: nothing may be left open.
    pub fn finish(&mut self) {
        let verdict = self.exactly_once.finish();
        self.note(verdict);
    }
}
