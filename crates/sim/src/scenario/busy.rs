//! Time in which no primary is to blame, so the view stays, or nearly so: a process waits for an operation that it
//! executes, or for the disk (H11, H12); or no request is there. Or workers execute requests side by side (X1, X2).

use quorate_pbft::config::{Config, Durability, MS};
use quorate_service::parallel::EngineKind;
use quorate_wire::{Kind, ReplicaId};

use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage};
use crate::app::KvApp;
use crate::disk::Pace;
use crate::setup::Setup;
use crate::work::Workers;
use crate::world::{Load, World};

const VIEW_CHANGES: Expect = Expect::Count("view-changes", |c| c.view_changes);

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "h12_slow_operations",
        &["H12"],
        "Every batch takes 20 to 60 ms, in which its replica does nothing else: at most two view changes (TM-3, TM-7)",
    )
    .expects(&[Expect::Noted("250 batches")])
    .views_max(|_| 2)
    .with(|setup| Setup { inline: true, task_time: (20 * MS, 60 * MS), lanes: 4, ..setup })
    .play(|stage| {
        stage.busy(250)?;
        stage.note("250 batches");
        Ok(())
    }),
    Scenario::new(
        "h12_many_wait_for_slow_operations",
        &["H12"],
        "Each operation takes 60 ms in which its replica does nothing else, and 40 lanes ask at once: at most two view changes (PR-7)",
    )
    .expects(&[Expect::Noted("1000 operations")])
    .views_max(|_| 2)
    .with(|setup| Setup { inline: true, request_ns: 60 * MS, clients: 4, lanes: 10, ..setup })
    .play(|stage| many(stage, 1_000)),
    Scenario::new(
        "h12_more_wait_than_time_outs_allow",
        &["H12"],
        "A batch has one request, takes 20 to 60 ms, and 16 lanes ask at once: each waits for longer than a time-out, in its turn (TM-1)",
    )
    .expects(&[Expect::Noted("200 operations")])
    .views_max(|_| 2)
    .with(|setup| {
        let config = Config { pipeline: 2, batching: false, ..setup.config };
        Setup { config, inline: true, task_time: (20 * MS, 60 * MS), clients: 4, lanes: 4, ..setup }
    })
    .play(|stage| many(stage, 200)),
    Scenario::new(
        "h11_half_a_second_for_a_sync",
        &["H11", "H12"],
        "The disks of two backups of four take half a second for some syncs, and nothing commits in that time: no view change (TM-8)",
    )
    .sizes(&[4])
    .expects(&[Expect::Noted("nothing commits"), Expect::Noted("view 0 to the end")])
    .with(|setup| {
        let config = Config { durability: Durability::Sync, ..setup.config };
        Setup { config, ..setup }
    })
    .play(slow_syncs),
    Scenario::new(
        "h11_all_disks_take_seconds",
        &["H11"],
        "For a minute, each sync takes 1 to 5 s at every replica, and so batches take many seconds: no view change (TM-8)",
    )
    .expects(&[Expect::Noted("batches become final")])
    .views_max(|_| 0)
    .with(synced)
    .play(all_disks_slow),
    Scenario::new(
        "h11_all_disks_take_seconds_and_the_primary_dies",
        &["H11", "H1"],
        "Each sync takes 1 to 5 s at every replica, and the primary dies: the view changes in little more than a minute (TM-8)",
    )
    .expects(&[VIEW_CHANGES, Expect::Noted("batches become final")])
    .with(synced)
    .play(all_disks_slow_without_a_primary),
    Scenario::new(
        "h1_idle_after_a_restart",
        &["H1"],
        "The primary of an idle cluster restarts and hands over its view, in which all batches were executed: no second view change (TM-1)",
    )
    .expects(&[Expect::Noted("idle in view 1")])
    .views_max(|_| 1)
    .play(idle),
    Scenario::new(
        "h11_vote_durable_in_the_next_view",
        &["H11"],
        "A vote becomes durable when its view has ended, and the next view has the same batch: it is no vote there (ADR 5)",
    )
    .sizes(&[4])
    .expects(&[VIEW_CHANGES, Expect::Noted("its vote is not durable in either view")])
    .with(|setup| {
        let config = Config {
            durability: Durability::Sync,
            piggyback: false,
            request_timeout_min_ns: 3_000 * MS,
            request_timeout_max_ns: 4_000 * MS,
            ..setup.config
        };
        Setup { config, ..setup }
    })
    .play(durable_later),
    Scenario::new(
        "h12_workers_hang",
        &["H12"],
        "One run of 200 takes 1.5 s, at any replica. Proposals continue, and no primary is blamed (PR-2, TM-1)",
    )
    .sizes(&[4])
    .expects(&[
        Expect::Count("a worker hangs", |counters| {
            counters.faults.get("worker hung").copied().unwrap_or_default()
        }),
        Expect::Count("a reply leaves early", |counters| counters.runs().early),
    ])
    .views_max(|_| 0)
    .with(|setup| {
        // A primary that hangs for a whole window is replaced, and rightly.
        let config = Config { checkpoint_interval: 64, window: 512, ..setup.config };
        let setup = workers(Setup { config, ..setup }, Workers::mixed);
        let hang = |workers: Workers| Workers { hangs: 5_000, replicas: vec![(EngineKind::GroupIndex, 8)], ..workers };
        Setup { workers: setup.workers.map(hang), ..setup }
    })
    .play(|stage| {
        stage.busy(300)?;
        stage.quiet()
    }),
    Scenario::new(
        "x1_requests_are_wrongly_called_independent",
        &["X1"],
        "The rules leave out the key of an addition: replicas find it, and their states stay equal (PX-B, PX-C)",
    )
    .sizes(&[4])
    .expects(&[
        Expect::Count("a wrong rule is found", |counters| {
            counters.faults.get(WRONG_RULE).copied().unwrap_or_default()
        }),
        Expect::Count("a request runs again", |counters| counters.runs().again),
    ])
    .with(|setup| workers(setup, Workers::misled_and_forgiven))
    .play(|stage| {
        stage.busy(300)?;
        stage.quiet()
    }),
    Scenario::new(
        "x2_every_request_depends_on_every_other",
        &["X2"],
        "40 lanes add to one number again and again: each result is right, and everything is answered (PX-1, PX-2)",
    )
    .sizes(&[4])
    .expects(&[
        Expect::Count("a request runs again", |counters| counters.runs().again),
        Expect::Count("a reply leaves early", |counters| counters.runs().early),
        Expect::Noted("800 additions"),
    ])
    .with(|setup| workers(Setup { clients: 4, lanes: 10, ..setup }, Workers::mixed))
    .play(additions),
];

