//! Transactions: what fails in one has written nothing, and all of it is bounded together.

use alloc::vec::Vec;

use super::element_tests::{full_sets, names, pairs};
use super::list_tests::call;
use super::tests::{answers, perform_at};
use super::*;
use crate::testing::Bench;

/// L75: a RENAME or COPY to a key that is too long fails, and a transaction continues after it. The hash, set or list
/// stays, and no element without a key is left.
#[test]
fn l75_a_rename_that_fails_in_a_transaction_loses_nothing() {
    for kind in [Container::Hash, Container::Set, Container::List] {
        for remove in [false, true] {
            let b = &mut Bench::new(4000);
            let add = match kind {
                Container::Hash => pairs(Verb::Put, b"key", 0, &[b"name", b"value"]),
                Container::Set => names(Verb::Add, kind, b"key", 0, &[b"name"]),
                Container::List => call(ListVerb::PushLeft, b"key", 0, &[b"name"]),
            };
            perform_at(b, 1, false, &add);
            let before = b.content();
            let to = alloc::vec![b'x'; 2000];
            let (mut copy, mut all) = (Vec::new(), Vec::new());
            Further::Copy { from: b"key", to: &to, database: None, replace: true, remove }.encode(&mut copy);
            Further::All(All::new([], [&copy[..]], &mut Vec::new())).encode(&mut all);
            let failed = alloc::vec![3, Failure::KeyTooLong as u8];
            assert_eq!(answers(&perform_at(b, 1, false, &all)), [failed], "{kind:?}");
            assert!(b.content() == before, "{kind:?}, remove: {remove}");
        }
    }
}

/// L140: what a FLUSHDB removes does not count. What the transaction has looked at before still does.
#[test]
fn l140_a_cleared_database_does_not_end_the_bound_on_a_transaction() {
    let b = &mut Bench::new(100_000);
    full_sets(b, &[b"a", b"b"]);
    let within = |operation: &[u8]| {
        let mut out = Vec::new();
        Further::In { database: 1, operation }.encode(&mut out);
        out
    };
    let mut clear = Vec::new();
    Further::ClearOne.encode(&mut clear);
    let (add, clear) = (within(&names(Verb::Add, Container::Set, b"t", 0, &[b"x"])), within(&clear));
    let common = names(Verb::CountCommon, Container::Set, b"full", 0, &[b"a", b"b"]);
    for (rounds, is_done) in [(1, true), (4, false)] {
        let round = [&common[..], &common, &add, &clear];
        let mut all = Vec::new();
        Further::All(All::new([], round.repeat(rounds), &mut Vec::new())).encode(&mut all);
        let answer = perform_at(b, 1, false, &all);
        assert_eq!(answer != [3, Failure::TooManyElements as u8], is_done, "{rounds} rounds");
    }
}

/// L141: a few bytes can write a long value. Written bytes count, so a pack ends where it has written enough, and a
/// transaction that writes too much is refused.
#[test]
fn l141_an_operation_writes_a_bounded_number_of_bytes() {
    let b = &mut Bench::new(20_000);
    let (mut set_range, mut set_bit) = (Vec::new(), Vec::new());
    let offset = u32::try_from(VALUE_BYTES_MAX - 1).unwrap();
    Further::Overwrite { key: b"range", offset, value: b"x" }.encode(&mut set_range);
    Further::SetBit { key: b"bits", place: 8 * offset, is_set: true }.encode(&mut set_bit);
    for operation in [&set_range[..], &set_bit] {
        let (mut pack, mut all) = (Vec::new(), Vec::new());
        let operations = [operation; 130];
        Command::Many(Items::operations(operations, &mut Vec::new())).encode(&mut pack);
        let answered = answers(&perform_at(b, 1, false, &pack)).len();
        assert!((25..40).contains(&answered), "{answered} MiB");
        Further::All(All::new([], operations, &mut Vec::new())).encode(&mut all);
        assert_eq!(perform_at(b, 1, false, &all), [3, Failure::TooManyElements as u8]);
    }
}

/// In a transaction, an operation that fails by itself has written nothing: the state is as it was.
#[test]
fn what_fails_in_a_transaction_has_written_nothing() {
    let long = alloc::vec![b'x'; 2000];
    let begin = || {
        let mut bench = Bench::new(4000);
        for set in [
            pairs(Verb::Put, b"hash", 0, &[b"name", b"text"]),
            names(Verb::Add, Container::Set, b"set", 0, &[b"name"]),
            call(ListVerb::PushLeft, b"list", 0, &[b"name"]),
        ] {
            perform_at(&mut bench, 1, false, &set);
        }
        bench
    };
    let keys: [&[u8]; 5] = [b"hash", b"set", b"list", b"none", &long];
    let mut operations = Vec::new();
    for key in keys {
        for other in keys {
            for verb in Verb::ALL {
                for kind in [Container::Hash, Container::Set] {
                    let (mut buffer, mut out) = (Vec::new(), Vec::new());
                    let items = verb.example(other, &long, &mut buffer);
                    Elements { verb, kind, key, number: 1, items }.encode(&mut out);
                    operations.push(out);
                }
            }
            for verb in ListVerb::ALL {
                let (mut buffer, mut out) = (Vec::new(), Vec::new());
                let items = verb.example(other, &long, &mut buffer);
                ListCall { verb, key, number: 1, items }.encode(&mut out);
                operations.push(out);
            }
            for remove in [false, true] {
                let mut out = Vec::new();
                Further::Copy { from: key, to: other, database: None, replace: true, remove }
                    .encode(&mut out);
                operations.push(out);
            }
        }
    }
    let mut failed = 0;
    for operation in &operations {
        let (mut all, b) = (Vec::new(), &mut begin());
        let items = [&operation[..]];
        Further::All(All::new([], items, &mut Vec::new())).encode(&mut all);
        let before = b.content();
        let answer = answers(&perform_at(b, 1, false, &all));
        if answer.len() == 1 && answer[0].first() == Some(&3) {
            assert!(b.content() == before, "{}: {answer:?}", operation.escape_ascii());
            failed += 1;
        }
    }
    assert!(failed > 300, "{failed} of {}", operations.len());
}
