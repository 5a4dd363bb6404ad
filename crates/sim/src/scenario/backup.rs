//! Byzantine backups, and their effect: none (K1-K17).

use quorate_pbft::client::step::ClientReject;
use quorate_pbft::config::{Config, MS};
use quorate_pbft::step::{Milestone, Reject};
use quorate_wire::{Kind, ReplicaId};

use super::liars::backups::{
    AnotherCheckpoint, AskFlood, HandOverStorm, LiesAboutResults, LyingSource, StaleReads, StateLie,
    TwiceInViewChange, VoteAhead, VoteSplit,
};
use super::liars::keys::{KeyFlood, MacSplit, OldKeys, ReplayOld, SecretKeys};
use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage};
use crate::adversary::backup::{
    BadViewChange, LyingCheckpoint, LyingReplies, LyingViewChange, Mute, Reflect, Unhelpful, VoteTwice,
    VoteUnseen,
};
use crate::adversary::mutate::Mutate;
use crate::adversary::noise::{Complain, OutOfRole, StatusFlood, ViewStorm};
use crate::adversary::sly::ForgedTree;
use crate::setup::Setup;

const EQUIVOCATION: Expect =
    Expect::Milestone("equivocation", |_, m| matches!(m, Milestone::Equivocation { .. }));
const VIEW_CHANGES: Expect = Expect::Count("view-changes", |c| c.view_changes);
const TRANSFERS: Expect = Expect::Count("state-transfers", |c| c.state_transfers);
const NEW_KEYS: Expect = Expect::Count("NEW-KEY", |c| c.kinds.get("NEW-KEY").copied().unwrap_or(0));
/// The walk of a correct replica's transfer has turned an answer away.
const REFUSED: Expect = Expect::Count("refused-answers", |c| c.refused_answers);
/// The lies of a liar that withholds messages can be counted only at the liar.
const WITHHELD: Expect = Expect::Count("withheld", |c| c.lies);
/// A client's authenticator has refused a reply.
const WRONG_RESULT: Expect =
    Expect::Count("wrong-digest", |c| c.client_rejects.get("wrong-digest").copied().unwrap_or(0));

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new("k1_two_votes", &["K1", "B1"], "Two PREPAREs and two COMMITs for each number, to everyone")
        .expects(&[Expect::Astray, EQUIVOCATION, Expect::Reject(Reject::Conflicts)])
        .views_max(|_| 0)
        .with(|setup| setup.lying_backups(|| VoteTwice)),
    Scenario::new(
        "k1_split_votes",
        &["K1"],
        "Votes for one batch go to one half, for another to the rest; all Byzantine replicas send the same",
    )
    .expects(&[Expect::Astray])
    .views_max(|_| 0)
    .with(|setup| setup.lying_backups(|| VoteSplit)),
    Scenario::new("k2_prepare_unproposed", &["K2"], "PREPAREs for numbers without a proposal")
        .expects(&[Expect::Astray, EQUIVOCATION, Expect::Reject(Reject::Conflicts)])
        .views_max(|_| 0)
        .with(|setup| setup.lying_backups(VoteAhead::prepares)),
    Scenario::new(
        "k1_complaints",
        &["K1"],
        "f replicas claim of every request that they cannot verify it: no view ends because of that (AU-5)",
    )
    .expects(&[Expect::Heard(Kind::ReqReject), Expect::Count("REQ-ACK", |c| c.kinds.get("REQ-ACK").copied().unwrap_or(0))])
    .views_max(|_| 0)
    .with(|setup| setup.lying_backups(|| Complain)),
    Scenario::new(
        "k4_out_of_role",
        &["K4"],
        "r1 sends messages that its role does not allow: proposals as a backup, PREPAREs as the primary",
    )
    .expects(&[
        Expect::Reject(Reject::NotFromPrimary),
        Expect::Reject(Reject::FromPrimary),
        Expect::Reject(Reject::FixedByNewView),
        Expect::Reject(Reject::BadLeaveCert),
    ])
    .with(|setup| setup.liar(ReplicaId(1), OutOfRole::default))
    .play(|stage| {
        stage.busy(10)?;
        stage.world.pause(0, 400 * MS);
        stage.until_view(1, 20_000 * MS)?;
        stage.busy(30)
    }),
    Scenario::new("k3_commit_unprepared", &["K3"], "COMMITs and COMMITTEDs for batches that have not prepared")
        .expects(&[
            Expect::Astray,
            EQUIVOCATION,
            Expect::Reject(Reject::Conflicts),
            Expect::Heard(Kind::Committed),
        ])
        .views_max(|_| 0)
        .with(|setup| setup.lying_backups(VoteAhead::commits)),
    Scenario::new(
        "k4_other_views",
        &["K4"],
        "Votes for the previous view, the next one, and one a thousand views later",
    )
    .expects(&[Expect::Reject(Reject::OtherView), Expect::Heard(Kind::Prepare)])
    .views_max(|_| 0)
    .with(|setup| setup.lying_backups(VoteUnseen::default)),
    Scenario::new("k5_silent", &["K5"], "f backups send nothing: the others are exactly a quorum")
        .expects(&[WITHHELD, Expect::Noted("nothing heard")])
        .views_max(|_| 0)
        .with(|setup| setup.lying_backups(|| Mute { answers_below: 0 }))
        .play(|stage| heard_by_those_below(stage, 0, "nothing heard")),
    Scenario::new("k5_answers_some", &["K5"], "f backups answer r0 and r1 only")
        .expects(&[WITHHELD, Expect::Heard(Kind::Prepare), Expect::Noted("heard by some")])
        .views_max(|_| 0)
        .with(|setup| setup.lying_backups(|| Mute { answers_below: 2 }))
        .play(|stage| heard_by_those_below(stage, 2, "heard by some")),
    Scenario::new(
        "k5_unhelpful",
        &["K5"],
        "f backups vote but retransmit nothing; a correct one was disconnected",
    )
    .expects(&[Expect::Noted("asked in vain"), Expect::Noted("caught up")])
    .views_max(|_| 0)
    .with(|mut setup| {
        // No checkpoint comes soon: batches fill the gap.
        setup.config.checkpoint_interval = 128;
        setup.config.window = 256;
        setup.lying_backups(|| Unhelpful)
    })
    .play(|stage| {
        let late = [ReplicaId(1)];
        stage.isolate(&late);
        stage.busy(12)?;
        stage.quiet()?;
        let (target, lies) = (stage.world.committed(), stage.world.counters().lies);
        stage.mend();
        stage.until_executed(&late, target, 1_000 * MS)?;
        stage.note("caught up");
        if stage.world.counters().lies > lies {
            stage.note("asked in vain");
        }
        stage.require(stage.world.counters().state_transfers == 0, "batches, not states, fill the gap (ST-5)")
    }),
    // Against f claims of equal view only the word of every correct replica decides (DP-5): until those that
    // are paused are back, views come and go.
    Scenario::new("k6_vc_forged", &["K6"], "VIEW-CHANGEs claim that a batch prepared that did not prepare")
        .expects(&[Expect::Named, VIEW_CHANGES])
        .with(|setup| lying_view_change(setup, BadViewChange::Forged))
        .play(leave_view_0),
    Scenario::new("k6_vc_later", &["K6"], "VIEW-CHANGEs claim a later view for a batch that prepared")
        .expects(&[Expect::Named, VIEW_CHANGES])
        .views_max(|_| 1)
        .with(|setup| lying_view_change(setup, BadViewChange::Later))
        .play(leave_view_0),
    Scenario::new("k6_vc_stale", &["K6"], "VIEW-CHANGEs with an old stable checkpoint and nothing prepared")
        .expects(&[Expect::Named, VIEW_CHANGES])
        .views_max(|_| 1)
        .with(|setup| lying_view_change(setup, BadViewChange::Stale))
        .play(leave_view_0),
    Scenario::new(
        "k6_vc_checkpoint",
        &["K6", "K9"],
        "VIEW-CHANGEs claim a checkpoint that does not exist yet",
    )
    .expects(&[Expect::Named, VIEW_CHANGES])
    .views_max(|_| 1)
    .with(|setup| lying_view_change(setup, BadViewChange::Checkpoint))
    .play(leave_view_0),
    Scenario::new(
        "k6_vc_sent_to_primary_only",
        &["K6", "B9"],
        "Byzantine replicas send VIEW-CHANGEs only to the new primary, which names them, and one other (A20)",
    )
    .expects(&[Expect::Named, Expect::Count("VC-FETCH", |c| c.kinds.get("VC-FETCH").copied().unwrap_or(0))])
    .views_max(|_| 1)
    .with(|setup| lying_view_change(setup, BadViewChange::ToFew))
    .play(leave_view_0),
    Scenario::new("k6_vc_two", &["K6"], "Two different VIEW-CHANGEs for one view, each to one half")
        .expects(&[EQUIVOCATION, Expect::Reject(Reject::SecondVersion), VIEW_CHANGES])
        .views_max(|_| 1)
        .with(|setup| lying_view_change(setup, BadViewChange::Two))
        .play(leave_view_0),
    Scenario::new("k6_dup_entries_vc", &["K6", "B1"], "VIEW-CHANGEs that name a number twice (A17)")
        .expects(&[Expect::Door("malformed"), VIEW_CHANGES])
        .with(|setup| setup.lying_backups(|| TwiceInViewChange))
        .play(|stage| {
            // The new primary can't do without r0: the liars' VIEW-CHANGEs are worth nothing.
            stage.busy(10)?;
            stage.world.pause(0, 400 * MS);
            stage.until_view(1, 20_000 * MS)?;
            stage.busy(20)
        }),
    Scenario::new("k7_view_storm", &["K7", "B7"], "VIEW-CHANGEs and SUSPECTs for the next thousand views")
        .expects(&[Expect::Reject(Reject::BadViewChange), Expect::Heard(Kind::Suspect)])
        .views_max(|_| 0)
        .with(|setup| setup.lying_backups(ViewStorm::default))
        .play(|stage| {
            stage.busy(40)?;
            stage.pass(300 * MS)
        }),
    Scenario::new(
        "k7_hand_over_storm",
        &["K7"],
        "Byzantine replicas hand over every later view in which they are primary (LV-2)",
    )
    .expects(&[Expect::Heard(Kind::Suspect), Expect::Heard(Kind::ViewChange)])
    .views_max(|_| 0)
    .with(|setup| setup.lying_backups(HandOverStorm::default))
    .play(|stage| {
        stage.busy(40)?;
        stage.pass(300 * MS)
    }),
    Scenario::new("k8_hidden", &["K8"], "VIEW-CHANGEs hide all batches that have prepared")
        .expects(&[Expect::Named, VIEW_CHANGES])
        .views_max(|_| 1)
        .with(|setup| lying_view_change(setup, BadViewChange::Hidden))
        .play(leave_view_0),
    Scenario::new(
        "k9_lying_checkpoint",
        &["K9"],
        "A wrong digest for every checkpoint, the same from all Byzantine replicas",
    )
    .expects(&[Expect::Heard(Kind::Checkpoint)])
    .views_max(|_| 0)
    .with(|setup| setup.lying_backups(|| AnotherCheckpoint))
    .play(|stage| {
        stage.busy(60)?;
        let counters = stage.world.counters();
        stage.require(counters.divergences == 0, "f liars make nobody doubt its own state (CK-6)")?;
        stage.require(counters.state_transfers == 0, "f liars make nobody fetch state (ST-1)")
    }),
    Scenario::new(
        "k10_future_checkpoint",
        &["K10"],
        "Checkpoints of future numbers, and of numbers that are not checkpoints",
    )
    .expects(&[Expect::Heard(Kind::Checkpoint), Expect::Reject(Reject::NotACheckpoint)])
    .views_max(|_| 0)
    .with(|setup| setup.lying_backups(|| LyingCheckpoint { future: true }))
    .play(|stage| {
        stage.busy(60)?;
        stage.require(stage.world.counters().state_transfers == 0, "f liars make nobody fetch state (CK-5)")
    }),
    Scenario::new(
        "k11_lying_replies",
        &["K11"],
        "Replies with wrong results, or for other requests, lanes or views",
    )
    .expects(&[Expect::ClientReject(ClientReject::OtherRequest), WRONG_RESULT])
    .views_max(|_| 0)
    .with(|setup| setup.lying_backups(|| LyingReplies)),
    Scenario::new(
        "k11_read_after_weak_write",
        &["K11"],
        "A reader gets the same old value from f Byzantine replicas and f that are behind (A12)",
    )
    .expects(&[
        Expect::Count("stale-answers", |c| c.lies),
        Expect::Count("read-fallbacks", |c| c.read_fallbacks),
    ])
    .views_max(|_| 0)
    .with(|setup| setup.lying_backups(StaleReads::default))
    .play(read_after_write),
    Scenario::new(
        "k11_read_after_one_reply",
        &["K11"],
        "One correct replica executed a write, others prepared it; Byzantine ones send readers the old value (A12)",
    )
    .expects(&[
        Expect::Count("stale-answers", |c| c.lies),
        Expect::Noted("the write waits for a quorum"),
    ])
    .with(|setup| {
        let config = Config { tentative: false, ..setup.config };
        Setup { config, ..setup }.lying_backups(StaleReads::default)
    })
    .play(read_after_one_reply),
    Scenario::new(
        "k12_wrong_result",
        &["K12"],
        "The right digest with another result, from the replica that sends the result",
    )
    .expects(&[WRONG_RESULT])
    .views_max(|_| 0)
    .with(|setup| setup.lying_backups(|| LiesAboutResults)),
    Scenario::new(
        "k13_garbage_source",
        &["K13", "B18"],
        "A replica that fetches state is given damaged nodes and pages (A32)",
    )
    .expects(&[REFUSED, TRANSFERS])
    .with(|setup| setup.lying_backups(|| LyingSource::new(StateLie::Garbage)))
    .play(fetch_state),
    Scenario::new(
        "k13_slowloris_source",
        &["K13", "B19"],
        "The sources of a state transfer stop responding midway (A32)",
    )
    .expects(&[WITHHELD, TRANSFERS])
    .with(|setup| setup.lying_backups(|| LyingSource::new(StateLie::StopsMidway)))
    .play(fetch_state),
    Scenario::new(
        "k13_stale_source",
        &["K13"],
        "A replica that fetches state is offered nodes and pages of another checkpoint",
    )
    .expects(&[REFUSED, TRANSFERS])
    .with(|setup| setup.lying_backups(|| LyingSource::new(StateLie::Stale)))
    .play(fetch_state),
    Scenario::new(
        "k13_endless_source",
        &["K13"],
        "Nodes with too many children, pages with too many bytes",
    )
    .expects(&[REFUSED, TRANSFERS])
    .with(|setup| setup.lying_backups(|| LyingSource::new(StateLie::More)))
    .play(fetch_state),
    Scenario::new("k13_forged_tree", &["K13", "B18"], "Made-up pages, under nodes that have their digests (ST-2)")
        .expects(&[REFUSED, TRANSFERS])
        .with(|setup| {
            let domains = setup.config.domains();
            setup.lying_backups(move || ForgedTree::new(domains.clone()))
        })
        .play(|stage| (0..8).try_for_each(|_| fetch_state(stage))),
    Scenario::new("k14_status_flood", &["K14"], "STATUS messages that request every message, five hundred a second")
        .expects(&[Expect::Reject(Reject::TooSoon), Expect::Heard(Kind::Status)])
        .views_max(|_| 0)
        .with(|setup| setup.lying_backups(StatusFlood::default)),
    Scenario::new("k14_ask_flood", &["K14"], "Requests for everything that replicas send on request, two thousand a second")
        .expects(&[
            Expect::Reject(Reject::TooSoon),
            Expect::Heard(Kind::BodyFetch),
            Expect::Heard(Kind::ReqAck),
        ])
        .views_max(|_| 0)
        .with(|setup| setup.lying_backups(AskFlood::default)),
    Scenario::new(
        "k15_mac_split_replica",
        &["K15"],
        "Authenticators of f backups that are wrong for the last f receivers, on every kind of message (A2)",
    )
    .expects(&[Expect::Door("not-authentic")])
    .views_max(|_| 0)
    .with(|setup| {
        let count = setup.config.cluster.f();
        let ids: Vec<ReplicaId> = setup.config.cluster.replicas().skip(1).take(count).collect();
        ids.into_iter().fold(setup, |setup, id| setup.liar(id, move || MacSplit { count }))
    }),
    Scenario::new(
        "k15_mac_split_primary",
        &["K15"],
        "Authenticators of the primary that are wrong for the last f backups, on every kind of message (A2)",
    )
    .expects(&[Expect::Door("not-authentic")])
    .views_max(|_| 0)
    .with(|setup| {
        let count = setup.config.cluster.f();
        setup.lying_primaries(move || MacSplit { count })
    }),
    Scenario::new("k16_old_keys", &["K16"], "Old NEW-KEY messages of other replicas are sent again")
        .expects(&[Expect::Door("stale-key")])
        .views_max(|_| 0)
        .with(|setup| setup.lying_backups(OldKeys::default))
        .play(renew_keys),
    Scenario::new(
        "k16_replay",
        &["K16"],
        "Old messages of all nodes are sent again, also under old keys",
    )
    .expects(&[Expect::Door("stale-key"), Expect::Door("no-key")])
    .views_max(|_| 0)
    .with(|setup| setup.lying_backups(ReplayOld::default))
    .play(renew_keys),
    Scenario::new("k16_secret_keys", &["K16"], "f backups use new session keys without announcing them")
        .expects(&[Expect::Door("no-key"), WITHHELD])
        .views_max(|_| 0)
        .with(|setup| setup.lying_backups(|| SecretKeys))
        .play(renew_all_keys),
    Scenario::new(
        "k16_new_key_flood",
        &["K16"],
        "A NEW-KEY that fits no secret key every millisecond, the neutral element among them; last, the largest time",
    )
    .expects(&[Expect::Door("stale-key"), Expect::Door("no-key"), NEW_KEYS])
    .views_max(|_| 0)
    .with(|setup| setup.lying_backups(KeyFlood::default))
    .play(renew_all_keys),
    Scenario::new("k17_reflect", &["K17"], "Messages are sent back to their senders, and as messages of other kinds")
        .expects(&[Expect::Door("own-identity"), Expect::Door("not-authentic"), Expect::Door("malformed")])
        .views_max(|_| 0)
        .with(|setup| setup.lying_backups(Reflect::default)),
    Scenario::new(
        "k4_small_changes",
        &["K4", "K1", "K6"],
        "One field of every second message is slightly wrong",
    )
    .expects(&[Expect::Astray, Expect::Reject(Reject::Conflicts), Expect::Door("malformed")])
    .views_max(|_| 0)
    .with(|setup| setup.lying_backups(|| Mutate::new(2)))
    .play(|stage| stage.busy(240)),
];

