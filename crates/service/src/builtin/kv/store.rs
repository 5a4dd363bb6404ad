//! The state as keys, values and the times at which keys expire.
//!
//! ```text
//! page 0   allocator 8 | database 0: values 8 | deadlines 8 | by time 8 | number of keys 8
//!          databases 1 to 15: values 8 | deadlines 8 | by time 8 | number of keys 4
//!          elements 8
//! pages    the allocator's bitmap, then the nodes of three trees of each database, and of one for all:
//!            values      key -> value                                     of a hash or set: number of elements, 4
//!                                                                         of a list: the same, then its first place, 8
//!            deadlines   key -> when it expires, 8                        of the keys that do
//!                        key -> when, or 0, 8 | kind 1 | number 16        of each hash, set and list
//!            by time     when, 8, big-endian | key -> nothing             of the keys that expire, the next one first
//!            elements    number 16 | name -> value                        of all hashes, sets and lists
//! ```
//!
//! The number of a hash, set or list is given once: the batch, the place in it, and a count, big-endian.
//!
//! Time is the agreed time of the batch [OSDI99 §4.6], in milliseconds. An expired key does not exist for any client,
//! whether or not it has been removed already. An execution that is not ordered knows only that the time is later
//! than that of the last batch. That is enough to know that a key has expired, but not that it has not. So it refuses
//! to answer for a key that expires later, and the request has to be ordered.

use alloc::vec::Vec;
use core::cell::Cell;

use super::elements::Container;
use super::error::{KvError, VALUE_BYTES_MAX};
use super::layout::{ELEMENTS_AT, TREES_BYTES, at, count_at, trees};
use super::note::{ID_BYTES, Id, LOOKED_MAX, Note, Size, TIME_BYTES, element, joined};
use super::operation::Failure;
use crate::service::Context;
use crate::state::btree::{Tree, Value};
use crate::state::space::Space;
use crate::state::view::View;
use crate::stop::Stop;

/// Elements that are copied or removed at a time.
pub(super) const AT_ONCE: usize = 1024;
/// Maximum number of elements and keys that an execution looks at.
pub const WORK_MAX: u64 = 4 * LOOKED_MAX;
/// To copy this many bytes takes as long as to look at an element.
const LOOK_BYTES: usize = 1024;
/// To write a byte takes as long as to copy this many: it is also hashed, stored, and kept in memory until then.
const WRITE_COST: usize = 8;

/// The store as one execution sees it.
#[derive(Debug)]
pub(super) struct Store<'s, 'v> {
    pub(super) view: &'s mut View<'v>,
    space: Space,
    values: Tree,
    deadlines: Tree,
    by_time: Tree,
    /// Of all databases.
    elements: Tree,
    database: usize,
    /// The batch and the place in it, and how often something was numbered.
    unique: (u64, u32, Cell<u32>),
    now_ns: u64,
    now_ms: u64,
    ordered: bool,
    /// How many elements and keys it has looked at.
    looked: Cell<u64>,
    /// How many elements of expired keys it has removed.
    reaped: Cell<u64>,
}

/// What a key is set to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    /// A string.
    String(&'a [u8]),
    /// A hash, set or list of this size, whose elements are there already.
    Made((Container, Id), Size),
}

