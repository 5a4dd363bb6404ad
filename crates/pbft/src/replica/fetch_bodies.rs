//! Bodies of requests and whole batches that are sent separately from the messages that name them: stored by digest,
//! fetched when missing, accepted from any sender because the digest proves them (spec §5.3, PC-5).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::Digest;
use quorate_wire::batch::{Batch, Body, StoredRequest};
use quorate_wire::id::{ClientId, ReplicaId, SeqNum};
use quorate_wire::message::{
    BodyFetch, BodyKind, BodyMessage, FETCH_DIGESTS_MAX, Kind, Proof, ReqReject, Request,
};

use crate::io::config::Config;
use crate::io::step::{Action, Actions, Lsn, Milestone, Now, Recipient, Reject, SignatureCheck, Timer};
use crate::replica::Replica;
use crate::requests::table::CLIENT_BYTES_MAX;

/// The most signatures under way.
const CHECKS_MAX: usize = 1024;
/// The most of them that are of one client's requests, and wait here for it.
const CLIENT_CHECKS_MAX: usize = 64;
/// The most requests remembered as proven by signature; forgotten at each stable checkpoint.
const PROVEN_MAX: usize = 65_536;

/// The table of bodies. At most one body a client that no batch names yet (SR-1), at most `L` batches
/// fetched by digest, and at most [`CHECKS_MAX`] signatures in progress.
#[derive(Debug)]
pub(crate) struct Bodies {
    /// Large requests, by digest; one a client.
    held: BTreeMap<Digest, Body>,
    by_client: BTreeMap<ClientId, Digest>,
    /// Batches that were asked for.
    batches: BTreeMap<Digest, Arc<Batch>>,
    batches_max: usize,
    /// Batches that are needed, by digest: one may be needed at several numbers.
    wanted: BTreeSet<Digest>,
    /// Something is missing, and the timer runs.
    armed: bool,
    /// Requests whose client's signature was seen to be right.
    proven: BTreeSet<Digest>,
    /// Signatures in progress; the request, where it waits for that.
    checks: BTreeMap<Digest, Option<Body>>,
}

impl Bodies {
    /// Returns an empty table.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            held: BTreeMap::new(),
            by_client: BTreeMap::new(),
            batches: BTreeMap::new(),
            batches_max: usize::try_from(config.window).unwrap_or(usize::MAX),
            wanted: BTreeSet::new(),
            armed: false,
            proven: BTreeSet::new(),
            checks: BTreeMap::new(),
        }
    }

    /// Keeps a large request until its batch is stable; a client's newer one replaces it (SR-1), and so
    /// does the same one sealed again.
    pub(crate) fn hold(&mut self, body: Body) {
        if let Some(old) = self.by_client.insert(body.client, body.digest) {
            self.held.remove(&old);
        }
        self.held.insert(body.digest, body);
    }

    /// A client has moved on to a request that is not kept here: so is the one before it not any more (SR-1). If a
    /// batch needs it after all, it is fetched.
    pub(crate) fn drop_older(&mut self, client: ClientId) {
        if !self.by_client.is_empty()
            && let Some(old) = self.by_client.remove(&client)
        {
            self.held.remove(&old);
        }
    }

    /// Returns a large request that is kept apart from its batch.
    pub(crate) fn held(&self, digest: &Digest) -> Option<&Body> {
        self.held.get(digest)
    }

    /// Returns a batch that was fetched.
    pub(crate) fn batch(&self, digest: &Digest) -> Option<&Arc<Batch>> {
        self.batches.get(digest)
    }

    /// Returns the batches that were fetched.
    pub(crate) fn batches(&self) -> impl Iterator<Item = &Arc<Batch>> {
        self.batches.values()
    }

    /// Says whether a client's signature of this request was seen to be right.
    pub(crate) fn is_proven(&self, digest: &Digest) -> bool {
        self.proven.contains(digest)
    }

    /// Requests a check of a request's signature; the request waits here. Returns whether there was space.
    pub(crate) fn check_signature(&mut self, body: Body, _now: u64, out: &mut Actions) -> bool {
        let Some(signature) = body.signature() else { return false };
        let (client, request) = (body.client, body.digest);
        let own = self.checks.values().flatten().filter(|body| body.client.principal() == client.principal());
        let (count, bytes) = own.fold((0, 0), |(n, bytes), body| (n + 1, bytes + body.frame().len()));
        let over = count >= CLIENT_CHECKS_MAX || bytes + body.frame().len() > CLIENT_BYTES_MAX;
        if over || self.checks.len() >= CHECKS_MAX {
            return false;
        }
        self.checks.insert(request, Some(body));
        out.push(Action::CheckSignature { client, request: Arc::new(SignatureCheck { request, signature }) });
        true
    }

    /// Requests a check of the signature of a request inside a batch, once.
    pub(crate) fn check_inlined(
        &mut self,
        client: ClientId,
        request: Digest,
        signature: [u8; 64],
        out: &mut Actions,
    ) {
        if self.checks.len() < CHECKS_MAX && !self.checks.contains_key(&request) {
            self.checks.insert(request, None);
            out.push(Action::CheckSignature {
                client,
                request: Arc::new(SignatureCheck { request, signature }),
            });
        }
    }

    /// Takes the result of a check. Returns the request that waited for it, now with its proof.
    pub(crate) fn signature_checked(&mut self, request: Digest, valid: bool) -> Option<Body> {
        let waiting = self.checks.remove(&request)?;
        if valid && self.proven.len() < PROVEN_MAX {
            self.proven.insert(request);
        }
        let mut body = waiting?;
        if valid {
            Arc::make_mut(&mut body).proof = Proof::Signed;
        }
        Some(body)
    }

    /// Forgets what only mattered below a stable checkpoint. A batch that is `needed` above it is still asked for: nobody
    /// may come back to it otherwise (L24).
    pub(crate) fn collect(&mut self, needed: impl Fn(&Digest) -> bool) {
        self.proven.clear();
        self.batches.clear();
        self.wanted.retain(needed);
    }

    /// Keeps large bodies of clients that have not moved on.
    pub(crate) fn release(&mut self, client: ClientId, executed: quorate_wire::Timestamp) {
        if let Some(digest) = self.by_client.get(&client)
            && self.held.get(digest).is_some_and(|body| body.timestamp <= executed)
        {
            self.held.remove(digest);
            self.by_client.remove(&client);
        }
    }
}

