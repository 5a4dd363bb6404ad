//! The state as keys, values and the times at which keys expire.
//!
//! ```text
//! page 0   allocator 8 | database 0: values 8 | deadlines 8 | by time 8 | number of keys 8
//!          databases 1 to 15: values 8 | deadlines 8 | by time 8 | number of keys 4
//! pages    the allocator's bitmap, then the nodes of three trees:
//!            values      key -> value
//!            deadlines   key -> when it expires, 8                 of the keys that do
//!            by time     when, 8, big-endian | key -> nothing      the same, the next to expire first
//! ```
//!
//! Time is the agreed time of the batch [OSDI99 §4.6], in milliseconds. An expired key does not exist for any client,
//! whether or not it has been removed already. An execution that is not ordered knows only that the time is later
//! than that of the last batch. That is enough to know that a key has expired, but not that it has not. So it refuses
//! to answer for a key that expires later, and the request has to be ordered.

use alloc::vec::Vec;

use super::further::DATABASES;
use super::operation::Failure;
use super::trouble::{Trouble, VALUE_BYTES_MAX};
use crate::service::Context;
use crate::state::btree::{Tree, Value};
use crate::state::space::Space;
use crate::state::view::View;
use crate::stop::Stop;

/// Bytes of a time.
const TIME_BYTES: usize = 8;
/// Bytes of the trees of a database in page 0.
const TREES_BYTES: usize = 3 * Tree::HEADER_BYTES;
/// The shortest page has room for all databases.
const _: () = assert!(count_at(DATABASES as usize - 1) + 4 <= 512);

/// The store as one execution sees it.
#[derive(Debug)]
pub(super) struct Store<'s, 'v> {
    pub(super) view: &'s mut View<'v>,
    space: Space,
    values: Tree,
    deadlines: Tree,
    by_time: Tree,
    database: usize,
    now_ns: u64,
    now_ms: u64,
    ordered: bool,
}

/// How setting a key's value changes its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    /// It stays.
    Keep,
    /// The key lives until it is removed.
    Never,
    /// It expires at this time, in milliseconds.
    At(u64),
}

impl<'s, 'v> Store<'s, 'v> {
    pub(super) fn new(cx: &Context, view: &'s mut View<'v>) -> Self {
        let space = Space::new(view, (0, 0), 1);
        let [values, deadlines, by_time] = trees(space, 0);
        Self {
            view,
            space,
            values,
            deadlines,
            by_time,
            database: 0,
            now_ns: cx.time_ns,
            now_ms: cx.time_ns / 1_000_000,
            ordered: !cx.read_only,
        }
    }

    /// Goes on with another database.
    pub(super) fn select(&mut self, database: u8) {
        self.database = usize::from(database);
        [self.values, self.deadlines, self.by_time] = trees(self.space, self.database);
    }

