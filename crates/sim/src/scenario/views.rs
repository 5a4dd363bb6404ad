//! Attacks of spec §16.2 on view changes, checkpoints and reads that have no key in `docs/faults.md`.

use quorate_pbft::config::MS;
use quorate_pbft::step::Milestone;
use quorate_wire::{Kind, ReplicaId};

use super::liars::backups::ForgetsSince;
use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage};
use crate::setup::Setup;
use crate::world::Load;

const VIEW_CHANGES: Expect = Expect::Count("view-changes", |c| c.view_changes);
const ROLLED_BACK: Expect =
    Expect::Milestone("rolled-back", |_, m| matches!(m, Milestone::RolledBack { .. }));
const READ_QUEUED: Expect =
    Expect::Milestone("read-queued", |_, m| matches!(m, Milestone::ReadQueued { .. }));
const TRANSFERRED: Expect =
    Expect::Milestone("state-transfer", |_, m| matches!(m, Milestone::TransferFinished { .. }));
const RESTARTED: Expect = Expect::Milestone("restarted", |_, m| matches!(m, Milestone::Restarted { .. }));
const DIVERGED: Expect = Expect::Milestone("diverged", |_, m| matches!(m, Milestone::Diverged { .. }));
const ROLLED_BACK_AT_A_CHECKPOINT: Expect = Expect::Milestone(
    "rolled-back-at-a-checkpoint",
    |_, m| matches!(m, Milestone::RolledBack { seq } if seq.0 == INTERVAL),
);

/// Between two checkpoints of a scenario's world, in numbers.
const INTERVAL: u64 = 8;
/// All that makes a batch final somewhere, or a checkpoint stable.
const ORDERING: &[Kind] =
    &[Kind::PrePrepare, Kind::Prepare, Kind::Commit, Kind::Committed, Kind::Checkpoint, Kind::Body];

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "a11_read_after_rollback",
        &["A11"],
        "A write was answered tentatively and rolled back; a client reads before it is executed again (RO-4)",
    )
    .expects(&[ROLLED_BACK, READ_QUEUED, VIEW_CHANGES])
    .with(commits_apart)
    .play(read_after_rollback),
    Scenario::new(
        "a13_mixed_view_tentative",
        &["A13"],
        "Tentative replies of two views are a quorum together, but no certificate (CL-7)",
    )
    .expects(&[ROLLED_BACK, Expect::Noted("no certificate")])
    .with(commits_apart)
    .play(mixed_views),
    Scenario::new(
        "a14_view_change_at_checkpoint_boundary",
        &["A14"],
        "The batch after which a checkpoint is due is tentative when the view ends (TE-6)",
    )
    .expects(&[ROLLED_BACK_AT_A_CHECKPOINT, VIEW_CHANGES])
    .with(commits_apart)
    .play(boundary),
    Scenario::new(
        "a15_dup_after_rollback",
        &["A15", "B17"],
        "A request that was answered tentatively is rolled back and executed again, once (TE-4)",
    )
    .expects(&[ROLLED_BACK, VIEW_CHANGES])
    .with(commits_apart)
    .play(twice_after_rollback),
    Scenario::new(
        "a15_dup_after_transfer",
        &["A15", "B17"],
        "A client repeats a request that the new primary knows from a transferred state only (ST-6)",
    )
    .expects(&[TRANSFERRED, VIEW_CHANGES])
    .play(twice_after_transfer),
    Scenario::new(
        "a18_null_vs_collected",
        &["A18"],
        "A replica that has discarded a number says nothing about it: f + 1 such replicas do not make it null (DP-2)",
    )
    .sizes(&[7])
    .expects(&[Expect::Noted("undecided"), VIEW_CHANGES])
    .with(|setup| {
        [3, 4].into_iter().map(ReplicaId).fold(setup, |setup, id| {
            setup.liar(id, || ForgetsSince::checkpoint(INTERVAL))
        })
    })
    .play(null_or_collected),
    Scenario::new(
        "a19_staggered_water_marks",
        &["A19", "B2"],
        "The stable checkpoints of replicas that change views are a window apart (11.6)",
    )
    .expects(&[Expect::Noted("staggered"), VIEW_CHANGES])
    .play(staggered),
    Scenario::new(
        "a25_new_view_below_executed",
        &["A25"],
        "A new view starts from a checkpoint below what all replicas have executed (11.8)",
    )
    .expects(&[Expect::Noted("voted again"), VIEW_CHANGES])
    .play(below_executed),
    Scenario::new(
        "a26_null_slot_requeues",
        &["A26", "B8"],
        "A new view has null where no replica received the request; that request is proposed again (PR-4)",
    )
    .expects(&[Expect::Noted("null taken over"), VIEW_CHANGES])
    .play(|stage| {
        null_view(stage)?;
        stage.quiet()
    }),
    Scenario::new(
        "a27_diverge_one",
        &["A27", "B5", "B21"],
        "Pages of one replica's state are corrupted in memory: it detects and fetches them (CK-6)",
    )
    .expects(&[DIVERGED, TRANSFERRED])
    .views_max(|_| 0)
    .play(|stage| {
        stage.busy(10)?;
        diverge(stage)?;
        stage.world.set_load(Load::Busy(0, 2 * MS));
        stage.until("all are repaired", 10_000 * MS, |w| w.core_facts().all(|f| !f.damaged && !f.diverged))
    }),
    Scenario::new(
        "a34_restart_after_null_view",
        &["A34", "H1"],
        "Replicas that voted for null at a number restart and keep that vote (D1)",
    )
    .expects(&[Expect::Noted("null taken over"), RESTARTED, VIEW_CHANGES])
    .play(|stage| {
        null_view(stage)?;
        for h in 1..stage.cluster().n() {
            stage.world.crash(h);
            stage.pass(10 * MS)?;
            stage.world.restart(h);
            stage.pass(200 * MS)?;
        }
        stage.world.pause(1, 600 * MS);
        stage.busy(20)
    }),
];

