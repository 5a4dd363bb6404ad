//! Further commands of Redis: those with more options, and those over many keys or databases.
//!
//! ```text
//! further     code 1 | rest                          codes from 64 on; a key is two bytes of length, and itself
//!   64 set        flags 1 (1 if absent, 2 if present, 4 old value) | life | key | value
//!   65 get-ex     life | key
//!   66 expire     rule 1 | base 1 (0 now, 1 since 1970) | time 8 | key
//!   67 deadline   key                                68 add decimal     key | decimal
//!   69 range      start 8 | end 8 | key              70 overwrite       offset 4 | key | value
//!   71 set absent pairs
//!   72 copy       flags 1 (1 replace, 2 remove, 4 to a database) | [database 1] | key | key
//!   73 remove if  key | value                        74 expire if       how 1 | time 8 | key | value
//!   75 scan       keys 4 | all + 2 kind 1 | key | pattern     76 random   -
//!   77 time       -                                  78 mark            keys
//!   79 all        checks 2 | (mark 16, len 4 | operation) ... | (len 4 | operation) ...
//!   80 in         database 1 | operation             81 clear one       -
//!   82 set bit    bit 1 | place 4 | key               83 usage         key
//! kind        0 any   1 hash   2 set   3 string   4 list
//! life        0 forever   1 as before   2 from now, 8   3 until, 8
//! ```
//!
//! Times are in milliseconds; those since 1970 are of the agreed clock.

use alloc::vec::Vec;

use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};

use super::all::All;
use super::command::{Condition, Items, Shape, key};
use super::elements::Container;
use super::pattern;

/// The first code.
pub(super) const CODE_MIN: u8 = 64;
/// Number of databases.
pub const DATABASES: u8 = 16;
/// How long a value lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Until it is removed.
    Forever,
    /// As long as the value before.
    AsBefore,
    /// For these milliseconds, at least 1.
    For(u64),
    /// Until this time, in milliseconds since 1970; not 0.
    Until(u64),
}

/// When a deadline is set. The sum of [`Self::ABSENT`] and the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule(pub u8);

impl Rule {
    /// If there is none.
    pub const ABSENT: u8 = 1;
    /// If there is one.
    pub const PRESENT: u8 = 2;
    /// If it becomes later; none is the latest.
    pub const LATER: u8 = 4;
    /// If it becomes earlier.
    pub const EARLIER: u8 = 8;

    /// Returns whether a key whose deadline is `old` gets the deadline `new`.
    pub(super) fn allows(self, old: Option<u64>, new: i64) -> bool {
        let has = |rule| self.0 & rule != 0;
        let old_ms = old.map(|at| i64::try_from(at).unwrap_or(i64::MAX));
        !(has(Self::ABSENT) && old.is_some()
            || has(Self::PRESENT) && old.is_none()
            || has(Self::LATER) && old_ms.is_none_or(|old| new <= old)
            || has(Self::EARLIER) && old_ms.is_some_and(|old| new >= old))
    }
}

/// The kinds of values that a scan passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// All of them.
    Any,
    /// Hashes, sets or lists.
    Made(Container),
    /// Strings.
    String,
}

impl Sort {
    const STRING: u8 = 3;

    /// Returns whether a value is of this kind: none is a string.
    pub(super) fn has(self, kind: Option<Container>) -> bool {
        match self {
            Self::Any => true,
            Self::Made(wanted) => kind == Some(wanted),
            Self::String => kind.is_none(),
        }
    }

    fn read(number: u8) -> Decoded<Self> {
        match (number, Container::read(number)) {
            (0, _) => Ok(Self::Any),
            (_, Some(kind)) => Ok(Self::Made(kind)),
            (Self::STRING, None) => Ok(Self::String),
            _ => Err(DecodeError::NotCanonical),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Any => 0,
            Self::Made(kind) => kind as u8,
            Self::String => Self::STRING,
        }
    }
}

/// What a lock's script does with a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Extend {
    /// The key lives for the time from now on.
    From,
    /// The time is added to what the key has left. A key without a deadline stays as it is.
    By,
    /// As [`Self::From`], but a key without a deadline stays as it is.
    Again,
}

