//! Parallel execution in the swarm: the replicas of one cluster run 1, 2, 8 and 16 workers with four engines.

use quorate_sim::summary::Counters;
use quorate_sim::swarm::{self, Ask, Run};
use quorate_sim::work::Workers;
use quorate_wire::Cluster;

fn run(seed: u64, workers: fn(u64) -> Workers) -> Run {
    let Ok(cluster) = Cluster::new(4, 1) else { unreachable!("four replicas tolerate one fault") };
    let workers = Some(workers);
    swarm::run(seed, &Ask { cluster, config: None, batches: 200, steps: 0, lines: 0, workers, plain: false })
}

fn rule(run: &Run) -> Option<String> {
    run.failure.as_ref().map(|failure| failure.rule.name().to_owned())
}

/// I28, PX-3: whatever the engine, the number of workers and the schedule, and whatever crashes: one root at every
/// checkpoint. PX-C: no reply that leaves early is another one than that of settling.
#[test]
fn replicas_with_different_workers_stay_equal() {
    let mut sum = Counters::default();
    for seed in 1..=25 {
        let run = run(seed, Workers::mixed);
        assert!(run.failure.is_none(), "{:?}", run.failure);
        sum.add(&run.counters);
    }
    let runs = sum.runs();
    println!("{runs:?}, {} restarts, {} transfers", sum.restarts, sum.state_transfers);
    assert!(runs.most >= 8 && runs.again > 100 && runs.early > 1000 && runs.on_pages > 100, "{runs:?}");
    assert!(runs.reads_beside > 100 && runs.reads_kept > 100, "{runs:?}");
    let of = |what: &str| sum.faults.get(what).copied().unwrap_or_default();
    println!("{} panics, {} hung", of("worker panicked"), of("worker hung"));
    assert!(of("worker panicked") > 100 && of("worker hung") > 10);
    assert!(sum.restarts > 100 && sum.state_transfers > 10);
}

/// A run follows from its seed alone.
#[test]
fn a_seed_gives_one_schedule() {
    let (one, two) = (run(3, Workers::mixed), run(3, Workers::mixed));
    assert_eq!((one.hash, one.counters), (two.hash, two.counters));
}

/// X1: rules that call an addition independent of everything else are found in few seeds. What is wrong may show first in
/// a reply or in evidence; in some runs the detector names the two requests.
#[test]
fn a_wrong_rule_is_found_by_the_swarm() {
    let found: Vec<String> = (1..=40).filter_map(|seed| rule(&run(seed, Workers::misled))).collect();
    println!("{found:?}");
    assert!(found.len() >= 10, "{found:?}");
    assert!(found.iter().any(|rule| rule == "rules of the service (PX-C)"), "{found:?}");
}

/// PX-B: under the same rules, with replies that wait until their requests settle, nothing else is wrong: results,
/// client tables and roots are those of sequential execution.
#[test]
fn a_wrong_rule_splits_nobody() {
    let mut wrong = 0;
    for seed in 1..=15 {
        let run = run(seed, Workers::misled_and_forgiven);
        assert!(run.failure.is_none(), "{:?}", run.failure);
        wrong += run.counters.faults.get("wrong rule found").copied().unwrap_or_default();
    }
    println!("{wrong} requests met a wrong rule");
    assert!(wrong > 4, "{wrong}");
}
