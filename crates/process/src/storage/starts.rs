//! The number of a replica's starts, and the validity of its log: `log/starts`.
//!
//! Two copies of one block each, written one after the other, the older one first. A crash between them leaves one
//! good copy; damage to one leaves the other, with the same content.

use alloc::string::ToString as _;
use alloc::vec::Vec;

use quorate_wire::codec::{Reader, Writer};

use super::io::{DiskAction, DiskError, DiskErrorKind, DiskFile, DiskIo};
use super::owner::{FORMAT, FORMAT_READ, FORMAT_UNAWAITED, LOG, Owner};

/// The file.
const NAME: &str = "log/starts";

/// Distance between the copies, in bytes.
const BLOCK: usize = 4096;
/// The first bytes of each copy.
const MAGIC: u32 = 0x5453_5251;
/// Used bytes of a copy: the fields and their checksum.
const USED: usize = 4 + 4 + 8 + 8 + 8 + 8 + 1 + 32;

/// The validity of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogState {
    /// The replica has never started.
    #[default]
    New,
    /// It has lost its state and not rejoined yet: its records are not valid either.
    None,
    /// The log is complete.
    Log,
    /// The log is complete, and everything was written before the replica stopped.
    Clean,
    /// The log is being written, and no message waits for it: it is complete only once the replica has stopped.
    Unawaited,
}

impl LogState {
    const ALL: [Self; 4] = [Self::New, Self::None, Self::Log, Self::Clean];

    /// Returns the format of a file with this state, and the state in it.
    fn encode(self) -> (u32, u8) {
        if self == Self::Unawaited { (FORMAT_UNAWAITED, Self::Log as u8) } else { (FORMAT, self as u8) }
    }

    fn decode(format: u32, state: u8) -> Option<Self> {
        let state = *Self::ALL.get(usize::from(state))?;
        Some(if Self::Unawaited.encode() == (format, state as u8) { Self::Unawaited } else { state })
    }
}

/// The content of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Starts {
    /// The number of starts.
    pub count: u64,
    /// The id of the log: another one begins when the state is lost.
    pub life: u64,
    /// A commit that was durable when this was written.
    pub known: u64,
    /// The validity of the log.
    pub state: LogState,
}

/// The file.
#[derive(Clone, Debug)]
pub struct StartsFile<D> {
    disk: D,
    key: [u8; 32],
    /// The number of the newest copy.
    serial: u64,
    /// The copy that is written next: what the other one has is at least as new.
    next: usize,
}

impl<D: DiskIo> StartsFile<D> {
    /// Returns the file of a replica.
    pub fn new(disk: D, owner: Owner) -> Self {
        Self { disk, key: owner.key("quorate 2026 storage starts", 0), serial: 0, next: 0 }
    }

    /// Makes the file durable before it is read.
    ///
    /// # Errors
    ///
    /// The disk has failed.
    pub fn settle(&self) -> Result<(), DiskError> {
        if self.disk.exists(NAME) { self.disk.settle(NAME) } else { Ok(()) }
    }

