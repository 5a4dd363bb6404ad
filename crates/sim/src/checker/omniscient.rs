//! I4 against every new view that could be made, and not only those that were (spec §11.10).
//!
//! A signed VIEW-CHANGE stays valid: the maker of a NEW-VIEW may hold any of them, however late. So each
//! VIEW-CHANGE that a correct replica has sent is kept, and whenever one more is there, a maker of NEW-VIEWs that
//! knows them all tries them: every set of `q` in which at most `f` are lies, the liars' made up so that they deny
//! everything. The liars are those that lie now, and any others up to `f`: a correct replica may lie from now on.
//! What it decides, by the real decision, must take over all that has committed in an earlier view, and all that
//! ever commits there later, if anybody may vote for it there: at a number, by the table of lives as of a checkpoint
//! whose window has that number (RC-11a). So a VIEW-CHANGE of a life that has ended is tried like any other.

use std::collections::{BTreeMap, BTreeSet};

use quorate_pbft::decision::{Decision, ViewChangeOf, decide};
use quorate_pbft::lives::Counts;
use quorate_wire::life::Life;
use quorate_wire::message::{LeaveCert, Suspect, SuspectReason, ViewChange};
use quorate_wire::{Cluster, Digest, ReplicaId, SeqNum, ViewNum};

use super::ended::Tables;
use super::facts::Facts;
use super::verdict::{Verdict, Violation};

/// The rule's name.
pub const RULE: &str = "every new view (I4)";
/// How many views are kept: the newest. Of older ones nobody makes a NEW-VIEW any more that a correct replica
/// takes.
const VIEWS_MAX: usize = 12;
/// How many different VIEW-CHANGEs of one replica are kept for one view: one for each of its lives.
const VERSIONS_MAX: usize = 3;

/// What a NEW-VIEW would say, and on whose word.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Made {
    checkpoint: SeqNum,
    chosen: Vec<Digest>,
    of: Vec<ReplicaId>,
    /// In which lives the truth was said.
    lives: Vec<(ReplicaId, Life)>,
}

/// One view to come.
#[derive(Debug, Default)]
struct OfView {
    /// What correct replicas have signed. At most [`VERSIONS_MAX`] of each.
    said: Vec<(ReplicaId, ViewChange)>,
    /// What can be made of it, each once.
    made: Vec<Made>,
}

/// Makes every NEW-VIEW that could be made.
#[derive(Debug)]
pub struct Omniscient {
    cluster: Cluster,
    interval: u64,
    window: u64,
    null: Digest,
    views: BTreeMap<u64, OfView>,
    /// Who has sent a COMMIT, by number, view and digest. At most two windows of numbers.
    votes: BTreeMap<(SeqNum, ViewNum, Digest), BTreeSet<ReplicaId>>,
    /// What committed at each number, and the lowest view in which it did, or did with the liars' votes.
    committed: BTreeMap<u64, (Digest, ViewNum)>,
    liars: BTreeSet<ReplicaId>,
    /// What is final everywhere or soon.
    last: SeqNum,
}

impl Omniscient {
    /// Returns one that knows nothing yet.
    pub fn new(cluster: Cluster, interval: u64, window: u64, null: Digest) -> Self {
        let (views, votes) = (BTreeMap::new(), BTreeMap::new());
        let (committed, liars) = (BTreeMap::new(), BTreeSet::new());
        Self { cluster, interval, window, null, views, votes, committed, liars, last: SeqNum(0) }
    }

    /// A batch has become final.
    pub fn settled(&mut self, seq: SeqNum) {
        self.last = self.last.max(seq);
    }

