//! Tests of hashes and sets: their encoding, and the store against plain maps.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::tests::{answers, perform_at, spoiled};
use super::*;
use crate::testing::{Bench, Xorshift};

/// The encoding of an operation with these names.
pub(super) fn names(verb: Verb, kind: Container, key: &[u8], number: i64, names: &[&[u8]]) -> Vec<u8> {
    let (mut buffer, mut out) = (Vec::new(), Vec::new());
    Elements { verb, kind, key, number, items: Items::keys(names, &mut buffer) }.encode(&mut out);
    out
}

/// The same with pairs, of a hash.
pub(super) fn pairs(verb: Verb, key: &[u8], number: i64, items: &[&[u8]]) -> Vec<u8> {
    let (mut buffer, mut out) = (Vec::new(), Vec::new());
    let items = Items::pairs(items, &mut buffer);
    Elements { verb, kind: Container::Hash, key, number, items }.encode(&mut out);
    out
}

/// An operation with each verb.
fn every() -> Vec<Vec<u8>> {
    let one = |verb: &Verb| {
        let (mut buffer, mut out) = (Vec::new(), Vec::new());
        let items = verb.example(b"other", b"name", &mut buffer);
        Elements { verb: *verb, kind: Container::Set, key: b"key", number: 3, items }.encode(&mut out);
        out
    };
    Verb::ALL.iter().map(one).collect()
}

/// B36: any bytes give an operation or an error, and what is decoded has one encoding.
#[test]
fn decoding_is_total_and_canonical() {
    let (mut random, mut decoded) = (Xorshift::new(7), 0);
    for (verb, bytes) in Verb::ALL.iter().zip(every()) {
        let elements = Elements::decode(&bytes).unwrap();
        assert_eq!(elements.verb, *verb);
        for _ in 0..2000 {
            let bytes = spoiled(&mut random, &bytes);
            if let Ok(elements) = Elements::decode(&bytes) {
                let mut again = Vec::new();
                elements.encode(&mut again);
                assert_eq!(again, bytes);
                decoded += 1;
            }
        }
    }
    assert!(decoded > 10_000, "{decoded}");
}

/// The names of a set, or the names and values of a hash.
fn contents(bench: &mut Bench, kind: Container, key: &[u8]) -> Vec<Vec<u8>> {
    let verb = if kind == Container::Hash { Verb::Pairs } else { Verb::Names };
    let value = |answer: &Vec<u8>| answer[1..].to_vec();
    answers(&perform_at(bench, 1, false, &names(verb, kind, key, 0, &[]))).iter().map(value).collect()
}

fn text(number: impl core::fmt::Display) -> Vec<u8> {
    alloc::format!("\x02{number}").into_bytes()
}

