//! `busy-neighbour`: what endless loops of the same priority, one for each core, leave of a cluster's throughput. All with
//! default settings: four replicas of the key-value store, the RESP gateway, and SETs of one connection and of 50. If
//! `redis-server` is installed, the same is measured of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quorate_node::settings::ServiceName;

use crate::figure::{Axis, Dot, Figure, Series};
use crate::figures::{median, ratio};
use crate::machine::Machine;
use crate::nodes::{self, Nodes};
use crate::report::{Report, Row, Shape};
use crate::{Experiment, Settings};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "busy-neighbour",
    source: "ours",
    about: "rate of SET through the RESP gateway, with and without an endless loop for each core; the same for Redis",
    run,
    figures,
};

/// The part of the experiment that loops.
pub(crate) const LOOP: &str = "endless-loop";

/// One command, as `redis-benchmark -t set` sends it, and its reply.
const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$16\r\nkey:__rand_int__\r\n$3\r\nxxx\r\n";
const OK: &[u8] = b"+OK\r\n";
/// The longest wait for a reply.
const REPLY_MAX: Duration = Duration::from_secs(30);

const CONNECTIONS: [u32; 2] = [1, 50];
const WAYS: [&str; 2] = ["memory", "sync"];
/// The least share of the quiet rate, by durability and connections.
const SHARES: [[f64; 2]; 2] = [[0.22, 0.28], [0.30, 0.45]];
/// The most requests that are sent again, of a thousand.
const RESENT_MAX: f64 = 1.0;

/// A server of SETs.
struct Arm {
    system: &'static str,
    way: &'static str,
    address: SocketAddr,
    nodes: Option<Nodes>,
    #[expect(dead_code, reason = "the server ends when this is dropped")]
    redis: Option<Redis>,
    /// Rates, by loops or not and connections.
    rates: [[Vec<f64>; 2]; 2],
    /// Requests to the cluster beside the loops, and how many were sent again.
    sent: u64,
    resent: u64,
}

/// A Redis server, with its directory.
struct Redis {
    child: Child,
    dir: std::path::PathBuf,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The loops. They end when this is dropped.
struct Loops(Vec<Child>);

impl Loops {
    fn start(count: usize) -> Result<Self> {
        let mut loops = Self(Vec::new());
        for _ in 0..count {
            let mut child = Command::new(std::env::current_exe()?);
            child.args(crate::CHILD).arg(LOOP).stdin(Stdio::null()).stdout(Stdio::null());
            loops.0.push(child.spawn().context("a loop does not start")?);
        }
        Ok(loops)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Loops until it is killed, or its parent ends.
pub(crate) fn endless_loop() -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    loop {
        std::hint::spin_loop();
    }
}

impl Arm {
    fn quorate(way: &'static str) -> Result<Self> {
        let mut nodes = Nodes::usual("busy", ServiceName::KV, way)?;
        nodes.start_replicas()?;
        let address = nodes.open_resp()?;
        Ok(Self::new("quorate", way, address, Some(nodes), None))
    }

    /// Starts Redis, if it is installed.
    fn redis(way: &'static str) -> Result<Option<Self>> {
        let (dir, ip) = nodes::new_place("redis")?;
        std::fs::create_dir_all(&dir)?;
        let address = SocketAddr::new(ip, 6379);
        let durable: &[&str] = match way {
            "memory" => &["--appendonly", "no"],
            _ => &["--appendonly", "yes", "--appendfsync", "always"],
        };
        let child = Command::new("redis-server")
            .args(["--save", "", "--bind", &ip.to_string(), "--port", "6379", "--dir"])
            .arg(&dir)
            .args(durable)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        match child {
            Ok(child) => Ok(Some(Self::new("redis", way, address, None, Some(Redis { child, dir })))),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                std::fs::remove_dir_all(&dir)?;
                Ok(None)
            }
            Err(error) => Err(error).context("redis-server does not start"),
        }
    }

    fn new(
        system: &'static str,
        way: &'static str,
        address: SocketAddr,
        nodes: Option<Nodes>,
        redis: Option<Redis>,
    ) -> Self {
        Self { system, way, address, nodes, redis, rates: Default::default(), sent: 0, resent: 0 }
    }

