//! How a view reads and writes cells.

use alloc::vec::Vec;

use crate::page::PageStore;
use crate::state::cell::{Below, Cell, CellRun, Change, Seen};
use crate::state::overlay::Overlay;
use crate::stop::Stop;

/// A view's access to cells.
#[derive(Debug)]
pub(crate) struct Cells<'a> {
    run: &'a mut CellRun,
    below: &'a dyn Below,
    /// What has settled of a batch that is not merged yet.
    overlay: &'a Overlay,
}

impl<'a> Cells<'a> {
    /// Returns the cells of the state under `overlay`, under what `below` tells of, under what `run` writes.
    pub(super) fn new(run: &'a mut CellRun, below: &'a dyn Below, overlay: &'a Overlay) -> Self {
        Self { run, below, overlay }
    }

    /// Stops a run that does something without a meaning on cells.
    pub(super) fn fail(&self) -> Stop {
        self.run.fail();
        Stop::Corrupt
    }

    /// Returns the content of a cell that this run or one below it has written. None: the settled state has it, and
    /// that is noted.
    #[expect(clippy::option_option, reason = "outside: whether it was written; inside: whether it is there")]
    pub(super) fn get(&self, cell: &Cell) -> Option<Option<&[u8]>> {
        if let Some(own) = self.run.written(cell) {
            return Some(own);
        }
        let (seen, content) = match self.below.get(cell) {
            Some((seen, content)) => (seen, Some(content)),
            None => (Seen::Settled(self.below.settled()), None),
        };
        self.run.note(cell, seen);
        content
    }

    /// As [`Self::get`], for a key of a tree. A run below, or this one, may have changed the tree's pages without the
    /// tree: then keys cannot be told.
    #[expect(clippy::option_option, reason = "as for a cell")]
    pub(super) fn entry(&self, cell: &Cell) -> Result<Option<Option<&[u8]>>, Stop> {
        if self.get(&Cell::Raw).is_some() {
            return Err(self.fail());
        }
        Ok(self.get(cell))
    }

    /// Returns a page of the settled state.
    pub(super) fn settled<'v>(
        &'v self,
        base: &'v dyn PageStore,
        zeros: &'v [u8],
        page: u32,
    ) -> Result<&'v [u8], Stop> {
        match self.overlay.get(page) {
            Some(written) => Ok(written.unwrap_or(zeros)),
            None => Ok(base.get(page)?.unwrap_or(zeros)),
        }
    }

    /// Returns a page as this run sees it.
    pub(super) fn page<'v>(
        &'v self,
        base: &'v dyn PageStore,
        zeros: &'v [u8],
        page: u32,
    ) -> Result<&'v [u8], Stop> {
        match self.get(&Cell::Page(page)) {
            Some(content) => Ok(content.unwrap_or(zeros)),
            None => self.settled(base, zeros, page),
        }
    }

    /// Returns a page to be changed.
    pub(super) fn page_mut(
        &mut self,
        base: &dyn PageStore,
        zeros: &[u8],
        page: u32,
    ) -> Result<&mut Vec<u8>, Stop> {
        if self.run.written_page(page).is_none() {
            let content = self.page(base, zeros, page)?.to_vec();
            self.put(page, Some(content));
        }
        self.run.written_page(page).ok_or(Stop::Corrupt)
    }

    /// Replaces a page.
    pub(super) fn put(&mut self, page: u32, content: Option<Vec<u8>>) {
        self.run.put(page, content);
    }

    /// Logs a change of a tree.
    pub(super) fn change(&mut self, cell: Cell, change: Change) {
        self.run.change(cell, change);
    }

    /// Adds to a sum, of which the settled state has `settled`. `change` is the page as the view numbers it, the amount
    /// and the bound. Returns whether the result is within the bound.
    pub(super) fn add(&mut self, sum: (u32, usize), settled: u64, change: (u32, i64, u64)) -> bool {
        let known = settled.checked_add_signed(self.below.sum(sum.0, sum.1));
        self.run.add(sum, known, change)
    }

    /// Leaves a step of the service's own to settling.
    pub(super) fn step(&mut self, step: u32) {
        self.run.step(step);
    }
}
