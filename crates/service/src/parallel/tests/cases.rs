//! The situations that a run on cells has to survive, one by one (ADR 20).

use alloc::vec::Vec;

use quorate_wire::reply::ReplyOutcome;
use quorate_wire::{ClientId, Replies, SeqNum, Timestamp};

use crate::executor::Executor;
use crate::kv::{Answer, Command, Items, Kv, Operation};
use crate::page::{Memory, PageStore as _, Pool};
use crate::parallel::unsettled::Unsettled;
use crate::parallel::*;
use crate::registry;
use crate::state::btree::Tree;
use crate::state::cell::CellRun;
use crate::state::overlay::Overlay;
use crate::state::space::Space;
use crate::state::view::View;
use crate::testing::{batch, domains, options};

type KvRuns = Runs<KeyRules<Kv>>;

fn client(number: u64) -> ClientId {
    ClientId::new(number, 0)
}

fn put(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Operation::Put { key, value }.encode(&mut out);
    out
}

fn get(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Operation::Get { key }.encode(&mut out);
    out
}

fn value(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Answer::Value(text).encode(&mut out);
    out
}

/// An executor in which clients 1 to 5 have a lane, and nothing under way.
fn begin() -> (Executor<Kv>, KvRuns) {
    let mut executor = Executor::new(Kv, domains(), options());
    let first = get(b"x");
    let requests: Vec<_> = (1..6).map(|number| (client(number), 1, &first[..])).collect();
    executor.execute(SeqNum(1), &batch(&requests, 1), false, &mut Replies::new()).unwrap();
    (executor, Runs::new(EngineKind::GroupIndex, KeyRules::new(Kv), 1, true).unwrap())
}

/// Inserts a batch of one request of each client.
fn insert(executor: &mut Executor<Kv>, runs: &mut KvRuns, seq: u64, requests: &[(u64, u64, Vec<u8>)]) {
    let requests: Vec<_> =
        requests.iter().map(|(number, t, operation)| (client(*number), *t, &operation[..])).collect();
    runs.insert(executor, SeqNum(seq), &batch(&requests, seq * 1_000_000)).unwrap();
}

/// Settles all that can settle, and returns what became of each request.
fn settle(executor: &mut Executor<Kv>, runs: &mut KvRuns) -> Vec<(ReplyOutcome, Option<Vec<u8>>)> {
    let mut replies = Replies::new();
    while runs.settle(executor, &mut replies).unwrap().is_some() {}
    replies.iter().map(|reply| (reply.outcome, reply.result.map(<[u8]>::to_vec))).collect()
}

/// A short operation is answered while a long one before it, of which it is independent, has not even been run (PX-C).
/// A read that comes after that reply sees what was written.
#[test]
fn a_read_after_an_early_reply_sees_it() {
    let (mut executor, mut runs) = begin();
    insert(&mut executor, &mut runs, 2, &[(1, 2, put(b"long", b"1")), (2, 2, put(b"a", b"2"))]);
    let long = runs.start(&mut executor).unwrap();
    let short = runs.start(&mut executor).unwrap();
    let done = runs.run(&executor, &short);
    let early = runs.finish(done).unwrap();
    assert_eq!((early.client, early.timestamp), (client(2), Timestamp(2)));
    assert_eq!(settle(&mut executor, &mut runs), [], "the long one is before it");
    insert(&mut executor, &mut runs, 3, &[(3, 2, get(b"a"))]);
    let read = runs.start(&mut executor).unwrap();
    let done = runs.run(&executor, &read);
    assert_eq!(runs.finish(done).unwrap().result, value(b"2"));
    let done = runs.run(&executor, &long);
    assert!(runs.finish(done).is_some());
    let settled = settle(&mut executor, &mut runs);
    assert_eq!(settled.len(), 3);
    assert_eq!(settled[2], (ReplyOutcome::Executed, Some(value(b"2"))));
    assert_eq!(runs.counters().again, 0);
}

