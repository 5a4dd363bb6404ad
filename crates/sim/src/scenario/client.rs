//! Clients that lie, clients that send too much, and the effect on the others (C1-C7). Replicas that are to collect
//! replies for clients and do not (RP-6).

use quorate_pbft::config::{Config, MS};
use quorate_pbft::step::{Milestone, Reject};
use quorate_wire::message::OPERATION_BYTES_MAX;
use quorate_wire::{Kind, ReplicaId, ViewNum};

use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage};
use crate::adversary::client::Forgery;
use crate::adversary::collector::BadCollector;
use crate::network::Delay;
use crate::report::Rule;
use crate::setup::Setup;
use crate::world::Load;

/// Maximum number of views that a client may cost whose lies stay the same: the first primary that believes it
/// learns of its standing (AU-5).
const VIEWS_MAX: u64 = 1;

const PROBATION: Expect =
    Expect::Milestone("on probation", |_, m| matches!(m, Milestone::OnProbation { .. }));

/// A correct replica has vouched for a request.
const ACKS: Expect = Expect::Count("REQ-ACK", |c| c.kinds.get("REQ-ACK").copied().unwrap_or(0));

/// Requests of each lane whose replies a faulty replica collects.
const COLLECTED_REQUESTS: u64 = 300;
/// How long they may take. They take about 1 s; if clients did not avoid the replica, 2 to 10 s.
const COLLECTED_NS: u64 = 1_600 * MS;

