//! Normal-case operation: pre-prepare, prepare, commit [OSDI99 §4.2], spec §5.4-5.6.
//!
//! Each handler logs its message and calls [`Replica::advance`], which performs the steps that the log now allows. No
//! handler depends on the order in which messages arrive.

use quorate_wire::Digest;
use quorate_wire::batch::Batch;
use quorate_wire::id::{ReplicaId, SeqNum, ViewNum};
use quorate_wire::message::{Commit, Committed, Kind, Piggyback, PrePrepare, Prepare};

use crate::io::config::RequestAuth;
use crate::io::record::Record;
use crate::io::step::{Actions, Lsn, Milestone, Now, Recipient, Reject, Timer};
use crate::order::choice;
use crate::order::promises::OwnVote;
use crate::order::slot::Proposal;
use crate::order::slot::Slot;
use crate::order::votes::Inserted;
use crate::replica::Replica;

impl Replica {
    /// A backup accepts the primary's choice and tells every replica so.
    pub(super) fn on_pre_prepare(
        &mut self,
        now: Now,
        from: ReplicaId,
        m: &PrePrepare<'_>,
        out: &mut Actions,
    ) {
        self.log_piggyback(now, from, m.view, &m.piggyback, out);
        if let Err(reason) = self.accepts_pre_prepare(now, from, m) {
            if reason == Reject::Conflicts {
                out.report(Milestone::Equivocation { by: from });
            }
            // PP-8: the sender is ahead of us, or we of it: say where we are instead of stalling.
            let behind =
                m.view > self.views.view() || (m.view == self.views.view() && m.seq > self.log.high());
            if behind {
                self.peers.send_soon(now, out);
            }
            return out.reject(reason);
        }
        let batch = self.complete_from_table(&m.batch);
        let authentic = self.is_authentic(&batch);
        let digest = batch.digest();
        let is_complete = batch.is_complete();
        let Some(slot) = self.log.slot_mut(m.seq) else {
            unreachable!("accepts_pre_prepare checks the window")
        };
        // The separate requests among them came apart from it (L29).
        let named = mutant!(M115, &batch, &m.batch).clone();
        slot.accept(Proposal { digest, batch: Some(batch), authentic, since: now.mono_ns });
        out.report(Milestone::PrePrepared { seq: m.seq, digest });
        if m.seq > self.exec.done().plus(self.config.pipeline.saturating_mul(2)) {
            self.watch.note_odd(m.seq); // the primary does not go so far ahead: this replica is behind
        }
        self.watch.note_accepted(m.seq, self.exec.done(), now.mono_ns);
        if self.clients.any_waiting() {
            self.clients.count_proposed(mutant!(M115, named.len(), named.requests().count()));
            for r in named.requests() {
                self.clients.note_proposed(m.seq, r.client, &r.digest);
            }
        }
        self.watch_requests(now, out);
        if !authentic || !is_complete {
            self.bodies.seek(now, out);
        }
        if !authentic {
            self.recheck_proposals(now, out);
        }
        self.advance(now, m.seq, out);
    }