/// Against plain maps: two hashes and two sets, of many elements, with long values and removals.
#[test]
fn it_behaves_like_maps() {
    for seed in 1..4 {
        let (mut random, mut bench) = (Xorshift::new(seed), Bench::new(6000));
        let mut hashes: [BTreeMap<Vec<u8>, Vec<u8>>; 2] = Default::default();
        let mut sets: [BTreeMap<Vec<u8>, Vec<u8>>; 2] = Default::default();
        for _ in 0..3000 {
            let at = usize::try_from(random.below(2)).unwrap();
            let (hash, set) = ([b"h0", b"h1"][at], [b"s0", b"s1"][at]);
            let name = alloc::format!("name {}", random.below(300)).into_bytes();
            let value = alloc::vec![b'v'; usize::try_from(random.below(9) * random.below(200)).unwrap()];
            match random.below(6) {
                0..=2 => {
                    let put = pairs(Verb::Put, hash, 0, &[&name, &value]);
                    let is_new = hashes[at].insert(name, value).is_none();
                    assert_eq!(perform_at(&mut bench, 1, false, &put), text(u8::from(is_new)));
                }
                3 => {
                    let add = names(Verb::Add, Container::Set, set, 0, &[&name]);
                    let is_new = sets[at].insert(name, Vec::new()).is_none();
                    assert_eq!(perform_at(&mut bench, 1, false, &add), text(u8::from(is_new)));
                }
                4 => {
                    let was = u8::from(hashes[at].remove(&name).is_some());
                    let remove = names(Verb::Remove, Container::Hash, hash, 0, &[&name]);
                    assert_eq!(perform_at(&mut bench, 1, false, &remove), text(was));
                }
                _ => {
                    let moved = sets[at].remove(&name).is_some();
                    if moved {
                        sets[1 - at].insert(name.clone(), Vec::new());
                    }
                    let other = [b"s1", b"s0"][at];
                    let move_it = names(Verb::Move, Container::Set, set, 0, &[other, &name]);
                    assert_eq!(perform_at(&mut bench, 1, false, &move_it), text(u8::from(moved)));
                }
            }
        }
        for at in 0..2 {
            let flat = hashes[at].iter().flat_map(|(name, value)| [name.clone(), value.clone()]);
            assert_eq!(contents(&mut bench, Container::Hash, [b"h0", b"h1"][at]), flat.collect::<Vec<_>>());
            let members: Vec<Vec<u8>> = sets[at].keys().cloned().collect();
            assert_eq!(contents(&mut bench, Container::Set, [b"s0", b"s1"][at]), members);
        }
        let common: Vec<&Vec<u8>> = sets[0].keys().filter(|name| sets[1].contains_key(*name)).collect();
        let inter = perform_at(&mut bench, 1, true, &names(Verb::Common, Container::Set, b"s0", 0, &[b"s1"]));
        assert_eq!(answers(&inter).len(), common.len());
        // Everything goes, whatever removes it, and every page is free again.
        let mut buffer = Vec::new();
        let mut remove = Vec::new();
        Command::Del(Items::keys([b"h0", b"h1", b"s0"], &mut buffer)).encode(&mut remove);
        perform_at(&mut bench, 1, false, &remove);
        let pop = names(Verb::Pop, Container::Set, b"s1", 1000, &[]);
        assert_eq!(answers(&perform_at(&mut bench, 1, false, &pop)).len(), sets[1].len());
        let mut count = Vec::new();
        Command::Count.encode(&mut count);
        let sizes = answers(&perform_at(&mut bench, 1, false, &count));
        assert_eq!(sizes[0], text(0));
        assert_eq!(sizes[2], text(0), "no page is lost");
    }
}

/// One value of a large hash changes a few pages, not all of them; and so does a new name.
#[test]
fn one_element_of_many_changes_few_pages() {
    let mut bench = Bench::new(6000);
    for part in 0..20_u32 {
        let words: Vec<Vec<u8>> =
            (0..200).map(|at| alloc::format!("{:06}", part * 100 + at / 2).into_bytes()).collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        perform_at(&mut bench, 1, false, &pairs(Verb::Put, b"h", 0, &words));
    }
    let pages = |bench: &mut Bench| -> Vec<Vec<u8>> {
        bench.run(|view| (0..6000).map(|page| view.page(page).unwrap().to_vec()).collect())
    };
    let before = pages(&mut bench);
    assert!(before.iter().filter(|page| page.iter().any(|byte| *byte != 0)).count() > 100);
    for (name, most) in [(&b"000777"[..], 1), (b"0007771", 6)] {
        let before = pages(&mut bench);
        perform_at(&mut bench, 1, false, &pairs(Verb::Put, b"h", 0, &[name, b"xxxxxx"]));
        let after = pages(&mut bench);
        let changed = before.iter().zip(&after).filter(|(old, new)| old != new).count();
        assert!((1..=most).contains(&changed), "{changed} pages");
    }
}

