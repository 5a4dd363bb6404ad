//! Tables: records that can also be found by what they contain.

use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};

use crate::key::Key;
use crate::map::{Entries, Map, after_prefix, bounds};
use crate::state::{Field, Pages};
use crate::value::Value;

/// A record of a [`Table`].
///
/// ```
/// use quorate::{Key, Record, Value};
///
/// #[derive(Debug, Value)]
/// struct Task { owner: String, due_s: u64 }
///
/// #[derive(Debug, PartialEq, Key)]
/// enum By { Owner { name: String }, Due { s: u64 } }
///
/// impl Record for Task {
///     type Index = By;
///
///     fn indexes(&self) -> Vec<By> {
///         vec![By::Owner { name: self.owner.clone() }, By::Due { s: self.due_s }]
///     }
/// }
/// ```
pub trait Record: Value {
    /// What a record is found by: usually an enum with a variant for each index.
    type Index: Key;

    /// Returns under what this record is found. It must depend on the record alone.
    fn indexes(&self) -> Vec<Self::Index>;
}

/// Records with a key each, in the order of the keys, and with indexes: what [`Record::indexes`] returns for them.
///
/// Every change of a record changes its indexes in the same call. A key and what a record is found by may have about 900
/// bytes together.
pub struct Table<'a, K, V> {
    records: Map<'a, K, V>,
}

/// The tag after a table's place in the keys of its indexes. Those of its records are a map's.
const INDEX: u8 = 2;

impl<K: Key, V: Record> Table<'_, K, V> {
    /// Returns the record of a key.
    pub fn get(&self, key: &K) -> Option<V> {
        self.records.get(key)
    }

    /// Returns whether a key exists.
    pub fn contains(&self, key: &K) -> bool {
        self.records.contains(key)
    }

    /// Returns the number of records.
    pub fn len(&self) -> u64 {
        self.records.len()
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns all records with their keys, in the order of the keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, V)> + '_ {
        self.records.iter()
    }

    /// Returns the records in a range of keys, in the order of the keys.
    pub fn range<R: RangeBounds<K>>(
        &self,
        range: R,
    ) -> impl DoubleEndedIterator<Item = (K, V)> + use<'_, K, V, R> {
        self.records.range(range)
    }

    /// Sets the record of a key, and returns the old one.
    pub fn insert(&mut self, key: &K, record: &V) -> Option<V> {
        let new = self.index_keys(key, record);
        let old = self.records.insert(key, record);
        let (pages, _) = self.records.storage();
        let gone = old.as_ref().map_or_else(BTreeSet::new, |old| self.index_keys(key, old));
        for entry in gone.difference(&new) {
            pages.set(entry, None);
        }
        for entry in new.difference(&gone) {
            pages.set(entry, Some(&[]));
        }
        old
    }

    /// Removes a key, and returns its record.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let old = self.records.remove(key)?;
        let (pages, _) = self.records.storage();
        for entry in self.index_keys(key, &old) {
            pages.set(&entry, None);
        }
        Some(old)
    }

    /// Returns the records found under `index`, in the order of their keys.
    pub fn by(&self, index: &V::Index) -> impl DoubleEndedIterator<Item = (K, V)> + use<'_, K, V> {
        let mut from = self.index_head();
        index.encode_part(&mut from);
        let to = after_prefix(&from);
        self.found(from, to).map(|(_, key, record)| (key, record))
    }

    /// Returns what records are found under in a range, with the keys and the records: in the order of what they are
    /// found under, then of the keys.
    pub fn by_range<R: RangeBounds<V::Index>>(
        &self,
        range: R,
    ) -> impl DoubleEndedIterator<Item = (V::Index, K, V)> + use<'_, K, V, R> {
        let head = self.index_head();
        let encode = |index: &V::Index, out: &mut Vec<u8>| index.encode_part(out);
        let (mut from, mut to) = bounds(&head, range.start_bound(), range.end_bound(), encode);
        // Keys follow an index, so all that begins with it is in or out.
        let behind = |index: &V::Index| {
            let mut entry = head.clone();
            index.encode_part(&mut entry);
            after_prefix(&entry)
        };
        if let Bound::Excluded(index) = range.start_bound() {
            from = behind(index);
        }
        if let Bound::Included(index) = range.end_bound() {
            to = behind(index);
        }
        self.found(from, to)
    }

    fn found(
        &self,
        from: Vec<u8>,
        to: Vec<u8>,
    ) -> impl DoubleEndedIterator<Item = (V::Index, K, V)> + use<'_, K, V> {
        let (head, (pages, _)) = (self.index_head().len(), self.records.storage());
        Entries::new(pages, from, to).filter_map(move |(entry, _)| {
            let decoded = || {
                let mut rest = entry.get(head..)?;
                let index = V::Index::decode_part(&mut rest)?;
                let key = K::decode_key(rest)?;
                let record = self.records.get(&key)?;
                Some((index, key, record))
            };
            let found = decoded();
            if found.is_none() {
                pages.fail();
            }
            found
        })
    }

    fn index_head(&self) -> Vec<u8> {
        let mut head = self.records.storage().1.to_be_bytes().to_vec();
        head.push(INDEX);
        head
    }

    /// Returns the keys of a record's indexes.
    fn index_keys(&self, key: &K, record: &V) -> BTreeSet<Vec<u8>> {
        let entry = |index: &V::Index| {
            let mut entry = self.index_head();
            index.encode_part(&mut entry);
            key.encode_key(&mut entry);
            entry
        };
        record.indexes().iter().map(entry).collect()
    }
}

impl<'a, K: Key, V: Record> Field<'a> for Table<'a, K, V> {
    fn open(pages: Pages<'a>, place: u32) -> Self {
        Self { records: Map::open(pages, place) }
    }
}
