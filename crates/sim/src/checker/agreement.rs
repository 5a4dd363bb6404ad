//! One order for all (I1-I4).

use std::collections::BTreeMap;

use quorate_wire::message::NewView;
use quorate_wire::{Cluster, Digest, ReplicaId, SeqNum, ViewNum};

use super::facts::Facts;
use super::verdict::{Verdict, Violation};

/// The batch that became final at a number, and where first.
#[derive(Clone, Copy, Debug)]
struct Final {
    digest: Digest,
    by: ReplicaId,
}

/// Watches over the agreed order. Remembers every number of the run, across restarts of everyone: so an
/// acknowledged write that is lost shows as two different batches at one number (I30).
#[derive(Debug)]
pub struct Agreement {
    cluster: Cluster,
    /// Batch `n` is at `n - 1`.
    order: Vec<Final>,
    /// The batch that committed, executed or not, and in which of its views a replica first reported it.
    committed: BTreeMap<u64, (Digest, ReplicaId)>,
    /// The digest that prepared in a view at a number, and where first.
    prepared: BTreeMap<(u64, u64), (Digest, ReplicaId)>,
    /// The NEW-VIEWs that each replica knows for its next views.
    new_views: Vec<BTreeMap<u64, Vec<NewView>>>,
}

impl Agreement {
    /// Returns a watcher that has seen nothing.
    pub fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            order: Vec::new(),
            committed: BTreeMap::new(),
            prepared: BTreeMap::new(),
            new_views: vec![BTreeMap::new(); cluster.n()],
        }
    }

    /// Returns the last number that is final anywhere.
    pub fn last(&self) -> SeqNum {
        SeqNum(u64::try_from(self.order.len()).unwrap_or(u64::MAX))
    }

    /// Returns the batch that is final at `seq`.
    pub fn digest(&self, seq: SeqNum) -> Option<Digest> {
        let place = usize::try_from(seq.0.checked_sub(1)?).ok()?;
        self.order.get(place).map(|first| first.digest)
    }

    /// I1: no two correct replicas execute different batches at one number. Returns whether this is the
    /// first to execute it.
    pub fn executed(&mut self, by: ReplicaId, seq: SeqNum, digest: Digest) -> Result<bool, Violation> {
        let place = usize::try_from(seq.0.saturating_sub(1)).unwrap_or(usize::MAX);
        match self.order.get(place) {
            Some(first) if first.digest != digest => {
                Err(two("agreement (I1)", seq, (first.digest, first.by), (digest, by)))
            }
            Some(_) => Ok(false),
            None if place == self.order.len() => {
                self.order.push(Final { digest, by });
                Ok(true)
            }
            None => {
                let text = format!("{by} executes n={}, but nobody has n={}", seq.0, self.order.len() + 1);
                Err(Violation::new("agreement (I1)", text, &[by]))
            }
        }
    }

    /// I2: no two correct replicas have different batches prepared at one number in one view.
    pub fn prepared(&mut self, at: &Facts, seq: SeqNum, digest: Digest) -> Verdict {
        let first = *self.prepared.entry((at.view.0, seq.0)).or_insert((digest, at.id));
        if first.0 != digest {
            return Err(two("prepared (I2)", seq, first, (digest, at.id)));
        }
        Ok(())
    }

    /// I1 for what committed but may not be executed yet; and I3: what committed anywhere has
    /// prepared at a weak quorum of correct replicas, or they have a later checkpoint.
    pub fn committed(&mut self, facts: &[Facts], by: ReplicaId, seq: SeqNum, digest: Digest) -> Verdict {
        let first = *self.committed.entry(seq.0).or_insert((digest, by));
        if first.0 != digest {
            return Err(two("agreement (I1)", seq, first, (digest, by)));
        }
        // What a replica said before it was cleaned may count: it supports, whatever it knows of that now.
        let truthful = |f: &&Facts| f.counts() && !f.was_faulty;
        let faulty = facts.iter().filter(|f| !truthful(f)).count();
        let has = |f: &&Facts| f.stable >= seq || f.prepared.get(&seq.0).is_some_and(|p| p.1 == digest);
        let support = facts.iter().filter(truthful).filter(has).count();
        if faulty <= self.cluster.f() && support + faulty < self.cluster.quorum() {
            let text = format!(
                "n={} d={digest} committed at {by}, prepared at {support} correct replicas, {faulty} are not",
                seq.0
            );
            return Err(Violation::new("support (I3)", text, &[by]));
        }
        Ok(())
    }

    /// A replica is given a NEW-VIEW, or has made one.
    pub fn new_view(&mut self, at: ReplicaId, body: &[u8]) {
        let Ok(new_view) = NewView::decode(body) else { return };
        let known = self.new_views[at.index()].entry(new_view.view.0).or_default();
        if !known.contains(&new_view) {
            known.push(new_view);
        }
    }

    /// I4: the NEW-VIEW by which a correct replica enters a view takes over everything that had
    /// committed before.
    pub fn entered(&mut self, by: ReplicaId, view: ViewNum, last: SeqNum) -> Verdict {
        let known = &mut self.new_views[by.index()];
        let candidates = known.remove(&view.0).unwrap_or_default();
        *known = known.split_off(&view.0);
        let candidates: Vec<&NewView> = candidates.iter().filter(|nv| nv.last() == last).collect();
        let mut gone = None;
        for new_view in &candidates {
            let from = new_view.checkpoint.0;
            // Committed in an earlier view: a later one may be ahead of a replica that enters late.
            let missing = self.committed.range(from.0 + 1..).find(|(seq, (digest, _))| {
                let place = usize::try_from(**seq - from.0 - 1).unwrap_or(usize::MAX);
                new_view.chosen.get(place) != Some(digest) && !self.in_view(view, **seq, *digest)
            });
            match missing {
                None => return Ok(()),
                Some((seq, (digest, at))) => gone = Some((*seq, *digest, *at)),
            }
        }
        let Some((seq, digest, at)) = gone else { return Ok(()) };
        let text = format!(
            "{by} enters v={} (up to n={}) without n={seq} d={digest}, committed at {at}",
            view.0, last.0
        );
        Err(Violation::new("new-view (I4)", text, &[by, at]))
    }

    /// Returns whether a batch has prepared at a number in `view` or a later one: then it need not have
    /// committed before `view`.
    fn in_view(&self, view: ViewNum, seq: u64, digest: Digest) -> bool {
        self.prepared.range((view.0, 0)..).any(|((_, n), (d, _))| *n == seq && *d == digest)
    }
}

