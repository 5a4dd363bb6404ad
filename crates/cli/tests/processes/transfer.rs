//! What `status` says that a state transfer has moved: little for a replica that was away while little changed, all
//! for one that had nothing.
//!
//! Some MiB here; `QUORATE_STATE_MIB=4096 cargo test --release -p quorate-cli --test processes a_stopped -- --nocapture`
//! for much.

use std::fs;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use quorate_node::{Clock, OpenClient};
use serde_json::Value;

use crate::state::{LANES, VALUE, number, store};
use crate::status::status;
use crate::support::{Cluster, quorate};

const WINDOW: u64 = 256;
/// One value in `EVERY` changes.
const EVERY: u64 = 200;
const LONG: Duration = Duration::from_secs(600);

/// What `status` says of a replica.
fn said(root: &str, replica: usize) -> Value {
    status(root).2.swap_remove(replica)
}

/// Waits until `status` says of a replica that its state is that of the others, and that it has fetched it.
fn wait_until_fetched(root: &str, replica: usize) -> Value {
    let begin = Instant::now();
    loop {
        let of = said(root, replica);
        if of["agrees"] == "agrees" && of["transferred"]["over"] == true && of["transferring"] == false {
            return of;
        }
        assert!(begin.elapsed() < LONG, "{of}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A number of a replica; 0 if it was too slow to say so.
fn number_of(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or(0)
}

/// How far the furthest has executed.
fn executed(root: &str) -> u64 {
    status(root).2.iter().map(|of| number_of(of, "last_executed")).max().unwrap()
}

fn percent(of: &Value) -> f64 {
    of["transferred"]["since_start"]["percent"].as_f64().unwrap_or(f64::NAN)
}

/// Section 9: a replica that was away while 1 % of the pages changed fetches under 3 % of the state; one without a
/// disk fetches it all, while the others work on. Both figures are of what came over the network.
#[test]
fn a_stopped_replica_fetches_what_has_changed() {
    let mib = number("QUORATE_STATE_MIB", 24);
    let keys = mib * (1 << 20) / 4096;
    let mut cluster = Cluster::start("moved", &[], &format!("window = {WINDOW}"));
    let (root, clock, done) = (cluster.dir.join("c"), Clock::new(), AtomicU64::new(0));
    let mut client = cluster.client(0, LANES);
    let mut all = 0..keys;
    store(&mut client, &clock, || all.next(), &done);
    // One page in a hundred changes, again and again: of each value its own, and that of its key.
    let changed = (keys / EVERY).max(1);
    let put_all = |client: &mut OpenClient| {
        let mut some = (0..changed.max(WINDOW)).map(|at| at % changed * EVERY % keys);
        store(client, &clock, || some.next(), &done);
    };
    let mut put_until_stable = |replica: usize, seq: u64| {
        while number_of(&said(&root, replica), "stable_checkpoint") <= seq {
            put_all(&mut client);
        }
    };
    // It has all the rest before it is stopped, and the others have forgotten the batches before it is back.
    put_until_stable(3, executed(&root) + 2 * WINDOW);
    cluster.stop(3);
    put_until_stable(2, executed(&root) + 2 * WINDOW);
    // Nothing changes while it fetches: on a slow machine that would be fetched as well.
    cluster.run(3);
    let of = wait_until_fetched(&root, 3);
    println!("{keys} values of {VALUE} bytes, {changed} changed: {}", of["transferred"]);
    assert!(percent(&of) > 0.0 && percent(&of) < 3.0, "{of}");
    let text = String::from_utf8(quorate(&["status", "--dir", &root]).stdout).unwrap();
    let line =
        text.lines().find(|line| line.contains("transfer  r3 at ")).unwrap_or_else(|| panic!("{text}"));
    println!("{line}");
    let last = of["transferred"]["percent"].as_f64().unwrap();
    assert!(line.contains(&format!(", {last:.1} %, ")), "{last}: {line}");

    cluster.kill(3);
    for sub in ["log", "checkpoint"] {
        let _ = fs::remove_dir_all(cluster.replica_dir(3).join(sub));
    }
    let from = cluster.log(3).len();
    cluster.run(3);
    let begin = Instant::now();
    while !cluster.log(3)[from..].contains("has rejoined") {
        assert!(begin.elapsed() < LONG, "{}", &cluster.log(3)[from..]);
        put_all(&mut client);
    }
    let of = wait_until_fetched(&root, 3);
    println!("wiped: {}", of["transferred"]);
    // All of it once, and a part of what changed in that time again.
    assert!(percent(&of) >= 100.0 && percent(&of) < 200.0, "{of}");
}
