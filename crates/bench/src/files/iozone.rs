//! `fs-iozone`: one large file in records, like `iozone`: write, rewrite, read, and a random mix.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::client::Nfs;
use super::servers::{self, Arm, Reads, Server, Where};
use super::{Chance, noise};
use crate::effort::{Effort, Settings};
use crate::experiment::Experiment;
use crate::figure::{Axis, Dot, Figure, Series};
use crate::figures::{median, ratio};
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fs-iozone",
    source: "ours",
    about: "write, rewrite, read and random mix on a large file, records of 4 and 64 KB: BFS, BFS without replicas, NFS-Ganesha",
    run,
    figures,
};

/// The operations, and whether they change anything.
const OPS: [(&str, &str); 4] = [("write", "rw"), ("rewrite", "rw"), ("read", "ro"), ("random mix", "rw")];
/// Sizes of a record, in bytes.
const RECORDS: [usize; 2] = [4 << 10, 64 << 10];

const ARMS: &[Arm] = &[
    Arm::Bfs(Reads::NoAtime, "memory"),
    Arm::Bfs(Reads::NoAtime, "sync"),
    Arm::Alone(Reads::NoAtime, "memory"),
    Arm::Alone(Reads::NoAtime, "sync"),
    Arm::Ganesha(Where::Disk),
    Arm::Ganesha(Where::Tmpfs),
];
const FEW_ARMS: &[Arm] = &[Arm::Bfs(Reads::NoAtime, "memory"), Arm::Alone(Reads::NoAtime, "memory")];

/// Megabytes per second of each operation.
type Sample = [f64; OPS.len()];

/// Runs all operations on a file of this size.
fn measure(server: &Server, bytes: usize, record: usize, data: &[u8]) -> Result<(Sample, u64)> {
    let mut client = Nfs::mount(&server.place)?;
    let root = client.root().clone();
    let file = client.create(&root, "iozone")?;
    let (count, mut chance) = (bytes / record, Chance::new(5));
    let data = data.get(..record).unwrap_or_default();
    let mut sample = Sample::default();
    for ((op, _), figure) in OPS.iter().zip(&mut sample) {
        let start = Instant::now();
        for number in 0..count {
            let (place, writes) = match *op {
                "random mix" => (chance.below(count), chance.below(2) == 1),
                op => (number, op != "read"),
            };
            let at = u64::try_from(place * record)?;
            if writes {
                client.write(&file, at, data, record)?;
            } else {
                let read = client.read(&file, at, u32::try_from(record)?)?;
                ensure!(read == record, "{read} bytes were read");
            }
        }
        *figure = ratio(u64::try_from(count * record)?, 1_000_000) / start.elapsed().as_secs_f64();
    }
    client.remove(&root, "iozone")?;
    Ok((sample, client.delayed()))
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, bytes) = settings.effort.of((5, 32 << 20), (3, 1 << 20), (1, 128 << 10));
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look("none, nice 0"));
    let arms = if settings.effort == Effort::Tiny { FEW_ARMS } else { ARMS };
    let servers = servers::start_all(arms, &mut report.notes)?;
    let data = noise(RECORDS[1]);
    for record in RECORDS {
        let mut samples: Vec<Vec<Sample>> = servers.iter().map(|_| Vec::new()).collect();
        let mut delayed = vec![0; servers.len()];
        for repeat in 0..=repeats {
            for ((server, samples), delayed) in servers.iter().zip(&mut samples).zip(&mut delayed) {
                let (sample, again) = measure(server, bytes, record, &data).with_context(|| server.name())?;
                // The first time warms up.
                if repeat > 0 {
                    samples.push(sample);
                    *delayed += again;
                }
            }
        }
        for ((server, samples), delayed) in servers.iter().zip(&samples).zip(delayed) {
            report.rows.extend(rows(server, record, samples, delayed));
        }
    }
    report.shapes = shapes(&report.rows);
    report.notes.push(format!(
        "client: in this process, over TCP, one call at a time, nothing cached; a file of {} KB; each record is a call, and \
         each WRITE asks for FILE_SYNC",
        bytes >> 10
    ));
    report.notes.push(super::CONDITIONS.to_owned());
    Ok(report)
}

fn rows(server: &Server, record: usize, samples: &[Sample], delayed: u64) -> Vec<Row> {
    let rows = OPS.iter().enumerate().map(|(at, (op, mode))| {
        let all: Vec<f64> = samples.iter().map(|sample| sample[at]).collect();
        let per_mb = 1e6 / f64::from(u32::try_from(record).unwrap_or(u32::MAX));
        Row {
            repeats: samples.len(),
            ops_per_s: Some(median(&all) * per_mb),
            bytes: Some(record),
            errors: delayed,
            unit: "MB/s".to_owned(),
            samples: all,
            ..server.row(&format!("{op} {} KB", record >> 10), mode, 1)
        }
    });
    rows.collect()
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let of = |op: &str| {
        let found = rows
            .iter()
            .find(|r| (r.system.as_str(), r.variant.as_str(), r.op.as_str()) == ("bfs", "memory", op));
        found.map_or(f64::NAN, |row| median(&row.samples))
    };
    let more = |name: &str, a: f64, b: f64| Shape::new(name, a > b, format!("{a:.1} against {b:.1} MB/s"));
    vec![
        more(
            "larger records are faster: writing records of 64 KB and of 4 KB",
            of("write 64 KB"),
            of("write 4 KB"),
        ),
        more(
            "calls without ordering are faster: reading and rewriting, 4 KB",
            of("read 4 KB"),
            of("rewrite 4 KB"),
        ),
    ]
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let figure = |record: usize| {
        let kb = record >> 10;
        let (name, title) = (format!("records-{kb}"), format!("A large file in records of {kb} KB"));
        let mut figure = Figure::new(&name, &title, Axis::linear("operation"), Axis::linear("MB/s"));
        figure.categories = OPS.map(|(op, _)| op.to_owned()).into();
        let mine = || rows.iter().filter(|row| row.bytes == Some(record));
        let mut systems: Vec<(&str, &str)> =
            mine().map(|r| (r.system.as_str(), r.variant.as_str())).collect();
        systems.dedup();
        for (system, variant) in systems {
            let of = mine().filter(|row| row.system == system && row.variant == variant);
            let points = of.zip([0.0, 1.0, 2.0, 3.0]).map(|(row, x)| Dot {
                x,
                y: median(&row.samples),
                samples: row.samples.clone(),
                ..Dot::default()
            });
            let (name, points) = (format!("{system} {variant}"), points.collect());
            figure = figure.with(Series { name, points, ..Series::default() });
        }
        figure.caption("Bars: medians of the repeats; dots: the repeats.")
    };
    RECORDS.map(figure).into()
}
