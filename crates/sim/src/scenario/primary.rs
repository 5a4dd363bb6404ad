//! Byzantine primaries, and their effect: at most a view change (P1-P17).

use quorate_pbft::config::{Config, MS, RequestAuth};
use quorate_pbft::step::{Milestone, Reject};
use quorate_wire::message::SuspectReason;
use quorate_wire::{Kind, ReplicaId};

use super::liars::{HugeFrames, NothingInstead, Stubborn, WithholdThenFallSilent};
use super::row::{Expect, Scenario, one_each};
use super::stage::{Ended, Stage, first_f, last_f};
use crate::adversary::backup::Mute;
use crate::adversary::primary::{
    BadChoice, BadNewView, Censor, DelayProposals, EquivocateToEach, EquivocateToHalves, ExhaustNumbers,
    LeaveHoles, LyingNewView, Oversize, PhantomBodies, ProposeInVain, ProposeToOne, ProposeTwice,
    ReplayBatch, SilentPrimary, StuffBatches, Unfair, WithholdFromSome,
};
use crate::adversary::sly::{OldStatus, SwingingChoice};
use crate::network::Delay;
use crate::setup::Setup;
use crate::world::Load;

/// Some correct replica has entered a view later than the first.
const VIEW_CHANGES: Expect = Expect::Count("view-changes", |c| c.view_changes);
/// A correct replica has asked for a body or a batch.
const BODY_FETCHES: Expect = Expect::Count("BODY-FETCH", |c| c.kinds.get("BODY-FETCH").copied().unwrap_or(0));
/// A correct replica has suspected the primary because it waited too long.
const TIMEOUT: Expect = Expect::Milestone("timeout", |_, m| {
    matches!(m, Milestone::Suspected { reason: SuspectReason::Timeout, .. })
});
/// A correct replica has suspected the primary of a view for its NEW-VIEW.
const BAD_NEW_VIEW: Expect = Expect::Milestone("suspected-bad-new-view", |_, m| {
    matches!(m, Milestone::Suspected { reason: SuspectReason::BadNewView, .. })
});
/// A correct replica has fetched a batch from another than the primary.
const BATCH_FETCHED: Expect =
    Expect::Milestone("batch-fetched", |_, m| matches!(m, Milestone::BatchFetched { .. }));

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new("p1_equivocating_primary", &["P1"], "The primary proposes another batch to half of the backups")
        .expects(&[Expect::Split, VIEW_CHANGES])
        .views_max(one_each)
        .with(|setup| setup.lying_primaries(|| Stubborn(EquivocateToHalves))),
    Scenario::new("p2_batch_for_each", &["P2"], "The primary proposes a different batch to every backup")
        .expects(&[Expect::Split, VIEW_CHANGES])
        .views_max(one_each)
        .with(|setup| setup.lying_primaries(|| EquivocateToEach)),
    Scenario::new(
        "p2_many_digests_one_n",
        &["P2", "P1", "B24"],
        "Equivocation and interrupted views put more than f + 2 digests at one number (A16)",
    )
    .expects(&[Expect::Split, Expect::Noted("more than f + 2 digests")])
    .with(|setup| setup.lying_primaries(|| EquivocateToEach))
    .play(many_digests),
    Scenario::new("p3_request_twice", &["P3"], "The same requests are proposed at two numbers")
        .expects(&[Expect::Skipped, Expect::Reject(Reject::Conflicts)])
        .views_max(one_each)
        .with(|setup| setup.lying_primaries(|| ProposeTwice)),
    Scenario::new("p4_holes", &["P4"], "Sequence numbers are left out, so that nothing after them executes")
        .expects(&[Expect::Noted("null taken over"), TIMEOUT])
        .views_max(one_each)
        .with(|setup| setup.lying_primaries(|| LeaveHoles))
        .play(|stage| {
            stage.busy(40)?;
            stage.note_nulls();
            Ok(())
        }),
    Scenario::new(
        "p5_primary_proposes_h_plus_l_plus_1",
        &["P5"],
        "Proposals at the high water mark, above it, and at the largest number there is (A6)",
    )
    .expects(&[Expect::Reject(Reject::OutsideWatermarks), Expect::Heard(Kind::PrePrepare)])
    .views_max(one_each)
    .with(|setup| setup.lying_primaries(|| ExhaustNumbers)),
    Scenario::new("p6_withheld", &["P6"], "f correct backups receive no proposal")
        .expects(&[BATCH_FETCHED, Expect::Heard(Kind::PrePrepare)])
        .views_max(one_each)
        .with(|setup| idle(setup).lying_primaries(|| Stubborn(WithholdFromSome)))
        .play(|stage| {
            stage.busy(40)?;
            stage.quiet()?;
            let all = stage.all();
            stage.until_executed(&all, stage.world.committed(), 1_000 * MS)
        }),
    Scenario::new(
        "p6_isolate_f_correct",
        &["P6", "K5"],
        "f correct backups receive no proposal, then the Byzantine replicas fall silent (A9)",
    )
    .expects(&[BATCH_FETCHED, TIMEOUT])
    .views_max(one_each)
    .with(|setup| idle(setup).lying_primaries(|| WithholdThenFallSilent::after(12)))
    .play(|stage| {
        stage.busy(40)?;
        stage.require(stage.world.counters().state_transfers == 0, "batches, not states, fill the gap (ST-5)")
    }),
    Scenario::new(
        "p6_isolate_then_read",
        &["P6", "K5"],
        "f correct backups missed a write, Byzantine ones are silent; a client reads in an idle system (A10)",
    )
    .expects(&[BATCH_FETCHED])
    .views_max(one_each)
    .with(|setup| idle(setup).lying_primaries(|| WithholdThenFallSilent::after(2)))
    .play(|stage| isolated(stage, "get x", "ok 2")),
    Scenario::new(
        "p6_isolate_then_write",
        &["P6", "K5"],
        "f correct backups missed a write, Byzantine ones are silent; a client writes in an idle system (A10)",
    )
    .expects(&[BATCH_FETCHED])
    .views_max(one_each)
    .with(|setup| idle(setup).lying_primaries(|| WithholdThenFallSilent::after(2)))
    .play(|stage| isolated(stage, "incr x 1", "ok 3")),
    Scenario::new(
        "p6_isolate_then_nothing",
        &["P6", "K5"],
        "f correct backups missed a write, Byzantine ones are silent; no client sends anything (ST-5, A9)",
    )
    .expects(&[BATCH_FETCHED])
    .views_max(|_| 0)
    .with(|setup| idle(setup).lying_primaries(|| Stubborn(WithholdFromSome)))
    .play(|stage| {
        let (all, last) = (stage.all(), stage.last_f());
        stage.mute(Kind::Commit, &all, &last);
        stage.answer(0, 0, "incr x 1", 5_000 * MS)?;
        stage.until_executed(&stage.all_but(&last), 1, 50 * MS)?;
        // Those who have executed it are f + 1: their COMMITs are not enough any more.
        stage.mend();
        stage.isolate(&first_f(stage.cluster()));
        stage.until_executed(&stage.all(), 1, 1_000 * MS)?;
        stage.require(stage.world.counters().state_transfers == 0, "no state transfer is needed (ST-5)")?;
        stage.mend();
        stage.finish()
    }),
    Scenario::new("p6_proposed_to_one", &["P6"], "Each batch is proposed to one backup only, another one each time")
        .expects(&[TIMEOUT, VIEW_CHANGES])
        .views_max(one_each)
        .with(|setup| setup.lying_primaries(ProposeToOne::default)),
    Scenario::new("p7_primary_ignores_client_c", &["P7", "B8"], "One client's requests are never ordered (A4)")
        .expects(&[TIMEOUT, VIEW_CHANGES])
        .views_max(one_each)
        .with(|setup| setup.lying_primaries(|| Censor { upto: 1 }))
        .play(|stage| ignored(stage, 2 * MS)),
    Scenario::new(
        "p7_b8_one_client_in_vain",
        &["P7", "B8"],
        "Each backup is proposed one client's request, for a number that another batch gets (L30)",
    )
    .expects(&[TIMEOUT, VIEW_CHANGES, Expect::Split])
    .views_max(one_each)
    .with(|setup| setup.lying_primaries(|| Stubborn(ProposeInVain::default())))
    .play(|stage| ignored(stage, 2 * MS)),
    Scenario::new(
        "p7_b8_ignored_beside_separate_requests",
        &["P7", "B8"],
        "One client is ignored, and as many separate requests of the other are proposed as may be in progress (L29)",
    )
    .expects(&[TIMEOUT, VIEW_CHANGES])
    .views_max(one_each)
    .with(|setup| {
        // One byte: each operation is longer. Executions take so long that one is always in progress.
        let config = Config { pipeline: 1, separate_above: 1, ..setup.config };
        let task_time = (5 * MS, 5 * MS);
        Setup { config, lanes: 4, task_time, ..setup }.lying_primaries(|| Censor { upto: 1 })
    })
    .play(|stage| ignored(stage, 0)),
    Scenario::new(
        "p7_b8_ignored_behind_an_old_status",
        &["P7", "B8"],
        "A primary that ignores a client says once how far it is, and proposes beyond the window of that (L29, TM-5)",
    )
    .expects(&[TIMEOUT, VIEW_CHANGES])
    .views_max(one_each)
    .with(|setup| setup.lying_primaries(|| Stubborn(OldStatus::default())))
    .play(|stage| {
        // Its window ends before the other client has all its answers.
        for _ in 0..2 {
            stage.pass(400 * MS)?;
            for _ in 0..20 {
                stage.answer(1, 0, "incr n 1", 5_000 * MS)?;
            }
        }
        ignored(stage, 2 * MS)
    }),
    Scenario::new("p7_silent_primary", &["P7", "K5"], "The primary sends nothing; requests carry MACs only")
        .expects(&[TIMEOUT, VIEW_CHANGES])
        .views_max(|_| 1)
        .with(|setup| silent_primary(setup, RequestAuth::Mac)),
    Scenario::new("p7_silent_primary_adaptive", &["P7", "K5"], "The primary sends nothing (TM-2)")
        .expects(&[TIMEOUT, VIEW_CHANGES])
        .views_max(|_| 1)
        .with(|setup| silent_primary(setup, RequestAuth::Adaptive)),
    Scenario::new("p7_silent_primary_signed", &["P7", "K5"], "The primary sends nothing; requests are signed")
        .expects(&[TIMEOUT, VIEW_CHANGES])
        .views_max(|_| 1)
        .with(|setup| silent_primary(setup, RequestAuth::SigMac)),
    Scenario::new("p8_slow_primary", &["P8", "B32"], "Every proposal arrives after 90 % of the time-out (A3)")
        .expects(&[Expect::Noted("answered late"), Expect::Heard(Kind::PrePrepare)])
        .views_max(one_each)
        .with(|setup| setup.lying_primaries(|| Stubborn(DelayProposals)))
        .play(slow),
    Scenario::new("p9_unfair_order", &["P9", "B32"], "One client's requests are held back for half of the time-out")
        .expects(&[Expect::Noted("overtaken")])
        .views_max(one_each)
        .with(|setup| setup.lying_primaries(Unfair::default))
        .play(unfair),
    Scenario::new("p10_null_batches", &["P10"], "Null batches in place of requests, while no replica recovers (PR-6)")
        .expects(&[Expect::Reject(Reject::NullBatch), TIMEOUT, VIEW_CHANGES])
        .views_max(one_each)
        .with(|setup| setup.lying_primaries(|| NothingInstead)),
    Scenario::new("p10_stuffed_batches", &["P10", "B35"], "Batches with forged and with duplicate requests (A35)")
        .expects(&[
            Expect::Reject(Reject::DuplicateRequest),
            Expect::Reject(Reject::UnprovenRequest),
            VIEW_CHANGES,
        ])
        .views_max(one_each)
        .with(|setup| setup.lying_primaries(StuffBatches::default)),
    Scenario::new("p11_old_batch_again", &["P11", "B16"], "Every third proposal is an old batch (A35)")
        .expects(&[Expect::Skipped])
        .views_max(one_each)
        .with(|setup| setup.lying_primaries(ReplayBatch::default)),
    Scenario::new(
        "p12_phantom_body",
        &["P12", "B35"],
        "Proposals with a wrong digest, and with a request that no replica has (A8)",
    )
    .expects(&[Expect::Door("wrong-digest"), BODY_FETCHES, VIEW_CHANGES])
    .views_max(one_each)
    .with(|setup| setup.lying_primaries(PhantomBodies::default)),
    Scenario::new("p13_bad_choice", &["P13"], "The time of day proposed is an hour off, or none at all")
        .expects(&[Expect::Reject(Reject::BadChoice), VIEW_CHANGES])
        .views_max(one_each)
        .with(|setup| setup.lying_primaries(|| Stubborn(BadChoice))),
    Scenario::new(
        "p13_old_clock_value_in_x",
        &["P13"],
        "A new view takes over a batch with a time of day long past (A28)",
    )
    .expects(&[Expect::Noted("old choice taken over"), VIEW_CHANGES])
    .with(|mut setup| {
        setup.config.piggyback = false;
        setup
    })
    .play(old_choice),
    Scenario::new("p14_new_view_too_few", &["P14"], "A NEW-VIEW rests on too few VIEW-CHANGEs (A21)")
        .expects(&[Expect::Reject(Reject::BadNewView), BAD_NEW_VIEW])
        .views_max(|cluster| one_each(cluster) + 1)
        .with(|setup| lying_new_view(setup, BadNewView::TooFew))
        .play(bad_new_view),
    Scenario::new("p14_new_view_forged", &["P14"], "A NEW-VIEW names a VIEW-CHANGE that no replica sent (A21)")
        .expects(&[Expect::Heard(Kind::NewView), TIMEOUT])
        .views_max(|cluster| one_each(cluster) + 1)
        .with(|setup| lying_new_view(setup, BadNewView::Forged))
        .play(bad_new_view),
    Scenario::new("p14_new_view_checkpoint", &["P14"], "A NEW-VIEW starts from a checkpoint with a wrong digest (A21)")
        .expects(&[Expect::Reject(Reject::BadNewView), BAD_NEW_VIEW])
        .views_max(|cluster| one_each(cluster) + 1)
        .with(|setup| lying_new_view(setup, BadNewView::WrongCheckpoint))
        .play(bad_new_view),
    Scenario::new("p14_new_view_invented", &["P14"], "A NEW-VIEW takes over a batch that no replica prepared (A21)")
        .expects(&[Expect::Reject(Reject::BadNewView), BAD_NEW_VIEW])
        .views_max(|cluster| one_each(cluster) + 1)
        .with(|setup| lying_new_view(setup, BadNewView::Invented))
        .play(bad_new_view),
    Scenario::new("p15_new_view_drops", &["P15"], "A NEW-VIEW has null where a batch had prepared (A21)")
        .expects(&[Expect::Reject(Reject::BadNewView), BAD_NEW_VIEW])
        .views_max(|cluster| one_each(cluster) + 1)
        .with(|setup| lying_new_view(setup, BadNewView::Drops))
        .play(bad_new_view),
    Scenario::new("p15_new_view_short", &["P15"], "A NEW-VIEW ends before a batch that had prepared (A21)")
        .expects(&[Expect::Reject(Reject::BadNewView), BAD_NEW_VIEW])
        .views_max(|cluster| one_each(cluster) + 1)
        .with(|setup| lying_new_view(setup, BadNewView::Shortened))
        .play(bad_new_view),
    Scenario::new("p16_two_new_views", &["P16"], "Half of the backups receive another NEW-VIEW (A21)")
        .expects(&[Expect::Reject(Reject::BadNewView), Expect::Heard(Kind::NewView)])
        .views_max(|cluster| one_each(cluster) + 1)
        .with(|setup| lying_new_view(setup, BadNewView::Two))
        .play(bad_new_view),
    Scenario::new("p17_big_batch", &["P17", "B6"], "Batches of a thousand requests that no replica has")
        .expects(&[BODY_FETCHES, VIEW_CHANGES])
        .views_max(one_each)
        .with(|setup| setup.lying_primaries(|| Oversize)),
    Scenario::new("p17_oversize_frames", &["P17", "B36"], "Frames above the length limit, and wrong length fields")
        .expects(&[Expect::Door("malformed"), VIEW_CHANGES])
        .views_max(one_each)
        .with(|setup| setup.lying_primaries(HugeFrames::default)),
    Scenario::new(
        "p13_swinging_choice",
        &["P13"],
        "Of batches in progress every second one has an earlier time than the one in front of it: time does not go back (ND-2)",
    )
    .expects(&[Expect::Noted("asked for the time"), Expect::Reject(Reject::BadChoice)])
    .with(|setup| {
        let config = Config { piggyback: false, tentative: false, pipeline: 4, ..setup.config };
        Setup { config, ..setup }.lying_primaries(|| Stubborn(SwingingChoice))
    })
    .play(swinging_choice),
];

