//! Statements about checkpoints, this replica's own and the others' [OSDI99 §4.3], spec §8.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use quorate_wire::id::{ReplicaId, SeqNum};
use quorate_wire::{Cluster, Digest};

use crate::io::milestone::Reject;
use crate::io::step::Lsn;
use crate::order::votes::{Votes, bit, size};

/// What a replica says of its state at a checkpoint: the root, and whether it holds a proof.
pub(crate) type Statement = (Digest, bool);

/// Checkpoints of this replica and of the others. At most `L / K + 1` numbers inside the window, the one
/// that is fetched, and the newest statement of each replica above the window.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    cluster: Cluster,
    /// This replica's own roots, from the stable checkpoint on.
    own: BTreeMap<SeqNum, Digest>,
    /// The last record before each of them.
    after: BTreeMap<SeqNum, Lsn>,
    /// All replicas' statements, by number: inside the window, and for the checkpoint that is fetched.
    said: BTreeMap<SeqNum, Votes<Statement>>,
    /// The checkpoint that is fetched or was fetched last. When it is here the others have long gone on: unless
    /// what they said of it were kept, it would never be stable here, and the next would have to be fetched.
    fetched: SeqNum,
    /// The last state that came by a transfer: f + 1 replicas have stated its root.
    certified: SeqNum,
    /// A state that was fetched, and of which no image is on the disk yet. What this replica says of it, and of
    /// checkpoints that it takes from there on, waits for that: the log alone cannot bring them back (D5, ST-6).
    unkept: Option<SeqNum>,
    /// The newest statements of each replica above the window (CK-5): of a checkpoint that is not stable there, and of
    /// one that is. Two replicas that stopped at different numbers may agree on their stable ones only.
    above: Vec<[Option<(SeqNum, Statement)>; 2]>,
}

impl Checkpoints {
    /// Returns a table that knows the initial state's number only.
    pub(crate) fn new(cluster: Cluster) -> Self {
        let above = alloc::vec![[None; 2]; cluster.n()];
        let (own, after, said) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { cluster, own, after, said, fetched: SeqNum(0), certified: SeqNum(0), unkept: None, above }
    }

    /// Returns this replica's own roots, from the stable checkpoint on.
    pub(crate) fn own(&self) -> &BTreeMap<SeqNum, Digest> {
        &self.own
    }

    /// Returns the root of an own checkpoint.
    pub(crate) fn root(&self, seq: SeqNum) -> Option<Digest> {
        self.own.get(&seq).copied()
    }

    /// Returns what a statement of an own checkpoint waits for: the log up to it.
    pub(crate) fn waits_for(&self, seq: SeqNum) -> Lsn {
        self.after.get(&seq).copied().unwrap_or_default()
    }

    /// No statement of an own checkpoint leaves before this record.
    pub(crate) fn wait_for(&mut self, record: Lsn) {
        self.after.values_mut().for_each(|after| *after = record.max(*after));
    }

    /// Returns what replicas say of `seq`, as far as it is in the window or fetched.
    pub(crate) fn said(&self, seq: SeqNum) -> Option<&Votes<Statement>> {
        self.said.get(&seq)
    }

    /// Says whether what is said of `seq` is kept although it is above the window.
    pub(crate) fn is_followed(&self, seq: SeqNum) -> bool {
        seq == self.fetched
    }

    /// Says whether the state at `seq` came by a transfer: f + 1 replicas have stated its root.
    pub(crate) fn is_certified(&self, seq: SeqNum) -> bool {
        seq == self.certified
    }

    /// This replica has a checkpoint. Its root never changes, unless the state is replaced.
    pub(crate) fn take(&mut self, seq: SeqNum, root: Digest, last: Lsn) {
        self.after.entry(seq).or_insert(last);
        let before = self.own.insert(seq, root);
        assert!(before.is_none_or(|before| before == root));
    }

    /// The state is now the one after `seq`, which was fetched, in this life or an earlier one. Own checkpoints above
    /// are of the state before it.
    pub(crate) fn adopt(&mut self, seq: SeqNum, root: Digest, last: Lsn) {
        self.own.retain(|n, _| *n < seq);
        self.after.retain(|n, _| *n < seq);
        self.own.insert(seq, root);
        self.after.insert(seq, last);
        self.certified = seq;
    }

    /// A state was fetched that is not on the disk.
    pub(crate) fn await_image(&mut self, seq: SeqNum) {
        self.unkept = Some(seq);
    }

    /// Says whether own checkpoints are such that the disk can bring them back.
    pub(crate) fn are_kept(&self) -> bool {
        mutant!(M56, self.unkept.is_none(), true)
    }

