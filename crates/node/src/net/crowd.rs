//! Whether a polling thread has to make room: more threads want to run than there are cores (ADR 8).
//!
//! A thread that polls yields each time that it finds nothing. Beside threads that wait for input, too, the yield
//! returns within microseconds; beside one that computes without end, only after a slice of the scheduler, which is
//! milliseconds. And the time polled counts against the thread: it waits for a slice at each message. A thread that
//! sleeps is scheduled as soon as its input arrives.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// A yield that took this long has let another thread use its slice: at least 2 ms, whatever the scheduler's tick.
const LONG_NS: u64 = 1_600_000;
/// The machine is crowded when long yields are this far ahead of short ones.
const LEVEL_MAX: u64 = 12_000_000;
/// A short yield counts this many times as much as a long one. Busy siblings cause a long yield now and then.
const SHORT_WEIGHT: u64 = 2;
/// How long to sleep at once before the next attempt to poll: twice as long each time that it fails.
const HOLD_MIN_NS: u64 = 100_000_000;
const HOLD_MAX_NS: u64 = 1_600_000_000;

/// What one thread knows of the others, from how long its yields take. A pure decision: the times are given.
#[derive(Debug)]
pub struct Crowd {
    /// How far long yields are ahead of short ones, in nanoseconds.
    level: u64,
    /// No polling before this.
    until: u64,
    /// How long the next hold is.
    hold_ns: u64,
    /// When a yield began whose end is not known yet, by both clocks.
    yielding: Option<(Instant, u64)>,
}

impl Default for Crowd {
    fn default() -> Self {
        Self { level: 0, until: 0, hold_ns: HOLD_MIN_NS, yielding: None }
    }
}

impl Crowd {
    /// Returns whether a thread that finds no input at `now_ns` sleeps at once.
    #[inline]
    pub fn is_here(&self, now_ns: u64) -> bool {
        now_ns < self.until
    }

