//! One sequence number: its proposal, votes, what prepared and what committed [OSDI99 §4.2]. Only the verbs of this
//! file change a slot.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::batch::{Batch, Body};
use quorate_wire::id::{ReplicaId, SeqNum, ViewNum};
use quorate_wire::{Cluster, Digest};

use crate::io::step::Lsn;
use crate::order::proposal::Doubtful;
pub(crate) use crate::order::proposal::Proposal;
use crate::order::votes::{Inserted, Votes};

/// All that is known of one sequence number. Bounded: at most one vote of each kind from each replica.
#[derive(Debug)]
pub(crate) struct Slot {
    seq: SeqNum,
    /// Of the log's view.
    proposal: Option<Proposal>,
    /// The last PRE-PREPARE or PREPARE that this replica sent, or is about to (I5).
    voted: Option<(ViewNum, Digest)>,
    /// The record of that, on its way to the disk.
    voted_lsn: Lsn,
    /// Of the log's view; this replica's own counts once it is durable.
    prepares: Votes<Digest>,
    /// Of the log's view.
    commits: Votes<Digest>,
    /// Of the view before it (PC-1).
    old_commits: Votes<Digest>,
    /// COMMITTED statements, of any view (ST-5).
    attested: Votes<Digest>,
    /// P: the batch that prepared here in the newest view, until the number is below `h` (VC-1).
    prepared: Option<(ViewNum, Arc<Batch>)>,
    /// What P's record waits for on its way to the disk: COMMITs and tentative replies do too.
    prepared_lsn: Lsn,
    /// The batch whose content a record of this number holds: each is written once.
    logged: Option<Digest>,
    /// The record that the number has committed, on its way to the disk.
    committed_lsn: Lsn,
    /// Q: what this replica pre-prepared, each digest with its newest view.
    claims: Vec<(Digest, ViewNum)>,
    /// The batches of claims of views that have ended, of the newest `f + 2` at most. A claim may be all that
    /// supports a batch, and then its body has to be obtainable here (A3).
    claimed: Vec<Arc<Batch>>,
    /// committed-local holds for this digest.
    committed: Option<Digest>,
    /// The batch that committed, where it is not the proposal or P.
    fetched: Option<Arc<Batch>>,
    /// The requests of the proposal that are not authentic here.
    doubtful: Doubtful,
}

impl Slot {
    /// Returns an empty slot of a group of `n` replicas.
    pub(super) fn new(n: usize) -> Self {
        Self {
            seq: SeqNum(0),
            proposal: None,
            voted: None,
            voted_lsn: Lsn(0),
            prepares: Votes::new(n),
            commits: Votes::new(n),
            old_commits: Votes::new(n),
            attested: Votes::new(n),
            prepared: None,
            prepared_lsn: Lsn(0),
            logged: None,
            committed_lsn: Lsn(0),
            claims: Vec::new(),
            claimed: Vec::new(),
            committed: None,
            fetched: None,
            doubtful: Doubtful::default(),
        }
    }

    /// Becomes the empty slot of another number.
    pub(super) fn reset(&mut self, seq: SeqNum) {
        self.seq = seq;
        self.proposal = None;
        self.voted = None;
        self.voted_lsn = Lsn(0);
        self.prepares.clear();
        self.commits.clear();
        self.old_commits.clear();
        self.attested.clear();
        self.prepared = None;
        self.prepared_lsn = Lsn(0);
        self.logged = None;
        self.committed_lsn = Lsn(0);
        self.claims.clear();
        self.claimed.clear();
        self.committed = None;
        self.fetched = None;
        self.doubtful.clear();
    }

    /// Returns the number.
    #[inline]
    pub(crate) fn seq(&self) -> SeqNum {
        self.seq
    }

    /// Returns the proposal of the log's view.
    #[inline]
    pub(crate) fn proposal(&self) -> Option<&Proposal> {
        self.proposal.as_ref()
    }

    /// Returns the batch of the proposal, as far as it is here.
    pub(crate) fn proposed(&self) -> Option<&Arc<Batch>> {
        self.proposal.as_ref()?.batch.as_ref()
    }

