//! The decision procedure, checked against abstract executions of the voting.
//!
//! The model keeps what matters: which replica pre-prepared, prepared, committed, executed and collected what, with
//! every message lost or late as a seed decides. Byzantine replicas claim anything that is well-formed, and as
//! primaries propose different batches and send different NEW-VIEWs to each replica. The tests assert spec §11.10 and
//! DP-5: a committed batch is chosen in all later views, and with the messages of all correct replicas the procedure
//! completes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use core::cmp::Reverse;

use quorate_wire::ReplicaId;
use quorate_wire::life::Life;
use quorate_wire::message::{LeaveCert, PrePrepared, Prepared, Suspect, SuspectReason, ViewChange};

use super::*;
use crate::order::votes::bit;

const K: u64 = 2;
const L: u64 = 4;
const NULL: Digest = Digest([0xff; 32]);

/// A small generator (SplitMix64): the same seed, the same execution.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    fn set(&mut self, percent: u64) -> u64 {
        (0..64).fold(0, |set, i| set | (u64::from(self.chance(percent)) << i))
    }
}

/// The state of a correct replica.
#[derive(Default)]
struct Correct {
    /// h
    stable: u64,
    /// The last number of the prefix that it has executed.
    executed: u64,
    p: BTreeMap<u64, (Digest, u64)>,
    /// All that it ever pre-prepared above h, the archive of VC-4 included.
    q: BTreeMap<u64, BTreeMap<Digest, u64>>,
}

impl Correct {
    fn view_change(&self, cluster: Cluster, view: u64) -> ViewChange {
        let checkpoints = (self.stable..=self.executed.min(self.stable + L)).filter(|n| n % K == 0);
        let mut m = empty(cluster, view, self.stable);
        m.checkpoints = checkpoints.map(|n| (SeqNum(n), state(n))).collect();
        m.prepared = self.p.iter().map(|(n, (d, u))| prepared(*n, *d, *u)).collect();
        m.pre_prepared = self.q.iter().map(|(n, of)| self.claims(cluster, *n, of)).collect();
        m
    }

    /// At most f + 2 pairs, the highest views first, the one of P always among them (VC-4).
    fn claims(&self, cluster: Cluster, n: u64, of: &BTreeMap<Digest, u64>) -> PrePrepared {
        let mine = self.p.get(&n).map(|(digest, _)| *digest);
        let mut claims: Vec<_> = of.iter().map(|(d, u)| (*d, ViewNum(*u))).collect();
        claims.sort_by_key(|(d, u)| Reverse((Some(*d) == mine, *u)));
        claims.truncate(cluster.f() + 2);
        claims.sort_by_key(|(_, u)| Reverse(*u));
        PrePrepared { seq: SeqNum(n), claims }
    }

    fn claims_since(&self, seq: SeqNum, digest: &Digest, view: ViewNum) -> bool {
        self.q.get(&seq.0).and_then(|of| of.get(digest)).is_some_and(|u| *u >= view.0)
    }

    fn collect(&mut self, n: u64) {
        self.stable = n;
        self.p.retain(|seq, _| *seq > n);
        self.q.retain(|seq, _| *seq > n);
    }
}

fn state(n: u64) -> Digest {
    number(1_000_000 + n)
}

fn number(n: u64) -> Digest {
    let mut digest = Digest::ZERO;
    digest.0[..8].copy_from_slice(&n.to_le_bytes());
    digest
}

fn prepared(n: u64, digest: Digest, view: u64) -> Prepared {
    Prepared { seq: SeqNum(n), digest, view: ViewNum(view) }
}

fn empty(cluster: Cluster, view: u64, stable: u64) -> ViewChange {
    let left = ViewNum(view - 1);
    let suspect = Suspect { view: left, reason: SuspectReason::SelfHandoff, signature: [0; 64] };
    ViewChange {
        view: ViewNum(view),
        stable: SeqNum(stable),
        life: Life::default(),
        checkpoints: vec![],
        prepared: vec![],
        pre_prepared: vec![],
        leave: LeaveCert { suspects: vec![(cluster.primary(left), suspect)] },
    }
}

