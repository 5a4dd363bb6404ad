//! The state as one execution sees it.

use crate::page::{Page, PageStore, Pool};
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
    /// None for a read-only execution, which sees the committed state alone (RO-2).
    layer: Option<Layer<'a>>,
    /// A page of zeros.
    zeros: &'a [u8],
    /// The part of the state that is shown: its first page and the number of pages.
    first: u32,
    count: u32,
}

#[derive(Debug)]
struct Layer<'a> {
    overlay: &'a mut Overlay,
    pool: &'a mut Pool,
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
        Self { base, layer: Some(Layer { overlay, pool }), zeros, first, count }
    }

    /// Returns a view of the committed state that refuses to write.
    pub(crate) fn read_only(base: &'a dyn PageStore, zeros: &'a [u8], (first, count): (u32, u32)) -> Self {
        Self { base, layer: None, zeros, first, count }
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
        if let Some(layer) = &self.layer
            && let Some(written) = layer.overlay.get(page)
        {
            return Ok(written.unwrap_or(self.zeros));
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
        let layer = self.layer.as_mut().ok_or(Stop::NeedsOrder)?;
        Ok(layer.overlay.page_mut(self.base, layer.pool, page)?)
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
        let layer = self.layer.as_mut().ok_or(Stop::NeedsOrder)?;
        Ok(layer.overlay.write(self.base, layer.pool, page, offset, bytes)?)
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
        let layer = self.layer.as_mut().ok_or(Stop::NeedsOrder)?;
        Ok(layer.overlay.put(self.base, layer.pool, page, Some(bytes))?)
    }

    /// Clears a page: it takes no room any more and reads as zeros.
    ///
    /// # Errors
    ///
    /// As [`Self::page_mut`].
    pub fn clear(&mut self, page: u32) -> Result<(), Stop> {
        let page = self.absolute(page)?;
        let layer = self.layer.as_mut().ok_or(Stop::NeedsOrder)?;
        Ok(layer.overlay.put(self.base, layer.pool, page, None)?)
    }

    /// Lets what has been written so far stand, even if the execution is refused later. For an operation
    /// that is made of several, each of which can be refused individually.
    pub fn keep(&mut self) {
        if let Some(Layer { overlay, pool }) = &mut self.layer {
            overlay.begin(pool);
        }
    }

    /// Undoes what was written since the execution began or was last told to [`Self::keep`].
    pub fn undo(&mut self) {
        if let Some(Layer { overlay, pool }) = &mut self.layer {
            overlay.roll_back(pool);
            overlay.begin(pool);
        }
    }

    /// Returns a copy of a page, to work from while the page itself changes. Goes back with
    /// [`Self::release`].
    pub(crate) fn copy(&mut self, page: u32) -> Result<Page, Stop> {
        let absolute = self.absolute(page)?;
        let Some(Layer { overlay, pool }) = &mut self.layer else { return Err(Stop::NeedsOrder) };
        let content = match overlay.get(absolute) {
            Some(written) => written,
            None => self.base.get(absolute)?,
        };
        Ok(pool.copy(content.unwrap_or(self.zeros)))
    }

    /// Takes back a buffer.
    pub(crate) fn release(&mut self, page: Page) {
        if let Some(layer) = &mut self.layer {
            layer.pool.give(page);
        }
    }

    #[inline]
    fn absolute(&self, page: u32) -> Result<u32, Stop> {
        if page < self.count { Ok(self.first + page) } else { Err(Stop::Corrupt) }
    }
}
