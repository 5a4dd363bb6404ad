//! A key-value service.
//!
//! [`Operation`] and [`Answer`] are values with an encoding, so that a text protocol and a RESP door
//! are only parsers on top of them. Numbers are kept as decimal text, as they came.

use alloc::vec::Vec;
use core::fmt::Write as _;

use quorate_wire::message::OPERATION_BYTES_MAX;

use crate::btree::{Tree, Value};
use crate::service::{Access, Context, Service, Stop};
use crate::space::{Space, StoreError};
use crate::view::View;

mod operation;

pub use operation::{Answer, Failure, Operation};

/// The longest value, in bytes: one that was appended to must still fit in an operation and a result.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(VALUE_BYTES_MAX + 2048 < OPERATION_BYTES_MAX);

/// A key-value store. Keys and values are bytes.
///
/// Page 0 holds the header of the allocator and that of the tree; the allocator's bitmap follows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kv;

/// The state as keys and values.
struct Store<'s, 'v> {
    view: &'s mut View<'v>,
    tree: Tree,
}

impl Service for Kv {
    fn is_read_only(&self, operation: &[u8]) -> bool {
        matches!(Operation::decode(operation), Ok(Operation::Get { .. }))
    }

    fn access(&self, operation: &[u8], keys: &mut Access) {
        match Operation::decode(operation) {
            Ok(Operation::Get { key }) => keys.read(key_number(key)),
            Ok(operation) => keys.write(key_number(operation.key())),
            // Answered without a look at the state.
            Err(_) => {}
        }
    }

    fn execute(
        &self,
        _cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let done = match Operation::decode(operation) {
            Ok(operation) => Store::new(state).perform(&operation, out),
            Err(_) => Err(Trouble::Failure(Failure::Malformed)),
        };
        match done {
            Ok(()) => Ok(()),
            Err(Trouble::Stop(stop)) => Err(stop),
            Err(Trouble::Failure(failure)) => {
                out.clear();
                Answer::Failed(failure).encode(out);
                Err(Stop::Refused)
            }
        }
    }
}

/// Why an operation does not do what it was to do.
enum Trouble {
    Failure(Failure),
    Stop(Stop),
}

impl From<Stop> for Trouble {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full => Self::Failure(Failure::Full),
            StoreError::KeyTooLong => Self::Failure(Failure::KeyTooLong),
            StoreError::Stop(stop) => Self::Stop(stop),
        }
    }
}

impl<'s, 'v> Store<'s, 'v> {
    fn new(view: &'s mut View<'v>) -> Self {
        let tree = Tree::new((0, Space::HEADER_BYTES), Space::new(view, (0, 0), 1));
        Self { view, tree }
    }

    /// Does what is asked and appends the answer.
    fn perform(&mut self, operation: &Operation<'_>, out: &mut Vec<u8>) -> Result<(), Trouble> {
        match *operation {
            Operation::Get { key } => match self.find(key)? {
                Some(value) => {
                    Answer::begin_value(out);
                    value.copy_to(self.view, out)?;
                }
                None => Answer::Nil.encode(out),
            },
            Operation::Put { key, value } => {
                self.put(key, value)?;
                Answer::Done.encode(out);
            }
            Operation::Del { key } => {
                let answer = if self.tree.remove(self.view, key)? { Answer::Done } else { Answer::Nil };
                answer.encode(out);
            }
            Operation::Cas { key, expected, value } => {
                if self.value(key)?.as_deref() != expected {
                    return Err(Trouble::Failure(Failure::Mismatch));
                }
                self.put(key, value)?;
                Answer::Done.encode(out);
            }
            Operation::Incr { key, by } => {
                let text = self.value(key)?.unwrap_or_else(|| b"0".to_vec());
                let number = parse(&text).ok_or(Trouble::Failure(Failure::NotANumber))?;
                let sum = number.checked_add(by).ok_or(Trouble::Failure(Failure::Overflow))?;
                let text = decimal(sum);
                self.put(key, text.as_bytes())?;
                Answer::Value(text.as_bytes()).encode(out);
            }
            Operation::Append { key, suffix } => {
                let mut value = self.value(key)?.unwrap_or_default();
                value.extend_from_slice(suffix);
                self.put(key, &value)?;
                let len = decimal(i64::try_from(value.len()).unwrap_or(i64::MAX));
                Answer::Value(len.as_bytes()).encode(out);
            }
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Trouble> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(Trouble::Failure(Failure::ValueTooLong));
        }
        self.tree.insert(self.view, key, value)?;
        Ok(())
    }

    fn find(&self, key: &[u8]) -> Result<Option<Value<'_>>, Stop> {
        let value = self.tree.get(self.view, key)?;
        // A longer one was never stored.
        if value.is_some_and(|value| value.len() > VALUE_BYTES_MAX) { Err(Stop::Corrupt) } else { Ok(value) }
    }

    fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
        let Some(value) = self.find(key)? else { return Ok(None) };
        let mut bytes = Vec::new();
        value.copy_to(self.view, &mut bytes)?;
        Ok(Some(bytes))
    }
}

