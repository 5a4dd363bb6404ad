//! The record of a checkpoint: what later changes have replaced.

use alloc::vec::Vec;

use quorate_wire::{Digest, SeqNum};

use crate::page::Page;
use crate::state::index::Index;
use crate::state::tree::{Label, Replaced};

/// What a checkpoint needs in addition to later records and the current state.
#[derive(Debug, Default)]
pub(super) struct Record {
    seq: SeqNum,
    root: Digest,
    /// Pages first overwritten after this checkpoint and before the next, as they were.
    pages: Vec<(u32, Option<Page>)>,
    /// From a page to its place in `pages`.
    index: Index,
    /// Labels that the next cut replaced, by level and index. Empty in the newest record.
    replaced: Vec<Replaced>,
}

impl Record {
    /// Makes it the record of checkpoint `seq` with root `root`.
    pub(super) fn name(&mut self, seq: SeqNum, root: Digest) {
        (self.seq, self.root) = (seq, root);
    }

    pub(super) fn seq(&self) -> SeqNum {
        self.seq
    }

    pub(super) fn root(&self) -> Digest {
        self.root
    }

    /// Keeps a page that is overwritten for the first time since this checkpoint.
    #[inline]
    pub(super) fn keep(&mut self, page: u32, old: Option<Page>) {
        let Ok(at) = u32::try_from(self.pages.len()) else {
            unreachable!("a state has less than 2^32 pages")
        };
        self.index.insert(u64::from(page), at);
        self.pages.push((page, old));
    }

    /// Keeps a label that the next cut replaces. They come by level and then by index.
    pub(super) fn keep_label(&mut self, replaced: Replaced) {
        self.replaced.push(replaced);
    }

    /// Returns the numbers of the pages that it keeps.
    pub(super) fn pages(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.pages.iter().map(|(page, _)| *page)
    }

    /// Returns a page, if it keeps that.
    #[expect(clippy::option_option, reason = "outside: whether it is here; inside: whether it was empty")]
    pub(super) fn page(&self, page: u32) -> Option<Option<&[u8]>> {
        let at = usize::try_from(self.index.get(u64::from(page))?).ok()?;
        Some(self.pages.get(at)?.1.as_deref())
    }

    /// Returns a label, if it keeps that.
    pub(super) fn label(&self, level: u8, index: u32) -> Option<Label> {
        let at = self.replaced.binary_search_by_key(&(level, index), |old| (old.level, old.index)).ok()?;
        Some(self.replaced[at].label)
    }

    /// Empties it and keeps its memory. Each page goes to `page`, each label to `label`.
    pub(super) fn empty(&mut self, mut page: impl FnMut(u32, Option<Page>), label: impl FnMut(Replaced)) {
        self.replaced.drain(..).for_each(label);
        self.pages.drain(..).for_each(|(number, content)| page(number, content));
        self.index.clear();
    }
}
