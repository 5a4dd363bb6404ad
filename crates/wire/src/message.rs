//! Every message: its fields, and its body on the wire, byte by byte (`docs/wire-format.md`).
//!
//! A body is a fixed part, which authentication covers, and for some kinds a payload behind it,
//! which a digest in the fixed part stands for (CR-3). [`fixed_len`] says where the border is.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::batch::Batch;
use crate::cluster::REPLICAS_MAX;
use crate::codec::{DecodeError, Decoded, Reader, Writer};
use crate::digest::{Digest, Domains};
use crate::id::{ClientId, ReplicaId, SeqNum, Timestamp, ViewNum};
use crate::sign::Signed;

/// The longest operation, in bytes (`MAX_OP`).
pub const OPERATION_BYTES_MAX: usize = (1 << 20) + (4 << 10);
/// The longest result, in bytes.
pub const RESULT_BYTES_MAX: usize = (1 << 20) + (4 << 10);
/// The widest window `L` between the water marks that messages have room for.
pub const WINDOW_MAX: u16 = 4096;
/// The most piggybacked commits in one message (`W` at most).
pub const PIGGYBACK_MAX: u8 = 64;
/// The most digests in one BODY-FETCH.
pub const FETCH_DIGESTS_MAX: u8 = 64;
/// The most checkpoints a replica reports in a VIEW-CHANGE.
pub const CHECKPOINTS_MAX: u8 = 64;
/// The most claims about one sequence number in a VIEW-CHANGE's Q: `f + 2` (VC-4).
pub const CLAIMS_MAX: u8 = 24;
/// The most proofs asked for in one STATUS.
pub const WANTS_MAX: u8 = 32;
/// The most children in one META-DATA.
pub const CHILDREN_MAX: u8 = 64;
/// The largest page of the state, in bytes.
pub const PAGE_BYTES_MAX: usize = 64 << 10;

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
}

/// How a kind of message is authenticated on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// One MAC: for one receiver.
    Mac,
    /// An authenticator: a MAC for every replica but the sender.
    Authenticator,
    /// A signature. The frame is made by whoever signs and forwarded as it is.
    Signature,
}

impl Kind {
    /// Every kind that this version sends.
    pub const ALL: [Self; 23] = [
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
    ];

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
            _ => return Err(DecodeError::UnknownKind(number)),
        })
    }

    /// Returns the number on the wire.
    pub fn to_wire(self) -> u8 {
        self as u8
    }

    /// Says how the kind is authenticated (spec §2.1).
    pub fn seal(self) -> Seal {
        match self {
            Self::Reply
            | Self::MetaData
            | Self::Data
            | Self::ReplyStable
            | Self::BodyFetch
            | Self::Body
            | Self::Committed
            | Self::Proof
            | Self::VcFetch
            | Self::ReqReject => Seal::Mac,
            Self::Request
            | Self::PrePrepare
            | Self::Prepare
            | Self::Commit
            | Self::Checkpoint
            | Self::Status
            | Self::Fetch
            | Self::QueryStable
            | Self::ReqAck => Seal::Authenticator,
            Self::ViewChange | Self::NewView | Self::NewKey | Self::Suspect => Seal::Signature,
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
        }
    }
}

