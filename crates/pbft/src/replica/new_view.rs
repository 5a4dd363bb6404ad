//! The NEW-VIEW: made by the new primary, examined by the backups, entered by all [OSDI99 §4.4],
//! spec §11.5-11.8. What it must say is decided by the pure functions of [`crate::view::decision`].

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::codec::Writer;
use quorate_wire::id::{ReplicaId, SeqNum, ViewNum};
use quorate_wire::message::{Kind, NewView, ProofMessage, SuspectReason, VcFetch, ViewChange};
use quorate_wire::{Batch, Digest, Signed};

use crate::io::record::Record;
use crate::io::step::{Action, Actions, Lsn, Milestone, Now, Recipient, Reject, Timer};
use crate::order::log::Proposal;
use crate::order::votes::bit;
use crate::recovery::lives::Counts;
use crate::replica::{Replica, Status};
use crate::view::candidate::Candidate;
use crate::view::decision::{self, Decision, Verdict, ViewChangeOf};

impl Replica {
    /// As the primary of the view that is to begin: decides, if S allows it (§11.6). Otherwise, looks
    /// again at a NEW-VIEW that waits for what has come.
    pub(crate) fn try_new_view(&mut self, now: Now, out: &mut Actions) {
        if self.status != Status::ViewChange {
            return;
        }
        if !self.is_primary() || self.recovery.forbids_leading(self.view) {
            return self.examine_new_views(now, out);
        }
        let view = self.view;
        let s: Vec<Arc<Signed<ViewChange>>> =
            self.views.received.iter().flatten().filter(|m| m.body().view == view).cloned().collect();
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
                self.status_soon(now, out);
            }
            Decision::Complete { checkpoint, chosen } => {
                let view_changes = s.iter().map(|m| (m.sender(), m.digest())).collect();
                let body = NewView { view, life: self.own_life(), view_changes, checkpoint, chosen };
                let proofs = self.evidence_for(&valid, &body);
                self.send_new_view(now, body, &s, proofs, out);
            }
            Decision::Waiting { batches, wants, .. } => {
                for digest in batches {
                    self.want_batch(now, digest, out);
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
        let own = Candidate { message, named: named.iter().cloned().map(Some).collect(), proofs };
        let mut after = self.persist_new_view(&own, out);
        // It counts as its maker's vote for all that it takes over: Q has each of these before anyone hears of it
        // (D1), or a maker that starts again could not claim what the others prepared with its vote.
        let mut seq = own.message.body().checkpoint.0;
        for digest in &own.message.body().chosen {
            seq = seq.next();
            if self.log.holds(seq) && !self.recovery.forbids(seq) {
                after = after.max(self.record_vote(view, seq, *digest, out));
            }
        }
        out.forward(Recipient::All, Kind::NewView, after, own.message.frame());
        // What it counted and the VIEW-CHANGEs do not show, so that the others can count it, too (DP-4).
        for proof in own.proofs.iter().filter(|_| mutant!(M68, true, false)) {
            out.forward(Recipient::All, Kind::Proof, after, proof.frame());
        }
        self.enter_view(now, &own, out);
    }

    fn persist_new_view(&mut self, candidate: &Candidate, out: &mut Actions) -> Lsn {
        let mut frames = Vec::new();
        let mut w = Writer::new(&mut frames);
        w.blob(candidate.message.frame());
        for m in candidate.named.iter().flatten() {
            w.blob(m.frame());
        }
        for proof in &candidate.proofs {
            w.blob(proof.frame());
        }
        self.persist(Record::NewView { view: candidate.view(), frames: &frames }, out)
    }

    /// A NEW-VIEW, its signature already verified: "A backup accepts a new-view message for view
    /// v+1 if it is signed properly, if the view-change messages it contains are valid for view v+1,
    /// and if the set O is correct" [OSDI99 §4.4].
    pub(crate) fn on_new_view(&mut self, now: Now, m: &Arc<Signed<NewView>>, out: &mut Actions) {
        let view = m.body().view;
        // VV-1: from that view's primary, for this view or a later one.
        if m.sender() != self.cluster.primary(view) {
            return out.reject(Reject::NotFromPrimary);
        }
        let done = view < self.view || (view == self.view && self.is_normal());
        if done || m.sender() == self.id {
            return out.reject(Reject::OtherView);
        }
        let (k, window) = (self.config.checkpoint_interval, self.config.window);
        if decision::well_formed_new_view(self.cluster, k, window, m.body()).is_err() {
            out.reject(Reject::BadNewView);
            return self.suspect_new_view(now, view, out);
        }
        let Some(place) = self.views.candidates.get_mut(m.sender().index()) else { return };
        if let Some(known) = place.as_ref().filter(|c| c.view() >= view) {
            let second = known.view() == view && known.message.digest() != m.digest();
            // RC-11c: one for each life of its sender.
            let newer = second && known.message.body().life < m.body().life;
            if second && known.message.body().life == m.body().life {
                out.report(Milestone::Equivocation { by: m.sender() });
            }
            if !newer {
                return out.reject(if second { Reject::SecondVersion } else { Reject::Duplicate });
            }
        }
        let mut candidate = Candidate::new(m.clone());
        for known in self.views.received.iter().flatten() {
            candidate.supply(known);
        }
        // VV-2: the primary has them all; fetch what is missing at once.
        let set = candidate.missing();
        *place = Some(candidate);
        if set != 0 {
            let to = Recipient::Replica(m.sender());
            out.send(to, Kind::VcFetch, Lsn(0), |w| VcFetch { view, set }.encode(w));
        }
        self.examine_new_views(now, out);
    }

    /// Checks each NEW-VIEW at hand of which every VIEW-CHANGE that it names is here (VV-2, VV-3).
    pub(crate) fn examine_new_views(&mut self, now: Now, out: &mut Actions) {
        for index in 0..self.views.candidates.len() {
            let complete =
                self.views.candidates.get(index).and_then(Option::as_ref).filter(|c| c.missing() == 0);
            let needed =
                complete.filter(|c| c.view() > self.view || (c.view() == self.view && !self.is_normal()));
            if let Some(candidate) = needed.cloned() {
                self.examine(now, index, &candidate, out);
            }
        }
    }

    fn examine(&mut self, now: Now, index: usize, candidate: &Candidate, out: &mut Actions) {
        let (k, window) = (self.config.checkpoint_interval, self.config.window);
        let counts = crate::recovery::lives::all_count(candidate.members(), &self.lives.newest());
        match mutant!(M17, counts, Counts::Yes) {
            Counts::Yes => {}
            Counts::NotYet => return,
            // RC-11b. Its primary need not have known, so nobody is accused.
            Counts::NoMore => {
                out.reject(Reject::EndedLife);
                if let Some(place) = self.views.candidates.get_mut(index) {
                    *place = None;
                }
                if candidate.view() == self.view && !self.is_normal() {
                    self.suspect(now, SuspectReason::Timeout, out);
                }
                return;
            }
        }
        let of = candidate.named.iter().flatten();
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
            candidate.message.body(),
        );
        match mutant!(M38, verdict, Verdict::Valid) {
            Verdict::Valid => {
                let proofs = self.evidence_for(&v, candidate.message.body());
                let candidate = Candidate { proofs, ..candidate.clone() };
                self.persist_new_view(&candidate, out);
                self.enter_view(now, &candidate, out);
            }
            Verdict::Missing { wants } => self.ask_for_proofs(now, wants, out),
            Verdict::Invalid(_) => {
                out.reject(Reject::BadNewView);
                if let Some(place) = self.views.candidates.get_mut(index) {
                    *place = None;
                }
                self.suspect_new_view(now, candidate.view(), out);
            }
        }
    }

