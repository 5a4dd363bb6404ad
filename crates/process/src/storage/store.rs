//! What a process asks a store of pages, in addition to the pages.

use quorate_service::page::{Memory, PageStore};

/// The numbers of a state's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Pages in memory.
    pub in_memory: usize,
    /// Those of them that are only in memory.
    pub dirty: usize,
    /// Pages that are only on the disk.
    pub on_disk: usize,
    /// How often a page was read from the disk.
    pub reads: u64,
    /// Failed reads, and reads of a wrong page.
    pub faults: u64,
}

/// A store of pages that can keep some of them on a disk. By default all pages are in memory.
pub trait Store: PageStore {
    /// Returns how many pages may be in memory.
    #[inline]
    fn pages_max(&self) -> usize {
        usize::MAX
    }

    /// Returns the numbers of pages.
    #[inline]
    fn pages(&self) -> Pages {
        Pages::default()
    }

    /// Returns whether enough pages are only in memory for them to be stored. `others` are in memory for other
    /// reasons and count too.
    #[inline]
    fn is_crowded(&self, _others: usize) -> bool {
        false
    }
}

impl Store for Memory {}
