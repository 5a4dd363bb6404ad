//! Each operation once, and a share of the cluster for every client, whatever the others do (S3, L1, L4, L6).

use quorate_pbft::client::step::ClientReject;
use quorate_pbft::config::{Config, MS};
use quorate_pbft::step::Reject;

use super::client::{liar, operation, parse, post};
use super::host::{REJOIN_NS, everyone_remembers};
use super::row::{Expect, Scenario, one_each};
use super::stage::{Ended, Stage};
use crate::adversary::client::Forgery;
use crate::adversary::primary::StuffBatches;
use crate::app::Ask;
use crate::setup::Setup;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "s3_clock_goes_back",
        &["S3"],
        "A client's clock goes back between two runs: no operation of the second run gets a reply of the first run",
    )
    .expects(&[Expect::Noted("done although the clock went back")])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| {
        for run in 1..=6_u64 {
            for write in 0..run {
                let text = format!("put x {}", 10 * run + write);
                let said = stage.answer(0, 0, &text, 5_000 * MS)?;
                let seen = stage.answer(1, 0, "get x", 5_000 * MS)?;
                let wanted = format!("ok {}", 10 * run + write);
                stage.require(seen == wanted, format!("run {run}, {text}: {said}, and then get x: {seen}"))?;
            }
            stage.world.restart_client(0, 0);
            stage.note("done although the clock went back");
        }
        stage.busy(20)
    }),
    Scenario::new(
        "s3_client_put_back",
        &["S3"],
        "A client loses the record of its timestamps: it gets no reply to an older operation for a new one (RP-5)",
    )
    .expects(&[
        Expect::ClientReject(ClientReject::OtherOperation),
        Expect::Noted("told that it is not known"),
        Expect::Noted("done under another timestamp"),
    ])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| {
        let mut value = 0;
        for run in 1..=6_u64 {
            for _ in 0..run {
                value += 1;
                let text = format!("put x {value}");
                stage.ask(0, 0, &text);
                stage.until(&text, 5_000 * MS, |w| w.clients[0].lanes[0].outstanding.is_none())?;
                if stage.world.clients[0].lanes[0].last_result.take().is_none() {
                    stage.note("told that it is not known");
                    continue;
                }
                let seen = stage.answer(1, 0, "get x", 5_000 * MS)?;
                let wanted = format!("ok {value}");
                stage.require(seen == wanted, format!("run {run}, {text} was acknowledged, and x is {seen}"))?;
                stage.note("done under another timestamp");
            }
            stage.world.put_client_back(0);
        }
        stage.busy(20)
    }),
    Scenario::new(
        "l4_primary_makes_requests_up",
        &["L4"],
        "A primary proposes requests that their clients did not send: no client is put on probation for that",
    )
    .expects(&[Expect::Reject(Reject::UnprovenRequest), Expect::Noted("no client has lost its standing")])
    .views_max(one_each)
    .with(|setup| Setup { clients: 3, ..setup }.lying_primaries(StuffBatches::default))
    .play(|stage| {
        stage.busy(40)?;
        let probations = stage.world.counters().probations;
        stage.require(probations == 0, format!("{probations} clients on probation at correct replicas"))?;
        stage.note("no client has lost its standing");
        Ok(())
    }),
    Scenario::new(
        "l40_replicas_rejoin_whatever_the_quota_of_clients",
        &["L40"],
        "A client may have one lane, and one replica after the other loses its disk: each has its recovery request executed (EX-2)",
    )
    .expects(&[Expect::Noted("rejoined")])
    .with(|setup| Setup { founders: Some(2), lanes: 1, ..setup })
    .play(|stage| {
        stage.busy(10)?;
        stage.quiet()?;
        let said = stage.answer(0, 0, "set client_lanes_max 1", 5_000 * MS)?;
        stage.require(said == "ok", format!("set: {said}"))?;
        for h in 0..stage.cluster().n() {
            stage.world.wipe(h);
            stage.world.restart(h);
            stage.busy(20)?;
            stage.until("it has rejoined", REJOIN_NS, everyone_remembers)?;
            stage.note("rejoined");
        }
        Ok(())
    }),
    Scenario::new(
        "l42_a_lost_reply_of_a_lane_without_an_entry",
        &["L42"],
        "A write's reply is lost, and its lane's place is given away: the client hears that nobody knows its outcome (RP-5)",
    )
    .expects(&[Expect::ClientReject(ClientReject::OtherRequest), Expect::Noted("its outcome is unknown")])
    .with(|setup| Setup { founders: Some(2), ..setup })
    .play(reply_lost),
    Scenario::new(
        "l61_a_refusal_whose_reply_is_lost",
        &["L61"],
        "A request is refused, its replies are lost, and the primary crashes: the client hears of the refusal later (EX-2)",
    )
    .expects(&[Expect::Noted("told that it is refused")])
    .views_max(|_| 2)
    .with(|setup| Setup { founders: Some(2), ..setup })
    .play(refusal_lost),
    Scenario::new(
        "l1_lanes_of_one_client",
        &["L1"],
        "A client uses very many lanes: other clients can begin new lanes, and a wiped replica rejoins",
    )
    .expects(&[Expect::Noted("a new lane of another client")])
    .with(|setup| Setup { clients: 3, ..setup })
    .play(|stage| {
        let liar = liar(stage);
        stage.answer(0, 0, "put x 1", 5_000 * MS)?;
        for lane in 0..200 {
            let forgery = Forgery::new(1_000 + u64::from(lane), &operation(stage, u64::from(lane))).lane(lane);
            post(stage, liar, &forgery);
            stage.pass(2 * MS)?;
        }
        for (c, l) in [(0, 1), (1, 0), (1, 1)] {
            let said = stage.answer(c, l, "put x 2", 5_000 * MS)?;
            stage.require(said == "ok", format!("a new lane of c{c}: {said}"))?;
            stage.note("a new lane of another client");
        }
        let host = stage.correct().into_iter().next_back().unwrap_or(0);
        stage.world.crash(host);
        stage.world.wipe(host);
        stage.world.restart(host);
        stage.busy(40)
    }),
    Scenario::new(
        "l1_a_lane_gives_its_place_away",
        &["L1"],
        "The table of lanes is full, and a lane gives its place away: its last request is not executed again (EX-2)",
    )
    .expects(&[Expect::Noted("no place for another client"), Expect::Noted("asked again")])
    .with(|setup| Setup { config: Config { clients_max: 16, ..setup.config }, clients: 4, ..setup })
    .play(place_given_away),
    Scenario::new(
        "l37_long_requests_in_all_lanes",
        &["L37"],
        "A client has more long requests than a replica keeps of it, and each replica keeps others: no view change (TM-1)",
    )
    .sizes(&[4])
    .expects(&[Expect::Reject(Reject::OverQuota), Expect::Noted("view 0 to the end")])
    .with(|setup| {
        let config = Config { clients_max: 4096, ..setup.config };
        Setup { config, lanes: LONG_LANES, inline: true, request_ns: 8 * MS, ..setup }
    })
    .play(long_in_all_lanes),
    Scenario::new(
        "l70_long_requests_that_backups_lack",
        &["L70"],
        "Two backups get none of a client's long requests, and have to fetch each of them: no view change (SR-2)",
    )
    .sizes(&[4])
    .expects(&[Expect::Noted("view 0 to the end")])
    .views_max(|_| 0)
    .with(|setup| Setup { lanes: LACKED_LANES, ..setup })
    .play(|stage| long_and_lacked(stage, LACKED_LANES, LONG_BYTES, 2)),
    Scenario::new(
        "l120_many_bodies_that_backups_lack",
        &["L120"],
        "No backup gets any of a client's separate requests, of which 256 are outstanding: no view change (SR-2)",
    )
    .sizes(&[4])
    .expects(&[Expect::Noted("view 0 to the end")])
    .views_max(|_| 0)
    .with(|setup| Setup { lanes: MANY_LANES, ..setup })
    .play(|stage| long_and_lacked(stage, MANY_LANES, SEPARATE_BYTES, 1)),
    Scenario::new(
        "l46_many_reads_in_one_datagram",
        &["L46"],
        "A read takes 5 ms. Two datagrams bring 800 reads of a client, and others are served within two seconds (RO-7)",
    )
    .sizes(&[4])
    .expects(&[Expect::Noted("served beside one lane"), Expect::Noted("served beside many lanes")])
    .views_max(|_| 0)
    .with(|setup| Setup { clients: 3, inline: true, request_ns: 5 * MS, ..setup })
    .play(many_reads),
];