    /// VV-4: what no further message can repair proves the primary faulty; do not wait for the timer.
    fn suspect_new_view(&mut self, now: Now, view: ViewNum, out: &mut Actions) {
        if view == self.view && !self.is_normal() {
            self.suspect(now, SuspectReason::BadNewView, out);
        }
    }

    fn has_batch(&self, digest: &Digest) -> bool {
        let here = self.log.iter().find_map(|slot| slot.batch(digest)).or_else(|| self.bodies.batch(digest));
        here.is_some_and(|batch| batch.is_complete())
    }

    /// Sends VIEW-CHANGEs that a peer lacks, as they came: anyone can verify them (SM-4).
    pub(crate) fn on_vc_fetch(&mut self, now: Now, from: ReplicaId, m: &VcFetch, out: &mut Actions) {
        self.send_view_changes(now, from, m.view, m.set, out);
    }

    /// Sends the VIEW-CHANGEs for `view` of the replicas in `set`.
    pub(crate) fn send_view_changes(
        &mut self,
        now: Now,
        to: ReplicaId,
        view: ViewNum,
        set: u64,
        out: &mut Actions,
    ) {
        let known = self.views.candidates.iter().flatten().chain(&self.views.entered);
        let named = known.filter(|c| c.view() == view).flat_map(|c| c.named.iter().flatten());
        let received = self.views.received.iter().flatten().filter(|m| m.body().view == view);
        let mut messages: Vec<Arc<Signed<ViewChange>>> =
            named.chain(received).filter(|m| set & bit(m.sender()) != 0).cloned().collect();
        messages.sort_by_key(|m| (m.sender(), m.digest()));
        messages.dedup_by_key(|m| (m.sender(), m.digest()));
        for m in messages {
            if !self.peers.allow(to, now.mono_ns, m.frame().len(), &self.config) {
                return out.reject(Reject::TooSoon);
            }
            let after = if m.sender() == self.id { self.last_lsn() } else { Lsn(0) };
            out.forward(Recipient::Replica(to), Kind::ViewChange, after, m.frame());
        }
    }

