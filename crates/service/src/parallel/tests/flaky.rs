//! A store whose pages turn out to be away now and then.

use alloc::boxed::Box;
use core::cell::Cell;

use crate::page::{Memory, OldPage, PageFault, PageStore};

/// Pages in memory, some of which turn out to be away.
#[derive(Debug, Default)]
pub(super) struct Flaky {
    pages: Memory,
    /// The page that is asked for after this number of others is away, once; 0: none.
    away_in: Cell<u64>,
}

impl Flaky {
    /// Makes the page that is asked for after this number of others away, once; 0: none.
    pub(super) fn away_in(&self, pages: u64) {
        self.away_in.set(pages);
    }
}

impl PageStore for Flaky {
    fn get(&self, page: u32) -> Result<Option<&[u8]>, PageFault> {
        let left = self.away_in.get();
        self.away_in.set(left.saturating_sub(1));
        if left == 1 { Err(PageFault { page }) } else { self.pages.get(page) }
    }

    fn replace(&mut self, page: u32, content: Option<Box<[u8]>>) -> OldPage {
        self.pages.replace(page, content)
    }

    fn next(&self, from: u32) -> Option<u32> {
        self.pages.next(from)
    }
}
