//! Votes and certificates: what distinct replicas have sent, and when that is enough.
//!
//! [OSDI99 §4.2, §4.3] speak of matching messages "from different replicas" throughout. Here the word *different* is
//! in the type: [`Votes`] holds one value for each replica, so that no replica is counted twice (PC-1, B1). A
//! certificate has private fields and one constructor that checks it: its holder need not count again.

use alloc::boxed::Box;
use alloc::vec;

use quorate_wire::{Cluster, Digest, ReplicaId, SeqNum};

/// The result of [`Votes::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted<T> {
    /// The replica's first value: it counts from now on.
    New,
    /// The same value again.
    Same,
    /// Another value than this one, its first, which stays. Evidence, never a second vote (PC-1).
    Conflicts(T),
}

/// At most one value from each replica. Its size is fixed when it is made: voting allocates nothing.
///
/// Nearly always all replicas say the same. So the first value is stored once, with the set of replicas that have said it. The
/// table of other values is then not read: for most slots of the log, it is not in the processor's cache.
#[derive(Clone, Debug)]
pub struct Votes<T> {
    /// Means nothing while nobody has said it.
    common: Option<T>,
    /// Who has said that: bit `i` is replica `i`.
    with: u64,
    /// What the others have said.
    others: Box<[Option<T>]>,
    /// How many have voted, and how many of them are among the others.
    len: usize,
    differing: usize,
}

impl<T: Copy + Eq> Votes<T> {
    /// Returns room for one vote from each of `n` replicas.
    pub fn new(n: usize) -> Self {
        Self { common: None, with: 0, others: vec![None; n].into_boxed_slice(), len: 0, differing: 0 }
    }

    /// Counts `value` as the vote of `replica`, a member, unless it has voted before: "the first counts" (PC-1).
    #[inline]
    pub fn insert(&mut self, replica: ReplicaId, value: T) -> Inserted<T> {
        match self.get(replica) {
            None => {
                self.put(replica, value);
                Inserted::New
            }
            Some(first) if *first == value => Inserted::Same,
            Some(first) => Inserted::Conflicts(*first),
        }
    }

    /// Puts `value` in the place of what `replica`, a member, has said before, and returns that. For
    /// statements of which the newest counts, such as a client's replies.
    #[inline]
    pub fn replace(&mut self, replica: ReplicaId, value: T) -> Option<T> {
        let before = self.remove(replica);
        self.put(replica, value);
        before
    }

    /// Forgets what `replica` has said, and returns it.
    #[inline]
    pub fn remove(&mut self, replica: ReplicaId) -> Option<T> {
        let before = *self.get(replica)?;
        if self.with & bit(replica) == 0 {
            *self.other(replica) = None;
            self.differing -= 1;
        }
        self.with &= !bit(replica);
        self.len -= 1;
        Some(before)
    }

    /// Forgets every vote and keeps the room.
    #[inline]
    pub fn clear(&mut self) {
        if self.differing > 0 {
            self.others.fill(None);
        }
        (self.with, self.len, self.differing) = (0, 0, 0);
    }

    /// Returns what `replica` has said.
    #[inline]
    pub fn get(&self, replica: ReplicaId) -> Option<&T> {
        if self.with & bit(replica) != 0 {
            return self.common.as_ref();
        }
        if self.differing == 0 { None } else { self.others.get(replica.index())?.as_ref() }
    }

    /// Returns how many replicas have said `value`.
    #[inline]
    pub fn count(&self, value: &T) -> usize {
        self.count_where(|vote| vote == value)
    }

    /// Returns how many replicas have said something for which `counts` holds.
    #[inline]
    pub fn count_where(&self, mut counts: impl FnMut(&T) -> bool) -> usize {
        let common = self.common.as_ref().filter(|common| self.with != 0 && counts(common));
        let with = if common.is_some() { self.len - self.differing } else { 0 };
        if self.differing == 0 {
            return with;
        }
        with + self.others.iter().flatten().filter(|vote| counts(vote)).count()
    }

    /// Returns how many replicas have voted.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no votes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether all votes are the same.
    #[inline]
    pub fn agree(&self) -> bool {
        self.differing == 0
    }

    /// Returns the votes by increasing replica.
    pub fn iter(&self) -> impl Iterator<Item = (ReplicaId, &T)> {
        let said = |replica| self.common.as_ref().filter(|_| self.with & bit(replica) != 0);
        let all = self.others.iter().enumerate().map(|(i, other)| (ReplicaId::at(i), other));
        all.filter_map(move |(replica, other)| Some((replica, said(replica).or(other.as_ref())?)))
    }

