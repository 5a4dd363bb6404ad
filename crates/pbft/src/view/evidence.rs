//! What a replica knows of view changes: who suspects a view, who has left for which, and the NEW-VIEWs (spec §11).

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::id::{ReplicaId, SeqNum, ViewNum};
use quorate_wire::message::{LeaveCert, NewView, Suspect, ViewChange, Want};
use quorate_wire::{Digest, Signed};

use crate::io::milestone::Reject;
use crate::io::step::Lsn;
use crate::order::votes::bit;
use crate::view::candidate::Candidate;
use crate::view::proofs::{Proofs, Shown};

/// Maximum number of requests for which the REQ-REJECTs of one replica are counted.
const REJECTS_MAX: usize = 1024;

/// Why a message was not kept, and whether its sender contradicts itself by it.
pub(crate) type Refused = (Reject, bool);

/// At most two SUSPECTs, one VIEW-CHANGE and one NEW-VIEW of each replica.
#[derive(Debug)]
pub(crate) struct ViewEvidence {
    /// The SUSPECT of each replica for this replica's view, and its newest one: that of a view that its sender has fallen
    /// back from by a crash must not take the place of the other (L41).
    suspects: Vec<[Option<Suspect>; 2]>,
    /// This replica's own, as a frame to send again.
    own_suspect: Option<(ViewNum, Vec<u8>)>,
    /// The newest valid VIEW-CHANGE of each replica (VC-6).
    received: Vec<Option<Arc<Signed<ViewChange>>>>,
    /// The newest NEW-VIEW of each replica, under examination. There is one for each replica, so that a Byzantine
    /// replica's NEW-VIEW for a far view does not block others.
    candidates: Vec<Option<Candidate>>,
    /// The record of this replica's own VIEW-CHANGE, before which that is not sent (D3).
    own_after: Lsn,
    /// The NEW-VIEW that this replica last entered a view by, and the records before which it is not sent again.
    entered: Option<Candidate>,
    entered_after: Lsn,
    /// Why this replica left for its view: what its VIEW-CHANGE carries.
    leave: Option<(ViewNum, LeaveCert)>,
    /// PROOFs that were asked for (DP-4).
    proofs: Proofs,
    /// Proofs that are asked for in STATUS.
    wants: Vec<Want>,
    /// The requests about which each replica complains: a liar must not fill the place of others (L160).
    rejects: Vec<BTreeSet<Digest>>,
}

impl ViewEvidence {
    /// Returns the knowledge of a replica, one of `n`, that has never left a view.
    pub(crate) fn new(n: usize) -> Self {
        Self {
            suspects: alloc::vec![[None; 2]; n],
            own_suspect: None,
            received: alloc::vec![None; n],
            candidates: alloc::vec![None; n],
            own_after: Lsn(0),
            entered: None,
            entered_after: Lsn(0),
            leave: None,
            proofs: Proofs::default(),
            wants: Vec::new(),
            rejects: alloc::vec![BTreeSet::new(); n],
        }
    }

    /// Returns this replica's own SUSPECT of `view`, to be sent again.
    pub(crate) fn own_suspect(&self, view: ViewNum) -> Option<&[u8]> {
        self.own_suspect.as_ref().filter(|(of, _)| *of == view).map(|(_, frame)| frame.as_slice())
    }

    /// Returns the SUSPECTs of a view, with who sent them.
    pub(crate) fn suspects(&self, view: ViewNum) -> Vec<(ReplicaId, Suspect)> {
        let of = self.suspects.iter().enumerate();
        let of = of.flat_map(|(i, kept)| kept.iter().flatten().map(move |s| (ReplicaId::at(i), *s)));
        of.filter(|(_, s)| s.view == view).collect()
    }

    /// Returns the newest valid VIEW-CHANGE of each replica that has sent one.
    pub(crate) fn received(&self) -> impl Iterator<Item = &Arc<Signed<ViewChange>>> {
        self.received.iter().flatten()
    }

    /// Returns those for `view`.
    pub(crate) fn received_for(&self, view: ViewNum) -> impl Iterator<Item = &Arc<Signed<ViewChange>>> {
        self.received().filter(move |m| m.body().view == view)
    }

    /// Returns who has sent a valid VIEW-CHANGE for `view`: bit `i` is replica `i`.
    pub(crate) fn senders_for(&self, view: ViewNum) -> u64 {
        self.received_for(view).fold(0, |set, m| set | bit(m.sender()))
    }

    /// Returns who has sent a valid VIEW-CHANGE for `view` or a later one: each of them has left all earlier views.
    pub(crate) fn senders_from(&self, view: ViewNum) -> u64 {
        self.received().filter(|m| m.body().view >= view).fold(0, |set, m| set | bit(m.sender()))
    }

