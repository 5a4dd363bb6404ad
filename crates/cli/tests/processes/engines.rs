//! Four replicas with eight workers and another engine each, which are killed again and again under load: the engines
//! leave equal states, nothing that was acknowledged is lost, and the cluster goes on.
//!
//! No operation of the key-value store is long, so the product's replicas run none of them on a worker. Here every
//! operation is declared long: the replicas are this test's own processes.
//!
//! Five kills here; for many:
//! `QUORATE_ROUNDS=50 cargo test --release -p quorate-cli --test processes engines:: -- --nocapture`

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use quorate_node::caller::CallerOptions;
use quorate_node::observe::{Observer, Picture};
use quorate_node::{Caller, Clock, ReplicaNode};
use quorate_service::kv::{Answer, Kv, Operation};
use quorate_service::{Access, Context, Service, Stop, View};
use quorate_wire::message::Statement;
use quorate_wire::{Digest, SeqNum};

use crate::kills::rounds;
use crate::support::{Cluster, Gap, Load, PATIENCE, invoke};

/// The variable that names the directory of a replica that this program is to run.
const REPLICA: &str = "QUORATE_TEST_REPLICA";
/// The engines of the replicas, in order.
const ENGINES: [&str; 4] = ["keys", "matrix", "sequential", "free"];
/// Requests in progress that are independent, each on its own counter, and requests in progress on one counter.
const LANES: u16 = 12;
const CONTENDERS: u16 = 4;
/// The counter that the latter share.
const SHARED: &[u8] = b"shared";

/// The key-value store, all of whose operations are long.
struct Long;

impl Service for Long {
    fn is_read_only(&self, operation: &[u8]) -> bool {
        Kv.is_read_only(operation)
    }

    fn access(&self, operation: &[u8], keys: &mut Access) {
        Kv.access(operation, keys);
        keys.long();
    }

    fn step(&self, cx: Context, step: u32, state: &mut View<'_>) -> Result<(), Stop> {
        Kv.step(cx, step, state)
    }

    fn redo(&self, cx: Context, change: &[u8], state: &mut View<'_>) -> Result<bool, Stop> {
        Kv.redo(cx, change, state)
    }

    fn cost(&self, operation: &[u8], page_bytes: usize) -> Option<u32> {
        Kv.cost(operation, page_bytes)
    }

    fn room(&self, state: &View<'_>) -> Result<u32, Stop> {
        Kv.room(state)
    }

    fn execute(
        &self,
        cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        Kv.execute(cx, operation, state, out)
    }
}

/// Runs a replica, if this process was started for that. Otherwise it tests nothing.
#[test]
fn runs_a_replica() {
    if let Some(dir) = std::env::var_os(REPLICA) {
        let node = ReplicaNode::open(Path::new(&dir)).unwrap();
        node.run_service(Long, &AtomicBool::new(false)).unwrap();
    }
}

fn replica(dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "engines::runs_a_replica", "--nocapture"]);
    command.env(REPLICA, dir);
    command
}

/// Returns the statements of the replicas, if all four answer.
fn statements(picture: &Picture) -> Option<[&Statement; 4]> {
    let says: Option<Vec<&Statement>> = picture.replicas.iter().map(|health| health.says.as_ref()).collect();
    says?.try_into().ok()
}

/// Returns the newest checkpoint after `from` that all four replicas state, with their digests.
fn common_checkpoint(says: [&Statement; 4], from: SeqNum) -> Option<(SeqNum, [Digest; 4])> {
    let all = |seq: SeqNum| {
        let digest =
            |says: &Statement| says.checkpoints.iter().find(|(at, _)| *at == seq).map(|(_, digest)| *digest);
        let digests: Option<Vec<Digest>> = says.into_iter().map(digest).collect();
        Some((seq, digests?.try_into().ok()?))
    };
    says[0].checkpoints.iter().rev().take_while(|(seq, _)| *seq > from).find_map(|(seq, _)| all(*seq))
}

