//! `recovery`: one replica of four is killed, paused, lies, is slow, or loses its disk. Measures how long no client is
//! served, when the replica takes part again, and the throughput before, during and after the fault.
//!
//! That a replica takes part again is observed from outside: when it is healed, another replica is paused, so nothing can
//! be done without the healed one. A replica that lost its disk counts as faulty until it has rejoined; its log says when.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Dot, Figure, Series};
use crate::figures::{median, ratio};
use crate::load::{Load, Op, Sample, Until};
use crate::machine::Machine;
use crate::nodes::{BUCKET_US, Nodes};
use crate::processes;
use crate::report::{Report, Row, Shape};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "recovery",
    source: "ours",
    about: "a replica is killed, paused, lies, is slow or loses its disk: the time without service, and the time until the replica has rejoined",
    run,
    figures,
};

const LANES: u16 = 20;
/// Maximum time without a finished operation when the primary fails: the time-out, the view change, and delays of a busy
/// machine.
const GAP_MS_MAX: f64 = 1000.0;
/// The share of the throughput before the fault that is reached after it.
const AFTER_MIN: f64 = 0.5;
/// The replicas with injected faults: the primary of view 0, and a backup that stays one.
const PRIMARY: usize = 0;
const BACKUP: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    KillPrimary,
    PausePrimary,
    SlowPrimary,
    LyingBackup,
    WipedBackup,
}

const FAULTS: [(Fault, &str); 5] = [
    (Fault::KillPrimary, "primary killed"),
    (Fault::PausePrimary, "primary paused"),
    (Fault::SlowPrimary, "primary is slow"),
    (Fault::LyingBackup, "backup lies"),
    (Fault::WipedBackup, "backup loses its disk"),
];

/// When the fault begins and ends, and when the run ends, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    fault: u64,
    heal: u64,
    end: u64,
}

/// The measurements of one fault.
struct Seen {
    /// Finished operations in each millisecond.
    buckets: Vec<u32>,
    times: Times,
    gap_ms: f64,
    back_ms: Option<f64>,
    sample: Sample,
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, third) = settings.effort.of((5, 2_000), (1, 1_200), (1, 300));
    let pinning = format!("none, nice 0 for replicas, {} for clients", processes::nice_level());
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look(pinning));
    let times = Times { fault: third, heal: 2 * third, end: 4 * third };
    let mut seen: Vec<Vec<Seen>> = FAULTS.iter().map(|_| Vec::new()).collect();
    for _ in 0..repeats {
        for ((fault, name), seen) in FAULTS.into_iter().zip(&mut seen) {
            seen.push(inflict(fault, times).with_context(|| name.to_owned())?);
        }
    }
    report.rows = FAULTS.iter().zip(&seen).map(|((_, name), seen)| row(name, seen)).collect();
    report.shapes = shapes(&report.rows);
    report.notes.push(format!(
        "{LANES} clients, ordered 0/0; the fault begins after {third} ms and ends after {}; durability sync; a liar stays one; \
         a slow primary is paused for 40 of every 50 ms",
        times.heal
    ));
    report.notes.push(
        "back: from healing the replica until an operation finishes that needs it, because another replica is paused from \
         then on; for a lost disk, until the replica logs that it has rejoined"
            .to_owned(),
    );
    Ok(report)
}

fn sleep_until(start: Instant, ms: u64) {
    std::thread::sleep((start + Duration::from_millis(ms)).saturating_duration_since(Instant::now()));
}

