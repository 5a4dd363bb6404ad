//! An idle polling thread: it keeps polling for a while, yielding each time, then sleeps until there is input.
//!
//! A wake-up across cores costs more than the protocol (ADR 8), so a busy node does not sleep; an idle
//! one must not burn a core. Where no core is free, it sleeps at once (`crowd.rs`).

use std::io;
use std::time::Instant;

use crate::net::crowd::{Crowd, RunDelay};
use crate::net::socket::Socket;
use crate::net::wake::Waker;

/// How long to poll before sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Sleep immediately.
    Block,
    /// Poll for this number of nanoseconds, then sleep.
    Poll(u64),
}

impl Default for Waiting {
    /// Polls for a millisecond.
    fn default() -> Self {
        Self::Poll(1_000_000)
    }
}

/// The idle state of one polling thread.
///
/// The polling time adapts: an occasional message, such as idle replicas exchange, is not worth a millisecond of a
/// core each time.
#[derive(Debug)]
pub struct Idle {
    waiting: Waiting,
    since: Option<u64>,
    /// The present share of the polling time, in parts of [`PARTS`].
    parts: u64,
    crowd: Crowd,
    delay: RunDelay,
    /// When it looked at its input, if it has done nothing since.
    looked: Option<Instant>,
    /// For how long it has rested since that look, in nanoseconds.
    rested_ns: u64,
}

/// After a sleep it polls for one part, and twice as long each time that polling was successful.
const PARTS: u64 = 64;

/// The longest sleep, so that a process notices the request to stop.
const SLEEP_MS_MAX: u64 = 50;

impl Idle {
    /// Returns the state of a thread that has just had something to do.
    pub fn new(waiting: Waiting) -> Self {
        let (crowd, delay) = (Crowd::default(), RunDelay::default());
        Self { waiting, since: None, parts: PARTS, crowd, delay, looked: None, rested_ns: 0 }
    }

    /// It looks at its input at `at`. Returns for how long it has rested since the last look, in nanoseconds: the time
    /// that it waited for a processor is no rest.
    #[inline]
    pub fn looks(&mut self, at: Instant) -> u64 {
        self.crowd.looks(at);
        self.looked = Some(at);
        std::mem::take(&mut self.rested_ns)
    }

    /// It has done something since it looked at its input, for example what was due.
    #[inline]
    pub fn worked(&mut self) {
        self.looked = None;
    }

    /// There was something to do.
    #[inline]
    pub fn reset(&mut self) {
        if self.since.take().is_some() {
            self.parts = (2 * self.parts).min(PARTS);
        }
    }

    /// It waits for what takes longer than polling is worth: the next rest is a sleep.
    #[inline]
    pub fn stop_polling(&mut self) {
        self.parts = 0;
    }

    /// Returns whether more threads want to run than there are cores.
    #[inline]
    pub fn is_crowded(&self, now_ns: u64) -> bool {
        self.crowd.is_here(now_ns)
    }

    /// There was nothing to do at `now_ns`, and nothing is due before `due_ns`. `waker` wakes it on new input; `news`
    /// returns whether there is some already.
    ///
    /// # Errors
    ///
    /// The wait has failed.
    #[inline]
    pub fn rest(
        &mut self,
        now_ns: u64,
        due_ns: u64,
        socket: &Socket,
        waker: Option<&Waker>,
        news: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        let since = *self.since.get_or_insert(now_ns);
        let crowded = self.crowd.is_here(now_ns);
        let looked = self.looked.take();
        if let Waiting::Poll(patience) = self.waiting
            && now_ns < since.saturating_add(patience / PARTS * self.parts)
            && !crowded
        {
            match looked {
                Some(looked) => self.crowd.make_room_from(looked, now_ns),
                None => self.crowd.make_room(now_ns),
            }
            return Ok(());
        }
        (self.parts, self.since) = (1, None);
        let sleep_ms = due_ns.saturating_sub(now_ns).div_ceil(1_000_000).min(SLEEP_MS_MAX);
        self.rested_ns = sleep(&mut self.delay, crowded, sleep_ms, |sleep_ms| {
            let Some(waker) = waker else { return socket.wait(sleep_ms, None) };
            waker.prepare();
            // Input before `prepare` has not woken the thread.
            let waited = if news() { Ok(()) } else { socket.wait(sleep_ms, Some(waker)) };
            waker.awake();
            waited
        })?;
        Ok(())
    }
}

