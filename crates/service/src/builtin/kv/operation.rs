//! Operations on the store and its answers, with their encoding.
//!
//! ```text
//! operation   code 1 | key len 2 | key | rest
//!   1 get -   2 put value   3 del -   4 cas (0 | 1 len 4 expected) value   5 incr by 8   6 append suffix
//! answer      0 done   1 nil   2 value bytes   3 failed why 1   4 many: len 4 | answer
//! ```
//!
//! Values and suffixes reach to the end. Decoding is total: any bytes give an operation or an error.

use alloc::vec::Vec;

use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};
use quorate_wire::message::{OPERATION_BYTES_MAX, RESULT_BYTES_MAX};

/// The operations of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The value of a key. Read-only.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Sets the value of a key.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// Removes a key.
    Del {
        /// The key.
        key: &'a [u8],
    },
    /// Sets the value of a key if it has the expected one.
    Cas {
        /// The key.
        key: &'a [u8],
        /// The expected value; none: absent.
        expected: Option<&'a [u8]>,
        /// The new value.
        value: &'a [u8],
    },
    /// Adds to the decimal number that is the value of a key; an absent one counts as 0.
    Incr {
        /// The key.
        key: &'a [u8],
        /// How much to add.
        by: i64,
    },
    /// Appends to the value of a key; an absent one counts as empty.
    Append {
        /// The key.
        key: &'a [u8],
        /// The bytes to append.
        suffix: &'a [u8],
    },
}

/// The answers of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// Done.
    Done,
    /// There is no such key.
    Nil,
    /// The value asked for; for `Incr` the new number in decimal; for `Append` the new length in
    /// decimal.
    Value(&'a [u8]),
    /// Nothing was changed.
    Failed(Failure),
    /// The answers to many questions, in order.
    Many(Answers<'a>),
}

/// Answers in a row, in their encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answers<'a> {
    bytes: &'a [u8],
}

impl<'a> Answers<'a> {
    /// Reads answers that reach to the end.
    fn decode(bytes: &'a [u8]) -> Decoded<Self> {
        let mut rest = Reader::new(bytes);
        while !rest.is_empty() {
            rest.blob(RESULT_BYTES_MAX)?;
        }
        Ok(Self { bytes })
    }

    /// Returns the answers in order, each in its encoding.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = Reader::new(self.bytes);
        core::iter::from_fn(move || rest.blob(RESULT_BYTES_MAX).ok())
    }
}

/// Why nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Failure {
    /// The operation cannot be decoded.
    Malformed = 0,
    /// The key is longer than the store takes.
    KeyTooLong = 1,
    /// The value is longer than the store takes.
    ValueTooLong = 2,
    /// `Cas`: the value is another.
    Mismatch = 3,
    /// The value that is added to is no number.
    NotANumber = 4,
    /// `Incr`: the sum does not fit in 64 bits.
    Overflow = 5,
    /// The store is full.
    Full = 6,
    /// Nothing but an ordered request can tell: ask again, ordered. Given to unordered requests alone.
    NeedsOrder = 7,
    /// The key would expire beyond all time.
    BadTtl = 8,
    /// The answer is longer than an answer may be.
    AnswerTooLong = 9,
    /// `AddDecimal`: the value is no decimal fraction.
    NotADecimal = 10,
    /// The value is of another kind: a hash, a set or a string.
    WrongKind = 11,
    /// The hash, set or list would have more elements than one may have, or the question looks at too many.
    TooManyElements = 12,
}

impl Failure {
    /// Every failure, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Malformed,
        Self::KeyTooLong,
        Self::ValueTooLong,
        Self::Mismatch,
        Self::NotANumber,
        Self::Overflow,
        Self::Full,
        Self::NeedsOrder,
        Self::BadTtl,
        Self::AnswerTooLong,
        Self::NotADecimal,
        Self::WrongKind,
        Self::TooManyElements,
    ];

    /// Returns the error text.
    pub fn text(self) -> &'static str {
        match self {
            Self::Malformed => "not an operation",
            Self::KeyTooLong => "key too long",
            Self::ValueTooLong => "value too long",
            Self::Mismatch => "another value",
            Self::NotANumber => "not a number",
            Self::Overflow => "number out of range",
            Self::Full => "store full",
            Self::NeedsOrder => "ask again, ordered",
            Self::BadTtl => "time out of range",
            Self::AnswerTooLong => "answer too long",
            Self::NotADecimal => "not a decimal fraction",
            Self::WrongKind => "a value of another kind",
            Self::TooManyElements => "too many elements",
        }
    }
}

