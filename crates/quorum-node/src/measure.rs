//! The latency of registers on real sockets: four servers on one core, a client on the other, both polling.
//!
//! All servers are in one thread that takes turns among their sockets, each with its keys, its state and its own port:
//! on a machine of two cores that is what a polling server for each would come to, without the cost of switching between
//! processes. The client is the only thread of its core. Between operations the client waits a little, and until the
//! servers have done what it sent them, so that what is off an operation's path (RC, late answers, relays, COMPLETE with
//! its signatures) does not become a part of the next one.
//!
//! With [`Waits::Blocking`] everybody is on one core, each server in a thread of its own, and sleeps until something comes.
//! [`bare`] has the same threads and as many datagrams without a register: what the kernel takes.

pub mod repair;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use quorate_node::error::NodeErrorKind;
use quorate_node::init::Host;
use quorate_node::{Clock, NodeError};
use quorate_quorum::step::Call;
use quorate_quorum::{Protocol, ServerId, Value};

use crate::core::Core;
use crate::crypto::Spent;
use crate::init::server_dir;
use crate::link::Carrier;
use crate::{Config, NewRegister, Server};

/// How long the client waits between operations.
const BETWEEN: Duration = Duration::from_micros(60);
/// No operation takes longer.
const HUNG: Duration = Duration::from_secs(20);

/// How client and servers wait for what comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waits {
    /// They poll, the client on one core and the servers on another.
    #[default]
    Polling,
    /// They sleep, all on one core.
    Blocking,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The register.
    pub protocol: Protocol,
    /// How messages travel.
    pub carrier: Carrier,
    /// How everybody waits.
    pub waits: Waits,
    /// Operations of each kind, after a tenth as many that are not counted.
    pub operations: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// The address of the servers, all of whose ports are free.
    pub ip: IpAddr,
}

/// What one kind of operation took. Messages, bytes and signatures are those of the client and of all servers, for each
/// operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// The median, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile, in microseconds.
    pub p99_us: f64,
    /// Messages.
    pub messages: f64,
    /// Bytes of their frames.
    pub bytes: f64,
    /// Signatures made.
    pub signed: f64,
    /// Signatures looked at.
    pub verified: f64,
}

/// The figures of a register.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    /// Reads, undisturbed.
    pub read: Figures,
    /// Writes, undisturbed.
    pub write: Figures,
}

/// What everybody has sent and spent.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    messages: u64,
    bytes: u64,
    signed: u64,
    verified: u64,
}

impl Totals {
    fn add(&mut self, sent: (u64, u64), by: Spent) {
        self.messages += sent.0;
        self.bytes += sent.1;
        self.signed += by.signed;
        self.verified += by.verified;
    }
}

/// How many cores there are. Looked up once: a thread that is pinned sees its own core alone.
static CORES: OnceLock<usize> = OnceLock::new();

/// Pins this thread to a core; where there is only one, to that.
fn pin(core: usize) -> Result<(), NodeError> {
    let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    let mut set = CpuSet::new();
    let pinned = set.set(core % cores).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    pinned.map_err(|error| {
        NodeError::new(NodeErrorKind::Rule, format!("core {core} is not available: {error}"))
    })
}

fn broken(error: &std::io::Error) -> NodeError {
    NodeError::new(NodeErrorKind::Network, format!("the sockets have failed: {error}"))
}

/// Returns the median of a UDP round trip between two polling threads on the two cores, in microseconds.
///
/// # Errors
///
/// The sockets or the cores are not available.
pub fn echo(count: usize) -> Result<f64, NodeError> {
    let open = || -> std::io::Result<UdpSocket> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let connect = || -> std::io::Result<(UdpSocket, UdpSocket)> {
        let (a, b) = (open()?, open()?);
        a.connect(b.local_addr()?)?;
        b.connect(a.local_addr()?)?;
        Ok((a, b))
    };
    let (near, far) = connect().map_err(|error| broken(&error))?;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let _ = pin(1);
        let mut buffer = [0; 256];
        while !flag.load(Ordering::Relaxed) {
            match far.recv(&mut buffer) {
                Ok(len) => _ = far.send(buffer.get(..len).unwrap_or(&[])),
                Err(_) => std::hint::spin_loop(),
            }
        }
    });
    pin(0)?;
    let (mut took, mut buffer) = (Vec::with_capacity(count), [0; 256]);
    for _ in 0..count {
        let begin = Instant::now();
        let _ = near.send(&[7; 117]);
        while near.recv(&mut buffer).is_err() {
            std::hint::spin_loop();
            if begin.elapsed() > HUNG {
                break;
            }
        }
        took.push(begin.elapsed());
    }
    stop.store(true, Ordering::Relaxed);
    let _ = thread.join();
    Ok(percentile(&mut took, 50))
}

