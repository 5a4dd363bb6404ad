//! Operations of the key-value store, drawn at random: those on hashes, sets and lists, and those that run on pages only.

use alloc::vec::Vec;

use crate::kv::{
    All, Condition, Container as Made, Elements, Further, Life, ListCall, ListVerb, Operation, Verb,
};
use crate::testing::Xorshift;

/// Appends an operation on a hash or a set. Most keys are strings at times, so some are refused.
pub(super) fn elements(random: &mut Xorshift, (key, other): (&[u8], &[u8]), out: &mut Vec<u8>) {
    let verb = Verb::ALL[usize::try_from(random.below(25)).unwrap()];
    let name = [b'n', u8::try_from(random.below(5)).unwrap()];
    let (kind, mut buffer) = (if random.below(2) == 0 { Made::Hash } else { Made::Set }, Vec::new());
    let kind = if matches!(verb, Verb::Put | Verb::Increase | Verb::AddDecimal) {
        Made::Hash
    } else if matches!(verb, Verb::Pop | Verb::Move | Verb::Add) {
        Made::Set
    } else {
        kind
    };
    let items = verb.example(other, &name, &mut buffer);
    Elements { verb, kind, key, number: 2, items }.encode(out);
}

/// Appends an operation on a list.
pub(super) fn list(random: &mut Xorshift, (key, other): (&[u8], &[u8]), out: &mut Vec<u8>) {
    let verb = ListVerb::ALL[usize::try_from(random.below(12)).unwrap()];
    let (value, mut buffer) = ([b'v', u8::try_from(random.below(3)).unwrap()], Vec::new());
    let number = i64::try_from(random.below(4)).unwrap() - 1;
    let items = verb.example(other, &value, &mut buffer);
    ListCall { verb, key, number, items }.encode(out);
}

/// Appends an operation that runs on pages only.
pub(super) fn further(
    random: &mut Xorshift,
    (key, other, value): (&[u8], &[u8], &[u8]),
    ttl: u64,
    out: &mut Vec<u8>,
) {
    let (mut put, mut buffer) = (Vec::new(), Vec::new());
    Operation::Put { key, value }.encode(&mut put);
    let further = match random.below(7) {
        0 => {
            let condition = Some(Condition::Present);
            Further::Set { key, value, condition, life: Life::For(ttl), get: true }
        }
        1 => Further::Copy { from: key, to: other, database: None, replace: true, remove: true },
        2 => Further::Scan { from: &[], count: 5, all: false, kind: crate::kv::Sort::Any, pattern: b"*" },
        3 => Further::All(All::new([], [&put[..]], &mut buffer)),
        4 => Further::In { database: 3, operation: &put },
        5 => Further::ClearOne,
        _ => Further::RemoveIf { key, value: b"7" },
    };
    further.encode(out);
}
