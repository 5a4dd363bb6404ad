//! The running batch: its requests and operations, and what of them is undone.

use alloc::vec::Vec;
use core::ops::Range;

use super::State;
use super::overlay::Trace;
use crate::page::PageStore;
use crate::state::cell::Cell;

impl<P: PageStore> State<P> {
    /// Begins to trace the cells that are written, or ends it.
    pub(crate) fn set_tracing(&mut self, is_on: bool) {
        self.overlay.set_tracing(is_on);
    }

    /// Forgets the cells that were written so far.
    pub(crate) fn clear_trace(&mut self) {
        self.overlay.clear_trace();
    }

    /// Takes the cells that were written since the trace was cleared. Of pages, only these count.
    pub(crate) fn take_cells(&mut self, of: &Range<u32>) -> Vec<Cell> {
        self.overlay.take_cells(of)
    }

    /// Returns the cells that were written since the trace was cleared.
    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.overlay.trace()
    }

    /// Begins the next operation of the running batch.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.overlay.begin(&mut self.pool);
    }

    /// Undoes the running operation.
    pub(crate) fn roll_back(&mut self) {
        self.overlay.roll_back(&mut self.pool);
    }

    /// Begins the next request of the running batch: it can be undone as a whole.
    pub(crate) fn begin_request(&mut self) {
        self.overlay.begin_request(&mut self.pool);
    }

    /// Undoes the request that was begun last.
    pub(crate) fn undo_request(&mut self) {
        self.overlay.undo_request(&mut self.pool);
    }

    /// Ends the request: what it has written stays.
    pub(crate) fn end_request(&mut self) {
        self.overlay.end_request();
    }

    /// Drops what the running batch has written.
    pub(crate) fn drop_batch(&mut self) {
        self.overlay.discard(&mut self.pool);
    }

    /// Returns whether everything that was written is committed.
    pub(crate) fn is_settled(&self) -> bool {
        self.overlay.is_empty()
    }
}
