//! The times of a running node's session keys. Each is on the disk before its keys are used (D8, KX-1).

use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};

use tracing::warn;

use crate::error::{NodeError, NodeErrorKind};
use crate::home::secret::keep_time;

/// How long to wait after a failure, at most, in nanoseconds.
const RETRY_NS: u64 = 10_000_000_000;

/// When a node takes new session keys. A thread of its own writes their times, because the disk may be slow. While it
/// is full, the node keeps the keys that it has.
#[derive(Debug)]
pub struct KeyTimes {
    dir: PathBuf,
    interval_ns: u64,
    /// When to begin, on the monotonic clock.
    due_ns: u64,
    /// Writes the time of the next keys.
    writing: Option<JoinHandle<Result<u64, NodeError>>>,
    /// Whether the last attempt has failed.
    has_failed: bool,
}

impl KeyTimes {
    /// Returns those of the node in `dir`, which has taken its first keys now.
    pub fn new(dir: &Path, interval_ns: u64, mono_ns: u64) -> Self {
        let due_ns = mono_ns.saturating_add(interval_ns);
        Self { dir: dir.to_path_buf(), interval_ns, due_ns, writing: None, has_failed: false }
    }

    /// Returns the time of the next keys, once: when they are due, and the disk has it. `newest` is that of the last
    /// ones.
    #[inline]
    pub fn next(&mut self, mono_ns: u64, wall_ns: impl FnOnce() -> u64, newest: u64) -> Option<u64> {
        if mono_ns < self.due_ns { None } else { self.write(mono_ns, wall_ns, newest) }
    }

    #[cold]
    fn write(&mut self, mono_ns: u64, wall_ns: impl FnOnce() -> u64, newest: u64) -> Option<u64> {
        let Some(writing) = &self.writing else {
            let (dir, time) = (self.dir.clone(), wall_ns().max(newest.saturating_add(1)));
            let written = move || keep_time(&dir, time).map(|()| time);
            match Builder::new().name("keys".to_owned()).spawn(written) {
                Ok(thread) => self.writing = Some(thread),
                Err(error) => {
                    let what = format!("cannot start the keys' thread: {error}");
                    self.fail(mono_ns, &NodeError::new(NodeErrorKind::Disk, what));
                }
            }
            return None;
        };
        if !writing.is_finished() {
            return None;
        }
        match self.writing.take()?.join().ok()? {
            Ok(time) => {
                (self.due_ns, self.has_failed) = (mono_ns.saturating_add(self.interval_ns), false);
                Some(time)
            }
            Err(error) => {
                self.fail(mono_ns, &error);
                None
            }
        }
    }

    fn fail(&mut self, mono_ns: u64, error: &NodeError) {
        if !std::mem::replace(&mut self.has_failed, true) {
            warn!(%error, "cannot note the time of new session keys: keeping the present ones until it can be noted");
        }
        self.due_ns = mono_ns.saturating_add(self.interval_ns.min(RETRY_NS));
    }
}

impl Drop for KeyTimes {
    /// A later start in the same process must not find its own time overwritten.
    fn drop(&mut self) {
        if let Some(writing) = self.writing.take() {
            let _ = writing.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::TempDir;

    /// Returns the next keys' time, at any time after they are due.
    fn next(times: &mut KeyTimes, mono_ns: u64, wall_ns: u64) -> Option<u64> {
        assert_eq!(times.next(mono_ns, || wall_ns, 5), None, "nothing is written yet");
        while times.writing.as_ref().is_some_and(|writing| !writing.is_finished()) {
            std::thread::yield_now();
        }
        times.next(mono_ns, || unreachable!("it has been written"), 5)
    }

    fn kept(dir: &TempDir) -> String {
        fs::read_to_string(dir.path().join("keys/time")).unwrap()
    }

    /// L94: a full disk ends nothing. The node keeps its keys, and takes new ones when their time is on the disk.
    #[test]
    fn l94_keys_are_kept_until_the_time_of_new_ones_is_on_the_disk() {
        let dir = TempDir::new("key-times");
        let draft = dir.path().join("keys/time.new");
        fs::create_dir(dir.path().join("keys")).unwrap();
        let mut times = KeyTimes::new(dir.path(), 100, 0);
        assert_eq!(times.next(99, || unreachable!("it is early"), 5), None);
        assert_eq!(next(&mut times, 100, 1000), Some(1000));
        assert_eq!(kept(&dir), "1000\n");
        assert_eq!(times.next(199, || unreachable!("it is early"), 5), None);
        // There is no space, and the next time has another length than the one in the file.
        symlink("/dev/full", &draft).unwrap();
        assert_eq!(next(&mut times, 200, 20_000), None);
        assert!(times.has_failed && kept(&dir) == "1000\n");
        assert_eq!(times.next(299, || unreachable!("it is early"), 5), None);
        assert_eq!(next(&mut times, 300, 20_100), None);
        fs::remove_file(&draft).unwrap();
        assert_eq!(next(&mut times, 400, 3), Some(6), "after a clock that was set back");
        assert!(!times.has_failed && kept(&dir) == "6\n");
    }
}
