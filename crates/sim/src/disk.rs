//! A disk: a log of records and the images of checkpoints, with all their faults (H1, H3-H7, H11).
//!
//! The log has the format of a node's log: every record carries a checksum over its bytes and the record before it,
//! and how much of the log was known to be durable when it was written. So a bad record is either a torn tail, which
//! was not acknowledged and is cut (spec §14.3), or damage to acknowledged data: then the log cannot be trusted and
//! the replica has lost its state (spec §14.4). Later records show which of the two it is.

use quorate_pbft::step::Lsn;
use quorate_wire::{Digest, SeqNum};

use crate::rng::{Concern, Rng};

pub mod files;

/// One record as it lies on the disk.
#[derive(Clone, Debug)]
struct Entry {
    /// The record's own place; increases along the log.
    place: u64,
    /// The replica's name for it, good for one incarnation.
    lsn: Lsn,
    /// Up to which place the log was known to be durable when this was written.
    known: u64,
    /// Checksum over the checksum before, the place, `known` and the bytes.
    sum: u64,
    bytes: Vec<u8>,
}

/// A checkpoint's state, flushed to the disk.
#[derive(Clone, Debug)]
pub struct Image<I> {
    /// The checkpoint.
    pub seq: SeqNum,
    /// Its root.
    pub root: Digest,
    /// The state.
    pub state: I,
    rotten: bool,
}

/// How fast a disk is, in nanoseconds for one sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The shortest sync.
    pub low_ns: u64,
    /// The longest sync.
    pub high_ns: u64,
}

impl Pace {
    /// A solid-state disk.
    pub const FAST: Self = Self { low_ns: 50_000, high_ns: 400_000 };
    /// One that is in trouble (H11).
    pub const SLOW: Self = Self { low_ns: 20_000_000, high_ns: 200_000_000 };
}

/// Damage to a disk after everything was durable (H4, H5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A bit of a record flips.
    BitRot,
    /// A record reads as zeros.
    Zeroed,
    /// A record was written over another one.
    Misdirected,
    /// A record that was reported to be durable was never written.
    Lost,
    /// The newest image of a checkpoint no longer matches its root.
    ImageRot,
}

impl Damage {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::BitRot, Self::Zeroed, Self::Misdirected, Self::Lost, Self::ImageRot];
}

/// The result of reading the disk at a start.
#[derive(Debug)]
pub enum Found {
    /// Nothing: a new disk.
    Empty,
    /// Everything that was promised. `cut` says that a torn tail was discarded.
    Log {
        /// The records, oldest first.
        records: Vec<Vec<u8>>,
        /// There was a torn tail.
        cut: bool,
    },
    /// Something that was promised is gone: amnesia.
    Damaged,
}

/// The disk of one replica. Its log holds what [`Disk::trim`] has kept and what came since; its images
/// are at most two.
#[derive(Clone, Debug)]
pub struct Disk<I> {
    rng: Rng,
    pace: Pace,
    log: Vec<Entry>,
    next_place: u64,
    /// Everything up to this place is on the platter.
    durable: u64,
    /// The sync in flight covers everything up to this place.
    syncing: Option<u64>,
    images: Vec<Image<I>>,
    incarnation: u64,
    /// The last durable record when the images or the incarnation were last written.
    known: u64,
    /// The replica that writes here has lost its memory, and has not rejoined since.
    rejoining: bool,
    full: bool,
}

impl<I: Clone> Disk<I> {
    /// Returns an empty disk.
    pub fn new(seed: u64, index: usize, pace: Pace) -> Self {
        Self {
            rng: Rng::nth(seed, Concern::Disk, index),
            pace,
            log: Vec::new(),
            next_place: 1,
            durable: 0,
            syncing: None,
            images: Vec::new(),
            incarnation: 0,
            known: 0,
            rejoining: false,
            full: false,
        }
    }

    /// Sets how fast it is.
    pub fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// Sets whether the disk is full. A full disk finishes no sync (GC-4).
    pub fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// Records a start and returns how many there have been (spec §14.3), or `at_least` if that is more.
    pub fn start(&mut self, at_least: u64) -> u64 {
        self.incarnation = (self.incarnation + 1).max(at_least);
        self.known = self.last_durable();
        self.incarnation
    }

    /// Clears the log and the images of a replica that has lost its memory, and notes that: what it
    /// writes from now on is no memory either, until it has rejoined.
    pub fn forget(&mut self) {
        self.log.clear();
        self.images.clear();
        self.durable = self.next_place - 1;
        (self.known, self.rejoining) = (0, true);
    }

