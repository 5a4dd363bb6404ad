//! The state of a service: maps and cells, stored in the pages that replicas agree on.
//!
//! None of it is in variables of the program. So no part can be missing in a checkpoint, and operations can be undone.

use std::cell::RefCell;
#[cfg(feature = "sim")]
use std::collections::BTreeMap;
use std::marker::PhantomData;

use quorate_service::btree::Tree;
use quorate_service::space::{Space, StoreError};
use quorate_service::{Stop, View};

use crate::value::{self, Key, Value};

/// The replicated state of a service: a struct of [`Map`]s and [`Cell`]s. Derived.
pub trait State<'a>: Sized {
    /// Opens the state in these pages.
    #[doc(hidden)]
    fn open(pages: Pages<'a>) -> Self;
}

/// A part of a state.
#[doc(hidden)]
pub trait Field<'a>: Sized {
    /// Opens the part with this index.
    fn open(pages: Pages<'a>, place: u32) -> Self;
}

/// An ordered map from bytes to bytes, over any storage.
pub(crate) trait Backing {
    /// Returns the value of a key.
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;
    /// Sets the value of a key, or removes it.
    fn set(&self, key: &[u8], value: Option<&[u8]>);
    /// Returns the first key that is not less than `from`, and its value.
    fn next(&self, from: &[u8]) -> Option<(Vec<u8>, Vec<u8>)>;
    /// Reports a stored value that does not decode.
    fn fail(&self);
}

/// The storage of a state.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Pages<'a>(&'a (dyn Backing + 'a));

impl<'a> Pages<'a> {
    pub(crate) fn new(backing: &'a (dyn Backing + 'a)) -> Self {
        Self(backing)
    }

    fn value<T: Value>(self, key: &[u8]) -> Option<T> {
        self.decoded(&self.0.get(key)?)
    }

    fn decoded<T: Value>(self, bytes: &[u8]) -> Option<T> {
        let value = value::decode_all(bytes);
        if value.is_none() {
            self.0.fail();
        }
        value
    }
}

/// Ordered keys with their values.
///
/// A key may have about 900 bytes, a value as many as an operation. If there is no more space, or a key is longer, the
/// call is refused and undone.
pub struct Map<'a, K, V> {
    pages: Pages<'a>,
    place: u32,
    types: PhantomData<fn() -> (K, V)>,
}

/// The tag after a map's index in its keys: the map's length, or an entry.
const LEN: u8 = 0;
const ENTRY: u8 = 1;

impl<K: Key, V: Value> Map<'_, K, V> {
    /// Returns the value of a key.
    pub fn get(&self, key: &K) -> Option<V> {
        self.pages.value(&self.entry(key))
    }

    /// Returns whether a key exists.
    pub fn contains(&self, key: &K) -> bool {
        self.pages.0.get(&self.entry(key)).is_some()
    }

    /// Sets the value of a key, and returns the old one.
    pub fn insert(&mut self, key: &K, value: &V) -> Option<V> {
        let entry = self.entry(key);
        let old = self.pages.0.get(&entry);
        self.pages.0.set(&entry, Some(&value::encode(value)));
        if old.is_none() {
            self.set_len(self.len().saturating_add(1));
        }
        self.pages.decoded(&old?)
    }

    /// Removes a key, and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entry(key);
        let old = self.pages.0.get(&entry)?;
        self.pages.0.set(&entry, None);
        self.set_len(self.len().saturating_sub(1));
        self.pages.decoded(&old)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> u64 {
        self.pages.value(&self.key(LEN)).unwrap_or(0)
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all keys with their values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (K, V)> + '_ {
        let start = self.key(ENTRY);
        let mut from = start.clone();
        std::iter::from_fn(move || {
            let (entry, value) = self.pages.0.next(&from)?;
            let key = K::decode_key(entry.strip_prefix(&start[..])?)?;
            from = entry;
            from.push(0); // the next key there can be
            Some((key, self.pages.decoded(&value)?))
        })
    }

    fn key(&self, kind: u8) -> Vec<u8> {
        let mut key = self.place.to_be_bytes().to_vec();
        key.push(kind);
        key
    }

    fn entry(&self, key: &K) -> Vec<u8> {
        let mut entry = self.key(ENTRY);
        key.encode_key(&mut entry);
        entry
    }

    fn set_len(&mut self, len: u64) {
        let len = (len > 0).then(|| value::encode(&len));
        self.pages.0.set(&self.key(LEN), len.as_deref());
    }
}

impl<'a, K: Key, V: Value> Field<'a> for Map<'a, K, V> {
    fn open(pages: Pages<'a>, place: u32) -> Self {
        Self { pages, place, types: PhantomData }
    }
}

/// A single value, initially the default.
pub struct Cell<'a, T> {
    pages: Pages<'a>,
    place: u32,
    types: PhantomData<fn() -> T>,
}

impl<T: Value + Default> Cell<'_, T> {
    /// Returns the value.
    pub fn get(&self) -> T {
        self.pages.value(&self.place.to_be_bytes()).unwrap_or_default()
    }

    /// Sets the value.
    pub fn set(&mut self, value: &T) {
        self.pages.0.set(&self.place.to_be_bytes(), Some(&value::encode(value)));
    }
}

impl<'a, T: Value + Default> Field<'a> for Cell<'a, T> {
    fn open(pages: Pages<'a>, place: u32) -> Self {
        Self { pages, place, types: PhantomData }
    }
}

