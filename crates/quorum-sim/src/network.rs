//! The network of the swarm: a weight for each link, so that some are very slow; datagrams that are
//! lost, doubled and reordered, or reliable channels.

use std::collections::BTreeMap;

use crate::rng::Rng;

/// The links of one world.
#[derive(Debug)]
pub struct Network {
    /// The longest delay of a link of weight 1.
    pub base: u64,
    /// Messages of one link arrive in order.
    pub fifo: bool,
    /// How many of a hundred messages are lost, until `heals`.
    pub loss: u64,
    /// How many of a hundred messages arrive twice.
    pub double: u64,
    /// When losses end.
    pub heals: u64,
    weights: BTreeMap<(usize, usize), u64>,
    last: BTreeMap<(usize, usize), u64>,
}

impl Network {
    /// Returns reliable channels.
    pub fn reliable(base: u64, fifo: bool) -> Self {
        Self { base, fifo, loss: 0, double: 0, heals: 0, weights: BTreeMap::new(), last: BTreeMap::new() }
    }

    /// Returns channels that lose and double datagrams until `heals`.
    pub fn lossy(base: u64, loss: u64, double: u64, heals: u64) -> Self {
        Self { loss, double, heals, ..Self::reliable(base, false) }
    }

    /// Returns when a message arrives, from now: never, once or twice.
    pub fn carry(&mut self, now: u64, from: usize, to: usize, extra: u64, rng: &mut Rng) -> Vec<u64> {
        let link = (from, to);
        let weight = *self.weights.entry(link).or_insert_with(|| match rng.below(10) {
            0..6 => 1,
            6..8 => 4,
            8 => 20,
            _ => 60,
        });
        if now < self.heals && rng.chance(self.loss) {
            return Vec::new();
        }
        let mut delay = extra + 1 + rng.below(self.base * weight);
        if self.fifo {
            let last = self.last.entry(link).or_default();
            let arrival = (now + delay).max(*last + 1);
            *last = arrival;
            delay = arrival - now;
        }
        let mut arrivals = vec![delay];
        if rng.chance(self.double) {
            arrivals.push(delay + rng.below(self.base * weight));
        }
        arrivals
    }
}
