//! Starting a view change [OSDI99 §4.4], spec §11.2-11.4: which replicas want one, when that is enough, and what is
//! reported.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::codec::Writer;
use quorate_wire::id::{ReplicaId, ViewNum};
use quorate_wire::message::{Kind, LeaveCert, PrePrepared, Prepared, Suspect, SuspectReason, ViewChange};
use quorate_wire::{Digest, Signed};

use crate::io::record::Record;
use crate::io::step::{Actions, Lsn, Milestone, Now, Recipient, Reject, Timer};
use crate::order::slot::Slot;
use crate::order::votes::{bit, size};
use crate::recovery::lives::Counts;
use crate::replica::Replica;
use crate::view::decision;
use crate::view::evidence::Refused;
use crate::view::views::End;

impl Replica {
    /// Tells all that this replica wishes to leave its view, and continues working in it (LV-2).
    pub(super) fn suspect(&mut self, now: Now, reason: SuspectReason, out: &mut Actions) {
        if self.recovery.is_active() {
            return;
        }
        let view = self.views.view();
        if self.evidence.own_suspect(view).is_none() {
            out.report(Milestone::Suspected { view, reason });
            let mut body = Vec::new();
            Suspect { view, reason, signature: [0; 64] }.encode(&mut Writer::new(&mut body));
            let signed = Signed::sign(&self.signer, &self.domains, Kind::Suspect, 0, self.id, (), &body);
            let frame = signed.frame().to_vec();
            let signature = quorate_wire::frame::signature_of(&frame).unwrap_or([0; 64]);
            self.evidence.suspect(self.id, Suspect { view, reason, signature }, frame);
        }
        if let Some(frame) = self.evidence.own_suspect(view) {
            out.forward(Recipient::All, Kind::Suspect, Lsn(0), frame);
        }
        self.judge_suspects(now, view, out);
    }

    /// Another replica wishes to leave a view. Its signature was checked at the authenticator.
    #[cold]
    pub(super) fn on_suspect(&mut self, now: Now, from: ReplicaId, m: &Suspect, out: &mut Actions) {
        if m.view < self.views.view() {
            return out.reject(Reject::OtherView);
        }
        if let Err(reason) = self.evidence.keep_suspect(from, m, self.views.view()) {
            return out.reject(reason);
        }
        if m.view > self.views.view() {
            self.peers.send_soon(now, out);
        }
        self.judge_suspects(now, m.view, out);
    }

    /// Says whether a quorum has left all views before this one. Those who have left for later views count as well: they do
    /// not come back, and may be too few to follow (L41).
    fn has_quorum_left(&self) -> bool {
        let view = self.views.view();
        let there = mutant!(M168, self.evidence.senders_from(view), self.evidence.senders_for(view));
        size(there) >= self.cluster.quorum()
    }

    /// Says whether a hand-over of its view moves this replica (LV-2). While it waits, its VIEW-CHANGE may be the only one with
    /// a LeaveCert of f + 1 replicas, without which those in earlier views stay there (L51). When a quorum has left all views
    /// before this one, f + 1 correct replicas have, and the others follow these.
    fn heeds_hand_overs(&self) -> bool {
        self.is_normal() || mutant!(M171, self.has_quorum_left(), true)
    }

    /// A LeaveCert for `view`: f + 1 replicas suspect it, so a correct one does; or this is the view and
    /// its own primary hands it over (LV-2). A hand-over of a *later* view has no effect: a Byzantine replica could
    /// hand over each view in which it is primary and keep all replicas in view changes. The paper's rule that a view
    /// change needs f + 1 replicas holds here for every one of them: "a view change will happen only if at least f +
    /// 1 replicas" say so [OSDI99 §4.5.2].
    fn judge_suspects(&mut self, now: Now, view: ViewNum, out: &mut Actions) {
        let primary = self.cluster.primary(view);
        let suspects = self.evidence.suspects(view);
        let handed_over = mutant!(M85, view == self.views.view(), true)
            && suspects.iter().any(|(from, _)| *from == primary)
            && self.heeds_hand_overs();
        let enough = mutant!(M7, self.cluster.weak(), self.cluster.f());
        if suspects.len() >= enough || handed_over {
            self.start_view_change(now, view.next(), LeaveCert { suspects }, out);
        }
    }

