//! Somebody who counts on the cluster all the time, and keeps account.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::redis::{Redis, Reply};

/// The counter.
pub(super) const COUNTER: &[u8] = b"demo:counter";

/// What was said of the increments so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// Acknowledged.
    pub(super) acknowledged: u64,
    /// Perhaps done: there was no answer in time.
    pub(super) unknown: u64,
    /// The highest number that was returned.
    pub(super) highest: u64,
}

/// Increments a counter, one at a time, as fast as it can.
#[derive(Debug)]
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    gap: Arc<Mutex<Duration>>,
    thread: JoinHandle<io::Result<Account>>,
}

impl Load {
    pub(super) fn start(door: SocketAddr, patience: Duration) -> io::Result<Self> {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (gap, mut redis) = (Arc::new(Mutex::new(Duration::ZERO)), Redis::connect(door, patience)?);
        let (stopped, counted, longest) = (Arc::clone(&stop), Arc::clone(&done), Arc::clone(&gap));
        let thread = std::thread::spawn(move || {
            let (mut account, mut last) = (Account::default(), Instant::now());
            while !stopped.load(Ordering::Relaxed) {
                match redis.one(&[b"INCR", COUNTER])? {
                    Reply::Value(value) => {
                        let number = String::from_utf8_lossy(&value).parse().unwrap_or(0);
                        if number <= account.highest {
                            return Err(io::Error::other(format!("{number} came after {}", account.highest)));
                        }
                        account.highest = number;
                        account.acknowledged += 1;
                        counted.fetch_add(1, Ordering::Relaxed);
                        let mut longest = longest.lock().unwrap_or_else(PoisonError::into_inner);
                        *longest = (*longest).max(last.elapsed());
                        last = Instant::now();
                    }
                    Reply::Unknown => account.unknown += 1,
                    Reply::TryAgain => {}
                    Reply::Nil => return Err(io::Error::other("a counter has no value")),
                }
            }
            Ok(account)
        });
        Ok(Self { stop, done, gap, thread })
    }

    /// Returns the longest time without an acknowledgement since this was asked last.
    pub(super) fn take_gap(&self) -> Duration {
        std::mem::take(&mut *self.gap.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until so many more were acknowledged, and says whether it came to that.
    pub(super) fn wait(&self, more: u64, patience: Duration, stop: &AtomicBool) -> bool {
        let (target, begin) = (self.done.load(Ordering::Relaxed) + more, Instant::now());
        while self.done.load(Ordering::Relaxed) < target {
            if begin.elapsed() > patience || self.thread.is_finished() || stop.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Ends it, and returns the account.
    pub(super) fn stop(self) -> io::Result<Account> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the load has failed")))
    }
}
