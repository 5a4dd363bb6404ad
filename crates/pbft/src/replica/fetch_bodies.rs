//! Bodies of requests and whole batches that are sent separately from the messages that name them: stored by digest,
//! fetched when missing, accepted from any sender because the digest proves them (spec §5.3, PC-5).

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::Digest;
use quorate_wire::batch::{Batch, Body, StoredRequest};
use quorate_wire::id::{ReplicaId, SeqNum};
use quorate_wire::message::{BodyFetch, BodyKind, BodyMessage, FETCH_DIGESTS_MAX, Kind, Request};

use crate::io::step::{Actions, Lsn, Milestone, Now, Recipient, Reject};
use crate::order::slot::Slot;
use crate::replica::Replica;

impl Replica {
    /// Fills in the bodies of a batch that are here.
    pub(super) fn complete_from_table(&self, batch: &Arc<Batch>) -> Arc<Batch> {
        let mut batch = batch.clone();
        if batch.missing().any(|digest| self.bodies.held(digest).is_some()) {
            Arc::make_mut(&mut batch).complete(|digest| self.bodies.held(digest).cloned());
        }
        batch
    }

    /// Returns a batch by digest, wherever it is kept.
    pub(super) fn find_batch(&self, seq: SeqNum, digest: &Digest) -> Option<&Arc<Batch>> {
        self.log.get(seq).and_then(|slot| slot.batch(digest)).or_else(|| self.bodies.batch(digest))
    }

    /// Asks for batches that are needed, until they come: first a replica that says to have executed `seq`, if any does.
    pub(super) fn want_batches(&mut self, now: Now, seq: SeqNum, digests: &[Digest], out: &mut Actions) {
        let new: Vec<Digest> = digests.iter().copied().filter(|digest| self.bodies.want(*digest)).collect();
        if !new.is_empty() {
            // The first question leaves at once; the timer repeats it to others.
            let own = self.id;
            let able: Vec<ReplicaId> = self.peers.that_executed(seq).filter(|id| *id != own).collect();
            let pick = self.rng.below(u64::try_from(able.len()).unwrap_or(0).max(1));
            let able = usize::try_from(pick).ok().and_then(|pick| able.get(pick).copied());
            let to = able.unwrap_or_else(|| self.someone_but(own));
            ask_for(to, BodyKind::Batch, &new, out);
        }
        self.bodies.seek(now, out);
    }

    /// Returns a randomly chosen replica that is neither this one nor `not`, if there is one.
    fn someone_but(&mut self, not: ReplicaId) -> ReplicaId {
        let (own, cluster) = (self.id, self.cluster);
        let others = || cluster.replicas().filter(|id| *id != own && *id != not);
        let count = u64::try_from(others().count()).unwrap_or(0);
        let pick = usize::try_from(self.rng.below(count.max(1))).unwrap_or(0);
        others().nth(pick).unwrap_or(not)
    }

    /// Bodies, batches or proofs of authenticity have not come in time: ask again, and others.
    pub(super) fn on_body_timer(&mut self, now: Now, unproven: Option<&[Digest]>, out: &mut Actions) {
        self.bodies.stop_seeking();
        let missing = self.missing_requests();
        let wanted: Vec<Digest> = self.bodies.wanted().copied().collect();
        if missing.is_empty() && wanted.is_empty() && unproven.is_none() {
            return;
        }
        // A copy with a signature may be there (AU-5).
        let unsigned = unproven.unwrap_or_default();
        if self.cluster.n() > 1 {
            let primary = self.primary();
            let other = self.someone_but(primary);
            for to in [primary, other] {
                if to == self.id {
                    continue;
                }
                let requests = [(BodyKind::Request, unsigned), (BodyKind::Request, &missing)];
                for (kind, digests) in requests.into_iter().chain([(BodyKind::Batch, &wanted[..])]) {
                    ask_for(to, kind, digests, out);
                }
            }
        }
        self.bodies.seek(now, out);
    }

    /// Returns the digests of requests that are not here, and that some batch names or that this primary is to propose. In the
    /// order of the batches: answers are bounded, and the first batch has to be complete first (L120).
    fn missing_requests(&self) -> Vec<Digest> {
        let in_log = self.log.iter().flat_map(|slot| slot.proposed().into_iter().chain(slot.fetched()));
        let batches = in_log.chain(self.bodies.batches());
        let all = batches.flat_map(|batch| batch.missing()).chain(self.vouched());
        let mut seen = BTreeSet::new();
        all.filter(|digest| seen.insert(**digest)).copied().collect()
    }

