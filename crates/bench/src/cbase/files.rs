//! What the experiments on file systems share: the arms, clients that work at the same time, and their rows.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::effort::Effort;
use crate::figure::{Axis, Figure, curve};
use crate::figures::{median, percentile, ratio};
use crate::files::client::Nfs;
use crate::files::servers::{Arm, Replicas, Server, Work};
use crate::report::{Report, Row, Shape};

/// The paper's systems.
pub(super) const BASE: &str = "BASE-FS";
pub(super) const CBASE: &str = "CBASE-FS";
/// BASE-FS with the setting of CBASE-FS that changes agreement: no tentative execution.
pub(super) const CONTROL: &str = "control";
/// CBASE-FS with other engines.
pub(super) const KEYS: &str = "CBASE-FS keys";
pub(super) const FREE: &str = "CBASE-FS free";
/// The workers of CBASE-FS.
pub(super) const WORKERS: f64 = 16.0;

const fn cluster(name: &'static str, settings: &'static [(&'static str, &'static str)], work: Work) -> Arm {
    Arm::Parallel(Replicas { name, settings, work })
}

/// One worker, with tentative execution.
pub(super) const fn base(work: Work) -> Arm {
    cluster(BASE, &[], work)
}

pub(super) const fn control(work: Work) -> Arm {
    cluster(CONTROL, &[("tentative", "false")], work)
}

/// 16 workers with the matrix of the paper: file handles only.
pub(super) const fn cbase(work: Work) -> Arm {
    cluster(CBASE, &[("tentative", "false"), ("workers", "16"), ("parallel", "matrix")], work)
}

pub(super) const fn keys(work: Work) -> Arm {
    cluster(KEYS, &[("tentative", "false"), ("workers", "16"), ("parallel", "keys")], work)
}

pub(super) const fn free(work: Work) -> Arm {
    cluster(FREE, &[("tentative", "false"), ("workers", "16"), ("parallel", "free")], work)
}

/// The notes of every experiment.
pub(super) fn notes(report: &mut Report) {
    report.notes.push(
        "BASE-FS: one worker, tentative on; control: the same with tentative off; CBASE-FS: 16 workers, tentative off, \
         dependencies by the paper's matrix (file handles); CBASE-FS keys, free: other engines; all with MACs, piggybacking \
         off, strict access times, durability memory; each replica is pinned to one core; the clients are threads of this \
         process, with a connection each to one gateway"
            .to_owned(),
    );
    report.notes.push(
        "missing: the paper's off-the-shelf file server behind a conformance wrapper; quorate's own file system stands in"
            .to_owned(),
    );
    report
        .notes
        .push("missing: the checkpoint barrier of the paper (`sync`), which is off in all arms".to_owned());
}

/// The note of the experiments with a store.
pub(super) fn note_store(report: &mut Report) {
    report.notes.push(
        "missing: a remote store in the product (PX-H); here a replica of the experiment writes each changing call to a store \
         process before it answers, as a record that nothing reads; a store writes one record at a time, with fdatasync; \
         all stores share the disk of QUORATE_BENCH_DIR"
            .to_owned(),
    );
}

/// The result of a load.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// Operations a second.
    pub(super) per_s: f64,
    pub(super) p50_us: f64,
    /// The share of the time in which the disk of a store was busy: the mean of the stores. NaN: there is none.
    pub(super) store_busy: f64,
    pub(super) delayed: u64,
}

/// The work of a client.
pub(super) trait Client: Send + Sized {
    /// Prepares client `number`. This takes no time of the load.
    fn begin(number: usize, nfs: Nfs) -> Result<Self>;
    /// Does an operation.
    fn turn(&mut self) -> Result<()>;
    /// Removes what it has made, and returns how many calls were repeated.
    fn end(self) -> Result<u64>;
}

