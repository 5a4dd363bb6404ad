//! Faults found in this code: what must be on the disk before what, restarts, and state that was fetched.

use quorate_pbft::Config;
use quorate_pbft::config::MS;
use quorate_pbft::step::Milestone;
use quorate_wire::{Kind, ReplicaId};

use super::found_liars::FarAheadToOne;
use super::host::{REJOINED, TRANSFERRED, everyone_remembers};
use super::liars::backups::{EagerProof, RepeatReads};
use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage};
use crate::disk::Pace;
use crate::setup::Setup;
use crate::world::Load;

/// A disk that does not come to an end.
const STUCK: Pace = Pace { low_ns: 60_000 * MS, high_ns: 60_000 * MS };

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "s2_read_below_what_was_shown",
        &["S2"],
        "A replica executes on others' COMMITs ahead of its own disk, loses power, and is asked for a read (RO-4)",
    )
    .expects(&[Expect::Noted("executed ahead of its disk"), Expect::Noted("asked after the restart")])
    .with(|setup| {
        let config = Config { tentative: false, piggyback: false, ..patient(&setup.config) };
        Setup { config, ..setup }.lying_backups(RepeatReads::default)
    })
    .play(read_below_what_was_shown),
    Scenario::new(
        "s2_floor_after_a_restart",
        &["S2"],
        "A replica that has shown a batch knows after a restart that it prepared, and no more: that is its floor (RO-4)",
    )
    .expects(&[Expect::Noted("the write is done"), Expect::Noted("asked after the restart")])
    .with(|setup| {
        let config = Config { tentative: false, piggyback: false, ..patient(&setup.config) };
        Setup { config, ..setup }.lying_backups(RepeatReads::default)
    })
    .play(floor_after_a_restart),
    Scenario::new(
        "s2_read_of_an_old_disk",
        &["S2"],
        "An old disk is put into a replica: it serves no read before the others have confirmed its start (14.3)",
    )
    .expects(&[
        Expect::Noted("asked before its start was confirmed"),
        Expect::Milestone("rejoin started", |_, m| matches!(m, Milestone::RejoinStarted { .. })),
    ])
    .play(read_of_an_old_disk),
    Scenario::new(
        "b4_primary_lacks_checkpoints",
        &["B4"],
        "CHECKPOINTs do not reach the primary for 60 ms, now and then: it comes to the end of its window, and is told again",
    )
    .expects(&[Expect::Noted("the primary stood still")])
    .views_max(|_| 0)
    .play(|stage| {
        let all = stage.all();
        stage.busy(20)?;
        for _ in 0..20 {
            stage.mute(Kind::Checkpoint, &all, &all[..1]);
            stage.pass(60 * MS)?;
            let facts = stage.world.checkers.facts(all[0]);
            if facts.executed.0 >= facts.stable.0 + stage.world.config.window {
                stage.note("the primary stood still");
            }
            stage.mend();
            stage.busy(20)?;
            stage.pass(300 * MS)?;
        }
        Ok(())
    }),
    Scenario::new(
        "h6_rejoins_while_nobody_asks",
        &["H6"],
        "A disk is lost in an idle cluster with the usual window, on disks that take 2 ms: 5 s until it has rejoined (RC-10)",
    )
    .sizes(&[4])
    .expects(&[REJOINED])
    .with(|setup| {
        let usual = Config::new(setup.config.cluster, setup.config.cluster_id);
        let Config { window, checkpoint_interval, .. } = usual;
        let config = Config { window, checkpoint_interval, ..setup.config };
        Setup { config, disk: Pace { low_ns: 2 * MS, high_ns: 2 * MS }, ..setup }
    })
    .play(|stage| {
        stage.busy(20)?;
        stage.quiet()?;
        let h = stage.correct()[2];
        stage.world.wipe(h);
        stage.world.restart_later(h, 10 * MS);
        stage.pass(20 * MS)?;
        stage.until("it has rejoined", 5_000 * MS, everyone_remembers)
    }),
    Scenario::new(
        "h6_voted_far_ahead",
        &["H6"],
        "A backup has voted at the end of its window, as no other has, and loses its disk: its limit has to be above (RC-4)",
    )
    .sizes(&[4])
    .expects(&[Expect::Noted("voted far ahead"), REJOINED])
    .views_max(|_| 0)
    .with(|setup| {
        // Null batches so rare that the others hear of each checkpoint before there is the next.
        let config = Config { null_batch_ns: 100 * MS, pipeline: 1, ..patient(&setup.config) };
        Setup { config, ..setup }.lying_primaries(|| FarAheadToOne::new(ReplicaId(2), 2))
    })
    .play(voted_far_ahead),
    Scenario::new(
        "k9_eager_proof",
        &["K9"],
        "A liar states the right digest of each checkpoint and, long before there is one, that it holds a proof (CK-2)",
    )
    .expects(&[Expect::Heard(Kind::Checkpoint), Expect::Noted("a flag and no proof")])
    .with(|setup| {
        let config = Config { read_only: false, piggyback: false, ..patient(&setup.config) };
        Setup { config, ..setup }.lying_backups(|| EagerProof)
    })
    .play(|stage| {
        // Only the primary executes; the others vote, and do not learn what commits.
        let all = stage.all();
        for kind in [Kind::Commit, Kind::Committed] {
            let correct: Vec<ReplicaId> =
                all[1..].iter().copied().filter(|id| stage.world.checkers.watches(*id)).collect();
            stage.mute(kind, &all, &correct);
        }
        stage.world.set_load(Load::Busy(0, 2 * MS));
        let first = stage.world.config.checkpoint_interval;
        stage.until_executed(&all[..1], first, 5_000 * MS)?;
        stage.pass(50 * MS)?;
        stage.note("a flag and no proof");
        Ok(())
    }),
    Scenario::new(
        "d1_fetched_state_is_lost",
        &["D1"],
        "What a quorum holds it has fetched and not yet written; all lose power, and the one that executed it its disk",
    )
    .expects(&[TRANSFERRED, Expect::Noted("all lost power")])
    // f + 1 replies are enough for a write then, so that the clients can go on.
    .with(|setup| Setup { config: Config { read_only: false, ..patient(&setup.config) }, ..setup })
    .play(fetched_state_is_lost),
];

