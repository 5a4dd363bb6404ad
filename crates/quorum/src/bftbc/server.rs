//! A server of BFT-BC (§6).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};
use quorate_wire::{ClientId, Principal};

use super::late::{Debts, Owed};
use super::lists::Lists;
use super::{optimistic_digest, prepare_digest};
use crate::access::ACCESS;
use crate::admission::Access;
use crate::cert::{PrepareCert, WriteCert};
use crate::crypto::{Crypto, Signature, Statement};
use crate::message::encoding::{put_signature, put_wcert, signature, value, wcert};
use crate::message::{Body, Copy, Message, Op, OptimisticRequest, Predecessor, PrepareRequest, Proof};
use crate::mutants::Mutant;
use crate::repair::{Repair, copies};
use crate::saved::{self, Past};
use crate::settings::{ClientAuth, Protocol, Settings, Variant};
use crate::step::{Input, Out, Process, Reject, Timer};
use crate::thresholds::ServerId;
use crate::version::{ObjectId, Value, Version};

/// The state of an object.
#[derive(Clone, Debug)]
struct Object {
    value: Value,
    /// `pcert.version` is the version that is held.
    pcert: PrepareCert,
    /// WRITE-REPLY for the version that is held, made once, and when it is needed.
    wsig: Option<Signature>,
    /// The largest write certificate seen.
    wcert: Option<WriteCert>,
    lists: Lists,
}

impl Default for Object {
    fn default() -> Self {
        Self {
            value: Arc::new([]),
            pcert: PrepareCert::genesis(),
            wsig: None,
            wcert: None,
            lists: Lists::default(),
        }
    }
}

impl Object {
    fn save(&self, out: &mut Vec<u8>) {
        let mut w = Writer::new(out);
        w.u8(saved::CERTIFIED);
        w.blob(&self.value);
        self.pcert.encode(&mut w);
        put_signature(&mut w, None); // `wsig` is made again when it is needed
        put_wcert(&mut w, self.wcert.as_ref());
        self.lists.encode(&mut w);
    }

    fn load(saved: &[u8], clients_max: usize) -> Decoded<Self> {
        let mut r = Reader::new(saved);
        if r.u8()? != saved::CERTIFIED {
            return Err(DecodeError::NotCanonical);
        }
        let object = Self {
            value: value(&mut r)?,
            pcert: PrepareCert::decode(&mut r)?,
            wsig: signature(&mut r)?,
            wcert: wcert(&mut r)?,
            lists: Lists::decode(&mut r, clients_max)?,
        };
        r.end()?;
        Ok(object)
    }
}

/// A server.
#[derive(Debug)]
pub(crate) struct Server {
    settings: Arc<Settings>,
    variant: Variant,
    access: Access,
    objects: BTreeMap<ObjectId, Object>,
    repair: Repair,
    debts: Debts,
    /// Its lists are lost: it approves nothing in this epoch (§15).
    lists_lost: bool,
}

/// What a handler works with.
struct Handling<'a> {
    from: Principal,
    object: ObjectId,
    crypto: &'a mut dyn Crypto,
    out: &'a mut Out,
}

impl Server {
    pub(crate) fn new(me: ServerId, settings: Arc<Settings>, past: Past) -> Self {
        let variant = match settings.protocol {
            Protocol::BftBc(variant) => variant,
            Protocol::Phalanx | Protocol::MinimalC | Protocol::MinimalF => Variant::Base,
        };
        Self {
            variant,
            access: Access::new(me, Arc::clone(&settings)),
            objects: BTreeMap::new(),
            repair: Repair::new(me, Arc::clone(&settings), past == Past::Lost),
            debts: Debts::default(),
            lists_lost: past != Past::Whole && !settings.wrong(Mutant::WipedSigns),
            settings,
        }
    }

