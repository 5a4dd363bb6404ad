//! Replicas with workers, on real threads: long operations run at the same time, and each gives what it gives alone.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod cluster;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cluster::Cluster;
use quorate_node::Caller;
use quorate_service::kv::{Answer, Kv, Operation};
use quorate_service::{Access, Context, Service, Stop, View};

/// The key-value store, whose operations on keys that begin with `s` take long: they wait before they read and after. Those
/// on keys that begin with `w` are stored, which takes long.
#[derive(Clone, Debug, Default)]
struct Slow {
    /// Runs of operations on keys that begin with `shang` hang as long as this is true.
    hangs: Arc<AtomicBool>,
    /// Runs that hang or panic, at all replicas.
    odd: Arc<AtomicUsize>,
    /// Operations that were stored by workers, at all replicas, and those that were stored by another thread.
    stored: Arc<[AtomicUsize; 2]>,
}

fn is_worker() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with("worker"))
}

fn key_of(operation: &[u8]) -> &[u8] {
    match Operation::decode(operation) {
        Ok(Operation::Incr { key, .. } | Operation::Get { key }) => key,
        _ => b"",
    }
}

impl Service for Slow {
    fn is_read_only(&self, operation: &[u8]) -> bool {
        Kv.is_read_only(operation)
    }

    fn access(&self, operation: &[u8], keys: &mut Access) {
        Kv.access(operation, keys);
        let key = key_of(operation);
        if key.starts_with(b"s") {
            keys.long();
        }
        if key.starts_with(b"w") {
            keys.stored();
        }
        if key.starts_with(b"sall") {
            keys.everything();
        }
        if key.starts_with(b"smany") {
            (0..=Access::KEYS_MAX).for_each(|key| keys.read(u64::try_from(key).unwrap()));
        }
    }

    fn step(&self, cx: Context, step: u32, state: &mut View<'_>) -> Result<(), Stop> {
        Kv.step(cx, step, state)
    }

    fn cost(&self, operation: &[u8], page_bytes: usize) -> Option<u32> {
        Kv.cost(operation, page_bytes)
    }

    fn room(&self, state: &View<'_>) -> Result<u32, Stop> {
        Kv.room(state)
    }

