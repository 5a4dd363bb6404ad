//! The client for programs, before a cluster on loopback.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod cluster;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::Duration;

use cluster::Cluster;
use nix::fcntl::{Flock, FlockArg};
use quorate_node::caller::{CallerOptions, OPERATION_BYTES_MAX};
use quorate_node::{CallError, Caller, OpenClient, Waiting};
use quorate_service::kv::{Answer, Kv, Operation};

fn caller(cluster: &Cluster, options: CallerOptions) -> Caller {
    let (drive, socket) = cluster.client(options.lanes);
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let lock = Flock::lock(file, FlockArg::LockSharedNonblock).unwrap();
    let client = OpenClient { drive, socket, waiting: Waiting::Block, lock };
    Caller::start(client, options).unwrap()
}

fn incr() -> Vec<u8> {
    let mut operation = Vec::new();
    Operation::Incr { key: b"n", by: 1 }.encode(&mut operation);
    operation
}

fn number(result: &[u8]) -> u64 {
    let Ok(Answer::Value(text)) = Answer::decode(result) else { panic!("{result:?}") };
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

fn get(caller: &Caller) -> u64 {
    let mut operation = Vec::new();
    Operation::Get { key: b"n" }.encode(&mut operation);
    number(&caller.call(&operation, true).unwrap())
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The plainest executor: shows that the future needs none of a certain kind.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn threads_and_futures_share_a_client() {
    let cluster = Cluster::start(Kv);
    let caller = caller(&cluster, CallerOptions { lanes: 8, ..CallerOptions::default() });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut last = 0;
                for _ in 0..25 {
                    let now = number(&caller.call(&incr(), false).unwrap());
                    assert!(now > last, "one after the other");
                    last = now;
                }
            });
        }
    });
    let pending: Vec<_> = (0..100).map(|_| caller.submit(incr(), false)).collect();
    let mut seen: Vec<u64> = pending.into_iter().map(|pending| number(&block_on(pending).unwrap())).collect();
    seen.sort_unstable();
    assert_eq!(seen, (101..=200).collect::<Vec<u64>>(), "each was done once");
    assert_eq!(get(&caller), 200);
}

/// What is unknown is done once or not at all, and which of them can be asked for later.
#[test]
fn the_outcome_of_what_was_unknown_is_known_later() {
    let cluster = Cluster::start(Kv);
    let deadline = Duration::from_secs(1);
    let caller = caller(&cluster, CallerOptions { lanes: 1, deadline });
    assert_eq!(number(&caller.call(&incr(), false).unwrap()), 1);
    cluster.pause(2);
    cluster.pause(3);
    let without_quorum = caller.call(&incr(), false);
    let Err(CallError::Unknown { request }) = without_quorum else { panic!("{without_quorum:?}") };
    // The only lane is taken: what comes behind was never sent.
    let behind = caller.call(&incr(), false).unwrap_err();
    assert!(behind.is_refused(), "{behind}");
    assert_eq!(caller.outcome(request, Duration::from_millis(10)), Err(CallError::Unknown { request }));
    cluster.resume(2);
    cluster.resume(3);
    let result = caller.outcome(request, Duration::from_secs(20)).unwrap();
    assert_eq!(number(&result), 2);
    assert_eq!(caller.outcome(request, Duration::ZERO), Err(CallError::Forgotten));
    assert_eq!(get(&caller), 2, "what was refused was not done");
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let cluster = Cluster::start(Kv);
    let caller = caller(&cluster, CallerOptions::default());
    let long = vec![0; OPERATION_BYTES_MAX + 1];
    assert_eq!(caller.call(&long, false), Err(CallError::TooLong { len: long.len() }));
    let pending = caller.submit(incr(), false);
    drop(caller);
    let ended = block_on(pending);
    assert!(matches!(ended, Ok(_) | Err(CallError::Closed | CallError::Unknown { .. })), "{ended:?}");
}