    /// Returns who has voted: bit `i` is replica `i`.
    pub fn senders(&self) -> u64 {
        self.senders_where(|_| true)
    }

    /// Returns who has said something for which `counts` holds: bit `i` is replica `i`.
    pub fn senders_where(&self, mut counts: impl FnMut(&T) -> bool) -> u64 {
        self.iter().filter(|(_, vote)| counts(vote)).fold(0, |set, (replica, _)| set | bit(replica))
    }

    /// Returns a value that at least `quorum` replicas have said; of several, the one said by the lowest
    /// replica. Nothing is compared before `quorum` of them have voted.
    #[inline]
    pub fn said_by(&self, quorum: usize) -> Option<&T> {
        if self.len < quorum {
            return None;
        }
        if self.differing > 0 {
            return self.iter().map(|(_, value)| value).find(|value| self.count(value) >= quorum);
        }
        self.common.as_ref().filter(|_| self.len > 0)
    }

    /// Returns the value that most replicas have said, and how many did. Of several, the one said by
    /// the lowest replica.
    pub fn most(&self) -> Option<(T, usize)> {
        let mut most = None;
        for (_, vote) in self.iter() {
            let count = self.count(vote);
            if most.is_none_or(|(_, best)| count > best) {
                most = Some((*vote, count));
            }
        }
        most
    }

    /// Counts the vote of a replica that has none.
    #[inline]
    fn put(&mut self, replica: ReplicaId, value: T) {
        assert!(replica.index() < self.others.len(), "the authenticator admits members only");
        if self.with == 0 {
            self.common = Some(value);
            self.with = bit(replica);
        } else if self.common == Some(value) {
            self.with |= bit(replica);
        } else {
            *self.other(replica) = Some(value);
            self.differing += 1;
        }
        self.len += 1;
    }

    fn other(&mut self, replica: ReplicaId) -> &mut Option<T> {
        let Some(other) = self.others.get_mut(replica.index()) else {
            unreachable!("{replica} votes: the authenticator admits members only")
        };
        other
    }
}

/// Returns the set of `replica` alone.
#[inline]
pub fn bit(replica: ReplicaId) -> u64 {
    1_u64.checked_shl(u32::from(replica.0)).unwrap_or(0)
}

/// Returns how many replicas are in `set`.
#[inline]
pub fn size(set: u64) -> usize {
    usize::try_from(set.count_ones()).unwrap_or(0)
}

/// One value from `f + 1` replicas: at least one correct replica vouches for it (spec §1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeakCertificate<T> {
    value: T,
    replicas: u64,
}

impl<T: Copy + Eq> WeakCertificate<T> {
    /// Certifies `value` if `f + 1` different replicas have said it.
    pub fn new(cluster: Cluster, votes: &Votes<T>, value: &T) -> Option<Self> {
        let replicas = votes.senders_where(|vote| vote == value);
        (size(replicas) >= cluster.weak()).then_some(Self { value: *value, replicas })
    }

    /// Certifies the value that most replicas have said, if that are `f + 1`.
    ///
    /// Equal values are counted, never senders of whatever value: a quorum of senders that say
    /// different things certifies nothing (B18).
    pub fn find(cluster: Cluster, votes: &Votes<T>) -> Option<Self> {
        let (value, _) = votes.most()?;
        Self::new(cluster, votes, &value)
    }

    /// Returns the value.
    pub fn value(&self) -> T {
        self.value
    }

    /// Returns who vouches for it: bit `i` is replica `i`.
    pub fn replicas(&self) -> u64 {
        self.replicas
    }
}

/// One value from a quorum: no other value can have one (spec §1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuorumCertificate<T> {
    value: T,
    replicas: u64,
}

impl<T: Copy + Eq> QuorumCertificate<T> {
    /// Certifies `value` if a quorum of different replicas has said it.
    pub fn new(cluster: Cluster, votes: &Votes<T>, value: &T) -> Option<Self> {
        let replicas = votes.senders_where(|vote| vote == value);
        (size(replicas) >= cluster.quorum()).then_some(Self { value: *value, replicas })
    }

    /// Certifies the value that most replicas have said, if that is a quorum.
    pub fn find(cluster: Cluster, votes: &Votes<T>) -> Option<Self> {
        let (value, _) = votes.most()?;
        Self::new(cluster, votes, &value)
    }

