//! PROOFs: what a replica pre-prepared, if no available VIEW-CHANGE reports it (DP-4, A2 of [`crate::view::decision`]).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use quorate_wire::id::{ReplicaId, SeqNum};
use quorate_wire::message::{ProofMessage, Want};
use quorate_wire::{Digest, Signed};

/// A PROOF with its signature.
pub(crate) type Shown = Arc<Signed<ProofMessage>>;

/// PROOFs that were asked for, by number and digest: the newest of each replica. At most one number and digest for
/// each that all replicas may claim.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    by_claim: BTreeMap<(SeqNum, Digest), BTreeMap<ReplicaId, Shown>>,
}

impl Proofs {
    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.by_claim.clear();
    }

    /// Forgets those about numbers up to a stable checkpoint.
    pub(crate) fn collect(&mut self, stable: SeqNum) {
        self.by_claim.retain(|(seq, _), _| *seq > stable);
    }

    /// Returns those that support a claim: for this digest at this number, in that view or later.
    pub(crate) fn supporting(&self, want: &Want) -> impl Iterator<Item = &Shown> + use<'_> {
        let view = want.view;
        let of = self.by_claim.get(&(want.seq, want.digest)).into_iter().flat_map(BTreeMap::values);
        of.filter(move |proof| proof.body().view >= view)
    }

    /// Keeps a PROOF unless there is a newer one of its sender, or no room: `max` numbers and digests.
    pub(crate) fn keep(&mut self, proof: &Shown, max: usize) -> bool {
        let m = proof.body();
        let claim = (m.seq, m.digest);
        if self.by_claim.len() >= max && !self.by_claim.contains_key(&claim) {
            return false;
        }
        let of = self.by_claim.entry(claim).or_default();
        let newer = of.get(&proof.sender()).is_none_or(|known| known.body().view < m.view);
        if newer {
            of.insert(proof.sender(), proof.clone());
        }
        newer
    }
}
