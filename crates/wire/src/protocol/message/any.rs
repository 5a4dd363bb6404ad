//! Any body of any kind, decoded without its frame: for tools, fuzzing and tests.
//!
//! Nothing is authenticated here; the authenticator is the only way into a replica.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::envelope::codec::{DecodeError, Decoded, Reader, Writer};
use crate::envelope::digest::Domains;
use crate::protocol::batch::Batch;
use crate::protocol::frame::Frame;
use crate::protocol::kinds::kinds;
use crate::protocol::message::{
    self, BodyFetch, BodyKind, BodyMessage, Fetch, Kind, MetaData, NewKey, PrePrepare, PrePrepareHead,
    Prepare, Request, RequestBody, Suspect, encode_pre_prepare,
};

/// The type of a body without its frame.
macro_rules! alone {
    (Request $body:ty) => { RequestBody<'a> };
    ($kind:ident $body:ty) => { $body };
}

/// Decodes a body without its frame.
macro_rules! decode_alone {
    (Request, $body_type:ty, $body:ident, $domains:ident) => {
        RequestBody::decode($body)?
    };
    (PrePrepare, $body_type:ty, $body:ident, $domains:ident) => {
        decode_pre_prepare($body, $domains)?
    };
    (Body, $body_type:ty, $body:ident, $domains:ident) => {
        decode_body($body, $domains)?
    };
    (Suspect, $body_type:ty, $body:ident, $domains:ident) => {
        Suspect::decode($body, [0; 64])?
    };
    ($kind:ident, $body_type:ty, $body:ident, $domains:ident) => {
        <$body_type>::decode($body)?
    };
}

/// Encodes a body as it came.
macro_rules! encode_alone {
    (PrePrepare, $m:ident, $out:ident; $way:ident) => {{
        let commits: Vec<_> = $m.piggyback.iter().collect();
        encode_pre_prepare($m.view, $m.seq, &$m.batch, &commits, $out);
    }};
    (Prepare, $m:ident, $out:ident; $way:ident) => {{
        let commits: Vec<_> = $m.piggyback.iter().collect();
        Prepare::encode($m.view, $m.seq, &$m.digest, &commits, $out);
    }};
    (MetaData, $m:ident, $out:ident; $way:ident) => {{
        let MetaData { rid, level, index, checkpoint, modified, .. } = *$m;
        let children: Vec<_> = $m.children().collect();
        let question = Fetch { rid, level, index, checkpoint };
        MetaData::encode(&question, modified, children.into_iter(), $out);
    }};
    (BodyFetch, $m:ident, $out:ident; $way:ident) => {{
        let digests: Vec<_> = $m.digests().collect();
        BodyFetch::encode($m.kind, &digests, $out);
    }};
    (Body, $m:ident, $out:ident; $way:ident) => {
        match $m {
            BodyMessage::Request(m) => BodyMessage::encode_request(m.frame, $out),
            BodyMessage::Batch(m) => BodyMessage::encode_batch(m, $out),
        }
    };
    ($kind:ident, $m:ident, $out:ident; $way:ident) => {
        $m.encode($out)
    };
}

macro_rules! any_body {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal, $seal:ident, $route:ident
        $(=> $way:ident $body_type:ty)?;)*) => {
        /// A decoded body. That of a SUSPECT is without its signature, which is in the frame.
        #[derive(Clone, Debug)]
        #[allow(missing_docs, reason = "each variant is its struct")]
        #[allow(clippy::large_enum_variant, reason = "never kept")]
        pub enum AnyBody<'a> {
            NewKey(NewKey),
            $($($kind(alone!($kind $body_type)),)?)*
        }

        /// Decodes a body of this kind. Total: any bytes give a message or an error, and a message gives
        /// the same bytes again.
        ///
        /// # Errors
        ///
        /// No encoder writes these bytes; that is so of a batch's digest as well, which is recomputed.
        pub fn decode_any<'a>(kind: Kind, body: &'a [u8], domains: &Domains) -> Decoded<AnyBody<'a>> {
            Ok(match kind {
                Kind::NewKey => AnyBody::NewKey(NewKey::decode(body)?),
                $($(Kind::$kind => AnyBody::$kind(decode_alone!($kind, $body_type, body, domains)),)?)*
            })
        }

        impl AnyBody<'_> {
            /// Appends the body.
            pub fn encode(&self, out: &mut Writer<'_>) {
                match self {
                    Self::NewKey(m) => m.encode(out),
                    $($(Self::$kind(m) => encode_alone!($kind, m, out; $way),)?)*
                }
            }
        }
    };
}

kinds!(any_body);

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
