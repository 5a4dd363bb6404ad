//! Whether the requests of a proposal are authentic here, and what is done about those that are not: backups vouch to each
//! other, then complain to the primary, and the primary hands over (spec §4.3, PP-5).

use alloc::vec::Vec;

use quorate_wire::Digest;
use quorate_wire::batch::{Batch, Body};
use quorate_wire::id::{ClientId, ReplicaId, SeqNum, Timestamp};
use quorate_wire::message::{Kind, Proof, ReqAck, ReqReject, SuspectReason};

use crate::io::config::RequestAuth;
use crate::io::step::{Actions, Lsn, Milestone, Now, Recipient, Reject};
use crate::order::slot::Slot;
use crate::order::votes::bit;
use crate::replica::Replica;
use crate::requests::table::Client;

/// The most requests that a backup complains about at a time, in all proposals: the first ones come first.
const COMPLAINTS_MAX: usize = 256;

impl Replica {
    /// PP-5: every request is authentic here.
    pub(super) fn is_authentic(&self, batch: &Batch) -> bool {
        let mut inlined = batch.inlined().iter();
        let all = inlined.all(|r| self.stands(r.client, r.timestamp, &r.digest, r.proof))
            && batch.separate_bodies().all(|(digest, body)| self.stands_apart(digest, body));
        mutant!(M26, all, true)
    }

    /// PP-5 for a separate request.
    fn stands_apart(&self, digest: &Digest, body: Option<&Body>) -> bool {
        let stands = |body: &Body| self.stands(body.client, body.timestamp, digest, body.proof);
        body.map_or_else(|| self.bodies.is_proven(digest), stands)
    }

    /// Looks at the signatures of those requests that are not authentic, where there are any.
    fn check_signatures(&mut self, batch: &Batch, out: &mut Actions) {
        for r in batch.inlined() {
            if !self.stands(r.client, r.timestamp, &r.digest, r.proof)
                && let Some(signature) = batch.signature(r)
            {
                self.bodies.check_inlined(r.client, r.digest, signature, out);
            }
        }
        for body in batch.bodies() {
            if !self.stands_apart(&body.digest, Some(body))
                && let Some(signature) = body.signature()
            {
                self.bodies.check_inlined(body.client, body.digest, signature, out);
            }
        }
    }

    /// PP-5 for one request: this replica may vouch for it, or the client is past it, so that it will not be executed in any
    /// case (EX-2). The last matters after a view change: a primary may propose again what the others have executed, with MACs
    /// under keys that the client has renewed since.
    fn stands(&self, client: ClientId, timestamp: Timestamp, digest: &Digest, proof: Proof) -> bool {
        self.may_vouch(client, digest, proof)
            || self.clients.get(client).is_some_and(|known| timestamp <= known.executed())
    }

    /// Says whether a request is authentic here: its entry of the authenticator is right, where that is enough; or this
    /// replica holds the same request as authentic, or has vouched for it, or saw that the signature is right.
    fn may_vouch(&self, client: ClientId, digest: &Digest, proof: Proof) -> bool {
        let must_sign = self.config.request_auth == RequestAuth::SigMac;
        if proof == Proof::Signed || (proof == Proof::Mac && !must_sign) {
            return true;
        }
        let pending = self.clients.get(client).and_then(Client::pending);
        let held = pending.filter(|p| p.request().digest == *digest);
        // Its client may have moved on here (AU-6).
        let was_vouched = || self.clients.vouchers().have_vouched(digest);
        held.is_some_and(|p| !must_sign || p.request().proof == Proof::Signed)
            || self.bodies.is_proven(digest)
            || !must_sign && was_vouched()
    }

    /// Notes which requests of the proposal at `seq` are not authentic here or missing, and which other backups vouch for
    /// each so far.
    #[cold]
    fn reconsider(&mut self, seq: SeqNum) {
        let Some(batch) = self.log.get(seq).and_then(Slot::proposed).cloned() else { return };
        let not = bit(self.id) | bit(self.primary());
        let by = |client, digest: &Digest| (*digest, self.clients.vouchers().of(client, digest) & !not);
        let inlined = batch.inlined().iter();
        let inlined = inlined.filter(|r| !self.stands(r.client, r.timestamp, &r.digest, r.proof));
        let apart = batch.separate_bodies().filter(|(digest, body)| !self.stands_apart(digest, *body));
        let apart = apart.map(|(digest, body)| body.map_or((*digest, 0), |body| by(body.client, digest)));
        let doubtful: Vec<_> = inlined.map(|r| by(r.client, &r.digest)).chain(apart).collect();
        if let Some(slot) = self.log.slot_mut(seq) {
            slot.doubt(&doubtful);
        }
    }