    /// An image of the state after `seq` is on the disk. Says whether that is what own checkpoints waited for.
    pub(crate) fn note_image(&mut self, seq: SeqNum) -> bool {
        let awaited = self.unkept.is_some_and(|unkept| unkept <= seq);
        if awaited {
            self.unkept = None;
        }
        awaited
    }

    /// Counts a replica's statement about a number in the window, or the one that is fetched.
    pub(crate) fn hear(&mut self, from: ReplicaId, seq: SeqNum, statement: Statement) -> Result<(), Reject> {
        let n = self.cluster.n();
        let votes = self.said.entry(seq).or_insert_with(|| Votes::new(n));
        match votes.get(from) {
            Some((digest, _)) if *digest != statement.0 => return Err(Reject::Conflicts),
            Some((_, proven)) if *proven || !statement.1 => return Err(Reject::Duplicate),
            Some(_) | None => {}
        }
        votes.replace(from, statement);
        Ok(())
    }

    /// Keeps a replica's statement about a number above the window of `window` numbers.
    ///
    /// CK-5: the newest of each sender, one that is not stable there and one that is, and no more, so that nobody
    /// can fill memory (K10). One that is lower by more than a window is newer all the same: the other was a lie, or from
    /// a time before its sender was cleaned.
    pub(crate) fn hear_above(&mut self, from: ReplicaId, seq: SeqNum, statement: Statement, window: u64) {
        let said = self.above.get_mut(from.index());
        if let Some(entry) = said.and_then(|said| said.get_mut(usize::from(statement.1)))
            && entry.is_none_or(|(known, _)| known <= seq || known > seq.plus(window))
        {
            *entry = Some((seq, statement));
        }
    }

    /// Keeps what is said of a checkpoint above the window, which ends at `high`, and of no other one there (DV-44).
    pub(crate) fn follow(&mut self, seq: SeqNum, high: SeqNum) {
        let n = self.cluster.n();
        self.fetched = seq;
        self.said.retain(|n, _| *n <= high || *n == seq);
        for (from, said) in self.above.iter().enumerate() {
            if let Some((_, said)) = said.iter().rev().flatten().find(|(n, _)| *n == seq).copied() {
                self.said.entry(seq).or_insert_with(|| Votes::new(n)).replace(ReplicaId::at(from), said);
            }
        }
    }

    /// Returns how many replicas state `root` at `seq`, and how many of them hold a proof. Each counts
    /// once, also one that was heard above the window and, when that had moved, again inside of it (B1).
    pub(crate) fn support(&self, seq: SeqNum, root: Digest) -> (usize, usize) {
        let inside = self.said.get(&seq).into_iter().flat_map(Votes::iter).map(|(from, said)| (from, *said));
        let above = self.above.iter().enumerate().flat_map(|(from, said)| {
            let there = said.iter().flatten().filter(|(n, _)| *n == seq);
            there.map(move |(_, said)| (ReplicaId::at(from), *said))
        });
        let (mut all, mut proven) = (0, 0);
        for (from, (digest, stable)) in inside.chain(above) {
            if digest == root {
                all |= bit(from);
                proven |= if stable { bit(from) } else { 0 };
            }
        }
        (size(all), size(proven))
    }

    /// Returns the highest checkpoint above `seq` that `f + 1` replicas state alike: one of them is
    /// correct and has that state (ST-1).
    pub(crate) fn certified_above(&self, seq: SeqNum) -> Option<(SeqNum, Digest)> {
        self.certified_but(seq, None)
    }

    /// As [`Self::certified_above`], without the checkpoint `but`.
    pub(crate) fn certified_but(
        &self,
        seq: SeqNum,
        but: Option<(SeqNum, Digest)>,
    ) -> Option<(SeqNum, Digest)> {
        let inside =
            self.said.range(seq.next()..).flat_map(|(n, votes)| votes.iter().map(|(_, (d, _))| (*n, *d)));
        let above = self
            .above
            .iter()
            .flatten()
            .flatten()
            .map(|(n, (digest, _))| (*n, *digest))
            .filter(|(n, _)| *n > seq);
        let mut candidates: Vec<(SeqNum, Digest)> = inside.chain(above).collect();
        candidates.sort_unstable();
        candidates.dedup();
        let weak = mutant!(M33, self.cluster.weak(), 1);
        let mut candidates = candidates.into_iter().rev().filter(|candidate| Some(*candidate) != but);
        candidates.find(|(n, digest)| self.support(*n, *digest).0 >= weak)
    }

    /// Forgets what is below a stable checkpoint.
    pub(crate) fn collect(&mut self, stable: SeqNum) {
        self.own.retain(|n, _| *n >= stable);
        self.after.retain(|n, _| *n >= stable);
        self.said.retain(|n, _| *n > stable);
        for entry in self.above.iter_mut().flatten() {
            if entry.is_some_and(|(n, _)| n <= stable) {
                *entry = None;
            }
        }
    }
}
