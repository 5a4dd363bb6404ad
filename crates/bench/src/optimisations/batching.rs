//! `opt-batching`: many requests in one protocol instance (DSN01 Figure 6).

use anyhow::Result;

use super::{Rows, Trial, many};
use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Figure, clients, ops, ratio_of};
use crate::load::Op;
use crate::report::{Report, Row, Shape};
use crate::setup::Setup;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "opt-batching",
    source: "DSN01 Figure 6",
    about: "batching on and off, and with different windows W: throughput of 0/0",
    run,
    figures,
};

const ON: &str = "default";
const OFF: &str = "batching off";
const SETUPS: [Setup; 4] = [
    Setup::DEFAULT,
    Setup::with(OFF, "batching=off"),
    Setup::with("W = 1", "pipeline=1"),
    Setup::with("W = 32", "pipeline=32"),
];

/// How much longer a single client's operation may take with batching: the noise between two medians.
const NOISE: f64 = 1.1;

fn run(settings: Settings) -> Result<Report> {
    let trial = Trial {
        experiment: &EXPERIMENT,
        setups: &SETUPS,
        latencies: vec![Op::rw(0, 0)],
        throughputs: vec![(Op::rw(0, 0), many(settings))],
    };
    let mut report = trial.run(settings)?;
    let rows = Rows(&report.rows);
    let (on, off) = (rows.us(ON, Op::rw(0, 0)), rows.us(OFF, Op::rw(0, 0)));
    let most = rows.clients_max();
    let (with, without) = (rows.ops(ON, 4, most), rows.ops(OFF, 4, most));
    report.shapes = vec![
        Shape::new(
            "no added latency with one client",
            on <= off * NOISE,
            format!("{on:.1} us with batching, {off:.1} us without"),
        ),
        Shape::new(
            "without batching, throughput stops growing early",
            without < with,
            format!("{most} clients: {without:.0} op/s without, {with:.0} with: {:.1} times", with / without),
        ),
    ];
    Ok(report)
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let rows = Rows(rows);
    let mut a = Figure::new(
        "throughput",
        "DSN01 Figure 6: batching, throughput of 0/0",
        Axis::log("clients"),
        Axis::linear("operations per second"),
    );
    let mut b = Figure::new(
        "throughput-normalised",
        "DSN01 Figure 6: divided by no batching",
        Axis::log("clients"),
        Axis::linear("times without batching"),
    );
    let base = rows.curve("without", OFF, 4, "op/s", (clients, ops));
    for (name, variant) in
        [("batching, W = 8", ON), ("batching, W = 1", "W = 1"), ("batching, W = 32", "W = 32")]
    {
        let series = rows.curve(name, variant, 4, "op/s", (clients, ops));
        b = b.with(ratio_of(name, &series, &base));
        a = a.with(series);
    }
    let caption = "Medians; dots: repeats. The paper's curve has no figures.";
    vec![a.with(base).caption(caption), b.caption(caption)]
}
