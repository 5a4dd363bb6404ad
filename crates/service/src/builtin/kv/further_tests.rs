//! Tests of the further commands: their encoding, and the store against a plain map.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::tests::{answers, perform_at, spoiled};
use super::*;
use crate::testing::{Bench, Xorshift};

fn encoded(further: &Further<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    further.encode(&mut bytes);
    bytes
}

/// Calls `each` with a command of every kind.
fn every(mut each: impl FnMut(&Further<'_>)) {
    let (key, value) = (&b"key"[..], &b"value"[..]);
    let mut buffers = alloc::vec![Vec::new(); 3];
    let [pairs, keys, all] = &mut buffers[..] else { unreachable!() };
    let get = encoded(&Further::Deadline { key });
    let commands = [
        Further::Set { key, value, condition: Some(Condition::Absent), life: Life::For(5), get: true },
        Further::Set { key, value, condition: None, life: Life::AsBefore, get: false },
        Further::GetEx { key, life: Life::Until(7) },
        Further::Expire { key, time_ms: -3, since_1970: true, rule: Rule(Rule::LATER | Rule::PRESENT) },
        Further::Deadline { key },
        Further::AddDecimal { key, by: b"0.5" },
        Further::Range { key, start: -2, end: 9 },
        Further::Overwrite { key, offset: 3, value },
        Further::SetAbsent(Items::pairs([key, value], pairs)),
        Further::Copy { from: key, to: value, database: None, replace: true, remove: false },
        Further::Copy { from: key, to: value, database: Some(15), replace: false, remove: true },
        Further::RemoveIf { key, value },
        Further::ExpireIf { key, value, how: Extend::By, time_ms: 4 },
        Further::Scan { from: key, count: 10, all: false, kind: Sort::String, pattern: b"*" },
        Further::Random,
        Further::Time,
        Further::Mark(Items::keys([key, value], keys)),
        Further::All(All::new([(&[7; MARK_BYTES], &get[..])], [&get[..], &get[..]], all)),
        Further::In { database: 15, operation: &get },
        Further::ClearOne,
        Further::SetBit { key, place: 70_000, is_set: true },
        Further::Usage { key },
    ];
    commands.iter().for_each(&mut each);
}

/// B36: any bytes give a command or an error, and what is decoded has one encoding.
#[test]
fn decoding_is_total_and_canonical() {
    let (mut random, mut decoded) = (Xorshift::new(5), 0);
    every(|further| {
        let bytes = encoded(further);
        assert_eq!(Further::decode(&bytes), Ok(*further));
        for _ in 0..3000 {
            let bytes = spoiled(&mut random, &bytes);
            if let Ok(Asked::Further(further)) = Asked::decode(&bytes) {
                decoded += 1;
                assert_eq!(encoded(&further), bytes);
                let _ = further.is_read_only();
            }
        }
    });
    assert!(decoded > 20_000, "{decoded}");
}

/// A pack, a transaction and a database hold neither a transaction nor a database in a database: nothing nests deeply.
#[test]
fn what_nests_is_refused() {
    let b = &mut Bench::new(2000);
    let (mut x, mut y) = (Vec::new(), Vec::new());
    let all = encoded(&Further::All(All::new([], [], &mut x)));
    let within = encoded(&Further::In { database: 1, operation: &encoded(&Further::Random) });
    let malformed = [3, Failure::Malformed as u8];
    for operation in [&all, &within] {
        let within = encoded(&Further::In { database: 1, operation });
        assert_eq!(perform_at(b, 1, false, &within), malformed);
    }
    let outer = encoded(&Further::All(All::new([], [&all[..]], &mut y)));
    assert_eq!(answers(&perform_at(b, 1, false, &outer)), [malformed]);
    let mut pack = Vec::new();
    Command::Many(Items::operations([&all], &mut Vec::new())).encode(&mut pack);
    assert_eq!(answers(&perform_at(b, 1, false, &pack)), [malformed]);
    let mut deep = encoded(&Further::Random);
    for _ in 0..10_000 {
        deep.splice(0..0, [Further::IN_CODE, 1]);
    }
    assert_eq!(perform_at(b, 1, false, &deep), malformed);
    let mut deep = encoded(&Further::Random);
    for _ in 0..3000 {
        deep = encoded(&Further::All(All::new([], [&deep[..]], &mut Vec::new())));
    }
    let _ = Kv.is_read_only(&deep);
    assert_eq!(answers(&perform_at(b, 1, false, &deep)), [malformed]);
}

/// A transaction does all or nothing; what fails by itself does not stop it.
#[test]
fn a_transaction_does_all_or_nothing() {
    let b = &mut Bench::new(4000);
    let put = |key: &[u8], value: &[u8]| {
        let mut bytes = Vec::new();
        Operation::Put { key, value }.encode(&mut bytes);
        bytes
    };
    let get = |key: &[u8]| {
        let mut bytes = Vec::new();
        Operation::Get { key }.encode(&mut bytes);
        bytes
    };
    let incr = |key: &[u8]| {
        let mut bytes = Vec::new();
        Operation::Incr { key, by: 1 }.encode(&mut bytes);
        bytes
    };
    let all = |operations: &[Vec<u8>]| {
        encoded(&Further::All(All::new([], operations.iter().map(Vec::as_slice), &mut Vec::new())))
    };
    let some = all(&[put(b"a", b"x"), incr(b"a"), incr(b"n"), get(b"n")]);
    let not = alloc::vec![3, Failure::NotANumber as u8];
    assert_eq!(
        answers(&perform_at(b, 1, false, &some)),
        [alloc::vec![0], not, b"\x021".to_vec(), b"\x021".to_vec()]
    );
    // The answer has no room for two long values: the counter stays.
    perform_at(b, 1, false, &put(b"long", &alloc::vec![7; VALUE_BYTES_MAX]));
    let long = all(&[incr(b"n"), get(b"long"), get(b"long")]);
    assert_eq!(perform_at(b, 1, false, &long), [3, Failure::AnswerTooLong as u8]);
    assert_eq!(perform_at(b, 1, false, &get(b"n")), b"\x021");
    // Neither does a full store leave half of a transaction.
    let full = all(&[
        incr(b"n"),
        put(b"1", &alloc::vec![7; VALUE_BYTES_MAX]),
        put(b"2", &alloc::vec![7; VALUE_BYTES_MAX]),
    ]);
    let small = &mut Bench::new(400);
    perform_at(small, 1, false, &incr(b"n"));
    assert_eq!(perform_at(small, 1, false, &full), [3, Failure::Full as u8]);
    assert_eq!(perform_at(small, 1, false, &get(b"n")), b"\x021");
    // A mark that is not what it was.
    let operation = encoded(&Further::Mark(Items::keys([b"n"], &mut Vec::new())));
    let mark: [u8; MARK_BYTES] = perform_at(b, 1, true, &operation)[1..].try_into().unwrap();
    let watched =
        encoded(&Further::All(All::new([(&mark, &operation[..])], [&incr(b"n")[..]], &mut Vec::new())));
    assert_eq!(answers(&perform_at(b, 1, false, &watched)), [b"\x022"]);
    assert_eq!(perform_at(b, 1, false, &watched), [1]);
    assert_eq!(perform_at(b, 1, false, &get(b"n")), b"\x022");
}

/// The plainest store with time and databases.
#[derive(Default)]
struct Model(BTreeMap<(u8, Vec<u8>), Held>);

/// A value and when it expires.
type Held = (Vec<u8>, Option<i64>);

impl Model {
    fn get(&self, now: i64, db: u8, key: &[u8]) -> Option<&(Vec<u8>, Option<i64>)> {
        self.0.get(&(db, key.to_vec())).filter(|(_, at)| at.is_none_or(|at| at > now))
    }

    fn put(&mut self, db: u8, key: &[u8], value: Vec<u8>, at: Option<i64>) {
        self.0.insert((db, key.to_vec()), (value, at));
    }

    #[allow(
        clippy::too_many_lines,
        clippy::wildcard_enum_match_arm,
        reason = "a case for each drawn command"
    )]
    fn answer(&mut self, now: i64, db: u8, further: &Further<'_>) -> Vec<u8> {
        let number = |number: i64| alloc::format!("\x02{number}").into_bytes();
        let value = |found: Option<&(Vec<u8>, Option<i64>)>| {
            found.map_or(alloc::vec![1], |(value, _)| [&[2], &value[..]].concat())
        };
        let until = |life: Life, before: Option<i64>| match life {
            Life::Forever => None,
            Life::AsBefore => before,
            Life::For(ms) => Some(now + i64::try_from(ms).unwrap()),
            Life::Until(ms) => Some(i64::try_from(ms).unwrap()),
        };
        match *further {
            Further::Set { key, value: new, condition, life, get } => {
                let old = self.get(now, db, key).cloned();
                let holds = condition.is_none_or(|c| old.is_some() == (c == Condition::Present));
                if holds {
                    let before = old.as_ref().and_then(|(_, at)| *at);
                    self.put(db, key, new.to_vec(), until(life, before));
                }
                if get { value(old.as_ref()) } else { alloc::vec![u8::from(!holds)] }
            }
            Further::GetEx { key, life } => {
                let old = self.get(now, db, key).cloned();
                if let Some((value, before)) = old.clone() {
                    self.put(db, key, value, until(life, before));
                }
                value(old.as_ref())
            }
            Further::Expire { key, time_ms, since_1970, rule } => {
                let at = if since_1970 { time_ms } else { now + time_ms };
                let Some((value, old)) = self.get(now, db, key).cloned() else { return number(0) };
                let has = |bit| rule.0 & bit != 0;
                let allowed = (!has(Rule::ABSENT) || old.is_none())
                    && (!has(Rule::PRESENT) || old.is_some())
                    && (!has(Rule::LATER) || old.is_some_and(|old| at > old))
                    && (!has(Rule::EARLIER) || old.is_none_or(|old| at < old));
                if allowed {
                    self.put(db, key, value, Some(at));
                }
                number(i64::from(allowed))
            }
            Further::Deadline { key } => {
                number(self.get(now, db, key).map_or(-2, |(_, at)| at.unwrap_or(-1)))
            }
            Further::Overwrite { key, offset, value: part } => {
                let (mut value, at) = self.get(now, db, key).cloned().unwrap_or_default();
                if !part.is_empty() {
                    let start = usize::try_from(offset).unwrap();
                    value.resize(value.len().max(start + part.len()), 0);
                    value[start..start + part.len()].copy_from_slice(part);
                    self.put(db, key, value.clone(), at);
                }
                number(i64::try_from(value.len()).unwrap())
            }
            Further::Copy { from, to, database, replace, remove } => {
                let other = database.unwrap_or(db);
                let Some((value, at)) = self.get(now, db, from).cloned() else { return alloc::vec![1] };
                if (db, from) == (other, to) {
                    return number(i64::from(replace && remove));
                }
                if !replace && self.get(now, other, to).is_some() {
                    return number(0);
                }
                self.put(other, to, value, at);
                if remove {
                    self.0.remove(&(db, from.to_vec()));
                }
                number(1)
            }
            Further::Usage { key } => match self.get(now, db, key) {
                Some((value, _)) => number(i64::try_from(key.len() + value.len()).unwrap()),
                None => alloc::vec![1],
            },
            Further::SetBit { key, place, is_set } => {
                let (mut value, at) = self.get(now, db, key).cloned().unwrap_or_default();
                let (byte, bit) = (usize::try_from(place / 8).unwrap(), 1 << (7 - place % 8));
                value.resize(value.len().max(byte + 1), 0);
                let was = value[byte] & bit > 0;
                if was != is_set {
                    value[byte] ^= bit;
                }
                self.put(db, key, value, at);
                number(i64::from(was))
            }
            Further::RemoveIf { key, value } => {
                let is = self.get(now, db, key).is_some_and(|(old, _)| old == value);
                if is {
                    self.0.remove(&(db, key.to_vec()));
                }
                number(i64::from(is))
            }
            Further::ExpireIf { key, value, how, time_ms } => {
                let found = self.get(now, db, key).cloned().filter(|(old, _)| old == value);
                let at = match (found, how) {
                    (Some((_, Some(at))), Extend::By) => at + time_ms,
                    (Some(_), Extend::From) | (Some((_, Some(_))), Extend::Again) => now + time_ms,
                    _ => return number(0),
                };
                self.put(db, key, value.to_vec(), Some(at));
                number(1)
            }
            Further::Scan { .. } => {
                let mut out = alloc::vec![4, 1, 0, 0, 0, 1];
                let keys: Vec<Vec<u8>> =
                    self.0.keys().filter(|(of, _)| *of == db).map(|(_, key)| key.clone()).collect();
                for key in keys.iter().filter(|key| self.get(now, db, key).is_some()) {
                    out.extend_from_slice(&u32::try_from(key.len() + 1).unwrap().to_le_bytes());
                    out.push(2);
                    out.extend_from_slice(key);
                }
                out
            }
            Further::ClearOne => {
                self.0.retain(|(of, _), _| *of != db);
                alloc::vec![0]
            }
            _ => unreachable!("not drawn"),
        }
    }
}

