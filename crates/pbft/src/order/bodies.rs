//! Bodies of requests and whole batches that are sent separately from the messages that name them: stored by digest,
//! accepted from any sender because the digest proves them (spec §5.3, PC-5).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::Digest;
use quorate_wire::batch::{Batch, Body};
use quorate_wire::id::{ClientId, ReplicaId};

use crate::io::config::Config;
use crate::io::step::{Action, Actions, Deadline, Now, SignatureCheck, Timer};
use crate::requests::table::CLIENT_BYTES_MAX;

/// The most signatures under way.
const CHECKS_MAX: usize = 1024;
/// The most of them that are of one client's requests, and wait here for it.
const CLIENT_CHECKS_MAX: usize = 64;
/// The most requests remembered as proven by signature; forgotten at each stable checkpoint.
const PROVEN_MAX: usize = 65_536;

/// The most requests that one peer is given whatever its budget; forgotten at each stable checkpoint. As many as 256 full
/// batches of correct primaries name: 64 of 4 KiB each (PR-9).
const GIVEN_MAX: usize = 16 * 1024;

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
    retry_ns: u64,
    /// Requests whose client's signature was seen to be right.
    proven: BTreeSet<Digest>,
    /// Signatures in progress; the request, where it waits for that.
    checks: BTreeMap<Digest, Option<Body>>,
    /// What each peer was given because a batch waits for it there.
    given: Vec<BTreeSet<Digest>>,
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
            retry_ns: config.fetch_retry_ns,
            proven: BTreeSet::new(),
            checks: BTreeMap::new(),
            given: alloc::vec![BTreeSet::new(); config.cluster.n()],
        }
    }

    /// Says whether something is missing, and the timer runs that asks for it.
    pub(crate) fn is_seeking(&self) -> bool {
        self.armed
    }

    /// Starts the timer that asks for what is missing (SR-2).
    pub(crate) fn seek(&mut self, now: Now, out: &mut Actions) {
        if !core::mem::replace(&mut self.armed, true) {
            let at = now.mono_ns.saturating_add(self.retry_ns);
            out.push(Action::SetTimer(Timer::BodyFetch, Deadline(at)));
        }
    }

    /// The timer has run out.
    pub(crate) fn stop_seeking(&mut self) {
        self.armed = false;
    }

    /// Returns the batches that are needed, by digest.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = &Digest> {
        self.wanted.iter()
    }

    /// A batch is needed. Says whether it has to be asked for: it was not known, and there is room.
    pub(crate) fn want(&mut self, digest: Digest) -> bool {
        self.wanted.len() < 2 * self.batches_max && self.wanted.insert(digest)
    }

    /// A batch has come. Says whether it was needed.
    pub(crate) fn take_wanted(&mut self, digest: &Digest) -> bool {
        self.wanted.remove(digest)
    }

    /// Keeps a batch that was fetched, if there is room.
    pub(crate) fn keep_batch(&mut self, batch: &Arc<Batch>) {
        if self.batches.len() < self.batches_max {
            self.batches.insert(batch.digest(), batch.clone());
        }
    }

    /// Fills a body in where a batch that was fetched misses it.
    pub(crate) fn supply(&mut self, body: &Body) {
        for batch in self.batches.values_mut() {
            Arc::make_mut(batch).supply(body);
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

    /// Says whether a peer is given a request that some batch names whatever its budget (SR-2): once. So a client with more
    /// long requests than replicas keep holds up nobody, and asking again and again brings a liar nothing.
    pub(crate) fn gives(&mut self, to: ReplicaId, digest: &Digest) -> bool {
        self.given.get_mut(to.index()).is_some_and(|given| given.len() < GIVEN_MAX && given.insert(*digest))
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
            Arc::make_mut(&mut body).prove_signed();
        }
        Some(body)
    }

    /// Forgets what only mattered below a stable checkpoint. A batch that is `needed` above it is still asked for: nobody
    /// may come back to it otherwise (L24).
    pub(crate) fn collect(&mut self, needed: impl Fn(&Digest) -> bool) {
        self.proven.clear();
        self.given.iter_mut().for_each(BTreeSet::clear);
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
