//! Pages of a transfer that are stored on disk until they are installed, so that the state may be larger than memory.

use super::{Arrival, Label, PageStore, Staged, State, Walk};

impl Walk {
    /// Returns how many staged pages are in memory.
    pub(in crate::transfer) fn contents(&self) -> usize {
        self.contents
    }

    /// Returns whether everything is here, with at most this number of its pages in memory.
    pub(in crate::transfer) fn may_land(&self, contents_max: usize) -> bool {
        self.is_done() && self.contents <= contents_max
    }

    /// Calls `each` with some of the staged pages that are in memory, each once: what is written a second time is not
    /// where it was any more.
    pub(in crate::transfer) fn put_aside(
        &mut self,
        pages_max: usize,
        mut each: impl FnMut(u32, Label, &[u8]),
    ) {
        for _ in 0..pages_max {
            let Some(page) = self.to_put_aside.pop_first() else { return };
            if let Some(Staged { label, arrival: Arrival::New(Some(content)) }) = self.staged.get(&page) {
                each(page, *label, content);
            }
        }
    }

    /// A disk has a page at `place`: it need not be in memory, if it is still the one that is staged.
    pub(in crate::transfer) fn is_aside<P: PageStore>(
        &mut self,
        page: u32,
        label: Label,
        place: u32,
        state: &mut State<P>,
    ) {
        let Some(staged) = self.staged.get_mut(&page).filter(|staged| staged.label == label) else { return };
        if staged.has_content() {
            self.contents -= 1;
            if let Arrival::New(Some(content)) =
                core::mem::replace(&mut staged.arrival, Arrival::Stored(place))
            {
                state.give(content);
            }
        }
    }
}
