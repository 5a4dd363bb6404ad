//! Selects the replicas that a read is not sent to at first (DV-43).
//!
//! A read that is not ordered needs the same reply from a quorum (RO-2). So it is sent to a quorum, and to the others
//! only if replies are late or do not agree. With f = 1 this saves a quarter of the messages, and of each replica's
//! reads. Any quorum will do, so the guarantee of RO-2 does not depend on the selection.

use quorate_wire::{Cluster, ReplicaId};

use super::step::Members;
use crate::io::config::Reads;
use crate::io::rng::Rng;

/// After this many reads others are left out: a replica that was late once may have recovered, and the work is
/// spread.
const READS_MAX: u32 = 4096;

/// The replicas beyond a quorum that the next read is not sent to at first: those that were missed last, if any were.
#[derive(Debug)]
pub(super) struct Spares {
    cluster: Cluster,
    spare: Members,
    /// How many are spared.
    beyond: usize,
    reads: u32,
}

impl Spares {
    pub(super) fn new(cluster: Cluster) -> Self {
        let beyond = cluster.n() - cluster.quorum();
        Self { cluster, spare: Members::default(), beyond, reads: READS_MAX }
    }

    /// Spares nobody if all are to be asked.
    pub(super) fn by(self, reads: Reads) -> Self {
        let beyond = if reads == Reads::All { 0 } else { self.beyond };
        Self { beyond, ..self }
    }

    /// Returns whom the next read is sent to.
    pub(super) fn ask(&mut self, rng: &mut Rng) -> Members {
        if self.reads >= READS_MAX {
            self.spare = Members::default();
            self.fill(rng);
            self.reads = 0;
        }
        self.reads += 1;
        Members::all(self.cluster).without(self.spare)
    }

    /// A read took more than those who were asked at first, and these made it certain.
    pub(super) fn learn(&mut self, agreed: Members, rng: &mut Rng) {
        let missed = Members::all(self.cluster).without(agreed);
        self.spare = Members::default();
        for replica in missed.of(self.cluster).take(self.beyond) {
            self.spare.insert(replica);
        }
        self.fill(rng);
    }

    /// Adds replicas until all beyond a quorum are spared, from anywhere on.
    fn fill(&mut self, rng: &mut Rng) {
        let n = self.cluster.n();
        let start = usize::try_from(rng.below(u64::try_from(n).unwrap_or(1))).unwrap_or(0);
        let mut others = (0..n).map(|at| ReplicaId::at((start + at) % n));
        while self.spare.count() < self.beyond
            && let Some(replica) = others.next()
        {
            self.spare.insert(replica);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four() -> (Spares, Rng) {
        (Spares::new(Cluster::tolerating(1).unwrap()), Rng::new(3))
    }

    #[test]
    fn a_quorum_is_asked_and_not_always_the_same() {
        for f in [1, 2, 21] {
            let cluster = Cluster::tolerating(f).unwrap();
            let mut seen = Members::default();
            for seed in 0..200 {
                let asked = Spares::new(cluster).ask(&mut Rng::new(seed));
                assert_eq!(asked.count(), cluster.quorum());
                Members::all(cluster).without(asked).of(cluster).for_each(|replica| seen.insert(replica));
            }
            assert_eq!(seen, Members::all(cluster), "each is spared by some lane");
        }
    }

    #[test]
    fn who_was_missed_is_left_out_for_a_while() {
        let (mut spares, mut rng) = four();
        spares.ask(&mut rng);
        let two = Members::one(ReplicaId(2));
        let all = Members::all(Cluster::tolerating(1).unwrap());
        spares.learn(all.without(two), &mut rng);
        for _ in 1..READS_MAX {
            assert_eq!(spares.ask(&mut rng), all.without(two));
        }
        // Not forever: then they are drawn again, and are mostly others.
        let next = (0..20).map(|seed| {
            let (mut spares, mut rng) = (Spares::new(Cluster::tolerating(1).unwrap()), Rng::new(seed));
            spares.learn(all.without(two), &mut rng);
            spares.reads = READS_MAX;
            spares.ask(&mut rng)
        });
        assert!(next.into_iter().any(|asked| asked.contains(ReplicaId(2))));
    }

    #[test]
    fn all_that_agreed_leave_nobody_to_blame() {
        let (mut spares, mut rng) = four();
        spares.learn(Members::all(Cluster::tolerating(1).unwrap()), &mut rng);
        assert_eq!(spares.spare.count(), 1);
    }
}
