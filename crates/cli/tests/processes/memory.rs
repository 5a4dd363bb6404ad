//! A state that is larger than what a replica may keep of it in memory.
//!
//! Some MiB here; `QUORATE_DATA_MIB=1024 QUORATE_MEMORY_MIB=128 cargo test --release -p quorate-cli --test processes
//! more_state_than_memory -- --nocapture` for much.

use std::fs;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use quorate_node::{Clock, OpenClient};
use quorate_service::kv::{Answer, Operation};

use crate::state::{LANES, Random, VALUE, number, per_second, status_kb, store};
use crate::support::{Cluster, invoke};

/// Memory of a replica other than its cached pages, in MiB: buffers, queues, the program, and the pages written between
/// two stable checkpoints.
const OTHER_MIB: u64 = 128;

/// Says what each replica takes, and that it is no more than it may.
fn look(cluster: &Cluster, what: &str, data: u64, memory: u64) {
    // Half as much again as the limit while an image is written; a sixteenth of the state for what is known of each page.
    let most = memory + memory / 2 + data / 16 + OTHER_MIB;
    let mib =
        |name| -> Vec<u64> { cluster.pids().into_iter().map(|pid| status_kb(pid, name) >> 10).collect() };
    let (now, peak) = (mib("VmRSS"), mib("VmHWM"));
    println!("{what}: {now:?} MiB now, {peak:?} MiB at most; {most} MiB are allowed");
    assert!(peak.iter().all(|peak| *peak <= most), "{what}: {peak:?} MiB");
}

/// Reads keys at random, and compares. Returns how many.
fn read(client: &mut OpenClient, keys: u64, seconds: u64) -> u64 {
    let (clock, mut random, start, mut count) = (Clock::new(), Random(3), Instant::now(), 0);
    while count < 50 || start.elapsed() < Duration::from_secs(seconds) {
        let key = random.below(keys);
        let name = format!("{key:012}");
        let get = Operation::Get { key: name.as_bytes() };
        let expected = vec![u8::try_from(key % 251).unwrap(); VALUE];
        assert_eq!(Answer::decode(&invoke(client, &clock, &get)), Ok(Answer::Value(&expected)), "{key}");
        count += 1;
    }
    count
}

/// Replicas with a fraction of the state in memory: filled, read and written at random, killed, and one of them without
/// its disk.
#[test]
fn more_state_than_memory() {
    let (data, memory) = (number("QUORATE_DATA_MIB", 24), number("QUORATE_MEMORY_MIB", 4));
    let keys = data * (1 << 20) / 4096;
    let lines = format!("durability = \"sync\"\nstate_memory_max = \"{memory}MiB\"");
    let mut cluster = Cluster::start("memory", &[], &lines);
    let (clock, mut client, done) = (Clock::new(), cluster.client(0, LANES), AtomicU64::new(0));
    let (start, seconds) = (Instant::now(), if data > 64 { 20 } else { 1 });
    let mut all = 0..keys;
    store(&mut client, &clock, || all.next(), &done);
    println!(
        "filled: {data} MiB, {keys} values, {} a second; {memory} MiB in memory",
        per_second(keys, start.elapsed())
    );
    look(&cluster, "filled", data, memory);

    let count = read(&mut client, keys, seconds);
    println!("read: {count} values at random, {} a second, one at a time", count / seconds);
    look(&cluster, "read", data, memory);

    // The same values again, at random places.
    let (start, mut random, mut left) = (Instant::now(), Random(5), keys / 4);
    let next = || {
        left = left.checked_sub(1)?;
        Some(random.below(keys))
    };
    store(&mut client, &clock, next, &done);
    println!("written: {} values at random, {} a second", keys / 4, per_second(keys / 4, start.elapsed()));
    look(&cluster, "written", data, memory);

    let start = Instant::now();
    cluster.kill(2);
    cluster.run(2);
    cluster.wait_long_for(2, "restarted from its own log", Duration::from_secs(600));
    println!("killed and started: {:.1} s", start.elapsed().as_secs_f64());
    cluster.kill(3);
    for sub in ["log", "checkpoint"] {
        fs::remove_dir_all(cluster.replica_dir(3).join(sub)).unwrap();
    }
    let start = Instant::now();
    cluster.run(3);
    // It has rejoined when the others have gone on for a while.
    while !cluster.log(3).contains("has rejoined") {
        assert!(start.elapsed() < Duration::from_secs(1800), "{}", cluster.log(3));
        let mut few = 0..keys / 64 + 16;
        store(&mut client, &clock, || few.next(), &done);
    }
    println!("wiped: back after {:.1} s", start.elapsed().as_secs_f64());
    look(&cluster, "wiped", data, memory);
    // Both are needed from here on.
    cluster.kill(0);
    let count = read(&mut client, keys, seconds);
    println!("read: {count} values from those that came back");
    look(&cluster, "at the end", data, memory);
    for i in [1, 2, 3] {
        assert!(!cluster.log(i).contains("cannot be read from the disk"), "r{i}: {}", cluster.log(i));
    }
}
