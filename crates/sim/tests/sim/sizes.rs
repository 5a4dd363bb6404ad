//! Other sizes than 4 and 7: one replica more than needed, and f = 3 and 4. The swarm and one scenario each.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quorate_sim::command::{self, RunOptions, Seeds};
use quorate_sim::scenario;
use quorate_wire::Cluster;

/// Runs a few seeds of the swarm with `n` replicas, then a primary that equivocates.
fn holds_at(n: u16, f: usize, quorum: usize, seeds: u64) {
    let cluster = Cluster::new(n, u16::try_from(f).unwrap()).unwrap();
    assert_eq!((cluster.quorum(), cluster.weak()), (quorum, f + 1));
    let options = RunOptions { n: Some(n), seeds: Seeds::Range(1, seeds), ..RunOptions::default() };
    let summary = command::run(&options, |_, _| {}).unwrap();
    let failures: Vec<String> = summary.failures.iter().map(ToString::to_string).collect();
    assert!(summary.is_good(), "{}", failures.join("\n"));
    assert_eq!(summary.runs, seeds);
    let faults: u64 = summary.counters.faults.values().sum();
    assert!(faults >= 4 * seeds, "{faults} faults");
    let scenario = scenario::find("p1_equivocating_primary").unwrap();
    let outcome = scenario::run(scenario, usize::from(n), 1);
    assert!(outcome.is_good(), "{:?} {:?}", outcome.failure, outcome.provoked);
}

/// With n = 5 a quorum is 4: any two of them share 3, of which one may be faulty.
#[test]
fn five_replicas_tolerate_one() {
    holds_at(5, 1, 4, 6);
}

#[test]
fn ten_replicas_tolerate_three() {
    holds_at(10, 3, 7, 3);
}

#[test]
fn thirteen_replicas_tolerate_four() {
    holds_at(13, 4, 9, 2);
}