/// REPLYs came by way of another replica.
const COLLECTED: Expect = Expect::Count("COLLECT", |c| c.kinds.get("COLLECT").copied().unwrap_or(0));

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "c1_b31_mac_for_the_primary_only",
        &["C1", "B31"],
        "A client's authenticator is valid for the primary and no backup; correct clients continue (A1)",
    )
    .expects(&[Expect::Reject(Reject::UnprovenRequest), PROBATION, Expect::Reject(Reject::OnProbation)])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| {
        split_mac(stage, |stage| stage.cluster().replicas().skip(1).collect(), VIEWS_MAX)
    }),
    Scenario::new(
        "c1_b31_mac_for_the_backups_only",
        &["C1", "B31"],
        "A client's authenticator is valid for the backups and not the primary: no view change (A1)",
    )
    .expects(&[Expect::Door("not-authentic")])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| split_mac(stage, |_| vec![ReplicaId(0)], 0)),
    Scenario::new(
        "c1_b31_mac_for_too_few_backups",
        &["C1", "B31"],
        "A client's authenticator is valid for f backups only: they alone vouch, and no view change (TM-2)",
    )
    .expects(&[Expect::Door("not-authentic")])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| {
        let all_but_f = |stage: &Stage| {
            let cluster = stage.cluster();
            cluster.replicas().take(cluster.n() - cluster.f()).collect()
        };
        split_mac(stage, all_but_f, 0)
    }),
    Scenario::new(
        "c1_b31_mac_for_one_backup_each",
        &["C1", "B31"],
        "Each lane's authenticator is valid for one backup, a different one each: none vouches with it (TM-2)",
    )
    .expects(&[Expect::Door("not-authentic"), ACKS])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| {
        let liar = liar(stage);
        stage.world.set_load(Load::Busy(5 * MS, 15 * MS));
        for t in 1..=4 {
            for (backup, lane) in stage.cluster().replicas().skip(1).zip(0..) {
                let spoiled = stage.all_but(&[backup]);
                let forgery = Forgery::new(t, &operation(stage, t)).lane(lane).spoiled(&spoiled);
                post(stage, liar, &forgery);
            }
            stage.pass(300 * MS)?;
        }
        stage.require(stage.view() == 0, format!("view {} because of one client", stage.view()))
    }),
    Scenario::new(
        "c1_b31_mac_for_each_primary",
        &["C1", "B31"],
        "A client's authenticator is valid for the primary only: each primary is deceived once (AU-5)",
    )
    .expects(&[PROBATION])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| {
        let n = stage.cluster().n();
        let spoiled = |stage: &Stage| {
            let primary = stage.cluster().primary(ViewNum(stage.view()));
            stage.cluster().replicas().filter(|id| *id != primary).collect()
        };
        split_mac(stage, spoiled, u64::try_from(n).unwrap_or(0))
    }),
    Scenario::new(
        "c1_b31_mac_with_many_lanes",
        &["C1", "B31"],
        "A Byzantine client uses a new lane each time: probation applies to the principal (AU-5)",
    )
    .expects(&[PROBATION])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| {
        let liar = liar(stage);
        stage.world.set_load(Load::Busy(5 * MS, 15 * MS));
        for lane in 0..20 {
            let primary = stage.cluster().primary(ViewNum(stage.view()));
            let spoiled: Vec<ReplicaId> = stage.cluster().replicas().filter(|id| *id != primary).collect();
            let forgery = Forgery::new(1, &operation(stage, 1)).lane(lane).spoiled(&spoiled);
            post(stage, liar, &forgery);
            stage.pass(50 * MS)?;
        }
        let most = u64::try_from(stage.cluster().n()).unwrap_or(0);
        stage.require(stage.view() <= most, format!("view {} because of one client", stage.view()))
    }),
    Scenario::new(
        "c1_wrong_signature",
        &["C1"],
        "A client on probation sends a wrong signature under a valid MAC: proven faulty, it is excluded (AU-1)",
    )
    .expects(&[PROBATION, Expect::Reject(Reject::BadSignature), Expect::Reject(Reject::Blacklisted)])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| {
        let liar = liar(stage);
        let backups: Vec<ReplicaId> = stage.cluster().replicas().skip(1).collect();
        stage.world.set_load(Load::Busy(5 * MS, 10 * MS));
        for t in 1..=30 {
            let forgery = Forgery::new(t, &operation(stage, t));
            // On probation everywhere once the first has been proposed.
            let forgery = if t == 1 { forgery.spoiled(&backups) } else { forgery.signed(false) };
            post(stage, liar, &forgery);
            stage.pass(20 * MS)?;
        }
        stage.require(stage.view() <= VIEWS_MAX, format!("view {} because of one client", stage.view()))
    }),
    Scenario::new(
        "c2_timestamps_out_of_order",
        &["C2"],
        "A client's timestamps jump to the largest, go back, and repeat",
    )
    .expects(&[
        Expect::Reject(Reject::OldTimestamp),
        Expect::Count("executed twice, had it been taken", |c| c.rejects.get("too-soon").copied().unwrap_or(0)),
    ])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| {
        let liar = liar(stage);
        stage.world.set_load(Load::Busy(2 * MS, 5 * MS));
        for t in [5, 5, 5, 1 << 40, 3, 1 << 40, 4, u64::MAX, u64::MAX, 1, u64::MAX - 1, u64::MAX] {
            let forgery = Forgery::new(t, &operation(stage, t));
            post(stage, liar, &forgery);
            stage.pass(4 * MS)?;
        }
        stage.busy(20)
    }),
    Scenario::new(
        "c3_two_bodies_same_t",
        &["C3"],
        "Two operations with one timestamp go to different replicas, small ones and large ones (A8, SR-5)",
    )
    .expects(&[Expect::Reject(Reject::SameTimestamp)])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| {
        let liar = liar(stage);
        stage.world.set_load(Load::Busy(2 * MS, 5 * MS));
        for t in 1..=12_u64 {
            let len = if t % 2 == 0 { 20 } else { 400 };
            let halves = ['a', 'b'].map(|mark| {
                let text = format!("put evil {}", mark.to_string().repeat(len));
                Forgery::new(t, &parse(stage, &text))
            });
            let frames = halves.map(|forgery| stage.world.forge(liar, &forgery));
            for (to, i) in stage.cluster().replicas().zip(0..) {
                let (first, second) = if (t + i) % 2 == 0 { (0, 1) } else { (1, 0) };
                stage.world.post(liar, to, &frames[first]);
                if t % 3 == 0 {
                    stage.world.post(liar, to, &frames[second]);
                }
            }
            stage.pass(15 * MS)?;
        }
        stage.busy(10)
    }),
    Scenario::new(
        "c4_requests_to_backups_only",
        &["C4"],
        "A client's requests reach backups only: these relay them, and the primary is not replaced",
    )
    .expects(&[Expect::Noted("executed all the same"), Expect::Noted("view 0 to the end")])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| {
        let liar = liar(stage);
        for t in 1..=6 {
            let before = stage.world.checkers.commands();
            let forgery = Forgery::new(t, &operation(stage, t));
            let frame = stage.world.forge(liar, &forgery);
            for to in stage.cluster().replicas().skip(1) {
                stage.world.post(liar, to, &frame);
            }
            let what = "a relayed request executed";
            stage.until(what, 50 * MS, |w| w.checkers.commands() > before)?;
            stage.note("executed all the same");
        }
        stage.busy(20)?;
        stage.require(stage.view() == 0, "a view change although the primary did nothing wrong")?;
        stage.note("view 0 to the end");
        Ok(())
    }),
    Scenario::new(
        "c5_write_called_a_read",
        &["C5"],
        "A write comes with the read-only flag: the service detects it, and the write is ordered (RO-1)",
    )
    .expects(&[
        Expect::Milestone("read refused", |_, m| matches!(m, Milestone::ReadRefused { .. })),
        Expect::Count("read fall-backs", |c| c.read_fallbacks),
    ])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| {
        let liar = liar(stage);
        // A correct client that is mistaken gets its write ordered, once.
        for i in 1..=5 {
            let mut ask = crate::app::App::parse(&stage.world.app, "incr n0 1").ok_or_else(not_parsed)?;
            ask.read_only = true;
            stage.world.ask_for(0, 0, &ask);
            stage.until("the write", 2_000 * MS, |w| w.clients[0].lanes[0].outstanding.is_none())?;
            let seen = stage.answer(1, 0, "get n0", 2_000 * MS)?;
            stage.require(seen == format!("ok {i}"), format!("{seen} after {i} increments"))?;
        }
        // A liar that never falls back changes nothing.
        let before = stage.world.checkers.commands();
        for t in 1..=10 {
            let forgery = Forgery::new(t, &operation(stage, t)).read_only();
            post(stage, liar, &forgery);
            stage.pass(5 * MS)?;
        }
        stage.require(stage.world.checkers.commands() == before, "a write was executed as a read")?;
        stage.busy(20)
    }),
    Scenario::new(
        "c6_b6_flood",
        &["C6", "B6"],
        "A client sends good and bad requests, junk and oversized ones as fast as it can (A5)",
    )
    .expects(&[
        Expect::Door("not-authentic"),
        Expect::Door("malformed"),
        Expect::Door("unknown-sender"),
        Expect::Noted("view 0 to the end"),
    ])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(flood),
    Scenario::new(
        "c6_b24_b37_identities",
        &["C6", "B24", "B37"],
        "A client uses more lanes than the limit: those that existed before continue",
    )
    .expects(&[Expect::Reject(Reject::OverQuota)])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| {
        let liar = liar(stage);
        stage.busy(10)?;
        stage.world.set_load(Load::Busy(2 * MS, 5 * MS));
        for lane in 0..200 {
            let forgery = Forgery::new(1, &operation(stage, u64::from(lane))).lane(lane * 300);
            post(stage, liar, &forgery);
            if lane % 100 == 99 {
                stage.pass(100 * MS)?; // that many at once
            }
        }
        stage.busy(20)
    }),
    Scenario::new(
        "c7_endless_retransmission",
        &["C7"],
        "A client retransmits without end: it gets one reply each 10 ms (RP-2)",
    )
    .expects(&[Expect::Reject(Reject::TooSoon), Expect::Noted("replies bounded")])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| {
        let liar = liar(stage);
        let forgery = Forgery::new(1, &operation(stage, 1));
        let frame = stage.world.forge(liar, &forgery);
        stage.world.post_all(liar, &frame);
        stage.pass(20 * MS)?;
        let before = sent(stage, "REPLY");
        for _ in 0..200 {
            stage.world.post_all(liar, &frame);
            stage.pass(MS)?;
        }
        // In 200 ms each replica may answer twenty times.
        let replies = sent(stage, "REPLY") - before;
        let most = 21 * u64::try_from(stage.cluster().n()).unwrap_or(0);
        stage.require(replies <= most, format!("{replies} replies to one request, not {most}"))?;
        stage.note("replies bounded");
        stage.busy(20)
    }),
    Scenario::new(
        "k5_silent_collector",
        &["K5"],
        "A replica keeps the replies that it collects: it costs each client one time-out, and is then avoided (RP-6)",
    )
    .expects(&[COLLECTED])
    .with(|setup| collecting(setup).liar(ReplicaId(2), BadCollector::silent))
    .play(answered_in_time),
    Scenario::new(
        "k11_spoiling_collector",
        &["K11"],
        "A replica spoils the replies that it collects: it costs each client one time-out, and is then avoided (RP-6)",
    )
    .expects(&[COLLECTED])
    .with(|setup| collecting(setup).liar(ReplicaId(2), BadCollector::spoiling))
    .play(answered_in_time),
    Scenario::new(
        "k5_late_collector",
        &["K5"],
        "A replica is late with the replies that it collects, but never so late that clients ask again: it is avoided (RP-6)",
    )
    .expects(&[COLLECTED])
    .with(collecting)
    .play(|stage| {
        let from = Some(stage.world.hosts[2].node);
        stage.world.network.schedule.delay(Delay { kind: Kind::Reply, from, numbers: None, by_ns: 40 * MS });
        answered_in_time(stage)
    }),
];

