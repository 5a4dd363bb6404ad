//! The state on its way to a disk and back, as the executor's callers see it.

use alloc::vec::Vec;

use quorate_wire::{Digest, SeqNum};

use super::Executor;
use crate::image::load::{self, Loaded};
use crate::image::{CopiedPages, ImageCopy, ImageError, Loading, bytes};
use crate::page::{PageFault, PageLabel, PageStore};
use crate::service::Service;
use crate::state::arrival::Arrivals;

impl<S: Service, P: PageStore> Executor<S, P> {
    /// Begins to copy what has changed up to checkpoint `seq` since the state was copied last. None: the
    /// checkpoint is not held, or a page is [missing](Self::missing_page). `seq` is not before that of an earlier copying, unless state was fetched since.
    pub fn begin_save(&mut self, seq: SeqNum) -> Option<ImageCopy> {
        ImageCopy::begin(&mut self.state, seq)
    }

    /// Returns a page that has to be copied and cannot be read, unless pages are being brought: to
    /// [repair](Self::repair) it.
    #[inline]
    pub fn missing_page(&self) -> Option<PageFault> {
        let page = self.state.unsaved_unreadable().filter(|_| !self.transfer.is_bringing())?;
        Some(PageFault { page })
    }

    /// Appends the next pages to `out`, `pages_max` at most. Returns whether the checkpoint is still held, and no page
    /// was missing before; if not, [`Self::abandon_save`] is next.
    pub fn save(&mut self, saving: &mut ImageCopy, pages_max: usize, out: &mut CopiedPages) -> bool {
        saving.copy(&mut self.state, pages_max, out)
    }

    /// Returns the places of pages that are not part of checkpoint `seq`, and that earlier checkpoints need: a disk that
    /// stores `seq` keeps them.
    pub fn places_before(&self, seq: SeqNum) -> Vec<u32> {
        self.state.places_before(seq)
    }

    /// Gives up a copying: what has not been copied is part of the next.
    pub fn abandon_save(&mut self, saving: ImageCopy) {
        saving.abandon(&mut self.state);
    }

    /// Takes note that a disk has these pages, of a checkpoint that is durable there, each at a place of the store: they
    /// need not be in memory any more, unless they have changed since they were copied.
    pub fn note_stored(&mut self, stored: &[(PageLabel, u32)]) {
        for (label, place) in stored {
            self.state.note_stored(label, *place);
        }
    }

    /// Returns how many pages a state transfer may have in memory before it waits for [`Self::note_staged`].
    pub fn limit_transfer(&mut self, pages_max: usize) {
        self.transfer.limit(pages_max);
    }

    /// Returns how many pages a state transfer may have in memory when it is installed: it waits for
    /// [`Self::note_staged`] until it has no more.
    pub fn limit_arrivals(&mut self, pages_max: usize) {
        self.transfer.limit_arrivals(pages_max);
    }

    /// Returns how many pages the transfer in progress has in memory.
    pub fn transfer_pages(&self) -> usize {
        self.transfer.pages()
    }

    /// Appends pages of the transfer in progress to `out`, `pages_max` at most and each once: for a disk that has room
    /// for them until they are part of a state.
    pub fn stage(&mut self, pages_max: usize, out: &mut CopiedPages) {
        self.transfer.stage(pages_max, |page, label, content| out.push(page, label, content));
    }

    /// Takes note that a disk has these pages of a transfer, each at a place of the store.
    pub fn note_staged(&mut self, staged: &[(PageLabel, u32)]) {
        self.transfer.note_staged(staged, &mut self.state);
    }

    /// Lets the store drop pages that can be read again, if it has more than it should. Nothing is dropped that an open
    /// batch has written.
    #[inline]
    pub fn relax(&mut self) {
        self.state.relax();
    }

    /// Returns the store.
    #[inline]
    pub fn store(&self) -> &P {
        self.state.store()
    }

    /// Returns how many pages are in memory only because a checkpoint has another version of them.
    pub fn pages_of_checkpoints(&self) -> usize {
        self.state.pages_of_checkpoints()
    }

    /// Returns the options that the state depends on, as bytes: a state of others is none for this replica.
    pub fn shape(&self) -> [u8; 16] {
        load::shape(&self.options)
    }

    /// Begins to load a state from a disk.
    pub fn begin_load(&self) -> Loading {
        Loading::new(self.domains.clone(), &self.options)
    }

    /// Ends loading. If every page was good and they give `root`, they are now the state, which is checkpoint
    /// `seq` and the only one. A transfer in progress ends.
    ///
    /// # Errors
    ///
    /// They are not the state of that checkpoint. Nothing has changed then, but that the pages are kept
    /// for a state transfer.
    pub fn end_load(&mut self, loading: Loading, seq: SeqNum, said: Digest) -> Result<(), ImageError> {
        let Loaded { arrivals, places } = loading.finish(said).map_err(|(error, good)| {
            self.transfer.keep(good);
            error
        })?;
        self.replace(seq, said, arrivals);
        self.note_stored(&places);
        self.state.take_unsaved();
        self.transfer.keep(Arrivals::new());
        self.adopt(seq);
        Ok(())
    }

    /// Keeps the good ones of the pages that were loaded for a state transfer: what they are the state of is not known.
    pub fn keep_for_transfer(&mut self, loading: Loading) {
        self.transfer.keep(loading.into_leftover());
    }

    /// Appends checkpoint `seq` to `out` as bytes. Returns whether it is held.
    pub fn image(&self, seq: SeqNum, out: &mut Vec<u8>) -> bool {
        bytes::write(&self.state, (&self.domains, &self.options), seq, out)
    }

    /// Replaces the state by that of an image, which becomes the only checkpoint, and returns its
    /// number and root. Ends a transfer in progress.
    ///
    /// # Errors
    ///
    /// The bytes are not an image, or not of this cluster, or were changed since. Nothing has changed
    /// then: the image is checked in full before.
    pub fn restore(&mut self, image: &[u8]) -> Result<(SeqNum, Digest), ImageError> {
        let (seq, said, arrivals) = bytes::read(image, &self.domains, &self.options)?;
        self.replace(seq, said, arrivals);
        self.adopt(seq);
        Ok((seq, said))
    }

    /// Makes pages that have been checked the whole state, which is checkpoint `seq`.
    fn replace(&mut self, seq: SeqNum, said: Digest, arrivals: Arrivals) {
        let installed = self.state.install(self.state.newest(), seq, true, arrivals);
        assert_eq!(installed, said, "the pages have been checked");
        self.transfer.give_up();
    }
}

#[cfg(test)]
mod tests;
