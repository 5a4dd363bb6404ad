//! A message that was admitted earlier, read from a recording.
//!
//! A recording of a replica's inputs holds the frames that its authenticator admitted, and how the requests in them
//! were authenticated. A [`Verified`] message consists of these only. Session keys are not in a recording and not
//! needed to replay it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::envelope::auth::Verified;
use crate::envelope::codec::{DecodeError, Decoded};
use crate::envelope::digest::Domains;
use crate::envelope::id::Principal;
use crate::envelope::sign::Signed;
use crate::protocol::batch::Batch;
use crate::protocol::frame::Frame;
use crate::protocol::kinds::kinds;
use crate::protocol::message::{
    AnyBody, BodyMessage, Message, PrePrepare, Proof, Request, RequestBody, Suspect, decode_any,
};

/// Appends how the requests in an admitted message were proven, in their order.
#[allow(clippy::wildcard_enum_match_arm, reason = "the other kinds have no requests")]
pub fn proofs(message: &Message<'_>, out: &mut Vec<Proof>) {
    match message {
        Message::Request(request) | Message::Body(BodyMessage::Request(request)) => out.push(request.proof),
        Message::PrePrepare(m) => out.extend(m.batch.inlined().iter().map(|request| request.proof)),
        Message::Body(BodyMessage::Batch(batch)) => {
            out.extend(batch.inlined().iter().map(|request| request.proof));
        }
        _ => {}
    }
}

/// Makes one message of its body again.
macro_rules! again {
    (Request, own, $m:ident, $frame:ident, $proofs:ident, $domains:ident) => {{
        let _: RequestBody<'_> = $m; // the frame has more than its body
        prove(Request::decode($frame, $domains)?, $proofs)?
    }};
    (PrePrepare, own, $m:ident, $frame:ident, $proofs:ident, $domains:ident) => {
        PrePrepare { batch: prove_all($m.batch, $proofs)?, ..$m }
    };
    (Body, own, $m:ident, $frame:ident, $proofs:ident, $domains:ident) => {
        match $m {
            BodyMessage::Request(m) => BodyMessage::Request(prove(m, $proofs)?),
            BodyMessage::Batch(m) => BodyMessage::Batch(prove_all(m, $proofs)?),
        }
    };
    (Suspect, own, $m:ident, $frame:ident, $proofs:ident, $domains:ident) => {
        Suspect { signature: *$frame.auth.signature().ok_or(DecodeError::NotCanonical)?, ..$m }
    };
    ($kind:ident, signed, $m:ident, $frame:ident, $proofs:ident, $domains:ident) => {
        signed($frame, $m, $domains)?
    };
    ($kind:ident, boxed, $m:ident, $frame:ident, $proofs:ident, $domains:ident) => {
        Box::new($m)
    };
    ($kind:ident, $way:ident, $m:ident, $frame:ident, $proofs:ident, $domains:ident) => {
        $m
    };
}

macro_rules! remake {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal, $seal:ident, $route:ident
        $(=> $way:ident $body:ty)?;)*) => {
        fn remake<'a>(
            frame: &Frame<'a>,
            body: AnyBody<'a>,
            proofs: &[Proof],
            domains: &Domains,
        ) -> Decoded<Message<'a>> {
            Ok(match body {
                AnyBody::NewKey(_) => return Err(DecodeError::NotCanonical), // stays in the authenticator
                $($(AnyBody::$kind(m) => Message::$kind(again!($kind, $way, m, frame, proofs, domains)),)?)*
            })
        }
    };
}

kinds!(remake);

/// Makes the message again that an authenticator made of `frame`, with `proofs` as [`proofs`] gave them.
///
/// For replaying recordings. Nothing is authenticated here: that was done when the recording was made.
///
/// # Errors
///
/// No authenticator has admitted these bytes with these proofs.
pub fn recall<'a>(frame: &Frame<'a>, proofs: &[Proof], domains: &Domains) -> Decoded<Verified<Message<'a>>> {
    let message = remake(frame, decode_any(frame.kind, frame.body, domains)?, proofs, domains)?;
    Ok(Verified::again(frame.sender, message))
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
