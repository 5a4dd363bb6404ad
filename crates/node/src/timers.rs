//! The timers of a replica as a fixed array of deadlines: nothing is allocated, nothing is sorted.

use quorate_pbft::step::{Deadline, Timer};

/// A time that never comes: a timer that is not running.
const NEVER: u64 = u64::MAX;

/// When each timer expires, in nanoseconds of the monotonic clock.
#[derive(Debug)]
pub(crate) struct Deadlines {
    at: [u64; Timer::COUNT],
    /// No timer expires before this. Exact after [`Self::take_due`] has found nothing.
    earliest: u64,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { at: [NEVER; Timer::COUNT], earliest: NEVER }
    }
}

impl Deadlines {
    /// Starts or restarts a timer.
    #[inline]
    pub(crate) fn set(&mut self, timer: Timer, deadline: Deadline) {
        self.at[timer.index()] = deadline.0;
        self.earliest = self.earliest.min(deadline.0);
    }

    /// Stops a timer.
    #[inline]
    pub(crate) fn stop(&mut self, timer: Timer) {
        self.at[timer.index()] = NEVER;
    }

    /// Returns a time before which no timer expires.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        self.earliest
    }

    /// Stops a timer that has expired at `now_ns`, and returns it.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<Timer> {
        if now_ns < self.earliest {
            return None;
        }
        let due = Timer::ALL.into_iter().find(|timer| self.at[timer.index()] <= now_ns);
        match due {
            Some(timer) => self.stop(timer),
            None => self.earliest = self.at.into_iter().min().unwrap_or(NEVER),
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_runs_out_once_and_not_if_it_was_stopped() {
        let mut deadlines = Deadlines::default();
        assert_eq!(deadlines.take_due(NEVER - 1), None);
        deadlines.set(Timer::Status, Deadline(20));
        deadlines.set(Timer::Flush, Deadline(10));
        deadlines.set(Timer::Request, Deadline(15));
        deadlines.stop(Timer::Request);
        assert_eq!(deadlines.take_due(9), None);
        assert_eq!(deadlines.earliest(), 10);
        assert_eq!(deadlines.take_due(19), Some(Timer::Flush));
        assert_eq!(deadlines.take_due(19), None);
        assert_eq!(deadlines.earliest(), 20);
        assert_eq!(deadlines.take_due(20), Some(Timer::Status));
        assert_eq!(deadlines.take_due(20), None);
    }

    #[test]
    fn setting_a_timer_again_moves_it() {
        let mut deadlines = Deadlines::default();
        deadlines.set(Timer::Status, Deadline(10));
        deadlines.set(Timer::Status, Deadline(30));
        assert_eq!(deadlines.take_due(10), None);
        assert_eq!(deadlines.take_due(30), Some(Timer::Status));
    }
}
