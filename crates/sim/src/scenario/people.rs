//! Clients that are added and removed by ordered operations (EX-3).

use quorate_pbft::config::{Config, MS};
use quorate_pbft::step::Milestone;
use quorate_wire::{Kind, ReplicaId};

use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage, highest_view};
use crate::setup::Setup;
use crate::world::World;

const VIEW_CHANGES: Expect = Expect::Count("view-changes", |c| c.view_changes);
const ROLLED_BACK: Expect =
    Expect::Milestone("rolled-back", |_, m| matches!(m, Milestone::RolledBack { .. }));

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
    "c8_clients_come_and_go",
    &["C8"],
    "Clients are added and removed by ordered operations, during a state transfer and a view change",
)
.expects(&[
    Expect::Door("unknown-sender"),
    Expect::Noted("let in by a state that was fetched"),
    Expect::Noted("removed in the view that came"),
])
.with(|setup| Setup { clients: 3, founders: Some(1), ..setup })
.play(|stage| {
    let free = |c: usize| move |world: &mut World<_>| world.clients[c].lanes[0].outstanding.is_none();
    // Nobody knows c1: what it asks for waits at the authenticators, until c0 has it let in.
    stage.ask(1, 0, "put a 1");
    stage.pass(300 * MS)?;
    let answered = free(1)(&mut stage.world);
    stage.require(!answered, "c1 is answered although nobody knows it")?;
    // Some replicas are away in that time.
    let away = stage.last_f();
    stage.isolate(&away);
    let said = stage.answer(0, 0, "add c1", 10_000 * MS)?;
    stage.require(said == "ok", format!("add c1: {said}"))?;
    stage.until("c1 answered", 20_000 * MS, free(1))?;
    let said = stage.answer(0, 0, "add c2 read", 10_000 * MS)?;
    stage.require(said == "ok", format!("add c2: {said}"))?;
    let said = stage.answer(2, 0, "put a 2", 20_000 * MS)?;
    stage.require(said == "refused: no right", format!("c2 may read and writes: {said}"))?;
    let said = stage.answer(1, 0, "add c2 admin", 10_000 * MS)?;
    stage.require(said == "refused: no right", format!("c1 may write and orders: {said}"))?;
    stage.busy(20)?;
    stage.quiet()?;
    stage.mend();
    // They come back by fetching the state, and c1 is in it.
    let hosts: Vec<usize> =
        stage.correct().into_iter().filter(|h| away.contains(&stage.world.hosts[*h].id)).collect();
    let all = |world: &mut World<_>| hosts.iter().all(|h| world.guests_of(*h) == [0, 1, 2]);
    stage.busy(20)?;
    stage.quiet()?;
    stage.until("the others' clients", 20_000 * MS, all)?;
    stage.note("let in by a state that was fetched");
    // c2 goes while the view changes, in the middle of what it asks for.
    let view = stage.view();
    let primary = [stage.cluster().primary(quorate_wire::ViewNum(view))];
    stage.isolate(&primary);
    stage.hide_from_clients(&primary);
    stage.ask(2, 0, "get a");
    stage.ask(0, 0, "remove c2");
    stage.until("another view", 20_000 * MS, |world| highest_view(world) > view)?;
    stage.until("c2 removed", 20_000 * MS, free(0))?;
    stage.note("removed in the view that came");
    stage.until("c2 answered", 20_000 * MS, free(2))?;
    // It is told so, unless the checkpoint at which the authenticators forget it has come first.
    stage.ask(2, 0, "get a");
    stage.pass(3_000 * MS)?;
    if free(2)(&mut stage.world) {
        let result = stage.world.clients[2].lanes[0].last_result.clone().unwrap_or_default();
        let said = crate::describe::Words::result(&stage.world.app, &result);
        stage.require(said == "refused: no client", format!("c2 is out and is told {said}"))?;
        stage.note("told that it is out");
    }
    stage.world.clients[2].lanes.clear();
    stage.mend();
    // An authenticator forgets at the next stable checkpoint, so that the last answer can leave.
    for _ in 0..24 {
        stage.answer(0, 0, "put b 1", 20_000 * MS)?;
    }
    let correct = stage.correct();
    let known = |world: &mut World<_>| correct.iter().all(|h| world.guests_of(*h) == [0, 1]);
    stage.until("c2 is known nowhere", 20_000 * MS, known)?;
    stage.finish()
}),
    Scenario::new(
        "c8_order_rolled_back",
        &["C8"],
        "An order to add a client is executed tentatively, rolled back, and executed again in the next view (TE-4)",
    )
    .expects(&[VIEW_CHANGES, Expect::Noted("executed tentatively"), ROLLED_BACK])
    .with(|setup| {
        let config = Config { piggyback: false, tentative: true, ..setup.config };
        Setup { config, clients: 2, founders: Some(1), ..setup }
    })
    .play(order_rolled_back),
];

fn order_rolled_back(stage: &mut Stage) -> Ended {
    let r0 = [ReplicaId(0)];
    let backups = stage.all_but(&r0);
    stage.answer(0, 0, "put x 1", 5_000 * MS)?;
    stage.pass(100 * MS)?; // that one has committed
    stage.mute_all(&[Kind::Commit, Kind::Committed]);
    let next = stage.world.committed() + 1;
    stage.ask(0, 0, "add c1");
    let ahead = backups.clone();
    stage.until("it is executed tentatively", 90 * MS, move |w| {
        let tentative = |id: &ReplicaId| w.checkers.facts(*id).tentative.as_ref().map(|(seq, _)| seq.0);
        ahead.iter().all(|id| tentative(id) == Some(next))
    })?;
    stage.note("executed tentatively");
    stage.isolate(&r0);
    stage.ask(0, 1, "put y 1");
    // No COMMIT reaches one that has not left the view yet.
    let left = move |w: &mut World<_>| backups.iter().all(|id| w.checkers.facts(*id).view.0 > 0);
    stage.until("all have left the view", 20_000 * MS, left)?;
    stage.mend();
    stage.until_view(1, 20_000 * MS)?;
    stage.until("it is answered", 10_000 * MS, |w| w.outstanding().0 == 0)?;
    let said = stage.answer(0, 0, "add c1", 10_000 * MS)?;
    stage.require(said == "ok, already", format!("add c1 a second time: {said}"))
}
