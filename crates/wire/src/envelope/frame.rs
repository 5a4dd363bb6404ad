//! Frames: `magic 2 | version 1 | kind 1 | epoch 4 | sender 8 | body length 4 | body | auth kind 1 | auth`
//! (spec §2.1).
//!
//! A frame states its sender and proves it; the content is in the body. A relayed frame is verified by its own
//! authentication, not by its relayer.

use alloc::vec::Vec;

use crate::envelope::cluster::REPLICAS_MAX;
use crate::envelope::codec::{DecodeError, Decoded, Reader, Writer};
use crate::envelope::id::Principal;
use crate::envelope::seal::Kinds;

/// The first two bytes of every frame.
pub const MAGIC: u16 = 0x5142;
/// The version of the format.
pub const VERSION: u8 = 2;
/// Bytes before the body.
pub const HEADER_BYTES: usize = 20;
/// The longest frame, in bytes.
pub const FRAME_BYTES_MAX: usize = (1 << 20) + (12 << 10);
/// The longest frame that goes into a datagram, in bytes; longer ones use the side channel.
pub const PACKED_BYTES_MAX: usize = 56 << 10;

/// Bytes of a tag.
pub const TAG_BYTES: usize = 16;
/// Bytes of an entry of an authenticator: the receiver's key generation and a tag.
pub const ENTRY_BYTES: usize = 4 + TAG_BYTES;
/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// The number of an authentication: a MAC.
pub const MAC: u8 = 1;
/// The number of an authentication: an authenticator.
pub const AUTHENTICATOR: u8 = 2;
/// The number of an authentication: a signature.
pub const SIGNATURE: u8 = 3;
/// The number of an authentication: a signature and an authenticator.
pub const BOTH: u8 = 4;

/// The authentication after the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth<'a> {
    /// `1`: the sender's key generation and one entry, for one receiver.
    Mac {
        /// The sender's generation of session keys.
        key_id: u32,
        /// One entry.
        entries: Entries<'a>,
    },
    /// `2`: the sender's key generation and an entry for every replica but the sender, in id order.
    Authenticator {
        /// The sender's generation of session keys.
        key_id: u32,
        /// One entry a replica.
        entries: Entries<'a>,
    },
    /// `3`: a signature.
    Signature(&'a [u8; SIGNATURE_BYTES]),
    /// `4`: a signature and an authenticator.
    Both {
        /// The signature.
        signature: &'a [u8; SIGNATURE_BYTES],
        /// The sender's generation of session keys.
        key_id: u32,
        /// One entry a replica.
        entries: Entries<'a>,
    },
}

impl<'a> Auth<'a> {
    /// Returns the sender's key generation and the entries, if there are MACs.
    #[inline]
    pub fn entries(&self) -> Option<(u32, Entries<'a>)> {
        match *self {
            Self::Mac { key_id, entries }
            | Self::Authenticator { key_id, entries }
            | Self::Both { key_id, entries, .. } => Some((key_id, entries)),
            Self::Signature(_) => None,
        }
    }

    /// Returns the signature, if there is one.
    #[inline]
    pub fn signature(&self) -> Option<&'a [u8; SIGNATURE_BYTES]> {
        match *self {
            Self::Signature(signature) | Self::Both { signature, .. } => Some(signature),
            Self::Mac { .. } | Self::Authenticator { .. } => None,
        }
    }
}

/// The entries of an authenticator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries<'a> {
    bytes: &'a [u8],
}

impl<'a> Entries<'a> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.bytes.len() / ENTRY_BYTES
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the entry at `index`: the receiver's key generation and the tag.
    pub fn get(&self, index: usize) -> Option<(u32, &'a [u8; TAG_BYTES])> {
        let (key_id, tag) = self.bytes.get(index * ENTRY_BYTES..)?.split_first_chunk()?;
        Some((u32::from_le_bytes(*key_id), tag.first_chunk()?))
    }
}

/// A frame taken apart, not yet believed. `K` are the kinds of its protocol.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a, K> {
    /// The kind of message.
    pub kind: K,
    /// The configuration's epoch.
    pub epoch: u32,
    /// The claimed sender.
    pub sender: Principal,
    /// The body.
    pub body: &'a [u8],
    /// The authentication.
    pub auth: Auth<'a>,
    /// The whole frame.
    pub bytes: &'a [u8],
}

