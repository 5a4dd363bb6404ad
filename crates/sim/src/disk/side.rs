//! The disk of a host, as the process there sees it. What the process passes waits until the end of an event, when
//! `DiskSide::pour` gives it to the disk.

use std::cell::Cell;

use quorate_pbft::step::Lsn;
use quorate_process::DiskQueue;
use quorate_process::storage::queue::{ImageNeed, PageJob, PagesDone, put_record};
use quorate_process::storage::starts::LogState;
use quorate_service::image::CopiedPages;
use quorate_service::page::PageLabel;
use quorate_wire::{Digest, SeqNum};

use super::Disk;

/// How many parts of an image may wait.
const WAITING_MAX: usize = 4;

/// What a process gives to its disk, and what it knows of it.
#[derive(Debug)]
pub struct DiskSide {
    /// Nothing is written.
    is_idle: bool,
    records: Vec<u8>,
    last: Lsn,
    state: Option<(LogState, u64)>,
    jobs: Vec<PageJob>,
    /// How many jobs of the writer of the pages are not done.
    waiting: usize,
    need: ImageNeed,
    log_bytes: usize,
    is_full: bool,
    stored: Vec<(PageLabel, u32)>,
    staged: Vec<(PageLabel, u32)>,
    kept: Cell<Option<SeqNum>>,
}

impl DiskSide {
    /// Returns the side of a process that begins to write to `disk`. The state is written when the log is longer than
    /// `log_bytes_max`.
    pub fn new(disk: &Disk, log_bytes_max: usize) -> Self {
        Self {
            is_idle: !disk.is_written(),
            records: Vec::new(),
            last: Lsn(0),
            state: None,
            jobs: Vec::new(),
            waiting: 0,
            need: ImageNeed::new(log_bytes_max),
            log_bytes: disk.log_bytes(),
            is_full: false,
            stored: Vec::new(),
            staged: Vec::new(),
            kept: Cell::new(None),
        }
    }

    /// Gives to the disk what has come since. A liar does not say that its log is no state: nobody relies on it.
    pub(crate) fn pour(&mut self, disk: &mut Disk, correct: bool) {
        if !self.records.is_empty() {
            disk.inbox.append(&mut self.records, self.last);
        }
        if let Some((state, starts_min)) = self.state.take().filter(|_| correct) {
            disk.inbox.set_state(state, starts_min);
        }
        disk.pages.extend(self.jobs.drain(..));
    }

    /// A job of the log's writer is done, or found no space.
    pub(crate) fn note_log(&mut self, log_bytes: usize, is_full: bool) {
        (self.log_bytes, self.is_full) = (log_bytes, is_full);
    }

    /// The writer of the pages has done jobs. Returns the checkpoint of an image that is durable now.
    pub(crate) fn note_pages(&mut self, all: Vec<PagesDone>) -> Option<SeqNum> {
        self.waiting -= all.len();
        let mut sealed = None;
        for done in all {
            match done {
                PagesDone::Written => {}
                PagesDone::Staged(staged) => self.staged.extend(staged),
                PagesDone::Sealed(seq, stored) => {
                    self.stored = stored;
                    self.kept.set(Some(seq));
                    sealed = Some(seq);
                }
            }
        }
        sealed
    }

    fn push(&mut self, job: PageJob) {
        if !self.is_idle {
            self.jobs.push(job);
            self.waiting += 1;
        }
    }
}

impl DiskQueue for DiskSide {
    fn append(&mut self, lsn: Lsn, record: &[u8]) {
        if !self.is_idle {
            put_record(record, &mut self.records);
            self.last = lsn;
        }
    }

    fn flush(&mut self) {}

    fn wants_image(&self, seq: SeqNum, is_crowded: bool) -> bool {
        let may = !self.is_idle && !self.is_imaging();
        may && self.need.wants(seq, self.log_bytes, is_crowded || self.is_full)
    }

    fn stage(&mut self, copied: CopiedPages) {
        self.push(PageJob::Stage(copied));
    }

    fn land(&mut self) {
        self.push(PageJob::Adopt);
    }

    fn take_staged(&mut self) -> Vec<(PageLabel, u32)> {
        std::mem::take(&mut self.staged)
    }

    fn is_imaging(&self) -> bool {
        self.waiting > 0 || !self.stored.is_empty()
    }

    fn take_stored(&mut self) -> Vec<(PageLabel, u32)> {
        std::mem::take(&mut self.stored)
    }

    fn has_room(&self) -> bool {
        self.waiting < WAITING_MAX
    }

    fn pages(&mut self, copied: CopiedPages) {
        self.push(PageJob::Write(copied));
    }

    fn image(&mut self, seq: SeqNum, root: Digest, kept: Vec<u32>) {
        self.push(PageJob::Seal(seq, root, kept));
        self.need.note_image(seq);
    }

    fn image_soon(&mut self) {
        self.need.be_due();
    }

    fn is_image_due(&self) -> bool {
        self.need.is_due() && !self.is_idle
    }

    fn take_kept(&self) -> Option<SeqNum> {
        self.kept.take()
    }

    fn has_kept(&self) -> bool {
        self.kept.get().is_some()
    }

    fn distrust(&mut self, starts: u64) {
        // A count behind the others' knowledge would look like a stale disk at the next start.
        let before = self.state.map_or(0, |(_, starts)| starts);
        self.state = Some((LogState::None, starts.max(before)));
    }

    fn rejoined(&mut self) {
        let before = self.state.map_or(0, |(_, starts)| starts);
        self.state = Some((LogState::Log, before));
    }

    fn is_full(&self) -> bool {
        self.is_full
    }
}