/// Waits until all four replicas are in one view and have a checkpoint after `from`, and checks that it is the same state.
/// Returns its number.
fn agree(observer: &Observer, from: SeqNum) -> SeqNum {
    let until = Instant::now() + PATIENCE;
    loop {
        let picture = observer.look();
        if let Some(says) = statements(&picture)
            && says.iter().all(|one| one.view == says[0].view && !one.in_view_change && !one.transferring)
            && let Some((seq, digests)) = common_checkpoint(says, from)
        {
            assert_eq!(digests, [digests[0]; 4], "the states at {seq:?} differ");
            return seq;
        }
        assert!(Instant::now() < until, "no common checkpoint after {from:?}: {picture:#?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Increments one counter from several threads until `stop`: each request depends on all before it. Returns how many were
/// acknowledged.
fn contend(caller: &Caller, stop: &AtomicBool) -> u64 {
    let mut bytes = Vec::new();
    Operation::Incr { key: SHARED, by: 1 }.encode(&mut bytes);
    let increment = || {
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            let answer = caller.call(&bytes, false).unwrap();
            assert!(matches!(Answer::decode(&answer), Ok(Answer::Value(_))));
            count += 1;
        }
        count
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..CONTENDERS).map(|_| scope.spawn(increment)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// Replica after replica is killed with SIGKILL, under independent and dependent writes.
#[test]
fn replicas_of_four_engines_are_killed_and_stay_equal() {
    let lines = "workers = 8\ntentative = false\ncheckpoint_interval = 16\nwindow = 512";
    let mut cluster = Cluster::make("engines", &["--clients", "3"], lines);
    for (i, engine) in ENGINES.into_iter().enumerate() {
        let file = cluster.replica_dir(i).join("node.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("parallel = \"{engine}\"\n{text}")).unwrap();
        cluster.run_as(i, replica(&cluster.replica_dir(i)));
    }
    let observer = Observer::open(&cluster.dir.path().join("c")).unwrap();
    let contender = cluster.dir.path().join("c/client-1");
    let options = CallerOptions { lanes: CONTENDERS, deadline: PATIENCE };
    let caller = Caller::open(&contender, options).unwrap();
    let (stop, mut seq) = (AtomicBool::new(false), SeqNum(0));
    let load = Load::start(cluster.client(0, LANES), vec![0; usize::from(LANES)]);
    let shared = thread::scope(|scope| {
        // Whatever fails below must not leave the threads running.
        let stopping = Stops(&stop);
        let contending = scope.spawn(|| contend(&caller, &stop));
        seq = agree(&observer, seq);
        for round in 0..rounds(5) {
            let victim = round % 4;
            cluster.kill(victim);
            load.wait(200);
            cluster.run_as(victim, replica(&cluster.replica_dir(victim)));
            seq = agree(&observer, seq);
            println!("{round}: r{victim} was killed; equal at {seq:?}, {} acknowledged", load.done());
        }
        drop(stopping);
        contending.join().unwrap()
    });
    let (tally, mut client) = load.stop();
    let (clock, gap) = (Clock::new(), tally.gaps.iter().map(Gap::length).max());
    println!("longest gap {gap:?}; {shared} increments of one counter");
    let counters = (0..).zip(&tally.acknowledged).map(|(lane, count)| (format!("lane-{lane}"), *count));
    for (key, count) in counters.chain([(String::from_utf8_lossy(SHARED).into_owned(), shared)]) {
        let answer = invoke(&mut client, &clock, &Operation::Get { key: key.as_bytes() });
        assert_eq!(Answer::decode(&answer), Ok(Answer::Value(count.to_string().as_bytes())), "{key}");
    }
    let picture = observer.look();
    for (says, engine) in statements(&picture).unwrap().into_iter().zip(ENGINES) {
        let workers = says.workers.unwrap();
        println!("{engine}: {workers:?}");
        assert_eq!(workers.wrong_rules, 0, "{engine}");
        assert!(workers.starts > 0, "{engine}: nothing has run on a worker");
    }
}

/// Sets a flag when it is dropped.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
