//! Counters of a channel (§2.2): each message has its own, and each counter is accepted once, in any
//! order, within a window of 1,024.

/// How many counters below the highest can still arrive.
pub const WINDOW: u64 = 1024;

/// The sending end of a channel: counters rise from 1.
#[derive(Clone, Debug, Default)]
pub struct Outgoing {
    last: u64,
}

impl Outgoing {
    /// Returns the next counter. A message that is sent again gets a new one.
    pub fn advance(&mut self) -> u64 {
        self.last = self.last.saturating_add(1);
        self.last
    }
}

/// The receiving end: which of the last 1,024 counters have been seen.
#[derive(Clone, Debug, Default)]
pub struct Incoming {
    highest: u64,
    seen: [u64; 16],
}

impl Incoming {
    /// Accepts a counter once. False: it was seen, or it is below the window, or it is 0.
    pub fn accept(&mut self, counter: u64) -> bool {
        if counter == 0 {
            return false;
        }
        if counter > self.highest {
            let skipped = counter - self.highest;
            if skipped >= WINDOW {
                self.seen = [0; 16];
            } else {
                for between in self.highest + 1..counter {
                    self.set(between, false);
                }
            }
            self.highest = counter;
            self.set(counter, true);
            return true;
        }
        if self.highest - counter >= WINDOW || self.get(counter) {
            return false;
        }
        self.set(counter, true);
        true
    }

    fn place(counter: u64) -> (usize, u64) {
        let bit = counter % WINDOW;
        (usize::try_from(bit / 64).unwrap_or(0), 1 << (bit % 64))
    }

    fn get(&self, counter: u64) -> bool {
        let (word, bit) = Self::place(counter);
        self.seen[word] & bit != 0
    }

    fn set(&mut self, counter: u64, on: bool) {
        let (word, bit) = Self::place(counter);
        if on {
            self.seen[word] |= bit;
        } else {
            self.seen[word] &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_accepted_once_in_any_order() {
        let mut window = Incoming::default();
        assert!(!window.accept(0));
        for counter in [5, 3, 1024, 4, 1, 2] {
            assert!(window.accept(counter), "{counter}");
        }
        for counter in [5, 3, 1024, 4, 1, 2] {
            assert!(!window.accept(counter), "{counter} again");
        }
        assert!(window.accept(1028) && !window.accept(4), "below the window");
        assert!(window.accept(1025) && window.accept(6));
    }

    /// Against a plain set, over jumps smaller and larger than the window.
    #[test]
    fn it_does_what_a_set_would() {
        let mut window = Incoming::default();
        let mut model = std::collections::BTreeSet::new();
        let (mut x, mut highest, mut accepted) = (1_u64, 0_u64, 0);
        for _ in 0..200_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let jump = if x >> 60 == 0 { (x >> 33) % 3000 } else { (x >> 33) % 40 };
            let counter =
                if x >> 63 == 0 { highest + jump } else { highest.saturating_sub((x >> 33) % 1200) };
            let fresh = counter > 0 && counter + WINDOW > highest && model.insert(counter);
            highest = highest.max(if fresh { counter } else { 0 });
            accepted += u32::from(fresh);
            assert_eq!(window.accept(counter), fresh, "{counter} with {highest}");
        }
        assert!((20_000..190_000).contains(&accepted), "{accepted}");
    }
}