/// A decoded message. Borrows from the datagram.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each variant is its struct")]
pub enum Message<'a> {
    Request(Request<'a>),
    Reply(Reply<'a>),
    PrePrepare(PrePrepare<'a>),
    Prepare(Prepare<'a>),
    Commit(Commit),
    Checkpoint(Checkpoint),
    Status(Status<'a>),
    ViewChange(Arc<Signed<ViewChange>>),
    NewView(Arc<Signed<NewView>>),
    MetaData(MetaData<'a>),
    Data(Data<'a>),
    Fetch(Fetch),
    QueryStable(QueryStable),
    ReplyStable(ReplyStable),
    Suspect(Suspect),
    BodyFetch(BodyFetch<'a>),
    Body(BodyMessage<'a>),
    Committed(Committed),
    Proof(ProofMessage),
    ReqAck(ReqAck),
    VcFetch(VcFetch),
    ReqReject(ReqReject),
}

impl Message<'_> {
    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Request(_) => Kind::Request,
            Self::Reply(_) => Kind::Reply,
            Self::PrePrepare(_) => Kind::PrePrepare,
            Self::Prepare(_) => Kind::Prepare,
            Self::Commit(_) => Kind::Commit,
            Self::Checkpoint(_) => Kind::Checkpoint,
            Self::Status(_) => Kind::Status,
            Self::ViewChange(_) => Kind::ViewChange,
            Self::NewView(_) => Kind::NewView,
            Self::MetaData(_) => Kind::MetaData,
            Self::Data(_) => Kind::Data,
            Self::Fetch(_) => Kind::Fetch,
            Self::QueryStable(_) => Kind::QueryStable,
            Self::ReplyStable(_) => Kind::ReplyStable,
            Self::Suspect(_) => Kind::Suspect,
            Self::BodyFetch(_) => Kind::BodyFetch,
            Self::Body(_) => Kind::Body,
            Self::Committed(_) => Kind::Committed,
            Self::Proof(_) => Kind::Proof,
            Self::ReqAck(_) => Kind::ReqAck,
            Self::VcFetch(_) => Kind::VcFetch,
            Self::ReqReject(_) => Kind::ReqReject,
        }
    }
}

/// How a request was proven to be its client's (spec §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// This replica's entry of the client's authenticator is right.
    Mac,
    /// The client's signature is right.
    Signed,
    /// Neither was seen to be right here.
    Unproven,
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

    fn from_wire(byte: u8) -> Decoded<Self> {
        if byte > 3 {
            return Err(DecodeError::NotCanonical);
        }
        Ok(Self { read_only: byte & 1 != 0, signed: byte & 2 != 0 })
    }
}

/// REQUEST: `t 8 | flags 1 | replier 2 | operation`. The operation reaches to the body's end.
///
/// The authenticator covers (d, replier, flags), the signature (client, t, d), so that a
/// retransmission keeps it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The frame's sender.
    pub client: ClientId,
    /// The client's number for it.
    pub timestamp: Timestamp,
    /// Digest of client, timestamp and operation. Computed at the door, not on the wire.
    pub digest: Digest,
    /// Read-only, signed.
    pub flags: RequestFlags,
    /// The replica that is to return the full result; none: all of them.
    pub replier: Option<u16>,
    /// The operation, opaque here.
    pub operation: &'a [u8],
    /// Where the operation starts in `frame`.
    pub operation_at: usize,
    /// The whole frame as received.
    pub frame: &'a [u8],
    /// How it was authenticated.
    pub proof: Proof,
}

/// Bytes of a REQUEST's body before its operation.
pub const REQUEST_HEAD_BYTES: usize = 11;

/// The fields of a REQUEST's body that are on the wire.
#[derive(Clone, Copy, Debug)]
pub struct RequestBody<'a> {
    /// The client's number for it.
    pub timestamp: Timestamp,
    /// Read-only, signed.
    pub flags: RequestFlags,
    /// The replica that is to return the full result; none: all of them.
    pub replier: Option<u16>,
    /// The operation.
    pub operation: &'a [u8],
}

impl<'a> RequestBody<'a> {
    /// Appends the body.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.timestamp.0);
        out.u8(self.flags.to_wire());
        out.u16(self.replier.unwrap_or(u16::MAX));
        out.bytes(self.operation);
    }

    /// Reads a whole body.
    pub fn decode(body: &'a [u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        let timestamp = Timestamp(r.u64()?);
        let flags = RequestFlags::from_wire(r.u8()?)?;
        let replier = match r.u16()? {
            u16::MAX => None,
            replica if replica < REPLICAS_MAX => Some(replica),
            _ => return Err(DecodeError::NotCanonical),
        };
        check_len(r.len(), OPERATION_BYTES_MAX)?;
        let operation = r.bytes(r.len())?;
        Ok(Self { timestamp, flags, replier, operation })
    }
}

/// REPLY: `v 8 | t 8 | client 8 | tentative 1 | d 32 | has result 1 | result`.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The sender's view.
    pub view: ViewNum,
    /// The request's number.
    pub timestamp: Timestamp,
    /// The client lane that asked.
    pub client: ClientId,
    /// The batch had prepared but not committed when it was executed (TE-3).
    pub tentative: bool,
    /// Digest of client, timestamp and result.
    pub digest: Digest,
    /// The result, from the designated replier or where it is short (RP-1).
    pub result: Option<&'a [u8]>,
}

/// Bytes of a REPLY's fixed part.
const REPLY_FIXED_BYTES: usize = 58;

impl<'a> Reply<'a> {
    /// Appends the body.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.view.0);
        out.u64(self.timestamp.0);
        out.u64(self.client.0);
        out.u8(u8::from(self.tentative));
        out.digest(&self.digest);
        out.u8(u8::from(self.result.is_some()));
        out.bytes(self.result.unwrap_or(&[]));
    }

    /// Reads a whole body.
    pub fn decode(body: &'a [u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        let view = ViewNum(r.u64()?);
        let timestamp = Timestamp(r.u64()?);
        let client = ClientId(r.u64()?);
        let tentative = r.bool()?;
        let digest = r.digest()?;
        let has_result = r.bool()?;
        check_len(r.len(), RESULT_BYTES_MAX)?;
        let result = if has_result {
            Some(r.bytes(r.len())?)
        } else {
            r.end()?;
            None
        };
        Ok(Self { view, timestamp, client, tentative, digest, result })
    }
}

/// A list of commits that ride on another message: `count 1 | (n 8 | d 32)*`, of the carrier's view
/// (PB-2). At most [`PIGGYBACK_MAX`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Piggyback<'a> {
    bytes: &'a [u8],
}

impl<'a> Piggyback<'a> {
    /// Bytes of one entry.
    const ENTRY_BYTES: usize = 40;

    fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let count = r.count8(PIGGYBACK_MAX)?;
        Ok(Self { bytes: r.bytes(count * Self::ENTRY_BYTES)? })
    }

    /// Appends a list.
    pub fn encode(commits: &[(SeqNum, Digest)], out: &mut Writer<'_>) {
        out.count8(commits.len());
        for (seq, digest) in commits {
            out.u64(seq.0);
            out.digest(digest);
        }
    }

    /// Returns the number of commits.
    pub fn len(&self) -> usize {
        self.bytes.len() / Self::ENTRY_BYTES
    }

    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the commits.
    pub fn iter(&self) -> impl Iterator<Item = (SeqNum, Digest)> + use<'a> {
        self.bytes.chunks_exact(Self::ENTRY_BYTES).map_while(|entry| {
            let mut r = Reader::new(entry);
            Some((SeqNum(r.u64().ok()?), r.digest().ok()?))
        })
    }
}

