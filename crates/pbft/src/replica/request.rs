//! Requests as they come from clients and from other replicas: authenticity, retransmission, relaying
//! and the vouchers that let a backup time the primary [OSDI99 §4.1], spec §4.3, §12.1.

use quorate_wire::codec::Writer;
use quorate_wire::id::{ClientId, ReplicaId};
use quorate_wire::message::{
    BodyFetch, BodyKind, BodyMessage, FETCH_DIGESTS_MAX, Kind, Proof, ReqAck, Request,
};
use quorate_wire::{Digest, Principal};

use crate::io::config::RequestAuth;
use crate::io::step::{Action, Actions, Lsn, Now, Recipient, Reject, Timer};
use crate::order::slot::Slot;
use crate::order::votes::{bit, size};
use crate::replica::Replica;
use crate::requests::table::{Client, Pending, enough_to_time};

/// A backup that stays alone with a request says so after a time that doubles each time, so often at most.
const VOUCH_DOUBLINGS_MAX: u32 = 20;

impl Replica {
    /// Takes a request from any sender: it is authenticated by itself.
    pub(super) fn on_request(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let mode = self.config.request_auth;
        let admitted = self.clients.admits(request, mode, now.mono_ns);
        let holds = self.leads() && !request.flags.read_only;
        if let Err(reason @ (Reject::Blacklisted | Reject::UnprovenRequest)) = admitted {
            return out.reject(reason);
        }
        let drop = |other| self.bodies.drop_older(other);
        let client = match request.proof {
            // Nobody takes another's place for a client by its name alone.
            Proof::Unproven => self.clients.entry(request.client),
            Proof::Mac | Proof::Signed => {
                self.clients.entry_in_turn(request.client, self.exec.executed(), drop)
            }
        };
        let Some(client) = client else { return out.reject(Reject::OverQuota) };
        // "Replicas discard requests whose timestamp is lower than the timestamp in the last reply
        // they sent to the client" [OSDI99 §4.2].
        if request.timestamp < client.executed() {
            // The sender learns from the newer reply: a replica that rejoins with a clock that was set back
            // (RC-6), a client whose record of what it has used is lost (RP-5).
            if request.proof == Proof::Unproven {
                return out.reject(Reject::OldTimestamp);
            }
            if request.client.replica().is_none() {
                out.reject(Reject::OldTimestamp);
            }
            return self.on_retransmission(now, request, out);
        }
        // "If the request has already been processed, the replicas simply re-send the reply" [OSDI99 §4.1].
        if request.timestamp == client.executed() {
            return self.on_retransmission(now, request, out);
        }
        let signature_first = match admitted {
            // If enough others vouch for it, the primary asks for it (AU-6). It would keep a signed one out here (L129).
            Err(Reject::OnProbation) if mutant!(M183, false, holds) => false,
            Err(reason) => return out.reject(reason),
            Ok(as_it_is) => !as_it_is,
        };
        // The MAC of a read suffices, because only this replica has to accept it: its signature is not checked (AU-1). If
        // its client has to sign, `admits` has rejected a read without a signature (AU-5). A signature does not suffice,
        // because it does not cover the flag. So a replica sends no reads: backups would refuse a batch with one (L126).
        let may_be_read = mutant!(M180, true, request.client.replica().is_none());
        if request.flags.read_only && self.config.read_only && may_be_read {
            if request.proof != Proof::Mac {
                return out.reject(Reject::UnprovenRequest);
            }
            return self.on_read_request(request, out);
        }
        if let Some(pending) = client.pending() {
            let held = (pending.request().timestamp, pending.request().digest);
            if held == (request.timestamp, request.digest) {
                return self.on_known_request(now, request, out);
            }
            if request.timestamp <= held.0 && !self.drop_in_vain(request.client) {
                let is_older = request.timestamp < held.0;
                // CL-4, SR-5: the first one stays.
                return out.reject(if is_older { Reject::OldTimestamp } else { Reject::SameTimestamp });
            }
        }
        if signature_first {
            return self.ask_for_signature(now, request, out);
        }
        self.keep(now, request, out);
    }

    /// Keeps a new request that is authentic.
    fn keep(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        if !self.make_bytes_for(now, request.client, request.frame.len()) {
            return out.reject(Reject::OverQuota);
        }
        let Some(client) = self.clients.keep(request, now.mono_ns) else { return };
        if request.operation.len() > self.config.separate_above
            && let Some(pending) = client.pending()
        {
            let body = pending.request().clone();
            self.bodies.hold(body);
        } else {
            self.bodies.drop_older(request.client);
        }
        self.take_up(now, request.client, out);
    }

