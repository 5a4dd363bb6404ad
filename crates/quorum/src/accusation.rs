//! Accusations (§15): what a process has signed and a correct one never signs. Anybody can check one with the public keys
//! alone.
//!
//! What a channel authenticates is no evidence: a process that can check a MAC can make it. So there is none against a process that
//! signs nothing, such as a server of MINIMAL.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};
use quorate_wire::{ClientId, Principal};

use crate::bftbc::{optimistic_digest, prepare_digest};
use crate::cert::WriteCert;
use crate::crypto::{Crypto, Signature, Statement};
use crate::message::encoding::{op, put_op};
use crate::message::{Body, Message, Op, OptimisticRequest, Predecessor, PrepareRequest};
use crate::settings::Settings;
use crate::version::{ObjectId, Version};

/// Statements and requests that a [`Collector`] compares others with.
const KEPT_MAX: usize = 4096;

/// A statement with its signature.
pub type Signed = (Statement, Signature);

/// A signed request of a client of BFT-BC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// PREPARE.
    Prepare(Arc<PrepareRequest>),
    /// READ-TS-PREP.
    Optimistic(Arc<OptimisticRequest>),
}

/// A PREPARE with its signature.
pub type Asked = (Op, Arc<PrepareRequest>, Signature);

/// Of which statements a correct process signs one at most: the kind of statement, the client and the counter.
type Slot = (u8, ClientId, u64);

/// What was signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offence {
    /// A client signed two versions with one counter. A correct one does so only if it stops in the middle of a write and
    /// starts again.
    TwoVersions(Signed, Signed),
    /// A server approved two versions of one client with one counter, both NORMAL or both OPT.
    TwoApprovals(Signed, Signed),
    /// A server signed a version as its writer.
    Wrote(Signed),
    /// A client asked to prepare with an invalid certificate, or a version that does not follow or is not its own.
    BadRequest(Op, Request, Signature),
    /// A client asked to prepare two versions with one counter.
    TwoRequests([Asked; 2]),
}

/// Evidence against one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accusation {
    /// Who signed it.
    pub accused: Principal,
    /// About which object.
    pub object: ObjectId,
    /// What was signed.
    pub offence: Offence,
}

impl Offence {
    /// Returns its number in the encoding.
    pub fn kind(&self) -> u8 {
        match self {
            Self::TwoVersions(..) => 1,
            Self::TwoApprovals(..) => 2,
            Self::Wrote(_) => 3,
            Self::BadRequest(..) => 4,
            Self::TwoRequests(_) => 5,
        }
    }

    /// Returns what to say of it.
    pub fn says(&self) -> &'static str {
        match self {
            Self::TwoVersions(..) => {
                "signed two versions with one counter: it is Byzantine, or was restarted in the middle of a write"
            }
            Self::TwoApprovals(..) => "approved two versions of one client with one counter: it is Byzantine",
            Self::Wrote(_) => "signed a version as a writer, but is a server: it is Byzantine",
            Self::BadRequest(..) => "signed a request to write that is invalid: it is Byzantine",
            Self::TwoRequests(_) => "signed requests for two versions with one counter: it is Byzantine",
        }
    }
}

/// Says whether no correct process signs both: different versions of one client with one counter.
fn collide(a: Version, b: Version) -> bool {
    a.client == b.client && a.val == b.val && a.digest != b.digest
}

/// Returns where a process that signs a second version accuses itself.
fn slot(statement: &Statement) -> Option<Slot> {
    let (kind, version) = match statement {
        Statement::Written(version) => (1, version),
        Statement::Prepared(version, None) => (2, version),
        Statement::Prepared(version, Some(_)) => (3, version),
        Statement::Answered(_)
        | Statement::Stored(_)
        | Statement::AskPrepare(..)
        | Statement::AskOptimistic(..)
        | Statement::Access(_) => return None,
    };
    Some((kind, version.client, version.val))
}

