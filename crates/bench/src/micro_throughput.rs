//! `micro-throughput`: operations a second as clients become more, over UDP (DSN01 Figure 4).
//!
//! A client is a lane with one operation outstanding at a time; lanes are spread over a few processes, as
//! the paper's were over five hosts. A point begins with all lanes at once and ends when its time is over;
//! what is then under way does not count. The arms' points alternate in each repeat, and whoever has no
//! turn sleeps.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use quorate_node::{ClientDrive, Clock, Socket, Waiting};
use quorate_service::null;

use crate::cluster::{Common, N, Variant, free_addresses};
use crate::figures::{median, percentile, ratio};
use crate::machine::Machine;
use crate::processes::{self, Part};
use crate::report::{Report, Row, Shape};
use crate::unreplicated;
use crate::{Experiment, Settings};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "micro-throughput",
    source: "DSN01 Figure 4",
    about: "operations a second over UDP with 1 to 1000 clients, ordered and read-only, and unreplicated",
    run,
};

/// The least operations a second of ordered 0/0 at its best.
const OPS_MIN: f64 = 100_000.0;
/// The least operations for each second of processor time that the replicas spend, all together.
const OPS_PER_CORE_MIN: f64 = 60_000.0;

/// Processes of clients.
const HOSTS: usize = 2;
/// The most clients of a process.
const LANES_MAX: u16 = 500;

const DEFAULT: Variant = Variant { name: "default", set: |_| () };

/// How replicas and clients wait: there are more processes than cores, so that nobody polls for long.
pub(crate) const WAITING: Waiting = Waiting::Poll(20_000);

/// What the operations of a point are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    op: &'static str,
    argument: usize,
    result: u32,
    read_only: bool,
}

impl Kind {
    const fn new(op: &'static str, argument: usize, result: u32, read_only: bool) -> Self {
        Self { op, argument, result, read_only }
    }

    fn mode(self) -> &'static str {
        if self.read_only { "ro" } else { "rw" }
    }
}

const KINDS: [Kind; 6] = [
    Kind::new("0/0", 0, 0, false),
    Kind::new("0/0", 0, 0, true),
    Kind::new("0/4", 0, 4096, false),
    Kind::new("0/4", 0, 4096, true),
    Kind::new("4/0", 4096, 0, false),
    Kind::new("4/0", 4096, 0, true),
];

/// One point of a curve, and what its repeats have shown.
struct Point {
    system: System,
    kind: Kind,
    clients: u16,
    samples: Vec<Sample>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Quorate,
    NoRep,
}

/// What came of one point in one repeat.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    ops_per_s: f64,
    /// For each second of processor time of the replicas, all together.
    ops_per_core: f64,
    p50_us: f64,
    p99_us: f64,
    resent: f64,
}

/// The processes of both systems.
struct Systems {
    replicas: Vec<Part>,
    clients: Vec<Part>,
    /// The unreplicated service.
    _server: Part,
    server_address: String,
}

impl Systems {
    fn start() -> Result<Self> {
        let addresses = free_addresses(N + HOSTS)?;
        let words: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        let start = |role: &str, id: usize| {
            let own = [EXPERIMENT.name, role, &id.to_string()].map(str::to_owned);
            Part::start_anywhere(&own.into_iter().chain(words.iter().cloned()).collect::<Vec<_>>())
        };
        let mut replicas = (0..N).map(|id| start("replica", id)).collect::<Result<Vec<_>>>()?;
        let clients = (0..HOSTS).map(|id| start("client", id)).collect::<Result<Vec<_>>>()?;
        replicas.iter_mut().try_for_each(|replica| replica.tell("go"))?;
        let mut server = Part::start_anywhere(&[EXPERIMENT.name, "server"].map(str::to_owned))?;
        let server_address = server.line()?;
        Ok(Self { replicas, clients, _server: server, server_address })
    }

    /// Has so many clients work for a while.
    fn measure(&mut self, point: &Point, time: Duration) -> Result<Sample> {
        let Kind { argument, result, read_only, .. } = point.kind;
        let target = match point.system {
            System::Quorate => "quorate",
            System::NoRep => &self.server_address,
        };
        let before = self.replicas_ns()?;
        let hosts = usize::from(point.clients).min(HOSTS);
        for (index, client) in self.clients.iter_mut().take(hosts).enumerate() {
            let lanes = (usize::from(point.clients) + hosts - 1 - index) / hosts;
            let ms = time.as_millis();
            client.tell(&format!("load {target} {lanes} {ms} {argument} {result} {read_only}"))?;
        }
        let (mut sample, mut ops) = (Sample::default(), 0.0);
        for client in self.clients.iter_mut().take(hosts) {
            let answer = client.reply()?;
            let [done, seconds, p50, p99, resent] = *answer.as_slice() else { bail!("{answer:?}") };
            ops += done;
            sample.ops_per_s += done / seconds;
            sample.p50_us = sample.p50_us.max(p50);
            sample.p99_us = sample.p99_us.max(p99);
            sample.resent += resent;
        }
        let spent_s = ratio(self.replicas_ns()?.saturating_sub(before), 1_000_000_000);
        sample.ops_per_core = if point.system == System::Quorate { ops / spent_s } else { 0.0 };
        Ok(sample)
    }

