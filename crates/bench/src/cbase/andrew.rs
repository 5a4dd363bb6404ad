//! `cbase-andrew`: copies of the Andrew benchmark, one after the other, by one client that computes most of the time
//! [CBASE04 §6.3].

use std::time::Instant;

use anyhow::{Context as _, Result};

use super::between;
use super::files::{self, BASE, CBASE, compare};
use crate::effort::{Effort, Settings};
use crate::experiment::Experiment;
use crate::figure::{Axis, Dot, Figure, Series};
use crate::figures::median;
use crate::files::andrew::{PROGRAM_BYTES, measure};
use crate::files::noise;
use crate::files::servers::{self, Arm, Server, Work};
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cbase-andrew",
    source: "CBASE04 section 6.3",
    about: "copies of the Andrew benchmark one after the other, with one client: time of BASE-FS and CBASE-FS",
    run,
    figures,
};

const ARMS: &[Arm] = &[files::base(Work::Memory), files::cbase(Work::Memory), files::control(Work::Memory)];
const FEW_ARMS: &[Arm] = &[files::base(Work::Memory), files::cbase(Work::Memory)];
/// What CBASE-FS may take, in times of BASE-FS: the paper's BASE-FS is 4 % faster. Far below 1, something is wrong.
const RATIO: (f64, f64) = (0.9, 1.04);

/// Runs the copies. Returns the seconds in all, the seconds of computing, and how many calls were repeated.
fn run_all(server: &Server, copies: usize, data: &[u8]) -> Result<(f64, f64, u64)> {
    let mut all = (0.0, 0.0, 0);
    for _ in 0..copies {
        let sample = measure(server, 1, data)?;
        all = (all.0 + sample.total(), all.1 + sample.computed_s, all.2 + sample.delayed);
    }
    Ok(all)
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, copies) = settings.effort.of((3, 100), (3, 6), (1, 1));
    let mut report =
        Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look("replicas, one core each"));
    let arms = if settings.effort == Effort::Tiny { FEW_ARMS } else { ARMS };
    let servers = servers::start_all(arms, &mut report.notes)?;
    let data = noise(PROGRAM_BYTES);
    if settings.effort > Effort::Tiny {
        for server in &servers {
            measure(server, 1, &data).with_context(|| format!("{} while warming up", server.name()))?;
        }
    }
    let mut samples = vec![Vec::new(); servers.len()];
    let (start, turns) = (Instant::now(), repeats * servers.len());
    for repeat in 0..repeats {
        for (at, (server, samples)) in servers.iter().zip(&mut samples).enumerate() {
            crate::progress::turn(repeat * servers.len() + at, turns, start);
            samples.push(run_all(server, copies, &data).with_context(|| server.name())?);
        }
    }
    report.rows =
        servers.iter().zip(&samples).map(|(server, samples)| row(server, copies, samples)).collect();
    report.shapes = shapes(&report.rows);
    report.notes.push(format!("{copies} copies, one after the other; the calls are those of `fs-andrew`"));
    files::notes(&mut report);
    Ok(report)
}

fn row(server: &Server, copies: usize, samples: &[(f64, f64, u64)]) -> Row {
    let all: Vec<f64> = samples.iter().map(|sample| sample.0).collect();
    let computed: Vec<f64> = samples.iter().map(|sample| sample.1 * 1e9).collect();
    Row {
        repeats: samples.len(),
        seconds: Some(median(&all)),
        errors: samples.iter().map(|sample| sample.2).sum(),
        unit: "s".to_owned(),
        parts_ns: vec![("client computing".to_owned(), median(&computed))],
        samples: all,
        ..server.row(&format!("andrew, {copies} in turn"), "-", 1)
    }
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let of = |system: &str| rows.iter().find(|row| row.system == system)?.seconds;
    let name = "CA.1 CBASE-FS takes at most 4 % more time than BASE-FS";
    vec![compare(name, of(CBASE).zip(of(BASE)), |name, a, b| {
        between(name, a / b, RATIO, &format!("{a:.2} s, {b:.2} s"))
    })]
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let base = rows.iter().find(|row| row.system == BASE).and_then(|row| row.seconds).unwrap_or(1.0);
    let mut figure = Figure::new(
        "total",
        "CBASE04 section 6.3: Andrew's calls, copies in turn",
        Axis::linear("system"),
        Axis::linear("time, divided by that of BASE-FS"),
    );
    figure.categories = rows.iter().map(|row| row.system.clone()).collect();
    let dots = (0_u32..).zip(rows).map(|(x, row)| Dot {
        x: f64::from(x),
        y: row.seconds.unwrap_or(0.0) / base,
        samples: row.samples.iter().map(|sample| sample / base).collect(),
        ..Dot::default()
    });
    let ours = Series { name: "here".to_owned(), points: dots.collect(), ..Series::default() };
    let caption =
        "Bars: medians of the repeats; dots: the repeats. Grey: the paper's CBASE-FS, from its text.";
    vec![figure.with(ours).paper("the paper", &[(1.0, RATIO.1)]).caption(caption)]
}
