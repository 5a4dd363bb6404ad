//! Tests of lists: their encoding, and the store against plain lists.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::tests::{answers, perform_at, spoiled};
use super::*;
use crate::testing::{Bench, Xorshift};

/// The encoding of an operation with these items.
pub(super) fn call(verb: ListVerb, key: &[u8], number: i64, items: &[&[u8]]) -> Vec<u8> {
    let (mut buffer, mut out) = (Vec::new(), Vec::new());
    let items = if items.is_empty() { Items::none() } else { Items::operations(items, &mut buffer) };
    ListCall { verb, key, number, items }.encode(&mut out);
    out
}

fn ask(bench: &mut Bench, verb: ListVerb, key: &[u8], number: i64, items: &[&[u8]]) -> Vec<u8> {
    perform_at(bench, 1, false, &call(verb, key, number, items))
}

fn text(number: impl core::fmt::Display) -> Vec<u8> {
    alloc::format!("\x02{number}").into_bytes()
}

/// All values of a list.
fn contents(bench: &mut Bench, key: &[u8]) -> Vec<Vec<u8>> {
    let all = ask(bench, ListVerb::Range, key, 0, &[&(-1_i64).to_le_bytes()]);
    answers(&all).iter().map(|answer| answer[1..].to_vec()).collect()
}

/// How many pages the store takes.
fn pages(bench: &mut Bench) -> Vec<u8> {
    let mut count = Vec::new();
    Command::Count.encode(&mut count);
    answers(&perform_at(bench, 1, false, &count))[2].clone()
}

/// Any bytes give an operation or an error, and what is decoded has one encoding.
#[test]
fn decoding_is_total_and_canonical() {
    let (mut random, mut decoded) = (Xorshift::new(7), 0);
    for verb in ListVerb::ALL {
        let (mut buffer, mut bytes) = (Vec::new(), Vec::new());
        let items = verb.example(b"other", b"value", &mut buffer);
        ListCall { verb, key: b"key", number: 3, items }.encode(&mut bytes);
        assert_eq!(ListCall::decode(&bytes).unwrap().verb, verb);
        for _ in 0..2000 {
            let bytes = spoiled(&mut random, &bytes);
            if let Ok(call) = ListCall::decode(&bytes) {
                let mut again = Vec::new();
                call.encode(&mut again);
                assert_eq!(again, bytes);
                decoded += 1;
            }
        }
    }
    assert!(decoded > 4_000, "{decoded}");
}

/// An operation on hashes and sets says nothing of a list: its names would be places.
#[test]
fn elements_of_a_list_are_no_names() {
    let (mut buffer, mut bytes) = (Vec::new(), Vec::new());
    let items = Items::keys([b"name"], &mut buffer);
    Elements { verb: Verb::Add, kind: Container::List, key: b"k", number: 0, items }.encode(&mut bytes);
    assert!(Asked::decode(&bytes).is_err());
}

/// The places that a range of Redis names.
fn places(len: usize, from: i64, until: i64) -> core::ops::Range<usize> {
    let place = |at: i64| if at < 0 { at + i64::try_from(len).unwrap() } else { at };
    let until = usize::try_from(place(until) + 1).unwrap_or(0).min(len);
    let from = usize::try_from(place(from)).unwrap_or(0);
    if from < until { from..until } else { 0..0 }
}