    /// Records that the replica itself has found that this is no memory (H7), and how often it has started at least.
    pub fn distrust(&mut self, starts: u64) {
        self.rejoining = true;
        self.incarnation = self.incarnation.max(starts);
    }

    /// Returns how many starts there have been.
    pub fn starts(&self) -> u64 {
        self.incarnation
    }

    /// Records that it has rejoined.
    pub fn rejoined(&mut self) {
        self.rejoining = false;
    }

    /// Returns whether something that was written is not durable yet.
    pub fn is_behind(&self) -> bool {
        self.log.last().is_some_and(|last| last.place > self.durable)
    }

    /// Appends a record; it is not durable yet.
    pub fn append(&mut self, lsn: Lsn, bytes: &[u8]) {
        let before = self.log.last().map_or(0, |entry| entry.sum);
        let (place, known) = (self.next_place, self.durable);
        self.next_place += 1;
        let sum = checksum(before, place, known, bytes);
        self.log.push(Entry { place, lsn, known, sum, bytes: bytes.to_vec() });
    }

    /// Begins a sync if there is something to sync and none is in progress. Returns how long it takes.
    pub fn begin_sync(&mut self) -> Option<u64> {
        let last = self.log.last()?.place;
        if self.syncing.is_some() || self.full || last <= self.durable {
            return None;
        }
        self.syncing = Some(last);
        Some(self.rng.between(self.pace.low_ns, self.pace.high_ns))
    }

    /// Ends the sync in flight and returns up to where the log is now durable.
    pub fn end_sync(&mut self) -> Option<Lsn> {
        self.durable = self.syncing.take()?;
        self.log.iter().rev().find(|entry| entry.place <= self.durable).map(|entry| entry.lsn)
    }

    /// Returns how long flushing an image takes.
    pub fn image_ns(&mut self) -> u64 {
        8 * self.rng.between(self.pace.low_ns, self.pace.high_ns)
    }

    /// Keeps an image that has been flushed. The newest two stay.
    pub fn keep_image(&mut self, seq: SeqNum, root: Digest, state: I) {
        self.images.retain(|image| image.seq < seq);
        self.images.push(Image { seq, root, state, rotten: false });
        let surplus = self.images.len().saturating_sub(2);
        self.images.drain(..surplus);
        self.known = self.last_durable();
    }

    /// Drops the records that the newest image makes needless, as `obsolete` says (D6). The others are
    /// written again behind one another, and what they knew is put in terms of those that are left.
    pub fn trim(&mut self, obsolete: impl Fn(&[u8]) -> bool) {
        let durable = self.durable;
        self.log.retain(|entry| entry.place > durable || !obsolete(&entry.bytes));
        let places: Vec<u64> = self.log.iter().map(|entry| entry.place).collect();
        let last_upto = |known: u64| match places.partition_point(|place| *place <= known) {
            0 => 0,
            count => places[count - 1],
        };
        let mut before = 0;
        for entry in &mut self.log {
            entry.known = last_upto(entry.known);
            entry.sum = checksum(before, entry.place, entry.known, &entry.bytes);
            before = entry.sum;
        }
        self.known = last_upto(durable);
    }

    /// Returns the highest number that `of` finds in a record that is durable.
    pub fn newest_durable(&self, of: impl Fn(&[u8]) -> Option<SeqNum>) -> Option<SeqNum> {
        let durable = self.log.iter().take_while(|entry| entry.place <= self.durable);
        durable.filter_map(|entry| of(&entry.bytes)).max()
    }

    /// Returns the newest image.
    pub fn newest(&self) -> Option<&Image<I>> {
        self.images.last()
    }

    /// The power goes: of what was not synced some prefix is there, perhaps with a torn record behind
    /// it, and perhaps with later records behind a hole (H3).
    pub fn crash(&mut self) {
        self.syncing = None;
        let first = self.log.partition_point(|entry| entry.place <= self.durable);
        let unsynced = self.log.len() - first;
        if unsynced == 0 {
            return;
        }
        let kept = first + self.rng.index(unsynced + 1);
        let Some(torn) = self.log.get_mut(kept) else { return };
        match self.rng.below(4) {
            0 => {
                let len = self.rng.index(torn.bytes.len());
                torn.bytes.truncate(len);
                self.log.truncate(kept + 1);
            }
            1 => {
                // A hole: what was written later is all there.
                torn.bytes.fill(0);
                torn.sum = 0;
            }
            _ => self.log.truncate(kept),
        }
    }

