//! Operations on hashes and sets.
//!
//! ```text
//! elements    code 1 | kind 1 (1 hash, 2 set) | number 8 | key | names or pairs       codes from 96 on
//!   96 put     pairs, number 1: if absent    97 add  names             98 remove  names
//!   99 get     names        100 has  names   101 length  name         102 count  -
//!   103 names  -            104 values  -    105 pairs  -
//!   106 increase  name, number by            107 add decimal  pair of name and number
//!   108 scan  pair of first name and pattern, number how many
//!   109 random  number      110 random pairs  number                  111 pop  number
//!   112 move  other key, name
//!   113 common  keys        114 union  keys  115 difference  keys      of the key and these
//!   116, 117, 118           the same of these, stored in the key
//!   119 count common  keys, number at most   120 kind  -
//! ```
//!
//! A key or a name is two bytes of length, and itself; a value four bytes of length, and itself.

use alloc::vec::Vec;

use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};

use super::command::{Items, Shape, key};
use super::pattern;

/// The first code.
pub(super) const CODE_MIN: u8 = 96;

/// What a value made of elements is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Container {
    /// Names with values.
    Hash = 1,
    /// Names.
    Set = 2,
    /// Values in an order.
    List = 4,
}

impl Container {
    pub(super) fn read(number: u8) -> Option<Self> {
        [Self::Hash, Self::Set, Self::List].into_iter().find(|kind| *kind as u8 == number)
    }

    /// Returns its name, as Redis has it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Set => "set",
            Self::List => "list",
        }
    }
}

/// What an operation on elements does. Answers are an [`Answer::Value`](super::Answer::Value) with a decimal number, or
/// an [`Answer::Many`](super::Answer::Many) where that is said. A key that is not there is an empty value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verb {
    /// Sets the values of names in a hash; with number 1 only of those that are absent. Answers how many are new.
    Put = 96,
    /// Adds names to a set. Answers how many are new.
    Add,
    /// Removes names. Answers how many were there. A value without elements is removed.
    Remove,
    /// The values of names in a hash, or nil: many. Read-only.
    Get,
    /// Whether names are there, 1 or 0: many. Read-only.
    Has,
    /// The length of a name's value in a hash. Read-only.
    Length,
    /// The number of elements. Read-only.
    Count,
    /// All names: many. Read-only.
    Names,
    /// All values of a hash: many. Read-only.
    Values,
    /// All names and values of a hash in turn: many. Read-only.
    Pairs,
    /// Adds the number to the decimal number that is the value of a name, and answers the sum.
    Increase,
    /// Adds to the decimal fraction that is the value of a name, and answers the sum.
    AddDecimal,
    /// Names from the first one on, without those that the pattern does not match, with the values of a hash. At most
    /// `number` are looked at. Many: the first name of those that were not looked at, or nil; then the elements.
    /// Read-only.
    Scan,
    /// Names at random: `number` different ones, or with a negative number as many that may repeat. Many.
    Random,
    /// The same with the values of a hash.
    RandomPairs,
    /// Removes `number` names of a set at random, and answers them: many.
    Pop,
    /// Moves a name of a set to another set. Answers 1, or 0 if it is not there.
    Move,
    /// The names that all sets have: many. Read-only.
    Common,
    /// The names that any set has: many. Read-only.
    Union,
    /// The names that the first set alone has: many. Read-only.
    Difference,
    /// As [`Self::Common`] of the other keys, stored in the key. Answers how many there are.
    StoreCommon,
    /// As [`Self::Union`] of the other keys, stored in the key.
    StoreUnion,
    /// As [`Self::Difference`] of the other keys, stored in the key.
    StoreDifference,
    /// How many names all sets have; not more than `number`, if that is not 0. Read-only.
    CountCommon,
    /// What a value is: `none`, `string`, `hash`, `set` or `list`. Read-only.
    Kind,
}

/// The items of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    Nothing,
    Names,
    Pairs,
}

impl Verb {
    /// Every verb, in the order of their codes.
    pub const ALL: [Self; 25] = [
        Self::Put,
        Self::Add,
        Self::Remove,
        Self::Get,
        Self::Has,
        Self::Length,
        Self::Count,
        Self::Names,
        Self::Values,
        Self::Pairs,
        Self::Increase,
        Self::AddDecimal,
        Self::Scan,
        Self::Random,
        Self::RandomPairs,
        Self::Pop,
        Self::Move,
        Self::Common,
        Self::Union,
        Self::Difference,
        Self::StoreCommon,
        Self::StoreUnion,
        Self::StoreDifference,
        Self::CountCommon,
        Self::Kind,
    ];