    /// "Then it enters view v+1: at this point it is able to accept messages for view v+1"
    /// [OSDI99 §4.4]; spec §11.8, in its order.
    fn enter_view(&mut self, now: Now, candidate: &Candidate, out: &mut Actions) {
        self.views.entered = Some(candidate.clone());
        let body = candidate.message.body();
        self.stop_normal_operation(out);
        let requeued = self.proposals_to_requeue(body);
        // What it takes over is at hand until it is voted for, wherever it was kept (DP-7, L9).
        let held = self.batches_of(&body.chosen);
        self.view = body.view;
        self.status = Status::Normal;
        self.log.start_view(body.view, self.cluster.f() + 2);
        self.judge_view();
        self.lookup.clear();
        self.drop_old_votes();
        self.watch.start_view(body.last());
        // 1. Where it starts. Never lower last_exec or h because n* is lower (A25).
        let (start, root) = body.checkpoint;
        self.log.set_low(start);
        self.views.last_fixed = body.last();
        // RO-4: no reads before what the view took over has been executed.
        // What only prepared in an earlier life, and is not among it, was shown to nobody as a whole.
        self.reads.floor = self.reads.shown.max(body.last());
        self.batcher.clear();
        self.batcher.assigned = self.log.low().max(body.last());
        self.views.wants.clear();
        out.push(Action::StopTimer(Timer::NewView));
        out.report(Milestone::ViewEntered { view: body.view, last: body.last() });
        self.trust_stable_of(now, candidate, out);
        // 2. Vote for what it took over.
        self.adopt_chosen(now, body, &held, out);
        self.batcher.choice = mutant!(M69, self.latest_proposed_choice(), 0);
        mutant!(M45, (), self.exec.restart_at(start.max(self.log.stable())));
        if start > self.exec.executed {
            self.set_goal(now, (start, root), out);
        }
        self.say_checkpoints_again(out);
        // 4. Requests that wait: the primary proposes them, backups send them to it.
        self.requeue(now, requeued, out);
        self.try_execute(now, out);
        self.serve_reads(out);
        self.status_now(now, out);
    }

    /// h may rise to the (f+1)-th largest h in V, which a correct replica holds a proof for, where
    /// this replica's own state at it has the right root (§11.8.1, CK-2).
    fn trust_stable_of(&mut self, now: Now, candidate: &Candidate, out: &mut Actions) {
        let mut stable: Vec<SeqNum> = candidate.named.iter().flatten().map(|m| m.body().stable).collect();
        stable.sort_unstable();
        let Some(seq) = stable.iter().rev().nth(self.cluster.f()).copied() else { return };
        let Some(root) = self.checkpoints.own.get(&seq).copied() else { return };
        let says = |m: &Arc<Signed<ViewChange>>| m.body().checkpoints.contains(&(seq, root));
        let alike = candidate.named.iter().flatten().filter(|m| says(m)).count();
        if seq > self.log.stable() && alike >= self.cluster.weak() && self.exec.executed >= seq {
            self.make_stable(now, seq, root, out);
        }
    }

    /// Takes the chosen batches into the log and votes for them: "multicasts a prepare for each message
    /// in O to all the other replicas" [OSDI99 §4.4]. Also for numbers that are executed here already:
    /// "Replicas redo the protocol [...] but they avoid re-executing client requests".
    fn adopt_chosen(
        &mut self,
        now: Now,
        body: &NewView,
        held: &BTreeMap<Digest, Arc<Batch>>,
        out: &mut Actions,
    ) {
        let mut seq = body.checkpoint.0;
        for digest in &body.chosen {
            seq = seq.next();
            if self.log.admits(seq) {
                self.adopt(now, seq, *digest, held.get(digest), out);
            }
        }
    }

