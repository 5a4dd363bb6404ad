//! Tests of the store as the executor uses it.

use core::sync::atomic::{AtomicU64, Ordering};

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
    perform_at(bench, 0, false, bytes)
}

/// Batches have different numbers.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Does one operation at an agreed time in milliseconds, ordered or not.
pub(super) fn perform_at(bench: &mut Bench, at: u64, read_only: bool, bytes: &[u8]) -> Vec<u8> {
    let time_ns = at * 1_000_000;
    let cx = Context {
        client: ClientId::new(1, 0),
        timestamp: Timestamp(1),
        seq: SeqNum(NEXT.fetch_add(1, Ordering::Relaxed)),
        index: 0,
        time_ns,
        read_only,
    };
    let mut out = Vec::new();
    let done = bench.run(|view| {
        let done = Kv.execute(cx, bytes, view, &mut out);
        // As the executor does.
        if done == Err(Stop::Refused) {
            view.undo();
        }
        done
    });
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

fn encoded(command: &Command<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode(&mut bytes);
    bytes
}

fn get(key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Operation::Get { key }.encode(&mut bytes);
    bytes
}

fn set<'a>(key: &'a [u8], value: &'a [u8], ttl_ms: Option<u64>) -> Command<'a> {
    Command::Set { key, value, condition: None, ttl_ms, get: false }
}

/// Returns an encoding of which up to two bytes are others, and which sometimes ends early.
pub(super) fn spoiled(random: &mut Xorshift, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.below(3) {
        let at = usize::try_from(random.next() % 64).unwrap() % bytes.len();
        bytes[at] = u8::try_from(random.below(256)).unwrap();
    }
    if random.below(4) == 0 {
        bytes.truncate(usize::try_from(random.below(20)).unwrap());
    }
    bytes
}

/// The answer to many, or to a question with many answers.
pub(super) fn answers(bytes: &[u8]) -> Vec<Vec<u8>> {
    let Ok(Answer::Many(answers)) = Answer::decode(bytes) else { panic!("{bytes:?} are not many") };
    answers.iter().map(<[u8]>::to_vec).collect()
}

/// A key whose time has come is not served: not by the ordered path, and not by a read that is not
/// ordered, which knows no later time than that of the last batch.
#[test]
fn an_expired_key_is_never_served() {
    let b = &mut Bench::new(4000);
    perform_at(b, 1000, false, &encoded(&set(b"k", b"v", Some(500))));
    let needs_order = [3, Failure::NeedsOrder as u8];
    let reads: [(Vec<u8>, &[u8]); 4] = [
        (get(b"k"), &[1]),
        (encoded(&Command::Length { key: b"k" }), b"\x020"),
        (encoded(&Command::Exists(Items::keys([b"k"], &mut Vec::new()))), b"\x020"),
        (encoded(&Command::Ttl { key: b"k" }), b"\x02-2"),
    ];
    for (read, after) in &reads {
        assert_eq!(perform_at(b, 1499, true, read), needs_order, "an unordered read cannot tell");
        assert_ne!(perform_at(b, 1499, false, read), *after);
        assert_eq!(perform_at(b, 1500, true, read), *after);
        assert_eq!(perform_at(b, 1500, false, read), *after);
    }
    let many = encoded(&Command::Many(Items::operations([get(b"other"), get(b"k")], &mut Vec::new())));
    assert_eq!(perform_at(b, 1499, true, &many), needs_order);
    assert_eq!(answers(&perform_at(b, 1500, true, &many)), [[1], [1]]);
    assert_eq!(perform_at(b, 1499, true, &encoded(&Command::Count)), needs_order);
    assert_eq!(answers(&perform_at(b, 1500, true, &encoded(&Command::Count)))[0], b"\x020");
}

/// Keys that have expired are removed by what comes after, and take no room.
#[test]
fn what_has_expired_goes() {
    let b = &mut Bench::new(4000);
    for number in 0..500_u32 {
        perform_at(b, 1, false, &encoded(&set(&number.to_le_bytes(), &[7; 400], Some(10))));
    }
    for number in 0..125_u32 {
        perform_at(b, 20, false, &encoded(&set(&number.to_le_bytes(), b"", None)));
    }
    let count = answers(&perform_at(b, 20, false, &encoded(&Command::Count)));
    assert_eq!(count[..2], [b"\x02125".to_vec(), b"\x020".to_vec()]);
    let pages: u32 = core::str::from_utf8(&count[2][1..]).unwrap().parse().unwrap();
    assert!(pages < 30, "{pages} pages");
}

/// B12: a store that was cleared is in no way different from one in which nothing ever was.
#[test]
fn clearing_leaves_the_initial_state() {
    let b = &mut Bench::new(4000);
    for number in 0..300_u32 {
        let ttl = (number % 2 == 0).then_some(u64::from(number) + 1);
        perform_at(b, 1, false, &encoded(&set(&number.to_le_bytes(), &[7; 900], ttl)));
    }
    assert_eq!(perform_at(b, 2, false, &encoded(&Command::Clear)), [0]);
    b.run(|view| {
        for page in 0..4000 {
            assert!(view.page(page).unwrap().iter().all(|byte| *byte == 0), "page {page}");
        }
    });
}

/// A refused item of many leaves nothing behind, and those before and after it stand.
#[test]
fn many_are_done_one_by_one() {
    let b = &mut Bench::new(4000);
    let long = alloc::vec![b'k'; 1000];
    let mut buffers = [Vec::new(), Vec::new(), Vec::new()];
    let [x, y, z] = &mut buffers;
    let items = [
        encoded(&set(b"a", b"1", None)),
        // The first pair is written before the second is refused.
        encoded(&Command::SetMany(Items::pairs([b"a", &b"2"[..], &long, b"3"], x))),
        get(b"a"),
        encoded(&Command::Many(Items::operations([get(b"a")], y))),
        encoded(&Command::GetDel { key: b"a" }),
        get(b"a"),
    ];
    let many = encoded(&Command::Many(Items::operations(&items, z)));
    let failed = |why: Failure| alloc::vec![3, why as u8];
    let expected = [
        alloc::vec![0],
        failed(Failure::KeyTooLong),
        b"\x021".to_vec(),
        failed(Failure::Malformed),
        b"\x021".to_vec(),
        alloc::vec![1],
    ];
    assert_eq!(answers(&perform_at(b, 1, false, &many)), expected);
}

/// What the answer has no room for is not done, but something always is.
#[test]
fn many_stop_where_the_answer_is_full() {
    let b = &mut Bench::new(8000);
    let mut buffer = Vec::new();
    for (key, len) in [(b"a", 20_000), (b"b", 20_000), (b"c", VALUE_BYTES_MAX)] {
        perform_at(b, 1, false, &encoded(&set(key, &alloc::vec![7; len], None)));
    }
    let take = |key| encoded(&Command::GetDel { key });
    let mut many = |items: &[Vec<u8>]| encoded(&Command::Many(Items::operations(items, &mut buffer)));
    let all = many(&[take(b"a"), take(b"b"), take(b"c")]);
    assert_eq!(answers(&perform_at(b, 1, false, &all)).len(), 1);
    let rest = many(&[take(b"b"), take(b"c")]);
    assert_eq!(answers(&perform_at(b, 1, false, &rest)).len(), 1, "b was left where it was");
    let last = answers(&perform_at(b, 1, false, &many(&[take(b"c"), take(b"a")])));
    assert_eq!((last.len(), last[0].len()), (1, VALUE_BYTES_MAX + 1));
    let all = encoded(&Command::GetMany(Items::keys([b"a", b"b", b"c"], &mut Vec::new())));
    assert_eq!(answers(&perform_at(b, 1, false, &all)), [[1], [1], [1]]);
}

#[test]
fn an_answer_that_is_too_long_is_refused() {
    let b = &mut Bench::new(8000);
    perform_at(b, 1, false, &encoded(&set(b"c", &alloc::vec![7; VALUE_BYTES_MAX], None)));
    let both = encoded(&Command::GetMany(Items::keys([b"c", b"c"], &mut Vec::new())));
    assert_eq!(perform_at(b, 1, true, &both), [3, Failure::AnswerTooLong as u8]);
}

/// The plainest store with time: what each key is and when it goes.
#[derive(Default)]
struct Model(BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>);

impl Model {
    fn get(&self, now: u64, key: &[u8]) -> Option<&Vec<u8>> {
        let (value, at) = self.0.get(key)?;
        at.is_none_or(|at| at > now).then_some(value)
    }

    fn answer(&mut self, now: u64, command: &Command<'_>) -> Vec<u8> {
        let text = |number: i64| alloc::format!("\x02{number}").into_bytes();
        let value = |value: Option<&Vec<u8>>| match value {
            Some(value) => [&[2], &value[..]].concat(),
            None => alloc::vec![1],
        };
        match *command {
            Command::Set { key, value: new, condition, ttl_ms, get } => {
                let old = value(self.get(now, key));
                let there = self.get(now, key).is_some();
                let holds = condition.is_none_or(|condition| there == (condition == Condition::Present));
                if holds {
                    self.0.insert(key.to_vec(), (new.to_vec(), ttl_ms.map(|ttl| now + ttl)));
                }
                if get { old } else { alloc::vec![u8::from(!holds)] }
            }
            Command::GetDel { key } => {
                let old = value(self.get(now, key));
                self.0.remove(key);
                old
            }
            Command::Expire { key, ttl_ms } => {
                let there = self.get(now, key).is_some();
                if there && ttl_ms <= 0 {
                    self.0.remove(key);
                } else if there {
                    self.0.get_mut(key).unwrap().1 = Some(now + u64::try_from(ttl_ms).unwrap());
                }
                text(i64::from(there))
            }
            Command::Ttl { key } => text(match (self.get(now, key), self.0.get(key)) {
                (Some(_), Some((_, Some(at)))) => i64::try_from(at - now).unwrap(),
                (Some(_), _) => -1,
                _ => -2,
            }),
            Command::Persist { key } => {
                let expires = self.get(now, key).is_some() && self.0[key].1.is_some();
                if expires {
                    self.0.get_mut(key).unwrap().1 = None;
                }
                text(i64::from(expires))
            }
            Command::Del(keys) => {
                let there = keys.iter().filter(|key| {
                    let there = self.get(now, key).is_some();
                    self.0.remove(*key);
                    there
                });
                text(i64::try_from(there.count()).unwrap())
            }
            Command::Exists(keys) => {
                let there = keys.iter().filter(|key| self.get(now, key).is_some());
                text(i64::try_from(there.count()).unwrap())
            }
            Command::Length { key } => {
                text(self.get(now, key).map_or(0, |value| i64::try_from(value.len()).unwrap()))
            }
            Command::Count
            | Command::Clear
            | Command::GetMany(_)
            | Command::SetMany(_)
            | Command::Many(_) => unreachable!("not drawn"),
        }
    }
}

/// Against the plainest store with time, ordered and not, while time advances.
#[test]
fn it_behaves_like_a_map_with_time() {
    for seed in 1..6 {
        let mut random = Xorshift::new(seed);
        let (mut bench, mut model, mut now) = (Bench::new(3000), Model::default(), 1_000);
        let mut unordered = 0;
        for _ in 0..3000 {
            now += random.below(4) * random.below(20);
            let keys: Vec<[u8; 2]> =
                (0..3).map(|_| [b'k', u8::try_from(random.below(30)).unwrap()]).collect();
            let key = &keys[0][..];
            let value = alloc::vec![b'v'; usize::try_from(random.below(7) * random.below(200)).unwrap()];
            let ttl_ms = (random.below(2) == 0).then_some(random.below(400) + 1);
            let condition = [None, Some(Condition::Absent), Some(Condition::Present)]
                [usize::try_from(random.below(3)).unwrap()];
            let mut buffer = Vec::new();
            let command = match random.below(9) {
                0 | 1 => Command::Set { key, value: &value, condition, ttl_ms, get: random.below(3) == 0 },
                2 => Command::GetDel { key },
                3 => Command::Expire { key, ttl_ms: i64::try_from(random.below(300)).unwrap() - 20 },
                4 => Command::Ttl { key },
                5 => Command::Persist { key },
                6 => Command::Del(Items::keys(&keys, &mut buffer)),
                7 => Command::Exists(Items::keys(&keys, &mut buffer)),
                _ => Command::Length { key },
            };
            let bytes = encoded(&command);
            let expected = model.answer(now, &command);
            if command.is_read_only() {
                let seen = perform_at(&mut bench, now, true, &bytes);
                if seen != [3, Failure::NeedsOrder as u8] {
                    unordered += 1;
                    assert_eq!(seen, expected, "seed {seed}: {command:?}");
                }
            }
            assert_eq!(perform_at(&mut bench, now, false, &bytes), expected, "seed {seed}: {command:?}");
            let live = model.0.values().filter(|(_, at)| at.is_none_or(|at| at > now));
            let count = [live.clone().count(), live.filter(|(_, at)| at.is_some()).count()];
            let seen = answers(&perform_at(&mut bench, now, false, &encoded(&Command::Count)));
            assert_eq!(seen[..2], count.map(|count| alloc::format!("\x02{count}").into_bytes()));
        }
        assert!(unordered > 300, "{unordered}");
    }
}
