//! Faults of disks: torn tails, damage, full and failing disks, loss, stale disks, slowness (H3-H7, H11).

use quorate_pbft::config::MS;
use quorate_pbft::step::{Milestone, Reject};
use quorate_wire::{Kind, ReplicaId, ViewNum};

use super::host::{REJOIN_NS, REJOINED, RESTARTED, TRANSFERRED, VIEW_CHANGES, everyone_remembers};
use super::liars::lives::Keeper;
use super::network::together;
use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage};
use crate::app::KvApp;
use crate::disk::files::Space;
use crate::disk::{Damage, Pace};
use crate::network::Delay;
use crate::setup::Setup;
use crate::world::{Load, World};

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "h3_b33_torn_tail",
        &["H3", "B33"],
        "Crashes tear the last record of the log or leave a hole in it: it was not acknowledged",
    )
    .expects(&[
        Expect::Count("torn tails", |c| c.faults.get("torn tail").copied().unwrap_or(0)),
        Expect::Noted("no memory lost"),
        RESTARTED,
    ])
    .play(|stage| {
        stage.world.set_load(Load::Busy(MS, 20 * MS));
        let n = stage.cluster().n();
        for round in 0..40 {
            // When it has written something that is not on the disk yet.
            let h = round % n;
            stage.until("a write", 2_000 * MS, |w| w.hosts[h].disk.is_behind())?;
            stage.world.die_writing(h);
            stage.pass(60 * MS)?;
        }
        let lost = stage.world.counters().faults.get("memory lost").copied().unwrap_or(0);
        stage
            .require(lost == 0, format!("{lost} torn tails were taken for the loss of what was promised"))?;
        stage.note("no memory lost");
        Ok(())
    }),
    Scenario::new(
        "h4_bit_rot",
        &["H4"],
        "A bit of the log flips, then one of a checkpoint's image: detected at start, and the replica rejoins",
    )
    .expects(&[
        REJOINED,
        Expect::Count("rotten logs", |c| c.faults.get("bit rot").copied().unwrap_or(0)),
        Expect::Count("rotten images", |c| c.faults.get("rotten image").copied().unwrap_or(0)),
    ])
    .play(|stage| damaged(stage, &[Damage::BitRot, Damage::ImageRot])),
    Scenario::new(
        "h4_l85_freed_pages_that_rot",
        &["H4", "L85"],
        "Pages rot on a disk, and are freed unread. Images of checkpoints from before that are written all the same",
    )
    .expects(&[
        Expect::Count("pages rotted", |c| c.disk.get("pages rotted").copied().unwrap_or(0)),
        Expect::Count("images", |c| c.images),
    ])
    .with(|setup| Setup { pages_in_memory: 4, ..setup })
    .play(freed),
    Scenario::new(
        "b21_wrong_page_in_an_image",
        &["B21"],
        "A page is corrupted in memory and copied into an image: a start takes what is good, and fetches the rest",
    )
    .expects(&[
        RESTARTED,
        TRANSFERRED,
        Expect::Count("images lost", |c| c.disk.get("images lost").copied().unwrap_or(0)),
    ])
    .play(wrong_memory),
    Scenario::new(
        "h5_bad_sectors",
        &["H5"],
        "Records read as zeros, were written to the wrong place, or never: detected, and the replica rejoins",
    )
    .expects(&[
        REJOINED,
        Expect::Count("zeroed", |c| c.faults.get("zeroed record").copied().unwrap_or(0)),
        Expect::Count("misdirected", |c| c.faults.get("misdirected record").copied().unwrap_or(0)),
        Expect::Count("lost", |c| c.faults.get("lost record").copied().unwrap_or(0)),
    ])
    .play(|stage| damaged(stage, &[Damage::Zeroed, Damage::Misdirected, Damage::Lost])),
    Scenario::new(
        "h5_full_disk",
        &["H5"],
        "A disk is full for some time, also the primary's: it acknowledges nothing, others continue (GC-4)",
    )
    .expects(&[
        Expect::Count("full disks", |c| c.faults.get("full disk").copied().unwrap_or(0)),
        VIEW_CHANGES,
    ])
    .play(|stage| {
        stage.busy(5)?;
        let n = stage.cluster().n();
        for h in [n - 1, 0] {
            stage.world.fill_disk(h, Space::None);
            stage.busy(40)?;
            stage.world.fill_disk(h, Space::Enough);
            stage.busy(10)?;
        }
        stage.until("all in one view", 5_000 * MS, together)
    }),
    Scenario::new(
        "h5_failed_sync",
        &["H5"],
        "A sync fails: the process stops at once, restarts later, and keeps what it had acknowledged (GC-4)",
    )
    .expects(&[
        Expect::Count("failed syncs", |c| c.faults.get("failed sync").copied().unwrap_or(0)),
        RESTARTED,
    ])
    .play(|stage| {
        stage.busy(5)?;
        for h in 0..stage.cluster().n() {
            stage.world.fail_sync(h);
            stage.busy(10)?;
        }
        Ok(())
    }),
    Scenario::new(
        "h6_lost_disks",
        &["H6"],
        "f disks are lost; their replicas rejoin under load, then f others in an idle cluster",
    )
    .expects(&[REJOINED, TRANSFERRED])
    .play(|stage| {
        let f = stage.cluster().f();
        for (round, load) in [Load::Busy(0, 5 * MS), Load::Idle].into_iter().enumerate() {
            stage.busy(20)?;
            stage.world.set_load(load);
            for h in round * f..(round + 1) * f {
                stage.world.wipe(h);
                stage.world.restart_later(h, 10 * MS);
            }
            stage.until("they have rejoined", REJOIN_NS, everyone_remembers)?;
        }
        Ok(())
    }),
    Scenario::new(
        "h6_old_view_changes",
        &["H6"],
        "VIEW-CHANGEs that replicas signed before they lost their disks come back afterwards (RC-11)",
    )
    .expects(&[REJOINED, Expect::Reject(Reject::EndedLife), Expect::Reject(Reject::LaterLife)])
    .with(|setup| setup.lying_backups(Keeper::default))
    .play(|stage| {
        stage.busy(5)?;
        for round in 0..3_usize {
            // Everyone leaves the view: there is something to keep, and later something to confuse it with.
            let view = stage.view();
            stage.isolate(&[stage.cluster().primary(ViewNum(view))]);
            stage.until("the next view", 20_000 * MS, |w| {
                w.core_facts().any(|facts| facts.normal && facts.view.0 > view)
            })?;
            stage.mend();
            stage.busy(10)?;
            if round < 2 {
                // The same one again: what it said in its first life counts in no view after that.
                let h = stage.correct()[1];
                stage.world.wipe(h);
                stage.world.restart_later(h, 10 * MS);
                stage.until("it has rejoined", REJOIN_NS, everyone_remembers)?;
            }
        }
        Ok(())
    }),
    Scenario::new(
        "h7_old_disk",
        &["H7"],
        "A stale disk: an old snapshot is restored; the replica must not vote from it, and rejoins",
    )
    .expects(&[
        Expect::Milestone("rejoin started", |_, m| matches!(m, Milestone::RejoinStarted { .. })),
        REJOINED,
    ])
    .play(|stage| {
        let h = stage.correct()[1];
        stage.busy(10)?;
        let old = stage.world.snapshot(h);
        stage.busy(5)?;
        // Later lives that everyone has heard of.
        for _ in 0..2 {
            stage.world.crash(h);
            stage.world.restart(h);
            stage.busy(5)?;
            stage.pass(400 * MS)?;
        }
        stage.world.put_back(h, old);
        stage.world.restart(h);
        stage.until("it has rejoined", REJOIN_NS, everyone_remembers)
    }),
    Scenario::new(
        "h7_old_disk_confirmed_by_few",
        &["H7"],
        "A stale disk, and only f others have missed its replica's later starts: their word is not enough to vote (14.3)",
    )
    .expects(&[
        Expect::Noted("the others have gone on"),
        Expect::Milestone("rejoin started", |_, m| matches!(m, Milestone::RejoinStarted { .. })),
        REJOINED,
    ])
    .play(confirmed_by_few),
    Scenario::new(
        "l31_votes_of_before_a_rejoin",
        &["L31"],
        "A stale disk, on which a replica votes until it hears of its later starts; what it had not sent stays unsent (RC-5)",
    )
    .expects(&[
        Expect::Milestone("rejoin started", |_, m| matches!(m, Milestone::RejoinStarted { .. })),
        Expect::Noted("it has prepared a batch that the others may ask for"),
    ])
    .play(|stage| {
        for round in 0..ROUNDS {
            // With a slow disk votes wait for their records, with a fast one for a carrier.
            learns_while_it_votes(stage, if round % 2 == 0 { Pace::FAST } else { Pace::SLOW })?;
        }
        Ok(())
    }),
    Scenario::new("h11_slow_disks", &["H11"], "One disk is slow, then the primary's, then all of them")
        .expects(&[Expect::Count("slow disks", |c| c.faults.get("slow disk").copied().unwrap_or(0))])
        .play(|stage| {
            let n = stage.cluster().n();
            for slow in [n - 1..n, 0..1, 0..n] {
                slow.clone().for_each(|h| stage.world.set_disk(h, Pace::SLOW));
                stage.busy(15)?;
                slow.for_each(|h| stage.world.set_disk(h, Pace::FAST));
            }
            Ok(())
        }),
];

