//! Commands beyond the plain [`Operation`](super::Operation)s: what a RESP gateway needs, and many operations in one.
//!
//! ```text
//! command     code 1 | rest                                     codes from 16 to 63
//!   16 set       flags 1 | [ttl 8] | key | value       flags: 1 if absent, 2 if present, 4 ttl, 8 old value
//!   17 get-del   key        18 length  key             a key is its length, two bytes, and itself
//!   19 del       keys       20 exists  keys            21 get  keys
//!   22 set many  pairs: key | len 4 | value
//!   23 expire    ttl 8 | key                           24 ttl  key       25 persist  key
//!   26 count     -          27 clear   -
//!   28 many      operations: len 4 | operation
//! ```
//!
//! Lists reach to the end. Times are in milliseconds.

use alloc::vec::Vec;

use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};
use quorate_wire::message::OPERATION_BYTES_MAX;

/// The first code of a command; those below are [`Operation`](super::Operation)s.
pub(super) const CODE_MIN: u8 = 16;
/// Maximum number of keys, pairs or operations in one command.
pub const ITEMS_MAX: usize = 65_536;

/// Requests to the store other than an [`Operation`](super::Operation). Answers are an
/// [`Answer::Value`](super::Answer::Value) with a decimal number where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Sets the value of a key: done, or nil if the condition does not hold. With `get` the value
    /// before, or nil.
    Set {
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// When it is set.
        condition: Option<Condition>,
        /// How long it lives, in milliseconds; none: until it is removed.
        ttl_ms: Option<u64>,
        /// Answers the value before.
        get: bool,
    },
    /// Removes a key and answers its value.
    GetDel {
        /// The key.
        key: &'a [u8],
    },
    /// The length of a value. Read-only.
    Length {
        /// The key.
        key: &'a [u8],
    },
    /// Removes keys, and answers how many were there.
    Del(Items<'a>),
    /// How many of these keys are there, each as often as it is named. Read-only.
    Exists(Items<'a>),
    /// The values of these keys, as an [`Answer::Many`](super::Answer::Many). Read-only.
    GetMany(Items<'a>),
    /// Sets the values of keys, all or none. A list of key, value, key, value.
    SetMany(Items<'a>),
    /// Lets a key expire after these milliseconds, at once if that is not above 0. Answers 1, or 0 if
    /// there is no such key.
    Expire {
        /// The key.
        key: &'a [u8],
        /// How long it lives from now on, in milliseconds.
        ttl_ms: i64,
    },
    /// The remaining life of a key, in milliseconds; -1 if it does not expire, -2 if it does not exist. Read-only.
    Ttl {
        /// The key.
        key: &'a [u8],
    },
    /// Removes a key's expiry. Answers 1, or 0 if there is no such key or it does not expire.
    Persist {
        /// The key.
        key: &'a [u8],
    },
    /// How many keys there are, how many of them expire, and how many pages the store takes: three
    /// numbers, as an [`Answer::Many`](super::Answer::Many). Read-only.
    Count,
    /// Removes everything.
    Clear,
    /// Operations and commands in order, each answered for itself in an
    /// [`Answer::Many`](super::Answer::Many). What the answer has no room for is not executed: the answer
    /// then has fewer items, but at least one. Read-only if all are.
    Many(Items<'a>),
}

/// When a value is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// If the key is not there.
    Absent,
    /// If the key is there.
    Present,
}

/// How an item of a list is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A key: two bytes of length.
    Key,
    /// Key, value, key, value.
    Pair,
    /// An operation: four bytes of length.
    Operation,
}

/// A list inside of a command, in its encoding. Never more than [`ITEMS_MAX`] items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Items<'a> {
    shape: Shape,
    bytes: &'a [u8],
    len: usize,
}

impl<'a> Items<'a> {
    /// Returns the list of these keys, encoded in `buffer`. The caller keeps keys below 64 KiB and their
    /// number within [`ITEMS_MAX`].
    pub fn keys(keys: impl IntoIterator<Item = impl AsRef<[u8]>>, buffer: &'a mut Vec<u8>) -> Self {
        Self::encode(Shape::Key, keys, buffer)
    }

    /// Returns the list of these keys and values in turn, encoded in `buffer`. The caller keeps the
    /// bounds of [`Self::keys`].
    pub fn pairs(items: impl IntoIterator<Item = impl AsRef<[u8]>>, buffer: &'a mut Vec<u8>) -> Self {
        Self::encode(Shape::Pair, items, buffer)
    }

    /// Returns the list of these encoded operations, encoded in `buffer`. The caller keeps the bounds.
    pub fn operations(items: impl IntoIterator<Item = impl AsRef<[u8]>>, buffer: &'a mut Vec<u8>) -> Self {
        Self::encode(Shape::Operation, items, buffer)
    }

    /// Returns the list without items.
    pub fn none() -> Self {
        Self { shape: Shape::Key, bytes: &[], len: 0 }
    }

    fn encode(
        shape: Shape,
        items: impl IntoIterator<Item = impl AsRef<[u8]>>,
        buffer: &'a mut Vec<u8>,
    ) -> Self {
        buffer.clear();
        let mut len = 0;
        for item in items {
            let item = item.as_ref();
            let mut out = Writer::new(buffer);
            if shape.is_key(len) {
                out.count16(item.len());
                out.bytes(item);
            } else {
                out.blob(item);
            }
            len += 1;
        }
        Self { shape, bytes: buffer, len }
    }

    /// Reads a list that reaches to the end and has at least one item.
    pub(super) fn decode(shape: Shape, reader: &mut Reader<'a>) -> Decoded<Self> {
        let bytes = reader.bytes(reader.len())?;
        let (mut rest, mut len) = (Reader::new(bytes), 0);
        while !rest.is_empty() {
            shape.take(len, &mut rest)?;
            len += 1;
            if len > ITEMS_MAX {
                return Err(DecodeError::NotCanonical);
            }
        }
        if len == 0 || (shape == Shape::Pair && len % 2 != 0) {
            return Err(DecodeError::NotCanonical);
        }
        Ok(Self { shape, bytes, len })
    }

    /// Returns the encoding.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the items in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (shape, mut rest, mut at) = (self.shape, Reader::new(self.bytes), 0);
        core::iter::from_fn(move || {
            let item = shape.take(at, &mut rest).ok()?;
            at += 1;
            Some(item)
        })
    }
}

