//! `cbase-iozone`: each client writes a file of 256 KB, or reads and writes it at random, and each replica writes changes
//! to a store before it answers [CBASE04 Figure 7].

use anyhow::Result;

use super::between;
use super::files::{self, BASE, CBASE, Client, Points, RECORD, busy, compare, mb, peak};
use crate::effort::{Effort, Settings};
use crate::experiment::Experiment;
use crate::figure::Figure;
use crate::files::client::{Handle, Nfs};
use crate::files::servers::{self, Arm, Reads, Where, Work};
use crate::files::{Chance, noise};
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cbase-iozone",
    source: "CBASE04 Figure 7",
    about: "clients that each write a file of 256 KB, or read and write it at random, on replicas with a synchronous store: \
        BASE-FS, CBASE-FS, and without replicas",
    run,
    figures,
};

const WRITE: &str = "write 256 KB";
const MIX: &str = "random mix";
/// Records of a file of 256 KB.
const RECORDS: usize = 64;
/// A store as fast as the disk, and one that takes 8 ms a record: 500 KB a second, as the paper's NFS server.
const STORE: Work = Work::Store(0);
const OLD_STORE: Work = Work::Store(8_000);
/// Their variants in a table.
const FAST: Option<&str> = Some("store");
const OLD: Option<&str> = Some("store, 8 ms a record");
const NFS: Arm = Arm::Alone(Reads::Strict, "sync");
const ARMS: &[Arm] = &[
    files::base(STORE),
    files::cbase(STORE),
    files::keys(STORE),
    files::free(STORE),
    files::base(OLD_STORE),
    files::cbase(OLD_STORE),
    NFS,
    Arm::Ganesha(Where::Disk),
];
const FEW_ARMS: &[Arm] = &[files::base(STORE), files::cbase(STORE), NFS];
/// What CBASE-FS does at least, in times of BASE-FS; or the store is busy for this share of the time.
const GAIN_MIN: f64 = 1.8;
const BUSY_MIN: f64 = 90.0;
/// The paper's highest throughput, in MB/s.
const PAPER_WRITE: [(&str, f64); 3] =
    [("paper: BASE-FS", 0.16), ("paper: CBASE-FS", 0.32), ("paper: NFS", 0.5)];
const PAPER_MIX: [(&str, f64); 2] = [("paper: BASE-FS", 1.0), ("paper: CBASE-FS", 2.0)];

/// A client that writes one file after the other.
struct Writer {
    nfs: Nfs,
    number: usize,
    file: Handle,
    made: usize,
    at: usize,
    data: Vec<u8>,
}

impl Writer {
    fn name(number: usize, made: usize) -> String {
        format!("file-{number}-{made}")
    }
}

impl Client for Writer {
    fn begin(number: usize, mut nfs: Nfs) -> Result<Self> {
        let root = nfs.root().clone();
        let file = nfs.create(&root, &Self::name(number, 0))?;
        Ok(Self { nfs, number, file, made: 1, at: 0, data: noise(RECORD) })
    }

    fn turn(&mut self) -> Result<()> {
        if self.at == RECORDS {
            let root = self.nfs.root().clone();
            self.file = self.nfs.create(&root, &Self::name(self.number, self.made))?;
            (self.made, self.at) = (self.made + 1, 0);
        }
        self.nfs.write(&self.file, u64::try_from(self.at * RECORD)?, &self.data, RECORD)?;
        self.at += 1;
        Ok(())
    }

    fn end(mut self) -> Result<u64> {
        let root = self.nfs.root().clone();
        for made in 0..self.made {
            self.nfs.remove(&root, &Self::name(self.number, made))?;
        }
        Ok(self.nfs.delayed())
    }
}

/// A client that reads and writes records at random, and keeps what it has seen.
struct Mixer {
    writer: Writer,
    seen: [bool; RECORDS],
    chance: Chance,
}

