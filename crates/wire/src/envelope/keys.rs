//! Session keys, MACs and authenticators (spec §2.3).
//!
//! Each receiver's entry is a keyed hash of the message: of the bytes themselves if they fit one block, otherwise of
//! their hash, which is computed once for all receivers (CR-2), the MD5-context trick of [OSDI99 §5.2] with today's
//! primitives. Equal content of several senders is also hashed only once.
//!
//! A key is for one direction of one pair in one cluster, and for one generation of each end. Kind, epoch and sender
//! are authenticated, so a message cannot be reflected, used as another kind, or moved to another configuration (K16,
//! K17, B28).

use crate::envelope::digest::{ClusterId, Digest, Domains};
use crate::envelope::frame::{SIGNATURE_BYTES, TAG_BYTES};
use crate::envelope::id::Principal;
use crate::envelope::memo::Memo;
use crate::envelope::short::{BLOCK_BYTES, HashKey};

/// Bytes of the counter of a channel.
pub const COUNTER_BYTES: usize = 8;

/// A tag: the first 16 bytes of a keyed hash.
pub type Tag = [u8; TAG_BYTES];

/// Bytes in front of the fixed part in what is hashed: `kind 1 | epoch 4 | sender 8`.
pub(crate) const COVERED_HEAD_BYTES: usize = 13;

/// Compares in constant time (CR-4).
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |acc, (x, y)| acc | (x ^ y)) == 0
}

/// Compares two tags in constant time (CR-4), each as one number.
#[inline]
pub(crate) fn equal_tags(a: Tag, b: &Tag) -> bool {
    u128::from_le_bytes(a) ^ u128::from_le_bytes(*b) == 0
}

/// `K[i->j]`: the key of everything that key holder `i` sends to key holder `j` (CR-1).
#[derive(Clone)]
pub struct SessionKey(HashKey);

impl core::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SessionKey(..)") // never the secret
    }
}

impl SessionKey {
    /// Derives `K[from->to]` from the pair's shared secret (KX-5). Each end is its key holder's
    /// number ([`Principal::key_holder`]) and its generation of keys.
    pub fn derive(cluster: ClusterId, shared: &[u8; 32], from: (u64, u32), to: (u64, u32)) -> Self {
        let mut material = [0; 88];
        material[..32].copy_from_slice(shared);
        material[32..64].copy_from_slice(&cluster.0);
        material[64..72].copy_from_slice(&from.0.to_le_bytes());
        material[72..80].copy_from_slice(&to.0.to_le_bytes());
        material[80..84].copy_from_slice(&from.1.to_le_bytes());
        material[84..].copy_from_slice(&to.1.to_le_bytes());
        Self(HashKey::new(blake3::derive_key("quorate/1/session", &material)))
    }

    /// Returns the tag of what is covered.
    #[inline]
    pub fn tag(&self, covered: &Covered) -> Tag {
        self.0.tag(&covered.bytes, covered.len)
    }
}

/// Maximum number of bytes that an entry covers as they are: one block of the hash.
const DIRECT_BYTES_MAX: usize = BLOCK_BYTES;

/// The number in front where the fixed part is hashed: no kind has it.
pub(crate) const HASHED: u8 = 0;

/// Bytes that an entry covers where the fixed part is hashed: [`HASHED`], the head and the digest.
const HASHED_BYTES: usize = 1 + COVERED_HEAD_BYTES + 32;

/// What each entry of a message covers: kind, epoch, sender and the fixed part of the body
/// ([`Protocol::covered`](crate::envelope::auth::Protocol::covered)), or the fixed part's hash.
#[derive(Clone, Debug)]
pub struct Covered {
    /// Zeros behind the first `len` bytes.
    bytes: [u8; DIRECT_BYTES_MAX],
    len: u8,
}

impl Covered {
    /// Returns what the entries of a message cover: the fixed part of its body, or the hash of that if it is long (CR-2).
    #[inline]
    pub fn message(
        domains: &Domains,
        last: &mut Memo,
        kind: u8,
        epoch: u32,
        sender: Principal,
        fixed: &[u8],
    ) -> Self {
        let head = covered_head(kind, epoch, sender);
        // Put together in its place: to move what was just written in pieces is slow.
        let mut covered = Self { bytes: [0; DIRECT_BYTES_MAX], len: 0 };
        let bytes = &mut covered.bytes;
        let len = if fixed.len() <= DIRECT_BYTES_MAX - COVERED_HEAD_BYTES {
            bytes[..COVERED_HEAD_BYTES].copy_from_slice(&head);
            let len = COVERED_HEAD_BYTES + fixed.len();
            bytes[COVERED_HEAD_BYTES..len].copy_from_slice(fixed);
            len
        } else {
            bytes[0] = HASHED;
            bytes[1..=COVERED_HEAD_BYTES].copy_from_slice(&head);
            let digest = last.of(fixed, &[], || domains.message(fixed));
            bytes[1 + COVERED_HEAD_BYTES..HASHED_BYTES].copy_from_slice(&digest.0);
            HASHED_BYTES
        };
        covered.len = u8::try_from(len).unwrap_or(u8::MAX);
        covered
    }

