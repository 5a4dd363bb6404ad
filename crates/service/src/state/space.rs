//! The allocator of a service's pages: one bit a page, in pages of the state.
//!
//! The lowest free page is taken first, so that a state stays small and all replicas choose the same page. A freed
//! page is cleared: it takes no memory and is not part of any digest.

use crate::state::view::View;
use crate::stop::Stop;

/// Why a structure over pages could not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// No page is free, or none in runs long enough. Nothing has changed.
    Full,
    /// The key is longer than pages of this size admit. Nothing has changed.
    KeyTooLong,
    /// The execution has to stop.
    Stop(Stop),
}

impl From<Stop> for StoreError {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// Pages on end: the first and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// The first page.
    pub first: u32,
    /// How many, at least 1.
    pub count: u32,
}

/// An allocator: where its tables are. The tables are the state's; all zeros is one with every page
/// free.
///
/// ```text
/// header (8 bytes, anywhere):  used 4 | hint 4      no page below `hint` is free
/// bitmap (from a page on):     one bit for each page after the bitmap
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Space {
    header: (u32, usize),
    bitmap_at: u32,
    /// The first page given out, and how many there are.
    first: u32,
    count: u32,
}

/// How far a search for a long run goes beyond the first free page, in pages.
const SEARCH_PAGES: u32 = 1 << 18;

impl Space {
    /// Bytes of the header.
    pub const HEADER_BYTES: usize = 8;

    /// Returns the allocator whose header is at `header` (page and offset) and whose bitmap starts at
    /// page `bitmap_at`. It gives out all pages behind its bitmap.
    pub fn new(view: &View<'_>, header: (u32, usize), bitmap_at: u32) -> Self {
        let bits_a_page = u64::try_from(view.page_bytes() * 8).unwrap_or(u64::MAX);
        let rest = u64::from(view.pages().saturating_sub(bitmap_at));
        let bitmap = u32::try_from(rest.div_ceil(bits_a_page + 1)).unwrap_or(u32::MAX);
        let first = bitmap_at.saturating_add(bitmap);
        Self { header, bitmap_at, first, count: view.pages().saturating_sub(first) }
    }

    /// Returns how many pages are in use.
    pub fn used(&self, view: &View<'_>) -> Result<u32, Stop> {
        Ok(self.header(view)?.0)
    }

    /// Returns where the header is, and where the bitmap begins.
    pub(crate) fn where_it_is(&self) -> ((u32, usize), u32) {
        (self.header, self.bitmap_at)
    }

    /// Returns how many pages are free.
    pub fn free_pages(&self, view: &View<'_>) -> Result<u32, Stop> {
        Ok(self.count.saturating_sub(self.used(view)?))
    }

    /// Returns whether a page is given out. One that is not the allocator's counts as given out.
    pub fn is_used(&self, view: &View<'_>, page: u32) -> Result<bool, Stop> {
        let Some(bit) = page.checked_sub(self.first).filter(|bit| *bit < self.count) else { return Ok(true) };
        Ok(self.word(view, bit)? >> (bit % 64) & 1 == 1)
    }

    /// Returns the pages that it gives out, used or not: the first and how many.
    pub fn pages(&self) -> PageRun {
        PageRun { first: self.first, count: self.count }
    }

    /// Takes the first free page. It reads as zeros.
    pub fn allocate(&self, view: &mut View<'_>) -> Result<u32, StoreError> {
        Ok(self.allocate_run(view, 1, 1)?.first)
    }

    /// Takes the first run of `want` pages, at least 1, or the longest near by if none is as long. If that is shorter than
    /// `least`, it is near the first one that is not, wherever this is.
    pub fn allocate_run(&self, view: &mut View<'_>, want: u32, least: u32) -> Result<PageRun, StoreError> {
        let (used, hint) = self.header(view)?;
        let mut found = self.search(view, hint, want)?;
        if found.is_some_and(|(_, count)| count < least)
            && let Some(start) = self.find_run(view, hint, least)?
        {
            found = self.search(view, start, want)?;
        }
        let Some((start, count)) = found else { return Err(StoreError::Full) };
        self.set(view, start, count, true)?;
        let hint = if want == 1 || start == hint { start + count } else { hint };
        self.set_header(view, used.saturating_add(count), hint)?;
        Ok(PageRun { first: self.first + start, count })
    }

    /// Gives pages back and clears them.
    pub fn free(&self, view: &mut View<'_>, run: PageRun) -> Result<(), Stop> {
        let start = run.first.checked_sub(self.first).ok_or(Stop::Corrupt)?;
        if start.checked_add(run.count).is_none_or(|end| end > self.count) {
            return Err(Stop::Corrupt);
        }
        self.set(view, start, run.count, false)?;
        let (used, hint) = self.header(view)?;
        self.set_header(view, used.checked_sub(run.count).ok_or(Stop::Corrupt)?, hint.min(start))?;
        for page in run.first..run.first + run.count {
            view.clear(page)?;
        }
        Ok(())
    }