    fn message(&mut self, message: &Message, mut at: Handling<'_>) {
        let object = message.object;
        let from = at.from;
        let result =
            if let Some(result) = self.access.message(from, (object, &message.body), at.crypto, at.out) {
                result
            } else {
                self.about(message, &mut at)
            };
        match (result, message.body.request()) {
            (Err(Reject::NotAllowed), Some(op)) => at.out.refuse(from, object, op),
            (result, _) => result.unwrap_or_else(|reason| at.out.reject(from, reason)),
        }
    }

    /// A message about an object.
    fn about(&mut self, message: &Message, at: &mut Handling<'_>) -> Result<(), Reject> {
        let (object, from) = (message.object, at.from);
        match &message.body {
            Body::ReadTs { .. } | Body::BcRead { .. } if !self.access.may_read(from, &object) => {
                Err(Reject::NotAllowed)
            }
            Body::ReadTs { op, nonce } => {
                let pcert = self.pcert(object);
                at.out.send(from, object, Body::ReadTsReply { op: *op, nonce: *nonce, pcert });
                Ok(())
            }
            Body::BcRead { op, nonce } => {
                self.read(*op, *nonce, at);
                Ok(())
            }
            Body::Prepare { op, request, auth } => self.prepare(*op, request, auth.as_ref(), at),
            Body::ReadTsPrep { op, nonce, request, auth } if self.variant.is_optimized() => {
                self.prepare_optimistically(*op, *nonce, request, auth.as_ref(), at)
            }
            Body::Write { op, value, pcert } => self.write(*op, value, pcert, at),
            Body::Complete { wcert } => self.completed(wcert, at),
            Body::Pull if matches!(from, Principal::Replica(_)) => {
                let list = self.objects.range(object..).map(|(object, held)| Copy {
                    object: *object,
                    version: held.pcert.version,
                    value: Arc::clone(&held.value),
                    proof: Proof::default(),
                    pcert: Some(held.pcert.clone()),
                    wcert: held.wcert.clone(),
                });
                at.out.send(from, object, copies(list));
                Ok(())
            }
            Body::Copies { items, more } => self.copies(items, *more, at),
            _ => Err(Reject::NotExpected),
        }
    }

    fn pcert(&self, object: ObjectId) -> PrepareCert {
        self.objects.get(&object).map_or_else(PrepareCert::genesis, |held| held.pcert.clone())
    }

    fn held(&mut self, object: ObjectId) -> Result<&mut Object, Reject> {
        if !self.objects.contains_key(&object) && self.objects.len() >= self.settings.limits.objects {
            return Err(Reject::Full);
        }
        Ok(self.objects.entry(object).or_default())
    }

    fn is_valid_pcert(&self, pcert: &PrepareCert, at: &mut Handling<'_>) -> bool {
        let held = self.objects.get(&at.object).filter(|_| self.settings.cache);
        held.is_some_and(|held| held.pcert == *pcert) || pcert.is_valid(&self.settings, at.crypto, &at.object)
    }

    fn is_valid_wcert(&self, wcert: &WriteCert, at: &mut Handling<'_>) -> bool {
        let held = self.objects.get(&at.object).filter(|_| self.settings.cache);
        held.is_some_and(|held| held.wcert.as_ref() == Some(wcert))
            || wcert.is_valid(&self.settings, at.crypto, &at.object)
    }

    /// READ (§6.2). In the strong variant with what shows that the version is complete (§6.7).
    fn read(&mut self, op: Op, nonce: u128, at: &mut Handling<'_>) {
        let strong = self.variant.is_strong();
        let (value, pcert, wsig, wcert) = match self.objects.get_mut(&at.object) {
            None => (Arc::from([]), PrepareCert::genesis(), None, None),
            Some(held) => {
                let version = held.pcert.version;
                if strong && held.wsig.is_none() && !version.is_genesis() {
                    held.wsig = Some(at.crypto.sign(&at.object, &Statement::Stored(version)));
                }
                (Arc::clone(&held.value), held.pcert.clone(), held.wsig, held.wcert.clone())
            }
        };
        let (wsig, wcert) = if strong { (wsig, wcert) } else { (None, None) };
        at.out.send(at.from, at.object, Body::BcReadReply { op, nonce, value, pcert, wsig, wcert });
    }

