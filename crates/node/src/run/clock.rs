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
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Returns a clock that starts now.
    pub fn new() -> Self {
        Self { origin: Instant::now(), own: None }
    }

    /// Reads both clocks.
    #[inline]
    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono_ns: self.mono_ns(), wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// Reads the monotonic clock, in nanoseconds.
    #[inline]
    pub fn mono_ns(&self) -> u64 {
        let real_ns = self.real_ns();
        self.own.map_or(real_ns, |own| own.at(real_ns))
    }

    /// Reads the monotonic clock. The process looks at its input now; since the last look it meant to rest for
    /// `rested_ns`.
    #[inline]
    pub fn look(&mut self, rested_ns: u64) -> u64 {
        let real_ns = self.real_ns();
        let own = self.own.get_or_insert(OwnTime::starting(real_ns));
        own.look(real_ns, rested_ns);
        own.at(real_ns)
    }

    fn real_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Who never looks has the real time: deadlines of users are not the process's own.
    #[test]
    fn without_a_look_it_is_the_real_time() {
        let origin = Instant::now().checked_sub(Duration::from_secs(80)).unwrap();
        let mut clock = Clock { origin, own: None };
        assert!(clock.mono_ns() >= 80_000_000_000);
        assert!(clock.look(0) >= 80_000_000_000, "it begins with the real time");
    }
}