    /// Takes a request that this primary cannot check and has asked for because enough others vouch for it: that is as good
    /// as a MAC (AU-6). Says whether it has asked. They do not vouch for the flag.
    pub(super) fn take_vouched(&mut self, now: Now, body: &BodyMessage<'_>, out: &mut Actions) -> bool {
        let BodyMessage::Request(request) = body else { return false };
        let is_read = request.flags.read_only && self.config.read_only;
        let is_asked_for = mutant!(M181, self.leads(), true)
            && self.clients.vouchers().wants(request.client, &request.digest);
        if is_read || !is_asked_for {
            return false;
        }
        // If there is no room, the next REQ-ACK wants it again.
        self.clients.want_no_more(request.client, request.timestamp);
        let drop = |other| self.bodies.drop_older(other);
        if self.clients.entry_in_turn(request.client, self.exec.executed(), drop).is_some() {
            self.keep(now, &Request { proof: Proof::Mac, ..*request }, out);
            self.clients.set_unchecked(request.client, &request.digest);
        }
        true
    }

    /// Says whether so much of a client waits that its driver had better read no more of its long requests: all replicas
    /// would keep the same ones then, and not each its own (SR-1).
    pub fn has_enough_of(&self, client: Principal) -> bool {
        self.clients.has_enough_of(client.as_client().principal())
    }

    /// Says whether a client may have a request of `len` bytes waiting (SR-1), and makes room for it.
    fn make_bytes_for(&mut self, now: Now, client: ClientId, len: usize) -> bool {
        let at = (now.mono_ns, self.exec.executed());
        self.clients.make_bytes_for(client, len, at, |other| self.bodies.drop_older(other))
    }

    /// Requests the expensive check outside of the step; the request waits in the body table.
    #[cold]
    fn ask_for_signature(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        let Some(client) = self.clients.entry(request.client) else { return };
        let body = client.store(request);
        if !self.bodies.check_signature(body, now.mono_ns, out) {
            out.reject(Reject::OverQuota);
        }
    }

    /// A client's signature was checked: the request counts as authentic, or its client as faulty.
    #[cold]
    pub(super) fn on_signature_checked(&mut self, now: Now, request: Digest, valid: bool, out: &mut Actions) {
        let waiting = self.bodies.signature_checked(request, valid);
        if let Some(body) = waiting {
            if !valid {
                // AU-1: the MAC covers the signature, so a valid MAC with an invalid signature proves its client faulty.
                if body.proof == Proof::Mac {
                    self.clients.shut_out(body.client, now.mono_ns);
                }
                return out.reject(Reject::BadSignature);
            }
            self.drop_in_vain(body.client);
            let (last, drop) = (self.exec.executed(), |other| self.bodies.drop_older(other));
            let Some(client) = self.clients.entry_in_turn(body.client, last, drop) else { return };
            let held = client.pending().map(Pending::request);
            let newer = held.is_none_or(|held| held.timestamp < body.timestamp);
            let same = held.is_some_and(|held| held.digest == body.digest);
            if body.timestamp > client.executed() && (newer || same) {
                let id = body.client;
                if newer && !self.make_bytes_for(now, id, body.frame().len()) {
                    return out.reject(Reject::OverQuota);
                }
                if body.operation().len() > self.config.separate_above {
                    self.bodies.hold(body.clone());
                }
                if newer {
                    self.clients.keep_stored(body, now.mono_ns);
                } else {
                    self.clients.renew_stored(body);
                }
                self.take_up(now, id, out);
            }
        }
        if valid {
            self.recheck_proposals(now, out);
        }
    }

    /// Handles a new request: the primary orders it, a backup forwards it and watches.
    fn take_up(&mut self, now: Now, client: ClientId, out: &mut Actions) {
        self.recheck_hungry(now, out);
        if !self.is_normal() || self.recovery.is_active() {
            return; // kept; the next view begins with it
        }
        let Some(pending) = self.clients.get(client).and_then(Client::pending) else { return };
        if self.is_primary() {
            self.batcher.push(client, pending.has_pause());
            return self.propose();
        }
        // "if the replica is not the primary, it relays the request to the primary" [OSDI99 §4.1];
        // large ones have gone to all replicas and are sent again on demand only (TM-2).
        if pending.request().operation().len() <= self.config.separate_above {
            let to = Recipient::Replica(self.primary());
            out.forward(to, Kind::Request, Lsn(0), pending.request().frame());
        }
        // The primary proposes what others hold first (PR-8).
        let has_pause = pending.has_pause();
        // A signature convinces every replica, so the timer needs no vouchers (TM-2).
        if pending.request().proof == Proof::Signed || self.config.request_auth == RequestAuth::SigMac {
            if has_pause {
                self.vouch(now, client, out);
            }
            self.time(now, client, out);
        } else {
            // A small one goes to the primary alone unless its client asks again: it need not wait to be vouched
            // for (TM-2).
            if has_pause || pending.request().operation().len() <= self.config.separate_above {
                self.vouch(now, client, out);
            }
            self.watch_relays(now, out);
        }
    }

