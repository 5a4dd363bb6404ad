//! Emulated machines: each is a clock (§11.3). A job starts when it is ready and the machine is free, and the process
//! sleeps until the end of the job. How late it wakes up is the error of the emulation, and is reported.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What jobs take, in nanoseconds. All 0: nothing is emulated, and every job takes what it takes here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prices {
    /// A message, at each end, with its MAC.
    pub(crate) message: u64,
    pub(crate) sign: u64,
    pub(crate) verify: u64,
}

impl Prices {
    /// Machines of 2006: 0.27 ms for a message and 0.02 ms for its MAC, 14 ms and 0.9 ms for signatures.
    pub(crate) const OF_2006: Self = Self { message: 290_000, sign: 14_000_000, verify: 900_000 };
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time since the start of a cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn sleep_until(&self, end: u64) {
        loop {
            let now = self.now();
            if now >= end {
                return;
            }
            std::thread::sleep(Duration::from_nanos(end - now));
        }
    }
}

/// A machine.
#[derive(Debug, Default)]
pub(super) struct Machine {
    free_at: Mutex<u64>,
}

/// How late jobs ended, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Lateness(pub(super) Vec<u32>);

impl Machine {
    /// Does a job that was ready at a moment, and returns when it should have ended: what follows at once is ready then.
    pub(super) fn occupy(&self, clock: Clock, (ready, takes): (u64, u64), late: &mut Lateness) -> u64 {
        if takes == 0 {
            return clock.now();
        }
        let end = {
            let mut free_at = lock(&self.free_at);
            *free_at = ready.max(*free_at) + takes;
            *free_at
        };
        clock.sleep_until(end);
        late.0.push(u32::try_from(clock.now() - end).unwrap_or(u32::MAX));
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jobs that are ready at once follow each other on the machine's clock, however late the process wakes up.
    #[test]
    fn lateness_does_not_add_up() {
        let (clock, machine, mut late) = (Clock::new(), Machine::default(), Lateness::default());
        let begin = clock.now();
        let mut end = begin;
        for _ in 0..20 {
            end = machine.occupy(clock, (end, 200_000), &mut late);
        }
        assert_eq!(end, begin + 20 * 200_000);
        assert!(clock.now() >= end && late.0.len() == 20);
        // A job that is ready later than the machine is free does not start in the past.
        let ready = end + 5_000_000;
        assert_eq!(machine.occupy(clock, (ready, 1000), &mut late), ready + 1000);
    }
}
