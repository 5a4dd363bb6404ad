//! `fs-micro`: single calls on files of 4 KB: create, write durably, stat, read, rename, remove.

use std::time::Instant;

use anyhow::{Context as _, Result};

use super::client::Nfs;
use super::noise;
use super::servers::{self, Arm, Reads, Server, Where};
use crate::effort::{Effort, Settings};
use crate::experiment::Experiment;
use crate::figure::{Axis, Dot, Figure, Series};
use crate::figures::{median, percentile, ratio};
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fs-micro",
    source: "ours",
    about: "single calls on files of 4 KB, one client and eight: BFS, BFS without replicas, NFS-Ganesha",
    run,
    figures,
};

/// The operations on each file, in this order, and whether they change anything.
const OPS: [(&str, &str); 7] = [
    ("create", "rw"),
    ("write+fsync", "rw"),
    ("stat", "ro"),
    ("read", "ro"),
    ("read again", "ro"),
    ("rename", "rw"),
    ("unlink", "rw"),
];
const FILE_BYTES: usize = 4096;
/// Numbers of connections.
const MANY: u32 = 8;

const ARMS: &[Arm] = &[
    Arm::Bfs(Reads::Default, "memory"),
    Arm::Bfs(Reads::Default, "sync"),
    Arm::Bfs(Reads::Strict, "memory"),
    Arm::Alone(Reads::Default, "memory"),
    Arm::Alone(Reads::Default, "sync"),
    Arm::Ganesha(Where::Disk),
    Arm::Ganesha(Where::Tmpfs),
    Arm::Ganesha(Where::Mem),
];
const FEW_ARMS: &[Arm] = &[
    Arm::Bfs(Reads::Default, "memory"),
    Arm::Alone(Reads::Default, "memory"),
    Arm::Alone(Reads::Default, "sync"),
    Arm::Ganesha(Where::Tmpfs),
];

/// The result of one repeat of one operation.
#[derive(Clone, Debug, Default)]
struct Sample {
    p25_us: f64,
    p50_us: f64,
    p75_us: f64,
    p99_us: f64,
    ops_per_s: f64,
    delayed: u64,
}

/// A load of a server, with the measurements of each operation.
struct Point {
    clients: u32,
    samples: [Vec<Sample>; OPS.len()],
}

/// Runs one operation on every file of a directory. Returns the times in microseconds.
fn one(client: &mut Nfs, op: &str, dir: &[u8], files: &mut [Vec<u8>], data: &[u8]) -> Result<Vec<f64>> {
    let mut took = Vec::with_capacity(files.len());
    for (number, file) in files.iter_mut().enumerate() {
        let (name, other) = (format!("file-{number}"), format!("renamed-{number}"));
        let start = Instant::now();
        match op {
            "create" => *file = client.create(dir, &name)?,
            "write+fsync" => client.write(file, 0, data, data.len())?,
            "stat" => drop(client.lookup(dir, &name)?),
            "read" | "read again" => {
                let count = client.read(file, 0, u32::try_from(data.len())?)?;
                anyhow::ensure!(count == data.len(), "{count} bytes were read");
            }
            "rename" => client.rename(dir, &name, &other)?,
            _ => client.remove(dir, &other)?,
        }
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(took)
}

/// Runs all operations on `count` files of each client, in temporary directories.
fn measure(server: &Server, clients: u32, count: usize) -> Result<[Sample; OPS.len()]> {
    let data = noise(FILE_BYTES);
    let mut hosts = Vec::new();
    for number in 0..clients {
        let mut client = Nfs::mount(&server.place)?;
        let (root, name) = (client.root().clone(), format!("micro-{number}"));
        let dir = client.mkdir(&root, &name)?;
        hosts.push((client, dir, name, vec![Vec::new(); count]));
    }
    let mut samples: [Sample; OPS.len()] = Default::default();
    for ((op, _), sample) in OPS.iter().zip(&mut samples) {
        let start = Instant::now();
        let took: Result<Vec<Vec<f64>>> = std::thread::scope(|scope| {
            let threads = hosts.iter_mut().map(|(client, dir, _, files)| {
                let data = &data;
                scope.spawn(move || one(client, op, dir, files, data))
            });
            let threads: Vec<_> = threads.collect();
            let joined = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a client has panicked")))
            });
            joined.collect()
        });
        let seconds = start.elapsed().as_secs_f64();
        let mut took = took.with_context(|| format!("{}: {op}", server.name()))?.concat();
        took.sort_by(f64::total_cmp);
        let at = |percent| percentile(&took, percent);
        *sample = Sample {
            p25_us: at(25),
            p50_us: at(50),
            p75_us: at(75),
            p99_us: at(99),
            ops_per_s: ratio(u64::try_from(took.len())?, 1) / seconds,
            delayed: hosts.iter_mut().map(|host| host.0.take_delayed()).sum(),
        };
    }
    for (client, _, name, _) in &mut hosts {
        let root = client.root().clone();
        client.rmdir(&root, name)?;
    }
    Ok(samples)
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, files) = settings.effort.of((7, 1000), (3, 150), (1, 3));
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look("none, nice 0"));
    let arms = if settings.effort == Effort::Tiny { FEW_ARMS } else { ARMS };
    let servers = servers::start_all(arms, &mut report.notes)?;
    let mut points: Vec<Vec<Point>> = servers
        .iter()
        .map(|_| [1, MANY].map(|clients| Point { clients, samples: Default::default() }).into())
        .collect();
    for server in &servers {
        measure(server, 1, files / 5 + 1).context("while warming up")?;
    }
    for _ in 0..repeats {
        for (server, points) in servers.iter().zip(&mut points) {
            for point in points {
                let found = measure(server, point.clients, files)?;
                for (samples, sample) in point.samples.iter_mut().zip(found) {
                    samples.push(sample);
                }
            }
        }
    }
    for (server, points) in servers.iter().zip(&points) {
        for point in points {
            let ops = OPS.iter().zip(&point.samples);
            report
                .rows
                .extend(ops.map(|((op, mode), samples)| row(server, point.clients, (op, mode), samples)));
        }
    }
    report.shapes = shapes(&report.rows);
    report.notes.push(format!(
        "client: in this process, over TCP, a connection for each client with one call at a time; {files} files of 4 KB \
         each, in a directory of its own; stat is LOOKUP, write+fsync a WRITE that asks for \
         FILE_SYNC; the first read after a write changes the time of last access, and has to be ordered where that is kept"
    ));
    report.notes.push(super::CONDITIONS.to_owned());
    Ok(report)
}

