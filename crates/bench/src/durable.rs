//! `durable`: the cost of writing to disk before acknowledging: `memory`, which is the papers' model, `async` and `sync`.

use anyhow::{Context, Result};

use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Dot, Figure, Series};
use crate::figures::{median, ratio};
use crate::load::{Load, Op, Sample, Until};
use crate::machine::Machine;
use crate::nodes::{self, Nodes};
use crate::processes::{self, Part};
use crate::report::{Report, Row, Shape};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "durable",
    source: "ours",
    about: "durability memory, async and sync: latency of one client, throughput of 100, with replicas as in production",
    run,
    figures,
};

/// Maximum latency of one client, and minimum throughput of 100 clients, with `sync`.
const ONE_US_MAX: f64 = 1000.0;
const MANY_MIN: f64 = 10_000.0;
const MANY: u16 = 100;

const WAYS: [&str; 3] = ["memory", "async", "sync"];

/// A cluster and its clients, with the measurements.
struct Arm {
    way: &'static str,
    nodes: Nodes,
    host: Part,
    one: Vec<Sample>,
    many: Vec<Sample>,
    per_core: Vec<f64>,
}

impl Arm {
    fn start(way: &'static str) -> Result<Self> {
        let nodes = Nodes::start(way, way)?;
        let host = nodes.host()?;
        Ok(Self { way, nodes, host, one: Vec::new(), many: Vec::new(), per_core: Vec::new() })
    }

    fn measure(&mut self, lanes: u16, until: Until) -> Result<Sample> {
        self.host.tell(&Load { lanes, until, op: Op::rw(0, 0) }.line())?;
        let sample = serde_json::from_str(&self.host.line()?)?;
        let _moments = self.host.line()?;
        Ok(sample)
    }

    fn servers_ns(&self) -> Result<u64> {
        self.nodes.pids().into_iter().map(processes::all_threads_ns).sum()
    }

    fn row(&self, clients: u16, samples: &[Sample]) -> Row {
        let all = |figure: fn(&Sample) -> f64| samples.iter().map(figure).collect::<Vec<f64>>();
        let alone = clients == 1;
        Row {
            system: "quorate".to_owned(),
            variant: self.way.to_owned(),
            op: "0/0".to_owned(),
            mode: "rw".to_owned(),
            n: Some(4),
            f: Some(1),
            clients: u32::from(clients),
            repeats: samples.len(),
            durability: Some(self.way.to_owned()),
            p25_us: Some(median(&all(|s| s.p25_us))),
            p50_us: Some(median(&all(|s| s.p50_us))),
            p75_us: Some(median(&all(|s| s.p75_us))),
            p99_us: Some(median(&all(|s| s.p99_us))),
            ops_per_s: Some(median(&all(|s| s.ops_per_s))),
            ops_per_core_s: (!alone).then(|| median(&self.per_core)),
            resent: Some(all(|s| ratio(s.resent, 1)).iter().sum()),
            unit: if alone { "us" } else { "op/s" }.to_owned(),
            samples: all(if alone { |s| s.p50_us } else { |s| s.ops_per_s }),
            ..Row::default()
        }
    }
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, ms) = settings.effort.of((7, 3_000), (3, 1_000), (1, 40));
    let pinning = format!("none, nice 0 for replicas, {} for clients", processes::nice_level());
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look(pinning));
    let mut arms = WAYS.into_iter().map(Arm::start).collect::<Result<Vec<_>>>()?;
    for arm in &mut arms {
        let warm_up = settings.effort.of(500, 200, 5);
        arm.measure(1, Until::Ops(warm_up)).with_context(|| format!("{} while warming up", arm.way))?;
    }
    for _ in 0..repeats {
        for arm in &mut arms {
            let one = arm.measure(1, Until::Ms(ms / 2))?;
            let before = arm.servers_ns()?;
            let many = arm.measure(MANY, Until::Ms(ms))?;
            let spent_s = ratio(arm.servers_ns()?.saturating_sub(before), 1_000_000_000);
            arm.per_core.push(ratio(many.done, 1) / spent_s);
            arm.one.push(one);
            arm.many.push(many);
        }
    }
    report.rows = arms.iter().flat_map(|arm| [arm.row(1, &arm.one), arm.row(MANY, &arm.many)]).collect();
    report.shapes = shapes(&report.rows);
    let place = if nodes::is_in_memory() { "in memory (tmpfs)" } else { "on a disk" };
    report.notes.push(format!(
        "logs {place}, shared by all four replicas; QUORATE_BENCH_DIR sets another place; {ms} ms per point"
    ));
    Ok(report)
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let find =
        |way: &str, clients: u16| rows.iter().find(|r| r.variant == way && r.clients == u32::from(clients));
    let p50 = |way| find(way, 1).and_then(|row| row.p50_us).unwrap_or(f64::NAN);
    let ops = |way| find(way, MANY).and_then(|row| row.ops_per_s).unwrap_or(f64::NAN);
    let one = "sync: latency of one client under 1 ms";
    let many = "sync: throughput of 100 clients over 10,000 op/s";
    let mut shapes = if nodes::is_in_memory() {
        let why = "the logs are on tmpfs, in memory: set QUORATE_BENCH_DIR to a directory on a disk";
        vec![Shape::incomparable(one, why), Shape::incomparable(many, why)]
    } else {
        vec![
            Shape::at_most(one, p50("sync"), ONE_US_MAX, "us"),
            Shape::at_least(many, ops("sync"), MANY_MIN, "op/s"),
        ]
    };
    shapes.push(Shape::new(
        "one client: memory is at least as fast as async, and async at least as fast as sync",
        p50("memory") <= p50("async") * 1.1 && p50("async") <= p50("sync") * 1.1,
        format!("{:.0}, {:.0}, {:.0} us", p50("memory"), p50("async"), p50("sync")),
    ));
    shapes
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let bars = |title: &str, name: &str, unit: &str, clients: u16, of: fn(&Row) -> Option<f64>| {
        let mut figure = Figure::new(name, title, Axis::linear("durability"), Axis::linear(unit));
        figure.categories = WAYS.map(str::to_owned).to_vec();
        let dot = |(x, way): (f64, &str)| {
            let row = rows.iter().find(|row| row.variant == way && row.clients == u32::from(clients))?;
            Some(Dot { x, y: of(row)?, samples: row.samples.clone(), ..Dot::default() })
        };
        let points = [0.0, 1.0, 2.0].into_iter().zip(WAYS).filter_map(dot).collect();
        figure
            .with(Series { name: "ordered 0/0".to_owned(), points, ..Series::default() })
            .caption("Bars: medians of the repeats; dots: the repeats. The papers' model is memory.")
    };
    vec![
        bars("Durability: latency of one client", "latency", "microseconds", 1, |row| row.p50_us),
        bars("Durability: throughput of 100 clients", "throughput", "operations per second", MANY, |row| {
            row.ops_per_s
        }),
    ]
}
