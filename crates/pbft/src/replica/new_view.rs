//! The NEW-VIEW: made by the new primary, examined by the backups, entered by all [OSDI99 §4.4],
//! spec §11.5-11.8. What it must say is decided by the pure functions of [`crate::view::decision`].

use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::codec::Writer;
use quorate_wire::id::{ReplicaId, SeqNum, ViewNum};
use quorate_wire::message::{Kind, NewView, ProofMessage, SuspectReason, VcFetch, ViewChange, Want};
use quorate_wire::{Digest, Signed};

use crate::io::record::Record;
use crate::io::step::{Actions, Lsn, Milestone, Now, Recipient, Reject};
use crate::order::votes::bit;
use crate::recovery::lives::Counts;
use crate::replica::Replica;
use crate::view::candidate::Candidate;
use crate::view::decision::{self, Decision, Verdict, ViewChangeOf};
use crate::view::proofs::Shown;

impl Replica {
    /// As the primary of the view that is to begin: decides, if S allows it (§11.6). Otherwise, looks
    /// again at a NEW-VIEW that waits for what has come.
    pub(super) fn try_new_view(&mut self, now: Now, out: &mut Actions) {
        if self.is_normal() {
            return;
        }
        if !self.is_primary() || self.recovery.forbids_leading(self.views.view()) {
            return self.examine_new_views(now, out);
        }
        let view = self.views.view();
        let s: Vec<Arc<Signed<ViewChange>>> =
            self.evidence.received().filter(|m| m.body().view == view).cloned().collect();
        // RC-11b; and those by which it may vote (RC-11a), so that it need not wait for itself.
        let counts = |m: &Arc<Signed<ViewChange>>| {
            let (from, body) = (m.sender(), m.body());
            let votes = self.may_vote_after(core::iter::once((from, body)));
            self.counts_now(from, body).max(votes) == Counts::Yes
        };
        let s: Vec<Arc<Signed<ViewChange>>> = s.into_iter().filter(counts).collect();
        let (k, window) = (self.config.checkpoint_interval, self.config.window);
        let valid: Vec<ViewChangeOf<'_>> = s
            .iter()
            .filter_map(|m| ViewChangeOf::new(self.cluster, k, window, m.sender(), m.body()).ok())
            .collect();
        let decision = decision::decide(
            self.cluster,
            window,
            self.null_digest,
            &valid,
            |seq, digest, view| self.proven_by(seq, digest, view),
            |digest| self.has_batch(digest),
        );
        match decision {
            // Its NEW-VIEW counts as its vote for all that it takes over, and what it may not vote for (I8) it could
            // not claim in the next view change: less than f + 1 correct replicas could, and A2 might fail
            // forever (DP-5). So it first reaches the checkpoint that the decision starts from.
            Decision::Complete { checkpoint, chosen }
                if mutant!(M78, checkpoint.0.plus(number(chosen.len())) > self.log.high(), false) =>
            {
                self.set_goal(now, checkpoint, out);
                self.peers.send_soon(now, out);
            }
            Decision::Complete { checkpoint, chosen } => {
                let view_changes = s.iter().map(|m| (m.sender(), m.digest())).collect();
                let body = NewView { view, life: self.own_life(), view_changes, checkpoint, chosen };
                let proofs = self.evidence_for(&valid, &body);
                self.send_new_view(now, body, &s, proofs, out);
            }
            Decision::Waiting { batches, wants, .. } => {
                for digest in batches {
                    self.want_batches(now, SeqNum(0), &[digest], out);
                }
                self.ask_for_proofs(now, wants, out);
            }
        }
    }

    /// "it multicasts a NEW-VIEW message to all other replicas" [OSDI99 §4.4]. Once, and persisted
    /// first: two different ones for one view would be equivocation (I7).
    fn send_new_view(
        &mut self,
        now: Now,
        body: NewView,
        named: &[Arc<Signed<ViewChange>>],
        proofs: Vec<Arc<Signed<ProofMessage>>>,
        out: &mut Actions,
    ) {
        let view = body.view;
        let mut bytes = Vec::new();
        body.encode(&mut Writer::new(&mut bytes));
        let message =
            Arc::new(Signed::sign(&self.signer, &self.domains, Kind::NewView, 0, self.id, body, &bytes));
        out.report(Milestone::NewViewMade { view });
        let own = Candidate::whole(message, named.to_vec(), proofs);
        let mut after = self.persist_new_view(&own, out);
        // It counts as its maker's vote for all that it takes over: Q has each of these before anyone hears of it
        // (D1), or a maker that starts again could not claim what the others prepared with its vote.
        let mut seq = own.message().body().checkpoint.0;
        for digest in &own.message().body().chosen {
            seq = seq.next();
            if self.log.holds(seq) && !self.recovery.forbids(seq) {
                after = after.max(self.record_vote(view, seq, *digest, out));
            }
        }
        out.forward(Recipient::All, Kind::NewView, after, own.message().frame());
        // What it counted and the VIEW-CHANGEs do not show, so that the others can count it, too (DP-4).
        for proof in own.proofs().iter().filter(|_| mutant!(M68, true, false)) {
            out.forward(Recipient::All, Kind::Proof, after, proof.frame());
        }
        self.enter_view(now, &own, after, out);
    }

