//! A server of MINIMAL (§4); with signed stores and relays, of MINIMAL-F (§5).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::Principal;
use quorate_wire::codec::Decoded;

use super::claims::Claims;
use super::listeners::Listeners;
use super::relay::Relay;
use super::store::{Sender, Store, acknowledge};
use super::unwritten::Unwritten;
use crate::access::ACCESS;
use crate::admission::Access;
use crate::crypto::{Crypto, Statement};
use crate::message::{Body, Copy, Message, Op, Proof, Rid};
use crate::mutants::Mutant;
use crate::phalanx::judge;
use crate::repair::{Repair, copies};
use crate::saved;
use crate::settings::{Protocol, Settings};
use crate::step::{Input, Out, Process, Reject, Timer};
use crate::thresholds::{ServerId, ServerSet};
use crate::version::{ObjectId, Value, Version};

mod copies;

/// No lease is longer than the first one by more than this power of two: some hours.
const LEASE_DOUBLINGS_MAX: u8 = 10;

/// The state of an object.
#[derive(Debug)]
struct Object {
    version: Version,
    value: Value,
    proof: Proof,
    listeners: Listeners,
    /// MINIMAL-F: versions above `low` that were handled.
    seen: BTreeSet<Version>,
}

impl Default for Object {
    fn default() -> Self {
        Self {
            version: Version::GENESIS,
            value: Arc::new([]),
            proof: Proof::default(),
            listeners: Listeners::default(),
            seen: BTreeSet::new(),
        }
    }
}

impl Object {
    /// Versions up to this one need no handling: no listener wants them, and a larger one is stored.
    fn low(&self) -> Version {
        self.listeners.low().map_or(self.version, |start| start.min(self.version))
    }

    fn forget_below_low(&mut self) {
        let low = self.low();
        while self.seen.first().is_some_and(|version| *version <= low) {
            self.seen.pop_first();
        }
    }
}

/// A server.
#[derive(Debug)]
pub(crate) struct Server {
    settings: Arc<Settings>,
    access: Access,
    objects: BTreeMap<ObjectId, Object>,
    /// Those that nobody has written.
    unwritten: Unwritten,
    /// The timer that ends leases runs.
    ends_leases: bool,
    relay: Relay,
    repair: Repair,
    claims: Claims,
    /// MINIMAL-C: which peers answered what during repair. Cleared when it ends. Values are not kept: the answer
    /// that completes f + 1 brings it.
    answers: BTreeMap<(ObjectId, Version), ServerSet>,
}

impl Server {
    pub(crate) fn new(me: ServerId, settings: Arc<Settings>, lost: bool) -> Self {
        Self {
            access: Access::new(me, Arc::clone(&settings)),
            objects: BTreeMap::new(),
            unwritten: Unwritten::default(),
            ends_leases: false,
            relay: Relay::new(me, Arc::clone(&settings)),
            repair: Repair::new(me, Arc::clone(&settings), lost),
            claims: Claims::new(me, Arc::clone(&settings)),
            answers: BTreeMap::new(),
            settings,
        }
    }

    fn is_f(&self) -> bool {
        self.settings.protocol == Protocol::MinimalF
    }

