//! `fs-andrew`: the calls of the Andrew benchmark, over n copies of a tree of sources (OSDI99 Tables 2 and 3, DSN01
//! Figure 8).
//!
//! The experiment's client makes these calls. Phase 1 makes directories, 2 copies the sources, 3 looks at every file, 4
//! reads every byte, 5 compiles and links: it reads sources and headers, computes for a fixed time, and writes the output.
//! The client caches names but no file data, as if the copies exceeded its memory.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::client::{Handle, Nfs};
use super::servers::{self, Arm, Reads, Server, Where};
use super::{Chance, noise};
use crate::effort::{Effort, Settings};
use crate::experiment::Experiment;
use crate::figure::{Axis, Dot, Figure, Series};
use crate::figures::median;
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fs-andrew",
    source: "OSDI99 Tables 2, 3; DSN01 Figure 8",
    about: "the five phases of the Andrew benchmark with 1 and 100 copies: time of BFS, BFS without replicas, NFS-Ganesha",
    run,
    figures,
};

const PHASES: [&str; 5] = ["1 mkdir", "2 copy", "3 stat", "4 read", "5 compile"];
/// The tree: directories, files in each, and their lengths in bytes. Every third file is a source, the others are
/// headers and texts.
const DIRS: usize = 10;
const FILES: usize = 7;
const FILE_BYTES: (usize, usize) = (500, 5_500);
/// A compilation's headers, its computing time, and the sizes of its output.
const HEADERS: usize = 8;
const COMPILES: Duration = Duration::from_millis(10);
const OBJECT_BYTES: usize = 6_000;
pub(crate) const PROGRAM_BYTES: usize = 100_000;
/// Maximum size of a READ or WRITE, in bytes.
const SIZE: usize = 32 << 10;
/// The time that BFS may take, divided by that of the unreplicated service.
const OVERHEAD: f64 = 1.10;
/// The papers' times, divided by those of the unreplicated service: one copy [OSDI99 §7.3, Table 2], 100 copies
/// [DSN01 §5.2].
const PAPER_STRICT: f64 = 1.26;
const PAPER_LOOKUP: f64 = 1.20;
const PAPER_100: f64 = 1.14;
/// The papers' times for one copy, divided by those of the NFS server [OSDI99 §7.3, Table 3].
const PAPER_TO_SERVER: [(&str, f64); 2] = [("bfs-strict", 1.03), ("bfs-ro-lookup", 0.98)];

const ARMS: &[Arm] = &[
    Arm::Bfs(Reads::Default, "memory"),
    Arm::Bfs(Reads::Strict, "memory"),
    Arm::Bfs(Reads::Lookup, "memory"),
    Arm::Alone(Reads::Default, "memory"),
    Arm::Ganesha(Where::Disk),
    Arm::Ganesha(Where::Tmpfs),
];
const FEW_ARMS: &[Arm] = &[Arm::Bfs(Reads::Strict, "memory"), Arm::Alone(Reads::Default, "memory")];

/// The sources: for each file its directory and length.
fn tree() -> Vec<(usize, usize)> {
    let mut chance = Chance::new(11);
    let length = |chance: &mut Chance| FILE_BYTES.0 + chance.below(FILE_BYTES.1 - FILE_BYTES.0);
    (0..DIRS * FILES).map(|number| (number % DIRS, length(&mut chance))).collect()
}

/// A copy of the tree, with the handles that the client knows.
#[derive(Default)]
struct Copy {
    name: String,
    top: Handle,
    dirs: Vec<Handle>,
    files: Vec<Handle>,
    objects: usize,
}

struct Work<'a> {
    client: Nfs,
    dir: Handle,
    tree: &'a [(usize, usize)],
    data: &'a [u8],
    copies: Vec<Copy>,
    computed: Duration,
}