    /// A request or batch that was asked for. Its digest identifies it, from any sender. `is_taken`: this primary proposes it.
    #[cold]
    pub(super) fn on_body(&mut self, now: Now, m: &BodyMessage<'_>, is_taken: bool, out: &mut Actions) {
        match m {
            BodyMessage::Request(request) => {
                if !self.supply_body(now, request, out) && !is_taken {
                    out.reject(Reject::Unwanted);
                }
            }
            BodyMessage::Batch(batch) => {
                let digest = batch.digest();
                if !self.bodies.take_wanted(&digest) {
                    return out.reject(Reject::Unwanted);
                }
                out.report(Milestone::BatchFetched { digest });
                let batch = self.complete_from_table(batch);
                let incomplete = !batch.is_complete();
                let placed = self.place_batch(&batch);
                if incomplete {
                    self.bodies.seek(now, out);
                }
                self.recheck_hungry(now, out);
                for seq in placed {
                    self.advance(now, seq, out);
                }
                self.try_execute(now, out);
                self.try_new_view(now, out);
            }
        }
    }

    /// Puts a fetched batch wherever it is needed. Returns at which numbers that is.
    fn place_batch(&mut self, batch: &Arc<Batch>) -> Vec<SeqNum> {
        let _digest = batch.digest();
        let mut placed = Vec::new();
        for seq in self.log.used() {
            if self.log.slot_mut(seq).is_some_and(|slot| slot.supply(batch)) {
                placed.push(seq);
            }
        }
        self.bodies.keep_batch(batch);
        placed
    }

    /// Fills a body in wherever a batch misses it. Returns whether one did.
    pub(super) fn supply_body(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) -> bool {
        if !self.bodies.is_seeking() {
            return false; // nothing is missing
        }
        // A copy with the client's signature may be what an unproven request waits for (AU-5).
        let mut used = false;
        if request.flags.signed
            && self.log.iter().any(|slot| {
                slot.proposal().is_some_and(|p| {
                    !p.authentic
                        && p.batch.as_ref().is_some_and(|b| b.requests().any(|r| r.digest == request.digest))
                })
            })
            && let Some(signature) = quorate_wire::frame::signature_of(request.frame)
        {
            self.bodies.check_inlined(request.client, request.digest, signature, out);
            used = true;
        }
        let misses = |batch: &Arc<Batch>| batch.missing().any(|d| *d == request.digest);
        let hungry: Vec<SeqNum> = self
            .log
            .iter()
            .filter(|slot| slot.proposed().is_some_and(misses) || slot.fetched().is_some_and(misses))
            .map(Slot::seq)
            .collect();
        let in_fetched = self.bodies.batches().any(misses);
        if hungry.is_empty() && !in_fetched {
            return used;
        }
        let body: Body = Arc::new(StoredRequest::new(request));
        self.bodies.supply(&body);
        for seq in hungry {
            if let Some(slot) = self.log.slot_mut(seq) {
                slot.supply_body(&body);
            }
            self.advance(now, seq, out);
        }
        // The body may have been all that its proposal's authenticity lacked.
        self.recheck_proposals(now, out);
        self.try_new_view(now, out);
        true
    }

    /// Looks again at proposals that miss bodies, after one has been kept.
    pub(super) fn recheck_hungry(&mut self, now: Now, out: &mut Actions) {
        if !self.bodies.is_seeking() {
            return;
        }
        for seq in self.log.used() {
            let Some(slot) = self.log.get(seq) else { continue };
            let Some(batch) = slot.proposed().cloned() else { continue };
            if batch.is_complete() {
                continue;
            }
            let filled = self.complete_from_table(&batch);
            if filled.missing().count() < batch.missing().count() {
                if let Some(slot) = self.log.slot_mut(seq) {
                    slot.refill(filled);
                }
                self.advance(now, seq, out);
            }
        }
        self.recheck_proposals(now, out);
    }
}

/// Asks a replica for requests or batches.
fn ask_for(to: ReplicaId, kind: BodyKind, digests: &[Digest], out: &mut Actions) {
    for some in digests.chunks(usize::from(FETCH_DIGESTS_MAX)) {
        out.send(Recipient::Replica(to), Kind::BodyFetch, Lsn(0), |w| BodyFetch::encode(kind, some, w));
    }
}