/// PX-8: a read waits for an unsettled request on which it depends, if a reply has left early. A request settles with its
/// whole batch: until then the settled state does not show it.
#[test]
fn px8_a_read_waits_for_what_it_depends_on() {
    let (mut executor, mut runs) = begin();
    let second = [(1, 2, put(b"long", b"1")), (2, 2, put(b"a", b"2")), (3, 2, put(b"later", b"3"))];
    insert(&mut executor, &mut runs, 2, &second);
    insert(&mut executor, &mut runs, 3, &[(4, 2, put(b"b", b"4"))]);
    let jobs: Vec<_> = core::iter::from_fn(|| runs.start(&mut executor)).collect();
    let settled = executor.time_ns();
    let time = |runs: &mut KvRuns, executor: &Executor<Kv>, of: &[u8]| runs.time_of_read(executor, &get(of));
    assert_eq!(time(&mut runs, &executor, b"a"), Some(settled), "no reply has left");
    let finish = |runs: &mut KvRuns, executor: &Executor<Kv>, job: usize| {
        let done = runs.run(executor, &jobs[job]);
        assert!(runs.finish(done).is_some(), "a reply leaves");
    };
    finish(&mut runs, &executor, 1);
    assert_eq!(time(&mut runs, &executor, b"a"), None);
    assert_eq!(time(&mut runs, &executor, b"other"), Some(2_000_000), "the time of the reply");
    let mut count = Vec::new();
    Command::Count.encode(&mut count);
    assert_eq!(runs.time_of_read(&executor, &count), None, "it depends on all");
    let mut members = registry::MAGIC.to_vec();
    members.extend(get(b"other"));
    assert_eq!(runs.time_of_read(&executor, &members), None, "as all orders");
    finish(&mut runs, &executor, 0);
    assert_eq!(settle(&mut executor, &mut runs).len(), 2);
    assert_eq!(time(&mut runs, &executor, b"a"), None, "its batch has not settled");
    finish(&mut runs, &executor, 3);
    finish(&mut runs, &executor, 2);
    let mut replies = Replies::new();
    while runs.settle(&mut executor, &mut replies).unwrap() != Some(Settled::Batch(SeqNum(2))) {}
    assert_eq!(time(&mut runs, &executor, b"a"), Some(3_000_000), "the time of the last reply");
    assert_eq!(time(&mut runs, &executor, b"b"), None);
    settle(&mut executor, &mut runs);
    assert_eq!(time(&mut runs, &executor, b"b"), Some(executor.time_ns()));
    assert_eq!((runs.counters().reads_beside, runs.counters().reads_kept), (2, 5));
}

/// PX-8: where no reply leaves early, no read waits. Of a service without keys, every read waits for every reply.
#[test]
fn px8_where_no_reply_leaves_early_no_read_waits() {
    let (mut executor, _) = begin();
    let mut runs = Runs::new(EngineKind::GroupIndex, KeyRules::new(Kv), 1, false).unwrap();
    insert(&mut executor, &mut runs, 2, &[(1, 2, put(b"a", b"1"))]);
    let job = runs.start(&mut executor).unwrap();
    let done = runs.run(&executor, &job);
    assert_eq!(runs.finish(done), None);
    assert_eq!(runs.time_of_read(&executor, &get(b"a")), Some(executor.time_ns()));

    let (mut executor, _) = begin();
    let mut runs = Runs::new(EngineKind::GroupIndex, AllDependent, 1, true).unwrap();
    runs.insert(&mut executor, SeqNum(2), &batch(&[(client(1), 2, &put(b"a", b"1"))], 2_000_000)).unwrap();
    let job = runs.start(&mut executor).unwrap();
    let done = runs.run(&executor, &job);
    assert!(runs.finish(done).is_some());
    assert_eq!(runs.time_of_read(&executor, &get(b"b")), None);
}

/// A client that sends a request again, before the first one has settled, has it executed once.
#[test]
fn a_resend_before_settling_runs_once() {
    let (mut executor, mut runs) = begin();
    let mut add = Vec::new();
    Operation::Incr { key: b"n", by: 1 }.encode(&mut add);
    insert(&mut executor, &mut runs, 2, &[(1, 7, add.clone())]);
    insert(&mut executor, &mut runs, 3, &[(1, 7, add.clone()), (1, 6, add)]);
    let first = runs.start(&mut executor).unwrap();
    assert!(runs.start(&mut executor).is_none(), "requests of one lane depend on each other (PX-4)");
    let done = runs.run(&executor, &first);
    assert!(runs.finish(done).is_some());
    while let Some(job) = runs.start(&mut executor) {
        let done = runs.run(&executor, &job);
        assert_eq!(runs.finish(done), None, "nothing leaves before it is known that it was executed");
    }
    let expected = [
        (ReplyOutcome::Executed, Some(value(b"1"))),
        (ReplyOutcome::Repeated, Some(value(b"1"))),
        (ReplyOutcome::Superseded, None),
    ];
    assert_eq!(settle(&mut executor, &mut runs), expected);
}