/// PRE-PREPARE: `v 8 | n 8 | d 32 | piggyback | counts and choice | payload`.
#[derive(Clone, Debug)]
pub struct PrePrepare<'a> {
    /// The view.
    pub view: ViewNum,
    /// The sequence number.
    pub seq: SeqNum,
    /// The batch; its digest has been computed from its bytes and is the one in the message.
    pub batch: Arc<Batch>,
    /// Commits of the same view that ride along.
    pub piggyback: Piggyback<'a>,
}

/// The fixed part of a PRE-PREPARE and where its payload starts.
#[derive(Clone, Copy, Debug)]
pub struct PrePrepareHead<'a> {
    /// The view.
    pub view: ViewNum,
    /// The sequence number.
    pub seq: SeqNum,
    /// The digest that the sender claims for the batch.
    pub digest: Digest,
    /// Commits of the same view that ride along.
    pub piggyback: Piggyback<'a>,
    /// Inlined and separate requests.
    pub counts: (usize, usize),
    /// The primary's choice.
    pub choice: &'a [u8],
    /// Inlined frames and separate digests.
    pub payload: &'a [u8],
}

impl<'a> PrePrepareHead<'a> {
    /// Reads a body up to its payload.
    pub fn decode(body: &'a [u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        let view = ViewNum(r.u64()?);
        let seq = SeqNum(r.u64()?);
        let digest = r.digest()?;
        let piggyback = Piggyback::decode(&mut r)?;
        let (counts, choice) = Batch::decode_counts(&mut r)?;
        let payload = r.bytes(r.len())?;
        Ok(Self { view, seq, digest, piggyback, counts, choice, payload })
    }
}

/// Appends the body of a PRE-PREPARE for `batch`.
pub fn encode_pre_prepare(
    view: ViewNum,
    seq: SeqNum,
    batch: &Batch,
    piggyback: &[(SeqNum, Digest)],
    out: &mut Writer<'_>,
) {
    out.u64(view.0);
    out.u64(seq.0);
    out.digest(&batch.digest());
    Piggyback::encode(piggyback, out);
    batch.encode_counts(out);
    out.bytes(batch.payload());
}

/// PREPARE: `v 8 | n 8 | d 32 | piggyback`.
#[derive(Clone, Copy, Debug)]
pub struct Prepare<'a> {
    /// The view.
    pub view: ViewNum,
    /// The sequence number.
    pub seq: SeqNum,
    /// The batch.
    pub digest: Digest,
    /// Commits of the same view that ride along.
    pub piggyback: Piggyback<'a>,
}

impl<'a> Prepare<'a> {
    /// Appends a body.
    pub fn encode(
        view: ViewNum,
        seq: SeqNum,
        digest: &Digest,
        piggyback: &[(SeqNum, Digest)],
        out: &mut Writer<'_>,
    ) {
        out.u64(view.0);
        out.u64(seq.0);
        out.digest(digest);
        Piggyback::encode(piggyback, out);
    }

    /// Reads a whole body.
    pub fn decode(body: &'a [u8]) -> Decoded<Self> {
        whole(body, |r| {
            Ok(Self {
                view: ViewNum(r.u64()?),
                seq: SeqNum(r.u64()?),
                digest: r.digest()?,
                piggyback: Piggyback::decode(r)?,
            })
        })
    }
}

