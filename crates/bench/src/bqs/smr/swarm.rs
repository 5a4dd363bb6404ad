//! The swarm of the SMR register: load, settings and a faulty leader from a seed. The leader has a profile of §10, and with f > 1
//! further replicas answer reads with made-up values.

use anyhow::Result;
use quorate_pbft::config::ReadRule;
use quorate_quorum::thresholds::ServerSet;
use quorate_quorum_sim::cell::Row;
use quorate_quorum_sim::history::OperationKind;
use quorate_quorum_sim::model::Model;
use quorate_quorum_sim::rng::Rng;
use quorate_wire::ReplicaId;

use super::{Faulty, Leader, SmrCell};

/// Draws a cell.
pub fn draw(f: u16, seed: u64) -> SmrCell {
    let mut rng = Rng::new(seed, 2);
    let kind = if rng.one_in(2) { OperationKind::Read } else { OperationKind::Write };
    let mut cell = SmrCell::new(f, kind, Model::sim2006(rng.below(200)));
    let (readers, think) = (rng.below(4), rng.below(5_000));
    cell.load.readers = u16::try_from(readers).unwrap_or(0);
    (cell.load.writer, cell.load.think, cell.load.seed) = (!rng.one_in(4), think, seed);
    (cell.load.operations, cell.load.warm_up) = (12, 0);
    cell.rule = if rng.one_in(2) { ReadRule::FirstReplies } else { ReadRule::FirstQuorum };
    (cell.batching, cell.tentative) = (!rng.one_in(3), rng.one_in(2));
    let leader = match rng.below(4) {
        0 => Leader::Silent,
        1 => Leader::Delay,
        2 => Leader::Equivocate,
        _ => {
            let mut excluded = ServerSet::default();
            for id in (1..=3 * f).filter(|_| rng.one_in(3)) {
                excluded.insert(ReplicaId(id));
            }
            Leader::Exclude(excluded)
        }
    };
    cell.faulty = Faulty::Leader(leader, f - 1);
    cell
}

/// Runs a seed. The row says whether the history is atomic.
///
/// # Errors
///
/// An operation did not end.
pub fn run(f: u16, seed: u64) -> Result<Row> {
    draw(f, seed).run()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn all_hold(f: u16, seeds: u64) {
        let mut drawn = [false; 4];
        for seed in 0..seeds {
            let cell = draw(f, seed);
            let Faulty::Leader(leader, _) = cell.faulty else { unreachable!("every leader is faulty") };
            drawn[match leader {
                Leader::Silent => 0,
                Leader::Delay => 1,
                Leader::Equivocate => 2,
                Leader::Exclude(_) => 3,
            }] = true;
            let row = cell.run();
            assert!(row.as_ref().is_ok_and(|row| row.verdict.is_ok()), "seed {seed}: {cell:?}: {row:?}");
        }
        assert_eq!(drawn, [true; 4]);
    }

    #[test]
    fn the_register_survives_faulty_leaders() {
        all_hold(1, 60);
        all_hold(2, 40);
    }
}