/// Why a call cannot continue, or must have no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// There is no more space.
    Full,
    /// A key is longer than pages allow.
    KeyTooLong,
    /// The execution must stop.
    Stop(Stop),
}

/// A state in the pages of a replica: one B+tree. After an error everything reads as absent, and the caller discards
/// the result.
pub(crate) struct Paged<'s, 'v> {
    inner: RefCell<Inner<'s, 'v>>,
}

struct Inner<'s, 'v> {
    view: &'s mut View<'v>,
    tree: Tree,
    trouble: Option<Trouble>,
}

impl<'s, 'v> Paged<'s, 'v> {
    pub(crate) fn new(view: &'s mut View<'v>) -> Self {
        let space = Space::new(view, (0, 0), 1);
        let tree = Tree::new((0, Space::HEADER_BYTES), space);
        Self { inner: RefCell::new(Inner { view, tree, trouble: None }) }
    }

    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.inner.borrow().trouble
    }

    /// Accesses the tree, unless there was an error before.
    fn with<T>(&self, act: impl FnOnce(&mut Inner<'s, 'v>) -> Result<T, StoreError>) -> Option<T> {
        let mut inner = self.inner.borrow_mut();
        if inner.trouble.is_some() {
            return None;
        }
        match act(&mut inner) {
            Ok(done) => Some(done),
            Err(error) => {
                inner.trouble = Some(match error {
                    StoreError::Full => Trouble::Full,
                    StoreError::KeyTooLong => Trouble::KeyTooLong,
                    StoreError::Stop(stop) => Trouble::Stop(stop),
                });
                None
            }
        }
    }
}

impl Backing for Paged<'_, '_> {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.with(|inner| {
            let Some(value) = inner.tree.get(inner.view, key)? else { return Ok(None) };
            let mut bytes = Vec::new();
            value.copy_to(inner.view, &mut bytes)?;
            Ok(Some(bytes))
        })?
    }

    fn set(&self, key: &[u8], value: Option<&[u8]>) {
        self.with(|inner| {
            match value {
                Some(value) => inner.tree.insert(inner.view, key, value)?,
                None => inner.tree.remove(inner.view, key)?,
            };
            Ok(())
        });
    }

    fn next(&self, from: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        self.with(|inner| {
            let mut cursor = inner.tree.seek(inner.view, from)?;
            let Some((key, value)) = cursor.next(inner.view)? else { return Ok(None) };
            let mut bytes = Vec::new();
            value.copy_to(inner.view, &mut bytes)?;
            Ok(Some((key.to_vec(), bytes)))
        })?
    }

    fn fail(&self) {
        self.with(|_| Err::<(), _>(StoreError::Stop(Stop::Corrupt)));
    }
}

/// A state in memory, for the simulator's double. It shares no code with [`Paged`].
#[cfg(feature = "sim")]
#[derive(Debug, Default)]
pub(crate) struct InMemory {
    entries: RefCell<BTreeMap<Vec<u8>, Vec<u8>>>,
}

#[cfg(feature = "sim")]
impl InMemory {
    pub(crate) fn new(entries: BTreeMap<Vec<u8>, Vec<u8>>) -> Self {
        Self { entries: RefCell::new(entries) }
    }

    pub(crate) fn into_entries(self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.entries.into_inner()
    }
}

#[cfg(feature = "sim")]
impl Backing for InMemory {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.entries.borrow().get(key).cloned()
    }

    fn set(&self, key: &[u8], value: Option<&[u8]>) {
        let mut entries = self.entries.borrow_mut();
        match value {
            Some(value) => entries.insert(key.to_vec(), value.to_vec()),
            None => entries.remove(key),
        };
    }

    fn next(&self, from: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let entries = self.entries.borrow();
        let (key, value) = entries.range(from.to_vec()..).next()?;
        Some((key.clone(), value.clone()))
    }

    fn fail(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The simulator compares the two storages; this test checks the expected results.
    #[test]
    fn a_map_is_an_ordered_map_and_minds_its_own_keys() {
        let memory = InMemory::default();
        let pages = Pages::new(&memory);
        let mut ages: Map<'_, String, u64> = Map::open(pages, 0);
        let mut names: Map<'_, i32, String> = Map::open(pages, 1);
        let mut count: Cell<'_, u64> = Cell::open(pages, 2);
        let (ann, bob) = ("ann".to_owned(), "bob".to_owned());
        assert_eq!(
            (ages.insert(&bob, &7), ages.insert(&ann, &8), ages.insert(&bob, &9)),
            (None, None, Some(7))
        );
        for number in [3, -1, 0] {
            names.insert(&number, &ann);
        }
        count.set(&5);
        assert_eq!((ages.len(), names.len(), count.get()), (2, 3, 5));
        assert_eq!(ages.iter().collect::<Vec<_>>(), [(ann.clone(), 8), (bob.clone(), 9)]);
        assert_eq!(names.iter().map(|(number, _)| number).collect::<Vec<_>>(), [-1, 0, 3]);
        assert_eq!((ages.remove(&ann), ages.remove(&ann), ages.get(&ann)), (Some(8), None, None));
        assert!(ages.contains(&bob) && !ages.is_empty());
        ages.remove(&bob);
        assert!(ages.is_empty() && !names.is_empty());
    }
}