/// Makes the last client the liar: it has no lanes that would ask or believe anything.
pub(super) fn liar(stage: &mut Stage) -> usize {
    let last = stage.world.clients.len() - 1;
    stage.world.clients[last].lanes.clear();
    last
}

/// Returns an operation on the liar's own key.
pub(super) fn operation(stage: &Stage, number: u64) -> Vec<u8> {
    parse(stage, &format!("put evil {number}"))
}

pub(super) fn parse(stage: &Stage, text: &str) -> Vec<u8> {
    crate::app::App::parse(&stage.world.app, text).map(|ask| ask.operation).unwrap_or_default()
}

fn not_parsed() -> Rule {
    Rule::Missed("not an operation".to_owned())
}

/// Sends a forged request to every replica.
pub(super) fn post(stage: &mut Stage, liar: usize, forgery: &Forgery) {
    let frame = stage.world.forge(liar, forgery);
    stage.world.post_all(liar, &frame);
}

/// Returns how many messages of this name correct replicas and clients have sent.
fn sent(stage: &Stage, kind: &str) -> u64 {
    stage.world.counters().kinds.get(kind).copied().unwrap_or(0)
}

/// The Byzantine client's requests carry wrong MACs for those that `spoiled` names. Correct clients are served all
/// the time: at most a few of forty slices of 50 ms have no reply. There are at most `views` view changes.
fn split_mac(stage: &mut Stage, spoiled: impl Fn(&Stage) -> Vec<ReplicaId>, views: u64) -> Ended {
    let liar = liar(stage);
    stage.world.set_load(Load::Busy(5 * MS, 15 * MS));
    let mut silent = 0;
    for t in 1..=40 {
        let spoiled = spoiled(stage);
        let forgery = Forgery::new(t, &operation(stage, t)).spoiled(&spoiled);
        post(stage, liar, &forgery);
        let before = stage.world.seen.answered;
        stage.pass(50 * MS)?;
        silent += u64::from(stage.world.seen.answered == before);
    }
    stage.require(silent <= 2, format!("{silent} of 40 slices without an answer to a good client"))?;
    stage.require(stage.view() <= views, format!("view {} because of one client", stage.view()))
}

