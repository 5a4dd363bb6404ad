//! Keys and values of the trees: numbers in bytes, and values that stand next to their keys.

use quorate_service::btree::{Cursor, Value};
use quorate_service::{Stop, View};

/// Returns a value that is stored inline with its key, as all values here are.
pub(crate) fn inline<'v>(value: &Value<'v>) -> Result<&'v [u8], Stop> {
    match value {
        Value::Inline(bytes) => Ok(bytes),
        Value::Large(_) => Err(Stop::Corrupt),
    }
}

/// The rest of a key after the prefix, and the value.
type Pair<'v> = (&'v [u8], &'v [u8]);

/// Returns the next key with its value, and advances past it, as long as it starts with `prefix`.
pub(crate) fn next_of<'v>(
    cursor: &mut Cursor,
    view: &'v View<'_>,
    prefix: &[u8],
) -> Result<Option<Pair<'v>>, Stop> {
    let Some((key, value)) = cursor.next(view)? else { return Ok(None) };
    match key.strip_prefix(prefix) {
        Some(rest) => Ok(Some((rest, inline(&value)?))),
        None => Ok(None),
    }
}

/// Returns the key of two numbers.
pub(crate) fn pair_key(first: u64, second: u64) -> [u8; 16] {
    (u128::from(first) << 64 | u128::from(second)).to_be_bytes()
}

pub(crate) fn le64(bytes: &[u8], at: usize) -> Result<u64, Stop> {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map(|b| u64::from_le_bytes(*b)).ok_or(Stop::Corrupt)
}

pub(crate) fn le32(bytes: &[u8], at: usize) -> Result<u32, Stop> {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map(|b| u32::from_le_bytes(*b)).ok_or(Stop::Corrupt)
}

pub(crate) fn be64(bytes: &[u8]) -> Result<u64, Stop> {
    bytes.first_chunk().map(|b| u64::from_be_bytes(*b)).ok_or(Stop::Corrupt)
}
