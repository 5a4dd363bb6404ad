//! The disk of a host: simulated files, and on them the storage that a real node uses (H1, H3-H7, H11).
//!
//! Log, images and paged state are those of `quorate_process`. The simulator draws how long a sync takes. A job of
//! the log's writer runs when its time is over. If the host crashes before, the power goes somewhere within the job.

use std::collections::VecDeque;

use quorate_pbft::config::Durability;
use quorate_pbft::step::Lsn;
use quorate_process::storage::io::DiskIo as _;
use quorate_process::storage::owner::Owner;
use quorate_process::storage::paged;
use quorate_process::storage::queue::{LogInbox, LogJob, PageJob, PagesDone, put_record};
use quorate_process::storage::recover::{self, Past, Storage, Writers};
use quorate_process::storage::starts::LogState;
use quorate_service::image::CopiedPages;
use quorate_service::page::PageLabel;
use quorate_service::{Executor, Service};
use quorate_wire::digest::Domains;
use quorate_wire::{Digest, SeqNum};

use self::files::{LOG_ENDING, SimFiles};
use crate::rng::{Concern, Rng};

mod files;

/// The pages of a replica's state.
pub type Paged = paged::Paged<SimFiles>;

/// The size of a segment of the log.
const SEGMENT_BYTES: usize = 64 << 10;
/// The bytes of a commit's head that its checksum covers, or that are the checksum.
const HEAD_BYTES: usize = 56;
/// More changes than a job makes on the disk, usually.
const CHANGES: usize = 6;

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
    /// A bit of a commit flips.
    BitRot,
    /// A commit reads as zeros.
    Zeroed,
    /// A commit was written over another one.
    Misdirected,
    /// A segment that was reported to be durable is not there.
    Lost,
    /// A page of the state no longer has its digest.
    ImageRot,
}

impl Damage {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::BitRot, Self::Zeroed, Self::Misdirected, Self::Lost, Self::ImageRot];
}

/// What the image's writer has done.
#[derive(Debug)]
pub enum Imaged {
    /// The image is durable, and its new pages are in these slots.
    Done {
        /// The slots.
        stored: Vec<(PageLabel, u32)>,
        /// Whether a part of the log became needless.
        is_cut: bool,
    },
    /// The disk is full.
    Full,
    /// There was nothing to do.
    Nothing,
}

/// The disk of one replica.
#[derive(Debug)]
pub struct Disk {
    rng: Rng,
    /// For crashes and damage.
    faults: Rng,
    pace: Pace,
    owner: Owner,
    files: SimFiles,
    /// None: no process runs, or it keeps nothing.
    writers: Option<Writers<SimFiles>>,
    inbox: LogInbox,
    /// Records that the inbox has not got yet, in the format of the log.
    records: Vec<u8>,
    last: Lsn,
    /// The job whose time is running.
    in_flight: Option<LogJob>,
    /// The last commit has records, and nothing says yet that it is durable.
    unnoted: bool,
    /// What waits for the image's writer.
    pages: VecDeque<PageJob>,
    newest: Option<SeqNum>,
    starts: u64,
    is_full: bool,
    /// Something other than a crash has changed what it holds.
    is_spoiled: bool,
}

impl Disk {
    /// Returns the disk of a replica that has never started.
    pub fn new(seed: u64, index: usize, pace: Pace, owner: Owner) -> Self {
        let files = SimFiles::default();
        if let Err(error) = recover::create(&files, owner) {
            unreachable!("a new disk has space and works: {error}");
        }
        Self {
            rng: Rng::nth(seed, Concern::Disk, index),
            faults: Rng::nth(seed, Concern::Disk, index + 1000),
            pace,
            owner,
            files,
            writers: None,
            inbox: LogInbox::default(),
            records: Vec::new(),
            last: Lsn(0),
            in_flight: None,
            unnoted: false,
            pages: VecDeque::new(),
            newest: None,
            starts: 0,
            is_full: false,
            is_spoiled: false,
        }
    }

    /// Returns a copy, as a snapshot of a machine without power would be.
    #[must_use]
    pub fn snapshot(&mut self) -> Self {
        let files = self.files.copy();
        files.crash(&mut self.faults, false);
        Self {
            rng: self.rng.clone(),
            faults: self.faults.clone(),
            files,
            writers: None,
            inbox: LogInbox::default(),
            records: Vec::new(),
            in_flight: None,
            pages: VecDeque::new(),
            is_spoiled: true,
            ..*self
        }
    }

    /// Sets how fast it is.
    pub fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// Sets whether the disk is full. A full disk finishes no sync (GC-4).
    pub fn set_full(&mut self, full: bool) {
        self.is_full = full;
        self.files.set_full(full);
    }