fn flood(stage: &mut Stage) -> Ended {
    let liar = liar(stage);
    let everyone: Vec<ReplicaId> = stage.cluster().replicas().collect();
    let huge = vec![7; OPERATION_BYTES_MAX + 1];
    let huge = stage.world.forge(liar, &Forgery::new(1, &huge));
    stage.world.set_load(Load::Busy(2 * MS, 5 * MS));
    let mut silent = 0;
    for t in 1..=400_u64 {
        let honest = Forgery::new(t, &operation(stage, t));
        post(stage, liar, &honest);
        let spoiled = honest.spoiled(&everyone);
        post(stage, liar, &spoiled);
        // A node that is not registered.
        let mut unknown = stage.world.forge(liar, &spoiled).to_vec();
        unknown[13] = 0x77;
        stage.world.post_all(liar, &unknown.into());
        if t % 100 == 0 {
            stage.world.post_all(liar, &huge);
        }
        let before = stage.world.seen.answered;
        for _ in 0..4 {
            stage.pass(MS / 4)?;
        }
        silent = if stage.world.seen.answered == before { silent + 1 } else { 0 };
        stage.require(silent < 50, "good clients wait for 50 ms")?;
    }
    stage.require(stage.view() == 0, "a view change although the primary did nothing wrong")?;
    stage.note("view 0 to the end");
    Ok(())
}

/// Clients with a process each, and every reply is collected.
fn collecting(setup: Setup) -> Setup {
    let config = Config { collect_from: 1, ..setup.config };
    Setup { config, clients: 6, lanes: 2, ..setup }
}

fn answered_in_time(stage: &mut Stage) -> Ended {
    stage.world.set_load(Load::Busy(0, 2 * MS));
    let lanes: u64 = 12;
    let target = stage.world.counters.accepted + lanes * COLLECTED_REQUESTS;
    stage.until("all are answered in time", COLLECTED_NS, |w| w.counters.accepted >= target)?;
    stage.require(stage.view() == 0, "no view change")
}
