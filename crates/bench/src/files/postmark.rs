//! `fs-postmark`: the calls that a Linux client makes for `postmark` (DSN01 Figure 9): many small files that come and go.
//!
//! The experiment's client makes these calls, with `PostMark`'s parameters and mix: each transaction reads a file or appends
//! to it, and creates a file or removes one. A Linux client caches files and names. When a file is opened it asks for the
//! attributes, and sometimes for the access rights. When it is closed it writes the new data. So a transaction that reads
//! makes no READ.

use std::time::Instant;

use anyhow::{Context as _, Result};

use super::client::{Handle, Nfs};
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
    name: "fs-postmark",
    source: "DSN01 Figure 9",
    about: "creating and removing many small files: transactions per second of BFS, BFS without replicas, NFS-Ganesha",
    run,
    figures,
};

/// The mix of the transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    /// The least and the largest size of a new file, in bytes.
    pub(crate) file_bytes: (usize, usize),
    /// What an append adds at most.
    pub(crate) append_bytes: usize,
    /// The number of transactions that read, and of how many; the others append.
    pub(crate) reads: (usize, usize),
    /// The client has no file in its cache: it reads from the server.
    pub(crate) is_cold: bool,
}

/// The paper's files: 512 bytes to 16 KB. An append adds as much as `postmark` has it.
const MIX: Mix = Mix { file_bytes: (512, 16 << 10), append_bytes: 16 << 10, reads: (1, 2), is_cold: false };
/// The number of openings out of 8 in which the client asks for the rights: 37.8 thousand times in 99.8 thousand.
const ACCESS_OF_8: usize = 3;
/// Maximum number of bytes of a WRITE.
const WSIZE: usize = 32 << 10;
/// The paper's overheads: BFS does 47 % less than NO-REP and 13 % less than NFS-STD.
const PAPER: [f64; 2] = [0.53, 0.87];
/// The share that BFS must reach of the unreplicated service, and of NFS-Ganesha on a disk.
const OF_ALONE: f64 = 0.6;
const OF_DISK: f64 = 1.2;

const ARMS: &[Arm] = &[
    Arm::Bfs(Reads::NoAtime, "memory"),
    Arm::Bfs(Reads::NoAtime, "sync"),
    Arm::Bfs(Reads::Strict, "memory"),
    Arm::Alone(Reads::NoAtime, "memory"),
    Arm::Alone(Reads::NoAtime, "sync"),
    Arm::Ganesha(Where::Disk),
    Arm::Ganesha(Where::Tmpfs),
    Arm::Ganesha(Where::Mem),
];
const FEW_ARMS: &[Arm] = &[Arm::Bfs(Reads::NoAtime, "memory"), Arm::Alone(Reads::NoAtime, "memory")];

/// An existing file.
struct File {
    name: String,
    handle: Handle,
    bytes: u64,
}

/// The state of the load.
struct Load<'a> {
    client: Nfs,
    dir: Handle,
    files: Vec<File>,
    made: usize,
    chance: Chance,
    data: &'a [u8],
    mix: Mix,
}