impl Shape {
    /// Returns whether the item at `at` is a key.
    fn is_key(self, at: usize) -> bool {
        match self {
            Self::Key => true,
            Self::Pair => at.is_multiple_of(2),
            Self::Operation => false,
        }
    }

    fn take<'a>(self, at: usize, reader: &mut Reader<'a>) -> Decoded<&'a [u8]> {
        if self.is_key(at) { key(reader) } else { reader.blob(OPERATION_BYTES_MAX) }
    }
}

pub(super) fn key<'a>(reader: &mut Reader<'a>) -> Decoded<&'a [u8]> {
    let len = reader.count16(u16::MAX)?;
    reader.bytes(len)
}

impl<'a> Command<'a> {
    /// Appends the encoding. The caller keeps keys below 64 KiB and the whole within the longest
    /// operation.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut out = Writer::new(out);
        let one = |code, key: &[u8], out: &mut Writer<'_>| {
            out.u8(code);
            out.count16(key.len());
            out.bytes(key);
        };
        match *self {
            Self::Set { key, value, condition, ttl_ms, get } => {
                let condition = match condition {
                    None => 0,
                    Some(Condition::Absent) => 1,
                    Some(Condition::Present) => 2,
                };
                out.u8(16);
                out.u8(condition | u8::from(ttl_ms.is_some()) << 2 | u8::from(get) << 3);
                if let Some(ttl_ms) = ttl_ms {
                    out.u64(ttl_ms);
                }
                out.count16(key.len());
                out.bytes(key);
                out.bytes(value);
            }
            Self::GetDel { key } => one(17, key, &mut out),
            Self::Length { key } => one(18, key, &mut out),
            Self::Del(items) => list(19, &items, &mut out),
            Self::Exists(items) => list(20, &items, &mut out),
            Self::GetMany(items) => list(21, &items, &mut out),
            Self::SetMany(items) => list(22, &items, &mut out),
            Self::Expire { key, ttl_ms } => {
                out.u8(23);
                out.bytes(&ttl_ms.to_le_bytes());
                out.count16(key.len());
                out.bytes(key);
            }
            Self::Ttl { key } => one(24, key, &mut out),
            Self::Persist { key } => one(25, key, &mut out),
            Self::Count => out.u8(26),
            Self::Clear => out.u8(27),
            Self::Many(items) => list(28, &items, &mut out),
        }
    }

    /// Decodes all of `bytes`.
    ///
    /// # Errors
    ///
    /// They are not what [`Self::encode`] writes.
    pub fn decode(bytes: &'a [u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        let command = match r.u8()? {
            16 => {
                let flags = r.u8()?;
                let condition = match flags & 3 {
                    0 => None,
                    1 => Some(Condition::Absent),
                    2 => Some(Condition::Present),
                    _ => return Err(DecodeError::NotCanonical),
                };
                if flags > 15 {
                    return Err(DecodeError::NotCanonical);
                }
                let ttl_ms = if flags & 4 == 0 { None } else { Some(r.u64()?) };
                let key = key(r)?;
                Self::Set { key, value: r.bytes(r.len())?, condition, ttl_ms, get: flags & 8 != 0 }
            }
            17 => Self::GetDel { key: key(r)? },
            18 => Self::Length { key: key(r)? },
            19 => Self::Del(Items::decode(Shape::Key, r)?),
            20 => Self::Exists(Items::decode(Shape::Key, r)?),
            21 => Self::GetMany(Items::decode(Shape::Key, r)?),
            22 => Self::SetMany(Items::decode(Shape::Pair, r)?),
            23 => {
                let ttl_ms = i64::from_le_bytes(r.array()?);
                Self::Expire { ttl_ms, key: key(r)? }
            }
            24 => Self::Ttl { key: key(r)? },
            25 => Self::Persist { key: key(r)? },
            26 => Self::Count,
            27 => Self::Clear,
            28 => Self::Many(Items::decode(Shape::Operation, r)?),
            code => return Err(DecodeError::UnknownKind(code)),
        };
        reader.end()?;
        Ok(command)
    }
}

