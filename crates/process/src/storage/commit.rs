//! A commit: the records that one sync makes durable, in whole blocks.
//!
//! ```text
//! magic 4 | length 4 | number 8 | known 8 | starts 8 | before 8 | sum 16 | zeros 8 | record* | zeros
//! record:  length 4 | kind 1 | bytes
//! ```
//!
//! Durable data is never overwritten: a commit begins on a new block, so that a torn write can only damage records
//! that were not acknowledged.

use alloc::vec::Vec;

use quorate_wire::codec::{Reader, Writer};

/// The size that every known disk writes atomically, or a multiple of it.
pub(super) const BLOCK: usize = 4096;
/// Bytes before the records.
const HEAD: usize = 64;
/// Bytes of the head that the checksum covers.
const COVERED: usize = 40;
/// Bytes of a checksum.
const SUM: usize = 16;
/// The first bytes of a commit.
const MAGIC: u32 = 0x314c_5251;
/// Bytes before a record: its length and kind.
const RECORD_HEAD: usize = 5;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// A record of the replica (`pbft/io/record.rs`).
    Replica = 0,
    /// The number of the first segment that is needed: earlier ones are about to be removed.
    Trim = 1,
}

/// The head of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Its number: 1, 2, ... without gaps.
    pub(super) number: u64,
    /// The last commit that was durable when this one was written.
    pub(super) known: u64,
    /// How often the replica had started.
    pub(super) starts: u64,
    /// The beginning of the checksum of the previous commit.
    pub(super) before: [u8; 8],
}

/// Appends a record.
pub(super) fn put(kind: RecordKind, bytes: &[u8], records: &mut Vec<u8>) {
    let mut w = Writer::new(records);
    w.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    w.u8(kind as u8);
    w.bytes(bytes);
}

/// Returns the size of a commit with this many bytes of records.
pub(super) fn size(records: usize) -> usize {
    (HEAD + records).next_multiple_of(BLOCK)
}

/// Completes `out` as a commit, and returns the value of `before` for the next one.
pub(super) fn encode(key: &[u8; 32], head: &Head, records: &[u8], out: &mut Vec<u8>) -> [u8; 8] {
    out.clear();
    let mut w = Writer::new(out);
    w.u32(MAGIC);
    w.u32(u32::try_from(records.len()).unwrap_or(u32::MAX));
    w.u64(head.number);
    w.u64(head.known);
    w.u64(head.starts);
    w.bytes(&head.before);
    let sum = sum(key, out, records);
    out.extend_from_slice(&sum);
    out.resize(HEAD, 0);
    out.extend_from_slice(records);
    out.resize(size(records.len()), 0);
    link(&sum)
}

/// Returns the number of the commit at the beginning of `bytes`, which may be incomplete.
pub(super) fn number(bytes: &[u8]) -> Option<u64> {
    let mut r = Reader::new(bytes.get(..HEAD)?);
    let (magic, _) = (r.u32().ok()?, r.u32().ok()?);
    if magic == MAGIC { r.u64().ok() } else { None }
}

/// A parsed commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Commit<'a> {
    pub(super) head: Head,
    /// The value of `before` in the next commit.
    pub(super) link: [u8; 8],
    records: &'a [u8],
    /// Its length, in whole blocks.
    pub(super) size: usize,
}

/// Parses the commit at the beginning of `bytes`, if it is complete.
pub(super) fn decode<'a>(key: &[u8; 32], bytes: &'a [u8]) -> Option<Commit<'a>> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let mut r = Reader::new(head);
    if r.u32().ok()? != MAGIC {
        return None;
    }
    let len = usize::try_from(r.u32().ok()?).ok()?;
    let records = rest.get(..len)?;
    let number = r.u64().ok()?;
    let (known, starts) = (r.u64().ok()?, r.u64().ok()?);
    let before = r.array().ok()?;
    let sum = sum(key, head.get(..COVERED)?, records);
    if mutant!(M140, head.get(COVERED..COVERED + SUM)? != sum, false) {
        return None;
    }
    Some(Commit { head: Head { number, known, starts, before }, link: link(&sum), records, size: size(len) })
}

impl<'a> Commit<'a> {
    /// Returns the records in order, up to one that cannot be parsed; the checksum has been verified.
    pub(super) fn records(&self) -> impl Iterator<Item = (RecordKind, &'a [u8])> + use<'a> {
        let mut rest = self.records;
        core::iter::from_fn(move || {
            let (head, tail) = rest.split_at_checked(RECORD_HEAD)?;
            let mut r = Reader::new(head);
            let len = usize::try_from(r.u32().ok()?).ok()?;
            let kind = match r.u8().ok()? {
                0 => RecordKind::Replica,
                1 => RecordKind::Trim,
                _ => return None,
            };
            let (bytes, after) = tail.split_at_checked(len)?;
            rest = after;
            Some((kind, bytes))
        })
    }
}

fn sum(key: &[u8; 32], head: &[u8], records: &[u8]) -> [u8; SUM] {
    let mut hash = blake3::Hasher::new_keyed(key);
    hash.update(head);
    hash.update(records);
    hash.finalize().as_bytes().first_chunk().copied().unwrap_or_default()
}

fn link(sum: &[u8; SUM]) -> [u8; 8] {
    sum.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [3; 32];
    const HEAD: Head = Head { number: 4, known: 3, starts: 2, before: [9; 8] };

    #[test]
    fn records_come_back() {
        let (mut records, mut out) = (Vec::new(), Vec::new());
        put(RecordKind::Replica, b"one", &mut records);
        put(RecordKind::Trim, &7_u64.to_le_bytes(), &mut records);
        put(RecordKind::Replica, &[5; 5000], &mut records);
        let link = encode(&KEY, &HEAD, &records, &mut out);
        assert_eq!(out.len(), 2 * BLOCK);
        let commit = decode(&KEY, &out).unwrap();
        assert_eq!((commit.head, commit.link, commit.size), (HEAD, link, out.len()));
        let kinds: Vec<_> = commit.records().map(|(kind, bytes)| (kind, bytes.len())).collect();
        assert_eq!(kinds, [(RecordKind::Replica, 3), (RecordKind::Trim, 8), (RecordKind::Replica, 5000)]);
        assert!(decode(&[4; 32], &out).is_none(), "another replica's log, or another life's");
    }

    #[test]
    fn every_bit_counts() {
        let (mut records, mut out) = (Vec::new(), Vec::new());
        put(RecordKind::Replica, b"one", &mut records);
        encode(&KEY, &HEAD, &records, &mut out);
        for bit in 0..8 * (super::HEAD + records.len()) {
            // The zeros at the end of the head are ignored.
            if (8 * (COVERED + SUM)..8 * super::HEAD).contains(&bit) {
                continue;
            }
            out[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&KEY, &out).is_none(), "bit {bit}");
            out[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
