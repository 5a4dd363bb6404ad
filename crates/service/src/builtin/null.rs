//! The null service of the papers' micro-benchmarks: operation a/b takes `a` KB and returns `b` KB
//! [OSDI99 §7.2].

use alloc::vec::Vec;

use quorate_wire::message::RESULT_BYTES_MAX;

use crate::service::{Access, Context, Service};

use crate::state::view::View;
use crate::stop::Stop;

/// Bytes of an operation before its padding: `result length 4 | read-only 1`.
pub const OPERATION_BYTES_MIN: usize = 5;

/// A service that keeps no state and answers with zeros.
#[derive(Clone, Copy, Debug, Default)]
pub struct Null;

/// Appends an operation of at least `argument_bytes` that asks for `result_bytes`.
pub fn operation(argument_bytes: usize, result_bytes: u32, read_only: bool, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&result_bytes.to_le_bytes());
    out.push(u8::from(read_only));
    out.resize(start + argument_bytes.max(OPERATION_BYTES_MIN), 0);
}

/// Returns the length of the result that an operation asks for; none if it is malformed.
pub fn result_bytes(operation: &[u8]) -> Option<usize> {
    decode(operation).map(|(len, _)| len)
}

/// Returns the length of the result and whether the operation is read-only; none if it is malformed.
fn decode(operation: &[u8]) -> Option<(usize, bool)> {
    let (len, rest) = operation.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    let read_only = match rest.first()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    (len <= RESULT_BYTES_MAX).then_some((len, read_only))
}

impl Service for Null {
    fn is_read_only(&self, operation: &[u8]) -> bool {
        decode(operation).is_some_and(|(_, read_only)| read_only)
    }

    /// Operations of a service without state never conflict.
    fn access(&self, _operation: &[u8], _keys: &mut Access) {}

    fn execute(
        &self,
        _cx: Context,
        operation: &[u8],
        _state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let (len, _) = decode(operation).ok_or(Stop::Refused)?;
        out.resize(len, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use quorate_wire::{ClientId, SeqNum, Timestamp};

    fn perform(operation: &[u8]) -> (Result<(), Stop>, usize) {
        let cx = Context {
            client: ClientId::new(1, 0),
            timestamp: Timestamp(1),
            seq: SeqNum(1),
            index: 0,
            time_ns: 0,
            read_only: false,
        };
        let mut out = Vec::new();
        let done = Bench::new(64).run(|view| Null.execute(cx, operation, view, &mut out));
        assert!(out.iter().all(|byte| *byte == 0));
        (done, out.len())
    }

    #[test]
    fn an_operation_takes_a_kb_and_returns_b_kb() {
        for (argument, result, read_only) in [(0, 0, false), (4096, 0, true), (0, 4096, false)] {
            let mut bytes = Vec::new();
            operation(argument, result, read_only, &mut bytes);
            assert_eq!(bytes.len(), argument.max(OPERATION_BYTES_MIN));
            assert_eq!(Null.is_read_only(&bytes), read_only);
            assert_eq!(perform(&bytes), (Ok(()), usize::try_from(result).unwrap()));
        }
    }

    /// EX-3: nonsense is refused, and no client can ask for more than a reply has room for.
    #[test]
    fn nonsense_is_refused() {
        for bytes in [&[][..], &[0; 4], &[0, 0, 0, 0, 2], &[0xff, 0xff, 0xff, 0xff, 0]] {
            assert_eq!(perform(bytes), (Err(Stop::Refused), 0));
            assert!(!Null.is_read_only(bytes));
        }
    }
}