/// Returns the version that a statement is about.
fn version_of(statement: &Statement) -> Option<Version> {
    match statement {
        Statement::Written(version)
        | Statement::Prepared(version, _)
        | Statement::Answered(version)
        | Statement::Stored(version) => Some(*version),
        Statement::AskPrepare(..) | Statement::AskOptimistic(..) | Statement::Access(_) => None,
    }
}

/// Returns what `accused` did by signing both statements.
pub fn offence_of(accused: Principal, object: ObjectId, a: Signed, b: Signed) -> Option<Accusation> {
    let of = |offence| Some(Accusation { accused, object, offence });
    let (one, other) = (version_of(&a.0)?, version_of(&b.0)?);
    if slot(&a.0)? != slot(&b.0)? || !collide(one, other) {
        return None;
    }
    match (accused, a.0) {
        (Principal::Client(client), Statement::Written(_)) if client == one.client => {
            of(Offence::TwoVersions(a, b))
        }
        (Principal::Replica(_), Statement::Prepared(..)) => of(Offence::TwoApprovals(a, b)),
        _ => None,
    }
}

impl Accusation {
    /// Says whether the accused signed this, and no correct process does. `settings` are those of the cluster.
    pub fn holds(&self, settings: &Settings, crypto: &mut dyn Crypto) -> bool {
        let Self { accused, object, offence } = self;
        let mut signed =
            |(statement, signature): &Signed| crypto.verify(*accused, object, statement, signature);
        match (offence, accused) {
            (Offence::TwoVersions(a, b) | Offence::TwoApprovals(a, b), _) => {
                let again = offence_of(*accused, *object, *a, *b);
                again.as_ref() == Some(self) && signed(a) && signed(b)
            }
            (Offence::Wrote(one), Principal::Replica(_)) => {
                matches!(one.0, Statement::Written(_)) && signed(one)
            }
            (Offence::BadRequest(op, request, signature), Principal::Client(client)) => {
                let statement = request.statement(*op, *client);
                signed(&(statement, *signature)) && !request.is_valid(settings, crypto, object)
            }
            (Offence::TwoRequests([a, b]), Principal::Client(client)) => {
                let mut asked = |(op, request, signature): &Asked| {
                    let statement = Statement::AskPrepare(*client, prepare_digest(*op, request));
                    request.client == *client && signed(&(statement, *signature))
                };
                collide(a.1.version, b.1.version) && a.1.version.client == *client && asked(a) && asked(b)
            }
            _ => false,
        }
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut to = Writer::new(out);
        let w = &mut to;
        w.u8(self.offence.kind());
        w.u64(self.accused.to_wire());
        w.bytes(&self.object.0);
        match &self.offence {
            Offence::TwoVersions(a, b) | Offence::TwoApprovals(a, b) => {
                put_signed(w, a);
                put_signed(w, b);
            }
            Offence::Wrote(one) => put_signed(w, one),
            Offence::BadRequest(op, Request::Prepare(request), signature) => {
                w.u8(0);
                put_request(w, *op, |w| request.encode(w), signature);
            }
            Offence::BadRequest(op, Request::Optimistic(request), signature) => {
                w.u8(1);
                put_request(w, *op, |w| request.encode(w), signature);
            }
            Offence::TwoRequests(both) => {
                for (op, request, signature) in both {
                    put_request(w, *op, |w| request.encode(w), signature);
                }
            }
        }
    }

    /// Reads one. Nothing is verified.
    ///
    /// # Errors
    ///
    /// The bytes are no accusation.
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut from = Reader::new(bytes);
        let r = &mut from;
        let kind = r.u8()?;
        let (accused, object) = (Principal::from_wire(r.u64()?), ObjectId(r.array()?));
        let offence = match kind {
            1 => Offence::TwoVersions(signed(r)?, signed(r)?),
            2 => Offence::TwoApprovals(signed(r)?, signed(r)?),
            3 => Offence::Wrote(signed(r)?),
            4 if r.bool()? => Offence::BadRequest(
                op(r)?,
                Request::Optimistic(Arc::new(OptimisticRequest::decode(r)?)),
                r.array()?,
            ),
            4 => Offence::BadRequest(
                op(r)?,
                Request::Prepare(Arc::new(PrepareRequest::decode(r)?)),
                r.array()?,
            ),
            5 => {
                let mut asked = || Ok((op(r)?, Arc::new(PrepareRequest::decode(r)?), r.array()?));
                Offence::TwoRequests([asked()?, asked()?])
            }
            other => return Err(DecodeError::UnknownKind(other)),
        };
        from.end()?;
        Ok(Self { accused, object, offence })
    }
}