    /// Looks again at proposals with requests that were not authentic here.
    pub(super) fn recheck_proposals(&mut self, now: Now, out: &mut Actions) {
        for seq in self.log.used() {
            let waiting = self.log.get(seq).and_then(Slot::proposal).filter(|p| !p.authentic);
            let Some(batch) = waiting.and_then(|p| p.batch.clone()) else { continue };
            self.check_signatures(&batch, out);
            self.reconsider(seq);
            self.advance(now, seq, out);
        }
    }

    /// A backup vouches for a request, which proposals may wait for (AU-2).
    pub(super) fn count_voucher(&mut self, now: Now, from: ReplicaId, m: &ReqAck, out: &mut Actions) {
        let may_wait = self.bodies.is_seeking() && self.config.request_auth != RequestAuth::SigMac;
        if !may_wait || from == self.primary() {
            return;
        }
        for seq in self.log.used() {
            if self.log.slot_mut(seq).is_some_and(|slot| slot.note_voucher(&m.digest, from)) {
                self.advance(now, seq, out);
            }
        }
    }

    /// AU-5: requests could not be authenticated here in a round trip. Returns those of them of which copies with signatures are
    /// asked for now, or none if no proposal waits for any.
    pub(super) fn complain(&mut self, now: Now, out: &mut Actions) -> Option<Vec<Digest>> {
        if !self.is_normal() || self.is_primary() {
            return None;
        }
        let (retry, patience) = (self.config.fetch_retry_ns, self.patience(now));
        // Others need as long to vouch, and an answer may be lost (L137).
        let pause = (patience / 4).max(2 * retry);
        let (mut waiting, mut left, mut asked) = (false, COMPLAINTS_MAX, Vec::new());
        for seq in self.log.used() {
            let Some(proposal) = self.log.get(seq).and_then(Slot::proposal).filter(|p| !p.authentic) else {
                continue;
            };
            waiting = true;
            let waited = now.mono_ns.saturating_sub(proposal.since);
            if left == 0 || waited < retry {
                continue;
            }
            self.reconsider(seq);
            self.advance(now, seq, out);
            let rejects = self.rejects(seq, left);
            left -= rejects.len();
            let mut asks = |slot: &mut Slot| slot.ask_for_signatures(now.mono_ns, pause);
            if !rejects.is_empty() && self.log.slot_mut(seq).is_some_and(&mut asks) {
                out.reject(Reject::UnprovenRequest);
                asked.extend(rejects.iter().map(|reject| reject.digest));
            }
            // The primary is told if the others had the time to vouch, and have not.
            let was_in_vain = waited >= pause;
            self.send_rejects(now, &rejects, was_in_vain, out);
        }
        waiting.then_some(asked)
    }

    /// Returns complaints about at most `max` requests of the proposal at `seq` that are here and not authentic. Only the
    /// primary is responsible for a missing body, so clients whose requests are missing are not put on probation for it.
    fn rejects(&self, seq: SeqNum, max: usize) -> Vec<ReqReject> {
        // If clients have to sign, no replica's word makes a request authentic.
        let must_sign = self.config.request_auth == RequestAuth::SigMac;
        let (view, enough) = (self.views.view(), if must_sign { usize::MAX } else { self.cluster.f() });
        let waiting = self.log.get(seq).filter(|slot| slot.proposal().is_some_and(|p| !p.authentic));
        let Some((slot, batch)) = waiting.and_then(|slot| Some((slot, slot.proposed()?))) else {
            return Vec::new();
        };
        let doubtful = requests_here(batch).filter(|(_, _, digest, _)| !slot.is_accepted(digest, enough));
        doubtful
            .map(|(client, timestamp, digest, _)| ReqReject { view, seq, client, timestamp, digest })
            .take(max)
            .collect()
    }

