//! What never occurs is not tested: every kind of message and every reason to turn one away occurs in the swarm
//! or in a named scenario, and so does everything else that a summary counts.

use quorate_sim::scenario;
use quorate_sim::summary::Counters;
use quorate_sim::swarm::{self, Ask};
use quorate_wire::Cluster;

/// Seeds of the swarm that are run in any case, and the most that are asked for what the scenarios lack.
const SEEDS: u64 = 20;
const SEEDS_MAX: u64 = 200;

/// Returns what has not occurred.
fn missing(counters: &Counters) -> Vec<String> {
    let kinds = counters.missing_kinds().into_iter().map(str::to_owned);
    let rejects = counters.missing_rejects().into_iter().map(str::to_owned);
    let json = counters.to_json();
    let counts = json.as_object().into_iter().flatten();
    let nothing = counts.filter(|(_, count)| count.as_u64() == Some(0)).map(|(name, _)| name.clone());
    kinds.chain(rejects).chain(nothing).collect()
}

/// Adds a run, and tells what is new in it.
fn add(sum: &mut Counters, what: &str, counters: &Counters) {
    let mut new = missing(sum);
    sum.add(counters);
    let still = missing(sum);
    new.retain(|name| !still.contains(name));
    if !new.is_empty() {
        println!("{what}: {}", new.join(" "));
    }
}

#[test]
fn every_message_and_every_rejection_occurs() {
    let Ok(cluster) = Cluster::new(4, 1) else { unreachable!("four replicas tolerate one fault") };
    let ask = Ask { cluster, config: None, batches: 200, steps: 0, lines: 0, workers: None, plain: false };
    let mut sum = Counters::default();
    for seed in 1..=SEEDS {
        add(&mut sum, "swarm", &swarm::run(seed, &ask).counters);
    }
    let scenarios = scenario::all().flat_map(|scenario| scenario.sizes.iter().map(move |n| (scenario, *n)));
    for (scenario, n) in scenarios {
        if !missing(&sum).is_empty() {
            add(&mut sum, scenario.name, &scenario::run(scenario, n, 1).counters);
        }
    }
    for seed in SEEDS + 1..=SEEDS_MAX {
        if !missing(&sum).is_empty() {
            add(&mut sum, "swarm, late", &swarm::run(seed, &ask).counters);
        }
    }
    assert!(missing(&sum).is_empty(), "never: {}", missing(&sum).join(" "));
}