/// Requests to the store other than an [`Operation`](super::Operation) or a [`Command`](super::Command). Answers are
/// an [`Answer::Value`](super::Answer::Value) with a decimal number where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Further<'a> {
    /// As [`Command::Set`](super::Command::Set), with any life.
    Set {
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// When it is set.
        condition: Option<Condition>,
        /// How long it lives.
        life: Life,
        /// Answers the value before.
        get: bool,
    },
    /// The value of a key, whose life changes; nil if there is none.
    GetEx {
        /// The key.
        key: &'a [u8],
        /// How long it lives.
        life: Life,
    },
    /// Sets when a key expires, if the rule allows. Answers 1, or 0.
    Expire {
        /// The key.
        key: &'a [u8],
        /// The time in milliseconds.
        time_ms: i64,
        /// Whether the time is since 1970, or from now on.
        since_1970: bool,
        /// When it is set.
        rule: Rule,
    },
    /// When a key expires, in milliseconds since 1970; -1 if it does not, -2 if there is none. Read-only.
    Deadline {
        /// The key.
        key: &'a [u8],
    },
    /// Adds to the decimal fraction that is the value of a key, and answers the sum.
    AddDecimal {
        /// The key.
        key: &'a [u8],
        /// How much to add.
        by: &'a [u8],
    },
    /// The bytes from `start` to `end` of a value; negative ones count from its end. Read-only.
    Range {
        /// The key.
        key: &'a [u8],
        /// The first byte.
        start: i64,
        /// The last byte.
        end: i64,
    },
    /// Overwrites bytes of a value, which grows if need be. Answers the new length.
    Overwrite {
        /// The key.
        key: &'a [u8],
        /// The first byte.
        offset: u32,
        /// The bytes.
        value: &'a [u8],
    },
    /// Sets the values of keys if none of them is there. Answers 1, or 0.
    SetAbsent(Items<'a>),
    /// Copies a key with its deadline. Answers 1; 0 if the other is there and not replaced; nil if there is no such key.
    Copy {
        /// The number of the other key's database; none: the database of the key.
        database: Option<u8>,
        /// The key.
        from: &'a [u8],
        /// The other key.
        to: &'a [u8],
        /// Whether the other key is replaced.
        replace: bool,
        /// Whether the key is removed.
        remove: bool,
    },
    /// Removes a key if it has this value. Answers 1, or 0.
    RemoveIf {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// Sets when a key expires if it has this value. Answers 1, or 0.
    ExpireIf {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// How the time is meant.
        how: Extend,
        /// The time, in milliseconds.
        time_ms: i64,
    },
    /// Keys from `from` on, at most `count` of them, without those that the pattern does not match: the first key of
    /// those that were not looked at, or nil; then the keys, as an [`Answer::Many`](super::Answer::Many). Read-only.
    Scan {
        /// The first key.
        from: &'a [u8],
        /// How many keys are looked at.
        count: u32,
        /// Whether all of them have to be answered: fails if there are more.
        all: bool,
        /// The kind of the keys' values.
        kind: Sort,
        /// The pattern, as Redis has it. At most [`PATTERN_BYTES_MAX`](super::PATTERN_BYTES_MAX) bytes.
        pattern: &'a [u8],
    },
    /// Some key, or nil.
    Random,
    /// The agreed time, in microseconds since 1970.
    Time,
    /// A digest of what these keys are, of [`MARK_BYTES`](super::MARK_BYTES) bytes. Read-only.
    Mark(Items<'a>),
    /// A transaction.
    All(All<'a>),
    /// An operation on another database than number 0.
    In {
        /// The number of the database, from 1.
        database: u8,
        /// The operation, encoded.
        operation: &'a [u8],
    },
    /// Removes everything from a database.
    ClearOne,
    /// The bytes of a key and of its value, or of its elements; nil if there is none. Read-only.
    Usage {
        /// The key.
        key: &'a [u8],
    },
    /// Sets a bit of a value, which grows if need be. Answers the bit before.
    SetBit {
        /// The key.
        key: &'a [u8],
        /// The place of the bit: 0 is the most significant one of the first byte.
        place: u32,
        /// The bit.
        is_set: bool,
    },
}

impl Life {
    fn encode(self, out: &mut Writer<'_>) {
        match self {
            Self::Forever => out.u8(0),
            Self::AsBefore => out.u8(1),
            Self::For(ms) => {
                out.u8(2);
                out.u64(ms);
            }
            Self::Until(ms) => {
                out.u8(3);
                out.u64(ms);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        Ok(match reader.u8()? {
            0 => Self::Forever,
            1 => Self::AsBefore,
            2 => Self::For(reader.u64()?),
            3 => Self::Until(reader.u64()?),
            _ => return Err(DecodeError::NotCanonical),
        })
    }
}

/// Reads flags, of which only these may be set.
fn flags(reader: &mut Reader<'_>, max: u8) -> Decoded<u8> {
    let flags = reader.u8()?;
    if flags > max { Err(DecodeError::NotCanonical) } else { Ok(flags) }
}

impl<'a> Further<'a> {
    /// The code of [`Self::In`]: it, the number of the database, and an operation are an operation.
    pub const IN_CODE: u8 = 80;

    /// Appends the encoding. The caller keeps keys below 64 KiB and the whole within the longest operation.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        let out = &mut writer;
        let key = |key: &[u8], out: &mut Writer<'_>| {
            out.count16(key.len());
            out.bytes(key);
        };
        out.u8(self.code());
        match *self {
            Self::Set { key: k, value, condition, life, get } => {
                let condition = match condition {
                    None => 0,
                    Some(Condition::Absent) => 1,
                    Some(Condition::Present) => 2,
                };
                out.u8(condition | u8::from(get) << 2);
                life.encode(out);
                key(k, out);
                out.bytes(value);
            }
            Self::GetEx { key: k, life } => {
                life.encode(out);
                key(k, out);
            }
            Self::Expire { key: k, time_ms, since_1970, rule } => {
                out.u8(rule.0);
                out.u8(u8::from(since_1970));
                out.bytes(&time_ms.to_le_bytes());
                key(k, out);
            }
            Self::Deadline { key: k } | Self::Usage { key: k } => key(k, out),
            Self::AddDecimal { key: k, by } => {
                key(k, out);
                out.bytes(by);
            }
            Self::Range { key: k, start, end } => {
                out.bytes(&start.to_le_bytes());
                out.bytes(&end.to_le_bytes());
                key(k, out);
            }
            Self::Overwrite { key: k, offset, value } => {
                out.bytes(&offset.to_le_bytes());
                key(k, out);
                out.bytes(value);
            }
            Self::SetAbsent(items) | Self::Mark(items) => out.bytes(items.bytes()),
            Self::Copy { from, to, database, replace, remove } => {
                out.u8(u8::from(replace) | u8::from(remove) << 1 | u8::from(database.is_some()) << 2);
                if let Some(database) = database {
                    out.u8(database);
                }
                key(from, out);
                key(to, out);
            }
            Self::RemoveIf { key: k, value } => {
                key(k, out);
                out.bytes(value);
            }
            Self::ExpireIf { key: k, value, how, time_ms } => {
                out.u8(how as u8);
                out.bytes(&time_ms.to_le_bytes());
                key(k, out);
                out.bytes(value);
            }
            Self::Scan { from, count, all, kind, pattern } => {
                out.bytes(&count.to_le_bytes());
                out.u8(u8::from(all) | kind.number() << 1);
                key(from, out);
                out.bytes(pattern);
            }
            Self::All(all) => all.encode(out),
            Self::In { database, operation } => {
                out.u8(database);
                out.bytes(operation);
            }
            Self::SetBit { key: k, place, is_set } => {
                out.u8(u8::from(is_set));
                out.bytes(&place.to_le_bytes());
                key(k, out);
            }
            Self::Random | Self::Time | Self::ClearOne => {}
        }
    }

    fn code(&self) -> u8 {
        match self {
            Self::Set { .. } => 64,
            Self::GetEx { .. } => 65,
            Self::Expire { .. } => 66,
            Self::Deadline { .. } => 67,
            Self::AddDecimal { .. } => 68,
            Self::Range { .. } => 69,
            Self::Overwrite { .. } => 70,
            Self::SetAbsent(_) => 71,
            Self::Copy { .. } => 72,
            Self::RemoveIf { .. } => 73,
            Self::ExpireIf { .. } => 74,
            Self::Scan { .. } => 75,
            Self::Random => 76,
            Self::Time => 77,
            Self::Mark(_) => 78,
            Self::All(_) => 79,
            Self::In { .. } => 80,
            Self::ClearOne => 81,
            Self::SetBit { .. } => 82,
            Self::Usage { .. } => 83,
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
        let number = |r: &mut Reader<'_>| Ok::<_, DecodeError>(i64::from_le_bytes(r.array()?));
        let further = match r.u8()? {
            64 => {
                let flags = flags(r, 7)?;
                let condition = match flags & 3 {
                    0 => None,
                    1 => Some(Condition::Absent),
                    2 => Some(Condition::Present),
                    _ => return Err(DecodeError::NotCanonical),
                };
                let life = Life::decode(r)?;
                Self::Set { key: key(r)?, value: r.bytes(r.len())?, condition, life, get: flags & 4 != 0 }
            }
            65 => Self::GetEx { life: Life::decode(r)?, key: key(r)? },
            66 => {
                let (rule, since_1970) = (Rule(flags(r, 15)?), r.bool()?);
                Self::Expire { time_ms: number(r)?, key: key(r)?, since_1970, rule }
            }
            67 => Self::Deadline { key: key(r)? },
            68 => Self::AddDecimal { key: key(r)?, by: r.bytes(r.len())? },
            69 => Self::Range { start: number(r)?, end: number(r)?, key: key(r)? },
            70 => {
                let offset = u32::from_le_bytes(r.array()?);
                Self::Overwrite { offset, key: key(r)?, value: r.bytes(r.len())? }
            }
            71 => Self::SetAbsent(Items::decode(Shape::Pair, r)?),
            72 => {
                let flags = flags(r, 7)?;
                let database = if flags & 4 == 0 { None } else { Some(r.u8()?) };
                if database.is_some_and(|database| database >= DATABASES) {
                    return Err(DecodeError::NotCanonical);
                }
                let (replace, remove) = (flags & 1 != 0, flags & 2 != 0);
                Self::Copy { database, from: key(r)?, to: key(r)?, replace, remove }
            }
            73 => Self::RemoveIf { key: key(r)?, value: r.bytes(r.len())? },
            74 => {
                let how = [Extend::From, Extend::By, Extend::Again][usize::from(flags(r, 2)?)];
                Self::ExpireIf { how, time_ms: number(r)?, key: key(r)?, value: r.bytes(r.len())? }
            }
            75 => {
                let count = u32::from_le_bytes(r.array()?);
                let flags = flags(r, 15)?;
                let (all, kind) = (flags & 1 != 0, Sort::read(flags >> 1)?);
                Self::Scan { count, all, kind, from: key(r)?, pattern: pattern::read(r.bytes(r.len())?)? }
            }
            76 => Self::Random,
            77 => Self::Time,
            78 => Self::Mark(Items::decode(Shape::Key, r)?),
            79 => Self::All(All::decode(r)?),
            80 => {
                let database = r.u8()?;
                if !(1..DATABASES).contains(&database) {
                    return Err(DecodeError::NotCanonical);
                }
                let operation = r.bytes(r.len())?;
                // Whether it is an operation is checked by `Asked`. What is taken apart elsewhere, or has a database already, is none in a database. The first byte
                // tells: the depth of the recursion is 2.
                if operation.first().is_none_or(|code| matches!(code, 28 | 79 | 80)) {
                    return Err(DecodeError::NotCanonical);
                }
                Self::In { database, operation }
            }
            81 => Self::ClearOne,
            82 => Self::SetBit { is_set: r.bool()?, place: u32::from_le_bytes(r.array()?), key: key(r)? },
            83 => Self::Usage { key: key(r)? },
            code => return Err(DecodeError::UnknownKind(code)),
        };
        reader.end()?;
        Ok(further)
    }
}
