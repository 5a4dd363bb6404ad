//! What scripts rely on: names, keys, hashes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quorate_sim::command::{Refused, ReplayOptions, RunOptions, Seeds, Summary, list, replay, run};

fn swarm(first: u64, count: u64) -> Summary {
    let seeds = Seeds::Range(first, count);
    run(&RunOptions { seeds, steps: 4000, ..RunOptions::default() }, |_, _| {}).unwrap()
}

#[test]
fn the_same_seeds_give_the_same_hash_and_counts() {
    let (one, two, other) = (swarm(3, 4), swarm(3, 4), swarm(4, 4));
    assert_eq!(one.hash, two.hash);
    assert_eq!(one.counters, two.counters);
    assert_ne!(one.hash, other.hash);
    assert_eq!(one.runs, 4);
}

#[test]
fn the_json_of_a_run_has_the_keys_that_scripts_read() {
    let json = swarm(1, 2).to_json();
    let keys = [
        "seeds",
        "violations",
        "stuck",
        "commands",
        "view_changes",
        "state_transfers",
        "simulated_s",
        "cpu_s",
        "trace_hash",
    ];
    for key in keys {
        assert!(!json[key].is_null(), "{key}");
    }
    assert_eq!(json["seeds"], 2);
    assert_eq!(json["trace_hash"].as_str().unwrap().len(), 64);
}

#[test]
fn what_cannot_be_run_is_refused() {
    let refused = |options: RunOptions| run(&options, |_, _| {}).unwrap_err();
    let nobody = RunOptions { scenario: Some("p99_nothing".to_owned()), ..RunOptions::default() };
    assert_eq!(refused(nobody), Refused::NoScenario("p99_nothing".to_owned()));
    assert_eq!(refused(RunOptions { n: Some(0), ..RunOptions::default() }), Refused::NoCluster(0));
    assert_eq!(refused(RunOptions { n: Some(65), ..RunOptions::default() }), Refused::NoCluster(65));
}

#[test]
fn every_scenario_is_listed_with_its_keys() {
    let listed = list();
    assert!(!listed.is_empty());
    for scenario in &listed {
        assert!(!scenario["keys"].as_array().unwrap().is_empty(), "{scenario}");
        assert!(!scenario["expects"].as_array().unwrap().is_empty(), "{scenario}");
    }
}

#[test]
fn a_run_is_shown_again_in_part() {
    let options = ReplayOptions {
        seed: 3,
        from: 500,
        at: 900,
        show: vec!["r1".to_owned()],
        ..ReplayOptions::default()
    };
    let shown = replay(&options).unwrap();
    assert!(!shown.lines.is_empty());
    assert!(shown.lines.iter().all(|line| (500..=900).contains(&line.step)));
    assert_eq!(shown.states.len(), 1);
    assert!(shown.states[0].starts_with("r1 "));
}