/// Declares a message of fixed-width fields: its struct, `encode` and `decode`.
macro_rules! plain_message {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $put:expr, $take:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }

        impl $name {
            /// Appends the body.
            pub fn encode(&self, out: &mut Writer<'_>) {
                $( { let put: fn(&mut Writer<'_>, $type) = $put; put(out, self.$field); } )*
            }

            /// Reads a whole body.
            pub fn decode(body: &[u8]) -> Decoded<Self> {
                whole(body, |r| {
                    $( let $field: $type = { let take: fn(&mut Reader<'_>) -> Decoded<$type> = $take; take(r)? }; )*
                    Ok(Self { $($field),* })
                })
            }
        }
    };
}

plain_message! {
    /// COMMIT: `v 8 | n 8 | d 32`. Unlike the original library's, it names the digest (spec §5.1).
    Commit {
        /// The view in which the batch prepared.
        view: ViewNum = |w, v| w.u64(v.0), |r| r.u64().map(ViewNum);
        /// The sequence number.
        seq: SeqNum = |w, v| w.u64(v.0), |r| r.u64().map(SeqNum);
        /// The batch.
        digest: Digest = |w, v| w.digest(&v), |r| r.digest();
    }
}

plain_message! {
    /// CHECKPOINT: `n 8 | d 32 | stable 1` [OSDI99 §4.3].
    Checkpoint {
        /// The sequence number of the last batch that the state reflects.
        seq: SeqNum = |w, v| w.u64(v.0), |r| r.u64().map(SeqNum);
        /// The digest of the state.
        digest: Digest = |w, v| w.digest(&v), |r| r.digest();
        /// The sender holds a proof that this checkpoint is stable.
        stable: bool = |w, v| w.u8(u8::from(v)), |r| r.bool();
    }
}

plain_message! {
    /// COMMITTED: `v 8 | n 8 | d 32`: the sender has seen the batch commit (ST-5).
    Committed {
        /// The sender's view.
        view: ViewNum = |w, v| w.u64(v.0), |r| r.u64().map(ViewNum);
        /// The sequence number.
        seq: SeqNum = |w, v| w.u64(v.0), |r| r.u64().map(SeqNum);
        /// The batch.
        digest: Digest = |w, v| w.digest(&v), |r| r.digest();
    }
}

plain_message! {
    /// PROOF: `n 8 | d 32 | u 8`: the sender pre-prepared the batch at `n` in view `u` (DP-4).
    ProofMessage {
        /// The sequence number.
        seq: SeqNum = |w, v| w.u64(v.0), |r| r.u64().map(SeqNum);
        /// The batch.
        digest: Digest = |w, v| w.digest(&v), |r| r.digest();
        /// The newest view in which the sender pre-prepared it.
        view: ViewNum = |w, v| w.u64(v.0), |r| r.u64().map(ViewNum);
    }
}

plain_message! {
    /// REQ-ACK: `client 8 | t 8 | d 32`: the sender holds this request as authentic (TM-2).
    ReqAck {
        /// The client.
        client: ClientId = |w, v| w.u64(v.0), |r| r.u64().map(ClientId);
        /// Its number for the request.
        timestamp: Timestamp = |w, v| w.u64(v.0), |r| r.u64().map(Timestamp);
        /// The request.
        digest: Digest = |w, v| w.digest(&v), |r| r.digest();
    }
}

plain_message! {
    /// REQ-REJECT: `v 8 | n 8 | client 8 | t 8 | d 32`: the request in this batch is not authentic here (AU-5).
    ReqReject {
        /// The view of the PRE-PREPARE.
        view: ViewNum = |w, v| w.u64(v.0), |r| r.u64().map(ViewNum);
        /// Its sequence number.
        seq: SeqNum = |w, v| w.u64(v.0), |r| r.u64().map(SeqNum);
        /// The client.
        client: ClientId = |w, v| w.u64(v.0), |r| r.u64().map(ClientId);
        /// Its number for the request.
        timestamp: Timestamp = |w, v| w.u64(v.0), |r| r.u64().map(Timestamp);
        /// The request.
        digest: Digest = |w, v| w.digest(&v), |r| r.digest();
    }
}

plain_message! {
    /// VC-FETCH: `v 8 | set 8`: asks for the VIEW-CHANGEs for `v` of the replicas in `set` (VV-2).
    VcFetch {
        /// The view that they are for.
        view: ViewNum = |w, v| w.u64(v.0), |r| r.u64().map(ViewNum);
        /// Bit `i` asks for replica `i`'s.
        set: u64 = |w, v| w.u64(v), |r| r.u64();
    }
}

plain_message! {
    /// QUERY-STABLE: `nonce 8` (RC-4).
    QueryStable {
        /// Ties the answers to this question.
        nonce: u64 = |w, v| w.u64(v), |r| r.u64();
    }
}

plain_message! {
    /// REPLY-STABLE: `nonce 8 | c 8 | p 8` (RC-4).
    ReplyStable {
        /// The question's nonce.
        nonce: u64 = |w, v| w.u64(v), |r| r.u64();
        /// The sender's last checkpoint.
        checkpoint: SeqNum = |w, v| w.u64(v.0), |r| r.u64().map(SeqNum);
        /// The highest number that it ever prepared.
        prepared: SeqNum = |w, v| w.u64(v.0), |r| r.u64().map(SeqNum);
    }
}

plain_message! {
    /// FETCH: `rid 8 | level 1 | index 8 | c 8`: asks for a partition of the state as of checkpoint `c` (ST-2).
    Fetch {
        /// New for each attempt; answers carry it.
        rid: u64 = |w, v| w.u64(v), |r| r.u64();
        /// 0 asks for a page, 1 and above for the children of a node of that level.
        level: u8 = |w, v| w.u8(v), |r| r.u8();
        /// The partition's place in its level.
        index: u64 = |w, v| w.u64(v), |r| r.u64();
        /// The checkpoint.
        checkpoint: SeqNum = |w, v| w.u64(v.0), |r| r.u64().map(SeqNum);
    }
}

/// Why a replica wishes to leave a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuspectReason {
    /// A request was not executed in time.
    Timeout,
    /// The NEW-VIEW breaks a rule.
    BadNewView,
    /// A PRE-PREPARE breaks a rule that its author vouched for.
    BadPrePrepare,
    /// The primary itself hands over.
    SelfHandoff,
}

impl SuspectReason {
    fn to_wire(self) -> u8 {
        match self {
            Self::Timeout => 0,
            Self::BadNewView => 1,
            Self::BadPrePrepare => 2,
            Self::SelfHandoff => 5,
        }
    }

    fn from_wire(byte: u8) -> Decoded<Self> {
        match byte {
            0 => Ok(Self::Timeout),
            1 => Ok(Self::BadNewView),
            2 => Ok(Self::BadPrePrepare),
            5 => Ok(Self::SelfHandoff),
            _ => Err(DecodeError::NotCanonical),
        }
    }
}

/// SUSPECT: `v 8 | reason 1`, signed (spec §11.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The view to leave.
    pub view: ViewNum,
    /// Why.
    pub reason: SuspectReason,
    /// The signature over the frame's covered bytes, kept for a [`LeaveCert`].
    pub signature: [u8; 64],
}

impl Suspect {
    /// Appends the body, which is everything but the signature.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.view.0);
        out.u8(self.reason.to_wire());
    }

    /// Returns what `replica`'s signature covers.
    pub fn signed_digest(&self, domains: &Domains, epoch: u32, replica: ReplicaId) -> Digest {
        let mut body = [0; 9];
        body[..8].copy_from_slice(&self.view.0.to_le_bytes());
        body[8] = self.reason.to_wire();
        crate::sign::signed_digest(domains, Kind::Suspect, epoch, replica.into(), &body)
    }

    /// Reads a whole body; the signature comes from the frame.
    pub fn decode(body: &[u8], signature: [u8; 64]) -> Decoded<Self> {
        whole(body, |r| {
            Ok(Self { view: ViewNum(r.u64()?), reason: SuspectReason::from_wire(r.u8()?)?, signature })
        })
    }
}

/// A proof that leaving a view is right: `f + 1` SUSPECTs for it from distinct replicas, or one of
/// its primary's (LV-2). `count 1 | (i 2 | reason 1 | sig 64)*`, by increasing `i`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaveCert {
    /// The SUSPECTs, all for the view before the VIEW-CHANGE's. At most one from each replica.
    pub suspects: Vec<(ReplicaId, Suspect)>,
}