    /// The conditions for accepting a pre-prepare, in the order of the paper.
    fn accepts_pre_prepare(&mut self, now: Now, from: ReplicaId, m: &PrePrepare<'_>) -> Result<(), Reject> {
        // "the signatures in the request and the pre-prepare message are correct and d is the digest
        // for m": seen to at the authenticator, but for requests that it could not prove (below, PP-5).
        // "it is in view v", and so only this view's primary may propose (PP-1).
        if m.view != self.views.view() {
            return Err(Reject::OtherView);
        }
        if !self.is_normal() {
            return Err(Reject::NotNormal);
        }
        if from != self.primary() {
            return Err(Reject::NotFromPrimary);
        }
        // "the sequence number in the pre-prepare message is between a low water mark, h, and a high
        // water mark, H": "prevents a faulty primary from exhausting the space of sequence numbers".
        if !self.log.admits(m.seq) {
            return Err(Reject::OutsideWatermarks);
        }
        // PP-2: numbers up to max_x were fixed by the NEW-VIEW.
        if m.seq <= self.views.last_fixed() {
            return Err(Reject::FixedByNewView);
        }
        let Some(slot) = self.log.get(m.seq) else { return Err(Reject::OutsideWatermarks) };
        // "it has not accepted a pre-prepare message for view v and sequence number n containing a
        // different digest", nor ever sent a prepare for one, across restarts (PP-3).
        let digest = m.batch.digest();
        let accepted = slot.proposal().map(|p| p.digest);
        if [accepted, slot.voted_in(m.view)].into_iter().flatten().any(|other| other != digest) {
            return Err(mutant!(M25, Reject::Conflicts, Reject::Duplicate));
        }
        // Again; unless the batch is what is missing, as after a restart.
        if slot.proposed().is_some() {
            return Err(Reject::Duplicate);
        }
        // A read that may go unordered is never ordered: its client falls back under a new timestamp.
        if self.config.read_only && m.batch.inlined().iter().any(|r| r.flags.read_only) {
            return Err(Reject::OrderedRead);
        }
        // PP-4: "no duplicate request in the batch", which is two of one client (PR-3).
        if self.names_a_client_twice(&m.batch) {
            return Err(Reject::DuplicateRequest);
        }
        // PP-6, PR-6: an empty batch only where the protocol asks for one.
        if m.batch.is_empty() {
            return if m.batch.is_null() && self.null_batch_allowed_at(m.seq) {
                Ok(())
            } else {
                Err(Reject::NullBatch)
            };
        }
        // PP-6, ND-2: the soft check of the primary's choice.
        let skew = self.config.clock_skew_ns;
        // It was chosen before the proposal waited for the primary's disk.
        let behind = skew.saturating_add(self.watch.syncs_ns(now.mono_ns));
        let check = choice::check(now, m.batch.choice(), self.exec.choices(), (behind, skew));
        // A correct replica has found it right when it was new: a replica that is late takes it as well (DV-54).
        let is_vouched = |slot: &Slot| slot.is_vouched(&digest, self.cluster.f());
        let check = check.or_else(|reason| {
            let vouched = self.log.get(m.seq).is_some_and(is_vouched);
            if mutant!(M161, vouched, false) { Ok(()) } else { Err(reason) }
        });
        mutant!(M89, check, Ok(()))
    }