/// Sleeps for `sleep_ms` or less. Returns for how long it has rested: for no longer than that, and without the time that
/// it waited for a processor, which is known only if `crowded`. Without a crowd that is short, and not worth the
/// system call.
pub fn sleep<E>(
    delay: &mut RunDelay,
    crowded: bool,
    sleep_ms: u64,
    wait: impl FnOnce(u16) -> Result<(), E>,
) -> Result<u64, E> {
    if sleep_ms == 0 {
        return wait(0).map(|()| 0);
    }
    let before = if crowded { delay.read() } else { None };
    let start = Instant::now();
    wait(u16::try_from(sleep_ms).unwrap_or(u16::MAX))?;
    let slept = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let delayed = before.and_then(|before| Some(delay.read()?.saturating_sub(before)));
    Ok(slept.min(sleep_ms.saturating_mul(1_000_000)).saturating_sub(delayed.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_process::Directory;

    /// It polls for as long as it is useful, and briefly after a sleep.
    #[test]
    fn patience_shrinks_with_a_sleep_and_grows_with_what_comes() {
        let socket = Socket::open(([127, 0, 0, 1], 0).into(), &Directory::new(&[])).unwrap();
        let mut idle = Idle::new(Waiting::Poll(64_000));
        let rest = |idle: &mut Idle, now| idle.rest(now, now, &socket, None, || false).unwrap();
        rest(&mut idle, 0);
        rest(&mut idle, 63_999);
        assert_eq!(idle.parts, PARTS, "still polling");
        rest(&mut idle, 64_000);
        assert_eq!(idle.parts, 1, "slept");
        rest(&mut idle, 100_000);
        idle.reset();
        rest(&mut idle, 101_000);
        idle.reset();
        assert_eq!(idle.parts, 4);
        rest(&mut idle, 102_000);
        rest(&mut idle, 105_999);
        assert_eq!(idle.parts, 4, "still polling");
        rest(&mut idle, 106_000);
        assert_eq!(idle.parts, 1, "slept");
    }

    /// TM-7: a look learns how long the thread meant to rest, once. A yield is no rest, and work is no yield.
    #[test]
    fn a_look_ends_a_rest() {
        let socket = Socket::open(([127, 0, 0, 1], 0).into(), &Directory::new(&[])).unwrap();
        let (ms, start) = (1_000_000, Instant::now());
        let rest = |idle: &mut Idle, due_ns| idle.rest(0, due_ns, &socket, None, || false).unwrap();
        let mut idle = Idle::new(Waiting::Block);
        assert_eq!(idle.looks(start), 0);
        rest(&mut idle, 3 * ms);
        let rested = idle.looks(start);
        assert!((1..=3 * ms).contains(&rested), "{rested}");
        assert_eq!(idle.looks(start), 0);
        for works in [false, true] {
            let mut idle = Idle::new(Waiting::Poll(ms));
            assert_eq!(idle.looks(start), 0);
            if works {
                idle.worked();
            }
            rest(&mut idle, 3 * ms);
            assert_eq!(idle.looks(start + std::time::Duration::from_millis(500)), 0);
            assert_eq!(idle.is_crowded(550 * ms), !works);
        }
    }

    /// It sleeps at once before what takes long, and goes on from there as after any sleep.
    #[test]
    fn nobody_polls_for_a_disk() {
        let socket = Socket::open(([127, 0, 0, 1], 0).into(), &Directory::new(&[])).unwrap();
        let slept = std::cell::Cell::new(false);
        let waker = Waker::new().unwrap();
        let rest = |idle: &mut Idle, now| {
            // It looks for news only before it sleeps.
            let news = || !slept.replace(true);
            idle.rest(now, now, &socket, Some(&waker), news).unwrap();
            slept.take()
        };
        let mut idle = Idle::new(Waiting::Poll(64_000));
        assert!(!rest(&mut idle, 0), "it polls");
        idle.stop_polling();
        assert!(rest(&mut idle, 1_000), "in the middle of it");
        assert_eq!(idle.parts, 1);
        let mut idle = Idle::new(Waiting::Poll(64_000));
        idle.stop_polling();
        assert!(rest(&mut idle, 0));
    }
}
