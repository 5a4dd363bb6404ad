//! Somebody who counts on the cluster all the time, and keeps account.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What was said of the work so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// Acknowledged.
    pub(super) acknowledged: u64,
    /// Perhaps done: there was no answer in time.
    pub(super) unknown: u64,
}

/// What came of a piece of work.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    Acknowledged,
    /// It may have been done.
    Unknown,
    /// Nothing was done.
    Nothing,
}

/// Does one piece of work after the other, as fast as it can.
#[derive(Debug)]
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    gap: Arc<Mutex<Duration>>,
    thread: JoinHandle<io::Result<Account>>,
}

impl Load {
    pub(super) fn start(mut work: impl FnMut() -> io::Result<Done> + Send + 'static) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let gap = Arc::new(Mutex::new(Duration::ZERO));
        let (stopped, counted, longest) = (Arc::clone(&stop), Arc::clone(&done), Arc::clone(&gap));
        let thread = std::thread::spawn(move || {
            let (mut account, mut last) = (Account::default(), Instant::now());
            while !stopped.load(Ordering::Relaxed) {
                match work()? {
                    Done::Acknowledged => {
                        account.acknowledged += 1;
                        counted.fetch_add(1, Ordering::Relaxed);
                        let mut longest = longest.lock().unwrap_or_else(PoisonError::into_inner);
                        *longest = (*longest).max(last.elapsed());
                        last = Instant::now();
                    }
                    Done::Unknown => account.unknown += 1,
                    Done::Nothing => {}
                }
            }
            Ok(account)
        });
        Self { stop, done, gap, thread }
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
