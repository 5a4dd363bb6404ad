//! One bit for each page of the state.

use alloc::vec::Vec;

use crate::page::place;

/// A set of pages, as bits. Grows to the last page that was ever in it.
#[derive(Debug, Default)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    /// Adds a page. Returns whether it was not there.
    #[inline]
    pub(crate) fn insert(&mut self, page: u32) -> bool {
        let (word, bit) = place(page);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let was = self.0[word];
        self.0[word] |= 1 << bit;
        was & (1 << bit) == 0
    }

    /// Removes a page.
    pub(crate) fn remove(&mut self, page: u32) {
        let (word, bit) = place(page);
        if let Some(word) = self.0.get_mut(word) {
            *word &= !(1 << bit);
        }
    }

    /// Returns whether a page is there.
    pub(crate) fn contains(&self, page: u32) -> bool {
        let (word, bit) = place(page);
        self.0.get(word).is_some_and(|word| word & (1 << bit) != 0)
    }

    /// Removes all pages and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }

    /// Removes the first page and returns it. No page is there in the words before `word`, which grows with the search:
    /// at the end it is [`Self::words`].
    pub(crate) fn pop_first(&mut self, word: &mut usize) -> Option<u32> {
        self.skip(word);
        let bits = self.0.get_mut(*word)?;
        let at = bits.trailing_zeros();
        *bits &= *bits - 1;
        u32::try_from(*word).ok()?.checked_mul(u64::BITS)?.checked_add(at)
    }

    /// Moves `word` to the first word with a page, or to the end.
    pub(crate) fn skip(&self, word: &mut usize) {
        while self.0.get(*word) == Some(&0) {
            *word += 1;
        }
    }

    /// Returns the number of words.
    pub(crate) fn words(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Xorshift;
    use alloc::collections::BTreeSet;

    #[test]
    fn bits_are_a_set_of_pages() {
        let mut random = Xorshift::new(7);
        let (mut bits, mut model) = (Bits::default(), BTreeSet::new());
        for _ in 0..4000 {
            let page = u32::try_from(random.below(700)).unwrap();
            if random.below(3) == 0 {
                bits.remove(page);
                model.remove(&page);
            } else {
                assert_eq!(bits.insert(page), model.insert(page));
            }
            let page = u32::try_from(random.below(900)).unwrap();
            assert_eq!(bits.contains(page), model.contains(&page));
        }
        let mut word = 0;
        while let Some(first) = model.pop_first() {
            assert_eq!(bits.pop_first(&mut word), Some(first));
        }
        bits.skip(&mut word);
        assert_eq!((bits.pop_first(&mut word), word), (None, bits.words()));
        bits.insert(640);
        bits.clear();
        assert!(!bits.contains(640));
    }
}
