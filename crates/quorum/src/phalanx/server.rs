//! A server of PHALANX: it keeps the largest signed version (§3).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::Principal;
use quorate_wire::codec::Decoded;

use super::judge;
use crate::access::ACCESS;
use crate::admission::Access;
use crate::crypto::Crypto;
use crate::message::{Body, Copy, Message, Op, Proof};
use crate::mutants::Mutant;
use crate::repair::{Repair, copies};
use crate::saved;
use crate::settings::Settings;
use crate::step::{Input, Out, Process, Reject, Timer};
use crate::thresholds::ServerId;
use crate::version::{ObjectId, Value, Version};

/// The state of an object.
#[derive(Clone, Debug)]
struct Object {
    version: Version,
    value: Value,
    proof: Proof,
}

impl Default for Object {
    fn default() -> Self {
        Self { version: Version::GENESIS, value: Arc::new([]), proof: Proof::default() }
    }
}

/// A server.
#[derive(Debug)]
pub(crate) struct Server {
    settings: Arc<Settings>,
    access: Access,
    objects: BTreeMap<ObjectId, Object>,
    repair: Repair,
}

impl Server {
    pub(crate) fn new(me: ServerId, settings: Arc<Settings>, lost: bool) -> Self {
        let repair = Repair::new(me, Arc::clone(&settings), lost);
        let access = Access::new(me, Arc::clone(&settings));
        Self { settings, access, objects: BTreeMap::new(), repair }
    }

    fn message(&mut self, from: Principal, message: &Message, crypto: &mut dyn Crypto, out: &mut Out) {
        let object = message.object;
        if let Some(result) = self.access.message(from, (object, &message.body), crypto, out) {
            return result.unwrap_or_else(|reason| out.reject(from, reason));
        }
        let held = self.objects.get(&object);
        match &message.body {
            Body::Qts { op } | Body::Rd { op } if !self.access.may_read(from, &object) => {
                out.refuse(from, object, *op);
            }
            Body::Qts { op } => {
                let (version, signature) =
                    held.map_or((Version::GENESIS, None), |held| (held.version, held.proof.signature));
                out.send(from, object, Body::Tsr { op: *op, version, signature });
            }
            Body::Rd { op } => {
                let Object { version, value, proof } = held.cloned().unwrap_or_default();
                out.send(from, object, Body::RdVal { op: *op, version, value, proof });
            }
            Body::Store { op, version, value, proof, write_back } => {
                let store = Copy::stored(object, *version, value, proof);
                self.write(from, *op, store, *write_back, crypto, out);
            }
            Body::Pull => {
                let Principal::Replica(_) = from else { return out.reject(from, Reject::NotExpected) };
                let list = self.objects.range(object..);
                let list =
                    list.map(|(object, held)| Copy::stored(*object, held.version, &held.value, &held.proof));
                out.send(from, object, copies(list));
            }
            Body::Copies { items, more } => {
                let Principal::Replica(peer) = from else {
                    return out.reject(from, Reject::NotExpected);
                };
                for item in self.repair.arrived(peer, object, items, *more, out) {
                    let about = item.object;
                    match self.install(item, crypto) {
                        Ok(true) => out.persist(about),
                        Ok(false) => {}
                        Err(reason) => out.reject(from, reason),
                    }
                }
                self.repair.judge_proofs();
            }
            _ => out.reject(from, Reject::NotExpected),
        }
    }

    /// WR and WB. The list of revoked clients applies to WR only (§3); the rules to the writer of either.
    fn write(
        &mut self,
        from: Principal,
        op: Op,
        store: Copy,
        back: bool,
        crypto: &mut dyn Crypto,
        out: &mut Out,
    ) {
        let (object, version) = (store.object, store.version);
        let own = Principal::from(version.client) == from;
        let listed = !back || self.settings.wrong(Mutant::AccessOnRelays);
        let Principal::Client(_) = from else { return out.reject(from, Reject::NotExpected) };
        let may = !listed || self.access.may_write(version.client, &object);
        if !back && own && !may {
            return out.refuse(from, object, op);
        }
        if (!back && !own) || !may {
            return out.reject(from, Reject::NotAllowed);
        }
        match self.install(store, crypto) {
            Err(reason) => out.reject(from, reason),
            Ok(newer) => {
                if newer {
                    out.persist(object);
                }
                // Also when it is not newer: otherwise concurrent writers would block (§3, Servers).
                if newer || !self.settings.wrong(Mutant::NewerOnly) {
                    out.send(from, object, Body::Ack { op, version });
                }
            }
        }
    }

    /// Keeps a version if it is valid and the largest. Says whether it was.
    fn install(&mut self, store: Copy, crypto: &mut dyn Crypto) -> Result<bool, Reject> {
        let Copy { object, version, value, proof, .. } = store;
        if self.objects.get(&object).map_or(Version::GENESIS, |held| held.version) == version {
            return Ok(false);
        }
        if crypto.digest(&value) != version.digest {
            return Err(Reject::BadProof);
        }
        judge(&self.settings, crypto, &object, version, proof.signature.as_ref())?;
        if !self.objects.contains_key(&object) && self.objects.len() >= self.settings.limits.objects {
            return Err(Reject::Full);
        }
        let held = self.objects.entry(object).or_default();
        if version <= held.version {
            return Ok(false);
        }
        *held = Object { version, value, proof };
        Ok(true)
    }
}

impl Process for Server {
    fn step(&mut self, _now: u64, input: Input<'_>, crypto: &mut dyn Crypto, out: &mut Out) {
        match input {
            Input::Start => {
                self.repair.start(out);
                self.access.compare(out);
            }
            Input::Timer(Timer::Access) => self.access.compare(out),
            Input::Timer(Timer::Repair) => self.repair.again(out),
            Input::Access { client, allowed } => self.access.set(client, allowed),
            Input::Message { from, message } => self.message(from, message, crypto, out),
            Input::Timer(_) | Input::Invoke { .. } => {}
        }
    }

    fn crash(&mut self) {
        self.repair.crash();
        self.access.crash();
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
        self.objects.insert(object, Object { version, value, proof });
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
