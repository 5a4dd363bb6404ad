//! Faults that were found in this code, each with the shortest story that shows it (`docs/faults.md`, the last
//! section). One that is not fixed yet stands in [`crate::expected`].

use quorate_pbft::config::{Config, MS, RequestAuth};
use quorate_pbft::step::{Milestone, Reject};
use quorate_wire::{Kind, ReplicaId};

use super::found_liars::{ClaimsWhatOneHolds, EarlyHandOver, FarIncarnation, FarQuestions};
use super::host::{REJOIN_NS, everyone_remembers};
use super::liars::keys::KeyFlood;
use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage, highest_view};
use crate::adversary::backup::Mute;
use crate::adversary::client::Forgery;
use crate::adversary::plausible::PrivateProof;
use crate::adversary::sly::HandsOver;
use crate::app::App;
use crate::disk::Pace;
use crate::network::Delay;
use crate::setup::Setup;
use crate::world::Load;

const VIEW_CHANGES: Expect = Expect::Count("view-changes", |c| c.view_changes);
const REJOINED: Expect = Expect::Milestone("rejoined", |_, m| matches!(m, Milestone::Rejoined { .. }));
const TRANSFERRED: Expect =
    Expect::Milestone("state-transfer", |_, m| matches!(m, Milestone::TransferFinished { .. }));
const CLEANED: Expect = Expect::Count("cleaned", |c| c.faults.get("cleaned").copied().unwrap_or(0));

