//! Runs seeds of the swarm with each bug planted in the storage, until one fails that passes without the bug. Takes the
//! first seed, the number of seeds, and the numbers of bugs, if not all of them are hunted.
use quorate_pbft::mutants;
use quorate_sim::swarm::{Ask, run};
use quorate_wire::Cluster;

fn main() {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let (first, count) = (args.first().copied().unwrap_or(1), args.get(1).copied().unwrap_or(1000));
    let some = args.get(2..).unwrap_or_default();
    let Ok(cluster) = Cluster::new(4, 1) else { return };
    let ask =
        Ask { cluster, config: None, batches: 200, steps: 400_000, lines: 0, workers: None, plain: false };
    for (id, name, _) in mutants::LIST.iter().filter(|(id, ..)| mutants::STORAGE.contains(id)) {
        if !some.is_empty() && !some.contains(&u64::from(*id)) {
            continue;
        }
        let failure = |seed: u64, id: Option<u32>| {
            mutants::activate(id);
            let failure = run(seed, &ask).failure;
            mutants::activate(None);
            failure
        };
        let found = (first..first + count).find_map(|seed| {
            let found = failure(seed, Some(*id))?;
            failure(seed, None).is_none().then_some((seed, found))
        });
        match found {
            Some((seed, found)) => {
                println!("M{id} {name}: {} seeds, {}", seed - first + 1, found.rule.name());
            }
            None => println!("M{id} {name}: not found in {count} seeds"),
        }
    }
}
