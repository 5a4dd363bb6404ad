//! How far the log of a correct replica can reach: the estimation by a replica that cannot trust its own state (RC-4,
//! RC-5), from [TOCS02, on recovery].
//! Each replica reports its last checkpoint `c` and the highest number `p` that it ever prepared. If a quorum has not
//! gone beyond a checkpoint `c_k` and `f + 1` have prepared it, `c_k` is real and at least the stable checkpoint of
//! every correct replica: no correct replica has sent a message for a number above `c_k + L`.

use alloc::boxed::Box;
use alloc::vec;

use quorate_wire::{Cluster, ReplicaId, SeqNum};

/// One replica's statements, at their least: its smallest checkpoint and its largest prepared number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    checkpoint: SeqNum,
    prepared: SeqNum,
}

/// The bounds that replicas have given. At most one entry from each.
#[derive(Debug)]
pub struct Estimate {
    cluster: Cluster,
    interval: u64,
    said: Box<[Option<Bounds>]>,
}

impl Estimate {
    /// Returns the estimation of `own`, which has forgotten everything: for its part nothing is a
    /// checkpoint and nothing has prepared. `interval` is K.
    pub fn new(cluster: Cluster, interval: u64, own: ReplicaId) -> Self {
        let mut estimate = Self { cluster, interval, said: vec![None; cluster.n()].into_boxed_slice() };
        // "includes its own" (RC-4).
        estimate.note(own, SeqNum(0), SeqNum(0));
        estimate
    }

    /// Takes an answer. Returns whether it was one.
    ///
    /// "keeps per replica the minimum c and maximum p seen": one that answers again cannot take back
    /// what it has said, nor stand in for two.
    pub fn note(&mut self, from: ReplicaId, checkpoint: SeqNum, prepared: SeqNum) -> bool {
        // "require c mod K = 0, c <= p".
        if !checkpoint.0.is_multiple_of(self.interval) || checkpoint > prepared {
            return false;
        }
        let Some(entry) = self.said.get_mut(from.index()) else { return false };
        let known = entry.unwrap_or(Bounds { checkpoint, prepared });
        *entry = Some(Bounds {
            checkpoint: known.checkpoint.min(checkpoint),
            prepared: known.prepared.max(prepared),
        });
        true
    }

    /// Returns `c_k`, once the answers give one: `H_M = c_k + L` bounds what any correct replica has
    /// prepared. The lowest, if there are several: each is a bound.
    pub fn result(&self) -> Option<SeqNum> {
        let candidates = self.said.iter().enumerate().filter_map(|(k, said)| Some((k, (*said)?.checkpoint)));
        candidates.filter(|(k, c_k)| self.bounds(*k, *c_k)).map(|(_, c_k)| c_k).min()
    }

    fn bounds(&self, k: usize, c_k: SeqNum) -> bool {
        let others = || self.said.iter().enumerate().filter(|(j, _)| *j != k).filter_map(|(_, said)| *said);
        // "|{j != k : c_j <= c_k}| >= q - 1": with k a quorum. It meets the quorum that made any
        // stable checkpoint h' in a correct replica, so that h' <= c_k.
        let not_beyond = others().filter(|said| said.checkpoint <= c_k).count();
        // "|{j != k : p_j >= c_k}| >= f": with k one correct replica has prepared c_k. Liars cannot
        // inflate it.
        let prepared = others().filter(|said| said.prepared >= c_k).count();
        not_beyond >= self.cluster.quorum() - 1 && prepared >= self.cluster.f()
    }

