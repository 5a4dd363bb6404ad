//! The thread that writes the state: copied pages, and a seal when a checkpoint is complete.
//!
//! It shares the disk with the log, for which clients wait. So it syncs after small parts, and pauses for as long as
//! each sync took.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quorate_process::storage::io::DiskError;
use quorate_process::storage::pages::PageWriter;
use quorate_process::storage::queue::{PageJob, PagesDone};
use quorate_service::image::CopiedPages;
use quorate_service::page::PageLabel;
use quorate_wire::{Digest, SeqNum};

use super::files::{self, Files};
use crate::error::{NodeError, NodeErrorKind};
use crate::net::wake::Waker;

/// Maximum number of parts of an image that wait for the thread.
const WAITING_MAX: usize = 4;
/// Bytes between two syncs.
const PART: usize = 4 << 20;
/// Maximum pause.
const REST: Duration = Duration::from_millis(100);
/// How long to wait before retrying on a full disk.
const RETRY: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct Queue {
    work: Mutex<VecDeque<PageJob>>,
    wanted: Condvar,
    /// Number of tasks that wait or are being done.
    waiting: AtomicUsize,
    stop: AtomicBool,
}

impl Queue {
    fn work(&self) -> MutexGuard<'_, VecDeque<PageJob>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a task; none: the thread must end.
    fn next(&self) -> Option<PageJob> {
        let mut work = self.work();
        loop {
            if let Some(next) = work.pop_front() {
                return Some(next);
            }
            if self.stop.load(Ordering::Acquire) {
                return None;
            }
            work = self.wanted.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A report of the thread.
pub(super) trait PageReports: Send + 'static {
    /// A checkpoint is durable, and its new pages are in these slots.
    fn sealed(&self, seq: SeqNum, stored: Vec<(PageLabel, u32)>);
    /// Pages of a transfer are in these slots.
    fn staged(&self, staged: Vec<(PageLabel, u32)>);
    /// The disk has failed: nothing more is written.
    fn failed(&self, trouble: NodeError);
}

/// The handle of the thread.
#[derive(Debug)]
pub(super) struct PageThread {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

impl PageThread {
    pub(super) fn start(
        file: PageWriter<Files>,
        dir: PathBuf,
        waker: Waker,
        told: impl PageReports,
    ) -> Result<Self, NodeError> {
        let queue = Arc::new(Queue::default());
        let shared = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("pages".to_owned());
        let spawned = thread.spawn(move || run(file, &dir, &shared, &waker, &told));
        let thread = spawned.map_err(|error| {
            NodeError::new(NodeErrorKind::Disk, format!("cannot start the pages' thread: {error}"))
        })?;
        Ok(Self { queue, thread: Some(thread) })
    }

    /// Returns whether more tasks are accepted.
    pub(super) fn has_room(&self) -> bool {
        self.queue.waiting.load(Ordering::Acquire) < WAITING_MAX
    }

    /// Returns whether all tasks are done.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.waiting.load(Ordering::Acquire) == 0
    }

    pub(super) fn pages(&self, copied: CopiedPages) {
        self.give(PageJob::Write(copied));
    }

    pub(super) fn stage(&self, copied: CopiedPages) {
        self.give(PageJob::Stage(copied));
    }

    pub(super) fn land(&self) {
        self.give(PageJob::Adopt);
    }

    pub(super) fn seal(&self, seq: SeqNum, root: Digest, kept: Vec<u32>) {
        self.give(PageJob::Seal(seq, root, kept));
    }

    fn give(&self, work: PageJob) {
        self.queue.waiting.fetch_add(1, Ordering::AcqRel);
        self.queue.work().push_back(work);
        self.queue.wanted.notify_one();
    }

    /// Does the remaining tasks, and ends.
    pub(super) fn end(&mut self) {
        {
            let _work = self.queue.work();
            self.queue.stop.store(true, Ordering::Release);
        }
        self.queue.wanted.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(mut file: PageWriter<Files>, dir: &Path, queue: &Queue, waker: &Waker, told: &impl PageReports) {
    while let Some(work) = queue.next() {
        match perform(&mut file, queue, &work) {
            Ok(PagesDone::Written) => {}
            Ok(PagesDone::Staged(staged)) => told.staged(staged),
            Ok(PagesDone::Sealed(seq, stored)) => told.sealed(seq, stored),
            Err(error) => {
                told.failed(files::running(dir, &error));
                return waker.wake();
            }
        }
        queue.waiting.fetch_sub(1, Ordering::AcqRel);
        waker.wake();
    }
}

/// Does a task; while the disk is full it retries.
fn perform(file: &mut PageWriter<Files>, queue: &Queue, work: &PageJob) -> Result<PagesDone, DiskError> {
    let mut was_full = false;
    loop {
        match file.run(work) {
            Ok(done) => {
                sync(file, queue)?;
                return Ok(done);
            }
            Err(error) if error.is_full() => {}
            Err(error) => return Err(error),
        }
        if !was_full {
            tracing::warn!("no disk space for the state: the log cannot be truncated");
            was_full = true;
        }
        if queue.stop.load(Ordering::Acquire) {
            return Ok(PagesDone::Written); // what was not sealed does not count
        }
        std::thread::sleep(RETRY);
    }
}

fn sync(file: &mut PageWriter<Files>, queue: &Queue) -> Result<(), DiskError> {
    if file.unsynced() < PART {
        return Ok(());
    }
    let start = Instant::now();
    file.sync()?;
    if !queue.stop.load(Ordering::Acquire) {
        std::thread::sleep(start.elapsed().min(REST));
    }
    Ok(())
}
