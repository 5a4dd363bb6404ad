//! The thread that writes the log: it takes all waiting records, writes them in one piece and syncs once (GC-2). A
//! second thread writes the state (`imaging.rs`), which takes longer.
//!
//! The replica's thread never waits for the disk. It passes records when it flushes, and is told how far the disk has
//! got. When nothing is left to write, an empty commit records that the last one is durable, so that damage to it is
//! detected too.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quorate_pbft::step::Lsn;
use quorate_process::storage::log::writer::LogWriter;
use quorate_process::storage::queue::{DiskQueue as _, ImageNeed, LogInbox, LogJob};
use quorate_process::storage::recover::Writers;
use quorate_process::storage::starts::LogState;
use quorate_service::page::PageLabel;
use quorate_wire::SeqNum;

use super::files::{self, Files};
use super::imaging::{self, PageThread};
use crate::error::{NodeError, NodeErrorKind};
use crate::net::wake::Waker;

mod queue;

/// How long the log is idle before its end is recorded. Between two operations of a client that waits for each of them,
/// it is not: that would be a sync more for each.
const QUIET: Duration = Duration::from_micros(if cfg!(test) { 200 } else { 20_000 });
/// How long records are gathered if nobody waits for them: with `durability = "async"`, one write and one sync take
/// what comes in this time.
const PACE: Duration = Duration::from_micros(if cfg!(test) { 200 } else { 10_000 });
/// How long to wait before retrying on a full disk.
const RETRY: Duration = Duration::from_millis(500);
/// Maximum bytes of records that wait for the disk. Beyond it the replica stops, because it would lose them.
const WAITING_MAX: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };
/// The disk is behind if more bytes wait for it: what would lead to further records has to wait, too.
const BEHIND: usize = WAITING_MAX / 4;
/// The unit in which writes are measured, as a fraction of a microsecond.
const SMOOTH: u64 = 1024;

/// The input of the log's thread.
#[derive(Debug, Default)]
struct Inbox {
    log: LogInbox,
    /// Whether the log's thread has to be woken for a job.
    sleeps: bool,
    /// Whether everything is written and the end of the log recorded.
    #[cfg(test)]
    is_quiet: bool,
}

/// The output of the threads.
#[derive(Debug, Default)]
pub struct DiskReports {
    durable: AtomicU64,
    log_bytes: AtomicU64,
    /// The 99th percentile of a write, in microseconds, smoothed: a longer write raises it by an eighth of the
    /// difference, a shorter one lowers it by a 99 times smaller share.
    write_p99_us: AtomicU64,
    full: AtomicBool,
    failed: Mutex<Option<NodeError>>,
    has_failed: AtomicBool,
}

impl DiskReports {
    /// Returns the last durable record.
    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Returns whether the disk is full: nothing is acknowledged until there is space.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Returns what has failed. The replica must stop: nothing that it writes can be relied on.
    pub fn failure(&self) -> Option<NodeError> {
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

    fn fail(&self, trouble: NodeError) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(trouble);
        self.has_failed.store(true, Ordering::Release);
    }
}

#[derive(Debug, Default)]
struct Shared {
    inbox: Mutex<Inbox>,
    wanted: Condvar,
    told: DiskReports,
    /// Bytes of records that are not durable yet.
    waiting: AtomicUsize,
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

impl imaging::PageReports for Arc<Shared> {
    /// Truncates the log.
    fn sealed(&self, seq: SeqNum, stored: Vec<(PageLabel, u32)>) {
        *self.stored.lock().unwrap_or_else(PoisonError::into_inner) = stored;
        self.has_stored.store(true, Ordering::Release);
        self.kept.store(seq.0.saturating_add(1), Ordering::Release);
        self.inbox().log.cut_log(seq);
        self.wanted.notify_one();
    }

    fn staged(&self, staged: Vec<(PageLabel, u32)>) {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner).extend(staged);
    }

    fn failed(&self, trouble: NodeError) {
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
    images: Option<PageThread>,
    dir: PathBuf,
    /// Records since the last flush.
    records: Vec<u8>,
    last: Lsn,
    /// Whether nothing is written.
    is_idle: bool,
    /// Whether the replica waits for what is written.
    is_awaited: bool,
    need: ImageNeed,
}

impl Disk {
    /// Runs the writers, each on a thread. None: nothing is written. `is_awaited`: the replica waits for what is written.
    pub(super) fn start(
        writers: Option<Writers<Files>>,
        dir: PathBuf,
        log_bytes_max: usize,
        is_awaited: bool,
    ) -> Result<Self, NodeError> {
        let shared = Arc::new(Shared::default());
        let waker = Waker::new()?;
        let is_idle = writers.is_none();
        let (mut writer, mut images) = (None, None);
        if let Some(Writers { log, pages }) = writers {
            let log = Writer {
                shared: Arc::clone(&shared),
                waker: waker.clone(),
                log,
                dir: dir.clone(),
                is_awaited,
            };
            let thread = std::thread::Builder::new().name("log".to_owned());
            let spawned = thread.spawn(move || log.run()).map_err(|error| {
                NodeError::new(NodeErrorKind::Disk, format!("cannot start the log's thread: {error}"))
            })?;
            writer = Some(spawned);
            images = Some(PageThread::start(pages, dir.clone(), waker.clone(), Arc::clone(&shared))?);
        }
        Ok(Self {
            shared,
            waker,
            writer,
            images,
            dir,
            records: Vec::new(),
            last: Lsn(0),
            is_idle,
            is_awaited,
            need: ImageNeed::new(log_bytes_max),
        })
    }

