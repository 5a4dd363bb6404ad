//! Operations on lists.
//!
//! ```text
//! list        code 1 | number 8 | key | items            codes from 128 on
//!   128 push left   values, number 1: if there is a list   129 push right  the same
//!   130 pop left    number how many                        131 pop right   the same
//!   132 length      -
//!   133 range       number first place; last place         134 set         number place; value
//!   135 insert      number 0 before, 1 behind; pivot, value
//!   136 remove      number how many, negative from the right, 0 all; value
//!   137 trim        number first place; last place
//!   138 move        number 1 from the right, 2 to the right, 3 both; other key
//!   139 positions   number rank; value, how many, how many to look at
//! ```
//!
//! A key is two bytes of length, and itself; an item four bytes of length, and itself. A place, or a number among the
//! items, is 8 bytes. Places count from 0; negative ones from the right, from -1.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};

use super::command::{ITEMS_MAX, Items, Shape, key};

/// The first code.
pub(super) const CODE_MIN: u8 = 128;

/// What an operation on a list does. Answers are an [`Answer::Value`](super::Answer::Value) with a decimal number where
/// nothing else is said. A key that is not there is an empty list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ListVerb {
    /// Adds values on the left, one after the other; with number 1 only if there is a list. Answers the length.
    PushLeft = CODE_MIN,
    /// The same on the right.
    PushRight,
    /// Removes values from the left, and answers them: many. Nil, if there is no list.
    PopLeft,
    /// The same from the right.
    PopRight,
    /// The number of values. Read-only.
    Length,
    /// The values from a place to another, both included: many. Read-only.
    Range,
    /// Replaces the value at a place. Answers 1; 0 if there is no such place; -1 if there is no list.
    Set,
    /// Inserts a value before the first one that is equal to the pivot, or behind it. Answers the length; 0 if there is
    /// no list; -1 if no value is equal.
    Insert,
    /// Removes values that are equal to this one. Answers how many.
    Remove,
    /// Removes all values but those from a place to another. Answers how many are left.
    Trim,
    /// Removes a value from an end of the list, adds it to an end of another list or the same, and answers it, or nil.
    Move,
    /// The places of values that are equal to this one: many. Rank 1 begins with the first one from the left, 2 with the
    /// second; -1 with the first one from the right. Read-only.
    Positions,
}

impl ListVerb {
    /// Every verb, in the order of their codes.
    pub const ALL: [Self; 12] = [
        Self::PushLeft,
        Self::PushRight,
        Self::PopLeft,
        Self::PopRight,
        Self::Length,
        Self::Range,
        Self::Set,
        Self::Insert,
        Self::Remove,
        Self::Trim,
        Self::Move,
        Self::Positions,
    ];

    /// Returns how many items it takes.
    fn takes(self) -> RangeInclusive<usize> {
        match self {
            Self::PushLeft | Self::PushRight => 1..=ITEMS_MAX,
            Self::PopLeft | Self::PopRight | Self::Length => 0..=0,
            Self::Range | Self::Set | Self::Remove | Self::Trim | Self::Move => 1..=1,
            Self::Insert => 2..=2,
            Self::Positions => 3..=3,
        }
    }

    /// Returns whether it changes nothing.
    pub(super) fn is_read_only(self) -> bool {
        matches!(self, Self::Length | Self::Range | Self::Positions)
    }

    /// Returns items that it takes: of another key, or of a value.
    #[cfg(test)]
    pub(crate) fn example<'b>(self, other: &[u8], value: &[u8], buffer: &'b mut Vec<u8>) -> Items<'b> {
        let two = 2_i64.to_le_bytes();
        match self {
            Self::PopLeft | Self::PopRight | Self::Length => Items::none(),
            Self::Range | Self::Trim => Items::operations([&two[..]], buffer),
            Self::Move => Items::operations([other], buffer),
            Self::Insert => Items::operations([value, b"new"], buffer),
            Self::Positions => Items::operations([value, &two, &two], buffer),
            Self::PushLeft | Self::PushRight | Self::Set | Self::Remove => Items::operations([value], buffer),
        }
    }
}

/// An operation on a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListCall<'a> {
    /// What it does.
    pub verb: ListVerb,
    /// The key.
    pub key: &'a [u8],
    /// See [`ListVerb`].
    pub number: i64,
    /// The values and places.
    pub items: Items<'a>,
}

impl<'a> ListCall<'a> {
    /// Appends the encoding. The caller keeps the key below 64 KiB and the whole within the longest operation.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut out = Writer::new(out);
        out.u8(self.verb as u8);
        out.bytes(&self.number.to_le_bytes());
        out.count16(self.key.len());
        out.bytes(self.key);
        out.bytes(self.items.bytes());
    }

    /// Decodes all of `bytes`.
    ///
    /// # Errors
    ///
    /// They are not what [`Self::encode`] writes.
    pub fn decode(bytes: &'a [u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        let code = r.u8()?;
        let at = usize::from(code).checked_sub(usize::from(CODE_MIN));
        let verb = *at.and_then(|at| ListVerb::ALL.get(at)).ok_or(DecodeError::UnknownKind(code))?;
        let (number, key) = (i64::from_le_bytes(r.array()?), key(r)?);
        let items = if r.is_empty() { Items::none() } else { Items::decode(Shape::Operation, r)? };
        reader.end()?;
        if !verb.takes().contains(&items.len()) {
            return Err(DecodeError::NotCanonical);
        }
        Ok(Self { verb, key, number, items })
    }

    /// Returns the other key that it writes, if there is one.
    pub(super) fn other_key(&self) -> Option<&'a [u8]> {
        (self.verb == ListVerb::Move).then(|| self.items.iter().next()).flatten()
    }
}
