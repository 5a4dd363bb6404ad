//! The pages that a batch has written and that are not part of the state yet (TE-2), with a savepoint for the current
//! operation.
//!
//! A page is copied once, on its first write. Committing moves the copy to the state; dropping the batch returns it
//! to the pool. A refused operation inside a batch is undone from a log of the bytes it overwrote.

use alloc::vec::Vec;
use core::ops::Range;

use crate::page::{Page, PageFault, PageStore, Pool};
use crate::state::cell::Cell;
use crate::state::index::{Index, KEPT_MAX};

/// The write set of one batch. Holds each page at most once.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    /// In the order of their first write.
    entries: Vec<OverlayEntry>,
    /// From a page to its place in `entries`.
    index: Index,
    /// The running operation, from 1 in each batch.
    operation: u32,
    /// `entries`, `undo` and `bytes` from here on are of the running operation.
    mark: Mark,
    /// The same of the request that settles, which can consist of several operations. None: requests are not undone one
    /// by one.
    request: Option<Mark>,
    undo: Vec<Undo>,
    /// Bytes that [`Undo::Bytes`] refers to.
    bytes: Vec<u8>,
    /// The cells that were written, while requests settle that ran ahead.
    trace: Option<Trace>,
}

/// A moment to which what was written can go back: the lengths of three lists.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    entries: usize,
    undo: usize,
    bytes: usize,
}

/// The cells that were written since the trace was cleared.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// What is written now is written by a tree, or is a sum.
    is_inside: bool,
    /// Pages, with repetitions.
    pub(crate) pages: Vec<u32>,
    /// Whether a page was written without a tree. A page, for the last one.
    pub(crate) raw: Vec<u32>,
    /// Keys of trees.
    pub(crate) entries: Vec<Cell>,
}

#[derive(Debug)]
struct OverlayEntry {
    page: u32,
    content: Option<Page>,
    /// The last operation that needs no further log for this page: it made the entry, or has saved
    /// all of it.
    saved: u32,
}

/// The old values of entries from earlier operations of the batch that an operation has overwritten.
#[derive(Debug)]
enum Undo {
    Bytes { entry: usize, offset: usize, start: usize, len: usize },
    Content { entry: usize, content: Option<Page> },
}

impl Overlay {
    /// Begins to trace the cells that are written, or ends it.
    pub(crate) fn set_tracing(&mut self, is_on: bool) {
        self.trace = is_on.then(Trace::default);
    }

    /// Forgets the cells that were written so far.
    pub(crate) fn clear_trace(&mut self) {
        if let Some(Trace { is_inside, pages, raw, entries }) = &mut self.trace {
            *is_inside = false;
            pages.clear();
            raw.clear();
            entries.clear();
        }
    }

    /// Takes the cells that were written since the trace was cleared. Of pages, only these count.
    pub(crate) fn take_cells(&mut self, of: &Range<u32>) -> Vec<Cell> {
        let Some(Trace { pages, raw, entries, .. }) = &mut self.trace else { return Vec::new() };
        pages.retain(|page| of.contains(page));
        pages.sort_unstable();
        pages.dedup();
        let raw = raw.iter().any(|page| of.contains(page)).then_some(Cell::Raw);
        pages.drain(..).map(Cell::Page).chain(raw).chain(entries.drain(..)).collect()
    }

    /// Returns the cells that were written since the trace was cleared.
    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// Says whether what follows is written by a tree, or is a sum. Returns what was said before.
    #[inline]
    pub(crate) fn enter_tree(&mut self, is_inside: bool) -> bool {
        self.trace.as_mut().is_some_and(|trace| core::mem::replace(&mut trace.is_inside, is_inside))
    }

    /// Notes that a key of a tree was written.
    #[inline]
    pub(crate) fn note_entry(&mut self, tree: (u32, usize), key: &[u8]) {
        if let Some(trace) = &mut self.trace {
            trace.entries.push(Cell::Entry { tree, key: key.to_vec() });
        }
    }

    /// Notes that a page is written.
    #[inline]
    fn note_page(&mut self, page: u32) {
        if let Some(trace) = &mut self.trace {
            trace.pages.push(page);
            if !trace.is_inside {
                trace.raw.push(page);
            }
        }
    }