impl<'a> From<&'a [u8]> for Content<'a> {
    fn from(string: &'a [u8]) -> Self {
        Self::String(string)
    }
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
            elements: Tree::new((0, ELEMENTS_AT), space),
            database: 0,
            unique: (cx.seq.0, cx.index, Cell::new(0)),
            now_ns: cx.time_ns,
            now_ms: cx.time_ns / 1_000_000,
            ordered: !cx.read_only,
            looked: Cell::new(0),
            reaped: Cell::new(0),
        }
    }

    /// Copies this many bytes of a value.
    pub(super) fn look_bytes(&self, len: usize) -> Result<(), KvError> {
        self.look(u64::try_from(len / LOOK_BYTES).unwrap_or(u64::MAX))
    }

    /// Writes this many bytes of a value.
    pub(super) fn write_bytes(&self, len: usize) -> Result<(), KvError> {
        self.look_bytes(len.saturating_mul(WRITE_COST))
    }

    /// Looks at this many elements or keys. A bound on all of them keeps an execution from going on for long.
    pub(super) fn look(&self, count: u64) -> Result<(), KvError> {
        self.looked.set(self.looked.get().saturating_add(count));
        if self.looked.get() > WORK_MAX { Err(KvError::TooMuch) } else { Ok(()) }
    }

    /// Sets how many were looked at. Returns how many it was.
    pub(super) fn set_looked(&self, looked: u64) -> u64 {
        self.looked.replace(looked)
    }

    /// Returns the agreed time, in nanoseconds.
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns the agreed time, in milliseconds.
    pub(super) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Returns a number that nothing else has, or will have.
    pub(super) fn number(&self) -> Id {
        let (seq, index, counter) = &self.unique;
        let count = counter.get();
        counter.set(count.wrapping_add(1));
        let mut id = [0; ID_BYTES];
        id[..8].copy_from_slice(&seq.to_be_bytes());
        id[8..12].copy_from_slice(&index.to_be_bytes());
        id[12..].copy_from_slice(&count.to_be_bytes());
        id
    }

    /// Returns the size of a hash, set or list.
    pub(super) fn size_of(&self, key: &[u8]) -> Result<Size, Stop> {
        self.values.get(self.view, key)?.map_or(Err(Stop::Corrupt), Size::read)
    }

    /// How many elements of expired keys it has removed.
    pub(super) fn reaped(&self) -> &Cell<u64> {
        &self.reaped
    }

    /// Returns the tree of the keys that expire, by time.
    pub(super) fn by_time(&self) -> Tree {
        self.by_time
    }

    /// Returns the tree of the elements, whose keys begin with the number of a hash, set or list.
    pub(super) fn elements(&self) -> Tree {
        self.elements
    }

    /// Calls `each` with the elements from a name on, in order, until it returns false.
    pub(super) fn each_element(
        &self,
        id: &Id,
        from: &[u8],
        mut each: impl FnMut(&[u8], Value<'_>) -> Result<bool, KvError>,
    ) -> Result<(), KvError> {
        let mut cursor = self.elements.seek(self.view, &element(id, from))?;
        while let Some((key, value)) = cursor.next(self.view)? {
            let Some(name) = key.strip_prefix(&id[..]) else { break };
            self.look(1)?;
            if !each(name, value)? {
                break;
            }
        }
        Ok(())
    }

    /// Removes all elements with this number.
    fn remove_elements(&mut self, id: &Id) -> Result<(), KvError> {
        loop {
            let mut keys = Vec::new();
            self.each_element(id, &[], |name, _| {
                keys.push(element(id, name));
                Ok(keys.len() < AT_ONCE)
            })?;
            for key in &keys {
                self.elements.remove(self.view, key)?;
            }
            if keys.len() < AT_ONCE {
                return Ok(());
            }
        }
    }

    /// Returns whether something that expires then, if at all, is still there.
    fn lives(&self, note: Note) -> Result<bool, KvError> {
        match note.at {
            None => Ok(true),
            Some(at) if at <= self.now_ms => Ok(false),
            Some(_) => self.needs_time().map(|()| true),
        }
    }

    /// Returns whether there is a key that has not expired, whatever its value is.
    pub(super) fn is_there(&self, key: &[u8]) -> Result<bool, KvError> {
        let note = self.note(key)?;
        Ok(self.lives(note)? && (note.made.is_some() || self.values.get(self.view, key)?.is_some()))
    }

    /// Returns the elements of a key that has not expired: none if it is not there or a string.
    pub(super) fn made(&self, key: &[u8]) -> Result<Option<(Container, Id)>, KvError> {
        let note = self.note(key)?;
        Ok(if self.lives(note)? { note.made } else { None })
    }

    /// Returns the value of a key that has not expired. A hash, set or list is none.
    pub(super) fn find(&self, key: &[u8]) -> Result<Option<Value<'_>>, KvError> {
        let note = self.note(key)?;
        if !self.lives(note)? {
            return Ok(None);
        }
        if note.made.is_some() {
            return Err(KvError::Failure(Failure::WrongKind));
        }
        let value = self.values.get(self.view, key)?;
        // A longer one was never stored.
        if value.is_some_and(|value| value.len() > VALUE_BYTES_MAX) {
            return Err(Stop::Corrupt.into());
        }
        Ok(value)
    }

    /// Returns the value of a key that has not expired, as bytes.
    pub(super) fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let Some(value) = self.find(key)? else { return Ok(None) };
        self.look_bytes(value.len())?;
        let mut bytes = Vec::new();
        value.copy_to(self.view, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Returns how long a key that is there lives; none if it does not expire.
    pub(super) fn ttl_ms(&self, key: &[u8]) -> Result<Option<u64>, Stop> {
        Ok(self.deadline(key)?.map(|at| at.saturating_sub(self.now_ms)))
    }

    /// Checks that key and value are not too long.
    pub(super) fn check(&self, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(KvError::Failure(Failure::ValueTooLong));
        }
        // A key must have room among the deadlines too, whenever it is given one.
        if key.len() + TIME_BYTES > Tree::key_bytes_max(self.view.page_bytes()) {
            return Err(KvError::Failure(Failure::KeyTooLong));
        }
        Ok(())
    }

    /// Sets the value of a key. Another hash, set or list under this key goes.
    pub(super) fn put<'c>(
        &mut self,
        key: &[u8],
        content: impl Into<Content<'c>>,
        deadline: Deadline,
    ) -> Result<(), KvError> {
        let size: Vec<u8>;
        let (value, made) = match content.into() {
            Content::String(value) => (value, None),
            Content::Made(made, of) => {
                size = of.encode();
                (&size[..], Some(made))
            }
        };
        self.check(key, value)?;
        self.write_bytes(value.len())?;
        let old = self.note(key)?;
        let expired = old.at.is_some_and(|at| at <= self.now_ms);
        if let Some((_, id)) = old.made.filter(|old| Some(*old) != made) {
            self.remove_elements(&id)?;
        }
        if !self.values.insert(self.view, key, value)? {
            self.add_to_count(1)?;
        }
        let at = match deadline {
            Deadline::Keep if !expired => old.at,
            Deadline::Keep | Deadline::Never => None,
            Deadline::At(at) => Some(at),
        };
        self.set_note(key, old, Note { at, made })
    }

    /// Sets when a key that is there expires.
    pub(super) fn expire_at(&mut self, key: &[u8], at: Option<u64>) -> Result<(), KvError> {
        let old = self.note(key)?;
        self.set_note(key, old, Note { at, ..old })
    }

    /// Removes a key. Returns whether it was there and had not expired.
    pub(super) fn remove(&mut self, key: &[u8]) -> Result<bool, KvError> {
        let there = self.forget(key, |store, id| store.remove_elements(&id))?;
        Ok(there.is_some_and(|note| note.at.is_none_or(|at| at > self.now_ms)))
    }

    /// Removes a key, and leaves its elements to `elements`. Returns what was known of it, if it was there.
    pub(super) fn forget(
        &mut self,
        key: &[u8],
        elements: impl FnOnce(&mut Self, Id) -> Result<(), KvError>,
    ) -> Result<Option<Note>, KvError> {
        let old = self.note(key)?;
        if let Some((_, id)) = old.made {
            elements(self, id)?;
        }
        let there = self.values.remove(self.view, key)?;
        if there {
            self.add_to_count(-1)?;
        }
        self.set_note(key, old, Note::default())?;
        Ok(there.then_some(old))
    }

    /// Returns how many pages the store takes.
    pub(super) fn pages(&self) -> Result<u32, Stop> {
        self.space.used(self.view)
    }

    /// Returns how many pages are free.
    pub(super) fn room(view: &View<'_>) -> Result<u32, Stop> {
        Space::new(view, (0, 0), 1).free_pages(view)
    }

    /// Removes everything: the pages are as they were at first.
    pub(super) fn clear(&mut self) -> Result<(), Stop> {
        self.space.clear(self.view)?;
        self.view.clear(0)
    }

    /// Calls `each` with the keys from `from` on that have not expired, in order, until it returns false or `count` were
    /// passed. Returns the first key that was not looked at.
    pub(super) fn walk(
        &self,
        from: &[u8],
        count: usize,
        mut each: impl FnMut(&[u8], Option<Container>) -> Result<bool, KvError>,
    ) -> Result<Option<Vec<u8>>, KvError> {
        let mut cursor = self.values.seek(self.view, from)?;
        for _ in 0..count {
            let Some((key, _)) = cursor.next(self.view)? else { return Ok(None) };
            self.look(1)?;
            let note = self.note(key)?;
            if !self.lives(note)? {
                continue;
            }
            if !each(key, note.made.map(|(kind, _)| kind))? {
                return Ok(Some(key.to_vec()));
            }
        }
        Ok(cursor.next(self.view)?.map(|(key, _)| key.to_vec()))
    }

    /// Returns when a key expires, or has expired.
    pub(super) fn deadline(&self, key: &[u8]) -> Result<Option<u64>, Stop> {
        Ok(self.note(key)?.at)
    }

    /// Returns what is known of a key beside its value.
    pub(super) fn note(&self, key: &[u8]) -> Result<Note, Stop> {
        self.deadlines.get(self.view, key)?.map_or(Ok(Note::default()), Note::read)
    }

    fn set_note(&mut self, key: &[u8], old: Note, new: Note) -> Result<(), KvError> {
        if let Some(at) = old.at.filter(|at| Some(*at) != new.at) {
            self.by_time.remove(self.view, &joined(at, key))?;
        }
        if let Some(at) = new.at.filter(|at| Some(*at) != old.at) {
            self.by_time.insert(self.view, &joined(at, key), &[])?;
        }
        if old == new {
            return Ok(());
        }
        let note = new.encode();
        if note.is_empty() {
            self.deadlines.remove(self.view, key)?;
            return Ok(());
        }
        self.deadlines.insert(self.view, key, &note)?;
        Ok(())
    }

    /// The answer depends on the present time, which an execution that is not ordered does not know.
    pub(super) fn needs_time(&self) -> Result<(), KvError> {
        if self.ordered { Ok(()) } else { Err(KvError::Failure(Failure::NeedsOrder)) }
    }

    /// Returns the number of the database.
    pub(super) fn database(&self) -> u8 {
        u8::try_from(self.database).unwrap_or(0)
    }

    /// Goes on with another database.
    fn select(&mut self, database: u8) {
        self.database = usize::from(database);
        [self.values, self.deadlines, self.by_time] = trees(self.space, self.database);
    }

    /// Does something in a database, and comes back.
    pub(super) fn within<T>(&mut self, database: u8, act: impl FnOnce(&mut Self) -> T) -> T {
        let here = self.database();
        self.select(database);
        let done = act(self);
        self.select(here);
        done
    }

    /// Sets the value of a key in a database.
    pub(super) fn put_in<'c>(
        &mut self,
        (database, key): (u8, &[u8]),
        content: impl Into<Content<'c>>,
        deadline: Deadline,
    ) -> Result<(), KvError> {
        self.within(database, |store| store.put(key, content, deadline))
    }

    /// Removes everything from this database.
    pub(super) fn clear_one(&mut self) -> Result<(), KvError> {
        let mut made = Vec::new();
        let mut cursor = self.deadlines.first(self.view)?;
        while let Some((_, note)) = cursor.next(self.view)? {
            made.extend(Note::read(note)?.made);
        }
        let looked = self.set_looked(0);
        for (_, id) in made {
            // A database is cleared as a whole.
            self.remove_elements(&id)?;
            self.set_looked(0);
        }
        self.set_looked(looked);
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
        Ok(self.set_count(0)?)
    }

    /// Returns how many keys are stored, those that have expired and were not removed yet included.
    pub(super) fn stored(&self) -> Result<u64, Stop> {
        let bytes = self.view.page(0)?.get(count_at(self.database)..).ok_or(Stop::Corrupt)?;
        if self.database == 0 {
            let count = bytes.first_chunk().ok_or(Stop::Corrupt)?;
            return Ok(u64::from_le_bytes(*count));
        }
        let count = bytes.first_chunk().ok_or(Stop::Corrupt)?;
        Ok(u64::from(u32::from_le_bytes(*count)))
    }

    /// Requests that only add to the number of keys do not depend on each other (PX-D). Databases other than the first
    /// are used on pages only.
    fn add_to_count(&mut self, change: i64) -> Result<(), Stop> {
        if self.database > 0 {
            return self.set_count(self.stored()?.checked_add_signed(change).ok_or(Stop::Corrupt)?);
        }
        if self.view.add(0, count_at(0), change, u64::MAX)? { Ok(()) } else { Err(Stop::Corrupt) }
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
