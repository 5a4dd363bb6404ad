//! A replica's files on disk, and what a start finds there (spec §14, docs/storage-format.md).
//!
//! ```text
//! DIR/log/starts             the number of starts, and the validity of the log; two copies
//!     log/00..01.seg ...     the write-ahead log, segments named by their first commit
//!     checkpoint/pages       the pages of the state
//!     checkpoint/00..1.idx   the slots of the pages at a stable checkpoint
//! ```
//!
//! Disks lose, damage and exchange what was written. So everything has a checksum that includes its place, and each
//! commit of the log says how far the log was known to be durable. An incomplete tail that was not acknowledged to
//! anyone is cut. If anything else is missing, the replica has lost its state and must rejoin (§14.4). A part of the
//! log is never mistaken for the whole.

use std::fs;
use std::path::{Path, PathBuf};

use quorate_pbft::config::Durability;
use quorate_service::{Executor, Service};
use quorate_wire::digest::Domains;
use quorate_wire::{ClusterId, Digest, ReplicaId, SeqNum};

pub use self::disk::{Disk, Told};
use self::images::PageFile;
use self::log::{Log, Scan};
pub use self::owner::FORMAT;
pub(crate) use self::owner::Owner;
pub use self::paged::{Paged, Pages};
use self::starts::{Memory, Starts, StartsFile};
use crate::trouble::{Kind, Trouble};

mod commit;
mod disk;
mod file;
mod images;
mod imaging;
mod index;
mod log;
mod owner;
mod paged;
mod starts;

#[cfg(test)]
mod damage;
#[cfg(test)]
mod failing;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod healing;
#[cfg(test)]
mod little_memory;
#[cfg(test)]
mod page_faults;
#[cfg(test)]
mod world;

/// Size of a segment of the log, in bytes, unless one commit needs more.
const SEGMENT_BYTES: usize = 16 << 20;

/// The result of reading the disk at a start.
#[derive(Debug)]
pub enum Past {
    /// No files: the first start.
    Nothing,
    /// The complete state.
    Log {
        /// The records, oldest first.
        records: Vec<Vec<u8>>,
        /// Whether an incomplete tail, not acknowledged to anyone, was cut.
        cut: bool,
    },
    /// Acknowledged records are missing, or must not be trusted, for this reason.
    Lost(String),
}

/// A replica's disk at a start.
#[derive(Debug)]
pub struct Storage {
    dir: PathBuf,
    owner: Owner,
    durability: Durability,
    starts: Starts,
    file: StartsFile,
    log: Option<Log>,
    segment_bytes: usize,
    is_lost: bool,
    /// The loaded state, or pages that are not a complete state.
    pages: Option<PageFile>,
    is_whole: bool,
}

/// Creates the files of a replica that has never started.
pub(crate) fn create(dir: &Path, cluster: ClusterId, replica: ReplicaId) -> Result<(), Trouble> {
    for sub in ["log", "checkpoint"] {
        let path = dir.join(sub);
        fs::create_dir_all(&path).map_err(|error| Trouble::unwritable(&path, &error))?;
    }
    let mut file = StartsFile::new(&dir.join("log"), Owner { cluster, replica });
    file.write(Starts::default())
}

/// Returns whether the disk of a stopped replica is complete, and if not, why. Changes nothing.
///
/// # Errors
///
/// The files cannot be read, or are of another version.
pub(crate) fn look(
    dir: &Path,
    cluster: ClusterId,
    replica: ReplicaId,
    durability: Durability,
) -> Result<Result<(), String>, Trouble> {
    let owner = Owner { cluster, replica };
    let found = StartsFile::new(&dir.join("log"), owner).read()?;
    let segments = log::segments(&dir.join("log"))?;
    log::files(&dir.join("checkpoint"))?;
    Ok(match found {
        None => Err("the count of starts is missing or damaged".to_owned()),
        Some(found) if found.memory == Memory::New || durability == Durability::Memory => Ok(()),
        Some(found) if found.memory == Memory::None => Err("it had not rejoined when it stopped".to_owned()),
        Some(found) => Scan::of(&segments, &owner, found.life, SEGMENT_BYTES)?.verdict(&found),
    })
}

