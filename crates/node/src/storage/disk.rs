//! The thread that writes the log: it takes all waiting records, writes them in one piece and syncs once (GC-2). A
//! second thread writes the state (`imaging.rs`), which takes longer.
//!
//! The replica's thread never waits for the disk. It passes records when it flushes, and is told how far the disk has
//! got. When nothing is left to write, an empty commit records that the last one is durable, so that damage to it is
//! detected too.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quorate_pbft::step::Lsn;
use quorate_service::page::PageLabel;
use quorate_wire::SeqNum;

use super::images::PageFile;
use super::imaging::{self, Imaging};
use super::log::{Log, LogError};
use super::starts::{Memory, Starts, StartsFile};
use crate::journal::Journal as _;
use crate::trouble::{Kind, Trouble};
use crate::wake::Waker;

mod journal;

/// How long the log is idle before its end is recorded.
const QUIET: Duration = Duration::from_micros(if cfg!(test) { 200 } else { 2000 });
/// How long to wait before retrying on a full disk.
const RETRY: Duration = Duration::from_millis(500);
/// Maximum bytes of records that wait for the disk. Beyond it the replica stops, because it would lose them.
const WAITING_MAX: usize = 256 << 20;
/// The unit in which writes are measured, as a fraction of a microsecond.
const SMOOTH: u64 = 1024;

/// The input of the log's thread.
#[derive(Debug, Default)]
struct Inbox {
    /// Records in the format of [`super::commit::put`].
    records: Vec<u8>,
    /// The last of these records.
    last: Lsn,
    /// An image of this checkpoint is durable.
    imaged: Option<SeqNum>,
    /// The validity of the log from now on.
    memory: Option<Memory>,
    /// The least number of the replica's starts, according to the others.
    starts_min: u64,
    /// Whether to write what is left and stop.
    stop: bool,
    /// Whether everything is written and the end of the log recorded.
    #[cfg(test)]
    is_quiet: bool,
}

/// The output of the threads.
#[derive(Debug, Default)]
pub struct Told {
    durable: AtomicU64,
    log_bytes: AtomicU64,
    /// The 99th percentile of a write, in microseconds, smoothed: a longer write raises it by an eighth of the
    /// difference, a shorter one lowers it by a 99 times smaller share.
    write_p99_us: AtomicU64,
    full: AtomicBool,
    failed: Mutex<Option<Trouble>>,
    has_failed: AtomicBool,
}

impl Told {
    /// Returns the last durable record.
    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Returns whether the disk is full: nothing is acknowledged until there is space.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Returns what has failed. The replica must stop: nothing that it writes can be relied on.
    pub fn failure(&self) -> Option<Trouble> {
        if !self.has_failed.load(Ordering::Acquire) {
            return None;
        }
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note_write(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).saturating_mul(SMOOTH);
        let slow = self.write_p99_us.load(Ordering::Relaxed);
        let (above, below) = (took.saturating_sub(slow), slow.saturating_sub(took));
        let slow = slow.saturating_add(above / 8).saturating_sub(below / (8 * 99));
        self.write_p99_us.store(slow, Ordering::Relaxed);
    }

    fn fail(&self, trouble: Trouble) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(trouble);
        self.has_failed.store(true, Ordering::Release);
    }
}

#[derive(Debug, Default)]
struct Shared {
    inbox: Mutex<Inbox>,
    wanted: Condvar,
    told: Told,
    /// The slots of the last image's pages, until the replica's thread takes them.
    stored: Mutex<Vec<(PageLabel, u32)>>,
    has_stored: AtomicBool,
    /// The checkpoint of the last image and 1, until the replica's thread fetches it.
    kept: AtomicU64,
    /// The same for pages of a transfer.
    staged: Mutex<Vec<(PageLabel, u32)>>,
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl imaging::Told for Arc<Shared> {
    /// Truncates the log.
    fn sealed(&self, seq: SeqNum, stored: Vec<(PageLabel, u32)>) {
        *self.stored.lock().unwrap_or_else(PoisonError::into_inner) = stored;
        self.has_stored.store(true, Ordering::Release);
        self.kept.store(seq.0.saturating_add(1), Ordering::Release);
        self.inbox().imaged = Some(seq);
        self.wanted.notify_one();
    }

    fn staged(&self, staged: Vec<(PageLabel, u32)>) {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner).extend(staged);
    }

    fn failed(&self, trouble: Trouble) {
        self.told.fail(trouble);
    }
}