/// Clients are busy, and of what the last `f` say only the first `below` replicas hear anything.
fn heard_by_those_below(stage: &mut Stage, below: usize, noted: &'static str) -> Ended {
    stage.busy(40)?;
    let last = stage.last_f();
    let correct = stage.all_but(&last);
    let evidence = stage.evidence();
    let as_told =
        |at: &ReplicaId| last.iter().all(|from| (evidence.said(*from, *at) > 0) == (at.index() < below));
    if correct.iter().all(as_told) {
        stage.note(noted);
    }
    Ok(())
}

/// The last `f` lie in their VIEW-CHANGEs.
fn lying_view_change(setup: Setup, how: BadViewChange) -> Setup {
    setup.lying_backups(move || LyingViewChange(how))
}

/// `f` correct replicas, the first primary among them, are paused for a while: the new view rests on the
/// liars, too.
fn leave_view_0(stage: &mut Stage) -> Ended {
    stage.busy(10)?;
    let f = stage.cluster().f();
    for h in [0, 2].into_iter().take(f) {
        stage.world.pause(h, 600 * MS);
    }
    stage.until_view(1, 20_000 * MS)?;
    stage.busy(20)
}

/// A write completes while `f` correct replicas are behind; then a client reads.
fn read_after_write(stage: &mut Stage) -> Ended {
    stage.answer(0, 0, "put x old", 5_000 * MS)?;
    stage.answer(1, 0, "get x", 5_000 * MS)?;
    let behind: Vec<ReplicaId> = stage.all().into_iter().skip(1).take(stage.cluster().f()).collect();
    stage.isolate(&behind);
    stage.answer(0, 0, "put x new", 5_000 * MS)?;
    let read = stage.answer(1, 0, "get x", 5_000 * MS)?;
    stage.require(read == "ok new", format!("a read after the write gives \"{read}\" (CL-8)"))?;
    stage.mend();
    stage.busy(20)
}