fn confirmed_by_few(stage: &mut Stage) -> Ended {
    let (victim, unaware) = (ReplicaId(1), stage.last_f());
    let aware = stage.all_but(&[unaware.clone(), vec![victim]].concat());
    let h = stage.world.host_of(victim);
    stage.busy(4)?;
    stage.quiet()?;
    stage.pass(100 * MS)?;
    let old = stage.world.snapshot(h);
    stage.cut(&[victim], &unaware);
    for _ in 0..2 {
        stage.world.crash(h);
        stage.world.restart(h);
        stage.pass(400 * MS)?;
    }
    stage.world.put_back(h, old);
    stage.mend();
    // Those who know better are not heard.
    stage.mute(Kind::Status, &aware, &[victim]);
    stage.world.restart(h);
    stage.pass(300 * MS)?;
    let before = stage.world.committed();
    stage.busy(4)?;
    stage.pass(100 * MS)?;
    stage.note("the others have gone on");
    let voted = stage.world.checkers.facts(victim).prepared.keys().any(|n| *n > before);
    stage.require(!voted, "it votes, and only f others have confirmed its start")?;
    stage.mend();
    stage.until("it has rejoined", REJOIN_NS, everyone_remembers)
}

/// How often the story is told: the moment at which it hears is different each time.
const ROUNDS: usize = 6;