    /// Returns the processor time of all replicas so far.
    fn replicas_ns(&self) -> Result<u64> {
        self.replicas.iter().map(Part::cpu_ns).sum()
    }
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, time) = if settings.quick { (3, 300) } else { (5, 2_000) };
    let mut points = points(settings.quick);
    let machine = Machine::look(format!("none, nice {}", processes::nice_level()));
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, machine);
    let mut systems = Systems::start()?;
    let warm_up = Point { system: System::Quorate, kind: KINDS[0], clients: 100, samples: Vec::new() };
    systems.measure(&warm_up, Duration::from_millis(500))?;
    for _ in 0..repeats {
        for point in &mut points {
            let sample = systems.measure(point, Duration::from_millis(time))?;
            point.samples.push(sample);
        }
    }
    report.rows = points.iter().map(Point::row).collect();
    report.shapes = shapes(&report.rows);
    report.notes.push(format!(
        "{time} ms a point; {HOSTS} processes of clients; waiting: {WAITING:?}; no links; durability memory"
    ));
    Ok(report)
}

/// Returns the points of all curves: ordered 0/0 in full, of the others what shows where they end.
fn points(quick: bool) -> Vec<Point> {
    let curve: &[u16] =
        if quick { &[1, 10, 50, 200, 1000] } else { &[1, 5, 10, 20, 50, 100, 200, 500, 1000] };
    let few: &[u16] = if quick { &[1, 200] } else { curve };
    let mut points = Vec::new();
    for kind in KINDS {
        let counts = if kind == KINDS[0] { curve } else { few };
        for system in [System::Quorate, System::NoRep] {
            if system == System::Quorate || !kind.read_only {
                points.extend(counts.iter().map(|clients| Point::new(system, kind, *clients)));
            }
        }
    }
    points
}

impl Point {
    fn new(system: System, kind: Kind, clients: u16) -> Self {
        Self { system, kind, clients, samples: Vec::new() }
    }

    fn row(&self) -> Row {
        let of = |figure: fn(&Sample) -> f64| self.samples.iter().map(figure).collect::<Vec<f64>>();
        let quorate = self.system == System::Quorate;
        Row {
            system: if quorate { "quorate" } else { "no-rep" },
            variant: if quorate { DEFAULT.name.to_owned() } else { String::new() },
            op: self.kind.op,
            mode: self.kind.mode(),
            n: quorate.then_some(4),
            f: quorate.then_some(1),
            clients: u32::from(self.clients),
            repeats: self.samples.len(),
            p50_us: Some(median(&of(|s| s.p50_us))),
            p99_us: Some(median(&of(|s| s.p99_us))),
            ops_per_s: Some(median(&of(|s| s.ops_per_s))),
            ops_per_core_s: quorate.then(|| median(&of(|s| s.ops_per_core))),
            resent: Some(of(|s| s.resent).iter().sum()),
            samples: of(|s| s.ops_per_s),
            ..Row::default()
        }
    }
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let curve: Vec<&Row> =
        rows.iter().filter(|r| (r.system, r.op, r.mode) == ("quorate", "0/0", "rw")).collect();
    let ops = |row: &Row| row.ops_per_s.unwrap_or(0.0);
    let Some(best) = curve.iter().max_by(|a, b| ops(a).total_cmp(&ops(b))) else { return Vec::new() };
    let (one, peak) = (curve.first().map_or(0.0, |row| ops(row)), ops(best));
    let per_core = best.ops_per_core_s.unwrap_or(0.0);
    let at = |op: &str, mode: &str| {
        let rows = rows.iter().filter(|r| (r.system, r.op, r.mode) == ("quorate", op, mode));
        rows.map(ops).fold(0.0, f64::max)
    };
    let mut shapes = vec![
        Shape::at_least("ordered 0/0: over 100,000 op/s at its best", peak, OPS_MIN, "op/s"),
        Shape::at_least(
            "ordered 0/0 at its best: over 60,000 op for each core-second of the replicas",
            per_core,
            OPS_PER_CORE_MIN,
            "op/core-s",
        ),
        Shape::at_least("ordered 0/0 grows with clients: five times one client's", peak, 5.0 * one, "op/s"),
    ];
    for op in ["0/0", "0/4", "4/0"] {
        let name = format!("{op}: read-only does at least as much as ordered");
        shapes.push(Shape::at_least(name, at(op, "ro"), at(op, "rw"), "op/s"));
    }
    shapes
}

/// Runs a replica, a process of clients, or the unreplicated service.
///
/// # Errors
///
/// The arguments are not those of a part, or the part fails.
pub fn child(arguments: &[String]) -> Result<()> {
    processes::settle()?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *words.as_slice() {
        ["server"] => unreplicated::serve(WAITING),
        ["replica", id, ref addresses @ ..] => {
            Common::new(DEFAULT, addresses)?.run_replica(id.parse()?, WAITING)
        }
        ["client", id, ref addresses @ ..] => {
            let (drive, socket) = Common::new(DEFAULT, addresses)?.client(id.parse()?, LANES_MAX)?;
            Clients { drive, socket, clock: Clock::new() }.obey()
        }
        _ => bail!("no part {arguments:?}"),
    }
}

