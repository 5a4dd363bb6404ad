//! Writing the state to a disk, page by page.
//!
//! Only pages that changed since they were last copied are written: each has a bit, set by a checkpoint or an
//! installation and taken by [`Executor::begin_save`]. Pages are copied a few at a time, so that no request waits for
//! all of them; the checkpoint that is copied must be held until the end.

use alloc::vec::Vec;

use quorate_wire::{Digest, SeqNum};

use crate::executor::Executor;
use crate::page::{PageLabel, PageStore};
use crate::service::Service;
use crate::state::bits::Bits;
use crate::state::tree::Label;
use crate::transfer::walk::Walk;

/// Pages with their labels, copied out of a checkpoint.
#[derive(Debug, Default)]
pub struct Copied {
    labels: Vec<PageLabel>,
    content: Vec<u8>,
    /// Pages among them that could not be read where the disk has them.
    unreadable: Vec<u32>,
}

impl Copied {
    /// Returns the labels, in the order of their pages.
    pub fn labels(&self) -> &[PageLabel] {
        &self.labels
    }

    /// Returns the content of the pages that are not empty, one behind the other.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// Returns whether there is no page.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Returns whether a page has to be written even if the disk has it: it cannot be read there.
    pub fn is_anew(&self, page: u32) -> bool {
        self.unreadable.contains(&page)
    }
}

/// A checkpoint that is being copied. The driver keeps it from being discarded until the end.
#[derive(Debug)]
pub struct Saving {
    seq: SeqNum,
    root: Digest,
    /// A bit for each page that is still to be copied.
    bits: Bits,
    /// All bits in the words before this one are clear.
    word: usize,
}

impl Saving {
    /// Returns the checkpoint.
    pub fn seq(&self) -> SeqNum {
        self.seq
    }

    /// Returns its root.
    pub fn root(&self) -> Digest {
        self.root
    }

    /// Returns whether every page has been copied.
    pub fn is_done(&self) -> bool {
        self.word == self.bits.words()
    }

    /// Takes the next page that is to be copied.
    fn next(&mut self) -> Option<u32> {
        self.bits.pop_first(&mut self.word)
    }
}

impl<S: Service, P: PageStore> Executor<S, P> {
    /// Begins to copy what has changed up to checkpoint `seq` since the state was copied last. None: the
    /// checkpoint is not held. `seq` is not before that of an earlier copying, unless state was fetched since.
    pub fn begin_save(&mut self, seq: SeqNum) -> Option<Saving> {
        let root = self.state.root_at(seq)?;
        Some(Saving { seq, root, bits: self.state.take_unsaved(), word: 0 })
    }

    /// Appends the next pages to `out`, `pages_max` at most. Returns whether the checkpoint is still held; if
    /// not, [`Self::abandon_save`] is next.
    pub fn save(&mut self, saving: &mut Saving, pages_max: usize, out: &mut Copied) -> bool {
        let Saving { seq, root, .. } = *saving;
        if self.state.root_at(seq) != Some(root) {
            return false;
        }
        let mut buffer = Vec::new();
        for _ in 0..pages_max {
            let Some(page) = saving.next() else { break };
            let label = self.state.label_at(seq, 0, page);
            if self.state.tree().label(0, page) != label {
                // It has changed since, before or after this copying began.
                self.state.mark_unsaved(page);
            }
            if self.state.take_mended(page) {
                out.unreadable.push(page);
            }
            let content = self.state.page_at(seq, page, &mut buffer).unwrap_or(&[]);
            if label.is_empty() == content.is_empty() {
                out.labels.push(PageLabel { page, modified: label.modified, digest: label.digest });
                out.content.extend_from_slice(content);
            }
        }
        saving.bits.skip(&mut saving.word);
        true
    }

    /// Gives up a copying: what has not been copied is part of the next.
    pub fn abandon_save(&mut self, mut saving: Saving) {
        while let Some(page) = saving.next() {
            self.state.mark_unsaved(page);
        }
    }

    /// Takes note that a disk has these pages, of a checkpoint that is durable there, each at a place of the store: they
    /// need not be in memory any more, unless they have changed since they were copied.
    pub fn note_stored(&mut self, stored: &[(PageLabel, u32)]) {
        for (label, place) in stored {
            self.state.note_stored(label, *place);
        }
    }

    /// Returns how many pages a state transfer may have in memory before it waits for [`Self::note_aside`].
    pub fn limit_transfer(&mut self, pages_max: usize) {
        self.staged_max = pages_max.max(1);
    }

    /// Returns how many pages a state transfer may have in memory when it is installed: it waits for
    /// [`Self::note_aside`] until it has no more.
    pub fn limit_arrivals(&mut self, pages_max: usize) {
        self.landed_max = pages_max;
    }

    /// Returns how many pages the transfer in progress has in memory.
    pub fn transfer_pages(&self) -> usize {
        self.walk.as_ref().map_or(0, Walk::contents)
    }

    /// Appends pages of the transfer in progress to `out`, `pages_max` at most and each once: for a disk that has room
    /// for them until they are part of a state.
    pub fn put_aside(&mut self, pages_max: usize, out: &mut Copied) {
        if let Some(walk) = &mut self.walk {
            walk.put_aside(pages_max, |page, label, content| {
                out.labels.push(PageLabel { page, modified: label.modified, digest: label.digest });
                out.content.extend_from_slice(content);
            });
        }
    }

    /// Takes note that a disk has these pages of a transfer, each at a place of the store.
    pub fn note_aside(&mut self, aside: &[(PageLabel, u32)]) {
        let Some(walk) = &mut self.walk else { return };
        for (label, place) in aside {
            let PageLabel { page, modified, digest } = *label;
            walk.is_aside(page, Label { modified, digest }, *place, &mut self.state);
        }
    }

    /// Lets the store drop pages that can be read again, if it has more than it should. Nothing is dropped that the
    /// tentative batch will need.
    #[inline]
    pub fn relax(&mut self) {
        if self.tentative().is_none() {
            self.state.relax();
        }
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
}

#[cfg(test)]
mod tests;