fn percentile(took: &mut [Duration], of: usize) -> f64 {
    took.sort_unstable();
    let place = (took.len() * of / 100).min(took.len().saturating_sub(1));
    took.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

/// The kernel's part of a read and of a write with [`Waits::Blocking`], in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bare {
    /// The median of a round: a datagram to each of four threads that sleep on this core, until three have answered.
    pub read_us: f64,
    /// The same of two rounds, as in a write of MINIMAL-C.
    pub write_us: f64,
}

/// Measures rounds of datagrams without a register.
///
/// # Errors
///
/// The sockets or the core are not available, or a datagram was lost.
pub fn bare(count: usize) -> Result<Bare, NodeError> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut servers = Vec::new();
    let sockets = || -> std::io::Result<(UdpSocket, Vec<UdpSocket>)> {
        let near = UdpSocket::bind("127.0.0.1:0")?;
        near.set_read_timeout(Some(HUNG))?;
        Ok((near, (0..4).map(|_| UdpSocket::bind("127.0.0.1:0")).collect::<Result<_, _>>()?))
    };
    let (near, far) = sockets().map_err(|error| broken(&error))?;
    let addresses: Vec<SocketAddr> =
        far.iter().map(UdpSocket::local_addr).collect::<Result<_, _>>().map_err(|error| broken(&error))?;
    for socket in far {
        let flag = Arc::clone(&stop);
        servers.push(std::thread::spawn(move || {
            let _ = pin(0);
            let mut buffer = [0; 256];
            while let Ok((len, from)) = socket.recv_from(&mut buffer)
                && !flag.load(Ordering::Relaxed)
            {
                let _ = socket.send_to(buffer.get(..len).unwrap_or(&[]), from);
            }
        }));
    }
    pin(0)?;
    let rounds = |of| rounds(&near, &addresses, of, count).map_err(|error| broken(&error));
    let measured = rounds(1).and_then(|read_us| Ok(Bare { read_us, write_us: rounds(2)? }));
    stop.store(true, Ordering::Relaxed);
    for (address, server) in addresses.iter().zip(servers) {
        let _ = near.send_to(&[], address).map(|_| server.join());
    }
    measured
}

/// Returns the median of operations of this number of rounds.
fn rounds(near: &UdpSocket, servers: &[SocketAddr], of: u8, count: usize) -> std::io::Result<f64> {
    let (mut took, mut buffer) = (Vec::with_capacity(count), [0; 256]);
    for _ in 0..count {
        let (begin, mut late) = (Instant::now(), 0);
        for round in 1..=of {
            // As long as READ and its answer, and as STORE and its acknowledgement.
            let datagram = [round; 180];
            for server in servers {
                near.send_to(datagram.get(..if round == 1 { 137 } else { 180 }).unwrap_or(&[]), server)?;
            }
            let mut left = servers.len() - 1;
            while left > 0 {
                near.recv(&mut buffer)?;
                if buffer.first() == Some(&round) { left -= 1 } else { late -= 1 }
            }
            late += 1;
        }
        took.push(begin.elapsed());
        for _ in 0..late {
            near.recv(&mut buffer)?;
        }
        std::thread::sleep(BETWEEN);
    }
    Ok(percentile(&mut took, 50))
}

/// The servers' threads: one that polls for all, or one for each.
struct Servers {
    stop: Arc<AtomicBool>,
    /// Asks the thread that polls what the servers have sent and spent.
    ask: Option<(Sender<()>, Receiver<Totals>)>,
    threads: Vec<JoinHandle<()>>,
}