    /// Returns what this replica pre-prepared last.
    #[inline]
    pub(crate) fn voted(&self) -> Option<(ViewNum, Digest)> {
        self.voted
    }

    /// Returns what this replica pre-prepared in `view`.
    #[inline]
    pub(crate) fn voted_in(&self, view: ViewNum) -> Option<Digest> {
        self.voted.filter(|(voted, _)| *voted == view).map(|(_, digest)| digest)
    }

    /// Returns P: the batch that prepared here in the newest view.
    #[inline]
    pub(crate) fn prepared(&self) -> Option<(ViewNum, &Arc<Batch>)> {
        self.prepared.as_ref().map(|(view, batch)| (*view, batch))
    }

    /// Returns whether P is this batch of this view.
    pub(crate) fn has_prepared(&self, view: ViewNum, digest: &Digest) -> bool {
        self.prepared.as_ref().is_some_and(|(prepared, batch)| *prepared == view && batch.digest() == *digest)
    }

    /// Returns what this replica's PRE-PREPARE or PREPARE has to wait for.
    pub(crate) fn voted_lsn(&self) -> Lsn {
        self.voted_lsn
    }

    /// Returns what COMMITs and tentative replies have to wait for: the record of P.
    pub(crate) fn prepared_lsn(&self) -> Lsn {
        self.prepared_lsn
    }

    /// Returns the digest that committed.
    #[inline]
    pub(crate) fn committed(&self) -> Option<Digest> {
        self.committed
    }

    /// Returns the batch that committed, where it is not the proposal or P.
    pub(crate) fn fetched(&self) -> Option<&Arc<Batch>> {
        self.fetched.as_ref()
    }

    /// Returns Q: what this replica pre-prepared, each digest with its newest view, the newest first.
    pub(crate) fn claims(&self) -> &[(Digest, ViewNum)] {
        &self.claims
    }

    /// Takes the proposal of the log's view.
    pub(crate) fn accept(&mut self, proposal: Proposal) {
        // PP-3: no other one was accepted in this view. The same one again only brings its batch.
        let known = self.proposal.as_ref();
        assert!(known.is_none_or(|known| known.digest == proposal.digest && known.batch.is_none()));
        self.proposal = Some(proposal);
    }

    /// Takes a batch that was fetched, if the slot lacks it. Says whether it did.
    pub(crate) fn supply(&mut self, batch: &Arc<Batch>) -> bool {
        let digest = batch.digest();
        let mut needed = self.supply_proposal(batch);
        if self.committed == Some(digest) && self.batch(&digest).is_none() {
            self.fetched = Some(batch.clone());
            needed = true;
        }
        needed
    }

    /// Takes the batch of the proposal, if the proposal lacks it. Says whether it did.
    pub(crate) fn supply_proposal(&mut self, batch: &Arc<Batch>) -> bool {
        let lacking = self.proposal.as_mut().filter(|p| p.digest == batch.digest() && p.batch.is_none());
        let Some(proposal) = lacking else { return false };
        proposal.batch = Some(batch.clone());
        true
    }

    /// Fills a body in where a batch of the slot misses it.
    pub(crate) fn supply_body(&mut self, body: &Body) {
        let proposed = self.proposal.as_mut().and_then(|p| p.batch.as_mut());
        for batch in [proposed, self.fetched.as_mut()].into_iter().flatten() {
            if !batch.is_complete() {
                Arc::make_mut(batch).supply(body);
            }
        }
    }

    /// Puts the batch of the proposal in its own place, with more bodies.
    pub(crate) fn refill(&mut self, batch: Arc<Batch>) {
        if let Some(proposal) = &mut self.proposal {
            assert!(proposal.digest == batch.digest());
            proposal.batch = Some(batch);
        }
    }

    /// Every request of the proposal is authentic here by now.
    pub(crate) fn vouch(&mut self) {
        if let Some(proposal) = &mut self.proposal {
            proposal.authentic = true;
        }
    }

    /// AU-2: f matching prepares of other backups make, with the primary, f + 1 replicas that vouch for the requests of a
    /// batch; one of them is correct. Or others vouch for single requests (L128).
    pub(crate) fn accept_vouched(&mut self, f: usize) {
        let Some(digest) = self.proposal.as_ref().filter(|p| !p.authentic).map(|p| p.digest) else { return };
        if self.is_vouched(&digest, f) || self.doubtful.are_accepted(self.prepared_by(), f) {
            self.vouch();
        }
    }

