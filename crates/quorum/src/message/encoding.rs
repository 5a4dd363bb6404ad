//! The canonical encoding of a message: `channel_counter u64`, `object [32]`, then the fields of
//! its kind in the order below. An option is a byte 0 or 1 and the field; a value is a length u32
//! and its bytes; a list is a count u16 and its items. Decoding is total and bounded.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::ClientId;
use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};

use super::{Body, Copy, Message, Op, OptimisticRequest, Predecessor, PrepareRequest, Proof, Rid};
use crate::access::SignedList;
use crate::cert::{Evidence, PrepareCert, WriteCert};
use crate::crypto::Signature;
use crate::version::{ObjectId, VALUE_MAX, Value, Version};

/// The most objects in one COPIES.
pub const COPIES_MAX: u16 = 16;

impl Message {
    /// Appends the body of the frame whose kind is [`Body::kind`].
    pub fn encode(&self, counter: u64, out: &mut Vec<u8>) {
        let mut to = Writer::new(out);
        let w = &mut to;
        w.u64(counter);
        w.bytes(&self.object.0);
        match &self.body {
            Body::Qts { op } | Body::Rd { op } | Body::Refused { op } => put_op(w, *op),
            Body::Tsr { op, version, signature } => {
                put_op(w, *op);
                version.encode(w);
                put_signature(w, signature.as_ref());
            }
            Body::Store { op, version, value, proof, write_back } => {
                put_op(w, *op);
                put_stored(w, *version, value, proof);
                w.u8(u8::from(*write_back));
            }
            Body::Ack { op, version } => {
                put_op(w, *op);
                version.encode(w);
            }
            Body::RdVal { op, version, value, proof } => {
                put_op(w, *op);
                put_stored(w, *version, value, proof);
            }
            Body::Read { rid, attempt } => {
                put_rid(w, *rid);
                w.u8(*attempt);
            }
            Body::Val { rid, version, value, forwarded, signature } => {
                put_rid(w, *rid);
                version.encode(w);
                w.blob(value);
                w.u8(u8::from(*forwarded));
                put_signature(w, signature.as_ref());
            }
            Body::Rc { rid } | Body::Gone { rid } => put_rid(w, *rid),
            Body::Fstore { version, value, proof } => put_stored(w, *version, value, proof),
            Body::Fack { version } => version.encode(w),
            Body::ReadTs { op, nonce } | Body::BcRead { op, nonce } => {
                put_op(w, *op);
                put_nonce(w, *nonce);
            }
            Body::ReadTsReply { op, nonce, pcert } => {
                put_op(w, *op);
                put_nonce(w, *nonce);
                pcert.encode(w);
            }
            Body::Prepare { op, request, auth } => {
                put_op(w, *op);
                request.encode(w);
                put_signature(w, auth.as_ref());
            }
            Body::PrepareReply { op, version, signature } | Body::WriteReply { op, version, signature } => {
                put_op(w, *op);
                version.encode(w);
                w.bytes(signature);
            }
            Body::Write { op, value, pcert } => {
                put_op(w, *op);
                w.blob(value);
                pcert.encode(w);
            }
            Body::BcReadReply { op, nonce, value, pcert, wsig, wcert } => {
                put_op(w, *op);
                put_nonce(w, *nonce);
                w.blob(value);
                pcert.encode(w);
                put_signature(w, wsig.as_ref());
                put_wcert(w, wcert.as_ref());
            }
            Body::ReadTsPrep { op, nonce, request, auth } => {
                put_op(w, *op);
                put_nonce(w, *nonce);
                request.encode(w);
                put_signature(w, auth.as_ref());
            }
            Body::ReadTsPrepReply { op, nonce, pcert, opt } => {
                put_op(w, *op);
                put_nonce(w, *nonce);
                pcert.encode(w);
                w.u8(u8::from(opt.is_some()));
                if let Some((version, signature)) = opt {
                    version.encode(w);
                    w.bytes(signature);
                }
            }
            Body::Complete { wcert } => wcert.encode(w),
            Body::Pull => {}
            Body::Copies { items, more } => {
                w.count16(items.len());
                items.iter().for_each(|item| item.encode(w));
                w.u8(u8::from(*more));
            }
            Body::Access { signed } => signed.encode(w),
            Body::AccessRank { number, digest } => {
                w.u64(*number);
                w.digest(digest);
            }
        }
    }

