//! Faults of machines: crashes, pauses, wrong clocks (H1, H2, H8-H10). Their disks: [`disk`](super::disk).

use quorate_pbft::config::{Durability, MS};
use quorate_pbft::step::{Milestone, Reject};
use quorate_wire::ReplicaId;

use super::network::{node, others, primary};
use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage, highest_view};
use crate::app::KvApp;
use crate::setup::Setup;
use crate::world::{Load, World};

/// An hour, in nanoseconds.
const HOUR_NS: i64 = 3_600_000_000_000;

pub(super) const RESTARTED: Expect =
    Expect::Milestone("restarted", |_, m| matches!(m, Milestone::Restarted { .. }));
pub(super) const REJOINED: Expect =
    Expect::Milestone("rejoined", |_, m| matches!(m, Milestone::Rejoined { .. }));
pub(super) const VIEW_CHANGES: Expect = Expect::Count("view changes", |c| c.view_changes);
pub(super) const TRANSFERRED: Expect =
    Expect::Milestone("state transfer", |_, m| matches!(m, Milestone::TransferFinished { .. }));

/// How long a replica that has lost its memory may take to rejoin, in simulated time.
pub(super) const REJOIN_NS: u64 = 20_000 * MS;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "h1_b33_crash_at_every_send",
        &["H1", "B33"],
        "One replica after the other is killed right after its 1st, 2nd, 3rd ... send since its start (A30)",
    )
    .expects(&[RESTARTED, Expect::Noted("crashed")])
    .play(|stage| crash_at_every(stage, |stage, _| stage.world.network.traffic.sent)),
    Scenario::new(
        "h1_b33_crash_at_every_write",
        &["H1", "B33"],
        "One replica after the other is killed right after its 1st, 2nd, 3rd ... write, not yet synced",
    )
    .expects(&[RESTARTED, Expect::Noted("crashed")])
    .play(|stage| crash_at_every(stage, |stage, _| stage.world.counters().records)),
    Scenario::new(
        "h1_b33_crash_at_every_sync",
        &["H1", "B33"],
        "One replica after the other is killed right after its 1st, 2nd, 3rd ... sync of the log",
    )
    .expects(&[RESTARTED, Expect::Noted("crashed")])
    .play(|stage| {
        crash_at_every(stage, |stage, h| {
            stage.world.process(h).map_or(0, |process| process.endpoint().durable().0)
        })
    }),
    Scenario::new(
        "h1_restart_backup_under_load",
        &["H1"],
        "A backup restarts under load: it has no keys and misses bodies, and catches up (A33)",
    )
    .expects(&[RESTARTED, Expect::Noted("caught up"), Expect::Noted("still in view 0")])
    .play(|stage| {
        stage.busy(10)?;
        let f = stage.cluster().f();
        for (round, id) in others(stage, ReplicaId(0)).into_iter().enumerate() {
            let h = stage.world.host_of(id);
            stage.world.crash(h);
            stage.busy(4)?;
            stage.world.restart(h);
            let target = stage.world.committed();
            stage.until("it has caught up", 2_000 * MS, |w| w.checkers.facts(id).executed.0 >= target)?;
            stage.note("caught up");
            // The others confirm its start with their next statuses; then it votes again.
            stage.world.set_load(Load::Busy(5 * MS, 15 * MS));
            stage.pass(400 * MS)?;
            // One that has just come back may think the primary slow. f of them change nothing (LV-2).
            if round + 1 == f {
                stage.require(stage.view() == 0, "a view change although the primary did nothing wrong")?;
                stage.note("still in view 0");
            }
        }
        Ok(())
    }),
    Scenario::new(
        "h1_restart_during_view_changes",
        &["H1"],
        "Replicas are killed during a view change, the new primary among them, and resend the same messages",
    )
    .expects(&[RESTARTED, VIEW_CHANGES])
    .play(|stage| {
        stage.busy(5)?;
        for round in 0..6_u64 {
            let old = primary(stage);
            let view = stage.view();
            isolate(stage, old, true);
            stage.until("they leave its view", 5_000 * MS, |w| highest_view(w) > view)?;
            // A while into the view change: sometimes the new primary, sometimes another one.
            stage.pass(round * MS / 10)?;
            let victim = primary(stage).index() + usize::from(round % 2 == 1);
            let victim = stage.world.host_of(ReplicaId::at(victim % stage.cluster().n()));
            stage.world.crash(victim);
            isolate(stage, old, false);
            stage.world.restart_later(victim, 5 * MS);
            stage.busy(8)?;
        }
        Ok(())
    }),
    Scenario::new(
        "h1_b12_b17_killed_while_it_fetches",
        &["H1", "B12", "B17"],
        "A replica that lost its disk is killed repeatedly while it rejoins and fetches state",
    )
    .expects(&[REJOINED, TRANSFERRED, Expect::Noted("killed while rejoining")])
    .play(|stage| {
        stage.busy(30)?;
        let h = stage.correct()[1];
        stage.world.wipe(h);
        stage.world.set_load(Load::Busy(5 * MS, 20 * MS));
        for round in 0..8 {
            stage.world.restart(h);
            stage.pass((5 + 37 * round) * MS)?;
            stage.world.crash(h);
            stage.note("killed while rejoining");
        }
        stage.world.restart(h);
        stage.until("it has rejoined", REJOIN_NS, everyone_remembers)
    }),
    Scenario::new(
        "h2_b19_paused_for_a_second",
        &["H2", "B19"],
        "A backup is paused for a second under load: its buffers overflow, and it catches up",
    )
    .expects(&[
        Expect::Count("frames lost in front of it", |c| c.overflowed),
        Expect::Count("pauses", |c| c.faults.get("pause").copied().unwrap_or(0)),
        TRANSFERRED,
        Expect::Noted("caught up"),
    ])
    .play(|stage| paused(stage, 1, 1_000 * MS)),
    Scenario::new(
        "h2_b19_paused_for_ten_minutes",
        &["H2", "B19"],
        "A backup is paused for ten minutes while the others continue; it fetches what it missed",
    )
    .expects(&[
        Expect::Count("pauses", |c| c.faults.get("pause").copied().unwrap_or(0)),
        TRANSFERRED,
        Expect::Noted("caught up"),
    ])
    .with(|setup| slow_status(setup, 20_000 * MS))
    .play(|stage| paused(stage, 1, 600_000 * MS)),
    Scenario::new(
        "h2_b22_primary_paused",
        &["H2", "B22"],
        "The primary is paused until the others left its view; then its late votes and timers arrive together",
    )
    .expects(&[VIEW_CHANGES, Expect::Reject(Reject::OtherView)])
    .play(|stage| {
        stage.busy(5)?;
        for _ in 0..3 {
            let view = stage.view();
            let h = stage.world.host_of(primary(stage));
            // Longer than the longest time-out: who was paused before takes the primary to be slow.
            stage.world.pause(h, 3_000 * MS);
            stage.world.set_load(Load::Busy(5 * MS, 20 * MS));
            stage.until("they leave its view", 3_000 * MS, |w| highest_view(w) > view)?;
            stage.busy(10)?;
            stage.world.set_load(Load::Busy(50 * MS, 200 * MS));
            stage.pass(3_000 * MS)?;
        }
        Ok(())
    }),
    Scenario::new(
        "h8_clock_jumps",
        &["H8"],
        "The primary's clock jumps by an hour, forward and back: its values are refused, and it is replaced",
    )
    .expects(&[Expect::Reject(Reject::BadChoice), VIEW_CHANGES])
    .play(|stage| {
        stage.busy(5)?;
        for offset in [HOUR_NS, -HOUR_NS] {
            let view = stage.view();
            let h = stage.world.host_of(primary(stage));
            stage.world.disturb_clock(h, offset, 1_000_000);
            stage.world.set_load(Load::Busy(5 * MS, 20 * MS));
            stage.until("it is replaced", 5_000 * MS, |w| highest_view(w) > view)?;
            stage.busy(20)?;
            stage.world.disturb_clock(h, 0, 1_000_000);
        }
        Ok(())
    }),
    Scenario::new(
        "h8_clock_drift",
        &["H8"],
        "One replica's clock runs 10 % too fast, another's 10 % too slow: no effect",
    )
    .expects(&[
        Expect::Count("wrong clocks", |c| c.faults.get("clock").copied().unwrap_or(0)),
        Expect::Noted("view 0 to the end"),
    ])
    .play(|stage| {
        stage.busy(5)?;
        stage.world.disturb_clock(0, 0, 1_100_000);
        stage.world.disturb_clock(1, 0, 900_000);
        stage.world.set_load(Load::Busy(50 * MS, 200 * MS));
        stage.pass(5_000 * MS)?;
        stage.require(stage.view() == 0, "a view change although the primary did nothing wrong")?;
        stage.note("view 0 to the end");
        Ok(())
    }),
    Scenario::new(
        "h9_f_plus_1_crash",
        &["H9"],
        "f + 1 replicas crash, the primary among them: the cluster halts until they restart; nothing is lost",
    )
    .expects(&[RESTARTED, Expect::Noted("no quorum")])
    .play(|stage| {
        for round in 0..3 {
            stage.busy(15)?;
            let n = stage.cluster().n();
            let down: Vec<usize> = (0..stage.cluster().weak()).map(|i| (round + i) % n).collect();
            for &h in &down {
                stage.world.crash(h);
            }
            let before = stage.world.committed();
            stage.pass(500 * MS)?;
            let window = stage.world.config.pipeline;
            stage.require(stage.world.committed() <= before + window, "progress without a quorum")?;
            stage.note("no quorum");
            for &h in &down {
                stage.world.restart(h);
            }
        }
        stage.busy(15)
    }),
    Scenario::new(
        "h10_all_crash",
        &["H10"],
        "All crash at once under load, repeatedly: no acknowledged write is lost (I30)",
    )
    .expects(&[RESTARTED, Expect::Noted("all down")])
    .play(|stage| {
        for round in 0..6 {
            stage.busy(5 + 3 * round)?;
            let n = stage.cluster().n();
            (0..n).for_each(|h| stage.world.crash(h));
            stage.note("all down");
            // They come back one after the other, or together.
            for h in (0..n).rev() {
                let wait = if round % 2 == 0 { 0 } else { 40 * MS * u64::try_from(h).unwrap_or(0) };
                stage.world.restart_later(h, wait);
            }
            stage.pass(50 * MS)?;
        }
        Ok(())
    }),
    Scenario::new(
        "h10_all_crash_before_the_commit",
        &["H10"],
        "Results accepted on tentative replies survive a power loss of all before any COMMIT (TE-5)",
    )
    .expects(&[RESTARTED, Expect::Noted("accepted before it committed")])
    .with(|setup| {
        let config = quorate_pbft::Config { piggyback_ns: 5 * MS, ..setup.config };
        Setup { config, ..setup }
    })
    .play(|stage| {
        stage.busy(5)?;
        stage.quiet()?;
        stage.pass(100 * MS)?;
        for i in 0..4 {
            let before = stage.world.committed();
            stage.answer(0, 0, &format!("put k0 tentative{i}"), 2_000 * MS)?;
            if stage.world.committed() == before {
                stage.note("accepted before it committed");
            }
            (0..stage.cluster().n()).for_each(|h| stage.world.crash(h));
            (0..stage.cluster().n()).for_each(|h| stage.world.restart(h));
            let seen = stage.answer(1, 0, "get k0", 10_000 * MS)?;
            stage.require(seen == format!("ok tentative{i}"), format!("{seen} after tentative{i}"))?;
        }
        Ok(())
    }),
    Scenario::new(
        "h1_memory_only",
        &["H1"],
        "Nothing is kept on disk, as in the papers: a replica that restarts has lost its state and rejoins",
    )
    .expects(&[REJOINED])
    .with(|setup| {
        let config = quorate_pbft::Config { durability: Durability::Memory, ..setup.config };
        Setup { config, ..setup }
    })
    .play(|stage| {
        for h in 0..stage.cluster().n() {
            stage.busy(10)?;
            stage.world.crash(h);
            stage.world.restart_later(h, 10 * MS);
            stage.pass(20 * MS)?;
            stage.until("it has rejoined", REJOIN_NS, everyone_remembers)?;
        }
        Ok(())
    }),
];