    /// Asks the other backups to vouch for requests, and tells the primary if that was in vain before.
    fn send_rejects(&mut self, now: Now, rejects: &[ReqReject], was_in_vain: bool, out: &mut Actions) {
        let (own, primary) = (self.id, self.primary());
        for to in self.cluster.replicas().filter(|to| *to != own && (*to != primary || was_in_vain)) {
            for reject in rejects {
                out.send(Recipient::Replica(to), Kind::ReqReject, Lsn(0), |w| reject.encode(w));
            }
        }
        // What a primary says is a client's request says nothing of the client: it may have made it up. It knows of
        // f + 1 who complain, and gives its view up if it is correct (L4).
        for ReqReject { client, .. } in rejects.iter().filter(|_| mutant!(M74, false, true)) {
            self.clients.start_probation(*client, self.config.request_auth, now.mono_ns);
            out.report(Milestone::OnProbation { client: *client });
        }
    }

    /// A backup cannot authenticate a request in the primary's proposal. Other backups vouch for it if they can (AU-2). If
    /// too few of them do, the primary hands over (AU-5).
    #[cold]
    pub(super) fn on_req_reject(&mut self, now: Now, from: ReplicaId, m: &ReqReject, out: &mut Actions) {
        if m.view != self.views.view() || !self.is_normal() {
            return out.reject(Reject::OtherView);
        }
        if from == self.primary() {
            return out.reject(Reject::WrongSender);
        }
        if !self.is_primary() {
            return self.answer_complaint(now, from, m, out);
        }
        let proposed = self.log.get(m.seq).and_then(Slot::proposed);
        if proposed.and_then(|batch| proof_in(batch, m)).is_none() || m.seq <= self.exec.executed() {
            return out.reject(Reject::Unwanted);
        }
        let rejecters = self.evidence.note_req_reject(m.digest, from);
        if rejecters < self.cluster.weak() {
            return;
        }
        // f + 1 replicas, so one correct one, cannot take the request: it cannot become authentic
        // everywhere. Handing over costs a view change, and no time-out.
        if self.clients.entry(m.client).is_some() {
            self.clients.take_pending(m.client);
            self.clients.start_probation(m.client, self.config.request_auth, now.mono_ns);
            out.report(Milestone::OnProbation { client: m.client });
        }
        // Gives the view up as its primary: a SUSPECT of one's own view is a LeaveCert (LV-2).
        if self.views.hand_off() {
            self.suspect(now, SuspectReason::SelfHandoff, out);
        }
    }

    /// Vouches for a request of the proposal to a backup that cannot check it, once for each complaint (AU-2).
    fn answer_complaint(&mut self, now: Now, from: ReplicaId, m: &ReqReject, out: &mut Actions) {
        if self.config.request_auth == RequestAuth::SigMac {
            return; // only signatures count
        }
        if !self.peers.allow_lookups(from, now.mono_ns, 1, &self.config) {
            return out.reject(Reject::TooSoon);
        }
        let proposed = self.log.get(m.seq).and_then(Slot::proposed);
        let Some(proof) = proposed.and_then(|batch| proof_in(batch, m)) else {
            return out.reject(Reject::Unwanted);
        };
        if self.may_vouch(m.client, &m.digest, proof) {
            // It stands by that when its client has moved on (AU-6).
            self.clients.remember(m.digest);
            let ack = ReqAck { client: m.client, timestamp: m.timestamp, digest: m.digest };
            out.send(Recipient::Replica(from), Kind::ReqAck, Lsn(0), |w| ack.encode(w));
        }
    }
}

/// Returns the requests of a batch that are here, and how each is authenticated.
fn requests_here(batch: &Batch) -> impl Iterator<Item = (ClientId, Timestamp, Digest, Proof)> {
    let inlined = batch.inlined().iter().map(|r| (r.client, r.timestamp, r.digest, r.proof));
    inlined.chain(batch.bodies().map(|b| (b.client, b.timestamp, b.digest, b.proof)))
}

/// Returns how the request that a REQ-REJECT names is authenticated in a batch, if it is there.
fn proof_in(batch: &Batch, m: &ReqReject) -> Option<Proof> {
    let same =
        |r: &(ClientId, Timestamp, Digest, Proof)| (r.0, r.1, r.2) == (m.client, m.timestamp, m.digest);
    requests_here(batch).find(same).map(|r| r.3)
}