/// A renamed hash keeps its elements; a copy is its own; what was there before goes.
#[test]
fn hashes_are_copied_and_renamed() {
    let mut bench = Bench::new(6000);
    let long = alloc::vec![b'x'; 3000];
    for at in 0..2500_u32 {
        let name = at.to_be_bytes();
        let value: &[u8] = if at % 50 == 0 { &long } else { b"v" };
        perform_at(&mut bench, 1, false, &pairs(Verb::Put, b"h", 0, &[&name, value]));
    }
    let whole = |bench: &mut Bench, key| {
        let (mut all, mut from) = (Vec::new(), Vec::new());
        loop {
            let part = pairs(Verb::Scan, key, 900, &[&from, b"*"]);
            let part = answers(&perform_at(bench, 1, false, &part));
            all.extend(part[1..].to_vec());
            match Answer::decode(&part[0]) {
                Ok(Answer::Value(next)) => from = next.to_vec(),
                _ => return all,
            }
        }
    };
    let copy = |from, to, remove| {
        let mut out = Vec::new();
        Further::Copy { from, to, database: None, replace: true, remove }.encode(&mut out);
        out
    };
    let before = whole(&mut bench, b"h");
    assert_eq!(before.len(), 5000);
    perform_at(&mut bench, 1, false, &names(Verb::Add, Container::Set, b"c", 0, &[b"gone"]));
    assert_eq!(perform_at(&mut bench, 1, false, &copy(b"h", b"c", false)), text(1));
    assert_eq!(
        perform_at(&mut bench, 1, false, &names(Verb::Remove, Container::Hash, b"c", 0, &[&[0; 4]])),
        text(1)
    );
    assert_eq!(whole(&mut bench, b"h"), before, "a copy is its own");
    assert_eq!(perform_at(&mut bench, 1, false, &copy(b"h", b"r", true)), text(1));
    assert_eq!(whole(&mut bench, b"r"), before);
    assert_eq!(whole(&mut bench, b"h").len(), 0);
    assert_eq!(whole(&mut bench, b"c").len(), 4998);
}

/// What is beyond a limit is an error, and nothing has changed.
#[test]
fn limits_are_errors() {
    let mut bench = Bench::new(30_000);
    let failed = |why: Failure| alloc::vec![3, why as u8];
    for part in 0..64_u32 {
        let words: Vec<[u8; 4]> = (0..1024).map(|at| (part * 1024 + at).to_be_bytes()).collect();
        let words: Vec<&[u8]> = words.iter().map(<[u8; 4]>::as_slice).collect();
        assert_eq!(
            perform_at(&mut bench, 1, false, &names(Verb::Add, Container::Set, b"s", 0, &words)),
            text(1024)
        );
    }
    let add = |name: &[u8]| names(Verb::Add, Container::Set, b"s", 0, &[name]);
    assert_eq!(perform_at(&mut bench, 1, false, &add(b"more")), failed(Failure::TooManyElements));
    assert_eq!(perform_at(&mut bench, 1, false, &add(&[0; 4])), text(0), "it is there");
    assert_eq!(perform_at(&mut bench, 1, false, &add(&[0; 1500])), failed(Failure::KeyTooLong));
    let put = |value: &[u8]| pairs(Verb::Put, b"h", 0, &[b"a", value]);
    let long = alloc::vec![0; VALUE_BYTES_MAX + 1];
    assert_eq!(perform_at(&mut bench, 1, false, &put(&long)), failed(Failure::ValueTooLong));
    let count = names(Verb::Count, Container::Set, b"s", 0, &[]);
    assert_eq!(perform_at(&mut bench, 1, true, &count), text(65_536));
    let keys: [&[u8]; 4] = [b"s"; 4];
    let union = names(Verb::StoreUnion, Container::Set, b"u", 0, &keys);
    assert_eq!(perform_at(&mut bench, 1, false, &union), text(65_536));
    let union = names(Verb::StoreUnion, Container::Set, b"u", 0, &[&b"s"[..]; 5]);
    assert_eq!(perform_at(&mut bench, 1, false, &union), failed(Failure::TooManyElements));
}

