//! Any body of any kind, decoded without its frame: for tools, fuzzing and tests.
//!
//! Nothing is authenticated here; the authenticator is the only way into a replica.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::batch::Batch;
use crate::codec::{DecodeError, Decoded, Reader, Writer};
use crate::digest::Domains;
use crate::frame::Frame;
use crate::message::{
    BodyFetch, BodyKind, BodyMessage, Checkpoint, Commit, Committed, Data, Fetch, Kind, MetaData, NewKey,
    NewView, PrePrepare, PrePrepareHead, Prepare, Probe, ProofMessage, QueryStable, Reply, ReplyStable,
    ReqAck, ReqReject, Request, RequestBody, Statement, Status, Suspect, VcFetch, ViewChange,
    encode_pre_prepare,
};

/// A decoded body.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each variant is its struct")]
#[allow(clippy::large_enum_variant, reason = "never kept")]
pub enum AnyBody<'a> {
    Request(RequestBody<'a>),
    Reply(Reply<'a>),
    PrePrepare(PrePrepare<'a>),
    Prepare(Prepare<'a>),
    Commit(Commit),
    Checkpoint(Checkpoint),
    Status(Status<'a>),
    ViewChange(ViewChange),
    NewView(NewView),
    NewKey(NewKey),
    MetaData(MetaData<'a>),
    Data(Data<'a>),
    Fetch(Fetch),
    QueryStable(QueryStable),
    ReplyStable(ReplyStable),
    /// Without its signature, which is in the frame.
    Suspect(Suspect),
    BodyFetch(BodyFetch<'a>),
    Body(BodyMessage<'a>),
    Committed(Committed),
    Proof(ProofMessage),
    ReqAck(ReqAck),
    VcFetch(VcFetch),
    ReqReject(ReqReject),
    Probe(Probe),
    Statement(Statement),
}

/// Decodes a body of this kind. Total: any bytes give a message or an error, and a message gives
/// the same bytes again.
///
/// # Errors
///
/// No encoder writes these bytes; that is so of a batch's digest as well, which is recomputed.
pub fn decode_any<'a>(kind: Kind, body: &'a [u8], domains: &Domains) -> Decoded<AnyBody<'a>> {
    Ok(match kind {
        Kind::Request => AnyBody::Request(RequestBody::decode(body)?),
        Kind::Reply => AnyBody::Reply(Reply::decode(body)?),
        Kind::PrePrepare => AnyBody::PrePrepare(decode_pre_prepare(body, domains)?),
        Kind::Prepare => AnyBody::Prepare(Prepare::decode(body)?),
        Kind::Commit => AnyBody::Commit(Commit::decode(body)?),
        Kind::Checkpoint => AnyBody::Checkpoint(Checkpoint::decode(body)?),
        Kind::Status => AnyBody::Status(Status::decode(body)?),
        Kind::ViewChange => AnyBody::ViewChange(ViewChange::decode(body)?),
        Kind::NewView => AnyBody::NewView(NewView::decode(body)?),
        Kind::NewKey => AnyBody::NewKey(NewKey::decode(body)?),
        Kind::MetaData => AnyBody::MetaData(MetaData::decode(body)?),
        Kind::Data => AnyBody::Data(Data::decode(body)?),
        Kind::Fetch => AnyBody::Fetch(Fetch::decode(body)?),
        Kind::QueryStable => AnyBody::QueryStable(QueryStable::decode(body)?),
        Kind::ReplyStable => AnyBody::ReplyStable(ReplyStable::decode(body)?),
        Kind::Suspect => AnyBody::Suspect(Suspect::decode(body, [0; 64])?),
        Kind::BodyFetch => AnyBody::BodyFetch(BodyFetch::decode(body)?),
        Kind::Body => AnyBody::Body(decode_body(body, domains)?),
        Kind::Committed => AnyBody::Committed(Committed::decode(body)?),
        Kind::Proof => AnyBody::Proof(ProofMessage::decode(body)?),
        Kind::ReqAck => AnyBody::ReqAck(ReqAck::decode(body)?),
        Kind::VcFetch => AnyBody::VcFetch(VcFetch::decode(body)?),
        Kind::ReqReject => AnyBody::ReqReject(ReqReject::decode(body)?),
        Kind::Probe => AnyBody::Probe(Probe::decode(body)?),
        Kind::Statement => AnyBody::Statement(Statement::decode(body)?),
    })
}

fn decode_pre_prepare<'a>(body: &'a [u8], domains: &Domains) -> Decoded<PrePrepare<'a>> {
    let head = PrePrepareHead::decode(body)?;
    let mut batch = Batch::default();
    batch.decode_payload(&mut Reader::new(head.payload), head.counts, head.choice, domains, |bytes| {
        Request::decode(&Frame::decode(bytes)?, domains)
    })?;
    if batch.digest() != head.digest {
        return Err(DecodeError::NotCanonical);
    }
    Ok(PrePrepare { view: head.view, seq: head.seq, batch: Arc::new(batch), piggyback: head.piggyback })
}

fn decode_body<'a>(body: &'a [u8], domains: &Domains) -> Decoded<BodyMessage<'a>> {
    let request = |bytes| Request::decode(&Frame::decode(bytes)?, domains);
    let (kind, bytes) = BodyMessage::split(body)?;
    Ok(match kind {
        BodyKind::Request => BodyMessage::Request(request(bytes)?),
        BodyKind::Batch => {
            let mut batch = Batch::default();
            batch.decode(&mut Reader::new(bytes), domains, request)?;
            BodyMessage::Batch(Arc::new(batch))
        }
    })
}

impl AnyBody<'_> {
    /// Appends the body.
    pub fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::Request(m) => m.encode(out),
            Self::Reply(m) => m.encode(out),
            Self::PrePrepare(m) => {
                let commits: Vec<_> = m.piggyback.iter().collect();
                encode_pre_prepare(m.view, m.seq, &m.batch, &commits, out);
            }
            Self::Prepare(m) => {
                let commits: Vec<_> = m.piggyback.iter().collect();
                Prepare::encode(m.view, m.seq, &m.digest, &commits, out);
            }
            Self::Commit(m) => m.encode(out),
            Self::Checkpoint(m) => m.encode(out),
            Self::Status(m) => m.encode(out),
            Self::ViewChange(m) => m.encode(out),
            Self::NewView(m) => m.encode(out),
            Self::NewKey(m) => m.encode(out),
            Self::MetaData(m) => {
                let MetaData { rid, level, index, checkpoint, modified, .. } = *m;
                let children: Vec<_> = m.children().collect();
                let question = Fetch { rid, level, index, checkpoint };
                MetaData::encode(&question, modified, children.into_iter(), out);
            }
            Self::Data(m) => m.encode(out),
            Self::Fetch(m) => m.encode(out),
            Self::QueryStable(m) => m.encode(out),
            Self::ReplyStable(m) => m.encode(out),
            Self::Suspect(m) => m.encode(out),
            Self::BodyFetch(m) => {
                let digests: Vec<_> = m.digests().collect();
                BodyFetch::encode(m.kind, &digests, out);
            }
            Self::Body(BodyMessage::Request(m)) => BodyMessage::encode_request(m.frame, out),
            Self::Body(BodyMessage::Batch(m)) => BodyMessage::encode_batch(m, out),
            Self::Committed(m) => m.encode(out),
            Self::Proof(m) => m.encode(out),
            Self::ReqAck(m) => m.encode(out),
            Self::VcFetch(m) => m.encode(out),
            Self::ReqReject(m) => m.encode(out),
            Self::Probe(m) => m.encode(out),
            Self::Statement(m) => m.encode(out),
        }
    }
}