    /// Counts a request for the request timer, from now on.
    fn start_waiting(&mut self, client: ClientId, now: Now) {
        let Some(pending) = self.clients.get(client).and_then(Client::pending) else { return };
        if pending.is_timed() {
            return;
        }
        let digest = pending.request().digest;
        let in_progress = self.log.above(self.exec.executed());
        let names = |slot: &&Slot| slot.proposed().is_some_and(|b| b.requests().any(|r| r.digest == digest));
        let proposed = in_progress.filter(names).map(Slot::seq).max();
        self.clients.start_waiting(client, now.mono_ns, self.watch.accepted(), proposed);
    }

    /// The client asks again for a request that has not been executed.
    #[cold]
    fn on_known_request(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        self.piggyback.flush(self.log.view(), out); // PB-4: somebody is waiting
        // It signs now, as one on probation has to, or as a correct client does from its second
        // retransmission on (AU-5).
        let separate_above = self.config.separate_above;
        let Some(client) = self.clients.get_mut(request.client) else { return };
        let proven = client.pending().is_some_and(|p| p.request().proof == Proof::Signed);
        if request.flags.signed && request.proof != Proof::Signed && !proven {
            return self.ask_for_signature(now, request, out);
        }
        let Some(client) = self.clients.renew(request) else { return };
        if request.operation.len() > separate_above
            && let Some(pending) = client.pending()
        {
            let body = pending.request().clone();
            self.bodies.hold(body);
        }
        if self.is_normal() && !self.is_primary() && !self.recovery.is_active() {
            self.vouch(now, request.client, out);
        }
    }

    /// Tells all that a request is authentic here, and counts the replicas that do; a signed one needs none (TM-2).
    pub(super) fn vouch(&mut self, now: Now, client: ClientId, out: &mut Actions) {
        let id = self.id;
        let must_sign = self.clients.must_sign(client, self.config.request_auth, now.mono_ns);
        let Some(pending) = self.clients.get(client).and_then(Client::pending) else { return };
        let (timestamp, digest) = (pending.request().timestamp, pending.request().digest);
        // No primary will propose what has to be signed and is not, so none is timed for it (AU-5).
        let is_signed = pending.request().proof == Proof::Signed;
        if pending.is_timed() || must_sign && !is_signed {
            return;
        }
        if mutant!(M160, is_signed, false) {
            return self.time(now, client, out); // whatever the others hold (L32)
        }
        // Said again and again: the others may not have known the client yet.
        out.send(Recipient::All, Kind::ReqAck, Lsn(0), |w| {
            ReqAck { client, timestamp, digest }.encode(w);
        });
        let set = self.clients.vouch_again(client, id);
        self.time_if_vouched(now, client, set, out);
    }

    /// Another replica holds a request as authentic.
    pub(super) fn on_req_ack(&mut self, now: Now, from: ReplicaId, m: &ReqAck, out: &mut Actions) {
        let must_sign = self.clients.must_sign(m.client, self.config.request_auth, now.mono_ns);
        let last = self.exec.executed();
        if self.clients.get(m.client).is_some_and(|client| m.timestamp <= client.executed()) {
            return out.reject(Reject::OldTimestamp);
        }
        let set = self.clients.note_voucher(m.client, (m.timestamp, m.digest), from);
        self.drop_in_vain(m.client);
        let pending = self.clients.get(m.client).and_then(Client::pending);
        let Some(pending) = pending.filter(|p| p.request().digest == m.digest) else {
            let is_new = pending.is_none_or(|p| p.request().timestamp < m.timestamp);
            let signed_only = self.config.request_auth == RequestAuth::SigMac;
            if is_new
                && !signed_only
                && self.clients.want(m.client, (m.timestamp, m.digest))
                && self.vouched().next().is_some()
            {
                self.bodies.seek(now, out);
                let ask = |w: &mut Writer<'_>| BodyFetch::encode(BodyKind::Request, &[m.digest], w);
                out.send(Recipient::Replica(from), Kind::BodyFetch, Lsn(0), ask);
            }
            return;
        };
        if self.is_normal() && self.is_primary() {
            if (must_sign || pending.is_unchecked()) && !pending.is_proposed(last) {
                self.batcher.push(m.client, pending.has_pause());
                self.propose();
            }
        } else if !must_sign || pending.request().proof == Proof::Signed {
            self.time_if_vouched(now, m.client, set, out);
        }
    }

