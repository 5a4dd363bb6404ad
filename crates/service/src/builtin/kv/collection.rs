//! What the store does for hashes and sets, and what lists share with them.
//!
//! Their elements are keys of one tree, behind the number of the hash or set: to set one element changes a leaf, however
//! many there are, and to rename a hash moves none.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use quorate_wire::message::RESULT_BYTES_MAX;

use super::elements::{Container, Elements, Verb};
use super::error::{KvError, MANY_BYTES_MAX, SCAN_MAX, VALUE_BYTES_MAX, many};
use super::note::{ELEMENTS_MAX, ID_BYTES, Id, Size, element};
use super::operation::{Answer, Failure};
use super::pattern::search;
use super::store::{AT_ONCE, Content, Deadline, Store};
use crate::state::btree::{Tree, Value};
use crate::stop::Stop;

/// This many steps in a pattern take as long as to look at an element.
const LOOK_STEPS: u64 = 256;

/// A hash, set or list that is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collection {
    kind: Container,
    pub(super) id: Id,
    pub(super) count: u32,
    /// The place of the first value of a list; 0 otherwise.
    pub(super) first: u64,
}

impl Collection {
    /// Returns one without elements.
    pub(super) fn new(kind: Container, id: Id) -> Self {
        Self { kind, id, count: 0, first: 0 }
    }
}

/// Copies a hash, set or list to another key, or moves it; to another database, if one is named.
pub(super) fn copy_elements(
    store: &mut Store<'_, '_>,
    (kind, id): (Container, Id),
    (from, to, deadline): (&[u8], (u8, &[u8]), Deadline),
    is_moved: bool,
) -> Result<(), KvError> {
    store.check(to.1, &[])?;
    let size = store.size_of(from)?;
    if is_moved {
        // The elements go with their number.
        store.forget(from, |_, _| Ok(()))?;
        return store.put_in(to, Content::Made((kind, id), size), deadline);
    }
    let new = store.number();
    let mut from = Some(Vec::new());
    while let Some(first) = from.take() {
        let mut part = Vec::new();
        store.each_element(&id, &first, |name, value| {
            if part.len() == AT_ONCE {
                from = Some(name.to_vec());
                return Ok(false);
            }
            store.look_bytes(value.len())?;
            let mut bytes = Vec::new();
            value.copy_to(store.view, &mut bytes)?;
            part.push((element(&new, name), bytes));
            Ok(true)
        })?;
        for (key, value) in &part {
            store.set_element(key, value)?;
        }
    }
    store.put_in(to, Content::Made((kind, new), size), deadline)
}

/// Adds elements, or sets their values. Returns how many are new. What fails has written nothing, unless the store
/// is full.
pub(super) fn add(
    store: &mut Store<'_, '_>,
    kind: Container,
    key: &[u8],
    wanted: &BTreeMap<&[u8], &[u8]>,
    only_absent: bool,
) -> Result<usize, KvError> {
    store.check(key, &[])?;
    let mut collection =
        store.collection(kind, key)?.unwrap_or_else(|| Collection::new(kind, store.number()));
    let is_new = collection.count == 0;
    let mut new = 0;
    for (name, value) in wanted {
        if ID_BYTES + name.len() > Tree::key_bytes_max(store.view.page_bytes()) {
            return Err(KvError::Failure(Failure::KeyTooLong));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(KvError::Failure(Failure::ValueTooLong));
        }
        new += u32::from(is_new || store.element(Some(collection), name)?.is_none());
    }
    if collection.count + new > ELEMENTS_MAX {
        return Err(KvError::Failure(Failure::TooManyElements));
    }
    if only_absent && new == 0 {
        return Ok(0);
    }
    for (name, value) in wanted {
        // A name of a set has no value that could change.
        if kind == Container::Hash || new > 0 {
            store.set_element(&element(&collection.id, name), value)?;
        }
    }
    if new > 0 {
        collection.count += new;
        settle(store, key, collection)?;
    }
    Ok(usize::try_from(new).unwrap_or(usize::MAX))
}