    /// Returns the waker of the replica's thread.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Returns whether the replica waits for records to become durable, of which it knows that those up to `durable` are.
    #[inline]
    pub fn is_syncing(&self, durable: Lsn) -> bool {
        self.is_awaited && durable < self.last
    }

    /// Returns whether all records so far are durable.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_idle || self.told().durable() >= self.last
    }

    /// Returns whether the state has been copied since it was fetched.
    #[cfg(test)]
    pub(super) fn has_image(&self) -> bool {
        self.is_idle || !self.need.is_due()
    }

    /// Returns whether all pages so far have been written.
    #[cfg(test)]
    pub(super) fn has_written_pages(&self) -> bool {
        self.images.as_ref().is_none_or(PageThread::is_idle)
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
            is_written && inbox.log.is_empty() && inbox.is_quiet
        };
        while !(self.is_idle || is_quiet() || self.told().failure().is_some()) {
            std::thread::yield_now();
        }
    }

    /// Returns the reports of the disk.
    pub fn told(&self) -> &DiskReports {
        &self.shared.told
    }

    fn set_state(&mut self, state: LogState, starts_min: u64) {
        if !self.is_idle {
            self.flush();
            self.shared.inbox().log.set_state(state, starts_min);
            self.shared.wanted.notify_one();
        }
    }

    /// Writes what is left and stops.
    ///
    /// # Errors
    ///
    /// The disk has failed.
    pub fn stop(mut self) -> Result<(), NodeError> {
        self.end();
        self.told().failure().map_or(Ok(()), Err)
    }

    fn end(&mut self) {
        self.flush();
        if let Some(images) = &mut self.images {
            images.end();
        }
        self.shared.inbox().log.stop();
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
    log: LogWriter<Files>,
    dir: PathBuf,
    /// Whether the replica waits for what is written.
    is_awaited: bool,
}

impl Writer {
    fn run(mut self) {
        // The last commit has records, and nothing records yet that it is durable.
        let mut unnoted = false;
        loop {
            let job = self.next(unnoted);
            let mut bytes = 0;
            match &job {
                LogJob::Commit { records, .. } => (unnoted, bytes) = (true, records.len()),
                LogJob::NoteEnd => unnoted = false,
                LogJob::Cut(_) | LogJob::SetState { .. } | LogJob::Stop => {}
            }
            let done = self.perform(&job);
            let waiting = self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
            let ends_wait = waiting > BEHIND && waiting - bytes <= BEHIND;
            let told = &self.shared.told;
            told.log_bytes.store(u64::try_from(self.log.bytes()).unwrap_or(u64::MAX), Ordering::Relaxed);
            match done {
                Ok(Some(last)) => {
                    told.durable.store(last.0, Ordering::Release);
                    if self.is_awaited || ends_wait {
                        self.waker.wake();
                    } else {
                        std::thread::sleep(PACE);
                    }
                }
                Ok(None) => {}
                Err(trouble) => {
                    told.fail(trouble);
                    return self.waker.wake();
                }
            }
            if job == LogJob::Stop {
                return;
            }
        }
    }

    /// Waits for a job.
    fn next(&self, unnoted: bool) -> LogJob {
        let mut inbox = self.shared.inbox();
        let mut is_quiet = false;
        loop {
            if let Some(job) = inbox.log.next(is_quiet, unnoted) {
                return job;
            }
            inbox.sleeps = true;
            if unnoted {
                let waited = self.shared.wanted.wait_timeout(inbox, QUIET);
                let (waited, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                (inbox, is_quiet) = (waited, timeout.timed_out());
            } else {
                #[cfg(test)]
                (inbox.is_quiet = true);
                inbox = self.shared.wanted.wait(inbox).unwrap_or_else(PoisonError::into_inner);
                #[cfg(test)]
                (inbox.is_quiet = false);
            }
            inbox.sleeps = false;
        }
    }

    /// Does a job; while there is no space it makes some, or tries again.
    fn perform(&mut self, job: &LogJob) -> Result<Option<Lsn>, NodeError> {
        loop {
            let begin = Instant::now();
            let error = match self.log.run(job) {
                Ok(done) => {
                    if matches!(job, LogJob::Commit { .. } | LogJob::NoteEnd) {
                        self.shared.told.note_write(begin.elapsed());
                        self.shared.told.full.store(false, Ordering::Relaxed);
                    }
                    return Ok(done);
                }
                Err(error) => error,
            };
            if !error.is_full() {
                return Err(files::running(&self.dir, &error));
            }
            if !self.shared.told.full.swap(true, Ordering::Relaxed) {
                tracing::error!(%error, "the disk is full: acknowledging nothing until there is space");
                self.waker.wake();
            }
            let imaged = self.shared.inbox().log.take_cut();
            if self.log.make_room(imaged).map_err(|error| files::running(&self.dir, &error))? {
                continue;
            }
            if self.shared.inbox().log.stops() {
                return Err(NodeError::new(NodeErrorKind::Disk, "stopped while the disk was full"));
            }
            std::thread::sleep(RETRY);
        }
    }
}
