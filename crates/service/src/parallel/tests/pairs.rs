//! Every pair of operations of the key-value store both ways round, each with its own time: if the rules call them
//! independent, replies and contents are equal.

use alloc::vec::Vec;
use std::string::String;

use quorate_wire::{ClientId, SeqNum, Timestamp};

use crate::kv::{
    Command, Condition, Container as Made, Elements, Items, Kv, ListCall, ListVerb, Operation, Verb,
};
use crate::parallel::*;
use crate::service::{Context, Service as _};
use crate::state::cell::{CellRun, Change};
use crate::testing::{Bench, Xorshift};

/// Every kind of operation, on each of these keys.
fn operations() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut add = |encode: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        encode(&mut out);
        all.push(out);
    };
    for (key, other) in [(&b"a"[..], &b"b"[..]), (b"b", b"c"), (b"c", b"d")] {
        let operations = [
            Operation::Get { key },
            Operation::Put { key, value: b"12" },
            Operation::Del { key },
            Operation::Cas { key, expected: Some(b"5"), value: b"6" },
            Operation::Cas { key, expected: None, value: b"7" },
            Operation::Incr { key, by: 4 },
            Operation::Append { key, suffix: b"9" },
        ];
        for operation in &operations {
            add(&|out| operation.encode(out));
        }
        let set = |condition, ttl_ms, get| Command::Set { key, value: b"3", condition, ttl_ms, get };
        let (mut keys, mut pairs) = (Vec::new(), Vec::new());
        let keys = Items::keys([key, other], &mut keys);
        let commands = [
            set(None, None, false),
            set(Some(Condition::Absent), Some(2), false),
            set(Some(Condition::Present), Some(90), true),
            Command::GetDel { key },
            Command::Length { key },
            Command::Del(keys),
            Command::Exists(keys),
            Command::GetMany(keys),
            Command::SetMany(Items::pairs([key, b"1", other, b"2"], &mut pairs)),
            Command::Expire { key, ttl_ms: 0 },
            Command::Expire { key, ttl_ms: 50 },
            Command::Ttl { key },
            Command::Persist { key },
        ];
        for command in &commands {
            add(&|out| command.encode(out));
        }
        let (mut put, mut buffer) = (Vec::new(), Vec::new());
        Operation::Put { key, value: b"many" }.encode(&mut put);
        let items = Items::operations([&put], &mut buffer);
        add(&|out| Command::Many(items).encode(out));
    }
    for verb in Verb::ALL {
        for (key, other, kind) in
            [(&b"a"[..], &b"b"[..], Made::Set), (b"h", b"a", Made::Hash), (b"s", b"t", Made::Set)]
        {
            // The key of a string is used by a few: that is enough to meet them.
            if key == b"a" && !matches!(verb, Verb::Add | Verb::Kind | Verb::StoreUnion) {
                continue;
            }
            let mut buffer = Vec::new();
            let items = verb.example(other, b"x", &mut buffer);
            add(&|out| Elements { verb, kind, key, number: 2, items }.encode(out));
        }
    }
    for verb in ListVerb::ALL {
        for (key, other) in [(&b"l"[..], &b"m"[..]), (b"m", b"h")] {
            let mut buffer = Vec::new();
            let items = verb.example(other, b"x", &mut buffer);
            add(&|out| ListCall { verb, key, number: 1, items }.encode(out));
        }
    }
    add(&|out| Command::Count.encode(out));
    add(&|out| Command::Clear.encode(out));
    add(&|out| out.push(0xff));
    all
}

fn context(index: u32, time_ms: u64) -> Context {
    Context {
        client: ClientId::new(1, 0),
        timestamp: Timestamp(1),
        seq: SeqNum(9),
        index,
        time_ns: time_ms * 1_000_000,
        read_only: false,
    }
}

/// Executes an operation at a time in milliseconds, before its turn. Returns nothing if it needs pages: such an
/// operation waits for its turn. Reaping of expired keys is a step of its own, which is left out: it happens in the
/// agreed order, and shows in nothing but the pages.
fn execute_early(bench: &mut Bench, index: u32, time_ms: u64, operation: &[u8]) -> Option<Vec<u8>> {
    let (mut run, mut out) = (CellRun::default(), Vec::new());
    let cx = context(index, time_ms);
    let done = bench.run_on_cells(&mut run, |view| Kv.execute(cx, operation, view, &mut out));
    if run.has_failed() {
        return None;
    }
    if done.is_ok() {
        bench.run(|view| {
            for change in run.changes().iter().filter(|change| !matches!(change, Change::Step(_))) {
                assert!(crate::btree::log::apply(view, change).unwrap());
            }
        });
    }
    Some(out)
}

/// Executes an operation in its turn.
fn execute(bench: &mut Bench, index: u32, time_ms: u64, operation: &[u8]) -> Vec<u8> {
    execute_early(bench, index, time_ms, operation).unwrap_or_else(|| {
        let mut out = Vec::new();
        bench.run(|view| {
            if Kv.execute(context(index, time_ms), operation, view, &mut out).is_err() {
                view.undo();
            }
        });
        out
    })
}

