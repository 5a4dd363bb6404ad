//! One lane of a client, with at most one outstanding request [OSDI99 §4.1], spec §4.
//!
//! | | |
//! |---|---|
//! | what goes in and out | [`step`] |
//! | when a result may be believed | `replies` |
//! | what replies to other requests tell | `others` |
//! | how long to wait, when to sign | `patience` |
//! | whom a read is sent to | `spares` |
//! | the request that waits for its result | `outstanding` |
//!
//! A process that wants many requests in flight runs many lanes, each a [`Client`] (CL-1). Like a
//! replica it is a value: no I/O, no clock, no chance but one seeded generator. It holds one operation
//! and of each replica one reply, and allocates nothing from one request to the next of the same size.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::digest::Domains;
use quorate_wire::message::{OPERATION_BYTES_MAX, Reply, RequestFlags};
use quorate_wire::{ClientId, Cluster, Digest, Message, Principal, ReplicaId, Timestamp, Verified, ViewNum};

use self::others::Others;
use self::outstanding::Outstanding;
use self::patience::{Patience, Signing};
use self::repliers::Repliers;
use self::replies::Replies;
use self::spares::Spares;
pub use self::step::{
    ClientAction, ClientActions, ClientInput, ClientMilestone, ClientReject, Members, Path, Refusal,
};
use crate::io::config::{Config, RequestAuth};
use crate::io::rng::Rng;
use crate::io::step::{Deadline, Now};

mod others;
mod outstanding;
mod patience;
mod repliers;
mod replies;
mod spares;
pub mod step;
#[cfg(test)]
mod tests;

/// New keys are sent before every one of this number of retransmissions (CL-3).
const RETRANSMISSIONS_PER_KEYS: u32 = 4;
/// A read-only request is sent again so often before it is ordered (CL-2).
const READ_ONLY_RETRANSMISSIONS: u32 = 1;

/// How long a request waits for the keys of the last `f` replicas, in nanoseconds.
const KEYS_NS: u64 = 10_000_000;

/// One lane of a client: at most one request outstanding.
#[derive(Debug)]
pub struct Client {
    id: ClientId,
    cluster: Cluster,
    /// Operations longer than this go to all replicas, in bytes.
    separate_above: usize,
    read_only: bool,
    repliers: Repliers,
    request_auth: RequestAuth,
    /// The next timestamp; none once the last has been used.
    next: Option<Timestamp>,
    /// The view whose primary gets the requests: the newest that a correct replica has reported.
    view: ViewNum,
    /// With how many replicas no keys have been exchanged: all of them, until the driver says otherwise.
    keys_missing: usize,
    request: Option<Outstanding>,
    /// The last request that is done, while its replies are still here: late ones are compared.
    finished: Option<(Timestamp, Path)>,
    operation: Vec<u8>,
    domains: Arc<Domains>,
    replies: Replies,
    others: Others,
    patience: Patience,
    signing: Signing,
    spares: Spares,
    rng: Rng,
}

impl Client {
    /// Returns the lane `id` with nothing outstanding.
    ///
    /// `first` is its first timestamp: larger than any that this lane has ever used, so from a clock,
    /// or from what was kept of the last run: "a reboot MUST NOT reuse" (spec §4.1). `seed` seeds the
    /// choice of repliers and the jitter.
    pub fn new(id: ClientId, config: &Config, first: Timestamp, seed: u64) -> Self {
        Self::with_domains(id, config, Arc::new(config.domains()), first, seed)
    }

    /// As [`Self::new`], with the cluster's domains, which the lanes of a process share.
    pub fn with_domains(
        id: ClientId,
        config: &Config,
        domains: Arc<Domains>,
        first: Timestamp,
        seed: u64,
    ) -> Self {
        Self {
            id,
            cluster: config.cluster,
            separate_above: if config.separate { config.separate_above } else { usize::MAX },
            read_only: config.read_only,
            repliers: Repliers::new(config.cluster, config.digest_replies.then_some(config.replier)),
            request_auth: config.request_auth,
            next: Some(first),
            view: ViewNum(0),
            keys_missing: config.cluster.n(),
            request: None,
            finished: None,
            operation: Vec::new(),
            domains,
            others: Others::new(config.cluster),
            replies: Replies::new(config.cluster, config.read_only).by(config.read_rule),
            patience: Patience::new(config),
            signing: Signing::default(),
            spares: Spares::new(config.cluster).by(config.reads),
            rng: Rng::new(seed),
        }
    }

