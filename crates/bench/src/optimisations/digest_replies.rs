//! `opt-digest-replies`: one replica sends the result, the others its digest (DSN01 Figure 5).

use anyhow::Result;

use super::{Rows, Trial, many};
use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Figure, clients, ops, p50, ratio_of, result};
use crate::load::Op;
use crate::report::{Report, Row, Shape};
use crate::setup::Setup;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "opt-digest-replies",
    source: "DSN01 Figure 5",
    about: "digest replies on and off: latency by the result's size, throughput of 0/4, with n = 4 and 7",
    run,
    figures,
};

const ON: &str = "default";
const OFF: &str = "digest replies off";
const WITHOUT: Setup = Setup::with(OFF, "digest_replies=off");
const SETUPS: [Setup; 4] = [Setup::DEFAULT, WITHOUT, Setup::DEFAULT.tolerating(2), WITHOUT.tolerating(2)];

fn run(settings: Settings) -> Result<Report> {
    let sizes: &[u32] =
        settings.effort.of(&[8, 256, 1024, 2048, 4096, 8192], &[8, 1024, 4096, 8192], &[8, 8192]);
    let trial = Trial {
        experiment: &EXPERIMENT,
        setups: &SETUPS,
        latencies: sizes.iter().map(|size| Op::rw(8, *size)).collect(),
        throughputs: vec![(Op::rw(0, 4096), many(settings))],
    };
    let mut report = trial.run(settings)?;
    let rows = Rows(&report.rows);
    let (on, off) = (rows.us(ON, Op::rw(8, 8192)), rows.us(OFF, Op::rw(8, 8192)));
    let speed_up = |n| rows.peak(ON, n) / rows.peak(OFF, n);
    let (four, seven) = (speed_up(4), speed_up(7));
    report.shapes = vec![
        // Three of four copies of the result are saved.
        Shape::gain(
            "digest replies shorten the latency of an 8 KB result",
            super::gain(on, off),
            75.0,
            format!("{on:.1} us against {off:.1} us: {:.0} % less", super::gain(on, off)),
        ),
        Shape::new(
            "0/4 throughput is higher with digest replies",
            four > 1.0,
            format!(
                "{four:.2} times with 4 replicas, {seven:.2} with 7 (paper: up to 3 times, with 100 Mbit/s links)"
            ),
        ),
        Shape::new(
            "the speed-up grows with n",
            seven > four,
            format!("{four:.2} times with 4 replicas, {seven:.2} with 7"),
        ),
        Shape::incomparable(
            "without digest replies 3,000 op/s for any n",
            format!(
                "needs 100 Mbit/s links; on loopback {:.0} and {:.0} op/s",
                rows.peak(OFF, 4),
                rows.peak(OFF, 7)
            ),
        ),
    ];
    Ok(report)
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let rows = Rows(rows);
    let mut a = Figure::new(
        "latency",
        "DSN01 Figure 5: digest replies, latency",
        Axis::linear("bytes of the result"),
        Axis::linear("microseconds"),
    );
    let mut b = Figure::new(
        "throughput",
        "DSN01 Figure 5: digest replies, throughput of 0/4",
        Axis::log("clients"),
        Axis::linear("operations per second"),
    );
    let mut c = Figure::new(
        "throughput-normalised",
        "DSN01 Figure 5: with digest replies, divided by without",
        Axis::log("clients"),
        Axis::linear("times without"),
    );
    for n in [4, 7] {
        let (with, without) = (format!("with, n = {n}"), format!("without, n = {n}"));
        a = a.with(rows.curve(&with, ON, n, "us", (result, p50))).with(rows.curve(
            &without,
            OFF,
            n,
            "us",
            (result, p50),
        ));
        let (on, off) = (
            rows.curve(&with, ON, n, "op/s", (clients, ops)),
            rows.curve(&without, OFF, n, "op/s", (clients, ops)),
        );
        c = c.with(ratio_of(&format!("n = {n}"), &on, &off));
        b = b.with(on).with(off);
    }
    vec![
        a.caption("Medians; dots: repeats. The paper's curve has no figures."),
        b.paper_level("without, paper's maximum", 3000.0)
            .caption("Grey: the limit of the paper's 100 Mbit/s link (DSN01 section 4.4). Ours is loopback."),
        c.paper_level("paper's maximum", 3.0)
            .caption("Grey: the largest gain in DSN01 section 4.4, where the links were the limit."),
    ]
}