    /// Returns whether f backups have prepared `digest`: with the primary that is f + 1 replicas, so a correct one.
    pub(crate) fn is_vouched(&self, digest: &Digest, f: usize) -> bool {
        f > 0 && self.prepares.count(digest) >= f
    }

    /// These requests of the proposal are not authentic here, and all others are.
    pub(crate) fn doubt(&mut self, requests: &[(Digest, u64)]) {
        self.doubtful.set(requests);
        if requests.is_empty() {
            self.vouch();
        }
    }

    /// Another backup vouches for a request. Says whether that is new, and the proposal waits for it.
    pub(crate) fn note_voucher(&mut self, request: &Digest, from: ReplicaId) -> bool {
        self.proposal.as_ref().is_some_and(|p| !p.authentic) && self.doubtful.note(request, from)
    }

    /// AU-2: says whether a request of the proposal is authentic here, or enough others vouch for it.
    pub(crate) fn is_accepted(&self, request: &Digest, f: usize) -> bool {
        self.doubtful.is_accepted(request, self.prepared_by(), f)
    }

    /// Returns who has sent PREPARE for the proposal.
    fn prepared_by(&self) -> u64 {
        let proposed = self.proposal.as_ref().map(|p| p.digest);
        self.prepares.senders_where(|digest| Some(*digest) == proposed)
    }

    /// Returns whether copies with signatures of the proposal's requests are asked for now: again after `every_ns`.
    pub(crate) fn ask_for_signatures(&mut self, now_ns: u64, every_ns: u64) -> bool {
        self.doubtful.ask(now_ns, every_ns)
    }

    /// This replica pre-prepares `digest` in `view`. I5: at most one digest for each view and number, ever.
    pub(crate) fn vote(&mut self, view: ViewNum, digest: Digest) {
        assert!(self.voted.is_none_or(|(voted, other)| voted < view || other == digest));
        self.voted = Some((view, digest));
    }

    /// Notes what the record of that vote is.
    pub(crate) fn note_voted_record(&mut self, lsn: Lsn) {
        self.voted_lsn = lsn;
    }

    /// Counts a PREPARE of the log's view.
    #[inline]
    pub(crate) fn count_prepare(&mut self, from: ReplicaId, digest: Digest) -> Inserted<Digest> {
        self.prepares.insert(from, digest)
    }

    /// Counts a COMMIT, of the log's view if it is `current`, otherwise of the view before it.
    #[inline]
    pub(crate) fn count_commit(
        &mut self,
        from: ReplicaId,
        digest: Digest,
        current: bool,
    ) -> Inserted<Digest> {
        let votes = if current { &mut self.commits } else { &mut self.old_commits };
        votes.insert(from, digest)
    }

    /// Counts a COMMITTED.
    pub(crate) fn attest(&mut self, from: ReplicaId, digest: Digest) -> Inserted<Digest> {
        self.attested.insert(from, digest)
    }

    /// The batch has prepared in `view`: P.
    pub(crate) fn prepare(&mut self, view: ViewNum, batch: Arc<Batch>) {
        // I10: this replica's own pre-prepare or prepare is among what prepared it.
        assert!(self.voted == Some((view, batch.digest())));
        self.prepared = Some((view, batch));
    }

    /// Notes what P's record is.
    pub(crate) fn note_prepared_record(&mut self, lsn: Lsn) {
        self.prepared_lsn = lsn;
    }

    /// A record is about to hold the content of a batch. Says whether one does already.
    pub(crate) fn log_batch(&mut self, digest: Digest) -> bool {
        self.logged.replace(digest) == Some(digest)
    }

    /// The number has committed, permanently with this digest. Says whether that is new.
    pub(crate) fn commit(&mut self, digest: Digest) -> bool {
        assert!(self.committed.is_none_or(|committed| committed == digest));
        self.committed.replace(digest).is_none()
    }