    /// A correct replica has sent its VIEW-CHANGE.
    pub fn said(&mut self, facts: &[Facts], lives: &Tables, by: ReplicaId, message: ViewChange) -> Verdict {
        // One that has lied may have voted for what it knows nothing of now that it is clean.
        if !facts[by.index()].counts() || facts[by.index()].was_faulty {
            return Ok(());
        }
        self.liars_are(facts);
        let view = message.view;
        let of_view = self.views.entry(view.0).or_default();
        let versions = of_view.said.iter().filter(|(id, _)| *id == by).count();
        if versions == VERSIONS_MAX || of_view.said.iter().any(|(id, m)| *id == by && *m == message) {
            return Ok(());
        }
        of_view.said.push((by, message));
        let newest = of_view.said.len() - 1;
        if self.views.len() > VIEWS_MAX {
            self.views.pop_first();
        }
        self.make(view, Some(newest), lives)
    }

    /// A COMMIT of a correct replica leaves. With those of the liars, it may have made a quorum. What a replica only
    /// hears of from others has committed in a view that it does not know, so that its own is of no use here.
    pub fn voted(
        &mut self,
        facts: &[Facts],
        lives: &Tables,
        by: ReplicaId,
        (view, seq, digest): (ViewNum, SeqNum, Digest),
    ) -> Verdict {
        if !facts[by.index()].counts() {
            return Ok(());
        }
        let voters = self.votes.entry((seq, view, digest)).or_default();
        voters.insert(by);
        let liars = facts.iter().filter(|f| !f.correct).count();
        let truths = voters.iter().filter(|id| facts[id.index()].correct).count();
        while let Some((oldest, ..)) = self.votes.first_key_value().map(|(key, _)| *key)
            && oldest.plus(2 * self.window) < seq
        {
            self.votes.pop_first();
        }
        if truths + liars < self.cluster.quorum() { Ok(()) } else { self.committed(lives, view, seq, digest) }
    }

    /// A batch has committed in `view`.
    fn committed(&mut self, lives: &Tables, view: ViewNum, seq: SeqNum, digest: Digest) -> Verdict {
        let first = self.committed.entry(seq.0).or_insert((digest, ViewNum(u64::MAX)));
        if view >= first.1 {
            return Ok(());
        }
        first.1 = view;
        for (later, of_view) in self.views.range(view.0 + 1..) {
            for made in &of_view.made {
                self.takes_over(lives, ViewNum(*later), made, seq, digest, view)?;
            }
        }
        Ok(())
    }

    /// What was made on the word of a replica that lies now is made again without it.
    fn liars_are(&mut self, facts: &[Facts]) {
        let liars: BTreeSet<ReplicaId> = facts.iter().filter(|f| !f.correct).map(|f| f.id).collect();
        if liars != self.liars {
            self.liars = liars;
            self.views.values_mut().for_each(|of_view| of_view.made.clear());
        }
    }

    /// Tries every set of VIEW-CHANGEs for `view`, or those with the one at `newest`.
    fn make(&mut self, view: ViewNum, newest: Option<usize>, tables: &Tables) -> Verdict {
        let Some(of_view) = self.views.get(&view.0) else { return Ok(()) };
        let lies = self.cluster.f();
        let truths = self.cluster.quorum() - lies;
        let usable: Vec<usize> =
            (0..of_view.said.len()).filter(|i| !self.liars.contains(&of_view.said[*i].0)).collect();
        let mut found = Vec::new();
        each_subset(&usable, truths, &mut |chosen: &[usize]| {
            let distinct: BTreeSet<ReplicaId> = chosen.iter().map(|i| of_view.said[*i].0).collect();
            if newest.is_some_and(|newest| !chosen.contains(&newest)) || distinct.len() < truths {
                return;
            }
            // Who lies: those that do already, then those that are not needed for the truth.
            let others = self.cluster.replicas().filter(|id| !self.liars.contains(id));
            let liars = self.liars.iter().copied().chain(others).filter(|id| !distinct.contains(id));
            let liars: Vec<ReplicaId> = liars.take(lies).collect();
            let truth: Vec<(ReplicaId, &ViewChange)> =
                chosen.iter().map(|i| (of_view.said[*i].0, &of_view.said[*i].1)).collect();
            // The liars may pretend to be as far as any checkpoint that somebody has.
            let checkpoints = truth.iter().flat_map(|(_, m)| &m.checkpoints).map(|(seq, _)| *seq);
            for stable in checkpoints.collect::<BTreeSet<SeqNum>>() {
                if let Some(made) = self.decide(view, &truth, &liars, stable)
                    && !of_view.made.contains(&made)
                    && !found.contains(&made)
                {
                    found.push(made);
                }
            }
        });
        for made in &found {
            for (seq, (digest, at)) in self.committed.range(made.checkpoint.0 + 1..) {
                self.takes_over(tables, view, made, SeqNum(*seq), *digest, *at)?;
            }
        }
        if let Some(of_view) = self.views.get_mut(&view.0) {
            of_view.made.extend(found);
        }
        Ok(())
    }