impl Servers {
    fn start(dir: &Path, plan: Plan) -> Result<Self, NodeError> {
        let mut servers = Vec::new();
        for id in 0..4 {
            servers.push(Server::open(&server_dir(dir, ServerId::at(id)), None, plan.carrier)?);
        }
        let stop = Arc::new(AtomicBool::new(false));
        if plan.waits == Waits::Blocking {
            let run = |server: Server| {
                let flag = Arc::clone(&stop);
                std::thread::spawn(move || _ = pin(0).and_then(|()| server.run(&flag)))
            };
            let threads = servers.into_iter().map(run).collect();
            return Ok(Self { stop, ask: None, threads });
        }
        let flag = Arc::clone(&stop);
        let (ask, asked) = channel();
        let (tell, totals) = channel();
        let thread = std::thread::spawn(move || {
            let _ = pin(1);
            let clock = Clock::new();
            while !flag.load(Ordering::Relaxed) {
                for server in &mut servers {
                    if server.turn(clock.mono_ns()).is_err() {
                        return;
                    }
                }
                if asked.try_recv().is_ok() {
                    let mut all = Totals::default();
                    for server in &servers {
                        all.add(server.carried().sent(), server.spent());
                    }
                    if tell.send(all).is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Self { stop, ask: Some((ask, totals)), threads: vec![thread] })
    }

    /// Returns what they have sent and spent; nothing of those that block.
    fn totals(&self) -> Totals {
        let Some((ask, totals)) = &self.ask else { return Totals::default() };
        let _ = ask.send(());
        totals.recv().unwrap_or_default()
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// Measures a register in a directory of its own, which is removed at the end.
///
/// # Errors
///
/// The directory, the ports or the cores are not available, or an operation did not end.
pub fn measure(plan: Plan, dir: &Path) -> Result<Row, NodeError> {
    let register = NewRegister {
        f: 1,
        hosts: vec![Host { ip: plan.ip, port: None }],
        clients: 1,
        config: Config::new(plan.protocol),
        lines: if plan.waits == Waits::Blocking { vec!["poll = \"0ms\"".to_owned()] } else { Vec::new() },
        server_lines: vec!["durability = \"memory\"".to_owned()],
    };
    register.make(dir)?;
    let measured = run(plan, dir);
    let _ = std::fs::remove_dir_all(dir);
    measured
}

fn run(plan: Plan, dir: &Path) -> Result<Row, NodeError> {
    // Memory counts as lost at the next start, so there is one start for both kinds.
    let servers = Servers::start(dir, plan)?;
    let client: PathBuf = dir.join("client-0");
    let measured = Core::open(&client, plan.carrier).and_then(|mut core| {
        pin(0)?;
        let clock = Clock::new();
        let write = kind(plan, &mut core, &clock, &servers, true)?;
        Ok(Row { write, read: kind(plan, &mut core, &clock, &servers, false)? })
    });
    servers.end();
    measured
}

/// Measures the operations of one kind.
fn kind(
    plan: Plan,
    core: &mut Core,
    clock: &Clock,
    servers: &Servers,
    write: bool,
) -> Result<Figures, NodeError> {
    let object = core.config().object(b"measured");
    let warm_up = plan.operations / 10 + 1;
    let mut took = Vec::with_capacity(plan.operations);
    let mut before = Totals::default();
    let blocks = plan.waits == Waits::Blocking;
    for count in 0..warm_up + plan.operations {
        if count == warm_up {
            before = servers.totals();
            before.add(core.carried().sent(), core.spent());
        }
        let mut bytes = vec![7; plan.value_bytes];
        bytes.iter_mut().zip(count.to_le_bytes()).for_each(|(place, byte)| *place = byte);
        let value: Value = bytes.into();
        let call = if write { Call::Write(value) } else { Call::Read };
        let begin = Instant::now();
        core.invoke(clock.mono_ns(), object, call);
        loop {
            if blocks {
                core.await_turn(clock, u64::MAX).map_err(|error| broken(&error))?;
            } else {
                core.turn(clock.mono_ns()).map_err(|error| broken(&error))?;
            }
            if let Some((_, result)) = core.take_done() {
                let ended = begin.elapsed();
                if result.is_err() {
                    return Err(NodeError::new(NodeErrorKind::Rule, "an operation was refused"));
                }
                if count >= warm_up {
                    took.push(ended);
                }
                break;
            }
            if begin.elapsed() > HUNG {
                return Err(NodeError::new(NodeErrorKind::Network, "an operation did not end"));
            }
        }
        // What comes last off the path (COMPLETE) leaves in the turn after the one that empties the backlog.
        let (ended, mut settled) = (Instant::now(), Instant::now());
        while settled.elapsed() < BETWEEN {
            core.turn(clock.mono_ns()).map_err(|error| broken(&error))?;
            if core.backlog() > 0 {
                settled = Instant::now();
            }
            if ended.elapsed() > HUNG {
                return Err(NodeError::new(NodeErrorKind::Network, "a server did not acknowledge a store"));
            }
            if blocks {
                std::thread::sleep(BETWEEN); // the servers have the same core
            }
        }
        // Their thread answers between its turns: what has come to them by now is done then.
        let _ = servers.totals();
    }
    let mut after = servers.totals();
    after.add(core.carried().sent(), core.spent());
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let each = |after: u64, before: u64| (after - before) as f64 / plan.operations as f64;
    Ok(Figures {
        p50_us: percentile(&mut took, 50),
        p99_us: percentile(&mut took, 99),
        messages: each(after.messages, before.messages),
        bytes: each(after.bytes, before.bytes),
        signed: each(after.signed, before.signed),
        verified: each(after.verified, before.verified),
    })
}

/// Returns the heading of [`lines`].
pub fn heading() -> String {
    format!(
        "{:<24} {:<4} {:<6} {:>9} {:>9} {:>9} {:>9} {:>7} {:>9}",
        "register", "by", "op", "p50 us", "p99 us", "messages", "bytes", "signed", "verified"
    )
}

/// Returns the lines of a row.
pub fn lines(plan: &Plan, row: &Row) -> [String; 2] {
    let line = |op: &str, it: &Figures| {
        let by = match plan.carrier {
            Carrier::Udp => "UDP",
            Carrier::Tcp => "TCP",
        };
        format!(
            "{:<24} {by:<4} {op:<6} {:>9.1} {:>9.1} {:>9.1} {:>9.0} {:>7.1} {:>9.1}",
            plan.protocol.name(),
            it.p50_us,
            it.p99_us,
            it.messages,
            it.bytes,
            it.signed,
            it.verified
        )
    };
    [line("read", &row.read), line("write", &row.write)]
}
