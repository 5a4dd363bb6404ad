//! The images of checkpoints, on their way to the disk (D5): copied between messages, some pages at a time,
//! so that a large state keeps nobody waiting.

use quorate_service::Service;
use quorate_wire::SeqNum;

use super::Drive;
use crate::core::Core;
use crate::journal::Journal;
use crate::meter::Meter;

/// Pages that are copied between two bursts: a tenth of a millisecond's work.
const PAGES_MAX: usize = if cfg!(test) { 2 } else { 128 };

impl<S: Service, M: Meter, J: Journal, C: Core> Drive<S, M, J, C> {
    /// Forgets the checkpoints before the stable one, but the one that is being copied; begins to copy the
    /// stable one if the journal wants an image.
    pub(super) fn discard(&mut self, stable: SeqNum) {
        let below = self.copying.as_ref().map_or(stable, |(copying, _)| copying.seq().min(stable));
        self.executor.discard(below);
        if self.copying.is_none() && self.journal.wants_image() {
            let mut bytes = Vec::new();
            self.copying = self.executor.begin_image(stable, &mut bytes).map(|copying| (copying, bytes));
        }
    }

    /// Copies some more pages.
    #[cold]
    pub(super) fn copy_image(&mut self) {
        let Some((mut copying, mut bytes)) = self.copying.take() else { return };
        if !self.executor.copy_image(&mut copying, PAGES_MAX, &mut bytes) {
            return; // overtaken; the next stable checkpoint is copied
        }
        if copying.is_done() {
            self.journal.image(copying.seq(), bytes);
        } else {
            self.copying = Some((copying, bytes));
        }
    }
}