    /// Returns the NEW-VIEWs under examination.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        self.candidates.iter().flatten()
    }

    /// Returns the NEW-VIEW of a replica, if it is under examination and all that it names is here.
    pub(crate) fn complete(&self, of: ReplicaId) -> Option<&Candidate> {
        self.candidates.get(of.index())?.as_ref().filter(|c| c.missing() == 0)
    }

    /// Returns the NEW-VIEW that this replica last entered a view by.
    pub(crate) fn entered(&self) -> Option<&Candidate> {
        self.entered.as_ref()
    }

    /// Returns the NEW-VIEW by which this replica entered `view`.
    pub(crate) fn entered_in(&self, view: ViewNum) -> Option<&Candidate> {
        self.entered.as_ref().filter(|c| c.view() == view)
    }

    /// Returns the proofs that are asked for.
    pub(crate) fn wants(&self) -> &[Want] {
        &self.wants
    }

    /// Returns the PROOFs that support a claim.
    pub(crate) fn supporting(&self, want: &Want) -> impl Iterator<Item = &Shown> + use<'_> {
        self.proofs.supporting(want)
    }

    /// Returns why `view` may be left for: this replica's own reason, or another's.
    pub(crate) fn leave_cert(&self, view: ViewNum) -> Option<LeaveCert> {
        let own = self.leave.as_ref().filter(|(of, _)| *of == view).map(|(_, leave)| leave.clone());
        own.or_else(|| self.received_for(view).next().map(|m| m.body().leave.clone()))
    }

    /// Keeps a SUSPECT of this replica's own, and its frame.
    pub(crate) fn suspect(&mut self, own: ReplicaId, suspect: Suspect, frame: Vec<u8>) {
        self.own_suspect = Some((suspect.view, frame));
        if let Some([current, _]) = self.suspects.get_mut(own.index()) {
            *current = Some(suspect);
        }
    }

    /// Keeps another replica's SUSPECT if it is for this replica's view, `view`, or newer than those before.
    pub(crate) fn keep_suspect(&mut self, from: ReplicaId, m: &Suspect, view: ViewNum) -> Result<(), Reject> {
        let Some([current, newest]) = self.suspects.get_mut(from.index()) else {
            return Err(Reject::WrongSender);
        };
        if newest.is_some_and(|known| known.view == view) {
            *current = newest.take();
        }
        if [*current, *newest].iter().flatten().any(|known| known.view == m.view) {
            return Err(Reject::Duplicate);
        }
        match newest {
            _ if m.view == view => *current = Some(*m),
            Some(known) if known.view > m.view => return Err(Reject::OtherView),
            Some(_) | None => *newest = Some(*m),
        }
        Ok(())
    }

    /// Keeps a VIEW-CHANGE of this replica's own, which is not sent before the disk has the record `after`.
    pub(crate) fn keep_own(&mut self, message: Arc<Signed<ViewChange>>, after: Lsn) {
        self.own_after = after;
        let index = message.sender().index();
        if let Some(entry) = self.received.get_mut(index) {
            *entry = Some(message);
        }
    }

    /// Keeps another replica's VIEW-CHANGE, unless one before it stays.
    pub(crate) fn keep(&mut self, m: &Arc<Signed<ViewChange>>) -> Result<(), Refused> {
        let body = m.body();
        let Some(entry) = self.received.get_mut(m.sender().index()) else {
            return Err((Reject::WrongSender, false));
        };
        match entry {
            // RC-11c: of two lives that count the newer one stays, whatever their views.
            Some(known) if known.body().life != body.life => {
                if mutant!(M18, known.body().life > body.life, true) {
                    return Err((Reject::EndedLife, false));
                }
            }
            Some(known) if known.body().view > body.view => return Err((Reject::OtherView, false)),
            Some(known) if known.body().view == body.view => {
                let second = known.digest() != m.digest();
                // VC-6: the first stays.
                return Err((if second { Reject::SecondVersion } else { Reject::Duplicate }, second));
            }
            Some(_) | None => {}
        }
        *entry = Some(m.clone());
        Ok(())
    }

    /// Forgets VIEW-CHANGEs for which `ended` holds.
    pub(crate) fn forget(&mut self, ended: impl Fn(&Arc<Signed<ViewChange>>) -> bool) {
        for place in &mut self.received {
            if place.as_ref().is_some_and(&ended) {
                *place = None;
            }
        }
    }

    /// Takes a NEW-VIEW for examination, unless one before it stays. Returns whose VIEW-CHANGEs it lacks.
    pub(crate) fn consider(&mut self, m: &Arc<Signed<NewView>>) -> Result<u64, Refused> {
        let Some(place) = self.candidates.get_mut(m.sender().index()) else {
            return Err((Reject::WrongSender, false));
        };
        if let Some(known) = place.as_ref().filter(|c| c.view() >= m.body().view) {
            let (life, known_life) = (m.body().life, known.message().body().life);
            let second = known.view() == m.body().view && known.message().digest() != m.digest();
            // RC-11c: one for each life of its sender.
            if !(second && known_life < life) {
                let reason = if second { Reject::SecondVersion } else { Reject::Duplicate };
                return Err((reason, second && known_life == life));
            }
        }
        let mut candidate = Candidate::new(m.clone());
        for known in self.received.iter().flatten() {
            candidate.supply(known);
        }
        let missing = candidate.missing();
        *place = Some(candidate);
        Ok(missing)
    }

    /// Gives a VIEW-CHANGE to the NEW-VIEWs under examination that name it. Says whether one lacked it.
    pub(crate) fn supply(&mut self, m: &Arc<Signed<ViewChange>>) -> bool {
        let mut lacked = false;
        for candidate in self.candidates.iter_mut().flatten() {
            lacked |= candidate.supply(m);
        }
        lacked
    }

    /// Ends the examination of a replica's NEW-VIEW.
    pub(crate) fn dismiss(&mut self, of: ReplicaId) {
        if let Some(place) = self.candidates.get_mut(of.index()) {
            *place = None;
        }
    }

    /// This replica leaves for `view`: what only earlier views need is forgotten.
    pub(crate) fn leave_for(&mut self, view: ViewNum, leave: LeaveCert) {
        self.wants.clear();
        self.proofs.clear();
        for place in &mut self.candidates {
            *place = place.take().filter(|c| c.view() >= view);
        }
        self.leave = Some((view, leave));
    }

    /// This replica enters a view. It does not send the NEW-VIEW again before the disk has the record `after`.
    pub(crate) fn enter(&mut self, candidate: Candidate, after: Lsn) {
        self.wants.clear();
        self.forget_req_rejects();
        (self.entered, self.entered_after) = (Some(candidate), after);
    }

    /// The NEW-VIEW is not sent again before the disk has this record, either.
    pub(crate) fn send_entered_after(&mut self, after: Lsn) {
        self.entered_after = self.entered_after.max(after);
    }

    /// Returns before which record this replica's own VIEW-CHANGE is not sent.
    pub(crate) fn own_after(&self) -> Lsn {
        self.own_after
    }

    /// Returns before which record the NEW-VIEW by which this replica entered its view is not sent again.
    pub(crate) fn entered_after(&self) -> Lsn {
        self.entered_after
    }

    /// Notes what STATUS will ask for. Says whether that is new.
    pub(crate) fn want(&mut self, wants: Vec<Want>) -> bool {
        let news = wants != self.wants;
        self.wants = wants;
        news
    }

    /// Keeps a PROOF, unless there is a newer one of its sender, or no room: `max` numbers and digests.
    pub(crate) fn prove(&mut self, proof: &Shown, max: usize) -> bool {
        self.proofs.keep(proof, max)
    }

    /// Forgets proofs about numbers below a stable checkpoint.
    pub(crate) fn collect(&mut self, stable: SeqNum) {
        self.proofs.collect(stable);
        self.wants.retain(|want| want.seq > stable);
    }

    /// Counts a REQ-REJECT. Returns how many replicas reject the request.
    pub(crate) fn note_req_reject(&mut self, digest: Digest, from: ReplicaId) -> usize {
        if let Some(own) = self.rejects.get_mut(from.index())
            && own.len() < REJECTS_MAX
        {
            own.insert(digest);
        }
        self.rejects.iter().filter(|of| of.contains(&digest)).count()
    }

    /// Something was executed: REQ-REJECTs are counted from the beginning again.
    pub(crate) fn forget_req_rejects(&mut self) {
        self.rejects.iter_mut().for_each(BTreeSet::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// AU-5, L160: a liar complains about as many requests as are counted. The complaints of others count all the same.
    #[test]
    fn l160_a_liar_leaves_room_for_the_complaints_of_others() {
        let mut evidence = ViewEvidence::new(4);
        let request = |i: u32| Digest(core::array::from_fn(|at| i.to_le_bytes()[at % 4]));
        for i in 0..10_000 {
            evidence.note_req_reject(request(i), ReplicaId(3));
        }
        assert_eq!(evidence.rejects[3].len(), REJECTS_MAX);
        let other = request(20_000);
        assert_eq!([1, 2].map(|from| evidence.note_req_reject(other, ReplicaId(from))), [1, 2]);
        assert_eq!(evidence.note_req_reject(request(0), ReplicaId(1)), 2);
    }
}
