//! Bugs that other implementations of this family had, each tried here (B1-B37). Most others have a test where they
//! could happen; `docs/faults.md` lists it.

use quorate_pbft::config::{Config, MS};
use quorate_pbft::step::Milestone;
use quorate_wire::{Digest, Kind, ReplicaId};

use super::network::{node, primary};
use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage, first_f, highest_view, last_f};
use crate::app::KvApp;
use crate::network::NodeId;
use crate::rng::{Concern, Rng};
use crate::setup::Setup;
use crate::world::{Load, World};
use quorate_service::Task;

const VIEW_CHANGES: Expect = Expect::Count("view changes", |c| c.view_changes);
const TRANSFERRED: Expect =
    Expect::Milestone("state transfer", |_, m| matches!(m, Milestone::TransferFinished { .. }));

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "b7_time_outs_that_are_too_short",
        &["B7"],
        "Each hop takes longer than the shortest time-out: views fail until the time-out is long enough",
    )
    .expects(&[VIEW_CHANGES, Expect::Noted("calm")])
    .play(|stage| {
        next_number(stage)?;
        for from in stage.all() {
            for to in stage.all() {
                stage.world.network.worsen(node(from), node(to), 0, 400 * MS);
            }
        }
        stage.world.set_load(Load::Busy(0, 10 * MS));
        let mut calm = 0;
        for _ in 0..60 {
            let (view, committed) = (stage.view(), stage.world.committed());
            stage.pass(1_000 * MS)?;
            let works = stage.view() == view && stage.world.committed() > committed;
            calm = if works { calm + 1 } else { 0 };
            if calm == 6 {
                stage.note("calm");
                return Ok(());
            }
        }
        stage.require(false, "a minute of view changes in a network that is only slow")
    }),
    Scenario::new(
        "b10_state_transfer_in_a_view_change",
        &["B10"],
        "Replicas start a view change and are disconnected; they miss the new view and more than a window",
    )
    .expects(&[TRANSFERRED, VIEW_CHANGES, Expect::Noted("voted again")])
    .play(transfer_in_a_view_change),
    Scenario::new(
        "b15_execution_outlasts_the_view",
        &["B15"],
        "The service is slow: batches of a view are still being executed when the view ends",
    )
    .expects(&[VIEW_CHANGES, Expect::Noted("executing while leaving")])
    .with(|setup| Setup { task_time: (10 * MS, 30 * MS), ..setup })
    .play(|stage| {
        for _ in 0..3 {
            stage.busy(6)?;
            stage.world.set_load(Load::Busy(0, 2 * MS));
            // One that starts again hands its view over, and so all leave it within moments.
            let view = stage.view();
            let h = stage.world.host_of(primary(stage));
            stage.world.crash(h);
            stage.world.restart(h);
            stage.until("one leaves while it executes", 5_000 * MS, |w| {
                (0..w.hosts.len()).any(|h| w.hosts[h].correct && executes_while_leaving(w, h))
            })?;
            stage.note("executing while leaving");
            stage.until("the view is left", 5_000 * MS, |w| highest_view(w) > view)?;
        }
        stage.busy(6)
    }),
    Scenario::new(
        "b23_locked_on_two_batches",
        &["B23"],
        "f replicas prepared one batch at a number, others another one in a later view: one of them is chosen",
    )
    .expects(&[VIEW_CHANGES, Expect::Noted("locked on two batches")])
    .with(commits_apart)
    .play(locked_on_two),
    Scenario::new(
        "b25_committed_in_two_views",
        &["B25"],
        "f replicas commit a batch; the view ends before the others do, and they commit it in the next one",
    )
    .expects(&[VIEW_CHANGES, Expect::Noted("committed in the view before"), Expect::Noted("committed later")])
    .with(commits_apart)
    .play(committed_in_two_views),
    Scenario::new(
        "b26_first_slot",
        &["B26"],
        "The first primary runs as two copies; each backup hears one, both or none: one batch is chosen",
    )
    .expects(&[Expect::Heard(Kind::PrePrepare), Expect::Heard(Kind::ViewChange)])
    .with(|setup| first_f(setup.config.cluster).into_iter().fold(setup, Setup::twin))
    .play(first_slot),
];