    /// Measures one point, and adds it.
    fn measure(&mut self, loops: bool, place: usize, span: Duration) -> Result<()> {
        let connections = CONNECTIONS[place];
        let before = self.requests()?;
        self.rates[usize::from(loops)][place].push(rate(self.address, connections, span)?);
        if loops {
            let after = self.requests()?;
            self.sent += after.0.saturating_sub(before.0);
            self.resent += after.1.saturating_sub(before.1);
        }
        Ok(())
    }

    /// Returns how many requests the gateway has sent, and how many of them again.
    fn requests(&self) -> Result<(u64, u64)> {
        if self.nodes.is_none() {
            return Ok((0, 0));
        }
        // The gateway brings its figures up to date ten times a second.
        std::thread::sleep(Duration::from_millis(200));
        let text = info(self.address)?;
        let figure = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|rest| rest.trim().parse().ok()).with_context(|| format!("INFO without {key}"))
        };
        Ok((figure("requests_sent:")?, figure("requests_resent:")?))
    }

    /// Returns how many views the replicas have left, by their logs.
    fn view_changes(&self) -> Option<usize> {
        let nodes = self.nodes.as_ref()?;
        (0..4).map(|id| nodes.log(id).matches("started a view change").count()).max()
    }

    fn row(&self, loops: bool, place: usize) -> Row {
        let samples = &self.rates[usize::from(loops)][place];
        Row {
            system: self.system.to_owned(),
            variant: format!("{}, {}", self.way, if loops { "beside loops" } else { "quiet" }),
            op: "SET".to_owned(),
            mode: "rw".to_owned(),
            clients: CONNECTIONS[place],
            repeats: samples.len(),
            durability: Some(self.way.to_owned()),
            ops_per_s: Some(median(samples)),
            unit: "op/s".to_owned(),
            samples: samples.clone(),
            ..Row::default()
        }
    }

    /// Returns the share of the quiet rate that the loops leave.
    fn share(&self, place: usize) -> f64 {
        let [quiet, busy] = &self.rates;
        median(&busy[place]) / median(&quiet[place]).max(1.0)
    }
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, ms) = settings.effort.of((3, 5_000), (1, 3_000), (1, 100));
    let span = Duration::from_millis(ms);
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look("none, nice 0"));
    let count = report.machine.cores;
    let mut arms = Vec::new();
    for way in WAYS {
        // One after the other: a cluster that idles takes its share of a core, too.
        let mut systems = vec![Some(Arm::quorate(way)?), Arm::redis(way)?];
        for arm in systems.iter_mut().flatten() {
            rate(arm.address, 1, span / 4)?; // keys are exchanged, the first checkpoints are taken
            for _ in 0..repeats {
                for place in 0..CONNECTIONS.len() {
                    arm.measure(false, place, span)?;
                    let loops = Loops::start(count)?;
                    arm.measure(true, place, span)?;
                    drop(loops);
                }
            }
            report
                .rows
                .extend([0, 1].into_iter().flat_map(|place| [arm.row(false, place), arm.row(true, place)]));
        }
        for arm in systems.into_iter().flatten() {
            arms.push(Figures::of(&arm));
        }
    }
    report.shapes = shapes(&arms);
    let redis =
        if arms.iter().any(|arm| arm.system == "redis") { "" } else { "; redis-server is not installed" };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    report.notes.push(format!(
        "{count} loops, {ms} ms per point; load average at the end: {}{redis}",
        load.split(' ').next().unwrap_or("")
    ));
    Ok(report)
}

/// What is left of an arm when its processes have ended.
struct Figures {
    system: &'static str,
    way: &'static str,
    shares: [f64; 2],
    resent: (u64, u64),
    view_changes: Option<usize>,
}

impl Figures {
    fn of(arm: &Arm) -> Self {
        Self {
            system: arm.system,
            way: arm.way,
            shares: [arm.share(0), arm.share(1)],
            resent: (arm.resent, arm.sent),
            view_changes: arm.view_changes(),
        }
    }
}

