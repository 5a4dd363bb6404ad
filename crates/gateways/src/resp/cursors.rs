//! The cursors of SCAN. Redis's are numbers, and the store's are keys: the gateway keeps which key a number stands for.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

/// Maximum number of cursors. The oldest ones are forgotten.
const CURSORS_MAX: usize = 4096;

/// Cursors that clients may continue with.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    /// Random, so that nobody chooses keys whose numbers are equal.
    hasher: RandomState,
    keys: BTreeMap<u64, Vec<u8>>,
    /// The numbers in the order in which they were last given out.
    order: VecDeque<u64>,
}

impl Cursors {
    /// Returns the number that stands for a key. The same key has the same number, as long as it is kept.
    pub(super) fn keep(&mut self, key: &[u8]) -> u64 {
        let number = (self.hasher.hash_one(key) >> 1).max(1);
        if self.keys.insert(number, key.to_vec()).is_some() {
            self.order.retain(|other| *other != number);
        }
        self.order.push_back(number);
        if self.order.len() > CURSORS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
        number
    }

    /// Returns the key that a number stands for: of 0 the first one.
    pub(super) fn key(&self, number: u64) -> Option<&[u8]> {
        if number == 0 { Some(&[]) } else { self.keys.get(&number).map(Vec::as_slice) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_cursors_are_forgotten() {
        let mut cursors = Cursors::default();
        let first = cursors.keep(b"first");
        assert_eq!(cursors.keep(b"first"), first);
        for key in 1..u32::try_from(CURSORS_MAX).unwrap() {
            cursors.keep(&key.to_le_bytes());
        }
        assert_eq!(cursors.key(first), Some(&b"first"[..]));
        cursors.keep(b"one more");
        assert_eq!(cursors.key(first), None);
        assert_eq!(cursors.key(0), Some(&b""[..]));
        assert_eq!(cursors.keys.len(), CURSORS_MAX);
    }

    /// L145: a cursor that is given again is kept as long as a new one.
    #[test]
    fn l145_a_cursor_given_again_is_not_an_old_one() {
        let mut cursors = Cursors::default();
        let first = cursors.keep(b"first");
        for key in 1..u32::try_from(CURSORS_MAX).unwrap() {
            cursors.keep(&key.to_le_bytes());
        }
        cursors.keep(b"first");
        cursors.keep(b"one more");
        assert_eq!(cursors.key(first), Some(&b"first"[..]));
        assert_eq!((cursors.keys.len(), cursors.order.len()), (CURSORS_MAX, CURSORS_MAX));
    }
}
