//! Runs seeds of the swarm and shows the first failures: for those who work on the simulator.
use quorate_pbft::Config;
use quorate_pbft::config::Durability;
use quorate_sim::setup::Setup;
use quorate_sim::swarm::{Ask, run};
use quorate_wire::Cluster;

fn main() {
    let args: Vec<u64> = std::env::args().skip(1).map(|a| parse(&a)).collect();
    let (first, count) = (args.first().copied().unwrap_or(1), args.get(1).copied().unwrap_or(20));
    let n = u16::try_from(args.get(2).copied().unwrap_or(4)).unwrap_or(4);
    let lines = usize::try_from(args.get(3).copied().unwrap_or(0)).unwrap_or(0);
    let Ok(cluster) = Cluster::new(n, (n - 1) / 3) else { return };
    // Small logs without disks: what a replica forgets, and how it comes back, matters most there.
    let small = Config {
        checkpoint_interval: 4,
        window: 16,
        pipeline: 4,
        clients_max: 64,
        durability: Durability::Memory,
        ..Setup::new(first, cluster).config
    };
    let config = args.get(4).is_some_and(|small| *small != 0).then_some(&small);
    let ask = Ask { cluster, config, batches: 200, steps: 0, lines, workers: None, plain: false };
    let started = std::time::Instant::now();
    let mut sum = quorate_sim::summary::Counters::default();
    let mut failures = 0;
    let mut simulated = 0;
    // Batches, and kinds of faults.
    let mut fewest = (u64::MAX, usize::MAX);
    for seed in first..first + count {
        let at = std::time::Instant::now();
        let result = run(seed, &ask);
        sum.add(&result.counters);
        fewest.0 = fewest.0.min(result.counters.batches);
        fewest.1 = fewest.1.min(result.counters.faults.len());
        simulated += result.simulated_ns;
        if let Some(failure) = result.failure {
            failures += 1;
            for line in &result.lines {
                println!("{:>7} {:>6}.{:03} {line}", line.step, line.at / 1_000_000, line.at / 1000 % 1000);
            }
            println!("{failure}");
        }
        if count <= 10 || at.elapsed().as_millis() > 2000 {
            println!(
                "seed {seed:#x}: {:?}, simulated {} ms, steps {}",
                at.elapsed(),
                result.simulated_ns / 1_000_000,
                result.counters.steps
            );
        }
    }
    println!("{:#}", sum.to_json());
    println!(
        "{count} seeds, {failures} failures, {:?}, simulated {} s",
        started.elapsed(),
        simulated / 1_000_000_000
    );
    println!("at least {} batches and {} kinds of faults each, liars not among them", fewest.0, fewest.1);
    println!("missing kinds {:?}", sum.missing_kinds());
    println!("missing rejects {:?}", sum.missing_rejects());
}

fn parse(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap_or(0),
        None => text.parse().unwrap_or(0),
    }
}