fn shapes(arms: &[Figures]) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (arm, bounds) in arms.iter().filter(|arm| arm.system == "quorate").zip(SHARES) {
        let redis = arms.iter().find(|other| other.system == "redis" && other.way == arm.way);
        for (place, bound) in bounds.into_iter().enumerate() {
            let (connections, share) = (CONNECTIONS[place], arm.shares[place]);
            let beside = redis.map_or("not measured".to_owned(), |redis| percent(redis.shares[place]));
            shapes.push(Shape::new(
                format!("{}, {connections} connections: keeps {} of the quiet rate", arm.way, percent(bound)),
                share >= bound,
                format!("{}; Redis: {beside}", percent(share)),
            ));
        }
        let (resent, sent) = arm.resent;
        shapes.push(Shape::new(
            format!("{}: one request in a thousand is sent again at most", arm.way),
            sent > 0 && 1000.0 * ratio(resent, sent) <= RESENT_MAX,
            format!("{resent} of {sent}"),
        ));
        let views = arm.view_changes.unwrap_or(0);
        shapes.push(Shape::new(format!("{}: no view change", arm.way), views == 0, views.to_string()));
    }
    shapes
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Sends SETs for `span`, one at a time in each connection, from one thread that sleeps while it waits, as
/// `redis-benchmark` does. Returns the SETs per second.
fn rate(address: SocketAddr, connections: u32, span: Duration) -> Result<f64> {
    let mut streams = Vec::new();
    for _ in 0..connections {
        let stream = connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        streams.push((stream, 0_usize));
    }
    let (start, mut done) = (Instant::now(), 0_u64);
    for (stream, _) in &mut streams {
        stream.write_all(SET)?;
    }
    let mut heard = Instant::now();
    while start.elapsed() < span {
        let mut fds: Vec<PollFd<'_>> =
            streams.iter().map(|(stream, _)| PollFd::new(stream.as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut fds, PollTimeout::from(100_u16))?;
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        for ((stream, seen), _) in streams.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            let mut buffer = [0; 64];
            let len = stream.read(&mut buffer)?;
            let reply = buffer.get(..len).unwrap_or(&[]);
            ensure!(
                len > 0 && OK[*seen..].starts_with(reply),
                "{address} answers {:?}",
                reply.escape_ascii().to_string()
            );
            *seen = (*seen + len) % OK.len();
            heard = Instant::now();
            if *seen == 0 {
                done += 1;
                stream.write_all(SET)?;
            }
        }
        ensure!(heard.elapsed() < REPLY_MAX, "{address} does not answer any more");
    }
    Ok(ratio(done, 1) / start.elapsed().as_secs_f64())
}

/// Connects to a server that may have just been started.
fn connect(address: SocketAddr) -> Result<TcpStream> {
    let start = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return Ok(stream),
            Err(error) if start.elapsed() > REPLY_MAX => {
                return Err(error).with_context(|| format!("{address} does not answer"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Returns the answer to INFO.
fn info(address: SocketAddr) -> Result<String> {
    let mut stream = connect(address)?;
    stream.set_read_timeout(Some(REPLY_MAX))?;
    stream.write_all(b"*2\r\n$4\r\nINFO\r\n$5\r\nstats\r\n")?;
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    while !text.windows(2).any(|end| end == b"\r\n") || !text.ends_with(b"\r\n\r\n") {
        let len = stream.read(&mut buffer)?;
        ensure!(len > 0, "{address} closes the connection");
        text.extend_from_slice(buffer.get(..len).unwrap_or(&[]));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let mut figure = Figure::new(
        "rates",
        "SETs per second, quiet and beside an endless loop for each core",
        Axis::linear("system, durability, connections"),
        Axis::linear("operations per second"),
    );
    let quiet: Vec<&Row> = rows.iter().filter(|row| row.variant.ends_with("quiet")).collect();
    let way = |row: &Row| row.durability.clone().unwrap_or_default();
    figure.categories =
        quiet.iter().map(|row| format!("{} {} {}", row.system, way(row), row.clients)).collect();
    let series = |name: &str| {
        let rows = rows.iter().filter(|row| row.variant.ends_with(name));
        let xs = std::iter::successors(Some(0.0), |x| Some(x + 1.0));
        let points = rows.zip(xs).filter_map(|(row, x)| {
            Some(Dot { x, y: row.ops_per_s?, samples: row.samples.clone(), ..Dot::default() })
        });
        Series { name: name.to_owned(), points: points.collect(), ..Series::default() }
    };
    vec![figure.with(series("quiet")).with(series("beside loops"))]
}
