//! Histories of real clients: replica processes that are killed, paused and started again, behind proxies that
//! lose, double, reorder and cut; and whether what the clients saw is what one machine could have answered (I14).
//!
//! Some thousand operations here; `QUORATE_OPERATIONS=200000 cargo test -p quorate-cli --test histories -- --nocapture`
//! for many. `QUORATE_SEED` chooses weather, faults and operations; the processes' own timing is not repeated by it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

#[path = "histories/faults.rs"]
mod faults;
#[path = "histories/people.rs"]
mod people;
#[path = "histories/proxy.rs"]
mod proxy;
#[allow(dead_code, reason = "shared with the tests that need more of it")]
mod support;

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use people::{People, spoilt};
use proxy::{Ends, Proxies};
use quorate_sim::app::{App as _, KvApp};
use support::{Cluster, own_address};

/// Clients, each with an identity of its own.
const CLIENTS: u16 = 3;

fn given(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// Puts a proxy in front of every node, for each of the others.
fn with_proxies(cluster: &Cluster, seed: u64) -> Proxies {
    let node = |name: &str| cluster.dir.path().join("c").join(name).join("node.toml");
    let replicas = || (0..4).map(|i| format!("replica-{i}"));
    let clients = || (0..CLIENTS).map(|i| format!("client-{i}"));
    // As in the tables: r0, client-1.
    let short = |name: &str| name.replace("replica-", "r");
    let listens = |name: &str| -> SocketAddr {
        let text = fs::read_to_string(node(name)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("listen = ")).unwrap();
        line.trim_matches('"').parse().unwrap()
    };
    let to_replicas =
        replicas().chain(clients()).flat_map(|from| replicas().map(move |to| (from.clone(), to)));
    let to_clients = replicas().flat_map(|from| clients().map(move |to| (from.clone(), to)));
    let links: Vec<(Ends, SocketAddr)> = to_replicas
        .chain(to_clients)
        .filter(|(from, to)| from != to)
        .map(|(from, to)| ((short(&from), short(&to)), listens(&to)))
        .collect();
    let proxies = Proxies::open(own_address(), links, seed);
    for name in replicas().chain(clients()) {
        let text = fs::read_to_string(node(&name)).unwrap();
        let line = |line: &str| {
            let to = line.split_once(" = ").map_or("", |(to, _)| to);
            match proxies.address(&short(&name), to) {
                Some(address) => format!("{to} = \"{address}\"\n"),
                None => format!("{line}\n"),
            }
        };
        fs::write(node(&name), text.lines().map(line).collect::<String>()).unwrap();
    }
    proxies
}

/// [OSDI99 §3] The service is linearizable, with any faults of up to f replicas at a time and of the network.
#[test]
fn what_real_clients_saw_has_an_order() {
    let (operations, seed) = (given("QUORATE_OPERATIONS", 3000), given("QUORATE_SEED", 1));
    let clients = CLIENTS.to_string();
    // Small logs and frequent checkpoints, so that a replica that was away needs the state, not only the log.
    let lines = "checkpoint_interval = 64\nwindow = 128\nlog_bytes_max = \"1MiB\"";
    let mut cluster = Cluster::make("history", &["--clients", &clients], lines);
    let proxies = with_proxies(&cluster, seed);
    (0..4).for_each(|i| cluster.run(i));
    let begin = Instant::now();
    let people = People::start(cluster.dir.path().join("c"), CLIENTS, seed);
    let done = faults::inject(&mut cluster, &proxies, seed, || people.answered() >= operations);
    let (history, tally) = people.stop();
    let took = begin.elapsed();

    let counts = proxies.counts();
    println!("seed {seed}: {} operations in {took:.1?}, {tally}", history.len());
    println!("  {done}");
    println!(
        "  datagrams: {} passed, {} lost, {} doubled, {} reordered, {} into a cut; side channel: {} bytes, {} broken",
        counts.passed.load(Relaxed),
        counts.dropped.load(Relaxed),
        counts.doubled.load(Relaxed),
        counts.reordered.load(Relaxed),
        counts.cut.load(Relaxed),
        counts.carried.load(Relaxed),
        counts.broken.load(Relaxed),
    );
    let begin = Instant::now();
    if let Err((time, why)) = KvApp::default().check(&history) {
        panic!("not linearizable at {time}: {why}");
    }
    println!("  linearizable, checked in {:.1?}", begin.elapsed());
    // What was meant to happen has happened.
    for count in [&counts.dropped, &counts.doubled, &counts.reordered, &counts.cut] {
        assert!(count.load(Relaxed) > 0);
    }
    // The checker would have noticed: the same history with one stale read more has no order.
    let (spoilt, key) = spoilt(&history).unwrap();
    let Err((_, why)) = KvApp::default().check(&spoilt) else {
        panic!("a stale read of {key} was not noticed")
    };
    assert!(why.contains(&key), "{key}: {why}");
    println!("  with a stale read of {key} put in: not linearizable");
}
