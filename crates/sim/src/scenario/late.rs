//! Who comes late, or learns late: a replica that is far behind or gets a proposal late, a client that waits in vain, keys, and
//! a recovery request (L32, L33, L36, L65, L125, L133). Each of the mends has a story of its own, in which the others are of no use.

use quorate_pbft::config::{Config, MS};
use quorate_pbft::step::Milestone;
use quorate_wire::{ClientId, Kind, ReplicaId, Timestamp, ViewNum};

use super::host::{REJOIN_NS, everyone_remembers};
use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage, highest_view};
use crate::adversary::client::Forgery;
use crate::app::KvApp;
use crate::setup::Setup;
use crate::world::{Load, World};

const REJOINED: Expect = Expect::Milestone("rejoined", |_, m| matches!(m, Milestone::Rejoined { .. }));
const TRANSFERRED: Expect =
    Expect::Milestone("state-transfer", |_, m| matches!(m, Milestone::TransferFinished { .. }));
const VIEW_CHANGES: Expect = Expect::Count("view-changes", |c| c.view_changes);

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "l32_starts_again_while_another_is_paused",
        &["L32"],
        "The primary is killed under load and starts again far behind, while another replica is paused: it catches up (SM-1)",
    )
    .sizes(&[4])
    .expects(&[VIEW_CHANGES, Expect::Noted("far behind")])
    .views_max(|_| 1)
    .with(|setup| {
        let usual = Config::new(setup.config.cluster, setup.config.cluster_id);
        let config = Config {
            checkpoint_interval: usual.checkpoint_interval,
            window: usual.window,
            client_timeout_max_ns: usual.client_timeout_max_ns,
            view_timeout_max_ns: usual.view_timeout_max_ns,
            ..setup.config
        };
        Setup { config, clients: 1, lanes: 20, ..setup }
    })
    .play(starts_again_far_behind),
    Scenario::new(
        "l32_catches_up_without_waiting",
        &["L32"],
        "The votes of 1000 batches are lost on their way to a replica: it asks for more as soon as it has executed what it was sent (SM-1)",
    )
    .expects(&[Expect::Noted("far behind")])
    .views_max(|_| 0)
    .with(|setup| {
        let config = Config { checkpoint_interval: 1024, window: 2048, piggyback: false, ..setup.config };
        Setup { config, ..setup }
    })
    .play(catches_up),
    Scenario::new(
        "l32_proposal_comes_three_seconds_late",
        &["L32"],
        "f replicas are paused, and a proposal is 3 s late at another one, which the batch needs: that one accepts its old time (ND-2)",
    )
    .expects(&[Expect::Noted("it waits for one replica")])
    .views_max(|_| 0)
    .with(|setup| {
        let config = Config {
            request_timeout_min_ns: 8_000 * MS,
            request_timeout_max_ns: 8_000 * MS,
            view_timeout_max_ns: 60_000 * MS,
            ..setup.config
        };
        Setup { config, ..setup }
    })
    .play(late_proposal),
    Scenario::new(
        "l32_signed_after_a_mac",
        &["L32"],
        "f backups hold a request with a MAC, then all get it with a signature, and the proposals get lost: all suspect the primary (TM-2)",
    )
    .expects(&[VIEW_CHANGES, Expect::Noted("f backups have it with a MAC")])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(signed_after_a_mac),
    Scenario::new(
        "l33_primary_hears_of_requests_from_backups",
        &["L33"],
        "Requests took long, and then those to the primary get lost: the client soon waits less before it sends one to all (CL-2)",
    )
    .expects(&[Expect::Noted("the time-out is long")])
    .views_max(|_| 0)
    .with(|setup| Setup { clients: 1, lanes: 1, ..setup })
    .play(time_out_in_vain),
    Scenario::new(
        "l36_keys_of_backups_come_late",
        &["L36"],
        "A client starts with its cluster, and each replica is further away: no request leaves that only the primary can check (CL-11)",
    )
    .expects(&[Expect::Noted("the primary has keys, a quorum has not")])
    .views_max(|_| 0)
    .with(|setup| Setup { clients: 1, lanes: 1, introduced: false, ..setup })
    .play(keys_come_late),
    Scenario::new(
        "l36_backups_listen_late",
        &["L36"],
        "A client starts with its cluster, and its keys reach the primary only: it sends them again before the request (CL-11)",
    )
    .expects(&[Expect::Noted("the primary has keys, a quorum has not")])
    .views_max(|_| 0)
    .with(|setup| Setup { clients: 1, lanes: 1, introduced: false, ..setup })
    .play(backups_listen_late),
    Scenario::new(
        "l38_cluster_starts_again_under_a_client",
        &["L38"],
        "All replicas start again under an idle client, and its request tells the primary alone: no view is lost (CL-11)",
    )
    .expects(&[Expect::Noted("all have started again"), Expect::Noted("answered")])
    .with(|setup| Setup { clients: 1, lanes: 1, ..setup })
    .play(cluster_starts_again),
    Scenario::new(
        "l65_primary_cannot_check_a_request",
        &["L65"],
        "Only backups can check requests with MACs: they vouch, and the primary asks them for the requests (AU-6)",
    )
    .expects(&[Expect::Door("not-authentic"), Expect::Noted("ordered")])
    .views_max(|_| 0)
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| checked_by_the_last(stage, true)),
    Scenario::new(
        "l65_too_few_can_check_a_request",
        &["L65"],
        "2f replicas vouch for requests that no one else can check, f of them not to the primary: it keeps its view (TM-2)",
    )
    .expects(&[Expect::Door("not-authentic"), Expect::Noted("waited for")])
    .views_max(|_| 0)
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| {
        let (f, primary) = (stage.cluster().f(), stage.world.hosts[0].node);
        for h in stage.cluster().n() - f..stage.cluster().n() {
            let liar = stage.world.hosts[h].node;
            stage.world.network.mute(liar, primary, Kind::ReqAck);
        }
        checked_by_the_last(stage, false)
    }),
    Scenario::new(
        "l125_an_earlier_recovery_request_comes_late",
        &["L125"],
        "A replica loses its state twice, and its clock is set back in between: its first recovery request comes after the second (RC-6)",
    )
    .expects(&[REJOINED, Expect::Noted("the first request is executed after the second")])
    .play(recovery_request_comes_late),
    Scenario::new(
        "l133_clock_behind_after_a_transfer",
        &["L133"],
        "The next primary fetches a state of a time that its clock has not reached: its first proposal is good (ND-1)",
    )
    .sizes(&[4])
    .expects(&[VIEW_CHANGES, TRANSFERRED, Expect::Noted("its clock is behind the state")])
    .views_max(|_| 1)
    .with(|setup| Setup { clocks: vec![(1_500_000_000, 1_000_000)], ..setup })
    .play(clock_behind_the_state),
];