impl Load<'_> {
    fn create(&mut self) -> Result<()> {
        let name = format!("{:08}", self.made);
        self.made += 1;
        let (least, most) = self.mix.file_bytes;
        let bytes = least + self.chance.below(most - least + 1);
        let handle = self.client.create(&self.dir, &name)?;
        self.client.write(&handle, 0, self.data.get(..bytes).unwrap_or_default(), WSIZE)?;
        self.files.push(File { name, handle, bytes: u64::try_from(bytes)? });
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        let file = self.files.swap_remove(self.chance.below(self.files.len()));
        self.client.remove(&self.dir, &file.name)
    }

    fn transaction(&mut self) -> Result<()> {
        let chosen = self.chance.below(self.files.len());
        let Mix { append_bytes, reads: (reads, of), is_cold, .. } = self.mix;
        let (appends, bytes) = (self.chance.below(of) >= reads, 1 + self.chance.below(append_bytes));
        let asks = self.chance.below(8) < ACCESS_OF_8;
        let file = self.files.get_mut(chosen).context("there is no file")?;
        self.client.getattr(&file.handle)?;
        if asks {
            self.client.access(&file.handle)?;
        }
        if appends {
            let data = self.data.get(..bytes).unwrap_or_default();
            self.client.write(&file.handle, file.bytes, data, WSIZE)?;
            file.bytes += u64::try_from(bytes)?;
        } else if is_cold {
            let mut at = 0;
            while at < file.bytes {
                at += u64::try_from(self.client.read(&file.handle, at, u32::try_from(WSIZE)?)?)?;
            }
        }
        // At least one file is kept for the next transaction.
        if self.chance.below(2) == 1 || self.files.len() < 2 { self.create() } else { self.remove() }
    }
}

/// The result of a repeat.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) per_s: f64,
    per_core_s: f64,
    pub(crate) delayed: u64,
}

/// The amount of a load: files at the start, and transactions.
pub(crate) type Amount = (usize, u64);

/// Runs the load of client `number`, in a directory of its own. Only the transactions are timed, as in `postmark`.
pub(crate) fn measure(
    server: &Server,
    number: u64,
    (files, transactions): Amount,
    mix: Mix,
    data: &[u8],
) -> Result<Sample> {
    let mut client = Nfs::mount(&server.place)?;
    let (root, name) = (client.root().clone(), format!("postmark-{number}"));
    let dir = client.mkdir(&root, &name)?;
    let mut load =
        Load { client, dir, files: Vec::new(), made: 0, chance: Chance::new(42 + number), data, mix };
    for _ in 0..files {
        load.create()?;
    }
    let (start, before) = (Instant::now(), server.cpu_ns()?);
    for _ in 0..transactions {
        load.transaction()?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let spent_s = ratio(server.cpu_ns()?.saturating_sub(before), 1_000_000_000);
    while !load.files.is_empty() {
        load.remove()?;
    }
    load.client.rmdir(&root, &name)?;
    let done = ratio(transactions, 1);
    Ok(Sample { per_s: done / seconds, per_core_s: done / spent_s, delayed: load.client.delayed() })
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, files, transactions) =
        settings.effort.of((3, 10_000, 100_000), (2, 300, 1_500), (1, 5, 10));
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look("none, nice 0"));
    let arms = if settings.effort == Effort::Tiny { FEW_ARMS } else { ARMS };
    let servers = servers::start_all(arms, &mut report.notes)?;
    let mut samples: Vec<Vec<Sample>> = servers.iter().map(|_| Vec::new()).collect();
    let data = noise(MIX.file_bytes.1.max(MIX.append_bytes));
    for server in &servers {
        measure(server, 0, (files / 10 + 2, transactions / 20 + 1), MIX, &data)
            .with_context(|| format!("{} while warming up", server.name()))?;
    }
    for _ in 0..repeats {
        for (server, samples) in servers.iter().zip(&mut samples) {
            let sample = measure(server, 0, (files, transactions), MIX, &data);
            samples.push(sample.with_context(|| server.name())?);
        }
    }
    report.rows = servers.iter().zip(&samples).map(|(server, samples)| row(server, samples)).collect();
    report.shapes = shapes(&report.rows);
    report.notes.push(format!(
        "client: in this process, over TCP, one call at a time; {files} files of 512 B to 16 KB, {transactions} \
         transactions; the calls that a Linux client makes for PostMark, in its proportions: GETATTR and sometimes ACCESS \
         when a file is opened, WRITE when it is closed, no READ because the client has the file in its cache"
    ));
    report.notes.push(super::CONDITIONS.to_owned());
    report.notes.push(format!(
        "the paper's BFS did {:.2} of NO-REP's transactions per second and {:.2} of NFS-STD's, a server with weaker guarantees [DSN01 §5.2]",
        PAPER[0], PAPER[1]
    ));
    Ok(report)
}