/// Returns the number that stands for a key in an access declaration (FNV-1a).
fn key_number(key: &[u8]) -> u64 {
    key.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Reads a decimal number as [`decimal`] writes it: no sign but a minus, no leading zero, no blank.
fn parse(text: &[u8]) -> Option<i64> {
    let number = core::str::from_utf8(text).ok()?.parse().ok()?;
    (decimal(number).as_bytes() == text).then_some(number)
}

fn decimal(number: i64) -> alloc::string::String {
    let mut text = alloc::string::String::new();
    // Writing to a string does not fail.
    let _ = write!(text, "{number}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, Xorshift};
    use alloc::collections::BTreeMap;
    use quorate_wire::{ClientId, SeqNum, Timestamp};

    /// Does one operation as the executor does.
    fn perform(bench: &mut Bench, operation: &Operation<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        perform_bytes(bench, &bytes)
    }

    fn perform_bytes(bench: &mut Bench, bytes: &[u8]) -> Vec<u8> {
        let cx = Context {
            client: ClientId::new(1, 0),
            timestamp: Timestamp(1),
            seq: SeqNum(1),
            index: 0,
            time_ns: 0,
            read_only: false,
        };
        let mut out = Vec::new();
        let done = bench.run(|view| Kv.execute(cx, bytes, view, &mut out));
        let failed = matches!(Answer::decode(&out), Ok(Answer::Failed(_)));
        assert_eq!(done, if failed { Err(Stop::Refused) } else { Ok(()) });
        out
    }

    #[track_caller]
    fn expect(bench: &mut Bench, operation: &Operation<'_>, answer: &Answer<'_>) {
        assert_eq!(Answer::decode(&perform(bench, operation)), Ok(*answer));
    }

    #[test]
    fn each_operation_answers_as_documented() {
        let b = &mut Bench::new(4000);
        let key = &b"k"[..];
        expect(b, &Operation::Get { key }, &Answer::Nil);
        expect(b, &Operation::Del { key }, &Answer::Nil);
        expect(b, &Operation::Put { key, value: b"" }, &Answer::Done);
        expect(b, &Operation::Get { key }, &Answer::Value(b""));
        expect(b, &Operation::Append { key, suffix: b"41" }, &Answer::Value(b"2"));
        expect(b, &Operation::Incr { key, by: 1 }, &Answer::Value(b"42"));
        expect(b, &Operation::Incr { key: b"new", by: -7 }, &Answer::Value(b"-7"));
        expect(b, &Operation::Incr { key, by: i64::MAX }, &Answer::Failed(Failure::Overflow));
        expect(b, &Operation::Cas { key, expected: Some(b"42"), value: b"x" }, &Answer::Done);
        expect(b, &Operation::Cas { key, expected: None, value: b"y" }, &Answer::Failed(Failure::Mismatch));
        expect(b, &Operation::Incr { key, by: 1 }, &Answer::Failed(Failure::NotANumber));
        expect(b, &Operation::Cas { key: b"absent", expected: None, value: b"z" }, &Answer::Done);
        expect(b, &Operation::Del { key }, &Answer::Done);
        expect(b, &Operation::Get { key }, &Answer::Nil);
        let long = alloc::vec![b'v'; VALUE_BYTES_MAX];
        expect(b, &Operation::Put { key, value: &long }, &Answer::Done);
        expect(b, &Operation::Append { key, suffix: b"1" }, &Answer::Failed(Failure::ValueTooLong));
        expect(b, &Operation::Get { key }, &Answer::Value(&long));
        expect(b, &Operation::Put { key: &long[..1000], value: b"" }, &Answer::Failed(Failure::KeyTooLong));
        assert_eq!(Answer::decode(&perform_bytes(b, b"?")), Ok(Answer::Failed(Failure::Malformed)));
    }

    /// What is not a number in the one form that is written is not taken for one.
    #[test]
    fn a_number_has_one_form() {
        for text in ["0", "-1", "9223372036854775807", "-9223372036854775808"] {
            assert!(parse(text.as_bytes()).is_some(), "{text}");
        }
        for text in ["", "-0", "+1", "01", " 1", "1 ", "9223372036854775808", "1e3"] {
            assert!(parse(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn it_behaves_like_a_map() {
        let mut random = Xorshift::new(9);
        let (mut bench, mut model) = (Bench::new(2000), BTreeMap::new());
        for _ in 0..3000 {
            let key = [u8::try_from(random.below(40)).unwrap(); 3];
            let value = alloc::vec![b'1'; usize::try_from(random.below(5)).unwrap()];
            let before = model.get(&key[..]).cloned();
            match random.below(4) {
                0 => {
                    perform(&mut bench, &Operation::Put { key: &key, value: &value });
                    model.insert(key.to_vec(), value);
                }
                1 => {
                    perform(&mut bench, &Operation::Del { key: &key });
                    model.remove(&key[..]);
                }
                2 => {
                    let guess = [&b"1"[..], b"11"][usize::try_from(random.below(2)).unwrap() % 2];
                    perform(&mut bench, &Operation::Cas { key: &key, expected: Some(guess), value: &value });
                    if before.as_deref() == Some(guess) {
                        model.insert(key.to_vec(), value);
                    }
                }
                _ => {
                    perform(&mut bench, &Operation::Append { key: &key, suffix: &value });
                    model.entry(key.to_vec()).or_default().extend(value);
                }
            }
            let answer = model.get(&key[..]).map_or(Answer::Nil, |value| Answer::Value(value));
            expect(&mut bench, &Operation::Get { key: &key }, &answer);
        }
    }

    #[test]
    fn access_tells_readers_from_writers() {
        let mut access = Access::new();
        let mut encoded = Vec::new();
        Operation::Get { key: b"a" }.encode(&mut encoded);
        Kv.access(&encoded, &mut access);
        encoded.clear();
        Operation::Put { key: b"a", value: b"" }.encode(&mut encoded);
        Kv.access(&encoded, &mut access);
        assert_eq!(access.keys(), Some(&[(key_number(b"a"), crate::service::Mode::Write)][..]));
    }
}