    /// Returns the value.
    pub fn value(&self) -> T {
        self.value
    }

    /// Returns who has said it: bit `i` is replica `i`.
    pub fn replicas(&self) -> u64 {
        self.replicas
    }
}

/// The content of a CHECKPOINT about one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointVote {
    /// The digest of the state.
    pub root: Digest,
    /// The sender holds a proof that the checkpoint is stable.
    pub stable: bool,
}

/// The proof that a checkpoint is stable, and that this replica holds it (CK-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StableCertificate {
    seq: SeqNum,
    root: Digest,
}

impl StableCertificate {
    /// Certifies the checkpoint at `seq` that `me` has itself, and so has voted for (CK-4).
    pub fn new(cluster: Cluster, me: ReplicaId, seq: SeqNum, votes: &Votes<CheckpointVote>) -> Option<Self> {
        // "[...] signed by different replicas (including possibly its own such message)": here always
        // its own, so that the low water mark never passes the state that is held (CK-4).
        let root = votes.get(me)?.root;
        // "until it has 2f+1 of them for sequence number n with the same digest" [OSDI99 §4.3].
        let agree = votes.count_where(|vote| vote.root == root);
        // Or f + 1 peers hold the proof: one of them is correct (CK-2).
        let proven =
            votes.iter().filter(|(from, vote)| *from != me && vote.root == root && vote.stable).count();
        (agree >= cluster.quorum() || proven >= cluster.weak()).then_some(Self { seq, root })
    }

    /// Returns the checkpoint's number.
    pub fn seq(&self) -> SeqNum {
        self.seq
    }

