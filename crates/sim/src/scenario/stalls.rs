//! Faults found in this code that leave a cluster without a quorum forever, although only f replicas are faulty.

use quorate_pbft::config::{Config, MS, RequestAuth};
use quorate_pbft::step::Milestone;
use quorate_wire::{Kind, ReplicaId};

use super::found_liars::HandsOverToOne;
use super::host::{REJOIN_NS, everyone_remembers};
use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage};
use crate::disk::Pace;
use crate::setup::Setup;
use crate::world::Load;

const VIEW_CHANGES: Expect = Expect::Count("view-changes", |c| c.view_changes);
const TRANSFERRED: Expect =
    Expect::Milestone("state-transfer", |_, m| matches!(m, Milestone::TransferFinished { .. }));
const REJOINED: Expect = Expect::Milestone("rejoined", |_, m| matches!(m, Milestone::Rejoined { .. }));

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
    Scenario::new(
        "l52_rejoins_in_a_view_that_no_disk_knows",
        &["L52"],
        "f + 1 replicas leave a view, answer one that rejoins, and lose power before their disks know of it (RC-7)",
    )
    .sizes(&[4])
    .expects(&[REJOINED, Expect::Noted("back in view 0"), Expect::Noted("one stops for good")])
    .with(|setup| {
        // Once is enough: what is proposed again after the loss of power has time.
        let config = Config { request_timeout_min_ns: 1_000 * MS, request_timeout_max_ns: 4_000 * MS, ..setup.config };
        signed(Setup { config, ..setup })
    })
    .play(rejoins_in_a_lost_view),
    Scenario::new(
        "l54_crash_after_a_rejoin_under_load",
        &["L54"],
        "A replica rejoins, another one stops for good; the first one crashes after its first votes: it votes again (14.4)",
    )
    .sizes(&[4])
    .expects(&[REJOINED, Expect::Noted("it has voted, and crashed"), Expect::Noted("it starts with its memory")])
    .with(|setup| Setup { lanes: 8, ..setup })
    .play(crash_after_a_rejoin),
    Scenario::new(
        "l50_a_target_that_nobody_gives",
        &["L50"],
        "f + 1 state a checkpoint, and give none of it: the one that is behind fetches an earlier checkpoint, and has to vote (ST-4)",
    )
    .sizes(&[4])
    .expects(&[TRANSFERRED, Expect::Noted("its target is the checkpoint that nobody gives")])
    .play(target_that_nobody_gives),
    Scenario::new(
        "l56_lags_behind_replicas_that_have_restarted",
        &["L56"],
        "A replica misses two views; those in the second one have restarted, and have room for one VIEW-CHANGE at a time (SM-4)",
    )
    .sizes(&[4])
    .expects(&[VIEW_CHANGES, Expect::Noted("two views behind")])
    .with(|setup| Setup { config: Config { retransmit_bytes: 300, ..setup.config }, ..setup })
    .play(lags_behind),
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

fn rejoins_in_a_lost_view(stage: &mut Stage) -> Ended {
    let (r0, leaving, late) = ([ReplicaId(0)], [ReplicaId(1), ReplicaId(2)], [ReplicaId(3)]);
    let rest = stage.all_but(&late);
    stage.busy(20)?;
    stage.quiet()?;
    stage.world.wipe(3);
    stage.mute(Kind::Reply, &rest, &late);
    let noted = stage.world.committed() + 1;
    stage.world.restart(3);
    stage.until_executed(&rest, noted, REJOIN_NS)?;
    // r1 and r2 leave view 0, and only they know.
    stage.mute(Kind::PrePrepare, &r0, &leaving);
    for kind in [Kind::Suspect, Kind::ViewChange] {
        stage.mute(kind, &leaving, &[r0[0], late[0]]);
    }
    stage.pass(50 * MS)?;
    for h in [1, 2] {
        stage.world.set_disk(h, Pace { low_ns: 10_000 * MS, high_ns: 10_000 * MS });
    }
    stage.ask(0, 0, "incr n 1");
    stage.until("r1 and r2 have left", 20_000 * MS, move |w| {
        leaving.iter().all(|id| w.checkers.facts(*id).view.0 == 1)
    })?;
    stage.mend();
    for kind in [Kind::Suspect, Kind::ViewChange] {
        stage.mute(kind, &leaving, &[r0[0], late[0]]);
    }
    stage.pass(500 * MS)?;
    for h in [1, 2] {
        stage.world.lose_power(h);
        stage.world.set_disk(h, Pace::FAST);
        stage.world.restart(h);
    }
    stage.mend();
    stage.pass(50 * MS)?;
    let back = rest.iter().all(|id| stage.world.checkers.facts(*id).view.0 == 0);
    stage.require(back, "r1 and r2 are in view 0 again")?;
    stage.note("back in view 0");
    stage.world.set_load(Load::Busy(MS, 5 * MS));
    stage.until("r3 has rejoined", REJOIN_NS, everyone_remembers)?;
    stage.world.crash(2);
    stage.note("one stops for good");
    let target = stage.world.committed() + 20;
    stage.until("the others go on", 20_000 * MS, move |w| w.committed() >= target)
}