    /// Returns whether nothing is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns a page if it was written: none inside if it was cleared.
    #[inline]
    #[expect(
        clippy::option_option,
        reason = "outside: whether it was written; inside: whether it was cleared"
    )]
    pub(crate) fn get(&self, page: u32) -> Option<Option<&[u8]>> {
        let entry = self.entries.get(to_usize(self.index.get(u64::from(page))?))?;
        Some(entry.content.as_deref())
    }

    /// Starts the next operation: what is written before is out of its reach.
    #[inline]
    pub(crate) fn begin(&mut self, pool: &mut Pool) {
        self.operation += 1;
        if self.request.is_none() {
            self.forget_undo(pool);
        }
        self.mark = self.now();
    }

    /// Starts the next request, with its first operation. Until it ends, it can be undone as a whole.
    pub(crate) fn begin_request(&mut self, pool: &mut Pool) {
        self.end_request();
        self.begin(pool);
        self.request = Some(self.mark);
    }

    /// Undoes the request, whatever operations it has begun.
    pub(crate) fn undo_request(&mut self, pool: &mut Pool) {
        if let Some(mark) = self.request {
            self.go_back(mark, pool);
            self.mark = mark;
        }
        self.end_request();
    }

    /// Ends the request: what it has written stays.
    pub(crate) fn end_request(&mut self) {
        self.request = None;
    }

    /// Undoes the running operation.
    pub(crate) fn roll_back(&mut self, pool: &mut Pool) {
        self.go_back(self.mark, pool);
        // Of what is written now, the log knows nothing.
        self.operation += u32::from(self.request.is_some());
    }

    fn now(&self) -> Mark {
        Mark { entries: self.entries.len(), undo: self.undo.len(), bytes: self.bytes.len() }
    }

    #[inline]
    fn forget_undo(&mut self, pool: &mut Pool) {
        self.bytes.clear();
        for undo in self.undo.drain(..) {
            if let Undo::Content { content: Some(page), .. } = undo {
                pool.give(page);
            }
        }
    }

    fn go_back(&mut self, mark: Mark, pool: &mut Pool) {
        while self.undo.len() > mark.undo
            && let Some(undo) = self.undo.pop()
        {
            match undo {
                Undo::Bytes { entry, offset, start, len } => {
                    if let Some(content) = &mut self.entries[entry].content {
                        content[offset..offset + len].copy_from_slice(&self.bytes[start..start + len]);
                    }
                }
                Undo::Content { entry, content } => {
                    if let Some(page) = core::mem::replace(&mut self.entries[entry].content, content) {
                        pool.give(page);
                    }
                }
            }
        }
        self.bytes.truncate(mark.bytes);
        for entry in self.entries.drain(mark.entries..) {
            self.index.remove(u64::from(entry.page));
            if let Some(page) = entry.content {
                pool.give(page);
            }
        }
    }

    /// Empties the overlay; each page goes to `take`.
    #[inline]
    pub(crate) fn drain(&mut self, pool: &mut Pool, mut take: impl FnMut(u32, Option<Page>, &mut Pool)) {
        self.end_request();
        self.begin(pool);
        for entry in self.entries.drain(..) {
            take(entry.page, entry.content, pool);
        }
        self.entries.shrink_to(KEPT_MAX);
        self.index.clear();
        self.operation = 0;
        self.mark = Mark::default();
    }

    /// Drops everything.
    pub(crate) fn discard(&mut self, pool: &mut Pool) {
        self.drain(pool, |_, content, pool| {
            if let Some(page) = content {
                pool.give(page);
            }
        });
    }

    /// Overwrites a part of a page. The caller has checked that it is within the page.
    #[inline]
    pub(crate) fn write(
        &mut self,
        base: &dyn PageStore,
        pool: &mut Pool,
        page: u32,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), PageFault> {
        let at = self.open(base, pool, page)?;
        let entry = &mut self.entries[at];
        if entry.content.is_none() {
            self.save(at, pool);
        }
        let entry = &mut self.entries[at];
        let content = entry.content.get_or_insert_with(|| pool.padded(&[]));
        if entry.saved != self.operation {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&content[offset..offset + bytes.len()]);
            self.undo.push(Undo::Bytes { entry: at, offset, start, len: bytes.len() });
        }
        content[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Returns a page to be changed in any way.
    #[inline]
    pub(crate) fn page_mut(
        &mut self,
        base: &dyn PageStore,
        pool: &mut Pool,
        page: u32,
    ) -> Result<&mut [u8], PageFault> {
        let at = self.open(base, pool, page)?;
        self.save(at, pool);
        Ok(self.entries[at].content.get_or_insert_with(|| pool.padded(&[])))
    }

    /// Replaces a whole page; none clears it. What it was is not read: most of what is freed is not in memory.
    pub(crate) fn put(&mut self, pool: &mut Pool, page: u32, content: Option<&[u8]>) {
        self.note_page(page);
        let content = content.map(|bytes| pool.padded(bytes));
        let Some(at) = self.index.get(u64::from(page)) else {
            self.push(page, content);
            return;
        };
        let at = to_usize(at);
        let entry = &mut self.entries[at];
        let old = core::mem::replace(&mut entry.content, content);
        if entry.saved == self.operation {
            if let Some(old) = old {
                pool.give(old);
            }
        } else {
            entry.saved = self.operation;
            self.undo.push(Undo::Content { entry: at, content: old });
        }
    }

    /// Returns the entry of a page, copied from `base` if this is its first write.
    #[inline]
    fn open(&mut self, base: &dyn PageStore, pool: &mut Pool, page: u32) -> Result<usize, PageFault> {
        self.note_page(page);
        if let Some(at) = self.index.get(u64::from(page)) {
            return Ok(to_usize(at));
        }
        let content = match base.get(page)? {
            Some(content) => pool.copy(content),
            None => pool.padded(&[]),
        };
        Ok(self.push(page, Some(content)))
    }

    fn push(&mut self, page: u32, content: Option<Page>) -> usize {
        let at = self.entries.len();
        let Ok(value) = u32::try_from(at) else { unreachable!("a state has less than 2^32 pages") };
        self.index.insert(u64::from(page), value);
        self.entries.push(OverlayEntry { page, content, saved: self.operation });
        at
    }

    /// Makes sure that all of an entry can be undone.
    #[inline]
    fn save(&mut self, at: usize, pool: &mut Pool) {
        let entry = &mut self.entries[at];
        if entry.saved != self.operation {
            entry.saved = self.operation;
            let content = entry.content.as_deref().map(|content| pool.copy(content));
            self.undo.push(Undo::Content { entry: at, content });
        }
    }
}

