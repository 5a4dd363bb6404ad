//! Real processes that are killed: nothing that was acknowledged is lost, and nothing is done twice.
//!
//! Some do a few rounds of what `QUORATE_ROUNDS=50 cargo test --release -p quorate-cli --test processes` does many of.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

#[path = "processes/commands.rs"]
mod commands;
#[path = "processes/demo.rs"]
mod demo;
#[path = "processes/engines.rs"]
mod engines;
#[path = "processes/files.rs"]
mod files;
#[path = "processes/gateway.rs"]
mod gateway;
#[path = "processes/gateways.rs"]
mod gateways;
#[path = "processes/hardships.rs"]
mod hardships;
#[path = "processes/ipv6.rs"]
mod ipv6;
#[path = "processes/kills.rs"]
mod kills;
#[path = "processes/liars.rs"]
mod liars;
#[path = "processes/memory.rs"]
mod memory;
#[path = "processes/mistakes.rs"]
mod mistakes;
#[path = "processes/mount.rs"]
mod mount;
#[path = "support/namespace.rs"]
mod namespace;
#[path = "processes/others.rs"]
mod others;
#[path = "processes/peer.rs"]
mod peer;
#[path = "processes/state.rs"]
mod state;
#[path = "processes/status.rs"]
mod status;
#[allow(dead_code, reason = "shared with the tests that need more of it")]
mod support;
#[path = "processes/transfer.rs"]
mod transfer;
#[path = "processes/truth.rs"]
mod truth;
#[path = "processes/up.rs"]
mod up;
#[path = "processes/users.rs"]
mod users;

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use quorate_node::Clock;
use quorate_service::kv::{Answer, Operation};
use support::{Cluster, Gap, Load, invoke};

/// A clean stop and start of all; and a replica whose disk was emptied comes back from the others.
#[test]
fn a_cluster_comes_back_and_a_wiped_replica_too() {
    let mut cluster = Cluster::start("back", &[], "");
    let clock = Clock::new();
    let mut client = cluster.client(0, 1);
    let put = |value: &'static [u8]| Operation::Put { key: b"k", value };
    assert_eq!(Answer::decode(&invoke(&mut client, &clock, &put(b"one"))), Ok(Answer::Done));
    for i in 0..4 {
        assert!(cluster.stop(i).success(), "{}", cluster.log(i));
    }
    (0..4).for_each(|i| cluster.run(i));
    let get = Operation::Get { key: b"k" };
    assert_eq!(Answer::decode(&invoke(&mut client, &clock, &get)), Ok(Answer::Value(b"one")));

    assert!(cluster.stop(3).success());
    for sub in ["log", "checkpoint"] {
        fs::remove_dir_all(cluster.replica_dir(3).join(sub)).unwrap();
    }
    cluster.run(3);
    cluster.wait_for(3, "this replica's state is lost");
    // It has rejoined when the others have moved on by a window or an idle primary's null batches have.
    let load = Load::start(client, vec![0]);
    cluster.wait_for(3, "has rejoined");
    let (_, mut client) = load.stop();
    // Now it is needed: another one is gone.
    cluster.kill(2);
    assert_eq!(Answer::decode(&invoke(&mut client, &clock, &put(b"two"))), Ok(Answer::Done));
    assert_eq!(Answer::decode(&invoke(&mut client, &clock, &get)), Ok(Answer::Value(b"two")));
}

/// A backup that stood still under load comes back: nobody's memory has grown, and it has all that it missed.
///
/// Ten seconds here; `QUORATE_PAUSE_S=600` for ten minutes.
#[test]
fn h2_a_paused_replica_comes_back_and_nobody_has_grown() {
    let mut cluster = Cluster::start("pause", &[], "log_bytes_max = \"4MiB\"");
    let seconds = std::env::var("QUORATE_PAUSE_S").ok().and_then(|s| s.parse().ok()).unwrap_or(10);
    let client = cluster.client(0, 8);
    let load = Load::start(client, vec![0; 8]);
    load.wait(300);
    let paused = 3;
    cluster.signal(paused, Signal::SIGSTOP);
    let before = load.done();
    std::thread::sleep(Duration::from_secs(seconds));
    println!("{} increments in {seconds} s without r{paused}", load.done() - before);
    cluster.signal(paused, Signal::SIGCONT);
    load.wait(300);
    let (tally, mut client) = load.stop();
    let resident = cluster.pids().into_iter().map(resident_mib).collect::<Vec<_>>();
    let gap = tally.gaps.iter().map(Gap::length).max();
    println!("longest gap {gap:?}; resident, in MiB: {resident:?}");
    for i in 0..4 {
        println!("r{i} has left {} views", cluster.log(i).matches("started a view change").count());
    }
    // What a replica holds is bounded by its window and its queues, whatever the load and the pause.
    assert!(resident.iter().all(|mib| *mib < 256), "{resident:?}");
    // Now it is needed: of the three that are left, all must agree on every counter.
    cluster.kill(0);
    let clock = Clock::new();
    for (lane, count) in tally.acknowledged.iter().enumerate() {
        let (key, expected) = (format!("lane-{lane}"), (count + 1).to_string());
        let answer = invoke(&mut client, &clock, &Operation::Incr { key: key.as_bytes(), by: 1 });
        assert_eq!(Answer::decode(&answer), Ok(Answer::Value(expected.as_bytes())));
    }
}

/// Returns the memory of a process that is in RAM, in MiB.
fn resident_mib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

/// An idle cluster leaves the machine alone: under 2 % of a core, built for release.
#[test]
fn an_idle_cluster_sleeps() {
    let cluster = Cluster::start("idle", &[], "");
    std::thread::sleep(Duration::from_secs(1));
    let ticks = || -> u64 {
        let of = |pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let fields: Vec<u64> =
                stat.rsplit(')').next().unwrap().split(' ').filter_map(|field| field.parse().ok()).collect();
            // Behind the state: utime and stime are the fields 14 and 15 of the whole line.
            fields[10] + fields[11]
        };
        cluster.pids().into_iter().map(of).sum()
    };
    let (before, seconds) = (ticks(), 4);
    std::thread::sleep(Duration::from_secs(seconds));
    // A tick is a hundredth of a second.
    let percent = (ticks() - before) / seconds;
    println!("an idle cluster takes {percent} % of a core");
    assert!(percent <= 5, "{percent} % of a core");
}

/// What is longer than a datagram goes over the side channel, there and back.
#[test]
fn long_values_are_stored_and_read() {
    let cluster = Cluster::start("long", &[], "");
    let (clock, mut client) = (Clock::new(), cluster.client(0, 1));
    let value: Vec<u8> = (0..500_000_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let put = Operation::Put { key: b"long", value: &value };
    assert_eq!(Answer::decode(&invoke(&mut client, &clock, &put)), Ok(Answer::Done));
    let get = Operation::Get { key: b"long" };
    assert_eq!(Answer::decode(&invoke(&mut client, &clock, &get)), Ok(Answer::Value(&value)));
}