    /// Returns what the entry of a message covers whose body begins with the counter of a channel: the counter, and the
    /// digest of what is behind it, which is the same for all receivers (ADR 14).
    #[inline]
    pub fn counted(
        domains: &Domains,
        last: &mut Memo,
        kind: u8,
        epoch: u32,
        sender: Principal,
        body: &[u8],
    ) -> Self {
        let (counter, rest) = body.split_at_checked(COUNTER_BYTES).unwrap_or((&[], body));
        let mut bytes = [0; DIRECT_BYTES_MAX];
        bytes[..13].copy_from_slice(&covered_head(kind, epoch, sender));
        if let Some(place) = bytes.get_mut(13..13 + counter.len()) {
            place.copy_from_slice(counter);
        }
        bytes[21..53].copy_from_slice(&last.of(rest, &[], || domains.message(rest)).0);
        Self { bytes, len: 53 }
    }

    /// Returns what the entries of a message cover whose fixed part the protocol puts together itself. It fits one block,
    /// or this does not compile.
    #[inline]
    pub fn block<const FIXED: usize>(kind: u8, epoch: u32, sender: Principal, fixed: &[u8; FIXED]) -> Self {
        const { assert!(COVERED_HEAD_BYTES + FIXED <= DIRECT_BYTES_MAX) }
        let mut bytes = [0; DIRECT_BYTES_MAX];
        bytes[..COVERED_HEAD_BYTES].copy_from_slice(&covered_head(kind, epoch, sender));
        bytes[COVERED_HEAD_BYTES..COVERED_HEAD_BYTES + FIXED].copy_from_slice(fixed);
        Self { bytes, len: u8::try_from(COVERED_HEAD_BYTES + FIXED).unwrap_or(u8::MAX) }
    }

    /// Returns what the entries beside a signature cover: this signature over this digest, which covers
    /// kind, epoch, sender and body.
    pub(crate) fn signed(
        kind: u8,
        epoch: u32,
        sender: Principal,
        digest: &Digest,
        signature: &[u8; SIGNATURE_BYTES],
    ) -> Self {
        let mut bytes = [0; DIRECT_BYTES_MAX];
        bytes[..13].copy_from_slice(&covered_head(kind, epoch, sender));
        bytes[13..45].copy_from_slice(&digest.0);
        bytes[45..61].copy_from_slice(&blake3::hash(signature).as_bytes()[..16]);
        Self { bytes, len: 61 }
    }

    #[cfg(test)]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Returns what stands in front of the fixed part in everything that is authenticated.
#[inline]
fn covered_head(kind: u8, epoch: u32, sender: Principal) -> [u8; COVERED_HEAD_BYTES] {
    // In one piece: what is put together from small stores is slow to load again.
    let head = u128::from(kind) | u128::from(epoch) << 8 | u128::from(sender.to_wire()) << 40;
    let [bytes @ .., _, _, _] = head.to_le_bytes();
    bytes
}

/// Returns what a signature covers: kind, epoch, sender and the whole body.
pub(crate) fn signature_hash(
    domains: &Domains,
    kind: u8,
    epoch: u32,
    sender: Principal,
    body: &[u8],
) -> Digest {
    domains.signature_parts(&covered_head(kind, epoch, sender), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXED_MAX: usize = DIRECT_BYTES_MAX - COVERED_HEAD_BYTES;

    fn covered(last: &mut Memo, kind: u8, fixed: &[u8]) -> Covered {
        let domains = Domains::new(ClusterId([7; 32]));
        Covered::message(&domains, last, kind, 3, Principal::from_wire(2), fixed)
    }

    /// CR-2: few bytes are covered as they are, many by their hash, of the same length whatever theirs.
    #[test]
    fn what_is_long_is_hashed_first() {
        let last = &mut Memo::default();
        let bytes = [5; FIXED_MAX + 2];
        let direct = covered(last, 7, &bytes[..FIXED_MAX]);
        assert_eq!(direct.bytes()[COVERED_HEAD_BYTES..], bytes[..FIXED_MAX]);
        let long = covered(last, 7, &bytes[..=FIXED_MAX]);
        let longer = covered(last, 7, &bytes);
        for hashed in [&long, &longer] {
            assert_eq!((hashed.bytes().len(), hashed.bytes()[0]), (46, HASHED));
        }
        assert_ne!(long.bytes(), longer.bytes());
    }

    /// The kind is covered in addition to the hash, which PRE-PREPARE and PREPARE share.
    #[test]
    fn what_is_hashed_for_one_kind_is_not_for_another() {
        let last = &mut Memo::default();
        let pre_prepare = covered(last, 3, &[1; 60]);
        assert_ne!(covered(last, 4, &[1; 60]).bytes(), pre_prepare.bytes());
    }

    /// B28: a key is of one cluster, one direction, one pair and one generation of each end.
    #[test]
    fn keys_differ_in_whatever_they_are_derived_from() {
        let of = |cluster, shared, from, to| {
            SessionKey::derive(ClusterId([cluster; 32]), &[shared; 32], from, to).0.tag(&[0; BLOCK_BYTES], 0)
        };
        let key = of(1, 1, (1, 1), (2, 2));
        let others = [
            of(2, 1, (1, 1), (2, 2)),
            of(1, 2, (1, 1), (2, 2)),
            of(1, 1, (2, 2), (1, 1)),
            of(1, 1, (3, 1), (2, 2)),
            of(1, 1, (1, 3), (2, 2)),
            of(1, 1, (1, 1), (3, 2)),
            of(1, 1, (1, 1), (2, 3)),
        ];
        assert!(others.iter().all(|other| *other != key));
    }
}
