//! Requests and batches that are sent separately from their PRE-PREPARE (spec §5.3).

use alloc::sync::Arc;

use super::client::Request;
use crate::envelope::codec::{DecodeError, Decoded, Reader, Writer};
use crate::envelope::digest::Digest;
use crate::protocol::batch::Batch;
use crate::protocol::message::FETCH_DIGESTS_MAX;

/// The subject of a BODY-FETCH.
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

/// BODY: `kind 1 | bytes`: a request's frame, or a batch (SR-2). Checked by digest, from any sender.
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