    /// Notes what the record is that the number has committed.
    pub(crate) fn note_committed_record(&mut self, lsn: Lsn) {
        self.committed_lsn = lsn;
    }

    /// The log's view, which is `view`, ends: Q takes up what was pre-prepared in it.
    pub(super) fn end_view(&mut self, view: ViewNum) {
        if let Some((voted, digest)) = self.voted {
            self.claim(digest, voted);
        }
        if mutant!(M36, false, true) && self.prepared.as_ref().is_some_and(|(prepared, _)| *prepared < view) {
            self.prepared = None; // P cleared after one view change.
        }
    }

    /// A view begins: proposals and votes of the old one go, its commits stay for a while (PC-1), and the batches of
    /// `claims_max` claims.
    pub(super) fn start_view(&mut self, claims_max: usize) {
        self.keep_claimed(claims_max);
        self.proposal = None;
        self.doubtful.clear();
        self.prepares.clear();
        core::mem::swap(&mut self.commits, &mut self.old_commits);
        self.commits.clear();
    }

    /// Takes a vote from the log of an earlier life.
    pub(crate) fn restore_vote(&mut self, view: ViewNum, digest: Digest) {
        self.claim(digest, view);
        // I5.
        assert!(self.voted.is_none_or(|(voted, other)| voted != view || other == digest));
        if mutant!(M41, self.voted.is_none_or(|(voted, _)| voted <= view), false) {
            self.voted = Some((view, digest));
        }
    }

    /// Takes what prepared from the log of an earlier life.
    pub(crate) fn restore_prepared(&mut self, view: ViewNum, batch: &Arc<Batch>) {
        let digest = batch.digest();
        self.claim(digest, view);
        let newest = self.prepared.as_ref().is_none_or(|(prepared, _)| *prepared <= view);
        if mutant!(M62, newest, self.prepared.is_none()) {
            self.prepared = Some((view, batch.clone()));
            self.logged = Some(digest);
        }
    }

    /// Takes what committed from the log of an earlier life.
    pub(crate) fn restore_committed(&mut self, digest: Digest, batch: Option<Arc<Batch>>) {
        self.commit(digest);
        self.fetched = batch;
    }

    /// What this replica, `own`, voted for in `view`, it stands by after a restart (PP-3).
    pub(crate) fn resume(&mut self, view: ViewNum, own: ReplicaId, now: u64) {
        let Some(digest) = self.voted_in(view) else { return };
        let batch = self.batch(&digest).cloned();
        self.proposal = Some(Proposal { digest, batch, authentic: true, since: now });
        self.prepares.insert(own, digest);
        if self.has_prepared(view, &digest) {
            self.commits.insert(own, digest);
        }
    }

    /// prepared(m, v, n, i): the pre-prepare is in the log with every body, and `2f` backups' prepares
    /// match it [OSDI99 §4.2]. Returns the batch that prepared.
    pub(crate) fn prepared_now(&self, cluster: Cluster) -> Option<&Arc<Batch>> {
        let proposal = self.proposal.as_ref()?;
        let batch = mutant!(M27, proposal.complete()?, proposal.batch.as_ref()?);
        let needed = mutant!(M21, cluster.prepares(), cluster.prepares() - 1);
        let enough = self.prepares.len() >= needed && self.prepares.count(&proposal.digest) >= needed;
        enough.then_some(batch)
    }

    /// Returns whether P has a batch of `view`.
    #[inline]
    pub(crate) fn prepared_in(&self, view: ViewNum) -> bool {
        self.prepared.as_ref().is_some_and(|(prepared, _)| *prepared == view)
    }

    /// committed-local(m, v, n, i), in the three forms of spec §3. Returns the digest that committed;
    /// its batch may still have to be fetched.
    #[inline]
    pub(crate) fn committed_now(&self, cluster: Cluster) -> Option<Digest> {
        let quorum = mutant!(M22, cluster.quorum(), cluster.quorum() - 1);
        let weak = mutant!(M23, cluster.weak(), cluster.weak() - 1);
        let few = self.commits.len() + self.old_commits.len() < quorum && self.attested.len() < weak;
        if few || self.committed.is_some() { self.committed } else { self.certified(quorum, weak) }
    }