    /// Returns the low estimate, from which a replica starts over whose own data contradicts
    /// `H_M`: the first checkpoint at or above `p* - L`, where `p*` is the (f + 1)-th largest number
    /// prepared (RC-5). `window` is L.
    ///
    /// "some correct replica prepared p* <= h + L", so that its stable checkpoint h is not below.
    pub fn low(&self, window: u64) -> Option<SeqNum> {
        let prepared = |rank: usize| {
            let at_least = |p: &SeqNum| self.said.iter().flatten().filter(|said| said.prepared >= *p).count();
            self.said.iter().flatten().map(|said| said.prepared).filter(|p| at_least(p) >= rank).max()
        };
        let least = prepared(self.cluster.weak())?.0.saturating_sub(window);
        Some(SeqNum(least.div_ceil(self.interval).saturating_mul(self.interval)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::rng::Rng;

    const K: u64 = 4;
    const L: u64 = 8;

    fn noted(answers: &[(u16, u64, u64)]) -> Estimate {
        let mut e = Estimate::new(Cluster::tolerating(1).unwrap(), K, ReplicaId(0));
        for (from, c, p) in answers {
            e.note(ReplicaId(*from), SeqNum(*c), SeqNum(*p));
        }
        e
    }

    fn estimate(answers: &[(u16, u64, u64)]) -> Option<u64> {
        noted(answers).result().map(|seq| seq.0)
    }

    #[test]
    fn correct_replicas_agree_on_a_bound() {
        assert_eq!(estimate(&[(1, 8, 9), (2, 8, 10), (3, 4, 9)]), Some(8));
        assert_eq!(estimate(&[(1, 8, 9), (2, 8, 10)]), Some(8));
        assert_eq!(estimate(&[(1, 8, 9)]), None);
    }

    /// f Byzantine replicas cannot raise the limit: no other replica has prepared that far.
    #[test]
    fn a_liar_cannot_inflate_it() {
        assert_eq!(estimate(&[(1, 8, 9), (2, 8, 10), (3, 4000, 4000)]), Some(8));
        assert_eq!(estimate(&[(1, 8, 9), (3, 4000, 4000)]), None);
    }

    /// f Byzantine replicas cannot lower it below what a correct replica may have: a quorum must be at or below it.
    #[test]
    fn a_liar_cannot_deflate_it() {
        assert_eq!(estimate(&[(1, 8, 9), (2, 8, 10), (3, 0, 0)]), Some(8));
        assert_eq!(estimate(&[(1, 8, 9), (3, 0, 0)]), None);
    }

    /// "require c mod K = 0, c <= p", from members.
    #[test]
    fn nonsense_is_no_answer() {
        let mut e = noted(&[]);
        assert!(!e.note(ReplicaId(1), SeqNum(7), SeqNum(9)));
        assert!(!e.note(ReplicaId(1), SeqNum(8), SeqNum(7)));
        assert!(!e.note(ReplicaId(4), SeqNum(8), SeqNum(8)));
        assert!(e.note(ReplicaId(1), SeqNum(8), SeqNum(8)));
    }

    /// "keeps per replica the minimum c and maximum p seen".
    #[test]
    fn a_replica_has_one_voice_and_cannot_take_it_back() {
        assert_eq!(estimate(&[(1, 8, 9), (1, 8, 9), (1, 8, 9)]), None);
        assert_eq!(estimate(&[(1, 8, 9), (2, 8, 9), (2, 12, 20)]), Some(8));
        assert_eq!(estimate(&[(1, 8, 12), (2, 12, 16), (2, 8, 9), (3, 12, 16)]), Some(8));
    }

    /// RC-5: p* is the (f + 1)-th largest, which a correct replica has prepared.
    #[test]
    fn the_low_estimate_is_below_what_a_correct_replica_prepared() {
        let low = |answers: &[(u16, u64, u64)]| noted(answers).low(L).map(|seq| seq.0);
        assert_eq!(low(&[(1, 8, 14), (2, 8, 13), (3, 4000, 4000)]), Some(8), "14 - 8, rounded up to K");
        assert_eq!(low(&[(1, 8, 8), (2, 4, 7)]), Some(0));
        assert_eq!(low(&[(1, 8, 14)]), Some(0), "its own voice is the second");
        assert_eq!(low(&[(1, 8, 20), (1, 8, 9), (2, 8, 17)]), Some(12), "the maximum of each counts");
    }

    /// RC-4 against every kind of lie: `h' <= c_k` for each correct replica's stable h', a correct
    /// replica prepared `c_k`, and once all correct replicas have answered there is an estimate.
    #[test]
    fn no_correct_log_reaches_above_it() {
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let f = 1 + u16::try_from(rng.below(3)).unwrap();
            let cluster = Cluster::tolerating(f).unwrap();
            // The last stable checkpoint, which q - f correct replicas have taken; they go on from there.
            let stable = K * rng.below(5);
            let correct = cluster.n() - cluster.f();
            let mut own_stable = 0;
            let mut truth = std::vec::Vec::new();
            for i in 0..correct {
                let took = i < cluster.quorum() - cluster.f();
                let c = if took { stable + K * rng.below(2) } else { K * rng.below(stable / K + 1) };
                own_stable = own_stable.max(if took && rng.below(2) == 0 { stable } else { 0 });
                truth.push((c, (c + rng.below(L)).min(stable + L)));
            }
            // What is prepared somewhere was pre-prepared by a quorum; what was checkpointed, committed:
            // q - f correct replicas have prepared the highest checkpoint of all.
            let top = truth.iter().map(|(c, _)| *c).max().unwrap();
            for (_, p) in truth.iter_mut().take(cluster.quorum() - cluster.f()) {
                *p = (*p).max(top);
            }
            // Replica 0 estimates; the next f - 1 lie. Answers come in any order.
            let mut e = Estimate::new(cluster, K, ReplicaId(0));
            let mut answers: std::vec::Vec<(u16, u64, u64)> = (1..f)
                .map(|j| {
                    let c = K * rng.below(12);
                    (j, c, c + rng.below(40))
                })
                .collect();
            let f = usize::from(f);
            answers
                .extend(truth.iter().enumerate().map(|(i, (c, p))| (u16::try_from(f + i).unwrap(), *c, *p)));
            while !answers.is_empty() {
                let at = usize::try_from(rng.below(answers.len() as u64)).unwrap();
                let (from, c, p) = answers.swap_remove(at);
                e.note(ReplicaId(from), SeqNum(c), SeqNum(p));
                if let Some(c_k) = e.result() {
                    assert!(own_stable <= c_k.0, "{own_stable} {c_k:?} {truth:?}");
                    assert!(truth.iter().any(|(_, p)| *p >= c_k.0), "{c_k:?} {truth:?}");
                }
            }
            assert!(e.result().is_some(), "{truth:?} {e:?}");
        }
    }
}
