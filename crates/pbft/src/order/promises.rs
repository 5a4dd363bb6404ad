//! What this replica has promised: the position in its log of records, and its own votes that wait for the disk
//! (ADR 5, spec §14).

use alloc::collections::VecDeque;

use quorate_wire::id::{SeqNum, ViewNum};
use quorate_wire::{Batch, Digest};

use crate::io::config::Durability;
use crate::io::record::{Record, encoded};
use crate::io::step::{Action, Actions, Lsn};
use crate::order::slot::Slot;

/// One vote of this replica's own that counts once its record is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnVote {
    pub(crate) lsn: Lsn,
    pub(crate) view: ViewNum,
    pub(crate) seq: SeqNum,
    pub(crate) digest: Digest,
    pub(crate) commit: bool,
}

/// The records written, and the own votes that wait for theirs.
#[derive(Debug)]
pub(crate) struct Promises {
    durability: Durability,
    /// The last record written.
    lsn: Lsn,
    /// The last record on disk.
    durable: Lsn,
    /// At most four for each number of the window (I20).
    own_votes: VecDeque<OwnVote>,
    own_votes_max: usize,
    /// The last stable checkpoint whose record is on disk.
    stable: SeqNum,
    /// Two whose records are not: the first, and the last.
    stables: VecDeque<(Lsn, SeqNum)>,
    /// The last record of the others' starts, and whether more has been seen since.
    seen: Lsn,
    owes_seen: bool,
}

impl Promises {
    /// Returns the promises of a replica that has said nothing.
    pub(crate) fn new(durability: Durability, window: u64) -> Self {
        let own_votes_max = 4 * usize::try_from(window).unwrap_or(usize::MAX / 4);
        Self {
            durability,
            lsn: Lsn(0),
            durable: Lsn(0),
            own_votes: VecDeque::new(),
            own_votes_max,
            stable: SeqNum(0),
            stables: VecDeque::new(),
            seen: Lsn(0),
            owes_seen: false,
        }
    }

    /// Writes a record and returns what must wait for it: nothing, unless every promise is to be on
    /// disk before it leaves (§14.2).
    pub(crate) fn persist(&mut self, record: Record<'_>, out: &mut Actions) -> Lsn {
        if !self.durability.writes_log() {
            return Lsn(0);
        }
        self.lsn = Lsn(self.lsn.0 + 1);
        let bytes = out.write(|w| record.encode(w));
        out.push(Action::Persist { lsn: self.lsn, bytes });
        self.last()
    }

    /// Writes P of a slot, with its batch (D2).
    pub(crate) fn persist_prepared(&mut self, slot: &mut Slot, out: &mut Actions) -> Lsn {
        if !self.durability.writes_log() {
            return Lsn(0);
        }
        let Some((view, batch)) = slot.prepared() else { unreachable!("the caller has set it") };
        let (seq, batch, digest) = (slot.seq(), batch.clone(), batch.digest());
        if slot.log_batch(digest) {
            return self.persist(Record::PreparedAgain { view, seq, digest }, out);
        }
        self.persist(Record::Prepared { view, seq, batch: &encoded(&batch) }, out)
    }

    /// Writes a batch that is executed without having prepared here. Nothing waits for it.
    pub(crate) fn persist_batch(&mut self, slot: &mut Slot, batch: &Batch, out: &mut Actions) {
        if self.durability.writes_log() && !slot.log_batch(batch.digest()) {
            self.persist(Record::Batch { seq: slot.seq(), batch: &encoded(batch) }, out);
        }
    }

    /// Another start of a replica has been seen.
    pub(crate) fn owe_seen(&mut self) {
        self.owes_seen = true;
    }

    /// Returns whether a record of the others' starts is due. One of them may wait for the disk: a liar can start without end
    /// while a disk is full (L134).
    pub(crate) fn owes_seen(&self) -> bool {
        self.owes_seen && self.is_durable(self.seen)
    }

    /// Writes what has been seen of the others' starts. Nothing waits for it.
    pub(crate) fn persist_seen(&mut self, seq: SeqNum, starts: &[u8], out: &mut Actions) {
        self.owes_seen = false;
        self.persist(Record::Seen { seq, starts }, out);
        self.seen = self.lsn;
    }

    /// Writes a stable checkpoint. Nothing waits for it, but it is not announced before (RC-9a).
    pub(crate) fn persist_stable(&mut self, seq: SeqNum, root: Digest, out: &mut Actions) {
        let lsn = self.persist(Record::Stable { seq, root }, out);
        // On a slow disk others follow all the time: the first one must not wait for the last.
        self.stables.truncate(1);
        self.stables.push_back((lsn, seq));
        self.note_stables();
    }

    /// A restart knows of this stable checkpoint.
    pub(crate) fn restore_stable(&mut self, seq: SeqNum) {
        self.stable = seq;
    }

