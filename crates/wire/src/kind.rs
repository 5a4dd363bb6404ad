//! The kinds of message and how each is sealed, and the flags of a request, which every seal of one covers.

use crate::codec::{DecodeError, Decoded};

/// The kinds of message with their number on the wire: the original library's where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A client's request [OSDI99 §4.1].
    Request = 1,
    /// A replica's reply to a client [OSDI99 §4.1].
    Reply = 2,
    /// The primary's proposal [OSDI99 §4.2].
    PrePrepare = 3,
    /// A backup's agreement to the proposal [OSDI99 §4.2].
    Prepare = 4,
    /// The statement that a batch prepared [OSDI99 §4.2].
    Commit = 5,
    /// The digest of the state after a batch [OSDI99 §4.3].
    Checkpoint = 6,
    /// What a replica has and lacks (spec §10).
    Status = 7,
    /// What a replica takes into the next view [OSDI99 §4.4].
    ViewChange = 8,
    /// The new primary's decision [OSDI99 §4.4].
    NewView = 9,
    /// A signed share of a session key (spec §2.4).
    NewKey = 11,
    /// The children of a node of the state's tree (spec §9).
    MetaData = 12,
    /// A page of the state (spec §9).
    Data = 14,
    /// Asks for a node or page of the state (spec §9).
    Fetch = 15,
    /// Asks for bounds on the log (spec RC-4).
    QueryStable = 16,
    /// Answers QUERY-STABLE (spec RC-4).
    ReplyStable = 17,
    /// The signed wish to leave a view (spec §11.2).
    Suspect = 18,
    /// Asks for requests or batches by digest (spec SR-2).
    BodyFetch = 19,
    /// A request or batch that was asked for (spec SR-2).
    Body = 20,
    /// The statement that a batch committed (spec ST-5).
    Committed = 21,
    /// The statement that a batch was pre-prepared (spec DP-4).
    Proof = 22,
    /// The statement that a client's request is authentic (spec TM-2).
    ReqAck = 25,
    /// Asks for VIEW-CHANGEs that a NEW-VIEW names (spec VV-2).
    VcFetch = 28,
    /// The statement that a client's request is not authentic here (spec AU-5).
    ReqReject = 29,
    /// A client asks what a replica has to say of itself (for people and monitoring).
    Probe = 60,
    /// A replica's answer to PROBE.
    Statement = 61,
}

/// How a kind of message is authenticated on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// One MAC: for one receiver.
    Mac,
    /// An authenticator: a MAC for every replica but the sender.
    Authenticator,
    /// A signature. The signer makes the frame, and others forward it unchanged.
    Signature,
}

impl Kind {
    /// Every kind that this version sends.
    pub const ALL: [Self; 25] = [
        Self::Request,
        Self::Reply,
        Self::PrePrepare,
        Self::Prepare,
        Self::Commit,
        Self::Checkpoint,
        Self::Status,
        Self::ViewChange,
        Self::NewView,
        Self::NewKey,
        Self::MetaData,
        Self::Data,
        Self::Fetch,
        Self::QueryStable,
        Self::ReplyStable,
        Self::Suspect,
        Self::BodyFetch,
        Self::Body,
        Self::Committed,
        Self::Proof,
        Self::ReqAck,
        Self::VcFetch,
        Self::ReqReject,
        Self::Probe,
        Self::Statement,
    ];

    /// The kinds that are the node's own: they tell people how a replica is, and agreement never sees them.
    pub const OF_THE_NODE: [Self; 2] = [Self::Probe, Self::Statement];

    /// Returns the kind with this number on the wire.
    pub fn from_wire(number: u8) -> Decoded<Self> {
        Ok(match number {
            1 => Self::Request,
            2 => Self::Reply,
            3 => Self::PrePrepare,
            4 => Self::Prepare,
            5 => Self::Commit,
            6 => Self::Checkpoint,
            7 => Self::Status,
            8 => Self::ViewChange,
            9 => Self::NewView,
            11 => Self::NewKey,
            12 => Self::MetaData,
            14 => Self::Data,
            15 => Self::Fetch,
            16 => Self::QueryStable,
            17 => Self::ReplyStable,
            18 => Self::Suspect,
            19 => Self::BodyFetch,
            20 => Self::Body,
            21 => Self::Committed,
            22 => Self::Proof,
            25 => Self::ReqAck,
            28 => Self::VcFetch,
            29 => Self::ReqReject,
            60 => Self::Probe,
            61 => Self::Statement,
            _ => return Err(DecodeError::UnknownKind(number)),
        })
    }

    /// Returns the number on the wire.
    pub fn to_wire(self) -> u8 {
        self as u8
    }

    /// Returns how the kind is authenticated (spec §2.1).
    pub fn seal(self) -> Seal {
        match self {
            Self::Reply
            | Self::MetaData
            | Self::Data
            | Self::ReplyStable
            | Self::BodyFetch
            | Self::Body
            | Self::Committed
            | Self::VcFetch
            | Self::ReqReject
            | Self::Statement => Seal::Mac,
            Self::Request
            | Self::PrePrepare
            | Self::Prepare
            | Self::Commit
            | Self::Checkpoint
            | Self::Status
            | Self::Fetch
            | Self::QueryStable
            | Self::ReqAck
            | Self::Probe => Seal::Authenticator,
            Self::ViewChange | Self::NewView | Self::NewKey | Self::Suspect | Self::Proof => Seal::Signature,
        }
    }

    /// Returns the name as the papers print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "REQUEST",
            Self::Reply => "REPLY",
            Self::PrePrepare => "PRE-PREPARE",
            Self::Prepare => "PREPARE",
            Self::Commit => "COMMIT",
            Self::Checkpoint => "CHECKPOINT",
            Self::Status => "STATUS",
            Self::ViewChange => "VIEW-CHANGE",
            Self::NewView => "NEW-VIEW",
            Self::NewKey => "NEW-KEY",
            Self::MetaData => "META-DATA",
            Self::Data => "DATA",
            Self::Fetch => "FETCH",
            Self::QueryStable => "QUERY-STABLE",
            Self::ReplyStable => "REPLY-STABLE",
            Self::Suspect => "SUSPECT",
            Self::BodyFetch => "BODY-FETCH",
            Self::Body => "BODY",
            Self::Committed => "COMMITTED",
            Self::Proof => "PROOF",
            Self::ReqAck => "REQ-ACK",
            Self::VcFetch => "VC-FETCH",
            Self::ReqReject => "REQ-REJECT",
            Self::Probe => "PROBE",
            Self::Statement => "STATEMENT",
        }
    }
}

/// The flags of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFlags {
    /// The client wishes the read-only path; the service decides (RO-1).
    pub read_only: bool,
    /// The frame carries a signature of (client, timestamp, digest).
    pub signed: bool,
}

impl RequestFlags {
    /// Returns the byte on the wire.
    pub fn to_wire(self) -> u8 {
        u8::from(self.read_only) | (u8::from(self.signed) << 1)
    }

    pub(crate) fn from_wire(byte: u8) -> Decoded<Self> {
        if byte > 3 {
            return Err(DecodeError::NotCanonical);
        }
        Ok(Self { read_only: byte & 1 != 0, signed: byte & 2 != 0 })
    }
}
