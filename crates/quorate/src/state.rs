//! The state of a service: maps, tables and cells, stored in the pages that replicas agree on.
//!
//! None of it is in variables of the program. So no part can be missing in a checkpoint, and operations can be undone.

use std::cell::RefCell;
#[cfg(feature = "sim")]
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::thread;

use quorate_service::btree::Tree;
use quorate_service::space::{Space, StoreError};
use quorate_service::{Stop, View};

use crate::value::{self, Value};

/// The replicated state of a service: a struct of [`Map`](crate::Map)s, [`Table`](crate::Table)s and [`Cell`]s. Derived.
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
    /// Returns the first `count` keys from `from` to `to`, without `to`, with their values.
    fn scan(&self, from: &[u8], to: &[u8], count: usize) -> Vec<(Vec<u8>, Vec<u8>)>;
    /// Returns the last key from `from` to `to`, without `to`, with its value.
    fn last(&self, from: &[u8], to: &[u8]) -> Option<(Vec<u8>, Vec<u8>)>;
    /// Reports a stored value that does not decode.
    fn fail(&self);
    /// Reports a value that is nested too deeply to be stored.
    fn refuse_depth(&self);
}

/// The storage of a state.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Pages<'a>(&'a (dyn Backing + 'a));

impl<'a> Pages<'a> {
    pub(crate) fn new(backing: &'a (dyn Backing + 'a)) -> Self {
        Self(backing)
    }

    pub(crate) fn get(self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get(key)
    }

    pub(crate) fn set(self, key: &[u8], value: Option<&[u8]>) {
        self.0.set(key, value);
    }

    /// Sets the value of a key.
    pub(crate) fn put<T: Value>(self, key: &[u8], value: &T) {
        let mut bytes = Vec::new();
        if value::encode_within(value, &mut bytes) {
            self.0.set(key, Some(&bytes));
        } else {
            self.0.refuse_depth();
        }
    }

    pub(crate) fn scan(self, from: &[u8], to: &[u8], count: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.0.scan(from, to, count)
    }

    pub(crate) fn last(self, from: &[u8], to: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        self.0.last(from, to)
    }

    pub(crate) fn fail(self) {
        self.0.fail();
    }

    pub(crate) fn value<T: Value>(self, key: &[u8]) -> Option<T> {
        self.decoded(&self.0.get(key)?)
    }

    pub(crate) fn decoded<T: Value>(self, bytes: &[u8]) -> Option<T> {
        let value = value::decode_all(bytes);
        if value.is_none() {
            self.0.fail();
        }
        value
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
        self.pages.put(&self.place.to_be_bytes(), value);
    }
}

impl<'a, T: Value + Default> Field<'a> for Cell<'a, T> {
    fn open(pages: Pages<'a>, place: u32) -> Self {
        Self { pages, place, types: PhantomData }
    }
}

/// Why a call cannot continue, or must have no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateError {
    /// There is no more space.
    Full,
    /// A key is longer than pages allow.
    KeyTooLong,
    /// A value is nested too deeply.
    TooDeep,
    /// The execution must stop.
    Stop(Stop),
}

impl From<StoreError> for StateError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full => Self::Full,
            StoreError::KeyTooLong => Self::KeyTooLong,
            StoreError::Stop(stop) => Self::Stop(stop),
        }
    }
}

impl From<Stop> for StateError {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl StateError {
    /// Returns why the call was refused.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Full => "the state is full",
            Self::KeyTooLong => "a key is too long",
            Self::TooDeep => "a value is nested too deeply",
            Self::Stop(_) => "the state cannot be read",
        }
    }

    /// Ends the call: with nothing read or written, its code might go on forever. The caller of the service catches this, and
    /// undoes the call. Returns if the call is ending already, or if panics abort the process. Then everything reads as
    /// absent.
    fn end_call(self) {
        if cfg!(panic = "unwind") && !thread::panicking() {
            resume_unwind(Box::new(self));
        }
    }
}

/// A state in the pages of a replica: one B+tree. An error ends the call.
pub(crate) struct Paged<'s, 'v> {
    inner: RefCell<Inner<'s, 'v>>,
}

struct Inner<'s, 'v> {
    view: &'s mut View<'v>,
    tree: Tree,
    trouble: Option<StateError>,
}

impl<'s, 'v> Paged<'s, 'v> {
    pub(crate) fn new(view: &'s mut View<'v>) -> Self {
        let space = Space::new(view, (0, 0), 1);
        let tree = Tree::new((0, Space::HEADER_BYTES), space);
        Self { inner: RefCell::new(Inner { view, tree, trouble: None }) }
    }

    pub(crate) fn trouble(&self) -> Option<StateError> {
        self.inner.borrow().trouble
    }

    /// Accesses the tree, unless there was an error before.
    fn with<T>(&self, act: impl FnOnce(&mut Inner<'s, 'v>) -> Result<T, StateError>) -> Option<T> {
        let mut inner = self.inner.borrow_mut();
        let done = match inner.trouble {
            Some(trouble) => Err(trouble),
            None => act(&mut inner),
        };
        inner.trouble = done.as_ref().err().copied();
        drop(inner);
        done.map_err(StateError::end_call).ok()
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

    fn scan(&self, from: &[u8], to: &[u8], count: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let scanned = self.with(|inner| {
            let (mut cursor, mut entries) = (inner.tree.seek(inner.view, from)?, Vec::new());
            while entries.len() < count
                && let Some((key, value)) = cursor.next(inner.view)?
                && key < to
            {
                let mut bytes = Vec::new();
                value.copy_to(inner.view, &mut bytes)?;
                entries.push((key.to_vec(), bytes));
            }
            Ok(entries)
        });
        scanned.unwrap_or_default()
    }

    fn last(&self, from: &[u8], to: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        self.with(|inner| {
            let mut cursor = inner.tree.seek(inner.view, to)?;
            let Some((key, value)) = cursor.prev(inner.view)?.filter(|(key, _)| *key >= from) else {
                return Ok(None);
            };
            let mut bytes = Vec::new();
            value.copy_to(inner.view, &mut bytes)?;
            Ok(Some((key.to_vec(), bytes)))
        })?
    }

    fn fail(&self) {
        self.with(|_| Err::<(), _>(StateError::Stop(Stop::Corrupt)));
    }

    fn refuse_depth(&self) {
        self.with(|_| Err::<(), _>(StateError::TooDeep));
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

    fn scan(&self, from: &[u8], to: &[u8], count: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let entries = self.entries.borrow();
        let behind = entries.range(from.to_vec()..).take_while(|(key, _)| key.as_slice() < to);
        behind.take(count).map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn last(&self, from: &[u8], to: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let entries = self.entries.borrow();
        let (key, value) = entries.range(..to.to_vec()).next_back()?;
        (key.as_slice() >= from).then(|| (key.clone(), value.clone()))
    }

    fn fail(&self) {}

    fn refuse_depth(&self) {
        StateError::TooDeep.end_call();
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