fn row(server: &Server, samples: &[Sample]) -> Row {
    let all = |figure: fn(&Sample) -> f64| samples.iter().map(figure).collect::<Vec<f64>>();
    Row {
        repeats: samples.len(),
        ops_per_s: Some(median(&all(|s| s.per_s))),
        ops_per_core_s: Some(median(&all(|s| s.per_core_s))),
        errors: samples.iter().map(|s| s.delayed).sum(),
        unit: "tx/s".to_owned(),
        samples: all(|s| s.per_s),
        ..server.row("postmark", "rw", 1)
    }
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let per_s =
        |is_it: &dyn Fn(&Row) -> bool| rows.iter().find(|row| is_it(row)).and_then(|row| row.ops_per_s);
    let of = |system: &str, variant: &str| per_s(&|row| row.system == system && row.variant == variant);
    let disk = per_s(&|row| {
        row.system == "ganesha" && row.variant.starts_with("VFS") && !row.variant.ends_with("tmpfs")
    });
    let least = |name: String, a: Option<f64>, b: Option<f64>, factor: f64| match (a, b) {
        (Some(a), Some(b)) => {
            Shape::new(name, a >= b * factor, format!("{a:.0} against {b:.0} tx/s: {:.2}", a / b))
        }
        _ => Shape::incomparable(name, "an arm is missing"),
    };
    let ways = ["memory", "sync"];
    let mut shapes: Vec<Shape> = ways
        .into_iter()
        .flat_map(|way| {
            [
                least(
                    format!(
                        "{way}: at least {OF_ALONE} of the transactions per second of the unreplicated service"
                    ),
                    of("bfs", way),
                    of("bfs-nr", way),
                    OF_ALONE,
                ),
                least(
                    format!("{way}: at least {OF_DISK} of those of NFS-Ganesha on the same disk"),
                    of("bfs", way),
                    disk,
                    OF_DISK,
                ),
            ]
        })
        .collect();
    shapes.push(least(
        "the paper's: at least 0.53 of NO-REP, like BFS in the paper".to_owned(),
        of("bfs", "memory"),
        of("bfs-nr", "memory"),
        PAPER[0],
    ));
    shapes
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let mut figure = Figure::new(
        "transactions",
        "PostMark's calls (DSN01 Figure 9)",
        Axis::linear("server"),
        Axis::linear("transactions per second"),
    );
    figure.categories = rows.iter().map(|row| format!("{} {}", row.system, row.variant)).collect();
    let dots = rows.iter().scan(0.0, |next, row| {
        let x = *next;
        *next += 1.0;
        Some(Dot { x, y: row.ops_per_s.unwrap_or(0.0), samples: row.samples.clone(), ..Dot::default() })
    });
    let points: Vec<Dot> = dots.collect();
    let base = rows.iter().position(|row| row.system == "bfs-nr" && row.variant == "memory");
    let base = base.and_then(|at| points.get(at).map(|dot| dot.y)).filter(|y| *y > 0.0);
    let caption = "Bars: medians of the repeats; dots: the repeats. The paper's text gives only ratios.";
    let mut all = vec![
        figure
            .clone()
            .with(Series { name: "here".to_owned(), points: points.clone(), ..Series::default() })
            .caption(caption),
    ];
    if let Some(base) = base {
        "against-unreplicated".clone_into(&mut figure.name);
        figure.y = Axis::linear("transactions, divided by those of bfs-nr memory");
        let divided = points.iter().map(|dot| Dot {
            x: dot.x,
            y: dot.y / base,
            samples: dot.samples.iter().map(|sample| sample / base).collect(),
            ..Dot::default()
        });
        let ours = Series { name: "here".to_owned(), points: divided.collect(), ..Series::default() };
        all.push(figure.with(ours).paper("BFS in the paper", &[(0.0, PAPER[0])]).caption(caption));
    }
    all
}