/// Reads of one client in one datagram.
const READS: u16 = 400;

/// The reads are those of one lane, and then of as many lanes. All of them take 4 s. A turn has one of them, so each message
/// of others may wait for 5 ms.
fn many_reads(stage: &mut Stage) -> Ended {
    let liar = liar(stage);
    stage.answer(0, 0, "put x 1", 5_000 * MS)?;
    let get = parse(stage, "get x");
    let mut t = 1_000;
    for (lanes, what) in [(1, "served beside one lane"), (READS, "served beside many lanes")] {
        for _ in 0..2 {
            let mut datagram = Vec::new();
            for read in 0..READS {
                t += 1;
                let forgery = Forgery::new(t, &get).lane(read % lanes).read_only();
                datagram.extend_from_slice(&stage.world.forge(liar, &forgery));
            }
            stage.world.post_all(liar, &datagram.into());
        }
        stage.pass(MS)?;
        for text in ["put x 2", "get x"] {
            let said = stage.answer(0, 0, text, 2_000 * MS)?;
            stage.require(said.starts_with("ok"), format!("{text}: {said}"))?;
        }
        stage.note(what);
    }
    Ok(())
}

/// Lanes with long requests.
const LONG_LANES: u16 = 28;
/// Bytes of each: a replica keeps 27 of one client.
const LONG_BYTES: usize = 600_000;