fn put_signed(w: &mut Writer<'_>, (statement, signature): &Signed) {
    statement.encode(w);
    w.bytes(signature);
}

fn signed(r: &mut Reader<'_>) -> Decoded<Signed> {
    Ok((Statement::decode_version(r)?, r.array()?))
}

fn put_request(w: &mut Writer<'_>, op: Op, encode: impl FnOnce(&mut Writer<'_>), signature: &Signature) {
    put_op(w, op);
    encode(w);
    w.bytes(signature);
}

impl Request {
    fn statement(&self, op: Op, client: ClientId) -> Statement {
        match self {
            Self::Prepare(request) => Statement::AskPrepare(client, prepare_digest(op, request)),
            Self::Optimistic(request) => Statement::AskOptimistic(client, optimistic_digest(op, request)),
        }
    }

    /// Says whether a correct client may sign it: a client verifies each certificate before it shows it.
    fn is_valid(&self, settings: &Settings, crypto: &mut dyn Crypto, object: &ObjectId) -> bool {
        let mut completed = |wcert: &Option<WriteCert>| {
            wcert.as_ref().is_none_or(|wcert| wcert.is_valid(settings, crypto, object))
        };
        match self {
            Self::Prepare(request) => {
                let PrepareRequest { client, predecessor, version, own } = &**request;
                let own = completed(own);
                let (before, valid) = match predecessor {
                    Predecessor::Prepared(pcert) => (pcert.version, pcert.is_valid(settings, crypto, object)),
                    Predecessor::Completed(wcert) => {
                        (wcert.version, wcert.is_valid(settings, crypto, object))
                    }
                };
                own && valid && version.client == *client && before.val.checked_add(1) == Some(version.val)
            }
            Self::Optimistic(request) => completed(&request.own) && completed(&request.predecessor),
        }
    }
}

/// Finds accusations in what a process verifies. Keeps at most 4,096 statements and as many requests, and drops the oldest.
#[derive(Debug, Default)]
pub struct Collector {
    statements: Kept<(Principal, ObjectId, Slot), Signed>,
    requests: Kept<(ObjectId, ClientId, u64), Asked>,
    /// The request whose signature was verified last.
    asked: Option<(ObjectId, ClientId, Signature)>,
    found: Vec<Accusation>,
}

#[derive(Debug)]
struct Kept<K, V> {
    by: BTreeMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self { by: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<K: Ord + Copy, V: Clone> Kept<K, V> {
    /// Returns what was there before, or puts `value` there.
    fn first(&mut self, key: K, value: &V) -> Option<V> {
        if let Some(before) = self.by.get(&key) {
            return Some(before.clone());
        }
        if self.order.len() >= KEPT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.by.remove(&oldest);
        }
        self.by.insert(key, value.clone());
        self.order.push_back(key);
        None
    }
}

impl Collector {
    /// A signature was verified, and is valid.
    pub fn verified(
        &mut self,
        signer: Principal,
        object: &ObjectId,
        statement: &Statement,
        signature: &Signature,
    ) {
        let one = (*statement, *signature);
        match (statement, signer) {
            (Statement::AskPrepare(client, _) | Statement::AskOptimistic(client, _), _) => {
                self.asked = Some((*object, *client, *signature));
            }
            (Statement::Written(_), Principal::Replica(_)) => {
                self.found.push(Accusation {
                    accused: signer,
                    object: *object,
                    offence: Offence::Wrote(one),
                });
            }
            _ => {
                let Some(slot) = slot(statement) else { return };
                if let Some(before) = self.statements.first((signer, *object, slot), &one) {
                    self.found.extend(offence_of(signer, *object, before, one));
                }
            }
        }
    }