/// Every lane asks without a pause, until this number of operations have their results.
fn many(stage: &mut Stage, operations: usize) -> Ended {
    stage.world.set_load(Load::Busy(0, 2 * MS));
    let answered = move |w: &mut World<KvApp>| w.seen.answers.iter().flatten().count() >= operations;
    stage.until("the operations", 120_000 * MS, answered)?;
    stage.note(if operations == 1_000 { "1000 operations" } else { "200 operations" });
    stage.quiet()
}

/// The NEW-VIEW brings batches that every replica has executed. For those, nobody waits.
fn idle(stage: &mut Stage) -> Ended {
    let all = stage.all();
    stage.fill(&all, 3)?;
    let primary = stage.world.host_of(ReplicaId(0));
    stage.world.crash(primary);
    stage.world.restart(primary);
    stage.until_entered(&all, 1, 5_000 * MS)?;
    stage.pass(20_000 * MS)?;
    stage.require(stage.view() == 1, format!("view 1, not {}", stage.view()))?;
    stage.note("idle in view 1");
    Ok(())
}

/// Votes wait for the disk, and patience has its usual bounds.
fn synced(setup: Setup) -> Setup {
    let usual = Config::new(setup.config.cluster, setup.config.cluster_id);
    let view_timeout_max_ns = usual.view_timeout_max_ns;
    Setup { config: Config { durability: Durability::Sync, view_timeout_max_ns, ..setup.config }, ..setup }
}

fn slow_down(stage: &mut Stage) -> Ended {
    stage.busy(20)?;
    stage.world.set_load(Load::Busy(5 * MS, 20 * MS));
    for h in 0..stage.cluster().n() {
        stage.world.set_disk(h, Pace { low_ns: 1_000 * MS, high_ns: 5_000 * MS });
    }
    Ok(())
}

fn is_served(stage: &mut Stage, ns: u64) -> Ended {
    let before = stage.world.committed();
    stage.until("three batches", ns, move |w| w.committed() >= before + 3)?;
    stage.note("batches become final");
    Ok(())
}