/// Returns whether no correct replica lacks its memory.
pub(super) fn everyone_remembers(world: &mut World<KvApp>) -> bool {
    world.core_facts().all(|facts| facts.remembers) && world.hosts.iter().all(|host| !host.amnesic)
}

/// Cuts a replica off from the other replicas, or connects it again.
pub(super) fn isolate(stage: &mut Stage, id: ReplicaId, cut: bool) {
    for other in others(stage, id) {
        stage.world.network.cut_both(node(id), node(other), cut);
    }
}

/// Sends statuses more rarely, for long times in which little happens.
fn slow_status(setup: Setup, status_ns: u64) -> Setup {
    let config = quorate_pbft::Config { status_ns, client_timeout_max_ns: status_ns, ..setup.config };
    Setup { config, ..setup }
}

/// One replica after the other is killed right after what `count` counts has grown by 1, 2, 3 ... in its
/// own steps, counted from the moment it votes again.
fn crash_at_every(stage: &mut Stage, count: fn(&mut Stage, usize) -> u64) -> Ended {
    stage.busy(5)?;
    stage.world.set_load(Load::Busy(MS, 20 * MS));
    let n = stage.cluster().n();
    for k in 1..=24_u64 {
        let h = usize::try_from(k).unwrap_or(0) % n;
        let place = crate::network::NodeId::at(h);
        let mut grown = 0;
        let deadline = stage.world.at + 2_000 * MS;
        while grown < k && stage.world.at < deadline {
            let own = stage.world.next_node() == Some(place);
            let before = count(stage, h);
            if !stage.world.step() {
                break;
            }
            if own {
                grown += count(stage, h).saturating_sub(before).min(1);
            }
            stage.pass(0)?; // the watchers' verdict
        }
        stage.world.crash(h);
        stage.note("crashed");
        stage.world.restart_later(h, 3 * MS);
        stage.pass(110 * MS)?;
    }
    Ok(())
}

/// Host `h` is stopped for a while and has to catch up within a second after it.
fn paused(stage: &mut Stage, h: usize, ns: u64) -> Ended {
    stage.busy(10)?;
    stage.world.pause(h, ns);
    stage.busy(40)?;
    let back = stage.world.at + ns;
    let rare = if ns > 10_000 * MS { 5_000 * MS } else { 10 * MS };
    stage.world.set_load(Load::Busy(rare, 2 * rare));
    stage.until("the pause is over", 2 * ns, |w| w.at >= back && !w.hosts[h].is_paused())?;
    stage.world.set_load(Load::Busy(0, 2 * MS));
    let (id, target) = (stage.world.hosts[h].id, stage.world.committed());
    stage.until("it has caught up", 1_000 * MS, |w| w.checkers.facts(id).executed.0 >= target)?;
    stage.note("caught up");
    Ok(())
}
