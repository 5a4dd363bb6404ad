//! A message that was admitted earlier, read from a recording.
//!
//! A recording of a replica's inputs holds the frames that its authenticator admitted, and how the requests in them
//! were authenticated. A [`Verified`] message consists of these only. Session keys are not in a recording and not
//! needed to replay it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Verified;
use crate::batch::Batch;
use crate::codec::{DecodeError, Decoded};
use crate::digest::Domains;
use crate::frame::Frame;
use crate::id::Principal;
use crate::message::{AnyBody, BodyMessage, Message, Proof, Request, Suspect, decode_any};
use crate::sign::Signed;

/// Appends how the requests in an admitted message were proven, in their order.
pub fn proofs(message: &Message<'_>, out: &mut Vec<Proof>) {
    match message {
        Message::Request(request) | Message::Body(BodyMessage::Request(request)) => out.push(request.proof),
        Message::PrePrepare(m) => out.extend(m.batch.inlined().iter().map(|request| request.proof)),
        Message::Body(BodyMessage::Batch(batch)) => {
            out.extend(batch.inlined().iter().map(|request| request.proof));
        }
        Message::Reply(_)
        | Message::Prepare(_)
        | Message::Commit(_)
        | Message::Checkpoint(_)
        | Message::Status(_)
        | Message::ViewChange(_)
        | Message::NewView(_)
        | Message::MetaData(_)
        | Message::Data(_)
        | Message::Fetch(_)
        | Message::QueryStable(_)
        | Message::ReplyStable(_)
        | Message::Suspect(_)
        | Message::BodyFetch(_)
        | Message::Committed(_)
        | Message::Proof(_)
        | Message::ReqAck(_)
        | Message::VcFetch(_)
        | Message::ReqReject(_)
        | Message::Probe(_)
        | Message::Statement(_) => {}
    }
}

/// Makes the message again that an authenticator made of `frame`, with `proofs` as [`proofs`] gave them.
///
/// For replaying recordings. Nothing is authenticated here: that was done when the recording was made.
///
/// # Errors
///
/// No authenticator has admitted these bytes with these proofs.
pub fn recall<'a>(frame: &Frame<'a>, proofs: &[Proof], domains: &Domains) -> Decoded<Verified<Message<'a>>> {
    let message = match decode_any(frame.kind, frame.body, domains)? {
        AnyBody::Request(_) => Message::Request(prove(Request::decode(frame, domains)?, proofs)?),
        AnyBody::Body(BodyMessage::Request(m)) => Message::Body(BodyMessage::Request(prove(m, proofs)?)),
        AnyBody::Body(BodyMessage::Batch(m)) => Message::Body(BodyMessage::Batch(prove_all(m, proofs)?)),
        AnyBody::PrePrepare(mut m) => {
            m.batch = prove_all(m.batch, proofs)?;
            Message::PrePrepare(m)
        }
        AnyBody::Suspect(m) => {
            let signature = *frame.auth.signature().ok_or(DecodeError::NotCanonical)?;
            Message::Suspect(Suspect { signature, ..m })
        }
        AnyBody::ViewChange(m) => Message::ViewChange(signed(frame, m, domains)?),
        AnyBody::NewView(m) => Message::NewView(signed(frame, m, domains)?),
        AnyBody::NewKey(_) => return Err(DecodeError::NotCanonical), // stays in the authenticator
        AnyBody::Reply(m) => Message::Reply(m),
        AnyBody::Prepare(m) => Message::Prepare(m),
        AnyBody::Commit(m) => Message::Commit(m),
        AnyBody::Checkpoint(m) => Message::Checkpoint(m),
        AnyBody::Status(m) => Message::Status(m),
        AnyBody::MetaData(m) => Message::MetaData(m),
        AnyBody::Data(m) => Message::Data(m),
        AnyBody::Fetch(m) => Message::Fetch(m),
        AnyBody::QueryStable(m) => Message::QueryStable(m),
        AnyBody::ReplyStable(m) => Message::ReplyStable(m),
        AnyBody::BodyFetch(m) => Message::BodyFetch(m),
        AnyBody::Committed(m) => Message::Committed(m),
        AnyBody::Proof(m) => Message::Proof(signed(frame, m, domains)?),
        AnyBody::ReqAck(m) => Message::ReqAck(m),
        AnyBody::VcFetch(m) => Message::VcFetch(m),
        AnyBody::ReqReject(m) => Message::ReqReject(m),
        AnyBody::Probe(m) => Message::Probe(m),
        AnyBody::Statement(m) => Message::Statement(Box::new(m)),
    };
    Ok(Verified { sender: frame.sender, message })
}

fn prove<'a>(request: Request<'a>, proofs: &[Proof]) -> Decoded<Request<'a>> {
    match proofs {
        [proof] => Ok(Request { proof: *proof, ..request }),
        _ => Err(DecodeError::NotCanonical),
    }
}

fn prove_all(mut batch: Arc<Batch>, proofs: &[Proof]) -> Decoded<Arc<Batch>> {
    let proven = Arc::get_mut(&mut batch).is_some_and(|batch| batch.set_proofs(proofs));
    if proven { Ok(batch) } else { Err(DecodeError::NotCanonical) }
}

fn signed<M>(frame: &Frame<'_>, body: M, domains: &Domains) -> Decoded<Arc<Signed<M>>> {
    match frame.sender {
        Principal::Replica(_) => Signed::reread(domains, frame, body).map(Arc::new),
        Principal::Client(_) => None,
    }
    .ok_or(DecodeError::NotCanonical)
}