/// Each lane of client 1 has a long request outstanding all the time; client 0 asks now and then.
fn long_in_all_lanes(stage: &mut Stage) -> Ended {
    let ask = Ask { operation: vec![0; LONG_BYTES], read_only: false };
    for _ in 0..40 {
        for lane in 0..usize::from(LONG_LANES) {
            stage.world.ask_for(1, lane, &ask);
            stage.pass(2 * MS)?;
        }
        stage.ask(0, 0, "incr x 1");
        stage.require(stage.view() == 0, format!("view {} because of one client", stage.view()))?;
    }
    stage.note("view 0 to the end");
    Ok(())
}

/// Lanes with long requests that backups lack: as many as there are proposals in progress.
const LACKED_LANES: u16 = 8;

/// Lanes with requests of this length, just long enough to be separate: a batch has 62 of them.
const MANY_LANES: u16 = 256;
const SEPARATE_BYTES: usize = 4_200;

/// Each of these lanes of client 1 has a request outstanding all the time, which reaches the first `reached` replicas only.
fn long_and_lacked(stage: &mut Stage, lanes: u16, bytes: usize, reached: usize) -> Ended {
    let ask = Ask { operation: vec![0; bytes], read_only: false };
    let backups = &stage.all()[reached..];
    stage.hold_requests(1, backups);
    for _ in 0..10 {
        for lane in 0..usize::from(lanes) {
            stage.world.ask_for(1, lane, &ask);
        }
        stage.pass(200 * MS)?;
        stage.ask(0, 0, "incr x 1");
        stage.require(stage.view() == 0, format!("view {} because of one client", stage.view()))?;
    }
    stage.note("view 0 to the end");
    stage.mend();
    Ok(())
}

/// A client may have one lane, and uses two.
fn reply_lost(stage: &mut Stage) -> Ended {
    /// An administrator, and the client.
    const A: usize = 0;
    const C: usize = 1;
    let all = stage.all();
    stage.answer(A, 0, "put y 1", 5_000 * MS)?;
    let said = stage.answer(A, 0, "set client_lanes_max 1", 5_000 * MS)?;
    stage.require(said == "ok", format!("set: {said}"))?;
    stage.hold_replies(&all, C);
    let next = stage.world.committed() + 1;
    stage.ask(C, 0, "incr n 1");
    stage.until_executed(&all, next, 5_000 * MS)?;
    stage.pass(61_000 * MS)?;
    stage.ask(C, 1, "put x 1");
    stage.until_executed(&all, next + 1, 5_000 * MS)?;
    stage.mend();
    stage.until("it waits no more", 10_000 * MS, |w| w.outstanding().0 == 0)?;
    let heard = stage.world.clients[C].lanes[0].last_result.is_some();
    stage.require(!heard, "it has heard a result of its first request")?;
    stage.note("its outcome is unknown");
    let said = stage.answer(A, 0, "get n", 5_000 * MS)?;
    stage.require(said == "ok 1", format!("get n: {said}"))?;
    // The lane is as good as any other.
    let said = stage.answer(C, 1, "incr n 1", 5_000 * MS)?;
    stage.require(said == "ok 2", format!("incr n: {said}"))
}

