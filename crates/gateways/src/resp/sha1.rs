//! SHA-1 [FIPS 180-4]: the name of a script in the Redis protocol. It protects nothing here.

/// Returns the digest in hexadecimal.
#[allow(clippy::many_single_char_names, reason = "the names of the standard")]
pub(super) fn sha1(text: &[u8]) -> [u8; 40] {
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut padded = text.to_vec();
    padded.push(0x80);
    // The last 8 bytes of the last block are the length.
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(u64::try_from(text.len()).unwrap_or(u64::MAX).wrapping_mul(8)).to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut w = [0_u32; 80];
        for (word, bytes) in w.iter_mut().zip(block.chunks_exact(4)) {
            *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
        for at in 16..80 {
            w[at] = (w[at - 3] ^ w[at - 8] ^ w[at - 14] ^ w[at - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (at, word) in w.iter().enumerate() {
            let (f, k) = match at / 20 {
                0 => (b & c | !b & d, 0x5a82_7999_u32),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6),
            };
            let next = a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k).wrapping_add(*word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        for (sum, part) in state.iter_mut().zip([a, b, c, d, e]) {
            *sum = sum.wrapping_add(part);
        }
    }
    let mut hex = [0; 40];
    let nibbles = state.iter().flat_map(|word| word.to_be_bytes()).flat_map(|byte| [byte >> 4, byte & 15]);
    for (place, nibble) in hex.iter_mut().zip(nibbles) {
        *place = if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        for (text, digest) in [
            ("", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            ("abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
        ] {
            assert_eq!(sha1(text.as_bytes()).as_slice(), digest.as_bytes(), "{text}");
        }
        assert_eq!(sha1(&vec![b'a'; 1_000_000]).as_slice(), b"34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}
