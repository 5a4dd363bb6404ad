//! Session keys, MACs and authenticators (spec §2.3).
//!
//! A message is hashed once, whoever is to get it; each receiver's entry is then one keyed hash of
//! that digest (CR-2), the MD5-context trick of [OSDI99 §5.2] with today's primitives. A key serves
//! one direction of one pair, and the kind, epoch, sender and receiver are inside what is hashed, so
//! a message can be neither reflected, nor passed off as another kind, nor moved to another
//! configuration (K16, K17, B28).

use crate::digest::{Digest, Domains};
use crate::frame::TAG_BYTES;
use crate::id::Principal;
use crate::message::{Kind, RequestFlags};

/// A tag: the first 16 bytes of a keyed hash.
pub type Tag = [u8; TAG_BYTES];

/// Bytes in front of the fixed part in what is hashed: `kind 1 | epoch 4 | sender 8`.
pub(crate) const COVERED_HEAD_BYTES: usize = 13;

/// Compares in constant time (CR-4).
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |acc, (x, y)| acc | (x ^ y)) == 0
}

/// Between whom a message goes, from the sender's side. Part of each entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ReplicaToReplica = 0,
    ClientToReplica = 1,
    ReplicaToClient = 2,
}

impl Direction {
    fn between(sender: Principal, receiver: Principal) -> Self {
        match (sender, receiver) {
            (Principal::Replica(_), Principal::Replica(_)) => Self::ReplicaToReplica,
            (Principal::Client(_), _) => Self::ClientToReplica,
            (Principal::Replica(_), Principal::Client(_)) => Self::ReplicaToClient,
        }
    }
}

/// `K[i->j]`: the key of everything that key holder `i` sends to key holder `j` (CR-1).
#[derive(Clone)]
pub struct SessionKey([u8; 32]);

impl core::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SessionKey(..)") // never the secret
    }
}

impl SessionKey {
    /// Derives `K[from->to]` from the pair's shared secret (KX-5). Each end is its key holder's
    /// number ([`Principal::key_holder`]) and its generation of keys.
    pub fn derive(shared: &[u8; 32], from: (u64, u32), to: (u64, u32)) -> Self {
        let mut material = [0; 56];
        material[..32].copy_from_slice(shared);
        material[32..40].copy_from_slice(&from.0.to_le_bytes());
        material[40..48].copy_from_slice(&to.0.to_le_bytes());
        material[48..52].copy_from_slice(&from.1.to_le_bytes());
        material[52..].copy_from_slice(&to.1.to_le_bytes());
        Self(blake3::derive_key("quorate/1/session", &material))
    }

    /// Returns the entry for `receiver` over a message's hash.
    ///
    /// `key_id` is the receiver's generation of keys. One compression.
    #[inline]
    pub fn tag(&self, hash: &Digest, key_id: u32, sender: Principal, receiver: Principal) -> Tag {
        let mut covered = [0; 45];
        covered[..32].copy_from_slice(&hash.0);
        covered[32..36].copy_from_slice(&key_id.to_le_bytes());
        covered[36] = Direction::between(sender, receiver) as u8;
        covered[37..].copy_from_slice(&receiver.key_holder().to_le_bytes());
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&blake3::keyed_hash(&self.0, &covered).as_bytes()[..TAG_BYTES]);
        tag
    }
}

/// Returns what stands in front of the fixed part in everything that is authenticated.
fn covered_head(kind: Kind, epoch: u32, sender: Principal) -> [u8; COVERED_HEAD_BYTES] {
    let mut head = [0; COVERED_HEAD_BYTES];
    head[0] = kind.to_wire();
    head[1..5].copy_from_slice(&epoch.to_le_bytes());
    head[5..].copy_from_slice(&sender.to_wire().to_le_bytes());
    head
}

/// Returns CR-2's `H`: kind, epoch, sender and the fixed part of the body
/// ([`crate::message::fixed_len`]).
///
/// From the stack, and a single compression for COMMIT and for PREPARE without piggybacked commits.
#[inline]
pub fn message_hash(domains: &Domains, kind: Kind, epoch: u32, sender: Principal, fixed: &[u8]) -> Digest {
    domains.message_parts(&covered_head(kind, epoch, sender), fixed)
}

/// Returns CR-2's `H` of a REQUEST: its digest stands for client, timestamp and operation; replier
/// and flags are covered besides (CR-3).
#[inline]
pub fn request_hash(
    domains: &Domains,
    epoch: u32,
    sender: Principal,
    request: &Digest,
    replier: Option<u16>,
    flags: RequestFlags,
) -> Digest {
    let mut fixed = [0; 35];
    fixed[..32].copy_from_slice(&request.0);
    fixed[32..34].copy_from_slice(&replier.unwrap_or(u16::MAX).to_le_bytes());
    fixed[34] = flags.to_wire();
    message_hash(domains, Kind::Request, epoch, sender, &fixed)
}

/// Returns what a signature covers: kind, epoch, sender and the whole body.
pub(crate) fn signature_hash(
    domains: &Domains,
    kind: Kind,
    epoch: u32,
    sender: Principal,
    body: &[u8],
) -> Digest {
    domains.signature_parts(&covered_head(kind, epoch, sender), body)
}
