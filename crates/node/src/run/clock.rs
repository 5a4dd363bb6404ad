//! The clocks of a node, read once per burst.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use quorate_pbft::Now;
use quorate_pbft::away::OwnTime;

/// The monotonic clock since a moment of this process, and the time of day. The monotonic clock shows the process's own
/// time, in which it counts little that the process was away (TM-7), from the first [`Self::look`] on.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    own: Option<OwnTime>,
    /// The process's own time at the last look.
    looked_ns: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Returns a clock that starts now.
    pub fn new() -> Self {
        Self { origin: Instant::now(), own: None, looked_ns: 0 }
    }

    /// Reads both clocks.
    #[inline]
    pub fn now(&self) -> Now {
        Now { mono_ns: self.mono_ns(), wall_ns: wall_ns() }
    }

    /// Returns the time of the last look, and reads the time of day.
    #[inline]
    pub fn looked(&self) -> Now {
        Now { mono_ns: self.looked_ns, wall_ns: wall_ns() }
    }

    /// Reads the monotonic clock, in nanoseconds.
    #[inline]
    pub fn mono_ns(&self) -> u64 {
        let real_ns = self.real_ns(Instant::now());
        self.own.map_or(real_ns, |own| own.at(real_ns))
    }

    /// Reads the monotonic clock. The process looks at its input now; `rested_ns` gets this moment, and returns for how
    /// long the process meant to rest since the last look.
    #[inline]
    pub fn look(&mut self, rested_ns: impl FnOnce(Instant) -> u64) -> u64 {
        let at = Instant::now();
        self.look_at(at, rested_ns(at))
    }

    /// The same, at a moment that the caller has read.
    #[inline]
    pub fn look_at(&mut self, at: Instant, rested_ns: u64) -> u64 {
        let real_ns = self.real_ns(at);
        let own = self.own.get_or_insert(OwnTime::starting(real_ns));
        own.look(real_ns, rested_ns);
        self.looked_ns = own.at(real_ns);
        self.looked_ns
    }

    /// Returns a moment in nanoseconds of real time.
    #[inline]
    pub fn real_ns(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Reads the time of day.
#[inline]
fn wall_ns() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Who never looks has the real time: deadlines of users are not the process's own.
    #[test]
    fn without_a_look_it_is_the_real_time() {
        let origin = Instant::now().checked_sub(Duration::from_secs(80)).unwrap();
        let mut clock = Clock { origin, own: None, looked_ns: 0 };
        assert!(clock.mono_ns() >= 80_000_000_000);
        let looked = clock.look(|_| 0);
        assert!(looked >= 80_000_000_000, "it begins with the real time");
        assert_eq!(clock.looked().mono_ns, looked);
    }
}