/// Each value is of one kind. A string replaces a hash, and no element stays behind.
#[test]
fn kinds_do_not_mix() {
    let mut bench = Bench::new(2000);
    let wrong = alloc::vec![3, Failure::WrongKind as u8];
    let mut put = Vec::new();
    Operation::Put { key: b"k", value: b"1" }.encode(&mut put);
    let kind = names(Verb::Kind, Container::Hash, b"k", 0, &[]);
    let hash = pairs(Verb::Put, b"k", 0, &[b"a", b"1"]);
    assert_eq!(perform_at(&mut bench, 1, false, &kind), b"\x02none");
    perform_at(&mut bench, 1, false, &put);
    assert_eq!(perform_at(&mut bench, 1, false, &kind), b"\x02string");
    assert_eq!(perform_at(&mut bench, 1, false, &hash), wrong);
    let mut remove = Vec::new();
    Operation::Del { key: b"k" }.encode(&mut remove);
    perform_at(&mut bench, 1, false, &remove);
    perform_at(&mut bench, 1, false, &hash);
    assert_eq!(perform_at(&mut bench, 1, false, &kind), b"\x02hash");
    assert_eq!(perform_at(&mut bench, 1, false, &names(Verb::Add, Container::Set, b"k", 0, &[b"a"])), wrong);
    for operation in [
        Operation::Get { key: b"k" },
        Operation::Incr { key: b"k", by: 1 },
        Operation::Append { key: b"k", suffix: b"" },
    ] {
        let mut out = Vec::new();
        operation.encode(&mut out);
        assert_eq!(perform_at(&mut bench, 1, false, &out), wrong);
    }
    perform_at(&mut bench, 1, false, &put);
    perform_at(&mut bench, 1, false, &remove);
    let mut count = Vec::new();
    Command::Count.encode(&mut count);
    assert_eq!(answers(&perform_at(&mut bench, 1, false, &count))[2], text(0), "no page is lost");
}

/// A hash expires as a whole, and a new one under its key has none of its elements.
#[test]
fn hashes_expire() {
    let mut bench = Bench::new(2000);
    let put = |name: &[u8]| pairs(Verb::Put, b"k", 0, &[name, b"1"]);
    perform_at(&mut bench, 1, false, &put(b"a"));
    let mut expire = Vec::new();
    Command::Expire { key: b"k", ttl_ms: 100 }.encode(&mut expire);
    assert_eq!(perform_at(&mut bench, 1, false, &expire), text(1));
    perform_at(&mut bench, 50, false, &put(b"b"));
    let count = names(Verb::Count, Container::Hash, b"k", 0, &[]);
    assert_eq!(perform_at(&mut bench, 50, true, &count), [3, Failure::NeedsOrder as u8]);
    assert_eq!(perform_at(&mut bench, 100, false, &count), text(2));
    assert_eq!(perform_at(&mut bench, 101, true, &count), text(0));
    assert_eq!(perform_at(&mut bench, 101, false, &put(b"c")), text(1));
    assert_eq!(perform_at(&mut bench, 900, false, &count), text(1));
}

/// Chance is agreed: equal contexts draw alike, each name about as often as another, and different ones are different.
#[test]
fn what_is_drawn_is_spread() {
    let mut bench = Bench::new(2000);
    let words: Vec<String> = (0..40).map(|at| alloc::format!("{at:03}")).collect();
    let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
    perform_at(&mut bench, 1, false, &names(Verb::Add, Container::Set, b"s", 0, &words));
    let mut often: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    for at in 0..400 {
        let drawn =
            perform_at(&mut bench, 2 + at, false, &names(Verb::Random, Container::Set, b"s", 10, &[]));
        let mut drawn = answers(&drawn);
        drawn.sort();
        drawn.dedup();
        assert_eq!(drawn.len(), 10);
        for name in drawn {
            *often.entry(name).or_default() += 1;
        }
    }
    // 100 each in the mean; the deviation is 9.
    assert_eq!(often.len(), 40);
    assert!(often.values().all(|count| (55..145).contains(count)), "{often:?}");
    let many = perform_at(&mut bench, 900, false, &names(Verb::Random, Container::Set, b"s", -100, &[]));
    assert_eq!(answers(&many).len(), 100);
}

