//! The state as one execution sees it.

use alloc::vec::Vec;

use crate::page::{Page, PageStore, Pool};
use crate::state::cell::{Below, Cell, CellRun, Change};
use crate::state::cells::Cells;
use crate::state::elsewhere::CellLink;
use crate::state::overlay::Overlay;
use crate::stop::Stop;

/// The state as an execution sees it: the pages that agreement has settled, under those that the
/// tentative batch and this operation have written. Pages are numbered from 0; one that was never
/// written reads as zeros.
///
/// Writes are kept if the operation succeeds, and undone if it is refused.
///
/// (The protocol's view is a `ViewNum`; this is the other meaning of the word.)
#[derive(Debug)]
pub struct View<'a> {
    base: &'a dyn PageStore,
    layer: Layer<'a>,
    /// A page of zeros.
    zeros: &'a [u8],
    /// The part of the state that is shown: its first page and the number of pages.
    first: u32,
    count: u32,
}

/// What an execution writes to.
#[derive(Debug)]
enum Layer<'a> {
    /// Nothing. A read-only execution sees the committed state alone (RO-2); a run on cells can also look at what has
    /// settled of a batch that is not merged yet.
    Read(Option<&'a Overlay>),
    /// Pages, in the agreed order.
    Pages { overlay: &'a mut Overlay, pool: &'a mut Pool },
    /// Cells, ahead of its turn.
    Cells(Cells<'a>),
}

impl<'a> View<'a> {
    /// Returns a view of `count` pages from `first` that writes into `overlay`.
    #[inline]
    pub(crate) fn new(
        base: &'a dyn PageStore,
        overlay: &'a mut Overlay,
        pool: &'a mut Pool,
        zeros: &'a [u8],
        (first, count): (u32, u32),
    ) -> Self {
        Self { base, layer: Layer::Pages { overlay, pool }, zeros, first, count }
    }

    /// Returns a view of the committed state that refuses to write.
    pub(crate) fn read_only(base: &'a dyn PageStore, zeros: &'a [u8], (first, count): (u32, u32)) -> Self {
        Self { base, layer: Layer::Read(None), zeros, first, count }
    }

    /// Returns a view on cells: of the settled state, under what `below` tells of, under what `run` writes.
    pub(crate) fn on_cells(
        (base, overlay): (&'a dyn PageStore, &'a Overlay),
        below: &'a dyn Below,
        run: &'a mut CellRun,
        zeros: &'a [u8],
        (first, count): (u32, u32),
    ) -> Self {
        Self { base, layer: Layer::Cells(Cells::new(run, below, overlay)), zeros, first, count }
    }

    /// Returns a view on cells that are at another thread. Its pages are asked for, so `empty` has none.
    pub(crate) fn elsewhere(
        empty: &'a dyn PageStore,
        link: &'a dyn CellLink,
        run: &'a mut CellRun,
        zeros: &'a [u8],
        (first, count): (u32, u32),
    ) -> Self {
        Self { base: empty, layer: Layer::Cells(Cells::elsewhere(run, link, first)), zeros, first, count }
    }

    /// Returns the size of a page, in bytes.
    #[inline]
    pub fn page_bytes(&self) -> usize {
        self.zeros.len()
    }

    /// Returns the number of pages that the service has.
    #[inline]
    pub fn pages(&self) -> u32 {
        self.count
    }

    /// Returns a page.
    ///
    /// # Errors
    ///
    /// The page is not here, or there is no page of that number.
    #[inline]
    pub fn page(&self, page: u32) -> Result<&[u8], Stop> {
        let page = self.absolute(page)?;
        match &self.layer {
            Layer::Pages { overlay, .. } => {
                if let Some(written) = overlay.get(page) {
                    return Ok(written.unwrap_or(self.zeros));
                }
            }
            Layer::Read(overlay) => {
                if let Some(written) = overlay.and_then(|overlay| overlay.get(page)) {
                    return Ok(written.unwrap_or(self.zeros));
                }
            }
            Layer::Cells(cells) => return cells.page(self.base, self.zeros, page),
        }
        Ok(self.base.get(page)?.unwrap_or(self.zeros))
    }

    /// Returns a page to be changed in any way.
    ///
    /// # Errors
    ///
    /// As [`Self::page`], or the execution is read-only.
    #[inline]
    pub fn page_mut(&mut self, page: u32) -> Result<&mut [u8], Stop> {
        let page = self.absolute(page)?;
        match &mut self.layer {
            Layer::Pages { overlay, pool } => Ok(overlay.page_mut(self.base, pool, page)?),
            Layer::Read(_) => Err(Stop::NeedsOrder),
            Layer::Cells(cells) => Ok(cells.page_mut(self.base, self.zeros, page)?),
        }
    }

    /// Overwrites a part of a page. Cheaper than [`Self::page_mut`] for a few bytes.
    ///
    /// # Errors
    ///
    /// As [`Self::page_mut`], or the part reaches past the page's end.
    #[inline]
    pub fn write(&mut self, page: u32, offset: usize, bytes: &[u8]) -> Result<(), Stop> {
        let page = self.absolute(page)?;
        if offset.checked_add(bytes.len()).is_none_or(|end| end > self.page_bytes()) {
            return Err(Stop::Corrupt);
        }
        match &mut self.layer {
            Layer::Pages { overlay, pool } => Ok(overlay.write(self.base, pool, page, offset, bytes)?),
            Layer::Read(_) => Err(Stop::NeedsOrder),
            Layer::Cells(cells) => {
                let content = cells.page_mut(self.base, self.zeros, page)?;
                content[offset..offset + bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Replaces a page by `bytes`, at most a page, and zeros behind them.
    ///
    /// # Errors
    ///
    /// As [`Self::write`].
    pub fn put(&mut self, page: u32, bytes: &[u8]) -> Result<(), Stop> {
        let page = self.absolute(page)?;
        if bytes.len() > self.page_bytes() {
            return Err(Stop::Corrupt);
        }
        match &mut self.layer {
            Layer::Pages { overlay, pool } => {
                overlay.put(pool, page, Some(bytes));
                Ok(())
            }
            Layer::Read(_) => Err(Stop::NeedsOrder),
            Layer::Cells(cells) => {
                let mut content = bytes.to_vec();
                content.resize(self.zeros.len(), 0);
                cells.put(page, Some(content));
                Ok(())
            }
        }
    }

    /// Clears a page: it takes no room any more and reads as zeros.
    ///
    /// # Errors
    ///
    /// As [`Self::page_mut`].
    pub fn clear(&mut self, page: u32) -> Result<(), Stop> {
        let page = self.absolute(page)?;
        match &mut self.layer {
            Layer::Pages { overlay, pool } => {
                overlay.put(pool, page, None);
                Ok(())
            }
            Layer::Read(_) => Err(Stop::NeedsOrder),
            Layer::Cells(cells) => {
                cells.put(page, None);
                Ok(())
            }
        }
    }

    /// Lets what has been written so far stand, even if the execution is refused later. For an operation
    /// that is made of several, each of which can be refused individually.
    pub fn keep(&mut self) {
        match &mut self.layer {
            Layer::Pages { overlay, pool } => overlay.begin(pool),
            Layer::Read(_) => {}
            Layer::Cells(cells) => {
                cells.fail();
            }
        }
    }

    /// Undoes what was written since the execution began or was last told to [`Self::keep`].
    pub fn undo(&mut self) {
        match &mut self.layer {
            Layer::Pages { overlay, pool } => {
                overlay.roll_back(pool);
                overlay.begin(pool);
            }
            Layer::Read(_) => {}
            Layer::Cells(cells) => {
                cells.fail();
            }
        }
    }

    /// Returns a copy of a page, to work from while the page itself changes. Goes back with
    /// [`Self::release`].
    pub(crate) fn copy(&mut self, page: u32) -> Result<Page, Stop> {
        let absolute = self.absolute(page)?;
        let (overlay, pool) = match &mut self.layer {
            Layer::Pages { overlay, pool } => (overlay, pool),
            Layer::Read(_) => return Err(Stop::NeedsOrder),
            Layer::Cells(cells) => return Err(cells.fail()),
        };
        let content = match overlay.get(absolute) {
            Some(written) => written,
            None => self.base.get(absolute)?,
        };
        Ok(pool.copy(content.unwrap_or(self.zeros)))
    }

    /// Takes back a buffer.
    pub(crate) fn release(&mut self, page: Page) {
        if let Layer::Pages { pool, .. } = &mut self.layer {
            pool.give(page);
        }
    }

    /// Adds `delta` to the number of 8 bytes at `at` in a page. Returns whether the sum is within 0 and `max`; if not,
    /// it stays as it was. Requests that only add to a sum do not depend on each other (PX-D).
    ///
    /// # Errors
    ///
    /// As [`Self::write`].
    #[inline]
    pub fn add(&mut self, page: u32, at: usize, delta: i64, max: u64) -> Result<bool, Stop> {
        if self.is_on_cells() {
            let (known, absolute) = (self.known_sum(page, at)?, self.absolute(page)?);
            let Layer::Cells(cells) = &mut self.layer else { return Ok(false) };
            return Ok(cells.add((absolute, at), known, (page, delta, max)));
        }
        let Some(sum) = number(self.page(page)?, at)?.checked_add_signed(delta).filter(|sum| *sum <= max)
        else {
            return Ok(false);
        };
        let is_inside = self.enter_tree();
        let written = self.write(page, at, &sum.to_le_bytes());
        self.leave_tree(is_inside, None);
        written.map(|()| true)
    }

    /// Returns a sum to a run on cells, without what the run itself has added. None: it is out of bounds.
    #[cold]
    pub(crate) fn known_sum(&self, page: u32, at: usize) -> Result<Option<u64>, Stop> {
        let absolute = self.absolute(page)?;
        let cells = self.cells().ok_or(Stop::Corrupt)?;
        let settled = || number(cells.settled(self.base, self.zeros, absolute)?, at);
        cells.known_sum((absolute, at), page, settled)
    }

    /// Returns whether a step of the service's own is left to settling, because this is a run on cells.
    /// [`Service::step`](crate::service::Service::step) is called with it then, before any change of this run.
    #[inline]
    pub fn later(&mut self, step: u32) -> bool {
        match &mut self.layer {
            Layer::Cells(cells) => {
                cells.step(step);
                true
            }
            Layer::Pages { .. } | Layer::Read(_) => false,
        }
    }

    /// In a run on cells, leaves a change to settling: [`Service::redo`](crate::service::Service::redo) is called with
    /// `change` then, in the order of all changes of the run. Returns whether this is a run on cells.
    #[inline]
    pub fn postpone(&mut self, change: impl FnOnce() -> Vec<u8>) -> bool {
        match &mut self.layer {
            Layer::Cells(cells) => {
                cells.postpone(change());
                true
            }
            Layer::Pages { .. } | Layer::Read(_) => false,
        }
    }

    /// States that the service has a cell for everything that it writes from here on, also where it writes pages without
    /// a tree: each request that writes such a page also changes a key that every request reads before it reads the page.
    #[inline]
    pub fn has_cells_for_pages(&mut self) {
        self.enter_tree();
    }

    /// Returns the settled state to a run on cells, to be read without notes; none if this is no run on cells. What is
    /// read there counts as unchanged for as long as the cells that the run has noted.
    ///
    /// # Errors
    ///
    /// The state is at another thread.
    #[inline]
    pub fn settled_view(&self) -> Result<Option<View<'_>>, Stop> {
        let Layer::Cells(cells) = &self.layer else { return Ok(None) };
        let overlay = cells.overlay()?;
        let layer = Layer::Read(Some(overlay));
        Ok(Some(View { base: self.base, layer, zeros: self.zeros, first: self.first, count: self.count }))
    }

    /// Returns the number of 8 bytes at `at` in a page. It is a cell of its own, if only [`Self::set_number`] changes it.
    ///
    /// # Errors
    ///
    /// As [`Self::page`].
    pub fn number(&self, page: u32, at: usize) -> Result<u64, Stop> {
        if let Some(cells) = self.cells() {
            let cell = self.entry((page, at), &[])?;
            if let Some(written) = cells.entry(&cell)? {
                return number(written.ok_or(Stop::Corrupt)?, 0);
            }
            return number(self.settled(page)?, at);
        }
        number(self.page(page)?, at)
    }

    /// Sets such a number.
    ///
    /// # Errors
    ///
    /// As [`Self::write`].
    pub fn set_number(&mut self, page: u32, at: usize, value: u64) -> Result<(), Stop> {
        if self.is_on_cells() {
            let cell = self.entry((page, at), &[])?;
            self.log(cell, Change::Number { page, at, value });
            return Ok(());
        }
        let is_inside = self.enter_tree();
        let written = self.write(page, at, &value.to_le_bytes());
        self.leave_tree(is_inside, Some(((page, at), &[])));
        written
    }

    /// Stops a run on cells: what follows has a meaning on pages only.
    ///
    /// # Errors
    ///
    /// This is a run on cells. The request is executed on pages when its turn comes.
    #[inline]
    pub fn needs_pages(&self) -> Result<(), Stop> {
        self.cells().map_or(Ok(()), |cells| Err(cells.fail()))
    }

    /// Returns the cells, if this is a run on cells.
    #[inline]
    pub(super) fn cells(&self) -> Option<&Cells<'a>> {
        match &self.layer {
            Layer::Cells(cells) => Some(cells),
            Layer::Pages { .. } | Layer::Read(_) => None,
        }
    }

    /// Returns whether this is a run on cells.
    #[inline]
    pub fn is_on_cells(&self) -> bool {
        self.cells().is_some()
    }

    /// Returns a page of the settled state to a run on cells.
    pub(super) fn settled(&self, page: u32) -> Result<&[u8], Stop> {
        let page = self.absolute(page)?;
        match &self.layer {
            Layer::Cells(cells) => cells.settled(self.base, self.zeros, page),
            Layer::Pages { .. } | Layer::Read(_) => Err(Stop::Corrupt),
        }
    }

    /// Returns the cell of a tree's key.
    pub(super) fn entry(&self, tree: (u32, usize), key: &[u8]) -> Result<Cell, Stop> {
        Ok(Cell::Entry { tree: (self.absolute(tree.0)?, tree.1), key: key.to_vec() })
    }

    /// Notes the content that a cell will have when this run has settled. The service has logged the change.
    pub(super) fn draft(&mut self, cell: Cell, content: Option<Vec<u8>>) {
        if let Layer::Cells(cells) = &mut self.layer {
            cells.draft(cell, content);
        }
    }

    /// Logs a change of a tree's key in a run on cells.
    pub(super) fn log(&mut self, cell: Cell, change: Change) {
        if let Layer::Cells(cells) = &mut self.layer {
            cells.change(cell, change);
        }
    }

    /// Takes note that what follows is written by a tree, or is a sum. Returns whether it was before.
    #[inline]
    pub(super) fn enter_tree(&mut self) -> bool {
        match &mut self.layer {
            Layer::Pages { overlay, .. } => overlay.enter_tree(true),
            Layer::Read(_) | Layer::Cells(_) => false,
        }
    }

    /// Undoes [`Self::enter_tree`]: a key of the tree has changed.
    #[inline]
    pub(super) fn leave_tree(&mut self, was_inside: bool, changed: Option<((u32, usize), &[u8])>) {
        let first = self.first;
        if let Layer::Pages { overlay, .. } = &mut self.layer {
            overlay.enter_tree(was_inside);
            if let Some(((page, at), key)) = changed {
                overlay.note_entry((first + page, at), key);
            }
        }
    }

    /// Applies a page that a run on cells has written. It is numbered from the state's first.
    pub(crate) fn apply_page(&mut self, page: u32, content: Option<&[u8]>) -> Result<(), Stop> {
        match content {
            Some(content) => self.put(page - self.first, content),
            None => self.clear(page - self.first),
        }
    }

    #[inline]
    fn absolute(&self, page: u32) -> Result<u32, Stop> {
        if page < self.count { Ok(self.first + page) } else { Err(Stop::Corrupt) }
    }
}

/// Returns the number of 8 bytes at `at` in a page.
#[inline]
fn number(page: &[u8], at: usize) -> Result<u64, Stop> {
    let number: &[u8; 8] = page.get(at..).and_then(<[u8]>::first_chunk).ok_or(Stop::Corrupt)?;
    Ok(u64::from_le_bytes(*number))
}