    fn store(&self, _cx: Context, operation: &[u8]) {
        if key_of(operation).starts_with(b"w") {
            std::thread::sleep(Duration::from_millis(2));
            self.stored[usize::from(!is_worker())].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn execute(
        &self,
        cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let key = key_of(operation);
        if cx.read_only || !key.starts_with(b"s") {
            return Kv.execute(cx, operation, state, out);
        }
        let on_worker = is_worker();
        let panics = key == b"spanic" && on_worker;
        let hangs = || key.starts_with(b"shang") && on_worker && self.hangs.load(Ordering::Relaxed);
        self.odd.fetch_add(usize::from(panics || hangs()), Ordering::Relaxed);
        assert!(!panics, "this run means nothing");
        while hangs() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(2));
        let done = Kv.execute(cx, operation, state, out);
        std::thread::sleep(Duration::from_millis(2));
        done
    }
}

fn incr(key: &str) -> Vec<u8> {
    let mut operation = Vec::new();
    Operation::Incr { key: key.as_bytes(), by: 1 }.encode(&mut operation);
    operation
}

fn number(result: &[u8]) -> u64 {
    let Ok(Answer::Value(text)) = Answer::decode(result) else { panic!("{result:?}") };
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

/// Each of these keys is raised so often, each by a thread of its own. Returns what was answered last.
fn raise(caller: &Caller, keys: &[String], times: usize) -> Vec<u64> {
    let raise = |key: &String| (0..times).map(|_| number(&caller.call(&incr(key), false).unwrap())).last();
    std::thread::scope(|scope| {
        let threads: Vec<_> = keys.iter().map(|key| scope.spawn(move || raise(key).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// PX-1, PX-3: replicas with 2, 4, 8 and 8 workers agree on every answer, and run several operations at once. Short
/// operations run beside them.
#[test]
fn px1_long_operations_run_at_the_same_time() {
    let cluster = Cluster::with_workers(Slow::default(), &[2, 4, 8, 8]);
    let caller = cluster.caller(16);
    let keys: Vec<_> = (0..16).map(|at| format!("{}{at}", if at % 4 == 0 { "fast" } else { "s" })).collect();
    assert_eq!(raise(&caller, &keys, 12), [12; 16]);
    // All of them on one key: one after the other.
    assert_eq!(raise(&caller, &vec![String::from("same"); 16], 3).into_iter().max(), Some(48));
    let runs = cluster.runs();
    println!("{runs:?}");
    assert!(runs.iter().filter(|runs| runs.most >= 2).count() >= 3, "{runs:?}");
    assert!(runs.iter().map(|runs| runs.early).sum::<u64>() > 50, "{runs:?}");
}

/// PX-H: an operation is stored before it is answered, by a worker. Workers store several at once.
#[test]
fn px_h_workers_store_operations_before_they_are_answered() {
    let service = Slow::default();
    let cluster = Cluster::with_workers(service.clone(), &[8]);
    let caller = cluster.caller(8);
    // Each lane has its first request, which has no run.
    raise(&caller, &(0..8).map(|at| format!("f{at}")).collect::<Vec<_>>(), 8);
    let keys: Vec<_> = (0..8).map(|at| format!("w{at}")).collect();
    let stored = || service.stored.each_ref().map(|count| count.load(Ordering::Relaxed));
    for round in 1..=12 {
        assert_eq!(raise(&caller, &keys, 1), [round; 8]);
        // More than f replicas have answered each.
        let [by_workers, by_others] = stored();
        assert!(by_workers + by_others >= 2 * 8 * usize::try_from(round).unwrap(), "{round}: {by_workers}");
    }
    let (runs, [by_workers, by_others]) = (cluster.runs(), stored());
    println!("{runs:?}: {by_workers} stored by workers, {by_others} by other threads");
    assert!(by_workers > 4 * by_others, "{by_workers}, {by_others}");
    assert!(runs.iter().any(|runs| runs.most >= 2), "{runs:?}");
}

/// PX-1: requests that may touch anything, or use more than 64 keys, run one at a time, and give what they give alone.
#[test]
fn px1_requests_without_usable_keys_run_one_at_a_time() {
    let cluster = Cluster::with_workers(Slow::default(), &[8]);
    let caller = cluster.caller(8);
    let keys: Vec<_> =
        (0..8).map(|at| format!("{}{at}", if at % 2 == 0 { "sall" } else { "smany" })).collect();
    assert_eq!(raise(&caller, &keys, 3), [3; 8]);
    let runs = cluster.runs();
    assert!(runs.iter().all(|runs| runs.most <= 1), "{runs:?}");
}

/// PX-9: a run that panics on a worker means nothing. The operation is executed on pages, where it does not panic.
#[test]
fn px9_a_worker_that_panics_means_nothing() {
    let service = Slow::default();
    let cluster = Cluster::with_workers(service.clone(), &[4]);
    let caller = cluster.caller(8);
    let keys: Vec<_> = ["spanic", "s1", "s2", "fast", "s3"].map(String::from).into();
    assert_eq!(raise(&caller, &keys, 4), [4; 5]);
    assert!(service.odd.load(Ordering::Relaxed) > 0);
}

/// PX-9, PR-2: operations that do not depend on one that hangs at all replicas are answered, however many they are.
/// When it ends, it is answered too.
#[test]
fn px9_a_worker_that_hangs_holds_up_its_own_request_only() {
    let service = Slow::default();
    let cluster = Cluster::with_workers(service.clone(), &[4]);
    let caller = cluster.caller(8);
    let keys: Vec<_> = ["shang", "s1", "s2", "fast"].map(String::from).into();
    // Each lane has its first request, which depends on all others, before one hangs.
    raise(&caller, &(0..8).map(|at| format!("f{at}")).collect::<Vec<_>>(), 8);
    raise(&caller, &keys, 1);
    service.hangs.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let hung = scope.spawn(|| number(&caller.call(&incr("shang"), false).unwrap()));
        let running = || service.odd.load(Ordering::Relaxed);
        while running() < 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // More batches than may be in progress.
        assert_eq!(raise(&caller, &keys[1..], 20), [21; 3]);
        let mut took: Vec<Duration> = (0..21)
            .map(|_| {
                let began = Instant::now();
                caller.call(&incr("fast"), false).unwrap();
                began.elapsed()
            })
            .collect();
        took.sort_unstable();
        println!("a short operation beside one that hangs: {:?}, at most {:?}", took[10], took[20]);
        assert!(!hung.is_finished());
        service.hangs.store(false, Ordering::Relaxed);
        assert_eq!(hung.join().unwrap(), 2);
    });
}

/// PX-E: short operations are answered while all workers of all replicas hang.
#[test]
fn px_e_short_operations_need_no_worker() {
    let service = Slow::default();
    let cluster = Cluster::with_workers(service.clone(), &[2]);
    let caller = cluster.caller(8);
    raise(&caller, &(0..8).map(|at| format!("f{at}")).collect::<Vec<_>>(), 8);
    service.hangs.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let hung =
            ["shang1", "shang2"].map(|key| scope.spawn(|| number(&caller.call(&incr(key), false).unwrap())));
        while service.odd.load(Ordering::Relaxed) < 8 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(raise(&caller, &["fast1", "fast2"].map(String::from), 20), [20; 2]);
        assert!(hung.iter().all(|hung| !hung.is_finished()));
        service.hangs.store(false, Ordering::Relaxed);
        for hung in hung {
            assert_eq!(hung.join().unwrap(), 1);
        }
    });
}

/// PX-E: with one worker, too, a long operation does not run on the replica's thread. This thread continues to answer.
#[test]
fn px_e_one_worker_runs_beside_the_replicas_thread() {
    let service = Slow::default();
    let cluster = Cluster::with_workers(service.clone(), &[1]);
    let caller = cluster.caller(4);
    raise(&caller, &(0..4).map(|at| format!("f{at}")).collect::<Vec<_>>(), 8);
    service.hangs.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let hung = scope.spawn(|| number(&caller.call(&incr("shang"), false).unwrap()));
        while service.odd.load(Ordering::Relaxed) < 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Fewer than the batches that agreement has in progress at a time: with one worker, it waits for execution.
        assert_eq!(raise(&caller, &[String::from("fast")], 4), [4]);
        assert!(!hung.is_finished());
        service.hangs.store(false, Ordering::Relaxed);
        assert_eq!(hung.join().unwrap(), 1);
    });
}