    /// Reads the body of a frame of this kind, and returns its counter with it.
    pub fn decode(kind: u8, bytes: &[u8]) -> Decoded<(u64, Self)> {
        let mut from = Reader::new(bytes);
        let r = &mut from;
        let counter = r.u64()?;
        let object = ObjectId(r.array()?);
        let body = Body::decode(kind, r)?;
        from.end()?;
        Ok((counter, Self { object, body }))
    }

    /// Returns how many bytes it has in a frame.
    pub fn encoded_len(&self) -> usize {
        let mut bytes = Vec::new();
        self.encode(0, &mut bytes);
        bytes.len()
    }
}

impl Body {
    fn decode(kind: u8, r: &mut Reader<'_>) -> Decoded<Self> {
        Ok(match kind {
            64 => Self::Qts { op: op(r)? },
            65 => Self::Tsr { op: op(r)?, version: Version::decode(r)?, signature: signature(r)? },
            66 => Self::Store {
                op: op(r)?,
                version: Version::decode(r)?,
                value: value(r)?,
                proof: proof(r)?,
                write_back: r.bool()?,
            },
            67 => Self::Ack { op: op(r)?, version: Version::decode(r)? },
            68 => Self::Rd { op: op(r)? },
            69 => {
                Self::RdVal { op: op(r)?, version: Version::decode(r)?, value: value(r)?, proof: proof(r)? }
            }
            70 => Self::Read { rid: rid(r)?, attempt: r.u8()? },
            71 => Self::Val {
                rid: rid(r)?,
                version: Version::decode(r)?,
                value: value(r)?,
                forwarded: r.bool()?,
                signature: signature(r)?,
            },
            72 => Self::Rc { rid: rid(r)? },
            73 => Self::Gone { rid: rid(r)? },
            74 => Self::Fstore { version: Version::decode(r)?, value: value(r)?, proof: proof(r)? },
            75 => Self::Fack { version: Version::decode(r)? },
            76 => Self::ReadTs { op: op(r)?, nonce: nonce(r)? },
            77 => Self::ReadTsReply { op: op(r)?, nonce: nonce(r)?, pcert: PrepareCert::decode(r)? },
            78 => Self::Prepare {
                op: op(r)?,
                request: Arc::new(PrepareRequest::decode(r)?),
                auth: signature(r)?,
            },
            79 => Self::PrepareReply { op: op(r)?, version: Version::decode(r)?, signature: r.array()? },
            80 => Self::Write { op: op(r)?, value: value(r)?, pcert: PrepareCert::decode(r)? },
            81 => Self::WriteReply { op: op(r)?, version: Version::decode(r)?, signature: r.array()? },
            82 => Self::BcRead { op: op(r)?, nonce: nonce(r)? },
            83 => Self::BcReadReply {
                op: op(r)?,
                nonce: nonce(r)?,
                value: value(r)?,
                pcert: PrepareCert::decode(r)?,
                wsig: signature(r)?,
                wcert: wcert(r)?,
            },
            84 => Self::ReadTsPrep {
                op: op(r)?,
                nonce: nonce(r)?,
                request: Arc::new(OptimisticRequest::decode(r)?),
                auth: signature(r)?,
            },
            85 => Self::ReadTsPrepReply {
                op: op(r)?,
                nonce: nonce(r)?,
                pcert: PrepareCert::decode(r)?,
                opt: if r.bool()? { Some((Version::decode(r)?, r.array()?)) } else { None },
            },
            86 => Self::Complete { wcert: WriteCert::decode(r)? },
            87 => Self::Pull,
            88 => {
                let count = r.count16(COPIES_MAX)?;
                let mut items: Vec<Copy> = Vec::with_capacity(count);
                for _ in 0..count {
                    let item = Copy::decode(r)?;
                    if items.last().is_some_and(|before| before.object >= item.object) {
                        return Err(DecodeError::NotCanonical);
                    }
                    items.push(item);
                }
                Self::Copies { items: items.into(), more: r.bool()? }
            }
            100 => Self::Access { signed: Arc::new(SignedList::decode(r)?) },
            101 => Self::AccessRank { number: r.u64()?, digest: r.digest()? },
            102 => Self::Refused { op: op(r)? },
            other => return Err(DecodeError::UnknownKind(other)),
        })
    }
}