    fn certified(&self, quorum: usize, weak: usize) -> Option<Digest> {
        // (b) q commits of one view match, whether or not this replica prepared: q - f >= f + 1 of
        // them are correct replicas at which it prepared. (a), which OSDI99 has, is a special case.
        if mutant!(M98, false, true) {
            let of = |digest: &Digest| self.commits.count(digest) + self.old_commits.count(digest);
            let either = self.commits.iter().chain(self.old_commits.iter()).map(|(_, digest)| *digest);
            if let Some(digest) = either.into_iter().find(|digest| of(digest) >= quorum) {
                return Some(digest);
            }
        }
        for commits in [&self.commits, &self.old_commits] {
            if let Some(digest) = commits.said_by(quorum) {
                return Some(*digest);
            }
        }
        // (c) f + 1 replicas say that it committed, so one correct replica does.
        self.attested.said_by(weak).copied()
    }

    /// Returns a batch with this digest, if the slot holds one.
    pub(crate) fn batch(&self, digest: &Digest) -> Option<&Arc<Batch>> {
        // Nearly always: and the batch itself need not be looked at.
        let proposed = self.proposal.as_ref().filter(|proposal| proposal.digest == *digest);
        proposed
            .and_then(|proposal| proposal.batch.as_ref())
            .or_else(|| self.batches().find(|batch| batch.digest() == *digest))
    }

    /// Returns whether the slot needs the batch with this digest, and does not hold it.
    pub(crate) fn lacks(&self, digest: &Digest) -> bool {
        let proposed = self.proposal.as_ref().is_some_and(|p| p.digest == *digest && p.batch.is_none());
        proposed || self.committed == Some(*digest) && self.batch(digest).is_none()
    }

    /// Returns the batches that the slot holds, in no order; one may be there more than once.
    pub(crate) fn batches(&self) -> impl Iterator<Item = &Arc<Batch>> {
        let proposed = self.proposal.as_ref().and_then(|p| p.batch.as_ref());
        let prepared = self.prepared.as_ref().map(|(_, batch)| batch);
        [proposed, prepared, self.fetched.as_ref()].into_iter().flatten().chain(&self.claimed)
    }

    /// Keeps the batch of the proposal as its view ends, if this replica claims it: of `max` claims at most.
    fn keep_claimed(&mut self, max: usize) {
        let Some(batch) = self.proposal.as_ref().and_then(|p| p.batch.as_ref()) else { return };
        let digest = batch.digest();
        if self.claims.iter().any(|(claim, _)| *claim == digest)
            && self.claimed.iter().all(|known| known.digest() != digest)
        {
            self.claimed.push(batch.clone());
        }
        let newest = self.claims.get(..max).unwrap_or(&self.claims);
        self.claimed.retain(|batch| newest.iter().any(|(claim, _)| *claim == batch.digest()));
    }

    /// Returns what a reply that reflects this number has to wait for, so that a restart knows of it (RO-4): the
    /// record of P or that it has committed, whichever is there first.
    pub(crate) fn shown_lsn(&self) -> Lsn {
        if self.prepared.is_some() { self.prepared_lsn.min(self.committed_lsn) } else { self.committed_lsn }
    }

    /// Records that this replica pre-prepared `digest` in `view`: `Qadd` of spec §11.3.
    ///
    /// Every pair is kept here; the message carries the newest `f + 2` (VC-4). A slot gains at most
    /// one pair each view change, and `claims_max` bounds it all the same.
    fn claim(&mut self, digest: Digest, view: ViewNum) {
        const CLAIMS_KEPT_MAX: usize = 256;
        match self.claims.iter_mut().find(|(d, _)| *d == digest) {
            Some((_, newest)) => *newest = view.max(*newest),
            None => self.claims.push((digest, view)),
        }
        self.claims.sort_by_key(|(_, view)| core::cmp::Reverse(*view));
        if self.claims.len() > CLAIMS_KEPT_MAX {
            let kept = self.prepared.as_ref().map(|(_, batch)| batch.digest());
            if let Some(oldest) = self.claims.iter().rposition(|(d, _)| Some(*d) != kept) {
                self.claims.remove(oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests;
