//! `micro-latency`: how long one operation takes, over UDP, five processes (OSDI99 Table 1).
//!
//! In each repeat the baselines and all variants have their turn, so that a busy machine is busy for all
//! of them. Whoever has no turn sleeps.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use quorate_node::{ClientProcess, Waiting};
use quorate_service::null;

use crate::cluster::{Common, N, Variant, free_addresses};
use crate::echo::{self, Way};
use crate::figures::{median, percentile};
use crate::machine::Machine;
use crate::processes::{self, Part};
use crate::report::{Report, Row, Shape};
use crate::{Experiment, Settings};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "micro-latency",
    source: "OSDI99 Table 1",
    about: "latency of 0/0 over UDP, ordered and read-only, against a polled and a blocking echo",
    run,
};

/// The most microseconds of an ordered 0/0, where the polled echo takes less than [`ECHO_US_MAX`].
const ORDERED_US_MAX: f64 = 45.0;
const ECHO_US_MAX: f64 = 6.0;

const WARM_UP: usize = 500;

const VARIANTS: [Variant; 2] = [
    Variant { name: "default", set: |_| () },
    Variant { name: "piggyback off", set: |config| config.piggyback = false },
];

/// The cores of the replicas in order, then of the client and of the echo server, where there are two.
const CORES: [usize; N + 2] = [1, 0, 0, 1, 0, 1];

fn cores() -> [usize; N + 2] {
    let available = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let chosen = std::env::var("QUORATE_BENCH_CORES").unwrap_or_default();
    let mut cores = CORES;
    for (core, word) in cores.iter_mut().zip(chosen.split(',')) {
        *core = word.parse().unwrap_or(*core);
    }
    cores.map(|core| core % available)
}

/// A cluster of processes with its client's.
struct Group {
    client: Part,
    _replicas: Vec<Part>,
}

impl Group {
    fn start(variant: &Variant, cores: [usize; N + 2]) -> Result<Self> {
        let addresses = free_addresses(N + 1)?;
        let words: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        let part = |role: &str, id: usize| -> Vec<String> {
            let own = [EXPERIMENT.name, role, variant.name, &id.to_string()].map(str::to_owned);
            own.into_iter().chain(words.iter().cloned()).collect()
        };
        let start = |role, id| Part::start(cores[id], &part(role, id));
        let mut replicas = (0..N).map(|id| start("replica", id)).collect::<Result<Vec<_>>>()?;
        let mut client = start("client", N)?;
        replicas.iter_mut().try_for_each(|replica| replica.tell("go"))?;
        client.figures(&format!("ordered {WARM_UP}"))?;
        client.figures(&format!("read {WARM_UP}"))?;
        Ok(Self { client, _replicas: replicas })
    }
}

/// The samples of one row: medians and 99th percentiles of the repeats, in microseconds.
#[derive(Default)]
struct Repeats {
    p50: Vec<f64>,
    p99: Vec<f64>,
}

impl Repeats {
    fn add(&mut self, samples_ns: &[f64]) {
        self.p50.push(median(samples_ns) / 1000.0);
        self.p99.push(percentile(samples_ns, 99) / 1000.0);
    }

    fn row(self, system: &'static str, variant: &str, mode: &'static str) -> Row {
        let p50 = median(&self.p50);
        let quorate = system == "quorate";
        Row {
            system,
            variant: variant.to_owned(),
            op: "0/0",
            mode,
            n: quorate.then_some(4),
            f: quorate.then_some(1),
            clients: 1,
            repeats: self.p50.len(),
            p50_us: Some(p50),
            p99_us: Some(median(&self.p99)),
            ops_per_s: Some(1e6 / p50),
            samples: self.p50,
            ..Row::default()
        }
    }
}

/// One variant: its processes and its samples.
struct Arm {
    variant: &'static Variant,
    group: Group,
    ordered: Repeats,
    reads: Repeats,
}

impl Arm {
    fn start(variant: &'static Variant, cores: [usize; N + 2]) -> Result<Self> {
        let group = Group::start(variant, cores)?;
        Ok(Self { variant, group, ordered: Repeats::default(), reads: Repeats::default() })
    }

    fn measure(&mut self, ops: usize) -> Result<()> {
        self.ordered.add(&self.group.client.figures(&format!("ordered {ops}"))?);
        self.reads.add(&self.group.client.figures(&format!("read {ops}"))?);
        Ok(())
    }

