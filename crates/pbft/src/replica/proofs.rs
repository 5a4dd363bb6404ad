//! PROOFs: what a replica pre-prepared, if no available VIEW-CHANGE reports it (DP-4, A2 of [`crate::view::decision`]).
//!
//! They are signed. A replica that has entered a view keeps the PROOFs on which its NEW-VIEW depends, and sends them
//! to others. With a MAC for one receiver, a Byzantine replica could convince only the new primary, in one view after
//! the other; and a late replica would ask for what the others have long discarded.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::codec::Writer;
use quorate_wire::id::{ReplicaId, SeqNum, ViewNum};
use quorate_wire::message::{Kind, NewView, ProofMessage, Status, Want};
use quorate_wire::{Digest, Signed};

use crate::io::step::{Actions, Lsn, Now, Recipient, Reject};
use crate::order::votes::bit;
use crate::replica::Replica;
use crate::view::decision::{self, Verdict, ViewChangeOf};

/// A PROOF with its signature.
type Shown = Arc<Signed<ProofMessage>>;

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
    fn supporting(&self, want: &Want) -> impl Iterator<Item = &Shown> + use<'_> {
        let view = want.view;
        let of = self.by_claim.get(&(want.seq, want.digest)).into_iter().flat_map(BTreeMap::values);
        of.filter(move |proof| proof.body().view >= view)
    }

    /// Keeps a PROOF unless there is a newer one of its sender, or no room: `max` numbers and digests.
    fn keep(&mut self, proof: &Shown, max: usize) -> bool {
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

impl Replica {
    /// Returns the replicas known to have pre-prepared `digest` at `seq` in `view` or later: by PROOF,
    /// or because it is this one (DP-4).
    pub(crate) fn proven_by(&self, seq: SeqNum, digest: &Digest, view: ViewNum) -> u64 {
        let want = Want { seq, digest: *digest, view };
        let told = self.views.proofs.supporting(&want).fold(0, |set, proof| set | bit(proof.sender()));
        told | if self.claimed_in(&want).is_some() { bit(self.id) } else { 0 }
    }

    /// Returns the newest view in which this replica pre-prepared what is wanted, if it did.
    fn claimed_in(&self, want: &Want) -> Option<ViewNum> {
        let claims = &self.log.get(want.seq)?.claims;
        claims.iter().find(|(d, u)| *d == want.digest && *u >= want.view).map(|(_, view)| *view)
    }

    /// Returns this replica's own PROOF for what is wanted, if it can give one. What it claims was durable before it
    /// was said.
    fn own_proof(&mut self, want: &Want) -> Option<Shown> {
        let view = self.claimed_in(want)?;
        let known = self.views.proofs.supporting(want).find(|proof| proof.sender() == self.id).cloned();
        if let Some(known) = known.filter(|known| known.body().view == view) {
            return Some(known);
        }
        let message = ProofMessage { seq: want.seq, digest: want.digest, view };
        let mut body = Vec::new();
        message.encode(&mut Writer::new(&mut body));
        let signed = Signed::sign(&self.signer, &self.domains, Kind::Proof, 0, self.id, message, &body);
        let signed = Arc::new(signed);
        self.views.proofs.keep(&signed, self.proofs_max());
        Some(signed)
    }

    /// Returns the PROOFs that a NEW-VIEW depends on in addition to the VIEW-CHANGEs that it names: all that support
    /// a choice for which those contain too few claims (A2).
    pub(crate) fn evidence_for(&mut self, v: &[ViewChangeOf<'_>], new_view: &NewView) -> Vec<Shown> {
        let (k, window) = (self.config.checkpoint_interval, self.config.window);
        let alone = decision::check(self.cluster, k, window, self.null_digest, v, |_, _, _| 0, new_view);
        let Verdict::Missing { wants } = alone else { return Vec::new() };
        let mut evidence = Vec::new();
        for want in &wants {
            self.own_proof(want);
            evidence.extend(self.views.proofs.supporting(want).cloned());
        }
        evidence
    }

    /// Keeps what STATUS will ask for (DP-4).
    pub(crate) fn ask_for_proofs(&mut self, now: Now, wants: Vec<Want>, out: &mut Actions) {
        if wants != self.views.wants {
            self.views.wants = wants;
            self.status_soon(now, out);
        }
    }

    /// Room for everything that all replicas may claim.
    fn proofs_max(&self) -> usize {
        usize::try_from(self.config.window).unwrap_or(usize::MAX) * self.cluster.n()
    }

    /// A replica claims that it pre-prepared a batch. Its signature has been verified, independent of the sender.
    /// Only requested PROOFs are kept.
    pub(crate) fn on_proof(&mut self, now: Now, proof: &Shown, out: &mut Actions) {
        let m = proof.body();
        let asked =
            self.views.wants.iter().any(|w| w.seq == m.seq && w.digest == m.digest && w.view <= m.view);
        let max = self.proofs_max();
        if !asked || !self.cluster.contains(proof.sender()) || !self.views.proofs.keep(proof, max) {
            return out.reject(Reject::Unwanted);
        }
        self.try_new_view(now, out);
    }

    /// Sends a peer the PROOFs that it wants: this replica's own, and those of others that this view rests on.
    pub(crate) fn send_proofs(&mut self, now: Now, to: ReplicaId, m: &Status<'_>, out: &mut Actions) {
        for want in &m.wants {
            let mut shown: Vec<Shown> = self.own_proof(want).into_iter().collect();
            let entered = self.views.entered.iter().flat_map(|candidate| &candidate.proofs);
            shown.extend(entered.filter(|proof| supports(proof.body(), want)).cloned());
            shown.extend(self.views.proofs.supporting(want).cloned());
            shown.sort_by_key(|proof| (proof.sender(), proof.digest()));
            shown.dedup_by_key(|proof| (proof.sender(), proof.digest()));
            self.show(now, to, &shown, out);
        }
    }

    /// Sends PROOFs to one replica, as far as there is room for what is sent again.
    pub(crate) fn show(&mut self, now: Now, to: ReplicaId, proofs: &[Shown], out: &mut Actions) {
        for proof in proofs {
            if !self.peers.allow(to, now.mono_ns, proof.frame().len(), &self.config) {
                return;
            }
            out.forward(Recipient::Replica(to), Kind::Proof, Lsn(0), proof.frame());
        }
    }
}

/// Says whether a PROOF is one of those that are wanted.
fn supports(m: &ProofMessage, want: &Want) -> bool {
    m.seq == want.seq && m.digest == want.digest && m.view >= want.view
}
