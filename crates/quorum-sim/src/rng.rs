//! Chance: xoshiro256++, seeded by splitmix64. Everything random in a run comes from its seed.

/// A generator. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    s: [u64; 4],
}

impl Rng {
    /// Returns the generator of `stream` in the run with this seed: a new draw in one stream leaves
    /// the others as they were.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut x = seed ^ stream.wrapping_mul(0xa076_1d64_78bd_642f);
        Self { s: core::array::from_fn(|_| splitmix(&mut x)) }
    }

    /// Returns the next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.s;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a number below `n`, or 0 if `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        u64::try_from((u128::from(self.bits()) * u128::from(n)) >> 64).unwrap_or(0)
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Returns an index below `len`, or 0 if `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(u64::try_from(len).unwrap_or(0))).unwrap_or(0)
    }

    /// Says yes `percent` times in a hundred.
    #[inline]
    pub fn chance(&mut self, percent: u64) -> bool {
        percent > 0 && self.below(100) < percent
    }

    /// Says yes once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of `items`, or nothing if there is none.
    pub fn pick<T: Clone>(&mut self, items: &[T]) -> Option<T> {
        items.get(self.index(items.len())).cloned()
    }

    /// Puts `items` in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }

    /// Returns a number from 0 to 1, 1 excluded.
    pub fn fraction(&mut self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
        let numerator = (self.bits() >> 11) as f64;
        numerator / 9_007_199_254_740_992.0
    }
}

fn splitmix(x: &mut u64) -> u64 {
    *x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *x;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_bounds() {
        assert_eq!(Rng::new(1, 1).bits(), Rng::new(1, 1).bits());
        assert_ne!(Rng::new(1, 1).bits(), Rng::new(1, 2).bits());
        let mut rng = Rng::new(3, 0);
        let hits = (0..100_000).filter(|_| rng.chance(25)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        for n in 1..100 {
            assert!(rng.below(n) < n && (5..=5 + n).contains(&rng.between(5, 5 + n)));
        }
    }
}