fn learns_while_it_votes(stage: &mut Stage, pace: Pace) -> Ended {
    let (victim, aware) = (ReplicaId(1), stage.last_f());
    let unaware = stage.all_but(&[aware.clone(), vec![victim]].concat());
    let h = stage.world.host_of(victim);
    stage.busy(4)?;
    stage.quiet()?;
    stage.pass(400 * MS)?;
    let old = stage.world.snapshot(h);
    // Only f others hear of its later starts.
    stage.cut(&[victim], &unaware);
    for _ in 0..2 {
        stage.world.crash(h);
        stage.world.restart(h);
        stage.pass(400 * MS)?;
    }
    stage.world.put_back(h, old);
    stage.mend();
    // The others confirm the start from the old disk, and those who know better are not heard.
    stage.mute(Kind::Status, &aware, &[victim]);
    stage.world.restart(h);
    stage.world.set_disk(h, pace);
    let before = stage.world.committed();
    stage.world.set_load(Load::Busy(0, 2 * MS));
    stage.until("it votes", 5_000 * MS, move |w| {
        w.checkers.facts(victim).prepared.keys().any(|n| *n > before)
    })?;
    // They lack its last votes, and will ask for them.
    for kind in [Kind::Prepare, Kind::Commit] {
        stage.mute(kind, &[victim], &unaware);
    }
    stage.pass(20 * MS)?;
    stage.mend();
    stage.until("it begins to rejoin", 5_000 * MS, move |w| !w.checkers.facts(victim).remembers)?;
    let facts = stage.world.checkers.facts(victim);
    if facts.prepared.keys().any(|n| *n > facts.stable.0) {
        stage.note("it has prepared a batch that the others may ask for");
    }
    stage.pass(300 * MS)?;
    stage.world.set_disk(h, Pace::FAST);
    stage.until("it has rejoined", REJOIN_NS, everyone_remembers)
}

/// Disks are damaged in each way, one at a time; each replica rejoins before the next one is hit.
fn damaged(stage: &mut Stage, how: &[Damage]) -> Ended {
    for (round, how) in how.iter().enumerate() {
        // Enough for an image to be on the disk.
        stage.busy(30)?;
        let h = (round + 1) % stage.cluster().n();
        let done = stage.world.damage(h, *how);
        stage.require(done, format!("{how:?}: nothing to damage"))?;
        stage.world.restart_later(h, 5 * MS);
        stage.pass(10 * MS)?;
        stage.world.set_load(Load::Busy(2 * MS, 10 * MS));
        stage.until("it has rejoined", REJOIN_NS, everyone_remembers)?;
    }
    Ok(())
}

/// CHECKPOINTs come late, so a checkpoint becomes stable, and an image of it is written, when later batches have freed some
/// of its pages. They are on the disk only, where they rot. Every replica goes on writing images.
fn freed(stage: &mut Stage) -> Ended {
    let n = stage.cluster().n();
    let late = Delay { kind: Kind::Checkpoint, from: None, numbers: None, by_ns: 20 * MS };
    stage.world.network.schedule.delay(late);
    for round in 0..12 * n {
        (0..20).for_each(|_| stage.world.rot_page(round % n));
        stage.busy(8)?;
    }
    stage.mend();
    let seq = stage.world.committed();
    stage.busy(40)?;
    stage.until("everyone writes images", 5_000 * MS, |w| {
        w.hosts.iter().all(|host| host.disk.newest().is_some_and(|newest| newest.0 > seq))
    })
}

/// Pages of the last replica's state are corrupted in its memory until an image on its disk has one of them.
fn wrong_memory(stage: &mut Stage) -> Ended {
    stage.busy(5)?;
    let h = stage.cluster().n() - 1;
    stage.world.set_load(Load::Busy(0, 2 * MS));
    let is_rotten = move |w: &mut World<KvApp>| w.hosts[h].disk.is_rotten();
    let shown = (0..40).any(|byte| {
        for page in 0..8 {
            stage.world.damage_state(h, page | (8 * byte) << 16);
        }
        stage.until("an image has a corrupted page", 40 * MS, is_rotten).is_ok()
    });
    stage.require(shown, "no image has a corrupted page")?;
    stage.world.crash(h);
    stage.world.restart_later(h, 5 * MS);
    stage.busy(20)?;
    stage.until("it is repaired", REJOIN_NS, |w| w.core_facts().all(|f| !f.damaged && !f.diverged))
}
