//! Messages between clients and replicas, and messages of replicas about clients' requests (spec §4).

use crate::envelope::cluster::REPLICAS_MAX;
use crate::envelope::codec::{DecodeError, Decoded, Reader, Writer};
use crate::envelope::digest::{Digest, Domains};
use crate::envelope::frame::PACKED_BYTES_MAX;
use crate::envelope::id::{ClientId, SeqNum, Timestamp, ViewNum};
use crate::envelope::parts::{check_len, plain_message};
use crate::protocol::frame::{Auth, Frame, HEADER_BYTES};
use crate::protocol::message::{Kind, OPERATION_BYTES_MAX, RESULT_BYTES_MAX, RequestFlags};

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
    /// Digest of client, timestamp and operation. Computed at the authenticator, not on the wire.
    pub digest: Digest,
    /// Read-only, signed.
    pub flags: RequestFlags,
    /// The replica that is to return the full result; none: all of them.
    pub replier: Option<u16>,
    /// The operation, opaque here.
    pub operation: &'a [u8],
    /// The offset of the operation in `frame`.
    pub operation_at: usize,
    /// The whole frame as received.
    pub frame: &'a [u8],
    /// How it was authenticated.
    pub proof: Proof,
}

impl<'a> Request<'a> {
    /// Reads a whole REQUEST and computes its digest. Nothing is proven yet.
    #[inline]
    pub fn decode(frame: &Frame<'a>, domains: &Domains) -> Decoded<Self> {
        if frame.kind != Kind::Request {
            return Err(DecodeError::NotCanonical);
        }
        let RequestBody { timestamp, flags, replier, operation } = RequestBody::decode(frame.body)?;
        if flags.signed != frame.auth.signature().is_some() || matches!(frame.auth, Auth::Mac { .. }) {
            return Err(DecodeError::NotCanonical);
        }
        let client = frame.sender.as_client();
        let digest = domains.request(client.0, timestamp.0, operation);
        let (operation_at, frame) = (HEADER_BYTES + REQUEST_HEAD_BYTES, frame.bytes);
        let proof = Proof::Unproven;
        Ok(Self { client, timestamp, digest, flags, replier, operation, operation_at, frame, proof })
    }
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
    #[inline]
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

/// REPLY: `v 8 | t 8 | tentative 1 | d 32 | client 8 | has result 1 | result`.
///
/// The MAC covers everything up to the client's lane, which are the low two bytes of `client`: its
/// principal is the receiver, which each entry names, and `d` stands for the result and says which request
/// it answers. So the covered part is one block of the hash.
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
    /// Digest of client, timestamp, request and result ([`Domains::reply`]).
    pub digest: Digest,
    /// The result, from the designated replier or where it is short (RP-1).
    pub result: Option<&'a [u8]>,
}

/// Bytes of a REPLY's fixed part.
pub(super) const REPLY_FIXED_BYTES: usize = 51;

impl<'a> Reply<'a> {
    /// Appends the body.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.view.0);
        out.u64(self.timestamp.0);
        out.u8(u8::from(self.tentative));
        out.digest(&self.digest);
        out.u64(self.client.0);
        out.u8(u8::from(self.result.is_some()));
        out.bytes(self.result.unwrap_or(&[]));
    }

    /// Reads a whole body.
    #[inline]
    pub fn decode(body: &'a [u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        let view = ViewNum(r.u64()?);
        let timestamp = Timestamp(r.u64()?);
        let tentative = r.bool()?;
        let digest = Digest(*r.chunk()?);
        let client = ClientId(r.u64()?);
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

/// COLLECT: whole REPLY frames, one after the other: the sender's, each sealed for its client, for the replica that sends
/// all REPLYs to a request at once (RP-6).
#[derive(Clone, Copy, Debug)]
pub struct Collect<'a> {
    /// The frames, not yet believed.
    pub frames: &'a [u8],
}

impl<'a> Collect<'a> {
    /// Appends the body.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(self.frames);
    }

    /// Reads a whole body: at least one frame, and REPLYs only.
    pub fn decode(frames: &'a [u8]) -> Decoded<Self> {
        check_len(frames.len(), PACKED_BYTES_MAX)?;
        let mut rest = Reader::new(frames);
        loop {
            Self::take(&mut rest)?;
            if rest.is_empty() {
                return Ok(Self { frames });
            }
        }
    }

    /// Returns the frames with their REPLYs.
    pub fn iter(self) -> impl Iterator<Item = (Frame<'a>, Reply<'a>)> {
        let mut rest = Reader::new(self.frames);
        core::iter::from_fn(move || Self::take(&mut rest).ok())
    }

    fn take(rest: &mut Reader<'a>) -> Decoded<(Frame<'a>, Reply<'a>)> {
        let frame = Frame::take(rest)?;
        if frame.kind != Kind::Reply {
            return Err(DecodeError::NotCanonical);
        }
        Ok((frame, Reply::decode(frame.body)?))
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
