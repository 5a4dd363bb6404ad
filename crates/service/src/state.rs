//! The committed state and its checkpoints: logical copies that share every page not written since then.
//!
//! Each checkpoint held has a record. It contains the old content of pages that were first overwritten between that
//! checkpoint and the next, and the digests that the next checkpoint replaced. Of a page that was not in memory then,
//! it contains only the place where the store has the content. To read a page at checkpoint `n`, take
//! the first record from `n` on that has it, otherwise the current page (TR-2).
//!
//! ```text
//!  checkpoint   128            256            384          now
//!  record       |--- 128 ------|--- 256 ------|--- 384 ----|
//!  page 7          v1 (moved)                    v2           v3      page 7 at 256 is v2
//! ```

pub(crate) mod arrival;
pub(crate) mod bits;
pub mod btree;
pub(crate) mod cell;
mod cells;
pub(crate) mod elsewhere;
pub(crate) mod index;
mod missing;
pub(crate) mod overlay;
mod record;
mod running;
pub mod space;
pub(crate) mod tree;
pub mod view;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use quorate_wire::digest::Domains;
use quorate_wire::{Digest, SeqNum};

use crate::page::{Page, PageLabel, PageStore, Pool};
use crate::state::arrival::{Arrival, Arrivals};
use crate::state::bits::Bits;
use crate::state::cell::{Below, CellRun};
use crate::state::overlay::Overlay;
use crate::state::record::Record;
use crate::state::tree::{BRANCHING, Label, Tree};
use crate::state::view::View;

/// The committed state, its digest tree and its checkpoints.
#[derive(Debug)]
pub(crate) struct State<P> {
    store: P,
    /// As of the newest checkpoint.
    tree: Tree,
    /// One for each checkpoint held, oldest first. Never empty, never more than `records_max`.
    records: VecDeque<Record>,
    records_max: usize,
    /// Records for later use.
    spare: Vec<Record>,
    /// One bit a page: it has been written since the last cut, so the newest record has it.
    dirty: Bits,
    /// The dirty pages in order, while a checkpoint is cut.
    sorted: Vec<u32>,
    /// One bit a page: it has changed, up to the newest checkpoint, since it was copied for a disk.
    unsaved: Bits,
    /// Pages that the store should have and cannot read, with the label of the version that it cannot. Few: each was
    /// asked for since it was last well. A page that is replaced unread stays, because a checkpoint may still need it.
    unreadable: BTreeMap<u32, Label>,
    /// Those that came back since, until they are copied for a disk.
    repaired: BTreeSet<u32>,
    /// For pages that are looked at and not kept.
    buffer: Vec<u8>,
    /// What the running batch has written.
    overlay: Overlay,
    pool: Pool,
    /// A page that was never written.
    zeros: Vec<u8>,
}

/// The pages of one owner: the first and how many.
pub(crate) type Part = (u32, u32);

impl<P: PageStore> State<P> {
    /// Returns the state in `store`, which is empty, as checkpoint 0.
    pub(crate) fn new(store: P, tree: Tree, pool: Pool, records_max: usize) -> Self {
        let mut record = Record::default();
        record.name(SeqNum(0), tree.root());
        Self {
            store,
            tree,
            records: [record].into(),
            records_max,
            spare: Vec::new(),
            dirty: Bits::default(),
            sorted: Vec::new(),
            unsaved: Bits::default(),
            unreadable: BTreeMap::new(),
            repaired: BTreeSet::new(),
            buffer: Vec::new(),
            overlay: Overlay::default(),
            zeros: alloc::vec![0; pool.page_bytes()],
            pool,
        }
    }

