//! How far the log of any correct replica can reach: the estimation of a replica that has lost its
//! memory (RC-4), [TOCS02].

use alloc::vec::Vec;

use quorate_wire::Cluster;
use quorate_wire::id::{ReplicaId, SeqNum};

/// What each replica has said: the smallest checkpoint and the largest prepared number. At most one
/// entry a replica.
#[derive(Debug)]
pub struct Estimate {
    cluster: Cluster,
    interval: u64,
    said: Vec<Option<(SeqNum, SeqNum)>>,
}

impl Estimate {
    /// Returns an estimate in which `own`, who has forgotten everything, says nothing is stable or
    /// prepared.
    pub fn new(cluster: Cluster, interval: u64, own: ReplicaId) -> Self {
        let mut said = alloc::vec![None; cluster.n()];
        if let Some(entry) = said.get_mut(own.index()) {
            *entry = Some((SeqNum(0), SeqNum(0)));
        }
        Self { cluster, interval, said }
    }

    /// Takes an answer: "keeps per replica the minimum c and maximum p seen". One that breaks
    /// `c mod K = 0` or `c <= p` is no answer. Says whether it was one.
    pub fn note(&mut self, from: ReplicaId, checkpoint: SeqNum, prepared: SeqNum) -> bool {
        if !checkpoint.0.is_multiple_of(self.interval) || checkpoint > prepared {
            return false;
        }
        let Some(entry) = self.said.get_mut(from.index()) else { return false };
        let (c, p) = entry.unwrap_or((checkpoint, prepared));
        *entry = Some((c.min(checkpoint), p.max(prepared)));
        true
    }

    /// Returns `c_k` of a replica `k` with `|{j != k : c_j <= c_k}| >= q - 1` and
    /// `|{j != k : p_j >= c_k}| >= f`: no correct log reaches above `c_k + L`, and a correct replica
    /// prepared `c_k`, so liars cannot inflate it.
    pub fn result(&self) -> Option<SeqNum> {
        let others =
            |k: usize| self.said.iter().enumerate().filter(move |(j, _)| *j != k).filter_map(|(_, e)| *e);
        let holds = |k: usize, c_k: SeqNum| {
            others(k).filter(|(c, _)| *c <= c_k).count() >= self.cluster.quorum() - 1
                && others(k).filter(|(_, p)| *p >= c_k).count() >= self.cluster.f()
        };
        let candidates = self.said.iter().enumerate().filter_map(|(k, e)| e.map(|(c, _)| (k, c)));
        candidates.filter(|(k, c)| holds(*k, *c)).map(|(_, c)| c).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(answers: &[(u16, u64, u64)]) -> Option<SeqNum> {
        let mut e = Estimate::new(Cluster::tolerating(1).unwrap(), 4, ReplicaId(0));
        for (from, c, p) in answers {
            e.note(ReplicaId(*from), SeqNum(*c), SeqNum(*p));
        }
        e.result()
    }

    #[test]
    fn correct_replicas_agree_on_a_bound() {
        assert_eq!(estimate(&[(1, 8, 9), (2, 8, 10), (3, 4, 9)]), Some(SeqNum(8)));
        assert_eq!(estimate(&[(1, 8, 9), (2, 8, 10)]), Some(SeqNum(8)));
        assert_eq!(estimate(&[(1, 8, 9)]), None);
    }

    /// f liars cannot push the bound up: nobody else has prepared that far.
    #[test]
    fn a_liar_cannot_inflate_it() {
        assert_eq!(estimate(&[(1, 8, 9), (2, 8, 10), (3, 4000, 4000)]), Some(SeqNum(8)));
    }

    /// f liars cannot pull it below what a correct replica may have: a quorum must be at or below it.
    #[test]
    fn a_liar_cannot_deflate_it() {
        assert_eq!(estimate(&[(1, 8, 9), (2, 8, 10), (3, 0, 0)]), Some(SeqNum(8)));
        assert_eq!(estimate(&[(1, 8, 9), (3, 0, 0)]), None);
    }

    #[test]
    fn nonsense_is_no_answer() {
        assert_eq!(estimate(&[(1, 7, 9), (2, 8, 4), (3, 8, 8)]), None);
    }
}
