//! `core-step`: the work of the protocol itself. Four replicas and a client in one process, with real authenticators,
//! keys and executors, and queues in memory instead of a network.
//!
//! It measures the processor time of one thread, so other processes have little effect. It reports the median of the
//! blocks.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use quorate_node::{Meter, Part};
use quorate_pbft::Config;
use quorate_service::null;
use quorate_wire::Cluster;

use crate::effort::{Effort, Settings};
use crate::experiment::Experiment;
use crate::figures::{median, ratio};
use crate::group::Group;
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};
use crate::{allocations, instructions};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "core-step",
    source: "ours",
    about: "processor time per message: four replicas and a client with real authenticators, in one process, no sockets",
    run,
    figures: |_| Vec::new(),
};

/// Maximum nanoseconds per received message, replicas and client together.
const NS_MAX: f64 = 400.0;
/// Maximum allocations of a replica for an ordered 0/0.
const ALLOCATIONS_MAX: f64 = 0.5;

/// A part of the work that took longer than this was interrupted by another process: it does not count.
const INTERRUPTED: Duration = Duration::from_micros(20);

const WARM_UP: usize = 2_000;
const BLOCK: usize = 1_000;

/// A way to run the protocol.
#[derive(Clone, Copy, Debug)]
struct Variant {
    name: &'static str,
    set: fn(&mut Config),
}

const VARIANTS: [Variant; 2] = [
    Variant { name: "default", set: |_| () },
    Variant { name: "piggyback off", set: |config| config.piggyback = false },
];

fn run(settings: Settings) -> Result<Report> {
    let blocks = settings.effort.of(200, 20, 4);
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look("none"));
    for variant in &VARIANTS {
        let mut row = measure(variant, blocks)?;
        row.parts_ns = parts(variant, blocks / 4)?;
        let count = settings.effort != Effort::Tiny;
        let per_op = if count { instructions::per_op(&[EXPERIMENT.name, variant.name])? } else { None };
        row.instructions_per_message = per_op.zip(row.messages_per_op).map(|(all, messages)| all / messages);
        report.shapes.extend(shapes(&row));
        report.rows.push(row);
    }
    report.notes.push(format!(
        "{} operations per variant after {WARM_UP} to warm up; durability memory; thread processor time; {}",
        blocks * BLOCK,
        if report.rows.iter().all(|row| row.instructions_per_message.is_some()) {
            "instructions counted by valgrind (AVX2)"
        } else {
            "instructions not counted: valgrind is missing, or the run is a quick one"
        },
    ));
    Ok(report)
}

/// Runs a number of operations and nothing else, for counting instructions from outside.
///
/// # Errors
///
/// The arguments are not a variant and a number, or the group does not work.
pub fn child(arguments: &[String]) -> Result<()> {
    let [variant, ops] = arguments else { anyhow::bail!("a variant and a number are expected") };
    let variant = VARIANTS.iter().find(|v| v.name == variant).context("no such variant")?;
    let mut group = Group::start(Cluster::tolerating(1)?, variant.set, || ())?;
    let operation = operation();
    for _ in 0..ops.parse()? {
        group.invoke(&operation, false)?;
    }
    Ok(())
}

fn operation() -> Vec<u8> {
    let mut operation = Vec::new();
    null::operation(0, 0, false, &mut operation);
    operation
}