    /// Takes one input and adds what is to be done about it to `out`. The same inputs in the same order
    /// give the same actions.
    pub fn step(&mut self, now: Now, input: ClientInput<'_>, out: &mut ClientActions) {
        match input {
            ClientInput::Invoke { operation, read_only } => self.on_invoke(now, operation, read_only, out),
            ClientInput::Message(m) => self.on_message(now, m, out),
            ClientInput::Timer => self.on_timer(now, out),
            ClientInput::Answered => self.on_answered(now, out),
            ClientInput::Keys { missing } => self.on_keys(now, missing, out),
        }
    }

    /// Uses no timestamp below this one from now on: the lanes of a process take turns with theirs, so that a lane
    /// that is used for the first time begins above all that the others have used (CL-10).
    #[inline]
    pub fn raise(&mut self, to: Timestamp) {
        self.next = self.next.map(|next| next.max(to));
    }

    /// Returns which lane this is.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Returns the number of the outstanding request, if there is one.
    pub fn outstanding(&self) -> Option<Timestamp> {
        self.request.map(|request| request.timestamp)
    }

    /// Returns the view whose primary this client sends to.
    pub fn view(&self) -> ViewNum {
        self.view
    }

    /// "A client c requests the execution of state machine operation o by sending a REQUEST message to
    /// the primary" [OSDI99 §4.1].
    fn on_invoke(&mut self, now: Now, operation: &[u8], read_only: bool, out: &mut ClientActions) {
        // "we assume that the client waits for one request to complete before sending the next one".
        if self.request.is_some() {
            return out.report(ClientMilestone::Refused(Refusal::Busy));
        }
        if operation.len() > OPERATION_BYTES_MAX {
            return out.report(ClientMilestone::Refused(Refusal::TooLong));
        }
        let Some(timestamp) = self.take_timestamp() else {
            return out.report(ClientMilestone::Refused(Refusal::Exhausted));
        };
        let read_only = read_only && self.read_only;
        let path = if read_only { Path::ReadOnly } else { Path::Ordered };
        self.operation.clear();
        self.operation.extend_from_slice(operation);
        self.replies.clear();
        self.others.clear();
        self.finished = None;
        out.report(ClientMilestone::Invoked { timestamp, read_only });
        let request = Outstanding {
            timestamp,
            digest: self.digest(timestamp),
            path,
            resent: 0,
            retransmissions: 0,
            waits: 0,
            asked: Members::default(),
            asked_rest: false,
            asked_ns: now.mono_ns,
            sent_ns: now.mono_ns,
            signed: false,
            had_to_sign: false,
        };
        self.send(now, request, out);
    }

    /// "Timestamps for c's requests are totally ordered such that later requests have higher timestamps
    /// than earlier ones" [OSDI99 §4.1].
    fn take_timestamp(&mut self) -> Option<Timestamp> {
        let timestamp = self.next?;
        self.next = timestamp.0.checked_add(1).map(Timestamp);
        Some(timestamp)
    }

    fn digest(&self, timestamp: Timestamp) -> Digest {
        self.domains.request(self.id.0, timestamp.0, &self.operation)
    }

