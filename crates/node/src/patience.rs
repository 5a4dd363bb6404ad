//! Waiting for a lock or a port that is taken.

use std::time::{Duration, Instant};

/// How long to wait.
const PATIENCE: Duration = Duration::from_millis(500);

/// Retries for a moment: a killed process takes some milliseconds to release its resources.
pub(crate) fn patiently<T, E>(mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let end = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(_) if Instant::now() < end => std::thread::sleep(PATIENCE / 50),
            ended => return ended,
        }
    }
}