impl<'a, K: Kinds> Frame<'a, K> {
    /// Takes one frame from the front of `reader`; a datagram may carry several.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: as a call it costs 5 ns more a frame")]
    pub fn take(reader: &mut Reader<'a>) -> Decoded<Self> {
        let start = reader.clone();
        let header = Header::take(reader)?;
        let kind = K::of_number(header.kind)?;
        let body = reader.bytes(header.body_len)?;
        let auth = take_auth(reader)?;
        let len = start.len() - reader.len();
        let bytes = start.clone().bytes(len)?;
        let Header { epoch, sender, .. } = header;
        Ok(Self { kind, epoch, sender, body, auth, bytes })
    }

    /// Reads exactly one frame.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        let frame = Self::take(&mut reader)?;
        reader.end()?;
        Ok(frame)
    }
}

#[inline]
fn take_auth<'a>(r: &mut Reader<'a>) -> Decoded<Auth<'a>> {
    let signature = |r: &mut Reader<'a>| -> Decoded<&'a [u8; SIGNATURE_BYTES]> {
        r.bytes(SIGNATURE_BYTES)?.try_into().map_err(|_| DecodeError::Truncated)
    };
    let entries = |r: &mut Reader<'a>| -> Decoded<Entries<'a>> {
        let count = r.count8(u8::try_from(REPLICAS_MAX).unwrap_or(u8::MAX))?;
        Ok(Entries { bytes: r.bytes(count * ENTRY_BYTES)? })
    };
    match r.u8()? {
        MAC => {
            let key_id = r.u32()?;
            Ok(Auth::Mac { key_id, entries: Entries { bytes: r.bytes(ENTRY_BYTES)? } })
        }
        AUTHENTICATOR => Ok(Auth::Authenticator { key_id: r.u32()?, entries: entries(r)? }),
        SIGNATURE => Ok(Auth::Signature(signature(r)?)),
        BOTH => Ok(Auth::Both { signature: signature(r)?, key_id: r.u32()?, entries: entries(r)? }),
        _ => Err(DecodeError::NotCanonical),
    }
}

/// The fields before the body.
struct Header {
    kind: u8,
    epoch: u32,
    sender: Principal,
    body_len: usize,
}

impl Header {
    #[inline]
    fn take(reader: &mut Reader<'_>) -> Decoded<Self> {
        // As words: field by field, it is loaded byte by byte.
        let [magic_low, magic_high, version, kind, epoch @ ..] = reader.u64()?.to_le_bytes();
        let sender = Principal::from_wire(reader.u64()?);
        let body_len = reader.count32(FRAME_BYTES_MAX);
        if u16::from_le_bytes([magic_low, magic_high]) != MAGIC {
            return Err(DecodeError::NotCanonical);
        }
        if version != VERSION {
            return Err(DecodeError::OtherVersion(version));
        }
        Ok(Self { kind, epoch: u32::from_le_bytes(epoch), sender, body_len: body_len? })
    }
}

/// Appends header and body of a frame; the authentication follows.
pub fn begin(kind: impl Kinds, epoch: u32, sender: Principal, body: &[u8], out: &mut Vec<u8>) {
    begin_header(kind, epoch, sender, body.len(), out);
    out.extend_from_slice(body);
}

/// Appends the header of a frame; a body of `len` bytes and the authentication follow.
pub fn begin_header(kind: impl Kinds, epoch: u32, sender: Principal, len: usize, out: &mut Vec<u8>) {
    put_header(kind.number(), epoch, sender, len, out);
}

/// The same for the number of any kind.
pub(crate) fn put_header(kind: u8, epoch: u32, sender: Principal, len: usize, out: &mut Vec<u8>) {
    let Ok(len) = u32::try_from(len) else { unreachable!("a body is bounded by the frame") };
    let mut header = [0; HEADER_BYTES];
    header[..2].copy_from_slice(&MAGIC.to_le_bytes());
    header[2] = VERSION;
    header[3] = kind;
    header[4..8].copy_from_slice(&epoch.to_le_bytes());
    header[8..16].copy_from_slice(&sender.to_wire().to_le_bytes());
    header[16..].copy_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&header);
}

/// Appends a signature as the frame's authentication.
pub fn end_signed(signature: &[u8; SIGNATURE_BYTES], out: &mut Vec<u8>) {
    let mut w = Writer::new(out);
    w.u8(SIGNATURE);
    w.bytes(signature);
}
