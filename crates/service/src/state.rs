//! The committed state and its checkpoints: logical copies that share every page not written since then.
//!
//! Each checkpoint held has a record. It contains the old content of pages that were first overwritten between that
//! checkpoint and the next, and the digests that the next checkpoint replaced. To read a page at checkpoint `n`, take
//! the first record from `n` on that has it, otherwise the current page (TR-2).
//!
//! ```text
//!  checkpoint   128            256            384          now
//!  record       |--- 128 ------|--- 256 ------|--- 384 ----|
//!  page 7          v1 (moved)                    v2           v3      page 7 at 256 is v2
//! ```

pub(crate) mod arrival;
pub mod btree;
pub(crate) mod index;
pub(crate) mod overlay;
pub mod space;
pub(crate) mod tree;
pub mod view;

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use quorate_wire::digest::Domains;
use quorate_wire::{Digest, SeqNum};

use crate::page::{Page, PageLabel, PageStore, Pool, place};
use crate::state::arrival::{Arrival, Arrivals};
use crate::state::index::Index;
use crate::state::overlay::Overlay;
use crate::state::tree::{BRANCHING, Label, Replaced, Tree};

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
    dirty: Vec<u64>,
    /// The dirty pages in order, while a checkpoint is cut.
    sorted: Vec<u32>,
    /// One bit a page: it has changed, up to the newest checkpoint, since it was copied for a disk.
    unsaved: Vec<u64>,
    /// Pages that the store should have and cannot read. Few: each was asked for since it was last well.
    lacking: BTreeSet<u32>,
    /// Those that came back since, until they are copied for a disk.
    mended: BTreeSet<u32>,
    /// For pages that are looked at and not kept.
    buffer: Vec<u8>,
}

/// What a checkpoint needs in addition to later records and the current state.
#[derive(Debug, Default)]
struct Record {
    seq: SeqNum,
    root: Digest,
    /// Pages first overwritten after this checkpoint and before the next, as they were.
    pages: Vec<(u32, Option<Page>)>,
    /// From a page to its place in `pages`.
    index: Index,
    /// Labels that the next cut replaced, by level and index. Empty in the newest record.
    replaced: Vec<Replaced>,
}

impl<P: PageStore> State<P> {
    /// Returns the state in `store`, which is empty, as checkpoint 0.
    pub(crate) fn new(store: P, domains: Domains, pages_max: u32, records_max: usize) -> Self {
        let tree = Tree::new(domains, pages_max);
        let record = Record { root: tree.root(), ..Record::default() };
        Self {
            store,
            tree,
            records: [record].into(),
            records_max,
            spare: Vec::new(),
            dirty: Vec::new(),
            sorted: Vec::new(),
            unsaved: Vec::new(),
            lacking: BTreeSet::new(),
            mended: BTreeSet::new(),
            buffer: Vec::new(),
        }
    }

    /// Records that a page cannot be read.
    pub(crate) fn lack(&mut self, page: u32) {
        self.lacking.insert(page);
    }

    /// Returns the pages that cannot be read.
    pub(crate) fn lacking(&self) -> &BTreeSet<u32> {
        &self.lacking
    }

    /// Returns whether a disk has to rewrite a page, whatever it has of it; once.
    pub(crate) fn take_mended(&mut self, page: u32) -> bool {
        self.mended.remove(&page)
    }

    /// Puts a page back that could not be read. The caller has checked it.
    pub(crate) fn mend(&mut self, page: u32, content: Page, pool: &mut Pool) {
        mark(&mut self.unsaved, page);
        self.replace(page, Some(content), pool);
    }

    /// A disk has the page that this label is about at `place`. Its content can be dropped from memory, unless it
    /// is another one by now.
    pub(crate) fn note_stored(&mut self, label: &PageLabel, place: u32) {
        let now = self.tree.label(0, label.page);
        // The tree tells of the newest checkpoint: what was written since is marked.
        if (now.modified, now.digest) == (label.modified, label.digest) && !is_marked(&self.dirty, label.page)
        {
            self.store.stored(label, place);
        }
    }

    /// Lets the store drop pages that can be read again.
    pub(crate) fn relax(&mut self) {
        self.store.relax();
    }

    /// Returns how many pages are in memory only because a checkpoint has another version than the state now.
    pub(crate) fn pages_of_checkpoints(&self) -> usize {
        self.records.iter().map(|record| record.pages.len()).sum()
    }

    /// Returns a bit for each page that has changed since this was last asked.
    pub(crate) fn take_unsaved(&mut self) -> Vec<u64> {
        core::mem::take(&mut self.unsaved)
    }