/// Runs these clients for a time.
pub(super) fn load<C: Client>(server: &Server, clients: usize, time: Duration) -> Result<Sample> {
    let place = server.place.clone();
    let mut ready: Vec<C> =
        on_threads((0..clients).collect(), |number| C::begin(number, Nfs::mount(&place)?))?;
    let (before, start) = (server.store_busy_ns()?, Instant::now());
    let took = on_threads(ready.iter_mut().collect(), |client| {
        let mut took_us = Vec::new();
        let mut began = start.elapsed();
        while began < time {
            client.turn()?;
            let now = start.elapsed();
            if now <= time {
                took_us.push(now.saturating_sub(began).as_secs_f64() * 1e6);
            }
            began = now;
        }
        Ok(took_us)
    })?;
    let (after, spent) = (server.store_busy_ns()?, start.elapsed().as_secs_f64());
    let shares: Vec<f64> = after
        .iter()
        .zip(before)
        .map(|(after, before)| ratio(after.saturating_sub(before), 1_000_000_000) / spent)
        .collect();
    let mut took_us: Vec<f64> = took.into_iter().flatten().collect();
    took_us.sort_by(f64::total_cmp);
    let delayed = on_threads(ready, C::end)?.into_iter().sum();
    Ok(Sample {
        per_s: ratio(u64::try_from(took_us.len())?, 1) / time.as_secs_f64(),
        p50_us: percentile(&took_us, 50),
        store_busy: shares.iter().sum::<f64>() / ratio(u64::try_from(shares.len())?, 1),
        delayed,
    })
}

/// Does the same with each item, on a thread each.
pub(super) fn on_threads<I: Send, T: Send>(
    items: Vec<I>,
    work: impl Fn(I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let threads: Vec<_> = items.into_iter().map(|item| scope.spawn(|| work(item))).collect();
        let done = threads.into_iter().map(thread::ScopedJoinHandle::join);
        done.map(|done| done.ok().context("a client has panicked")?).collect()
    })
}

/// The points of an experiment: the numbers of clients, how often and for how long each is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Points {
    pub(super) clients: &'static [usize],
    pub(super) repeats: usize,
    pub(super) ms: u64,
}

impl Points {
    pub(super) fn of(effort: Effort, full: &'static [usize], quick: &'static [usize]) -> Self {
        let (clients, repeats, ms) = effort.of((full, 3, 3_000), (quick, 3, 500), (&[1, 2][..], 1, 30));
        Self { clients, repeats, ms }
    }

    /// Measures this load with all servers in turn. Each point of each server is a row with operations a second.
    pub(super) fn measure<C: Client>(&self, servers: &[Server], op: &str) -> Result<Vec<Row>> {
        let time = Duration::from_millis(self.ms);
        let most = self.clients.iter().max().copied().unwrap_or(1);
        for server in servers {
            // It opens the lanes, too.
            let warm = load::<C>(server, most, time / 4);
            warm.with_context(|| format!("{} while warming up", server.name()))?;
        }
        let mut samples = vec![vec![Vec::new(); self.clients.len()]; servers.len()];
        let (start, turns) = (Instant::now(), self.repeats * self.clients.len() * servers.len());
        let mut turn = 0;
        for _ in 0..self.repeats {
            for (at, clients) in self.clients.iter().enumerate() {
                for (server, samples) in servers.iter().zip(&mut samples) {
                    crate::progress::turn(turn, turns, start);
                    turn += 1;
                    let sample = load::<C>(server, *clients, time);
                    samples[at]
                        .push(sample.with_context(|| format!("{}, {clients} clients", server.name()))?);
                }
            }
        }
        let rows = servers.iter().zip(&samples).flat_map(|(server, samples)| {
            self.clients.iter().zip(samples).map(|(clients, samples)| row(server, op, *clients, samples))
        });
        Ok(rows.collect())
    }
}