/// COMMITs leave on their own, so that they can be lost.
fn commits_apart(mut setup: Setup) -> Setup {
    setup.config.piggyback = false;
    setup
}

/// Whether lane 0 of client `c` still waits.
fn waits(stage: &Stage, c: usize) -> bool {
    stage.world.clients[c].lanes[0].outstanding.is_some()
}

/// A write prepares and is answered, and never commits; the view changes.
fn answered_and_rolled_back(stage: &mut Stage, text: &str, result: &str) -> Ended {
    stage.mute_all(&[Kind::Commit]);
    let answer = stage.answer(0, 0, text, 5_000 * MS)?;
    stage.require(answer == result, format!("{text} gives \"{answer}\", not \"{result}\""))?;
    stage.until_view(1, 20_000 * MS)
}

fn read_after_rollback(stage: &mut Stage) -> Ended {
    let all = stage.all();
    stage.answer(0, 0, "put x old", 5_000 * MS)?;
    stage.until_executed(&all, 1, 1_000 * MS)?;
    answered_and_rolled_back(stage, "put x new", "ok")?;
    stage.ask(1, 0, "get x");
    stage.pass(10 * MS)?;
    stage.require(waits(stage, 1), "a read is answered before the write is executed again")?;
    stage.mend();
    stage.until("the read", 10_000 * MS, |w| w.clients[1].lanes[0].outstanding.is_none())?;
    let result = stage.world.clients[1].lanes[0].last_result.clone().unwrap_or_default();
    let read = crate::describe::Words::result(&stage.world.app, &result);
    stage.require(read == "ok new", format!("the read gives \"{read}\""))
}

/// The client hears a quorum less one in view 0, and only the others in view 1.
fn mixed_views(stage: &mut Stage) -> Ended {
    let all = stage.all();
    let (first, rest) = all.split_at(stage.cluster().quorum() - 1);
    stage.mute_all(&[Kind::Commit]);
    stage.hold_replies(rest, 0);
    stage.ask(0, 0, "put x 1");
    stage.until_view(1, 20_000 * MS)?;
    stage.mend();
    stage.mute_all(&[Kind::Commit]);
    stage.hold_replies(first, 0);
    // Long enough for the client to ask again, and for the others to answer.
    stage.pass(1_500 * MS)?;
    stage.require(waits(stage, 0), "replies of two views are taken for a certificate")?;
    stage.note("no certificate");
    stage.mend();
    stage.until("the write", 20_000 * MS, |w| w.clients[0].lanes[0].outstanding.is_none())
}

