//! The index of the page file: the slot and the digest of each page.
//!
//! ```text
//! chunk:  magic 4 | count 4 | generation 8 | number 8 | sealed 1 | seq 8 | root 32 | shape 16 | first 8 | zeros 7
//!         | sum 32 | entry* | zeros up to the next block
//! entry:  page 4 | slot 4 | lm 8 | digest 32
//! ```
//!
//! An index is a sequence of chunks, numbered from 0; later entries of a page replace earlier ones. A sealed chunk
//! makes everything up to it the checkpoint `seq`. Chunks of a sealed checkpoint are never overwritten: when the index
//! has become too long, a new one with the next generation replaces it.
//!
//! A crash can leave any chunks of the checkpoint that was being written, also its last one without those before. So
//! each chunk names the `first` one of its checkpoint: chunks are missing because of damage only if an earlier
//! checkpoint had them. The chunks of one checkpoint have the same seal: after two crashes, chunks of two checkpoints
//! may be side by side. What a crash has left behind the last seal is removed before anything is written there.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use quorate_service::page::PageLabel;
use quorate_wire::codec::{Reader, Writer};
use quorate_wire::{Digest, SeqNum};

use super::commit::BLOCK;

/// The first bytes of a chunk.
const MAGIC: u32 = 0x3149_5251;
/// Bytes before the entries.
const HEAD: usize = 128;
/// Bytes of the head that the checksum covers, in addition to the entries.
const COVERED: usize = 96;
/// Bytes of an entry.
const ENTRY: usize = 48;
/// Maximum number of entries of a chunk, so that damage to it affects few pages: twelve blocks.
const ENTRIES_MAX: usize = (12 * BLOCK - HEAD) / ENTRY;

/// The slot and the digest of a page. A page with the digest zero is empty and has no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) slot: u32,
    pub(super) label: PageLabel,
}

impl IndexEntry {
    /// Returns whether there is no page.
    pub(super) fn is_empty(&self) -> bool {
        self.label.digest == Digest::ZERO
    }
}

/// The checkpoint that an index describes completely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seal {
    pub(super) seq: SeqNum,
    pub(super) root: Digest,
    /// The executor's options.
    pub(super) shape: [u8; 16],
}

/// Appends entries to `out` as chunks from number `number` on, the last one sealed if there is a seal. Returns the number of
/// chunks.
pub(super) fn encode(
    key: &[u8; 32],
    generation: u64,
    number: u64,
    entries: &[IndexEntry],
    seal: Option<&Seal>,
    out: &mut Vec<u8>,
) -> u64 {
    let is_sealed = seal.is_some();
    let seal = seal.copied().unwrap_or_default();
    let count = entries.len().div_ceil(ENTRIES_MAX).max(1);
    let mut numbers = number..;
    for index in 0..count {
        let from = index * ENTRIES_MAX;
        let part = &entries[from..entries.len().min(from + ENTRIES_MAX)];
        let start = out.len();
        let mut w = Writer::new(out);
        w.u32(MAGIC);
        w.u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
        w.u64(generation);
        w.u64(numbers.next().unwrap_or(u64::MAX));
        w.u8(u8::from(is_sealed && index + 1 == count));
        w.u64(seal.seq.0);
        w.digest(&seal.root);
        w.bytes(&seal.shape);
        w.u64(number.saturating_add(1));
        out.resize(start + COVERED, 0);
        let sum_at = out.len();
        out.resize(start + HEAD, 0);
        let mut w = Writer::new(out);
        for IndexEntry { slot, label } in part {
            w.u32(label.page);
            w.u32(*slot);
            w.u64(label.modified.0);
            w.digest(&label.digest);
        }
        let sum = sum(key, &out[start..sum_at], &out[start + HEAD..]);
        out[sum_at..start + HEAD].copy_from_slice(&sum);
        out.resize(start + (out.len() - start).next_multiple_of(BLOCK), 0);
    }
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Returns the size of an index with this number of entries, in bytes.
pub(super) fn size(entries: usize) -> usize {
    entries.div_ceil(ENTRIES_MAX).max(1) * 12 * BLOCK
}

/// The content of an index.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Entries by page: those of the sealed checkpoint, or, if there is damage, those that can be read.
    pub(super) entries: BTreeMap<u32, IndexEntry>,
    /// The checkpoint; none: there is damage.
    pub(super) seal: Option<Seal>,
    /// Its chunks, and the place of the next one.
    pub(super) number: u64,
    pub(super) end: usize,
}

