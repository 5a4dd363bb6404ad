//! Pages of a transfer that are stored on disk until they are installed, so that the state may be larger than memory.

use super::{Arrival, Arrived, Label, PageStore, State, Walk};

impl Walk {
    /// Returns how many pages that have arrived are in memory.
    pub(in crate::transfer) fn contents(&self) -> usize {
        self.contents
    }

    /// Returns whether everything is here, with at most this number of its pages in memory.
    pub(in crate::transfer) fn may_adopt(&self, contents_max: usize) -> bool {
        self.is_done() && self.contents <= contents_max
    }

    /// Calls `each` with some of the pages that are in memory, each once: what is written a second time is not
    /// where it was any more.
    pub(in crate::transfer) fn stage(&mut self, pages_max: usize, mut each: impl FnMut(u32, Label, &[u8])) {
        for _ in 0..pages_max {
            let Some(page) = self.to_stage.pop_first() else { return };
            if let Some(Arrived { label, arrival: Arrival::New(Some(content)) }) = self.arrived.get(&page) {
                each(page, *label, content);
            }
        }
    }

    /// A disk has a page at `place`: it need not be in memory, if it is still the one that has arrived.
    pub(in crate::transfer) fn note_staged<P: PageStore>(
        &mut self,
        page: u32,
        label: Label,
        place: u32,
        state: &mut State<P>,
    ) {
        let Some(arrived) = self.arrived.get_mut(&page).filter(|arrived| arrived.label == label) else {
            return;
        };
        if arrived.has_content() {
            self.contents -= 1;
            if let Arrival::New(Some(content)) =
                core::mem::replace(&mut arrived.arrival, Arrival::Stored(place))
            {
                state.give(content);
            }
        }
    }
}