/// Sends each COMMIT separately, so that one can be lost without the message that carries it.
fn commits_apart(setup: Setup) -> Setup {
    let config = Config { piggyback: false, ..setup.config };
    Setup { config, ..setup }
}

fn executes_while_leaving(world: &mut World<KvApp>, h: usize) -> bool {
    let id = world.hosts[h].id;
    let leaving = !world.checkers.facts(id).normal;
    let Some(process) = world.process(h) else { return false };
    leaving && process.has_work() && matches!(process.queue().first(), Some(Task::Execute { .. }))
}

/// Returns `f` of `among`, the primary first.
fn primary_and_more(stage: &Stage, among: &[ReplicaId]) -> Vec<ReplicaId> {
    let first = primary(stage);
    let more = among.iter().copied().filter(|id| *id != first);
    std::iter::once(first).chain(more).take(stage.cluster().f()).collect()
}

/// A replica's prepared batch at a number, and whether it prepared in a later view than 0.
fn prepared(world: &World<KvApp>, id: ReplicaId, seq: u64) -> Option<(u64, Digest)> {
    world.checkers.facts(id).prepared.get(&seq).map(|(view, digest)| (view.0, *digest))
}

/// Runs until nothing happens. Returns the next number.
fn next_number(stage: &mut Stage) -> Result<u64, crate::report::Rule> {
    stage.busy(5)?;
    stage.quiet()?;
    stage.pass(50 * MS)?;
    Ok(stage.world.committed() + 1)
}

/// `many` have left view 0; then they hear one another again, but not the others.
fn leave_without(stage: &mut Stage, few: &[ReplicaId], many: &[ReplicaId]) -> Ended {
    stage.isolate(few);
    let waiting = many.to_vec();
    stage.until("they leave the view", 10_000 * MS, move |w| {
        waiting.iter().all(|id| w.checkers.facts(*id).view.0 >= 1)
    })?;
    stage.mend();
    stage.isolate(few);
    Ok(())
}

fn transfer_in_a_view_change(stage: &mut Stage) -> Ended {
    let lost = stage.last_f();
    stage.busy(5)?;
    stage.world.set_load(Load::Busy(0, 2 * MS));
    let old = primary_and_more(stage, &stage.all_but(&lost));
    stage.isolate(&old);
    let left = lost.clone();
    stage.until("they leave the view", 10_000 * MS, move |w| {
        left.iter().all(|id| !w.checkers.facts(*id).normal)
    })?;
    stage.mend();
    stage.isolate(&lost);
    let window = stage.world.config.window;
    stage.busy(3 * window)?;
    let out = lost.iter().all(|id| !stage.world.checkers.facts(*id).normal);
    stage.require(out, "they have entered a view although they were cut off")?;
    // Now nothing continues without them.
    stage.mend();
    let gone = primary_and_more(stage, &stage.all_but(&lost));
    stage.isolate(&gone);
    stage.busy(window)?;
    stage.note("voted again");
    Ok(())
}

fn locked_on_two(stage: &mut Stage) -> Ended {
    let few = last_f(stage.cluster());
    let many = stage.all_but(&few);
    let seq = next_number(stage)?;
    stage.mute(Kind::Prepare, &stage.all(), &many);
    stage.ask(0, 0, "put k0 a");
    let locked = few.clone();
    stage.until("the few have prepared", 1_000 * MS, move |w| {
        locked.iter().all(|id| prepared(w, *id, seq).is_some())
    })?;
    let Some((_, first)) = prepared(&stage.world, few[0], seq) else { return Ok(()) };
    leave_without(stage, &few, &many)?;
    stage.mute(Kind::Commit, &stage.all(), &stage.all());
    let locked = many.clone();
    stage.until("the many have prepared", 10_000 * MS, move |w| {
        locked
            .iter()
            .all(|id| prepared(w, *id, seq).is_some_and(|(view, digest)| view > 0 && digest != first))
    })?;
    stage.note("locked on two batches");
    // The primary leaves, and f + 1 of the many have to agree with the few.
    stage.mend();
    let view = stage.view();
    let gone = primary_and_more(stage, &many);
    stage.isolate(&gone);
    stage.mute(Kind::Commit, &stage.all(), &stage.all());
    stage.world.set_load(Load::Busy(0, 2 * MS));
    stage.until("the next view", 10_000 * MS, |w| highest_view(w) > view)?;
    stage.mend();
    stage.isolate(&gone);
    stage.busy(20)
}