    /// Records that a page is to be copied.
    pub(crate) fn mark_unsaved(&mut self, page: u32) {
        mark(&mut self.unsaved, page);
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

    /// Makes everything in `overlay` part of the state, and leaves it empty.
    #[inline]
    pub(crate) fn merge(&mut self, overlay: &mut Overlay, pool: &mut Pool) {
        let Some(record) = self.records.back_mut() else { unreachable!("there is always a checkpoint") };
        overlay.drain(pool, |page, content, pool| {
            let Ok(old) = self.store.replace(page, content) else {
                unreachable!("a batch brings what it writes, and it is kept until the end of the batch")
            };
            // "First write after a cut": the old page moves to the record.
            if mark(&mut self.dirty, page) {
                record.push(page, old);
            } else if let Some(old) = old {
                pool.give(old);
            }
        });
    }

    /// Cuts checkpoint `seq` and returns its root.
    pub(crate) fn cut(&mut self, seq: SeqNum, pool: &mut Pool) -> Digest {
        let Some(record) = self.records.back_mut() else { unreachable!("there is always a checkpoint") };
        self.sorted.clear();
        self.sorted.extend(record.pages.iter().map(|(page, _)| *page));
        self.sorted.sort_unstable();
        let store = &self.store;
        // A page that was just written is here.
        let dirty = self.sorted.iter().map(|&page| (page, store.get(page).unwrap_or(None)));
        self.tree.cut(seq, dirty, |replaced| record.replaced.push(replaced));
        for &page in &self.sorted {
            unmark(&mut self.dirty, page);
            mark(&mut self.unsaved, page);
        }
        let mut next = self.spare.pop().unwrap_or_default();
        next.seq = seq;
        next.root = self.tree.root();
        self.records.push_back(next);
        if self.records.len() > self.records_max {
            self.forget_oldest(pool);
        }
        self.tree.root()
    }

    /// Forgets the checkpoints before `below`, but never the newest.
    pub(crate) fn discard(&mut self, below: SeqNum, pool: &mut Pool) {
        while self.records.len() > 1 && self.records.front().is_some_and(|record| record.seq < below) {
            self.forget_oldest(pool);
        }
    }

    /// Returns the checkpoints held, oldest first.
    pub(crate) fn checkpoints(&self) -> impl Iterator<Item = (SeqNum, Digest)> + '_ {
        self.records.iter().map(|record| (record.seq, record.root))
    }

    /// Returns the newest checkpoint.
    pub(crate) fn newest(&self) -> SeqNum {
        self.records.back().map_or(SeqNum(0), |record| record.seq)
    }

    /// Returns the root of checkpoint `seq`, if it is held.
    pub(crate) fn root_at(&self, seq: SeqNum) -> Option<Digest> {
        Some(self.records.get(self.position(seq)?)?.root)
    }

