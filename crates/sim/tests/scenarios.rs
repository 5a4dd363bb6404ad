//! Every scenario at every size: its fault happens, no rule is broken, and everything finishes.
#![allow(clippy::panic, reason = "a test may panic")]

use std::time::Instant;

use quorate_sim::scenario::{self, Scenario};

/// The seed of the first run. More are tried by `quorate sim run`.
const SEED: u64 = 1;

/// Runs one scenario at all its sizes and says how it went.
fn play(scenario: &Scenario) -> Result<(), String> {
    let mut failures = Vec::new();
    for &n in scenario.sizes {
        let started = Instant::now();
        let outcome = scenario::run(scenario, n, SEED);
        let provoked: Vec<String> =
            outcome.provoked.iter().map(|(name, count)| format!("{name} {count}")).collect();
        println!(
            "{:<32} n={n} {:>4} ms  simulated {:>6} ms  view {:>2}  {}",
            scenario.name,
            started.elapsed().as_millis(),
            outcome.simulated_ns / 1_000_000,
            outcome.view,
            provoked.join(", "),
        );
        if let Some(failure) = &outcome.failure {
            failures.push(failure.to_string());
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Runs the scenarios of one file.
fn play_all(scenarios: &[Scenario]) {
    quorate_sim::report::quiet_panics();
    let failures: Vec<String> = scenarios.iter().filter_map(|scenario| play(scenario).err()).collect();
    // Not in the assertion's message: panics are quiet here.
    println!("{}", failures.join("\n"));
    assert!(failures.is_empty());
}

macro_rules! files {
    ($($file:ident)*) => { $(
        #[test]
        fn $file() {
            play_all(scenario::$file::SCENARIOS);
        }
    )* };
}

files! { primary backup twins client people shares views network host disk durable healed bugs }

/// Every way in which three backups can hear the copies of the first primary: one batch stands each time.
#[test]
fn b26_every_split_of_the_first_slot() {
    let Some(scenario) = scenario::find("b26_first_slot") else { panic!("it is there") };
    let (mut contradicted, mut split) = (0, 0);
    for seed in 0..64 {
        let outcome = scenario::run(scenario, 4, seed);
        assert!(outcome.is_good(), "{:?}", outcome.failure);
        contradicted += u64::from(outcome.counters.equivocations > 0);
        split += u64::from(outcome.split > 0);
    }
    println!("{contradicted} of 64 noticed, {split} of 64 accepted two batches");
    assert!(contradicted > 8 && split > 8, "{contradicted} noticed, {split} accepted two batches");
}

/// The same seed gives the same run.
#[test]
fn a_seed_decides_everything() {
    for scenario in scenario::all().step_by(7) {
        let hashes = [1, 1, 2].map(|seed| scenario::run(scenario, 4, seed).hash);
        assert_eq!(hashes[0], hashes[1], "{}", scenario.name);
        assert_ne!(hashes[0], hashes[2], "{}", scenario.name);
    }
}