    /// Lets other threads run, and takes note of how long that took. `now_ns` is the present time.
    #[inline]
    pub fn make_room(&mut self, now_ns: u64) {
        let start = Instant::now();
        std::thread::yield_now();
        self.note_yield(now_ns, u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }

    /// The same for a thread that has looked at its input at `start` and has done nothing since. The yield ends at the
    /// next look: one reading of the clock is enough for each turn.
    #[inline]
    pub fn make_room_from(&mut self, start: Instant, now_ns: u64) {
        self.yielding = Some((start, now_ns));
        std::thread::yield_now();
    }

    /// The thread looks at its input at `at`: a yield is over.
    #[inline]
    pub fn looks(&mut self, at: Instant) {
        if let Some((start, now_ns)) = self.yielding.take() {
            let took = at.saturating_duration_since(start);
            self.note_yield(now_ns, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Takes note of a yield that began at `now_ns`.
    #[inline]
    fn note_yield(&mut self, now_ns: u64, took_ns: u64) {
        if took_ns < LONG_NS {
            self.level = self.level.saturating_sub(SHORT_WEIGHT.saturating_mul(took_ns));
            if self.level == 0 {
                // As many short yields as it takes: the cores are free again.
                self.hold_ns = HOLD_MIN_NS;
            }
            return;
        }
        self.level = self.level.saturating_add(took_ns);
        if self.level >= LEVEL_MAX {
            self.until = now_ns.saturating_add(took_ns).saturating_add(self.hold_ns);
            self.hold_ns = self.hold_ns.saturating_mul(2).min(HOLD_MAX_NS);
            // After the hold a single long yield is enough for the next one.
            self.level = LEVEL_MAX - LONG_NS;
        }
    }
}

/// How long one thread has waited for a processor, as the kernel counts it.
#[derive(Debug, Default)]
pub struct RunDelay {
    /// None: not opened yet, or not there.
    file: Option<File>,
}

impl RunDelay {
    /// Returns the time that this thread has waited for a processor since it started, in nanoseconds. None: the kernel
    /// does not tell. The first call decides which thread is meant.
    pub fn read(&mut self) -> Option<u64> {
        if self.file.is_none() {
            self.file = File::open("/proc/thread-self/schedstat").ok();
        }
        let mut text = [0; 64];
        let len = self.file.as_ref()?.read_at(&mut text, 0).ok()?;
        second_number(text.get(..len)?)
    }
}

/// Returns the second of the numbers in a line of the kernel's.
fn second_number(line: &[u8]) -> Option<u64> {
    str::from_utf8(line).ok()?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000 * US;

    /// Yields for as long as `ns`, each of which takes `took`. Returns the time after them.
    fn yields(crowd: &mut Crowd, mut now: u64, ns: u64, took: u64) -> u64 {
        let end = now + ns;
        while now < end {
            crowd.note_yield(now, took);
            now += took;
        }
        now
    }

    /// A thread may work or sleep between two yields, and need not say so.
    #[test]
    fn only_the_yields_of_a_thread_are_measured() {
        let is_crowded_after_a_pause = || {
            let mut crowd = Crowd::default();
            crowd.make_room(0);
            std::thread::sleep(Duration::from_millis(20));
            crowd.make_room(0);
            crowd.is_here(10 * MS)
        };
        // On a busy machine the yields themselves may be long.
        assert!((0..50).any(|_| !is_crowded_after_a_pause()));
    }

    /// A turn that did nothing lasts from one look to the next, and reads the clock once.
    #[test]
    fn a_yield_ends_with_the_next_look() {
        let (mut crowd, start) = (Crowd::default(), Instant::now());
        for slice in 0..3 {
            assert!(!crowd.is_here(4 * slice * MS), "slice {slice}");
            crowd.make_room_from(start, 4 * slice * MS);
            crowd.looks(start + Duration::from_millis(4));
            crowd.looks(start + Duration::from_secs(1)); // it has not yielded
        }
        assert!(crowd.is_here(12 * MS));
        assert!(!crowd.is_here(12 * MS + HOLD_MIN_NS));
    }

    #[test]
    fn endless_loops_beside_it_are_noticed_within_a_few_slices() {
        let mut crowd = Crowd::default();
        let now = yields(&mut crowd, 0, 8 * MS, 4 * MS);
        assert!(!crowd.is_here(now), "two slices may be chance");
        let now = yields(&mut crowd, now, 4 * MS, 4 * MS);
        assert!(crowd.is_here(now));
    }

    /// Four replicas and a gateway on two cores are more threads than cores. They yield to each other.
    #[test]
    fn siblings_that_poll_or_work_are_no_crowd() {
        let mut crowd = Crowd::default();
        let mut now = 0;
        for _ in 0..1_000 {
            now = yields(&mut crowd, now, 2 * MS, 100 * US);
            now = yields(&mut crowd, now, MS, MS);
            now = yields(&mut crowd, now, 1, 3 * MS);
            assert!(!crowd.is_here(now));
        }
    }

    #[test]
    fn each_attempt_to_poll_costs_one_slice_and_they_become_rare() {
        let mut crowd = Crowd::default();
        let mut now = yields(&mut crowd, 0, 12 * MS, 4 * MS);
        let mut holds = Vec::new();
        for _ in 0..8 {
            let start = now;
            while crowd.is_here(now) {
                now += MS;
            }
            holds.push((now - start) / MS);
            crowd.note_yield(now, 4 * MS);
            now += 4 * MS;
            assert!(crowd.is_here(now));
        }
        assert_eq!(holds, [100, 200, 400, 800, 1600, 1600, 1600, 1600]);
    }

    #[test]
    fn it_polls_again_once_the_loops_have_ended() {
        let mut crowd = Crowd::default();
        let mut now = yields(&mut crowd, 0, 12 * MS, 4 * MS);
        for _ in 0..3 {
            now = crowd.until;
            crowd.note_yield(now, 4 * MS);
        }
        let end = crowd.until;
        now = yields(&mut crowd, end.max(now), 10 * MS, US);
        assert!(!crowd.is_here(now));
        // And what was is forgotten: the next hold is a short one.
        now = yields(&mut crowd, now, 12 * MS, 4 * MS);
        assert!(crowd.is_here(now) && !crowd.is_here(now + HOLD_MIN_NS));
    }

    #[test]
    fn the_kernels_line_is_understood() {
        assert_eq!(second_number(b"5133 4711 12\n"), Some(4711));
        for line in [&b""[..], b"1", b"1 x 2", b"\xff 1 2"] {
            assert_eq!(second_number(line), None);
        }
        assert!(RunDelay::default().read().is_some());
    }

    #[test]
    fn no_time_overflows() {
        let mut crowd = Crowd::default();
        (0..3).for_each(|_| crowd.note_yield(u64::MAX, u64::MAX));
        assert!(!crowd.is_here(u64::MAX));
    }
}
