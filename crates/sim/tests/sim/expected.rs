//! Faults that are not mended yet still fail: who mends one takes it out of the list.

use quorate_sim::expected::{OPEN, Shows};
use quorate_sim::scenario;
use quorate_sim::swarm::{self, Ask};
use quorate_wire::Cluster;

/// Runs every scenario of the list, and the seeds that need no other service and no settings. All seeds: in
/// `quorate-cli`, which has every service and reads settings.
#[test]
fn what_is_not_mended_still_fails() {
    let mut wrong = Vec::new();
    for open in OPEN {
        let rule = match open.shows {
            Shows::Scenario(name, n, seed) => {
                let Some(scenario) = scenario::find(name) else { unreachable!("{name} is there") };
                scenario::run(scenario, n, seed).failure.map(|failure| failure.rule)
            }
            Shows::Seed { service: "kv", n, seed, set: [], plain } => {
                let Ok(cluster) = Cluster::new(n, n.saturating_sub(1) / 3) else { unreachable!("a size") };
                let ask =
                    Ask { cluster, config: None, batches: 200, steps: 0, lines: 0, workers: None, plain };
                swarm::run(seed, &ask).failure.map(|failure| failure.rule)
            }
            Shows::Healed(_) | Shows::Seed { .. } => continue,
        };
        let found = rule.as_ref().map_or("nothing", |rule| rule.name());
        println!("{:<4} {:?}: {found}", open.finding, open.shows);
        if found != open.rule {
            wrong.push(format!("{} {:?}: {} expected, {found} found", open.finding, open.shows, open.rule));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
