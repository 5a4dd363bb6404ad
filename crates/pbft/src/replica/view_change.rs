//! Starting a view change [OSDI99 §4.4], spec §11.2-11.4: which replicas want one, when that is enough, and what is
//! reported.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::codec::Writer;
use quorate_wire::id::{ReplicaId, SeqNum, ViewNum};
use quorate_wire::message::{
    Kind, LeaveCert, PrePrepared, Prepared, Suspect, SuspectReason, ViewChange, Want,
};
use quorate_wire::{Digest, Signed};

use crate::io::config::Config;
use crate::io::record::Record;
use crate::io::step::{Actions, Lsn, Milestone, Now, Recipient, Reject, Timer};
use crate::order::votes::{bit, size};
use crate::recovery::lives::Counts;
use crate::replica::proofs::Proofs;
use crate::replica::{Replica, Status};
use crate::view::candidate::Candidate;
use crate::view::decision;

/// Maximum number of requests that REQ-REJECTs are counted for.
const REJECTS_MAX: usize = 1024;

/// What a replica knows of view changes. At most one SUSPECT, one VIEW-CHANGE and one NEW-VIEW of each
/// replica.
#[derive(Debug)]
pub(crate) struct ViewChanges {
    /// The newest SUSPECT of each replica.
    suspects: Vec<Option<Suspect>>,
    /// This replica's own, as a frame to send again.
    own_suspect: Option<(ViewNum, Vec<u8>)>,
    /// The newest valid VIEW-CHANGE of each replica (VC-6).
    pub(crate) received: Vec<Option<Arc<Signed<ViewChange>>>>,
    /// The newest NEW-VIEW of each replica, under examination. There is one for each replica, so that a Byzantine
    /// replica's NEW-VIEW for a far view does not block others.
    pub(crate) candidates: Vec<Option<Candidate>>,
    /// The NEW-VIEW that this replica last entered a view by.
    pub(crate) entered: Option<Candidate>,
    /// Why this replica left for its view: what its VIEW-CHANGE carries.
    leave: Option<(ViewNum, LeaveCert)>,
    /// PROOFs that were asked for (DP-4).
    pub(crate) proofs: Proofs,
    /// Proofs that are asked for in STATUS.
    pub(crate) wants: Vec<Want>,
    /// `max_x`: the last number that the NEW-VIEW of this view fixed.
    pub(crate) last_fixed: SeqNum,
    /// `T_VC`: how long to wait for a NEW-VIEW, and for the first progress under it.
    patience_ns: u64,
    patience_max_ns: u64,
    new_view_timer: bool,
    /// Something that no view before had ordered was executed since the last view change began.
    progressed: bool,
    rejects: BTreeMap<Digest, u64>,
}