fn starts_again_far_behind(stage: &mut Stage) -> Ended {
    stage.world.set_load(Load::Busy(0, 1_000));
    stage.pass(100 * MS)?;
    stage.world.crash(0);
    let missed = stage.executed(ReplicaId(1));
    stage.until("another view", 1_000 * MS, |w| highest_view(w) > 0)?;
    stage.until_executed(&[ReplicaId(1), ReplicaId(2)], missed + 400, 5_000 * MS)?;
    stage.note("far behind");
    stage.world.pause(3, 60_000 * MS);
    stage.world.restart(0);
    stage.world.set_load(Load::Idle);
    // Nothing can be agreed without it. A view change has taken its time before, and clients wait for a while.
    stage.until("every request answered", 1_000 * MS, |w| w.outstanding().0 == 0)
}

fn catches_up(stage: &mut Stage) -> Ended {
    let (all, late) = (stage.all(), [stage.all()[stage.cluster().n() - 1]]);
    stage.answer(0, 0, "incr n 1", 5_000 * MS)?;
    // It has every proposal, and nobody's votes.
    for kind in [Kind::Prepare, Kind::Commit, Kind::Committed] {
        stage.mute(kind, &all, &late);
    }
    for _ in 0..1_000 {
        stage.answer(0, 0, "incr n 1", 5_000 * MS)?;
    }
    let target = stage.world.committed();
    stage.require(stage.executed(late[0]) + 900 < target, "it is not far behind")?;
    stage.note("far behind");
    stage.mend();
    // By then it has heard how far the others are. If it asked every 100 ms, the rest would take 200 ms at least.
    stage.until_executed(&late, 400, 1_000 * MS)?;
    stage.until_executed(&late, target, 100 * MS)
}