/// A write of which the primary and the liars alone know that it committed, and a read after it: f + 1 replies
/// must not be enough for the write, or the read, which a quorum answers, would be of the time before it.
fn read_after_one_reply(stage: &mut Stage) -> Ended {
    stage.answer(0, 0, "put x old", 5_000 * MS)?;
    stage.answer(1, 0, "get x", 5_000 * MS)?;
    let (all, liars) = (stage.all(), stage.last_f());
    let others: Vec<ReplicaId> = all.iter().copied().skip(1).filter(|id| !liars.contains(id)).collect();
    stage.mute(Kind::Commit, &all, &others);
    stage.ask(0, 0, "put x new");
    let executed = stage.executed(ReplicaId(0)) + 1;
    stage.until_executed(&[ReplicaId(0)], executed, 50 * MS)?;
    stage.pass(5 * MS)?;
    if stage.world.clients[0].lanes[0].outstanding.is_some() {
        stage.note("the write waits for a quorum");
    }
    stage.answer(1, 0, "get x", 30 * MS)?;
    stage.mend();
    stage.busy(20)
}

/// A correct backup is cut off until it has to fetch state, then it has liars among its sources.
fn fetch_state(stage: &mut Stage) -> Ended {
    let late = [ReplicaId(1)];
    stage.isolate(&late);
    for k in 0..24 {
        stage.answer(0, 0, &format!("put key{k} {}", "v".repeat(200)), 5_000 * MS)?;
    }
    stage.busy(20)?;
    stage.mend();
    let target = stage.world.committed();
    stage.busy(10)?;
    stage.until_executed(&late, target, 5_000 * MS)
}

/// Everyone renews its keys twice, the liars too.
fn renew_all_keys(stage: &mut Stage) -> Ended {
    stage.busy(20)?;
    for _ in 0..2 {
        for h in 0..stage.cluster().n() {
            stage.world.renew_keys(h);
        }
        stage.busy(15)?;
        stage.pass(1_100 * MS)?;
    }
    stage.busy(15)
}

/// Everyone renews its keys twice; the old ones are still good for two seconds (KX-4), then they are not.
fn renew_keys(stage: &mut Stage) -> Ended {
    for _ in 0..2 {
        for h in stage.correct() {
            stage.world.renew_keys(h);
        }
        stage.busy(15)?;
        stage.quiet()?;
    }
    stage.pass(2_100 * MS)?;
    stage.busy(15)
}