impl ViewChanges {
    /// Returns the knowledge of a replica that has never left a view.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            suspects: alloc::vec![None; config.cluster.n()],
            own_suspect: None,
            received: alloc::vec![None; config.cluster.n()],
            candidates: alloc::vec![None; config.cluster.n()],
            entered: None,
            leave: None,
            proofs: Proofs::default(),
            wants: Vec::new(),
            last_fixed: SeqNum(0),
            patience_ns: config.request_timeout_min_ns,
            patience_max_ns: config.view_timeout_max_ns,
            new_view_timer: false,
            progressed: true,
            rejects: BTreeMap::new(),
        }
    }

    /// Returns `T_VC`.
    pub(crate) fn patience_ns(&self) -> u64 {
        self.patience_ns
    }

    /// A view has failed: "this time it will wait 2T" [OSDI99 §4.5.2]. Bounded, so that it cannot
    /// overflow however often that happens (B29). `base` is what it had at least.
    fn lose_patience(&mut self, base: u64) {
        self.patience_ns = self.patience_ns.max(base).saturating_mul(2).min(self.patience_max_ns);
    }

    /// The view works: halve the wait, at each checkpoint, down to its base (TM-4).
    pub(crate) fn calm_down(&mut self, base: u64) {
        self.patience_ns = (self.patience_ns / 2).max(base);
    }

    /// Records progress: `seq` was executed. What the new view took over does not count: "before it executes a request in
    /// the new view that it had not executed previously" [OSDI99 §4.5.2], and that it needs its primary for.
    pub(crate) fn note_executed(&mut self, seq: SeqNum, is_normal: bool) {
        self.progressed |= is_normal && seq > self.last_fixed;
        self.rejects.clear();
    }

    /// Forgets proofs about numbers below a stable checkpoint.
    pub(crate) fn collect(&mut self, stable: SeqNum) {
        self.proofs.collect(stable);
        self.wants.retain(|want| want.seq > stable);
    }

    /// Counts a REQ-REJECT. Returns how many replicas reject the request.
    pub(crate) fn note_req_reject(&mut self, digest: Digest, from: ReplicaId) -> usize {
        if self.rejects.len() >= REJECTS_MAX && !self.rejects.contains_key(&digest) {
            return 0;
        }
        let set = self.rejects.entry(digest).or_insert(0);
        *set |= bit(from);
        size(*set)
    }

    /// Returns who has sent a valid VIEW-CHANGE for `view`: bit `i` is replica `i`.
    pub(crate) fn senders_for(&self, view: ViewNum) -> u64 {
        let of = self.received.iter().flatten().filter(|m| m.body().view == view);
        of.fold(0, |set, m| set | bit(m.sender()))
    }

    /// Returns this replica's own SUSPECT of `view`, to be sent again.
    pub(crate) fn own_suspect(&self, view: ViewNum) -> Option<&[u8]> {
        self.own_suspect.as_ref().filter(|(of, _)| *of == view).map(|(_, frame)| frame.as_slice())
    }

    /// Keeps a VIEW-CHANGE of this replica's own.
    pub(crate) fn keep_own(&mut self, message: Arc<Signed<ViewChange>>) {
        let index = message.sender().index();
        if let Some(entry) = self.received.get_mut(index) {
            *entry = Some(message);
        }
    }
}

impl Replica {
    /// Tells all that this replica wishes to leave its view, and continues working in it (LV-2).
    pub(crate) fn suspect(&mut self, now: Now, reason: SuspectReason, out: &mut Actions) {
        if self.recovery.is_active() {
            return;
        }
        let view = self.view;
        if self.views.own_suspect(view).is_none() {
            out.report(Milestone::Suspected { view, reason });
            let mut body = Vec::new();
            Suspect { view, reason, signature: [0; 64] }.encode(&mut Writer::new(&mut body));
            let signed = Signed::sign(&self.signer, &self.domains, Kind::Suspect, 0, self.id, (), &body);
            let frame = signed.frame().to_vec();
            let signature = quorate_wire::frame::signature_of(&frame).unwrap_or([0; 64]);
            self.views.own_suspect = Some((view, frame));
            if let Some(entry) = self.views.suspects.get_mut(self.id.index()) {
                *entry = Some(Suspect { view, reason, signature });
            }
        }
        if let Some(frame) = self.views.own_suspect(view) {
            out.forward(Recipient::All, Kind::Suspect, Lsn(0), frame);
        }
        self.judge_suspects(now, view, out);
    }

    /// Another replica wishes to leave a view. Its signature was checked at the authenticator.
    pub(crate) fn on_suspect(&mut self, now: Now, from: ReplicaId, m: &Suspect, out: &mut Actions) {
        if m.view < self.view {
            return out.reject(Reject::OtherView);
        }
        let Some(entry) = self.views.suspects.get_mut(from.index()) else { return };
        match entry {
            Some(known) if known.view > m.view => return out.reject(Reject::OtherView),
            Some(known) if known.view == m.view => return out.reject(Reject::Duplicate),
            Some(_) | None => *entry = Some(*m),
        }
        if m.view > self.view {
            self.status_soon(now, out);
        }
        self.judge_suspects(now, m.view, out);
    }

