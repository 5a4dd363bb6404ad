//! How a view reads and writes cells.

use alloc::vec::Vec;

use crate::page::PageStore;
use crate::state::cell::{Below, Cell, CellRun, Change, Seen};
use crate::state::elsewhere::{Asked, CellContent, CellLink, Told};
use crate::state::overlay::Overlay;
use crate::stop::Stop;

/// A view's access to cells.
#[derive(Debug)]
pub(crate) struct Cells<'a> {
    run: &'a mut CellRun,
    source: Source<'a>,
}

/// Where the cells are that a run has not written itself.
#[derive(Debug)]
enum Source<'a> {
    Here {
        below: &'a dyn Below,
        /// What has settled of a batch that is not merged yet.
        overlay: &'a Overlay,
    },
    /// At another thread.
    Elsewhere {
        link: &'a dyn CellLink,
        told: Told,
        /// The first page of the view.
        first: u32,
    },
}

/// The content of a key, for a run on another thread.
#[derive(Debug)]
pub(super) enum Asking<'v> {
    /// The run has written it.
    Own(Option<&'v [u8]>),
    Found(&'v CellContent),
}

impl<'a> Cells<'a> {
    /// Returns the cells of the state under `overlay`, under what `below` tells of, under what `run` writes.
    pub(super) fn new(run: &'a mut CellRun, below: &'a dyn Below, overlay: &'a Overlay) -> Self {
        Self { run, source: Source::Here { below, overlay } }
    }

    /// Returns cells that are asked for, one by one. `first` is the first page of the view.
    pub(super) fn elsewhere(run: &'a mut CellRun, link: &'a dyn CellLink, first: u32) -> Self {
        Self { run, source: Source::Elsewhere { link, told: Told::default(), first } }
    }

    /// Returns whether the cells are at another thread.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self.source, Source::Elsewhere { .. })
    }

    /// Asks for a cell, unless it was asked for before.
    fn ask(&self, asked: Asked) -> Result<&CellContent, Stop> {
        let Source::Elsewhere { link, told, .. } = &self.source else { return Err(self.fail()) };
        if let Some(found) = told.get(&asked) {
            return Ok(found);
        }
        let Some(answered) = link.ask(asked.clone()).filter(|answered| !answered.has_failed()) else {
            return Err(self.fail());
        };
        for (cell, seen) in answered.notes() {
            self.run.note(cell, *seen);
        }
        Ok(told.keep(asked, answered.into_found()?))
    }

    /// Returns the content of a key to a run on another thread.
    pub(super) fn ask_for_key(
        &self,
        cell: &Cell,
        tree: (u32, usize),
        key: &[u8],
    ) -> Result<Asking<'_>, Stop> {
        if self.run.written(&Cell::Raw).is_some() {
            return Err(self.fail());
        }
        if let Some(own) = self.run.written(cell) {
            return Ok(Asking::Own(own));
        }
        self.ask(Asked::Key { tree, key: key.to_vec() }).map(Asking::Found)
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
        let Source::Here { below, .. } = &self.source else {
            self.run.fail();
            return None;
        };
        let (seen, content) = match below.get(cell) {
            Some((seen, content)) => (seen, Some(content)),
            None => (Seen::Settled(below.settled()), None),
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

    /// Returns the content that this run or one below it has noted for a cell, without a note.
    #[expect(clippy::option_option, reason = "as for a cell")]
    pub(super) fn drafted(&self, cell: &Cell) -> Result<Option<Option<&[u8]>>, Stop> {
        let Source::Here { below, .. } = &self.source else { return Err(self.fail()) };
        Ok(self.run.written(cell).or_else(|| below.get(cell).map(|(_, content)| content)))
    }

    /// Returns whether this run or one below it has written a key of a tree that begins with `prefix`.
    pub(super) fn has_drafts(&self, prefix: &Cell) -> Result<bool, Stop> {
        let Source::Here { below, .. } = &self.source else { return Err(self.fail()) };
        Ok(self.run.has_written_under(prefix) || below.has_under(prefix))
    }

    /// Returns what has settled of a batch that is not merged yet.
    pub(super) fn overlay(&self) -> Result<&Overlay, Stop> {
        match &self.source {
            Source::Here { overlay, .. } => Ok(overlay),
            Source::Elsewhere { .. } => Err(self.fail()),
        }
    }

    /// Returns a page of the settled state.
    pub(super) fn settled<'v>(
        &'v self,
        base: &'v dyn PageStore,
        zeros: &'v [u8],
        page: u32,
    ) -> Result<&'v [u8], Stop> {
        let Source::Here { overlay, .. } = &self.source else { return Err(self.fail()) };
        match overlay.get(page) {
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
        let cell = Cell::Page(page);
        if let Source::Elsewhere { first, .. } = &self.source {
            if let Some(own) = self.run.written(&cell) {
                return Ok(own.unwrap_or(zeros));
            }
            return match self.ask(Asked::Page(page - first))? {
                CellContent::Bytes(bytes) => Ok(bytes),
                CellContent::Absent | CellContent::Large(..) | CellContent::Sum(_) => Err(self.fail()),
            };
        }
        match self.get(&cell) {
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

    /// Returns a sum without what this run has added, if it is within bounds. `settled` is what the settled state has;
    /// `page` is the page as the view numbers it.
    pub(super) fn known_sum(
        &self,
        sum: (u32, usize),
        page: u32,
        settled: impl FnOnce() -> Result<u64, Stop>,
    ) -> Result<Option<u64>, Stop> {
        match &self.source {
            Source::Here { below, .. } => Ok(settled()?.checked_add_signed(below.sum(sum.0, sum.1))),
            Source::Elsewhere { .. } => match self.ask(Asked::Sum(page, sum.1))? {
                CellContent::Sum(known) => Ok(*known),
                CellContent::Absent | CellContent::Bytes(_) | CellContent::Large(..) => Err(self.fail()),
            },
        }
    }

    /// Adds to a sum, which is `known` without what this run has added. `change` is the page as the view numbers it, the
    /// amount and the bound. Returns whether the result is within the bound.
    pub(super) fn add(&mut self, sum: (u32, usize), known: Option<u64>, change: (u32, i64, u64)) -> bool {
        self.run.add(sum, known, change)
    }

    /// Notes the content that a cell will have.
    pub(super) fn draft(&mut self, cell: Cell, content: Option<Vec<u8>>) {
        self.run.draft(cell, content);
    }

    /// Leaves a change of the service's own to settling.
    pub(super) fn postpone(&mut self, change: Vec<u8>) {
        self.run.postpone(change);
    }

    /// Leaves a step of the service's own to settling.
    pub(super) fn step(&mut self, step: u32) {
        self.run.step(step);
    }
}
