//! Cells: what an execution reads and writes when it runs ahead of its turn (spec §17.0).
//!
//! Pages depend on the order of all requests: an allocator gives the lowest free page, and a tree splits where the last
//! key was added. Cells do not. A cell is a key of a tree, a sum, or a page that a service uses without a tree. A run
//! notes each cell that it reads, with the version that it saw, and logs its changes. When its turn comes, the log is
//! applied to the pages if every version is still the same (PX-B).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;

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

impl Cell {
    /// Returns whether it is a key of the same tree that begins with the key `prefix`.
    pub(crate) fn is_under(&self, prefix: &Self) -> bool {
        match (self, prefix) {
            (Self::Entry { tree, key }, Self::Entry { tree: other, key: prefix }) => {
                tree == other && key.starts_with(prefix)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry { tree: (page, at), key } => {
                write!(f, "key \"{}\" of the tree at byte {at} of page {page}", key.escape_ascii())
            }
            Self::Page(page) => write!(f, "page {page}"),
            Self::Raw => write!(f, "pages without a tree"),
        }
    }
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
    /// Returns whether a key of a tree that begins with this one was written.
    fn has_under(&self, prefix: &Cell) -> bool;
    /// Returns the changes of a sum.
    fn sum(&self, page: u32, at: usize) -> i64;
    /// Returns the number of settled requests.
    fn settled(&self) -> u64;
}

/// Where a tree is, as a view numbers its pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreePlace {
    /// Page and offset of the tree's header.
    pub(crate) header: (u32, usize),
    /// The allocator's header, and where its bitmap begins.
    pub(crate) space: ((u32, usize), u32),
}

/// A change that a run has logged, with its outcome. All other outcomes at settling make the request run again.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Insert {
        tree: TreePlace,
        key: Vec<u8>,
        value: Vec<u8>,
        existed: bool,
    },
    Remove {
        tree: TreePlace,
        key: Vec<u8>,
        existed: bool,
    },
    Add {
        /// As the view numbers it.
        page: u32,
        at: usize,
        delta: i64,
        max: u64,
        fits: bool,
    },
    /// A number that is a cell.
    Number {
        /// As the view numbers it.
        page: u32,
        at: usize,
        value: u64,
    },
    /// A change of the service's own, which is made on pages only.
    Own(Vec<u8>),
    /// A step of the service's own that is done on pages only.
    Step(u32),
}

/// Maximum number of cells that a run reads: each is compared with all others. A request that reads more runs on pages.
const READS_MAX: usize = 1024;

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

impl CellRun {
    /// Returns whether the request has to run on pages.
    pub(crate) fn has_failed(&self) -> bool {
        let is_mixed = self.writes.contains_key(&Cell::Raw) && !self.changes.is_empty();
        self.failed.get() || is_mixed
    }

    /// Takes each cell read, with its version.
    pub(crate) fn take_reads(&mut self) -> Vec<(Cell, Seen)> {
        core::mem::take(self.reads.get_mut())
    }

    /// Returns each cell written, with its content.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (&Cell, Option<&[u8]>)> {
        self.writes.iter().map(|(cell, content)| (cell, content.as_deref()))
    }

    /// Returns how much each sum was changed by.
    pub(crate) fn sums(&self) -> impl Iterator<Item = (&(u32, usize), &i64)> {
        self.sums.iter()
    }

    /// Returns whether it changes nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.changes.is_empty()
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

    /// Takes note that the run has to be repeated on pages.
    pub(super) fn fail(&self) {
        self.failed.set(true);
    }

    /// Returns the content that this run gave a cell.
    #[expect(clippy::option_option, reason = "outside: whether it was written; inside: whether it is there")]
    pub(super) fn written(&self, cell: &Cell) -> Option<Option<&[u8]>> {
        self.writes.get(cell).map(Option::as_deref)
    }

    /// Returns whether this run has written a key of a tree that begins with `prefix`.
    pub(super) fn has_written_under(&self, prefix: &Cell) -> bool {
        self.writes.range(prefix..).next().is_some_and(|(cell, _)| cell.is_under(prefix))
    }

    /// Returns the content that this run gave a page, to be changed.
    pub(super) fn written_page(&mut self, page: u32) -> Option<&mut Vec<u8>> {
        self.writes.get_mut(&Cell::Page(page))?.as_mut()
    }

    /// Replaces a page.
    pub(super) fn put(&mut self, page: u32, content: Option<Vec<u8>>) {
        self.bytes += content.as_ref().map_or(0, Vec::len);
        self.writes.insert(Cell::Page(page), content);
        self.writes.insert(Cell::Raw, None);
    }

    /// Logs a change of a tree.
    pub(super) fn change(&mut self, cell: Cell, change: Change) {
        let content = match &change {
            Change::Insert { value, .. } => Some(value.clone()),
            Change::Number { value, .. } => Some(value.to_le_bytes().to_vec()),
            Change::Remove { .. } | Change::Add { .. } | Change::Own(_) | Change::Step(_) => None,
        };
        self.bytes += 2 * content.as_ref().map_or(0, Vec::len) + size_of::<Change>();
        self.writes.insert(cell, content);
        self.changes.push(change);
    }

    /// Logs a change of a sum, which is `known` without what this run has added. Returns whether it fits.
    pub(super) fn add(&mut self, sum: (u32, usize), known: Option<u64>, change: (u32, i64, u64)) -> bool {
        let (page, delta, max) = change;
        let own = self.sums.get(&sum).copied().unwrap_or(0);
        let new = known.and_then(|known| known.checked_add_signed(own)?.checked_add_signed(delta));
        let fits = new.is_some_and(|new| new <= max);
        if fits {
            self.sums.insert(sum, own.saturating_add(delta));
        }
        self.changes.push(Change::Add { page, at: sum.1, delta, max, fits });
        fits
    }

    /// Notes the content that a cell will have when the run has settled. What changes the pages is logged by the service.
    pub(super) fn draft(&mut self, cell: Cell, content: Option<Vec<u8>>) {
        self.bytes += content.as_ref().map_or(0, Vec::len);
        self.writes.insert(cell, content);
    }

    /// Leaves a change of the service's own to settling.
    pub(super) fn postpone(&mut self, change: Vec<u8>) {
        self.bytes += change.len() + size_of::<Change>();
        self.changes.push(Change::Own(change));
    }

    /// Leaves a step of the service's own to settling. It has to be the first change.
    pub(super) fn step(&mut self, step: u32) {
        if !self.changes.is_empty() || !self.writes.is_empty() {
            self.fail();
        }
        self.changes.push(Change::Step(step));
    }

    /// Notes that a cell was read.
    pub(super) fn note(&self, cell: &Cell, seen: Seen) {
        let mut reads = self.reads.borrow_mut();
        if reads.len() == READS_MAX {
            return self.fail();
        }
        if !reads.iter().any(|(known, version)| known == cell && *version == seen) {
            reads.push((cell.clone(), seen));
        }
    }
}
