//! Randomness: a small generator for each concern, all from one seed (style §9).
//!
//! A new draw in one concern does not change the others, so a fault added to a run does not change its workload.

/// The purpose of a generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// The swarm's options.
    Options,
    /// Delay, loss, duplication, damage of frames.
    Network,
    /// Latency and damage of disks.
    Disk,
    /// Which fault comes when.
    Faults,
    /// The clients' requests.
    Workload,
    /// The liars' choices.
    Adversary,
    /// Keys, key shares and nonces.
    Keys,
    /// How long executions take.
    Executor,
    /// What a crash leaves on a disk, and damage to it.
    DiskFaults,
    /// The faults of disks that a run has in addition.
    DiskWeather,
    /// Which crashes only kill the process.
    Kills,
    /// Which replicas move, and when.
    Moves,
    /// When replicas fall back to an earlier view.
    FallBack,
}

/// xoshiro256++, seeded by splitmix64. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    s: [u64; 4],
}

impl Rng {
    /// Returns the generator of `concern` in the run with this seed.
    pub fn new(seed: u64, concern: Concern) -> Self {
        Self::of(seed, concern as u64, 0)
    }

    /// Returns the generator of `concern` for one of several things (hosts, clients).
    pub fn nth(seed: u64, concern: Concern, index: usize) -> Self {
        Self::of(seed, concern as u64, u64::try_from(index).unwrap_or(0).wrapping_add(1))
    }

    fn of(seed: u64, a: u64, b: u64) -> Self {
        let mut x = seed ^ a.wrapping_mul(0xa076_1d64_78bd_642f) ^ b.wrapping_mul(0xe703_7ed1_a0b4_28db);
        let s = core::array::from_fn(|_| splitmix(&mut x));
        Self { s }
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
        let wide = u128::from(self.bits()) * u128::from(n);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// Returns an index below `len`, or 0 if `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        let below = self.below(u64::try_from(len).unwrap_or(0));
        usize::try_from(below).unwrap_or(0)
    }

    /// Returns true with a probability of `per_million` in a million.
    #[inline]
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// Returns true with a probability of one in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of `items`, or nothing if it is empty.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        items.get(self.index(items.len())).copied()
    }

    /// Puts `items` in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }

    /// Returns 32 random bytes.
    pub fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_exact_mut(8) {
            chunk.copy_from_slice(&self.bits().to_le_bytes());
        }
        bytes
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
    fn concerns_and_seeds_are_apart() {
        let draw = |seed, concern| Rng::new(seed, concern).bits();
        assert_eq!(draw(1, Concern::Network), draw(1, Concern::Network));
        assert_ne!(draw(1, Concern::Network), draw(1, Concern::Disk));
        assert_ne!(draw(1, Concern::Network), draw(2, Concern::Network));
        assert_ne!(Rng::nth(1, Concern::Disk, 0).bits(), Rng::nth(1, Concern::Disk, 1).bits());
    }

    #[test]
    fn bounds_are_kept() {
        let mut rng = Rng::new(3, Concern::Faults);
        for n in 1..100 {
            assert!(rng.below(n) < n);
            assert!((5..=5 + n).contains(&rng.between(5, 5 + n)));
        }
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.pick::<u8>(&[]), None);
        let hits = (0..100_000).filter(|_| rng.chance(250_000)).count();
        assert!((24_000..26_000).contains(&hits), "{hits} of 100000");
    }
}
