//! A transaction: operations that are executed all or not at all.

use alloc::vec::Vec;

use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};
use quorate_wire::message::OPERATION_BYTES_MAX;

/// Bytes of a mark.
pub const MARK_BYTES: usize = 16;
/// Maximum number of marks that a transaction compares.
pub const CHECKS_MAX: usize = 1024;

/// Operations that are executed all or not at all, each answered for itself in an
/// [`Answer::Many`](super::Answer::Many). If a mark is not what it was, nothing is done, and the answer is nil. An
/// operation that fails does not stop the others, but a full store and an answer that becomes too long do: then nothing
/// is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct All<'a> {
    checks: u16,
    /// The marks with their operations, then the operations.
    bytes: &'a [u8],
}

impl<'a> All<'a> {
    /// Returns the transaction of these marks, each with its operation, and these operations, encoded in `buffer`. The
    /// caller keeps the bounds.
    pub fn new<'i>(
        checks: impl IntoIterator<Item = (&'i [u8; MARK_BYTES], &'i [u8])>,
        operations: impl IntoIterator<Item = &'i [u8]>,
        buffer: &'a mut Vec<u8>,
    ) -> Self {
        buffer.clear();
        let mut count = 0;
        let mut out = Writer::new(buffer);
        for (mark, operation) in checks {
            out.bytes(mark);
            out.blob(operation);
            count += 1;
        }
        operations.into_iter().for_each(|operation| out.blob(operation));
        Self { checks: count, bytes: buffer }
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> Decoded<Self> {
        let checks = u16::from_le_bytes(reader.array()?);
        let all = Self { checks, bytes: reader.bytes(reader.len())? };
        if usize::from(checks) > CHECKS_MAX {
            return Err(DecodeError::NotCanonical);
        }
        let mut rest = Reader::new(all.bytes);
        for _ in 0..checks {
            rest.bytes(MARK_BYTES)?;
            rest.blob(OPERATION_BYTES_MAX)?;
        }
        while !rest.is_empty() {
            rest.blob(OPERATION_BYTES_MAX)?;
        }
        Ok(all)
    }

    pub(super) fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(&self.checks.to_le_bytes());
        out.bytes(self.bytes);
    }

    /// Returns the marks, each with the operation that has to give it.
    pub fn checks(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = Reader::new(self.bytes);
        (0..self.checks)
            .map_while(move |_| Some((rest.bytes(MARK_BYTES).ok()?, rest.blob(OPERATION_BYTES_MAX).ok()?)))
    }

    /// Returns the operations.
    pub fn operations(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = Reader::new(self.bytes);
        for _ in 0..self.checks {
            let _ = rest.bytes(MARK_BYTES).and_then(|_| rest.blob(OPERATION_BYTES_MAX));
        }
        core::iter::from_fn(move || rest.blob(OPERATION_BYTES_MAX).ok())
    }
}
