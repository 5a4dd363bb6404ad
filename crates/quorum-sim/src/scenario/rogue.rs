//! What a client that is not good makes and gets, by hand.

use std::sync::Arc;

use quorate_quorum::bftbc::{optimistic_digest, prepare_digest};
use quorate_quorum::cert::{PrepareCert, WriteCert};
use quorate_quorum::crypto::{Key, Signature, Statement, lock_of};
use quorate_quorum::message::{Op, OptimisticRequest, Predecessor, PrepareRequest};
use quorate_quorum::version::{ObjectId, Value, Version, value_digest};
use quorate_quorum::{Body, ServerId};
use quorate_wire::{ClientId, Digest, Principal, ReplicaId};

use crate::hand::{Hand, OBJECT, client, server};

/// A client that is not good, by hand.
pub(super) struct Rogue {
    pub(super) me: ClientId,
    number: u64,
}

impl Rogue {
    pub(super) fn new(number: u64) -> Self {
        Self { me: client(number), number: 0 }
    }

    /// It is stopped: from now on it signs nothing.
    pub(super) fn stop(&self, hand: &mut Hand) {
        let stopped = Some(hand.now());
        hand.history.rogues.push(crate::history::Rogue { client: self.me, stopped });
    }

    fn op(&mut self) -> Op {
        self.number += 1;
        Op { incarnation: 1, number: self.number, phase: 1 }
    }

    pub(super) fn version(&self, val: u64, value: &Value) -> Version {
        Version { val, client: self.me, digest: value_digest(value) }
    }

    /// Signs a PREPARE, to be sent at any time by anybody.
    pub(super) fn sign_prepare(&mut self, hand: &mut Hand, before: Predecessor, version: Version) -> Body {
        self.sign_prepare_about(hand, OBJECT, before, version)
    }

    /// The same about another object.
    pub(super) fn sign_prepare_about(
        &mut self,
        hand: &mut Hand,
        object: ObjectId,
        predecessor: Predecessor,
        version: Version,
    ) -> Body {
        let op = self.op();
        let request = PrepareRequest { client: self.me, predecessor, version, own: None };
        let statement = Statement::AskPrepare(self.me, prepare_digest(op, &request));
        let auth = hand.sign_about(object, self.me, &statement);
        Body::Prepare { op, request: Arc::new(request), auth: Some(auth) }
    }

    /// Signs a READ-TS-PREP, to be sent at any time by anybody.
    pub(super) fn sign_optimistic(
        &mut self,
        hand: &mut Hand,
        digest: Digest,
        key: &Key,
        predecessor: Option<WriteCert>,
    ) -> Body {
        let op = self.op();
        let lock = lock_of(key);
        let request = OptimisticRequest { client: self.me, digest, lock, own: None, predecessor };
        let auth = hand.sign(self.me, &Statement::AskOptimistic(self.me, optimistic_digest(op, &request)));
        Body::ReadTsPrep { op, nonce: 0, request: Arc::new(request), auth: Some(auth) }
    }

    /// Sends a PREPARE to these servers, and returns the signatures of those that approve.
    pub(super) fn prepare(&self, hand: &mut Hand, body: &Body, to: &[u16]) -> Vec<(ServerId, Signature)> {
        self.ask(hand, body, to, |answer| match answer {
            Body::PrepareReply { signature, .. } => Some(signature),
            _ => None,
        })
    }

    /// The same for READ-TS-PREP, with the signatures on this version.
    pub(super) fn prepare_optimistically(
        &mut self,
        hand: &mut Hand,
        key: &Key,
        to: &[u16],
        version: Version,
    ) -> Vec<(ServerId, Signature)> {
        let body = self.sign_optimistic(hand, version.digest, key, None);
        self.approvals(hand, &body, to, |signed| signed == version)
    }

    /// Sends a READ-TS-PREP to these servers, and returns their signatures on such a version.
    pub(super) fn approvals(
        &self,
        hand: &mut Hand,
        body: &Body,
        to: &[u16],
        wanted: impl Fn(Version) -> bool,
    ) -> Vec<(ServerId, Signature)> {
        self.ask(hand, body, to, |answer| match answer {
            Body::ReadTsPrepReply { opt: Some((signed, signature)), .. } if wanted(signed) => Some(signature),
            _ => None,
        })
    }

    fn ask(
        &self,
        hand: &mut Hand,
        body: &Body,
        to: &[u16],
        read: impl Fn(Body) -> Option<Signature>,
    ) -> Vec<(ServerId, Signature)> {
        let mut signatures = Vec::new();
        for number in to {
            hand.tell(self.me, server(*number), body.clone());
            let answers = hand.sent(server(*number), Principal::from(self.me));
            hand.lose(|packet| packet.to == Principal::from(self.me));
            signatures.extend(answers.into_iter().filter_map(&read).map(|one| (ReplicaId(*number), one)));
        }
        signatures
    }
}

/// The initial version as a predecessor.
pub(super) fn genesis() -> Predecessor {
    Predecessor::Prepared(PrepareCert::genesis())
}

/// Makes a certificate if there are three signatures.
pub(super) fn certificate(
    version: Version,
    key: Option<Key>,
    mut signatures: Vec<(ServerId, Signature)>,
) -> Option<PrepareCert> {
    signatures.sort_unstable_by_key(|(server, _)| *server);
    (signatures.len() >= 3).then(|| PrepareCert { version, key, signatures: signatures.into() })
}

/// Sends WRITE to these servers.
pub(super) fn write(hand: &mut Hand, from: ClientId, value: &Value, pcert: &PrepareCert, to: &[u16]) {
    let op = Op { incarnation: 1, number: 77, phase: 3 };
    for number in to {
        let body = Body::Write { op, value: Arc::clone(value), pcert: pcert.clone() };
        hand.tell(from, server(*number), body);
    }
    hand.lose(|packet| packet.to == Principal::from(from));
}