impl Client for Mixer {
    fn begin(number: usize, nfs: Nfs) -> Result<Self> {
        let mut writer = Writer::begin(number, nfs)?;
        // Long calls: a store takes as long for each as for a record.
        writer.nfs.write(&writer.file, 0, &noise(RECORDS * RECORD), 8 * RECORD)?;
        Ok(Self { writer, seen: [false; RECORDS], chance: Chance::new(u64::try_from(number)?) })
    }

    fn turn(&mut self) -> Result<()> {
        let (record, writes) = (self.chance.below(RECORDS), self.chance.below(2) == 1);
        let Writer { nfs, file, data, .. } = &mut self.writer;
        let at = u64::try_from(record * RECORD)?;
        if writes {
            nfs.write(file, at, data, RECORD)?;
        } else if !self.seen[record] {
            nfs.read(file, at, u32::try_from(RECORD)?)?;
        }
        self.seen[record] = true;
        Ok(())
    }

    fn end(self) -> Result<u64> {
        self.writer.end()
    }
}

fn run(settings: Settings) -> Result<Report> {
    let mut report =
        Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look("replicas, one core each"));
    let points = Points::of(settings.effort, &[1, 5, 10, 20, 40], &[1, 20]);
    let arms = if settings.effort == Effort::Tiny { FEW_ARMS } else { ARMS };
    let servers = servers::start_all(arms, &mut report.notes)?;
    report.rows = points.measure::<Writer>(&servers, WRITE)?;
    report.rows.extend(points.measure::<Mixer>(&servers, MIX)?);
    report.shapes = shapes(&report.rows);
    report.notes.push(format!(
        "{} ms a point; each client has a file of its own, in records of 4 KB; random mix: half of the operations read, and a \
         client reads a record from the service only once; without replicas: quorate's own file system with durability \
         sync, and NFS-Ganesha, which writes to the same disk and syncs data",
        points.ms
    ));
    files::note_store(&mut report);
    files::notes(&mut report);
    Ok(report)
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let of = |a: f64, b: f64| format!("{:.2} MB/s, {:.2} MB/s", mb(a), mb(b));
    let most = |system: &str, variant, op| peak(rows, (system, variant), op);
    let mut shapes = Vec::new();
    for (op, variant) in [(WRITE, FAST), (MIX, FAST), (WRITE, OLD), (MIX, OLD)] {
        let (base, cbase) = (most(BASE, variant, op), most(CBASE, variant, op));
        let busy = busy(rows, (CBASE, variant), op);
        let name = format!(
            "C7.1 {op}, {}: CBASE-FS does 1.8 times as much as BASE-FS, or its store is busy 90 % of the time",
            variant.unwrap_or_default()
        );
        shapes.push(compare(&name, cbase.zip(base), |name, a, b| {
            let held = (GAIN_MIN..=files::WORKERS).contains(&(a / b)) || busy >= BUSY_MIN;
            Shape::new(name, held, format!("{}: {:.2}; busy {:.0} %", of(a, b), a / b, busy))
        }));
    }
    let (base, cbase) = (most(BASE, FAST, WRITE), most(CBASE, FAST, WRITE));
    shapes.push(compare("C7.2 write: BASE-FS does less than CBASE-FS", base.zip(cbase), |name, a, b| {
        Shape::new(name, a < b, of(a, b))
    }));
    let alone = most("bfs-nr", None, WRITE);
    shapes.push(compare(
        "C7.2 write: CBASE-FS does less than without replicas",
        cbase.zip(alone),
        |name, a, b| Shape::new(name, a < b, of(a, b)),
    ));
    for system in [BASE, CBASE] {
        let name = format!(
            "C7.3 {system} does more in the random mix, with the client's cache, than when it writes"
        );
        // Half of the operations read, and hardly any of these makes a call.
        let figures = most(system, FAST, MIX).zip(most(system, FAST, WRITE));
        shapes.push(compare(&name, figures, |name, a, b| between(name, a / b, (1.0, 4.0), &of(a, b))));
    }
    shapes
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let write = files::figures(rows, WRITE, ("write", "7a"), &PAPER_WRITE);
    let mix = files::figures(rows, MIX, ("mix", "7b"), &PAPER_MIX);
    write.into_iter().chain(mix).collect()
}