    fn message(
        &mut self,
        now: u64,
        from: Principal,
        message: &Message,
        crypto: &mut dyn Crypto,
        out: &mut Out,
    ) {
        let object = message.object;
        if let Some(result) = self.access.message(from, (object, &message.body), crypto, out) {
            return result.unwrap_or_else(|reason| out.reject(from, reason));
        }
        match &message.body {
            Body::Qts { op } if !self.access.may_read(from, &object) => out.refuse(from, object, *op),
            Body::Read { rid, .. } if !self.access.may_read(from, &object) => {
                out.refuse(from, object, rid.as_op());
            }
            Body::Qts { op } => {
                let held = self.objects.get(&object);
                let (version, signature) =
                    held.map_or((Version::GENESIS, None), |held| (held.version, held.proof.signature));
                out.send(from, object, Body::Tsr { op: *op, version, signature });
            }
            Body::Store { op, version, value, proof, write_back } => {
                let store = Store { object, version: *version, value, proof };
                self.client_store(from, *op, &store, *write_back, crypto, out);
            }
            Body::Read { rid, attempt } => self.read(now, from, object, *rid, *attempt, crypto, out),
            Body::Rc { .. } if !self.access.may_read(from, &object) => out.reject(from, Reject::NotAllowed),
            Body::Rc { rid } => {
                let Some(held) = self.objects.get_mut(&object) else { return };
                match held.listeners.complete(from, *rid, &self.settings) {
                    Ok(()) => held.forget_below_low(),
                    Err(reason) => out.reject(from, reason),
                }
                self.forget_unwritten(object);
            }
            Body::Fstore { version, value, proof } if self.is_f() => {
                let Principal::Replica(peer) = from else {
                    return out.reject(from, Reject::NotExpected);
                };
                let may = || self.access.may_write(version.client, &object);
                if self.settings.wrong(Mutant::AccessOnRelays) && !may() {
                    return;
                }
                let store = Store { object, version: *version, value, proof };
                self.store(Sender::Peer(peer), &store, crypto, out);
            }
            Body::Tsr { op, version, .. } if !self.is_f() => {
                let Principal::Replica(peer) = from else {
                    return out.reject(from, Reject::NotExpected);
                };
                if let Some((version, value)) = self.claims.answered(peer, object, (*op, *version)) {
                    let proof = &Proof::default();
                    let store = Store { object, version, value: &value, proof };
                    self.store(Sender::Peers, &store, crypto, out);
                }
            }
            Body::Fack { version } if self.is_f() => match from {
                Principal::Replica(peer) => self.relay.acknowledged(object, peer, *version),
                Principal::Client(_) => out.reject(from, Reject::NotExpected),
            },
            Body::Pull => {
                let Principal::Replica(_) = from else { return out.reject(from, Reject::NotExpected) };
                let list = self.objects.range(object..).filter(|(_, held)| !held.version.is_genesis());
                let list =
                    list.map(|(object, held)| Copy::stored(*object, held.version, &held.value, &held.proof));
                out.send(from, object, copies(list));
            }
            Body::Copies { items, more } => {
                let Principal::Replica(peer) = from else {
                    return out.reject(from, Reject::NotExpected);
                };
                self.copies(peer, object, items, *more, crypto, out);
            }
            _ => out.reject(from, Reject::NotExpected),
        }
    }

    /// A store that a client sent. In MINIMAL-C readers write back, in MINIMAL-F the servers relay.
    fn client_store(
        &mut self,
        from: Principal,
        op: Op,
        store: &Store<'_>,
        back: bool,
        crypto: &mut dyn Crypto,
        out: &mut Out,
    ) {
        // Clients are correct in MINIMAL-C, servers are not: a server may store nothing.
        let Principal::Client(client) = from else { return out.reject(from, Reject::NotExpected) };
        let Store { object, version, value, .. } = *store;
        let rules = &self.settings.rules;
        let (sender, may) = (Sender::Client(from, op), self.access.may_write(client, &object));
        let own = version.client == client;
        if !back || self.is_f() {
            if own && may {
                return self.store(sender, store, crypto, out);
            }
            if own {
                return out.refuse(from, object, op);
            }
            return out.reject(from, Reject::NotAllowed);
        }
        if self.settings.wrong(Mutant::RightsOfSender) {
            return self.store(sender, store, crypto, out);
        }
        if !rules.may_read(from, &object) || !rules.may_have_written(version.client, &object) {
            return out.reject(from, Reject::NotAllowed);
        }
        // Its word is enough if it may write: it could have written this itself, under a larger version.
        if may || self.objects.get(&object).is_some_and(|held| held.version == version) {
            return self.store(sender, store, crypto, out);
        }
        let result = if self.settings.wrong(Mutant::AccessOnRelays) {
            Err(Reject::NotAllowed)
        } else if crypto.digest(value) == version.digest {
            self.claims.ask(from, (object, version), value, out)
        } else {
            Err(Reject::BadProof)
        };
        if let Err(reason) = result {
            out.reject(from, reason);
        }
    }

