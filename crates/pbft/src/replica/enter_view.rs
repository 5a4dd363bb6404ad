//! Entering a view: what its NEW-VIEW chose is voted for, and waiting requests go on in it [OSDI99 §4.4], spec §11.8.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::id::SeqNum;
use quorate_wire::message::{NewView, ViewChange};
use quorate_wire::{Batch, Digest, Signed};

use crate::io::config::RequestAuth;
use crate::io::step::{Action, Actions, Lsn, Milestone, Now, Recipient, Timer};
use crate::order::slot::{Proposal, Slot};
use crate::replica::Replica;
use crate::requests::table::Client;
use crate::view::candidate::Candidate;

impl Replica {
    /// "Then it enters view v+1: at this point it is able to accept messages for view v+1"
    /// [OSDI99 §4.4]; spec §11.8, in its order.
    pub(super) fn enter_view(&mut self, now: Now, candidate: &Candidate, after: Lsn, out: &mut Actions) {
        self.evidence.enter(candidate.clone(), after);
        let body = candidate.message().body();
        self.stop_normal_operation(out);
        let requeued = self.proposals_to_requeue(body);
        // What it takes over is at hand until it is voted for, wherever it was kept (DP-7, L9).
        let held = self.batches_of(&body.chosen);
        self.views.enter(body.view, body.last(), now.mono_ns);
        self.log.start_view(body.view, self.cluster.f() + 2);
        self.judge_view();
        self.lookup.clear();
        self.promises.forget(self.log.view(), self.log.stable());
        self.watch.start_view(body.last());
        // 1. Where it starts. Never lower last_exec or h because n* is lower (A25).
        let (start, root) = body.checkpoint;
        self.log.set_low(start);
        // RO-4: no reads before what the view took over has been executed.
        // What only prepared in an earlier life, and is not among it, was shown to nobody as a whole.
        self.reads.start_view(body.last());
        self.batcher.start_view(self.log.low().max(body.last()));
        out.push(Action::StopTimer(Timer::NewView));
        out.report(Milestone::ViewEntered { view: body.view, last: body.last() });
        self.trust_stable_of(now, candidate, out);
        // 2. Vote for what it took over.
        self.adopt_chosen(now, body, &held, out);
        self.batcher.start_choice(mutant!(M69, self.latest_proposed_choice(), 0));
        mutant!(M45, (), self.exec.restart_at(start.max(self.log.stable())));
        if start > self.exec.executed() {
            self.set_goal(now, (start, root), out);
        }
        self.say_checkpoints_again(out);
        // 4. Requests that wait: the primary proposes them, backups send them to it.
        self.requeue(now, requeued, out);
        self.try_execute(now, out);
        self.serve_reads(out);
        self.peers.send_now(now, out);
        self.follow_kept(now, out);
    }

