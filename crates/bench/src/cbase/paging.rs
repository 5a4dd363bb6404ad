//! `cbase-paging`: random reads and writes of keys whose state is four times as large as the memory for it, with 16
//! requests in progress: by the number of workers.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use quorate_node::Caller;
use quorate_node::caller::CallerOptions;
use quorate_node::settings::ServiceName;
use quorate_service::kv::Operation;

use super::files::on_threads;
use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Dot, Figure, Series};
use crate::figures::{median, ratio};
use crate::files::{Chance, noise};
use crate::machine::Machine;
use crate::nodes::{self, Nodes};
use crate::report::{Report, Row, Shape};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cbase-paging",
    source: "ours",
    about: "random reads and writes of a state four times as large as the memory, 16 requests in progress: 1 worker and 16",
    run,
    figures,
};

/// Requests in progress, each of a lane.
const LANES: u16 = 16;
/// Bytes of a value: a page.
const VALUE: usize = 4096;
/// The state, in times of the memory for it.
const TIMES: usize = 4;
const ONE: &str = "1 worker";
const MANY: &str = "16 workers";
const ARMS: [(&str, &[(&str, &str)]); 2] = [(ONE, &[]), (MANY, &[("tentative", "false"), ("workers", "16")])];
/// What 16 workers do, in times of one; or the share of the disk's random reads that a replica makes.
const GAIN: (f64, f64) = (5.0, 16.0);
const DISK_MIN: f64 = 0.8;

struct Arm {
    name: &'static str,
    nodes: Nodes,
    caller: Caller,
}

impl Arm {
    /// Starts a cluster with this memory for the state, in MiB, and writes all keys.
    fn start(
        (name, settings): (&'static str, &[(&'static str, &'static str)]),
        memory_mib: usize,
        keys: usize,
    ) -> Result<Self> {
        let memory = format!("{memory_mib}MiB");
        let settings =
            [settings, &[("state_memory_max", memory.as_str()), ("log_bytes_max", "4MiB")]].concat();
        let mut nodes = Nodes::make("paging", ServiceName::KV, "async", &settings)?;
        nodes.start_replicas()?;
        let options = CallerOptions { lanes: LANES, deadline: Duration::from_secs(60) };
        let caller =
            Caller::open(&nodes.node("client-0"), options).map_err(|trouble| anyhow!("{trouble}"))?;
        let arm = Self { name, nodes, caller };
        on_threads((0..usize::from(LANES)).collect(), |lane| {
            let value = noise(VALUE);
            (lane..keys).step_by(usize::from(LANES)).try_for_each(|key| arm.put(key, &value))
        })?;
        Ok(arm)
    }

    fn put(&self, key: usize, value: &[u8]) -> Result<()> {
        let mut bytes = Vec::new();
        Operation::Put { key: &key.to_be_bytes(), value }.encode(&mut bytes);
        self.caller.call(&bytes, false).map_err(|error| anyhow!("{error}"))?;
        Ok(())
    }

    fn get(&self, key: usize) -> Result<()> {
        let mut bytes = Vec::new();
        Operation::Get { key: &key.to_be_bytes() }.encode(&mut bytes);
        self.caller.call(&bytes, true).map_err(|error| anyhow!("{error}"))?;
        Ok(())
    }

    /// Returns how many pages' bytes the replicas have read from files so far: the mean of the replicas.
    fn pages_read(&self) -> Result<f64> {
        let mut bytes = 0;
        for pid in self.nodes.pids() {
            let text = std::fs::read_to_string(format!("/proc/{pid}/io"))?;
            let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
            bytes += line.context("/proc has no rchar")?.trim().parse::<u64>()?;
        }
        Ok(ratio(bytes, u64::try_from(4 * VALUE)?))
    }

    /// Returns operations a second, half of them writes, and the pages that a replica reads in a second.
    fn measure(&self, keys: usize, time: Duration, seed: u64) -> Result<(f64, f64)> {
        let (before, start) = (self.pages_read()?, Instant::now());
        let counts = on_threads((0..u64::from(LANES)).collect(), |lane| {
            let (mut chance, value, mut count) = (Chance::new(seed * 100 + lane), noise(VALUE), 0);
            while start.elapsed() < time {
                let key = chance.below(keys);
                if chance.below(2) == 1 {
                    self.put(key, &value)?;
                } else {
                    self.get(key)?;
                }
                count += 1;
            }
            Ok(count)
        })?;
        let seconds = start.elapsed().as_secs_f64();
        Ok((ratio(counts.into_iter().sum(), 1) / seconds, (self.pages_read()? - before) / seconds))
    }
}

/// Returns the random reads of a page a second that the disk does, with as many in progress, past the system's cache.
fn disk(bytes: usize, time: Duration) -> Result<Option<f64>> {
    const PAGE: usize = 4096;
    if nodes::is_in_memory() {
        return Ok(None);
    }
    let (dir, _) = nodes::new_place("disk")?;
    std::fs::create_dir_all(&dir)?;
    let path = dir.join("file");
    std::fs::write(&path, noise(bytes))?;
    let direct = OpenOptions::new().read(true).custom_flags(nix::libc::O_DIRECT).open(&path);
    let counts = direct.map_err(anyhow::Error::from).and_then(|file| {
        file.sync_all()?;
        let start = Instant::now();
        let counts = on_threads((0..u64::from(LANES)).collect(), |lane| {
            // A direct read needs a buffer that begins where a page does.
            let (mut chance, mut buffer, mut count) = (Chance::new(lane), vec![0_u8; 2 * PAGE], 0);
            let at = buffer.as_ptr().align_offset(PAGE);
            let page = buffer.get_mut(at..at + PAGE).context("there is no page in two")?;
            while start.elapsed() < time {
                file.read_exact_at(page, u64::try_from(chance.below(bytes / PAGE) * PAGE)?)?;
                count += 1;
            }
            Ok(count)
        })?;
        Ok(ratio(counts.into_iter().sum(), 1) / start.elapsed().as_secs_f64())
    });
    std::fs::remove_dir_all(&dir)?;
    Ok(Some(counts?))
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, memory_mib, ms) = settings.effort.of((5, 64, 5_000), (3, 4, 1_500), (1, 1, 50));
    let keys = TIMES * (memory_mib << 20) / VALUE;
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look("none, nice 0"));
    let arms = ARMS.map(|arm| Arm::start(arm, memory_mib, keys));
    let arms = arms.into_iter().collect::<Result<Vec<_>>>()?;
    let mut samples = vec![Vec::new(); arms.len()];
    for seed in 0..=u64::try_from(repeats)? {
        for (arm, samples) in arms.iter().zip(&mut samples) {
            let sample = arm.measure(keys, Duration::from_millis(ms), seed).with_context(|| arm.name)?;
            // The first time warms up.
            if seed > 0 {
                samples.push(sample);
            }
        }
    }
    let disk = disk(keys * VALUE, Duration::from_millis(ms))?;
    report.rows = arms.iter().zip(&samples).map(|(arm, samples)| row(arm, samples)).collect();
    report.shapes = vec![shape(&samples, disk)];
    report.notes.push(format!(
        "{keys} keys with values of 4 KiB, {memory_mib} MiB of memory for the state; half of the operations are reads; \
         durability async; {ms} ms a repeat; the disk: random reads of 4 KiB with {LANES} in progress, past the system's \
         cache. Replicas read through that cache, which is not limited here"
    ));
    Ok(report)
}

