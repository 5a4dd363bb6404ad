//! The state as an array of pages, and where the pages are stored.
//!
//! The array is sparse: a page that was never written, or was cleared, takes no memory and reads as zeros. Pages move
//! as whole buffers: committing a batch swaps them, and copy on write of a checkpoint moves the old buffer to it
//! (TR-2).

use alloc::boxed::Box;
use alloc::vec::Vec;

use quorate_wire::{Digest, SeqNum};

/// A page's content.
pub(crate) type Page = Box<[u8]>;

/// What a checkpoint says of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLabel {
    /// The page.
    pub page: u32,
    /// The last checkpoint that modified it.
    pub modified: SeqNum,
    /// Its digest, over its number, `modified` and its content. Zero: it is empty.
    pub digest: Digest,
}

/// A page that was replaced: its content, none if it was empty; or the place where the store can read it.
pub type OldPage = Result<Option<Box<[u8]>>, u32>;

/// A page that the store does not hold at the moment. The overlay is dropped, the page brought, the
/// batch executed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFault {
    /// The page of the state.
    pub page: u32,
}

/// Where the pages of the committed state are kept. In memory here; behind a file elsewhere, so that
/// a state may be larger than memory.
pub trait PageStore: core::fmt::Debug {
    /// Returns a page; none if it is empty. It stays in memory until [`Self::relax`], at least.
    ///
    /// # Errors
    ///
    /// The page is not here at the moment.
    fn get(&self, page: u32) -> Result<Option<&[u8]>, PageFault>;

    /// As [`Self::get`], but a page that is not in memory is read into `buffer` and not kept: for reading
    /// many pages once.
    ///
    /// # Errors
    ///
    /// The page is not here at the moment.
    fn look<'a>(&'a self, page: u32, _buffer: &'a mut Vec<u8>) -> Result<Option<&'a [u8]>, PageFault> {
        self.get(page)
    }

    /// Replaces a page and returns what it was. What is not in memory is not read.
    ///
    /// # Errors
    ///
    /// None: it has been replaced, and this says where the old content is.
    fn replace(&mut self, page: u32, content: Option<Box<[u8]>>) -> OldPage;

    /// Reads a page that was replaced into `buffer`. None: it cannot be read.
    fn look_at<'a>(&'a self, _label: &PageLabel, _place: u32, _buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        None
    }

    /// Returns the first page at or after `from` that is not empty.
    fn next(&self, from: u32) -> Option<u32>;

    /// The page that this label is about can be read at `place` from now on, until it is replaced. If it is in
    /// memory, it is that page; else it is not empty any more.
    fn stored(&mut self, _label: &PageLabel, _place: u32) {}

    /// Nobody needs pages in memory at this moment, but those that `keeps` names: some may be dropped that can be read
    /// again.
    fn relax(&mut self, _keeps: &dyn Fn(u32) -> bool) {}
}

/// Pages in a group: those under one node of the digest tree.
const GROUP: usize = 64;

/// Pages in memory: a table of groups, each a table of pages.
#[derive(Debug, Default)]
pub struct Memory {
    groups: Vec<Option<Box<[Option<Page>; GROUP]>>>,
}

impl Memory {
    /// Returns a store without pages.
    pub fn new() -> Self {
        Self::default()
    }
}

/// Returns the group of a page and its place there.
#[inline]
pub(crate) fn place(page: u32) -> (usize, usize) {
    let Ok(page) = usize::try_from(page) else { unreachable!("an address has 32 bits or more") };
    (page / GROUP, page % GROUP)
}

impl PageStore for Memory {
    #[inline]
    fn get(&self, page: u32) -> Result<Option<&[u8]>, PageFault> {
        let (group, at) = place(page);
        Ok(self.groups.get(group).and_then(|group| group.as_ref()?[at].as_deref()))
    }

    #[inline]
    fn replace(&mut self, page: u32, content: Option<Page>) -> OldPage {
        let (group, at) = place(page);
        if content.is_none() && self.groups.get(group).is_none_or(Option::is_none) {
            return Ok(None);
        }
        if group >= self.groups.len() {
            self.groups.resize_with(group + 1, || None);
        }
        let pages = self.groups[group].get_or_insert_with(|| Box::new([const { None }; GROUP]));
        Ok(core::mem::replace(&mut pages[at], content))
    }

    fn next(&self, from: u32) -> Option<u32> {
        let (mut group, mut at) = place(from);
        while group < self.groups.len() {
            if let Some(pages) = &self.groups[group]
                && let Some(found) = pages[at..].iter().position(Option::is_some)
            {
                return u32::try_from(group * GROUP + at + found).ok();
            }
            (group, at) = (group + 1, 0);
        }
        None
    }
}

/// Page buffers for later use, so that a steady state allocates nothing. Never more than `max`.
#[derive(Debug)]
pub(crate) struct Pool {
    free: Vec<Page>,
    page_bytes: usize,
    max: usize,
}

impl Pool {
    pub(crate) fn new(page_bytes: usize, max: usize) -> Self {
        Self { free: Vec::new(), page_bytes, max }
    }

    /// Returns the size of a page, in bytes.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Returns a copy of `content`, which is a whole page.
    #[inline]
    pub(crate) fn copy(&mut self, content: &[u8]) -> Page {
        let mut page = self.take();
        page.copy_from_slice(content);
        page
    }

    /// Returns a page of zeros behind `content`, which is at most a page.
    pub(crate) fn padded(&mut self, content: &[u8]) -> Page {
        let mut page = self.take();
        let (head, tail) = page.split_at_mut(content.len());
        head.copy_from_slice(content);
        tail.fill(0);
        page
    }

    /// Takes back a buffer.
    #[inline]
    pub(crate) fn give(&mut self, page: Page) {
        if self.free.len() < self.max {
            self.free.push(page);
        }
    }

    /// Returns a buffer with whatever was in it.
    #[inline]
    fn take(&mut self) -> Page {
        match self.free.pop() {
            Some(page) => page,
            None => alloc::vec![0; self.page_bytes].into_boxed_slice(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cleared_page_is_as_one_never_written() {
        let mut store = Memory::new();
        assert_eq!(store.get(70), Ok(None));
        assert_eq!(store.replace(70, None), Ok(None));
        assert_eq!(store.replace(70, Some(alloc::vec![1; 8].into_boxed_slice())), Ok(None));
        assert_eq!(store.replace(3, Some(alloc::vec![2; 8].into_boxed_slice())), Ok(None));
        assert_eq!((store.next(0), store.next(4), store.next(71)), (Some(3), Some(70), None));
        assert_eq!(store.replace(70, None).unwrap().as_deref(), Some(&[1; 8][..]));
        assert_eq!((store.get(70), store.next(4)), (Ok(None), None));
    }

    /// A buffer that comes back must not show what was in it.
    #[test]
    fn a_pooled_page_shows_nothing_of_its_past() {
        let mut pool = Pool::new(8, 1);
        pool.give(alloc::vec![9; 8].into_boxed_slice());
        pool.give(alloc::vec![9; 8].into_boxed_slice());
        assert_eq!(pool.free.len(), 1, "never more than its bound");
        assert_eq!(&*pool.padded(&[1, 2]), [1, 2, 0, 0, 0, 0, 0, 0]);
    }
}