    fn names_a_client_twice(&mut self, batch: &Batch) -> bool {
        if batch.len() < 2 {
            return false;
        }
        let mut clients = core::mem::take(&mut self.scratch);
        clients.clear();
        clients.extend(batch.inlined().iter().map(|r| r.client.0));
        clients.sort_unstable();
        let twice = clients.windows(2).any(|pair| pair[0] == pair[1]);
        self.scratch = clients;
        let mut separate = batch.separate().to_vec();
        separate.sort_unstable();
        twice || separate.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// A backup has agreed to the primary's proposal.
    pub(super) fn on_prepare(&mut self, now: Now, from: ReplicaId, m: &Prepare<'_>, out: &mut Actions) {
        self.log_piggyback(now, from, m.view, &m.piggyback, out);
        // "their view number equals the replica's current view, and their sequence number is between
        // h and H" [OSDI99 §4.2], PC-1.
        if mutant!(M97, m.view != self.views.view() || m.view != self.log.view(), false) {
            if m.view > self.views.view() {
                self.peers.send_soon(now, out);
            }
            return out.reject(Reject::OtherView);
        }
        // The primary's pre-prepare counts as its prepare: only backups' prepares count.
        if from == self.primary() {
            return out.reject(Reject::FromPrimary);
        }
        if !self.is_normal() {
            return out.reject(Reject::NotNormal);
        }
        if !self.log.admits(m.seq) {
            if m.seq > self.log.high() {
                self.peers.send_soon(now, out);
            }
            return out.reject(Reject::OutsideWatermarks);
        }
        let Some(slot) = self.log.slot_mut(m.seq) else { return out.reject(Reject::OutsideWatermarks) };
        match slot.count_prepare(from, m.digest) {
            // P has it already: another prepare changes nothing.
            Inserted::New if slot.prepared_in(m.view) => {}
            Inserted::New => self.advance(now, m.seq, out),
            Inserted::Same => {}
            Inserted::Conflicts(_) => {
                out.report(Milestone::Equivocation { by: from });
                out.reject(Reject::Conflicts);
            }
        }
    }

    /// A replica has prepared a batch.
    pub(super) fn on_commit(&mut self, now: Now, from: ReplicaId, m: &Commit, out: &mut Actions) {
        if m.view > self.views.view() {
            self.peers.send_soon(now, out);
        }
        if let Err(reason) = self.log_commit(now, from, m.view, m.seq, m.digest, out) {
            out.reject(reason);
        }
    }

    /// PB-2: commits that rode on a message count as COMMITs of its sender, even if the carrier is
    /// rejected for another reason.
    fn log_piggyback(
        &mut self,
        now: Now,
        from: ReplicaId,
        view: ViewNum,
        commits: &Piggyback<'_>,
        out: &mut Actions,
    ) {
        for (seq, digest) in commits.iter() {
            if let Err(reason) = self.log_commit(now, from, view, seq, digest, out)
                && reason == Reject::Conflicts
            {
                out.reject(reason);
            }
        }
    }

    /// Logs one commit: of the current view, or of the one before (PC-1).
    fn log_commit(
        &mut self,
        now: Now,
        from: ReplicaId,
        view: ViewNum,
        seq: SeqNum,
        digest: Digest,
        out: &mut Actions,
    ) -> Result<(), Reject> {
        let current = view == self.log.view();
        if !current && Some(view) != self.log.old_view() {
            return Err(Reject::OtherView);
        }
        if seq > self.log.high() {
            self.peers.send_soon(now, out);
        }
        let Some(slot) = self.log.slot_mut(seq) else { return Err(Reject::OutsideWatermarks) };
        match slot.count_commit(from, digest, current) {
            Inserted::New => {
                // All that a commit can bring about is committed-local.
                if slot.committed().is_none() && self.note_committed(seq, out) {
                    self.try_execute(now, out);
                }
                Ok(())
            }
            Inserted::Same => Ok(()),
            Inserted::Conflicts(_) => {
                out.report(Milestone::Equivocation { by: from });
                Err(Reject::Conflicts)
            }
        }
    }

    /// Another replica says that a batch committed (ST-5).
    #[cold]
    pub(super) fn on_committed(&mut self, now: Now, from: ReplicaId, m: &Committed, out: &mut Actions) {
        let Some(slot) = self.log.slot_mut(m.seq) else { return out.reject(Reject::OutsideWatermarks) };
        match slot.attest(from, m.digest) {
            Inserted::New => self.advance(now, m.seq, out),
            Inserted::Same => {}
            Inserted::Conflicts(_) => {
                out.report(Milestone::Equivocation { by: from });
                out.reject(Reject::Conflicts);
            }
        }
    }

    /// Does whatever the messages logged for `seq` now allow, independently of their order.
    pub(super) fn advance(&mut self, now: Now, seq: SeqNum, out: &mut Actions) {
        self.accept_vouched(seq);
        if self.is_normal() && !self.forbids_vote(seq) && self.log.admits(seq) {
            self.prepare(seq, out);
            self.commit(now, seq, out);
        }
        self.note_committed(seq, out);
        self.try_execute(now, out);
    }

    /// AU-2: backups' prepares vouch for the requests of a batch, unless only signatures count.
    fn accept_vouched(&mut self, seq: SeqNum) {
        if self.config.request_auth == RequestAuth::SigMac {
            return;
        }
        if let Some(slot) = self.log.slot_mut(seq) {
            slot.accept_vouched(self.cluster.f());
        }
    }

    /// "If backup i accepts the pre-prepare message, it enters the prepare phase by multicasting a
    /// PREPARE message to all other replicas and adds both messages to its log" [OSDI99 §4.2].
    fn prepare(&mut self, seq: SeqNum, out: &mut Actions) {
        let view = self.views.view();
        let Some(slot) = self.log.get(seq) else { return };
        if slot.voted_in(view).is_some() {
            return;
        }
        // SR-3: not before every body is here, so that what prepared can always be obtained.
        let Some(proposal) = slot.proposal() else { return };
        let here = mutant!(M27, proposal.complete().is_some(), proposal.batch.is_some());
        if !here || !mutant!(M27, proposal.authentic, true) {
            return;
        }
        let digest = proposal.digest;
        let lsn = self.record_vote(view, seq, digest, out);
        if self.is_primary() {
            return; // what its NEW-VIEW chose: the NEW-VIEW stands for its pre-prepare
        }
        let after = mutant!(M60, lsn.max(self.piggyback.after()), Lsn(0));
        out.send(Recipient::All, Kind::Prepare, after, |w| {
            Prepare::encode(view, seq, &digest, self.piggyback.commits(), w);
        });
        self.piggyback.sent(out);
    }

    /// Records that this replica pre-prepares `digest`, before it says so (D1), and counts the prepare
    /// of a backup once that is durable.
    pub(super) fn record_vote(
        &mut self,
        view: ViewNum,
        seq: SeqNum,
        digest: Digest,
        out: &mut Actions,
    ) -> Lsn {
        let lsn = self.promises.persist(Record::PrePrepared { view, seq, digest }, out);
        let own = OwnVote { lsn, view, seq, digest, commit: false };
        let is_primary = self.is_primary();
        let Some(slot) = self.log.slot_mut(seq) else { unreachable!("the caller has checked the window") };
        slot.vote(view, digest);
        slot.note_voted_record(lsn);
        if is_primary {
            return lsn; // its pre-prepare is the q-th vote
        }
        if let Some(own) = self.promises.vote(own) {
            self.count_own_vote(&own);
        }
        lsn
    }

    /// Counts a vote of this replica's own, now that it is durable.
    pub(super) fn count_own_vote(&mut self, vote: &OwnVote) {
        let id = self.id;
        if mutant!(M94, vote.view != self.log.view(), false) {
            return; // the view has ended since
        }
        let Some(slot) = self.log.slot_mut(vote.seq) else { return };
        let mut count = |from| {
            if vote.commit {
                slot.count_commit(from, vote.digest, true);
            } else {
                slot.count_prepare(from, vote.digest);
            }
        };
        count(id);
        if mutant!(M28, false, true) {
            // Own vote counted twice: in the place of another replica's.
            count(ReplicaId::at((id.index() + 1) % self.cluster.n()));
        }
    }

    /// When prepared(m, v, n, i) becomes true: P, its record with the batch (D2), then "Replica i
    /// multicasts a COMMIT to the other replicas" [OSDI99 §4.2], PC-2.
    fn commit(&mut self, now: Now, seq: SeqNum, out: &mut Actions) {
        let view = self.views.view();
        let cluster = self.cluster;
        let Some(slot) = self.log.slot_mut(seq) else { return };
        if slot.prepared_in(view) {
            return; // said so already
        }
        let Some(batch) = slot.prepared_now(cluster) else { return };
        let digest = batch.digest();
        // I10: this replica's own pre-prepare or prepare is among what prepared it.
        if slot.voted() != Some((view, digest)) {
            return;
        }
        slot.prepare(view, batch.clone());
        out.report(Milestone::Prepared { seq, digest });
        let lsn = self.promises.persist_prepared(slot, out);
        let after = mutant!(M29, lsn, Lsn(0));
        slot.note_prepared_record(after);
        self.recovery.note_prepared(seq);
        let own = OwnVote { lsn: after, view, seq, digest, commit: true };
        if let Some(own) = self.promises.vote(own) {
            self.count_own_vote(&own);
        }
        self.send_commit(now, seq, digest, after, out);
    }

    /// Sends a commit, or queues it to ride on the next message (PB-1).
    fn send_commit(&mut self, now: Now, seq: SeqNum, digest: Digest, after: Lsn, out: &mut Actions) {
        if !self.config.piggyback {
            let view = self.views.view();
            return out.send(Recipient::All, Kind::Commit, after, |w| Commit { view, seq, digest }.encode(w));
        }
        let queued = self.piggyback.push(seq, digest, after);
        // PB-4: a client waits for this one.
        let is_awaited = !self.config.tentative || !self.reads.is_empty();
        if is_awaited || self.config.is_checkpoint(seq) || queued >= self.config.pipeline {
            self.piggyback.flush(self.log.view(), out);
        } else if queued == 1 {
            Self::set_timer(out, Timer::Flush, now.mono_ns.saturating_add(self.config.piggyback_ns));
        }
    }

    /// Records that a batch has committed here (committed-local). Returns whether that is new.
    fn note_committed(&mut self, seq: SeqNum, out: &mut Actions) -> bool {
        let cluster = self.cluster;
        let Some(slot) = self.log.slot_mut(seq) else { return false };
        if slot.committed().is_some() {
            return false;
        }
        let Some(digest) = slot.committed_now(cluster) else { return false };
        if !slot.commit(digest) {
            return false;
        }
        out.report(Milestone::Committed { seq, digest });
        slot.note_committed_record(self.promises.persist(Record::Committed { seq, digest }, out));
        self.propose(); // no batch may be in progress any more
        true
    }
}
