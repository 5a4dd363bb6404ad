//! `opt-piggyback`: commits are sent as part of the next message (DSN01 §4.4).

use anyhow::Result;

use super::{Rows, Trial, gain};
use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Figure, clients, ops, ratio_of};
use crate::load::Op;
use crate::report::{Report, Row, Shape};
use crate::setup::Setup;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "opt-piggyback",
    source: "DSN01 section 4.4",
    about: "piggybacked commits on and off: throughput of 0/0 with 5 and 200 clients, latency with one",
    run,
    figures,
};

const ON: &str = "default";
const OFF: &str = "piggyback off";
const SETUPS: [Setup; 2] = [Setup::DEFAULT, Setup::with(OFF, "piggyback=off")];
/// The difference in latency that counts as "negligible", in percent.
const SAME: f64 = 10.0;

fn run(settings: Settings) -> Result<Report> {
    let counts = settings.effort.of(vec![1, 5, 10, 20, 50, 100, 200], vec![5, 20, 200], vec![5, 20]);
    let trial = Trial {
        experiment: &EXPERIMENT,
        setups: &SETUPS,
        latencies: vec![Op::rw(0, 0), Op::rw(4096, 0), Op::rw(0, 4096)],
        throughputs: vec![(Op::rw(0, 0), counts)],
    };
    let mut report = trial.run(settings)?;
    let rows = Rows(&report.rows);
    let of = |clients| (rows.ops(ON, 4, clients) / rows.ops(OFF, 4, clients) - 1.0) * 100.0;
    let most = rows.clients_max();
    let (few, many) = (of(5), of(most));
    let (on, off) = (rows.us(ON, Op::rw(0, 0)), rows.us(OFF, Op::rw(0, 0)));
    report.shapes = vec![
        Shape::gain("higher throughput with 5 clients", few, 66.0, format!("{few:+.0} % (paper +33 %)")),
        Shape::new(
            "the gain falls as the number of clients grows",
            many < few,
            format!("{few:+.0} % with 5 clients, {many:+.0} % with {most} (paper +33 %, +3 %)"),
        ),
        Shape::new(
            "latency stays the same",
            gain(on, off).abs() <= SAME,
            format!("0/0: {on:.1} us with, {off:.1} us without"),
        ),
    ];
    Ok(report)
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let rows = Rows(rows);
    let series = |name: &str, variant: &str| rows.curve(name, variant, 4, "op/s", (clients, ops));
    let (on, off) = (series("with", ON), series("without", OFF));
    vec![
        Figure::new(
            "throughput",
            "DSN01 section 4.4: piggybacked commits, throughput of 0/0",
            Axis::log("clients"),
            Axis::linear("operations per second"),
        )
        .with(on.clone())
        .with(off.clone())
        .caption("Medians; dots: repeats."),
        Figure::new(
            "throughput-normalised",
            "DSN01 section 4.4: throughput divided by that without",
            Axis::log("clients"),
            Axis::linear("times without"),
        )
        .with(ratio_of("with piggybacked commits", &on, &off))
        .paper("paper", &[(5.0, 1.33), (200.0, 1.03)])
        .caption("Grey: the gains in DSN01 section 4.4 for 5 and 200 clients."),
    ]
}