    /// Returns a page as of checkpoint `seq`; none if it is empty, or cannot be read. The caller has seen that the
    /// checkpoint is held. The page may be brought into `buffer`.
    pub(crate) fn page_at<'a>(&'a self, seq: SeqNum, page: u32, buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        page_since(&self.records, self.position(seq).unwrap_or(0), &self.store, page, buffer)
    }

    /// Returns what the tree of checkpoint `seq` says of a page or node. The caller has seen that it is
    /// held.
    pub(crate) fn label_at(&self, seq: SeqNum, level: u8, index: u32) -> Label {
        for record in self.records.iter().skip(self.position(seq).unwrap_or(0)) {
            if let Some(old) = record.label(level, index) {
                return old;
            }
        }
        self.tree.label(level, index)
    }

    /// Returns the label that a page has with its content as of checkpoint `seq`, which is held.
    pub(crate) fn leaf_at(&mut self, seq: SeqNum, page: u32, modified: SeqNum) -> Label {
        let from = self.position(seq).unwrap_or(0);
        let content = page_since(&self.records, from, &self.store, page, &mut self.buffer);
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
            pages.extend(record.pages.iter().map(|(page, _)| *page));
        }
        pages.sort_unstable();
        pages.dedup();
        pages.retain(|&page| {
            let old = self.records.iter().skip(from).find_map(|record| record.page(page));
            old.map_or_else(|| self.store.next(page) == Some(page), |old| old.is_some())
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
    pub(crate) fn install(
        &mut self,
        base: SeqNum,
        seq: SeqNum,
        whole: bool,
        arrivals: Arrivals,
        pool: &mut Pool,
    ) -> Digest {
        let current = arrivals.iter().filter(|(_, _, arrival)| matches!(arrival, Arrival::Current));
        let current: Vec<u32> = current.map(|(page, _, _)| *page).collect();
        self.revert(base, &current, pool);
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
                    self.replace(page, None, pool);
                    mark(&mut self.unsaved, page);
                }
            }
        }
        self.tree.set_leaves(arrivals.iter().map(|(page, label, _)| (*page, *label)));
        for (page, label, arrival) in arrivals {
            mark(&mut self.unsaved, page);
            match arrival {
                Arrival::New(content) => self.replace(page, content, pool),
                Arrival::Stored(place) => {
                    self.replace(page, None, pool);
                    let Label { modified, digest } = label;
                    self.store.stored(&PageLabel { page, modified, digest }, place);
                }
                Arrival::Current | Arrival::Base => {}
            }
        }
        while self.records.len() > 1 {
            self.forget_oldest(pool);
        }
        let root = self.tree.root();
        if let Some(only) = self.records.back_mut() {
            only.seq = seq;
            only.root = root;
        }
        root
    }

    fn replace(&mut self, page: u32, content: Option<Page>, pool: &mut Pool) {
        if self.lacking.remove(&page) {
            self.mended.insert(page);
        }
        if let Ok(Some(old)) = self.store.replace(page, content) {
            pool.give(old);
        }
    }

    /// Makes a page one that is in memory alone.
    fn take_off_disk(&mut self, page: u32) {
        if self.store.bring(page).is_ok()
            && let Ok(Some(content)) = self.store.replace(page, None)
        {
            let _ = self.store.replace(page, Some(content));
        }
    }

    /// Goes back to checkpoint `base`, whose record becomes the newest, except for the content of the
    /// pages in `current`, which is in order.
    fn revert(&mut self, base: SeqNum, current: &[u32], pool: &mut Pool) {
        loop {
            let Some(mut record) = self.records.pop_back() else {
                unreachable!("there is always a checkpoint")
            };
            for replaced in record.replaced.drain(..) {
                self.tree.set_label(replaced.level, replaced.index, replaced.label);
            }
            for (page, old) in record.pages.drain(..) {
                mark(&mut self.unsaved, page);
                let is_kept = current.binary_search(&page).is_ok();
                let dropped = if is_kept { old } else { self.store.replace(page, old).unwrap_or(None) };
                if let Some(dropped) = dropped {
                    pool.give(dropped);
                }
            }
            record.index.clear();
            if record.seq <= base || self.records.is_empty() {
                self.records.push_back(record);
                break;
            }
            self.spare.push(record);
        }
        self.dirty.fill(0);
    }

    /// Flips a bit of the `choice`-th page, without telling anyone.
    pub(crate) fn damage(&mut self, choice: u64) -> bool {
        let pages = self.current_pages();
        let count = u64::try_from(pages.len()).unwrap_or(0);
        let Some(at) = choice.checked_rem(count) else { return false };
        let page = pages[usize::try_from(at).unwrap_or(0)];
        let _ = self.store.bring(page);
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

    fn forget_oldest(&mut self, pool: &mut Pool) {
        let Some(mut record) = self.records.pop_front() else { return };
        for (_, page) in record.pages.drain(..) {
            if let Some(page) = page {
                pool.give(page);
            }
        }
        record.index.clear();
        record.replaced.clear();
        if self.spare.len() < self.records_max {
            self.spare.push(record);
        }
    }

    fn position(&self, seq: SeqNum) -> Option<usize> {
        self.records.iter().position(|record| record.seq == seq)
    }
}

impl Record {
    #[inline]
    fn push(&mut self, page: u32, old: Option<Page>) {
        let Ok(at) = u32::try_from(self.pages.len()) else {
            unreachable!("a state has less than 2^32 pages")
        };
        self.index.insert(u64::from(page), at);
        self.pages.push((page, old));
    }

    #[expect(clippy::option_option, reason = "outside: whether it is here; inside: whether it was empty")]
    fn page(&self, page: u32) -> Option<Option<&[u8]>> {
        let at = usize::try_from(self.index.get(u64::from(page))?).ok()?;
        Some(self.pages.get(at)?.1.as_deref())
    }

    fn label(&self, level: u8, index: u32) -> Option<Label> {
        let at = self.replaced.binary_search_by_key(&(level, index), |old| (old.level, old.index)).ok()?;
        Some(self.replaced[at].label)
    }
}

/// Returns a page as the first record from `from` on has it, else as it is now.
fn page_since<'a>(
    records: &'a VecDeque<Record>,
    from: usize,
    store: &'a impl PageStore,
    page: u32,
    buffer: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    let old = records.iter().skip(from).find_map(|record| record.page(page));
    old.unwrap_or_else(|| store.look(page, buffer).unwrap_or(None))
}

/// Sets a page's bit. Returns whether it was clear.
#[inline]
fn mark(bits: &mut Vec<u64>, page: u32) -> bool {
    let (word, bit) = place(page);
    if word >= bits.len() {
        bits.resize(word + 1, 0);
    }
    let was = bits[word];
    bits[word] |= 1 << bit;
    was & (1 << bit) == 0
}

fn is_marked(bits: &[u64], page: u32) -> bool {
    let (word, bit) = place(page);
    bits.get(word).is_some_and(|word| word & (1 << bit) != 0)
}

fn unmark(bits: &mut [u64], page: u32) {
    let (word, bit) = place(page);
    if let Some(word) = bits.get_mut(word) {
        *word &= !(1 << bit);
    }
}

const _: () = assert!(BRANCHING == u64::BITS, "a group of pages is a word of bits");

#[cfg(test)]
mod tests;
