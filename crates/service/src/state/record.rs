//! The record of a checkpoint: what later changes have replaced.

use alloc::vec::Vec;

use quorate_wire::{Digest, SeqNum};

use crate::page::{OldPage, Page};
use crate::state::index::{Index, KEPT_MAX};
use crate::state::tree::{Label, Replaced};

/// What a checkpoint needs in addition to later records and the current state.
#[derive(Debug, Default)]
pub(super) struct Record {
    seq: SeqNum,
    root: Digest,
    /// Pages first overwritten after this checkpoint and before the next, as they were.
    pages: Vec<(u32, OldPage)>,
    /// How many of them are in memory.
    here: usize,
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
    pub(super) fn keep(&mut self, page: u32, old: OldPage) {
        let Ok(at) = u32::try_from(self.pages.len()) else {
            unreachable!("a state has less than 2^32 pages")
        };
        self.index.insert(u64::from(page), at);
        self.here += usize::from(matches!(old, Ok(Some(_))));
        self.pages.push((page, old));
    }

    /// Takes the content of a page that it keeps, and that is not in memory.
    pub(super) fn bring(&mut self, page: u32, content: Page) {
        let at = self.index.get(u64::from(page)).and_then(|at| usize::try_from(at).ok());
        if let Some((_, old @ Err(_))) = at.and_then(|at| self.pages.get_mut(at)) {
            *old = Ok(Some(content));
            self.here += 1;
        }
    }

    /// Keeps a label that the next cut replaces. They come by level and then by index.
    pub(super) fn keep_label(&mut self, replaced: Replaced) {
        self.replaced.push(replaced);
    }

    /// Returns the numbers of the pages that it keeps.
    pub(super) fn pages(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.pages.iter().map(|(page, _)| *page)
    }

    /// Returns the places of the pages that it keeps, and that are not in memory.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> + '_ {
        self.pages.iter().filter_map(|(_, old)| old.as_ref().err().copied())
    }

    /// Returns how many pages it keeps in memory.
    pub(super) fn here(&self) -> usize {
        self.here
    }

    /// Returns a page, if it keeps that.
    pub(super) fn page(&self, page: u32) -> Option<&OldPage> {
        let at = usize::try_from(self.index.get(u64::from(page))?).ok()?;
        Some(&self.pages.get(at)?.1)
    }

    /// Returns a label, if it keeps that.
    pub(super) fn label(&self, level: u8, index: u32) -> Option<Label> {
        let at = self.replaced.binary_search_by_key(&(level, index), |old| (old.level, old.index)).ok()?;
        Some(self.replaced[at].label)
    }

    /// Takes the labels.
    pub(super) fn take_labels(&mut self) -> impl Iterator<Item = Replaced> + '_ {
        self.replaced.drain(..)
    }

    /// Empties it and keeps its memory, unless that is much. Each page goes to `page`.
    pub(super) fn empty(&mut self, mut page: impl FnMut(u32, OldPage)) {
        self.replaced.clear();
        self.replaced.shrink_to(KEPT_MAX);
        self.pages.drain(..).for_each(|(number, old)| page(number, old));
        self.pages.shrink_to(KEPT_MAX);
        self.index.clear();
        self.here = 0;
    }
}