/// One entry of P: the batch prepared at `seq` in `view`, the newest such view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The sequence number.
    pub seq: SeqNum,
    /// The batch.
    pub digest: Digest,
    /// The view.
    pub view: ViewNum,
}

/// One entry of Q: what was pre-prepared at `seq`, with the newest view of each digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrePrepared {
    /// The sequence number.
    pub seq: SeqNum,
    /// At most `f + 2` distinct digests, highest views first (VC-4).
    pub claims: Vec<(Digest, ViewNum)>,
}

/// VIEW-CHANGE: `v 8 | h 8 | kid 4 | C | P | Q | leave`, signed [OSDI99 §4.4], spec §11.4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewChange {
    /// The view to enter.
    pub view: ViewNum,
    /// The sender's stable checkpoint.
    pub stable: SeqNum,
    /// The sender's generation of session keys (RC-11).
    pub key_id: u32,
    /// C: the sender's checkpoints from `stable` on, by increasing number.
    pub checkpoints: Vec<(SeqNum, Digest)>,
    /// P, by increasing number.
    pub prepared: Vec<Prepared>,
    /// Q, by increasing number.
    pub pre_prepared: Vec<PrePrepared>,
    /// Why the view before may be left.
    pub leave: LeaveCert,
}

impl ViewChange {
    /// Appends the body.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.view.0);
        out.u64(self.stable.0);
        out.u32(self.key_id);
        out.count8(self.checkpoints.len());
        for (seq, digest) in &self.checkpoints {
            out.u64(seq.0);
            out.digest(digest);
        }
        out.count16(self.prepared.len());
        for p in &self.prepared {
            out.u64(p.seq.0);
            out.digest(&p.digest);
            out.u64(p.view.0);
        }
        out.count16(self.pre_prepared.len());
        for q in &self.pre_prepared {
            out.u64(q.seq.0);
            out.count8(q.claims.len());
            for (digest, view) in &q.claims {
                out.digest(digest);
                out.u64(view.0);
            }
        }
        out.count8(self.leave.suspects.len());
        for (replica, suspect) in &self.leave.suspects {
            out.u16(replica.0);
            out.u8(suspect.reason.to_wire());
            out.bytes(&suspect.signature);
        }
    }

    /// Reads a whole body and refuses sets that are not in increasing order, which is how an entry
    /// would be counted twice (VC-5). What the entries mean is checked by the protocol.
    pub fn decode(body: &[u8]) -> Decoded<Self> {
        whole(body, |r| {
            let view = ViewNum(r.u64()?);
            let stable = SeqNum(r.u64()?);
            let key_id = r.u32()?;
            let checkpoints = take_list(r.count8(CHECKPOINTS_MAX)?, || Ok((SeqNum(r.u64()?), r.digest()?)))?;
            increasing(checkpoints.iter().map(|(seq, _)| *seq))?;
            let prepared = take_list(r.count16(WINDOW_MAX)?, || {
                Ok(Prepared { seq: SeqNum(r.u64()?), digest: r.digest()?, view: ViewNum(r.u64()?) })
            })?;
            increasing(prepared.iter().map(|p| p.seq))?;
            let pre_prepared = take_list(r.count16(WINDOW_MAX)?, || {
                let seq = SeqNum(r.u64()?);
                let claims = take_list(r.count8(CLAIMS_MAX)?, || Ok((r.digest()?, ViewNum(r.u64()?))))?;
                Ok(PrePrepared { seq, claims })
            })?;
            increasing(pre_prepared.iter().map(|q| q.seq))?;
            for q in &pre_prepared {
                let highest_first = q.claims.is_sorted_by(|a, b| a.1 >= b.1);
                let distinct =
                    q.claims.iter().enumerate().all(|(i, a)| q.claims[..i].iter().all(|b| a.0 != b.0));
                if q.claims.is_empty() || !highest_first || !distinct {
                    return Err(DecodeError::NotCanonical);
                }
            }
            let left = ViewNum(view.0.checked_sub(1).ok_or(DecodeError::NotCanonical)?);
            let suspects = take_list(r.count8(u8::try_from(REPLICAS_MAX).unwrap_or(u8::MAX))?, || {
                let replica = ReplicaId(r.u16()?);
                let reason = SuspectReason::from_wire(r.u8()?)?;
                Ok((replica, Suspect { view: left, reason, signature: r.array()? }))
            })?;
            increasing(suspects.iter().map(|(replica, _)| *replica))?;
            Ok(Self {
                view,
                stable,
                key_id,
                checkpoints,
                prepared,
                pre_prepared,
                leave: LeaveCert { suspects },
            })
        })
    }
}