/// Measures time and allocations.
fn measure(variant: &Variant, blocks: usize) -> Result<Row> {
    let cluster = Cluster::tolerating(1)?;
    let mut group = Group::start(cluster, variant.set, || ())?;
    let operation = operation();
    for _ in 0..WARM_UP {
        group.invoke(&operation, false)?;
    }
    let counted = |replica| allocations::count(replica);
    let before: Vec<u64> = (0..cluster.n()).map(counted).collect();
    let (received, errors) = (group.received(), group.errors());
    let (mut samples, mut seconds) = (Vec::new(), 0.0);
    for _ in 0..blocks {
        let (start, messages) = (cpu_seconds()?, group.received());
        for _ in 0..BLOCK {
            group.invoke(&operation, false)?;
        }
        let took = cpu_seconds()? - start;
        seconds += took;
        samples.push(took * 1e9 / ratio(group.received() - messages, 1));
    }
    let ops = u64::try_from(blocks * BLOCK)?;
    let allocations_per_op =
        before.iter().enumerate().map(|(replica, before)| ratio(counted(replica) - before, ops)).collect();
    Ok(Row {
        system: "quorate".to_owned(),
        variant: variant.name.to_owned(),
        op: "0/0".to_owned(),
        mode: "rw".to_owned(),
        n: u16::try_from(cluster.n()).ok(),
        f: u16::try_from(cluster.f()).ok(),
        clients: 1,
        repeats: blocks,
        ops_per_s: Some(ratio(ops, 1) / seconds),
        ns_per_message: Some(median(&samples)),
        messages_per_op: Some(ratio(group.received() - received, ops)),
        allocations_per_op,
        errors: group.errors() - errors,
        unit: "ns".to_owned(),
        samples,
        ..Row::default()
    })
}

fn shapes(row: &Row) -> Vec<Shape> {
    let variant = &row.variant;
    let time = row
        .ns_per_message
        .map(|ns| Shape::at_most(format!("{variant}: under 400 ns per received message"), ns, NS_MAX, "ns"));
    let most = row.allocations_per_op.iter().copied().reduce(f64::max).map(|most| {
        let name = format!("{variant}: at most one allocation for two ordered 0/0 at each replica");
        Shape::at_most(name, most, ALLOCATIONS_MAX, "allocations").counted()
    });
    time.into_iter().chain(most).collect()
}

/// Returns the processor time of this thread.
fn cpu_seconds() -> Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(Duration::from(time).as_secs_f64())
}

/// Adds up where the time goes, by looking at the clock after each part of the work.
#[derive(Debug)]
struct Laps {
    last: Instant,
    spent_ns: [f64; Part::COUNT],
    count: [u32; Part::COUNT],
}

impl Laps {
    fn new() -> Self {
        Self { last: Instant::now(), spent_ns: [0.0; Part::COUNT], count: [0; Part::COUNT] }
    }

    /// Returns what one look at the clock adds to a lap, in nanoseconds.
    fn cost_ns() -> f64 {
        let mut laps = Self::new();
        for _ in 0..100_000 {
            laps.lap(Part::Step);
        }
        laps.spent_ns[Part::Step.index()] / 100_000.0
    }
}

impl Meter for Laps {
    #[inline]
    fn start(&mut self) {
        self.last = Instant::now();
    }

    #[inline]
    fn lap(&mut self, part: Part) {
        let now = Instant::now();
        let took = now.duration_since(self.last);
        self.last = now;
        if took < INTERRUPTED {
            self.spent_ns[part.index()] += took.as_secs_f64() * 1e9;
            self.count[part.index()] += 1;
        }
    }
}

/// Measures the parts, in nanoseconds for each received message: of the replicas, then the client's.
fn parts(variant: &Variant, blocks: usize) -> Result<Vec<(String, f64)>> {
    let mut group = Group::start(Cluster::tolerating(1)?, variant.set, Laps::new)?;
    let operation = operation();
    for _ in 0..WARM_UP {
        group.invoke(&operation, false)?;
    }
    group.meters().for_each(|laps| *laps = Laps::new());
    let received = group.received();
    for _ in 0..blocks.max(1) * BLOCK {
        group.invoke(&operation, false)?;
    }
    let messages = ratio(group.received() - received, 1);
    let cost = Laps::cost_ns();
    let of = |laps: &Laps, part: Part| {
        (laps.spent_ns[part.index()] - f64::from(laps.count[part.index()]) * cost) / messages
    };
    let all: Vec<&mut Laps> = group.meters().collect();
    let Some((client, replicas)) = all.split_last() else { return Ok(Vec::new()) };
    let mut parts: Vec<(String, f64)> = Part::ALL
        .into_iter()
        .map(|part| (part.name().to_owned(), replicas.iter().map(|laps| of(laps, part)).sum()))
        .collect();
    parts.push(("client".to_owned(), Part::ALL.into_iter().map(|part| of(client, part)).sum()));
    Ok(parts)
}
