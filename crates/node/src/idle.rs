//! What a polling thread does when there is nothing to do: it goes on polling for a while, giving way to
//! others each time, and then sleeps until something comes.
//!
//! A wake-up across cores costs more than the protocol (ADR 8), so a busy node does not sleep; an idle
//! one must not burn a core.

use std::io;

use crate::socket::Socket;
use crate::wake::Waker;

/// How long to poll before sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Sleep at once.
    Block,
    /// Poll for so many nanoseconds, then sleep.
    Poll(u64),
}

impl Default for Waiting {
    /// Polls for a millisecond.
    fn default() -> Self {
        Self::Poll(1_000_000)
    }
}

/// The idle state of one polling thread.
#[derive(Debug)]
pub(crate) struct Idle {
    waiting: Waiting,
    since: Option<u64>,
}

/// The longest sleep, so that a process sees that it is to stop.
const SLEEP_MS_MAX: u64 = 50;

impl Idle {
    pub(crate) fn new(waiting: Waiting) -> Self {
        Self { waiting, since: None }
    }

    /// There was something to do.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.since = None;
    }

    /// There was nothing to do at `now_ns`, and nothing is due before `due_ns`. `waker` is used when there
    /// is news; `news` says whether there is some already.
    #[inline]
    pub(crate) fn rest(
        &mut self,
        now_ns: u64,
        due_ns: u64,
        socket: &Socket,
        waker: Option<&Waker>,
        news: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        let since = *self.since.get_or_insert(now_ns);
        if let Waiting::Poll(patience) = self.waiting
            && now_ns < since.saturating_add(patience)
        {
            std::thread::yield_now();
            return Ok(());
        }
        let sleep_ms = due_ns.saturating_sub(now_ns).div_ceil(1_000_000).min(SLEEP_MS_MAX);
        let sleep_ms = u16::try_from(sleep_ms).unwrap_or(u16::MAX);
        let Some(waker) = waker else { return socket.wait(sleep_ms, None) };
        waker.prepare();
        // What came before `prepare` has woken nobody.
        let waited = if news() { Ok(()) } else { socket.wait(sleep_ms, Some(waker)) };
        waker.awake();
        waited
    }
}