/// NEW-VIEW: `v 8 | V | n* 8 | d* 32 | X`, signed [OSDI99 §4.4], spec §11.6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewView {
    /// The view that begins.
    pub view: ViewNum,
    /// V: the VIEW-CHANGEs it rests on, by increasing replica.
    pub view_changes: Vec<(ReplicaId, Digest)>,
    /// The checkpoint it starts from.
    pub checkpoint: (SeqNum, Digest),
    /// X: the batch for each number from `checkpoint + 1` on; the null batch where nothing can have
    /// committed.
    pub chosen: Vec<Digest>,
}

impl NewView {
    /// Appends the body.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.view.0);
        out.count8(self.view_changes.len());
        for (replica, digest) in &self.view_changes {
            out.u16(replica.0);
            out.digest(digest);
        }
        out.u64(self.checkpoint.0.0);
        out.digest(&self.checkpoint.1);
        out.count16(self.chosen.len());
        for digest in &self.chosen {
            out.digest(digest);
        }
    }

    /// Reads a whole body.
    pub fn decode(body: &[u8]) -> Decoded<Self> {
        whole(body, |r| {
            let view = ViewNum(r.u64()?);
            let replicas_max = u8::try_from(REPLICAS_MAX).unwrap_or(u8::MAX);
            let view_changes = take_list(r.count8(replicas_max)?, || Ok((ReplicaId(r.u16()?), r.digest()?)))?;
            increasing(view_changes.iter().map(|(replica, _)| *replica))?;
            let checkpoint = (SeqNum(r.u64()?), r.digest()?);
            let chosen = take_list(r.count16(WINDOW_MAX)?, || r.digest())?;
            Ok(Self { view, view_changes, checkpoint, chosen })
        })
    }

    /// Returns the last number that the new view decides: `max_x`.
    pub fn last(&self) -> SeqNum {
        self.checkpoint.0.plus(u64::try_from(self.chosen.len()).unwrap_or(0))
    }
}

/// A proof asked for in a STATUS: who pre-prepared `digest` at `seq` in `view` or later (DP-4)?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// The sequence number.
    pub seq: SeqNum,
    /// The batch.
    pub digest: Digest,
    /// The oldest view that helps.
    pub view: ViewNum,
}

/// STATUS: `ctr 8 | v 8 | h 8 | executed 8 | incarnation 8 | echoes | flags 1 | prepared | committed |
/// have 8 | wants` (spec §10).
#[derive(Clone, Debug)]
pub struct Status<'a> {
    /// Increases with every STATUS of the sender; older ones are replays.
    pub counter: u64,
    /// The sender's view.
    pub view: ViewNum,
    /// Its stable checkpoint.
    pub stable: SeqNum,
    /// The last batch that it executed and that committed.
    pub executed: SeqNum,
    /// How often it has started (§14.3).
    pub incarnation: u64,
    /// The highest incarnation that it has seen of each replica, in order.
    pub echoes: Echoes<'a>,
    /// It is in normal operation; otherwise it waits for a NEW-VIEW.
    pub normal: bool,
    /// It holds a valid NEW-VIEW message for its view.
    pub has_new_view: bool,
    /// Bit `k`: it has prepared `executed + 1 + k`.
    pub prepared: Bitmap<'a>,
    /// Bit `k`: it has seen `executed + 1 + k` commit.
    pub committed: Bitmap<'a>,
    /// In a view change: bit `i` says that it holds replica `i`'s VIEW-CHANGE for its view.
    pub have: u64,
    /// Proofs that it lacks. At most [`WANTS_MAX`].
    pub wants: Vec<Want>,
}

/// The incarnations that a replica has seen, one for each replica: `count 1 | u64*`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echoes<'a> {
    bytes: &'a [u8],
}

impl<'a> Echoes<'a> {
    /// Returns a view of `bytes`, eight for each replica.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns the highest incarnation seen of `replica`, or 0.
    pub fn of(&self, replica: ReplicaId) -> u64 {
        let at = replica.index() * 8;
        self.bytes.get(at..).and_then(|rest| Reader::new(rest).u64().ok()).unwrap_or(0)
    }
}

/// A set of small numbers as bytes, lowest bit first: `len 2 | bytes`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bitmap<'a> {
    bytes: &'a [u8],
}

impl<'a> Bitmap<'a> {
    /// Returns a view of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Says whether bit `k` is set.
    pub fn has(&self, k: usize) -> bool {
        self.bytes.get(k / 8).is_some_and(|byte| byte & (1 << (k % 8)) != 0)
    }
}

