//! Blocks that describe themselves: whose they are, where they belong, which writing they are of, and a checksum.
//!
//! ```text
//! 0 magic  8 file  16 number  24 generation  32 checksum of the rest  40 body, which follows from the first four
//! ```

use std::hash::{DefaultHasher, Hasher as _};

/// Bytes of a block.
pub(crate) const BYTES: usize = 4096;
const MAGIC: u64 = 0x6b63_6f6c_6265_7471;
const WORD: usize = 8;
const BODY: usize = 5 * WORD;

/// Returns the block of a file at a place, as it was written at that generation: from 1; 0 is a hole.
pub(crate) fn make(file: u64, number: u64, generation: u64) -> Vec<u8> {
    if generation == 0 {
        return vec![0; BYTES];
    }
    let mut random = Random(file.rotate_left(40) ^ number.rotate_left(20) ^ generation);
    let body: Vec<u8> = (0..(BYTES - BODY) / WORD).flat_map(|_| random.next().to_le_bytes()).collect();
    let head = [MAGIC, file, number, generation].map(u64::to_le_bytes).concat();
    let sum = checksum(&head, &body).to_le_bytes();
    [head.as_slice(), sum.as_slice(), body.as_slice()].concat()
}

/// Returns the generation of a block that was read, or what is wrong with it.
pub(crate) fn generation(bytes: &[u8], file: u64, number: u64) -> Result<u64, String> {
    if bytes.len() == BYTES && bytes.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let word = |at: usize| {
        let word = bytes.get(at * WORD..(at + 1) * WORD).and_then(|word| word.try_into().ok());
        word.map_or(0, u64::from_le_bytes)
    };
    if word(0) != MAGIC {
        return Err(format!(
            "no block of ours: {} bytes, {:02x?}...",
            bytes.len(),
            &bytes[..bytes.len().min(WORD)]
        ));
    }
    let (of, at, generation) = (word(1), word(2), word(3));
    if (of, at) != (file, number) {
        return Err(format!("it is block {at} of file {of:x} at generation {generation}"));
    }
    if bytes != make(file, number, generation) {
        return Err(format!("it says generation {generation}, and has another content"));
    }
    Ok(generation)
}

fn checksum(head: &[u8], body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(head);
    hasher.write(body);
    hasher.finish()
}

/// Numbers that follow from a seed (splitmix64).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or 0 if that is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_knows_whose_it_is() {
        let block = make(7, 3, 2);
        assert_eq!(block.len(), BYTES);
        assert_eq!(generation(&block, 7, 3), Ok(2));
        assert!(generation(&block, 7, 4).is_err() && generation(&block, 8, 3).is_err());
        assert_eq!(generation(&[0; BYTES], 7, 3), Ok(0));
    }

    #[test]
    fn a_block_that_was_changed_or_cut_is_found() {
        for at in [0, 8, 16, 24, 32, 40, BYTES - 1] {
            let mut block = make(7, 3, 2);
            block[at] ^= 1;
            assert!(generation(&block, 7, 3).is_err(), "byte {at}");
        }
        assert!(generation(&make(7, 3, 2)[..BYTES - 1], 7, 3).is_err());
        // Half of it was written.
        let mut torn = make(7, 3, 2);
        torn[2048..].copy_from_slice(&make(7, 3, 1)[2048..]);
        assert!(generation(&torn, 7, 3).is_err());
    }
}