#[inline]
fn to_usize(at: u32) -> usize {
    let Ok(at) = usize::try_from(at) else { unreachable!("an address has 32 bits or more") };
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Memory;
    use crate::testing::Xorshift;
    use alloc::collections::BTreeMap;

    const BYTES: usize = 32;
    type Model = BTreeMap<u32, [u8; BYTES]>;

    fn read(overlay: &Overlay, base: &Memory, page: u32) -> [u8; BYTES] {
        let content = overlay.get(page).unwrap_or_else(|| base.get(page).unwrap());
        content.map_or([0; BYTES], |content| content.try_into().unwrap())
    }

    fn write_at_random(
        random: &mut Xorshift,
        overlay: &mut Overlay,
        base: &Memory,
        pool: &mut Pool,
        model: &mut Model,
    ) {
        let page = u32::try_from(random.below(6)).unwrap();
        let byte = u8::try_from(random.below(255)).unwrap() + 1;
        let offset = usize::try_from(random.below(28)).unwrap();
        let content = model.entry(page).or_insert([0; BYTES]);
        match random.below(4) {
            0 => {
                overlay.write(base, pool, page, offset, &[byte; 4]).unwrap();
                content[offset..offset + 4].fill(byte);
            }
            1 => {
                overlay.page_mut(base, pool, page).unwrap()[offset] = byte;
                content[offset] = byte;
            }
            2 => {
                overlay.put(pool, page, Some(&[byte; 5]));
                *content = [0; BYTES];
                content[..5].fill(byte);
            }
            _ => {
                overlay.put(pool, page, None);
                *content = [0; BYTES];
            }
        }
    }

    /// A refused operation leaves nothing behind, whatever it and those before it wrote and how.
    #[test]
    fn rolling_back_undoes_one_operation_and_no_more() {
        for seed in 1..300 {
            let mut random = Xorshift::new(seed);
            let (mut overlay, mut base) = (Overlay::default(), Memory::new());
            let mut pool = Pool::new(BYTES, 100);
            base.replace(1, Some(pool.padded(&[7; BYTES]))).unwrap();
            let mut model: Model = [(1, [7; BYTES])].into();
            for _ in 0..random.below(12) {
                overlay.begin(&mut pool);
                let before = model.clone();
                for _ in 0..random.below(8) {
                    write_at_random(&mut random, &mut overlay, &base, &mut pool, &mut model);
                }
                if random.below(2) == 0 {
                    overlay.roll_back(&mut pool);
                    model = before;
                }
                for page in 0..6 {
                    let expected = model.get(&page).copied().unwrap_or([0; BYTES]);
                    assert_eq!(read(&overlay, &base, page), expected, "seed {seed} page {page}");
                }
            }
            overlay.drain(&mut pool, |page, content, _| {
                base.replace(page, content).unwrap();
            });
            for page in 0..6 {
                let expected = model.get(&page).copied().unwrap_or([0; BYTES]);
                assert_eq!(read(&overlay, &base, page), expected, "seed {seed} merged page {page}");
            }
        }
    }
    /// A request is undone as a whole, whatever operations it has begun, rolled back or let stand; what earlier requests
    /// have written stays.
    #[test]
    fn undoing_a_request_undoes_all_of_its_operations_and_no_more() {
        for seed in 1..400 {
            let mut random = Xorshift::new(seed);
            let (mut overlay, mut base) = (Overlay::default(), Memory::new());
            let mut pool = Pool::new(BYTES, 100);
            base.replace(1, Some(pool.padded(&[7; BYTES]))).unwrap();
            let mut model: Model = [(1, [7; BYTES])].into();
            for _ in 0..=random.below(6) {
                overlay.begin_request(&mut pool);
                let before_request = model.clone();
                let mut before = model.clone();
                for _ in 0..random.below(12) {
                    match random.below(5) {
                        0 => {
                            overlay.begin(&mut pool);
                            before = model.clone();
                        }
                        1 => {
                            overlay.roll_back(&mut pool);
                            model = before.clone();
                            // What is written now is a further part of the operation.
                            before = model.clone();
                        }
                        _ => write_at_random(&mut random, &mut overlay, &base, &mut pool, &mut model),
                    }
                }
                if random.below(2) == 0 {
                    overlay.undo_request(&mut pool);
                    model = before_request;
                }
                for page in 0..6 {
                    let expected = model.get(&page).copied().unwrap_or([0; BYTES]);
                    assert_eq!(read(&overlay, &base, page), expected, "seed {seed} page {page}");
                }
            }
        }
    }
}
