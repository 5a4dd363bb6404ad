//! The arms of an experiment: systems that are started together, each with its own clients. In every repeat, one arm
//! after the other is measured while the others sleep. So other load on the machine affects all arms alike.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use quorate_node::Waiting;

use crate::echo::{self, Way};
use crate::effort::Settings;
use crate::figures::{median, ratio};
use crate::load::{self, Clients, Load, Op, Sample, Until};
use crate::processes::{self, Part, REPLICA_CORES};
use crate::report::Row;
use crate::setup::{Common, Setup, free_addresses};
use crate::unreplicated::{self, Seal};
use crate::{nodes, progress};

/// Maximum number of clients in a process.
const LANES_MAX: u16 = 500;

/// Where the processes of an arm run, and how they wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Each is pinned to a core and polls for a millisecond: for latencies.
    Pinned,
    /// On any core, without long polling, because there are more processes than cores: for throughput. The value is the
    /// number of client processes.
    Free(usize),
    /// The same, with a process for each client, which waits in this way.
    Each(usize, Wait),
}

/// How a client process with one operation in progress waits for its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It sleeps.
    Blocking,
    /// It polls for as long as the default settings say.
    Polling,
}

impl Wait {
    /// Returns its name in a table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Blocking => "a process each, blocking",
            Self::Polling => "a process each, polling",
        }
    }
}

/// The cores of the client and of the other server.
const CLIENT_CORE: usize = 0;
const SERVER_CORE: usize = 1;

/// The bounds are for a machine whose polled echo takes less than this, in microseconds.
pub(crate) const ECHO_US_MAX: f64 = 6.0;

/// Returns the time of both echoes of a run, polling and blocking, in microseconds.
pub(crate) fn echoes(rows: &[Row]) -> (f64, f64) {
    let took = |system: &str| rows.iter().find(|row| row.system == system).and_then(|row| row.p50_us);
    (took("echo-polling").unwrap_or(f64::NAN), took("echo-blocking").unwrap_or(f64::NAN))
}

impl Place {
    fn hosts(self) -> usize {
        if let Self::Free(hosts) | Self::Each(hosts, _) = self { hosts } else { 1 }
    }

    /// Returns for how long a client polls before it sleeps, in nanoseconds.
    fn client_poll_ns(self) -> u64 {
        match self {
            Self::Each(_, Wait::Blocking) => 0,
            Self::Each(_, Wait::Polling) => 1_000_000,
            Self::Free(_) | Self::Pinned => self.poll_ns(),
        }
    }

    fn poll_ns(self) -> u64 {
        if self == Self::Pinned { 1_000_000 } else { 20_000 }
    }

    fn start(self, core: usize, arguments: &[String]) -> Result<Part> {
        match self {
            Self::Pinned => Part::start(core, arguments),
            Self::Free(_) | Self::Each(..) => Part::start_anywhere(arguments),
        }
    }

    /// Returns it as text.
    pub(crate) fn in_words(self) -> String {
        let nice = processes::nice_level();
        match self {
            Self::Pinned => format!(
                "replicas on cores {REPLICA_CORES:?}, repeated, client on {CLIENT_CORE}, other servers on {SERVER_CORE}, nice {nice}"
            ),
            Self::Free(_) | Self::Each(..) => format!("none, nice {nice}"),
        }
    }
}