/// Nobody suspects anybody while a story is told.
fn patient(config: &Config) -> Config {
    Config {
        request_timeout_min_ns: 10_000 * MS,
        request_timeout_max_ns: 10_000 * MS,
        view_timeout_max_ns: 10_000 * MS,
        ..config.clone()
    }
}

fn read_below_what_was_shown(stage: &mut Stage) -> Ended {
    let (f, all) = (stage.cluster().f(), stage.all());
    let (victim, slow) = (ReplicaId(1), &all[2..2 + f]);
    let h = stage.world.host_of(victim);
    stage.answer(0, 0, "put x old", 2_000 * MS)?;
    stage.until_executed(&all, stage.world.committed(), 1_000 * MS)?;
    stage.answer(1, 0, "get x", 2_000 * MS)?;
    stage.pass(300 * MS)?;
    // From here on f correct replicas vote and do not learn what commits, and one has a disk that is behind.
    for kind in [Kind::Commit, Kind::Committed, Kind::Checkpoint] {
        stage.mute(kind, &all, slow);
    }
    stage.world.set_disk(h, STUCK);
    let next = stage.world.committed() + 1;
    stage.ask(0, 0, "put x new");
    stage.until_executed(&[victim], next, 1_000 * MS)?;
    stage.note("executed ahead of its disk");
    stage.pass(20 * MS)?;
    stage.world.lose_power(h);
    stage.world.set_disk(h, Pace::FAST);
    // It starts at the state before, and nobody tells it what it has missed.
    for kind in [Kind::PrePrepare, Kind::Prepare, Kind::Commit, Kind::Committed, Kind::Checkpoint] {
        stage.mute(kind, &all, &[victim]);
    }
    stage.world.restart(h);
    stage.pass(500 * MS)?;
    stage.ask(1, 0, "get x");
    stage.note("asked after the restart");
    stage.pass(50 * MS)
}

fn read_of_an_old_disk(stage: &mut Stage) -> Ended {
    let (all, victim) = (stage.all(), ReplicaId(1));
    let h = stage.world.host_of(victim);
    stage.answer(0, 0, "put x old", 2_000 * MS)?;
    stage.until_executed(&all, stage.world.committed(), 1_000 * MS)?;
    stage.pass(50 * MS)?;
    let old = stage.world.snapshot(h);
    // The others see it start more often than that disk knows.
    for _ in 0..2 {
        stage.world.crash(h);
        stage.world.restart(h);
        stage.pass(300 * MS)?;
    }
    stage.answer(0, 0, "put x new", 2_000 * MS)?;
    stage.until_executed(&all, stage.world.committed(), 1_000 * MS)?;
    stage.world.put_back(h, old);
    stage.isolate(&[victim]);
    let client = stage.world.clients[1].node;
    for id in stage.all_but(&[victim]) {
        let to = stage.world.hosts[stage.world.host_of(id)].node;
        stage.world.network.mute(client, to, Kind::Request);
    }
    stage.world.restart(h);
    stage.pass(300 * MS)?;
    let served = stage.world.counters().reads_served;
    stage.ask(1, 0, "get x");
    stage.pass(300 * MS)?;
    stage.note("asked before its start was confirmed");
    let after = stage.world.counters().reads_served;
    stage.require(after == served, "a disk that nobody has confirmed was read")?;
    stage.mend();
    stage.until("it has rejoined", 20_000 * MS, everyone_remembers)
}

