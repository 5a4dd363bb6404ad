//! A host's clocks: they drift, and the time of day jumps (H8). The monotonic clock shows the own time of the process
//! (TM-7), as in the node.

use quorate_pbft::away::counted;

/// World time 0 as the time of day, in nanoseconds since 1970.
pub const EPOCH_NS: u64 = 1_700_000_000_000_000_000;

/// How far the clock of a correct host may be off, in nanoseconds: NTP over a bad network.
pub const OFFSET_NS_MAX: i64 = 500_000_000;
/// How much faster or slower it may run, in nanoseconds for a million: a crystal in the sun.
pub const DRIFT_MAX: u64 = 200;

/// How a host sees time. Its monotonic clock may run fast or slow; its time of day may also be wrong.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What it is like when nothing is wrong with it: its rate, and how far its time of day is off.
    usual: (u64, i64),
    /// Nanoseconds of its own for a million of the world's.
    rate: u64,
    /// A moment at which the rate was set, on both clocks.
    world_ns: u64,
    mono_ns: u64,
    /// How far the time of day is off, in nanoseconds.
    offset_ns: i64,
    /// The time that the process was away and that does not count.
    lost_ns: u64,
    /// Until when it was away last, in the world's time.
    away_to: u64,
}

impl Clock {
    /// A clock that is right.
    pub const RIGHT: Self = Self {
        usual: (1_000_000, 0),
        rate: 1_000_000,
        world_ns: 0,
        mono_ns: 0,
        offset_ns: 0,
        lost_ns: 0,
        away_to: 0,
    };

    /// Returns a clock of a correct host, which is off by `offset_ns` and runs at `rate`: within
    /// [`OFFSET_NS_MAX`] and [`DRIFT_MAX`].
    pub fn usual(offset_ns: i64, rate: u64) -> Self {
        let offset_ns = offset_ns.clamp(-OFFSET_NS_MAX, OFFSET_NS_MAX);
        let rate = rate.clamp(1_000_000 - DRIFT_MAX, 1_000_000 + DRIFT_MAX);
        Self { usual: (rate, offset_ns), rate, offset_ns, ..Self::RIGHT }
    }

    /// Returns the monotonic clock's reading at world time `at`.
    pub fn mono(&self, at: u64) -> u64 {
        self.running(at) - self.lost_ns
    }

    /// What the monotonic clock would show if its process had never been away.
    fn running(&self, at: u64) -> u64 {
        self.mono_ns + scale(at.saturating_sub(self.world_ns), self.rate, 1_000_000)
    }

    /// Returns the time of day at world time `at`.
    pub fn wall(&self, at: u64) -> u64 {
        (EPOCH_NS + self.running(at)).saturating_add_signed(self.offset_ns)
    }

    /// Returns the first world time at which the monotonic clock shows `mono_ns` or more.
    pub fn when(&self, mono_ns: u64) -> u64 {
        let ahead = mono_ns.saturating_add(self.lost_ns).saturating_sub(self.mono_ns);
        // The largest deadlines mean "never": they need not be exact.
        self.world_ns.saturating_add(scale(ahead, 1_000_000, self.rate).saturating_add(1))
    }

    /// Lets it run at `rate` nanoseconds per million of the world's from world time `at` on.
    pub fn set_rate(&mut self, at: u64, rate: u64) {
        *self = Self { rate, world_ns: at, mono_ns: self.running(at), ..*self };
    }

    /// The process did not look at its input from world time `from` to `to`: that counts little (TM-7).
    pub fn away(&mut self, from: u64, to: u64) {
        let away = self.running(to) - self.running(from.max(self.away_to).min(to));
        self.lost_ns += away - counted(away);
        self.away_to = to;
    }

    /// Sets how far the time of day is off.
    pub fn jump(&mut self, offset_ns: i64) {
        self.offset_ns = offset_ns;
    }

    /// Sets both as they usually are: the rate, and the time of day.
    pub fn repair(&mut self, at: u64) {
        let (rate, offset_ns) = self.usual;
        self.set_rate(at, rate);
        let error = i128::from(self.running(at)) - i128::from(at);
        self.offset_ns = i64::try_from(i128::from(offset_ns) - error).unwrap_or(0);
    }

    /// Says whether its time of day is wrong or goes wrong, more than that of a correct host.
    pub fn is_wrong(&self) -> bool {
        let (rate, offset_ns) = self.usual;
        self.rate != rate || self.offset_ns.abs_diff(offset_ns) > 1_000_000_000
    }
}

fn scale(value: u64, by: u64, over: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(by) / u128::from(over.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_reached_when_the_clock_shows_it() {
        for rate in [900_000, 1_000_000, 1_100_000, 1_000_001] {
            let mut clock = Clock::RIGHT;
            clock.set_rate(12_345, rate);
            for mono in [12_345, 20_000, 1_000_000_007] {
                let at = clock.when(mono);
                assert!(clock.mono(at) >= mono, "rate {rate} mono {mono}");
                assert!(clock.mono(at.saturating_sub(3)) <= mono);
            }
        }
    }

    /// A correct host's clock is a little off; what makes it wrong is repaired to that.
    #[test]
    fn a_clock_is_repaired_to_what_it_usually_is() {
        let mut clock = Clock::usual(-300_000_000, 1_000_100);
        assert!(!clock.is_wrong());
        assert_eq!(clock.wall(0), EPOCH_NS - 300_000_000);
        clock.jump(3_600_000_000_000);
        assert!(clock.is_wrong());
        clock.repair(5_000_000);
        assert!(!clock.is_wrong());
        assert_eq!(clock.wall(5_000_000), EPOCH_NS + 5_000_000 - 300_000_000);
        assert_eq!(Clock::usual(i64::MAX, 0).wall(0), EPOCH_NS + 500_000_000);
    }

    /// TM-7: the clock of a process that was away is behind, its time of day is not.
    #[test]
    fn what_a_process_was_away_counts_little() {
        let mut clock = Clock::RIGHT;
        clock.away(100_000_000, 181_000_000);
        assert_eq!(clock.mono(181_000_000), 111_000_000);
        clock.away(150_000_000, 181_000_000);
        assert_eq!(clock.mono(181_000_000), 111_000_000, "that has been counted");
        assert_eq!(clock.when(111_000_000 + 5), 181_000_000 + 6);
        assert_eq!(clock.wall(181_000_000), EPOCH_NS + 181_000_000);
        assert!(!clock.is_wrong());
        clock.repair(200_000_000);
        assert_eq!(clock.wall(200_000_000), EPOCH_NS + 200_000_000);
    }

    #[test]
    fn the_monotonic_clock_never_jumps() {
        let mut clock = Clock::RIGHT;
        clock.set_rate(1_000, 1_100_000);
        let before = clock.mono(5_000_000);
        clock.set_rate(5_000_000, 900_000);
        clock.jump(-3_600_000_000_000);
        assert_eq!(clock.mono(5_000_000), before);
        assert!(clock.is_wrong());
        clock.repair(6_000_000);
        assert_eq!(clock.wall(6_000_000), EPOCH_NS + 6_000_000);
        assert!(!clock.is_wrong());
    }
}
