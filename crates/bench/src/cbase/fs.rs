//! `cbase-fs`: each client writes 4 KB to a file of its own, again and again [CBASE04 Figure 6]: as fast as the service
//! can, and with replicas that wait 20 ms after each write.

use anyhow::Result;

use super::between;
use super::files::{self, BASE, CBASE, Client, Points, RECORD, WORKERS, compare, mb, peak};
use crate::effort::{Effort, Settings};
use crate::experiment::Experiment;
use crate::figure::Figure;
use crate::files::client::{Handle, Nfs};
use crate::files::noise;
use crate::files::servers::{self, Arm, Reads, Where, Work};
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cbase-fs",
    source: "CBASE04 Figure 6",
    about: "clients that each write 4 KB to a file: BASE-FS, CBASE-FS with 16 workers, and without replicas; also with writes \
        that take 20 ms",
    run,
    figures,
};

const WAIT: Work = Work::Waits(20_000);
/// What is written, without and with waiting.
const PLAIN: &str = "write 4 KB";
const WAITING: &str = "write 4 KB, 20 ms";
const NFS: Arm = Arm::Alone(Reads::Strict, "memory");
const ARMS: &[Arm] = &[
    files::base(Work::Memory),
    files::control(Work::Memory),
    files::cbase(Work::Memory),
    files::keys(Work::Memory),
    NFS,
    Arm::Ganesha(Where::Disk),
];
const FEW_ARMS: &[Arm] = &[files::base(Work::Memory), files::cbase(Work::Memory), NFS];
const WAITING_ARMS: &[Arm] =
    &[files::base(WAIT), files::control(WAIT), files::cbase(WAIT), files::keys(WAIT), files::free(WAIT)];
const FEW_WAITING_ARMS: &[Arm] = &[files::base(WAIT), files::cbase(WAIT)];
/// The paper's highest throughput, in MB/s, of the replicated systems, of NFS, and with waiting of BASE-FS and CBASE-FS.
const PAPER: [(&str, f64); 2] = [("paper: BASE-FS, CBASE-FS", 2.5), ("paper: NFS", 4.0)];
const PAPER_WAITING: [(&str, f64); 2] = [("paper: BASE-FS", 0.09), ("paper: CBASE-FS", 2.0)];

/// A client with its file.
struct Writer {
    nfs: Nfs,
    name: String,
    file: Handle,
    data: Vec<u8>,
}

impl Client for Writer {
    fn begin(number: usize, mut nfs: Nfs) -> Result<Self> {
        let (name, root) = (format!("file-{number}"), nfs.root().clone());
        let file = nfs.create(&root, &name)?;
        let mut writer = Self { nfs, name, file, data: noise(RECORD) };
        // The primary learns how long a write takes, and so how many a batch may have (PR-7).
        writer.turn()?;
        Ok(writer)
    }

    fn turn(&mut self) -> Result<()> {
        self.nfs.write(&self.file, 0, &self.data, RECORD)
    }

    fn end(mut self) -> Result<u64> {
        let root = self.nfs.root().clone();
        self.nfs.remove(&root, &self.name)?;
        Ok(self.nfs.delayed())
    }
}

fn run(settings: Settings) -> Result<Report> {
    let mut report =
        Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look("replicas, one core each"));
    let is_tiny = settings.effort == Effort::Tiny;
    let points = Points::of(settings.effort, &[1, 2, 4, 8, 16, 32, 64], &[1, 8, 32]);
    let parts = [(PLAIN, ARMS, FEW_ARMS), (WAITING, WAITING_ARMS, FEW_WAITING_ARMS)];
    for (op, arms, few) in parts {
        let servers = servers::start_all(if is_tiny { few } else { arms }, &mut report.notes)?;
        report.rows.extend(points.measure::<Writer>(&servers, op)?);
    }
    report.shapes = shapes(&report.rows);
    report.notes.push(format!(
        "{} ms a point; with 20 ms: a replica waits after it has executed a WRITE, before its reply; NFS: quorate's own file \
         system without replicas, and NFS-Ganesha, neither of which waits",
        points.ms
    ));
    files::notes(&mut report);
    Ok(report)
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let most = |system: &str, op: &str| peak(rows, (system, None), op);
    let one = |system: &str| {
        rows.iter().find(|row| row.system == system && row.op == PLAIN && row.clients == 1)?.p50_us
    };
    let of = |a: f64, b: f64| format!("{:.2} MB/s, {:.2} MB/s", mb(a), mb(b));
    let (base, cbase, nfs) = (most(BASE, PLAIN), most(CBASE, PLAIN), most("bfs-nr", PLAIN));
    let least = base.zip(cbase).map(|(base, cbase)| base.min(cbase));
    let waiting = most(CBASE, WAITING).zip(most(BASE, WAITING));
    vec![
        compare(
            "C6a.1 the maximum of CBASE-FS is within 5 % of that of BASE-FS",
            cbase.zip(base),
            |name, a, b| between(name, a / b, (0.95, 1.05), &of(a, b)),
        ),
        // Without replicas there is more to do than nothing: replicas that are faster are measured wrongly.
        compare(
            "C6a.2 both maxima are at least half of that without replicas",
            least.zip(nfs),
            |name, a, b| between(name, a / b, (0.5, 1.05), &of(a, b)),
        ),
        compare(
            "C6a.3 with one client, the service without replicas has the lowest p50",
            one("bfs-nr").zip(one(BASE).zip(one(CBASE)).map(|(a, b)| a.min(b))),
            |name, nfs, least| {
                Shape::new(name, nfs < least, format!("{nfs:.0} us, {least:.0} us of the others"))
            },
        ),
        compare(
            "C6b.1 20 ms a write: CBASE-FS does 0.9 times 16 times as much as BASE-FS",
            waiting,
            |name, a, b| between(name, a / b, (0.9 * WORKERS, 1.1 * WORKERS), &of(a, b)),
        ),
    ]
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let plain = files::figures(rows, PLAIN, ("plain", "6a"), &PAPER);
    let waiting = files::figures(rows, WAITING, ("waiting", "6b"), &PAPER_WAITING);
    plain.into_iter().chain(waiting).collect()
}