    /// STORE and FSTORE (§4, §5).
    fn store(&mut self, sender: Sender, store: &Store<'_>, crypto: &mut dyn Crypto, out: &mut Out) {
        let Store { object, version, value, proof } = *store;
        let signed = self.is_f();
        let facks = signed && self.settings.fack;
        let written = self.objects.len() - self.unwritten.len();
        if !self.objects.contains_key(&object) && written >= self.settings.limits.objects {
            if let Sender::Client(from, _) = sender {
                out.reject(from, Reject::Full);
            }
            return;
        }
        let held = self.objects.get(&object);
        let handled = held.map_or(version.is_genesis(), |held| {
            signed && (version <= held.low() || held.seen.contains(&version))
        });
        if handled {
            // Superseded or handled before: no cryptography.
            return acknowledge(sender, object, version, facks, out);
        }
        let hashes = crypto.digest(value) == version.digest;
        let judged = if !hashes {
            Err(Reject::BadProof)
        } else if signed {
            self.judge(store, crypto)
        } else {
            Ok(())
        };
        if let Err(reason) = judged {
            let from = match sender {
                Sender::Client(from, _) => from,
                Sender::Peer(peer) => peer.into(),
                Sender::Peers => return,
            };
            return out.reject(from, reason);
        }
        let held = self.objects.entry(object).or_default();
        let newer = version > held.version;
        if newer {
            held.version = version;
            held.value = Arc::clone(value);
            held.proof = proof.clone();
            self.unwritten.remove(object);
            out.persist(object);
        }
        if signed {
            held.seen.insert(version);
            if held.seen.len() > self.settings.limits.seen
                && let Some((client, rid)) = held.listeners.drop_oldest()
            {
                out.send(client, object, Body::Gone { rid });
            }
            held.forget_below_low();
            if held.seen.len() > self.settings.limits.seen {
                held.seen.pop_first();
            }
        }
        for (client, rid) in held.listeners.receivers(version, newer, &self.settings) {
            // It may have lost the right since it registered (Q13).
            if !self.access.may_read(client.into(), &object) {
                continue;
            }
            let signature = answer_signature(&self.settings, crypto, &object, version);
            let value = Arc::clone(value);
            out.send(client, object, Body::Val { rid, version, value, forwarded: true, signature });
        }
        if !self.settings.relay_first {
            acknowledge(sender, object, version, facks, out);
        }
        if signed {
            // Once for each version and server, whether it came from a client or from a server.
            self.relay.broadcast(object, version, value, proof, out);
        }
        if self.settings.relay_first {
            acknowledge(sender, object, version, facks, out);
        }
    }