/// A system with its clients.
pub(crate) struct Arm {
    system: &'static str,
    variant: String,
    setup: Option<Setup>,
    durability: &'static str,
    servers: Vec<Part>,
    hosts: Vec<Part>,
    /// Whether the server has to be told the number of operations.
    counts: bool,
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

impl Arm {
    /// Starts a cluster.
    pub(crate) fn cluster(setup: Setup, place: Place) -> Result<Self> {
        let n = usize::from(setup.n());
        let addresses = free_addresses(n + place.hosts())?;
        let words: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        let f = setup.f.to_string();
        let start = |role: &str, id: usize, core: usize| {
            let poll_ns = if role == "client" { place.client_poll_ns() } else { place.poll_ns() };
            let (poll, id) = (poll_ns.to_string(), id.to_string());
            let mut arguments = strings(&[role, &f, &poll, setup.switches, &id]);
            arguments.extend(words.iter().cloned());
            place.start(core, &arguments)
        };
        let servers = (0..n).map(|id| start("replica", id, REPLICA_CORES[id % REPLICA_CORES.len()]));
        let mut servers = servers.collect::<Result<Vec<_>>>()?;
        let hosts =
            (0..place.hosts()).map(|id| start("client", id, CLIENT_CORE)).collect::<Result<Vec<_>>>()?;
        servers.iter_mut().try_for_each(|replica| replica.tell("go"))?;
        let variant = match place {
            Place::Each(_, wait) if setup.switches.is_empty() => wait.name().to_owned(),
            Place::Each(_, wait) => format!("{}, {}", wait.name(), setup.name),
            Place::Pinned | Place::Free(_) => setup.name.to_owned(),
        };
        let durability = "memory";
        Ok(Self { system: "quorate", variant, setup: Some(setup), durability, servers, hosts, counts: false })
    }

    /// Starts the unreplicated service.
    pub(crate) fn no_rep(way: Way, mac: bool, place: Place) -> Result<Self> {
        let mac_word = mac.to_string();
        let poll = if way == Way::Blocking { "0".to_owned() } else { place.poll_ns().to_string() };
        let mut server = place.start(SERVER_CORE, &strings(&["no-rep", &poll, &mac_word]))?;
        let address = server.line()?;
        let poll = if way == Way::Blocking { poll } else { place.client_poll_ns().to_string() };
        let host = || place.start(CLIENT_CORE, &strings(&["no-rep-client", &address, &poll, &mac_word]));
        let hosts = (0..place.hosts()).map(|_| host()).collect::<Result<Vec<_>>>()?;
        let system = if mac { "no-rep+mac" } else { "no-rep" };
        let variant = if let Place::Each(_, wait) = place { wait.name() } else { way.name() };
        Ok(Self::baseline(system, variant.to_owned(), server, hosts, false))
    }

    /// Starts an echo between the client's core and another one, or on the same core.
    pub(crate) fn echo(way: Way, mac: bool, server_core: usize) -> Result<Self> {
        let mac_word = mac.to_string();
        let mut server = Part::start(server_core, &strings(&["echo", way.name(), &mac_word]))?;
        let address = server.line()?;
        let words = strings(&["echo-client", &address, way.name(), &mac_word]);
        let host = Part::start(CLIENT_CORE, &words)?;
        let system = if way == Way::Blocking { "echo-blocking" } else { "echo-polling" };
        let cores = if server_core == CLIENT_CORE { "one core" } else { "two cores" };
        let variant = if mac { format!("{cores}, MAC") } else { cores.to_owned() };
        Ok(Self::baseline(system, variant, server, vec![host], true))
    }

    /// Starts both echoes between two cores, as the baseline of latencies.
    pub(crate) fn echoes() -> Result<[Self; 2]> {
        Ok([Self::echo(Way::Polling, false, SERVER_CORE)?, Self::echo(Way::Blocking, false, SERVER_CORE)?])
    }

    fn baseline(system: &'static str, variant: String, server: Part, hosts: Vec<Part>, counts: bool) -> Self {
        Self { system, variant, setup: None, durability: "memory", servers: vec![server], hosts, counts }
    }