fn all_disks_slow(stage: &mut Stage) -> Ended {
    slow_down(stage)?;
    is_served(stage, 60_000 * MS)?;
    stage.pass(60_000 * MS)?;
    stage.require(stage.view() == 0, format!("view {} because disks were slow", stage.view()))
}

fn all_disks_slow_without_a_primary(stage: &mut Stage) -> Ended {
    slow_down(stage)?;
    stage.pass(20_000 * MS)?;
    stage.world.crash(stage.world.host_of(ReplicaId(0)));
    let others = stage.all_but(&[ReplicaId(0)]);
    stage.until_entered(&others, 1, 90_000 * MS)?;
    is_served(stage, 90_000 * MS)
}

fn slow_syncs(stage: &mut Stage) -> Ended {
    stage.busy(20)?;
    stage.world.set_load(Load::Busy(5 * MS, 20 * MS));
    for _ in 0..10 {
        two_disks(stage, Pace { low_ns: 450 * MS, high_ns: 550 * MS });
        // One sync of each of the two begins in this time.
        stage.pass(100 * MS)?;
        two_disks(stage, Pace::FAST);
        let committed = stage.world.committed();
        stage.pass(200 * MS)?;
        if stage.world.committed() == committed {
            stage.note("nothing commits");
        }
        stage.pass(1_300 * MS)?;
    }
    stage.require(stage.view() == 0, "a view change because disks were slow")?;
    stage.note("view 0 to the end");
    Ok(())
}

fn two_disks(stage: &mut Stage, pace: Pace) {
    for id in [ReplicaId(2), ReplicaId(3)] {
        let h = stage.world.host_of(id);
        stage.world.set_disk(h, pace);
    }
}

/// The count of wrong rules that were found.
const WRONG_RULE: &str = "wrong rule found";

fn workers(setup: Setup, kind: fn(u64) -> Workers) -> Setup {
    let config = Config { tentative: false, ..setup.config };
    let workers = Workers { run_ns: (1_000, 2 * MS), hangs: 0, ..kind(setup.seed) };
    Setup { config, lanes: setup.lanes.max(8), workers: Some(workers), ..setup }
}

fn additions(stage: &mut Stage) -> Ended {
    for _ in 0..20 {
        for (c, l) in (0..4).flat_map(|c| (0..10).map(move |l| (c, l))) {
            stage.ask(c, l, "incr n 1");
        }
        let answered = |w: &mut World<KvApp>| w.outstanding().0 == 0;
        stage.until("the additions", 20_000 * MS, answered)?;
    }
    let sum = stage.answer(0, 0, "get n", 5_000 * MS)?;
    stage.require(sum == "ok 800", format!("800, not {sum}"))?;
    stage.note("800 additions");
    Ok(())
}

fn durable_later(stage: &mut Stage) -> Ended {
    let (r2, r3) = ([ReplicaId(2)], ReplicaId(3));
    let fast = [ReplicaId(0), ReplicaId(1), ReplicaId(2)];
    stage.busy(10)?;
    stage.quiet()?;
    stage.pass(200 * MS)?;
    let next = stage.world.committed() + 1;
    // r3's vote for a batch is on its way to the disk when the view ends, and r2 does not hear of the next one.
    let h3 = stage.world.host_of(r3);
    stage.world.set_disk(h3, Pace { low_ns: 900 * MS, high_ns: 900 * MS });
    stage.mute_all(&[Kind::Commit, Kind::Committed]);
    let all = stage.all();
    stage.mute(Kind::NewView, &all, &r2);
    stage.ask(0, 0, "incr n 1");
    stage.until("it has prepared", 500 * MS, move |w| {
        fast.iter().all(|id| w.checkers.facts(*id).prepared.contains_key(&next))
    })?;
    stage.world.crash(0);
    stage.world.restart_later(0, MS);
    stage.until_entered(&[ReplicaId(1), r3], 1, 700 * MS)?;
    let prepared = stage.world.checkers.facts(r3).prepared.get(&next).copied();
    stage.require(prepared.is_none_or(|(view, _)| view.0 == 0), "it has prepared in view 1 already")?;
    stage.note("its vote is not durable in either view");
    stage.pass(1_500 * MS)?;
    stage.mend();
    stage.world.set_disk(h3, Pace::FAST);
    stage.until_executed(&[ReplicaId(1), r3], next, 10_000 * MS)
}