fn crash_after_a_rejoin(stage: &mut Stage) -> Ended {
    stage.busy(20)?;
    stage.world.wipe(3);
    stage.world.restart(3);
    stage.world.set_disk(3, Pace { low_ns: 5 * MS, high_ns: 20 * MS });
    stage.world.set_load(Load::Busy(0, MS));
    stage.until("r3 has rejoined", REJOIN_NS, |w| w.checkers.facts(ReplicaId(3)).remembers)?;
    // From here on no batch commits without r3.
    stage.world.crash(2);
    stage.until("a vote of r3 has left", 10_000 * MS, |w| !w.hosts[3].amnesic)?;
    stage.world.crash(3);
    stage.note("it has voted, and crashed");
    stage.world.restart(3);
    stage.require(!stage.world.hosts[3].amnesic, "r3 has lost its memory, and r2 is the only fault")?;
    stage.note("it starts with its memory");
    let target = stage.world.committed() + 20;
    stage.until("the others go on", 20_000 * MS, move |w| w.committed() >= target)
}

fn target_that_nobody_gives(stage: &mut Stage) -> Ended {
    let [r0, r1, r2, late] = [0, 1, 2, 3].map(ReplicaId);
    let (all, rest) = (stage.all(), [r0, r1, r2]);
    stage.isolate(&[late]);
    stage.fill(&rest, 31)?;
    // Number 32, with a checkpoint, commits at r1 and r2 only.
    for kind in [Kind::Commit, Kind::Committed, Kind::Checkpoint] {
        stage.mute(kind, &all, &[r0]);
    }
    stage.ask(0, 0, "incr n 1");
    stage.until_executed(&[r1, r2], 32, 1_000 * MS)?;
    // The late one hears of it, and gets no state.
    stage.mend();
    for kind in [Kind::Commit, Kind::Committed, Kind::Checkpoint] {
        stage.mute(kind, &all, &[r0]);
    }
    for kind in [Kind::MetaData, Kind::Data] {
        stage.mute(kind, &all, &[late]);
    }
    stage.until("it fetches", 2_000 * MS, |w| w.checkers.facts(ReplicaId(3)).transferring)?;
    stage.pass(400 * MS)?;
    // One of the two that hold the checkpoint stops for good, the other one cannot read it.
    stage.world.crash(1);
    stage.mend();
    for kind in [Kind::MetaData, Kind::Data] {
        stage.mute(kind, &[r2], &all);
    }
    stage
        .require(stage.executed(r0) == 31 && stage.executed(late) == 0, "only r1 and r2 have executed 32")?;
    stage.note("its target is the checkpoint that nobody gives");
    stage.world.set_load(Load::Busy(MS, 5 * MS));
    stage.until("without it, nothing commits", 20_000 * MS, |w| w.committed() >= 50)
}

fn lags_behind(stage: &mut Stage) -> Ended {
    let late = [ReplicaId(1)];
    let rest = stage.all_but(&late);
    stage.busy(20)?;
    stage.quiet()?;
    stage.pass(500 * MS)?;
    // Each primary hands its view over. By the next start, what the view has taken over is executed.
    let start_again = |stage: &mut Stage, h: usize| {
        stage.world.crash(h);
        stage.world.restart(h);
        stage.pass(500 * MS)
    };
    start_again(stage, 0)?;
    start_again(stage, 1)?;
    stage.until_view(2, 2_000 * MS)?;
    stage.isolate(&late);
    start_again(stage, 2)?;
    start_again(stage, 3)?;
    stage.until_entered(&rest, 4, 2_000 * MS)?;
    // These two have sent no VIEW-CHANGE since their starts. That of r0, the primary, is the first of all.
    start_again(stage, 2)?;
    start_again(stage, 3)?;
    stage.require(stage.view() == 4 && stage.world.checkers.facts(late[0]).view.0 == 2, "views 2 and 4")?;
    stage.note("two views behind");
    stage.mend();
    stage.until_view(4, 5_000 * MS)
}