    /// Runs a load with this number of clients.
    pub(crate) fn measure(&mut self, clients: u16, until: Until, op: Op) -> Result<Sample> {
        if let (true, Until::Ops(count), Some(server)) = (self.counts, until, self.servers.first_mut()) {
            let _now = server.answer(&count.to_string())?;
        }
        let before = (self.servers_ns()?, self.clients()?);
        let hosts = self.hosts.len().min(usize::from(clients));
        for (index, host) in self.hosts.iter_mut().take(hosts).enumerate() {
            let lanes = u16::try_from((usize::from(clients) + hosts - 1 - index) / hosts)?;
            host.tell(&Load { lanes, until, op }.line())?;
        }
        let mut all = Sample::default();
        for host in self.hosts.iter_mut().take(hosts) {
            let line = host.line()?;
            all = all.with(&serde_json::from_str(&line).with_context(|| format!("{line:?} is no sample"))?);
        }
        let (spent_ns, (client_ns, sleeps)) = (self.servers_ns()?.saturating_sub(before.0), self.clients()?);
        all.ops_per_core = ratio(all.done, 1) / ratio(spent_ns, 1_000_000_000);
        let done = all.done.max(1);
        all.client_us = ratio(client_ns.saturating_sub(before.1.0), 1000 * done);
        all.client_sleeps = ratio(sleeps.saturating_sub(before.1.1), done);
        Ok(all)
    }

    /// Returns the processor time of all client processes so far, in nanoseconds, and how often they have slept.
    fn clients(&self) -> Result<(u64, u64)> {
        let both = |host: &Part| Ok((host.cpu_ns()?, host.sleeps()?));
        let all: Vec<(u64, u64)> = self.hosts.iter().map(both).collect::<Result<_>>()?;
        Ok(all.into_iter().fold((0, 0), |(ns, sleeps), (a, b)| (ns + a, sleeps + b)))
    }

    /// Returns the processor time of all servers so far.
    fn servers_ns(&self) -> Result<u64> {
        self.servers.iter().map(Part::cpu_ns).sum()
    }
}

/// The unit of a point's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    Latency,
    Throughput,
}

/// One arm with one load, and the results of its repeats.
struct Point {
    arm: usize,
    clients: u16,
    until: Until,
    op: Op,
    paper: Option<f64>,
    samples: Vec<Sample>,
}

/// The plan of an experiment: arms, and the points of their curves.
pub(crate) struct Plan {
    figure: Figure,
    arms: Vec<Arm>,
    points: Vec<Point>,
}

impl Plan {
    pub(crate) fn new(figure: Figure) -> Self {
        Self { figure, arms: Vec::new(), points: Vec::new() }
    }

    /// Adds an arm, and returns its number.
    pub(crate) fn arm(&mut self, arm: Arm) -> usize {
        self.arms.push(arm);
        self.arms.len() - 1
    }

    /// Adds a point. `paper` is the paper's figure in microseconds or operations per second.
    pub(crate) fn point(&mut self, arm: usize, clients: u16, until: Until, op: Op, paper: Option<f64>) {
        self.points.push(Point { arm, clients, until, op, paper, samples: Vec::new() });
    }

    /// Warms up every arm, then measures each point once in each repeat. Returns a row for each point.
    pub(crate) fn run(mut self, settings: Settings, repeats: usize) -> Result<Vec<Row>> {
        for (number, arm) in self.arms.iter_mut().enumerate() {
            let warm_up = settings.effort.of(2_000, 400, 20);
            // The first operation of a lane depends on all others: it is not one that takes long.
            let waiting = self.points.iter().filter(|point| point.arm == number && point.op.wait_us > 0);
            let most = waiting.max_by_key(|point| point.clients);
            if let Some(most) = most {
                arm.measure(most.clients, Until::Ops(1), Op::rw(0, 0)).context("while warming up")?;
            }
            arm.measure(1, Until::Ops(warm_up), Op::rw(0, 0)).context("while warming up")?;
            if arm.setup.is_some() {
                arm.measure(1, Until::Ops(warm_up), Op::ro(0, 0)).context("while warming up")?;
            }
            if let Some(most) = most {
                // The primary learns how many of them a batch may have (PR-7). It forgets this after some short operations.
                arm.measure(1, Until::Ops(1), most.op).context("while warming up")?;
            }
        }
        let (start, turns) = (Instant::now(), repeats * self.points.len());
        for repeat in 0..repeats {
            for (index, point) in self.points.iter_mut().enumerate() {
                progress::turn(repeat * turns / repeats.max(1) + index, turns, start);
                let arm = self.arms.get_mut(point.arm).context("no such arm")?;
                let sample = arm.measure(point.clients, point.until, point.op);
                let sample = sample.with_context(|| {
                    format!(
                        "{} {} {} {}, {} clients",
                        arm.system,
                        arm.variant,
                        point.op.name(),
                        point.op.mode(),
                        point.clients
                    )
                })?;
                point.samples.push(sample);
            }
        }
        Ok(self.points.iter().filter_map(|point| Some(self.row(self.arms.get(point.arm)?, point))).collect())
    }