/// Against plain lists: two of them, with all operations, until both are empty and every page is free.
#[test]
#[allow(clippy::too_many_lines, reason = "a case for each operation")]
fn it_behaves_like_lists() {
    for seed in 1..6 {
        let (mut random, mut bench) = (Xorshift::new(seed), Bench::new(6000));
        let empty = pages(&mut bench);
        let mut lists: [VecDeque<Vec<u8>>; 2] = Default::default();
        for round in 0..3000 {
            let at = usize::try_from(random.below(2)).unwrap();
            let key = [b"a", b"b"][at];
            // A few values often, some of them long.
            let kind = random.below(4);
            let value =
                alloc::vec![b'u' + u8::try_from(kind).unwrap(); usize::try_from(1 + kind * 300).unwrap()];
            let pivot = lists[at].get(usize::try_from(random.below(40)).unwrap()).cloned();
            let number = i64::try_from(random.below(30)).unwrap() - 15;
            let len = lists[at].len();
            let list = &mut lists[at];
            match random.below(14) {
                0..=2 => {
                    list.push_front(value.clone());
                    let answer = ask(&mut bench, ListVerb::PushLeft, key, 0, &[&value]);
                    assert_eq!(answer, text(list.len()));
                }
                3..=5 => {
                    list.extend([value.clone(), b"last".to_vec()]);
                    let answer = ask(&mut bench, ListVerb::PushRight, key, 0, &[&value, b"last"]);
                    assert_eq!(answer, text(list.len()));
                }
                6 => {
                    let expected: Vec<_> = (0..2).map_while(|_| list.pop_front()).collect();
                    let answer = ask(&mut bench, ListVerb::PopLeft, key, 2, &[]);
                    let taken = if len == 0 { Vec::new() } else { answers(&answer) };
                    assert_eq!(taken.iter().map(|it| it[1..].to_vec()).collect::<Vec<_>>(), expected);
                    assert_eq!(answer == [1], len == 0);
                }
                7 => {
                    let expected = list.pop_back();
                    let answer = ask(&mut bench, ListVerb::PopRight, key, 1, &[]);
                    let taken = expected.map(|value| [&[2], &value[..]].concat());
                    assert_eq!(taken, (len > 0).then(|| answers(&answer)[0].clone()));
                }
                8 => {
                    let range = places(len, number, number);
                    let answer = ask(&mut bench, ListVerb::Set, key, number, &[&value]);
                    let is_there =
                        number < i64::try_from(len).unwrap() && number >= -i64::try_from(len).unwrap();
                    assert_eq!(answer, text(if len == 0 { -1 } else { i64::from(is_there) }));
                    if is_there {
                        list[range.start] = value;
                    }
                }
                9 => {
                    let pivot = pivot.unwrap_or_else(|| b"none".to_vec());
                    let found = list.iter().position(|value| *value == pivot);
                    let behind = random.below(2);
                    if let Some(found) = found {
                        list.insert(found + usize::try_from(behind).unwrap(), value.clone());
                    }
                    let behind = i64::try_from(behind).unwrap();
                    let answer = ask(&mut bench, ListVerb::Insert, key, behind, &[&pivot, &value]);
                    let expected = match found {
                        _ if len == 0 => 0,
                        None => -1,
                        Some(_) => i64::try_from(list.len()).unwrap(),
                    };
                    assert_eq!(answer, text(expected));
                }
                10 => {
                    let most = usize::try_from(number.unsigned_abs() / 4).unwrap();
                    let number = number / 4;
                    let mut found: Vec<usize> = (0..len).filter(|at| list.get(*at) == Some(&value)).collect();
                    if number < 0 {
                        found.reverse();
                    }
                    found.truncate(if most == 0 { len } else { most });
                    found.sort_unstable();
                    for at in found.iter().rev() {
                        list.remove(*at);
                    }
                    let answer = ask(&mut bench, ListVerb::Remove, key, number, &[&value]);
                    assert_eq!(answer, text(found.len()));
                }
                11 if round % 10 == 0 => {
                    let until = -i64::try_from(random.below(4)).unwrap();
                    let range = places(len, number, until);
                    *list = list.drain(range).collect();
                    let answer = ask(&mut bench, ListVerb::Trim, key, number, &[&until.to_le_bytes()]);
                    assert_eq!(answer, text(list.len()));
                }
                12 => {
                    let (flags, to) = (number & 3, usize::try_from(random.below(2)).unwrap());
                    let moved = if flags & 1 == 0 { list.pop_front() } else { list.pop_back() };
                    let to_key = [b"a", b"b"][to];
                    if let Some(value) = &moved {
                        if flags & 2 == 0 {
                            lists[to].push_front(value.clone());
                        } else {
                            lists[to].push_back(value.clone());
                        }
                    }
                    let answer = ask(&mut bench, ListVerb::Move, key, flags, &[to_key]);
                    assert_eq!(answer, moved.map_or(alloc::vec![1], |value| [&[2], &value[..]].concat()));
                }
                _ => {
                    let mut found: Vec<usize> = (0..len).filter(|at| list.get(*at) == Some(&value)).collect();
                    let rank = if number == 0 { 1 } else { number / 5 };
                    let rank = if rank == 0 { -1 } else { rank };
                    if rank < 0 {
                        found.reverse();
                    }
                    let looked = 20;
                    let from_end = |at: &usize| if rank < 0 { len - 1 - at } else { *at };
                    found.retain(|at| from_end(at) < looked);
                    let before = usize::try_from(rank.unsigned_abs()).unwrap() - 1;
                    let expected: Vec<_> = found.iter().skip(before).take(2).map(text).collect();
                    let (two, looked) = (2_i64.to_le_bytes(), 20_i64.to_le_bytes());
                    let answer = ask(&mut bench, ListVerb::Positions, key, rank, &[&value, &two, &looked]);
                    assert_eq!(answers(&answer), expected);
                }
            }
            assert_eq!(ask(&mut bench, ListVerb::Length, key, 0, &[]), text(lists[at].len()));
        }
        for (key, list) in [b"a", b"b"].into_iter().zip(&lists) {
            assert_eq!(contents(&mut bench, key), list.iter().cloned().collect::<Vec<_>>(), "seed {seed}");
            let (from, until) = (-7, 3_i64);
            let part: Vec<_> = list.range(places(list.len(), from, until)).cloned().collect();
            let asked = ask(&mut bench, ListVerb::Range, key, from, &[&until.to_le_bytes()]);
            assert_eq!(answers(&asked).len(), part.len());
            ask(&mut bench, ListVerb::PopLeft, key, 65_536, &[]);
        }
        assert_eq!(pages(&mut bench), empty, "no page is lost");
    }
}

