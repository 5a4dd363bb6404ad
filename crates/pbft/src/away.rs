//! The time in which a process did not look at its input, and how little of it counts (TM-7).
//!
//! A time-out tells that nothing came in time. A process that waited for a processor, or for an operation that it
//! executes, cannot know that: what came is in its buffers. Its timers run on its own time, in which that counts
//! little.

/// Between two looks at its input this much counts in full, in nanoseconds: an ordinary turn.
const TURN_NS: u64 = 1_000_000;
/// Of the rest one part in this many counts: a peer that keeps a process busy makes its time-outs longer by this factor at
/// most.
const COUNTED_PART: u64 = 8;

/// Returns how much of the time that a process did not look at its input counts.
pub fn counted(away_ns: u64) -> u64 {
    let long = away_ns.saturating_sub(TURN_NS);
    away_ns - long + long / COUNTED_PART
}

/// The own time of a process. It never goes back, and never runs slower than one in eight.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnTime {
    /// The last look, on the real clock and in own time.
    looked: (u64, u64),
}

impl OwnTime {
    /// Returns the own time of a process that looks at its input for the first time at `real_ns`: the real time so far.
    pub fn starting(real_ns: u64) -> Self {
        Self { looked: (real_ns, real_ns) }
    }

    /// Returns the own time at a moment of the real clock after the last look, if the process has not rested since.
    #[inline]
    pub fn at(&self, real_ns: u64) -> u64 {
        self.after(real_ns, 0)
    }

    /// The process looks at its input at `real_ns`. Since the last look it meant to rest for `rested_ns`; for the
    /// remaining time it was away.
    #[inline]
    pub fn look(&mut self, real_ns: u64, rested_ns: u64) {
        self.looked = (real_ns.max(self.looked.0), self.after(real_ns, rested_ns));
    }

    #[inline]
    fn after(&self, real_ns: u64, rested_ns: u64) -> u64 {
        let (real, own) = self.looked;
        let since = real_ns.saturating_sub(real);
        let rested_ns = rested_ns.min(since);
        own.saturating_add(rested_ns).saturating_add(counted(since - rested_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_process_that_is_there_has_the_real_time() {
        let mut own = OwnTime::default();
        for ms in 0..100 {
            own.look(ms * MS, 0);
            assert_eq!(own.at(ms * MS), ms * MS);
        }
        own.look(10_000 * MS, 9_901 * MS);
        assert_eq!(own.at(10_000 * MS), 10_000 * MS, "it slept");
    }

    #[test]
    fn of_the_time_away_an_eighth_counts() {
        let mut own = OwnTime::default();
        own.look(10 * MS, 10 * MS);
        assert_eq!(own.at(91 * MS), 21 * MS);
        own.look(91 * MS, 0);
        assert_eq!(own.at(91 * MS), 21 * MS);
        own.look(182 * MS, 10 * MS);
        assert_eq!(own.at(182 * MS), 42 * MS, "10 ms asleep, 81 ms late");
    }

    /// Nobody can stop it, nor make it go back, whenever it is read.
    #[test]
    fn it_never_stands_still_and_never_goes_back() {
        let (mut own, mut real, mut last) = (OwnTime::default(), 0, 0);
        for step in [1, MS, 2 * MS, 3 * MS, 60 * MS, 5_000 * MS, u64::MAX / 16] {
            for rested in [0, step / 2, step, 2 * step] {
                real += step;
                assert!(own.at(real) >= last + step / COUNTED_PART);
                last = own.at(real);
                own.look(real, rested);
                assert!(own.at(real) >= last);
                last = own.at(real);
            }
        }
        own.look(0, 0);
        assert!(own.at(real) >= last);
    }
}