/// The disk of a running replica, for the replica's thread.
#[derive(Debug)]
pub struct Disk {
    shared: Arc<Shared>,
    waker: Waker,
    writer: Option<JoinHandle<()>>,
    /// None: nothing is written.
    images: Option<Imaging>,
    dir: PathBuf,
    /// Records since the last flush.
    records: Vec<u8>,
    last: Lsn,
    /// Whether nothing is written.
    is_idle: bool,
    newest_image: SeqNum,
    log_bytes_max: usize,
    /// Whether an image is wanted independently of the length of the log.
    image_due: bool,
}

impl Disk {
    pub(super) fn start(
        starts: Starts,
        mut file: StartsFile,
        log: Option<Log>,
        images: PageFile,
        dir: PathBuf,
        log_bytes_max: usize,
    ) -> Result<Self, Trouble> {
        let shared = Arc::new(Shared::default());
        let waker = Waker::new()?;
        let is_idle = log.is_none();
        let mut starts = starts;
        let writer = match log {
            None => {
                file.write(starts)?;
                None
            }
            Some(mut log) => {
                // The log exists, and its existence is recorded, before anything is acknowledged.
                log.commit(&[]).map_err(|error| match error {
                    LogError::Full => Trouble::new(Kind::Disk, "no space for the log")
                        .at("log/ in its directory")
                        .next(super::owner::ROOM),
                    LogError::Failed(trouble) => trouble,
                })?;
                starts.known = log.known();
                file.write(starts)?;
                let (told, bell) = (Arc::clone(&shared), waker.clone());
                let writer = Writer { shared: told, waker: bell, log, starts, file, trim_to: None };
                let thread = std::thread::Builder::new().name("log".to_owned());
                let spawned = thread.spawn(move || writer.run());
                Some(spawned.map_err(|error| {
                    Trouble::new(Kind::Disk, format!("cannot start the log's thread: {error}"))
                })?)
            }
        };
        let images =
            if is_idle { None } else { Some(Imaging::start(images, waker.clone(), Arc::clone(&shared))?) };
        Ok(Self {
            shared,
            waker,
            writer,
            images,
            dir,
            records: Vec::new(),
            last: Lsn(0),
            is_idle,
            newest_image: SeqNum(0),
            log_bytes_max,
            image_due: false,
        })
    }

    /// Returns the waker of the replica's thread.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Returns whether all records so far are durable.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_idle || self.told().durable() >= self.last
    }

    /// Returns whether the state has been copied since it was fetched.
    #[cfg(test)]
    pub(super) fn has_image(&self) -> bool {
        self.is_idle || !self.image_due
    }

    /// Returns whether all pages so far have been written.
    #[cfg(test)]
    pub(super) fn has_written_pages(&self) -> bool {
        self.images.as_ref().is_none_or(Imaging::is_idle)
    }

    /// Waits for that, but only for a moment: there may be no space for them.
    #[cfg(test)]
    pub(super) fn wait_for_pages(&self) {
        let start = Instant::now();
        while !self.has_written_pages() && start.elapsed() < Duration::from_millis(20) {
            std::thread::yield_now();
        }
    }

    /// Waits until nothing is being written and the end of the log is recorded.
    #[cfg(test)]
    pub(super) fn wait_until_quiet(&self) {
        let is_quiet = || {
            // The pages first: their completion causes a record in the log.
            let is_written = self.has_written_pages();
            let inbox = self.shared.inbox();
            let is_empty = inbox.records.is_empty() && inbox.imaged.is_none() && inbox.memory.is_none();
            is_written && is_empty && inbox.is_quiet
        };
        while !(self.is_idle || is_quiet() || self.told().failure().is_some()) {
            std::thread::yield_now();
        }
    }

    /// Returns the reports of the disk.
    pub fn told(&self) -> &Told {
        &self.shared.told
    }

    fn set_memory(&mut self, memory: Memory) {
        if !self.is_idle {
            self.flush();
            self.shared.inbox().memory = Some(memory);
            self.shared.wanted.notify_one();
        }
    }

    /// Writes what is left and stops.
    ///
    /// # Errors
    ///
    /// The disk has failed.
    pub fn stop(mut self) -> Result<(), Trouble> {
        self.end();
        self.told().failure().map_or(Ok(()), Err)
    }

    fn end(&mut self) {
        self.flush();
        if let Some(images) = &mut self.images {
            images.end();
        }
        self.shared.inbox().stop = true;
        self.shared.wanted.notify_one();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.end();
    }
}

/// The log's thread.
struct Writer {
    shared: Arc<Shared>,
    waker: Waker,
    log: Log,
    starts: Starts,
    file: StartsFile,
    /// The log is to become shorter, and there was no room to note it.
    trim_to: Option<SeqNum>,
}