/// What is beyond a limit is an error, and nothing has changed.
#[test]
fn limits_are_errors() {
    let mut bench = Bench::new(30_000);
    let failed = |why: Failure| alloc::vec![3, why as u8];
    let values = alloc::vec![&b"value"[..]; 4096];
    for _ in 0..16 {
        ask(&mut bench, ListVerb::PushRight, b"k", 0, &values);
    }
    assert_eq!(ask(&mut bench, ListVerb::Length, b"k", 0, &[]), text(65_536));
    for verb in [ListVerb::PushLeft, ListVerb::PushRight] {
        assert_eq!(ask(&mut bench, verb, b"k", 0, &[b"more"]), failed(Failure::TooManyElements));
    }
    let insert = ask(&mut bench, ListVerb::Insert, b"k", 0, &[b"value", b"more"]);
    assert_eq!(insert, failed(Failure::TooManyElements));
    ask(&mut bench, ListVerb::PushLeft, b"other", 0, &[b"one"]);
    assert_eq!(ask(&mut bench, ListVerb::Move, b"other", 0, &[b"k"]), failed(Failure::TooManyElements));
    assert_eq!(contents(&mut bench, b"other"), [b"one"]);
    let long = alloc::vec![0; VALUE_BYTES_MAX + 1];
    assert_eq!(ask(&mut bench, ListVerb::PushLeft, b"l", 0, &[&long]), failed(Failure::ValueTooLong));
    assert_eq!(ask(&mut bench, ListVerb::Set, b"other", 0, &[&long]), failed(Failure::ValueTooLong));
    assert_eq!(ask(&mut bench, ListVerb::Length, b"l", 0, &[]), text(0));
    assert_eq!(ask(&mut bench, ListVerb::Range, b"k", 0, &[b"short"]), failed(Failure::Malformed));
    // An answer that would be too long leaves the list as it is.
    for _ in 0..3 {
        ask(&mut bench, ListVerb::PushLeft, b"l", 0, &[&long[..VALUE_BYTES_MAX / 2]]);
    }
    assert_eq!(ask(&mut bench, ListVerb::PopLeft, b"l", 3, &[]), failed(Failure::AnswerTooLong));
    assert_eq!(ask(&mut bench, ListVerb::Length, b"l", 0, &[]), text(3));
}

/// A list is of one kind, keeps its deadline while it is changed, and is copied and renamed like a hash.
#[test]
fn a_list_is_a_value_like_others() {
    let mut bench = Bench::new(2000);
    let wrong = alloc::vec![3, Failure::WrongKind as u8];
    ask(&mut bench, ListVerb::PushRight, b"k", 0, &[b"1", b"2"]);
    let mut get = Vec::new();
    Operation::Get { key: b"k" }.encode(&mut get);
    assert_eq!(perform_at(&mut bench, 1, false, &get), wrong);
    let mut expire = Vec::new();
    Command::Expire { key: b"k", ttl_ms: 100 }.encode(&mut expire);
    perform_at(&mut bench, 1, false, &expire);
    // Moved within a list of one value, too.
    ask(&mut bench, ListVerb::PopLeft, b"k", 1, &[]);
    ask(&mut bench, ListVerb::Move, b"k", 1, &[b"k"]);
    for (from, to, remove) in [(b"k", b"c", false), (b"c", b"d", true)] {
        let mut copy = Vec::new();
        Further::Copy { from, to, database: None, replace: false, remove }.encode(&mut copy);
        assert_eq!(perform_at(&mut bench, 1, false, &copy), text(1));
    }
    assert_eq!(contents(&mut bench, b"d"), [b"2"]);
    ask(&mut bench, ListVerb::PushLeft, b"d", 1, &[b"3"]);
    assert_eq!(ask(&mut bench, ListVerb::PushLeft, b"c", 1, &[b"3"]), text(0), "only if there is a list");
    assert_eq!(contents(&mut bench, b"d"), [b"3", b"2"]);
    assert_eq!(contents(&mut bench, b"k"), [b"2"]);
    let length = call(ListVerb::Length, b"k", 0, &[]);
    assert_eq!(perform_at(&mut bench, 50, true, &length), [3, Failure::NeedsOrder as u8]);
    assert_eq!(perform_at(&mut bench, 101, true, &length), text(0));
    let mut set = Vec::new();
    Operation::Put { key: b"d", value: b"1" }.encode(&mut set);
    perform_at(&mut bench, 1, false, &set);
    assert_eq!(ask(&mut bench, ListVerb::PushLeft, b"d", 0, &[b"3"]), wrong);
    assert_eq!(ask(&mut bench, ListVerb::Move, b"k", 0, &[b"d"]), wrong);
}
