//! What a start finds on the disk (spec §14, docs/storage-format-log.md).

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use quorate_pbft::config::Durability;
use quorate_pbft::{Restart, Resume};
use quorate_service::{Executor, Service};
use quorate_wire::digest::Domains;
use quorate_wire::{Digest, SeqNum};

use super::io::{DiskError, DiskIo};
use super::log::scan::Scan;
use super::log::writer::LogWriter;
use super::log::{self, DiskLog};
use super::owner::{CHECKPOINT, LOG, Owner};
use super::paged::Paged;
use super::pages::{self, PageWriter};
use super::starts::{LogState, Starts, StartsFile};

/// Size of a segment of the log, in bytes, unless one commit needs more.
pub const SEGMENT_BYTES: usize = 16 << 20;

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

/// The records of a log, oldest first. None: the replica has never started.
pub type Records = Option<Vec<Vec<u8>>>;

/// A replica's disk at a start.
#[derive(Debug)]
pub struct Storage<D: DiskIo> {
    disk: D,
    owner: Owner,
    durability: Durability,
    starts: Starts,
    file: StartsFile<D>,
    log: Option<DiskLog<D>>,
    segment_bytes: usize,
    is_lost: bool,
    /// The loaded state, or pages that are not a complete state.
    pages: Option<PageWriter<D>>,
    is_whole: bool,
}

/// What writes on the disk of a running replica. None: nothing is written.
#[derive(Debug)]
pub struct Writers<D: DiskIo> {
    /// The log.
    pub log: LogWriter<D>,
    /// The state.
    pub pages: PageWriter<D>,
}

/// Creates the files of a replica that has never started.
///
/// # Errors
///
/// The disk cannot be written.
pub fn create<D: DiskIo>(disk: &D, owner: Owner) -> Result<(), DiskError> {
    for dir in [LOG, CHECKPOINT] {
        disk.create_dir(dir)?;
    }
    StartsFile::new(disk.clone(), owner).write(Starts::default())
}

/// Returns whether the disk of a stopped replica is complete, and if not, why. Changes nothing.
///
/// # Errors
///
/// The files cannot be read, or are of another version.
pub fn look<D: DiskIo>(
    disk: &D,
    owner: Owner,
    durability: Durability,
) -> Result<Result<(), String>, DiskError> {
    let found = StartsFile::new(disk.clone(), owner).read()?;
    let segments = log::segments(disk)?;
    disk.list(CHECKPOINT)?;
    let Some(found) = found else {
        return Ok(Err("the count of starts is missing or damaged".to_string()));
    };
    if found.state == LogState::New || durability == Durability::Memory {
        return Ok(Ok(()));
    }
    if let Some(why) = distrusted(found.state, durability) {
        return Ok(Err(why.to_string()));
    }
    Ok(Scan::of(disk, &segments, &owner, found.life, SEGMENT_BYTES)?.verdict(&found))
}

/// Loads the image of a stopped replica into `executor`, which has the initial state, and returns the records of its
/// log. Changes nothing. The inner error is the reason why the state is not complete.
///
/// # Errors
///
/// The files cannot be read.
pub fn read<S: Service, D: DiskIo>(
    disk: &D,
    owner: Owner,
    durability: Durability,
    executor: &mut Executor<S, Paged<D>>,
) -> Result<Result<Records, String>, DiskError> {
    let Some(found) = StartsFile::new(disk.clone(), owner).read()? else {
        return Ok(Err("the count of starts is missing or damaged".to_string()));
    };
    if found.state == LogState::New {
        return Ok(Ok(None));
    }
    if let Some(why) = distrusted(found.state, durability) {
        return Ok(Err(why.to_string()));
    }
    let segments = log::segments(disk)?;
    let scan = Scan::of(disk, &segments, &owner, found.life, SEGMENT_BYTES)?;
    if let Err(why) = scan.verdict(&found) {
        return Ok(Err(why));
    }
    PageWriter::new(disk.clone(), owner, executor).load(executor, true)?;
    Ok(Ok(Some(scan.into_records())))
}

/// Returns why a log in this state is not trusted, whatever is in it. None: it may be complete.
fn distrusted(state: LogState, durability: Durability) -> Option<&'static str> {
    if durability == Durability::Memory {
        return Some("durability is memory: nothing is kept over a restart");
    }
    if mutant!(M152, state == LogState::None, false) {
        return Some("it had not rejoined when it stopped");
    }
    // Without a note of that, an earlier version of this program may have written it.
    let is_killed =
        state == LogState::Unawaited || durability == Durability::Async && state != LogState::Clean;
    is_killed.then_some("with durability async it was killed: the last moments may be missing")
}