    /// Returns the last stable checkpoint that a crash does not take back.
    pub(crate) fn stable(&self) -> SeqNum {
        self.stable
    }

    fn note_stables(&mut self) {
        while let Some((lsn, seq)) = self.stables.front().copied()
            && self.is_durable(lsn)
        {
            self.stable = seq;
            self.stables.pop_front();
        }
    }

    /// Returns what a statement about everything said so far has to wait for.
    pub(crate) fn last(&self) -> Lsn {
        if self.durability.waits_for_disk() { self.lsn } else { Lsn(0) }
    }

    /// Returns whether a record is on disk, or need not be.
    pub(crate) fn is_durable(&self, lsn: Lsn) -> bool {
        lsn <= self.durable
    }

    /// Takes a vote of this replica's own. Returns it if it counts by now; otherwise it waits until its record is
    /// durable (ADR 5).
    pub(crate) fn vote(&mut self, vote: OwnVote) -> Option<OwnVote> {
        if mutant!(M51, self.is_durable(vote.lsn), true) {
            return Some(vote);
        }
        self.own_votes.push_back(vote);
        assert!(self.own_votes.len() <= self.own_votes_max); // I20
        None
    }

    /// The disk holds every record up to `lsn`.
    pub(crate) fn reached(&mut self, lsn: Lsn) {
        self.durable = self.durable.max(lsn.min(self.lsn));
        self.note_stables();
    }

    /// Takes the next own vote whose record is durable.
    pub(crate) fn next_durable(&mut self) -> Option<OwnVote> {
        let durable = self.own_votes.front().is_some_and(|vote| self.is_durable(vote.lsn));
        if durable { self.own_votes.pop_front() } else { None }
    }

    /// Forgets own votes that cannot count any more: of an ended view, or at or below the stable
    /// checkpoint. A slow disk would let them add up.
    pub(crate) fn forget(&mut self, view: ViewNum, stable: SeqNum) {
        self.own_votes.retain(|vote| mutant!(M94, vote.view == view, true) && vote.seq > stable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vote(promises: &mut Promises, seq: u64, out: &mut Actions) -> Option<OwnVote> {
        let (view, seq, digest) = (ViewNum(1), SeqNum(seq), Digest([1; 32]));
        let lsn = promises.persist(Record::PrePrepared { view, seq, digest }, out);
        promises.vote(OwnVote { lsn, view, seq, digest, commit: false })
    }

    /// ADR 5: an own vote counts when its record is on disk; what has lost its meaning by then is forgotten.
    #[test]
    fn an_own_vote_waits_for_the_disk() {
        let (mut promises, mut out) = (Promises::new(Durability::Sync, 8), Actions::new());
        for seq in 1..=3 {
            assert!(vote(&mut promises, seq, &mut out).is_none());
        }
        promises.reached(Lsn(2));
        assert_eq!(promises.next_durable().map(|vote| vote.seq), Some(SeqNum(1)));
        promises.forget(ViewNum(1), SeqNum(2));
        assert!(promises.next_durable().is_none(), "stable by now, or not on disk");
        promises.reached(Lsn(9));
        assert_eq!(promises.next_durable().map(|vote| vote.seq), Some(SeqNum(3)));
        assert!(!promises.is_durable(Lsn(4)), "no further than what was written");
    }

    /// RC-9a: on a slow disk, whose last records are never there, some stable checkpoint is announced, and at most two wait.
    #[test]
    fn l106_a_stable_checkpoint_is_announced_although_others_follow() {
        let (mut promises, mut out) = (Promises::new(Durability::Sync, 8), Actions::new());
        for (seq, announced) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 2)] {
            promises.persist_stable(SeqNum(seq), Digest([1; 32]), &mut out);
            assert!(promises.stables.len() <= 2);
            promises.reached(Lsn(seq / 2));
            assert_eq!(promises.stable(), SeqNum(announced));
        }
        promises.reached(Lsn(6));
        assert_eq!(promises.stable(), SeqNum(6));
    }

    #[test]
    fn nothing_waits_for_a_disk_that_nobody_waits_for() {
        for (durability, records) in [(Durability::Memory, 0), (Durability::Async, 1)] {
            let (mut promises, mut out) = (Promises::new(durability, 8), Actions::new());
            assert!(vote(&mut promises, 1, &mut out).is_some());
            assert_eq!((out.list().len(), promises.last()), (records, Lsn(0)));
        }
    }

    /// I20.
    #[test]
    #[should_panic(expected = "own_votes_max")]
    fn i20_own_votes_are_bounded() {
        let (mut promises, mut out) = (Promises::new(Durability::Sync, 8), Actions::new());
        for seq in 1..=33 {
            vote(&mut promises, seq, &mut out);
        }
    }
}