    fn persist_new_view(&mut self, candidate: &Candidate, out: &mut Actions) -> Lsn {
        let mut frames = Vec::new();
        let mut w = Writer::new(&mut frames);
        w.blob(candidate.message().frame());
        for m in candidate.named() {
            w.blob(m.frame());
        }
        for proof in candidate.proofs() {
            w.blob(proof.frame());
        }
        self.promises.persist(Record::NewView { view: candidate.view(), frames: &frames }, out)
    }

    /// A NEW-VIEW, its signature already verified: "A backup accepts a new-view message for view
    /// v+1 if it is signed properly, if the view-change messages it contains are valid for view v+1,
    /// and if the set O is correct" [OSDI99 §4.4].
    #[cold]
    pub(super) fn on_new_view(&mut self, now: Now, m: &Arc<Signed<NewView>>, out: &mut Actions) {
        let view = m.body().view;
        // VV-1: from that view's primary, for this view or a later one.
        if m.sender() != self.cluster.primary(view) {
            return out.reject(Reject::NotFromPrimary);
        }
        let done = view < self.views.view() || (view == self.views.view() && self.is_normal());
        if done || m.sender() == self.id {
            return out.reject(Reject::OtherView);
        }
        let (k, window) = (self.config.checkpoint_interval, self.config.window);
        if decision::well_formed_new_view(self.cluster, k, window, m.body()).is_err() {
            out.reject(Reject::BadNewView);
            return self.suspect_new_view(now, view, out);
        }
        let set = match self.evidence.consider(m) {
            Ok(missing) => missing,
            Err(refused) => return Self::refuse(m.sender(), refused, out),
        };
        // VV-2: the primary has them all; fetch what is missing at once.
        if set != 0 {
            let to = Recipient::Replica(m.sender());
            out.send(to, Kind::VcFetch, Lsn(0), |w| VcFetch { view, set }.encode(w));
        }
        self.examine_new_views(now, out);
    }

    /// Checks each NEW-VIEW at hand of which every VIEW-CHANGE that it names is here (VV-2, VV-3).
    pub(super) fn examine_new_views(&mut self, now: Now, out: &mut Actions) {
        for from in self.cluster.replicas() {
            let (view, waits) = (self.views.view(), !self.is_normal());
            let complete = self.evidence.complete(from);
            let needed = complete.filter(|c| c.view() > view || (c.view() == view && waits));
            if let Some(candidate) = needed.cloned() {
                self.examine(now, from, &candidate, out);
            }
        }
    }

    fn examine(&mut self, now: Now, from: ReplicaId, candidate: &Candidate, out: &mut Actions) {
        let (k, window) = (self.config.checkpoint_interval, self.config.window);
        let counts = crate::recovery::lives::all_count(candidate.members(), &self.lives.newest());
        match mutant!(M17, counts, Counts::Yes) {
            Counts::Yes => {}
            Counts::NotYet => return,
            // RC-11b. Its primary need not have known, so nobody is accused.
            Counts::NoMore => {
                out.reject(Reject::EndedLife);
                self.evidence.dismiss(from);
                if candidate.view() == self.views.view() && !self.is_normal() {
                    self.suspect(now, SuspectReason::Timeout, out);
                }
                return;
            }
        }
        let of = candidate.named();
        let of = of.map(|m| ViewChangeOf::new(self.cluster, k, window, m.sender(), m.body()));
        // One that breaks a rule of form never gets here: `on_view_change` turns it away.
        let Ok(v) = of.collect::<Result<Vec<_>, _>>() else { return };
        let verdict = decision::check(
            self.cluster,
            k,
            window,
            self.null_digest,
            &v,
            |seq, digest, view| self.proven_by(seq, digest, view),
            candidate.message().body(),
        );
        match mutant!(M38, verdict, Verdict::Valid) {
            Verdict::Valid => {
                let proofs = self.evidence_for(&v, candidate.message().body());
                let candidate = candidate.with_proofs(proofs);
                let after = self.persist_new_view(&candidate, out);
                self.enter_view(now, &candidate, after, out);
            }
            Verdict::Missing { wants } => self.ask_for_proofs(now, wants, out),
            Verdict::Invalid(_) => {
                out.reject(Reject::BadNewView);
                self.evidence.dismiss(from);
                self.suspect_new_view(now, candidate.view(), out);
            }
        }
    }