    /// Leaves for `view`: "It stops accepting messages (other than checkpoint, view-change, and new-view
    /// messages) and multicasts a VIEW-CHANGE message to all replicas" [OSDI99 §4.4], spec §11.3.
    fn start_view_change(&mut self, now: Now, view: ViewNum, leave: LeaveCert, out: &mut Actions) {
        if view <= self.views.view() {
            return;
        }
        let old = view.0.checked_sub(1).map(|old| self.cluster.primary(ViewNum(old)));
        let end = match leave.suspects.iter().any(|(from, _)| Some(*from) == old) {
            _ if !self.is_normal() => End::Failed,
            true => End::HandedOver,
            false => End::TimedOut,
        };
        self.stop_normal_operation(out);
        let base = self.request_timeout();
        self.views.leave_for(view, now.mono_ns, end, base);
        self.judge_view();
        // Its VIEW-CHANGE is sent at once, unless this replica has to wait until it may speak.
        self.evidence.leave_for(view, leave);
        out.push(crate::io::step::Action::StopTimer(Timer::NewView));
        out.report(Milestone::ViewChangeStarted { view });
        self.peers.send_soon(now, out);
        self.on_view_changes_grown(now, out);
        self.follow_kept(now, out);
    }

    /// This replica has come to its view, or a quorum has, and what it has kept may end it: a hand-over of the view by its
    /// primary had no effect before, and when it comes again it is a duplicate (LV-2). Without this, replicas that came later than the
    /// one that the hand-over moved would stay behind, and no view have a quorum.
    pub(super) fn follow_kept(&mut self, now: Now, out: &mut Actions) {
        let view = self.views.view();
        if mutant!(M118, false, true) {
            return; // the kept hand-over has no effect
        }
        self.judge_suspects(now, view, out);
        // If that moved it, it has looked again.
        if self.views.view() != view || !self.heeds_hand_overs() {
            return;
        }
        let leave = self.evidence.received_for(view.next()).next().map(|m| m.body().leave.clone());
        if let Some(leave) = leave {
            self.start_view_change(now, view.next(), leave, out);
        }
    }

    /// Ends normal operation in the log's view: P and Q take up what prepared and pre-prepared in it,
    /// the overlay goes, queued commits stay behind because P says as much (§11.3, TE-4, PB-3).
    pub(super) fn stop_normal_operation(&mut self, out: &mut Actions) {
        if !self.views.stop() {
            return;
        }
        self.undo_tentative(out);
        mutant!(M84, self.piggyback.sent(out), ());
        self.log.end_view();
    }

    fn send_view_change(&mut self, view: ViewNum, leave: LeaveCert, out: &mut Actions) {
        let message = self.own_view_change(view, leave);
        let mut body = Vec::new();
        message.encode(&mut Writer::new(&mut body));
        let signed = Signed::sign(&self.signer, &self.domains, Kind::ViewChange, 0, self.id, message, &body);
        let after = self.promises.persist(Record::ViewChange { view, frame: signed.frame() }, out);
        let after = mutant!(M52, after, Lsn(0));
        out.forward(Recipient::All, Kind::ViewChange, after, signed.frame());
        self.evidence.keep_own(Arc::new(signed), after);
    }