    /// Returns the digest of the state.
    pub fn root(&self) -> Digest {
        self.root
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::rng::Rng;

    fn four() -> Cluster {
        Cluster::tolerating(1).unwrap()
    }

    fn said(values: &[(u16, u8)]) -> Votes<u8> {
        let mut votes = Votes::new(4);
        for (replica, value) in values {
            votes.insert(ReplicaId(*replica), *value);
        }
        votes
    }

    /// PC-1, B1: "the first counts"; a second statement is evidence, never a second vote.
    #[test]
    fn b1_one_replica_has_one_vote() {
        let mut votes = Votes::new(4);
        assert_eq!(votes.insert(ReplicaId(2), 'a'), Inserted::New);
        assert_eq!(votes.insert(ReplicaId(2), 'a'), Inserted::Same);
        assert_eq!(votes.insert(ReplicaId(2), 'b'), Inserted::Conflicts('a'));
        assert_eq!((votes.count(&'a'), votes.count(&'b'), votes.len()), (1, 0, 1));
        assert_eq!(votes.get(ReplicaId(2)), Some(&'a'));
    }

    #[test]
    fn the_newest_counts_where_it_replaces() {
        let mut votes = said(&[(1, 7)]);
        assert_eq!(votes.replace(ReplicaId(1), 8), Some(7));
        assert_eq!((votes.count(&7), votes.count(&8)), (0, 1));
        assert_eq!(votes.remove(ReplicaId(1)), Some(8));
        assert!(votes.is_empty());
    }

    #[test]
    fn votes_say_who_voted_and_for_what() {
        let mut votes = said(&[(0, 5), (3, 6), (1, 6)]);
        assert_eq!(votes.senders(), 0b1011);
        assert_eq!(votes.senders_where(|v| *v == 6), 0b1010);
        assert_eq!(votes.most(), Some((6, 2)));
        assert_eq!(
            votes.iter().map(|(r, v)| (r.0, *v)).collect::<std::vec::Vec<_>>(),
            [(0, 5), (1, 6), (3, 6)]
        );
        assert_eq!((votes.said_by(2), votes.said_by(3)), (Some(&6), None));
        votes.remove(ReplicaId(1));
        assert_eq!((votes.len(), votes.said_by(2)), (2, None));
        votes.replace(ReplicaId(0), 6);
        assert_eq!((votes.len(), votes.said_by(2)), (2, Some(&6)));
        votes.clear();
        assert_eq!((votes.len(), votes.most()), (0, None));
    }

    /// Whatever is said, replaced and forgotten, and in whatever order.
    #[test]
    fn votes_are_those_of_a_plain_table() {
        for seed in 1..300 {
            let mut rng = Rng::new(seed);
            let (mut votes, mut table) = (Votes::new(5), [None; 5]);
            for _ in 0..40 {
                let (at, value) = (usize::try_from(rng.below(5)).unwrap(), rng.below(3));
                let replica = ReplicaId::at(at);
                match rng.below(20) {
                    0 => {
                        votes.clear();
                        table = [None; 5];
                    }
                    1..4 => assert_eq!(votes.remove(replica), table[at].take()),
                    4..8 => assert_eq!(votes.replace(replica, value), table[at].replace(value)),
                    _ => {
                        let first = *table[at].get_or_insert(value);
                        let is_new = votes.get(replica).is_none();
                        let known = if first == value { Inserted::Same } else { Inserted::Conflicts(first) };
                        let expected = if is_new { Inserted::New } else { known };
                        assert_eq!(votes.insert(replica, value), expected);
                    }
                }
                let said: std::vec::Vec<_> = table.iter().flatten().copied().collect();
                let count = |value| said.iter().filter(|said| **said == value).count();
                assert_eq!(
                    table.iter().enumerate().find(|(i, v)| votes.get(ReplicaId::at(*i)) != v.as_ref()),
                    None
                );
                assert_eq!(votes.iter().map(|(_, v)| *v).collect::<std::vec::Vec<_>>(), said);
                assert_eq!(votes.len(), said.len());
                assert!(!votes.agree() || said.iter().all(|value| *value == said[0]));
                assert!((0..3).all(|value| votes.count(&value) == count(value)));
                for quorum in 1..=5 {
                    let first = said.iter().find(|value| count(**value) >= quorum);
                    assert_eq!(votes.said_by(quorum), first, "seed {seed}, {table:?}");
                }
            }
        }
    }

    /// B18: f + 1 senders with different values vouch for nothing.
    #[test]
    fn b18_a_weak_certificate_counts_equal_values() {
        assert_eq!(WeakCertificate::find(four(), &said(&[(0, 1), (1, 2), (2, 3)])), None);
        let weak = WeakCertificate::find(four(), &said(&[(0, 1), (1, 2), (2, 2)])).unwrap();
        assert_eq!((weak.value(), weak.replicas()), (2, 0b0110));
    }

    #[test]
    fn a_quorum_certificate_needs_a_quorum_of_equal_values() {
        assert_eq!(QuorumCertificate::find(four(), &said(&[(0, 1), (1, 1), (2, 2), (3, 2)])), None);
        let quorum = QuorumCertificate::find(four(), &said(&[(0, 2), (1, 1), (2, 2), (3, 2)])).unwrap();
        assert_eq!((quorum.value(), quorum.replicas()), (2, 0b1101));
    }

    fn checkpoints(votes: &[(u16, u8, bool)]) -> Option<StableCertificate> {
        let mut all = Votes::new(4);
        for (replica, root, stable) in votes {
            all.insert(ReplicaId(*replica), CheckpointVote { root: Digest([*root; 32]), stable: *stable });
        }
        StableCertificate::new(four(), ReplicaId(0), SeqNum(8), &all)
    }

    /// [OSDI99 §4.3] "until it has 2f+1 of them for sequence number n with the same digest".
    #[test]
    fn a_checkpoint_is_stable_with_a_quorum_of_equal_digests() {
        assert_eq!(checkpoints(&[(0, 1, false), (1, 1, false), (2, 2, false)]), None);
        let stable = checkpoints(&[(0, 1, false), (1, 1, false), (2, 1, false)]).unwrap();
        assert_eq!((stable.seq(), stable.root()), (SeqNum(8), Digest([1; 32])));
    }

    /// CK-4, B5: without the state, or with another one, nothing is stable here.
    #[test]
    fn b5_a_checkpoint_is_stable_only_where_it_is_held() {
        assert_eq!(checkpoints(&[(1, 1, true), (2, 1, true), (3, 1, true)]), None);
        assert_eq!(checkpoints(&[(0, 9, false), (1, 1, true), (2, 1, true), (3, 1, true)]), None);
    }

    /// CK-2: f + 1 *peers* that hold the proof stand for it; f of them and oneself do not.
    #[test]
    fn a_checkpoint_is_stable_with_the_word_of_one_correct_peer() {
        assert_eq!(checkpoints(&[(0, 1, true), (1, 1, true)]), None);
        assert!(checkpoints(&[(0, 1, false), (1, 1, true), (3, 1, true)]).is_some());
    }
}
