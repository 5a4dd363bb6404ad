//! `cbase-overhead`: empty operations with 16 workers and without [CBASE04 Figure 4].
//!
//! Empty operations are short, so a replica executes them on pages, on its own thread (PX-E). In the arms *with runs*, each
//! request passes the parallelizer, and runs on cells, as a request of the paper does.

use anyhow::Result;

use super::{BASE, Curve, is_near, of, peak, throughput};
use crate::arms::Place;
use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Figure, clients, curve, ops, p50};
use crate::load::Op;
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};
use crate::setup::Setup;

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cbase-overhead",
    source: "CBASE04 Figure 4",
    about: "empty operations with 16 workers and with one: throughput and latency of 0/0, all independent and all dependent",
    run,
    figures,
};

/// One worker without tentative execution: what the paper's BASE would be with the settings of its CBASE.
const CONTROL: &str = "control";
const CBASE: &str = "CBASE";
const DEPENDENT: &str = "CBASE, dependent";
const RUNS: &str = "CBASE with runs";
const RUNS_DEPENDENT: &str = "CBASE with runs, dependent";
const SETUPS: [Setup; 7] = [
    Setup::DEFAULT,
    Setup::with(BASE, "auth=mac,piggyback=off"),
    Setup::with(CONTROL, "auth=mac,piggyback=off,tentative=off"),
    Setup::with(CBASE, "auth=mac,piggyback=off,tentative=off,workers=16"),
    Setup::with(DEPENDENT, "auth=mac,piggyback=off,tentative=off,workers=16,buckets=1"),
    Setup::with(RUNS, "auth=mac,piggyback=off,tentative=off,workers=16,runs=always"),
    Setup::with(RUNS_DEPENDENT, "auth=mac,piggyback=off,tentative=off,workers=16,runs=always,buckets=1"),
];
/// Number of client processes.
const HOSTS: usize = 2;
/// Microseconds of processor time that a replica may spend on a request at its peak.
const CPU_US_MAX: f64 = 100.0;
/// The paper's peak.
const PAPER_PEAK: f64 = 15_000.0;

fn run(settings: Settings) -> Result<Report> {
    let (repeats, ms) = settings.effort.of((5, 1_000), (3, 400), (1, 20));
    let counts: &[u16] = settings.effort.of(&[1, 10, 50, 200, 1000], &[1, 10, 1000], &[1, 5]);
    let curves = SETUPS.map(|setup| Curve { setup, clients: counts.to_vec() });
    let machine = Machine::look(Place::Free(HOSTS).in_words());
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, machine);
    report.rows = throughput(settings, &curves, (Op::rw(0, 0), HOSTS), (repeats, ms))?;
    report.shapes = shapes(&report.rows);
    report.notes.push(format!(
        "{ms} ms a point, {HOSTS} processes of clients; BASE: one worker, tentative on; control: the same with tentative \
         off; CBASE: 16 workers, tentative off; all three with MACs and piggybacking off; durability memory"
    ));
    report.notes.push("the checkpoint barrier of the paper (`sync`) is off in all arms".to_owned());
    Ok(report)
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let (base, cbase) = (peak(rows, BASE), peak(rows, CBASE));
    let mut shapes = vec![Shape::new(
        "C4.1 the maximum of CBASE is within 5 % of that of BASE, or above",
        cbase >= 0.95 * base,
        format!("{cbase:.0} op/s, {base:.0} op/s of BASE: {:.3} times", cbase / base),
    )];
    for variant in [CBASE, DEPENDENT, RUNS, RUNS_DEPENDENT] {
        for (row, control) in of(rows, variant).zip(of(rows, CONTROL)) {
            let figures = (ops(row), ops(control), p50(row), p50(control));
            let (Some(rate), Some(usual), Some(took), Some(usually)) = figures else { continue };
            shapes.push(Shape::new(
                format!(
                    "C4.2 {variant}, {} clients: throughput and p50 within 5 % of the control",
                    row.clients
                ),
                is_near(rate, usual) && is_near(took, usually),
                format!("{rate:.0} op/s, {usual:.0} of the control; p50 {took:.1} us, {usually:.1}"),
            ));
        }
    }
    let top = of(rows, CBASE).max_by(|a, b| ops(a).unwrap_or(0.0).total_cmp(&ops(b).unwrap_or(0.0)));
    // The processor time is that of four replicas.
    let cpu_us = top.and_then(|row| row.ops_per_core_s).map_or(f64::NAN, |rate| 1e6 / rate / 4.0);
    shapes.push(Shape::new(
        "C4.3 at its peak, a replica of CBASE spends less than 100 us of processor time on a request",
        cpu_us < CPU_US_MAX,
        format!("{cpu_us:.1} us"),
    ));
    shapes
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let mut throughput = Figure::new(
        "throughput",
        "CBASE04 Figure 4: throughput of 0/0",
        Axis::log("clients"),
        Axis::linear("operations per second"),
    );
    let mut latency = Figure::new(
        "latency",
        "CBASE04 Figure 4: latency of 0/0 by throughput",
        Axis::linear("operations per second"),
        Axis::log("microseconds"),
    );
    for setup in SETUPS {
        throughput = throughput.with(curve(setup.name, of(rows, setup.name), clients, ops));
        latency = latency.with(curve(setup.name, of(rows, setup.name), ops, p50));
    }
    let caption = "Medians; dots: repeats. The paper's maximum is read from its text: about 15,000 operations a second.";
    vec![throughput.paper_level("paper's maximum", PAPER_PEAK).caption(caption), latency.caption(caption)]
}