    /// Gives all pages back and clears them.
    pub fn clear(&self, view: &mut View<'_>) -> Result<(), Stop> {
        let mut left = self.used(view)?;
        let mut at = 0;
        while left > 0 && at < self.count {
            let mut word = self.word(view, at)?;
            if word != 0 {
                left = left.saturating_sub(word.count_ones());
                let (page, byte) = self.place(view, at);
                view.write(page, byte, &[0; 8])?;
            }
            while word != 0 {
                let bit = at + word.trailing_zeros();
                if bit >= self.count {
                    return Err(Stop::Corrupt);
                }
                view.clear(self.first + bit)?;
                word &= word - 1;
            }
            at += 64;
        }
        self.set_header(view, 0, 0)
    }

    /// Returns the first run of at least `want` free bits from `from` on, cut to `want`; or the longest
    /// seen. A word without a longer run than the best one takes a few steps (L162).
    fn search(&self, view: &View<'_>, from: u32, want: u32) -> Result<Option<(u32, u32)>, Stop> {
        let (mut best, mut start, mut at) = ((0, 0), from, from);
        let mut limit = self.count;
        let mut page = (u32::MAX, &[][..]);
        while at < limit {
            let (number, byte) = self.place(view, at - at % 64);
            if page.0 != number {
                page = (number, view.page(number)?);
            }
            let word = word_at(page.1, byte)?;
            if best.1 > 0 && at % 64 == 0 && limit - at >= 64 {
                let goes_on = at - start + word.trailing_zeros();
                if goes_on <= best.1 && begins_of_runs(!word, best.1 + 1) == 0 {
                    if word != 0 {
                        start = at + 64 - word.leading_zeros();
                    }
                    at += 64;
                    continue;
                }
            }
            let word = word >> (at % 64);
            let left = (64 - at % 64).min(self.count - at);
            // A stretch of free bits, then one of used ones.
            let free = word.trailing_zeros().min(left);
            if free > 0 {
                if limit == self.count {
                    limit = at.saturating_add(SEARCH_PAGES).min(self.count);
                }
                at += free;
                if at - start > best.1 {
                    best = (start, (at - start).min(want));
                }
                if best.1 == want {
                    return Ok(Some(best));
                }
            }
            if free < left {
                let used = (word >> free).trailing_ones().min(left - free);
                at += used;
                start = at;
            }
        }
        Ok((best.1 > 0).then_some(best))
    }

    /// Returns where the first run of at least `least` free bits begins. No bit below `from` is free. All of the bitmap has
    /// 2^18 words if the state has 64 GiB, and a word takes a few steps.
    fn find_run(&self, view: &View<'_>, from: u32, least: u32) -> Result<Option<u32>, Stop> {
        let (first, _) = self.place(view, from);
        let bits_a_page = u32::try_from(view.page_bytes() * 8).unwrap_or(u32::MAX);
        let mut at = from - from % bits_a_page;
        let mut start = at;
        for page in first..self.first {
            let (words, _) = view.page(page)?.as_chunks();
            for word in words {
                let Some(left) = self.count.checked_sub(at) else { return Ok(None) };
                let beyond = if left < 64 { u64::MAX << left } else { 0 };
                let used = u64::from_le_bytes(*word) | beyond;
                if at - start + used.trailing_zeros() >= least {
                    return Ok(Some(start));
                }
                if used != 0 {
                    let begins = begins_of_runs(!used, least);
                    if begins != 0 {
                        return Ok(Some(at + begins.trailing_zeros()));
                    }
                    start = at + 64 - used.leading_zeros();
                }
                at += 64;
            }
        }
        Ok(None)
    }

    /// Returns the word of the bitmap that has this bit. Bits beyond the last page are of no account.
    fn word(&self, view: &View<'_>, bit: u32) -> Result<u64, Stop> {
        let (page, byte) = self.place(view, bit - bit % 64);
        word_at(view.page(page)?, byte)
    }

    /// Sets bits, each of which must be the opposite before.
    fn set(&self, view: &mut View<'_>, start: u32, count: u32, to: bool) -> Result<(), Stop> {
        let mut at = start;
        while at < start + count {
            let bits = (64 - at % 64).min(start + count - at);
            let mask = (u64::MAX >> (64 - bits)) << (at % 64);
            let word = self.word(view, at)?;
            if word & mask != if to { 0 } else { mask } {
                return Err(Stop::Corrupt);
            }
            let (page, byte) = self.place(view, at - at % 64);
            view.write(page, byte, &(word ^ mask).to_le_bytes())?;
            at += bits;
        }
        Ok(())
    }