/// The longest that a replica may take to rejoin, which is a second where nothing is wrong.
const WAIT_NS: u64 = 8_000 * MS;
/// All that tells a replica what has committed.
const NEWS: &[Kind] = &[
    Kind::PrePrepare,
    Kind::Prepare,
    Kind::Commit,
    Kind::Committed,
    Kind::Checkpoint,
    Kind::Body,
    Kind::Status,
];

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "s1_old_view_change_after_a_rejoin",
        &["S1"],
        "A replica leaves its view alone, loses its disk and rejoins; its old VIEW-CHANGE arrives then (RC-11)",
    )
    .expects(&[Expect::Noted("it has left alone"), REJOINED, VIEW_CHANGES])
    .with(|setup| {
        let config =
            Config { checkpoint_interval: 4, window: 8, pipeline: 4, piggyback: false, tentative: false, ..setup.config };
        // A signed request needs no vouchers.
        Setup { config: Config { request_auth: RequestAuth::SigMac, ..config }, ..setup }
    })
    .play(old_view_change),
    Scenario::new(
        "d1_fetched_state_on_no_disk",
        &["D1"],
        "A replica fetches a checkpoint while its disk is slow, and announces it when the disk has it (D5)",
    )
    .expects(&[TRANSFERRED])
    .play(|stage| {
        let late = stage.last_f();
        stage.isolate(&late);
        stage.busy(60)?;
        for id in late {
            let h = stage.world.host_of(id);
            stage.world.set_disk(h, Pace::SLOW);
        }
        stage.mend();
        stage.busy(40)
    }),
    Scenario::new(
        "l2_private_proofs",
        &["L2"],
        "A liar supports another liar's false claim by PROOFs to the new primary only: the view change completes (DP-4)",
    )
    .sizes(&[7])
    .expects(&[Expect::Heard(Kind::ViewChange), Expect::Heard(Kind::Proof), VIEW_CHANGES])
    .views_max(|_| 1)
    .with(|setup| {
        // Several statuses fit into a time-out: what got lost of the first NEW-VIEW comes again.
        let config = Config { request_timeout_min_ns: 400 * MS, ..setup.config };
        Setup { config, ..setup }.liar(ReplicaId(0), || ClaimsWhatOneHolds::from(4)).liar(ReplicaId(6), PrivateProof::default)
    })
    .play(|stage| {
        // One correct replica is slow: a new primary has a quorum with the liar before it hears of that one.
        for h in [2, 3, 4] {
            let from = Some(stage.world.hosts[h].node);
            let by_ns = if h == 4 { 300 * MS } else { 2 * MS };
            let late = Delay { kind: Kind::ViewChange, from, numbers: None, by_ns };
            stage.world.network.schedule.delay(late);
        }
        stage.world.set_load(Load::Busy(MS, 5 * MS));
        stage.until("the first view has ended", 20_000 * MS, |w| highest_view(w) > 0)?;
        stage.pass(2_000 * MS)
    }),
    Scenario::new(
        "l3_clock_of_the_new_primary_behind",
        &["L3"],
        "The new primary's clock is a little behind that of the old one: its first proposal is good (ND-1)",
    )
    .expects(&[VIEW_CHANGES, Expect::Noted("taken over")])
    .views_max(|_| 1)
    .with(|setup| {
        let config = Config { tentative: false, piggyback: false, ..setup.config };
        Setup { config, clocks: vec![(400_000_000, 1_000_000)], ..setup }
    })
    .play(clock_behind),
    Scenario::new(
        "l7_restart_before_the_votes_of_a_new_view",
        &["L7"],
        "A backup restarts after a NEW-VIEW and before its votes for what that took over: it fetches and votes (D4)",
    )
    .sizes(&[4])
    .expects(&[VIEW_CHANGES, Expect::Noted("the NEW-VIEW is on the disk, and no vote")])
    .views_max(|_| 1)
    .with(|setup| {
        let config = Config {
            request_timeout_min_ns: 1_000 * MS,
            request_timeout_max_ns: 4_000 * MS,
            tentative: false,
            piggyback: false,
            ..setup.config
        };
        Setup { config, ..setup }
    })
    .play(restart_before_votes),
    Scenario::new(
        "l28_hand_over_before_its_view",
        &["L28"],
        "A liar hands its view over too early, and to one replica when that is there: all leave it when they come to it (LV-2)",
    )
    .sizes(&[4])
    .expects(&[VIEW_CHANGES, Expect::Noted("one waits for the others")])
    .with(|setup| {
        let config = Config { request_timeout_min_ns: 4_000 * MS, request_timeout_max_ns: 4_000 * MS, ..setup.config };
        Setup { config, ..setup }.liar(ReplicaId(1), EarlyHandOver::default)
    })
    .play(early_hand_over),
    Scenario::new(
        "l41_replicas_fall_back_by_a_crash_while_one_is_ahead",
        &["L41"],
        "A hand-over moves a replica to the next view; those who went with it crash, and forget it: they follow again (TM-3)",
    )
    .expects(&[VIEW_CHANGES, Expect::Noted("one is ahead of those who have fallen back")])
    .with(|setup| {
        let setup = setup.liar(ReplicaId(2), || HandsOver);
        let others = setup.last_f().into_iter().skip(1);
        others.fold(setup, |setup, id| setup.liar(id, || Mute { answers_below: 0 }))
    })
    .play(fall_back),
    Scenario::new(
        "l6_queue_of_one_client",
        &["L6"],
        "One client sends requests that cannot be ordered: a replica keeps a bounded number of them (SR-1)",
    )
    .expects(&[Expect::Noted("flooded")])
    .with(|setup| Setup { config: Config { clients_max: 4096, ..setup.config }, clients: 3, ..setup })
    .play(queue_of_one_client),
    Scenario::new(
        "l6_bytes_of_one_client",
        &["L6"],
        "One client sends long requests on many lanes: a replica keeps a bounded number of bytes of them (SR-1)",
    )
    .expects(&[Expect::Reject(Reject::OverQuota), Expect::Noted("flooded")])
    .with(|setup| Setup { config: Config { clients_max: 4096, ..setup.config }, clients: 3, ..setup })
    .play(|stage| {
        stage.busy(5)?;
        stage.quiet()?;
        let (r0, others) = ([ReplicaId(0)], stage.all_but(&[ReplicaId(0)]));
        stage.cut(&r0, &others);
        for lane in 0..20 {
            let frame = stage.world.forge(2, &Forgery::new(1, &[0; 1_000_000]).lane(lane));
            stage.world.post(2, r0[0], &frame);
        }
        stage.pass(100 * MS)?;
        stage.note("flooded");
        Ok(())
    }),
    Scenario::new(
        "l17_questions_far_ahead",
        &["L17"],
        "A liar sends FETCHes with numbers near the largest one; once healed, it gets answers again (ST-3)",
    )
    .expects(&[CLEANED, REJOINED, Expect::Noted("it has asked")])
    .with(|setup| setup.liar(ReplicaId(2), FarQuestions::default))
    .play(|stage| {
        let (liar, others) = (ReplicaId(2), stage.all_but(&[ReplicaId(2)]));
        stage.isolate(&[liar]);
        stage.busy(40)?;
        stage.mend();
        stage.world.set_load(Load::Busy(20 * MS, 60 * MS));
        stage.pass(3_000 * MS)?;
        stage.note("it has asked");
        let target = stage.world.committed();
        stage.until_executed(&others, target, 5_000 * MS)?;
        cleaned(stage, liar)
    }),
    Scenario::new(
        "l121_keys_of_the_far_future",
        &["L121", "K16"],
        "A liar signs NEW-KEYs with the largest time; once healed, its new keys are taken (KX-1)",
    )
    .expects(&[Expect::Door("stale-key"), CLEANED, REJOINED])
    .with(|setup| setup.liar(ReplicaId(2), KeyFlood::default))
    .play(|stage| {
        stage.busy(40)?;
        stage.pass(200 * MS)?;
        cleaned(stage, ReplicaId(2))
    }),
    Scenario::new(
        "l18_incarnation_far_ahead",
        &["L18"],
        "A liar announces a very large count of starts; once healed, it can restart (14.3)",
    )
    .expects(&[
        Expect::Milestone("rejoin started", |_, m| matches!(m, Milestone::RejoinStarted { .. })),
        CLEANED,
        REJOINED,
    ])
    .with(|setup| setup.liar(ReplicaId(2), || FarIncarnation))
    .play(|stage| {
        stage.busy(40)?;
        cleaned(stage, ReplicaId(2))?;
        // Once because it has, and once more if it is told of later starts.
        let began = stage.evidence().watched().next().unwrap_or(0);
        stage.require(began <= 2, format!("it has announced that it lost its memory {began} times"))?;
        // Nobody holds the false count against its next start, with its disk.
        let h = stage.world.host_of(ReplicaId(2));
        stage.world.crash(h);
        stage.world.restart_later(h, 10 * MS);
        let before = stage.world.committed();
        stage.until("it votes again", WAIT_NS, move |w| {
            w.checkers.facts(ReplicaId(2)).prepared.keys().any(|n| *n > before)
        })?;
        let again = stage.evidence().watched().next().unwrap_or(0) - began;
        stage.require(again == 0, "its disk is good, and it has announced that it lost its memory")
    }),
    Scenario::new(
        "l16_stable_beyond_a_repair",
        &["L16"],
        "While a wrong state is repaired, a later checkpoint becomes stable there: the repair does not end below it (I6)",
    )
    .expects(&[
        Expect::Milestone("diverged", |_, m| matches!(m, Milestone::Diverged { .. })),
        Expect::Noted("stable beyond the repair"),
        TRANSFERRED,
    ])
    .with(|setup| {
        let config = Config { request_timeout_min_ns: 1_000 * MS, request_timeout_max_ns: 2_000 * MS, ..setup.config };
        Setup { config, ..setup }
    })
    .play(stable_beyond_a_repair),
];