    /// This replica's contribution to `view`: its checkpoints C, what prepared P, what it pre-prepared Q.
    fn own_view_change(&self, view: ViewNum, leave: LeaveCert) -> ViewChange {
        let stable = self.log.stable();
        let claims_max = self.cluster.f() + 2;
        // D5: of those above the stable one only what the disk can bring back.
        let last = if self.checkpoints.are_kept() { self.log.high() } else { stable };
        let checkpoints = self.checkpoints.own().range(stable..=last).map(|(n, d)| (*n, *d)).collect();
        let mut prepared = Vec::new();
        let mut pre_prepared = Vec::new();
        for slot in self.log.iter() {
            // VC-2: being executed here does not exempt a number.
            let omitted = mutant!(M37, false, slot.seq() <= self.exec.executed());
            if let Some((view, batch)) = slot.prepared()
                && !omitted
            {
                // "a set containing a set P_m for each request m that prepared at i with a sequence
                // number higher than n" [OSDI99 §4.4]; one entry, of the highest view (VC-1).
                prepared.push(Prepared { seq: slot.seq(), digest: batch.digest(), view });
            }
            if !slot.claims().is_empty() {
                let claims = newest_claims(slot, claims_max);
                pre_prepared.push(PrePrepared { seq: slot.seq(), claims });
            }
        }
        // I9, VC-3: whatever prepared was pre-prepared.
        assert!(mutant!(M36, true, true) && prepared.iter().all(|p| claimed(&pre_prepared, p)));
        let life = self.own_life();
        ViewChange { view, stable, life, checkpoints, prepared, pre_prepared, leave }
    }

    /// A VIEW-CHANGE that this replica sent before it lost its memory comes back from those who keep it as
    /// evidence. It helps to check the NEW-VIEW that names it, and nothing else (CR-4).
    #[cold]
    pub(super) fn on_own_view_change(&mut self, now: Now, m: &Arc<Signed<ViewChange>>, out: &mut Actions) {
        let (k, window) = (self.config.checkpoint_interval, self.config.window);
        match decision::well_formed(self.cluster, k, window, m.body()) {
            Ok(()) => self.supply_candidates(now, m, out),
            Err(reason) => out.reject(reason),
        }
    }

    /// Gives a VIEW-CHANGE to the NEW-VIEWs under examination that name it.
    fn supply_candidates(&mut self, now: Now, m: &Arc<Signed<ViewChange>>, out: &mut Actions) {
        if self.evidence.supply(m) {
            self.examine_new_views(now, out);
        }
    }

    /// Another replica has left. Its signature, and those of its LeaveCert, were checked at the authenticator.
    #[cold]
    pub(super) fn on_view_change(&mut self, now: Now, m: &Arc<Signed<ViewChange>>, out: &mut Actions) {
        let (from, body) = (m.sender(), m.body());
        let (k, window) = (self.config.checkpoint_interval, self.config.window);
        if let Err(reason) = decision::well_formed(self.cluster, k, window, body) {
            return out.reject(reason);
        }
        // One that a NEW-VIEW under examination names is needed, whatever else this sender said.
        self.supply_candidates(now, m, out);
        // RC-11b: for anything else it has to be of a life that counts.
        match self.counts_now(from, body) {
            Counts::Yes => {}
            Counts::NotYet => {
                self.peers.send_soon(now, out); // it comes again when the table knows that life
                return out.reject(Reject::LaterLife);
            }
            Counts::NoMore => return out.reject(Reject::EndedLife),
        }
        if body.view < self.views.view() {
            return out.reject(Reject::OtherView);
        }
        if let Err(refused) = self.evidence.keep(m) {
            return Self::refuse(from, refused, out);
        }
        if body.view > self.views.view() {
            self.follow(now, body.view, &body.leave, out);
        }
        self.on_view_changes_grown(now, out);
    }

    /// Turns a message away that was not kept, and reports a sender that contradicts itself by it.
    pub(super) fn refuse(from: ReplicaId, (reason, second): Refused, out: &mut Actions) {
        if second {
            out.report(Milestone::Equivocation { by: from });
        }
        out.reject(reason);
    }