    /// Says whether the request is its client's, and the client may write (§6.5).
    fn authenticate(
        &self,
        client: ClientId,
        statement: &Statement,
        auth: Option<&Signature>,
        at: &mut Handling<'_>,
    ) -> Result<(), Reject> {
        let authentic = match self.settings.client_auth {
            ClientAuth::Mac => at.from == Principal::from(client),
            ClientAuth::Signature => {
                auth.is_some_and(|auth| at.crypto.verify(client.into(), &at.object, statement, auth))
            }
        };
        // A server is no client: the numbers of clients and servers are one range.
        let authentic = authentic && client.replica().is_none();
        let may = self.access.may_write(client, &at.object);
        if !authentic || !(may || self.settings.wrong(Mutant::RightsIgnored)) {
            return Err(Reject::NotAllowed);
        }
        if self.lists_lost { Err(Reject::ListsLost) } else { Ok(()) }
    }

    /// Rule a for the client's own certificate, and rule b: it shows a write that completed.
    fn take_own(&mut self, own: Option<&WriteCert>, at: &mut Handling<'_>) -> Result<Version, Reject> {
        let Some(wcert) = own else { return Ok(Version::GENESIS) };
        if !self.is_valid_wcert(wcert, at) {
            return Err(Reject::BadProof);
        }
        self.raise(wcert, at.object, at.out)?;
        Ok(wcert.version)
    }

    fn raise(&mut self, wcert: &WriteCert, object: ObjectId, out: &mut Out) -> Result<(), Reject> {
        // Everybody can show that nothing was written: no object is made of it (Q11).
        let held = if wcert.version.is_genesis() { return Ok(()) } else { self.held(object)? };
        if wcert.version > held.lists.write_ver() {
            held.lists.complete(wcert.version);
            held.wcert = Some(wcert.clone());
            // What is answered next may rest on it (§2.5).
            out.persist(object);
        }
        Ok(())
    }

    /// PREPARE: rules a to e (§6.1); with a completed predecessor in the strong variant (§6.7).
    fn prepare(
        &mut self,
        op: Op,
        request: &PrepareRequest,
        auth: Option<&Signature>,
        at: &mut Handling<'_>,
    ) -> Result<(), Reject> {
        let PrepareRequest { client, predecessor, version, own } = request;
        let statement = Statement::AskPrepare(*client, prepare_digest(op, request));
        self.authenticate(*client, &statement, auth, at)?;
        let strong = self.variant.is_strong() && !self.settings.wrong(Mutant::PreparedPredecessor);
        let (before, valid) = match predecessor {
            Predecessor::Prepared(pcert) => (pcert.version, !strong && self.is_valid_pcert(pcert, at)),
            Predecessor::Completed(wcert) => (wcert.version, self.is_valid_wcert(wcert, at)),
        };
        if !valid {
            return Err(Reject::BadProof);
        }
        let follows = before.val.checked_add(1) == Some(version.val)
            || (self.settings.wrong(Mutant::SkipAhead) && version.val > before.val);
        if version.client != *client || !follows {
            return Err(Reject::NotSuccessor);
        }
        let mut covered = self.take_own(own.as_ref(), at)?;
        if let Predecessor::Completed(wcert) = predecessor {
            self.raise(wcert, at.object, at.out)?;
            covered = covered.max(wcert.version);
        }
        let settings = Arc::clone(&self.settings);
        let held = self.held(at.object)?;
        if settings.wrong(Mutant::ClearOnPrepare) {
            held.lists.clear_on_prepare(before);
        }
        held.lists.prepare(*version, covered, &settings)?;
        at.out.persist(at.object);
        let signature = at.crypto.sign(&at.object, &Statement::Prepared(*version, None));
        at.out.send(at.from, at.object, Body::PrepareReply { op, version: *version, signature });
        Ok(())
    }