    /// A LeaveCert for `view`: f + 1 replicas suspect it, so a correct one does; or this is the view and
    /// its own primary hands it over (LV-2). A hand-over of a *later* view has no effect: a Byzantine replica could
    /// hand over each view in which it is primary and keep all replicas in view changes. The paper's rule that a view
    /// change needs f + 1 replicas holds here for every one of them: "a view change will happen only if at least f +
    /// 1 replicas" say so [OSDI99 §4.5.2].
    fn judge_suspects(&mut self, now: Now, view: ViewNum, out: &mut Actions) {
        let primary = self.cluster.primary(view);
        let of = self.views.suspects.iter().enumerate();
        let suspects: Vec<(ReplicaId, Suspect)> =
            of.filter_map(|(i, s)| Some((ReplicaId::at(i), s.filter(|s| s.view == view)?))).collect();
        let handed_over =
            mutant!(M85, view == self.view, true) && suspects.iter().any(|(from, _)| *from == primary);
        let enough = mutant!(M7, self.cluster.weak(), self.cluster.f());
        if suspects.len() >= enough || handed_over {
            self.start_view_change(now, view.next(), LeaveCert { suspects }, out);
        }
    }

    /// Leaves for `view`: "It stops accepting messages (other than checkpoint, view-change, and new-view
    /// messages) and multicasts a VIEW-CHANGE message to all replicas" [OSDI99 §4.4], spec §11.3.
    pub(crate) fn start_view_change(&mut self, now: Now, view: ViewNum, leave: LeaveCert, out: &mut Actions) {
        if view <= self.view {
            return;
        }
        let failed = self.status == Status::ViewChange;
        self.stop_normal_operation(out);
        self.view = view;
        self.judge_view();
        // "before it receives a valid new-view message for v+1 or before it executes a request in the new
        // view that it had not executed previously" [OSDI99 §4.5.2].
        if failed || !self.views.progressed {
            self.views.lose_patience(self.watch.request_timeout());
        }
        self.views.progressed = false;
        self.views.wants.clear();
        self.views.proofs.clear();
        for place in &mut self.views.candidates {
            *place = place.take().filter(|c| c.view() >= view);
        }
        self.views.new_view_timer = false;
        out.push(crate::io::step::Action::StopTimer(Timer::NewView));
        out.report(Milestone::ViewChangeStarted { view });
        // Sent at once, unless this replica has to wait until it may speak.
        self.views.leave = Some((view, leave));
        self.status_soon(now, out);
        self.on_view_changes_grown(now, out);
    }

    /// Ends normal operation in the log's view: P and Q take up what prepared and pre-prepared in it,
    /// the overlay goes, queued commits stay behind because P says as much (§11.3, TE-4, PB-3).
    pub(crate) fn stop_normal_operation(&mut self, out: &mut Actions) {
        if self.status == Status::ViewChange {
            return;
        }
        self.status = Status::ViewChange;
        self.undo_tentative(out);
        mutant!(M84, self.piggyback_sent(out), ());
        self.handing_off = false;
        for seq in self.log.numbers() {
            let Some(slot) = self.log.get_mut(seq) else { continue };
            if let Some((voted, digest)) = slot.voted {
                slot.claim(digest, voted);
            }
            if mutant!(M36, false, true)
                && let Some((prepared, _)) = slot.prepared
                && prepared < self.log.view()
            {
                // P cleared after one view change.
                if let Some(slot) = self.log.get_mut(seq) {
                    slot.prepared = None;
                }
            }
        }
    }

    fn send_view_change(&mut self, view: ViewNum, leave: LeaveCert, out: &mut Actions) {
        let message = self.own_view_change(view, leave);
        let mut body = Vec::new();
        message.encode(&mut Writer::new(&mut body));
        let signed = Signed::sign(&self.signer, &self.domains, Kind::ViewChange, 0, self.id, message, &body);
        let after = self.persist(Record::ViewChange { view, frame: signed.frame() }, out);
        let after = mutant!(M52, after, Lsn(0));
        out.forward(Recipient::All, Kind::ViewChange, after, signed.frame());
        self.views.keep_own(Arc::new(signed));
    }