    /// h may rise to the (f+1)-th largest h in V, which a correct replica holds a proof for, where
    /// this replica's own state at it has the right root (§11.8.1, CK-2).
    fn trust_stable_of(&mut self, now: Now, candidate: &Candidate, out: &mut Actions) {
        let mut stable: Vec<SeqNum> = candidate.named().map(|m| m.body().stable).collect();
        stable.sort_unstable();
        let Some(seq) = stable.iter().rev().nth(self.cluster.f()).copied() else { return };
        let Some(root) = self.checkpoints.root(seq) else { return };
        let says = |m: &Arc<Signed<ViewChange>>| m.body().checkpoints.contains(&(seq, root));
        let alike = candidate.named().filter(|m| says(m)).count();
        if seq > self.log.stable() && alike >= self.cluster.weak() && self.exec.executed() >= seq {
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

    pub(super) fn adopt(
        &mut self,
        now: Now,
        seq: SeqNum,
        digest: Digest,
        held: Option<&Arc<Batch>>,
        out: &mut Actions,
    ) {
        let batch = match held.or_else(|| self.find_batch(seq, &digest)) {
            Some(batch) => Some(batch.clone()),
            None if digest == self.null_digest => Some(self.null_batch()),
            None => None,
        };
        if batch.is_none() {
            self.want_batches(now, SeqNum(0), &[digest], out);
        }
        let Some(slot) = self.log.slot_mut(seq) else { return };
        if slot.proposal().is_some() {
            // After a restart its vote may be known, and the batch not (L7).
            if let Some(batch) = batch {
                slot.supply_proposal(&batch);
            }
            return;
        }
        // SR-4, ND-3: what a correct replica pre-prepared once is authentic, and its choice was checked.
        let authentic = mutant!(
            M39,
            true,
            batch.as_ref().is_none_or(|b| {
                crate::order::choice::check(
                    now,
                    b.choice(),
                    self.exec.choices(),
                    (self.config.clock_skew_ns, self.config.clock_skew_ns),
                )
                .is_ok()
            })
        );
        let incomplete = batch.as_ref().is_none_or(|b| !b.is_complete());
        slot.accept(Proposal { digest, batch, authentic, since: now.mono_ns });
        out.report(Milestone::PrePrepared { seq, digest });
        self.watch.note_accepted(seq, self.exec.done(), now.mono_ns);
        if incomplete {
            self.bodies.seek(now, out);
        }
        self.advance(now, seq, out);
    }

    /// Votes for chosen numbers that were above the window when the view was entered (§11.8.2).
    pub(super) fn adopt_rest_of_new_view(&mut self, now: Now, out: &mut Actions) {
        let Some(candidate) = self.evidence.entered_in(self.views.view()) else { return };
        if self.is_normal() && self.views.last_fixed() > self.log.stable() {
            let message = candidate.message().clone();
            let held = self.batches_of(&message.body().chosen);
            self.adopt_chosen(now, message.body(), &held, out);
        }
    }

    /// Returns those of these batches that are here, wherever they are kept.
    fn batches_of(&self, chosen: &[Digest]) -> BTreeMap<Digest, Arc<Batch>> {
        let mut wanted: Vec<Digest> = chosen.to_vec();
        wanted.sort_unstable();
        let mut held: BTreeMap<Digest, Arc<Batch>> = BTreeMap::new();
        let kept = self.log.iter().flat_map(Slot::batches).chain(self.bodies.batches());
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
            let Some(batch) = slot.proposed() else { continue };
            let index =
                usize::try_from(slot.seq().0.saturating_sub(body.checkpoint.0.0 + 1)).unwrap_or(usize::MAX);
            let kept = slot.seq() <= body.checkpoint.0 || body.chosen.get(index) == Some(&batch.digest());
            if !kept && slot.seq() > self.exec.executed() {
                dropped.extend(crate::io::record::requests_of(batch, &self.domains));
            }
        }
        dropped
    }

    /// Puts waiting requests into the new view.
    fn requeue(&mut self, now: Now, dropped: Vec<quorate_wire::batch::StoredRequest>, out: &mut Actions) {
        for request in mutant!(M44, dropped, Vec::new()) {
            let Some(client) = self.clients.entry(request.client) else { continue };
            // A batch that was fetched may have a read, which no backup would accept in a PRE-PREPARE (PP-4, L138).
            let is_read = self.config.read_only && request.flags.read_only;
            let newer = client.pending().is_none_or(|p| p.request().timestamp < request.timestamp);
            if request.timestamp > client.executed() && newer && !is_read {
                self.clients.keep_stored(Arc::new(request), now.mono_ns);
            }
        }
        // REQ-ACKs bring back what this replica cannot check (AU-6, L131).
        for (client, request) in self.clients.doubtful(self.config.request_auth, now.mono_ns) {
            self.clients.take_pending(client);
            if self.config.request_auth != RequestAuth::SigMac {
                self.clients.want(client, request);
            }
        }
        self.clients.restart_waiting(now.mono_ns, self.views.last_fixed());
        let waiting: Vec<quorate_wire::ClientId> = self.clients.pending().map(|(client, _)| client).collect();
        let mut taken_over: Vec<(Digest, SeqNum)> = self
            .log
            .iter()
            .filter_map(|slot| Some((slot.seq(), slot.proposed()?)))
            .flat_map(|(seq, batch)| batch.requests().map(move |r| (r.digest, seq)))
            .collect();
        taken_over.sort_unstable();
        let primary = Recipient::Replica(self.primary());
        for client in waiting {
            let Some(pending) = self.clients.get(client).and_then(Client::pending) else { continue };
            let digest = pending.request().digest;
            let after = taken_over.partition_point(|(other, _)| *other <= digest);
            let taken = taken_over[..after].last().filter(|(other, _)| *other == digest).map(|(_, seq)| *seq);
            let proposed = mutant!(M44, taken, Some(SeqNum(u64::MAX)));
            let Some(pending) = self.clients.set_proposed(client, proposed) else { continue };
            if self.cluster.primary(self.views.view()) == self.id {
                self.batcher.push(client, pending.has_pause());
            } else if !pending.is_proposed(self.exec.executed()) && !self.recovery.is_active() {
                Self::pass_on(primary, pending.request(), out);
                self.clients.remember(digest); // vouched for
            }
        }
        self.propose();
        if self.vouched().next().is_some() {
            self.bodies.seek(now, out);
        }
        self.watch_requests(now, out);
        self.watch_relays(now, out);
    }
}