    /// Returns a store for the state, which keeps at most `pages_max` pages in memory that the disk has.
    pub fn store(&self, domains: Domains, page_bytes: usize, pages_max: usize) -> Paged {
        Paged::new(self.files.clone(), domains, page_bytes, pages_max.saturating_mul(page_bytes))
    }

    /// Reads the disk at a start. `seconds` is the time of day.
    pub fn open(&mut self, durability: Durability, seconds: u64) -> (Storage<SimFiles>, Past) {
        match Storage::open(&self.files, self.owner, durability, seconds, SEGMENT_BYTES) {
            Ok(found) => found,
            Err(error) => unreachable!("this disk can be read: {error}"),
        }
    }

    /// Loads the state into `executor` and begins to write. Returns the checkpoint of the state, if all of it is there.
    pub fn begin<S: Service>(
        &mut self,
        mut storage: Storage<SimFiles>,
        executor: &mut Executor<S, Paged>,
    ) -> Option<(SeqNum, Digest)> {
        self.files.set_full(false);
        self.starts = storage.starts();
        let (found, life) = (storage.load(executor), self.faults.bits());
        let begun = found.and_then(|found| Ok((found, storage.begin(executor, life)?)));
        let (found, writers) = match begun {
            Ok(begun) => begun,
            Err(error) => unreachable!("this disk can be read and written at a start: {error}"),
        };
        self.files.set_full(self.is_full);
        self.writers = writers;
        (self.inbox, self.records, self.in_flight) = (LogInbox::default(), Vec::new(), None);
        self.pages.clear();
        self.unnoted = false;
        self.newest = found.map(|(seq, _)| seq);
        found
    }

    /// Records that the replica itself has found that this is no memory (H7), and how often it has started at least.
    pub fn distrust(&mut self, starts: u64) {
        self.starts = self.starts.max(starts);
        self.run_now(&LogJob::SetState { state: LogState::None, starts_min: starts });
    }

    /// Returns how many starts there have been.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// Records that it has rejoined.
    pub fn rejoined(&mut self) {
        self.run_now(&LogJob::SetState { state: LogState::Log, starts_min: 0 });
    }

    /// Does a job that takes no time.
    fn run_now(&mut self, job: &LogJob) {
        let Some(writers) = &mut self.writers else { return };
        if let Err(error) = writers.log.run(job) {
            unreachable!("this disk does not fail now: {error}");
        }
    }

    /// Returns whether something that was written is not durable yet.
    pub fn is_behind(&self) -> bool {
        self.writers.is_some() && (!self.records.is_empty() || self.in_flight.is_some())
    }

    /// Appends a record; it is not durable yet.
    pub fn append(&mut self, lsn: Lsn, bytes: &[u8]) {
        if self.writers.is_some() {
            put_record(bytes, &mut self.records);
            self.last = lsn;
        }
    }

    /// Begins a sync if there is something to sync and none is in progress. Returns how long it takes.
    pub fn begin_sync(&mut self) -> Option<u64> {
        if self.records.is_empty() || self.in_flight.is_some() || self.is_full {
            return None;
        }
        self.inbox.append(&mut self.records, self.last);
        self.in_flight = self.inbox.next(false, self.unnoted);
        Some(self.rng.between(self.pace.low_ns, self.pace.high_ns))
    }

    /// Ends the sync in flight and returns up to where the log is now durable.
    pub fn end_sync(&mut self) -> Option<Lsn> {
        let job = self.in_flight.take()?;
        // The space for it was there when it began.
        self.files.set_full(false);
        let done = self.writers.as_mut()?.log.run(&job);
        self.files.set_full(self.is_full);
        self.unnoted = true;
        match done {
            Ok(reached) => reached,
            Err(error) => unreachable!("this disk does not fail now: {error}"),
        }
    }

    /// Returns how long flushing an image takes.
    pub fn image_ns(&mut self) -> u64 {
        8 * self.rng.between(self.pace.low_ns, self.pace.high_ns)
    }

    /// Takes the pages of an image.
    pub fn image(&mut self, copied: CopiedPages, seq: SeqNum, root: Digest) {
        // One that has not been sealed yet is overtaken. Its pages are part of this one.
        self.pages.retain(|job| !matches!(job, PageJob::Seal(..)));
        self.pages.push_back(PageJob::Write(copied));
        self.pages.push_back(PageJob::Seal(seq, root));
    }

    /// A state transfer is over.
    pub fn adopt(&mut self) {
        if self.writers.is_some() {
            self.pages.push_back(PageJob::Adopt);
        }
    }

