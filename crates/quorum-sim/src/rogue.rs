//! Clients that are not good (§10): those that stop half way or write different values to different
//! servers, and, for BFT-BC, one that hoards whatever it can prepare and writes it after its stop.

use std::collections::BTreeMap;
use std::sync::Arc;

use quorate_quorum::bftbc::{optimistic_digest, prepare_digest};
use quorate_quorum::cert::{PrepareCert, WriteCert};
use quorate_quorum::crypto::{Signature, Statement, lock_of};
use quorate_quorum::message::{Op, OptimisticRequest, Predecessor, PrepareRequest};
use quorate_quorum::settings::{ClientAuth, Protocol, Variant};
use quorate_quorum::version::{ObjectId, Value, Version, value_digest};
use quorate_quorum::{Body, Message, ServerId};
use quorate_wire::{ClientId, Principal};

use crate::profile::{Behaviour, Scene};
use crate::rng::Rng;

/// What a faulty client does with the messages of a correct one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Stops for good after this number of sends of a STORE.
    CrashMidWrite(u32),
    /// Sends STORE to some servers only: one bit each.
    Partial(u64),
    /// Sends a value of its own to each server, under one counter.
    Poison,
    /// Never says that a read is complete.
    ListenerLeak,
}

/// A correct client behind a fault.
#[derive(Debug)]
pub struct Faulty {
    fault: Fault,
    sent: u32,
    stopped: bool,
}

impl Faulty {
    /// Returns the behaviour of such a client.
    pub fn new(fault: Fault) -> Self {
        Self { fault, sent: 0, stopped: false }
    }
}

impl Behaviour for Faulty {
    fn outgoing(&mut self, to: Principal, mut message: Message, scene: &mut Scene<'_>) {
        let object = message.object;
        if self.stopped {
            return;
        }
        if matches!(self.fault, Fault::ListenerLeak) && matches!(message.body, Body::Rc { .. }) {
            return;
        }
        if let Body::Store { version, value, proof, .. } = &mut message.body {
            match self.fault {
                Fault::CrashMidWrite(after) => {
                    if self.sent >= after {
                        self.stopped = true;
                        return;
                    }
                    self.sent += 1;
                }
                Fault::Partial(mask) => {
                    if let Principal::Replica(server) = to
                        && mask & (1 << server.0) == 0
                    {
                        return;
                    }
                }
                Fault::Poison => {
                    if let Principal::Replica(server) = to {
                        let mut bytes = value.to_vec();
                        bytes.push(u8::try_from(server.0 % 3).unwrap_or(0));
                        *value = bytes.into();
                        version.digest = value_digest(value);
                        if proof.signature.is_some() {
                            proof.signature = Some(scene.sign(&object, &Statement::Written(*version)));
                        }
                    }
                }
                Fault::ListenerLeak => {}
            }
        }
        if let (Body::Prepare { .. } | Body::Write { .. }, Fault::CrashMidWrite(after)) =
            (&message.body, self.fault)
        {
            if self.sent >= after {
                self.stopped = true;
                return;
            }
            self.sent += 1;
        }
        if let (Body::Write { .. }, Fault::Partial(mask), Principal::Replica(server)) =
            (&message.body, self.fault, to)
            && mask & (1 << server.0) == 0
        {
            return;
        }
        scene.sends.push((0, to, message));
    }
}