    /// Starts a view change because others have. A LeaveCert of f + 1 replicas is a reason for all, so that none
    /// leaves alone (LV-2); a hand-over only for those in that view that heed it. Otherwise, "if a replica receives a
    /// set of f + 1 valid view-change messages from other replicas for views greater than its current view,
    /// it sends a view-change message for the smallest view in the set" [OSDI99 §4.5.2].
    pub(super) fn follow(&mut self, now: Now, view: ViewNum, leave: &LeaveCert, out: &mut Actions) {
        let certified = leave.suspects.len() >= mutant!(M7, self.cluster.weak(), self.cluster.f());
        if certified || view == self.views.view().next() && self.heeds_hand_overs() {
            return self.start_view_change(now, view, leave.clone(), out);
        }
        let mut ahead: Vec<&Arc<Signed<ViewChange>>> =
            self.evidence.received().filter(|m| m.body().view > self.views.view()).collect();
        ahead.sort_by_key(|m| core::cmp::Reverse(m.body().view));
        let Some(m) = ahead.get(self.cluster.f()) else { return };
        let (view, leave) = (m.body().view, m.body().leave.clone());
        self.start_view_change(now, view, leave, out);
    }

    /// More VIEW-CHANGEs for this view are here, or this replica may send its own at last.
    pub(super) fn on_view_changes_grown(&mut self, now: Now, out: &mut Actions) {
        if self.is_normal() {
            return;
        }
        let view = self.views.view();
        let own_missing = self.evidence.senders_for(view) & bit(self.id) == 0;
        // VC-5: it names the stable checkpoint, so it waits for the digest of the initial state.
        let nameable = self.checkpoints.root(self.log.stable()).is_some();
        if own_missing
            && nameable
            && !self.recovery.forbids_view_change()
            && let Some(leave) = self.evidence.leave_cert(view)
        {
            self.send_view_change(view, leave, out);
        }
        // "a replica that multicasts a view-change message for view v+1 waits for 2f + 1 view-change
        // messages for view v+1 and then starts its timer" [OSDI99 §4.5.2], TM-3.
        if self.has_quorum_left() && self.views.start_timer() {
            self.views.note_waiting(self.exec.executed());
            Self::set_timer(out, Timer::NewView, now.mono_ns.saturating_add(self.patience(now)));
            self.follow_kept(now, out);
            if self.views.view() != view {
                return;
            }
        }
        self.try_new_view(now, out);
    }

    /// No NEW-VIEW came in time, or nothing came of it (LV-3).
    pub(super) fn on_new_view_timer(&mut self, now: Now, out: &mut Actions) {
        if !self.views.waits_for_new_view() {
            return;
        }
        // What was ordered before is still being executed here, and so it may be at the next primary, which has no
        // checkpoint to begin with until then. There is an end to it: nothing new is ordered in a view change (TM-3, L35).
        let behind = self.exec.executed() < self.exec.handed_over();
        let goes_on = self.views.note_waiting(self.exec.executed());
        if !(mutant!(M165, behind && goes_on, false)) {
            self.suspect(now, SuspectReason::Timeout, out);
        }
        if self.views.waits_for_new_view() {
            Self::set_timer(out, Timer::NewView, now.mono_ns.saturating_add(self.patience(now)));
        }
    }
}

/// Returns the newest pairs of Q for a number: at most `max`, always with the one that prepared (VC-4).
fn newest_claims(slot: &Slot, max: usize) -> Vec<(Digest, ViewNum)> {
    let mut claims: Vec<_> = slot.claims().iter().take(max).copied().collect();
    if let Some((_, batch)) = slot.prepared()
        && let Some(own) = slot.claims().iter().skip(max).find(|(d, _)| *d == batch.digest())
        && let Some(last) = claims.last_mut()
    {
        *last = *own;
    }
    claims.sort_by_key(|(_, view)| core::cmp::Reverse(*view));
    claims
}

fn claimed(pre_prepared: &[PrePrepared], p: &Prepared) -> bool {
    let of = pre_prepared.iter().find(|q| q.seq == p.seq);
    of.is_some_and(|q| q.claims.iter().any(|(d, view)| *d == p.digest && *view >= p.view))
}