    /// Returns a part of the state as the running operation sees it, which may write.
    #[inline]
    pub(crate) fn view(&mut self, part: Part) -> View<'_> {
        View::new(&self.store, &mut self.overlay, &mut self.pool, &self.zeros, part)
    }

    /// Returns a part of the settled state to a run on cells.
    pub(crate) fn on_cells<'a>(&'a self, part: Part, below: &'a dyn Below, run: &'a mut CellRun) -> View<'a> {
        View::on_cells((&self.store, &self.overlay), below, run, &self.zeros, part)
    }

    /// Returns a part of the committed state, to be read.
    pub(crate) fn committed(&self, part: Part) -> View<'_> {
        View::read_only(&self.store, &self.zeros, part)
    }

    /// Returns the size of a page, in bytes.
    #[inline]
    pub(crate) fn page_bytes(&self) -> usize {
        self.zeros.len()
    }

    /// Returns a buffer with a copy of `content`, which is a whole page.
    pub(crate) fn copy(&mut self, content: &[u8]) -> Page {
        self.pool.copy(content)
    }

    /// Takes back a buffer.
    pub(crate) fn give(&mut self, page: Page) {
        self.pool.give(page);
    }

    /// A disk has the page that this label is about at `place`. Its content can be dropped from memory, unless it
    /// is another one by now.
    pub(crate) fn note_stored(&mut self, label: &PageLabel, place: u32) {
        let now = self.tree.label(0, label.page);
        // The tree tells of the newest checkpoint: what was written since is marked.
        if (now.modified, now.digest) == (label.modified, label.digest) && !self.dirty.contains(label.page) {
            self.store.stored(label, place);
            // From now on a fault is about this version.
            if self.unreadable.get(&label.page).is_some_and(|missing| *missing != now) {
                self.unreadable.remove(&label.page);
            }
        }
    }

    /// Lets the store drop pages that can be read again. What a page was is needed when the batch that has written it is
    /// merged; what a batch has only read is not (L105).
    pub(crate) fn relax(&mut self) {
        let overlay = &self.overlay;
        self.store.relax(&|page| overlay.get(page).is_some());
    }

    /// Returns the places of pages that checkpoints before `seq` need, and that are not part of it.
    pub(crate) fn places_before(&self, seq: SeqNum) -> Vec<u32> {
        self.records.iter().take_while(|record| record.seq() < seq).flat_map(Record::places).collect()
    }

    /// Returns the place of a page as of checkpoint `seq`, if it was replaced unread since. The caller has seen that the
    /// checkpoint is held.
    pub(crate) fn replaced_place(&self, seq: SeqNum, page: u32) -> Option<u32> {
        let from = self.position(seq).unwrap_or(0);
        self.records.iter().skip(from).find_map(|record| record.page(page))?.as_ref().err().copied()
    }

    /// Returns how many pages are in memory only because a checkpoint has another version than the state now.
    pub(crate) fn pages_of_checkpoints(&self) -> usize {
        self.records.iter().map(Record::here).sum()
    }

    /// Returns a bit for each page that has changed since this was last asked.
    pub(crate) fn take_unsaved(&mut self) -> Bits {
        core::mem::take(&mut self.unsaved)
    }

    /// Records that a page is to be copied.
    pub(crate) fn mark_unsaved(&mut self, page: u32) {
        self.unsaved.insert(page);
    }

    /// Returns the pages as they are now.
    #[inline]
    pub(crate) fn store(&self) -> &P {
        &self.store
    }

    /// Returns the tree as of the newest checkpoint.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the tree, to compute digests with.
    pub(crate) fn tree_mut(&mut self) -> &mut Tree {
        &mut self.tree
    }

    /// Makes everything that the running batch has written part of the state.
    #[inline]
    pub(crate) fn merge(&mut self) {
        let Self { overlay, pool, store, dirty, records, .. } = self;
        let Some(record) = records.back_mut() else { unreachable!("there is always a checkpoint") };
        overlay.drain(pool, |page, content, pool| {
            let old = store.replace(page, content);
            // "First write after a cut": the old page moves to the record.
            if dirty.insert(page) {
                record.keep(page, old);
            } else if let Ok(Some(old)) = old {
                pool.give(old);
            }
        });
    }

    /// Cuts checkpoint `seq` and returns its root.
    pub(crate) fn cut(&mut self, seq: SeqNum) -> Digest {
        let Some(record) = self.records.back_mut() else { unreachable!("there is always a checkpoint") };
        self.sorted.clear();
        self.sorted.extend(record.pages());
        self.sorted.sort_unstable();
        let store = &self.store;
        // A page that was just written is here.
        let dirty = self.sorted.iter().map(|&page| (page, store.get(page).unwrap_or(None)));
        self.tree.cut(seq, dirty, |replaced| record.keep_label(replaced));
        for &page in &self.sorted {
            self.dirty.remove(page);
            self.unsaved.insert(page);
        }
        let mut next = self.spare.pop().unwrap_or_default();
        next.name(seq, self.tree.root());
        self.records.push_back(next);
        if self.records.len() > self.records_max {
            self.forget_oldest();
        }
        self.tree.root()
    }

    /// Forgets the checkpoints before `below`, but never the newest.
    pub(crate) fn discard(&mut self, below: SeqNum) {
        while self.records.len() > 1 && self.records.front().is_some_and(|record| record.seq() < below) {
            self.forget_oldest();
        }
    }

    /// Returns the checkpoints held, oldest first.
    pub(crate) fn checkpoints(&self) -> impl Iterator<Item = (SeqNum, Digest)> + '_ {
        self.records.iter().map(|record| (record.seq(), record.root()))
    }

    /// Returns the newest checkpoint.
    pub(crate) fn newest(&self) -> SeqNum {
        self.records.back().map_or(SeqNum(0), Record::seq)
    }

    /// Returns the root of checkpoint `seq`, if it is held.
    pub(crate) fn root_at(&self, seq: SeqNum) -> Option<Digest> {
        Some(self.records.get(self.position(seq)?)?.root())
    }

    /// Returns a page as of checkpoint `seq`; none if it is empty, or cannot be read. The caller has seen that the
    /// checkpoint is held. The page may be brought into `buffer`.
    pub(crate) fn page_at<'a>(&'a self, seq: SeqNum, page: u32, buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        page_since(&self.records, self.position(seq).unwrap_or(0), (&self.store, &self.tree), page, buffer)
    }

    /// Returns what the tree of checkpoint `seq` says of a page or node, if a later checkpoint has replaced that, even
    /// by the same: an empty page has always the same label. The caller has seen that `seq` is held.
    pub(crate) fn replaced_label(&self, seq: SeqNum, level: u8, index: u32) -> Option<Label> {
        let from = self.position(seq).unwrap_or(0);
        self.records.iter().skip(from).find_map(|record| record.label(level, index))
    }

    /// Returns what the tree of checkpoint `seq` says of a page or node. The caller has seen that it is held.
    pub(crate) fn label_at(&self, seq: SeqNum, level: u8, index: u32) -> Label {
        self.replaced_label(seq, level, index).unwrap_or_else(|| self.tree.label(level, index))
    }

    /// Returns the label that a page has with its content as of checkpoint `seq`, which is held.
    pub(crate) fn leaf_at(&mut self, seq: SeqNum, page: u32, modified: SeqNum) -> Label {
        let from = self.position(seq).unwrap_or(0);
        let content = page_since(&self.records, from, (&self.store, &self.tree), page, &mut self.buffer);
        self.tree.leaf(page, modified, content)
    }

    /// Returns the label that a page has with its current content.
    pub(crate) fn current_leaf(&mut self, page: u32, modified: SeqNum) -> Label {
        self.tree.leaf(page, modified, self.store.look(page, &mut self.buffer).unwrap_or(None))
    }

    /// Returns the pages that are not empty at checkpoint `seq`, in order.
    pub(crate) fn pages_at(&self, seq: SeqNum) -> Vec<u32> {
        let mut pages = self.current_pages();
        let from = self.position(seq).unwrap_or(0);
        for record in self.records.iter().skip(from) {
            pages.extend(record.pages());
        }
        pages.sort_unstable();
        pages.dedup();
        pages.retain(|&page| {
            let old = self.records.iter().skip(from).find_map(|record| record.page(page));
            old.map_or_else(|| self.store.next(page) == Some(page), |old| *old != Ok(None))
        });
        pages
    }

    /// Recomputes the root of the newest checkpoint from all pages and their `lm` (I17).
    pub(crate) fn recompute(&self, domains: Domains, pages_max: u32) -> Digest {
        let mut fresh = Tree::new(domains, pages_max);
        let seq = self.newest();
        let (mut leaves, mut buffer) = (Vec::new(), Vec::new());
        for page in self.pages_at(seq) {
            let modified = self.label_at(seq, 0, page).modified;
            leaves.push((page, fresh.leaf(page, modified, self.page_at(seq, page, &mut buffer))));
        }
        fresh.set_leaves(leaves.into_iter());
        fresh.root()
    }

    /// Replaces the state by checkpoint `base` with `arrivals`, and makes that checkpoint `seq`, the only
    /// one. With `whole`, the arrivals are all pages there are and nothing else is kept. Returns the
    /// root.
    pub(crate) fn install(&mut self, base: SeqNum, seq: SeqNum, whole: bool, arrivals: Arrivals) -> Digest {
        let current = arrivals.iter().filter(|(_, _, arrival)| matches!(arrival, Arrival::Current));
        let current: Vec<u32> = current.map(|(page, _, _)| *page).collect();
        self.revert(base, &current);
        // What stands at its place on a disk under another label cannot be found there any more.
        for (page, label, arrival) in &arrivals {
            let is_kept = matches!(arrival, Arrival::Base | Arrival::Current);
            if is_kept && self.tree.label(0, *page) != *label {
                self.take_off_disk(*page);
            }
        }
        if whole {
            self.tree.clear();
            for page in self.pages_at(base) {
                if arrivals.binary_search_by_key(&page, |(page, _, _)| *page).is_err() {
                    self.replace(page, None);
                    self.unsaved.insert(page);
                }
            }
        }
        self.tree.set_leaves(arrivals.iter().map(|(page, label, _)| (*page, *label)));
        for (page, label, arrival) in arrivals {
            self.unsaved.insert(page);
            match arrival {
                Arrival::New(content) => self.replace(page, content),
                Arrival::Stored(place) => {
                    self.replace(page, None);
                    self.store.stored(&label.of_page(page), place);
                }
                Arrival::Current | Arrival::Base => {}
            }
        }
        while self.records.len() > 1 {
            self.forget_oldest();
        }
        let Self { unreadable, tree, .. } = self;
        unreadable.retain(|page, label| tree.label(0, *page) == *label);
        let root = self.tree.root();
        if let Some(only) = self.records.back_mut() {
            only.name(seq, root);
        }
        root
    }

    fn replace(&mut self, page: u32, content: Option<Page>) {
        if self.unreadable.remove(&page).is_some() {
            self.repaired.insert(page);
        }
        if let Ok(Some(old)) = self.store.replace(page, content) {
            self.pool.give(old);
        }
    }

    /// Makes a page one that is in memory alone.
    fn take_off_disk(&mut self, page: u32) {
        if self.store.get(page).is_ok()
            && let Ok(Some(content)) = self.store.replace(page, None)
        {
            let _ = self.store.replace(page, Some(content));
        }
    }

    /// Goes back to checkpoint `base`, whose record becomes the newest, except for the content of the
    /// pages in `current`, which is in order.
    fn revert(&mut self, base: SeqNum, current: &[u32]) {
        loop {
            let Some(mut record) = self.records.pop_back() else {
                unreachable!("there is always a checkpoint")
            };
            let Self { tree, unsaved, store, pool, .. } = self;
            for old in record.take_labels() {
                tree.set_label(old.level, old.index, old.label);
            }
            record.empty(|page, old| {
                unsaved.insert(page);
                let is_kept = current.binary_search(&page).is_ok();
                let dropped = match old {
                    old if is_kept => old,
                    Ok(content) => store.replace(page, content),
                    Err(place) => {
                        let dropped = store.replace(page, None);
                        store.stored(&tree.label(0, page).of_page(page), place);
                        dropped
                    }
                };
                if let Ok(Some(dropped)) = dropped {
                    pool.give(dropped);
                }
            });
            if record.seq() <= base || self.records.is_empty() {
                self.records.push_back(record);
                break;
            }
            self.spare.push(record);
        }
        self.dirty.clear();
    }

    /// Flips a bit of the `choice`-th page, without telling anyone.
    pub(crate) fn damage(&mut self, choice: u64) -> bool {
        let pages = self.current_pages();
        let count = u64::try_from(pages.len()).unwrap_or(0);
        let Some(at) = choice.checked_rem(count) else { return false };
        let page = pages[usize::try_from(at).unwrap_or(0)];
        if self.store.get(page).is_err() {
            return false; // what is not here would be lost
        }
        let Ok(Some(mut content)) = self.store.replace(page, None) else { return false };
        let byte = usize::try_from(choice >> 16).unwrap_or(0) % content.len();
        content[byte] ^= 1 << (choice % 8);
        self.store.replace(page, Some(content)).is_ok()
    }

    /// Returns the pages that are not empty now, in order.
    fn current_pages(&self) -> Vec<u32> {
        let mut pages = Vec::new();
        let mut from = Some(0);
        while let Some(page) = from.and_then(|from| self.store.next(from)) {
            pages.push(page);
            from = page.checked_add(1);
        }
        pages
    }

    fn forget_oldest(&mut self) {
        let Some(mut record) = self.records.pop_front() else { return };
        record.empty(|_, old| {
            if let Ok(Some(page)) = old {
                self.pool.give(page);
            }
        });
        if self.spare.len() < self.records_max {
            self.spare.push(record);
        }
    }

    fn position(&self, seq: SeqNum) -> Option<usize> {
        self.records.iter().position(|record| record.seq() == seq)
    }
}

/// Returns a page as the first record from `from` on has it, else as it is now.
fn page_since<'a>(
    records: &'a VecDeque<Record>,
    from: usize,
    (store, tree): (&'a impl PageStore, &Tree),
    page: u32,
    buffer: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    match records.iter().skip(from).find_map(|record| Some((record, record.page(page)?))) {
        None => store.look(page, buffer).unwrap_or(None),
        Some((_, Ok(old))) => old.as_deref(),
        // The tree is that of the newest record, which keeps no labels.
        Some((record, Err(place))) => {
            let label = record.label(0, page).unwrap_or_else(|| tree.label(0, page));
            store.look_at(&label.of_page(page), *place, buffer)
        }
    }
}

const _: () = assert!(BRANCHING == u64::BITS, "a group of pages is a word of bits");

#[cfg(test)]
mod tests;