/// Loads the image of a stopped replica into `executor`, which has the initial state, and returns the records of its
/// log. None: it has never started. Changes nothing.
///
/// # Errors
///
/// The files cannot be read, or are incomplete.
pub(crate) fn read<S: Service>(
    dir: &Path,
    (cluster, replica): (ClusterId, ReplicaId),
    durability: Durability,
    executor: &mut Executor<S, Paged>,
) -> Result<Option<Vec<Vec<u8>>>, Trouble> {
    let lost = |why: String| {
        Trouble::new(Kind::Unreadable, format!("the replica has lost its state: {why}"))
            .in_file(dir)
            .next("check another replica; this one fetches the state from the others when it starts")
    };
    let owner = Owner { cluster, replica };
    let found = StartsFile::new(&dir.join("log"), owner).read()?;
    let found = found.ok_or_else(|| lost("the count of starts is missing or damaged".to_owned()))?;
    if found.memory == Memory::New {
        return Ok(None);
    }
    if durability == Durability::Memory {
        return Err(lost("durability is memory: nothing is kept over a restart".to_owned()));
    }
    if found.memory == Memory::None {
        return Err(lost("it had not rejoined when it stopped".to_owned()));
    }
    let segments = log::segments(&dir.join("log"))?;
    let scan = Scan::of(&segments, &owner, found.life, SEGMENT_BYTES)?;
    scan.verdict(&found).map_err(lost)?;
    PageFile::new(&dir.join("checkpoint"), owner, executor).load(executor, true)?;
    Ok(Some(scan.into_records()))
}

impl Storage {
    /// Reads the disk of a replica. `seconds` is the time of day, used if the count of starts is lost. Writes nothing
    /// yet.
    ///
    /// # Errors
    ///
    /// The files cannot be read, or are of another version. Damage is not an error, but [`Past::Lost`].
    pub fn open(
        dir: &Path,
        cluster: ClusterId,
        replica: ReplicaId,
        durability: Durability,
        seconds: u64,
    ) -> Result<(Self, Past), Trouble> {
        Self::open_with(dir, Owner { cluster, replica }, durability, seconds, SEGMENT_BYTES)
    }

    fn open_with(
        dir: &Path,
        owner: Owner,
        durability: Durability,
        seconds: u64,
        segment_bytes: usize,
    ) -> Result<(Self, Past), Trouble> {
        let mut file = StartsFile::new(&dir.join("log"), owner);
        let found = file.read()?;
        let segments = log::segments(&dir.join("log"))?;
        let pages = log::files(&dir.join("checkpoint"))?;
        let mut starts = found.unwrap_or_default();
        let storage = |log, starts, is_lost| Self {
            dir: dir.to_path_buf(),
            owner,
            durability,
            starts,
            file: file.clone(),
            log,
            segment_bytes,
            is_lost,
            pages: None,
            is_whole: false,
        };
        let lost = |why: &str| Past::Lost(why.to_owned());
        let verdict = match (found, durability) {
            (None, _) => Err(lost("the count of starts is missing or damaged")),
            (Some(found), _) if found.memory == Memory::New => {
                if segments.is_empty() && pages.is_empty() {
                    Ok(None)
                } else {
                    Err(lost("the count of starts is older than the log"))
                }
            }
            (Some(_), Durability::Memory) => {
                Err(lost("durability is memory: nothing is kept over a restart"))
            }
            (Some(found), _) if found.memory == Memory::None => {
                Err(lost("it had not rejoined when it stopped"))
            }
            (Some(found), Durability::Async) if found.memory != Memory::Clean => {
                Err(lost("durability is async and it was killed: the last moments may be missing"))
            }
            (Some(found), _) => Ok(Some(found)),
        };
        let past = match verdict {
            Err(past) => past,
            Ok(None) => {
                starts.count = 1;
                return Ok((storage(None, starts, false), Past::Nothing));
            }
            Ok(Some(found)) => {
                let scan = Scan::of(&segments, &owner, found.life, segment_bytes)?;
                match scan.verdict(&found) {
                    Ok(()) => {
                        starts.count += 1;
                        let cut = scan.is_cut();
                        let (log, records) =
                            scan.finish(&dir.join("log"), &owner, found.life, starts.count)?;
                        return Ok((storage(Some(log), starts, false), Past::Log { records, cut }));
                    }
                    Err(why) => Past::Lost(why),
                }
            }
        };
        // The count of starts may be lost too: then the time of day is used (spec D8).
        starts.count = (starts.count + 1).max(seconds);
        Ok((storage(None, starts, true), past))
    }