/// A liar is cleaned, and has rejoined in time.
fn cleaned(stage: &mut Stage, id: ReplicaId) -> Ended {
    let h = stage.world.host_of(id);
    stage.world.cleanse(h, 10 * MS);
    stage.pass(20 * MS)?;
    stage.world.set_load(Load::Busy(20 * MS, 60 * MS));
    stage.until("it has rejoined", WAIT_NS, everyone_remembers)
}

fn old_view_change(stage: &mut Stage) -> Ended {
    let (all, f) = (stage.all(), stage.cluster().f());
    let r0 = [all[0]];
    let suspicious = all[1..=f].to_vec();
    let victim = all[all.len() - 1];
    let behind = all[f + 1..=2 * f].to_vec();
    let (node, h) = (stage.world.hosts[stage.world.host_of(victim)].node, stage.world.host_of(victim));
    stage.fill(&all, 8)?;
    stage.until("all are stable", 2_000 * MS, |w| w.core_facts().all(|facts| facts.stable.0 == 8))?;
    // The victim and f others wait for a request of which nobody else knows. The victim hears that they suspect
    // the primary, and nobody hears of the victim.
    let until = stage.world.at + 20_000 * MS;
    for kind in [Kind::Suspect, Kind::ViewChange] {
        stage.world.network.schedule.hold(node, kind, 1_000, until);
    }
    let cut = [suspicious.clone(), vec![victim]].concat();
    stage.cut(&r0, &cut);
    let client = stage.world.clients[0].node;
    for id in stage.all_but(&cut) {
        let to = stage.world.hosts[stage.world.host_of(id)].node;
        stage.world.network.mute(client, to, Kind::Request);
    }
    stage.ask(0, 0, "incr n 1");
    stage.until("it has left", 10_000 * MS, move |w| w.checkers.facts(victim).view.0 == 1)?;
    stage.pass(20 * MS)?;
    stage.world.wipe(h);
    stage.mend();
    let alone = stage.all_but(&[victim]).iter().all(|id| stage.world.checkers.facts(*id).view.0 == 0);
    stage.require(alone, "others have left as well")?;
    stage.note("it has left alone");
    stage.world.restart(h);
    stage.world.set_load(Load::Busy(MS, 5 * MS));
    stage.until("it has rejoined", REJOIN_NS, everyone_remembers)?;
    stage.quiet()?;
    stage.pass(100 * MS)?;
    stage.require(stage.view() == 0, "a view change while it rejoined")?;
    // A batch commits without those behind.
    for kind in NEWS {
        stage.mute(*kind, &all, &behind);
    }
    stage.answer(0, 0, "incr n 1", 5_000 * MS)?;
    // The view ends before they have heard of it.
    stage.isolate(&r0);
    for kind in NEWS {
        stage.mute(*kind, &all, &behind);
    }
    stage.ask(1, 0, "incr n 1");
    stage.until("another view", 20_000 * MS, |w| highest_view(w) > 0)?;
    stage.pass(50 * MS)?;
    stage.mend();
    stage.until("the old VIEW-CHANGE has arrived", 60_000 * MS, move |w| w.at > until)
}

