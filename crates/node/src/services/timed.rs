//! The null service with operations that wait, for measurements of slow operations [CBASE04 §6.1].
//!
//! ```text
//! result length 4 | 2 | microseconds 4 | key 8 | padding
//! ```
//!
//! Such an operation waits as if for a disk, and returns zeros. Operations with the same key depend on each other; key
//! 0 is nobody's. All other operations are those of [`Null`].

use std::time::Duration;

use quorate_service::null::Null;
use quorate_service::{Access, Context, Service, Stop, View};

/// Where [`Null`] says whether an operation is read-only, and the value there that says that it waits.
const KIND_AT: usize = 4;
const WAITS: u8 = 2;
/// An operation that waits for less is not worth a hand-over to another thread, in microseconds.
const LONG_US: u32 = 20;
/// The longest wait, in microseconds.
const WAIT_US_MAX: u32 = 10_000_000;
/// Bytes of such an operation without its padding.
const BYTES_MIN: usize = 17;

/// The service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timed;

/// Appends an operation that waits, of at least `argument_bytes`.
pub fn operation(argument_bytes: usize, result_bytes: u32, wait_us: u32, key: u64, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&result_bytes.to_le_bytes());
    out.push(WAITS);
    out.extend_from_slice(&wait_us.to_le_bytes());
    out.extend_from_slice(&key.to_le_bytes());
    out.resize(start + argument_bytes.max(BYTES_MIN), 0);
}

/// Returns the time and the key of an operation that waits.
fn decode(operation: &[u8]) -> Option<(u32, u64)> {
    let (kind, rest) = operation.get(KIND_AT..)?.split_first()?;
    let (wait_us, rest) = rest.split_first_chunk()?;
    let (wait_us, key) = (u32::from_le_bytes(*wait_us), u64::from_le_bytes(*rest.first_chunk()?));
    (*kind == WAITS && wait_us <= WAIT_US_MAX).then_some((wait_us, key))
}

impl Service for Timed {
    fn is_read_only(&self, operation: &[u8]) -> bool {
        Null.is_read_only(operation)
    }

    fn access(&self, operation: &[u8], keys: &mut Access) {
        let Some((wait_us, key)) = decode(operation) else { return Null.access(operation, keys) };
        if key > 0 {
            keys.write(key);
        }
        if wait_us >= LONG_US {
            keys.long();
        }
    }

    fn cost(&self, _operation: &[u8], _page_bytes: usize) -> Option<u32> {
        Some(0)
    }

    fn execute(
        &self,
        cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let Some((wait_us, _)) = decode(operation) else { return Null.execute(cx, operation, state, out) };
        std::thread::sleep(Duration::from_micros(u64::from(wait_us)));
        let mut plain = operation.to_vec();
        plain[KIND_AT] = 0;
        Null.execute(cx, &plain, state, out)
    }
}

#[cfg(test)]
mod tests {
    use quorate_service::Effort;

    use super::*;

    #[test]
    fn an_operation_that_waits_has_a_key_and_is_long() {
        let mut bytes = Vec::new();
        operation(0, 8, 20, 7, &mut bytes);
        let declared = |bytes: &[u8]| {
            let mut access = Access::new();
            Timed.access(bytes, &mut access);
            (access.keys().map(<[_]>::len), access.effort())
        };
        assert_eq!((declared(&bytes), Timed.is_read_only(&bytes)), ((Some(1), Effort::Long), false));
        bytes.clear();
        operation(0, 8, 19, 0, &mut bytes);
        assert_eq!(declared(&bytes), (Some(0), Effort::Short));
        bytes.truncate(BYTES_MIN - 1);
        assert_eq!(decode(&bytes), None);
        // What the null service has always understood.
        assert_eq!(decode(&[8, 0, 0, 0, 0]), None);
    }
}