/// What happened over all runs: the model must reach the corners that it is for.
#[derive(Default, Debug)]
struct Seen {
    committed: u64,
    views: u64,
    waited: u64,
    taken_over: u64,
    nulls: u64,
    staggered: u64,
    by_liars: u64,
    refused: u64,
}

struct World {
    cluster: Cluster,
    random: Random,
    correct: BTreeMap<u16, Correct>,
    liars: BTreeSet<u16>,
    view: u64,
    fresh: u64,
    committed: BTreeMap<u64, Digest>,
    /// Every digest that was ever proposed for a number: what liars may claim.
    proposed: BTreeMap<u64, Vec<Digest>>,
    seen: Seen,
}

impl World {
    fn new(cluster: Cluster, seed: u64) -> Self {
        let mut random = Random(seed);
        let first = random.below(cluster.n() as u64);
        let liars: BTreeSet<_> = (0..cluster.f() as u64)
            .map(|i| u16::try_from((first + i) % cluster.n() as u64).unwrap())
            .collect();
        let correct = cluster.replicas().map(|r| r.0).filter(|r| !liars.contains(r));
        let correct = correct.map(|r| (r, Correct::default())).collect();
        let (committed, proposed) = (BTreeMap::new(), BTreeMap::new());
        Self {
            cluster,
            random,
            correct,
            liars,
            view: 0,
            fresh: 0,
            committed,
            proposed,
            seen: Seen::default(),
        }
    }

    fn run(mut self, views: u64) -> Seen {
        let everyone: Vec<_> = self.correct.keys().map(|r| (*r, 0)).collect();
        self.propose(&everyone);
        for view in 1..=views {
            self.view = view;
            self.seen.views += 1;
            self.execute();
            let entered = self.change_view();
            self.propose(&entered);
        }
        self.seen
    }

    fn primary(&self) -> u16 {
        self.cluster.primary(ViewNum(self.view)).0
    }

    /// A well-formed VIEW-CHANGE that says whatever it likes.
    fn lie(&mut self) -> ViewChange {
        let stable = K * self.random.below(self.prefix() / K + 2);
        let mut m = empty(self.cluster, self.view, stable);
        for n in (stable..=stable + L).filter(|n| n % K == 0) {
            if n == stable || self.random.chance(40) {
                let right = self.random.chance(70);
                m.checkpoints.push((SeqNum(n), if right { state(n) } else { number(n) }));
            }
        }
        for n in stable + 1..=stable + L {
            if self.random.chance(40) {
                continue;
            }
            let mut known = self.proposed.get(&n).cloned().unwrap_or_default();
            known.push(NULL);
            let mut claims: Vec<(Digest, ViewNum)> = vec![];
            for _ in 0..=self.random.below(self.cluster.f() as u64 + 2) {
                let digest = self.random.pick(&known);
                if claims.iter().all(|(d, _)| *d != digest) {
                    claims.push((digest, ViewNum(self.random.below(self.view))));
                }
            }
            if self.random.chance(60) {
                let (digest, view) = self.random.pick(&claims);
                m.prepared.push(prepared(n, digest, self.random.below(view.0 + 1)));
            }
            m.pre_prepared.push(PrePrepared { seq: SeqNum(n), claims });
        }
        m
    }