/// Runs a cluster through one fault.
fn inflict(fault: Fault, times: Times) -> Result<Seen> {
    let mut nodes = Nodes::start("recovery", "sync")?;
    let mut host = nodes.host()?;
    let load = |until| Load { lanes: LANES, until, op: Op::rw(0, 0) }.line();
    host.tell(&load(Until::Ops(20)))?;
    let _warm_up = (host.line()?, host.line()?);
    let start = Instant::now();
    host.tell(&load(Until::Ms(times.end)))?;
    sleep_until(start, times.fault);
    match fault {
        Fault::KillPrimary => nodes.kill(PRIMARY)?,
        Fault::PausePrimary => nodes.signal(PRIMARY, Signal::SIGSTOP)?,
        Fault::SlowPrimary => {
            while start.elapsed() < Duration::from_millis(times.heal) {
                nodes.signal(PRIMARY, Signal::SIGSTOP)?;
                std::thread::sleep(Duration::from_millis(40));
                nodes.signal(PRIMARY, Signal::SIGCONT)?;
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Fault::LyingBackup => {
            nodes.kill(BACKUP)?;
            nodes.restart(BACKUP, &["--liar", LIE])?;
        }
        Fault::WipedBackup => {
            nodes.kill(BACKUP)?;
            nodes.wipe(BACKUP)?;
        }
    }
    sleep_until(start, times.heal);
    let healed = Instant::now();
    let mut rejoined = None;
    match fault {
        Fault::KillPrimary => {
            nodes.restart(PRIMARY, &[])?;
            nodes.signal(BACKUP, Signal::SIGSTOP)?;
        }
        Fault::PausePrimary => {
            nodes.signal(PRIMARY, Signal::SIGCONT)?;
            nodes.signal(BACKUP, Signal::SIGSTOP)?;
        }
        Fault::SlowPrimary | Fault::LyingBackup => {}
        Fault::WipedBackup => {
            nodes.restart(BACKUP, &[])?;
            while rejoined.is_none() && start.elapsed() < Duration::from_millis(times.end) {
                rejoined = nodes.log(BACKUP).contains("has rejoined").then(|| healed.elapsed());
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    let line = host.line()?;
    let sample: Sample = serde_json::from_str(&line).with_context(|| line.clone())?;
    let buckets: Vec<u32> = serde_json::from_str(&host.line()?)?;
    ensure!(!buckets.is_empty(), "no operation finished");
    let index = |ms: u64| usize::try_from(ms).unwrap_or(usize::MAX).min(buckets.len());
    let gap_ms = longest_gap(buckets.get(index(times.fault)..index(times.heal)).unwrap_or(&[]));
    let behind = buckets.get(index(times.heal)..).unwrap_or(&[]);
    let back_ms = match fault {
        Fault::KillPrimary | Fault::PausePrimary => Some(longest_gap(behind)),
        Fault::WipedBackup => rejoined.map(|time| time.as_secs_f64() * 1000.0),
        Fault::SlowPrimary | Fault::LyingBackup => None,
    };
    Ok(Seen { buckets, times, gap_ms, back_ms, sample })
}

/// The backup's liar.
const LIE: &str = "wrong-reply";

/// Returns the longest run without an operation, in milliseconds.
fn longest_gap(buckets: &[u32]) -> f64 {
    let (mut longest, mut current) = (0_u64, 0_u64);
    for count in buckets {
        current = if *count == 0 { current + 1 } else { 0 };
        longest = longest.max(current);
    }
    ratio(longest * u64::from(BUCKET_US), 1000)
}

impl Seen {
    /// Returns the operations per second between two moments.
    fn rate(&self, from_ms: u64, to_ms: u64) -> f64 {
        let index = |ms: u64| usize::try_from(ms).unwrap_or(usize::MAX);
        let count = self.buckets.iter().skip(index(from_ms)).take(index(to_ms - from_ms));
        let done: u64 = count.map(|done| u64::from(*done)).sum();
        ratio(done, to_ms - from_ms) * 1000.0
    }

    /// Returns its curve: operations per second for each 50 ms.
    fn timeline(&self) -> Vec<(f64, f64)> {
        const STEP: u64 = 50;
        (0..self.times.end / STEP)
            .map(|step| (ratio(step * STEP + STEP / 2, 1000), self.rate(step * STEP, (step + 1) * STEP)))
            .collect()
    }
}

fn row(name: &str, seen: &[Seen]) -> Row {
    let all = |of: &dyn Fn(&Seen) -> f64| seen.iter().map(of).collect::<Vec<f64>>();
    let back: Vec<f64> = seen.iter().filter_map(|seen| seen.back_ms).collect();
    let gaps = all(&|seen| seen.gap_ms);
    Row {
        system: "quorate".to_owned(),
        variant: name.to_owned(),
        op: "0/0".to_owned(),
        mode: "rw".to_owned(),
        n: Some(4),
        f: Some(1),
        clients: u32::from(LANES),
        repeats: seen.len(),
        durability: Some("sync".to_owned()),
        gap_ms: Some(median(&gaps)),
        back_ms: (!back.is_empty()).then(|| median(&back)),
        before_ops_per_s: Some(median(&all(&|s| s.rate(s.times.fault / 3, s.times.fault)))),
        ops_per_s: Some(median(&all(&|s| s.rate(s.times.fault, s.times.heal)))),
        after_ops_per_s: Some(median(&all(&|s| {
            s.rate(u64::midpoint(s.times.heal, s.times.end), s.times.end)
        }))),
        resent: Some(all(&|s| ratio(s.sample.resent, 1)).iter().sum()),
        timeline: seen.first().map_or_else(Vec::new, Seen::timeline),
        unit: "ms".to_owned(),
        samples: gaps,
        ..Row::default()
    }
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for row in rows {
        let gap = row.gap_ms.unwrap_or(f64::NAN);
        let name = format!("{}: nobody waits longer than a second", row.variant);
        shapes.push(Shape::at_most(name, gap, GAP_MS_MAX, "ms"));
        let (before, after) = (row.before_ops_per_s.unwrap_or(0.0), row.after_ops_per_s.unwrap_or(0.0));
        let back = row.back_ms.map_or(String::new(), |ms| format!("; back after {ms:.0} ms"));
        shapes.push(Shape::new(
            format!("{}: afterwards at least half of what was done before is done again", row.variant),
            after >= AFTER_MIN * before && before > 0.0,
            format!("{before:.0} op/s before, {after:.0} after{back}"),
        ));
    }
    shapes
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let one = |row: &Row| {
        let points: Vec<Dot> = row
            .timeline
            .iter()
            .map(|(x, y)| Dot { x: *x, y: *y, samples: Vec::new(), ..Dot::default() })
            .collect();
        let title = format!("Recovery: {}", row.variant);
        Figure::new(&row.variant.replace(' ', "-"), &title, Axis::linear("seconds"), Axis::linear("operations per second"))
            .with(Series { name: "ordered 0/0, 20 clients".to_owned(), points, ..Series::default() })
            .caption("The first repeat, 50 ms per point. The fault begins at a quarter of the time and ends at half of it.")
    };
    rows.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_the_longest_time_in_which_nothing_was_done() {
        assert!((longest_gap(&[1, 0, 0, 2, 0, 0, 0]) - 3.0).abs() < 1e-9);
        assert!(longest_gap(&[1, 1]).abs() < 1e-9);
    }
}