impl<'a> Status<'a> {
    /// Appends the body.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.counter);
        out.u64(self.view.0);
        out.u64(self.stable.0);
        out.u64(self.executed.0);
        out.u64(self.incarnation);
        out.count8(self.echoes.bytes.len() / 8);
        out.bytes(self.echoes.bytes);
        out.u8(u8::from(self.normal) | (u8::from(self.has_new_view) << 1));
        for bitmap in [&self.prepared, &self.committed] {
            out.count16(bitmap.bytes.len());
            out.bytes(bitmap.bytes);
        }
        out.u64(self.have);
        out.count8(self.wants.len());
        for want in &self.wants {
            out.u64(want.seq.0);
            out.digest(&want.digest);
            out.u64(want.view.0);
        }
    }

    /// Reads a whole body.
    pub fn decode(body: &'a [u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        let (counter, view, stable) = (r.u64()?, ViewNum(r.u64()?), SeqNum(r.u64()?));
        let (executed, incarnation) = (SeqNum(r.u64()?), r.u64()?);
        let echoes = r.count8(u8::try_from(REPLICAS_MAX).unwrap_or(u8::MAX))?;
        let echoes = Echoes { bytes: r.bytes(echoes * 8)? };
        let flags = r.u8()?;
        if flags > 3 {
            return Err(DecodeError::NotCanonical);
        }
        let mut bitmap = || -> Decoded<Bitmap<'a>> {
            let len = r.count16(WINDOW_MAX / 8)?;
            Ok(Bitmap { bytes: r.bytes(len)? })
        };
        let (prepared, committed) = (bitmap()?, bitmap()?);
        let have = r.u64()?;
        let wants = take_list(r.count8(WANTS_MAX)?, || {
            Ok(Want { seq: SeqNum(r.u64()?), digest: r.digest()?, view: ViewNum(r.u64()?) })
        })?;
        r.end()?;
        let (normal, has_new_view) = (flags & 1 != 0, flags & 2 != 0);
        Ok(Self {
            counter,
            view,
            stable,
            executed,
            incarnation,
            echoes,
            normal,
            has_new_view,
            prepared,
            committed,
            have,
            wants,
        })
    }
}

/// What a BODY-FETCH asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// A client's request, by its digest.
    Request,
    /// A batch, by its digest.
    Batch,
}

impl BodyKind {
    fn to_wire(self) -> u8 {
        match self {
            Self::Request => 0,
            Self::Batch => 1,
        }
    }

    fn from_wire(byte: u8) -> Decoded<Self> {
        match byte {
            0 => Ok(Self::Request),
            1 => Ok(Self::Batch),
            _ => Err(DecodeError::NotCanonical),
        }
    }
}

/// BODY-FETCH: `kind 1 | count 1 | d*` (SR-2). At most [`FETCH_DIGESTS_MAX`] digests.
#[derive(Clone, Copy, Debug)]
pub struct BodyFetch<'a> {
    /// Requests or batches.
    pub kind: BodyKind,
    digests: &'a [u8],
}

impl<'a> BodyFetch<'a> {
    /// Appends a body that asks for `digests`, of which there are at most [`FETCH_DIGESTS_MAX`].
    pub fn encode(kind: BodyKind, digests: &[Digest], out: &mut Writer<'_>) {
        out.u8(kind.to_wire());
        out.count8(digests.len());
        for digest in digests {
            out.digest(digest);
        }
    }

    /// Reads a whole body.
    pub fn decode(body: &'a [u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        let kind = BodyKind::from_wire(r.u8()?)?;
        let count = r.count8(FETCH_DIGESTS_MAX)?;
        let digests = r.bytes(count * 32)?;
        r.end()?;
        Ok(Self { kind, digests })
    }

    /// Returns the digests.
    pub fn digests(&self) -> impl Iterator<Item = Digest> + use<'a> {
        self.digests.chunks_exact(32).map_while(|bytes| Reader::new(bytes).digest().ok())
    }
}

/// BODY: `kind 1 | bytes`: a request's frame, or a batch (SR-2). Checked by digest, whoever sent it.
#[derive(Clone, Debug)]
pub enum BodyMessage<'a> {
    /// A client's request.
    Request(Request<'a>),
    /// A batch, its digest computed.
    Batch(Arc<Batch>),
}

impl BodyMessage<'_> {
    /// Appends the body with a request's frame.
    pub fn encode_request(frame: &[u8], out: &mut Writer<'_>) {
        out.u8(BodyKind::Request.to_wire());
        out.bytes(frame);
    }

    /// Appends the body with a batch.
    pub fn encode_batch(batch: &Batch, out: &mut Writer<'_>) {
        out.u8(BodyKind::Batch.to_wire());
        batch.encode(out);
    }

    /// Reads which kind a body holds, and the bytes.
    pub fn split(body: &[u8]) -> Decoded<(BodyKind, &[u8])> {
        let mut r = Reader::new(body);
        let kind = BodyKind::from_wire(r.u8()?)?;
        Ok((kind, r.bytes(r.len())?))
    }
}

/// META-DATA: `rid 8 | level 1 | index 8 | c 8 | lm 8 | count 1 | (lm 8 | d 32)*`: the children of a
/// node, in order (ST-2). Checked by recomputing the node's digest.
#[derive(Clone, Copy, Debug)]
pub struct MetaData<'a> {
    /// The question's.
    pub rid: u64,
    /// The node's level.
    pub level: u8,
    /// The node's place in its level.
    pub index: u64,
    /// The checkpoint.
    pub checkpoint: SeqNum,
    /// The last checkpoint that modified the node.
    pub modified: SeqNum,
    children: &'a [u8],
}

impl<'a> MetaData<'a> {
    /// Bytes of one child.
    const CHILD_BYTES: usize = 40;