    /// Writes the image, and cuts the log behind it (D6).
    pub fn end_image(&mut self) -> Imaged {
        let Some(writers) = &mut self.writers else { return Imaged::Nothing };
        let mut imaged = Imaged::Nothing;
        while let Some(job) = self.pages.pop_front() {
            match writers.pages.run(&job) {
                Ok(PagesDone::Sealed(seq, stored)) => {
                    self.newest = Some(seq);
                    self.inbox.cut_log(seq);
                    imaged = Imaged::Done { stored, is_cut: false };
                }
                Ok(PagesDone::Written | PagesDone::Staged(_)) => {}
                Err(error) if error.is_full() => {
                    self.pages.push_front(job);
                    return Imaged::Full;
                }
                Err(error) => unreachable!("this disk does not fail now: {error}"),
            }
        }
        if let Some(seq) = self.inbox.take_cut() {
            let before = self.log_bytes();
            self.run_now(&LogJob::Cut(seq));
            let is_shorter = self.log_bytes() < before;
            if let Imaged::Done { is_cut, .. } = &mut imaged {
                *is_cut = is_shorter;
            }
        }
        imaged
    }

    /// Returns whether something other than a crash has changed what it holds. Without that, nothing durable is lost.
    pub fn is_spoiled(&self) -> bool {
        self.is_spoiled
    }

    /// Returns the checkpoint of the newest image.
    pub fn newest(&self) -> Option<SeqNum> {
        self.newest
    }

    /// The power goes, within what was being written: of what was not synced, any part may be there (H3).
    pub fn crash(&mut self) {
        self.end(false);
    }

    /// The power goes before anything of what was not synced has come to the platter (H3).
    pub fn lose_tail(&mut self) {
        self.end(true);
    }

    fn end(&mut self, loses_all: bool) {
        let job = self.in_flight.take();
        if let Some(mut writers) = self.writers.take().filter(|_| !loses_all) {
            if let Some(job) = job {
                self.files.set_fuse(self.faults.index(CHANGES));
                let _ = writers.log.run(&job);
            }
            if self.faults.one_in(2) {
                self.files.set_fuse(self.faults.index(CHANGES));
                while let Some(job) = self.pages.pop_front()
                    && writers.pages.run(&job).is_ok()
                {}
            }
        }
        self.files.crash(&mut self.faults, loses_all);
        (self.inbox, self.records) = (LogInbox::default(), Vec::new());
        self.pages.clear();
    }

    /// Does damage to something that was durable, in a way that a start can notice. Returns whether there was anything
    /// to damage.
    pub fn damage(&mut self, how: Damage) -> bool {
        self.is_spoiled = true;
        if how == Damage::ImageRot {
            return self.newest.is_some() && self.rot_page();
        }
        let commits = self.files.written(LOG_ENDING);
        if commits.is_empty() {
            return false;
        }
        let (name, at, len) = commits[self.faults.index(commits.len())].clone();
        let (other, other_at, other_len) = commits[self.faults.index(commits.len())].clone();
        let bit = self.faults.index(8 * HEAD_BYTES);
        match how {
            Damage::BitRot => self.files.spoil(&name, |bytes| bytes[at + bit / 8] ^= 1 << (bit % 8)),
            Damage::Zeroed => self.files.spoil(&name, |bytes| bytes[at..at + len].fill(0)),
            Damage::Misdirected => {
                let mut found = vec![0; other_len];
                self.files
                    .spoil(&other, |bytes| found.copy_from_slice(&bytes[other_at..other_at + other_len]));
                if (&name, at) == (&other, other_at) {
                    found[bit / 8] ^= 1;
                }
                found.resize(len, 0);
                self.files.spoil(&name, |bytes| bytes[at..at + len].copy_from_slice(&found));
            }
            Damage::Lost => {
                let removed = self.files.remove(&name).and_then(|()| self.files.sync_dir("log"));
                return removed.is_ok();
            }
            Damage::ImageRot => unreachable!("handled above"),
        }
        true
    }

    /// Flips a bit of a page in its slot. Returns whether there is one.
    pub fn rot_page(&mut self) -> bool {
        self.is_spoiled = true;
        let slots = self.files.written("checkpoint/pages");
        if slots.is_empty() {
            return false;
        }
        let (name, at, len) = slots[self.faults.index(slots.len())].clone();
        let bit = self.faults.index(8 * len);
        self.files.spoil(&name, |bytes| bytes[at + bit / 8] ^= 1 << (bit % 8));
        true
    }

    /// Returns how many reads of a page have failed.
    pub fn page_faults(&self) -> u64 {
        self.files.page_faults()
    }

    /// Everything is gone (H6).
    pub fn wipe(&mut self) {
        self.files.wipe();
        self.is_spoiled = true;
        self.writers = None;
        self.newest = None;
    }

    /// Returns the bytes of the log.
    pub fn log_bytes(&self) -> usize {
        self.writers.as_ref().map_or(0, |writers| writers.log.bytes())
    }
}

#[cfg(test)]
mod tests;
