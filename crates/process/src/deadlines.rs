//! The timers of a replica as a fixed array of deadlines: nothing is allocated, nothing is sorted.

use quorate_pbft::step::{Deadline, Timer};

/// A time that never comes: a timer that is not running.
const NEVER: u64 = u64::MAX;

/// When each timer expires, in nanoseconds of the monotonic clock.
#[derive(Debug)]
pub struct Deadlines {
    at: [u64; Timer::COUNT],
    /// The first of them.
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
    pub fn set(&mut self, timer: Timer, deadline: Deadline) {
        self.change(timer, deadline.0);
    }

    /// Stops a timer.
    #[inline]
    pub fn stop(&mut self, timer: Timer) {
        self.change(timer, NEVER);
    }

    /// Returns when a timer expires, if it runs.
    pub fn at(&self, timer: Timer) -> Option<u64> {
        Some(self.at[timer.index()]).filter(|at| *at != NEVER)
    }

    /// Returns when the first timer expires.
    #[inline]
    pub fn earliest(&self) -> u64 {
        self.earliest
    }

    /// Stops a timer if it has expired at `now_ns`. Returns whether it has.
    pub fn take_due(&mut self, timer: Timer, now_ns: u64) -> bool {
        let is_due = self.at[timer.index()] <= now_ns;
        if is_due {
            self.stop(timer);
        }
        is_due
    }

    #[inline]
    fn change(&mut self, timer: Timer, at: u64) {
        let before = core::mem::replace(&mut self.at[timer.index()], at);
        if at < self.earliest {
            self.earliest = at;
        } else if before == self.earliest {
            self.earliest = self.at.into_iter().min().unwrap_or(NEVER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the timers that have expired, each once.
    fn due(deadlines: &mut Deadlines, now_ns: u64) -> alloc::vec::Vec<Timer> {
        Timer::ALL.into_iter().filter(|timer| deadlines.take_due(*timer, now_ns)).collect()
    }

    #[test]
    fn a_timer_runs_out_once_and_not_if_it_was_stopped() {
        let mut deadlines = Deadlines::default();
        assert_eq!(due(&mut deadlines, NEVER - 1), []);
        deadlines.set(Timer::Status, Deadline(20));
        deadlines.set(Timer::Flush, Deadline(10));
        deadlines.set(Timer::Request, Deadline(5));
        deadlines.stop(Timer::Request);
        assert_eq!(due(&mut deadlines, 9), []);
        assert_eq!(deadlines.earliest(), 10);
        assert_eq!(due(&mut deadlines, 19), [Timer::Flush]);
        assert_eq!(due(&mut deadlines, 19), []);
        assert_eq!(deadlines.earliest(), 20);
        assert_eq!(due(&mut deadlines, 20), [Timer::Status]);
        assert_eq!(deadlines.earliest(), NEVER);
    }

    #[test]
    fn setting_a_timer_again_moves_it() {
        let mut deadlines = Deadlines::default();
        deadlines.set(Timer::Status, Deadline(10));
        deadlines.set(Timer::Status, Deadline(30));
        assert_eq!((due(&mut deadlines, 10), deadlines.earliest()), (alloc::vec![], 30));
        assert_eq!(due(&mut deadlines, 30), [Timer::Status]);
    }
}
