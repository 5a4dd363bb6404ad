//! Fault profiles of servers (§10): a correct server whose messages are falsified. A liar signs with
//! its own key, and never has another's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quorate_quorum::access::{ACCESS, SignedList, Who};
use quorate_quorum::cert::{PrepareCert, WriteCert};
use quorate_quorum::crypto::{Signature, Statement};
use quorate_quorum::message::{Op, Proof, Rid};
use quorate_quorum::version::{ObjectId, Value, Version, value_digest};
use quorate_quorum::{Body, Message, ServerId, Settings};
use quorate_wire::{ClientId, Digest, Principal};

use crate::keys::Keys;
use crate::rng::Rng;

mod names;

pub use names::Profile;

/// How long a server that crashes and starts again is down, and then up.
const DOWN: u64 = 50_000;

/// What the colluders of a world share.
#[derive(Debug, Default)]
pub struct Group {
    /// One fake for each object, the same at all liars.
    pub fakes: BTreeMap<ObjectId, (Version, Value)>,
    /// Certificates of rogue clients, with their values.
    pub certs: Vec<(ObjectId, PrepareCert, Value)>,
    /// Clients that were stopped.
    pub stopped: BTreeSet<ClientId>,
    /// Servers whose keys rogue clients may use.
    pub liars: Vec<ServerId>,
    /// What clients without the right to write have signed.
    pub stores: Vec<(ObjectId, Version, Value, Proof)>,
    /// The access lists of an administrator, oldest first, each with the client that it takes the right to write from.
    pub lists: Vec<(Arc<SignedList>, ClientId)>,
}

/// What a behaviour works with.
pub struct Scene<'a> {
    /// Who it is.
    pub me: Principal,
    /// The time.
    pub now: u64,
    /// The cluster.
    pub settings: &'a Settings,
    /// Chance.
    pub rng: &'a mut Rng,
    /// Keys. A behaviour signs as itself, or as a liar of its group.
    pub keys: &'a mut Keys,
    /// What colluders share.
    pub group: &'a mut Group,
    /// What it sends, each after a delay.
    pub sends: Vec<(u64, Principal, Message)>,
    /// Actors: when to act again.
    pub tick: Option<u64>,
}

impl core::fmt::Debug for Scene<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Scene({})", self.me)
    }
}

impl Scene<'_> {
    /// Sends a message.
    pub fn send(&mut self, to: impl Into<Principal>, object: ObjectId, body: Body) {
        self.sends.push((0, to.into(), Message { object, body }));
    }

    /// Signs as itself.
    pub fn sign(&mut self, object: &ObjectId, statement: &Statement) -> Signature {
        self.keys.sign(self.me, object, statement)
    }

    /// Signs as a liar of the group.
    pub fn sign_as(&mut self, liar: ServerId, object: &ObjectId, statement: &Statement) -> Option<Signature> {
        self.group.liars.contains(&liar).then(|| self.keys.sign(liar.into(), object, statement))
    }
}

/// What stands between a process and the network.
pub trait Behaviour {
    /// Sees a message before the process does. False: the process does not see it.
    fn incoming(&mut self, _from: Principal, _message: &Message, _scene: &mut Scene<'_>) -> bool {
        true
    }
    /// Sends what it likes in place of `message`.
    fn outgoing(&mut self, to: Principal, message: Message, scene: &mut Scene<'_>);
}

/// A server that follows a profile.
#[derive(Debug)]
pub struct Liar {
    profile: Profile,
    /// When it begins.
    from: u64,
    flood: u32,
    listeners: BTreeMap<Principal, (ObjectId, Rid)>,
    /// What it goes on answering readers with.
    first: BTreeMap<ObjectId, Body>,
    /// BFT-BC: the lock of the request that it answers.
    lock: Option<Digest>,
}

impl Liar {
    /// Returns a liar that begins at a time.
    pub fn new(profile: Profile, from: u64) -> Self {
        Self { profile, from, flood: 200, listeners: BTreeMap::new(), first: BTreeMap::new(), lock: None }
    }

    fn forge(&mut self, object: ObjectId, version: Version, scene: &mut Scene<'_>) -> (Version, Value) {
        if self.profile == Profile::Collude
            && let Some(fake) = scene.group.fakes.get(&object)
            && !scene.rng.one_in(8)
        {
            return fake.clone();
        }
        let value: Value = scene.rng.bits().to_le_bytes().to_vec().into();
        let val = match self.profile {
            Profile::FakeSame => version.val,
            Profile::FakeInflated => version.val.saturating_add(1 + scene.rng.below(1000)),
            _ => version.val.saturating_add(scene.rng.below(4)).saturating_sub(1),
        };
        let client = ClientId::new(scene.rng.between(1, 6), 0);
        let fake = (Version { val, client, digest: value_digest(&value) }, value);
        scene.group.fakes.insert(object, fake.clone());
        fake
    }