    /// This replica's contribution to `view`: its checkpoints C, what prepared P, what it pre-prepared Q.
    fn own_view_change(&self, view: ViewNum, leave: LeaveCert) -> ViewChange {
        let stable = self.log.stable();
        let claims_max = self.cluster.f() + 2;
        // D5: of those above the stable one only what the disk can bring back.
        let last = if self.checkpoints.are_kept() { self.log.high() } else { stable };
        let checkpoints = self.checkpoints.own.range(stable..=last).map(|(n, d)| (*n, *d)).collect();
        let mut prepared = Vec::new();
        let mut pre_prepared = Vec::new();
        for slot in self.log.iter() {
            // VC-2: being executed here does not exempt a number.
            let omitted = mutant!(M37, false, slot.seq <= self.exec.executed);
            if let Some((u, batch)) = &slot.prepared
                && !omitted
            {
                // "a set containing a set P_m for each request m that prepared at i with a sequence
                // number higher than n" [OSDI99 §4.4]; one entry, of the highest view (VC-1).
                prepared.push(Prepared { seq: slot.seq, digest: batch.digest(), view: *u });
            }
            if !slot.claims.is_empty() {
                let claims = newest_claims(slot, claims_max);
                pre_prepared.push(PrePrepared { seq: slot.seq, claims });
            }
        }
        // I9, VC-3: whatever prepared was pre-prepared.
        assert!(mutant!(M36, true, true) && prepared.iter().all(|p| claimed(&pre_prepared, p)));
        let life = self.own_life();
        ViewChange { view, stable, life, checkpoints, prepared, pre_prepared, leave }
    }

    /// A VIEW-CHANGE that this replica sent before it lost its memory comes back from those who keep it as
    /// evidence. It helps to check the NEW-VIEW that names it, and nothing else (CR-4).
    pub(crate) fn on_own_view_change(&mut self, now: Now, m: &Arc<Signed<ViewChange>>, out: &mut Actions) {
        let (k, window) = (self.config.checkpoint_interval, self.config.window);
        match decision::well_formed(self.cluster, k, window, m.body()) {
            Ok(()) => self.supply_candidates(now, m, out),
            Err(reason) => out.reject(reason),
        }
    }

    /// Gives a VIEW-CHANGE to the NEW-VIEWs under examination that name it.
    fn supply_candidates(&mut self, now: Now, m: &Arc<Signed<ViewChange>>, out: &mut Actions) {
        let mut named = false;
        for candidate in self.views.candidates.iter_mut().flatten() {
            named |= candidate.supply(m);
        }
        if named {
            self.examine_new_views(now, out);
        }
    }

