//! Pages that cannot be read where the store has them, until they come from another replica.
//!
//! A page can be replaced unread, so what is missing is one version of it: the checkpoints with its label lack the page,
//! and no others (L85).

use quorate_wire::SeqNum;

use crate::page::PageStore;
use crate::state::State;
use crate::state::record::Record;
use crate::state::tree::Label;

impl<P: PageStore> State<P> {
    /// Records that a page cannot be read. Returns the label of the version that cannot: the newest, unless an older
    /// one is missing. What has replaced that one is in memory until a disk has it ([`Self::note_stored`]).
    pub(crate) fn note_unreadable(&mut self, page: u32) -> Label {
        *self.unreadable.entry(page).or_insert_with(|| self.tree.label(0, page))
    }

    /// Returns the pages that cannot be read as of checkpoint `seq`, which is held.
    pub(crate) fn unreadable_at(&self, seq: SeqNum) -> impl Iterator<Item = u32> + '_ {
        self.unreadable.keys().copied().filter(move |page| self.is_unreadable_at(seq, *page))
    }

    /// Returns whether a page is to be copied, and cannot be read as of checkpoint `seq`, which is held.
    pub(crate) fn lacks_unsaved(&self, seq: SeqNum) -> bool {
        self.unreadable_at(seq).any(|page| self.unsaved.contains(page))
    }

    /// Returns a page that is to be copied, and cannot be read as of a checkpoint that is held.
    #[inline]
    pub(crate) fn unsaved_unreadable(&self) -> Option<u32> {
        if self.unreadable.is_empty() {
            return None;
        }
        let lacks = |(seq, _)| self.unreadable_at(seq).find(|page| self.unsaved.contains(*page));
        self.checkpoints().find_map(lacks)
    }

    /// Returns whether a page cannot be read as of checkpoint `seq`, which is held.
    #[inline]
    pub(crate) fn is_unreadable_at(&self, seq: SeqNum, page: u32) -> bool {
        self.unreadable.get(&page).is_some_and(|label| self.label_at(seq, 0, page) == *label)
    }

    /// Returns whether a disk has to rewrite a page, whatever it has of it; once.
    pub(crate) fn take_repaired(&mut self, page: u32) -> bool {
        self.repaired.remove(&page)
    }

    /// Puts a page back that could not be read. The caller has checked that it has this label. If the state has replaced
    /// it unread since, only the last checkpoint that needs it gets it.
    pub(crate) fn repair(&mut self, page: u32, label: Label, content: &[u8]) {
        let content = self.pool.copy(content);
        self.unreadable.remove(&page);
        self.repaired.insert(page);
        self.unsaved.insert(page);
        if !self.dirty.contains(page) && self.tree.label(0, page) == label {
            if let Ok(Some(old)) = self.store.replace(page, Some(content)) {
                self.pool.give(old);
            }
            return;
        }
        // The last checkpoint with this version keeps it.
        let is_of = |record: &Record| self.label_at(record.seq(), 0, page) == label;
        let found = (0..self.records.len()).rfind(|at| is_of(&self.records[*at]));
        if let Some(record) = found.and_then(|at| self.records.get_mut(at)) {
            record.bring(page, content);
        }
    }
}
