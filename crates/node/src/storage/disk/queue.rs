//! The interface between a replica's thread and its disk. No method blocks.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use quorate_pbft::step::Lsn;
use quorate_process::storage::queue::{DiskQueue, put_record};
use quorate_process::storage::starts::LogState;
use quorate_service::image::CopiedPages;
use quorate_service::page::PageLabel;
use quorate_wire::{Digest, SeqNum};

use super::super::imaging::PageThread;
use super::{BEHIND, Disk, SMOOTH, WAITING_MAX};
use crate::error::{NodeError, NodeErrorKind};

impl DiskQueue for Disk {
    #[inline]
    fn append(&mut self, lsn: Lsn, record: &[u8]) {
        if !self.is_idle {
            put_record(record, &mut self.records);
            self.last = lsn;
        }
    }

    #[inline]
    fn flush(&mut self) {
        if self.records.is_empty() {
            return;
        }
        let bytes = self.records.len();
        let waiting = self.shared.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mut inbox = self.shared.inbox();
        inbox.log.append(&mut self.records, self.last);
        let sleeps = inbox.sleeps;
        drop(inbox);
        if sleeps {
            self.shared.wanted.notify_one();
        }
        if waiting > WAITING_MAX {
            let what = format!("{} MiB wait for the disk, which is full", waiting >> 20);
            let trouble = NodeError::new(NodeErrorKind::Disk, what).in_file(&self.dir);
            self.shared.told.fail(trouble.next("free some space, and start the replica again"));
        }
    }

    fn wants_image(&self, seq: SeqNum, is_crowded: bool) -> bool {
        let bytes = self.told().log_bytes.load(Ordering::Relaxed);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // Also: slots freed by the last seal are written only after the store knows (`paged.rs`).
        let may = self.images.is_some() && !self.is_imaging();
        // On a full disk, too: the log becomes shorter.
        may && self.need.wants(seq, bytes, is_crowded || self.told().is_full())
    }

    fn stage(&mut self, copied: CopiedPages) {
        if let Some(images) = &self.images {
            images.stage(copied);
        }
    }

    fn land(&mut self) {
        if let Some(images) = &self.images {
            images.land();
        }
    }

    fn take_staged(&mut self) -> Vec<(PageLabel, u32)> {
        std::mem::take(&mut *self.shared.staged.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_imaging(&self) -> bool {
        let is_idle = self.images.as_ref().is_none_or(PageThread::is_idle);
        !is_idle || self.shared.has_stored.load(Ordering::Acquire)
    }

    #[inline]
    fn take_stored(&mut self) -> Vec<(PageLabel, u32)> {
        if !self.shared.has_stored.load(Ordering::Acquire) {
            return Vec::new();
        }
        let stored = std::mem::take(&mut *self.shared.stored.lock().unwrap_or_else(PoisonError::into_inner));
        self.shared.has_stored.store(false, Ordering::Release);
        stored
    }

    fn has_room(&self) -> bool {
        self.images.as_ref().is_none_or(PageThread::has_room)
    }

    fn pages(&mut self, copied: CopiedPages) {
        if let Some(images) = &self.images {
            images.pages(copied);
        }
    }

    fn image(&mut self, seq: SeqNum, root: Digest, kept: Vec<u32>) {
        if let Some(images) = &self.images {
            images.seal(seq, root, kept);
            self.need.note_image(seq);
        }
    }

    fn write_p99_us(&self) -> u32 {
        let slow = self.shared.told.write_p99_us.load(Ordering::Relaxed) / SMOOTH;
        u32::try_from(slow).unwrap_or(u32::MAX)
    }

    fn is_full(&self) -> bool {
        self.told().is_full()
    }

    #[inline]
    fn is_behind(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) > BEHIND
    }

    fn image_soon(&mut self) {
        self.need.be_due();
    }

    #[inline]
    fn is_image_due(&self) -> bool {
        self.need.is_due() && self.images.is_some()
    }

    fn take_kept(&self) -> Option<SeqNum> {
        self.shared.kept.swap(0, Ordering::AcqRel).checked_sub(1).map(SeqNum)
    }

    #[inline]
    fn has_kept(&self) -> bool {
        self.shared.kept.load(Ordering::Acquire) != 0
    }

    fn distrust(&mut self, starts: u64) {
        // A count behind the others' knowledge would look like a stale disk at the next start.
        self.set_state(LogState::None, starts);
    }

    fn rejoined(&mut self) {
        self.set_state(LogState::Log, 0);
    }
}