fn late_proposal(stage: &mut Stage) -> Ended {
    let (r0, paused) = (ReplicaId(0), stage.last_f());
    let all = stage.all();
    let late = all[all.len() - paused.len() - 1];
    stage.answer(0, 0, "incr n 1", 5_000 * MS)?;
    stage.pass(200 * MS)?;
    pause(stage, &paused);
    let before = stage.world.committed();
    let [from, to] = [r0, late].map(|id| stage.world.hosts[stage.world.host_of(id)].node);
    let until = stage.world.at + 3_000 * MS;
    stage.world.network.clog(from, to, until);
    stage.ask(0, 0, "incr n 1");
    stage.pass(2_900 * MS)?;
    stage.require(stage.world.committed() == before, "the batch needs the late replica")?;
    stage.note("it waits for one replica");
    stage.until("it is answered", 1_000 * MS, |w| w.outstanding().0 == 0)
}

fn signed_after_a_mac(stage: &mut Stage) -> Ended {
    const CLIENT: usize = 2;
    let (all, f, paused) = (stage.all(), stage.cluster().f(), stage.last_f());
    // Those in the middle, f of them, hold the request with a MAC; they are too few to vouch for it.
    let with_mac = &all[all.len() - 2 * f..all.len() - f];
    stage.answer(0, 0, "incr n 1", 5_000 * MS)?;
    stage.pass(200 * MS)?;
    pause(stage, &paused);
    stage.mute(Kind::PrePrepare, &all[..1], &all);
    let before = stage.world.committed();
    let request = Forgery::new(1, &super::client::operation(stage, 1));
    let frame = stage.world.forge(CLIENT, &request);
    for id in with_mac {
        stage.world.post(CLIENT, *id, &frame);
    }
    stage.pass(10 * MS)?;
    // As from a client that does not know anybody's newest key.
    let signed = stage.world.forge(CLIENT, &request.signed(true).spoiled(&all));
    stage.world.post_all(CLIENT, &signed);
    stage.note("f backups have it with a MAC");
    stage.until("another view", 2_000 * MS, |w| highest_view(w) > 0)?;
    stage.until("it is ordered", 2_000 * MS, move |w| w.committed() > before)
}

fn time_out_in_vain(stage: &mut Stage) -> Ended {
    let all = stage.all();
    let client = stage.world.clients[0].node;
    for _ in 0..40 {
        stage.answer(0, 0, "incr n 1", 5_000 * MS)?;
    }
    // The network becomes slower and slower, until each request takes 300 ms. None is sent again.
    for one_way in [1, 2, 3, 5, 8, 12, 18, 27, 40, 60, 90, 120, 150] {
        for id in &all {
            let node = stage.world.hosts[stage.world.host_of(*id)].node;
            stage.world.network.worsen(client, node, 0, one_way * MS);
            stage.world.network.worsen(node, client, 0, one_way * MS);
        }
        for _ in 0..14 {
            stage.answer(0, 0, "incr n 1", 5_000 * MS)?;
        }
    }
    stage.mend();
    stage.pass(500 * MS)?;
    let primary = stage.world.hosts[stage.world.host_of(ReplicaId(0))].node;
    stage.world.network.cut(client, primary, true);
    let mut took = Vec::new();
    for _ in 0..20 {
        let asked = stage.world.at;
        stage.answer(0, 0, "incr n 1", 5_000 * MS)?;
        took.push((stage.world.at - asked) / MS);
    }
    stage.require(took[0] > 300, format!("the first one is sent again after {} ms", took[0]))?;
    stage.note("the time-out is long");
    // A time-out that is too short is doubled, and part of it is random.
    stage.require(took[15..].iter().all(|ms| *ms < 300), format!("requests take {took:?} ms"))
}

