//! What the files of the store share: its limits, why an operation fails, and numbers as text.

use alloc::vec::Vec;
use core::fmt::Write as _;

use quorate_wire::message::OPERATION_BYTES_MAX;

use super::operation::{Answer, Failure};
use crate::state::space::StoreError;
use crate::stop::Stop;

/// The longest value, in bytes: one that was appended to must still fit in an operation and a result.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of keys or elements that one scan looks at.
pub(super) const SCAN_MAX: u32 = 10_000;
/// An answer to many operations that is as long as this, in bytes, takes no more: it fits in a datagram
/// with the rest of a REPLY, and replicas keep it (`RESULT_CACHE`).
pub(super) const MANY_BYTES_MAX: usize = 32 << 10;
const _: () = assert!(VALUE_BYTES_MAX + 2048 < OPERATION_BYTES_MAX);

/// Why an operation does not do what it was to do.
#[derive(Debug)]
pub(super) enum KvError {
    Failure(Failure),
    /// It looks at too many elements. A transaction fails as a whole then.
    TooMuch,
    Stop(Stop),
}

impl KvError {
    /// Returns why the operation fails, if it does not stop.
    pub(super) fn failure(self) -> Result<Failure, Stop> {
        match self {
            Self::Failure(failure) => Ok(failure),
            Self::TooMuch => Ok(Failure::TooManyElements),
            Self::Stop(stop) => Err(stop),
        }
    }
}

impl From<Stop> for KvError {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<StoreError> for KvError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full => Self::Failure(Failure::Full),
            StoreError::KeyTooLong => Self::Failure(Failure::KeyTooLong),
            StoreError::Stop(stop) => Self::Stop(stop),
        }
    }
}

/// Appends answers as one.
pub(super) fn many<'a>(answers: impl Iterator<Item = Answer<'a>>, out: &mut Vec<u8>) -> Result<(), KvError> {
    Answer::begin_many(out);
    for answer in answers {
        Answer::add(out, |out| {
            answer.encode(out);
            Ok::<(), KvError>(())
        })?;
    }
    Ok(())
}

/// Appends a number as an answer.
pub(super) fn number(number: usize, out: &mut Vec<u8>) {
    Answer::Value(decimal(i64::try_from(number).unwrap_or(i64::MAX)).as_bytes()).encode(out);
}

/// Reads a decimal number as [`decimal`] writes it: no sign but a minus, no leading zero, no blank.
pub(super) fn parse(text: &[u8]) -> Option<i64> {
    let number = core::str::from_utf8(text).ok()?.parse().ok()?;
    (decimal(number).as_bytes() == text).then_some(number)
}

pub(super) fn decimal(number: i64) -> alloc::string::String {
    let mut text = alloc::string::String::new();
    // Writing to a string does not fail.
    let _ = write!(text, "{number}");
    text
}