impl Work<'_> {
    fn make(&mut self, dir: &[u8], name: &str) -> Result<Handle> {
        self.client.miss(dir, name)?;
        self.client.mkdir(dir, name)
    }

    fn put(&mut self, dir: &[u8], name: &str, bytes: usize) -> Result<Handle> {
        self.client.miss(dir, name)?;
        let file = self.client.create(dir, name)?;
        self.client.write(&file, 0, self.data.get(..bytes).unwrap_or_default(), SIZE)?;
        Ok(file)
    }

    /// Opens a file, and reads all of it.
    fn get(&mut self, file: &[u8]) -> Result<()> {
        let bytes = self.client.getattr(file)?;
        self.client.access(file)?;
        let mut at = 0;
        while at < bytes {
            let count = self.client.read(file, at, u32::try_from(SIZE)?)?;
            anyhow::ensure!(count > 0, "a file is shorter than its attributes say");
            at += u64::try_from(count)?;
        }
        Ok(())
    }

    fn phase(&mut self, phase: usize, copy: &mut Copy) -> Result<()> {
        match phase {
            0 => {
                let dir = self.dir.clone();
                copy.top = self.make(&dir, &copy.name)?;
                for number in 0..DIRS {
                    let made = self.make(&copy.top, &format!("dir-{number}"))?;
                    copy.dirs.push(made);
                }
            }
            1 => {
                for (number, (dir, bytes)) in self.tree.iter().enumerate() {
                    let made = self.put(&copy.dirs[*dir], &format!("file-{number}"), *bytes)?;
                    copy.files.push(made);
                }
            }
            2 => {
                for (number, (dir, _)) in self.tree.iter().enumerate() {
                    let found = self.client.lookup(&copy.dirs[*dir], &format!("file-{number}"))?;
                    self.client.getattr(&found)?;
                }
            }
            3 => copy.files.iter().try_for_each(|file| self.get(file))?,
            _ => self.compile(copy)?,
        }
        Ok(())
    }

    fn compile(&mut self, copy: &mut Copy) -> Result<()> {
        let mut objects = Vec::new();
        for (number, (dir, _)) in self.tree.iter().enumerate().step_by(3) {
            self.get(&copy.files[number])?;
            for header in 0..HEADERS {
                self.get(&copy.files[(number + 1 + header * 3) % copy.files.len()])?;
            }
            self.compute();
            objects.push(self.put(&copy.dirs[*dir], &format!("object-{number}"), OBJECT_BYTES)?);
        }
        objects.iter().try_for_each(|object| self.get(object))?;
        self.compute();
        copy.objects = objects.len();
        self.put(&copy.top, "program", PROGRAM_BYTES).map(drop)
    }

    /// Computes for the time of a compilation.
    fn compute(&mut self) {
        let start = Instant::now();
        while start.elapsed() < COMPILES {
            std::hint::spin_loop();
        }
        self.computed += start.elapsed();
    }

    /// Removes everything.
    fn clear(&mut self, copy: &Copy) -> Result<()> {
        for (number, (dir, _)) in self.tree.iter().enumerate() {
            self.client.remove(&copy.dirs[*dir], &format!("file-{number}"))?;
            if number % 3 == 0 {
                self.client.remove(&copy.dirs[*dir], &format!("object-{number}"))?;
            }
        }
        self.client.remove(&copy.top, "program")?;
        for number in 0..DIRS {
            self.client.rmdir(&copy.top, &format!("dir-{number}"))?;
        }
        let dir = self.dir.clone();
        self.client.rmdir(&dir, &copy.name)
    }
}

/// The result of a repeat: the time of each phase, and the time of computing, in seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    seconds: [f64; PHASES.len()],
    pub(crate) computed_s: f64,
    pub(crate) delayed: u64,
}

impl Sample {
    pub(crate) fn total(&self) -> f64 {
        self.seconds.iter().sum()
    }
}

/// Runs the phases, each over all copies. `data` has at least [`PROGRAM_BYTES`].
pub(crate) fn measure(server: &Server, copies: usize, data: &[u8]) -> Result<Sample> {
    let mut client = Nfs::mount(&server.place)?;
    let root = client.root().clone();
    let dir = client.mkdir(&root, "andrew")?;
    let tree = tree();
    let mut work = Work { client, dir, tree: &tree, data, copies: Vec::new(), computed: Duration::ZERO };
    work.copies = (0..copies).map(|n| Copy { name: format!("copy-{n}"), ..Copy::default() }).collect();
    let mut sample = Sample::default();
    let mut all = std::mem::take(&mut work.copies);
    for (phase, seconds) in sample.seconds.iter_mut().enumerate() {
        let start = Instant::now();
        for copy in &mut all {
            work.phase(phase, copy).with_context(|| format!("phase {}", PHASES[phase]))?;
        }
        *seconds = start.elapsed().as_secs_f64();
    }
    for copy in &all {
        work.clear(copy)?;
    }
    work.client.rmdir(&root, "andrew")?;
    (sample.computed_s, sample.delayed) = (work.computed.as_secs_f64(), work.client.delayed());
    Ok(sample)
}