    /// Another replica has left. Its signature, and those of its LeaveCert, were checked at the authenticator.
    pub(crate) fn on_view_change(&mut self, now: Now, m: &Arc<Signed<ViewChange>>, out: &mut Actions) {
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
                self.status_soon(now, out); // it comes again when the table knows that life
                return out.reject(Reject::LaterLife);
            }
            Counts::NoMore => return out.reject(Reject::EndedLife),
        }
        if body.view < self.view {
            return out.reject(Reject::OtherView);
        }
        let Some(entry) = self.views.received.get_mut(from.index()) else { return };
        match entry {
            // RC-11c: of two lives that count the newer one stays, whatever their views.
            Some(known) if known.body().life != body.life => {
                if mutant!(M18, known.body().life > body.life, true) {
                    return out.reject(Reject::EndedLife);
                }
                *entry = Some(m.clone());
            }
            Some(known) if known.body().view > body.view => return out.reject(Reject::OtherView),
            Some(known) if known.body().view == body.view => {
                let second = known.digest() != m.digest();
                if second {
                    out.report(Milestone::Equivocation { by: from });
                }
                // VC-6: the first stays.
                return out.reject(if second { Reject::SecondVersion } else { Reject::Duplicate });
            }
            Some(_) | None => *entry = Some(m.clone()),
        }
        if body.view > self.view {
            self.follow(now, body.view, &body.leave, out);
        }
        self.on_view_changes_grown(now, out);
    }

    /// Starts a view change because others have. A LeaveCert of f + 1 replicas is a reason for all, so that none
    /// leaves alone (LV-2); a hand-over only for those in that view. Otherwise, "if a replica receives a
    /// set of f + 1 valid view-change messages from other replicas for views greater than its current view,
    /// it sends a view-change message for the smallest view in the set" [OSDI99 §4.5.2].
    fn follow(&mut self, now: Now, view: ViewNum, leave: &LeaveCert, out: &mut Actions) {
        let certified = leave.suspects.len() >= mutant!(M7, self.cluster.weak(), self.cluster.f());
        if certified || view == self.view.next() {
            return self.start_view_change(now, view, leave.clone(), out);
        }
        let mut ahead: Vec<&Arc<Signed<ViewChange>>> =
            self.views.received.iter().flatten().filter(|m| m.body().view > self.view).collect();
        ahead.sort_by_key(|m| core::cmp::Reverse(m.body().view));
        let Some(m) = ahead.get(self.cluster.f()) else { return };
        let (view, leave) = (m.body().view, m.body().leave.clone());
        self.start_view_change(now, view, leave, out);
    }

    /// More VIEW-CHANGEs for this view are here, or this replica may send its own at last.
    pub(crate) fn on_view_changes_grown(&mut self, now: Now, out: &mut Actions) {
        if self.status != Status::ViewChange {
            return;
        }
        let view = self.view;
        let own_missing = self.views.senders_for(view) & bit(self.id) == 0;
        // VC-5: it names the stable checkpoint, so it waits for the digest of the initial state.
        let nameable = self.checkpoints.own.contains_key(&self.log.stable());
        if own_missing && nameable && !self.recovery.forbids_view_change() {
            let kept =
                self.views.leave.as_ref().filter(|(of, _)| *of == view).map(|(_, leave)| leave.clone());
            let other = self.views.received.iter().flatten().find(|m| m.body().view == view);
            if let Some(leave) = kept.or_else(|| other.map(|m| m.body().leave.clone())) {
                self.send_view_change(view, leave, out);
            }
        }
        // "a replica that multicasts a view-change message for view v+1 waits for 2f + 1 view-change
        // messages for view v+1 and then starts its timer" [OSDI99 §4.5.2], TM-3.
        let enough = size(self.views.senders_for(self.view)) >= self.cluster.quorum();
        if enough && !self.views.new_view_timer {
            self.views.new_view_timer = true;
            Self::set_timer(out, Timer::NewView, now.mono_ns.saturating_add(self.patience()));
        }
        self.try_new_view(now, out);
    }

    /// No NEW-VIEW came in time, or nothing came of it (LV-3).
    pub(crate) fn on_new_view_timer(&mut self, now: Now, out: &mut Actions) {
        if self.status != Status::ViewChange || !self.views.new_view_timer {
            return;
        }
        self.suspect(now, SuspectReason::Timeout, out);
        if self.status == Status::ViewChange && self.views.new_view_timer {
            Self::set_timer(out, Timer::NewView, now.mono_ns.saturating_add(self.patience()));
        }
    }
}

/// Returns the newest pairs of Q for a number: at most `max`, always with the one that prepared (VC-4).
fn newest_claims(slot: &crate::order::log::Slot, max: usize) -> Vec<(Digest, ViewNum)> {
    let mut claims: Vec<_> = slot.claims.iter().take(max).copied().collect();
    if let Some((_, batch)) = &slot.prepared
        && let Some(own) = slot.claims.iter().skip(max).find(|(d, _)| *d == batch.digest())
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

#[cfg(test)]
mod tests {
    use quorate_wire::{Cluster, ClusterId};

    use super::*;

    /// TM-3, A23: what the new view took over is executed without its primary, and is no progress.
    #[test]
    fn only_what_no_view_before_had_ordered_is_progress() {
        let config = Config::new(Cluster::tolerating(1).unwrap(), ClusterId([0; 32]));
        let mut views = ViewChanges::new(&config);
        (views.last_fixed, views.progressed) = (SeqNum(20), false);
        views.note_executed(SeqNum(20), true);
        assert!(!views.progressed, "taken over");
        views.note_executed(SeqNum(21), false);
        assert!(!views.progressed, "in no view");
        views.note_executed(SeqNum(21), true);
        assert!(views.progressed);
    }
}
