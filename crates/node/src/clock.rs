//! The clocks of a node, read once per burst.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use quorate_pbft::Now;
use quorate_pbft::away::OwnTime;

/// The monotonic clock since a moment of this process, and the time of day. The monotonic clock shows the process's own
/// time, in which it counts little that the process was away (TM-7), if [`Self::look`] is called.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    own: OwnTime,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Returns a clock that starts now.
    pub fn new() -> Self {
        Self { origin: Instant::now(), own: OwnTime::default() }
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
        self.own.at(self.real_ns())
    }

    /// Reads the monotonic clock. The process looks at its input now; since the last look it meant to rest for
    /// `rested_ns`.
    #[inline]
    pub fn look(&mut self, rested_ns: u64) -> u64 {
        let real_ns = self.real_ns();
        self.own.look(real_ns, rested_ns);
        self.own.at(real_ns)
    }

    fn real_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