/// A client with a script of its own.
pub trait Actor {
    /// Hears a message.
    fn message(&mut self, from: Principal, message: &Message, scene: &mut Scene<'_>);
    /// Acts, and says in `scene.tick` when to act again.
    fn tick(&mut self, scene: &mut Scene<'_>);
}

/// What a hoarder is out for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// Everything.
    #[default]
    All,
    /// It prepares, stops, and its certificates are written later.
    Lurk,
    /// It leaves signed requests with a colluder.
    PreSign,
    /// It forges certificates.
    Forge,
    /// It asks for versions far ahead.
    Exhaust,
}

impl Scheme {
    /// Returns what it does next: a number of the list in `tick`.
    fn choose(self, rng: &mut Rng) -> u64 {
        let some: &[u64] = match self {
            Self::All => return rng.below(10),
            Self::Lurk => &[0, 2, 4, 7],
            Self::PreSign => &[0, 2, 4, 5, 7],
            Self::Forge => &[0, 2, 4, 9, 9],
            Self::Exhaust => &[0, 2, 2],
        };
        rng.pick(some).unwrap_or(0)
    }
}

/// What the hoarder asked to prepare.
#[derive(Clone, Debug)]
struct Asked {
    version: Option<Version>,
    message: Message,
    key: Option<[u8; 16]>,
    value: Value,
    /// By version: servers with their signatures.
    approvals: BTreeMap<Version, BTreeMap<ServerId, Signature>>,
}

/// A client of BFT-BC that prepares as much as it can, leaves its signed requests with a colluder,
/// and writes what got a certificate after its stop (§10).
#[derive(Debug)]
pub struct Hoarder {
    object: ObjectId,
    other: ObjectId,
    asked: Vec<Asked>,
    pcerts: Vec<PrepareCert>,
    wcerts: Vec<WriteCert>,
    /// Certificates with their values: written when it likes.
    hoard: Vec<(PrepareCert, Value)>,
    stored: BTreeMap<Version, BTreeMap<ServerId, Signature>>,
    number: u64,
    left: u32,
    scheme: Scheme,
}

impl Hoarder {
    /// Returns a hoarder about one object; `other` is another one, for certificates out of place.
    pub fn new(object: ObjectId, other: ObjectId, acts: u32) -> Self {
        Self {
            object,
            other,
            asked: Vec::new(),
            pcerts: vec![PrepareCert::genesis()],
            wcerts: Vec::new(),
            hoard: Vec::new(),
            stored: BTreeMap::new(),
            number: 0,
            left: acts,
            scheme: Scheme::All,
        }
    }

    /// Returns one that is out for this only.
    #[must_use]
    pub fn out_for(mut self, scheme: Scheme) -> Self {
        self.scheme = scheme;
        self
    }

    fn op(&mut self) -> Op {
        self.number += 1;
        Op { incarnation: 1, number: self.number, phase: 1 }
    }

    fn me(scene: &Scene<'_>) -> ClientId {
        match scene.me {
            Principal::Client(client) => client,
            Principal::Replica(server) => Principal::from(server).as_client(),
        }
    }

    fn is_stopped(scene: &Scene<'_>) -> bool {
        scene.group.stopped.contains(&Self::me(scene))
    }

    fn variant(scene: &Scene<'_>) -> Variant {
        match scene.settings.protocol {
            Protocol::BftBc(variant) => variant,
            Protocol::Phalanx | Protocol::MinimalC | Protocol::MinimalF => Variant::Base,
        }
    }

    fn broadcast(&self, body: &Body, scene: &mut Scene<'_>) {
        let all = scene.rng.one_in(2);
        for server in scene.settings.thresholds.servers() {
            if all || scene.rng.one_in(2) {
                scene.send(server, self.object, body.clone());
            }
        }
    }

    /// Signs a PREPARE over some certificate that it knows.
    fn ask(&mut self, scene: &mut Scene<'_>) {
        let strong = Self::variant(scene).is_strong();
        let newest = self.pcerts.iter().max_by_key(|pcert| pcert.version).cloned();
        let pcert = if scene.rng.one_in(3) { scene.rng.pick(&self.pcerts) } else { newest };
        let Some(pcert) = pcert else { return };
        let wcert = self.wcerts.iter().max_by_key(|wcert| wcert.version).cloned();
        let (predecessor, before) = if strong && !scene.rng.one_in(4) {
            let wcert = wcert.unwrap_or(WriteCert { version: Version::GENESIS, signatures: Arc::new([]) });
            let before = wcert.version;
            (Predecessor::Completed(wcert), before)
        } else {
            let before = pcert.version;
            (Predecessor::Prepared(pcert), before)
        };
        let me = Self::me(scene);
        let value: Value = [&b"rogue"[..], &scene.rng.bits().to_le_bytes()].concat().into();
        let digest = value_digest(&value);
        let skip = if scene.rng.one_in(6) || self.scheme == Scheme::Exhaust { u64::MAX / 2 } else { 0 };
        let val = before.val.saturating_add(1).saturating_add(skip);
        let version = Version { val, client: me, digest };
        let own = if scene.rng.one_in(2) {
            let own = self.wcerts.iter().filter(|wcert| wcert.version.client == me);
            own.max_by_key(|wcert| wcert.version).cloned()
        } else {
            None
        };
        let op = self.op();
        let request = PrepareRequest { client: me, predecessor, version, own };
        let auth = scene.sign(&self.object, &Statement::AskPrepare(me, prepare_digest(op, &request)));
        let body = Body::Prepare { op, request: Arc::new(request), auth: Some(auth) };
        self.remember(Some(version), body, None, value, scene);
    }

