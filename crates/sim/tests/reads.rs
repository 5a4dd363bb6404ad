//! A planted error of reads beside unsettled requests, in the swarm. Alone in its process: the error is planted for all of it.
#![cfg(feature = "mutants")]

use quorate_service::mutants::M167;
use quorate_sim::swarm::{self, Ask, Run};
use quorate_sim::work::Workers;
use quorate_wire::Cluster;

fn run(seed: u64, mutant: Option<u32>) -> Run {
    quorate_service::mutants::activate(mutant);
    let Ok(cluster) = Cluster::new(4, 1) else { unreachable!("four replicas tolerate one fault") };
    let workers: Option<fn(u64) -> Workers> = Some(Workers::mixed);
    swarm::run(seed, &Ask { cluster, config: None, batches: 200, steps: 0, lines: 0, workers, plain: false })
}

/// PX-8, I14: a read that does not wait for an unsettled write of its key returns an old value. The swarm finds that in few
/// seeds.
#[test]
fn px8_a_read_that_ignores_unsettled_writes_is_found_by_the_swarm() {
    let fails = |seed: &u64| {
        let failure = run(*seed, Some(M167)).failure;
        failure.is_some() && run(*seed, None).failure.is_none()
    };
    let found: Vec<u64> = (1..=40).filter(fails).collect();
    println!("seeds {found:?}");
    assert!(!found.is_empty());
}