fn keys_come_late(stage: &mut Stage) -> Ended {
    let client = stage.world.clients[0].node;
    for (id, i) in stage.all().into_iter().zip(0..) {
        let node = stage.world.hosts[stage.world.host_of(id)].node;
        stage.world.network.worsen(client, node, 0, i * 15 * MS);
        stage.world.network.worsen(node, client, 0, i * 15 * MS);
    }
    without_keys(stage, 40 * MS)?;
    stage.until("the first answer", 260 * MS, |w| w.outstanding().0 == 0)
}

fn backups_listen_late(stage: &mut Stage) -> Ended {
    let client = stage.world.clients[0].node;
    for id in stage.all().into_iter().skip(1) {
        let node = stage.world.hosts[stage.world.host_of(id)].node;
        stage.world.network.mute(client, node, Kind::NewKey);
    }
    without_keys(stage, 30 * MS)?;
    stage.mend();
    stage.until("the first answer", 50 * MS, |w| w.outstanding().0 == 0)
}

fn cluster_starts_again(stage: &mut Stage) -> Ended {
    let client = stage.world.clients[0].node;
    for backups_listen in [true, false] {
        // One replica makes a client doubt the others at most once in this time.
        stage.pass(30_000 * MS)?;
        // Too few for the client to know how long answers take: it asks again after 50 ms.
        stage.answer(0, 0, "incr n 1", 5_000 * MS)?;
        // Each start of a primary costs a view. In the end, the client asks the right one first.
        let knows = ViewNum(stage.view());
        for start in 0.. {
            (0..stage.cluster().n()).for_each(|h| stage.world.crash(h));
            (0..stage.cluster().n()).for_each(|h| stage.world.restart_later(h, 10 * MS));
            stage.pass(2_000 * MS)?;
            if stage.cluster().primary(ViewNum(stage.view())) == stage.cluster().primary(knows) {
                break;
            }
            stage.require(start < 50, "the primary that the client knows")?;
        }
        stage.note("all have started again");
        let view = stage.view();
        if !backups_listen {
            let primary = stage.cluster().primary(knows);
            for id in stage.all_but(&[primary]) {
                let node = stage.world.hosts[stage.world.host_of(id)].node;
                stage.world.network.mute(client, node, Kind::NewKey);
            }
        }
        stage.ask(0, 0, "incr n 1");
        stage.pass(100 * MS)?;
        stage.mend();
        stage.until("the answer", 2_000 * MS, |w| w.outstanding().0 == 0)?;
        stage.pass(500 * MS)?;
        stage.note("answered");
        stage.require(stage.view() == view, format!("view {} after view {view}", stage.view()))?;
    }
    Ok(())
}

/// A client sends requests that only the last `2f` replicas can check. Says whether they are to be ordered.
fn checked_by_the_last(stage: &mut Stage, ordered: bool) -> Ended {
    const CLIENT: usize = 2;
    let spoiled = stage.all();
    let spoiled = &spoiled[..spoiled.len() - 2 * stage.cluster().f()];
    stage.answer(0, 0, "incr n 1", 5_000 * MS)?;
    stage.pass(200 * MS)?;
    for t in 1..=4 {
        let before = stage.world.checkers.commands();
        let request = Forgery::new(t, &super::client::operation(stage, t)).spoiled(spoiled);
        let frame = stage.world.forge(CLIENT, &request);
        stage.world.post_all(CLIENT, &frame);
        stage.pass(1_000 * MS)?;
        let is_ordered = stage.world.checkers.commands() > before;
        stage.require(is_ordered == ordered, format!("request {t}: ordered {is_ordered}"))?;
        stage.note(if ordered { "ordered" } else { "waited for" });
    }
    Ok(())
}