    /// Every correct replica leaves for `view`; returns who entered it, with the NEW-VIEW's last number.
    fn change_view(&mut self) -> Vec<(u16, u64)> {
        let mut all: BTreeMap<u16, ViewChange> =
            self.correct.iter().map(|(r, c)| (*r, c.view_change(self.cluster, self.view))).collect();
        for liar in self.liars.clone() {
            all.insert(liar, self.lie());
        }
        let marks: BTreeSet<_> = self.correct.values().map(|c| c.stable).collect();
        self.seen.staggered += u64::from(marks.len() > 1);
        self.all_correct_complete(&all);

        let faulty = self.liars.contains(&self.primary());
        let offers: Vec<_> =
            (0..if faulty { 3 } else { 1 }).filter_map(|_| self.offer(&all, faulty)).collect();
        let mut entered = vec![];
        for r in self.correct.keys().copied().collect::<Vec<_>>() {
            if offers.is_empty() || self.random.chance(15) {
                continue; // it never hears of it
            }
            let (s, new_view) = &offers[usize::try_from(self.random.below(offers.len() as u64)).unwrap()];
            let heard = self.random.set(70) | bit(ReplicaId(r));
            let verdict = self.checked(&all, *s, new_view, heard);
            if verdict == Verdict::Valid {
                self.seen.by_liars += u64::from(faulty);
                self.agrees_with_what_committed(new_view);
                entered.push((r, new_view.last().0));
                self.enter(r, new_view);
            } else {
                self.seen.refused += 1;
                assert!(faulty || matches!(verdict, Verdict::Missing { .. }), "{verdict:?} of {new_view:?}");
            }
        }
        entered
    }

    /// DP-5: "with all correct replicas' messages in S the procedure terminates", whatever liars add.
    fn all_correct_complete(&mut self, all: &BTreeMap<u16, ViewChange>) {
        let correct = self.correct.keys().fold(0, |set, r| set | bit(ReplicaId(*r)));
        let with_lies = correct | self.random.set(50);
        let decision = self.decided(all, with_lies, correct, true);
        let Decision::Complete { checkpoint, chosen } = decision else {
            panic!("stuck in view {}: {decision:?} of {all:#?}", self.view)
        };
        let new_view = self.new_view(all, with_lies, checkpoint, chosen);
        self.agrees_with_what_committed(&new_view);
        assert_eq!(self.checked(all, with_lies, &new_view, correct), Verdict::Valid);
    }

    /// The NEW-VIEW of this view's primary, from some of the messages.
    fn offer(&mut self, all: &BTreeMap<u16, ViewChange>, faulty: bool) -> Option<(u64, NewView)> {
        let s = self.random.set(75);
        let heard = self.random.set(60);
        if let Decision::Complete { checkpoint, chosen } = self.decided(all, s, heard, false) {
            let mut new_view = self.new_view(all, s, checkpoint, chosen);
            if faulty {
                self.spoil(&mut new_view);
            }
            return Some((s, new_view));
        }
        self.seen.waited += 1;
        None
    }

    /// A liar's possible changes to a NEW-VIEW.
    fn spoil(&mut self, new_view: &mut NewView) {
        if self.random.chance(20) {
            let n = K * self.random.below(self.prefix() / K + 2);
            new_view.checkpoint = (SeqNum(n), if self.random.chance(80) { state(n) } else { number(n) });
        }
        if self.random.chance(30) {
            new_view.chosen.truncate(usize::try_from(self.random.below(L)).unwrap());
        }
        while new_view.chosen.len() < 4 && self.random.chance(30) {
            new_view.chosen.push(NULL);
        }
        for i in 0..new_view.chosen.len() {
            if self.random.chance(40) {
                let n = new_view.checkpoint.0.0 + 1 + i as u64;
                let mut known = self.proposed.get(&n).cloned().unwrap_or_default();
                known.push(NULL);
                new_view.chosen[i] = self.random.pick(&known);
            }
        }
    }

    fn new_view(
        &self,
        all: &BTreeMap<u16, ViewChange>,
        s: u64,
        checkpoint: (SeqNum, Digest),
        chosen: Vec<Digest>,
    ) -> NewView {
        let named = all.keys().map(|r| ReplicaId(*r)).filter(|r| bit(*r) & s != 0);
        let view_changes = named.map(|r| (r, Digest::ZERO)).collect();
        NewView { view: ViewNum(self.view), life: Life::default(), view_changes, checkpoint, chosen }
    }