/// Some contents, the same for the same seed.
fn start(seed: u64) -> Bench {
    let (mut bench, mut random) = (Bench::new(400), Xorshift::new(seed));
    for key in [b"a", b"b", b"c", b"d"] {
        let mut out = Vec::new();
        match random.below(4) {
            0 => {}
            1 => Operation::Put { key, value: b"5" }.encode(&mut out),
            // Some have expired at 1,000 ms, some at 1,001 ms.
            other => {
                let ttl_ms = Some(if other == 2 { 99 + random.below(4) } else { 500 });
                Command::Set { key, value: b"5", condition: None, ttl_ms, get: false }.encode(&mut out);
            }
        }
        if !out.is_empty() {
            execute(&mut bench, 10, 900, &out);
        }
    }
    for (at, (key, verb, kind)) in
        [(&b"h"[..], Verb::Put, Made::Hash), (b"s", Verb::Add, Made::Set), (b"t", Verb::Add, Made::Set)]
            .into_iter()
            .enumerate()
    {
        let (mut out, mut buffer) = (Vec::new(), Vec::new());
        let name: &[u8] = if random.below(3) == 0 { b"y" } else { b"x" };
        let items = if verb == Verb::Put {
            Items::pairs([name, b"5"], &mut buffer)
        } else {
            Items::keys([name], &mut buffer)
        };
        Elements { verb, kind, key, number: 0, items }.encode(&mut out);
        if random.below(4) > 0 {
            execute(&mut bench, 20 + u32::try_from(at).unwrap(), 900, &out);
        }
    }
    for (at, key) in [b"l", b"m"].into_iter().enumerate() {
        let (mut out, mut buffer) = (Vec::new(), Vec::new());
        let items = Items::operations([b"x", b"y", b"x"], &mut buffer);
        ListCall { verb: ListVerb::PushRight, key, number: 0, items }.encode(&mut out);
        if random.below(4) > 0 {
            execute(&mut bench, 30 + u32::try_from(at).unwrap(), 900, &out);
        }
    }
    bench
}

/// What a client can see.
fn contents(bench: &mut Bench) -> Vec<Vec<u8>> {
    let mut buffer = Vec::new();
    let keys = Items::keys([b"a", b"b", b"c", b"d"], &mut buffer);
    let mut questions = alloc::vec![Command::GetMany(keys), Command::Count];
    questions.extend([b"a", b"b", b"c", b"d"].iter().map(|key| Command::Ttl { key: &key[..] }));
    let ask = |question: &Command<'_>| {
        let mut out = Vec::new();
        question.encode(&mut out);
        let mut answer = execute(bench, 0, 1_002, &out);
        if matches!(question, Command::Count) {
            // Two numbers of keys; then one of pages, which depends on the order and is not contents.
            answer.truncate(1 + 2 * (4 + 2));
        }
        answer
    };
    let mut all: Vec<Vec<u8>> = questions.iter().map(ask).collect();
    for key in [b"a", b"b", b"h", b"s", b"t"] {
        for (verb, kind) in [(Verb::Kind, Made::Set), (Verb::Pairs, Made::Hash), (Verb::Names, Made::Set)] {
            let mut out = Vec::new();
            Elements { verb, kind, key, number: 0, items: Items::none() }.encode(&mut out);
            all.push(execute(bench, 0, 1_002, &out));
        }
    }
    for key in [b"l", b"m"] {
        let (mut out, mut buffer) = (Vec::new(), Vec::new());
        let items = Items::operations([(-1_i64).to_le_bytes()], &mut buffer);
        ListCall { verb: ListVerb::Range, key, number: 0, items }.encode(&mut out);
        all.push(execute(bench, 0, 1_002, &out));
    }
    all
}

/// Checks all pairs. `hidden`: operations with this code are declared to use no key.
fn check(hidden: Option<u8>) -> Result<usize, String> {
    let rules = KeyRules::new(Kv);
    let matrices = rules.matrices().unwrap();
    let operations = operations();
    let parsed: Vec<Arguments> = operations
        .iter()
        .map(|operation| {
            let mut arguments = Arguments::default();
            arguments.begin(0);
            if hidden.is_none() || operation.first().copied() != hidden {
                rules.parse(operation, &mut arguments);
            }
            arguments
        })
        .collect();
    let mut independent = 0;
    for (a, first) in operations.iter().enumerate() {
        for (b, second) in operations.iter().enumerate() {
            let is_hidden = |operation: &[u8]| operation.first().copied() == hidden;
            let is_of_interest = hidden.is_none() || is_hidden(first) || is_hidden(second);
            if !is_of_interest || parsed[a].depends(&parsed[b], &matrices) {
                continue;
            }
            independent += 1;
            for seed in 0..12 {
                let (mut forth, mut back) = (start(seed), start(seed));
                let one = (execute(&mut forth, 0, 1_000, first), execute(&mut forth, 1, 1_001, second));
                let Some(second_first) = execute_early(&mut back, 1, 1_001, second) else { continue };
                let other = (execute(&mut back, 0, 1_000, first), second_first);
                if one != other || contents(&mut forth) != contents(&mut back) {
                    return Err(std::format!("{first:?} and {second:?}, seed {seed}: {one:?}, {other:?}"));
                }
            }
        }
    }
    Ok(independent)
}

#[test]
fn independent_operations_of_kv_commute() {
    let independent = check(None).unwrap();
    assert!(independent > 1000, "{independent} pairs are independent");
}

/// The rules of each operation matter: without them, a pair is found.
#[test]
fn wrong_rules_of_kv_are_found() {
    for hidden in [1, 2, 3, 4, 5, 6, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28] {
        assert!(check(Some(hidden)).is_err(), "operation {hidden} may be hidden");
    }
    for hidden in (96..=120).chain(128..=139) {
        assert!(check(Some(hidden)).is_err(), "operation {hidden} may be hidden");
    }
}
