//! The disk of a host: simulated files, and on them the storage that a node uses (H1, H3-H7, H11).
//!
//! The log, the images and the paged state are those of `quorate_process`. The simulator draws how long a job of a
//! writer takes, and runs the job when that time is over. If the host crashes before, the power goes somewhere within
//! the job. `side.rs` is what the process of the host sees.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quorate_pbft::Resume;
use quorate_pbft::config::Durability;
use quorate_pbft::step::Lsn;
use quorate_process::storage::io::DiskError;
use quorate_process::storage::owner::Owner;
use quorate_process::storage::paged;
use quorate_process::storage::pages::PageWriter;
use quorate_process::storage::queue::{LogInbox, LogJob, PageJob, PagesDone};
use quorate_process::storage::recover::{self, Past, Storage, Writers};
use quorate_process::storage::starts::LogState;
use quorate_service::{Executor, Service};
use quorate_wire::SeqNum;
use quorate_wire::digest::Domains;

use self::files::{Remains, SimFiles, Space};
use crate::rng::{Concern, Rng};

mod damage;
pub mod files;
pub mod side;
mod spoil;

pub use spoil::{Damage, Spoiled};

/// The pages of a replica's state.
pub type Paged = paged::Paged<SimFiles>;

/// The size of a segment of the log.
const SEGMENT_BYTES: usize = 64 << 10;
/// More changes than a job makes on the disk, usually.
const CHANGES: usize = 6;
/// Changes of the writer of a log that has room, before the sync of a commit.
const BEFORE_SYNC: usize = 1;
/// How long the log is idle before its end is recorded, in nanoseconds.
const QUIET_NS: u64 = 2_000_000;
/// When a job is tried again that found no space, in nanoseconds.
const RETRY_NS: u64 = 20_000_000;

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

/// How the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerCut {
    /// At any moment.
    Anytime,
    /// Within a write of the log, which is torn.
    WithinWrite,
    /// Before anything of what was not synced has come to the platter.
    BeforeWrite,
}

/// What a disk does for the log.
#[derive(Debug)]
pub struct LogDone {
    /// The last record that has become durable by it.
    pub durable: Option<Lsn>,
    /// The state of the log that has been noted.
    pub state: Option<LogState>,
    /// The log has become shorter.
    pub is_cut: bool,
}

/// The end of the time of a job.
#[derive(Debug)]
pub enum Ended<T> {
    /// Another job has taken its place, or there is no process.
    Void,
    /// There was no space: the job is tried again after this many nanoseconds.
    Full(u64),
    /// The disk has failed: the process stops.
    Failed,
    /// It is done.
    Done(T),
}

/// The job of the log's writer whose time is running.
#[derive(Debug)]
struct InFlight {
    serial: u64,
    job: LogJob,
}