    fn row(&self, arm: &Arm, point: &Point) -> Row {
        let all = |figure: fn(&Sample) -> f64| point.samples.iter().map(figure).collect::<Vec<f64>>();
        let middle = |figure: fn(&Sample) -> f64| Some(median(&all(figure)));
        let quorate = arm.setup.is_some();
        let lost: u64 = point.samples.iter().map(|sample| sample.resent).sum();
        Row {
            system: arm.system.to_owned(),
            variant: arm.variant.clone(),
            op: point.op.name(),
            mode: if arm.counts { "-".to_owned() } else { point.op.mode().to_owned() },
            n: arm.setup.map(Setup::n),
            f: arm.setup.map(|setup| setup.f),
            clients: u32::from(point.clients),
            repeats: point.samples.len(),
            argument_bytes: Some(point.op.argument),
            result_bytes: usize::try_from(point.op.result).ok(),
            durability: quorate.then(|| arm.durability.to_owned()),
            p25_us: middle(|s| s.p25_us),
            p50_us: middle(|s| s.p50_us),
            p75_us: middle(|s| s.p75_us),
            p99_us: middle(|s| s.p99_us),
            ops_per_s: middle(|s| s.ops_per_s),
            ops_per_core_s: (self.figure == Figure::Throughput).then(|| median(&all(|s| s.ops_per_core))),
            client_us: (self.figure == Figure::Throughput).then(|| median(&all(|s| s.client_us))),
            client_sleeps: (self.figure == Figure::Throughput).then(|| median(&all(|s| s.client_sleeps))),
            resent: Some(ratio(lost, 1)),
            paper: point.paper,
            unit: if self.figure == Figure::Latency { "us" } else { "op/s" }.to_owned(),
            samples: all(if self.figure == Figure::Latency { |s| s.p50_us } else { |s| s.ops_per_s }),
            ..Row::default()
        }
    }
}

/// Runs one process of an arm.
///
/// # Errors
///
/// The arguments are not those of a process, or it fails.
pub(crate) fn child(arguments: &[&str]) -> Result<()> {
    let waiting = |poll: &str| -> Result<Waiting> {
        let ns: u64 = poll.parse()?;
        Ok(if ns == 0 { Waiting::Block } else { Waiting::Poll(ns) })
    };
    match *arguments {
        ["replica", f, poll, switches, id, ref addresses @ ..] => {
            Common::new(f, switches, addresses)?.run_replica(id.parse()?, waiting(poll)?)
        }
        ["client", f, poll, switches, id, ref addresses @ ..] => {
            let (drive, link) = Common::new(f, switches, addresses)?.client(id.parse()?, LANES_MAX)?;
            let mut clients = Clients::new(drive, link, waiting(poll)?);
            load::obey(|load| clients.work(load, || ()))
        }
        ["node-client", dir] => nodes::client(dir),
        ["no-rep", poll, mac] => unreplicated::serve(waiting(poll)?, &Seal::new(mac.parse()?)),
        ["no-rep-client", server, poll, mac] => {
            let (server, waiting, seal) = (server.parse()?, waiting(poll)?, Seal::new(mac.parse()?));
            load::obey(|load| unreplicated::work(server, load, waiting, &seal))
        }
        ["echo", way, mac] => echo::serve(Way::parse(way)?, &Seal::new(mac.parse()?)),
        ["echo-client", server, way, mac] => {
            let (server, way, seal) = (server.parse()?, Way::parse(way)?, Seal::new(mac.parse()?));
            load::obey(|load| echo::measure(server, way, load, &seal))
        }
        _ => bail!("no part {arguments:?}"),
    }
}