    /// Returns the agreed time, in nanoseconds.
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns the agreed time, in milliseconds.
    pub(super) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Returns the value of a key that has not expired.
    pub(super) fn find(&self, key: &[u8]) -> Result<Option<Value<'_>>, Trouble> {
        if let Some(at) = self.deadline(key)? {
            if at <= self.now_ms {
                return Ok(None);
            }
            self.needs_time()?;
        }
        let value = self.values.get(self.view, key)?;
        // A longer one was never stored.
        if value.is_some_and(|value| value.len() > VALUE_BYTES_MAX) {
            return Err(Stop::Corrupt.into());
        }
        Ok(value)
    }

    /// Returns the value of a key that has not expired, as bytes.
    pub(super) fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Trouble> {
        let Some(value) = self.find(key)? else { return Ok(None) };
        let mut bytes = Vec::new();
        value.copy_to(self.view, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Returns how long a key that is there lives; none if it does not expire.
    pub(super) fn ttl_ms(&self, key: &[u8]) -> Result<Option<u64>, Stop> {
        Ok(self.deadline(key)?.map(|at| at.saturating_sub(self.now_ms)))
    }

    /// Checks that key and value are not too long.
    pub(super) fn check(&self, key: &[u8], value: &[u8]) -> Result<(), Trouble> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(Trouble::Failure(Failure::ValueTooLong));
        }
        // A key must have room among the deadlines too, whenever it is given one.
        if key.len() + TIME_BYTES > Tree::key_bytes_max(self.view.page_bytes()) {
            return Err(Trouble::Failure(Failure::KeyTooLong));
        }
        Ok(())
    }

    /// Sets the value of a key.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8], deadline: Deadline) -> Result<(), Trouble> {
        self.check(key, value)?;
        let old = self.deadline(key)?;
        let expired = old.is_some_and(|at| at <= self.now_ms);
        if !self.values.insert(self.view, key, value)? {
            self.add_to_count(1)?;
        }
        match deadline {
            Deadline::Keep if !expired => Ok(()),
            Deadline::Keep | Deadline::Never => self.set_deadline(key, old, None),
            Deadline::At(at) => self.set_deadline(key, old, Some(at)),
        }
    }

    /// Sets when a key that is there expires.
    pub(super) fn expire_at(&mut self, key: &[u8], at: Option<u64>) -> Result<(), Trouble> {
        let old = self.deadline(key)?;
        self.set_deadline(key, old, at)
    }

    /// Removes a key. Returns whether it was there and had not expired.
    pub(super) fn remove(&mut self, key: &[u8]) -> Result<bool, Trouble> {
        let old = self.deadline(key)?;
        let there = self.values.remove(self.view, key)?;
        if there {
            self.add_to_count(-1)?;
        }
        self.set_deadline(key, old, None)?;
        Ok(there && old.is_none_or(|at| at > self.now_ms))
    }

    /// Removes keys whose time has come, at most `max`, the earliest first. Nobody can tell: they were
    /// not there any more. An execution that is not ordered removes nothing.
    pub(super) fn reap(&mut self, max: usize) -> Result<(), Trouble> {
        if !self.ordered {
            return Ok(());
        }
        for _ in 0..max {
            let Some((at, key)) = self.next_deadline()? else { break };
            if at > self.now_ms {
                break;
            }
            self.remove(&key)?;
        }
        Ok(())
    }

    /// Returns how many keys there are, and how many of them expire.
    pub(super) fn count(&self) -> Result<(u64, u64), Trouble> {
        let (mut keys, mut expiring) = (self.stored()?, 0_u64);
        if !self.by_time.is_empty(self.view)? {
            let mut cursor = self.by_time.first(self.view)?;
            while let Some((key, _)) = cursor.next(self.view)? {
                if split(key)?.0 > self.now_ms {
                    self.needs_time()?;
                    expiring += 1;
                } else {
                    keys = keys.saturating_sub(1);
                }
            }
        }
        Ok((keys, expiring))
    }

    /// Returns how many pages the store takes.
    pub(super) fn pages(&self) -> Result<u32, Stop> {
        self.space.used(self.view)
    }

    /// Removes everything: the pages are as they were at first.
    pub(super) fn clear(&mut self) -> Result<(), Stop> {
        self.space.clear(self.view)?;
        self.view.clear(0)
    }

    /// Removes everything from this database.
    pub(super) fn clear_one(&mut self) -> Result<(), Stop> {
        let mut runs = Vec::new();
        for tree in [self.values, self.deadlines, self.by_time] {
            tree.for_each_run(self.view, |run| {
                runs.push(run);
                true
            })?;
        }
        for run in runs {
            self.space.free(self.view, run)?;
        }
        self.view.write(0, at(self.database), &[0; TREES_BYTES])?;
        self.set_count(0)
    }

    /// Calls `each` with the keys from `from` on that have not expired, in order, until it returns false or `count` were
    /// passed. Returns the first key that was not looked at.
    pub(super) fn walk(
        &self,
        from: &[u8],
        count: usize,
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<Vec<u8>>, Trouble> {
        let mut cursor = self.values.seek(self.view, from)?;
        for _ in 0..count {
            let Some((key, _)) = cursor.next(self.view)? else { return Ok(None) };
            if let Some(at) = self.deadline(key)? {
                if at <= self.now_ms {
                    continue;
                }
                self.needs_time()?;
            }
            if !each(key) {
                return Ok(Some(key.to_vec()));
            }
        }
        Ok(cursor.next(self.view)?.map(|(key, _)| key.to_vec()))
    }

    /// Returns when a key expires, or has expired.
    pub(super) fn deadline(&self, key: &[u8]) -> Result<Option<u64>, Stop> {
        if self.deadlines.is_empty(self.view)? {
            return Ok(None);
        }
        match self.deadlines.get(self.view, key)? {
            None => Ok(None),
            Some(Value::Inline(at)) => at.try_into().map(u64::from_le_bytes).map(Some).or(Err(Stop::Corrupt)),
            Some(Value::Large(_)) => Err(Stop::Corrupt),
        }
    }

    fn set_deadline(&mut self, key: &[u8], old: Option<u64>, new: Option<u64>) -> Result<(), Trouble> {
        if let Some(old) = old.filter(|old| Some(*old) != new) {
            self.by_time.remove(self.view, &joined(old, key))?;
        }
        match new {
            Some(at) => {
                self.deadlines.insert(self.view, key, &at.to_le_bytes())?;
                self.by_time.insert(self.view, &joined(at, key), &[])?;
            }
            None if old.is_some() => {
                self.deadlines.remove(self.view, key)?;
            }
            None => {}
        }
        Ok(())
    }

    /// Returns the key that expires next, and when.
    fn next_deadline(&self) -> Result<Option<(u64, Vec<u8>)>, Stop> {
        if self.by_time.is_empty(self.view)? {
            return Ok(None);
        }
        let Some((joined, _)) = self.by_time.first(self.view)?.next(self.view)? else { return Ok(None) };
        let (at, key) = split(joined)?;
        Ok(Some((at, key.to_vec())))
    }

    /// The answer depends on the present time, which an execution that is not ordered does not know.
    fn needs_time(&self) -> Result<(), Trouble> {
        if self.ordered { Ok(()) } else { Err(Trouble::Failure(Failure::NeedsOrder)) }
    }

    /// Returns how many keys are stored, those that have expired and were not removed yet included.
    fn stored(&self) -> Result<u64, Stop> {
        let bytes = self.view.page(0)?.get(count_at(self.database)..).ok_or(Stop::Corrupt)?;
        if self.database == 0 {
            let count = bytes.first_chunk().ok_or(Stop::Corrupt)?;
            return Ok(u64::from_le_bytes(*count));
        }
        let count = bytes.first_chunk().ok_or(Stop::Corrupt)?;
        Ok(u64::from(u32::from_le_bytes(*count)))
    }

    fn add_to_count(&mut self, change: i64) -> Result<(), Stop> {
        self.set_count(self.stored()?.checked_add_signed(change).ok_or(Stop::Corrupt)?)
    }

    fn set_count(&mut self, count: u64) -> Result<(), Stop> {
        if self.database == 0 {
            return self.view.write(0, count_at(0), &count.to_le_bytes());
        }
        // There are fewer pages than that.
        let count = u32::try_from(count).map_err(|_| Stop::Corrupt)?;
        self.view.write(0, count_at(self.database), &count.to_le_bytes())
    }
}

/// Returns where a database is in page 0.
const fn at(database: usize) -> usize {
    match database.checked_sub(1) {
        None => Space::HEADER_BYTES,
        Some(before) => Space::HEADER_BYTES + TREES_BYTES + 8 + before * (TREES_BYTES + 4),
    }
}

/// Returns where the number of keys of a database is in page 0.
const fn count_at(database: usize) -> usize {
    at(database) + TREES_BYTES
}

fn trees(space: Space, database: usize) -> [Tree; 3] {
    [0, 1, 2].map(|tree| Tree::new((0, at(database) + tree * Tree::HEADER_BYTES), space))
}

/// Returns the key of `by time`.
fn joined(at: u64, key: &[u8]) -> Vec<u8> {
    let mut joined = at.to_be_bytes().to_vec();
    joined.extend_from_slice(key);
    joined
}

fn split(joined: &[u8]) -> Result<(u64, &[u8]), Stop> {
    let (at, key) = joined.split_first_chunk().ok_or(Stop::Corrupt)?;
    Ok((u64::from_be_bytes(*at), key))
}