impl PrepareRequest {
    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.client.0);
        match &self.predecessor {
            Predecessor::Prepared(pcert) => {
                w.u8(0);
                pcert.encode(w);
            }
            Predecessor::Completed(wcert) => {
                w.u8(1);
                wcert.encode(w);
            }
        }
        self.version.encode(w);
        put_wcert(w, self.own.as_ref());
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        Ok(Self {
            client: ClientId(r.u64()?),
            predecessor: if r.bool()? {
                Predecessor::Completed(WriteCert::decode(r)?)
            } else {
                Predecessor::Prepared(PrepareCert::decode(r)?)
            },
            version: Version::decode(r)?,
            own: wcert(r)?,
        })
    }
}

impl OptimisticRequest {
    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.client.0);
        w.digest(&self.digest);
        w.digest(&self.lock);
        put_wcert(w, self.own.as_ref());
        put_wcert(w, self.predecessor.as_ref());
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        Ok(Self {
            client: ClientId(r.u64()?),
            digest: r.digest()?,
            lock: r.digest()?,
            own: wcert(r)?,
            predecessor: wcert(r)?,
        })
    }
}

impl Copy {
    fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&self.object.0);
        put_stored(w, self.version, &self.value, &self.proof);
        w.u8(u8::from(self.pcert.is_some()));
        if let Some(pcert) = &self.pcert {
            pcert.encode(w);
        }
        put_wcert(w, self.wcert.as_ref());
    }

    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        Ok(Self {
            object: ObjectId(r.array()?),
            version: Version::decode(r)?,
            value: value(r)?,
            proof: proof(r)?,
            pcert: if r.bool()? { Some(PrepareCert::decode(r)?) } else { None },
            wcert: wcert(r)?,
        })
    }
}

pub(crate) fn put_op(w: &mut Writer<'_>, op: Op) {
    w.u32(op.incarnation);
    w.u64(op.number);
    w.u8(op.phase);
}

pub(crate) fn op(r: &mut Reader<'_>) -> Decoded<Op> {
    Ok(Op { incarnation: r.u32()?, number: r.u64()?, phase: r.u8()? })
}

fn put_rid(w: &mut Writer<'_>, rid: Rid) {
    w.u32(rid.incarnation);
    w.u64(rid.counter);
}

fn rid(r: &mut Reader<'_>) -> Decoded<Rid> {
    Ok(Rid { incarnation: r.u32()?, counter: r.u64()? })
}

fn put_nonce(w: &mut Writer<'_>, nonce: u128) {
    w.bytes(&nonce.to_le_bytes());
}

fn nonce(r: &mut Reader<'_>) -> Decoded<u128> {
    Ok(u128::from_le_bytes(r.array()?))
}

pub(crate) fn put_signature(w: &mut Writer<'_>, signature: Option<&Signature>) {
    w.u8(u8::from(signature.is_some()));
    if let Some(signature) = signature {
        w.bytes(signature);
    }
}

pub(crate) fn signature(r: &mut Reader<'_>) -> Decoded<Option<Signature>> {
    if r.bool()? { Ok(Some(r.array()?)) } else { Ok(None) }
}

pub(crate) fn put_wcert(w: &mut Writer<'_>, wcert: Option<&WriteCert>) {
    w.u8(u8::from(wcert.is_some()));
    if let Some(wcert) = wcert {
        wcert.encode(w);
    }
}

pub(crate) fn wcert(r: &mut Reader<'_>) -> Decoded<Option<WriteCert>> {
    if r.bool()? { Ok(Some(WriteCert::decode(r)?)) } else { Ok(None) }
}

pub(crate) fn put_stored(w: &mut Writer<'_>, version: Version, value: &Value, proof: &Proof) {
    version.encode(w);
    w.blob(value);
    put_signature(w, proof.signature.as_ref());
    w.u8(u8::from(proof.evidence.is_some()));
    if let Some(evidence) = &proof.evidence {
        evidence.encode(w);
    }
}

pub(crate) fn value(r: &mut Reader<'_>) -> Decoded<Value> {
    Ok(r.blob(VALUE_MAX)?.into())
}

pub(crate) fn proof(r: &mut Reader<'_>) -> Decoded<Proof> {
    Ok(Proof {
        signature: signature(r)?,
        evidence: if r.bool()? { Some(Evidence::decode(r)?) } else { None },
    })
}