/// Removes names. Returns how many were there.
pub(super) fn remove(
    store: &mut Store<'_, '_>,
    kind: Container,
    key: &[u8],
    names: BTreeSet<&[u8]>,
) -> Result<usize, KvError> {
    let Some(mut collection) = store.collection(kind, key)? else { return Ok(0) };
    let mut removed = 0;
    for name in names {
        removed += u32::from(store.elements().remove(store.view, &element(&collection.id, name))?);
    }
    if removed > 0 {
        collection.count = collection.count.checked_sub(removed).ok_or(Stop::Corrupt)?;
        settle(store, key, collection)?;
    }
    Ok(usize::try_from(removed).unwrap_or(usize::MAX))
}

/// Notes how many elements there are. Without any, the key goes.
pub(super) fn settle(store: &mut Store<'_, '_>, key: &[u8], collection: Collection) -> Result<(), KvError> {
    if collection.count == 0 {
        store.remove(key)?;
        return Ok(());
    }
    let made = (collection.kind, collection.id);
    let size = Size { count: collection.count, first: collection.first };
    store.put(key, Content::Made(made, size), Deadline::Keep)
}

impl Store<'_, '_> {
    /// Returns the hash, set or list of a key that has not expired. A value of another kind is a failure.
    pub(super) fn collection(&self, kind: Container, key: &[u8]) -> Result<Option<Collection>, KvError> {
        match self.made(key)? {
            Some((other, id)) if other == kind => {
                let Size { count, first } = self.size_of(key)?;
                Ok(Some(Collection { kind, id, count, first }))
            }
            Some(_) => Err(KvError::Failure(Failure::WrongKind)),
            None => match self.find(key)? {
                Some(_) => Err(KvError::Failure(Failure::WrongKind)),
                None => Ok(None),
            },
        }
    }