/// A world in which no checkpoint comes soon and clients are patient.
fn idle(mut setup: Setup) -> Setup {
    setup.config.checkpoint_interval = 128;
    setup.config.window = 256;
    setup
}

/// The primary is silent and so are further replicas, `f` in all.
fn silent_primary(mut setup: Setup, auth: RequestAuth) -> Setup {
    setup.config.request_auth = auth;
    let further = last_f(setup.config.cluster).into_iter().skip(1);
    let setup = setup.liar(ReplicaId(0), || SilentPrimary);
    further.fold(setup, |setup, id| setup.liar(id, || Mute { answers_below: 0 }))
}

/// One client asks, and the others do not stop asking until it has its answer.
fn ignored(stage: &mut Stage, pause_ns: u64) -> Ended {
    stage.ask(0, 0, "incr n 1");
    let asked = stage.world.asked();
    stage.world.set_load(Load::Busy(0, pause_ns));
    stage.until("the client that was ignored is answered", 5_000 * MS, |w| w.is_answered(&asked))?;
    stage.busy(20)
}

/// The primaries of views 1 to `f` lie in their NEW-VIEWs.
fn lying_new_view(setup: Setup, how: BadNewView) -> Setup {
    let ids = setup.config.cluster.replicas().skip(1).take(setup.config.cluster.f());
    let ids: Vec<ReplicaId> = ids.collect();
    ids.into_iter().fold(setup, |setup, id| setup.liar(id, move || LyingNewView(how)))
}

