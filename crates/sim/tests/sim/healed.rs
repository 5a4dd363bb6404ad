//! A liar of every kind, cleaned, recovers fully; those of which it is known that they are not stand in the list.

use quorate_sim::adversary::roster::ROSTER;
use quorate_sim::expected::{OPEN, Shows};
use quorate_sim::scenario::cleansed;
use quorate_wire::Cluster;

/// Runs every liar of the roster, and demands that those in the list fail and no others.
#[test]
fn every_liar_is_healed() {
    let Ok(cluster) = Cluster::tolerating(1) else { unreachable!("four replicas tolerate one fault") };
    let mut wrong = Vec::new();
    for entry in ROSTER {
        let ended = cleansed::run(entry, cluster, 1);
        let open = OPEN.iter().find(|open| open.shows == Shows::Healed(entry.name));
        match (&ended, open) {
            (Ok(()), None) => {}
            (Err(rule), Some(open)) if rule.name() == open.rule => {}
            (Err(rule), _) => wrong.push(format!("{}: {} {rule:?}", entry.name, rule.name())),
            (Ok(()), Some(_)) => {
                wrong.push(format!("{} no longer fails: take it out of the list", entry.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
