//! BLAKE3's keyed hash of short inputs, at the cost of its compressions only.
//!
//! A replica hashes four or five times for each message, nearly always one or two blocks. The hasher of the crate
//! `blake3` is made for long inputs: it costs half as much again as the one compression that a tag needs, and
//! prevents the processor from overlapping several of them. So short inputs are compressed here, block by block. The
//! function is the same, so `docs/wire-format.md` does not mention it.
//!
//! The compression function itself is the crate's, in a module that it does not document. Its version is pinned for
//! that reason, and the test below compares every length with the documented function.

use blake3::Hasher;
use blake3::platform::{Platform, le_bytes_from_words_32, words_from_le_bytes_32};

use crate::envelope::digest::Digest;

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: usize = 64;

/// The same, as the compression takes it.
const BLOCK_LEN: u8 = 64;

/// Maximum number of bytes that are compressed here, about.
const SHORT_BYTES_MAX: usize = 4 * BLOCK_BYTES;

/// The flag of a chunk's first block. (An input of up to 16 blocks is one chunk.)
const CHUNK_START: u8 = 1;
/// The flags of the last block of the only chunk.
const CHUNK_END_ROOT: u8 = 1 << 1 | 1 << 3;
/// The flag of every block under a key.
const KEYED_HASH: u8 = 1 << 4;

/// A key of the keyed hash. A node has two for each peer, and for each message it needs another one: the fewer bytes, the
/// more of them are in the processor's cache.
#[derive(Clone)]
pub(crate) struct HashKey {
    words: [u32; 8],
    /// What this processor can do: asked once, not for each block.
    platform: Platform,
}

impl core::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashKey(..)") // it may be a secret
    }
}

impl HashKey {
    pub(crate) fn new(bytes: [u8; 32]) -> Self {
        Self { words: words_from_le_bytes_32(&bytes), platform: Platform::detect() }
    }

    fn bytes(&self) -> [u8; 32] {
        le_bytes_from_words_32(&self.words)
    }

    /// Returns a hasher for more than a few bytes.
    pub(crate) fn hasher(&self) -> Hasher {
        Hasher::new_keyed(&self.bytes())
    }

    /// Returns the first half of the hash of the first `len` bytes of `block`; the others are zeros.
    #[inline]
    pub(crate) fn tag(&self, block: &[u8; BLOCK_BYTES], len: u8) -> [u8; 16] {
        let mut state = self.words;
        self.compress(&mut state, block, len, CHUNK_START | CHUNK_END_ROOT);
        let mut tag = [0; 16];
        for (bytes, word) in tag.chunks_exact_mut(4).zip(state) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        tag
    }

    /// Returns the hash of `bytes`.
    pub(crate) fn hash(&self, bytes: &[u8]) -> Digest {
        if bytes.len() > SHORT_BYTES_MAX {
            return Digest(*blake3::keyed_hash(&self.bytes(), bytes).as_bytes());
        }
        self.finish(self.words, bytes, CHUNK_START)
    }

    /// Returns the hash of a head and a tail, as of one input.
    #[inline]
    pub(crate) fn hash_parts<const HEAD: usize>(&self, head: &[u8; HEAD], tail: &[u8]) -> Digest {
        const { assert!(HEAD < BLOCK_BYTES) };
        let mut block = [0; BLOCK_BYTES];
        block[..HEAD].copy_from_slice(head);
        let mut state = self.words;
        match tail.split_at_checked(BLOCK_BYTES - HEAD) {
            Some((first, rest)) if !rest.is_empty() => {
                if rest.len() > SHORT_BYTES_MAX {
                    return self.hash_long(head, tail);
                }
                block[HEAD..].copy_from_slice(first);
                self.compress(&mut state, &block, BLOCK_LEN, CHUNK_START);
                self.finish(state, rest, 0)
            }
            Some(_) | None => {
                block[HEAD..HEAD + tail.len()].copy_from_slice(tail);
                self.compress(&mut state, &block, len(HEAD + tail.len()), CHUNK_START | CHUNK_END_ROOT);
                digest(state)
            }
        }
    }

    fn hash_long(&self, head: &[u8], tail: &[u8]) -> Digest {
        let mut hasher = self.hasher();
        hasher.update(head);
        hasher.update(tail);
        Digest(*hasher.finalize().as_bytes())
    }

    /// Compresses the blocks that are left, and returns the hash. `flags` are the first one's.
    fn finish(&self, mut state: [u32; 8], mut left: &[u8], mut flags: u8) -> Digest {
        while let Some((block, rest)) = left.split_first_chunk()
            && !rest.is_empty()
        {
            self.compress(&mut state, block, BLOCK_LEN, flags);
            (left, flags) = (rest, 0);
        }
        let mut last = [0; BLOCK_BYTES];
        last[..left.len()].copy_from_slice(left);
        self.compress(&mut state, &last, len(left.len()), flags | CHUNK_END_ROOT);
        digest(state)
    }

    #[inline]
    fn compress(&self, state: &mut [u32; 8], block: &[u8; BLOCK_BYTES], len: u8, flags: u8) {
        self.platform.compress_in_place(state, block, len, 0, KEYED_HASH | flags);
    }
}

#[inline]
fn digest(state: [u32; 8]) -> Digest {
    let mut digest = Digest::ZERO;
    for (bytes, word) in digest.0.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

/// Returns a number of bytes in a block as the compression takes it.
#[inline]
fn len(bytes: usize) -> u8 {
    u8::try_from(bytes).unwrap_or(BLOCK_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every length on both sides of every border gives what the documented function gives.
    #[test]
    fn it_is_the_keyed_hash() {
        let bytes: [u8; SHORT_BYTES_MAX + 65] = core::array::from_fn(|i| i.to_le_bytes()[0] ^ 0x5a);
        let key_bytes = core::array::from_fn(|i| 7 * i.to_le_bytes()[0]);
        let key = HashKey::new(key_bytes);
        for len in 0..bytes.len() {
            let input = &bytes[..len];
            let expected = blake3::keyed_hash(&key_bytes, input);
            assert_eq!(key.hash(input).0, *expected.as_bytes(), "{len} bytes");
            if let Some((head, tail)) = input.split_first_chunk::<16>() {
                assert_eq!(key.hash_parts(head, tail).0, *expected.as_bytes(), "{len} bytes");
            }
            let mut block = [0; BLOCK_BYTES];
            if let Some(room) = block.get_mut(..len) {
                room.copy_from_slice(input);
                assert_eq!(
                    key.tag(&block, u8::try_from(len).unwrap()),
                    expected.as_bytes()[..16],
                    "{len} bytes"
                );
            }
        }
    }
}