    /// The power goes before anything of what was not synced has come to the platter (H3).
    pub fn lose_tail(&mut self) {
        self.syncing = None;
        let first = self.log.partition_point(|entry| entry.place <= self.durable);
        self.log.truncate(first);
    }

    /// Does damage to something that was durable, in a way that a start can notice. Says whether there
    /// was anything to damage.
    pub fn damage(&mut self, how: Damage) -> bool {
        if how == Damage::ImageRot {
            let newest = self.images.last_mut();
            return newest.is_some_and(|image| !core::mem::replace(&mut image.rotten, true));
        }
        let promised = self.log.iter().map(|entry| entry.known).fold(self.known, u64::max);
        let count = self.log.partition_point(|entry| entry.place <= promised);
        if count == 0 {
            return false;
        }
        let victim = self.rng.index(count);
        let other = self.rng.index(self.log.len());
        match how {
            Damage::BitRot => {
                let at = self.rng.index(self.log[victim].bytes.len());
                match self.log[victim].bytes.get_mut(at) {
                    Some(byte) => *byte ^= 0x10,
                    None => self.log[victim].sum ^= 1,
                }
            }
            Damage::Zeroed => {
                let victim = &mut self.log[victim];
                victim.bytes.fill(0);
                (victim.known, victim.sum) = (0, 0);
            }
            Damage::Misdirected => {
                let place = self.log[victim].place;
                self.log[victim] = Entry { place, ..self.log[other].clone() };
                self.log[victim].sum ^= u64::from(victim == other);
            }
            Damage::Lost => drop(self.log.remove(victim)),
            Damage::ImageRot => unreachable!("handled above"),
        }
        true
    }

    /// Everything is gone (H6).
    pub fn wipe(&mut self) {
        *self = Self { rng: self.rng.clone(), ..Self::new(0, 0, self.pace) };
    }

    /// Reads the disk at a start: cuts a torn tail, notices damage.
    pub fn read(&mut self) -> Found {
        if self.incarnation == 0 {
            return Found::Empty;
        }
        if self.rejoining || self.images.last().is_some_and(|image| image.rotten) {
            return Found::Damaged;
        }
        let good = self.good();
        let reached = self.log[..good].last().map_or(0, |entry| entry.place);
        let promised = self.log.iter().map(|entry| entry.known).fold(self.known, u64::max);
        if reached < promised {
            return Found::Damaged;
        }
        let cut = good < self.log.len();
        self.log.truncate(good);
        for entry in &mut self.log {
            entry.lsn = Lsn(0); // names of an earlier incarnation
        }
        self.durable = reached;
        let records = self.log.iter().map(|entry| entry.bytes.clone()).collect();
        Found::Log { records, cut }
    }

    /// Returns the place of the last record that is durable.
    fn last_durable(&self) -> u64 {
        self.log[..self.log.partition_point(|entry| entry.place <= self.durable)]
            .last()
            .map_or(0, |e| e.place)
    }

    /// Returns how many records from the front are whole and in their place.
    fn good(&self) -> usize {
        let mut before = 0;
        for (i, entry) in self.log.iter().enumerate() {
            if entry.sum != checksum(before, entry.place, entry.known, &entry.bytes) {
                return i;
            }
            before = entry.sum;
        }
        self.log.len()
    }

    /// Returns the bytes of the log.
    pub fn log_bytes(&self) -> usize {
        self.log.iter().map(|entry| entry.bytes.len()).sum()
    }
}

/// A 64-bit checksum: enough against accidents, which is all that a disk does.
fn checksum(before: u64, place: u64, known: u64, bytes: &[u8]) -> u64 {
    const M: u64 = 0x9fb2_1c65_1e98_df25;
    let mut sum = before ^ place.wrapping_mul(M) ^ known.rotate_left(32).wrapping_mul(M);
    let mut mix = |word: u64| {
        sum = (sum ^ word).wrapping_mul(M);
        sum ^= sum >> 29;
    };
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let Ok(word) = chunk.try_into() else { unreachable!("a chunk has eight bytes") };
        mix(u64::from_le_bytes(word));
    }
    let mut tail = [0; 8];
    tail[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    mix(u64::from_le_bytes(tail));
    mix(u64::try_from(bytes.len()).unwrap_or(0));
    sum
}

#[cfg(test)]
mod tests;
