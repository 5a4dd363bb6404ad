//! Maps: ordered keys with their values.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::key::{Key, Prefix};
use crate::state::{Field, Pages};
use crate::value::{self, Value};

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

/// The most entries that an iterator reads ahead.
const AHEAD: usize = 64;

impl<K: Key, V: Value> Map<'_, K, V> {
    /// Returns the value of a key.
    pub fn get(&self, key: &K) -> Option<V> {
        self.pages.value(&self.entry(key))
    }

    /// Returns whether a key exists.
    pub fn contains(&self, key: &K) -> bool {
        self.pages.get(&self.entry(key)).is_some()
    }

    /// Sets the value of a key, and returns the old one.
    pub fn insert(&mut self, key: &K, value: &V) -> Option<V> {
        let entry = self.entry(key);
        let old = self.pages.get(&entry);
        self.pages.put(&entry, value);
        if old.is_none() {
            self.set_len(self.len().saturating_add(1));
        }
        self.pages.decoded(&old?)
    }

    /// Removes a key, and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entry(key);
        let old = self.pages.get(&entry)?;
        self.pages.set(&entry, None);
        self.set_len(self.len().saturating_sub(1));
        self.pages.decoded(&old)
    }

    /// Removes all keys in a range, and returns how many there were.
    pub fn remove_range(&mut self, range: impl RangeBounds<K>) -> u64 {
        let (from, to) = self.bounds(range);
        let mut removed = 0;
        loop {
            let entries = self.pages.scan(&from, &to, AHEAD);
            if entries.is_empty() {
                break;
            }
            for (entry, _) in &entries {
                self.pages.set(entry, None);
                removed += 1;
            }
        }
        self.set_len(self.len().saturating_sub(removed));
        removed
    }

    /// Returns the number of keys.
    pub fn len(&self) -> u64 {
        self.pages.value(&self.key(LEN)).unwrap_or(0)
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the first key with its value.
    pub fn first(&self) -> Option<(K, V)> {
        self.iter().next()
    }

    /// Returns the last key with its value.
    pub fn last(&self) -> Option<(K, V)> {
        self.iter().next_back()
    }

    /// Returns all keys with their values, in the order of the keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, V)> + '_ {
        self.range(..)
    }

    /// Returns the keys in a range with their values, in the order of the keys. A range that ends before it starts is
    /// empty.
    pub fn range<R: RangeBounds<K>>(
        &self,
        range: R,
    ) -> impl DoubleEndedIterator<Item = (K, V)> + use<'_, K, V, R> {
        let (from, to) = self.bounds(range);
        self.decoded(Entries::new(self.pages, from, to))
    }

    /// Returns the keys that begin with `prefix`, with their values, in the order of the keys. The prefix is a `str` if
    /// keys are texts, and the first part if keys are tuples.
    pub fn prefix<P: Prefix<K> + ?Sized>(
        &self,
        prefix: &P,
    ) -> impl DoubleEndedIterator<Item = (K, V)> + use<'_, K, V, P> {
        let mut from = self.key(ENTRY);
        prefix.encode_prefix(&mut from);
        let to = after_prefix(&from);
        self.decoded(Entries::new(self.pages, from, to))
    }

    /// Returns the storage, and the map's place there.
    pub(crate) fn storage(&self) -> (Pages<'_>, u32) {
        (self.pages, self.place)
    }

    fn decoded<'m>(
        &'m self,
        entries: Entries<'m>,
    ) -> impl DoubleEndedIterator<Item = (K, V)> + use<'m, K, V> {
        let (pages, head) = (self.pages, self.key(ENTRY).len());
        entries.filter_map(move |(entry, value)| {
            let Some(key) = entry.get(head..).and_then(K::decode_key) else {
                pages.fail();
                return None;
            };
            Some((key, pages.decoded(&value)?))
        })
    }

    fn bounds(&self, range: impl RangeBounds<K>) -> (Vec<u8>, Vec<u8>) {
        let all = self.key(ENTRY);
        bounds(&all, range.start_bound(), range.end_bound(), Key::encode_key)
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
        self.pages.set(&self.key(LEN), len.as_deref());
    }
}

impl<'a, K: Key, V: Value> Field<'a> for Map<'a, K, V> {
    fn open(pages: Pages<'a>, place: u32) -> Self {
        Self { pages, place, types: PhantomData }
    }
}

/// Returns the encoded bounds of a range of keys below `all`: from the first, to the second without it.
pub(crate) fn bounds<K>(
    all: &[u8],
    start: Bound<&K>,
    end: Bound<&K>,
    encode: impl Fn(&K, &mut Vec<u8>),
) -> (Vec<u8>, Vec<u8>) {
    let entry = |key: &K| {
        let mut entry = all.to_vec();
        encode(key, &mut entry);
        entry
    };
    // The next key that there can be.
    let after = |key: &K| {
        let mut entry = entry(key);
        entry.push(0);
        entry
    };
    let from = match start {
        Bound::Included(key) => entry(key),
        Bound::Excluded(key) => after(key),
        Bound::Unbounded => all.to_vec(),
    };
    let to = match end {
        Bound::Included(key) => after(key),
        Bound::Excluded(key) => entry(key),
        Bound::Unbounded => after_prefix(all),
    };
    (from, to)
}

/// Returns the first bytes behind all those that begin with `prefix`.
pub(crate) fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut after = prefix.to_vec();
    while let Some(last) = after.pop() {
        if let Some(next) = last.checked_add(1) {
            after.push(next);
            break;
        }
    }
    after
}

/// The entries between two encoded keys, from both ends.
pub(crate) struct Entries<'a> {
    pages: Pages<'a>,
    /// What has not been handed out yet: from here, to here without it.
    from: Vec<u8>,
    to: Vec<u8>,
    /// The first entries of that, read ahead.
    ahead: VecDeque<(Vec<u8>, Vec<u8>)>,
    /// How many are read ahead the next time.
    count: usize,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(pages: Pages<'a>, from: Vec<u8>, to: Vec<u8>) -> Self {
        Self { pages, from, to, ahead: VecDeque::new(), count: 1 }
    }
}

impl Iterator for Entries<'_> {
    type Item = (Vec<u8>, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.ahead.is_empty() && self.from < self.to {
            self.ahead = self.pages.scan(&self.from, &self.to, self.count).into();
            self.count = (self.count * 4).min(AHEAD);
        }
        // One that was read ahead may have been handed out from the other end.
        let (entry, value) = self.ahead.pop_front().filter(|(entry, _)| *entry < self.to)?;
        self.from.clone_from(&entry);
        self.from.push(0);
        Some((entry, value))
    }
}

impl DoubleEndedIterator for Entries<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let (entry, value) = self.pages.last(&self.from, &self.to)?;
        self.to.clone_from(&entry);
        Some((entry, value))
    }
}