    fn place(&self, view: &View<'_>, bit: u32) -> (u32, usize) {
        let bits_a_page = u32::try_from(view.page_bytes() * 8).unwrap_or(u32::MAX);
        let byte = usize::try_from(bit % bits_a_page / 8).unwrap_or(0);
        (self.bitmap_at + bit / bits_a_page, byte)
    }

    fn header(&self, view: &View<'_>) -> Result<(u32, u32), Stop> {
        let (page, at) = self.header;
        pair(view.page(page)?, at)
    }

    fn set_header(&self, view: &mut View<'_>, used: u32, hint: u32) -> Result<(), Stop> {
        view.write(self.header.0, self.header.1, &pair_bytes(used, hint))
    }
}

fn word_at(page: &[u8], byte: usize) -> Result<u64, Stop> {
    let bytes = page.get(byte..byte + 8).and_then(<[u8]>::first_chunk);
    Ok(u64::from_le_bytes(*bytes.ok_or(Stop::Corrupt)?))
}

/// Returns the bits at which runs of at least `want` ones begin.
fn begins_of_runs(ones: u64, want: u32) -> u64 {
    let (mut begins, mut len) = (ones, 1);
    while begins != 0 && len < want {
        let more = len.min(want - len);
        begins &= begins.checked_shr(more).unwrap_or(0);
        len += more;
    }
    begins
}

/// Returns the two numbers at `at`.
#[inline]
pub(crate) fn pair(bytes: &[u8], at: usize) -> Result<(u32, u32), Stop> {
    let (first, rest) = bytes.get(at..).and_then(<[u8]>::split_first_chunk).ok_or(Stop::Corrupt)?;
    let second = rest.first_chunk().ok_or(Stop::Corrupt)?;
    Ok((u32::from_le_bytes(*first), u32::from_le_bytes(*second)))
}