    /// Falsifies what the server says about its value.
    fn fake(&mut self, object: ObjectId, body: &mut Body, scene: &mut Scene<'_>) {
        match body {
            Body::Val { version, value, signature, .. } => {
                (*version, *value) = self.forge(object, *version, scene);
                *signature =
                    signature.map(|_| scene.keys.sign(scene.me, &object, &Statement::Answered(*version)));
            }
            Body::RdVal { version, value, proof, .. } => {
                (*version, *value) = self.forge(object, *version, scene);
                let signature = scene.keys.sign(scene.me, &object, &Statement::Written(*version));
                *proof = Proof { signature: Some(signature), evidence: None };
            }
            Body::BcReadReply { value, pcert, wsig, wcert, .. } => {
                let (version, fake) = self.forge(object, pcert.version, scene);
                *value = fake;
                *pcert = Self::bad_certificate(object, version, scene);
                *wsig = Some(scene.keys.sign(scene.me, &object, &Statement::Stored(version)));
                *wcert = Some(WriteCert { version, signatures: Arc::clone(&pcert.signatures) });
            }
            _ => {}
        }
    }

    /// A certificate with its own signature only: q times, or under the names of others.
    fn bad_certificate(object: ObjectId, version: Version, scene: &mut Scene<'_>) -> PrepareCert {
        let Principal::Replica(me) = scene.me else { return PrepareCert::genesis() };
        let own = scene.keys.sign(scene.me, &object, &Statement::Prepared(version, None));
        let q = scene.settings.thresholds.q();
        let duplicate = scene.rng.one_in(2);
        let mut signatures: Vec<(ServerId, Signature)> = if duplicate {
            (0..q).map(|_| (me, own)).collect()
        } else {
            scene.settings.thresholds.servers().take(q).map(|server| (server, own)).collect()
        };
        if scene.rng.one_in(4) {
            signatures.pop();
        }
        PrepareCert { version, key: None, signatures: signatures.into() }
    }

    fn spoil(signature: &mut Signature, scene: &mut Scene<'_>) {
        let byte = scene.rng.index(64);
        signature[byte] ^= 1 << scene.rng.below(8);
    }

    fn bad_crypto(object: ObjectId, body: &mut Body, scene: &mut Scene<'_>) {
        match body {
            Body::Tsr { signature: Some(signature), .. }
            | Body::PrepareReply { signature, .. }
            | Body::WriteReply { signature, .. }
            | Body::ReadTsPrepReply { opt: Some((_, signature)), .. }
            | Body::Val { signature: Some(signature), .. }
            | Body::RdVal { proof: Proof { signature: Some(signature), .. }, .. }
            | Body::Fstore { proof: Proof { signature: Some(signature), .. }, .. } => {
                Self::spoil(signature, scene);
            }
            Body::ReadTsReply { pcert, .. } | Body::BcReadReply { pcert, .. } => {
                let version = Version { val: pcert.version.val + 1, ..pcert.version };
                *pcert = Self::bad_certificate(object, version, scene);
            }
            _ => {}
        }
    }

    fn flood(&mut self, scene: &mut Scene<'_>) {
        let listeners: Vec<(Principal, (ObjectId, Rid))> =
            self.listeners.iter().map(|(to, about)| (*to, *about)).collect();
        for (to, (object, rid)) in listeners {
            for _ in 0..scene.rng.below(4) {
                if self.flood == 0 {
                    return;
                }
                self.flood -= 1;
                let base = Version { val: scene.rng.below(12), ..Version::GENESIS };
                let (version, value) = self.forge(object, base, scene);
                let body = if scene.rng.one_in(6) {
                    Body::Gone { rid }
                } else {
                    Body::Val { rid, version, value, forwarded: true, signature: None }
                };
                let delay = scene.rng.below(600);
                scene.sends.push((delay, to, Message { object, body }));
            }
        }
    }

    /// Sends a store of its own to the others, as a writer with its number or as a reader.
    fn pose(&mut self, object: ObjectId, scene: &mut Scene<'_>) {
        if self.flood == 0 || scene.rng.one_in(2) {
            return;
        }
        self.flood -= 1;
        let base = Version { val: scene.rng.below(12), ..Version::GENESIS };
        let (mut version, value) = self.forge(object, base, scene);
        let write_back = scene.rng.one_in(2);
        if !write_back {
            version.client = scene.me.as_client();
        }
        let signature = Some(scene.sign(&object, &Statement::Written(version)));
        let op = Op { incarnation: 1, number: 1, phase: 2 };
        let proof = Proof { signature, evidence: None };
        let relay = scene.rng.one_in(3);
        for server in scene.settings.thresholds.servers() {
            let (value, proof) = (Arc::clone(&value), proof.clone());
            let body = if relay {
                Body::Fstore { version, value, proof }
            } else {
                Body::Store { op, version, value, proof, write_back }
            };
            scene.send(server, object, body);
        }
    }