    fn wants(self) -> Wants {
        match self {
            Self::Put | Self::AddDecimal | Self::Scan => Wants::Pairs,
            Self::Add
            | Self::Remove
            | Self::Get
            | Self::Has
            | Self::Length
            | Self::Increase
            | Self::Move
            | Self::StoreCommon
            | Self::StoreUnion
            | Self::StoreDifference => Wants::Names,
            // The first key is the one that every operation has: those of keys may have no other.
            Self::Common
            | Self::Union
            | Self::Difference
            | Self::CountCommon
            | Self::Count
            | Self::Names
            | Self::Values
            | Self::Pairs
            | Self::Random
            | Self::RandomPairs
            | Self::Pop
            | Self::Kind => Wants::Nothing,
        }
    }

    /// Returns items that it takes: of another key, or of a name.
    #[cfg(test)]
    pub(crate) fn example<'b>(self, other: &[u8], name: &[u8], buffer: &'b mut Vec<u8>) -> Items<'b> {
        match self.wants() {
            Wants::Pairs if self == Self::Scan => Items::pairs([&b""[..], b"*"], buffer),
            Wants::Pairs => Items::pairs([name, b"1"], buffer),
            Wants::Names if self == Self::Move => Items::keys([other, name], buffer),
            Wants::Names | Wants::Nothing if self.is_of_keys() => Items::keys([other], buffer),
            Wants::Names => Items::keys([name], buffer),
            Wants::Nothing => Items::none(),
        }
    }

    /// Returns whether it takes keys after the first one.
    pub(super) fn is_of_keys(self) -> bool {
        matches!(
            self,
            Self::Common
                | Self::Union
                | Self::Difference
                | Self::StoreCommon
                | Self::StoreUnion
                | Self::StoreDifference
                | Self::CountCommon
        )
    }

    /// Returns whether it changes nothing. What is drawn at random needs the agreed time, so it is ordered.
    pub(super) fn is_read_only(self) -> bool {
        match self {
            Self::Get
            | Self::Has
            | Self::Length
            | Self::Count
            | Self::Names
            | Self::Values
            | Self::Pairs
            | Self::Scan
            | Self::Common
            | Self::Union
            | Self::Difference
            | Self::CountCommon
            | Self::Kind => true,
            Self::Put
            | Self::Add
            | Self::Remove
            | Self::Increase
            | Self::AddDecimal
            | Self::Random
            | Self::RandomPairs
            | Self::Pop
            | Self::Move
            | Self::StoreCommon
            | Self::StoreUnion
            | Self::StoreDifference => false,
        }
    }

    /// Returns whether it writes the value of its key.
    pub(super) fn writes(self) -> bool {
        !self.is_read_only() && !matches!(self, Self::Random | Self::RandomPairs)
    }
}

/// An operation on the elements of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements<'a> {
    /// What it does.
    pub verb: Verb,
    /// The kind of the value.
    pub kind: Container,
    /// The key.
    pub key: &'a [u8],
    /// See [`Verb`].
    pub number: i64,
    /// The names, keys or pairs.
    pub items: Items<'a>,
}

impl<'a> Elements<'a> {
    /// Appends the encoding. The caller keeps keys and names below 64 KiB and the whole within the longest operation.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut out = Writer::new(out);
        out.u8(self.verb as u8);
        out.u8(self.kind as u8);
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
        let verb = *at.and_then(|at| Verb::ALL.get(at)).ok_or(DecodeError::UnknownKind(code))?;
        // A list has operations of its own.
        let kind = Container::read(r.u8()?).filter(|kind| *kind != Container::List);
        let kind = kind.ok_or(DecodeError::NotCanonical)?;
        let (number, key) = (i64::from_le_bytes(r.array()?), key(r)?);
        let items = match verb.wants() {
            Wants::Names => Items::decode(Shape::Key, r)?,
            Wants::Pairs => Items::decode(Shape::Pair, r)?,
            Wants::Nothing if verb.is_of_keys() && !r.is_empty() => Items::decode(Shape::Key, r)?,
            Wants::Nothing => Items::none(),
        };
        reader.end()?;
        if verb == Verb::Scan {
            pattern::read(items.iter().nth(1).unwrap_or_default())?;
        }
        Ok(Self { verb, kind, key, number, items })
    }
}