fn boundary(stage: &mut Stage) -> Ended {
    let all = stage.all();
    stage.fill(&all, INTERVAL - 1)?;
    stage.mute_all(&[Kind::Commit]);
    stage.answer(0, 0, "incr n 1", 5_000 * MS)?;
    stage.pass(5 * MS)?;
    let early = stage.world.core_facts().any(|facts| facts.checkpoint.0 >= INTERVAL);
    stage.require(!early, "a checkpoint of a state that may be undone")?;
    stage.until_view(1, 20_000 * MS)?;
    stage.mend();
    stage.busy(20)
}

fn twice_after_rollback(stage: &mut Stage) -> Ended {
    let all = stage.all();
    answered_and_rolled_back(stage, "incr x 1", "ok 1")?;
    stage.mend();
    stage.until_executed(&all, 1, 10_000 * MS)?;
    let next = stage.answer(1, 0, "incr x 1", 5_000 * MS)?;
    stage.require(next == "ok 2", format!("the next one gives \"{next}\""))
}

fn twice_after_transfer(stage: &mut Stage) -> Ended {
    let (all, late) = (stage.all(), [ReplicaId(1)]);
    let others = stage.all_but(&late);
    stage.isolate(&late);
    stage.hold_replies(&all, 0);
    stage.ask(0, 0, "incr x 1");
    stage.until_executed(&others, 1, 1_000 * MS)?;
    for _ in 0..3 * INTERVAL {
        stage.answer(1, 0, "incr n 1", 5_000 * MS)?;
    }
    let target = stage.world.committed();
    stage.mend();
    stage.hold_replies(&all, 0);
    stage.until_executed(&late, target, 10_000 * MS)?;
    // Now it becomes the primary, and client 0 still asks.
    stage.world.pause(0, 600 * MS);
    stage.ask(1, 1, "incr n 1");
    stage.until_view(1, 20_000 * MS)?;
    stage.pass(1_200 * MS)?;
    stage.mend();
    stage.until("the answer", 10_000 * MS, |w| w.clients[0].lanes[0].outstanding.is_none())?;
    stage.require(stage.evidence().skipped() == 0, "it was ordered again")?;
    let read = stage.answer(1, 0, "get x", 5_000 * MS)?;
    stage.require(read == "ok 1", format!("it was executed: x is \"{read}\""))
}

/// r0 has collected the numbers that r1 and r2 have prepared, r5 and r6 have never heard of them, and r3 and
/// r4 deny them: a quorum without r2 has nothing to say for them but r1's word, and must not say null.
fn null_or_collected(stage: &mut Stage) -> Ended {
    let all = stage.all();
    let [r0, r1, r2] = [0, 1, 2].map(ReplicaId);
    let (behind, others) = ([ReplicaId(5), ReplicaId(6)], stage.all_but(&[r2]));
    stage.fill(&all, INTERVAL)?;
    stage.until("all are stable", 1_000 * MS, |w| w.core_facts().all(|facts| facts.stable.0 == INTERVAL))?;
    stage.isolate(&behind);
    stage.mute(Kind::Checkpoint, &all, &[r1, r2]);
    stage.fill(&[r0, r1, r2], 2 * INTERVAL)?;
    stage
        .until("r0 has collected them", 1_000 * MS, move |w| w.checkers.facts(r0).stable.0 == 2 * INTERVAL)?;
    stage.mend();
    stage.isolate(&[r2]);
    stage.mute_all(ORDERING);
    stage.ask(1, 0, "incr n 1");
    let left = others.clone();
    stage.until("the others leave", 5_000 * MS, move |w| {
        left.iter().filter(|id| w.checkers.watches(**id)).all(|id| w.checkers.facts(*id).view.0 >= 1)
    })?;
    stage.pass(60 * MS)?;
    let entered = others.iter().any(|id| {
        let facts = stage.world.checkers.facts(*id);
        stage.world.checkers.watches(*id) && facts.normal && facts.view.0 >= 1
    });
    stage.require(!entered, "a new view without the word of r2")?;
    stage.note("undecided");
    stage.mend();
    stage.until_view(1, 20_000 * MS)
}

