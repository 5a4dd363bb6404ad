//! Every message: its fields, and the byte layout of its body on the wire (`docs/wire-format.md`).
//!
//! A body is a fixed part, which authentication covers, and for some kinds a payload after it, which is covered by a
//! digest in the fixed part (CR-3). [`fixed_len`] returns where the payload starts.
//!
//! | Section | Module |
//! |---|---|
//! | REQUEST, REPLY, REQ-ACK, REQ-REJECT | `client` |
//! | PRE-PREPARE, PREPARE, COMMIT | `normal` |
//! | CHECKPOINT, QUERY-STABLE, REPLY-STABLE | `checkpoint` |
//! | SUSPECT, VIEW-CHANGE, NEW-VIEW, VC-FETCH, PROOF | `view_change` |
//! | STATUS, COMMITTED | `status` |
//! | BODY-FETCH, BODY | `body` |
//! | FETCH, META-DATA, DATA | `transfer` |
//! | NEW-KEY | `keys` |
//! | PROBE, STATEMENT | `statement` |
//! | any body, without its frame | `any` |

#[macro_use]
mod parts;
mod any;
mod body;
mod checkpoint;
mod client;
mod keys;
mod normal;
mod statement;
mod status;
mod transfer;
mod view_change;

use alloc::boxed::Box;
use alloc::sync::Arc;

pub use self::any::{AnyBody, decode_any};
pub use self::body::{BodyFetch, BodyKind, BodyMessage};
pub use self::checkpoint::{Checkpoint, QueryStable, ReplyStable};
pub use self::client::{Proof, REQUEST_HEAD_BYTES, Reply, ReqAck, ReqReject, Request, RequestBody};
pub use self::keys::NewKey;
pub use self::normal::{
    Commit, Piggyback, PrePrepare, PrePrepareHead, Prepare, encode_pre_prepare, pre_prepare_bytes_besides,
};
pub use self::statement::{
    Contradiction, Keeps, Probe, REASON_BYTES_MAX, STATED_CHECKPOINTS_MAX, STATED_REASONS_MAX, Statement,
    TransferStats, VERSION_BYTES_MAX,
};
pub use self::status::{Bitmap, Committed, Echoes, Start, Status, Want};
pub use self::transfer::{Data, Fetch, MetaData};
pub use self::view_change::{
    LeaveCert, NewView, PrePrepared, Prepared, ProofMessage, Suspect, SuspectReason, VcFetch, ViewChange,
};
pub use crate::bounds::{
    CHECKPOINTS_MAX, CHILDREN_MAX, CLAIMS_MAX, FETCH_DIGESTS_MAX, OPERATION_BYTES_MAX, PAGE_BYTES_MAX,
    PIGGYBACK_MAX, RESULT_BYTES_MAX, WANTS_MAX, WINDOW_MAX,
};
pub use crate::kind::{Kind, RequestFlags, Seal};
use crate::sign::Signed;

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
    Proof(Arc<Signed<ProofMessage>>),
    ReqAck(ReqAck),
    VcFetch(VcFetch),
    ReqReject(ReqReject),
    Probe(Probe),
    /// Boxed: it is large and rare, and the others are neither.
    Statement(Box<Statement>),
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
            Self::Probe(_) => Kind::Probe,
            Self::Statement(_) => Kind::Statement,
        }
    }
}

/// Returns how many bytes of a body its authenticator covers; a digest among them stands for the
/// rest (CR-3). REQUEST is not here: what covers it is computed (its digest, replier and flags).
///
/// BODY, META-DATA and DATA are covered as a whole, although digests will prove their content: who
/// sent what is wrong is then known, and a network that corrupts it cannot make a correct replica
/// look faulty (N4).
pub fn fixed_len(kind: Kind, body: &[u8]) -> usize {
    let fixed = match kind {
        Kind::Reply => client::REPLY_FIXED_BYTES,
        Kind::PrePrepare => normal::pre_prepare_fixed_len(body),
        Kind::Request
        | Kind::Prepare
        | Kind::Commit
        | Kind::Checkpoint
        | Kind::Status
        | Kind::ViewChange
        | Kind::NewView
        | Kind::NewKey
        | Kind::MetaData
        | Kind::Data
        | Kind::Fetch
        | Kind::QueryStable
        | Kind::ReplyStable
        | Kind::Suspect
        | Kind::BodyFetch
        | Kind::Body
        | Kind::Committed
        | Kind::Proof
        | Kind::ReqAck
        | Kind::VcFetch
        | Kind::ReqReject
        | Kind::Probe
        | Kind::Statement => body.len(),
    };
    fixed.min(body.len())
}
