//! Cells: what an execution reads and writes when it runs ahead of its turn (spec §17.0).
//!
//! Pages depend on the order of all requests: an allocator gives the lowest free page, and a tree splits where the last
//! key was added. Cells do not. A cell is a key of a tree, a sum, or a page that a service uses without a tree. A run
//! notes each cell that it reads, with the version that it saw, and logs its changes. When its turn comes, the log is
//! applied to the pages if every version is still the same (PX-B).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::RefCell;

use crate::page::PageStore;
use crate::state::btree::Tree;
use crate::state::overlay::Overlay;
use crate::stop::Stop;

/// A part of the state that has a version of its own. Pages are numbered from the state's first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    /// A key of the tree with this header, whether it is there or not.
    Entry {
        /// Page and offset of the tree's header.
        tree: (u32, usize),
        /// The key.
        key: Vec<u8>,
    },
    /// A page.
    Page(u32),
    /// All pages that were ever written without a tree. A key of a tree counts as changed with it.
    Raw,
}

/// The version of a cell, as a run saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The settled state, when this number of requests had settled.
    Settled(u64),
    /// What an unsettled request wrote: its ordinal, and which of its runs that was.
    Unsettled(u64, u32),
}

/// What finished and unsettled requests below a run have written.
pub(crate) trait Below: core::fmt::Debug {
    /// Returns the last content of a cell below the run, and its version; none inside if it is absent.
    fn get(&self, cell: &Cell) -> Option<(Seen, Option<&[u8]>)>;
    /// Returns the changes of a sum.
    fn sum(&self, page: u32, at: usize) -> i64;
    /// Returns the number of settled requests.
    fn settled(&self) -> u64;
}

/// A change that a run has logged, with its outcome. All other outcomes at settling make the request run again.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Insert {
        tree: Tree,
        key: Vec<u8>,
        value: Vec<u8>,
        existed: bool,
    },
    Remove {
        tree: Tree,
        key: Vec<u8>,
        existed: bool,
    },
    Add {
        page: u32,
        at: usize,
        delta: i64,
        max: u64,
        fits: bool,
    },
    /// A step of the service's own that is done on pages only.
    Step(u32),
}

/// What one run on cells has read and written.
#[derive(Debug, Default)]
pub(crate) struct CellRun {
    reads: RefCell<Vec<(Cell, Seen)>>,
    writes: BTreeMap<Cell, Option<Vec<u8>>>,
    sums: BTreeMap<(u32, usize), i64>,
    changes: Vec<Change>,
    /// It did something that has no meaning on cells: it has to run on pages.
    failed: core::cell::Cell<bool>,
    bytes: usize,
}

/// A view's access to cells.
#[derive(Debug)]
pub(crate) struct Cells<'a> {
    pub(super) run: &'a mut CellRun,
    pub(super) below: &'a dyn Below,
    /// What has settled of a batch that is not merged yet.
    pub(super) overlay: &'a Overlay,
}

impl CellRun {
    /// Returns whether the request has to run on pages.
    pub(crate) fn has_failed(&self) -> bool {
        let is_mixed = self.writes.contains_key(&Cell::Raw) && !self.changes.is_empty();
        self.failed.get() || is_mixed
    }

    /// Returns each cell read, with its version.
    pub(crate) fn reads(&self) -> Vec<(Cell, Seen)> {
        self.reads.borrow().clone()
    }

    /// Returns each cell written, with its content.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (&Cell, Option<&[u8]>)> {
        self.writes.iter().map(|(cell, content)| (cell, content.as_deref()))
    }

    /// Returns how much each sum was changed by.
    pub(crate) fn sums(&self) -> impl Iterator<Item = (&(u32, usize), &i64)> {
        self.sums.iter()
    }

    /// Returns the changes in order.
    pub(crate) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns whether no change depends on the bound of a sum.
    pub(crate) fn is_unconditional(&self) -> bool {
        self.changes
            .iter()
            .all(|change| !matches!(change, Change::Add { max, fits, .. } if *max < u64::MAX || !fits))
    }

    /// Returns the bytes that the run keeps in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.reads.borrow().len() * size_of::<(Cell, Seen)>()
    }

    /// Forgets what was written: the operation is refused.
    pub(crate) fn refuse(&mut self) {
        self.writes.clear();
        self.sums.clear();
        self.changes.clear();
    }

    fn note(&self, cell: &Cell, seen: Seen) {
        let mut reads = self.reads.borrow_mut();
        if !reads.iter().any(|(known, version)| known == cell && *version == seen) {
            reads.push((cell.clone(), seen));
        }
    }
}

impl Cells<'_> {
    /// Stops a run that does something without a meaning on cells.
    pub(super) fn fail(&self) -> Stop {
        self.run.failed.set(true);
        Stop::Corrupt
    }

    /// Returns the content of a cell that this run or one below it has written. None: the settled state has it, and
    /// that is noted.
    #[expect(clippy::option_option, reason = "outside: whether it was written; inside: whether it is there")]
    pub(super) fn get(&self, cell: &Cell) -> Option<Option<&[u8]>> {
        if let Some(own) = self.run.writes.get(cell) {
            return Some(own.as_deref());
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
        let cell = Cell::Page(page);
        if !matches!(self.run.writes.get(&cell), Some(Some(_))) {
            let content = self.page(base, zeros, page)?.to_vec();
            self.put(page, Some(content));
        }
        match self.run.writes.get_mut(&cell) {
            Some(Some(content)) => Ok(content),
            Some(None) | None => Err(Stop::Corrupt),
        }
    }

    /// Replaces a page.
    pub(super) fn put(&mut self, page: u32, content: Option<Vec<u8>>) {
        self.run.bytes += content.as_ref().map_or(0, Vec::len);
        self.run.writes.insert(Cell::Page(page), content);
        self.run.writes.insert(Cell::Raw, None);
    }

    /// Logs a change of a tree.
    pub(super) fn change(&mut self, cell: Cell, change: Change) {
        let content = match &change {
            Change::Insert { value, .. } => Some(value.clone()),
            Change::Remove { .. } | Change::Add { .. } | Change::Step(_) => None,
        };
        self.run.bytes += 2 * content.as_ref().map_or(0, Vec::len) + size_of::<Change>();
        self.run.writes.insert(cell, content);
        self.run.changes.push(change);
    }

    /// Adds to a sum, of which the settled state has `settled`. Returns whether the result is within `max`.
    pub(super) fn add(&mut self, (page, at): (u32, usize), settled: u64, delta: i64, max: u64) -> bool {
        let own = self.run.sums.get(&(page, at)).copied().unwrap_or(0);
        let known = self.below.sum(page, at).saturating_add(own);
        let sum = settled.checked_add_signed(known).and_then(|sum| sum.checked_add_signed(delta));
        let fits = sum.is_some_and(|sum| sum <= max);
        if fits {
            self.run.sums.insert((page, at), own.saturating_add(delta));
        }
        self.run.changes.push(Change::Add { page, at, delta, max, fits });
        fits
    }

    /// Leaves a step of the service's own to settling. It has to be the first change.
    pub(super) fn step(&mut self, step: u32) {
        if !self.run.changes.is_empty() || !self.run.writes.is_empty() {
            self.run.failed.set(true);
        }
        self.run.changes.push(Change::Step(step));
    }
}