    /// What the new primary decides if it is given these, and the liars deny everything.
    fn decide(
        &self,
        view: ViewNum,
        truth: &[(ReplicaId, &ViewChange)],
        liars: &[ReplicaId],
        stable: SeqNum,
    ) -> Option<Made> {
        let denial = self.denial(view, truth, stable)?;
        let mut set: Vec<(ReplicaId, &ViewChange)> = truth.to_vec();
        set.extend(liars.iter().map(|id| (*id, &denial)));
        set.sort_by_key(|(id, _)| *id);
        let mut of = Vec::with_capacity(set.len());
        for (id, message) in set {
            of.push(ViewChangeOf::new(self.cluster, self.interval, self.window, id, message).ok()?);
        }
        // Liars vouch for whatever is asked; every batch is there.
        let vouched = liars.iter().fold(0_u64, |set, id| set | 1 << id.index());
        let decided = decide(self.cluster, self.window, self.null, &of, |_, _, _| vouched, |_| true);
        let Decision::Complete { checkpoint, chosen } = decided else { return None };
        let of = of.iter().map(ViewChangeOf::replica).collect();
        let lives = truth.iter().map(|(id, m)| (*id, m.life)).collect();
        Some(Made { checkpoint: checkpoint.0, chosen, of, lives })
    }

    /// A VIEW-CHANGE that has every checkpoint of the others from `stable` on, and nothing prepared.
    fn denial(
        &self,
        view: ViewNum,
        truth: &[(ReplicaId, &ViewChange)],
        stable: SeqNum,
    ) -> Option<ViewChange> {
        let mut checkpoints: BTreeMap<SeqNum, Digest> = BTreeMap::new();
        for (seq, digest) in truth.iter().flat_map(|(_, m)| &m.checkpoints) {
            if *seq >= stable && *seq <= stable.plus(self.window) {
                checkpoints.entry(*seq).or_insert(*digest);
            }
        }
        let left = ViewNum(view.0.checked_sub(1)?);
        let suspect = Suspect { view: left, reason: SuspectReason::SelfHandoff, signature: [0; 64] };
        Some(ViewChange {
            view,
            stable,
            checkpoints: checkpoints.into_iter().collect(),
            prepared: Vec::new(),
            pre_prepared: Vec::new(),
            // Signatures were checked at the gateway; here the primary's own word is enough.
            leave: LeaveCert { suspects: vec![(self.cluster.primary(left), suspect)] },
            ..truth.first()?.1.clone()
        })
    }