    /// Signs a READ-TS-PREP.
    fn ask_optimistically(&mut self, scene: &mut Scene<'_>) {
        let me = Self::me(scene);
        let value: Value = [&b"rogue"[..], &scene.rng.bits().to_le_bytes()].concat().into();
        let key = u128::from(scene.rng.bits()).to_le_bytes();
        let own = self.wcerts.iter().filter(|wcert| wcert.version.client == me);
        let own = own.max_by_key(|wcert| wcert.version).cloned();
        let newest = self.wcerts.iter().max_by_key(|wcert| wcert.version).cloned();
        // A name without a certificate, of what is or will be the version (H7).
        let named = self
            .pcerts
            .iter()
            .max_by_key(|pcert| pcert.version)
            .map(|pcert| WriteCert { version: pcert.version, signatures: Arc::clone(&pcert.signatures) });
        let predecessor = if scene.rng.one_in(2) { named } else { newest };
        let op = self.op();
        let request = OptimisticRequest {
            client: me,
            digest: value_digest(&value),
            lock: lock_of(&key),
            own,
            predecessor: predecessor.filter(|wcert| !wcert.version.is_genesis()),
        };
        let auth = scene.sign(&self.object, &Statement::AskOptimistic(me, optimistic_digest(op, &request)));
        let body = Body::ReadTsPrep { op, nonce: 0, request: Arc::new(request), auth: Some(auth) };
        self.remember(None, body, Some(key), value, scene);
    }

    fn remember(
        &mut self,
        version: Option<Version>,
        body: Body,
        key: Option<[u8; 16]>,
        value: Value,
        scene: &mut Scene<'_>,
    ) {
        if !scene.rng.one_in(3) && self.scheme != Scheme::PreSign {
            self.broadcast(&body, scene);
        }
        if self.asked.len() < 24 {
            let message = Message { object: self.object, body };
            self.asked.push(Asked { version, message, key, value, approvals: BTreeMap::new() });
        }
    }

    /// Makes certificates of what was approved, with the signatures of the liars.
    fn collect(&mut self, scene: &mut Scene<'_>) {
        let q = scene.settings.thresholds.q();
        let liars = scene.group.liars.clone();
        let zero = scene.settings.wrong(quorate_quorum::Mutant::NoLock);
        for asked in &mut self.asked {
            let lock = asked.key.map(|key| if zero { quorate_wire::Digest::ZERO } else { lock_of(&key) });
            for (version, approvals) in &mut asked.approvals {
                if approvals.is_empty() || self.hoard.iter().any(|(pcert, _)| pcert.version == *version) {
                    continue;
                }
                for liar in &liars {
                    let statement = Statement::Prepared(*version, lock);
                    if let Some(signature) = scene.sign_as(*liar, &self.object, &statement) {
                        approvals.insert(*liar, signature);
                    }
                }
                if approvals.len() >= q {
                    let signatures: Vec<(ServerId, Signature)> =
                        approvals.iter().take(q).map(|(server, signature)| (*server, *signature)).collect();
                    let pcert =
                        PrepareCert { version: *version, key: asked.key, signatures: signatures.into() };
                    scene.group.certs.push((self.object, pcert.clone(), Arc::clone(&asked.value)));
                    self.pcerts.push(pcert.clone());
                    self.hoard.push((pcert, Arc::clone(&asked.value)));
                }
            }
        }
        for (version, signatures) in &self.stored {
            if signatures.len() >= q && !self.wcerts.iter().any(|wcert| wcert.version == *version) {
                let signatures: Vec<(ServerId, Signature)> =
                    signatures.iter().take(q).map(|(server, signature)| (*server, *signature)).collect();
                self.wcerts.push(WriteCert { version: *version, signatures: signatures.into() });
            }
        }
    }

