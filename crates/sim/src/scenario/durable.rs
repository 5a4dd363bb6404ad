//! Faults found in this code: what must be on the disk before what, restarts, and state that was fetched.

use quorate_pbft::Config;
use quorate_pbft::config::MS;
use quorate_wire::{Kind, ReplicaId};

use super::host::TRANSFERRED;
use super::liars::backups::RepeatReads;
use super::stage::{Ended, Stage};
use super::{Expect, Scenario};
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
        let config = Config { tentative: false, piggyback: false, ..patient(setup.config.clone()) };
        Setup { config, ..setup }.lying_backups(RepeatReads::default)
    })
    .play(read_below_what_was_shown),
    Scenario::new(
        "d1_fetched_state_is_lost",
        &["D1"],
        "What a quorum holds it has fetched and not yet written; all lose power, and the one that executed it its disk",
    )
    .expects(&[TRANSFERRED, Expect::Noted("all lost power")])
    // f + 1 replies are enough for a write then, so that the clients can go on.
    .with(|setup| Setup { config: Config { read_only: false, ..patient(setup.config.clone()) }, ..setup })
    .play(fetched_state_is_lost),
];

/// Nobody suspects anybody while a story is told.
fn patient(config: Config) -> Config {
    Config {
        request_timeout_min_ns: 10_000 * MS,
        request_timeout_max_ns: 10_000 * MS,
        view_timeout_max_ns: 10_000 * MS,
        ..config
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
