//! Equal digests at equal checkpoints, held by enough replicas, of committed effects only (I16, I18).

use std::collections::BTreeMap;

use quorate_wire::{Cluster, Digest, ReplicaId, SeqNum};

use super::facts::Facts;
use super::verdict::{Verdict, Violation};

/// Watches over checkpoints.
#[derive(Debug)]
pub struct Checkpoints {
    cluster: Cluster,
    /// The root of each checkpoint, and where it was seen first.
    roots: BTreeMap<u64, (Digest, ReplicaId)>,
}

impl Checkpoints {
    /// Returns a watcher that has seen nothing.
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster, roots: BTreeMap::new() }
    }

    /// A replica's state after `seq` has this root. I16: so has everyone's.
    pub fn root(&mut self, by: ReplicaId, seq: SeqNum, root: Digest) -> Verdict {
        let first = *self.roots.entry(seq.0).or_insert((root, by));
        if first.0 == root {
            return Ok(());
        }
        let text = format!("the state after n={} is {} at {} and {root} at {by}", seq.0, first.0, first.1);
        Err(Violation::new("checkpoint (I16)", text, &[first.1, by]))
    }

    /// Returns whether the state after `seq` is known, and is another one.
    pub fn contradicts(&self, seq: SeqNum, root: Digest) -> bool {
        self.roots.get(&seq.0).is_some_and(|(first, _)| *first != root)
    }

    /// I16: a weak quorum of correct replicas holds a stable checkpoint, or a later one.
    pub fn stable(&mut self, facts: &[Facts], by: ReplicaId, seq: SeqNum, root: Digest) -> Verdict {
        self.root(by, seq, root)?;
        let faulty = facts.iter().filter(|f| !f.counts()).count();
        let holders = facts.iter().filter(|f| f.counts() && f.checkpoint >= seq).count();
        if faulty <= self.cluster.f() && holders + faulty < self.cluster.quorum() {
            let text = format!(
                "n={} is stable at {by}; {holders} correct replicas hold it, {faulty} are not",
                seq.0
            );
            return Err(Violation::new("checkpoint (I16)", text, &[by]));
        }
        Ok(())
    }
}

/// I18: a checkpoint covers committed effects only, and is cut exactly after its batch (EX-4).
pub fn may_cut(facts: &Facts, seq: SeqNum) -> Verdict {
    if facts.executed == seq && facts.tentative.is_none() {
        return Ok(());
    }
    let tentative = facts.tentative.as_ref().map(|(seq, _)| seq.0);
    let text = format!(
        "{} cuts n={} with n={} executed and {tentative:?} tentative",
        facts.id, seq.0, facts.executed.0
    );
    Err(Violation::new("checkpoint (I18)", text, &[facts.id]))
}