    fn rows(mut self) -> Result<[Row; 2]> {
        let answer = self.group.client.answer("errors")?;
        let mut ordered = self.ordered.row("quorate", self.variant.name, "rw");
        ordered.errors = answer.parse().with_context(|| format!("{answer:?} is no count"))?;
        Ok([ordered, self.reads.row("quorate", self.variant.name, "ro")])
    }
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, ops) = if settings.quick { (7, 1500) } else { (15, 10_000) };
    let cores = cores();
    let pinning = format!(
        "replicas on {:?}, client on {}, echo server on {}, nice {}",
        &cores[..N],
        cores[N],
        cores[N + 1],
        processes::nice_level()
    );
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look(pinning));
    let mut arms = VARIANTS.iter().map(|variant| Arm::start(variant, cores)).collect::<Result<Vec<_>>>()?;
    let (mut polling, mut blocking) = (Repeats::default(), Repeats::default());
    for _ in 0..repeats {
        for arm in &mut arms {
            polling.add(&echoes(&mut arm.group.client, cores[N + 1], Way::Polling, ops)?);
            blocking.add(&echoes(&mut arm.group.client, cores[N + 1], Way::Blocking, ops / 5)?);
            arm.measure(ops)?;
        }
    }
    report.rows.push(polling.row("echo-polling", "", "-"));
    report.rows.push(blocking.row("echo-blocking", "", "-"));
    for arm in arms {
        report.rows.extend(arm.rows()?);
    }
    report.shapes = shapes(&report.rows);
    let resent: u64 = report.rows.iter().map(|row| row.errors).sum();
    report.notes.push(format!(
        "{ops} operations a repeat, {resent} requests sent again in all; polling, giving way when idle; durability memory"
    ));
    Ok(report)
}

/// Measures echoes between the client and a server that is there for so long.
fn echoes(client: &mut Part, core: usize, way: Way, count: usize) -> Result<Vec<f64>> {
    let mut server = Part::start(core, &[EXPERIMENT.name, "echo", way.name()].map(str::to_owned))?;
    let address = server.line()?;
    client.figures(&format!("echo {address} {} {count}", way.name()))
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let find = |system: &str, variant: &str, mode: &str| {
        let row = rows.iter().find(|r| (r.system, r.variant.as_str(), r.mode) == (system, variant, mode));
        row.and_then(|row| row.p50_us).unwrap_or(f64::INFINITY)
    };
    let (polling, blocking) = (find("echo-polling", "", "-"), find("echo-blocking", "", "-"));
    let (ordered, read) = (find("quorate", "default", "rw"), find("quorate", "default", "ro"));
    let goal = Shape {
        name: "ordered 0/0 in under 45 us where a polled echo takes less than 6 us".to_owned(),
        held: ordered < ORDERED_US_MAX && polling < ECHO_US_MAX,
        evidence: format!(
            "ordered {ordered:.1} us, polled echo {polling:.1} us: {:.1} times; blocking echo {blocking:.1} us: {:.1} times",
            ordered / polling,
            ordered / blocking
        ),
    };
    let faster = Shape {
        name: "read-only is faster than read-write at 0/0".to_owned(),
        held: read < ordered,
        evidence: format!("read-only {read:.1} us, read-write {ordered:.1} us"),
    };
    vec![goal, faster]
}

/// Runs a replica, the client or the echo server.
///
/// # Errors
///
/// The arguments are not those of a part, or the part fails.
pub fn child(arguments: &[String]) -> Result<()> {
    processes::settle()?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *words.as_slice() {
        ["echo", way] => echo::serve(Way::parse(way)?),
        ["replica", variant, id, ref addresses @ ..] => {
            common(variant, addresses)?.run_replica(id.parse()?, Waiting::default())
        }
        ["client", variant, _, ref addresses @ ..] => client(variant, addresses),
        _ => bail!("no part {arguments:?}"),
    }
}

fn common(variant: &str, addresses: &[&str]) -> Result<Common> {
    Common::new(Variant::find(&VARIANTS, variant)?, addresses)
}

fn client(variant: &str, addresses: &[&str]) -> Result<()> {
    let (drive, socket) = common(variant, addresses)?.client(0, 1)?;
    let mut process = ClientProcess::new(drive, socket, Waiting::default());
    for line in processes::ready()? {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let samples = match *words.as_slice() {
            ["ordered", count] => operations(&mut process, count.parse()?, false)?,
            ["read", count] => operations(&mut process, count.parse()?, true)?,
            ["echo", server, way, count] => echo::measure(server.parse()?, Way::parse(way)?, count.parse()?)?,
            ["errors"] => vec![process.drive().counters().retransmitted],
            _ => bail!("no command {line:?}"),
        };
        let words: Vec<String> = samples.iter().map(u64::to_string).collect();
        processes::say(&words.join(" "))?;
    }
    Ok(())
}

/// Measures so many operations, in nanoseconds.
fn operations(process: &mut ClientProcess, count: usize, read_only: bool) -> Result<Vec<u64>> {
    let mut operation = Vec::new();
    null::operation(0, 0, read_only, &mut operation);
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        let len = process.invoke(&operation, read_only, |_, result| result.len())?;
        ensure!(len == 0, "a result of {len} bytes");
        samples.push(u64::try_from(start.elapsed().as_nanos())?);
    }
    Ok(samples)
}