/// The first primary is paused for a while, so that a liar makes the next NEW-VIEW.
fn bad_new_view(stage: &mut Stage) -> Ended {
    stage.busy(10)?;
    stage.world.pause(0, 600 * MS);
    let last = u64::try_from(stage.cluster().f()).unwrap_or(1) + 1;
    stage.until_view(last, 20_000 * MS)?;
    stage.busy(20)
}

/// A write that `f` correct backups do not hear of; then another request, with the liars silent.
fn isolated(stage: &mut Stage, text: &str, result: &str) -> Ended {
    for value in ["ok 1", "ok 2"] {
        let answer = stage.answer(0, 0, "incr x 1", 5_000 * MS)?;
        stage.require(answer == value, format!("\"{answer}\" should be \"{value}\""))?;
    }
    let answer = stage.answer(1, 0, text, 10_000 * MS)?;
    stage.require(answer == result, format!("{text} gives \"{answer}\", not \"{result}\""))?;
    stage.require(stage.world.counters().state_transfers == 0, "no state transfer is needed (RO-5)")
}

/// Measures how late the answers are.
fn slow(stage: &mut Stage) -> Ended {
    let timeout = stage.world.config.request_timeout_min_ns;
    for _ in 0..5 {
        let asked = stage.world.time();
        stage.answer(0, 0, "incr x 1", 5_000 * MS)?;
        if stage.world.time() - asked > timeout * 8 / 10 {
            stage.note("answered late");
        }
    }
    stage.busy(10)
}

