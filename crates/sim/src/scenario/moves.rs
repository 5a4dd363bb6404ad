//! Replicas that move to other addresses, which ordered operations tell (ADR 23).

use quorate_pbft::config::MS;
use quorate_pbft::step::Milestone;
use quorate_wire::ReplicaId;

use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage};
use crate::adversary::backup::Mute;
use crate::orders::address;
use crate::setup::Setup;

const MOVED: Expect = Expect::Noted("reached at its new address");
const REJOINED: Expect = Expect::Milestone("rejoined", |_, m| matches!(m, Milestone::Rejoined { .. }));

/// Who moves.
const R1: ReplicaId = ReplicaId(1);
/// Its new address, and one where nobody listens.
const NEW: usize = 70;
const NOBODY: usize = 71;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "h13_a_replica_moves",
        &["H13"],
        "A replica moves to another address while others are Byzantine and a client writes: an ordered operation tells it",
    )
    .expects(&[MOVED])
    .with(|setup| Setup { founders: Some(2), ..setup }.lying_backups(|| Mute { answers_below: 0 }))
    .play(moves),
    Scenario::new(
        "h13_a_wrong_address_is_mended",
        &["H13"],
        "The address that was ordered for a replica is wrong: it is as if it had crashed, until the right one is ordered",
    )
    .expects(&[
        MOVED,
        Expect::Noted("not reached at the wrong address"),
        Expect::Noted("a client has read where it is"),
    ])
    .with(|setup| Setup { founders: Some(2), ..setup })
    .play(wrong_address),
    Scenario::new(
        "h13_a_lost_state_and_old_addresses",
        &["H13", "H6"],
        "A replica that lost its state rejoins with the addresses of its own file, one of which is old",
    )
    .expects(&[MOVED, REJOINED, Expect::Noted("started with the old address")])
    .with(|setup| Setup { founders: Some(2), ..setup })
    .play(lost_state),
];

/// Orders that replica 1 is at an address.
fn order(stage: &mut Stage, number: usize) -> Ended {
    let said = stage.answer(0, 0, &format!("move r1 {number}"), 20_000 * MS)?;
    stage.require(said == "ok", format!("move r1: {said}"))
}

/// Waits until replica 1 has executed what the others have executed now, which needs what they send.
fn is_reached(stage: &mut Stage) -> Ended {
    stage.busy(20)?;
    stage.quiet()?;
    let committed = stage.world.committed();
    stage.until_executed(&[R1], committed, 20_000 * MS)?;
    stage.note("reached at its new address");
    Ok(())
}

fn moves(stage: &mut Stage) -> Ended {
    stage.busy(10)?;
    stage.quiet()?;
    // As many replicas are silent as the cluster tolerates: without replica 1, nothing is ordered. So the order comes
    // before the machine.
    order(stage, NEW)?;
    let h = stage.world.host_of(R1);
    stage.world.move_host(h, NEW);
    is_reached(stage)
}

fn wrong_address(stage: &mut Stage) -> Ended {
    stage.busy(10)?;
    stage.quiet()?;
    order(stage, NOBODY)?;
    let correct = stage.correct();
    let astray = |stage: &Stage| {
        correct.iter().all(|h| {
            let host = &stage.world.hosts[*h];
            host.id == R1 || host.book[R1.index()] == address(NOBODY)
        })
    };
    stage.pass(500 * MS)?;
    stage.require(astray(stage), "all others have executed the order")?;
    let before = stage.executed(R1);
    stage.busy(20)?;
    stage.quiet()?;
    stage.require(stage.executed(R1) < before + 10, "nobody reaches it at the wrong address")?;
    stage.note("not reached at the wrong address");
    let h = stage.world.host_of(R1);
    stage.world.move_host(h, NEW);
    order(stage, NEW)?;
    is_reached(stage)?;
    let said = stage.answer(1, 0, "table", 20_000 * MS)?;
    stage.require(said == format!("r1 {}", address(NEW)), format!("the client has read: {said}"))?;
    stage.note("a client has read where it is");
    is_reached(stage)
}

fn lost_state(stage: &mut Stage) -> Ended {
    stage.busy(10)?;
    stage.quiet()?;
    let h = stage.world.host_of(R1);
    stage.world.move_host(h, NEW);
    order(stage, NEW)?;
    is_reached(stage)?;
    let lost = stage.world.host_of(ReplicaId(2));
    stage.world.wipe(lost);
    stage.world.restart_later(lost, 10 * MS);
    stage.until("it has started", 1_000 * MS, |w| w.hosts[lost].is_up())?;
    stage.require(
        stage.world.hosts[lost].book[R1.index()] != address(NEW),
        "its own file has the old address",
    )?;
    stage.note("started with the old address");
    let knows = |w: &mut crate::world::World<_>| {
        w.hosts[lost].book[R1.index()] == address(NEW) && w.hosts.iter().all(|host| !host.amnesic)
    };
    stage.busy(20)?;
    stage.until("it has rejoined and knows the new address", 20_000 * MS, knows)?;
    stage.quiet()?;
    // Now each of them is needed.
    let others = stage.last_f();
    stage.isolate(&others);
    is_reached(stage)
}
