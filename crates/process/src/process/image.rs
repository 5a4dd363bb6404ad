//! Writes the state to disk (D5): changed pages are copied between messages, some at a time, so that a large state
//! does not block the replica.

use quorate_service::Service;
use quorate_service::image::CopiedPages;
use quorate_wire::SeqNum;

use super::Process;
use crate::core::Core;
use crate::storage::queue::DiskQueue;
use crate::storage::store::Store;

impl<S: Service, P: Store, D: DiskQueue, C: Core> Process<S, P, D, C> {
    /// Forgets the checkpoints before the stable one, except one that is being copied. Begins to copy the stable one
    /// if the journal wants it.
    pub(super) fn discard(&mut self, now_ns: u64, stable: SeqNum) {
        let below = self.saving.as_ref().map_or(stable, |saving| saving.seq().min(stable));
        self.executor.discard(now_ns, below);
        self.begin_image(stable);
    }

    /// Begins to copy a checkpoint if the journal wants it. Not during a state transfer: the transfer may use
    /// unreferenced pages on the disk, and their slots become free when an image is sealed.
    fn begin_image(&mut self, stable: SeqNum) {
        let may = self.saving.is_none() && self.stored.is_empty() && !self.executor.is_fetching();
        if may && self.disk.wants_image(stable, self.is_crowded()) {
            self.saving = self.executor.begin_save(stable);
            // Slots of a finished transfer are free, or part of the state, when the image is sealed.
            self.disk.take_staged();
        }
    }

    fn is_crowded(&self) -> bool {
        self.executor.store().is_crowded(self.executor.pages_of_checkpoints())
    }

    /// Continues the work on the disk's pages.
    #[inline]
    pub(super) fn look_after_image(&mut self) {
        if self.saving.is_some() {
            self.copy_image();
        }
        if self.executor.is_fetching() {
            self.stage();
        }
        if self.stored.is_empty() {
            self.stored = self.disk.take_stored();
        }
        if !self.stored.is_empty() {
            self.note_stored();
        }
        if self.disk.is_image_due() {
            // What was fetched is said to nobody before it is on the disk (ST-6), and may not be stable yet.
            self.begin_image(self.statements.stable().max(self.fetched));
        }
    }

    /// Writes pages of a state transfer to disk if there are many: a quarter of those that may be in memory. Its
    /// final share of memory is the rest of the bound; otherwise a replica that falls behind repeatedly while the
    /// disk is full would use more each time.
    #[cold]
    fn stage(&mut self) {
        self.executor.note_staged(&self.disk.take_staged());
        let (store, others) = (self.executor.store(), self.executor.pages_of_checkpoints());
        let (pages, max) = (store.pages(), store.pages_max());
        let left = max.saturating_add(max / 2).saturating_sub(pages.dirty + others);
        if self.disk.is_behind() {
            // With the fetched state, the replica would take part in further batches, and have more records.
            return self.executor.limit_arrivals(0);
        }
        self.executor.limit_arrivals(left);
        if self.executor.transfer_pages() > left.min(max / 4) && self.disk.has_room() {
            let mut copied = CopiedPages::default();
            self.executor.stage(self.pace.pages_max, &mut copied);
            if !copied.is_empty() {
                self.disk.stage(copied);
            }
        }
    }

    /// Abandons the image that is being copied: a transfer begins, and no image is sealed before its end.
    pub(super) fn give_up_image(&mut self) {
        if let Some(saving) = self.saving.take() {
            self.executor.abandon_save(saving);
        }
    }

    /// Passes some slots to the executor. When it knows all of them, another image may begin, if needed.
    #[cold]
    fn note_stored(&mut self) {
        let from = self.stored.len().saturating_sub(self.pace.slots_max);
        self.executor.note_stored(&self.stored[from..]);
        self.stored.truncate(from);
        self.executor.relax();
        if self.stored.is_empty() && self.is_crowded() {
            self.begin_image(self.statements.stable());
        }
    }

    /// Copies more pages, if the journal has space for them.
    #[cold]
    fn copy_image(&mut self) {
        if !self.disk.has_room() {
            return;
        }
        let Some(mut saving) = self.saving.take() else { return };
        let mut copied = CopiedPages::default();
        if !self.executor.save(&mut saving, self.pace.pages_max, &mut copied) {
            // Overtaken, or the state was fetched: the next stable checkpoint is copied. Or a page cannot be read.
            return self.executor.abandon_save(saving);
        }
        if !copied.is_empty() {
            self.disk.pages(copied);
        }
        if saving.is_done() {
            let kept = self.executor.places_before(saving.seq());
            self.disk.image(saving.seq(), saving.root(), kept);
        } else {
            self.saving = Some(saving);
        }
    }
}
