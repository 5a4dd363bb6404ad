//! Every scenario at every size: its fault happens, no rule is broken, and everything finishes.
#![allow(clippy::panic, reason = "a test may panic")]

use std::time::Instant;

use quorate_sim::expected;
use quorate_sim::report::Rule;
use quorate_sim::scenario::{self, Scenario};

/// The seed of the first run. More are tried by `quorate sim run`.
const SEED: u64 = 1;

/// Runs one scenario at all its sizes and says how it went.
fn play(scenario: &Scenario) -> Result<(), String> {
    let mut failures = Vec::new();
    for &n in scenario.sizes {
        if expected::is_open(scenario.name, n) {
            continue; // it is known to fail, and another test demands that
        }
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

/// How many tests share the scenarios, so that each core has some.
const SHARES: usize = 8;

/// Runs one share of every group: each scenario is in one share, whatever its group is called.
fn play_share(share: usize) {
    let groups = scenario::GROUPS.iter().flat_map(|(_, scenarios)| *scenarios);
    let failures: Vec<String> =
        groups.skip(share).step_by(SHARES).filter_map(|scenario| play(scenario).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

macro_rules! shares {
    ($($name:ident $share:literal)*) => {
        $(
            #[test]
            fn $name() {
                play_share($share);
            }
        )*

        #[test]
        fn every_share_has_a_test() {
            assert!([$($share),*].into_iter().eq(0..SHARES));
        }
    };
}

shares! { share_0 0 share_1 1 share_2 2 share_3 3 share_4 4 share_5 5 share_6 6 share_7 7 }

/// Every way in which three backups can hear the copies of the first primary: one batch stands each time.
#[test]
fn b26_every_split_of_the_first_slot() {
    let Some(scenario) = scenario::find("b26_first_slot") else { panic!("it is there") };
    let (mut contradicted, mut split, mut missed) = (0, 0, 0);
    for seed in 0..64 {
        let outcome = scenario::run(scenario, 4, seed);
        // A split that nobody notices is a split all the same.
        let unnoticed =
            outcome.failure.as_ref().is_some_and(|failure| matches!(failure.rule, Rule::Missed(_)));
        assert!(outcome.is_good() || unnoticed, "{:?}", outcome.failure);
        missed += u64::from(unnoticed);
        contradicted += u64::from(outcome.counters.equivocations > 0);
        split += u64::from(outcome.split > 0);
    }
    println!("{contradicted} of 64 noticed, {split} of 64 accepted two batches");
    assert!(missed <= 1, "the fault did not show in {missed} of 64");
    assert!(contradicted > 8 && split > 8, "{contradicted} noticed, {split} accepted two batches");
}

/// The same seed gives the same run.
#[test]
fn a_seed_decides_everything() {
    for scenario in scenario::all().step_by(7) {
        let n = scenario.sizes[0];
        let hashes = [1, 1, 2].map(|seed| scenario::run(scenario, n, seed).hash);
        assert_eq!(hashes[0], hashes[1], "{}", scenario.name);
        assert_ne!(hashes[0], hashes[2], "{}", scenario.name);
    }
}