fn list(code: u8, items: &Items<'_>, out: &mut Writer<'_>) {
    out.u8(code);
    out.bytes(items.bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Xorshift;

    fn commands() -> Vec<Vec<u8>> {
        let (key, value) = (&b"key"[..], &b"value"[..]);
        let mut b = alloc::vec![Vec::new(); 6];
        let [b0, b1, b2, b3, b4, b5] = &mut b[..] else { unreachable!() };
        let set = |condition, ttl_ms, get| Command::Set { key, value, condition, ttl_ms, get };
        let all = [
            set(None, None, false),
            set(Some(Condition::Absent), Some(7), true),
            set(Some(Condition::Present), None, true),
            Command::GetDel { key },
            Command::Length { key },
            Command::Del(Items::keys([key, b""], b0)),
            Command::Exists(Items::keys([key], b1)),
            Command::GetMany(Items::keys([key, value], b2)),
            Command::SetMany(Items::pairs([key, value, b"", b""], b3)),
            Command::Expire { key, ttl_ms: -5 },
            Command::Ttl { key },
            Command::Persist { key },
            Command::Count,
            Command::Clear,
            Command::Many(Items::operations([[26], [27]], b4)),
            Command::Many(Items::operations([[26]], b5)),
        ];
        let encoded = all.iter().map(|command| {
            let mut bytes = Vec::new();
            command.encode(&mut bytes);
            assert_eq!(Command::decode(&bytes), Ok(*command));
            bytes
        });
        encoded.collect()
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        assert_eq!(commands().len(), 16);
    }

    /// B36: any bytes give a command or an error, and what is decoded has one encoding.
    #[test]
    fn decoding_is_total_and_canonical() {
        let (mut random, commands) = (Xorshift::new(3), commands());
        let mut decoded = 0;
        for round in 0..40_000 {
            let mut bytes = commands[round % commands.len()].clone();
            for _ in 0..random.below(3) {
                let at = usize::try_from(random.next() % 64).unwrap() % bytes.len();
                bytes[at] = u8::try_from(random.below(256)).unwrap();
            }
            if random.below(4) == 0 {
                bytes.truncate(usize::try_from(random.below(20)).unwrap());
            }
            if let Ok(command) = Command::decode(&bytes) {
                decoded += 1;
                let mut again = Vec::new();
                command.encode(&mut again);
                assert_eq!(again, bytes);
            }
        }
        assert!(decoded > 10_000, "{decoded}");
    }

    #[test]
    fn a_list_has_items_and_pairs_are_whole() {
        for bytes in [&[19][..], &[28], &[22, 1, 0, b'k'], &[16, 3, 0, 0], &[16, 16, 0, 0], &[29]] {
            assert!(Command::decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