    /// A certificate that is not one: too few, a signer twice, or another object's.
    fn forged(&self, scene: &mut Scene<'_>) -> Option<Message> {
        let (pcert, value) = scene.rng.pick(&self.hoard)?;
        let mut signatures = pcert.signatures.to_vec();
        let mut object = self.object;
        match scene.rng.below(3) {
            0 => _ = signatures.pop(),
            1 => {
                let value: Value = Arc::from(&b"twice"[..]);
                let version = Version { digest: value_digest(&value), ..pcert.version };
                let liar = *scene.group.liars.first()?;
                let own = scene.sign_as(liar, &self.object, &Statement::Prepared(version, None))?;
                let signatures: Vec<_> = (0..scene.settings.thresholds.q()).map(|_| (liar, own)).collect();
                let pcert = PrepareCert { version, key: None, signatures: signatures.into() };
                let op = Op { incarnation: 1, number: 0, phase: 1 };
                return Some(Message { object, body: Body::Write { op, value, pcert } });
            }
            _ => object = self.other,
        }
        let pcert = PrepareCert { signatures: signatures.into(), ..pcert };
        let op = Op { incarnation: 1, number: 0, phase: 1 };
        Some(Message { object, body: Body::Write { op, value, pcert } })
    }
}

impl Actor for Hoarder {
    fn message(&mut self, from: Principal, message: &Message, scene: &mut Scene<'_>) {
        let Principal::Replica(server) = from else { return };
        match &message.body {
            Body::BcReadReply { pcert, wcert, wsig, .. } => {
                if pcert.is_valid(scene.settings, &mut Check(scene.keys), &self.object)
                    && !self.pcerts.contains(pcert)
                {
                    self.pcerts.push(pcert.clone());
                }
                if let Some(wcert) = wcert
                    && wcert.is_valid(scene.settings, &mut Check(scene.keys), &self.object)
                    && !self.wcerts.contains(wcert)
                {
                    self.wcerts.push(wcert.clone());
                }
                if let Some(wsig) = wsig {
                    self.stored.entry(pcert.version).or_default().insert(server, *wsig);
                }
            }
            Body::PrepareReply { op, version, signature } => {
                let asked = self.asked.iter_mut().find(|asked| {
                    asked.version == Some(*version)
                        && matches!(&asked.message.body, Body::Prepare { op: mine, .. } if mine == op)
                });
                if let Some(asked) = asked
                    && scene.keys.verify(from, &self.object, &Statement::Prepared(*version, None), signature)
                {
                    asked.approvals.entry(*version).or_default().insert(server, *signature);
                }
            }
            Body::ReadTsPrepReply { op, opt: Some((version, signature)), .. } => {
                let asked = self.asked.iter_mut().find(
                    |asked| matches!(&asked.message.body, Body::ReadTsPrep { op: mine, .. } if mine == op),
                );
                if let Some(asked) = asked {
                    asked.approvals.entry(*version).or_default().insert(server, *signature);
                }
            }
            Body::WriteReply { version, signature, .. }
                if scene.keys.verify(from, &self.object, &Statement::Stored(*version), signature) =>
            {
                self.stored.entry(*version).or_default().insert(server, *signature);
            }
            _ => {}
        }
        self.collect(scene);
    }

    fn tick(&mut self, scene: &mut Scene<'_>) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            return;
        }
        scene.tick = Some(1 + scene.rng.below(250));
        self.collect(scene);
        let stopped = Self::is_stopped(scene);
        let signs = scene.settings.client_auth == ClientAuth::Signature;
        match self.scheme.choose(scene.rng) {
            0 | 1 => {
                let body = Body::BcRead { op: self.op(), nonce: 0 };
                self.broadcast(&body, scene);
            }
            2 | 3 if !stopped => self.ask(scene),
            4 if !stopped && Self::variant(scene).is_optimized() => self.ask_optimistically(scene),
            // What was signed before the stop is sent again, by anyone who has it.
            5 | 6 if !stopped || signs => {
                if let Some(asked) = scene.rng.pick(&self.asked) {
                    self.broadcast(&asked.message.body, scene);
                }
            }
            7 | 8 => {
                // Before the stop it keeps most of what it has.
                if (stopped || scene.rng.one_in(4))
                    && let Some((pcert, value)) = scene.rng.pick(&self.hoard)
                {
                    let op = self.op();
                    self.broadcast(&Body::Write { op, value, pcert }, scene);
                }
            }
            _ => {
                if let Some(message) = self.forged(scene) {
                    for server in scene.settings.thresholds.servers() {
                        scene.sends.push((0, server.into(), message.clone()));
                    }
                }
            }
        }
    }
}

/// Verifies without signing.
pub(crate) struct Check<'a>(&'a Keys);

impl<'a> Check<'a> {
    /// Returns what verifies with these keys.
    pub(crate) fn new(keys: &'a Keys) -> Self {
        Self(keys)
    }
}

use crate::keys::Keys;

impl quorate_quorum::crypto::Crypto for Check<'_> {
    fn sign(&mut self, _object: &ObjectId, _statement: &Statement) -> Signature {
        [0; 64]
    }

    fn verify(
        &mut self,
        signer: Principal,
        object: &ObjectId,
        statement: &Statement,
        signature: &Signature,
    ) -> bool {
        self.0.verify(signer, object, statement, signature)
    }

    fn random(&mut self) -> u128 {
        0
    }
}