/// Parses an index.
pub(super) fn read(key: &[u8; 32], generation: u64, bytes: &[u8]) -> Index {
    let mut index = Index::default();
    // Unsealed chunks were being written.
    let mut unsealed: Vec<IndexEntry> = Vec::new();
    let mut apart: Vec<Chunk<'_>> = Vec::new();
    let (mut at, mut number, mut whole) = (0, 0, true);
    // The checkpoint whose chunks are being read: its first one says it.
    let mut current: Option<Seal> = None;
    while at < bytes.len() {
        let Some(chunk) = decode(key, generation, &bytes[at..]) else {
            whole = false;
            at += BLOCK;
            continue;
        };
        at += chunk.size;
        let seal = *current.get_or_insert(chunk.seal);
        let fits = |first| first == index.number && chunk.seal == seal;
        if whole && chunk.number == number && chunk.first.is_none_or(fits) {
            number += 1;
            unsealed.extend(chunk.entries());
            if chunk.is_last {
                index.seal = Some(chunk.seal);
                current = None;
                (index.number, index.end) = (number, at);
                index.entries.extend(unsealed.drain(..).map(|entry| (entry.label.page, entry)));
            }
            continue;
        }
        // A chunk after a missing one.
        whole = false;
        apart.push(chunk);
    }
    // The checkpoint behind the sealed one was not completed, nor one in its place before. Otherwise parts of an older
    // or newer checkpoint may be here, but not all of it.
    let is_cut = |chunk: &Chunk<'_>| chunk.first.is_some_and(|first| first <= index.number);
    if index.seal.is_none() || !apart.iter().all(is_cut) {
        index.seal = None;
        let all = unsealed.into_iter().chain(apart.iter().flat_map(Chunk::entries));
        index.entries.extend(all.map(|entry| (entry.label.page, entry)));
    }
    index.entries.retain(|_, entry| !entry.is_empty());
    index
}

/// A chunk that was read.
struct Chunk<'a> {
    number: u64,
    /// The first one of its checkpoint; none: an earlier version of this program did not say.
    first: Option<u64>,
    seal: Seal,
    /// It is the last one of its checkpoint.
    is_last: bool,
    entries: &'a [u8],
    size: usize,
}

impl<'a> Chunk<'a> {
    fn entries(&self) -> impl Iterator<Item = IndexEntry> + use<'a> {
        self.entries.chunks_exact(ENTRY).map_while(|entry| {
            let mut r = Reader::new(entry);
            let (page, slot) = (r.u32().ok()?, r.u32().ok()?);
            let label = PageLabel { page, modified: SeqNum(r.u64().ok()?), digest: r.digest().ok()? };
            Some(IndexEntry { slot, label })
        })
    }
}

fn decode<'a>(key: &[u8; 32], generation: u64, bytes: &'a [u8]) -> Option<Chunk<'a>> {
    let head = bytes.get(..HEAD)?;
    let mut r = Reader::new(head);
    if r.u32().ok()? != MAGIC {
        return None;
    }
    let count = usize::try_from(r.u32().ok()?).ok().filter(|count| *count <= ENTRIES_MAX)?;
    let entries = bytes.get(HEAD..HEAD + count * ENTRY)?;
    let (of, number, sealed) = (r.u64().ok()?, r.u64().ok()?, r.u8().ok()?);
    let seal = Seal { seq: SeqNum(r.u64().ok()?), root: r.digest().ok()?, shape: r.array().ok()? };
    let first = r.u64().ok()?.checked_sub(1);
    if of != generation || head[COVERED..] != sum(key, &head[..COVERED], entries) {
        return None;
    }
    let size = (HEAD + entries.len()).next_multiple_of(BLOCK);
    Some(Chunk { number, first, seal, is_last: sealed == 1, entries, size })
}