    /// Down for a while, then up for a while, and so on. It keeps what it had.
    fn is_down(&self, now: u64) -> bool {
        (now.saturating_sub(self.from) / DOWN).is_multiple_of(2)
    }

    /// Answers a reader with its first answer about the object.
    #[allow(clippy::wildcard_enum_match_arm, reason = "what is no answer to a reader is honest")]
    fn stale(&mut self, object: ObjectId, body: &mut Body) {
        if !matches!(body, Body::Val { .. } | Body::RdVal { .. } | Body::BcReadReply { .. }) {
            return;
        }
        let mut old = self.first.entry(object).or_insert_with(|| body.clone()).clone();
        match (&mut old, &*body) {
            (Body::Val { rid, forwarded, .. }, Body::Val { rid: now, forwarded: it, .. }) => {
                (*rid, *forwarded) = (*now, *it);
            }
            (Body::RdVal { op, .. }, Body::RdVal { op: now, .. }) => *op = *now,
            (Body::BcReadReply { op, nonce, .. }, Body::BcReadReply { op: now, nonce: it, .. }) => {
                (*op, *nonce) = (*now, *it);
            }
            _ => return,
        }
        *body = old;
    }

    /// Sends an old access list again, or a newer one that it made up.
    fn mislead(&mut self, scene: &mut Scene<'_>) {
        if scene.group.lists.is_empty() || self.flood == 0 || !scene.rng.one_in(8) {
            return;
        }
        self.flood -= 1;
        let lists: Vec<_> = scene.group.lists.iter().map(|(signed, _)| Arc::clone(signed)).collect();
        let Some(old) = scene.rng.pick(&lists) else { return };
        let signed = if scene.rng.one_in(2) {
            old
        } else {
            let mut made_up = SignedList::clone(&old);
            made_up.list.number += 1 + scene.rng.below(3);
            made_up.list.by.values_mut().for_each(|(_, writers)| *writers = Who::These(BTreeSet::new()));
            Arc::new(made_up)
        };
        for server in scene.settings.thresholds.servers() {
            scene.send(server, ACCESS, Body::Access { signed: Arc::clone(&signed) });
        }
    }

    /// Brings in what a client that may not write has signed: as an answer, or as a relay.
    fn help(&mut self, object: ObjectId, answer: &mut Body, scene: &mut Scene<'_>) {
        if scene.group.stores.is_empty() || !scene.rng.one_in(3) {
            return;
        }
        let of: Vec<_> = scene.group.stores.iter().filter(|(about, ..)| *about == object).cloned().collect();
        let Some((_, signed, real, signatures)) = scene.rng.pick(&of) else { return };
        match answer {
            Body::Tsr { version, signature, .. } => (*version, *signature) = (signed, signatures.signature),
            Body::RdVal { version, value, proof, .. } => {
                (*version, *value, *proof) = (signed, real, signatures);
            }
            _ if self.flood > 0 => {
                self.flood -= 1;
                for server in scene.settings.thresholds.servers() {
                    let (value, proof) = (Arc::clone(&real), signatures.clone());
                    scene.send(server, object, Body::Fstore { version: signed, value, proof });
                }
            }
            _ => {}
        }
    }

