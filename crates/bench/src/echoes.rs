//! `echo`: a UDP round trip, polling and blocking, on one core and on two, with and without a MAC: the cost of the machine
//! itself, without any protocol.

use anyhow::Result;

use crate::arms::{Arm, Figure as Unit, Place, Plan};
use crate::echo::Way;
use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Dot, Figure, Series};
use crate::load::{Op, Until};
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "echo",
    source: "baselines",
    about: "UDP round trip: polling and blocking, on one core and on two, with and without a MAC",
    run,
    figures,
};

fn run(settings: Settings) -> Result<Report> {
    let (repeats, count) = settings.effort.of((15, 10_000), (7, 2_000), (2, 20));
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look(Place::Pinned.in_words()));
    let mut plan = Plan::new(Unit::Latency);
    for (way, core) in [(Way::Polling, 1), (Way::Blocking, 1), (Way::Yielding, 0), (Way::Blocking, 0)] {
        for mac in [false, true] {
            let arm = plan.arm(Arm::echo(way, mac, core)?);
            plan.point(arm, 1, Until::Ops(count), Op::rw(0, 0), None);
        }
    }
    report.rows = plan.run(settings, repeats)?;
    let of = |system: &str, variant: &str| {
        let row = report.rows.iter().find(|row| row.system == system && row.variant == variant);
        row.and_then(|row| row.p50_us).unwrap_or(f64::NAN)
    };
    let (polling, blocking) = (of("echo-polling", "two cores"), of("echo-blocking", "two cores"));
    let mac = of("echo-polling", "two cores, MAC");
    report.shapes = vec![
        Shape::new(
            "polling between two cores is faster than blocking",
            polling < blocking,
            format!(
                "{polling:.1} us against {blocking:.1} us: a wake-up costs {:.1} us per message",
                (blocking - polling) / 2.0
            ),
        ),
        Shape::new(
            "MACs on both messages cost less than the network",
            mac < 2.0 * polling,
            format!("{mac:.1} us with, {polling:.1} us without"),
        ),
    ];
    report
        .notes
        .push(format!("{count} echoes of 117 bytes a repeat; on one core polling gives way each time"));
    Ok(report)
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let mut figure = Figure::new("echo", "Echo over UDP", Axis::default(), Axis::linear("microseconds"));
    let ways = [("polling", "echo-polling"), ("blocking", "echo-blocking")];
    figure.categories =
        ["two cores", "two cores, MAC", "one core", "one core, MAC"].map(str::to_owned).to_vec();
    for (name, system) in ways {
        let dot = |(x, variant): (f64, &String)| {
            let row = rows.iter().find(|row| row.system == system && row.variant == *variant)?;
            Some(Dot { x, y: row.p50_us?, samples: row.samples.clone(), ..Dot::default() })
        };
        let points = [0.0, 1.0, 2.0, 3.0].into_iter().zip(&figure.categories).filter_map(dot).collect();
        figure = figure.with(Series { name: name.to_owned(), points, ..Series::default() });
    }
    vec![figure.caption(
        "Bars: medians of the repeats' medians; dots: the repeats. None of the papers has this figure.",
    )]
}