    /// Sends the request, for the first time or again, and waits.
    fn send(&mut self, now: Now, mut request: Outstanding, out: &mut ClientActions) {
        let again = request.retransmissions > 0;
        // "A client sends a request to what it believes is the current primary", a large one to all (CL-1), and a
        // read-only one to as many as it needs (DV-43). "If the client does not receive replies soon enough, it
        // broadcasts the request to all replicas" [OSDI99 §4.1], "requesting all replicas to send full
        // replies" [OSDI99 §5.1].
        let to = if again || request.path != Path::ReadOnly && self.operation.len() > self.separate_above {
            Members::all(self.cluster)
        } else if request.path == Path::ReadOnly {
            self.spares.ask(&mut self.rng)
        } else {
            Members::one(self.cluster.primary(self.view))
        };
        let among = if request.path == Path::ReadOnly { to } else { Members::all(self.cluster) };
        let replier = if again {
            self.repliers.name_nobody()
        } else {
            self.repliers.choose(now, request.timestamp, among, &mut self.rng)
        };
        self.signing.decide(self.request_auth, now, &mut request);
        // A primary that can check a request loses its view if the others cannot (CL-11, AU-5).
        let held = !request.signed && mutant!(M166, self.keys_missing > self.cluster.f(), false);
        request.asked = if held { Members::default() } else { to };
        request.sent_ns = now.mono_ns;
        self.request = Some(request);
        if held {
            out.report(ClientMilestone::LacksKeys { timestamp: request.timestamp });
            out.push(ClientAction::SendKeys);
        } else {
            if request.resent > 0 {
                let Outstanding { timestamp, resent: times, .. } = request;
                out.report(ClientMilestone::Retransmitted { timestamp, times });
            }
            self.push_request(&request, to, replier, out);
        }
        let wait = if self.has_rest(&request) {
            self.patience.rest_deadline(now)
        } else {
            self.patience.deadline(now, request.waits, &mut self.rng)
        };
        out.push(ClientAction::SetTimer(wait));
    }

    fn push_request(
        &self,
        request: &Outstanding,
        to: Members,
        replier: Option<u16>,
        out: &mut ClientActions,
    ) {
        let operation = out.copy(&self.operation);
        let &Outstanding { timestamp, digest, signed: sign, path, .. } = request;
        let flags = RequestFlags { read_only: path == Path::ReadOnly, signed: sign };
        out.push(ClientAction::Send { to, timestamp, digest, flags, replier, operation, sign });
    }

    /// Asks those for a read who have not been asked at first, for the full result: the designated replier may be
    /// the one that is late.
    fn ask_rest(&mut self, now: Now, mut request: Outstanding, out: &mut ClientActions) {
        let all = Members::all(self.cluster);
        let rest = all.without(request.asked);
        (request.asked, request.asked_rest) = (all, true);
        self.request = Some(request);
        out.report(ClientMilestone::AskedRest { timestamp: request.timestamp });
        self.push_request(&request, rest, None, out);
        out.push(ClientAction::SetTimer(self.patience.deadline(now, 0, &mut self.rng)));
    }

    /// `T_CLIENT` has run out: "the client retransmits the request as usual" [OSDI99 §5.1], CL-2.
    fn on_timer(&mut self, now: Now, out: &mut ClientActions) {
        let Some(mut request) = self.request else { return };
        if self.has_rest(&request) {
            return self.ask_rest(now, request, out);
        }
        if !request.is_held() {
            self.repliers.on_silence(now);
        }
        request.retransmissions = request.retransmissions.saturating_add(1);
        request.waits = request.waits.saturating_add(1);
        // Keys that a restarted replica lacks look like silence (CL-3).
        if request.retransmissions % RETRANSMISSIONS_PER_KEYS == 0 {
            out.push(ClientAction::SendKeys);
        }
        if request.path == Path::ReadOnly && request.resent >= READ_ONLY_RETRANSMISSIONS {
            return self.fall_back(now, request, out);
        }
        // All replicas were asked for the full result, and none has it any more.
        if request.resent > 0 && self.replies.result_is_gone() {
            return self.give_up_result(now, request, out);
        }
        request.resent = request.resent.saturating_add(1);
        self.send(now, request, out);
    }

    /// Returns whether a read has been sent to some replicas only.
    fn has_rest(&self, request: &Outstanding) -> bool {
        request.path == Path::ReadOnly && !request.is_held() && request.asked != Members::all(self.cluster)
    }

