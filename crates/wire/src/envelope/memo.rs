//! Computes one digest for equal content of several senders.
//!
//! All PREPAREs for one number have the same fixed part, and share it with its PRE-PREPARE; all replicas send a short
//! result. Hashing each of these once is the cheapest way.

use alloc::vec::Vec;

use crate::envelope::digest::Digest;

/// The bytes that were digested last, and their digest. Never more than [`Memo::BYTES_MAX`] bytes: what
/// is longer is digested each time.
///
/// One memo serves one domain: the caller's digest is a function of the bytes alone.
#[derive(Clone, Debug, Default)]
pub struct Memo {
    bytes: Vec<u8>,
    digest: Option<Digest>,
}

impl Memo {
    /// Maximum number of bytes that are kept.
    pub const BYTES_MAX: usize = 1 << 10;

    /// Returns the digest of two parts in a row, which `digest` computes unless they are those of the
    /// last time.
    #[inline]
    pub fn of(&mut self, head: &[u8], tail: &[u8], digest: impl FnOnce() -> Digest) -> Digest {
        if let Some(known) = self.digest
            && self.bytes.split_at_checked(head.len()) == Some((head, tail))
        {
            return known;
        }
        let digest = digest();
        if head.len() + tail.len() <= Self::BYTES_MAX {
            self.bytes.clear();
            self.bytes.extend_from_slice(head);
            self.bytes.extend_from_slice(tail);
            self.digest = Some(digest);
        }
        digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A digest that is kept is never taken for that of other bytes.
    #[test]
    fn what_was_digested_last_changes_nothing() {
        let digest = |head: &[u8], tail: &[u8]| Digest(*blake3::hash(&[head, tail].concat()).as_bytes());
        let mut memo = Memo::default();
        let long = [1; Memo::BYTES_MAX + 1];
        let cases: [(&[u8], &[u8]); 9] = [
            (b"", b""),
            (b"", b"a"),
            (b"a", b""),
            (b"ab", b"c"),
            (b"a", b"bc"),
            (&long, b""),
            (b"", &long),
            (&long[1..], b""),
            (b"", b""),
        ];
        for (head, tail) in cases {
            for _ in 0..2 {
                assert_eq!(memo.of(head, tail, || digest(head, tail)), digest(head, tail));
            }
        }
    }

    #[test]
    fn the_same_bytes_are_digested_once() {
        let mut memo = Memo::default();
        memo.of(b"v", b"n", || Digest([1; 32]));
        assert_eq!(memo.of(b"v", b"n", || unreachable!("known")), Digest([1; 32]));
        assert_eq!(memo.of(b"v", b"m", || Digest([2; 32])), Digest([2; 32]));
    }
}
