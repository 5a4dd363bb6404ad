//! `opt-tentative`: execution before the commit (DSN01 §4.4).

use anyhow::Result;

use super::{Rows, Trial, gain};
use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Figure, p50, ratio_of, result};
use crate::load::Op;
use crate::report::{Report, Row, Shape};
use crate::setup::Setup;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "opt-tentative",
    source: "DSN01 section 4.4",
    about: "tentative execution on and off: latency by the result's size, throughput of 0/0",
    run,
    figures,
};

const ON: &str = "default";
const OFF: &str = "tentative off";
const SETUPS: [Setup; 2] = [Setup::DEFAULT, Setup::with(OFF, "tentative=off")];
/// The difference in throughput that counts as "insignificant".
const SAME: f64 = 10.0;

fn run(settings: Settings) -> Result<Report> {
    let sizes: &[u32] =
        settings.effort.of(&[8, 256, 1024, 2048, 4096, 8192], &[8, 1024, 4096, 8192], &[8, 8192]);
    let many = settings.effort.of(200, 200, 5);
    let trial = Trial {
        experiment: &EXPERIMENT,
        setups: &SETUPS,
        latencies: sizes.iter().map(|size| Op::rw(8, *size)).collect(),
        throughputs: vec![(Op::rw(0, 0), vec![many])],
    };
    let mut report = trial.run(settings)?;
    let rows = Rows(&report.rows);
    let of = |size| gain(rows.us(ON, Op::rw(8, size)), rows.us(OFF, Op::rw(8, size)));
    let (small, large) = (of(8), of(8192));
    let clients = rows.clients_max();
    let (with, without) = (rows.ops(ON, 4, clients), rows.ops(OFF, 4, clients));
    report.shapes = vec![
        // The paper's gain is 27 %, and a round of four can be saved.
        Shape::gain(
            "tentative execution shortens the latency of small operations",
            small,
            50.0,
            format!("-{small:.0} % (paper: up to -27 %)"),
        ),
        Shape::new(
            "the gain falls as sizes grow",
            large < small,
            format!("-{small:.0} % at 8 B, -{large:.0} % at 8 KB"),
        ),
        Shape::new(
            "throughput stays the same",
            gain(with, without).abs() <= SAME,
            format!("{clients} clients: {with:.0} op/s with, {without:.0} without"),
        ),
    ];
    Ok(report)
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let rows = Rows(rows);
    let latency = |name: &str, variant: &str| rows.curve(name, variant, 4, "us", (result, p50));
    let (on, off) = (latency("with", ON), latency("without", OFF));
    vec![
        Figure::new(
            "latency",
            "DSN01 section 4.4: tentative execution, latency",
            Axis::linear("bytes of the result"),
            Axis::linear("microseconds"),
        )
        .with(on.clone())
        .with(off.clone())
        .caption("Medians; dots: repeats."),
        Figure::new(
            "latency-normalised",
            "DSN01 section 4.4: latency divided by that without",
            Axis::linear("bytes of the result"),
            Axis::linear("times without"),
        )
        .with(ratio_of("with tentative execution", &on, &off))
        .paper("paper's least", &[(8.0, 0.73)])
        .caption("Grey: the largest gain in DSN01 section 4.4, 27 % for small arguments and results."),
    ]
}
