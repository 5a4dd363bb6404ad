//! `cbase-mixed`: short operations and reads, alone and while long operations are in progress, with which they have nothing
//! to do.

use anyhow::Result;

use super::between;
use super::live::{self, Live};
use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Dot, Figure, Series};
use crate::figures::median;
use crate::load::{Op, Sample};
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cbase-mixed",
    source: "ours",
    about: "an operation of 10 us behind one of 20 ms, and reads beside 100 operations of 20 ms: with one worker and with 128",
    run,
    figures,
};

const ONE: &str = "1 worker";
const MANY: &str = "128 workers";
const ARMS: [live::Settings; 3] = [
    ("no worker", &[]),
    (ONE, &[("tentative", "false")]),
    (MANY, &[("tentative", "false"), ("workers", "128")]),
];
/// An operation that takes 10 us, and how fast it is answered behind a long one, in microseconds.
const SHORT: Op = Op::waiting(10);
const SHORT_US_MAX: f64 = 1_000.0;
/// Long operations in progress beside reads, clients that read, and the share of their rate that the reads keep.
const LONG: u16 = 100;
const READERS: u16 = 10;
const KEPT_MIN: f64 = 0.9;

/// What is measured: its name, the long operations in progress, the clients, and the operation.
const LOADS: [(&str, u16, u16, Op); 4] = [
    ("10 us", 0, 1, SHORT),
    ("10 us behind 20 ms", 1, 1, SHORT),
    ("read", 0, READERS, Op::ro(0, 0)),
    ("read beside 100 of 20 ms", LONG, READERS, Op::ro(0, 0)),
];

fn run(settings: Settings) -> Result<Report> {
    let (repeats, ms) = settings.effort.of((5, 3_000), (3, 1_000), (1, 60));
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look("none"));
    let mut arms = ARMS.into_iter().map(Live::start).collect::<Result<Vec<_>>>()?;
    let mut samples = vec![vec![Vec::new(); LOADS.len()]; arms.len()];
    for _ in 0..repeats {
        for (arm, samples) in arms.iter_mut().zip(&mut samples) {
            for ((_, long, clients, op), samples) in LOADS.into_iter().zip(samples) {
                samples.push(arm.beside(long, clients, op, ms)?);
            }
        }
    }
    for (arm, samples) in arms.iter().zip(&samples) {
        let rows = LOADS.iter().zip(samples);
        report
            .rows
            .extend(rows.map(|((name, _, clients, op), samples)| row(arm, name, *clients, *op, samples)));
    }
    report.shapes = shapes(&report.rows);
    report.notes.push(format!(
        "{ms} ms a point; replicas, long operations and the others are processes of their own; long operations wait 20 ms \
         at each replica, and no operation depends on another; no worker: one thread and tentative on; {ONE}, {MANY}: \
         tentative off; durability memory"
    ));
    Ok(report)
}

fn row(arm: &Live, name: &str, clients: u16, op: Op, samples: &[Sample]) -> Row {
    let all = |figure: fn(&Sample) -> f64| samples.iter().map(figure).collect::<Vec<f64>>();
    let is_read = op.read_only;
    Row {
        p50_us: Some(median(&all(|sample| sample.p50_us))),
        p99_us: Some(median(&all(|sample| sample.p99_us))),
        ops_per_s: Some(median(&all(|sample| sample.ops_per_s))),
        unit: if is_read { "op/s" } else { "us" }.to_owned(),
        ..arm.row(name, op.mode(), clients, all(if is_read { |s| s.ops_per_s } else { |s| s.p50_us }))
    }
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let find = |variant: &str, load: usize| {
        rows.iter().find(|row| row.variant == variant && row.op == LOADS[load].0)
    };
    let mut shapes = Vec::new();
    for variant in [ONE, MANY] {
        if let (Some(alone), Some(behind)) = (find(variant, 0), find(variant, 1)) {
            let us = |row: &Row| (row.p50_us.unwrap_or(f64::NAN), row.p99_us.unwrap_or(f64::NAN));
            let ((alone, _), (behind, p99)) = (us(alone), us(behind));
            shapes.push(Shape::new(
                format!(
                    "PX-C {variant}: an operation of 10 us behind one of 20 ms is answered in under 1 ms"
                ),
                behind < SHORT_US_MAX,
                format!("p50 {behind:.0} us, p99 {p99:.0} us; alone p50 {alone:.0} us"),
            ));
        }
        if let (Some(alone), Some(beside)) = (find(variant, 2), find(variant, 3)) {
            let rate = |row: &Row| row.ops_per_s.unwrap_or(f64::NAN);
            let (alone, beside) = (rate(alone), rate(beside));
            shapes.push(between(
                format!("PX-8 {variant}: reads keep 90 % of their rate beside 100 writes of 20 ms"),
                beside / alone,
                (KEPT_MIN, 1.2),
                &format!("{beside:.0}/s, {alone:.0}/s alone"),
            ));
        }
    }
    shapes
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let figure = |name: &str, title: &str, unit: &str, loads: &[usize], y: fn(&Row) -> Option<f64>| {
        let mut figure = Figure::new(name, title, Axis::linear(""), Axis::log(unit));
        figure.categories = loads.iter().map(|load| LOADS[*load].0.to_owned()).collect();
        for (variant, _) in ARMS {
            let dots = (0_u32..).zip(loads).filter_map(|(x, load)| {
                let row = rows.iter().find(|row| row.variant == variant && row.op == LOADS[*load].0)?;
                Some(Dot { x: f64::from(x), y: y(row)?, samples: row.samples.clone(), ..Dot::default() })
            });
            figure =
                figure.with(Series { name: variant.to_owned(), points: dots.collect(), ..Series::default() });
        }
        figure.caption("Bars: medians of the repeats; dots: the repeats.")
    };
    vec![
        figure("short", "An operation of 10 us", "microseconds", &[0, 1], |row| row.p50_us),
        figure("reads", "Reads of 10 clients", "operations per second", &[2, 3], |row| row.ops_per_s),
    ]
}