/// Returns the bytes of two numbers.
pub(crate) fn pair_bytes(first: u32, second: u32) -> [u8; 8] {
    (u64::from(first) | u64::from(second) << 32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Xorshift};
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    /// Against a set of pages: no page twice, none lost, the lowest first.
    #[test]
    fn pages_are_given_out_once() {
        for seed in 1..30 {
            let mut random = Xorshift::new(seed);
            let mut bench = Bench::new(300);
            bench.run(|view| {
                let space = Space::new(view, (0, 16), 1);
                let (mut taken, mut runs) = (BTreeSet::new(), Vec::new());
                assert_eq!((space.first, space.count), (2, 298));
                for _ in 0..200 {
                    if random.below(3) > 0 {
                        let want = u32::try_from(random.below(20) * random.below(6) + 1).unwrap();
                        match space.allocate_run(view, want, 1) {
                            Ok(run) => {
                                let lowest = (2..300).find(|page| !taken.contains(page)).unwrap();
                                assert!(want > 1 || run.first == lowest);
                                assert!((1..=want).contains(&run.count));
                                for page in run.first..run.first + run.count {
                                    assert!((2..300).contains(&page) && taken.insert(page), "page {page}");
                                }
                                view.put(run.first, &[1]).unwrap();
                                runs.push(run);
                            }
                            Err(error) => assert_eq!((error, taken.len()), (StoreError::Full, 298)),
                        }
                    } else if !runs.is_empty() {
                        let run = runs.swap_remove(usize::try_from(random.next() % 64).unwrap() % runs.len());
                        space.free(view, run).unwrap();
                        assert_eq!(space.free(view, run), Err(Stop::Corrupt), "a page is freed once");
                        assert!(view.page(run.first).unwrap().iter().all(|byte| *byte == 0));
                        (run.first..run.first + run.count).for_each(|page| assert!(taken.remove(&page)));
                    }
                    assert_eq!(space.used(view), Ok(u32::try_from(taken.len()).unwrap()));
                    let page = u32::try_from(random.below(300)).unwrap();
                    assert_eq!(space.is_used(view, page), Ok(page < 2 || taken.contains(&page)));
                }
            });
        }
    }

    #[test]
    fn clearing_leaves_what_a_new_space_has() {
        let mut bench = Bench::new(300);
        bench.run(|view| {
            let space = Space::new(view, (0, 16), 1);
            for want in [1, 70, 100, 3] {
                let run = space.allocate_run(view, want, 1).unwrap();
                view.put(run.first + run.count - 1, &[1]).unwrap();
            }
            space.free(view, PageRun { first: 5, count: 66 }).unwrap();
            space.clear(view).unwrap();
            for page in 0..300 {
                assert!(view.page(page).unwrap().iter().all(|byte| *byte == 0), "page {page}");
            }
            assert_eq!(space.allocate_run(view, 298, 1), Ok(PageRun { first: 2, count: 298 }));
        });
    }

    #[test]
    fn a_long_run_is_preferred_to_a_hole() {
        let mut bench = Bench::new(300);
        bench.run(|view| {
            let space = Space::new(view, (0, 0), 1);
            let all = space.allocate_run(view, 200, 1).unwrap();
            assert_eq!(all, PageRun { first: 2, count: 200 });
            space.free(view, PageRun { first: 10, count: 3 }).unwrap();
            assert_eq!(space.allocate_run(view, 8, 1), Ok(PageRun { first: 202, count: 8 }));
            assert_eq!(space.allocate_run(view, 2, 1), Ok(PageRun { first: 10, count: 2 }));
            assert_eq!(space.allocate(view), Ok(12));
            assert_eq!(space.allocate(view), Ok(210));
            assert_eq!(space.allocate_run(view, 500, 1), Ok(PageRun { first: 211, count: 89 }));
            assert_eq!(space.allocate(view), Err(StoreError::Full));
        });
    }

    /// L142: against bits looked at one by one.
    #[test]
    fn l142_the_first_run_that_is_long_enough_is_found() {
        for seed in 1..200 {
            let mut random = Xorshift::new(seed);
            let count = u32::try_from(4000 + random.below(500)).unwrap();
            let bitmap = 1 + u32::from(count > 4096);
            Bench::new(1 + bitmap + count).run(|view| {
                let space = Space::new(view, (0, 0), 1);
                assert_eq!(space.count, count);
                let mut bits = Vec::new();
                while bits.len() < usize::try_from(count).unwrap() {
                    let most = if random.below(4) > 0 { 4 } else { 150 };
                    let is_used = random.below(2) == 0;
                    bits.extend((0..=random.below(most)).map(|_| is_used));
                }
                bits.truncate(usize::try_from(count).unwrap());
                for (bit, is_used) in (0..).zip(&bits) {
                    if *is_used {
                        space.set(view, bit, 1, true).unwrap();
                    }
                }
                let from = bits.iter().position(|is_used| !is_used).unwrap();
                for least in [1, 2, 3, 5, 31, 32, 33, 63, 64, 65, 80, 200] {
                    let expected = bits.windows(least).position(|run| run.iter().all(|is_used| !is_used));
                    let [from, least] = [from, least].map(|number| u32::try_from(number).unwrap());
                    let found = space.find_run(view, from, least).unwrap();
                    assert_eq!(found, expected.map(|start| u32::try_from(start).unwrap()), "{seed} {least}");
                }
            });
        }
    }

    /// L162: the words that are passed over have no longer run than the best one.
    #[test]
    fn l162_the_same_run_is_found_as_bit_by_bit() {
        for seed in 1..200 {
            let mut random = Xorshift::new(seed);
            let mut below = |n: u64| u32::try_from(random.below(n)).unwrap();
            let mut bench = Bench::new(2000);
            bench.run(|view| {
                let space = Space::new(view, (0, 16), 1);
                let mut is_free = Vec::new();
                let (few, many) = (1 + u64::from(below(8)), 1 + u64::from(below(130)));
                while is_free.len() < space.count.try_into().unwrap() {
                    let most = if below(20) == 0 { many } else { few };
                    is_free.extend((0..=below(most)).map(|_| true));
                    is_free.extend((0..=below(few)).map(|_| false));
                }
                is_free.truncate(space.count.try_into().unwrap());
                for (bit, _) in is_free.iter().enumerate().filter(|(_, free)| !**free) {
                    space.set(view, bit.try_into().unwrap(), 1, true).unwrap();
                }
                for want in [1, 2, 3, 5, 9, 20, 63, 64, 65, 100, 200] {
                    let from = is_free.iter().position(|free| *free).unwrap_or(0);
                    let (mut best, mut run) = ((0, 0), (from, 0));
                    for (bit, free) in is_free.iter().enumerate().skip(from) {
                        run = if *free { (run.0, run.1 + 1) } else { (bit + 1, 0) };
                        best = if best.1 < want && run.1 > best.1 { run } else { best };
                    }
                    let best = (u32::try_from(best.0).unwrap(), best.1);
                    let found = space.search(view, from.try_into().unwrap(), want).unwrap();
                    assert_eq!(found, Some(best).filter(|best| best.1 > 0), "seed {seed}, {want}");
                }
            });
        }
    }
}