    /// Returns the number of starts, including this one.
    pub fn starts(&self) -> u64 {
        self.starts.count
    }

    /// Returns an empty store for the state, which keeps at most `bytes_max` bytes in memory.
    pub fn store(&self, domains: Domains, page_bytes: usize, bytes_max: usize) -> Paged {
        Paged::new(&self.dir.join("checkpoint"), domains, page_bytes, bytes_max)
    }

    /// Loads the state into `executor`, which has the initial state, and returns its checkpoint. None: it is
    /// incomplete. The existing pages are kept for comparison with the others'.
    ///
    /// # Errors
    ///
    /// The files cannot be read. Damage is not an error.
    pub fn load<S: Service>(
        &mut self,
        executor: &mut Executor<S, Paged>,
    ) -> Result<Option<(SeqNum, Digest)>, Trouble> {
        let mut pages = PageFile::new(&self.dir.join("checkpoint"), self.owner, executor);
        let found = pages.load(executor, !self.is_lost)?;
        self.is_whole = found.is_some();
        self.pages = (self.is_whole || pages.has_attic()).then_some(pages);
        Ok(found)
    }

    /// Begins to write: records the start, and runs the disk from now on. After [`Past::Lost`] everything is removed
    /// except good pages, which a transfer may use. The state is written whenever the log is longer than
    /// `log_bytes_max`.
    ///
    /// # Errors
    ///
    /// The disk cannot be written, or a thread cannot be started.
    pub fn begin<S: Service>(
        mut self,
        executor: &Executor<S, Paged>,
        log_bytes_max: usize,
    ) -> Result<Disk, Trouble> {
        let (log_dir, image_dir) = (self.dir.join("log"), self.dir.join("checkpoint"));
        let keeps = self.durability != Durability::Memory;
        for dir in [&log_dir, &image_dir] {
            fs::create_dir_all(dir).map_err(|error| Trouble::unwritable(dir, &error))?;
        }
        let log = if let Some(log) = self.log.take() {
            Some(log)
        } else {
            // A new life: remains of an earlier one cannot be mistaken for it.
            self.starts.memory = Memory::None;
            self.starts.known = 0;
            self.starts.life = u64::from_le_bytes(first_eight(crate::secret::entropy()?));
            self.file.write(self.starts)?;
            log::clear(&log_dir)?;
            keeps.then(|| {
                Log::new(&log_dir, &self.owner, self.starts.life, self.starts.count, self.segment_bytes)
            })
        };
        let pages = if let Some(mut pages) = self.pages.take() {
            if !self.is_whole {
                pages.forget_seal()?;
            }
            pages
        } else {
            images::clear(&image_dir)?;
            PageFile::new(&image_dir, self.owner, executor)
        };
        self.starts.memory = if self.is_lost || !keeps { Memory::None } else { Memory::Log };
        Disk::start(self.starts, self.file, log, pages, self.dir, log_bytes_max)
    }
}

fn first_eight(bytes: [u8; 32]) -> [u8; 8] {
    bytes.first_chunk().copied().unwrap_or_default()
}