/// A load, as the experiment orders it.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) lanes: u16,
    pub(crate) time: Duration,
    pub(crate) operation: Vec<u8>,
    pub(crate) result: usize,
    pub(crate) read_only: bool,
}

/// What a load has brought: when each lane began its operation, and how long those took that are done.
#[derive(Debug)]
pub(crate) struct Progress {
    start: Instant,
    since: Vec<Instant>,
    took_ns: Vec<u64>,
}

impl Progress {
    /// All lanes begin.
    pub(crate) fn start(lanes: u16) -> Self {
        let start = Instant::now();
        Self { start, since: vec![start; usize::from(lanes)], took_ns: Vec::with_capacity(1 << 20) }
    }

    /// A lane's operation is done, and its next one begins. Says whether there is time for that.
    pub(crate) fn next(&mut self, lane: usize, time: Duration) -> Result<bool> {
        let now = Instant::now();
        let since = self.since.get_mut(lane).context("no such lane")?;
        let took = now.duration_since(std::mem::replace(since, now));
        let more = now.duration_since(self.start) < time;
        if more {
            self.took_ns.push(u64::try_from(took.as_nanos())?);
        }
        Ok(more)
    }

    /// Says it to the experiment.
    pub(crate) fn say(&self, time: Duration, resent: u64) -> Result<()> {
        let samples: Vec<f64> = self.took_ns.iter().map(|ns| ratio(*ns, 1000)).collect();
        let (p50, p99) = (median(&samples), percentile(&samples, 99));
        processes::say(&format!("{} {} {p50} {p99} {resent}", samples.len(), time.as_secs_f64()))
    }
}

/// A process of clients.
struct Clients {
    drive: ClientDrive,
    socket: Socket,
    clock: Clock,
}

/// What is under way after this time is given up.
const GIVE_UP: Duration = Duration::from_secs(5);

impl Clients {
    /// Does what the experiment says, until it says nothing more.
    fn obey(mut self) -> Result<()> {
        for line in processes::ready()? {
            let line = line?;
            let words: Vec<&str> = line.split(' ').collect();
            let ["load", target, lanes, ms, argument, result, read_only] = *words.as_slice() else {
                bail!("no command {line:?}")
            };
            let (read_only, result) = (read_only.parse()?, result.parse()?);
            let mut operation = Vec::new();
            null::operation(argument.parse()?, result, read_only, &mut operation);
            let time = Duration::from_millis(ms.parse()?);
            let load =
                Load { lanes: lanes.parse()?, time, operation, result: usize::try_from(result)?, read_only };
            if target == "quorate" {
                self.work(&load)?;
            } else {
                unreplicated::work(target.parse()?, &load)?;
            }
        }
        Ok(())
    }

    /// Keeps the lanes busy for the time of the load, and waits for what is under way then.
    fn work(&mut self, load: &Load) -> Result<()> {
        let resent = self.drive.counters().retransmitted;
        let mut progress = Progress::start(load.lanes);
        for lane in 0..load.lanes {
            self.drive.invoke(self.clock.now(), lane, &load.operation, load.read_only);
        }
        let mut under_way = load.lanes;
        let mut lanes = Vec::new();
        let mut idle = Idle::default();
        while under_way > 0 {
            self.drive.flush(&mut self.socket);
            let now = self.clock.now();
            let mut burst = 0;
            while burst < BURST_MAX
                && let Some(datagram) = self.socket.receive()?
            {
                burst += 1;
                self.drive.receive(now, datagram);
            }
            if self.drive.due() <= now.mono_ns {
                self.drive.expire(self.clock.now());
            }
            lanes.extend(self.drive.done().iter().map(|done| (done.lane, self.drive.result(done).len())));
            self.drive.clear_done();
            for (lane, len) in lanes.drain(..) {
                ensure!(len == load.result, "a result of {len} bytes");
                if progress.next(usize::from(lane), load.time)? {
                    self.drive.invoke(now, lane, &load.operation, load.read_only);
                } else {
                    under_way -= 1;
                }
            }
            if burst > 0 {
                idle = Idle::default();
            } else {
                idle.rest(now.mono_ns, &self.socket)?;
                ensure!(progress.start.elapsed() < load.time + GIVE_UP, "{under_way} operations never end");
            }
        }
        progress.say(load.time, self.drive.counters().retransmitted - resent)
    }
}

/// The most datagrams taken between two flushes.
const BURST_MAX: usize = 64;

/// How long a process of clients has had nothing to do.
#[derive(Debug, Default)]
struct Idle {
    since: Option<u64>,
}

impl Idle {
    fn rest(&mut self, now_ns: u64, socket: &Socket) -> Result<()> {
        let since = *self.since.get_or_insert(now_ns);
        match WAITING {
            Waiting::Poll(patience) if now_ns < since.saturating_add(patience) => std::thread::yield_now(),
            Waiting::Poll(_) | Waiting::Block => socket.wait(1, None)?,
        }
        Ok(())
    }
}
