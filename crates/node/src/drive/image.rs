//! The state, on its way to the disk (D5): what has changed is copied between messages, some pages at a time,
//! so that a large state keeps nobody waiting.

use quorate_service::Service;
use quorate_service::saving::Copied;
use quorate_wire::SeqNum;

use super::Drive;
use crate::core::Core;
use crate::journal::Journal;
use crate::meter::Meter;

/// Pages that are copied between two bursts: a tenth of a millisecond's work.
const PAGES_MAX: usize = if cfg!(test) { 8 } else { 128 };

impl<S: Service, M: Meter, J: Journal, C: Core> Drive<S, M, J, C> {
    /// Forgets the checkpoints before the stable one, but the one that is being copied; begins to copy the
    /// stable one if the journal wants it.
    pub(super) fn discard(&mut self, stable: SeqNum) {
        let below = self.saving.as_ref().map_or(stable, |saving| saving.seq().min(stable));
        self.executor.discard(below);
        if self.saving.is_none() && self.journal.wants_image(stable) {
            self.saving = self.executor.begin_save(stable);
        }
    }

    /// Copies some more pages, if the journal has room for them.
    #[cold]
    pub(super) fn copy_image(&mut self) {
        if !self.journal.has_room() {
            return;
        }
        let Some(mut saving) = self.saving.take() else { return };
        let mut copied = Copied::default();
        if !self.executor.save(&mut saving, PAGES_MAX, &mut copied) {
            // Overtaken, or the state was fetched: the next stable checkpoint is copied.
            return self.executor.abandon_save(saving);
        }
        if !copied.is_empty() {
            self.journal.pages(copied);
        }
        if saving.is_done() {
            self.journal.image(saving.seq(), saving.root());
        } else {
            self.saving = Some(saving);
        }
    }
}