fn two(rule: &'static str, seq: SeqNum, a: (Digest, ReplicaId), b: (Digest, ReplicaId)) -> Violation {
    let text = format!("n={} is {} at {} and {} at {}", seq.0, a.0, a.1, b.0, b.1);
    Violation::new(rule, text, &[a.1, b.1])
}

#[cfg(test)]
mod tests {
    use super::*;

    const R0: ReplicaId = ReplicaId(0);
    const R1: ReplicaId = ReplicaId(1);

    fn digest(byte: u8) -> Digest {
        Digest([byte; 32])
    }

    fn agreement() -> Agreement {
        Agreement::new(Cluster::tolerating(1).unwrap())
    }

    #[test]
    fn two_batches_at_one_number_are_a_violation() {
        let mut a = agreement();
        assert_eq!(a.executed(R0, SeqNum(1), digest(1)), Ok(true));
        assert_eq!(a.executed(R1, SeqNum(1), digest(1)), Ok(false));
        let violation = a.executed(R1, SeqNum(1), digest(2)).unwrap_err();
        assert_eq!(violation.text, "n=1 is 0101 at r0 and 0202 at r1");
        assert!(a.executed(R1, SeqNum(3), digest(3)).is_err(), "a gap");
    }

    #[test]
    fn two_batches_may_prepare_at_one_number_only_in_different_views() {
        let mut a = agreement();
        let mut facts = Facts::new(R0, true);
        assert_eq!(a.prepared(&facts, SeqNum(1), digest(1)), Ok(()));
        facts.view = ViewNum(1);
        assert_eq!(a.prepared(&facts, SeqNum(1), digest(2)), Ok(()));
        facts.view = ViewNum(0);
        assert!(a.prepared(&facts, SeqNum(1), digest(2)).is_err());
    }

    fn new_view(view: u64, chosen: &[Digest]) -> Vec<u8> {
        let new_view = NewView {
            view: ViewNum(view),
            life: quorate_wire::life::Life::default(),
            view_changes: Vec::new(),
            checkpoint: (SeqNum(0), Digest::ZERO),
            chosen: chosen.to_vec(),
        };
        let mut body = Vec::new();
        new_view.encode(&mut quorate_wire::codec::Writer::new(&mut body));
        body
    }

    #[test]
    fn a_new_view_that_drops_a_committed_batch_is_a_violation() {
        let mut a = agreement();
        let mut facts: Vec<Facts> = (0..4).map(|i| Facts::new(ReplicaId(i), true)).collect();
        for f in &mut facts[..3] {
            f.prepared.insert(1, (ViewNum(0), digest(1)));
            assert_eq!(a.prepared(f, SeqNum(1), digest(1)), Ok(()));
        }
        assert_eq!(a.committed(&facts, R0, SeqNum(1), digest(1)), Ok(()));
        a.new_view(R0, &new_view(1, &[digest(1)]));
        a.new_view(R1, &new_view(1, &[digest(9)]));
        assert_eq!(a.entered(R0, ViewNum(1), SeqNum(1)), Ok(()));
        assert!(a.entered(R1, ViewNum(1), SeqNum(1)).is_err());
    }

    #[test]
    fn a_commit_without_support_is_a_violation() {
        let mut a = agreement();
        let mut facts: Vec<Facts> = (0..4).map(|i| Facts::new(ReplicaId(i), true)).collect();
        facts[0].prepared.insert(1, (ViewNum(0), digest(1)));
        facts[1].prepared.insert(1, (ViewNum(0), digest(1)));
        assert!(a.committed(&facts, R0, SeqNum(1), digest(1)).is_err());
        facts[3].correct = false;
        assert_eq!(a.committed(&facts, R0, SeqNum(1), digest(1)), Ok(()));
    }
}