impl Replica {
    /// Fills in the bodies of a batch that are here.
    pub(crate) fn complete_from_table(&self, batch: &Arc<Batch>) -> Arc<Batch> {
        let mut batch = batch.clone();
        if !batch.is_complete() {
            let here: Vec<Body> = batch.missing().filter_map(|d| self.bodies.held.get(d)).cloned().collect();
            for body in &here {
                Arc::make_mut(&mut batch).supply(body);
            }
        }
        batch
    }

    /// Returns a batch by digest, wherever it is kept.
    pub(crate) fn find_batch(&self, seq: SeqNum, digest: &Digest) -> Option<&Arc<Batch>> {
        self.log.get(seq).and_then(|slot| slot.batch(digest)).or_else(|| self.bodies.batch(digest))
    }

    /// Asks for a batch that is needed, until it comes.
    pub(crate) fn want_batch(&mut self, now: Now, digest: Digest, out: &mut Actions) {
        let window = self.bodies.batches_max;
        if self.bodies.wanted.len() < 2 * window && self.bodies.wanted.insert(digest) {
            // The first question leaves at once; the timer repeats it to others.
            let to = self.someone();
            out.send(Recipient::Replica(to), Kind::BodyFetch, Lsn(0), |w| {
                BodyFetch::encode(BodyKind::Batch, &[digest], w);
            });
        }
        self.seek_bodies(now, out);
    }

    /// Starts the timer that asks for what is missing (SR-2).
    pub(crate) fn seek_bodies(&mut self, now: Now, out: &mut Actions) {
        if !self.bodies.armed {
            self.bodies.armed = true;
            Self::set_timer(out, Timer::BodyFetch, now.mono_ns.saturating_add(self.config.fetch_retry_ns));
        }
    }