fn sum(key: &[u8; 32], head: &[u8], entries: &[u8]) -> [u8; 32] {
    let mut hash = blake3::Hasher::new_keyed(key);
    hash.update(head);
    hash.update(entries);
    *hash.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [5; 32];

    fn entry(page: u32, slot: u32) -> IndexEntry {
        IndexEntry { slot, label: PageLabel { page, modified: SeqNum(7), digest: Digest([9; 32]) } }
    }

    fn seal(seq: u64) -> Seal {
        Seal { seq: SeqNum(seq), root: Digest([4; 32]), shape: [3; 16] }
    }

    /// Three seals; the second takes three chunks.
    fn three() -> (Vec<u8>, [usize; 3]) {
        let mut out = Vec::new();
        let mut number = encode(&KEY, 2, 0, &[entry(1, 0), entry(2, 1)], Some(&seal(10)), &mut out);
        let first = out.len();
        let many: Vec<IndexEntry> = (0..2100).map(|page| entry(page, page + 5)).collect();
        number += encode(&KEY, 2, number, &many, Some(&seal(20)), &mut out);
        let second = out.len();
        let gone = IndexEntry { slot: 0, label: PageLabel { digest: Digest::ZERO, ..entry(3, 0).label } };
        assert_eq!(encode(&KEY, 2, number, &[gone, entry(1, 9)], Some(&seal(30)), &mut out), 1);
        let ends = [first, second, out.len()];
        (out, ends)
    }

    #[test]
    fn the_last_seal_counts_and_what_is_behind_it_does_not() {
        let (bytes, ends) = three();
        for (end, seq, pages) in [(ends[0], 10, 2), (ends[1], 20, 2100), (ends[2], 30, 2099)] {
            for torn in [0, 1, BLOCK, 3 * BLOCK] {
                let index = read(&KEY, 2, &bytes[..bytes.len().min(end + torn)]);
                if end + torn >= ends[2] && seq != 30 {
                    continue;
                }
                assert_eq!((index.seal, index.entries.len(), index.end), (Some(seal(seq)), pages, end));
            }
        }
        assert_eq!(read(&KEY, 2, &bytes).entries[&1].slot, 9, "the later one");
        assert!(read(&KEY, 3, &bytes).entries.is_empty(), "another generation");
        assert!(read(&[6; 32], 2, &bytes).entries.is_empty(), "another replica's");
    }

    /// D10: a power failure can leave any blocks of the checkpoint that was being written, also the last ones without
    /// those before. The checkpoint before is whole.
    #[test]
    fn d10_what_is_left_of_a_checkpoint_that_was_being_written_leaves_the_one_before() {
        let mut bytes = Vec::new();
        let number = encode(&KEY, 2, 0, &[entry(1, 0), entry(2, 1)], Some(&seal(10)), &mut bytes);
        let end = bytes.len();
        let many: Vec<IndexEntry> = (0..2100).map(|page| entry(page, page + 5)).collect();
        encode(&KEY, 2, number, &many, Some(&seal(20)), &mut bytes);
        let chunks = [end, end + 12 * BLOCK, end + 24 * BLOCK, bytes.len()];
        for kept in 0..8 {
            let mut torn = bytes.clone();
            for (i, place) in chunks.windows(2).enumerate().filter(|(i, _)| kept >> i & 1 == 0) {
                torn[place[0] + 512 * i..place[1]].fill(0);
            }
            let index = read(&KEY, 2, &torn);
            let (seq, pages, end) = if kept == 7 { (20, 2100, bytes.len()) } else { (10, 2, end) };
            assert_eq!((index.seal, index.entries.len(), index.end), (Some(seal(seq)), pages, end), "{kept}");
            // The next checkpoint takes its place. It is shorter: what is left behind it does not count.
            let mut next = Vec::new();
            encode(&KEY, 2, number, &[entry(3, 9)], Some(&seal(30)), &mut next);
            torn[chunks[0]..chunks[0] + next.len()].copy_from_slice(&next);
            let index = read(&KEY, 2, &torn);
            let end = chunks[0] + next.len();
            assert_eq!((index.seal, index.entries.len(), index.end), (Some(seal(30)), 3, end), "{kept}");
        }
    }

    /// L93: two checkpoints were being written to the same place, one after the other. Their chunks are no checkpoint.
    #[test]
    fn l93_what_is_left_of_two_checkpoints_is_none() {
        let mut bytes = Vec::new();
        let number = encode(&KEY, 2, 0, &[entry(1, 0), entry(2, 1)], Some(&seal(10)), &mut bytes);
        let (end, mut next) = (bytes.len(), Vec::new());
        let many = |slot: u32| (0..2100).map(|page| entry(page, page + slot)).collect::<Vec<_>>();
        encode(&KEY, 2, number, &many(5), Some(&seal(20)), &mut bytes);
        encode(&KEY, 2, number, &many(3000), Some(&seal(30)), &mut next);
        for kept in 1..4 {
            let mut mixed = bytes.clone();
            let len = kept * 12 * BLOCK;
            let kept_bytes = if kept == 3 { &next[..] } else { &next[..len] };
            mixed[end..end + kept_bytes.len()].copy_from_slice(kept_bytes);
            let index = read(&KEY, 2, &mixed);
            let (seq, pages) = if kept == 3 { (30, 2100) } else { (10, 2) };
            assert_eq!((index.seal, index.entries.len()), (Some(seal(seq)), pages), "{kept}");
        }
    }

    /// A damaged chunk affects only its own entries and the seal.
    #[test]
    fn damage_is_noticed_and_leaves_the_other_chunks() {
        let (bytes, ends) = three();
        for at in (0..ends[1]).step_by(509) {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            let index = read(&KEY, 2, &bad);
            if index.seal == Some(seal(30)) {
                assert_eq!(index.entries, read(&KEY, 2, &bytes).entries, "zeros behind a chunk");
                continue;
            }
            assert_eq!(index.seal, None, "byte {at}");
            assert!(index.entries.len() > 1000, "byte {at}: {} entries left", index.entries.len());
        }
        // The last one looks like one that was never finished.
        let mut bad = bytes;
        bad[ends[1] + 200] ^= 1;
        assert_eq!(read(&KEY, 2, &bad).seal, Some(seal(20)));
    }
}
