//! A load that runs during the faults and counts its acknowledged operations.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The outcomes so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// Acknowledged.
    pub(super) acknowledged: u64,
    /// Timed out: may or may not have taken effect.
    pub(super) unknown: u64,
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    Acknowledged,
    /// It may have been done.
    Unknown,
    /// Nothing was done.
    Nothing,
}

/// Runs one operation after the other, as fast as possible.
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

    /// Returns the longest time without an acknowledgement since the last call.
    pub(super) fn take_gap(&self) -> Duration {
        std::mem::take(&mut *self.gap.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until `more` operations were acknowledged. Returns false if that does not happen in time.
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

    /// Stops the load, and returns its outcomes.
    pub(super) fn stop(self) -> io::Result<Account> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the load has failed")))
    }
}