    /// Appends a body with `children`, of which there are at most [`CHILDREN_MAX`].
    pub fn encode(
        question: &Fetch,
        modified: SeqNum,
        children: impl ExactSizeIterator<Item = (SeqNum, Digest)>,
        out: &mut Writer<'_>,
    ) {
        out.u64(question.rid);
        out.u8(question.level);
        out.u64(question.index);
        out.u64(question.checkpoint.0);
        out.u64(modified.0);
        out.count8(children.len());
        for (modified, digest) in children {
            out.u64(modified.0);
            out.digest(&digest);
        }
    }

    /// Reads a whole body.
    pub fn decode(body: &'a [u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        let (rid, level, index) = (r.u64()?, r.u8()?, r.u64()?);
        let (checkpoint, modified) = (SeqNum(r.u64()?), SeqNum(r.u64()?));
        let count = r.count8(CHILDREN_MAX)?;
        let children = r.bytes(count * Self::CHILD_BYTES)?;
        r.end()?;
        Ok(Self { rid, level, index, checkpoint, modified, children })
    }

    /// Returns the children: the last checkpoint that modified each, and its digest.
    pub fn children(&self) -> impl Iterator<Item = (SeqNum, Digest)> + use<'a> {
        self.children.chunks_exact(Self::CHILD_BYTES).map_while(|child| {
            let mut r = Reader::new(child);
            Some((SeqNum(r.u64().ok()?), r.digest().ok()?))
        })
    }
}

/// DATA: `rid 8 | index 8 | lm 8 | page`: a page of the state (ST-2). Checked by digest.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// The question's.
    pub rid: u64,
    /// The page's number.
    pub index: u64,
    /// The last checkpoint that modified it.
    pub modified: SeqNum,
    /// The page. Empty for one that has never been written.
    pub page: &'a [u8],
}

/// Bytes of a DATA's fixed part.
const DATA_FIXED_BYTES: usize = 24;

impl<'a> Data<'a> {
    /// Appends the body.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.rid);
        out.u64(self.index);
        out.u64(self.modified.0);
        out.bytes(self.page);
    }

    /// Reads a whole body.
    pub fn decode(body: &'a [u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        let (rid, index, modified) = (r.u64()?, r.u64()?, SeqNum(r.u64()?));
        check_len(r.len(), PAGE_BYTES_MAX)?;
        let page = r.bytes(r.len())?;
        Ok(Self { rid, index, modified, page })
    }
}

/// NEW-KEY: `t 8 | kid 4 | share 32 | want 1`, signed (spec §2.4, KX-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// Strictly increasing for each sender (KX-1).
    pub time: u64,
    /// The generation of the sender's keys.
    pub key_id: u32,
    /// An ephemeral X25519 public key.
    pub share: [u8; 32],
    /// The sender lacks the receiver's share and asks for it.
    pub want: bool,
}

impl NewKey {
    /// Appends the body.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.time);
        out.u32(self.key_id);
        out.bytes(&self.share);
        out.u8(u8::from(self.want));
    }

    /// Reads a whole body.
    pub fn decode(body: &[u8]) -> Decoded<Self> {
        whole(body, |r| {
            let (time, key_id, share) = (r.u64()?, r.u32()?, r.array()?);
            // 0 stands for "no key" in an entry.
            if key_id == 0 {
                return Err(DecodeError::NotCanonical);
            }
            Ok(Self { time, key_id, share, want: r.bool()? })
        })
    }
}

/// Returns how many bytes of a body its authenticator covers; a digest among them stands for the
/// rest (CR-3). REQUEST is not here: what covers it is computed (its digest, replier and flags).
pub fn fixed_len(kind: Kind, body: &[u8]) -> usize {
    let fixed = match kind {
        Kind::Reply => REPLY_FIXED_BYTES,
        Kind::Data => DATA_FIXED_BYTES,
        Kind::Body => 1,
        Kind::PrePrepare => match PrePrepareHead::decode(body) {
            Ok(head) => body.len() - head.payload.len(),
            Err(_) => body.len(),
        },
        Kind::Request
        | Kind::Prepare
        | Kind::Commit
        | Kind::Checkpoint
        | Kind::Status
        | Kind::ViewChange
        | Kind::NewView
        | Kind::NewKey
        | Kind::MetaData
        | Kind::Fetch
        | Kind::QueryStable
        | Kind::ReplyStable
        | Kind::Suspect
        | Kind::BodyFetch
        | Kind::Committed
        | Kind::Proof
        | Kind::ReqAck
        | Kind::VcFetch
        | Kind::ReqReject => body.len(),
    };
    fixed.min(body.len())
}

fn whole<'a, T>(body: &'a [u8], read: impl FnOnce(&mut Reader<'a>) -> Decoded<T>) -> Decoded<T> {
    let mut reader = Reader::new(body);
    let value = read(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Reads `count` items. Room is made as they come, so that a count alone cannot claim memory (B36).
fn take_list<T>(count: usize, mut item: impl FnMut() -> Decoded<T>) -> Decoded<Vec<T>> {
    let mut list = Vec::new();
    for _ in 0..count {
        list.push(item()?);
    }
    Ok(list)
}

fn increasing<T: Ord>(keys: impl Iterator<Item = T>) -> Decoded<()> {
    if keys.is_sorted_by(|a, b| a < b) { Ok(()) } else { Err(DecodeError::NotCanonical) }
}

fn check_len(len: usize, max: usize) -> Decoded<()> {
    if len <= max {
        return Ok(());
    }
    let (count, max) = (u64::try_from(len).unwrap_or(u64::MAX), u64::try_from(max).unwrap_or(u64::MAX));
    Err(DecodeError::TooMany { count, max })
}