    fn adopt(&mut self, now: Now, seq: SeqNum, digest: Digest, held: Option<&Arc<Batch>>, out: &mut Actions) {
        let batch = match held.or_else(|| self.find_batch(seq, &digest)) {
            Some(batch) => Some(batch.clone()),
            None if digest == self.null_digest => Some(self.null_batch()),
            None => None,
        };
        if batch.is_none() {
            self.want_batch(now, digest, out);
        }
        let Some(slot) = self.log.get_mut(seq) else { return };
        if let Some(proposal) = &mut slot.proposal {
            // After a restart its vote may be known, and the batch not (L7).
            if proposal.batch.is_none() && proposal.digest == digest {
                proposal.batch = batch;
            }
            return;
        }
        // SR-4, ND-3: what a correct replica pre-prepared once is authentic, and its choice was checked.
        let authentic = mutant!(
            M39,
            true,
            batch.as_ref().is_none_or(|b| {
                crate::order::choice::check(now, b.choice(), self.last_choice, self.config.clock_skew_ns)
                    .is_ok()
            })
        );
        let incomplete = batch.as_ref().is_none_or(|b| !b.is_complete());
        slot.proposal = Some(Proposal { digest, batch, authentic, since: now.mono_ns });
        out.report(Milestone::PrePrepared { seq, digest });
        self.watch.note_accepted(seq, self.exec.executed, now.mono_ns);
        if incomplete {
            self.seek_bodies(now, out);
        }
        self.advance(now, seq, out);
    }

    /// Votes for chosen numbers that were above the window when the view was entered (§11.8.2).
    pub(crate) fn adopt_rest_of_new_view(&mut self, now: Now, out: &mut Actions) {
        let Some(candidate) = self.views.entered.as_ref().filter(|c| c.view() == self.view) else { return };
        if self.is_normal() && self.views.last_fixed > self.log.stable() {
            let message = candidate.message.clone();
            let held = self.batches_of(&message.body().chosen);
            self.adopt_chosen(now, message.body(), &held, out);
        }
    }

    /// Returns those of these batches that are here, wherever they are kept.
    fn batches_of(&self, chosen: &[Digest]) -> BTreeMap<Digest, Arc<Batch>> {
        let mut wanted: Vec<Digest> = chosen.to_vec();
        wanted.sort_unstable();
        let mut held: BTreeMap<Digest, Arc<Batch>> = BTreeMap::new();
        let kept = self.log.iter().flat_map(crate::order::log::Slot::batches).chain(self.bodies.batches());
        for batch in kept.filter(|batch| wanted.binary_search(&batch.digest()).is_ok()) {
            let better = held.get(&batch.digest()).is_none_or(|known| !known.is_complete());
            if better {
                held.insert(batch.digest(), batch.clone());
            }
        }
        held
    }

    /// Returns requests of proposals that the new view dropped, which must not be lost (A26, B8).
    fn proposals_to_requeue(&self, body: &NewView) -> Vec<quorate_wire::batch::StoredRequest> {
        let mut dropped = Vec::new();
        for slot in self.log.iter() {
            let Some(batch) = slot.proposal.as_ref().and_then(|p| p.batch.as_ref()) else { continue };
            let index =
                usize::try_from(slot.seq.0.saturating_sub(body.checkpoint.0.0 + 1)).unwrap_or(usize::MAX);
            let kept = slot.seq <= body.checkpoint.0 || body.chosen.get(index) == Some(&batch.digest());
            if !kept && slot.seq > self.exec.executed {
                dropped.extend(crate::io::record::requests_of(batch, &self.domains));
            }
        }
        dropped
    }

    /// Puts waiting requests into the new view.
    fn requeue(&mut self, now: Now, dropped: Vec<quorate_wire::batch::StoredRequest>, out: &mut Actions) {
        for request in mutant!(M44, dropped, Vec::new()) {
            let Some(client) = self.clients.entry(request.client) else { continue };
            let newer = client.pending.as_ref().is_none_or(|p| p.request.timestamp < request.timestamp);
            if request.timestamp > client.executed && newer {
                self.clients.keep_stored(Arc::new(request), now.mono_ns);
            }
        }
        self.clients.restart_waiting(now.mono_ns, self.views.last_fixed);
        let waiting: Vec<quorate_wire::ClientId> = self.clients.pending().map(|(client, _)| client).collect();
        let mut taken_over: Vec<Digest> = self
            .log
            .iter()
            .filter_map(|slot| slot.proposal.as_ref()?.batch.as_ref())
            .flat_map(|batch| batch.requests().map(|r| r.digest))
            .collect();
        taken_over.sort_unstable();
        let primary = Recipient::Replica(self.primary());
        for client in waiting {
            let Some(pending) = self.clients.get_mut(client).and_then(|c| c.pending.as_mut()) else {
                continue;
            };
            let taken = taken_over.binary_search(&pending.request.digest).is_ok();
            pending.proposed = mutant!(M44, taken, true);
            if self.cluster.primary(self.view) == self.id {
                self.batcher.push(client);
            } else if !pending.proposed && !self.recovery.is_active() {
                out.forward(primary, Kind::Request, Lsn(0), pending.request.frame());
            }
        }
        self.propose(now, out);
        self.watch_requests(now, out);
        self.watch_relays(now, out);
    }
}

fn number(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