/// Client 2 asks after client 1 and is answered before it.
fn unfair(stage: &mut Stage) -> Ended {
    stage.answer(0, 0, "incr x 1", 5_000 * MS)?;
    for _ in 0..3 {
        stage.ask(0, 0, "incr x 1");
        stage.pass(MS)?;
        stage.answer(1, 0, "incr x 1", 5_000 * MS)?;
        if stage.world.clients[0].lanes[0].outstanding.is_some() {
            stage.note("overtaken");
        }
        stage.quiet()?;
    }
    stage.busy(20)
}

/// Each backup pre-prepares a batch of its own at the same number; then views break off, each NEW-VIEW
/// reaching some only; then the network heals.
fn many_digests(stage: &mut Stage) -> Ended {
    stage.ask(0, 0, "incr x 1");
    stage.ask(1, 0, "incr x 1");
    stage.pass(20 * MS)?;
    for _ in 0..4 {
        // The next primary reaches f replicas with its NEW-VIEW, and none with its votes.
        let all = stage.all();
        let some: Vec<ReplicaId> =
            all.iter().copied().take(stage.cluster().n() - stage.cluster().f() - 1).collect();
        stage.mute(Kind::Prepare, &all, &all);
        stage.mute(Kind::NewView, &all, &some);
        stage.pass(700 * MS)?;
        stage.mend();
        stage.mute(Kind::Prepare, &all, &all);
        stage.pass(30 * MS)?;
    }
    stage.mend();
    if stage.evidence().digests_max() > stage.cluster().f() + 2 {
        stage.note("more than f + 2 digests");
    }
    stage.until("number 1 executed", 30_000 * MS, |w| w.committed() >= 1)
}

