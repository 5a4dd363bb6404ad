//! Writing the state to a disk, page by page.
//!
//! Only pages that changed since they were last copied are written: each has a bit, set by a checkpoint or an
//! installation and taken by [`ImageCopy::begin`]. Pages are copied a few at a time, so that no request waits for
//! all of them; the checkpoint that is copied must be held until the end.

use alloc::vec::Vec;

use quorate_wire::{Digest, SeqNum};

use crate::page::{PageLabel, PageStore};
use crate::state::State;
use crate::state::bits::Bits;
use crate::state::tree::Label;

/// Pages with their labels, copied out of a checkpoint.
#[derive(Debug, Default)]
pub struct CopiedPages {
    labels: Vec<PageLabel>,
    content: Vec<u8>,
    /// Pages among them that could not be read where the disk has them.
    unreadable: Vec<u32>,
    /// Pages that the disk has, and where: they were replaced unread, and are not read for this either.
    in_place: Vec<(PageLabel, u32)>,
}

impl CopiedPages {
    /// Returns the labels, in the order of their pages.
    pub fn labels(&self) -> &[PageLabel] {
        &self.labels
    }

    /// Returns the content of the pages that are not empty, one behind the other.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// Returns the pages that the disk has, each with its place there.
    pub fn in_place(&self) -> &[(PageLabel, u32)] {
        &self.in_place
    }

    /// Returns whether there is no page.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.in_place.is_empty()
    }

    /// Appends a page; an empty one has no content.
    pub(crate) fn push(&mut self, page: u32, label: Label, content: &[u8]) {
        self.labels.push(label.of_page(page));
        self.content.extend_from_slice(content);
    }

    /// Returns whether a page has to be written even if the disk has it: it cannot be read there.
    pub fn is_anew(&self, page: u32) -> bool {
        self.unreadable.contains(&page)
    }
}

/// A checkpoint that is being copied. The driver keeps it from being discarded until the end.
#[derive(Debug)]
pub struct ImageCopy {
    seq: SeqNum,
    root: Digest,
    /// A bit for each page that is still to be copied.
    bits: Bits,
    /// All bits in the words before this one are clear.
    word: usize,
    /// A page could not be read.
    lacks_page: bool,
}

impl ImageCopy {
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
        self.word == self.bits.words() && !self.lacks_page
    }

    /// Begins to copy what has changed up to checkpoint `seq` since the state was copied last. None: the checkpoint is
    /// not held, or a page of it cannot be read.
    pub(crate) fn begin<P: PageStore>(state: &mut State<P>, seq: SeqNum) -> Option<Self> {
        let root = state.root_at(seq).filter(|_| !state.lacks_unsaved(seq))?;
        Some(Self { seq, root, bits: state.take_unsaved(), word: 0, lacks_page: false })
    }

    /// Appends the next pages to `out`, `pages_max` at most. Returns whether the checkpoint is still held, and no page
    /// was missing before.
    pub(crate) fn copy<P: PageStore>(
        &mut self,
        state: &mut State<P>,
        pages_max: usize,
        out: &mut CopiedPages,
    ) -> bool {
        let Self { seq, root, .. } = *self;
        if state.root_at(seq) != Some(root) || self.lacks_page {
            return false;
        }
        let mut buffer = Vec::new();
        for _ in 0..pages_max {
            let Some(page) = self.next() else { break };
            let replaced = state.replaced_label(seq, 0, page);
            if replaced.is_some() {
                // Before or after this copying began.
                state.mark_unsaved(page);
            }
            let label = replaced.unwrap_or_else(|| state.tree().label(0, page));
            let place = state.replaced_place(seq, page);
            let is_known = state.is_unreadable_at(seq, page);
            if let Some(place) = place.filter(|_| !is_known) {
                out.in_place.push((label.of_page(page), place));
                continue;
            }
            if state.take_repaired(page) {
                out.unreadable.push(page);
            }
            let content = state.page_at(seq, page, &mut buffer).unwrap_or(&[]);
            if label.is_empty() != content.is_empty() {
                // It was not replaced since a disk has it, so it is a page of the newest checkpoint, too.
                state.note_unreadable(page);
                state.mark_unsaved(page);
                self.lacks_page = true;
                break;
            }
            out.push(page, label, content);
        }
        self.bits.skip(&mut self.word);
        true
    }

    /// Gives up: what has not been copied is part of the next copying.
    pub(crate) fn abandon<P: PageStore>(mut self, state: &mut State<P>) {
        while let Some(page) = self.next() {
            state.mark_unsaved(page);
        }
    }

    /// Takes the next page that is to be copied.
    fn next(&mut self) -> Option<u32> {
        self.bits.pop_first(&mut self.word)
    }
}
