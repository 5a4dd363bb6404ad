//! The state on its way to a disk and back, page by page.
//!
//! Only pages that have changed since they were last copied go to the disk: a bit for each, set by the cut of
//! a checkpoint or by an installation, taken by [`Executor::begin_save`]. They are copied some at a time,
//! so that nobody waits for all of them; the checkpoint that is copied must be held until the end.
//!
//! What comes back is believed when it has its digest, and not before. If every page is good and together
//! they give the root, they are the state. If not, the good ones are put aside: a state transfer finds
//! them there by their digests, and asks for the others only.

use alloc::boxed::Box;
use alloc::vec::Vec;

use quorate_wire::{Digest, SeqNum};

use crate::executor::Executor;
use crate::image::ImageError;
use crate::pages::{Page, PageStore};
use crate::service::Service;
use crate::state::Arrival;
use crate::tree::{Label, Tree};

/// What a checkpoint says of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLabel {
    /// The page.
    pub page: u32,
    /// The last checkpoint that modified it.
    pub modified: SeqNum,
    /// Its digest, over its number, `modified` and its content. Zero: it is empty.
    pub digest: Digest,
}

/// Pages with their labels, copied out of a checkpoint.
#[derive(Debug, Default)]
pub struct Copied {
    labels: Vec<PageLabel>,
    content: Vec<u8>,
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

    /// Says whether there is no page.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}

/// A checkpoint that is being copied. The driver keeps it from being discarded meanwhile.
#[derive(Debug)]
pub struct Saving {
    seq: SeqNum,
    root: Digest,
    /// A bit for each page that is still to be copied.
    bits: Vec<u64>,
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

    /// Says whether every page has been copied.
    pub fn is_done(&self) -> bool {
        self.word == self.bits.len()
    }

    /// Takes the next page that is to be copied.
    fn next(&mut self) -> Option<u32> {
        while let Some(bits) = self.bits.get_mut(self.word) {
            if *bits == 0 {
                self.word += 1;
                continue;
            }
            let at = bits.trailing_zeros();
            *bits &= *bits - 1;
            return u32::try_from(self.word).ok()?.checked_mul(u64::BITS)?.checked_add(at);
        }
        None
    }
}

impl<S: Service, P: PageStore> Executor<S, P> {
    /// Begins to copy what has changed up to checkpoint `seq` since the state was copied last. None: the
    /// checkpoint is not held. `seq` is not before that of an earlier copying, unless state was fetched since.
    pub fn begin_save(&mut self, seq: SeqNum) -> Option<Saving> {
        let root = self.state.root_at(seq)?;
        Some(Saving { seq, root, bits: self.state.take_unsaved(), word: 0 })
    }

    /// Appends the next pages to `out`, `pages_max` at most. Says whether the checkpoint is still held; if
    /// not, [`Self::abandon_save`] is next.
    pub fn save(&mut self, saving: &mut Saving, pages_max: usize, out: &mut Copied) -> bool {
        let Saving { seq, root, .. } = *saving;
        if self.state.root_at(seq) != Some(root) {
            return false;
        }
        for _ in 0..pages_max {
            let Some(page) = saving.next() else { break };
            let label = self.state.label_at(seq, 0, page);
            if self.state.tree().label(0, page) != label {
                // It has changed since, before or after this copying began.
                self.state.mark_unsaved(page);
            }
            let content = self.state.page_at(seq, page).unwrap_or(&[]);
            if label.is_empty() == content.is_empty() {
                out.labels.push(PageLabel { page, modified: label.modified, digest: label.digest });
                out.content.extend_from_slice(content);
            }
        }
        while saving.bits.get(saving.word) == Some(&0) {
            saving.word += 1;
        }
        true
    }

    /// Gives up a copying: what has not been copied is part of the next.
    pub fn abandon_save(&mut self, mut saving: Saving) {
        while let Some(page) = saving.next() {
            self.state.mark_unsaved(page);
        }
    }

    /// Returns the options that the state depends on, as bytes: a state of others is none for this replica.
    pub fn shape(&self) -> [u8; 16] {
        let options = &self.options;
        let small = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let fields = [
            small(options.page_bytes),
            options.pages_max,
            options.clients_max,
            small(options.result_bytes_max),
        ];
        let mut shape = [0; 16];
        for (bytes, field) in shape.chunks_exact_mut(4).zip(fields) {
            bytes.copy_from_slice(&field.to_le_bytes());
        }
        shape
    }

    /// Begins to load a state from a disk.
    pub fn begin_load(&self) -> Loading {
        Loading {
            tree: Tree::new(self.domains.clone(), self.options.pages_max),
            pages_max: self.options.pages_max,
            page_bytes: self.options.page_bytes,
            pages: Vec::new(),
            damaged: 0,
        }
    }

    /// Ends loading. If every page was good and they give `root`, they are now the state, which is checkpoint
    /// `seq` and the only one. A transfer under way ends.
    ///
    /// # Errors
    ///
    /// They are not the state of that checkpoint. Nothing has changed then, but that the pages are put aside
    /// for a state transfer.
    pub fn end_load(&mut self, loading: Loading, seq: SeqNum, said: Digest) -> Result<(), ImageError> {
        let Loading { mut tree, mut pages, damaged, .. } = loading;
        pages.sort_unstable_by_key(|(page, _, _)| *page);
        tree.set_leaves(pages.iter().map(|(page, label, _)| (*page, *label)));
        let is_twice = pages.windows(2).any(|two| two[0].0 == two[1].0);
        if damaged > 0 || is_twice || tree.root() != said {
            pages.dedup_by_key(|(page, _, _)| *page);
            self.attic = pages;
            return Err(ImageError::WrongRoot { said, found: tree.root() });
        }
        let arrivals =
            pages.into_iter().map(|(page, label, content)| (page, label, Arrival::New(Some(content))));
        let newest = self.state.newest();
        let installed = self.state.install(newest, seq, true, arrivals.collect(), &mut self.pool);
        assert_eq!(installed, said, "the pages have been checked");
        self.state.take_unsaved();
        self.attic = Vec::new();
        self.walk = None;
        self.adopt(seq);
        Ok(())
    }

    /// Puts the good ones of the pages that were loaded aside: what they are the state of is not known.
    pub fn keep_for_transfer(&mut self, loading: Loading) {
        let mut pages = loading.pages;
        pages.sort_unstable_by_key(|(page, _, _)| *page);
        pages.dedup_by_key(|(page, _, _)| *page);
        self.attic = pages;
    }
}

/// Pages from a disk, on their way to become the state.
#[derive(Debug)]
pub struct Loading {
    tree: Tree,
    pages_max: u32,
    page_bytes: usize,
    pages: Vec<(u32, Label, Page)>,
    damaged: usize,
}

impl Loading {
    /// Takes a page as the disk has it. Says whether it is the one that its label is about; if not, it is
    /// counted and dropped.
    pub fn take(&mut self, label: &PageLabel, content: Box<[u8]>) -> bool {
        let found = self.tree.leaf(label.page, label.modified, Some(&content));
        let is_good =
            found.digest == label.digest && label.page < self.pages_max && content.len() == self.page_bytes;
        if is_good {
            self.pages.push((label.page, found, content));
        } else {
            self.damaged += 1;
        }
        is_good
    }

    /// Counts a page that could not be read.
    pub fn miss(&mut self) {
        self.damaged += 1;
    }

    /// Returns how many pages were good, and how many were not.
    pub fn count(&self) -> (usize, usize) {
        (self.pages.len(), self.damaged)
    }
}

#[cfg(test)]
mod tests;