    /// VV-4: what no further message can repair proves the primary faulty; do not wait for the timer.
    fn suspect_new_view(&mut self, now: Now, view: ViewNum, out: &mut Actions) {
        if view == self.views.view() && !self.is_normal() {
            self.suspect(now, SuspectReason::BadNewView, out);
        }
    }

    fn has_batch(&self, digest: &Digest) -> bool {
        let here = self.log.iter().find_map(|slot| slot.batch(digest)).or_else(|| self.bodies.batch(digest));
        here.is_some_and(|batch| batch.is_complete())
    }

    /// Returns the replicas known to have pre-prepared `digest` at `seq` in `view` or later: by PROOF,
    /// or because it is this one (DP-4).
    fn proven_by(&self, seq: SeqNum, digest: &Digest, view: ViewNum) -> u64 {
        let want = Want { seq, digest: *digest, view };
        let told = self.evidence.supporting(&want).fold(0, |set, proof| set | bit(proof.sender()));
        told | if self.claimed_in(&want).is_some() { bit(self.id) } else { 0 }
    }

    /// Returns the newest view in which this replica pre-prepared what is wanted, if it did.
    fn claimed_in(&self, want: &Want) -> Option<ViewNum> {
        let claims = self.log.get(want.seq)?.claims();
        claims.iter().find(|(d, u)| *d == want.digest && *u >= want.view).map(|(_, view)| *view)
    }

    /// Returns this replica's own PROOF for what is wanted, if it can give one. What it claims was durable before it
    /// was said.
    pub(super) fn own_proof(&mut self, want: &Want) -> Option<Shown> {
        let view = self.claimed_in(want)?;
        let known = self.evidence.supporting(want).find(|proof| proof.sender() == self.id).cloned();
        if let Some(known) = known.filter(|known| known.body().view == view) {
            return Some(known);
        }
        let message = ProofMessage { seq: want.seq, digest: want.digest, view };
        let mut body = Vec::new();
        message.encode(&mut Writer::new(&mut body));
        let signed = Signed::sign(&self.signer, &self.domains, Kind::Proof, 0, self.id, message, &body);
        let signed = Arc::new(signed);
        self.evidence.prove(&signed, self.proofs_max());
        Some(signed)
    }

    /// Returns the PROOFs that a NEW-VIEW depends on in addition to the VIEW-CHANGEs that it names: all that support
    /// a choice for which those contain too few claims (A2).
    fn evidence_for(&mut self, v: &[ViewChangeOf<'_>], new_view: &NewView) -> Vec<Shown> {
        let (k, window) = (self.config.checkpoint_interval, self.config.window);
        let alone = decision::check(self.cluster, k, window, self.null_digest, v, |_, _, _| 0, new_view);
        let Verdict::Missing { wants } = alone else { return Vec::new() };
        let mut evidence = Vec::new();
        for want in &wants {
            self.own_proof(want);
            evidence.extend(self.evidence.supporting(want).cloned());
        }
        evidence
    }

    /// Keeps what STATUS will ask for (DP-4).
    fn ask_for_proofs(&mut self, now: Now, wants: Vec<Want>, out: &mut Actions) {
        if self.evidence.want(wants) {
            self.peers.send_soon(now, out);
        }
    }

    /// Room for everything that all replicas may claim.
    fn proofs_max(&self) -> usize {
        usize::try_from(self.config.window).unwrap_or(usize::MAX) * self.cluster.n()
    }

    /// A replica claims that it pre-prepared a batch. Its signature has been verified, independent of the sender.
    /// Only requested PROOFs are kept.
    #[cold]
    pub(super) fn on_proof(&mut self, now: Now, proof: &Shown, out: &mut Actions) {
        let m = proof.body();
        let asked =
            self.evidence.wants().iter().any(|w| w.seq == m.seq && w.digest == m.digest && w.view <= m.view);
        let max = self.proofs_max();
        if !asked || !self.cluster.contains(proof.sender()) || !self.evidence.prove(proof, max) {
            return out.reject(Reject::Unwanted);
        }
        self.try_new_view(now, out);
    }
}

fn number(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