    /// Returns digests of requests that this replica is to propose and cannot check, and that enough others vouch for (AU-6).
    pub(super) fn vouched(&self) -> impl Iterator<Item = &Digest> {
        let leads = self.leads();
        let wanted = self.clients.vouchers().wanted(usize::from(FETCH_DIGESTS_MAX));
        wanted.filter(move |_| mutant!(M178, leads, false))
    }

    /// Gives up the waiting request of a lane if it waits in vain. Says whether it does.
    fn drop_in_vain(&mut self, client: ClientId) -> bool {
        let waits_in_vain = self.clients.waits_in_vain(client, self.exec.executed());
        if waits_in_vain {
            self.clients.take_pending(client);
        }
        waits_in_vain
    }

    /// Returns whether this replica proposes requests.
    fn leads(&self) -> bool {
        self.is_normal() && self.is_primary()
    }

    /// Starts the request timer for a request that enough replicas hold: otherwise one client and `f` replicas could
    /// depose primaries with requests that verify at a few backups only (TM-2, B31, L65).
    fn time_if_vouched(&mut self, now: Now, client: ClientId, set: u64, out: &mut Actions) {
        let is_mine = set & bit(self.id) != 0;
        let vouchers = size(set & !bit(self.primary()));
        let vouchers = mutant!(M73, vouchers, 2 * vouchers);
        let is_vouched = vouchers >= enough_to_time(self.cluster, self.config.request_auth);
        if is_mine && is_vouched && self.is_normal() && !self.is_primary() {
            self.time(now, client, out);
        }
    }

    /// Counts a request for the request timer, and starts that.
    fn time(&mut self, now: Now, client: ClientId, out: &mut Actions) {
        self.start_waiting(client, now);
        self.watch_requests(now, out);
    }

    /// The client asks again for what was executed: its reply is in the state (RP-2).
    #[cold]
    fn on_retransmission(&mut self, now: Now, request: &Request<'_>, out: &mut Actions) {
        // RO-5: others may lag where this replica does not; a status lets them catch up.
        self.peers.send_soon(now, out);
        self.piggyback.flush(self.log.view(), out);
        let Some(client) = self.clients.get_mut(request.client) else { return };
        if client.may_resend(now.mono_ns) {
            out.push(Action::Resend { client: request.client });
        } else {
            out.reject(Reject::TooSoon);
        }
    }

    /// Arms the timer for requests that no timer covers yet.
    pub(super) fn watch_relays(&mut self, now: Now, out: &mut Actions) {
        if self.watches() && self.watch.start_relay() {
            Self::set_timer(out, Timer::Relay, now.mono_ns.saturating_add(self.patience(now) / 4));
        }
    }

    /// A quarter of the time-out has passed: vouch for what has not been proposed; at half of it,
    /// send it to the primary again (TM-2).
    pub(super) fn on_relay_timer(&mut self, now: Now, out: &mut Actions) {
        self.watch.stop_relay();
        if !self.watches() {
            return;
        }
        let patience = self.patience(now);
        let mut due = core::mem::take(&mut self.scratch);
        due.clear();
        let mut more = false;
        for (client, pending) in self.clients.pending() {
            let waited = now.mono_ns.saturating_sub(pending.since());
            more |= !pending.is_timed() || !pending.is_relayed_again();
            // Said again, but less and less often: nobody else may ever hold it (B31).
            let wait = (patience / 4) << pending.vouched().min(VOUCH_DOUBLINGS_MAX);
            if !pending.is_timed() && waited >= wait {
                due.push(client.0);
            }
        }
        for client in due.iter().copied() {
            self.vouch(now, quorate_wire::ClientId(client), out);
        }
        self.scratch = due;
        let primary = Recipient::Replica(self.primary());
        self.clients.relay(now.mono_ns, patience / 2, self.exec.executed(), |request| {
            Self::pass_on(primary, request, out);
        });
        if more {
            self.watch_relays(now, out);
        }
    }
}
