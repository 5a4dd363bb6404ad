//! `opt-separate`: long requests are sent separately from the PRE-PREPARE (DSN01 Figure 7).

use anyhow::Result;

use super::{Rows, Trial, gain, many};
use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Figure, argument, clients, ops, p50, ratio_of};
use crate::load::Op;
use crate::report::{Report, Row, Shape};
use crate::setup::Setup;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "opt-separate",
    source: "DSN01 Figure 7",
    about: "separate transmission of long requests on and off: latency by the argument's size, throughput of 4/0",
    run,
    figures,
};

/// The paper's threshold, and not ours of 4 KiB.
const ON: &str = "separate above 255 B";
const OFF: &str = "separate off";
const SETUPS: [Setup; 2] = [Setup::with(ON, "separate_above=255"), Setup::with(OFF, "separate=off")];

fn run(settings: Settings) -> Result<Report> {
    let sizes: &[usize] =
        settings.effort.of(&[8, 256, 1024, 2048, 4096, 8192], &[8, 1024, 4096, 8192], &[8, 8192]);
    let trial = Trial {
        experiment: &EXPERIMENT,
        setups: &SETUPS,
        latencies: sizes.iter().map(|size| Op::rw(*size, 8)).collect(),
        throughputs: vec![(Op::rw(4096, 0), many(settings))],
    };
    let mut report = trial.run(settings)?;
    let rows = Rows(&report.rows);
    let of = |size| gain(rows.us(ON, Op::rw(size, 8)), rows.us(OFF, Op::rw(size, 8)));
    let gains = sizes.iter().map(|size| (*size, of(*size)));
    let (size, best) = gains.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, f64::NAN));
    let most = rows.clients_max();
    let (with, without) = (rows.ops(ON, 4, most), rows.ops(OFF, 4, most));
    report.shapes = vec![
        // The paper's gain is 40 %; a request that travels once instead of twice saves half at most.
        Shape::gain(
            "separate transmission shortens the latency of long requests",
            best,
            60.0,
            format!("up to -{best:.0} %, at {size} B (paper: up to -40 %)"),
        ),
        Shape::new(
            "4/0 throughput is higher with separate transmission: more requests fit a batch",
            with > without,
            format!("{most} clients: {with:.0} op/s with, {without:.0} without"),
        ),
    ];
    Ok(report)
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let rows = Rows(rows);
    let latency = |name: &str, variant: &str| rows.curve(name, variant, 4, "us", (argument, p50));
    let throughput = |name: &str, variant: &str| rows.curve(name, variant, 4, "op/s", (clients, ops));
    let (on, off) = (latency("with", ON), latency("without", OFF));
    vec![
        Figure::new(
            "latency",
            "DSN01 Figure 7: separate request transmission, latency",
            Axis::linear("bytes of the argument"),
            Axis::linear("microseconds"),
        )
        .with(on.clone())
        .with(off.clone())
        .caption("Medians; dots: repeats. The paper's curve has no figures."),
        Figure::new(
            "latency-normalised",
            "DSN01 Figure 7: latency divided by that without",
            Axis::linear("bytes of the argument"),
            Axis::linear("times without"),
        )
        .with(ratio_of("with separate transmission", &on, &off))
        .paper("paper's least", &[(8192.0, 0.6)])
        .caption("Grey: the largest gain in DSN01 section 4.4, 40 %; the paper does not say at which size."),
        Figure::new(
            "throughput",
            "DSN01 Figure 7: throughput of 4/0",
            Axis::log("clients"),
            Axis::linear("operations per second"),
        )
        .with(throughput("with", ON))
        .with(throughput("without", OFF))
        .caption("Medians; dots: repeats. The paper's links limited it to 3,000 op/s."),
    ]
}
