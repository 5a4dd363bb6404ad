//! Rules in the swarm (§15): some clients may write, all may read, and one that may not write tries to bring in values of
//! its own, with the help of liars.

use quorate_quorum::access::{Rights, Rules, Who};
use quorate_quorum::crypto::Statement;
use quorate_quorum::message::{Op, Proof};
use quorate_quorum::version::{Namespace, ObjectId, Value, Version, value_digest};
use quorate_quorum::{Body, Message, Protocol};
use quorate_wire::{ClientId, Principal};

use crate::history::History;
use crate::profile::Scene;
use crate::rogue::Actor;

/// The most signed versions that liars keep for it.
const STORES_MAX: usize = 16;

/// Returns rules for these namespaces, by which only `writers` may write.
pub(crate) fn rules(objects: &[ObjectId], writers: &[ClientId]) -> Rules {
    let writers = Who::These(writers.iter().map(|client| client.principal()).collect());
    let rights = Rights { readers: Who::All, writers, former: [].into() };
    let spaces = objects.iter().map(ObjectId::namespace);
    Rules { by: spaces.map(|space: Namespace| (space, rights.clone())).collect() }
}

/// Checks that no operation of a good client has a version whose writer could never write.
pub(crate) fn check(history: &History, rules: &Rules) -> Result<(), String> {
    for operation in &history.operations {
        let Some(version) = operation.version.filter(|version| !version.is_genesis()) else { continue };
        if !rules.may_have_written(version.client, &operation.object) {
            return Err(format!("{} got {version:?}, whose writer may not write", operation.client));
        }
    }
    Ok(())
}

/// A client of PHALANX or MINIMAL that may not write.
#[derive(Debug)]
pub(crate) struct Unlisted {
    objects: [ObjectId; 2],
    /// A client that may write.
    listed: ClientId,
    left: u32,
}

impl Unlisted {
    pub(crate) fn new(objects: [ObjectId; 2], listed: ClientId, acts: u32) -> Self {
        Self { objects, listed, left: acts }
    }
}

impl Actor for Unlisted {
    fn message(&mut self, _from: Principal, _message: &Message, _scene: &mut Scene<'_>) {}

    /// Stores a value as a writer or as a reader, in its own name, or where nothing is signed in the name of another.
    fn tick(&mut self, scene: &mut Scene<'_>) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        scene.tick = Some(1 + scene.rng.below(400));
        let Principal::Client(me) = scene.me else { return };
        let object = self.objects[usize::from(scene.rng.one_in(8))];
        let value: Value = [&b"unlisted"[..], &scene.rng.bits().to_le_bytes()].concat().into();
        let val = if scene.rng.one_in(3) { u64::MAX - 1 } else { scene.rng.between(1, 8) };
        let signs = scene.settings.protocol != Protocol::MinimalC;
        let client = if signs || scene.rng.one_in(2) { me } else { self.listed };
        let version = Version { val, client, digest: value_digest(&value) };
        let signature = signs.then(|| scene.sign(&object, &Statement::Written(version)));
        let proof = Proof { signature, evidence: None };
        if signs && scene.group.stores.len() < STORES_MAX {
            scene.group.stores.push((object, version, value.clone(), proof.clone()));
        }
        let op = Op { incarnation: 1, number: u64::from(left), phase: 2 };
        let body = Body::Store { op, version, value, proof, write_back: !scene.rng.one_in(3) };
        for server in scene.settings.thresholds.servers() {
            scene.send(server, object, body.clone());
        }
    }
}