fn row(server: &Server, op: &str, clients: usize, samples: &[Sample]) -> Row {
    let all = |figure: fn(&Sample) -> f64| samples.iter().map(figure).collect::<Vec<f64>>();
    let busy = median(&all(|sample| sample.store_busy));
    Row {
        repeats: samples.len(),
        ops_per_s: Some(median(&all(|sample| sample.per_s))),
        p50_us: Some(median(&all(|sample| sample.p50_us))),
        bytes: Some(RECORD),
        errors: samples.iter().map(|sample| sample.delayed).sum(),
        unit: "op/s".to_owned(),
        samples: all(|sample| sample.per_s),
        store_percent: (!busy.is_nan()).then_some(busy * 100.0),
        ..server.row(op, "rw", u32::try_from(clients).unwrap_or(u32::MAX))
    }
}

/// Bytes of a record: what an operation writes or reads.
pub(super) const RECORD: usize = 4 << 10;

/// Returns the rows of a system with this operation. None: all variants.
fn of<'r>(
    rows: &'r [Row],
    (system, variant): (&str, Option<&str>),
    op: &str,
) -> impl Iterator<Item = &'r Row> {
    let (system, variant, op) = (system.to_owned(), variant.map(str::to_owned), op.to_owned());
    rows.iter().filter(move |row| {
        row.system == system && row.op == op && variant.as_ref().is_none_or(|variant| row.variant == *variant)
    })
}

/// Returns the highest throughput of a system, in operations a second.
pub(super) fn peak(rows: &[Row], system: (&str, Option<&str>), op: &str) -> Option<f64> {
    of(rows, system, op).filter_map(|row| row.ops_per_s).reduce(f64::max)
}

/// Returns how busy the stores were at the highest throughput of a system, in percent.
pub(super) fn busy(rows: &[Row], system: (&str, Option<&str>), op: &str) -> f64 {
    let most = of(rows, system, op).max_by(|a, b| {
        let rate = |row: &Row| row.ops_per_s.unwrap_or(0.0);
        rate(a).total_cmp(&rate(b))
    });
    most.and_then(|row| row.store_percent).unwrap_or(f64::NAN)
}

/// Returns a statement about two figures, if both arms were measured.
pub(super) fn compare(
    name: &str,
    figures: Option<(f64, f64)>,
    judge: impl FnOnce(&str, f64, f64) -> Shape,
) -> Shape {
    match figures {
        Some((a, b)) => judge(name, a, b),
        None => Shape::incomparable(name, "an arm is missing"),
    }
}

/// Returns operations a second of records, in megabytes.
pub(super) fn mb(per_s: f64) -> f64 {
    per_s * ratio(u64::try_from(RECORD).unwrap_or(0), 1_000_000)
}

/// Returns the two figures of an operation: throughput by clients, with the paper's levels, and latency by throughput.
pub(super) fn figures(
    rows: &[Row],
    op: &str,
    (name, what): (&str, &str),
    paper: &[(&str, f64)],
) -> Vec<Figure> {
    let mut throughput = Figure::new(
        &format!("{name}-throughput"),
        &format!("CBASE04 Figure {what}: throughput"),
        Axis::log("clients"),
        Axis::log("MB per second"),
    );
    let mut latency = Figure::new(
        &format!("{name}-latency"),
        &format!("CBASE04 Figure {what}: response time by throughput"),
        Axis::log("MB per second"),
        Axis::log("milliseconds"),
    );
    let mut systems: Vec<(&str, &str)> = Vec::new();
    for row in rows.iter().filter(|row| row.op == op) {
        let system = (row.system.as_str(), row.variant.as_str());
        if !systems.contains(&system) {
            systems.push(system);
        }
    }
    let per_s = |row: &Row| row.ops_per_s.map(mb);
    for (system, variant) in systems {
        let label = format!("{system} {variant}");
        let points = || of(rows, (system, Some(variant)), op);
        throughput = throughput.with(curve(&label, points(), crate::figure::clients, per_s));
        latency = latency.with(curve(&label, points(), per_s, |row| row.p50_us.map(|us| us / 1e3)));
    }
    for (label, level) in paper {
        throughput = throughput.paper_level(label, *level);
    }
    let caption = "Medians of the repeats. Grey: the paper's highest throughput, from its text.";
    vec![throughput.caption(caption), latency.caption("Medians of the repeats.")]
}
