//! Keys that expire: they are removed and counted in the order of their times.

use alloc::vec::Vec;

use super::error::KvError;
use super::note::{ELEMENTS_MAX, LOOKED_MAX, split};
use super::store::Store;
use crate::stop::Stop;

/// Maximum number of keys with a deadline that are counted.
const COUNTED_MAX: u32 = ELEMENTS_MAX;

impl Store<'_, '_> {
    /// Removes keys whose time has come, at most `max`, the earliest first. Nobody can tell: they were
    /// not there any more. An execution that is not ordered removes nothing. One that has removed many elements of such keys
    /// removes no more: those do not count as elements that the operation has looked at, because a run on cells leaves them
    /// to settling.
    pub(super) fn reap(&mut self, max: usize) -> Result<(), KvError> {
        if self.needs_time().is_err() || self.view.later(u32::try_from(max).unwrap_or(u32::MAX)) {
            return Ok(());
        }
        let looked = self.set_looked(0);
        for _ in 0..max {
            let Some((at, key)) = self.next_deadline()? else { break };
            if at > self.now_ms() || self.reaped().get() > LOOKED_MAX {
                break;
            }
            self.remove(&key)?;
            self.reaped().set(self.reaped().get() + self.set_looked(0));
        }
        self.set_looked(looked);
        Ok(())
    }

    /// Returns how many keys there are, and how many of them expire. It looks at a bounded number of those with a deadline:
    /// of more that have expired, the others count as keys, and of more that expire, the others are not counted.
    pub(super) fn count(&self) -> Result<(u64, u64), KvError> {
        let (mut keys, mut expiring) = (self.stored()?, 0_u64);
        if self.by_time().is_empty(self.view)? {
            return Ok((keys, expiring));
        }
        let mut cursor = self.by_time().first(self.view)?;
        for _ in 0..COUNTED_MAX {
            let Some((key, _)) = cursor.next(self.view)? else { break };
            self.look(1)?;
            if split(key)?.0 > self.now_ms() {
                self.needs_time()?;
                expiring += 1;
            } else {
                keys = keys.saturating_sub(1);
            }
        }
        Ok((keys, expiring))
    }

    /// Returns the key that expires next, and when.
    fn next_deadline(&self) -> Result<Option<(u64, Vec<u8>)>, Stop> {
        if self.by_time().is_empty(self.view)? {
            return Ok(None);
        }
        let Some((joined, _)) = self.by_time().first(self.view)?.next(self.view)? else { return Ok(None) };
        let (at, key) = split(joined)?;
        Ok(Some((at, key.to_vec())))
    }
}