    /// I4: what committed before `view` is where it was.
    fn takes_over(
        &self,
        lives: &Tables,
        view: ViewNum,
        made: &Made,
        seq: SeqNum,
        digest: Digest,
        at: ViewNum,
    ) -> Verdict {
        let place = seq.0.checked_sub(made.checkpoint.0 + 1).and_then(|place| usize::try_from(place).ok());
        let Some(place) = place.filter(|_| at < view) else { return Ok(()) };
        if made.chosen.get(place) == Some(&digest) || !self.admits_votes(lives, view, made, seq) {
            return Ok(());
        }
        let names = |ids: &mut dyn Iterator<Item = &ReplicaId>| {
            ids.map(ToString::to_string).collect::<Vec<String>>().join(", ")
        };
        let voters = self.votes.get(&(seq, at, digest));
        let text = format!(
            "n={} d={digest} committed in v={} by COMMITs of {} and liars, and a NEW-VIEW for v={} from n={} on could leave it out: \
             VIEW-CHANGEs of {}, at most {} of them lies",
            seq.0,
            at.0,
            names(&mut voters.into_iter().flatten()),
            view.0,
            made.checkpoint.0,
            names(&mut made.of.iter()),
            self.cluster.f()
        );
        Err(Violation::new(RULE, text, &made.of))
    }
}

impl Omniscient {
    /// Says whether a replica with a window around `seq` may vote in a view that was made so (RC-11a).
    fn admits_votes(&self, lives: &Tables, view: ViewNum, made: &Made, seq: SeqNum) -> bool {
        let lowest = seq.0.saturating_sub(self.window).div_ceil(self.interval);
        let mut stable =
            (lowest..).map(|k| SeqNum(k * self.interval)).take_while(|h| *h < seq && *h <= self.last);
        let counts =
            |h| made.lives.iter().all(|(id, life)| lives.counts(*id, (*life, view), h) == Counts::Yes);
        stable.any(counts)
    }
}

/// Calls `each` with every subset of `from` that has `len` elements, in order.
fn each_subset(from: &[usize], len: usize, each: &mut dyn FnMut(&[usize])) {
    fn go(from: &[usize], len: usize, taken: &mut Vec<usize>, each: &mut dyn FnMut(&[usize])) {
        if taken.len() == len {
            return each(taken);
        }
        for (i, element) in from.iter().enumerate() {
            taken.push(*element);
            go(&from[i + 1..], len, taken, each);
            taken.pop();
        }
    }
    go(from, len, &mut Vec::with_capacity(len), each);
}

#[cfg(test)]
mod tests {
    use quorate_wire::Timestamp;
    use quorate_wire::life::Recovery;
    use quorate_wire::message::{PrePrepared, Prepared};

    use super::*;

    const D: Digest = Digest([7; 32]);

    fn omniscient() -> (Omniscient, Vec<Facts>) {
        let cluster = Cluster::tolerating(1).unwrap();
        let facts = cluster.replicas().map(|id| Facts::new(id, true)).collect();
        (Omniscient::new(cluster, 4, 8, Digest([0; 32])), facts)
    }

    fn lives() -> Tables {
        Tables::default()
    }

    /// The VIEW-CHANGE for view 1 of a replica that has prepared `D` at number 1, or nothing.
    fn view_change(has: bool) -> ViewChange {
        let (seq, view) = (SeqNum(1), ViewNum(0));
        let suspect = Suspect { view, reason: SuspectReason::SelfHandoff, signature: [0; 64] };
        ViewChange {
            view: ViewNum(1),
            stable: SeqNum(0),
            life: Life::default(),
            checkpoints: vec![(SeqNum(0), Digest([1; 32]))],
            prepared: if has { vec![Prepared { seq, digest: D, view }] } else { Vec::new() },
            pre_prepared: if has { vec![PrePrepared { seq, claims: vec![(D, view)] }] } else { Vec::new() },
            leave: LeaveCert { suspects: vec![(ReplicaId(0), suspect)] },
        }
    }

    /// A quorum has prepared it: it is taken over, whichever replica is left out or lies.
    #[test]
    fn what_a_quorum_has_prepared_cannot_be_left_out() {
        let (mut o, facts) = omniscient();
        assert_eq!(o.committed(&lives(), ViewNum(0), SeqNum(1), D), Ok(()));
        for (id, has) in [(0, true), (1, true), (2, true), (3, false)] {
            assert_eq!(o.said(&facts, &lives(), ReplicaId(id), view_change(has)), Ok(()), "r{id}");
        }
        assert!(o.views[&1].made.iter().all(|made| made.chosen.first() == Some(&D)));
        assert!(!o.views[&1].made.is_empty());
    }

