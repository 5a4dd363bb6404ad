//! The message log: one slot for each sequence number in the window `h < n <= h + L` [OSDI99 §4.2].

use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::batch::Batch;
use quorate_wire::id::{SeqNum, ViewNum};
use quorate_wire::{Cluster, Digest};

use crate::io::step::Lsn;
use crate::order::votes::Votes;

/// The primary's proposal for a number in the log's view, or the choice of the NEW-VIEW.
#[derive(Clone, Debug)]
pub(crate) struct Proposal {
    pub(crate) digest: Digest,
    /// Absent while it is being fetched: a NEW-VIEW names digests only.
    pub(crate) batch: Option<Arc<Batch>>,
    /// Every request in it is authentic here, or enough replicas vouch for it (PP-5, AU-2).
    pub(crate) authentic: bool,
    /// When it was accepted, in nanoseconds of the monotonic clock.
    pub(crate) since: u64,
}

impl Proposal {
    /// Returns the batch once every body is here.
    pub(crate) fn complete(&self) -> Option<&Arc<Batch>> {
        self.batch.as_ref().filter(|batch| batch.is_complete())
    }
}

/// All that is known of one sequence number. Bounded: at most one vote of each kind from each replica.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) seq: SeqNum,
    /// Of the log's view.
    pub(crate) proposal: Option<Proposal>,
    /// The last PRE-PREPARE or PREPARE that this replica sent, or is about to (I5).
    pub(crate) voted: Option<(ViewNum, Digest)>,
    /// Of the log's view; this replica's own counts once it is durable.
    pub(crate) prepares: Votes<Digest>,
    /// Of the log's view.
    pub(crate) commits: Votes<Digest>,
    /// Of the view before it (PC-1).
    pub(crate) old_commits: Votes<Digest>,
    /// COMMITTED statements, of any view (ST-5).
    pub(crate) attested: Votes<Digest>,
    /// P: the batch that prepared here in the newest view, until the number is below `h` (VC-1).
    pub(crate) prepared: Option<(ViewNum, Arc<Batch>)>,
    /// What P's record waits for on its way to the disk: COMMITs and tentative replies do too.
    pub(crate) prepared_lsn: Lsn,
    /// The batch whose content a record of this number holds: each is written once.
    pub(crate) logged: Option<Digest>,
    /// The record that the number has committed, on its way to the disk.
    pub(crate) committed_lsn: Lsn,
    /// Q: what this replica pre-prepared, each digest with its newest view.
    pub(crate) claims: Vec<(Digest, ViewNum)>,
    /// The batches of claims of views that have ended, of the newest `f + 2` at most. A claim may be all that
    /// supports a batch, and then its body has to be obtainable here (A3).
    claimed: Vec<Arc<Batch>>,
    /// committed-local holds for this digest.
    pub(crate) committed: Option<Digest>,
    /// The batch that committed, where it is not the proposal or P.
    pub(crate) fetched: Option<Arc<Batch>>,
    /// A REQ-REJECT was sent for the proposal (AU-5).
    pub(crate) complained: bool,
}

impl Slot {
    fn new(n: usize) -> Self {
        Self {
            seq: SeqNum(0),
            proposal: None,
            voted: None,
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
            complained: false,
        }
    }