    fn messages<'a>(&self, all: &'a BTreeMap<u16, ViewChange>, s: u64) -> Vec<ViewChangeOf<'a>> {
        let named = all.iter().filter(|(r, _)| bit(ReplicaId(**r)) & s != 0);
        named.map(|(r, m)| ViewChangeOf::new(self.cluster, K, L, ReplicaId(*r), m).unwrap()).collect()
    }

    /// Who among `heard` says that it pre-prepared this. Liars say so always.
    fn proofs(&self, heard: u64) -> impl Fn(SeqNum, &Digest, ViewNum) -> u64 {
        move |seq, digest, view| {
            let liars = self.liars.iter().fold(0, |set, r| set | bit(ReplicaId(*r)));
            let correct = self.correct.iter().filter(|(_, c)| c.claims_since(seq, digest, view));
            (correct.fold(0, |set, (r, _)| set | bit(ReplicaId(*r))) | liars) & heard
        }
    }

    fn decided(&mut self, all: &BTreeMap<u16, ViewChange>, s: u64, heard: u64, batches: bool) -> Decision {
        let have = if batches { u64::MAX } else { self.random.set(90) };
        let have = |digest: &Digest| (have >> (digest.0[0] % 64)) & 1 != 0;
        decide(self.cluster, L, NULL, &self.messages(all, s), self.proofs(heard), have)
    }

    fn checked(&self, all: &BTreeMap<u16, ViewChange>, s: u64, new_view: &NewView, heard: u64) -> Verdict {
        check(self.cluster, K, L, NULL, &self.messages(all, s), self.proofs(heard), new_view)
    }

    /// I4: "every NEW-VIEW accepted by a correct replica assigns d to each n > n* where d committed".
    fn agrees_with_what_committed(&mut self, new_view: &NewView) {
        let (n, digest) = new_view.checkpoint;
        assert!(digest == state(n.0) && n.0 <= self.prefix(), "a state that nobody has: {new_view:?}");
        for (seq, digest) in self.committed.range(n.0 + 1..) {
            let chosen = new_view.chosen.get(usize::try_from(seq - n.0 - 1).unwrap());
            assert_eq!(chosen, Some(digest), "what committed at {seq} is lost in {new_view:?}");
            self.seen.taken_over += 1;
        }
        self.seen.nulls += new_view.chosen.iter().filter(|d| **d == NULL).count() as u64;
    }

    /// Spec §11.8: what is taken over is pre-prepared in the new view.
    fn enter(&mut self, r: u16, new_view: &NewView) {
        let n = new_view.checkpoint.0.0;
        let holders = self.correct.values().filter(|c| c.executed >= n).count();
        let stable = holders >= self.cluster.quorum() - self.cluster.f();
        let (view, votes) = (self.view, self.random.chance(80));
        let me = self.correct.get_mut(&r).unwrap();
        if n > me.executed && stable && votes {
            me.executed = n; // state transfer
            me.collect(n);
        }
        let low = me.stable.max(n);
        for (i, digest) in new_view.chosen.iter().enumerate() {
            let seq = n + 1 + i as u64;
            self.proposed.entry(seq).or_default().push(*digest);
            if votes && low < seq && seq <= me.stable + L {
                me.q.entry(seq).or_default().insert(*digest, view);
            }
        }
    }

    /// The normal case in one view: proposals above what was taken over, prepares, commits.
    fn propose(&mut self, entered: &[(u16, u64)]) {
        let faulty = self.liars.contains(&self.primary());
        let last = entered.iter().map(|(_, last)| *last).max().unwrap_or(0).max(self.prefix());
        for seq in last + 1..=last + self.random.below(4) {
            let digests = [self.next_digest(seq), if faulty { self.next_digest(seq) } else { NULL }];
            for (r, last) in entered {
                let digest = digests[usize::from(faulty && self.random.chance(50))];
                let reached = self.random.chance(85);
                let me = self.correct.get_mut(r).unwrap();
                if reached && *last < seq && me.stable < seq && seq <= me.stable + L {
                    me.q.entry(seq).or_default().insert(digest, self.view);
                }
            }
        }
        self.vote();
    }

    fn next_digest(&mut self, seq: u64) -> Digest {
        self.fresh += 1;
        self.proposed.entry(seq).or_default().push(number(self.fresh));
        number(self.fresh)
    }

    fn vote(&mut self) {
        let (view, liars) = (self.view, self.liars.len());
        let numbers: BTreeSet<_> = self.correct.values().flat_map(|c| c.q.keys().copied()).collect();
        for seq in numbers {
            let of =
                |c: &Correct| c.q.get(&seq).into_iter().flatten().find(|(_, u)| **u == view).map(|(d, _)| *d);
            let votes: Vec<_> = self.correct.values().filter_map(of).collect();
            for r in self.correct.keys().copied().collect::<Vec<_>>() {
                let Some(digest) = of(&self.correct[&r]) else { continue };
                let matching = votes.iter().filter(|d| **d == digest).count() + liars;
                if matching >= self.cluster.quorum() && self.random.chance(80) {
                    self.correct.get_mut(&r).unwrap().p.insert(seq, (digest, view));
                }
            }
            let prepared: Vec<_> =
                self.correct.values().filter_map(|c| c.p.get(&seq)).filter(|(_, u)| *u == view).collect();
            if let Some((digest, _)) = prepared.first()
                && prepared.len() + liars >= self.cluster.quorum()
            {
                let first = *self.committed.entry(seq).or_insert(*digest);
                assert_eq!(first, *digest, "two batches committed at {seq}");
                self.seen.committed += 1;
            }
        }
    }

    /// The last number up to which everything has committed.
    fn prefix(&self) -> u64 {
        (1_u64..).zip(self.committed.keys()).take_while(|(n, seq)| n == *seq).count() as u64
    }

    /// Some replicas execute what has committed, and some hear that a checkpoint is stable.
    fn execute(&mut self) {
        let prefix = self.prefix();
        for me in self.correct.values_mut() {
            if self.random.chance(60) {
                let to = prefix.min(me.stable + L);
                me.executed = me.executed.max(to - self.random.below(3).min(to));
            }
        }
        for n in (1..=prefix).filter(|n| n % K == 0) {
            let holders = self.correct.values().filter(|c| c.executed >= n).count();
            if holders + self.liars.len() < self.cluster.quorum() {
                continue;
            }
            for me in self.correct.values_mut().filter(|me| me.executed >= n && me.stable < n) {
                if self.random.chance(50) {
                    me.collect(n);
                }
            }
        }
    }
}