/// A batch prepares, everyone is cut off from everyone for longer than clocks may differ, and a new view
/// takes it over.
fn old_choice(stage: &mut Stage) -> Ended {
    let all = stage.all();
    stage.mute(Kind::Commit, &all, &all);
    stage.ask(0, 0, "incr x 1");
    stage.until("number 1 prepared", 50 * MS, |w| {
        w.core_facts().all(|facts| facts.prepared.contains_key(&1))
    })?;
    for id in &all {
        stage.isolate(&[*id]);
    }
    stage.pass(stage.world.config.clock_skew_ns + 1_000 * MS)?;
    stage.mend();
    // What everybody still lacks must not come before the view change that all of them want by now.
    stage.mute(Kind::Commit, &all, &all);
    stage.until("a view change", 10_000 * MS, |w| w.core_facts().all(|facts| facts.view.0 > 0))?;
    stage.mend();
    stage.until("number 1 executed", 10_000 * MS, |w| w.committed() >= 1)?;
    let accepted = stage.evidence().accepted().get(&1).cloned().unwrap_or_default();
    let first = accepted.first().copied();
    if accepted.iter().any(|a| a.view.0 > 0 && Some(a.digest) == first.map(|first| first.digest)) {
        stage.note("old choice taken over");
    }
    stage.require(stage.view() <= 2, format!("it takes two views at most, not {}", stage.view()))
}

fn swinging_choice(stage: &mut Stage) -> Ended {
    // What is in progress stays so for a while.
    stage.world.network.schedule.delay(Delay {
        kind: Kind::Commit,
        from: None,
        numbers: None,
        by_ns: 10 * MS,
    });
    for _ in 0..10 {
        for lane in 0..2 {
            stage.ask(0, lane, "time");
            stage.pass(MS)?;
            stage.ask(1, lane, "time");
            stage.pass(MS)?;
        }
        stage.until("the time", 10_000 * MS, |w| w.outstanding().0 == 0)?;
        stage.note("asked for the time");
    }
    stage.mend();
    stage.busy(20)
}
