//! The clocks of a node, read once per burst.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use quorate_pbft::Now;

/// The monotonic clock since a moment of this process, and the time of day.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Returns a clock that starts now.
    pub fn new() -> Self {
        Self { origin: Instant::now() }
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
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
