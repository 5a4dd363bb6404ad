//! The timestamps of a client: what may have been used is on disk before it is used (CL-10).
//!
//! "Timestamps for c's requests are totally ordered such that later requests have higher timestamps than earlier
//! ones" [OSDI99 §4.1], in all runs of the client together. A clock alone does not give that: it goes back. So the
//! client's directory has a number, in `keys/time`, below which everything counts as used; a run begins at that
//! number or at the clock, whichever is later, and raises it by a block at a time. That costs a write and a sync for
//! each million of requests.

use std::path::{Path, PathBuf};

use quorate_wire::Timestamp;

use crate::error::NodeError;
use crate::home::secret;

/// How many timestamps are taken at a time.
const BLOCK: u64 = 1 << 20;

/// The timestamps that a client may use.
#[derive(Debug)]
pub struct Timestamps {
    /// All lanes use what is above all that any of them has used.
    next: u64,
    /// What is below may be used.
    below: u64,
    /// Where that is kept.
    dir: Option<PathBuf>,
}

impl Timestamps {
    /// Takes a block of the client in `dir`, at `wall_ns` or above what was ever used.
    ///
    /// # Errors
    ///
    /// It cannot be kept. Nothing may be used then.
    pub(crate) fn open(dir: &Path, wall_ns: u64) -> Result<Self, NodeError> {
        let (next, below) = secret::reserve_block(dir, wall_ns, BLOCK)?;
        Ok(Self { next, below, dir: Some(dir.to_path_buf()) })
    }

    /// Returns the next timestamp.
    pub fn next(&self) -> Timestamp {
        Timestamp(self.next)
    }

    /// Notes that a timestamp is about to be used, and says whether it may be: that it is, is on disk.
    #[inline]
    pub(crate) fn may_use(&mut self, timestamp: Timestamp) -> bool {
        self.next = self.next.max(timestamp.0.saturating_add(1));
        timestamp.0 < self.below || self.extend(timestamp.0)
    }

    #[cold]
    fn extend(&mut self, used: u64) -> bool {
        let Some(dir) = &self.dir else { return true };
        let Some(below) = used.checked_add(BLOCK) else { return false };
        let kept = secret::keep_time(dir, below).is_ok();
        if kept {
            self.below = below;
        }
        kept
    }
}

/// From this one on, and kept nowhere: for a client that is never there again, as in tests and benchmarks.
impl From<Timestamp> for Timestamps {
    fn from(first: Timestamp) -> Self {
        Self { next: first.0, below: u64::MAX, dir: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    fn dir(name: &str) -> TempDir {
        let dir = TempDir::new(name);
        std::fs::create_dir(dir.path().join("keys")).unwrap();
        dir
    }

    fn kept(dir: &TempDir) -> u64 {
        std::fs::read_to_string(dir.path().join("keys/time")).unwrap().trim().parse().unwrap()
    }

    /// S3: a clock that has gone back by any amount, after any number of requests, ended at any moment.
    #[test]
    fn no_run_uses_what_another_may_have_used() {
        let dir = dir("timestamps");
        let (mut used, mut writes) = (0, 0);
        for run in 0..20_u64 {
            let clock = [1_000_000_000, 5, 999_000_000, 0][usize::try_from(run % 4).unwrap()];
            let mut timestamps = Timestamps::open(dir.path(), clock).unwrap();
            assert!(timestamps.next().0 > used, "run {run}");
            for _ in 0..run {
                // Some at a time, so that the test is short.
                let next = Timestamp(timestamps.next().0 + BLOCK / 3);
                let before = kept(&dir);
                assert!(timestamps.may_use(next));
                used = next.0;
                assert!(kept(&dir) > used, "on disk before it is used");
                writes += u64::from(kept(&dir) != before);
            }
        }
        assert!((190 / 4..=190 / 3 + 20).contains(&writes), "{writes} writes for 190 thirds of a block");
    }

    /// What cannot be kept is not used; when it can be kept again, it may be used.
    #[test]
    fn a_full_disk_stops_the_client_and_not_its_promise() {
        let dir = dir("timestamps-full");
        let mut timestamps = Timestamps::open(dir.path(), 7).unwrap();
        let beyond = Timestamp(kept(&dir) + 5);
        assert!(timestamps.may_use(Timestamp(beyond.0 - 6)));
        let (keys, away) = (dir.path().join("keys"), dir.path().join("away"));
        std::fs::rename(&keys, &away).unwrap();
        assert!(!timestamps.may_use(beyond));
        std::fs::rename(&away, &keys).unwrap();
        assert!(timestamps.may_use(beyond) && kept(&dir) > beyond.0);
    }

    /// A number that was damaged is no number: a run must not begin at the clock instead.
    #[test]
    fn a_damaged_number_is_refused() {
        let dir = dir("timestamps-damaged");
        for text in ["", "12a", "-1", "99999999999999999999999"] {
            std::fs::write(dir.path().join("keys/time"), text).unwrap();
            assert!(Timestamps::open(dir.path(), 7).is_err(), "{text:?}");
        }
        std::fs::write(dir.path().join("keys/time"), format!("{}\n", u64::MAX - 3)).unwrap();
        assert!(Timestamps::open(dir.path(), 7).is_err(), "no block is left");
    }
}