    /// MINIMAL-F: the writer signed it, and with `ts_evidence` it follows what q servers answered.
    fn judge(&self, store: &Store<'_>, crypto: &mut dyn Crypto) -> Result<(), Reject> {
        let Store { object, version, proof, .. } = store;
        if self.settings.evidence {
            let evidence = proof.evidence.as_ref();
            let before = evidence.and_then(|evidence| evidence.predecessor(&self.settings, crypto, object));
            let next = before.and_then(|before| before.val.checked_add(1));
            if next != Some(version.val) {
                return Err(Reject::BadProof);
            }
        }
        judge(&self.settings, crypto, object, *version, proof.signature.as_ref())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of READ and what a step has")]
    fn read(
        &mut self,
        now: u64,
        from: Principal,
        object: ObjectId,
        rid: Rid,
        attempt: u8,
        crypto: &mut dyn Crypto,
        out: &mut Out,
    ) {
        let Principal::Client(client) = from else { return out.reject(from, Reject::NotExpected) };
        if !self.objects.contains_key(&object) && !self.unwritten.add(object, client) {
            return out.reject(from, Reject::Full);
        }
        let lease = self.settings.timing.lease;
        let lease = lease.saturating_mul(1 << attempt.min(LEASE_DOUBLINGS_MAX));
        let expires = if lease == 0 { u64::MAX } else { now.saturating_add(lease) };
        let held = self.objects.entry(object).or_default();
        let (version, value) = (held.version, Arc::clone(&held.value));
        if let Err(reason) = held.listeners.register(from, rid, version, expires, &self.settings) {
            self.forget_unwritten(object);
            return out.reject(from, reason);
        }
        // A timer that each READ sets again ends no lease as long as anybody reads (Q13).
        if lease > 0 && !core::mem::replace(&mut self.ends_leases, true) {
            out.timer(Timer::Leases, self.settings.timing.lease);
        }
        let signature = answer_signature(&self.settings, crypto, &object, version);
        out.send(from, object, Body::Val { rid, version, value, forwarded: false, signature });
    }

    /// Ends the leases of readers that never said that they were complete (§4, Bounds).
    fn expire(&mut self, now: u64, out: &mut Out) {
        let mut left = false;
        for (object, held) in &mut self.objects {
            for (client, rid) in held.listeners.expire(now) {
                out.send(client, *object, Body::Gone { rid });
                held.forget_below_low();
            }
            left |= !held.listeners.is_empty();
        }
        for object in self.unwritten.list() {
            self.forget_unwritten(object);
        }
        self.ends_leases = left;
        if left {
            out.timer(Timer::Leases, self.settings.timing.lease);
        }
    }

    /// Forgets an object that nobody has written, once nobody listens to it.
    fn forget_unwritten(&mut self, object: ObjectId) {
        let is_left = |held: &Object| held.version.is_genesis() && held.listeners.is_empty();
        if self.objects.get(&object).is_some_and(is_left) && self.unwritten.remove(object) {
            self.objects.remove(&object);
        }
    }

    fn start(&mut self, out: &mut Out) {
        self.repair.start(out);
        self.access.compare(out);
        // What was relayed before a crash may have been lost with it (§5).
        if self.is_f() && !self.settings.wrong(Mutant::NoRelayAfterRestart) {
            for (object, held) in &self.objects {
                if !held.version.is_genesis() {
                    self.relay.broadcast(*object, held.version, &held.value, &held.proof, out);
                }
            }
        }
    }
}

/// With `ts_evidence` a server signs what it answers (§5).
fn answer_signature(
    settings: &Settings,
    crypto: &mut dyn Crypto,
    object: &ObjectId,
    version: Version,
) -> Option<crate::crypto::Signature> {
    settings.evidence.then(|| crypto.sign(object, &Statement::Answered(version)))
}

impl Process for Server {
    fn step(&mut self, now: u64, input: Input<'_>, crypto: &mut dyn Crypto, out: &mut Out) {
        match input {
            Input::Start => self.start(out),
            Input::Message { from, message } => self.message(now, from, message, crypto, out),
            Input::Timer(Timer::Access) => self.access.compare(out),
            Input::Timer(Timer::Leases) => self.expire(now, out),
            Input::Timer(Timer::Relays) => self.relay.again(out),
            Input::Timer(Timer::Repair) => self.repair.again(out),
            Input::Access { client, allowed } => self.access.set(client, allowed),
            Input::Timer(Timer::Operation(_) | Timer::Stores(_) | Timer::Late) | Input::Invoke { .. } => {}
        }
    }

    /// Listeners, rids and `seen` are volatile, because a READ is never repeated under its rid (§2.5).
    fn crash(&mut self) {
        for held in self.objects.values_mut() {
            held.listeners = Listeners::default();
            held.seen.clear();
        }
        for object in self.unwritten.list() {
            self.forget_unwritten(object);
        }
        self.ends_leases = false;
        self.relay.crash();
        self.repair.crash();
        self.access.crash();
        self.claims.crash();
        self.answers.clear();
    }

    fn save(&self, object: &ObjectId, out: &mut Vec<u8>) -> bool {
        if *object == ACCESS {
            return self.access.save(out);
        }
        let Some(held) = self.objects.get(object) else { return false };
        saved::put(held.version, &held.value, &held.proof, out);
        true
    }

    fn load(&mut self, object: ObjectId, bytes: &[u8]) -> Decoded<()> {
        if object == ACCESS {
            return self.access.load(bytes);
        }
        let (version, value, proof) = saved::take(bytes)?;
        self.objects.insert(object, Object { version, value, proof, ..Object::default() });
        Ok(())
    }

    fn is_repaired(&self) -> bool {
        !self.repair.is_lost()
    }

    fn held(&self, object: &ObjectId) -> Option<Version> {
        self.objects.get(object).map(|held| held.version)
    }

    fn objects(&self) -> usize {
        self.objects.len()
    }

    fn may_read(&self, from: Principal, object: &ObjectId) -> bool {
        self.access.may_read(from, object)
    }

    fn access_number(&self) -> u64 {
        self.access.number()
    }
}