fn run(settings: Settings) -> Result<Report> {
    let loads: &[(usize, usize)] = settings.effort.of(&[(1, 10), (100, 3)], &[(1, 3)], &[(1, 1)]);
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look("none, nice 0"));
    let arms = if settings.effort == Effort::Tiny { FEW_ARMS } else { ARMS };
    let servers = servers::start_all(arms, &mut report.notes)?;
    let data = noise(PROGRAM_BYTES);
    if settings.effort > Effort::Tiny {
        for server in &servers {
            measure(server, 1, &data).with_context(|| format!("{} while warming up", server.name()))?;
        }
    }
    for (copies, repeats) in loads {
        let mut samples: Vec<Vec<Sample>> = servers.iter().map(|_| Vec::new()).collect();
        for _ in 0..*repeats {
            for (server, samples) in servers.iter().zip(&mut samples) {
                samples.push(measure(server, *copies, &data).with_context(|| server.name())?);
            }
        }
        for (server, samples) in servers.iter().zip(&samples) {
            report.rows.extend(rows(server, *copies, samples));
        }
    }
    report.shapes = loads.iter().flat_map(|(copies, _)| shapes(&report.rows, *copies)).collect();
    report.notes.push(format!(
        "client: in this process, over TCP, one call at a time, no file data cached; a tree of {} files in {DIRS} \
         directories for each copy; a compilation reads {} files and computes {} ms",
        DIRS * FILES,
        HEADERS + 1,
        COMPILES.as_millis()
    ));
    report.notes.push(super::CONDITIONS.to_owned());
    report.notes.push(
        "500 copies, which exceeded the memory of the paper's machines, are not run: memory is not limited here"
            .to_owned(),
    );
    report.notes.push(
        "DSN01's Andrew100 wrote 200 MB and kept no access times; ours writes 48 MB with relatime, so the totals of 100 \
         copies are of different work"
            .to_owned(),
    );
    Ok(report)
}

fn name(copies: usize, phase: &str) -> String {
    format!("andrew{copies} {phase}")
}

fn rows(server: &Server, copies: usize, samples: &[Sample]) -> Vec<Row> {
    let row = |what: &str, all: Vec<f64>| Row {
        repeats: samples.len(),
        seconds: Some(median(&all)),
        errors: samples.iter().map(|sample| sample.delayed).sum(),
        unit: "s".to_owned(),
        samples: all,
        ..server.row(&name(copies, what), "-", 1)
    };
    let phases = PHASES.iter().enumerate();
    let mut rows: Vec<Row> =
        phases.map(|(at, phase)| row(phase, samples.iter().map(|s| s.seconds[at]).collect())).collect();
    let computed: Vec<f64> = samples.iter().map(|s| s.computed_s * 1e9).collect();
    let mut total = row("total", samples.iter().map(Sample::total).collect());
    total.parts_ns = vec![("client computing".to_owned(), median(&computed))];
    rows.push(total);
    rows
}

/// Returns the seconds of a phase.
fn seconds(rows: &[Row], system: &str, copies: usize, phase: &str) -> Option<f64> {
    let op = name(copies, phase);
    let mut found = rows.iter().filter(|row| row.system == system && row.op == op);
    // On the disk, if there are several.
    found.find(|row| !row.variant.ends_with("tmpfs")).and_then(|row| row.seconds)
}

