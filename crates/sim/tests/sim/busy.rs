//! Busy machines, over more seeds than every scenario gets: nobody is to blame for a long operation or a slow disk
//! (TM-3, TM-7, TM-8).
#![allow(clippy::panic, reason = "a test may panic")]

use quorate_sim::scenario;

const SEEDS: u64 = 4;

#[test]
fn nobody_is_suspected_because_a_machine_is_busy() {
    let names = ["h12_slow_operations", "h11_half_a_second_for_a_sync"];
    let mut failures = Vec::new();
    for name in names {
        let Some(scenario) = scenario::find(name) else { panic!("{name} is there") };
        let runs = scenario.sizes.iter().flat_map(|n| (1..=SEEDS).map(move |seed| (*n, seed)));
        for (n, seed) in runs {
            let outcome = scenario::run(scenario, n, seed);
            if let Some(failure) = outcome.failure {
                let text = failure.to_string();
                let first = text.lines().next().unwrap_or_default();
                failures.push(format!("{name} n={n} seed {seed}: view {}: {first}", outcome.view));
            }
        }
    }
    assert!(failures.is_empty(), "{} runs failed:\n{}", failures.len(), failures.join("\n"));
}