#[test]
fn databases_behave_like_maps_with_time() {
    for seed in 1..6 {
        let mut random = Xorshift::new(seed);
        let (mut bench, mut model, mut now) = (Bench::new(3000), Model::default(), 1_000_i64);
        let mut log: Vec<String> = Vec::new();
        for _ in 0..3000 {
            let mut below = |bound: u64| random.below(bound);
            now += i64::try_from(below(4) * below(20)).unwrap();
            let keys: Vec<[u8; 2]> = (0..2).map(|_| [b'k', u8::try_from(below(12)).unwrap()]).collect();
            let (key, to) = (&keys[0][..], &keys[1][..]);
            let value = alloc::vec![b'v'; usize::try_from(below(3) * below(3) * below(300)).unwrap()];
            let value = &value[..];
            let time_ms = i64::try_from(below(400)).unwrap() - 20;
            let life = match below(4) {
                0 => Life::Forever,
                1 => Life::AsBefore,
                2 => Life::For(below(300) + 1),
                _ => Life::Until(u64::try_from(now + time_ms).unwrap()),
            };
            let condition =
                [None, Some(Condition::Absent), Some(Condition::Present)][usize::try_from(below(3)).unwrap()];
            let how = [Extend::From, Extend::By, Extend::Again][usize::try_from(below(3)).unwrap()];
            let further = match below(26) {
                0..=5 => Further::Set { key, value, condition, life, get: below(3) == 0 },
                6 => Further::GetEx { key, life },
                7..=9 => Further::Expire {
                    key,
                    time_ms: now + time_ms,
                    since_1970: true,
                    rule: Rule([0, 1, 2, 4, 8, 6, 10][usize::try_from(below(7)).unwrap()]),
                },
                10 => Further::Expire { key, time_ms, since_1970: false, rule: Rule(0) },
                11 | 12 => Further::Deadline { key },
                13 => Further::Overwrite {
                    key,
                    offset: u32::try_from(below(40)).unwrap(),
                    value: &value[..value.len().min(9)],
                },
                14..=16 => {
                    let database = if below(2) == 0 { None } else { u8::try_from(below(4)).ok() };
                    Further::Copy { from: key, to, database, replace: below(2) == 0, remove: below(2) == 0 }
                }
                17 => Further::RemoveIf { key, value },
                18 | 19 => Further::ExpireIf { key, value, how, time_ms },
                20 if below(10) == 0 => Further::ClearOne,
                23 => Further::Usage { key },
                21 | 22 => {
                    let place = u32::try_from(below(90)).unwrap();
                    Further::SetBit { key, place, is_set: below(2) == 0 }
                }
                _ => Further::Scan { from: b"", count: 0, all: true, kind: Sort::Any, pattern: b"*" },
            };
            let db = u8::try_from(below(3)).unwrap() * 7;
            let mut bytes = encoded(&further);
            if db > 0 {
                bytes.splice(0..0, [Further::IN_CODE, db]);
            }
            log.push(alloc::format!("{now} {db} {further:?}"));
            let expected = model.answer(now, db, &further);
            let at = u64::try_from(now).unwrap();
            if further.is_read_only() {
                let seen = perform_at(&mut bench, at, true, &bytes);
                assert!(
                    seen == expected || seen == [3, Failure::NeedsOrder as u8],
                    "seed {seed}: {further:?}"
                );
            }
            let seen = perform_at(&mut bench, at, false, &bytes);
            assert_eq!(seen, expected, "seed {seed}: {:?}", &log[log.len().saturating_sub(8)..]);
        }
        for db in 0..DATABASES {
            let mut bytes = encoded(&Further::ClearOne);
            if db > 0 {
                bytes.splice(0..0, [Further::IN_CODE, db]);
            }
            perform_at(&mut bench, u64::try_from(now).unwrap(), false, &bytes);
        }
        // B12: nothing is left of what was removed, but where the search for free pages begins.
        let mut used = 0;
        bench.run(|view| {
            for page in 1..3000 {
                used += usize::from(view.page(page).unwrap().iter().any(|byte| *byte != 0));
            }
        });
        assert_eq!(used, 0);
    }
}