impl<'a> Operation<'a> {
    /// Returns the key.
    pub fn key(&self) -> &'a [u8] {
        match *self {
            Self::Get { key }
            | Self::Put { key, .. }
            | Self::Del { key }
            | Self::Cas { key, .. }
            | Self::Incr { key, .. }
            | Self::Append { key, .. } => key,
        }
    }

    /// Appends the encoding. The caller keeps keys below 64 KiB and the whole within the longest
    /// operation.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut out = Writer::new(out);
        let mut head = |code, key: &[u8]| {
            out.u8(code);
            out.count16(key.len());
            out.bytes(key);
        };
        match *self {
            Self::Get { key } => head(1, key),
            Self::Put { key, value } => {
                head(2, key);
                out.bytes(value);
            }
            Self::Del { key } => head(3, key),
            Self::Cas { key, expected, value } => {
                head(4, key);
                out.u8(u8::from(expected.is_some()));
                if let Some(expected) = expected {
                    out.blob(expected);
                }
                out.bytes(value);
            }
            Self::Incr { key, by } => {
                head(5, key);
                out.bytes(&by.to_le_bytes());
            }
            Self::Append { key, suffix } => {
                head(6, key);
                out.bytes(suffix);
            }
        }
    }

    /// Decodes all of `bytes`.
    ///
    /// # Errors
    ///
    /// They are not what [`Self::encode`] writes.
    pub fn decode(bytes: &'a [u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        let code = reader.u8()?;
        let key_len = reader.count16(u16::MAX)?;
        let key = reader.bytes(key_len)?;
        let operation = match code {
            1 => Self::Get { key },
            2 => Self::Put { key, value: reader.bytes(reader.len())? },
            3 => Self::Del { key },
            4 => {
                let expected = if reader.bool()? { Some(reader.blob(OPERATION_BYTES_MAX)?) } else { None };
                Self::Cas { key, expected, value: reader.bytes(reader.len())? }
            }
            5 => Self::Incr { key, by: i64::from_le_bytes(reader.array()?) },
            6 => Self::Append { key, suffix: reader.bytes(reader.len())? },
            _ => return Err(DecodeError::UnknownKind(code)),
        };
        reader.end()?;
        Ok(operation)
    }
}

impl<'a> Answer<'a> {
    /// Appends the beginning of an [`Answer::Value`]: its bytes follow.
    pub(super) fn begin_value(out: &mut Vec<u8>) {
        out.push(2);
    }

    /// Appends the beginning of an [`Answer::Many`]: [`Self::add`] follows.
    pub(super) fn begin_many(out: &mut Vec<u8>) {
        out.push(4);
    }

    /// Appends one answer to an [`Answer::Many`]: what `write` appends.
    pub(super) fn add<E>(
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        write(out)?;
        let len = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
        out[at..at + 4].copy_from_slice(&len.to_le_bytes());
        Ok(())
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Done => out.push(0),
            Self::Nil => out.push(1),
            Self::Value(value) => {
                Self::begin_value(out);
                out.extend_from_slice(value);
            }
            Self::Failed(failure) => out.extend_from_slice(&[3, failure as u8]),
            Self::Many(answers) => {
                Self::begin_many(out);
                out.extend_from_slice(answers.bytes);
            }
        }
    }

    /// Decodes all of `bytes`.
    ///
    /// # Errors
    ///
    /// They are not what [`Self::encode`] writes.
    pub fn decode(bytes: &'a [u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        let answer = match reader.u8()? {
            0 => Self::Done,
            1 => Self::Nil,
            2 => Self::Value(reader.bytes(reader.len())?),
            3 => {
                let number = usize::from(reader.u8()?);
                Self::Failed(*Failure::ALL.get(number).ok_or(DecodeError::NotCanonical)?)
            }
            4 => Self::Many(Answers::decode(reader.bytes(reader.len())?)?),
            code => return Err(DecodeError::UnknownKind(code)),
        };
        reader.end()?;
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Xorshift;

    fn operations() -> [Operation<'static>; 8] {
        let key = &b"key"[..];
        [
            Operation::Get { key },
            Operation::Get { key: b"" },
            Operation::Put { key, value: b"value" },
            Operation::Del { key },
            Operation::Cas { key, expected: None, value: b"new" },
            Operation::Cas { key, expected: Some(b"old"), value: b"" },
            Operation::Incr { key, by: -3 },
            Operation::Append { key, suffix: b"more" },
        ]
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for operation in operations() {
            let mut bytes = Vec::new();
            operation.encode(&mut bytes);
            assert_eq!(Operation::decode(&bytes), Ok(operation));
        }
        let failures = Failure::ALL.map(Answer::Failed);
        let many = Answer::Many(Answers { bytes: &[1, 0, 0, 0, 1, 2, 0, 0, 0, 2, b'x'] });
        for answer in
            [Answer::Done, Answer::Nil, Answer::Value(b""), Answer::Value(b"x"), many].iter().chain(&failures)
        {
            let mut bytes = Vec::new();
            answer.encode(&mut bytes);
            assert_eq!(Answer::decode(&bytes), Ok(*answer));
        }
    }

    /// B36: any bytes give an operation or an error, and what is decoded has one encoding.
    #[test]
    fn decoding_is_total_and_canonical() {
        let mut random = Xorshift::new(1);
        for round in 0..20_000 {
            let mut bytes = Vec::new();
            operations()[round % 8].encode(&mut bytes);
            for _ in 0..random.below(3) {
                let at = usize::try_from(random.next() % 64).unwrap() % bytes.len();
                bytes[at] = u8::try_from(random.below(256)).unwrap();
            }
            bytes.truncate(usize::try_from(random.below(20)).unwrap());
            if let Ok(operation) = Operation::decode(&bytes) {
                let mut again = Vec::new();
                operation.encode(&mut again);
                assert_eq!(again, bytes);
            }
        }
    }
}