/// Client 1 may have one lane, and uses two. The backups have heard of the second one in the batch alone.
fn refusal_lost(stage: &mut Stage) -> Ended {
    let all = stage.all();
    let said = stage.answer(0, 0, "set client_lanes_max 1", 5_000 * MS)?;
    stage.require(said == "ok", format!("set: {said}"))?;
    stage.answer(1, 0, "put x 1", 5_000 * MS)?;
    stage.pass(100 * MS)?;
    stage.hold_replies(&all, 1);
    let next = stage.world.committed() + 1;
    stage.ask(1, 1, "put x 2");
    stage.until_executed(&all, next, 5_000 * MS)?;
    stage.world.crash(0);
    stage.mend();
    stage.world.restart_later(0, 3_000 * MS);
    stage.answer(0, 0, "put x 3", 20_000 * MS)?;
    stage.until("c1 hears of it", 20_000 * MS, |w| w.clients[1].lanes[1].outstanding.is_none())?;
    let result = stage.world.clients[1].lanes[1].last_result.clone().unwrap_or_default();
    let said = crate::describe::Words::result(&stage.world.app, &result);
    stage.require(said == "refused: table full", format!("c1 hears: {said}"))?;
    stage.note("told that it is refused");
    Ok(())
}

/// Two clients fill the table, 14 places for clients and at most 7 for each.
fn place_given_away(stage: &mut Stage) -> Ended {
    const LANES: u16 = 7;
    let (a, b) = (2, 3);
    for c in [a, b] {
        stage.world.clients[c].lanes.clear();
    }
    let ask = |stage: &mut Stage, c: usize, lane: u16, t: u64| {
        let forgery = Forgery::new(t, &operation(stage, t)).lane(lane);
        post(stage, c, &forgery);
        stage.pass(5 * MS)
    };
    stage.answer(0, 0, "put x 1", 5_000 * MS)?;
    for lane in 0..LANES {
        ask(stage, a, lane, 1_000 + u64::from(lane))?;
    }
    stage.pass(61_000 * MS)?;
    stage.answer(0, 0, "put x 2", 5_000 * MS)?;
    for lane in 0..LANES - 1 {
        ask(stage, b, lane, 2_000 + u64::from(lane))?;
    }
    // Two lanes are idle, 0 and 1. Each that is new takes the place of one; the old requests of 0 come again.
    for lane in 2..LANES {
        ask(stage, a, lane, 3_000 + u64::from(lane))?;
    }
    ask(stage, a, LANES, 3_100)?;
    // A replica that restarts from the next checkpoint knows of the lanes that the state has, and of no other.
    for _ in 0..10 {
        stage.answer(0, 0, "put x 3", 5_000 * MS)?;
    }
    stage.pass(300 * MS)?;
    for h in 0..stage.cluster().n() {
        stage.world.crash(h);
        stage.world.restart_later(h, MS);
    }
    stage.answer(0, 0, "put x 3", 10_000 * MS)?;
    for _ in 0..5 {
        ask(stage, a, 0, 1_000)?;
        stage.pass(200 * MS)?;
    }
    stage.note("asked again");
    ask(stage, a, LANES + 1, 3_200)?;
    stage.pass(200 * MS)?;
    ask(stage, a, LANES + 1, 3_200)?;
    let said = stage.answer(1, 0, "put x 4", 5_000 * MS)?;
    stage.require(said == "refused: table full", format!("every place is taken, and c1 hears: {said}"))?;
    stage.note("no place for another client");
    // A replica that lost its disk finds a place.
    let last = stage.correct().into_iter().next_back().unwrap_or(0);
    stage.world.crash(last);
    stage.world.wipe(last);
    stage.world.restart(last);
    stage.pass(61_000 * MS)?;
    let said = stage.answer(1, 0, "put x 5", 5_000 * MS)?;
    stage.require(said == "ok", format!("lanes are idle, and c1 hears: {said}"))
}
