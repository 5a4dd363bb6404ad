//! The number of a replica's starts, and the validity of its log: `log/starts`.
//!
//! Two copies of one block each, written one after the other. A crash between them leaves one good copy; damage to
//! one leaves the other, with the same content.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use quorate_wire::codec::{Reader, Writer};

use super::file::DiskFile;
use super::owner::{FORMAT, FORMAT_READ, Owner, failed, sync_dir};
use crate::trouble::{Kind, Trouble};

/// Distance between the copies, in bytes.
const BLOCK: usize = 4096;
/// The first bytes of each copy.
const MAGIC: u32 = 0x5453_5251;
/// Used bytes of a copy: the fields and their checksum.
const USED: usize = 4 + 4 + 8 + 8 + 8 + 8 + 1 + 32;

/// The validity of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Memory {
    /// The replica has never started.
    #[default]
    New,
    /// It has lost its state and not rejoined yet: its records are not valid either.
    None,
    /// The log is complete.
    Log,
    /// The log is complete, and everything was written before the replica stopped.
    Clean,
}

impl Memory {
    const ALL: [Self; 4] = [Self::New, Self::None, Self::Log, Self::Clean];
}

/// The content of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Starts {
    /// The number of starts.
    pub(super) count: u64,
    /// The id of the log: another one begins when the state is lost.
    pub(super) life: u64,
    /// A commit that was durable when this was written.
    pub(super) known: u64,
    /// The validity of the log.
    pub(super) memory: Memory,
}

/// The file.
#[derive(Clone, Debug)]
pub(super) struct StartsFile {
    path: PathBuf,
    key: [u8; 32],
    /// The number of the newest copy.
    serial: u64,
}

impl StartsFile {
    pub(super) fn new(dir: &Path, owner: Owner) -> Self {
        Self { path: dir.join("starts"), key: owner.key("quorate 2026 storage starts", 0), serial: 0 }
    }

    /// Reads the newest good copy.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is of another version.
    pub(super) fn read(&mut self) -> Result<Option<Starts>, Trouble> {
        let mut bytes = Vec::new();
        match fs::File::open(&self.path) {
            Ok(mut file) => {
                file.read_to_end(&mut bytes).map_err(|error| Trouble::unreadable(&self.path, &error))?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Trouble::unreadable(&self.path, &error)),
        }
        let mut newest = None;
        for copy in 0..2 {
            let Some(block) = bytes.get(copy * BLOCK..).and_then(|rest| rest.get(..USED)) else { continue };
            let Some((format, serial, starts)) = self.decode(block) else { continue };
            if !(FORMAT_READ..=FORMAT).contains(&format) {
                let what = format!(
                    "format {format} of a replica's files: this version reads formats {FORMAT_READ} to {FORMAT}"
                );
                return Err(Trouble::new(Kind::OtherFormat, what)
                    .in_file(&self.path)
                    .next("run the version that wrote it, or move log/ and checkpoint/ away: the replica then rejoins"));
            }
            if newest.is_none_or(|(other, _)| serial > other) {
                newest = Some((serial, starts));
            }
        }
        self.serial = newest.map_or(0, |(serial, _)| serial);
        Ok(newest.map(|(_, starts)| starts))
    }

    /// Writes both copies, each durable before the next.
    pub(super) fn write(&mut self, starts: Starts) -> Result<(), Trouble> {
        let unwritable = |error| Trouble::unwritable(&self.path, &error);
        let is_new = !self.path.exists();
        let file = DiskFile::open(&self.path).map_err(unwritable)?;
        self.serial += 1;
        let mut block = self.encode(FORMAT, starts);
        block.resize(BLOCK, 0);
        for copy in [0, BLOCK as u64] {
            file.write_at(&block, copy).map_err(|error| failed(&self.path, "writing", &error))?;
            file.sync().map_err(|error| failed(&self.path, "fsync", &error))?;
        }
        match self.path.parent().filter(|_| is_new) {
            Some(dir) => sync_dir(dir),
            None => Ok(()),
        }
    }

    fn encode(&self, format: u32, starts: Starts) -> Vec<u8> {
        let mut block = Vec::new();
        let mut w = Writer::new(&mut block);
        w.u32(MAGIC);
        w.u32(format);
        w.u64(self.serial);
        w.u64(starts.count);
        w.u64(starts.life);
        w.u64(starts.known);
        w.u8(starts.memory as u8);
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
        let memory = *Memory::ALL.get(usize::from(r.u8().ok()?))?;
        Some((format, serial, Starts { count, life, known, memory }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use quorate_wire::{ClusterId, ReplicaId};

    fn owner(replica: u16) -> Owner {
        Owner { cluster: ClusterId([7; 32]), replica: ReplicaId(replica) }
    }

    #[test]
    fn one_copy_is_enough_and_anothers_is_none() {
        let dir = TempDir::new("starts");
        let mut file = StartsFile::new(dir.path(), owner(1));
        assert_eq!(file.read().unwrap(), None);
        let first = Starts { count: 1, life: 5, known: 0, memory: Memory::Log };
        let second = Starts { count: 2, known: 77, ..first };
        file.write(first).unwrap();
        file.write(second).unwrap();
        let good = fs::read(&file.path).unwrap();
        for copy in [0, BLOCK] {
            for at in copy..copy + USED {
                let mut bad = good.clone();
                bad[at] ^= 4;
                fs::write(&file.path, bad).unwrap();
                let again = StartsFile::new(dir.path(), owner(1)).read().unwrap();
                assert_eq!(again, Some(second), "byte {at}");
            }
        }
        fs::write(&file.path, &good).unwrap();
        assert_eq!(StartsFile::new(dir.path(), owner(2)).read().unwrap(), None);
    }

    /// Files of a newer version are not taken for damaged ones: the replica keeps its state and stops.
    #[test]
    fn another_version_is_an_error_and_no_loss_of_memory() {
        let dir = TempDir::new("version");
        let mut file = StartsFile::new(dir.path(), owner(1));
        file.write(Starts::default()).unwrap();
        fs::write(&file.path, file.encode(FORMAT + 1, Starts::default())).unwrap();
        assert_eq!(file.read().unwrap_err().kind, Kind::OtherFormat);
    }
}
