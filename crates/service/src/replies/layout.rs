//! Where the slots of the client lanes are, and each lane's own pages.

use crate::replies::shares::Rules;

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = 256;
/// The longest result that stands in the slot itself, in bytes.
pub(crate) const INLINE_BYTES: usize = 192;
/// The layout of the lanes in the state: slots first, then each lane's own pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(super) slots_max: u32,
    pub(super) page_bytes: usize,
    pub(super) slots_per_page: u32,
    pub(super) result_bytes_max: usize,
    /// Each lane's own pages.
    lane_pages: u32,
    /// The first of them.
    pub(super) lanes_at: u32,
    /// The first page of the principals' entries.
    pub(super) shares_at: u32,
}

impl Layout {
    /// Returns the layout for these settings; none if it needs more than 2^32 pages.
    pub(crate) fn new(page_bytes: usize, slots_max: u32, result_bytes_max: usize) -> Option<Self> {
        let slots_per_page = u32::try_from(page_bytes / SLOT_BYTES).ok()?;
        let own = if result_bytes_max > INLINE_BYTES { result_bytes_max.div_ceil(page_bytes) } else { 0 };
        let lane_pages = u32::try_from(own).ok()?;
        let lanes_at = slots_max.div_ceil(slots_per_page);
        let shares_at = lane_pages.checked_mul(slots_max)?.checked_add(lanes_at)?;
        let end = shares_at.checked_add(Rules::pages(slots_max, page_bytes))?;
        end.checked_next_multiple_of(64)?;
        Some(Self {
            slots_max,
            page_bytes,
            slots_per_page,
            result_bytes_max,
            lane_pages,
            lanes_at,
            shares_at,
        })
    }

    /// Returns the number of pages taken. What comes next starts under a node of its own.
    pub(crate) fn pages(&self) -> u32 {
        (self.shares_at + Rules::pages(self.slots_max, self.page_bytes)).next_multiple_of(64)
    }

    /// Returns the page of a slot and where in the page it is.
    #[inline]
    pub(super) fn place(&self, slot: u32) -> (u32, usize) {
        let Ok(at) = usize::try_from(slot % self.slots_per_page) else { unreachable!("below a page's size") };
        (slot / self.slots_per_page, at * SLOT_BYTES)
    }

    /// Returns the pages of a slot's own.
    pub(super) fn own_pages(&self, slot: u32) -> impl Iterator<Item = u32> + use<> {
        let first = self.lanes_at + slot * self.lane_pages;
        first..first + self.lane_pages
    }
}
