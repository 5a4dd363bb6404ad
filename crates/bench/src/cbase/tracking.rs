//! `cbase-tracking`: what it costs to track the dependencies of a request, by the number of pending requests, and how many
//! requests are executed again.
//!
//! Both are measured on one thread, without agreement. For the second question, 16 runs are in progress at any time, and
//! end in random order. One of them belongs to a slow request: all requests of the next 20 ms run before it settles.

mod creates;
mod window;

use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use quorate_service::kv::{Kv, Operation};
use quorate_service::parallel::{Counters, EngineKind, KeyRules, Parallelizer, Position, Runs};
use quorate_service::{Executor, Options};
use quorate_wire::digest::Domains;
use quorate_wire::{Batch, ClientId, ClusterId, Replies, SeqNum, Timestamp};

use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Dot, Figure, Series};
use crate::figures::{median, ratio};
use crate::files::Chance;
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cbase-tracking",
    source: "of our own",
    about: "what tracking costs a request, with 10 to 60,000 requests pending, and the share of requests that run again",
    run,
    figures,
};

/// Requests that are pending.
const PENDING: [u32; 5] = [10, 100, 1_000, 10_000, 60_000];
/// What tracking may cost a request, in nanoseconds, and how much the costs may differ.
const NS_MAX: f64 = 1_000.0;
const SPREAD_MAX: f64 = 1.2;
/// Lanes, each with one request at a time: more than can be pending.
const LANES: u64 = 1 << 16;
/// Requests that run while one takes 20 ms, each of another lane, at 100,000 a second.
const WINDOW: u64 = 2_000;
/// Requests of a batch.
const BATCH: u64 = 50;
/// The share of requests that may run again, in percent.
const AGAIN_PERCENT_MAX: f64 = 1.0;

/// Returns an operation that writes a random key.
fn put(chance: &mut Chance, keys: usize) -> Vec<u8> {
    let mut operation = Vec::new();
    let key = chance.below(keys).to_be_bytes();
    Operation::Put { key: &key, value: &[7; 32] }.encode(&mut operation);
    operation
}

/// Returns the nanoseconds that all four calls of the parallelizer take for a request while others are pending, and the
/// groups that it looks at for a request.
fn track(pending: u32, requests: usize, operations: &[Vec<u8>]) -> Result<(f64, f64)> {
    let made = Parallelizer::new(EngineKind::GroupIndex, KeyRules::new(Kv), 7);
    let mut parallelizer = made.map_err(|error| anyhow!("{error}"))?;
    let mut numbers = (0_u64..).zip(operations.iter().cycle());
    let mut insert = |parallelizer: &mut Parallelizer<KeyRules<Kv>>| {
        let (number, operation) = numbers.next().context("numbers never end")?;
        let position = Position { seq: SeqNum(number + 1), index: 0 };
        let inserted = parallelizer.insert(position, number % LANES, operation, false);
        inserted.map_err(|_| anyhow!("too many requests are pending"))
    };
    (0..pending).try_for_each(|_| insert(&mut parallelizer))?;
    let (mut began, mut steps) = (Instant::now(), 0);
    let warm_up = requests / 4;
    for turn in 0..warm_up + requests {
        if turn == warm_up {
            (began, steps) = (Instant::now(), parallelizer.steps());
        }
        let oldest = parallelizer.next_request().context("the oldest request is ready")?;
        parallelizer.remove_request(oldest, 0);
        parallelizer.settled();
        insert(&mut parallelizer)?;
    }
    let requests = ratio(u64::try_from(requests)?, 1);
    let ns = began.elapsed().as_secs_f64() * 1e9 / requests;
    Ok((ns, ratio(parallelizer.steps() - steps, 1) / requests))
}

/// An executor, and the batches that it gets.
struct Store {
    executor: Executor<Kv>,
    domains: Domains,
    chance: Chance,
    keys: usize,
    ordered: u64,
}

impl Store {
    fn new(keys: usize) -> Result<Self> {
        let domains = Domains::new(ClusterId([1; 32]));
        let lanes = u32::try_from(2 * WINDOW)?;
        let options = Options { clients_max: lanes, lanes_max: lanes, ..Options::default() };
        let executor = Executor::new(Kv, domains.clone(), options);
        let mut store = Self { executor, domains, chance: Chance::new(3), keys, ordered: 0 };
        // More than half of the keys exist then.
        let mut replies = Replies::new();
        for _ in 0..(u64::try_from(keys)? / BATCH).max(WINDOW / BATCH) {
            let (seq, batch) = store.next_batch();
            let done = store.executor.execute(seq, &batch, false, &mut replies);
            done.map_err(|_| anyhow!("a page is missing"))?;
            replies.clear();
        }
        Ok(store)
    }

    fn next_batch(&mut self) -> (SeqNum, Batch) {
        let mut batch = Batch::default();
        for _ in 0..BATCH {
            let client = ClientId::new(1 + self.ordered % WINDOW, 0);
            let operation = put(&mut self.chance, self.keys);
            batch.push_operation(&self.domains, client, Timestamp(1 + self.ordered / WINDOW), &operation);
            self.ordered += 1;
        }
        let seq = SeqNum(self.ordered / BATCH);
        batch.seal(&self.domains, &seq.0.to_le_bytes());
        (seq, batch)
    }
}