fn explore(cluster: Cluster, seeds: core::ops::Range<u64>, views: u64) -> Seen {
    let mut all = Seen::default();
    for seed in seeds {
        let seen = World::new(cluster, seed).run(views);
        all.committed += seen.committed;
        all.views += seen.views;
        all.waited += seen.waited;
        all.taken_over += seen.taken_over;
        all.nulls += seen.nulls;
        all.staggered += seen.staggered;
        all.by_liars += seen.by_liars;
        all.refused += seen.refused;
    }
    all
}

/// Spec §11.10, DP-5 at n = 4, f = 1.
#[test]
fn what_committed_is_chosen_in_every_later_view() {
    let seen = explore(Cluster::tolerating(1).unwrap(), 0..1_000, 10);
    for corner in [
        seen.committed,
        seen.waited,
        seen.taken_over,
        seen.nulls,
        seen.staggered,
        seen.by_liars,
        seen.refused,
    ] {
        assert!(corner > 500, "{seen:?}");
    }
}

/// The same where two replicas lie (DP-2 shows only there), and where n > 3f + 1.
#[test]
fn what_committed_is_chosen_with_two_liars_and_with_a_spare_replica() {
    let seven = explore(Cluster::tolerating(2).unwrap(), 0..1_000, 10);
    let five = explore(Cluster::new(5, 1).unwrap(), 0..300, 10);
    assert!(seven.taken_over > 500 && five.taken_over > 500, "{seven:?} {five:?}");
}