/// What a replica may keep of one client that nothing can be ordered for, in requests.
const WAITING_MAX: usize = 256;

fn queue_of_one_client(stage: &mut Stage) -> Ended {
    stage.busy(5)?;
    stage.quiet()?;
    let (r0, others) = ([ReplicaId(0)], stage.all_but(&[ReplicaId(0)]));
    stage.cut(&r0, &others);
    let pending = |stage: &Stage| {
        let text = stage.world.cards().swap_remove(0);
        let waiting = text.split_whitespace().find_map(|word| word.strip_prefix("pending="));
        waiting.and_then(|number| number.parse().ok()).unwrap_or(usize::MAX)
    };
    // A request of another client may not have committed here.
    let before = pending(stage);
    let operation = stage.world.app.parse("put false 1").map(|ask| ask.operation).unwrap_or_default();
    for lane in 0..1_000 {
        let frame = stage.world.forge(2, &Forgery::new(1, &operation).lane(lane));
        stage.world.post(2, r0[0], &frame);
    }
    stage.pass(20 * MS)?;
    stage.note("flooded");
    let waiting: usize = pending(stage).saturating_sub(before);
    stage.require(waiting <= WAITING_MAX, format!("r0 keeps {waiting} requests of one client"))
}

fn restart_before_votes(stage: &mut Stage) -> Ended {
    let (r0, r2, rest) = ([ReplicaId(0)], [ReplicaId(2)], [ReplicaId(1), ReplicaId(3)]);
    stage.busy(10)?;
    stage.quiet()?;
    // A batch prepares, r2 does not have it, and it does not commit.
    let next = stage.world.committed() + 1;
    stage.mute(Kind::PrePrepare, &r0, &r2);
    stage.mute_all(&[Kind::Commit, Kind::Committed, Kind::Body]);
    stage.ask(0, 0, "incr n 1");
    stage.until("it has prepared", 500 * MS, move |w| {
        rest.iter().all(|id| w.checkers.facts(*id).prepared.contains_key(&next))
    })?;
    // From here on every vote of the other three is needed, and r2 cannot vote without the body.
    stage.isolate(&r0);
    stage.until_entered(&[ReplicaId(1), ReplicaId(2), ReplicaId(3)], 1, 10_000 * MS)?;
    stage.pass(50 * MS)?;
    let voted = stage.world.checkers.facts(ReplicaId(2)).prepared.contains_key(&next);
    stage.require(!voted, "r2 has not got the batch")?;
    stage.note("the NEW-VIEW is on the disk, and no vote");
    stage.world.crash(2);
    stage.mend();
    stage.isolate(&r0);
    stage.world.restart(2);
    stage.until_executed(&[ReplicaId(1), ReplicaId(2), ReplicaId(3)], next, 900 * MS)
}