impl<D: DiskIo> Storage<D> {
    /// Reads the disk of a replica. `seconds` is the time of day, used if the count of starts is lost. A segment of
    /// the log has `segment_bytes`, unless one commit needs more. Writes nothing yet, but makes durable what an earlier
    /// process has written: the replica will rely on it.
    ///
    /// # Errors
    ///
    /// The files cannot be read or made durable, or are of another version. Damage is not an error, but [`Past::Lost`].
    pub fn open(
        disk: &D,
        owner: Owner,
        durability: Durability,
        seconds: u64,
        segment_bytes: usize,
    ) -> Result<(Self, Past), DiskError> {
        let mut file = StartsFile::new(disk.clone(), owner);
        file.settle()?;
        let found = file.read()?;
        let segments = log::segments(disk)?;
        log::settle(disk, &segments)?;
        let pages = disk.list(CHECKPOINT)?;
        pages::settle(disk)?;
        let mut starts = found.unwrap_or_default();
        let storage = |log, starts, is_lost| Self {
            disk: disk.clone(),
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
        let lost = |why: &str| Past::Lost(why.to_string());
        let verdict = match (found, durability) {
            (None, _) => Err(lost("the count of starts is missing or damaged")),
            (Some(found), _) if found.state == LogState::New => {
                // A first start that was cut off has given the log a life, and has written nothing else.
                let scan = Scan::of(disk, &segments, &owner, found.life, segment_bytes)?;
                let is_unborn = segments.is_empty() || found.life != 0 && scan.is_unborn();
                if is_unborn && pages.is_empty() {
                    Ok(None)
                } else {
                    Err(lost("the count of starts is older than the log"))
                }
            }
            (Some(found), _) => {
                distrusted(found.state, durability).map_or(Ok(Some(found)), |why| Err(lost(why)))
            }
        };
        let past = match verdict {
            Err(past) => past,
            Ok(None) => {
                starts.count += 1;
                return Ok((storage(None, starts, false), Past::Nothing));
            }
            Ok(Some(found)) => {
                let scan = Scan::of(disk, &segments, &owner, found.life, segment_bytes)?;
                match scan.verdict(&found) {
                    Ok(()) => {
                        starts.count += mutant!(M154, 1, 0);
                        let cut = scan.is_cut();
                        let (log, records) = scan.finish(disk.clone(), &owner, found.life, starts.count)?;
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
    pub fn store(&self, domains: Domains, page_bytes: usize, bytes_max: usize) -> Paged<D> {
        Paged::new(self.disk.clone(), domains, page_bytes, bytes_max)
    }

    /// Loads the state into `executor`, which has the initial state, and returns its checkpoint. None: it is
    /// incomplete. The existing pages are kept for comparison with the others'.
    ///
    /// # Errors
    ///
    /// The files cannot be read, or have a state with other options. Damage is not an error.
    pub fn load<S: Service>(
        &mut self,
        executor: &mut Executor<S, Paged<D>>,
    ) -> Result<Option<(SeqNum, Digest)>, DiskError> {
        let mut pages = PageWriter::new(self.disk.clone(), self.owner, executor);
        let found = pages.load(executor, !self.is_lost)?;
        self.is_whole = found.is_some();
        self.pages = (self.is_whole || pages.has_leftover()).then_some(pages);
        Ok(found)
    }

    /// Loads the state into `executor`, which has the initial state, and returns what the replica continues from.
    ///
    /// # Errors
    ///
    /// The files cannot be read. Damage is not an error.
    pub fn resume<S: Service>(
        &mut self,
        past: Past,
        incarnation: u64,
        executor: &mut Executor<S, Paged<D>>,
    ) -> Result<Resume, DiskError> {
        let records = match past {
            Past::Nothing => return Ok(Resume::Fresh { incarnation }),
            Past::Lost(_) => {
                self.load(executor)?;
                return Ok(Resume::Amnesia { incarnation });
            }
            Past::Log { records, .. } => records,
        };
        let initial = (SeqNum(0), executor.root_at(SeqNum(0)).unwrap_or_default());
        let checkpoint = self.load(executor)?.unwrap_or(initial);
        let mut clients = Vec::new();
        executor.clients(&mut clients);
        clients.sort_unstable();
        // Whose statements count it must know, or it could vote for what has been overtaken (RC-11).
        let Some(lives) = executor.lives() else { return Ok(Resume::Amnesia { incarnation }) };
        let time_ns = executor.time_ns();
        Ok(Resume::Restart(Restart { incarnation, records, checkpoint, clients, lives, time_ns }))
    }

    /// Begins to write: records the start. After [`Past::Lost`] everything is removed except good pages, which a
    /// transfer may use, and the new log has the id `life`, which is drawn at random. None: nothing is kept.
    ///
    /// # Errors
    ///
    /// The disk cannot be written.
    pub fn begin<S: Service>(
        mut self,
        executor: &Executor<S, Paged<D>>,
        life: u64,
    ) -> Result<Option<Writers<D>>, DiskError> {
        let keeps = self.durability != Durability::Memory;
        for dir in [LOG, CHECKPOINT] {
            self.disk.create_dir(dir)?;
        }
        let log = if let Some(log) = self.log.take() {
            // The count comes first: a log that knows of a start that the count does not is an older count.
            self.file.write(self.starts)?;
            Some(log)
        } else {
            // A new life: remains of an earlier one cannot be mistaken for it.
            self.starts.state = if self.is_lost { LogState::None } else { LogState::New };
            self.starts.known = 0;
            self.starts.life = life;
            self.file.write(self.starts)?;
            log::clear(&self.disk)?;
            let (disk, starts) = (self.disk.clone(), self.starts);
            keeps.then(|| DiskLog::new(disk, &self.owner, starts.life, starts.count, self.segment_bytes))
        };
        let pages = if let Some(mut pages) = self.pages.take() {
            if !self.is_whole {
                pages.forget_seal()?;
            }
            pages
        } else {
            pages::clear(&self.disk)?;
            PageWriter::new(self.disk.clone(), self.owner, executor)
        };
        let state = if self.durability.waits_for_disk() { LogState::Log } else { LogState::Unawaited };
        self.starts.state = if self.is_lost || !keeps { LogState::None } else { state };
        match log {
            None => {
                self.file.write(self.starts)?;
                Ok(None)
            }
            Some(log) => {
                let log = LogWriter::start(log, self.starts, self.file, state)?;
                Ok(Some(Writers { log, pages }))
            }
        }
    }
}

#[cfg(test)]
mod tests;