fn row(arm: &Arm, samples: &[(f64, f64)]) -> Row {
    let rates: Vec<f64> = samples.iter().map(|(rate, _)| *rate).collect();
    Row {
        system: "quorate".to_owned(),
        variant: arm.name.to_owned(),
        op: "get, put".to_owned(),
        mode: "rw".to_owned(),
        n: Some(4),
        f: Some(1),
        clients: u32::from(LANES),
        repeats: samples.len(),
        durability: Some("async".to_owned()),
        ops_per_s: Some(median(&rates)),
        bytes: Some(VALUE),
        unit: "op/s".to_owned(),
        samples: rates,
        ..Row::default()
    }
}

fn shape(samples: &[Vec<(f64, f64)>], disk: Option<f64>) -> Shape {
    let name = "16 workers do 5 times as much as one, or read as much as the disk can";
    let (Some(disk), [one, many]) = (disk, samples) else {
        return Shape::incomparable(name, "the state is on tmpfs, in memory: set QUORATE_BENCH_DIR");
    };
    let middle = |samples: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| {
        median(&samples.iter().map(of).collect::<Vec<f64>>())
    };
    let (one, many, reads) = (middle(one, |s| s.0), middle(many, |s| s.0), middle(many, |s| s.1));
    let held = (GAIN.0..=GAIN.1).contains(&(many / one)) || 4.0 * reads >= DISK_MIN * disk;
    Shape::new(
        name,
        held,
        format!(
            "{many:.0} op/s, {one:.0} op/s with one: {:.2} times; {reads:.0} pages a second read by each of four replicas, \
             the disk does {disk:.0}",
            many / one
        ),
    )
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let mut figure = Figure::new(
        "rate",
        "Random reads and writes, state four times the memory",
        Axis::linear("workers"),
        Axis::linear("operations per second"),
    );
    figure.categories = rows.iter().map(|row| row.variant.clone()).collect();
    let dots = (0_u32..).zip(rows).map(|(x, row)| Dot {
        x: f64::from(x),
        y: row.ops_per_s.unwrap_or(0.0),
        samples: row.samples.clone(),
        ..Dot::default()
    });
    let series = Series { name: "get and put".to_owned(), points: dots.collect(), ..Series::default() };
    vec![figure.with(series).caption("Bars: medians of the repeats; dots: the repeats.")]
}
