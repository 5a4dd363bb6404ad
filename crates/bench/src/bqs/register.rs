//! A register as a replicated service: one value with the number of its write [BQS08, on the SMR register].
//!
//! A read returns the number with the value, so replies agree only if they are of the same write (R2): equal values of
//! different writes do not.

use quorate_service::{Context, Service, Stop, View};
use quorate_wire::ClientId;

/// The longest value, in bytes.
const VALUE_MAX: usize = 1024;
/// Where in the page the value begins: after the number 8, the writer 8 and the length 8.
const VALUE_AT: usize = 24;

/// What an operation returns: the version that was written or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// The number of the write; 0 before the first one.
    pub(super) number: u64,
    /// Who wrote.
    pub(super) writer: ClientId,
    /// The value.
    pub(super) value: Vec<u8>,
}

impl Stored {
    /// Decodes a result.
    pub(super) fn decode(result: &[u8]) -> Option<Self> {
        let (number, rest) = result.split_first_chunk()?;
        let (writer, value) = rest.split_first_chunk()?;
        let writer = ClientId(u64::from_le_bytes(*writer));
        Some(Self { number: u64::from_le_bytes(*number), writer, value: value.to_vec() })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.writer.0.to_le_bytes());
        out.extend_from_slice(&self.value);
    }
}

/// Returns the operation that reads.
pub(super) fn read() -> Vec<u8> {
    vec![0]
}

/// Returns the operation that writes a value.
pub(super) fn write(value: &[u8]) -> Vec<u8> {
    [&[1], value].concat()
}

/// The register, or one of a liar.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Register {
    /// It answers reads that are not ordered with a value that nobody wrote, and is correct in everything else
    /// [BQS08, on faulty acceptors].
    pub(super) lies: bool,
}

impl Register {
    fn held(view: &View<'_>) -> Result<Stored, Stop> {
        let page = view.page(0)?;
        let number = |at: usize| page.get(at..at + 8).and_then(|bytes| bytes.first_chunk()).copied();
        let number = |at| number(at).map(u64::from_le_bytes).ok_or(Stop::Corrupt);
        let len = usize::try_from(number(16)?).map_err(|_| Stop::Corrupt)?;
        let value = page.get(VALUE_AT..VALUE_AT + len).ok_or(Stop::Corrupt)?.to_vec();
        Ok(Stored { number: number(0)?, writer: ClientId(number(8)?), value })
    }
}

impl Service for Register {
    fn is_read_only(&self, operation: &[u8]) -> bool {
        operation == [0]
    }

    fn execute(
        &self,
        cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let mut told = Self::held(state)?;
        match operation.split_first() {
            Some((0, [])) => {
                if self.lies && cx.read_only {
                    told = Stored { number: told.number + 1, writer: cx.client, value: b"a lie".to_vec() };
                }
            }
            Some((1, value)) if value.len() <= VALUE_MAX => {
                told = Stored { number: told.number + 1, writer: cx.client, value: value.to_vec() };
                let len = u64::try_from(value.len()).map_err(|_| Stop::Corrupt)?;
                let front = [told.number, told.writer.0, len].map(u64::to_le_bytes).concat();
                state.put(0, &[&front, value].concat())?;
            }
            _ => return Err(Stop::Refused),
        }
        told.encode(out);
        Ok(())
    }
}