fn early_hand_over(stage: &mut Stage) -> Ended {
    let (r0, late) = ([ReplicaId(0)], [ReplicaId(2), ReplicaId(3)]);
    stage.busy(20)?;
    // Nobody waits for anything, and so nobody else suspects view 0.
    stage.quiet()?;
    // r0 hands view 0 over when it has restarted, and nobody but the liar hears of it.
    for kind in [Kind::Suspect, Kind::ViewChange] {
        stage.mute(kind, &r0, &late);
    }
    stage.world.crash(0);
    stage.world.restart_later(0, 10 * MS);
    stage.until("r0 has left view 0", 5_000 * MS, |w| w.checkers.facts(ReplicaId(0)).view.0 == 1)?;
    stage.pass(50 * MS)?;
    let behind = late.iter().all(|id| stage.world.checkers.facts(*id).view.0 == 0);
    stage.require(behind && stage.view() == 1, "the others are in view 0 still")?;
    stage.note("one waits for the others");
    stage.mend();
    stage.world.set_load(Load::Busy(0, 2 * MS));
    // Before a time-out ends the view.
    stage.until("everybody is in one view", 3_000 * MS, |w| {
        w.core_facts().all(|facts| facts.normal && facts.view.0 >= 2)
    })
}

fn fall_back(stage: &mut Stage) -> Ended {
    let (all, ahead, h) = (stage.all(), ReplicaId(1), 1);
    let back: Vec<usize> = stage.correct().into_iter().filter(|other| *other != h).collect();
    stage.busy(10)?;
    stage.quiet()?;
    // r0 hands view 0 over. r1 begins view 1, and nobody hears of that.
    stage.mute(Kind::NewView, &[ahead], &all);
    stage.world.crash(0);
    stage.world.restart_later(0, 10 * MS);
    stage.until("r1 has begun view 1, and all wait for it", 5_000 * MS, |w| {
        w.core_facts().all(|facts| facts.view.0 == 1) && w.checkers.facts(ahead).normal
    })?;
    stage.pass(20 * MS)?;
    // r1 hands view 1 over. All follow, but the disk of r1 alone knows of it before the crash.
    let never = Pace { low_ns: 60_000 * MS, high_ns: 60_000 * MS };
    for h in &back {
        stage.world.set_disk(*h, never);
    }
    stage.world.crash(h);
    stage.world.restart_later(h, 10 * MS);
    stage.until("all have left view 1", 5_000 * MS, |w| w.core_facts().all(|facts| facts.view.0 == 2))?;
    stage.pass(20 * MS)?;
    for h in &back {
        stage.world.lose_power(*h);
        stage.world.set_disk(*h, Pace::FAST);
        stage.world.restart(*h);
    }
    stage.mend();
    let views: Vec<u64> = stage.world.core_facts().map(|facts| facts.view.0).collect();
    let fallen = views.iter().filter(|view| **view == 1).count();
    stage.require(fallen == back.len() && views.contains(&2), format!("views {views:?}"))?;
    stage.note("one is ahead of those who have fallen back");
    stage.until_view(3, 10_000 * MS)
}

