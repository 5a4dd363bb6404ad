//! The messages of the registers, with the names of the literature. Kinds count from 64, apart from
//! those of agreement; the encoding is in [`encoding`].

pub mod encoding;

use alloc::sync::Arc;

use quorate_wire::{ClientId, Digest};

use crate::access::SignedList;
use crate::cert::{Evidence, PrepareCert, WriteCert};
use crate::crypto::Signature;
use crate::version::{ObjectId, Value, Version};

/// One phase of one operation of a client. Answers echo it, and a client drops what is not of its
/// current phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Op {
    /// How often the client has started.
    pub incarnation: u32,
    /// The client's own number for the operation.
    pub number: u64,
    /// The phase, from 1.
    pub phase: u8,
}

/// The number of a read of MINIMAL: compared incarnation first, so that a restarted client is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rid {
    /// How often the client has started.
    pub incarnation: u32,
    /// Rises with each READ of this client and object.
    pub counter: u64,
}

impl Rid {
    /// Returns the phase that a READ with this rid is: 0, which no request with an op has.
    pub fn as_op(self) -> Op {
        Op { incarnation: self.incarnation, number: self.counter, phase: 0 }
    }
}

/// What makes a stored version acceptable: nothing, a writer's signature, or that with evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// The writer's signature over the version.
    pub signature: Option<Signature>,
    /// What it was built on (§5, `ts_evidence`).
    pub evidence: Option<Evidence>,
}

/// What a PREPARE builds on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// An approved version (§6.1).
    Prepared(PrepareCert),
    /// A completed version (§6.7).
    Completed(WriteCert),
}

/// A request to prepare. A client's signature covers all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrepareRequest {
    /// Who asks.
    pub client: ClientId,
    /// What the version is the successor of.
    pub predecessor: Predecessor,
    /// What is to be written.
    pub version: Version,
    /// The certificate of the client's previous write on this object.
    pub own: Option<WriteCert>,
}

/// A request to prepare optimistically: the server predicts the version (§6.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptimisticRequest {
    /// Who asks.
    pub client: ClientId,
    /// The digest of the value.
    pub digest: Digest,
    /// The digest of a fresh key.
    pub lock: Digest,
    /// The certificate of the client's previous write on this object.
    pub own: Option<WriteCert>,
    /// Strong variant: the certificate of the version that the client knows completed (H7).
    pub predecessor: Option<WriteCert>,
}

/// A copy of one object, for repair (§15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The object.
    pub object: ObjectId,
    /// What is stored.
    pub version: Version,
    /// Its value.
    pub value: Value,
    /// PHALANX, MINIMAL-F: the writer's signature.
    pub proof: Proof,
    /// BFT-BC: the certificate of the version.
    pub pcert: Option<PrepareCert>,
    /// BFT-BC: the largest write certificate seen.
    pub wcert: Option<WriteCert>,
}

impl Copy {
    /// Returns a copy without certificates.
    pub(crate) fn stored(object: ObjectId, version: Version, value: &Value, proof: &Proof) -> Self {
        let (value, proof) = (Arc::clone(value), proof.clone());
        Self { object, version, value, proof, pcert: None, wcert: None }
    }
}

/// What a message says.
#[allow(missing_docs, reason = "the line above each kind says what its fields are")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A writer asks for the version (§3, §4).
    Qts { op: Op },
    /// The version, and in §3 and §5 its writer's signature.
    Tsr { op: Op, version: Version, signature: Option<Signature> },
    /// WR, WB (§3) and STORE (§4, §5). `write_back`: sent by a reader.
    Store { op: Op, version: Version, value: Value, proof: Proof, write_back: bool },
    /// WACK (§3) and ACK.
    Ack { op: Op, version: Version },
    /// A reader of PHALANX asks.
    Rd { op: Op },
    /// The answer to RD: VAL of §3.
    RdVal { op: Op, version: Version, value: Value, proof: Proof },
    /// A reader of MINIMAL asks and registers as a listener (§4).
    Read { rid: Rid, attempt: u8 },
    /// An answer to READ, or a store that is forwarded to a listener.
    Val { rid: Rid, version: Version, value: Value, forwarded: bool, signature: Option<Signature> },
    /// The read is complete.
    Rc { rid: Rid },
    /// The server dropped this listener: start again (§4, Retries and Bounds; §5).
    Gone { rid: Rid },
    /// A server relays a store (§5).
    Fstore { version: Version, value: Value, proof: Proof },
    /// The relay has arrived.
    Fack { version: Version },
    /// A writer of BFT-BC asks for the version (§6.1).
    ReadTs { op: Op, nonce: u128 },
    /// The certificate of the version.
    ReadTsReply { op: Op, nonce: u128, pcert: PrepareCert },
    /// May I write this version?
    Prepare { op: Op, request: Arc<PrepareRequest>, auth: Option<Signature> },
    /// You may: signed.
    PrepareReply { op: Op, version: Version, signature: Signature },
    /// The value with its certificate.
    Write { op: Op, value: Value, pcert: PrepareCert },
    /// I hold this version or a larger one: signed.
    WriteReply { op: Op, version: Version, signature: Signature },
    /// A reader of BFT-BC asks (§6.2).
    BcRead { op: Op, nonce: u128 },
    /// The value with its certificate; in the strong variant what shows that it is complete (§6.7).
    BcReadReply {
        op: Op,
        nonce: u128,
        value: Value,
        pcert: PrepareCert,
        wsig: Option<Signature>,
        wcert: Option<WriteCert>,
    },
    /// Phase 1 of an optimized write (§6.4).
    ReadTsPrep { op: Op, nonce: u128, request: Arc<OptimisticRequest>, auth: Option<Signature> },
    /// Its answer: the certificate, and an optimistic signature on the predicted version.
    ReadTsPrepReply { op: Op, nonce: u128, pcert: PrepareCert, opt: Option<(Version, Signature)> },
    /// A write has completed (H7).
    Complete { wcert: WriteCert },
    /// A server asks a peer for what comes after this object (§15).
    Pull,
    /// Some of it, in rising order of objects; `more` follows.
    Copies { items: Arc<[Copy]>, more: bool },
    /// An access list, from a process that has it (§15).
    Access { signed: Arc<SignedList> },
    /// Which access list the sender has: its number and digest.
    AccessRank { number: u64, digest: Digest },
    /// The sender of this request has no right to it (§15). A READ has the op of its rid.
    Refused { op: Op },
}