/// PX-10: a transfer, a rollback or a shutdown waits for no worker, and what it brings back later is nobody's.
#[test]
fn a_late_worker_is_not_waited_for() {
    let (mut executor, mut runs) = begin();
    insert(&mut executor, &mut runs, 2, &[(1, 2, put(b"a", b"1")), (2, 2, put(b"b", b"1"))]);
    let hung = runs.start(&mut executor).unwrap();
    let other = runs.start(&mut executor).unwrap();
    let done = runs.run(&executor, &other);
    runs.finish(done);
    let late = runs.run(&executor, &hung);
    runs.drain(&mut executor);
    assert!(runs.parallelizer().is_empty());
    assert_eq!(executor.last_executed(), SeqNum(1));
    insert(&mut executor, &mut runs, 2, &[(1, 2, put(b"a", b"9")), (2, 2, get(b"b"))]);
    let job = runs.start(&mut executor).unwrap();
    assert_eq!(runs.finish(late), None, "it is of another generation");
    assert_eq!(settle(&mut executor, &mut runs), [], "the first request has not run");
    let done = runs.run(&executor, &job);
    runs.finish(done);
    let job = runs.start(&mut executor).unwrap();
    let done = runs.run(&executor, &job);
    runs.finish(done);
    assert_eq!(
        settle(&mut executor, &mut runs)[1],
        (ReplyOutcome::Executed, Some(alloc::vec![1])),
        "b is not there"
    );
}

/// PX-9, PX-G: a worker that panics hands back nothing, and the request runs on pages when its turn comes. So does one
/// that walks along a tree.
#[test]
fn a_run_that_fails_means_nothing() {
    let (mut executor, mut runs) = begin();
    let (mut count, mut many, mut buffer) = (Vec::new(), Vec::new(), Vec::new());
    Command::Count.encode(&mut count);
    let items = [put(b"c", b"3"), get(b"a")];
    Command::Many(Items::operations(items, &mut buffer)).encode(&mut many);
    insert(
        &mut executor,
        &mut runs,
        2,
        &[(1, 2, put(b"a", b"1")), (2, 2, count), (3, 2, many), (4, 2, get(b"c"))],
    );
    let panicked = runs.start(&mut executor).unwrap();
    assert_eq!(runs.finish(panicked.failed()), None);
    let mut said = settle(&mut executor, &mut runs);
    assert_eq!(said.len(), 1);
    while let Some(job) = runs.start(&mut executor) {
        let done = runs.run(&executor, &job);
        runs.finish(done);
        said.extend(settle(&mut executor, &mut runs));
    }
    assert!(said.iter().all(|(outcome, _)| *outcome == ReplyOutcome::Executed), "{said:?}");
    assert_eq!(said[3].1, Some(value(b"3")));
    assert_eq!((runs.counters().on_pages, runs.counters().runs), (3, 1));
}

/// A run that reads one cell before another request settles, and one after: the mixture is not applied.
#[test]
fn a_base_that_moves_during_a_run() {
    let zeros = [0; 512];
    let mut pool = Pool::new(512, 10);
    let mut written = |value: &[u8]| {
        let (mut store, mut overlay) = (Memory::new(), Overlay::default());
        overlay.begin(&mut pool);
        let mut view = View::new(&store, &mut overlay, &mut pool, &zeros, (0, 100));
        let tree = Tree::new((0, 8), Space::new(&view, (0, 0), 1));
        for key in [b"a", b"b"] {
            tree.insert(&mut view, key, value).unwrap();
        }
        overlay.drain(&mut pool, |page, content, _| {
            store.replace(page, content).unwrap();
        });
        (store, tree)
    };
    let ((before, tree), (after, _)) = (written(b"old"), written(b"new"));
    let (overlay, mut unsettled, mut run) = (Overlay::default(), Unsettled::default(), CellRun::default());
    let mut read = |store: &Memory, unsettled: &Unsettled, key: &[u8]| {
        let below = unsettled.below(1);
        let view = View::on_cells((store, &overlay), &below, &mut run, &zeros, (0, 100));
        let mut value = Vec::new();
        tree.get(&view, key).unwrap().unwrap().copy_to(&view, &mut value).unwrap();
        value
    };
    assert_eq!(read(&before, &unsettled, b"a"), b"old");
    let keys = [b"a", b"b"].map(|key| Cell::Entry { tree: (0, 8), key: key.to_vec() });
    unsettled.settle(0, keys.into_iter(), None, 2);
    assert_eq!(read(&after, &unsettled, b"b"), b"new", "a mixture");
    let reads = run.take_reads();
    assert!(!unsettled.is_current(1, &reads), "no reply leaves early");
    let (cell, version) = unsettled.stale(&reads).unwrap();
    assert_eq!((cell, version), (&Cell::Entry { tree: (0, 8), key: b"a".to_vec() }, (0, 0)));
}