fn row(server: &Server, clients: u32, (op, mode): (&str, &str), samples: &[Sample]) -> Row {
    let all = |figure: fn(&Sample) -> f64| samples.iter().map(figure).collect::<Vec<f64>>();
    let middle = |figure| Some(median(&all(figure)));
    Row {
        repeats: samples.len(),
        p25_us: middle(|s| s.p25_us),
        p50_us: middle(|s| s.p50_us),
        p75_us: middle(|s| s.p75_us),
        p99_us: middle(|s| s.p99_us),
        ops_per_s: middle(|s| s.ops_per_s),
        errors: samples.iter().map(|s| s.delayed).sum(),
        unit: "op/s".to_owned(),
        samples: all(|s| s.ops_per_s),
        ..server.row(op, mode, clients)
    }
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let p50 = |system: &str, variant: &str, op: &str| {
        let is_it = |r: &&Row| r.system == system && r.variant == variant && r.op == op && r.clients == 1;
        rows.iter().find(is_it).and_then(|row| row.p50_us)
    };
    let less = |name: &str, a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => Shape::new(name, a <= b, format!("p50 {a:.0} us against {b:.0} us")),
        _ => Shape::incomparable(name, "an arm is missing"),
    };
    let bfs = |op| p50("bfs", "memory", op);
    let on_disk = |row: &&Row| {
        row.system == "ganesha" && row.variant.starts_with("VFS on") && !row.variant.ends_with("tmpfs")
    };
    let disk = rows.iter().find(on_disk).map_or(String::new(), |row| row.variant.clone());
    vec![
        less(
            "calls without ordering are faster than ordered ones: stat and rename",
            bfs("stat"),
            bfs("rename"),
        ),
        less(
            "a read is faster with relatime than with strict access times, where every read is ordered",
            bfs("read again"),
            p50("bfs-strict", "memory", "read again"),
        ),
        less(
            "a durable write of 4 KB takes BFS with sync no longer than NFS-Ganesha on the same disk",
            p50("bfs", "sync", "write+fsync"),
            p50("ganesha", &disk, "write+fsync"),
        ),
    ]
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let title = |clients: u32| format!("Single calls on files of 4 KB, {clients} in parallel");
    [1, MANY]
        .into_iter()
        .map(|clients| {
            let name = format!("calls-{clients}");
            let mut figure = Figure::new(
                &name,
                &title(clients),
                Axis::linear("call"),
                Axis::linear("operations per second"),
            );
            figure.categories = OPS.map(|(op, _)| op.to_owned()).into();
            let mine = || rows.iter().filter(|row| row.clients == clients);
            let mut systems: Vec<(&str, &str)> =
                mine().map(|r| (r.system.as_str(), r.variant.as_str())).collect();
            systems.dedup();
            for (system, variant) in systems {
                let of = mine().filter(|row| row.system == system && row.variant == variant);
                let points = of.zip([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).filter_map(|(row, x)| {
                    Some(Dot { x, y: row.ops_per_s?, samples: row.samples.clone(), ..Dot::default() })
                });
                let (name, points) = (format!("{system} {variant}"), points.collect());
                figure = figure.with(Series { name, points, ..Series::default() });
            }
            figure.caption("Bars: medians of the repeats; dots: the repeats.")
        })
        .collect()
}