/// A message: about one object. In `Pull` and `Copies` the object is where the list begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The object.
    pub object: ObjectId,
    /// What it says.
    pub body: Body,
}

impl Body {
    /// Returns the phase of an operation that this asks a server to take part in.
    #[allow(clippy::wildcard_enum_match_arm, reason = "everything else is no request")]
    pub fn request(&self) -> Option<Op> {
        match self {
            Self::Qts { op }
            | Self::Rd { op }
            | Self::Store { op, .. }
            | Self::ReadTs { op, .. }
            | Self::Prepare { op, .. }
            | Self::Write { op, .. }
            | Self::BcRead { op, .. }
            | Self::ReadTsPrep { op, .. } => Some(*op),
            Self::Read { rid, .. } => Some(rid.as_op()),
            _ => None,
        }
    }

    /// Returns the bytes of the values in it, which are most of a long message.
    #[allow(clippy::wildcard_enum_match_arm, reason = "everything else has no value")]
    pub fn value_bytes(&self) -> usize {
        match self {
            Self::Store { value, .. }
            | Self::RdVal { value, .. }
            | Self::Val { value, .. }
            | Self::Fstore { value, .. }
            | Self::Write { value, .. }
            | Self::BcReadReply { value, .. } => value.len(),
            Self::Copies { items, .. } => items.iter().map(|item| item.value.len()).sum(),
            _ => 0,
        }
    }

    /// Returns the number of the kind, from 64.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Qts { .. } => 64,
            Self::Tsr { .. } => 65,
            Self::Store { .. } => 66,
            Self::Ack { .. } => 67,
            Self::Rd { .. } => 68,
            Self::RdVal { .. } => 69,
            Self::Read { .. } => 70,
            Self::Val { .. } => 71,
            Self::Rc { .. } => 72,
            Self::Gone { .. } => 73,
            Self::Fstore { .. } => 74,
            Self::Fack { .. } => 75,
            Self::ReadTs { .. } => 76,
            Self::ReadTsReply { .. } => 77,
            Self::Prepare { .. } => 78,
            Self::PrepareReply { .. } => 79,
            Self::Write { .. } => 80,
            Self::WriteReply { .. } => 81,
            Self::BcRead { .. } => 82,
            Self::BcReadReply { .. } => 83,
            Self::ReadTsPrep { .. } => 84,
            Self::ReadTsPrepReply { .. } => 85,
            Self::Complete { .. } => 86,
            Self::Pull => 87,
            Self::Copies { .. } => 88,
            Self::Access { .. } => 100,
            Self::AccessRank { .. } => 101,
            Self::Refused { .. } => 102,
        }
    }

    /// Returns its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Qts { .. } => "QTS",
            Self::Tsr { .. } => "TSR",
            Self::Store { write_back: false, .. } => "STORE",
            Self::Store { write_back: true, .. } => "WB",
            Self::Ack { .. } => "ACK",
            Self::Rd { .. } => "RD",
            Self::RdVal { .. } => "RD-VAL",
            Self::Read { .. } => "READ",
            Self::Val { .. } => "VAL",
            Self::Rc { .. } => "RC",
            Self::Gone { .. } => "GONE",
            Self::Fstore { .. } => "FSTORE",
            Self::Fack { .. } => "FACK",
            Self::ReadTs { .. } => "READ-TS",
            Self::ReadTsReply { .. } => "READ-TS-REPLY",
            Self::Prepare { .. } => "PREPARE",
            Self::PrepareReply { .. } => "PREPARE-REPLY",
            Self::Write { .. } => "WRITE",
            Self::WriteReply { .. } => "WRITE-REPLY",
            Self::BcRead { .. } => "BC-READ",
            Self::BcReadReply { .. } => "BC-READ-REPLY",
            Self::ReadTsPrep { .. } => "READ-TS-PREP",
            Self::ReadTsPrepReply { .. } => "READ-TS-PREP-REPLY",
            Self::Complete { .. } => "COMPLETE",
            Self::Pull => "PULL",
            Self::Copies { .. } => "COPIES",
            Self::Access { .. } => "ACCESS",
            Self::AccessRank { .. } => "ACCESS-RANK",
            Self::Refused { .. } => "REFUSED",
        }
    }
}