    /// READ-TS-PREP (§6.4): the certificate of what is held, and where possible an optimistic
    /// approval of the version that is predicted.
    fn prepare_optimistically(
        &mut self,
        op: Op,
        nonce: u128,
        request: &OptimisticRequest,
        auth: Option<&Signature>,
        at: &mut Handling<'_>,
    ) -> Result<(), Reject> {
        let OptimisticRequest { client, digest, lock, own, predecessor } = request;
        let statement = Statement::AskOptimistic(*client, optimistic_digest(op, request));
        self.authenticate(*client, &statement, auth, at)?;
        let covered = self.take_own(own.as_ref(), at)?;
        let current = self.pcert(at.object).version;
        let base = if self.variant.is_strong() {
            self.completed_predecessor(predecessor.as_ref(), current, at).then_some(current)
        } else {
            let write_ver =
                self.objects.get(&at.object).map_or(Version::GENESIS, |held| held.lists.write_ver());
            Some(current.max(write_ver))
        };
        let settings = Arc::clone(&self.settings);
        let held = self.held(at.object)?;
        let granted = base
            .and_then(|base| held.lists.prepare_optimistically(*client, *digest, base, covered, &settings));
        let pcert = held.pcert.clone();
        let lock = if settings.wrong(Mutant::NoLock) { quorate_wire::Digest::ZERO } else { *lock };
        let opt = granted.map(|version| {
            at.out.persist(at.object);
            (version, at.crypto.sign(&at.object, &Statement::Prepared(version, Some(lock))))
        });
        at.out.send(at.from, at.object, Body::ReadTsPrepReply { op, nonce, pcert, opt });
        Ok(())
    }

    /// Strong variant: the request carries the write certificate of the version that is held (H7).
    fn completed_predecessor(
        &self,
        predecessor: Option<&WriteCert>,
        current: Version,
        at: &mut Handling<'_>,
    ) -> bool {
        if self.settings.wrong(Mutant::OptUnpreceded) {
            return true;
        }
        let named = predecessor.map_or(Version::GENESIS, |wcert| wcert.version) == current;
        if self.settings.wrong(Mutant::NamedPredecessor) {
            return named;
        }
        named && predecessor.is_none_or(|wcert| self.is_valid_wcert(wcert, at))
    }

    /// WRITE: needs no authority of its client, the certificate has it.
    fn write(
        &mut self,
        op: Op,
        value: &Value,
        pcert: &PrepareCert,
        at: &mut Handling<'_>,
    ) -> Result<(), Reject> {
        let newer = self.install(value, pcert, at)?;
        let held = self.objects.get(&at.object).filter(|held| held.pcert.version == pcert.version);
        let wsig = held.and_then(|held| held.wsig);
        let version = pcert.version;
        if !newer && self.settings.wrong(Mutant::NewerOnly) {
            return Ok(());
        }
        // Also where it is not newer: otherwise write-backs would block (§6.8).
        let owed = Owed { to: at.from, object: at.object, op, version };
        if wsig.is_none() && self.settings.late && self.debts.add(owed) {
            at.out.send(at.from, at.object, Body::Ack { op, version });
            at.out.timer(Timer::Late, 0);
            return Ok(());
        }
        let signature = wsig.unwrap_or_else(|| at.crypto.sign(&at.object, &Statement::Stored(version)));
        at.out.send(at.from, at.object, Body::WriteReply { op, version, signature });
        Ok(())
    }