/// Client 0 asks, and after `ns` the primary has exchanged keys with it, and a quorum has not.
fn without_keys(stage: &mut Stage, ns: u64) -> Ended {
    stage.ask(0, 0, "incr n 1");
    stage.pass(ns)?;
    let (cluster, missing) = (stage.cluster(), stage.world.clients[0].door.keys_missing());
    stage.require(
        (cluster.f() + 1..cluster.n()).contains(&missing),
        format!("keys of {missing} are missing"),
    )?;
    stage.note("the primary has keys, a quorum has not");
    Ok(())
}

fn pause(stage: &mut Stage, ids: &[ReplicaId]) {
    for id in ids {
        let h = stage.world.host_of(*id);
        stage.world.pause(h, 60_000 * MS);
    }
}

/// How far the clock is ahead when the first recovery request is made, in nanoseconds.
const AHEAD_NS: u64 = 3_600_000 * MS;

fn recovery_request_comes_late(stage: &mut Stage) -> Ended {
    let Some(victim) = stage.all().pop() else { unreachable!("a cluster has replicas") };
    let (others, h) = (stage.all_but(&[victim]), stage.world.host_of(victim));
    let node = stage.world.hosts[h].node;
    stage.busy(10)?;
    stage.quiet()?;
    let (at, began) = (stage.world.at, stage.world.now(0).wall_ns);
    stage.world.disturb_clock(h, i64::try_from(AHEAD_NS).unwrap_or(i64::MAX), 1_000_000);
    stage.world.network.schedule.hold(node, Kind::Request, 1_000, at + 2_000 * MS);
    stage.world.wipe(h);
    stage.world.restart(h);
    stage.pass(500 * MS)?;
    stage.world.network.schedule.heal();
    stage.world.disturb_clock(h, 0, 1_000_000);
    stage.world.wipe(h);
    stage.world.restart(h);
    // Its second request is executed, but it hears of no stable checkpoint, so its rejoin does not end.
    stage.mute(Kind::Checkpoint, &others, &[victim]);
    stage.world.set_load(Load::Busy(0, 20 * MS));
    let last = move |w: &mut World<KvApp>| {
        let executor = w.process(0).map(quorate_process::Process::executor_mut);
        let last = executor.and_then(|executor| executor.cached(ClientId(victim.0.into())).ok()?);
        last.map_or(Timestamp(0), |last| last.timestamp)
    };
    stage.until("the second request is executed", 1_000 * MS, move |w| last(w) > Timestamp(0))?;
    let second = last(&mut stage.world);
    stage.require(second.0 < began + AHEAD_NS, "the first one was executed before")?;
    stage.until("the first request is executed", 5_000 * MS, move |w| last(w).0 >= began + AHEAD_NS)?;
    stage.note("the first request is executed after the second");
    stage.world.set_load(Load::Idle);
    stage.mend();
    stage.until("it has rejoined", REJOIN_NS, everyone_remembers)
}

fn clock_behind_the_state(stage: &mut Stage) -> Ended {
    let (r0, r1) = ([ReplicaId(0)], [ReplicaId(1)]);
    let others = stage.all_but(&r1);
    stage.isolate(&r1);
    stage.fill(&others, 32)?;
    stage.mend();
    stage.until_executed(&r1, 32, 2_000 * MS)?;
    // What it votes for from here on it has to know from the state.
    stage.isolate(&r0);
    stage.note("its clock is behind the state");
    stage.answer(0, 0, "incr n 1", 2_000 * MS)?;
    stage.mend();
    stage.busy(20)
}