    /// "it retransmits the request as a regular read-write request" [OSDI99 §5.1]: the same operation
    /// under a new timestamp (DV-20).
    ///
    /// An unordered read leaves no trace in the replicas' tables, so that the old timestamp, too, could
    /// be ordered exactly once. But a REPLY does not tell on which path it was made. Under the old
    /// timestamp, late unordered replies would count with the tentative ones to the ordered request,
    /// and the two together prove nothing: a replica that is behind, and one whose tentative execution
    /// will be undone, can agree on a value that had been overwritten before the read began, and one
    /// liar makes it a quorum of three. A reply's digest covers the timestamp, so with a new one the two
    /// cannot mix. Replicas see an ordinary new request. The old one says that it is not to be ordered; if
    /// a faulty primary does it all the same, it is a read, and nothing happens twice.
    fn fall_back(&mut self, now: Now, mut request: Outstanding, out: &mut ClientActions) {
        let from = request.timestamp;
        let Some(to) = mutant!(M88, self.take_timestamp(), Some(from)) else {
            // No timestamp is left in 2^64: go on asking for the read.
            return self.send(now, request, out);
        };
        request.path = Path::FellBack;
        out.report(ClientMilestone::FellBack { from, to });
        self.send_as(now, request, to, out);
    }

    /// Sends the operation under another timestamp, of which nothing is known yet.
    fn send_as(&mut self, now: Now, mut request: Outstanding, to: Timestamp, out: &mut ClientActions) {
        (request.timestamp, request.digest, request.resent) = (to, self.digest(to), 0);
        if mutant!(M88, true, false) {
            self.replies.clear();
        }
        self.others.clear();
        self.send(now, request, out);
    }

    /// Others are answered, so that it is of use to ask again soon, however long this lane has waited. A lane that
    /// was stopped by an outage would else go on waiting for many seconds after its end.
    fn on_answered(&mut self, now: Now, out: &mut ClientActions) {
        if let Some(request) = self.request.as_mut().filter(|request| request.waits > 1) {
            request.waits = 0;
            out.push(ClientAction::SetTimer(Patience::soon(now, &mut self.rng)));
        }
    }

    /// A request that left before all keys were here has no MAC for some replica, which takes it for a forgery. It is sent
    /// as if for the first time, once all keys are here, or soon after all but those of `f` (CL-11). So is one that was held.
    fn on_keys(&mut self, now: Now, missing: usize, out: &mut ClientActions) {
        self.keys_missing = missing;
        let waits = |request: &Outstanding| request.is_held() || request.retransmissions == 0;
        let Some(mut request) = self.request.filter(waits) else { return };
        if missing == 0 {
            (request.resent, request.retransmissions, request.waits) = (0, 0, 0);
            request.asked_ns = now.mono_ns;
            self.send(now, request, out);
        } else if missing <= self.cluster.f() {
            out.push(ClientAction::SetTimer(Deadline(now.mono_ns.saturating_add(KEYS_NS))));
        }
    }

    /// The result is longer than what replicas keep for a client, and was lost on its way. A read is read
    /// again; of a write, the caller learns that it is done.
    fn give_up_result(&mut self, now: Now, request: Outstanding, out: &mut ClientActions) {
        let Some(digest) = self.replies.certified() else { return };
        if request.path != Path::Ordered {
            return self.fall_back(now, request, out);
        }
        out.push(ClientAction::StopTimer);
        out.push(ClientAction::DoneWithoutResult { timestamp: request.timestamp, digest });
        self.finish(now, request, out);
    }

    fn on_message(&mut self, now: Now, m: &Verified<Message<'_>>, out: &mut ClientActions) {
        let from = match m.sender() {
            Principal::Replica(from) if self.cluster.contains(from) => Some(from),
            Principal::Replica(_) | Principal::Client(_) => None,
        };
        let (Message::Reply(reply), Some(from)) = (m.message(), from) else {
            return out.report(ClientMilestone::Rejected { from, reason: ClientReject::NotAReply });
        };
        if let Err(reason) = self.on_reply(now, from, reply, out) {
            out.report(ClientMilestone::Rejected { from: Some(from), reason });
        }
    }