    fn accomplice(&self, object: ObjectId, body: &mut Body, scene: &mut Scene<'_>) {
        let certs: Vec<(PrepareCert, Value)> = scene
            .group
            .certs
            .iter()
            .filter(|(about, ..)| *about == object)
            .map(|(_, pcert, value)| (pcert.clone(), Arc::clone(value)))
            .collect();
        let Some((chosen, real)) = scene.rng.pick(&certs) else { return };
        match body {
            Body::BcReadReply { value, pcert, wsig, wcert, .. } => {
                let version = chosen.version;
                *pcert = chosen;
                let withheld = self.profile == Profile::Withhold;
                *value = if withheld { Arc::from(&b"withheld"[..]) } else { real };
                *wsig = Some(scene.keys.sign(scene.me, &object, &Statement::Stored(version)));
                *wcert = None;
            }
            Body::ReadTsReply { pcert, .. } => *pcert = chosen,
            _ => {}
        }
    }
}

impl Behaviour for Liar {
    fn incoming(&mut self, from: Principal, message: &Message, scene: &mut Scene<'_>) -> bool {
        if scene.now < self.from {
            return true;
        }
        let object = message.object;
        match (self.profile, &message.body) {
            (Profile::Crash, _) => false,
            (Profile::CrashRecover, _) => !self.is_down(scene.now),
            (Profile::AckNoStore, Body::Store { op, version, .. }) => {
                scene.send(from, object, Body::Ack { op: *op, version: *version });
                false
            }
            (Profile::AckNoStore, Body::Write { op, pcert, .. }) => {
                let version = pcert.version;
                if scene.rng.one_in(2) {
                    // Whose signature never comes.
                    scene.send(from, object, Body::Ack { op: *op, version });
                } else {
                    let signature = scene.sign(&object, &Statement::Stored(version));
                    scene.send(from, object, Body::WriteReply { op: *op, version, signature });
                }
                false
            }
            (Profile::AckNoStore, Body::Fstore { version, .. }) => {
                scene.send(from, object, Body::Fack { version: *version });
                false
            }
            (Profile::Equivocate, Body::Store { .. } | Body::Write { .. } | Body::Fstore { .. }) => {
                !scene.rng.one_in(3)
            }
            (Profile::ForwardFlood, Body::Read { rid, .. }) => {
                self.listeners.insert(from, (object, *rid));
                self.flood(scene);
                true
            }
            (Profile::ForwardFlood, _) => {
                self.flood(scene);
                true
            }
            (Profile::Impostor, _) => {
                self.pose(object, scene);
                true
            }
            (Profile::Refuse, body) => {
                let Some(op) = body.request() else { return true };
                scene.send(from, object, Body::Refused { op });
                scene.rng.one_in(2)
            }
            (Profile::Mispredict, Body::ReadTsPrep { request, .. }) => {
                self.lock = Some(request.lock);
                true
            }
            (Profile::Accomplice, Body::Prepare { op, request, .. }) => {
                // Signs whatever it is asked to.
                let version = request.version;
                let signature = scene.sign(&object, &Statement::Prepared(version, None));
                scene.send(from, object, Body::PrepareReply { op: *op, version, signature });
                false
            }
            _ => true,
        }
    }

    fn outgoing(&mut self, to: Principal, mut message: Message, scene: &mut Scene<'_>) {
        let object = message.object;
        if scene.now < self.from {
            return scene.sends.push((0, to, message));
        }
        // It withholds every list.
        if matches!(message.body, Body::Access { .. }) {
            return;
        }
        self.mislead(scene);
        let body = &mut message.body;
        let mut delay = 0;
        let reader = matches!(
            body,
            Body::Val { .. } | Body::RdVal { .. } | Body::BcReadReply { .. } | Body::ReadTsReply { .. }
        );
        match self.profile {
            Profile::Crash => return,
            Profile::CrashRecover if self.is_down(scene.now) => return,
            Profile::Stale => self.stale(object, body),
            Profile::FakeSame | Profile::FakeInflated | Profile::FakeRandom | Profile::Collude => {
                self.fake(object, body, scene);
            }
            Profile::Equivocate => {
                if (to.to_wire() / 0x1_0000).is_multiple_of(2) {
                    self.fake(object, body, scene);
                }
            }
            Profile::FakeValue => {
                if let Body::Val { value, .. } | Body::RdVal { value, .. } | Body::BcReadReply { value, .. } =
                    body
                {
                    *value = scene.rng.bits().to_le_bytes().as_slice().into();
                }
            }
            Profile::Omit if scene.rng.one_in(2) => return,
            Profile::SilentToReaders if reader => return,
            Profile::Slow => delay = scene.rng.below(8000),
            Profile::LateEntrance if matches!(body, Body::Val { forwarded: false, .. }) => {
                delay = 200 + scene.rng.below(3000);
                if scene.rng.one_in(3) {
                    self.fake(object, body, scene);
                }
            }
            Profile::BadCrypto => Self::bad_crypto(object, body, scene),
            Profile::InflateTimestamp => match body {
                Body::Tsr { version, signature, .. } => {
                    version.val = u64::MAX - scene.rng.below(2);
                    *signature = Some(scene.keys.sign(scene.me, &object, &Statement::Written(*version)));
                }
                Body::ReadTsReply { pcert, .. } | Body::ReadTsPrepReply { pcert, .. } => {
                    let version = Version { val: u64::MAX, ..pcert.version };
                    *pcert = Self::bad_certificate(object, version, scene);
                }
                _ => {}
            },
            Profile::Mispredict => {
                if let Body::ReadTsPrepReply { opt: Some((version, signature)), .. } = body {
                    version.val += 1;
                    *signature =
                        scene.keys.sign(scene.me, &object, &Statement::Prepared(*version, self.lock));
                }
            }
            Profile::Accomplice | Profile::Withhold => self.accomplice(object, body, scene),
            Profile::FailureFree
            | Profile::CrashRecover
            | Profile::Refuse
            | Profile::Omit
            | Profile::SilentToReaders
            | Profile::LateEntrance
            | Profile::AckNoStore
            | Profile::ForwardFlood
            | Profile::Impostor => {}
        }
        self.help(object, &mut message.body, scene);
        scene.sends.push((delay, to, message));
    }
}