    /// Two that deny it and one liar are a quorum: seen whether it commits before or after they say so.
    #[test]
    fn a_quorum_that_could_leave_it_out_is_seen() {
        for before in [true, false] {
            let (mut o, facts) = omniscient();
            let mut verdicts = Vec::new();
            if before {
                verdicts.push(o.committed(&lives(), ViewNum(0), SeqNum(1), D));
            }
            for id in [2, 3] {
                verdicts.push(o.said(&facts, &lives(), ReplicaId(id), view_change(false)));
            }
            if !before {
                assert!(verdicts.iter().all(Result::is_ok));
                verdicts.push(o.committed(&lives(), ViewNum(0), SeqNum(1), D));
            }
            let last = verdicts.pop().unwrap();
            assert!(last.is_err_and(|violation| violation.rule == RULE), "before: {before}");
            assert!(verdicts.iter().all(Result::is_ok));
        }
    }

    /// There is one lie at most: with a liar, its own words count for nothing.
    #[test]
    fn the_words_of_a_liar_do_not_count_as_true() {
        let (mut o, mut facts) = omniscient();
        assert_eq!(o.committed(&lives(), ViewNum(0), SeqNum(1), D), Ok(()));
        facts[3].correct = false;
        assert_eq!(o.said(&facts, &lives(), ReplicaId(3), view_change(false)), Ok(()));
        assert_eq!(o.said(&facts, &lives(), ReplicaId(2), view_change(false)), Ok(()));
        assert_eq!(o.said(&facts, &lives(), ReplicaId(1), view_change(true)), Ok(()));
        assert!(o.said(&facts, &lives(), ReplicaId(0), view_change(false)).is_err());
    }

    /// What commits in the view itself need not be in its NEW-VIEW.
    #[test]
    fn what_commits_in_the_new_view_is_no_concern() {
        let (mut o, facts) = omniscient();
        for id in [1, 2, 3] {
            assert_eq!(o.said(&facts, &lives(), ReplicaId(id), view_change(false)), Ok(()));
        }
        assert_eq!(o.committed(&lives(), ViewNum(1), SeqNum(1), D), Ok(()));
        assert!(
            o.committed(&lives(), ViewNum(0), SeqNum(1), D).is_err(),
            "it had committed before after all"
        );
    }

    /// S1, RC-11: r3 has rejoined, and its old VIEW-CHANGE denies what it has prepared since. That is no way out as long
    /// as nobody may vote on the life that has ended for a number in reach; one number lower somebody may.
    #[test]
    fn an_old_view_change_counts_where_the_new_life_is_not_known() {
        for (seq, seen) in [(21, false), (20, true)] {
            let (mut o, facts) = omniscient();
            let mut lives = Tables::default();
            let new = Recovery { bound: SeqNum(0), bits: 9, floor: ViewNum(0), before: Life::default() };
            lives.ask(SeqNum(13), (ReplicaId(3), Timestamp(7)), 0, &new);
            o.settled(SeqNum(20));
            let at = |has: bool| {
                let mut m = view_change(has);
                m.stable = SeqNum(16);
                m.checkpoints = vec![(SeqNum(16), Digest([1; 32]))];
                m.prepared.iter_mut().for_each(|p| p.seq = SeqNum(seq));
                m.pre_prepared.iter_mut().for_each(|q| q.seq = SeqNum(seq));
                m
            };
            assert_eq!(o.committed(&lives, ViewNum(0), SeqNum(seq), D), Ok(()));
            assert_eq!(o.said(&facts, &lives, ReplicaId(2), at(false)), Ok(()));
            let verdict = o.said(&facts, &lives, ReplicaId(3), at(false));
            assert_eq!(verdict.is_err(), seen, "number {seq}");
        }
    }
}