    pub(super) fn element(
        &self,
        collection: Option<Collection>,
        name: &[u8],
    ) -> Result<Option<Value<'_>>, KvError> {
        let Some(Collection { id, .. }) = collection else { return Ok(None) };
        self.look(1)?;
        Ok(self.elements().get(self.view, &element(&id, name))?)
    }

    /// Sets the value of an element.
    pub(super) fn set_element(&mut self, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        self.write_bytes(value.len())?;
        self.elements().insert(self.view, key, value)?;
        Ok(())
    }

    /// Answers the values of names, or nil.
    pub(super) fn values(&self, elements: &Elements<'_>, out: &mut Vec<u8>) -> Result<(), KvError> {
        let collection = self.collection(elements.kind, elements.key)?;
        Answer::begin_many(out);
        for name in elements.items.iter() {
            let value = self.element(collection, name)?;
            Answer::add(out, |out| self.answer_value(value, out))?;
        }
        Ok(())
    }

    /// Answers whether names are there.
    pub(super) fn has(&self, elements: &Elements<'_>, out: &mut Vec<u8>) -> Result<(), KvError> {
        let collection = self.collection(elements.kind, elements.key)?;
        let mut has = Vec::new();
        for name in elements.items.iter() {
            has.push(self.element(collection, name)?.is_some());
        }
        many(has.iter().map(|has| Answer::Value(if *has { b"1" } else { b"0" })), out)
    }

    /// Answers a value, or nil.
    pub(super) fn answer_value(&self, value: Option<Value<'_>>, out: &mut Vec<u8>) -> Result<(), KvError> {
        match value {
            Some(value) if out.len().saturating_add(value.len()) >= RESULT_BYTES_MAX => {
                return Err(KvError::Failure(Failure::AnswerTooLong));
            }
            Some(value) => {
                Answer::begin_value(out);
                value.copy_to(self.view, out)?;
            }
            None => Answer::Nil.encode(out),
        }
        Ok(())
    }

    /// Answers a name and, of a hash that shows them, its value.
    pub(super) fn answer_element(
        &self,
        (name, value): (&[u8], Value<'_>),
        (names, values): (bool, bool),
        out: &mut Vec<u8>,
    ) -> Result<(), KvError> {
        if out.len() + name.len() + 10 > RESULT_BYTES_MAX {
            return Err(KvError::Failure(Failure::AnswerTooLong));
        }
        if names {
            Answer::add(out, |out| {
                Answer::Value(name).encode(out);
                Ok::<(), KvError>(())
            })?;
        }
        if values {
            Answer::add(out, |out| self.answer_value(Some(value), out))?;
        }
        Ok(())
    }

    /// Answers all elements.
    pub(super) fn list(&self, elements: &Elements<'_>, out: &mut Vec<u8>) -> Result<(), KvError> {
        let shown = (elements.verb != Verb::Values, elements.verb != Verb::Names);
        let collection = self.collection(elements.kind, elements.key)?;
        Answer::begin_many(out);
        let Some(Collection { id, .. }) = collection else { return Ok(()) };
        self.each_element(&id, &[], |name, value| {
            self.answer_element((name, value), shown, out)?;
            Ok(true)
        })
    }

    /// Returns whether a key, or the name of an element, matches a pattern.
    pub(super) fn matches(&self, pattern: &[u8], name: &[u8]) -> Result<bool, KvError> {
        if pattern == b"*" {
            return Ok(true);
        }
        let (is_match, steps) = search(pattern, name);
        self.look(steps / LOOK_STEPS)?;
        Ok(is_match)
    }

    pub(super) fn scan_elements(
        &self,
        elements: &Elements<'_>,
        (from, pattern): (&[u8], &[u8]),
        out: &mut Vec<u8>,
    ) -> Result<(), KvError> {
        let collection = self.collection(elements.kind, elements.key)?;
        let limit = elements.number.clamp(1, i64::from(SCAN_MAX));
        let (mut looked, mut next, mut found) = (0, None, Vec::new());
        if let Some(Collection { id, .. }) = collection {
            self.each_element(&id, from, |name, value| {
                let len = name.len() + if elements.kind == Container::Hash { value.len() } else { 0 };
                // The next scan begins with what has no room in this answer.
                if looked == limit || (!found.is_empty() && found.len() + len + 10 > MANY_BYTES_MAX) {
                    next = Some(name.to_vec());
                    return Ok(false);
                }
                looked += 1;
                if self.matches(pattern, name)? {
                    self.answer_element((name, value), (true, elements.kind == Container::Hash), &mut found)?;
                }
                Ok(true)
            })?;
        }
        many(core::iter::once(next.as_deref().map_or(Answer::Nil, Answer::Value)), out)?;
        if out.len() + found.len() > RESULT_BYTES_MAX {
            return Err(KvError::Failure(Failure::AnswerTooLong));
        }
        out.extend_from_slice(&found);
        Ok(())
    }

    /// Returns the value of a name in a hash, as bytes.
    pub(super) fn hash_value(
        &self,
        kind: Container,
        key: &[u8],
        name: &[u8],
    ) -> Result<Option<Vec<u8>>, KvError> {
        let Some(value) = self.element(self.collection(kind, key)?, name)? else { return Ok(None) };
        self.look_bytes(value.len())?;
        let mut bytes = Vec::new();
        value.copy_to(self.view, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Returns all names of a set.
    pub(super) fn names(&self, collection: Option<Collection>) -> Result<BTreeSet<Vec<u8>>, KvError> {
        let mut names = BTreeSet::new();
        if let Some(Collection { id, .. }) = collection {
            self.each_element(&id, &[], |name, _| {
                names.insert(name.to_vec());
                Ok(true)
            })?;
        }
        Ok(names)
    }
}
