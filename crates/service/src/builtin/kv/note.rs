//! What the trees of the store have beside values: deadlines, the numbers of hashes, sets and lists, and keys made of them.

use alloc::vec::Vec;

use super::elements::Container;
use crate::state::btree::Value;
use crate::stop::Stop;

/// Maximum number of elements of a hash, set or list.
pub const ELEMENTS_MAX: u32 = 65_536;
/// Maximum number of elements that one union, intersection or difference looks at.
pub const LOOKED_MAX: u64 = 4 * ELEMENTS_MAX as u64;

/// Bytes of a time.
pub(super) const TIME_BYTES: usize = 8;
/// The number that the elements of a hash, set or list have in common.
pub(super) type Id = [u8; ID_BYTES];
/// Bytes of it.
pub(super) const ID_BYTES: usize = 16;

/// What is known of a key beside its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// When it expires, or has expired.
    pub(super) at: Option<u64>,
    /// The elements, if it is a hash, set or list.
    pub(super) made: Option<(Container, Id)>,
}

impl Note {
    /// Reads what the tree of deadlines has.
    pub(super) fn read(note: Value<'_>) -> Result<Self, Stop> {
        let Value::Inline(bytes) = note else { return Err(Stop::Corrupt) };
        let (at, made) = bytes.split_first_chunk().ok_or(Stop::Corrupt)?;
        let at = u64::from_le_bytes(*at);
        let Some((kind, id)) = made.split_first() else { return Ok(Self { at: Some(at), made: None }) };
        let (kind, id) =
            (Container::read(*kind).ok_or(Stop::Corrupt)?, id.try_into().map_err(|_| Stop::Corrupt)?);
        Ok(Self { at: (at > 0).then_some(at), made: Some((kind, id)) })
    }

    /// Returns what the tree of deadlines has; nothing, if the key is a string that does not expire.
    pub(super) fn encode(self) -> Vec<u8> {
        let mut note = self.at.unwrap_or(0).to_le_bytes().to_vec();
        match (self.made, self.at) {
            (Some((kind, id)), _) => {
                note.push(kind as u8);
                note.extend_from_slice(&id);
            }
            (None, Some(_)) => {}
            (None, None) => note.clear(),
        }
        note
    }
}

/// What the tree of values has of a hash, set or list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// How many elements there are.
    pub(super) count: u32,
    /// The place of the first value of a list; 0 otherwise.
    pub(super) first: u64,
}

impl Size {
    /// Reads what the tree of values has.
    pub(super) fn read(value: Value<'_>) -> Result<Self, Stop> {
        let Value::Inline(bytes) = value else { return Err(Stop::Corrupt) };
        let (count, first) = bytes.split_first_chunk().ok_or(Stop::Corrupt)?;
        let first = match first {
            [] => 0,
            first => first.try_into().map(u64::from_le_bytes).map_err(|_| Stop::Corrupt)?,
        };
        Ok(Self { count: u32::from_le_bytes(*count), first })
    }

    /// Returns what the tree of values has.
    pub(super) fn encode(self) -> Vec<u8> {
        let mut bytes = self.count.to_le_bytes().to_vec();
        if self.first > 0 {
            bytes.extend_from_slice(&self.first.to_le_bytes());
        }
        bytes
    }
}

/// Numbers that look like chance, and are equal at all replicas (splitmix64).
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let one = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let two = (one ^ one >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        two ^ two >> 31
    }
}

/// Returns the key of an element.
pub(super) fn element(id: &Id, name: &[u8]) -> Vec<u8> {
    let mut joined = id.to_vec();
    joined.extend_from_slice(name);
    joined
}

/// Returns the key of `by time`.
pub(super) fn joined(at: u64, key: &[u8]) -> Vec<u8> {
    let mut joined = at.to_be_bytes().to_vec();
    joined.extend_from_slice(key);
    joined
}

pub(super) fn split(joined: &[u8]) -> Result<(u64, &[u8]), Stop> {
    let (at, key) = joined.split_first_chunk().ok_or(Stop::Corrupt)?;
    Ok((u64::from_be_bytes(*at), key))
}