    /// A step with this message has ended. `refused`: a certificate was invalid, or the version does not follow.
    pub fn stepped(
        &mut self,
        message: &Message,
        refused: bool,
        settings: &Settings,
        crypto: &mut dyn Crypto,
    ) {
        let Some((object, client, signature)) = self.asked.take() else { return };
        let accused = Principal::from(client);
        if client.replica().is_some() {
            return;
        }
        let (op, request) = match &message.body {
            Body::Prepare { op, request, auth: Some(auth) } if *auth == signature => {
                let asked = (*op, Arc::clone(request), signature);
                let before = self.requests.first((object, client, request.version.val), &asked);
                if let Some(before) = before.filter(|before| collide(before.1.version, request.version)) {
                    let offence = Offence::TwoRequests([before, asked]);
                    self.found.push(Accusation { accused, object, offence });
                }
                (*op, Request::Prepare(Arc::clone(request)))
            }
            Body::ReadTsPrep { op, request, auth: Some(auth), .. } if *auth == signature => {
                (*op, Request::Optimistic(Arc::clone(request)))
            }
            _ => return,
        };
        if refused && !request.is_valid(settings, crypto, &object) {
            let offence = Offence::BadRequest(op, request, signature);
            self.found.push(Accusation { accused, object, offence });
        }
    }

    /// Returns what was found since the last call.
    pub fn take(&mut self) -> Vec<Accusation> {
        core::mem::take(&mut self.found)
    }

    /// Says whether something was found.
    pub fn has_found(&self) -> bool {
        !self.found.is_empty()
    }
}

/// Cryptography that shows a [`Collector`] what it verifies.
pub struct Witness<'a> {
    crypto: &'a mut dyn Crypto,
    collector: &'a mut Collector,
}

impl<'a> Witness<'a> {
    /// Returns `crypto` with `collector` looking on.
    pub fn new(crypto: &'a mut dyn Crypto, collector: &'a mut Collector) -> Self {
        Self { crypto, collector }
    }
}

impl core::fmt::Debug for Witness<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Witness")
    }
}

impl Crypto for Witness<'_> {
    fn sign(&mut self, object: &ObjectId, statement: &Statement) -> Signature {
        self.crypto.sign(object, statement)
    }

    fn verify(
        &mut self,
        signer: Principal,
        object: &ObjectId,
        statement: &Statement,
        signature: &Signature,
    ) -> bool {
        let valid = self.crypto.verify(signer, object, statement, signature);
        if valid {
            self.collector.verified(signer, object, statement, signature);
        }
        valid
    }

    fn digest(&mut self, value: &[u8]) -> quorate_wire::Digest {
        self.crypto.digest(value)
    }

    fn random(&mut self) -> u128 {
        self.crypto.random()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_wire::{Digest, ReplicaId};

    /// A client signs without end: the newest statements stay, and a contradiction is found among them.
    #[test]
    fn what_is_compared_is_bounded() {
        let (client, object) = (ClientId::new(1, 0), ObjectId([1; 32]));
        let said =
            |val: u64, digest| Statement::Written(Version { val, client, digest: Digest([digest; 32]) });
        let mut collector = Collector::default();
        for val in 0..10_000 {
            collector.verified(client.into(), &object, &said(val, 1), &[1; 64]);
        }
        assert_eq!((collector.statements.by.len(), collector.statements.order.len()), (KEPT_MAX, KEPT_MAX));
        collector.verified(client.into(), &object, &said(9_999, 2), &[2; 64]);
        collector.verified(client.into(), &object, &said(0, 2), &[2; 64]);
        assert_eq!(collector.take().len(), 1, "the oldest one is forgotten");
        let server = Principal::from(ReplicaId(1));
        collector.verified(server, &object, &said(1, 1), &[1; 64]);
        assert!(matches!(&collector.take()[..], [Accusation { offence: Offence::Wrote(_), .. }]));
    }
}
