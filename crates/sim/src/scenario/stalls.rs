//! Faults found in this code that leave a cluster without a quorum forever, although only f replicas are faulty.

use quorate_pbft::config::{Config, MS, RequestAuth};
use quorate_wire::ReplicaId;

use super::found_liars::HandsOverToOne;
use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage};
use crate::setup::Setup;
use crate::world::Load;

const VIEW_CHANGES: Expect = Expect::Count("view-changes", |c| c.view_changes);

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "l51_hand_over_to_one_that_waits",
        &["L51"],
        "A liar leaves view 0 with one replica, hands view 1 over to it and falls silent: the others come to them (LV-2)",
    )
    .sizes(&[4])
    .expects(&[VIEW_CHANGES, Expect::Noted("one has left alone")])
    .with(|setup| signed(setup).liar(ReplicaId(1), || HandsOverToOne::to(ReplicaId(3))))
    .play(hand_over_to_one),
];

/// Each replica times a request as soon as it has it.
fn signed(setup: Setup) -> Setup {
    Setup { config: Config { request_auth: RequestAuth::SigMac, ..setup.config }, ..setup }
}

fn hand_over_to_one(stage: &mut Stage) -> Ended {
    let (late, others) = ([ReplicaId(3)], [ReplicaId(0), ReplicaId(2)]);
    stage.busy(20)?;
    stage.quiet()?;
    stage.cut(&late, &others);
    // The client sends its request to all in the end, and r3 does not hear that the others have served it.
    let all = stage.all();
    stage.hold_replies(&all, 0);
    stage.ask(0, 0, "incr n 1");
    let alone = |stage: &Stage| others.iter().all(|id| stage.world.checkers.facts(*id).view.0 == 0);
    stage.until("r3 has left view 0", 5_000 * MS, |w| w.checkers.facts(ReplicaId(3)).view.0 > 0)?;
    stage.pass(50 * MS)?;
    stage.require(alone(stage), "the others are in view 0 still")?;
    stage.note("one has left alone");
    stage.mend();
    stage.world.set_load(Load::Busy(0, 2 * MS));
    stage.until("everybody is in one view", 10_000 * MS, |w| {
        w.core_facts().all(|facts| facts.normal && facts.view.0 >= 2)
    })
}