    /// Returns another replica, chosen randomly.
    pub(crate) fn someone(&mut self) -> ReplicaId {
        self.someone_but(self.id)
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
    pub(crate) fn on_body_timer(&mut self, now: Now, out: &mut Actions) {
        self.bodies.armed = false;
        let missing = self.missing_requests();
        let wanted: Vec<Digest> = self.bodies.wanted.iter().copied().collect();
        let unproven = self.complain(now, out);
        if missing.is_empty() && wanted.is_empty() && !unproven {
            return;
        }
        if self.cluster.n() > 1 {
            let primary = self.primary();
            let other = self.someone_but(primary);
            for to in [primary, other] {
                if to == self.id {
                    continue;
                }
                for (kind, digests) in [(BodyKind::Request, &missing), (BodyKind::Batch, &wanted)] {
                    for some in digests.chunks(usize::from(FETCH_DIGESTS_MAX)) {
                        out.send(Recipient::Replica(to), Kind::BodyFetch, Lsn(0), |w| {
                            BodyFetch::encode(kind, some, w);
                        });
                    }
                }
            }
        }
        self.seek_bodies(now, out);
    }

    /// Returns the digests of requests that some batch names and that are not here.
    fn missing_requests(&self) -> Vec<Digest> {
        let proposed = self.log.iter().filter_map(|slot| slot.proposal.as_ref()?.batch.as_ref());
        let fetched = self.log.iter().filter_map(|slot| slot.fetched.as_ref());
        let batches = proposed.chain(fetched).chain(self.bodies.batches.values());
        let mut missing: Vec<Digest> = batches.flat_map(|batch| batch.missing()).copied().collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    /// AU-5: a request could not be authenticated here in a round trip. The primary is told, and a signed copy is
    /// asked for. Says whether any proposal waits for that.
    fn complain(&mut self, now: Now, out: &mut Actions) -> bool {
        if !self.is_normal() || self.is_primary() {
            return false;
        }
        let retry = self.config.fetch_retry_ns;
        let mut waiting = false;
        for seq in self.log.numbers() {
            let Some(slot) = self.log.get_mut(seq) else { continue };
            let Some(proposal) = slot.proposal.as_ref().filter(|p| !p.authentic) else { continue };
            waiting = true;
            if slot.complained || now.mono_ns < proposal.since.saturating_add(retry) {
                continue;
            }
            let Some(batch) = proposal.batch.clone() else { continue };
            self.complain_about(now, seq, &batch, out);
        }
        waiting
    }

    /// Complains about the requests of a batch that are here and not authentic. Only the primary is responsible for a
    /// missing body, so clients whose requests are missing are not put on probation for it.
    fn complain_about(&mut self, now: Now, seq: SeqNum, batch: &Batch, out: &mut Actions) {
        let (view, primary) = (self.view, self.primary());
        let other = self.someone_but(primary);
        for request in batch.requests() {
            let inlined = batch.inlined().iter().find(|r| r.digest == request.digest).map(|r| r.proof);
            let separate = || batch.bodies().find(|b| b.digest == request.digest).map(|b| b.proof);
            let proof = inlined.or_else(separate).unwrap_or(Proof::Unproven);
            if self.stands(request.client, request.timestamp, &request.digest, proof) {
                continue;
            }
            if let Some(slot) = self.log.get_mut(seq)
                && !slot.complained
            {
                slot.complained = true;
                out.reject(Reject::UnprovenRequest);
            }
            // What a primary says is a client's request says nothing of the client: it may have made it up. It
            // knows of f + 1 who complain, and gives its view up if it is correct (L4).
            if mutant!(M74, false, true) && self.clients.get(request.client).is_some() {
                self.start_probation(now, request.client, out);
            }
            let reject = ReqReject {
                view,
                seq,
                client: request.client,
                timestamp: request.timestamp,
                digest: request.digest,
            };
            out.send(Recipient::Replica(primary), Kind::ReqReject, Lsn(0), |w| reject.encode(w));
            for to in [primary, other] {
                out.send(Recipient::Replica(to), Kind::BodyFetch, Lsn(0), |w| {
                    BodyFetch::encode(BodyKind::Request, &[request.digest], w);
                });
            }
        }
    }

    /// A request or batch that was asked for. Its digest identifies it, from any sender.
    pub(crate) fn on_body(&mut self, now: Now, m: &BodyMessage<'_>, out: &mut Actions) {
        match m {
            BodyMessage::Request(request) => {
                if !self.supply_body(now, request, out) {
                    out.reject(Reject::Unwanted);
                }
            }
            BodyMessage::Batch(batch) => {
                let digest = batch.digest();
                if !self.bodies.wanted.remove(&digest) {
                    return out.reject(Reject::Unwanted);
                }
                out.report(Milestone::BatchFetched { digest });
                let batch = self.complete_from_table(batch);
                let incomplete = !batch.is_complete();
                let placed = self.place_batch(&batch);
                if incomplete {
                    self.seek_bodies(now, out);
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
        let digest = batch.digest();
        let mut placed = Vec::new();
        for seq in self.log.numbers() {
            let Some(slot) = self.log.get_mut(seq) else { continue };
            let mut needed = false;
            if let Some(proposal) = &mut slot.proposal
                && proposal.digest == digest
                && proposal.batch.is_none()
            {
                proposal.batch = Some(batch.clone());
                needed = true;
            }
            if slot.committed == Some(digest) && slot.batch(&digest).is_none() {
                slot.fetched = Some(batch.clone());
                needed = true;
            }
            if needed {
                placed.push(seq);
            }
        }
        if self.bodies.batches.len() < self.bodies.batches_max {
            self.bodies.batches.insert(digest, batch.clone());
        }
        placed
    }

    /// Fills a body in wherever a batch misses it. Returns whether one did.
    pub(crate) fn supply_body(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) -> bool {
        if !self.bodies.armed {
            return false; // nothing is missing
        }
        // A copy with the client's signature may be what an unproven request waits for (AU-5).
        let mut used = false;
        if request.flags.signed
            && self.log.iter().any(|slot| {
                slot.proposal.as_ref().is_some_and(|p| {
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
            .filter(|slot| {
                let proposed = slot.proposal.as_ref().and_then(|p| p.batch.as_ref());
                proposed.is_some_and(misses) || slot.fetched.as_ref().is_some_and(misses)
            })
            .map(|slot| slot.seq)
            .collect();
        let in_fetched = self.bodies.batches.values().any(misses);
        if hungry.is_empty() && !in_fetched {
            return used;
        }
        let body: Body = Arc::new(StoredRequest::new(request));
        for batch in self.bodies.batches.values_mut() {
            Arc::make_mut(batch).supply(&body);
        }
        for seq in hungry {
            self.fill_slot(seq, &body);
            self.advance(now, seq, out);
        }
        // The body may have been all that its proposal's authenticity lacked.
        self.recheck_proposals(now, out);
        self.try_new_view(now, out);
        true
    }

    fn fill_slot(&mut self, seq: SeqNum, body: &Body) {
        let Some(slot) = self.log.get_mut(seq) else { return };
        if let Some(batch) = slot.proposal.as_mut().and_then(|p| p.batch.as_mut())
            && !batch.is_complete()
        {
            Arc::make_mut(batch).supply(body);
        }
        if let Some(batch) = &mut slot.fetched
            && !batch.is_complete()
        {
            Arc::make_mut(batch).supply(body);
        }
    }

    /// Looks again at proposals that miss bodies, after one has been kept.
    pub(crate) fn recheck_hungry(&mut self, now: Now, out: &mut Actions) {
        if !self.bodies.armed {
            return;
        }
        for seq in self.log.numbers() {
            let Some(slot) = self.log.get(seq) else { continue };
            let Some(batch) = slot.proposal.as_ref().and_then(|p| p.batch.clone()) else { continue };
            if batch.is_complete() {
                continue;
            }
            let filled = self.complete_from_table(&batch);
            if filled.missing().count() < batch.missing().count() {
                if let Some(proposal) = self.log.get_mut(seq).and_then(|slot| slot.proposal.as_mut()) {
                    proposal.batch = Some(filled);
                }
                self.advance(now, seq, out);
            }
        }
        self.recheck_proposals(now, out);
    }

    /// Looks again at proposals with requests that were not authentic here.
    pub(crate) fn recheck_proposals(&mut self, now: Now, out: &mut Actions) {
        for seq in self.log.numbers() {
            let waiting = self.log.get(seq).and_then(|slot| slot.proposal.as_ref()).filter(|p| !p.authentic);
            let Some(batch) = waiting.and_then(|p| p.batch.clone()) else { continue };
            if self.is_authentic(&batch, out) {
                if let Some(proposal) = self.log.get_mut(seq).and_then(|slot| slot.proposal.as_mut()) {
                    proposal.authentic = true;
                }
                self.advance(now, seq, out);
            }
        }
    }
}