    /// Counts a reply, and is done once the result is certain.
    fn on_reply(
        &mut self,
        now: Now,
        from: ReplicaId,
        reply: &Reply<'_>,
        out: &mut ClientActions,
    ) -> Result<(), ClientReject> {
        if reply.client != self.id {
            return Err(ClientReject::OtherLane);
        }
        // "with the same t": replies to earlier requests keep coming from replicas that are behind.
        let request = self.request.filter(|request| request.timestamp == reply.timestamp);
        let Some(request) = request else {
            if let Some(request) = self.request.filter(|request| request.timestamp < reply.timestamp) {
                self.on_other(now, from, request, reply, out);
            } else {
                self.compare_late(from, reply, out);
            }
            return Err(ClientReject::OtherRequest);
        };
        // And to the same operation: the timestamp may have been used before (RP-5).
        let is_refusal = reply.digest == Digest::ZERO;
        if !is_refusal && !mutant!(M71, reply.digest.answers(&request.digest), true) {
            self.on_other(now, from, request, reply, out);
            return Err(ClientReject::OtherOperation);
        }
        // What is to be ordered is refused only where the lane has lost its entry (L42).
        if is_refusal && request.path != Path::ReadOnly {
            self.on_other(now, from, request, reply, out);
            return Err(ClientReject::OtherRequest);
        }
        let before = self.replies.certified();
        self.replies.insert(from, request.path, reply)?;
        self.report_contradicted(request.timestamp, request.path, out);
        if let Some(digest) = self.replies.certified() {
            if before.is_none() {
                self.learn_view(out);
            }
            match self.replies.result() {
                Some(result) => {
                    let result = out.copy(result);
                    let Outstanding { timestamp, path, .. } = request;
                    out.push(ClientAction::StopTimer);
                    out.push(ClientAction::Done { timestamp, result, path });
                    self.finish(now, request, out);
                }
                None if before.is_none() => {
                    out.report(ClientMilestone::ResultMissing { timestamp: request.timestamp, digest });
                }
                None => {}
            }
        } else if request.path == Path::ReadOnly && self.replies.cannot_agree() {
            // "The client may be unable to collect 2f+1 such replies if there are concurrent writes"
            // [OSDI99 §5.1]. Once that is certain there is nothing to wait for.
            self.fall_back(now, request, out);
        } else if self.has_rest(&request) && self.replies.are_from(request.asked) {
            self.ask_rest(now, request, out);
        }
        Ok(())
    }

    /// A reply to the request that was done last comes too late to count, and not to be compared.
    fn compare_late(&mut self, from: ReplicaId, reply: &Reply<'_>, out: &mut ClientActions) {
        let Some((timestamp, path)) = self.finished.filter(|(timestamp, _)| *timestamp == reply.timestamp)
        else {
            return;
        };
        let answers = |certified: Digest| certified.answers_as(&reply.digest);
        if !self.replies.certified().is_some_and(answers) {
            return; // of another operation
        }
        let bare = Reply { result: None, ..*reply };
        if self.request.is_none() && self.replies.insert(from, path, &bare).is_ok() {
            self.report_contradicted(timestamp, path, out);
        }
    }

    /// Reports replicas whose replies cannot be right.
    fn report_contradicted(&mut self, timestamp: Timestamp, path: Path, out: &mut ClientActions) {
        while let Some(from) = self.replies.take_contradicted(path) {
            out.report(ClientMilestone::WrongReply { from, timestamp });
        }
    }

    /// "allowing the client to track the view and hence the current primary" [OSDI99 §4.1], by what a
    /// correct replica reports (CL-5).
    fn learn_view(&mut self, out: &mut ClientActions) {
        if let Some(view) = self.replies.view_after(self.view) {
            self.view = view;
            out.report(ClientMilestone::ViewLearned { view });
        }
    }

    fn finish(&mut self, now: Now, request: Outstanding, out: &mut ClientActions) {
        self.request = None;
        self.finished = Some((request.timestamp, request.path));
        let since = |sent_ns| now.mono_ns.saturating_sub(sent_ns);
        self.patience.observe(since(request.asked_ns), since(request.sent_ns), request.retransmissions);
        if request.path == Path::Ordered {
            self.repliers.on_result(now, since(request.asked_ns));
        }
        if request.asked_rest && request.path == Path::ReadOnly {
            self.spares.learn(self.replies.agreed(), &mut self.rng);
        }
        if self.signing.note_answered(now, request.had_to_sign) {
            out.report(ClientMilestone::Signing);
        }
    }
}