    /// Reads the newest good copy.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is of another version.
    pub fn read(&mut self) -> Result<Option<Starts>, DiskError> {
        let file = match self.disk.open_to_read(NAME) {
            Ok(file) => file,
            Err(error) if error.is_missing() => return Ok(None),
            Err(error) => return Err(error),
        };
        let (len, used) = (file.len()?, u64::try_from(USED).unwrap_or(u64::MAX));
        let mut newest: Option<(u64, Starts, usize)> = None;
        let mut unreadable = None;
        for copy in 0..2 {
            let (mut block, at) = ([0; USED], u64::try_from(copy * BLOCK).unwrap_or(u64::MAX));
            if len < at + used {
                continue;
            }
            match file.read_at(&mut block, at) {
                Ok(()) => {}
                Err(error) if error.is_unreadable() => {
                    unreadable = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            }
            let Some((format, serial, starts)) = self.decode(&block) else { continue };
            if !(FORMAT_READ..=FORMAT_UNAWAITED).contains(&format) {
                return Err(DiskError {
                    kind: DiskErrorKind::OtherFormat { format },
                    action: DiskAction::Read,
                    file: NAME.to_string(),
                    cause: alloc::format!("format {format} of a replica's files"),
                });
            }
            if newest.is_none_or(|(other, ..)| serial > other) {
                newest = Some((serial, starts, copy));
            }
        }
        if let Some(error) = unreadable.filter(|_| newest.is_none()) {
            // That the replica has lost its state is not known, and would cost it its log.
            return Err(error);
        }
        (self.serial, self.next) = newest.map_or((0, 0), |(serial, _, copy)| (serial, 1 - copy));
        Ok(newest.map(|(_, starts, _)| starts))
    }

    /// Writes both copies, each durable before the next. If that is cut off, the newest content is still there.
    pub fn write(&mut self, starts: Starts) -> Result<(), DiskError> {
        let is_new = !self.disk.exists(NAME);
        let file = self.disk.open(NAME)?;
        self.serial += 1;
        let mut block = self.encode(starts);
        block.resize(BLOCK, 0);
        for _ in 0..2 {
            let at = u64::try_from(self.next * BLOCK).unwrap_or(u64::MAX);
            file.write_at(&block, at)?;
            file.sync()?;
            self.next = 1 - self.next;
        }
        if is_new { self.disk.sync_dir(LOG) } else { Ok(()) }
    }

    fn encode(&self, starts: Starts) -> Vec<u8> {
        let (format, state) = starts.state.encode();
        let mut block = Vec::new();
        let mut w = Writer::new(&mut block);
        w.u32(MAGIC);
        w.u32(format);
        w.u64(self.serial);
        w.u64(starts.count);
        w.u64(starts.life);
        w.u64(starts.known);
        w.u8(state);
        let sum = blake3::keyed_hash(&self.key, &block);
        block.extend_from_slice(sum.as_bytes());
        block
    }

    fn decode(&self, block: &[u8]) -> Option<(u32, u64, Starts)> {
        let (fields, sum) = block.split_at_checked(USED - 32)?;
        let mut r = Reader::new(fields);
        if r.u32().ok()? != MAGIC || blake3::keyed_hash(&self.key, fields).as_bytes() != sum {
            return None;
        }
        let (format, serial) = (r.u32().ok()?, r.u64().ok()?);
        let (count, life, known) = (r.u64().ok()?, r.u64().ok()?, r.u64().ok()?);
        let state = LogState::decode(format, r.u8().ok()?)?;
        Some((format, serial, Starts { count, life, known, state }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::testing::TestDisk;
    use quorate_wire::{ClusterId, ReplicaId};

    fn owner(replica: u16) -> Owner {
        Owner { cluster: ClusterId([7; 32]), replica: ReplicaId(replica) }
    }

    #[test]
    fn one_copy_is_enough_and_anothers_is_none() {
        let disk = TestDisk::default();
        let mut file = StartsFile::new(disk.clone(), owner(1));
        assert_eq!(file.read().unwrap(), None);
        let first = Starts { count: 1, life: 5, known: 0, state: LogState::Log };
        let second = Starts { count: 2, known: 77, ..first };
        file.write(first).unwrap();
        file.write(second).unwrap();
        let good = disk.read(NAME).unwrap();
        for copy in [0, BLOCK] {
            for at in copy..copy + USED {
                let mut bad = good.clone();
                bad[at] ^= 4;
                disk.put(NAME, bad);
                let again = StartsFile::new(disk.clone(), owner(1)).read().unwrap();
                assert_eq!(again, Some(second), "byte {at}");
            }
        }
        disk.put(NAME, good);
        assert_eq!(StartsFile::new(disk, owner(2)).read().unwrap(), None);
    }

    /// Files of a newer version are not taken for damaged ones: the replica keeps its state and stops.
    #[test]
    fn another_version_is_an_error_and_no_loss_of_memory() {
        let disk = TestDisk::default();
        let mut file = StartsFile::new(disk.clone(), owner(1));
        file.write(Starts::default()).unwrap();
        let mut block = file.encode(Starts::default());
        let format = FORMAT_UNAWAITED + 1;
        block.truncate(USED - 32);
        block[4..8].copy_from_slice(&format.to_le_bytes());
        let sum = blake3::keyed_hash(&file.key, &block);
        disk.put(NAME, [&block[..], sum.as_bytes()].concat());
        assert_eq!(file.read().unwrap_err().kind, DiskErrorKind::OtherFormat { format });
    }
}