/// The next task of the log's thread.
enum Work {
    Records(Vec<u8>, Lsn),
    Note,
    Trim(SeqNum),
    Memory(Memory),
    Stop,
}

impl Writer {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        // The last commit has records, and nothing records yet that it is durable.
        let mut unnoted = false;
        loop {
            let done = match self.next(unnoted) {
                Work::Records(records, last) => {
                    unnoted = true;
                    self.write(&records).map(|()| {
                        shared.told.durable.store(last.0, Ordering::Release);
                        self.waker.wake();
                    })
                }
                Work::Note => {
                    unnoted = false;
                    self.write(&[])
                }
                Work::Trim(seq) => self.trim(seq).map(|_| ()),
                Work::Memory(memory) => self.note(memory),
                Work::Stop => {
                    let clean =
                        if self.starts.memory == Memory::Log { Memory::Clean } else { self.starts.memory };
                    if let Err(trouble) = self.note(clean) {
                        shared.told.fail(trouble);
                    }
                    return;
                }
            };
            let bytes = u64::try_from(self.log.bytes()).unwrap_or(u64::MAX);
            shared.told.log_bytes.store(bytes, Ordering::Relaxed);
            if let Err(trouble) = done {
                shared.told.fail(trouble);
                return self.waker.wake();
            }
        }
    }

    /// Waits for a task.
    fn next(&self, unnoted: bool) -> Work {
        let mut inbox = self.shared.inbox();
        loop {
            if !inbox.records.is_empty() {
                return Work::Records(std::mem::take(&mut inbox.records), inbox.last);
            }
            if let Some(memory) = inbox.memory.take() {
                return Work::Memory(memory);
            }
            if let Some(seq) = inbox.imaged.take() {
                return Work::Trim(seq);
            }
            if inbox.stop {
                return Work::Stop;
            }
            if !unnoted {
                #[cfg(test)]
                (inbox.is_quiet = true);
                inbox = self.shared.wanted.wait(inbox).unwrap_or_else(PoisonError::into_inner);
                #[cfg(test)]
                (inbox.is_quiet = false);
                continue;
            }
            let (waited, timeout) =
                self.shared.wanted.wait_timeout(inbox, QUIET).unwrap_or_else(PoisonError::into_inner);
            inbox = waited;
            if timeout.timed_out() && inbox.records.is_empty() {
                return Work::Note;
            }
        }
    }

    /// Drops what an image of a checkpoint makes needless. Says whether it could: that takes some room, too.
    fn trim(&mut self, seq: SeqNum) -> Result<bool, Trouble> {
        match self.log.trim(seq) {
            Ok(()) => {
                self.trim_to = None;
                Ok(true)
            }
            Err(LogError::Full) => {
                self.trim_to = Some(seq);
                Ok(false)
            }
            Err(LogError::Failed(trouble)) => Err(trouble),
        }
    }

    /// Makes room on a full disk, if a checkpoint has come to it since. Says whether there may be some.
    fn make_room(&mut self) -> Result<bool, Trouble> {
        let imaged = self.shared.inbox().imaged.take();
        match imaged.max(self.trim_to) {
            None => Ok(false),
            Some(seq) => self.trim(seq),
        }
    }

    /// Writes a commit; while there is no room it makes some, or tries again.
    fn write(&mut self, records: &[u8]) -> Result<(), Trouble> {
        loop {
            let begin = Instant::now();
            match self.log.commit(records) {
                Ok(began_segment) => {
                    self.shared.told.note_write(begin.elapsed());
                    self.shared.told.full.store(false, Ordering::Relaxed);
                    // Otherwise a lost segment at the end of the log would go unnoticed.
                    return if began_segment { self.note(self.starts.memory) } else { Ok(()) };
                }
                Err(LogError::Failed(trouble)) => return Err(trouble),
                Err(LogError::Full) => {
                    if !self.shared.told.full.swap(true, Ordering::Relaxed) {
                        tracing::error!("the disk is full: acknowledging nothing until there is space");
                        self.waker.wake();
                    }
                    if self.make_room()? {
                        continue;
                    }
                    if self.shared.inbox().stop {
                        return Err(Trouble::new(Kind::Disk, "stopped while the disk was full"));
                    }
                    std::thread::sleep(RETRY);
                }
            }
        }
    }

    /// Writes the file of starts.
    fn note(&mut self, memory: Memory) -> Result<(), Trouble> {
        self.starts.count = self.starts.count.max(self.shared.inbox().starts_min);
        (self.starts.memory, self.starts.known) = (memory, self.log.known());
        self.file.write(self.starts)
    }
}