/// A set of 65,536 names, and copies of it under these keys.
pub(super) fn full_sets(b: &mut Bench, copies: &[&[u8]]) {
    let all: Vec<[u8; 3]> =
        (0..ELEMENTS_MAX).map(|name| name.to_le_bytes()[..3].try_into().unwrap()).collect();
    for part in all.chunks(8192) {
        let part: Vec<&[u8]> = part.iter().map(|name| &name[..]).collect();
        perform_at(b, 1, false, &names(Verb::Add, Container::Set, b"full", 0, &part));
    }
    for to in copies {
        let mut copy = Vec::new();
        Further::Copy { from: b"full", to, database: None, replace: false, remove: false }.encode(&mut copy);
        assert_eq!(perform_at(b, 1, false, &copy), b"\x021");
    }
}

/// L47: a pipeline of commands that look at many elements is done in several operations. A transaction of them is refused as
/// a whole, and so is one command that names a large set again and again.
#[test]
fn l47_an_operation_looks_at_a_bounded_number_of_elements() {
    let b = &mut Bench::new(100_000);
    full_sets(b, &[b"a", b"b"]);
    let common = names(Verb::CountCommon, Container::Set, b"full", 0, &[b"a", b"b"]);
    let count = alloc::format!("\x02{ELEMENTS_MAX}").into_bytes();
    assert_eq!(perform_at(b, 1, true, &common), count);
    let mut put = Vec::new();
    Operation::Put { key: b"x", value: b"1" }.encode(&mut put);
    let mut pack = Vec::new();
    let items = [&common[..], &put, &common, &common, &put];
    Command::Many(Items::operations(items, &mut Vec::new())).encode(&mut pack);
    let done = answers(&perform_at(b, 1, false, &pack));
    assert_eq!(done, [count.clone(), alloc::vec![0], count.clone()]);
    let all = |operations: &[&[u8]]| {
        let mut all = Vec::new();
        Further::All(All::new([], operations.iter().copied(), &mut Vec::new())).encode(&mut all);
        all
    };
    let few = perform_at(b, 1, false, &all(&[&common, &common, &put]));
    assert_eq!(answers(&few), [count.clone(), count, alloc::vec![0]]);
    let too_many = [3, Failure::TooManyElements as u8];
    let mut remove = Vec::new();
    Operation::Del { key: b"x" }.encode(&mut remove);
    let many = all(&[&remove, &common, &common, &common, &common, &common]);
    assert_eq!(perform_at(b, 1, false, &many), too_many);
    let mut get = Vec::new();
    Operation::Get { key: b"x" }.encode(&mut get);
    assert_eq!(perform_at(b, 1, true, &get), b"\x021", "nothing was done");
    let (mut mark, mut buffer) = (Vec::new(), Vec::new());
    Further::Mark(Items::keys([&b"full"[..]; 20], &mut buffer)).encode(&mut mark);
    assert_eq!(perform_at(b, 1, true, &mark), too_many);
}

/// L47: keys that expire are counted up to a bound. Those that have expired and are there are removed a few at a time.
#[test]
fn l47_counting_looks_at_a_bounded_number_of_keys() {
    let b = &mut Bench::new(100_000);
    let keys = 2 * ELEMENTS_MAX;
    for number in 0..keys {
        let mut set = Vec::new();
        let (key, life) = (&number.to_le_bytes()[..], Life::For(1000));
        Further::Set { key, value: b"", condition: None, life, get: false }.encode(&mut set);
        assert_eq!(perform_at(b, 1, false, &set), [0]);
    }
    let mut count = Vec::new();
    Command::Count.encode(&mut count);
    let text = |number: u32| alloc::format!("\x02{number}").into_bytes();
    assert_eq!(answers(&perform_at(b, 1, false, &count))[..2], [text(keys), text(ELEMENTS_MAX)]);
    assert_eq!(
        answers(&perform_at(b, 2000, false, &count))[..2],
        [text(keys - 4096 - ELEMENTS_MAX), text(0)]
    );
}