fn floor_after_a_restart(stage: &mut Stage) -> Ended {
    let (f, all) = (stage.cluster().f(), stage.all());
    let (victim, slow) = (ReplicaId(1), &all[2..2 + f]);
    let h = stage.world.host_of(victim);
    stage.answer(0, 0, "put x old", 2_000 * MS)?;
    stage.until_executed(&all, stage.world.committed(), 1_000 * MS)?;
    stage.answer(1, 0, "get x", 2_000 * MS)?;
    stage.pass(300 * MS)?;
    // It prepares, and that is on its disk; what comes after that is not.
    for kind in [Kind::Commit, Kind::Committed, Kind::Checkpoint] {
        stage.mute(kind, &all, slow);
        stage.mute(kind, &all, &[victim]);
    }
    let next = stage.world.committed() + 1;
    stage.ask(0, 0, "put x new");
    stage.pass(20 * MS)?;
    stage.world.set_disk(h, STUCK);
    stage.mend();
    for kind in [Kind::Commit, Kind::Committed, Kind::Checkpoint] {
        stage.mute(kind, &all, slow);
    }
    stage.until_executed(&[victim], next, 1_000 * MS)?;
    stage.until("the write is done", 1_000 * MS, |w| w.clients[0].lanes[0].outstanding.is_none())?;
    stage.note("the write is done");
    stage.world.lose_power(h);
    stage.world.set_disk(h, Pace::FAST);
    for kind in [Kind::PrePrepare, Kind::Prepare, Kind::Commit, Kind::Committed, Kind::Checkpoint] {
        stage.mute(kind, &all, &[victim]);
    }
    stage.world.restart(h);
    stage.pass(500 * MS)?;
    stage.ask(1, 0, "get x");
    stage.note("asked after the restart");
    stage.pass(50 * MS)
}

fn voted_far_ahead(stage: &mut Stage) -> Ended {
    stage.busy(2)?;
    stage.quiet()?;
    let (h, last) = (stage.world.host_of(ReplicaId(2)), stage.world.config.window);
    // The request of the rejoin comes before the first checkpoint, and its vote was for a number above that.
    let first = stage.world.config.checkpoint_interval;
    stage.require(stage.world.committed() + 1 < first && first < last, "its vote is above all others")?;
    stage.note("voted far ahead");
    stage.world.wipe(h);
    stage.world.restart_later(h, 10 * MS);
    stage.pass(20 * MS)?;
    stage.until("it has rejoined", 10_000 * MS, everyone_remembers)?;
    stage.busy(2 * last)
}

fn fetched_state_is_lost(stage: &mut Stage) -> Ended {
    let (f, all) = (stage.cluster().f(), stage.all());
    let (holders, fetchers) = all.split_at(f + 1);
    let (voters, others) = fetchers.split_at(f);
    let last = stage.world.config.window;
    // f + 1 execute a window; of the others f vote only, and f hear nothing.
    stage.isolate(others);
    for kind in [Kind::Commit, Kind::Committed, Kind::Checkpoint] {
        stage.mute(kind, &all, voters);
    }
    stage.world.set_load(Load::Busy(0, 2 * MS));
    stage.until_executed(holders, last, 5_000 * MS)?;
    stage.world.set_load(Load::Idle);
    // The others fetch that state. Their disks take long for an image.
    for id in fetchers {
        let h = stage.world.host_of(*id);
        stage.world.set_image_time(h, Some(60_000 * MS));
    }
    stage.mend();
    for kind in [Kind::Commit, Kind::Committed] {
        stage.mute(kind, &all, fetchers);
    }
    stage.until_executed(fetchers, last, 5_000 * MS)?;
    // They go on with one of those that executed it.
    stage.mend();
    stage.isolate(&holders[1..]);
    stage.world.set_load(Load::Busy(0, 2 * MS));
    stage.pass(500 * MS)?;
    stage.world.set_load(Load::Idle);
    for id in &all {
        let h = stage.world.host_of(*id);
        stage.world.lose_power(h);
        stage.world.set_image_time(h, None);
    }
    stage.note("all lost power");
    let gone = stage.world.host_of(holders[0]);
    stage.world.wipe(gone);
    stage.mend();
    for id in &all[1..] {
        let h = stage.world.host_of(*id);
        stage.world.restart(h);
    }
    // The clients ask again, and what they were told stands.
    stage.busy(5)
}
