//! Runs several worlds at a time, and returns them in order.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

/// How many at a time, where nothing is said: one for each core.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Calls `run` with 0, 1, ... in `jobs` threads until it gives none, and `done` with what it gave, in
/// order.
pub fn each<T: Send>(jobs: usize, run: impl Fn(u64) -> Option<T> + Sync, mut done: impl FnMut(T)) {
    let next = AtomicU64::new(0);
    let (sender, receiver) = mpsc::sync_channel(16);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let (sender, next, run) = (sender.clone(), &next, &run);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(result) = run(index) else { return };
                    if sender.send((index, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut expected = 0;
        for (index, result) in receiver {
            early.insert(index, result);
            while let Some(result) = early.remove(&expected) {
                expected += 1;
                done(result);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_whoever_is_first() {
        for jobs in [1, 3] {
            let mut got = Vec::new();
            let slow_when_even = |index: u64| {
                if index.is_multiple_of(2) {
                    std::thread::yield_now();
                }
                (index < 50).then_some(index)
            };
            each(jobs, slow_when_even, |index| got.push(index));
            assert_eq!(got, (0..50).collect::<Vec<_>>());
        }
    }
}