/// L47: expired sets are removed a few at a time. A database is cleared whatever it has.
#[test]
fn l47_expired_sets_go_a_few_at_a_time() {
    let b = &mut Bench::new(100_000);
    let copies: [&[u8]; 9] = [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9"];
    full_sets(b, &copies);
    for key in copies {
        let mut expire = Vec::new();
        Command::Expire { key, ttl_ms: 5 }.encode(&mut expire);
        assert_eq!(perform_at(b, 1, false, &expire), b"\x021");
    }
    let mut count = Vec::new();
    Command::Count.encode(&mut count);
    let pages =
        |counted: &[u8]| -> u32 { core::str::from_utf8(&answers(counted)[2][1..]).unwrap().parse().unwrap() };
    let before = pages(&perform_at(b, 1, false, &count));
    let after = pages(&perform_at(b, 10, false, &count));
    assert!((before / 3..2 * before / 3).contains(&after), "{before} pages, then {after}");
    full_sets(b, &[]);
    let mut clear = Vec::new();
    Further::ClearOne.encode(&mut clear);
    assert_eq!(perform_at(b, 1, false, &clear), [0]);
}

/// L80: the patterns of one command, or of a transaction, take a bounded number of steps. The bytes of a class are steps.
#[test]
fn l80_a_pattern_takes_a_bounded_time() {
    let b = &mut Bench::new(100_000);
    let wide: Vec<Vec<u8>> = (0..5000).map(|at| alloc::format!("{at:064}").into_bytes()).collect();
    for (key, count) in [(b"few", 40), (b"all", wide.len())] {
        let items: Vec<&[u8]> = wide[..count].iter().flat_map(|name| [&name[..], b""]).collect();
        perform_at(b, 1, false, &pairs(Verb::Put, key, 0, &items));
    }
    // A class without an end. Each name takes a step for each byte of the class at each of its own bytes.
    let class = |len: usize| [&b"*["[..], &alloc::vec![b'x'; len - 2]].concat();
    let scan = |key: &[u8], len| pairs(Verb::Scan, key, 10_000, &[b"", &class(len)]);
    let (nothing, malformed) = ([4, 1, 0, 0, 0, 1], [3, Failure::Malformed as u8]);
    assert_eq!(perform_at(b, 1, true, &scan(b"few", PATTERN_BYTES_MAX)), nothing);
    assert_eq!(perform_at(b, 1, true, &scan(b"few", PATTERN_BYTES_MAX + 1)), malformed);
    let too_many = [3, Failure::TooManyElements as u8];
    assert_eq!(perform_at(b, 1, true, &scan(b"all", PATTERN_BYTES_MAX)), too_many);
    let half = scan(b"all", PATTERN_BYTES_MAX / 2);
    assert_eq!(perform_at(b, 1, true, &half), nothing);
    let mut all = Vec::new();
    Further::All(All::new([], [&half[..]; 2], &mut Vec::new())).encode(&mut all);
    assert_eq!(perform_at(b, 1, false, &all), too_many);
    // The same for keys.
    for name in &wide {
        let mut put = Vec::new();
        Operation::Put { key: name, value: b"" }.encode(&mut put);
        perform_at(b, 1, false, &put);
    }
    for (len, expected) in [(PATTERN_BYTES_MAX, too_many), (PATTERN_BYTES_MAX + 1, malformed)] {
        let mut keys = Vec::new();
        Further::Scan { from: b"", count: 0, all: true, kind: Sort::Any, pattern: &class(len) }
            .encode(&mut keys);
        assert_eq!(perform_at(b, 1, true, &keys), expected);
    }
}