    fn reset(&mut self, seq: SeqNum) {
        self.seq = seq;
        self.proposal = None;
        self.voted = None;
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
        self.complained = false;
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
    pub(crate) fn committed_now(&self, cluster: Cluster) -> Option<Digest> {
        if self.committed.is_some() {
            return self.committed;
        }
        let quorum = mutant!(M22, cluster.quorum(), cluster.quorum() - 1);
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
        self.attested.said_by(mutant!(M23, cluster.weak(), cluster.weak() - 1)).copied()
    }

    /// Returns a batch with this digest, if the slot holds one.
    pub(crate) fn batch(&self, digest: &Digest) -> Option<&Arc<Batch>> {
        self.batches().find(|batch| batch.digest() == *digest)
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
    pub(crate) fn claim(&mut self, digest: Digest, view: ViewNum) {
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

/// The window of slots: `L` of them, in a ring whose size is a power of two, so that a number finds its
/// slot without a division.
#[derive(Debug)]
pub(crate) struct Log {
    slots: Vec<Slot>,
    /// The size of the ring, less 1.
    mask: u64,
    window: u64,
    stable: SeqNum,
    /// Lowest number that this view may use: the stable checkpoint or the NEW-VIEW's.
    low: SeqNum,
    /// The view that proposals, prepares and commits are of: the last one in which this replica was
    /// in normal operation.
    view: ViewNum,
    /// The view that the old commits are of.
    old_view: Option<ViewNum>,
}

impl Log {
    /// Returns an empty log above checkpoint 0.
    pub(crate) fn new(window: u64, cluster: Cluster) -> Self {
        let slots = (0..window.next_power_of_two()).map(|_| Slot::new(cluster.n())).collect();
        let mask = window.next_power_of_two() - 1;
        let mut log =
            Self { slots, mask, window, stable: SeqNum(0), low: SeqNum(0), view: ViewNum(0), old_view: None };
        log.number_slots(SeqNum(0));
        log
    }

    /// Returns `h`, the last stable checkpoint.
    pub(crate) fn stable(&self) -> SeqNum {
        self.stable
    }

    /// Returns `H = h + L`.
    pub(crate) fn high(&self) -> SeqNum {
        mutant!(M24, self.stable, self.low).plus(self.window)
    }

    /// Returns the lowest number that this view may use.
    pub(crate) fn low(&self) -> SeqNum {
        self.low
    }

    /// Raises the lowest number that this view may use.
    pub(crate) fn set_low(&mut self, low: SeqNum) {
        self.low = low.max(self.stable);
    }

    /// Returns the view that votes are of.
    pub(crate) fn view(&self) -> ViewNum {
        self.view
    }

    /// Returns the view before it, whose commits still count.
    pub(crate) fn old_view(&self) -> Option<ViewNum> {
        self.old_view
    }

    /// `in_window(n)`: "between a low water mark, h, and a high water mark, H" [OSDI99 §4.2]. The
    /// upper bound is this replica's own stable checkpoint plus L (DP-6).
    pub(crate) fn admits(&self, seq: SeqNum) -> bool {
        self.low < seq && seq <= self.high()
    }

    /// Returns whether there is a slot for `seq`: `h < n <= H`.
    pub(crate) fn holds(&self, seq: SeqNum) -> bool {
        self.stable < seq && seq <= self.high()
    }

    /// Returns the slot for `seq`.
    pub(crate) fn get(&self, seq: SeqNum) -> Option<&Slot> {
        if !self.holds(seq) {
            return None;
        }
        self.slots.get(self.index(seq))
    }

    /// Returns the slot for `seq`.
    pub(crate) fn get_mut(&mut self, seq: SeqNum) -> Option<&mut Slot> {
        if !self.holds(seq) {
            return None;
        }
        let index = self.index(seq);
        self.slots.get_mut(index)
    }

    /// Returns all slots from the lowest number to the highest.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        (self.stable.0 + 1..=self.high().0).filter_map(|n| self.get(SeqNum(n)))
    }

    /// Returns the numbers of the window in order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = SeqNum> + use<> {
        (self.stable.0 + 1..=self.high().0).map(SeqNum)
    }

    /// Drops everything at or below the stable checkpoint `seq` [OSDI99 §4.3].
    pub(crate) fn advance(&mut self, seq: SeqNum) {
        assert!(seq >= self.stable);
        let numbered = self.last_slot();
        self.stable = seq;
        self.low = self.low.max(seq);
        self.number_slots(numbered);
    }

    /// Starts a view: proposals and votes of the old one go, its commits stay for a while (PC-1), and the batches of
    /// `claims_max` claims for each number.
    pub(crate) fn start_view(&mut self, view: ViewNum, claims_max: usize) {
        self.old_view = Some(self.view);
        self.view = view;
        for slot in &mut self.slots {
            slot.keep_claimed(claims_max);
            slot.proposal = None;
            slot.complained = false;
            slot.prepares.clear();
            core::mem::swap(&mut slot.commits, &mut slot.old_commits);
            slot.commits.clear();
        }
    }

    /// Sets the view that votes are of, at a restart.
    pub(crate) fn restore_view(&mut self, view: ViewNum) {
        self.view = view;
    }

    fn index(&self, seq: SeqNum) -> usize {
        usize::try_from(seq.0 & self.mask).unwrap_or(0)
    }

    /// Returns the highest number that a slot has: at or above `H`.
    fn last_slot(&self) -> SeqNum {
        self.stable.plus(self.mask.saturating_add(1))
    }

    /// Gives each slot whose number has left the window the next one, above those up to `numbered`.
    fn number_slots(&mut self, numbered: SeqNum) {
        for n in numbered.max(self.stable).0 + 1..=self.last_slot().0 {
            let index = self.index(SeqNum(n));
            if let Some(slot) = self.slots.get_mut(index) {
                slot.reset(SeqNum(n));
            }
        }
    }
}
