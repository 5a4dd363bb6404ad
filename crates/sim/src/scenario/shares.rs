//! Each operation once, and a share of the cluster for every client, whatever the others do (S3, L1, L4, L6).

use quorate_pbft::config::MS;

use super::client::{liar, operation, post};
use super::{Expect, Scenario};
use crate::adversary::client::Forgery;
use crate::setup::Setup;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "s3_clock_goes_back",
        &["S3"],
        "A client's clock goes back between two runs: no operation of the second is answered with a reply of the first",
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
        "l1_lanes_of_one_client",
        &["L1"],
        "A client uses lane after lane: others begin new ones, a wiped replica comes back",
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
];
