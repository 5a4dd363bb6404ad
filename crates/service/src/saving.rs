//! Writing the state to a disk and reading it back, page by page.
//!
//! Only pages that changed since they were last copied are written: each has a bit, set by a checkpoint or an
//! installation and taken by [`Executor::begin_save`]. Pages are copied a few at a time, so that no request waits for
//! all of them; the checkpoint that is copied must be held until the end.
//!
//! A page that is read back is trusted only if its digest matches. If every page is valid and together they give the
//! root, they are the state. Otherwise the valid ones are kept aside: a state transfer finds them by their digests
//! and fetches only the others.

use alloc::vec::Vec;

use quorate_wire::digest::Domains;
use quorate_wire::{Digest, SeqNum};

use crate::executor::Executor;
use crate::image::ImageError;
use crate::page::{Page, PageLabel, PageStore};
use crate::service::Service;
use crate::state::Arrival;
use crate::tree::{Label, Tree};
use crate::walk::Walk;

/// The form of what this crate itself keeps in a state: last replies, shares, clients. It was 0 before a reply's digest
/// told which request it answers, and before clients had shares.
const STATE_FORMAT: u32 = 1;

/// Says whether a state of this shape is in the form of an earlier version.
pub fn is_of_another_form(shape: &[u8; 16]) -> bool {
    u32::from(shape[15]) != STATE_FORMAT
}

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

    /// Returns whether every page has been copied.
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
            walk.is_aside(page, Label { modified, digest }, *place, &mut self.pool);
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

    /// Returns the options that the state depends on, as bytes: a state of others is none for this replica.
    pub fn shape(&self) -> [u8; 16] {
        let options = &self.options;
        let small = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        // Each of them is from 1 to 2^16.
        let lanes = options.lanes_max.saturating_sub(1) << 16 | options.clients_max.saturating_sub(1);
        let fields = [
            small(options.page_bytes),
            options.pages_max,
            lanes,
            small(options.result_bytes_max) | STATE_FORMAT << 24,
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
    /// `seq` and the only one. A transfer in progress ends.
    ///
    /// # Errors
    ///
    /// They are not the state of that checkpoint. Nothing has changed then, but that the pages are put aside
    /// for a state transfer.
    pub fn end_load(&mut self, loading: Loading, seq: SeqNum, said: Digest) -> Result<(), ImageError> {
        let Loading { mut tree, mut pages, damaged, .. } = loading;
        pages.sort_unstable_by_key(|found| found.page);
        tree.set_leaves(pages.iter().map(|found| (found.page, found.label)));
        let is_twice = pages.windows(2).any(|two| two[0].page == two[1].page);
        if damaged > 0 || is_twice || tree.root() != said {
            self.attic = attic(pages);
            return Err(ImageError::WrongRoot { said, found: tree.root() });
        }
        drop(tree);
        let places: Vec<_> =
            pages.iter().filter_map(|found| Some((found.as_label(), found.place?))).collect();
        let arrivals = pages.into_iter().map(|found| (found.page, found.label, found.arrival())).collect();
        let newest = self.state.newest();
        let installed = self.state.install(newest, seq, true, arrivals, &mut self.pool);
        assert_eq!(installed, said, "the pages have been checked");
        self.note_stored(&places);
        self.state.take_unsaved();
        self.attic = Vec::new();
        self.walk = None;
        self.adopt(seq);
        Ok(())
    }

    /// Puts the good ones of the pages that were loaded aside: what they are the state of is not known.
    pub fn keep_for_transfer(&mut self, loading: Loading) {
        let mut pages = loading.pages;
        pages.sort_unstable_by_key(|found| found.page);
        self.attic = attic(pages);
    }
}

/// Returns pages as a state transfer takes them, one of each. What can be read again is not kept in memory.
fn attic(found: Vec<Found>) -> Vec<(u32, Label, Arrival)> {
    let dropped = found.into_iter().map(|mut found| {
        if found.place.is_some() {
            found.content = None;
        }
        (found.page, found.label, found.arrival())
    });
    let mut attic: Vec<_> = dropped.collect();
    attic.dedup_by_key(|(page, _, _)| *page);
    attic
}

/// A page that was found on a disk, and is good.
#[derive(Debug)]
struct Found {
    page: u32,
    label: Label,
    /// It is in memory, or can be read at this place of the store, or both.
    content: Option<Page>,
    place: Option<u32>,
}

impl Found {
    fn as_label(&self) -> PageLabel {
        PageLabel { page: self.page, modified: self.label.modified, digest: self.label.digest }
    }

    fn arrival(self) -> Arrival {
        match (self.content, self.place) {
            (None, Some(place)) => Arrival::Stored(place),
            (content, _) => Arrival::New(content),
        }
    }
}

/// Checks pages that are read from a disk one at a time.
#[derive(Debug)]
pub struct Checker {
    tree: Tree,
}

impl Checker {
    /// Returns one for the pages of a cluster.
    pub fn new(domains: Domains) -> Self {
        Self { tree: Tree::new(domains, 1) }
    }

    /// Returns whether this is the content of the page that a label is about.
    pub fn fits(&mut self, label: &PageLabel, content: &[u8]) -> bool {
        self.tree.leaf(label.page, label.modified, Some(content)).digest == label.digest
    }
}

/// Pages from a disk, on their way to become the state.
#[derive(Debug)]
pub struct Loading {
    tree: Tree,
    pages_max: u32,
    page_bytes: usize,
    pages: Vec<Found>,
    damaged: usize,
}

impl Loading {
    /// Takes a page as the disk has it. Returns whether it is the one that its label is about; if not, it is
    /// counted and dropped. With a place of the store where it can be read again, it is kept in memory only if
    /// `keep`.
    pub fn take(&mut self, label: &PageLabel, content: &[u8], place: Option<u32>, keep: bool) -> bool {
        let found = self.tree.leaf(label.page, label.modified, Some(content));
        let is_good =
            found.digest == label.digest && label.page < self.pages_max && content.len() == self.page_bytes;
        if is_good {
            let content = (keep || place.is_none()).then(|| Page::from(content));
            self.pages.push(Found { page: label.page, label: found, content, place });
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
