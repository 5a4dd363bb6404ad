//! Twins: two copies of each of `f` replicas run with the same keys, and the group is partitioned so that each copy
//! is connected to its own part (K18).

use quorate_pbft::config::MS;
use quorate_pbft::step::Milestone;
use quorate_wire::ReplicaId;

use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage, first_f};
use crate::network::NodeId;
use crate::rng::Rng;
use crate::setup::Setup;
use crate::world::Load;

/// A correct replica has heard both copies say what excludes one another.
const EQUIVOCATION: Expect =
    Expect::Milestone("equivocation", |_, m| matches!(m, Milestone::Equivocation { .. }));
const VIEW_CHANGES: Expect = Expect::Count("view-changes", |c| c.view_changes);

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "k18_twin_primary",
        &["K18", "P1"],
        "Two copies of the primary run, each connected to a part of the group (T1, T2)",
    )
    .expects(&[Expect::Split, VIEW_CHANGES])
    .with(|setup| first_f(setup.config.cluster).into_iter().fold(setup, Setup::twin))
    .play(twin_primary),
    Scenario::new(
        "k18_twin_backup",
        &["K18", "K1"],
        "Two copies of each of f backups run, one in each half of the group (T3)",
    )
    .expects(&[EQUIVOCATION, VIEW_CHANGES])
    .with(|setup| setup.last_f().into_iter().fold(setup, Setup::twin))
    .play(twins),
    Scenario::new("k18_twin_new_primary", &["K18", "P16"], "Two copies of the next view's primary run (T4)")
        .expects(&[EQUIVOCATION, VIEW_CHANGES])
        .with(|setup| {
            let ids: Vec<ReplicaId> =
                setup.config.cluster.replicas().skip(1).take(setup.config.cluster.f()).collect();
            ids.into_iter().fold(setup, Setup::twin)
        })
        .play(twins),
    Scenario::new(
        "k18_twins_through_views",
        &["K18"],
        "Two copies of the first f replicas run; the group is partitioned repeatedly (T5)",
    )
    .expects(&[EQUIVOCATION, VIEW_CHANGES])
    .with(|setup| first_f(setup.config.cluster).into_iter().fold(setup, Setup::twin))
    .play(twins),
];

/// The copies of the first primary lead a part of the group each, of which only one is a quorum.
fn twin_primary(stage: &mut Stage) -> Ended {
    let (n, f) = (stage.cluster().n(), stage.cluster().f());
    let copies = (n..n + f).map(NodeId::at);
    let few: Vec<NodeId> = (n - f..n).map(NodeId::at).chain(copies).collect();
    let many: Vec<NodeId> = (0..n - f).map(NodeId::at).collect();
    let clients = stage.clients();
    stage.world.network.partition(&[&few, &many]);
    // Each part has its own client.
    stage.world.network.partition(&[&few, &clients[..1]]);
    stage.world.network.partition(&[&many, &clients[1..]]);
    stage.world.set_load(Load::Busy(0, 2 * MS));
    stage.pass(250 * MS)?;
    stage.mend();
    // T2: the view changes with both copies' VIEW-CHANGEs.
    stage.world.network.partition(&[&[NodeId::at(0)], &many[f..]]);
    stage.pass(400 * MS)?;
    stage.mend();
    stage.busy(20)
}

/// The group falls apart into two again and again, the copies of a twin always in different parts.
fn twins(stage: &mut Stage) -> Ended {
    let (n, f) = (stage.cluster().n(), stage.cluster().f());
    let twins = stage.world.hosts[n..].iter().map(|host| host.id.index()).collect::<Vec<_>>();
    let mut rng = Rng::new(stage.world.seed, crate::rng::Concern::Faults);
    stage.require(twins.len() == f, "f replicas run twice")?;
    stage.world.set_load(Load::Busy(0, 2 * MS));
    // Until the copies have contradicted one another where a correct replica noticed.
    for round in 0..24 {
        if round >= 6 && stage.world.counters().equivocations > 0 {
            break;
        }
        let (mut some, mut rest) = (Vec::new(), Vec::new());
        for h in 0..n {
            let copy = twins.iter().position(|twin| *twin == h).map(|at| NodeId::at(n + at));
            let (here, there) = if rng.one_in(2) { (&mut some, &mut rest) } else { (&mut rest, &mut some) };
            here.push(NodeId::at(h));
            there.extend(copy);
        }
        stage.world.network.partition(&[&some, &rest]);
        stage.pass(rng.between(100, 300) * MS)?;
        stage.mend();
        stage.pass(rng.between(0, 30) * MS)?;
    }
    Ok(())
}