fn shapes(rows: &[Row], copies: usize) -> Vec<Shape> {
    let of = |system: &str, phase: &str| seconds(rows, system, copies, phase);
    let ratio = |a: &str, b: &str, phase: &str| Some(of(a, phase)? / of(b, phase)?);
    let at_most = |name: String, value: Option<f64>, bound: f64| match value {
        Some(value) => Shape::new(name, value <= bound, format!("{value:.3}, bound {bound:.2}")),
        None => Shape::incomparable(name, "an arm is missing"),
    };
    let to_alone = |system: &str, phase: &str| ratio(system, "bfs-nr", phase);
    let mut shapes = vec![at_most(
        format!("andrew{copies}: at most {OVERHEAD} times the time of the unreplicated service"),
        to_alone("bfs", "total"),
        OVERHEAD,
    )];
    let overheads: Vec<Option<f64>> = PHASES.iter().map(|phase| to_alone("bfs-strict", phase)).collect();
    if let [Some(one), Some(two), Some(three), Some(four), Some(five)] = overheads[..] {
        shapes.push(Shape::new(
            format!(
                "andrew{copies}: phases 1 and 2 of bfs-strict have the largest overhead, as in the paper"
            ),
            one.max(two) >= three.max(four).max(five),
            format!("{one:.2} {two:.2} {three:.2} {four:.2} {five:.2}"),
        ));
    }
    let helps = of("bfs-ro-lookup", "total").zip(of("bfs-strict", "total"));
    let name =
        format!("andrew{copies}: LOOKUP without ordering helps: bfs-ro-lookup is faster than bfs-strict");
    shapes.push(match helps {
        Some((with, without)) => Shape::new(name, with <= without, format!("{with:.2} s, {without:.2} s")),
        None => Shape::incomparable(name, "an arm is missing"),
    });
    if copies == 1 {
        // Ours compares servers with different guarantees: the paper's made changes stable before it replied.
        shapes.extend(PAPER_TO_SERVER.into_iter().map(|(system, paper)| {
            let name = format!("OSDI99 Table 3: {system} takes {paper} times the time of an NFS server");
            match ratio(system, "ganesha", "total") {
                None => Shape::incomparable(name, "an arm is missing"),
                Some(ratio) => Shape::incomparable(
                    name,
                    format!("{ratio:.2} of NFS-Ganesha, which syncs data but not names before it replies"),
                ),
            }
        }));
    }
    shapes
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let mut copies: Vec<usize> = rows
        .iter()
        .filter_map(|row| row.op.strip_prefix("andrew")?.strip_suffix(" total")?.parse().ok())
        .collect();
    copies.sort_unstable();
    copies.dedup();
    copies.into_iter().map(|copies| figure(rows, copies)).collect()
}

fn figure(rows: &[Row], copies: usize) -> Figure {
    let total = name(copies, "total");
    let totals: Vec<&Row> = rows.iter().filter(|row| row.op == total).collect();
    let base = seconds(rows, "bfs-nr", copies, "total").unwrap_or(1.0);
    let mut figure = Figure::new(
        &format!("andrew{copies}"),
        &format!(
            "Andrew's calls, {copies} {}",
            if copies == 1 { "copy (OSDI99 Table 2)" } else { "copies (DSN01 Figure 8)" }
        ),
        Axis::linear("server"),
        Axis::linear("time, divided by that of bfs-nr"),
    );
    figure.categories = totals.iter().map(|row| format!("{} {}", row.system, row.variant)).collect();
    let places = || totals.iter().zip(0_u32..).map(|(row, x)| (*row, f64::from(x)));
    let points = places().map(|(row, x)| Dot {
        x,
        y: row.seconds.unwrap_or(0.0) / base,
        samples: row.samples.iter().map(|sample| sample / base).collect(),
        ..Dot::default()
    });
    let paper: Vec<(f64, f64)> = places()
        .filter_map(|(row, x)| {
            let ratio = match (row.system.as_str(), copies) {
                ("bfs-strict", 1) => PAPER_STRICT,
                ("bfs-ro-lookup", 1) => PAPER_LOOKUP,
                ("bfs", 100) => PAPER_100,
                _ => return None,
            };
            Some((x, ratio))
        })
        .collect();
    let ours = Series { name: "here".to_owned(), points: points.collect(), ..Series::default() };
    figure.with(ours).paper("the papers", &paper).caption(if copies == 1 {
        "Bars: medians of the repeats; dots: the repeats. Grey: OSDI99 Table 2."
    } else {
        "Bars: medians of the repeats; dots: the repeats. Grey: DSN01 section 5.2, where the copies were larger and no \
         access times were kept."
    })
}