fn committed_in_two_views(stage: &mut Stage) -> Ended {
    let few = last_f(stage.cluster());
    let many = stage.all_but(&few);
    let seq = next_number(stage)?;
    stage.mute(Kind::Commit, &stage.all(), &many);
    stage.ask(0, 0, "put k0 a");
    stage.until_executed(&few, seq, 1_000 * MS)?;
    let none = many.iter().all(|id| stage.executed(*id) < seq) && stage.view() == 0;
    stage.require(none, "others have committed it as well")?;
    stage.note("committed in the view before");
    // They have prepared and would wait: something else has to make them leave.
    stage.mute(Kind::PrePrepare, &stage.all(), &many);
    stage.ask(1, 0, "put k1 b");
    leave_without(stage, &few, &many)?;
    // The votes of those who have committed it are needed to commit it again.
    stage.mend();
    let leads = primary(stage);
    let gone: Vec<ReplicaId> =
        many.iter().copied().filter(|id| *id != leads).take(stage.cluster().f()).collect();
    let rest: Vec<ReplicaId> = many.iter().copied().filter(|id| !gone.contains(id)).collect();
    stage.isolate(&gone);
    stage.until_executed(&rest, seq, 10_000 * MS)?;
    stage.require(rest.iter().all(|id| stage.world.checkers.facts(*id).view.0 > 0), "not in a later view")?;
    stage.note("committed later");
    stage.busy(20)
}

/// The counterexamples of Abraham et al. (2017) to protocols that decide on less than this one does need one
/// slot, four replicas and one or two view changes. The seed says which copy of the primary each backup
/// hears: written in base 4, one digit for each of them.
fn first_slot(stage: &mut Stage) -> Ended {
    let (n, f) = (stage.cluster().n(), stage.cluster().f());
    let mut rng = Rng::new(stage.world.seed, Concern::Faults);
    let ones: Vec<NodeId> = (0..f).map(NodeId::at).collect();
    let twos: Vec<NodeId> = (n..n + f).map(NodeId::at).collect();
    let clients = stage.clients();
    stage.world.network.partition(&[&ones, &twos]);
    stage.world.network.partition(&[&ones, &clients[1..]]);
    stage.world.network.partition(&[&twos, &clients[..1]]);
    let mut digits = stage.world.seed;
    for h in f..n {
        let (deaf_to_ones, deaf_to_twos) = (digits & 1 == 1, digits & 2 == 2);
        digits /= 4;
        for (deaf, copies) in [(deaf_to_ones, &ones), (deaf_to_twos, &twos)] {
            if deaf {
                stage.world.network.partition(&[&[NodeId::at(h)], copies]);
            }
        }
    }
    stage.ask(0, 0, "put k0 a");
    stage.ask(1, 0, "put k0 b");
    // Less than the shortest time-out.
    stage.pass(80 * MS)?;
    stage.world.set_load(Load::Busy(0, 5 * MS));
    for _ in 0..2 {
        stage.mend();
        // Each copy tells a part of the others what it did, and one of these hears nobody.
        let mut parts = [ones.clone(), twos.clone()];
        let deaf = f + rng.index(n - f);
        for h in (f..n).filter(|h| *h != deaf) {
            parts[rng.index(2)].push(NodeId::at(h));
        }
        for (some, copies) in [(&parts[0], &twos), (&parts[1], &ones)] {
            stage.world.network.partition(&[some, copies]);
        }
        stage.isolate(&[ReplicaId::at(deaf)]);
        let leads = primary(stage);
        stage.mute(Kind::PrePrepare, &[leads], &stage.all());
        stage.mute(Kind::NewView, &[leads], &stage.all());
        stage.pass(rng.between(150, 500) * MS)?;
    }
    // The present view has to end too.
    stage.mend();
    let view = stage.view();
    let leads = primary(stage);
    stage.isolate(&[leads]);
    stage.until("the next view", 20_000 * MS, |w| highest_view(w) > view)?;
    stage.mend();
    stage.busy(5)
}