/// The disk of one replica.
#[derive(Debug)]
pub struct Disk {
    /// How long jobs take.
    rng: Rng,
    /// Crashes and damage.
    faults: Rng,
    /// Some crashes only kill the process, or keep what was written last; none: each is a loss of power that keeps
    /// what was written first, if it keeps an end.
    kills: Option<Rng>,
    pace: Pace,
    owner: Owner,
    files: SimFiles,
    /// None: no process runs, or it keeps nothing.
    writers: Option<Writers<SimFiles>>,
    inbox: LogInbox,
    in_flight: Option<InFlight>,
    serial: u64,
    /// The last commit has records, and nothing says yet that it is durable.
    unnoted: bool,
    /// What waits for the writer of the pages.
    pages: VecDeque<PageJob>,
    /// The time of the writer of the pages is running.
    is_writing: bool,
    /// How long an image takes, if that is not for the pace to say.
    image_ns: Option<u64>,
    newest: Option<SeqNum>,
    starts: u64,
    space: Space,
    /// Something other than a crash has changed the log, or the pages.
    spoiled: Spoiled,
    /// The slots of the newest image that are damaged, with their pages.
    rotten: BTreeMap<u32, u32>,
    /// A page was damaged in the memory of the process.
    is_memory_wrong: bool,
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
            faults: Rng::nth(seed, Concern::DiskFaults, index),
            kills: None,
            pace,
            owner,
            files,
            writers: None,
            inbox: LogInbox::default(),
            in_flight: None,
            serial: 0,
            unnoted: false,
            pages: VecDeque::new(),
            is_writing: false,
            image_ns: None,
            newest: None,
            starts: 0,
            space: Space::Enough,
            spoiled: Spoiled::default(),
            rotten: BTreeMap::new(),
            is_memory_wrong: false,
        }
    }

    /// Returns a copy, as a snapshot of a machine without power would be. A replica that gets it back has an old disk.
    #[must_use]
    pub fn snapshot(&mut self) -> Self {
        let files = self.files.copy();
        files.crash(&mut self.faults, Remains::Any);
        Self {
            rng: self.rng.clone(),
            faults: self.faults.clone(),
            kills: self.kills.clone(),
            files,
            writers: None,
            inbox: LogInbox::default(),
            in_flight: None,
            pages: VecDeque::new(),
            is_writing: false,
            spoiled: Spoiled::ALL,
            rotten: self.rotten.clone(),
            ..*self
        }
    }

    /// Lets some crashes only kill the process, which leaves what it has written in the memory of the machine.
    pub fn allow_kills(&mut self, seed: u64, index: usize) {
        self.kills = Some(Rng::nth(seed, Concern::Kills, index));
    }

    /// Sets how fast it is.
    pub fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// Lets an image take `ns` nanoseconds, or as long as the pace says.
    pub fn set_image_time(&mut self, ns: Option<u64>) {
        self.image_ns = ns;
    }

    /// Sets how much space there is (GC-4).
    pub fn set_space(&mut self, space: Space) {
        self.space = space;
        self.files.set_space(space);
    }

    /// Sets whether the next sync fails (GC-4).
    pub fn set_failing(&mut self, fails_sync: bool) {
        self.files.set_failing(fails_sync);
    }

    /// Returns whether the next sync fails.
    pub fn is_failing(&self) -> bool {
        self.files.is_failing()
    }

    /// Lets the power go within the next start, if that changes enough.
    pub fn cut_start(&mut self) {
        self.files.set_fuse(self.faults.index(2 * CHANGES));
    }

    /// Returns a store for the state, which keeps at most `pages_max` pages in memory that the disk has.
    pub fn store(&self, domains: Domains, page_bytes: usize, pages_max: usize) -> Paged {
        Paged::new(self.files.clone(), domains, page_bytes, pages_max.saturating_mul(page_bytes))
    }

    /// Reads the disk at a start. `seconds` is the time of day.
    ///
    /// # Errors
    ///
    /// The files cannot be read.
    pub fn open(
        &mut self,
        durability: Durability,
        seconds: u64,
    ) -> Result<(Storage<SimFiles>, Past), DiskError> {
        let opened = Storage::open(&self.files, self.owner, durability, seconds, SEGMENT_BYTES)?;
        self.starts = opened.0.starts();
        Ok(opened)
    }

    /// Begins to write. The state has been loaded into `executor`, and the replica continues from `resume`.
    ///
    /// # Errors
    ///
    /// The disk cannot be written.
    pub fn begin<S: Service>(
        &mut self,
        storage: Storage<SimFiles>,
        executor: &Executor<S, Paged>,
        resume: &Resume,
    ) -> Result<(), DiskError> {
        self.writers = storage.begin(executor, self.faults.bits())?;
        (self.inbox, self.in_flight, self.unnoted) = (LogInbox::default(), None, false);
        self.pages.clear();
        self.is_writing = false;
        self.files.end_fuse();
        // Damaged pages were not taken. Of a log, only another life takes the place.
        self.rotten.clear();
        let log = self.spoiled.log && matches!(resume, Resume::Restart(_));
        self.spoiled = Spoiled { log, pages: false };
        self.is_memory_wrong = false;
        self.newest = match resume {
            Resume::Fresh { .. } | Resume::Amnesia { .. } => None,
            Resume::Restart(restart) => Some(restart.checkpoint.0).filter(|seq| *seq > SeqNum(0)),
        };
        Ok(())
    }

    /// The start was not completed.
    pub fn give_up_start(&mut self) {
        self.writers = None;
        if self.kills.as_mut().is_some_and(|kills| kills.one_in(2)) {
            self.files.kill();
        } else {
            self.files.crash(&mut self.faults, Remains::Any);
        }
    }

    /// Returns whether a process writes here.
    pub fn is_written(&self) -> bool {
        self.writers.is_some()
    }

    /// Returns how many starts there have been.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// Returns the checkpoint of the newest image.
    pub fn newest(&self) -> Option<SeqNum> {
        self.newest
    }

    /// Returns the bytes of the log.
    pub fn log_bytes(&self) -> usize {
        self.writers.as_ref().map_or(0, |writers| writers.log.bytes())
    }

    /// Returns whether a commit is being written.
    pub fn is_behind(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|in_flight| matches!(in_flight.job, LogJob::Commit { .. }))
    }

    /// Begins the next job of the log's writer, if there is one and none is in progress. Returns its number, and how
    /// long it takes.
    pub fn begin_log_job(&mut self) -> Option<(u64, u64)> {
        let is_noting = self.in_flight.as_ref().is_some_and(|in_flight| in_flight.job == LogJob::NoteEnd);
        if self.in_flight.is_some() && (!is_noting || self.inbox.is_empty()) {
            return None;
        }
        // The end of the log is recorded when it has been idle for a while.
        let job = self.inbox.next(true, self.unnoted && !is_noting)?;
        let quiet = if job == LogJob::NoteEnd { QUIET_NS } else { 0 };
        self.serial += 1;
        self.in_flight = Some(InFlight { serial: self.serial, job });
        Some((self.serial, quiet + self.rng.between(self.pace.low_ns, self.pace.high_ns)))
    }

    /// The time of a job of the log's writer is over.
    pub fn end_log_job(&mut self, serial: u64) -> Ended<LogDone> {
        let Some(writers) = &mut self.writers else { return Ended::Void };
        let Some(InFlight { job, .. }) = self.in_flight.take_if(|in_flight| in_flight.serial == serial)
        else {
            return Ended::Void;
        };
        let before = writers.log.bytes();
        let mut done = writers.log.run(&job);
        if done.as_ref().is_err_and(DiskError::is_full) {
            match writers.log.make_room(self.inbox.take_cut()) {
                Ok(true) => done = writers.log.run(&job),
                Ok(false) => {}
                Err(error) => done = Err(error),
            }
        }
        match done {
            Ok(durable) => {
                match job {
                    LogJob::Commit { .. } => self.unnoted = true,
                    LogJob::NoteEnd => self.unnoted = false,
                    LogJob::Cut(_) | LogJob::SetState { .. } | LogJob::Stop => {}
                }
                let state = if let LogJob::SetState { state, starts_min, .. } = job {
                    self.starts = self.starts.max(starts_min);
                    Some(state)
                } else {
                    None
                };
                Ended::Done(LogDone { durable, state, is_cut: writers.log.bytes() < before })
            }
            Err(error) if error.is_full() => {
                self.in_flight = Some(InFlight { serial, job });
                Ended::Full(RETRY_NS)
            }
            Err(_) => Ended::Failed,
        }
    }

    /// Begins to write pages, if some wait and none are being written. Returns how long it takes.
    pub fn begin_pages(&mut self) -> Option<u64> {
        if self.is_writing || self.pages.is_empty() {
            return None;
        }
        self.is_writing = true;
        let seals = self.pages.iter().any(|job| matches!(job, PageJob::Seal(..)));
        let took = self.rng.between(self.pace.low_ns, self.pace.high_ns);
        Some(if seals { self.image_ns.unwrap_or(8 * took) } else { took })
    }

    /// The time of the writer of the pages is over: does all jobs up to an image. Returns how many, and what they have
    /// done.
    pub fn end_pages(&mut self) -> Ended<Vec<PagesDone>> {
        let Some(mut writers) = self.writers.take() else { return Ended::Void };
        let ended = self.run_pages(&mut writers.pages);
        self.writers = Some(writers);
        ended
    }

    fn run_pages(&mut self, pages: &mut PageWriter<SimFiles>) -> Ended<Vec<PagesDone>> {
        let mut all = Vec::new();
        while let Some(job) = self.pages.pop_front() {
            match pages.run(&job) {
                Ok(done) => {
                    let sealed = if let PagesDone::Sealed(seq, _) = &done { Some(*seq) } else { None };
                    all.push(done);
                    if let Some(seq) = sealed {
                        self.newest = Some(seq);
                        self.inbox.cut_log(seq);
                        let used: BTreeSet<u32> = pages.slots().map(|(_, slot)| slot).collect();
                        self.rotten.retain(|slot, _| used.contains(slot));
                        self.spoiled.pages &= !self.rotten.is_empty();
                        self.look_at_image(pages);
                        break;
                    }
                }
                Err(error) if error.is_full() => {
                    self.pages.push_front(job);
                    if all.is_empty() {
                        return Ended::Full(RETRY_NS);
                    }
                    break;
                }
                Err(_) => return Ended::Failed,
            }
        }
        self.is_writing = false;
        Ended::Done(all)
    }

    /// The power goes (H3), or the process is killed (H1). Returns whether it was killed.
    pub fn crash(&mut self, how: PowerCut) -> bool {
        let job = self.in_flight.take().map(|in_flight| in_flight.job);
        let mut remains = Remains::Any;
        if let Some(mut writers) = self.writers.take().filter(|_| how != PowerCut::BeforeWrite) {
            let within = how == PowerCut::WithinWrite && job.is_some();
            if let Some(job) = job {
                self.files.set_fuse(if within { BEFORE_SYNC } else { self.faults.index(CHANGES) });
                let _ = writers.log.run(&job);
            }
            if within {
                remains = Remains::Torn;
            } else if self.faults.one_in(2) {
                self.files.set_fuse(self.faults.index(CHANGES));
                while let Some(job) = self.pages.pop_front()
                    && writers.pages.run(&job).is_ok()
                {}
                self.look_at_image(&writers.pages);
            }
        } else {
            remains = Remains::Nothing;
        }
        let (mut is_kill, mut is_behind) = (false, false);
        if let Some(kills) = self.kills.as_mut().filter(|_| how == PowerCut::Anytime) {
            (is_kill, is_behind) = (kills.one_in(2), kills.one_in(4));
        }
        if is_kill {
            self.files.kill();
        } else {
            let remains = if is_behind { Remains::Behind } else { remains };
            self.files.crash(&mut self.faults, remains);
        }
        self.inbox = LogInbox::default();
        self.pages.clear();
        self.is_writing = false;
        is_kill
    }
}

#[cfg(test)]
mod tests;