fn clock_behind(stage: &mut Stage) -> Ended {
    let r0 = [ReplicaId(0)];
    let backups = stage.all_but(&r0);
    stage.busy(10)?;
    stage.quiet()?;
    stage.pass(600 * MS)?;
    // A batch prepares, with the old primary's time, and does not commit.
    let next = stage.world.committed() + 1;
    stage.mute_all(&[Kind::Commit, Kind::Committed]);
    stage.ask(0, 0, "incr n 1");
    stage.until("it has prepared", 90 * MS, move |w| {
        backups.iter().all(|id| w.checkers.facts(*id).prepared.contains_key(&next))
    })?;
    stage.note("taken over");
    stage.isolate(&r0);
    // Everyone has this one, and the new primary proposes it at once.
    stage.ask(1, 0, &format!("put y {}", "z".repeat(400)));
    stage.until("another view", 20_000 * MS, |w| highest_view(w) > 0)?;
    stage.mend();
    stage.isolate(&r0);
    // What the new primary proposes arrives when what it has taken over is executed.
    let from = Some(stage.world.hosts[1].node);
    let late = Delay { kind: Kind::PrePrepare, from, numbers: None, by_ns: 20 * MS };
    stage.world.network.schedule.delay(late);
    stage.busy(20)?;
    stage.mend();
    stage.busy(20)
}

fn stable_beyond_a_repair(stage: &mut Stage) -> Ended {
    let all = stage.all();
    let victim = all[all.len() - 1];
    let h = stage.world.host_of(victim);
    stage.answer(1, 0, "incr y 1", 5_000 * MS)?;
    stage.fill(&all, 8)?;
    stage.until("all are stable", 2_000 * MS, |w| w.core_facts().all(|facts| facts.stable.0 == 8))?;
    // The last reply to c1, in the first place of the first page. The page is written at 9, this place at 17.
    stage.world.damage_state(h, in_the_first_page(40));
    for (number, by_ns) in [(16, 300 * MS), (0, 500 * MS)] {
        let delay = Delay { kind: Kind::Checkpoint, from: None, numbers: Some((number, 24)), by_ns };
        stage.world.network.schedule.delay(delay);
    }
    stage.fill(&all, 16)?;
    stage.answer(1, 0, "incr y 1", 5_000 * MS)?;
    stage.fill(&all, 24)?;
    let diverged = move |w: &mut crate::world::World<_>| w.checkers.facts(victim).diverged;
    stage.until("it sees that 16 is wrong", 2_000 * MS, diverged)?;
    for kind in [Kind::MetaData, Kind::Data] {
        stage.mute(kind, &all, &[victim]);
    }
    let facts = stage.world.checkers.facts(victim);
    stage.require(facts.transferring && facts.stable.0 < 24, "it repairs 16, and 24 is not stable there")?;
    // All that was wrong has been written since: with 24 for its target the repair has nothing to fetch.
    stage.until("24 is stable there", 2_000 * MS, move |w| w.checkers.facts(victim).stable.0 >= 24)?;
    stage.note("stable beyond the repair");
    stage.mend();
    stage.until("the repair is over", 5_000 * MS, move |w| !w.checkers.facts(victim).transferring)?;
    stage.busy(20)
}

/// Returns the choice of a damage that hits this byte of the first page, however many pages there are, up to 40.
fn in_the_first_page(byte: u64) -> u64 {
    let common = (1..=40_u64).fold(1, |all, n| all / gcd(all, n) * n);
    let fits = |choice: &u64| (choice >> 16) % 512 >= byte && (choice >> 16) % 512 < byte + 16;
    (1..1_000).map(|times| times * common).find(fits).unwrap_or(0)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