    /// Signs what was acknowledged (§6.4).
    fn sign_late(&mut self, crypto: &mut dyn Crypto, out: &mut Out) {
        while let Some(Owed { to, object, op, version }) = self.debts.pop() {
            let statement = Statement::Stored(version);
            let signature = match self.objects.get_mut(&object) {
                Some(held) if held.pcert.version == version => {
                    *held.wsig.get_or_insert_with(|| crypto.sign(&object, &statement))
                }
                // What is overtaken is signed, too: this server holds a larger version.
                _ => crypto.sign(&object, &statement),
            };
            out.send(to, object, Body::WriteReply { op, version, signature });
        }
    }

    /// Keeps a certified value if it is the largest. Says whether it was.
    fn install(&mut self, value: &Value, pcert: &PrepareCert, at: &mut Handling<'_>) -> Result<bool, Reject> {
        let hashes = at.crypto.digest(value) == pcert.version.digest;
        if !hashes || !self.is_valid_pcert(pcert, at) {
            return Err(Reject::BadProof);
        }
        let (by_counter, late) = (self.settings.wrong(Mutant::NoDigest), self.settings.late);
        let held = if pcert.version.is_genesis() { return Ok(false) } else { self.held(at.object)? };
        let (new, old) = (pcert.version, held.pcert.version);
        let newer = if by_counter { (new.val, new.client) > (old.val, old.client) } else { new > old };
        if newer {
            held.value = Arc::clone(value);
            held.pcert = pcert.clone();
            held.wsig = (!late).then(|| at.crypto.sign(&at.object, &Statement::Stored(new)));
            at.out.persist(at.object);
        }
        Ok(newer)
    }

    /// COMPLETE, from any client: servers clear their lists without waiting for its next write.
    fn completed(&mut self, wcert: &WriteCert, at: &mut Handling<'_>) -> Result<(), Reject> {
        if !self.is_valid_wcert(wcert, at) {
            return Err(Reject::BadProof);
        }
        self.raise(wcert, at.object, at.out)
    }

    /// Repair (§15): values with certificates, and write certificates. Lists do not prove themselves.
    fn copies(&mut self, items: &[Copy], more: bool, at: &mut Handling<'_>) -> Result<(), Reject> {
        let Principal::Replica(peer) = at.from else { return Err(Reject::NotExpected) };
        let mut result = Ok(());
        for item in self.repair.arrived(peer, at.object, items, more, at.out) {
            let mut at =
                Handling { from: at.from, object: item.object, crypto: &mut *at.crypto, out: &mut *at.out };
            let installed = match &item.pcert {
                Some(pcert) => self.install(&item.value, pcert, &mut at).map(|_| ()),
                None => Err(Reject::BadProof),
            };
            let raised = item.wcert.as_ref().map_or(Ok(()), |wcert| self.completed(wcert, &mut at));
            result = result.and(installed).and(raised);
        }
        self.repair.judge_proofs();
        result
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
            Input::Timer(Timer::Late) => self.sign_late(crypto, out),
            Input::Access { client, allowed } => self.access.set(client, allowed),
            Input::Message { from, message } => {
                self.message(message, Handling { from, object: message.object, crypto, out });
            }
            Input::Timer(_) | Input::Invoke { .. } => {}
        }
    }

    /// Everything that decides is durable (§2.5).
    fn crash(&mut self) {
        self.debts.clear();
        self.repair.crash();
        self.access.crash();
    }

    fn save(&self, object: &ObjectId, out: &mut Vec<u8>) -> bool {
        if *object == ACCESS {
            return self.access.save(out);
        }
        let Some(held) = self.objects.get(object) else { return false };
        held.save(out);
        true
    }

    fn load(&mut self, object: ObjectId, saved: &[u8]) -> Decoded<()> {
        if object == ACCESS {
            return self.access.load(saved);
        }
        let limit = self.settings.limits.clients;
        self.objects.insert(object, Object::load(saved, limit)?);
        Ok(())
    }

    fn is_repaired(&self) -> bool {
        !self.repair.is_lost()
    }

    fn held(&self, object: &ObjectId) -> Option<Version> {
        self.objects.get(object).map(|held| held.pcert.version)
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
