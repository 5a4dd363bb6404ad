//! A small map from numbers to numbers, for lookups that every operation makes.
//!
//! Open addressing with linear probing and a fixed hash: the same operations give the same layout at every replica
//! and in every run. Clearing takes one increment, independent of the size.

use alloc::vec::Vec;

/// A map from `u64` to `u32`. Grows to twice its entries or more; the caller bounds them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    cells: Vec<Cell>,
    len: usize,
    /// Cells of another generation are empty.
    generation: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    key: u64,
    value: u32,
    generation: u32,
}

/// Maximum number of entries that a table keeps memory for when it is emptied: few batches write more pages.
pub(crate) const KEPT_MAX: usize = 1 << 16;

/// Cells of the smallest map that holds anything.
const CELLS_MIN: usize = 16;

impl Index {
    /// Returns the number of entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Removes every entry and keeps the memory, unless that is much.
    pub(crate) fn clear(&mut self) {
        if self.cells.len() > 4 * KEPT_MAX {
            *self = Self::default();
            return;
        }
        self.len = 0;
        if self.generation == u32::MAX {
            self.cells.fill(Cell::default());
            self.generation = 0;
        }
        self.generation += 1;
    }

    /// Returns the value of `key`.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        self.cells
            .get(self.find(key))
            .filter(|cell| cell.generation == self.generation)
            .map(|cell| cell.value)
    }

    /// Sets the value of `key`.
    #[inline]
    pub(crate) fn insert(&mut self, key: u64, value: u32) {
        if (self.len + 1) * 2 > self.cells.len() {
            self.grow();
        }
        let at = self.find(key);
        let generation = self.generation;
        let Some(cell) = self.cells.get_mut(at) else { unreachable!("a map that is half empty has a place") };
        self.len += usize::from(cell.generation != generation);
        *cell = Cell { key, value, generation };
    }

    /// Removes `key`, if it is there.
    pub(crate) fn remove(&mut self, key: u64) {
        if self.len == 0 {
            return;
        }
        let mask = self.cells.len() - 1;
        let mut hole = self.find(key);
        if self.cells[hole].generation != self.generation {
            return;
        }
        self.len -= 1;
        let mut at = hole;
        // Entries behind the hole move up, unless they are where they belong or behind it.
        loop {
            at = (at + 1) & mask;
            let cell = self.cells[at];
            if cell.generation != self.generation {
                break;
            }
            let from_home = at.wrapping_sub(self.home(cell.key)) & mask;
            if from_home >= (at.wrapping_sub(hole) & mask) {
                self.cells[hole] = cell;
                hole = at;
            }
        }
        self.cells[hole].generation = self.generation - 1;
    }

    /// Returns the cell of `key`, or the empty one where it would go.
    #[inline]
    fn find(&self, key: u64) -> usize {
        let mask = self.cells.len() - 1;
        let mut at = self.home(key);
        while let Some(cell) = self.cells.get(at) {
            if cell.generation != self.generation || cell.key == key {
                break;
            }
            at = (at + 1) & mask;
        }
        at
    }

    /// Returns the first cell to look at. Multiplicative hashing spreads runs of numbers evenly.
    #[inline]
    fn home(&self, key: u64) -> usize {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bits = self.cells.len().trailing_zeros();
        usize::try_from(hash.checked_shr(64 - bits).unwrap_or(0)).unwrap_or(0)
    }

    #[cold]
    fn grow(&mut self) {
        let len = (self.cells.len() * 2).max(CELLS_MIN);
        let old = core::mem::replace(&mut self.cells, alloc::vec![Cell::default(); len]);
        let generation = core::mem::replace(&mut self.generation, 1);
        self.len = 0;
        for cell in old.into_iter().filter(|cell| cell.generation == generation && generation != 0) {
            self.insert(cell.key, cell.value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Xorshift;
    use std::collections::BTreeMap;

    /// The removal is the subtle part: an entry must stay reachable from its home.
    #[test]
    fn it_behaves_like_a_map() {
        for seed in 1..40 {
            let mut random = Xorshift::new(seed);
            let (mut index, mut model) = (Index::default(), BTreeMap::new());
            for step in 0..2000_u32 {
                let key = random.below(60) << (random.below(4) * 16);
                match random.below(8) {
                    0..=3 => {
                        index.insert(key, step);
                        model.insert(key, step);
                    }
                    4..=6 => {
                        index.remove(key);
                        model.remove(&key);
                    }
                    _ if random.below(50) == 0 => {
                        index.clear();
                        model.clear();
                    }
                    _ => {}
                }
                assert_eq!(index.get(key), model.get(&key).copied());
                assert_eq!(index.len(), model.len());
            }
            for (key, value) in model {
                assert_eq!(index.get(key), Some(value), "seed {seed}");
            }
        }
    }

    #[test]
    fn clearing_survives_the_last_generation() {
        let mut index = Index::default();
        index.insert(1, 1);
        index.generation = u32::MAX;
        index.clear();
        assert_eq!(index.get(1), None);
        index.insert(2, 2);
        assert_eq!((index.get(1), index.get(2)), (None, Some(2)));
    }
}