/// Of those who change views, f have a checkpoint stable, one has taken it, and f are a window behind. r0 and
/// f - 1 others are paused.
fn staggered(stage: &mut Stage) -> Ended {
    let (all, f) = (stage.all(), stage.cluster().f());
    let ahead = all[1..=f].to_vec();
    let taken = [all[f + 1]];
    let behind = all[f + 2..2 * f + 2].to_vec();
    let still: Vec<usize> = std::iter::once(0).chain(2 * f + 2..all.len()).collect();
    stage.fill(&all, INTERVAL)?;
    stage.until("all are stable", 1_000 * MS, |w| w.core_facts().all(|facts| facts.stable.0 == INTERVAL))?;
    stage.isolate(&behind);
    stage.mute(Kind::Checkpoint, &all, &taken);
    stage.fill(&stage.all_but(&behind), 2 * INTERVAL)?;
    let stable = ahead.clone();
    stage.until("some are stable", 1_000 * MS, move |w| {
        stable.iter().all(|id| w.checkers.facts(*id).stable.0 == 2 * INTERVAL)
    })?;
    stage.mend();
    for h in still {
        stage.world.pause(h, 900 * MS);
    }
    stage.mute_all(ORDERING);
    let low = |id: &ReplicaId| stage.world.checkers.facts(*id).stable.0 == INTERVAL;
    if taken.iter().chain(&behind).all(low) {
        stage.note("staggered");
    }
    stage.ask(1, 0, "incr n 1");
    let changing = [ahead, taken.to_vec()].concat();
    stage.until_entered(&changing, 1, 700 * MS)?;
    stage.mend();
    stage.busy(20)
}

fn below_executed(stage: &mut Stage) -> Ended {
    let (all, last) = (stage.all(), INTERVAL + INTERVAL / 2);
    stage.fill(&all, last)?;
    stage.world.pause(0, 600 * MS);
    stage.ask(1, 0, "incr n 1");
    stage.until_view(1, 20_000 * MS)?;
    let again = |all: &Vec<crate::world::evidence::Accepted>| all.iter().any(|a| a.view.0 > 0);
    if stage.evidence().accepted().range(INTERVAL + 1..=last).all(|(_, all)| again(all)) {
        stage.note("voted again");
    }
    stage.busy(20)
}

/// The primary's first proposal reaches nobody and its second everyone; then it is cut off. The next view has
/// null at number 1, and everything asked is answered.
fn null_view(stage: &mut Stage) -> Ended {
    let r0 = [ReplicaId(0)];
    let backups = stage.all_but(&r0);
    stage.mute(Kind::PrePrepare, &r0, &backups);
    stage.ask(0, 0, "incr x 1");
    stage.pass(3 * MS)?;
    stage.mend();
    stage.ask(1, 0, "incr y 1");
    let prepared = backups.clone();
    stage.until("number 2 prepared", 50 * MS, move |w| {
        prepared.iter().all(|id| w.checkers.facts(*id).prepared.contains_key(&2))
    })?;
    stage.isolate(&r0);
    stage.until_entered(&backups, 1, 20_000 * MS)?;
    stage.until("both are answered", 10_000 * MS, |w| w.outstanding().0 == 0)?;
    stage.note_nulls();
    stage.mend();
    stage.until_view(1, 10_000 * MS)
}

/// Changes pages of the last replica's state until it has noticed: what is damaged in a page that is never
/// written again, nobody can notice.
fn diverge(stage: &mut Stage) -> Ended {
    let h = stage.cluster().n() - 1;
    for byte in 0..40 {
        if stage.world.counters().divergences > 0 {
            return Ok(());
        }
        for page in 0..8 {
            stage.world.damage_state(h, page | (8 * byte) << 16);
        }
        stage.busy(2 * INTERVAL)?;
    }
    stage.require(false, "damage that nobody notices")
}