/// Executes with runs. Returns what was counted.
fn execute(keys: usize, windows: usize) -> Result<Counters> {
    let mut store = Store::new(keys)?;
    let mut runs =
        Runs::new(EngineKind::GroupIndex, KeyRules::new(Kv), 7, true).map_err(|error| anyhow!("{error}"))?;
    let mut ends = Chance::new(5);
    for _ in 0..windows {
        for _ in 0..WINDOW / BATCH {
            let (seq, batch) = store.next_batch();
            runs.insert(&mut store.executor, seq, &batch).map_err(|_| anyhow!("no room"))?;
        }
        window::settle(&mut runs, &mut store.executor, &mut ends)?;
    }
    Ok(runs.counters())
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, requests) = settings.effort.of((9, 400_000), (5, 100_000), (1, 100));
    let (keys, windows) = settings.effort.of((1_000_000, 100), (1_000_000, 20), (1_000, 2));
    let machine = Machine::look("none, one thread".to_owned());
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, machine);
    let mut chance = Chance::new(1);
    let operations: Vec<Vec<u8>> = (0..2 * LANES).map(|_| put(&mut chance, keys)).collect();
    let mut samples = vec![Vec::new(); PENDING.len()];
    let mut steps = [0.0; PENDING.len()];
    for _ in 0..repeats {
        for ((pending, samples), steps) in PENDING.iter().zip(&mut samples).zip(&mut steps) {
            let (ns, looked_at) = track(*pending, requests, &operations)?;
            samples.push(ns / 1e3);
            *steps = looked_at;
        }
    }
    report.rows = PENDING.iter().zip(samples).map(|(pending, samples)| row(*pending, samples)).collect();
    report.shapes = shapes(&report.rows);
    report.shapes.push(shape_of_steps(&steps));
    let of_keys = format!("TR.2 less than 1 % of the requests on {keys} keys");
    report.shapes.push(shape_of_runs(&of_keys, execute(keys, windows)?));
    report.shapes.push(shape_of_runs(
        "TR.3 less than 1 % of the creates in 16 directories",
        creates::execute(windows)?,
    ));
    report.notes.push(format!(
        "tracking: insert, next_request, remove_request and settled, with the engine `keys` and the rules of the key-value \
         store, random keys out of {keys}; {requests} requests a repeat"
    ));
    Ok(report)
}

fn row(pending: u32, samples: Vec<f64>) -> Row {
    Row {
        system: "parallelizer".to_owned(),
        variant: format!("{pending} pending"),
        op: "put".to_owned(),
        mode: "rw".to_owned(),
        clients: pending,
        repeats: samples.len(),
        p50_us: Some(median(&samples)),
        unit: "us".to_owned(),
        samples,
        ..Row::default()
    }
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let costs: Vec<f64> = rows.iter().filter_map(|row| row.p50_us).map(|us| us * 1e3).collect();
    let (least, most) = costs.iter().fold((f64::MAX, 0.0_f64), |(a, b), ns| (a.min(*ns), b.max(*ns)));
    let all: Vec<String> =
        rows.iter().zip(&costs).map(|(row, ns)| format!("{ns:.0} ns with {}", row.clients)).collect();
    vec![
        Shape::new("TR.1 tracking costs a request less than 1 us", most < NS_MAX, all.join(", ")),
        Shape::new(
            "TR.1 it costs the same within 20 %, from 10 to 60,000 pending requests",
            most <= SPREAD_MAX * least,
            format!("{:.2} times", most / least),
        ),
    ]
}

fn shape_of_steps(steps: &[f64]) -> Shape {
    let (least, most) = steps.iter().fold((f64::MAX, 0.0_f64), |(a, b), at| (a.min(*at), b.max(*at)));
    Shape::new(
        "TR.1 the parallelizer looks at the same number of groups for each, within 20 %",
        most <= SPREAD_MAX * least,
        format!("{least:.2} to {most:.2}"),
    )
    .counted()
}

fn shape_of_runs(requests: &str, counters: Counters) -> Shape {
    let all = counters.runs + counters.on_pages;
    let percent = 100.0 * ratio(counters.again, all);
    Shape::new(
        format!("{requests} run again, with one of 20 ms always unsettled"),
        percent < AGAIN_PERCENT_MAX && counters.most > 1,
        format!(
            "{percent:.3} % of {all}; {:.1} runs at once in the mean, {} at most; {} on pages, {} replied early",
            ratio(counters.at_once, counters.starts),
            counters.most,
            counters.on_pages,
            counters.early
        ),
    )
    .counted()
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let dots = rows.iter().map(|row| Dot {
        x: f64::from(row.clients),
        y: row.p50_us.unwrap_or(0.0) * 1e3,
        samples: row.samples.iter().map(|us| us * 1e3).collect(),
        ..Dot::default()
    });
    let series = Series { name: "tracking".to_owned(), points: dots.collect(), ..Series::default() };
    let figure = Figure::new(
        "tracking",
        "The cost of tracking a request",
        Axis::log("pending requests"),
        Axis::linear("nanoseconds"),
    );
    vec![
        figure.with(series).caption("Medians; dots: repeats. Four calls of the parallelizer, on one thread."),
    ]
}
