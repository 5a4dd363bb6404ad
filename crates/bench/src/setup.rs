//! The set-up of an experiment's cluster. Every process gets it as text.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow, bail};
use quorate_node::memory::in_memory;
use quorate_node::services::timed::Timed;
use quorate_node::wake::Waker;
use quorate_node::{
    ClientProcess, Clock, Directory, Event, Parallel, Socket, TestKeys, Waiting, Workers, ports,
};
use quorate_pbft::Config;
use quorate_pbft::config::{Durability, RequestAuth};
use quorate_service::parallel::{Arguments, EngineKind, KeyRules, Matrices, MatrixError, Rules};
use quorate_wire::{ClientId, Cluster, Principal, ReplicaId, Timestamp};

use crate::link::{Link, Signing};
use crate::processes;

/// A way to run the protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Its name in a table.
    pub(crate) name: &'static str,
    /// Faults tolerated.
    pub(crate) f: u16,
    /// `KEY=VALUE`, with commas between; see [`set`].
    pub(crate) switches: &'static str,
}

impl Setup {
    /// The defaults.
    pub(crate) const DEFAULT: Self = Self { name: "default", f: 1, switches: "" };

    /// Returns the defaults with one switch changed.
    pub(crate) const fn with(name: &'static str, switches: &'static str) -> Self {
        Self { name, f: 1, switches }
    }

    /// Returns the same with more replicas.
    pub(crate) const fn tolerating(self, f: u16) -> Self {
        Self { f, ..self }
    }

    /// Returns the number of replicas.
    pub(crate) fn n(self) -> u16 {
        3 * self.f + 1
    }
}

/// Sets one switch of the protocol. False: there is no such switch or value.
fn set(config: &mut Config, key: &str, value: &str) -> bool {
    let is_on = match value {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    };
    match (key, is_on, value) {
        ("tentative", Some(on), _) => config.tentative = on,
        ("digest_replies", Some(on), _) => config.digest_replies = on,
        ("batching", Some(on), _) => config.batching = on,
        ("separate", Some(on), _) => config.separate = on,
        ("piggyback", Some(on), _) => config.piggyback = on,
        ("collect_replies", Some(false), _) => config.collect_from = 0,
        ("auth", None, "mac") => config.request_auth = RequestAuth::Mac,
        ("auth", None, "sig+mac") => config.request_auth = RequestAuth::SigMac,
        ("separate_above", None, bytes) => match bytes.parse() {
            Ok(bytes) => config.separate_above = bytes,
            Err(_) => return false,
        },
        ("pipeline", None, width) => match width.parse() {
            Ok(width) => config.pipeline = width,
            Err(_) => return false,
        },
        _ => return false,
    }
    true
}

/// Sets one switch of parallel execution. False: there is no such switch or value.
fn set_workers(asked: &mut InParallel, key: &str, value: &str) -> bool {
    match (key, value.parse()) {
        ("workers", Ok(count)) => asked.workers = count,
        ("buckets", Ok(count)) => asked.buckets = count,
        ("runs", Err(_)) if value == "always" => asked.runs_always = true,
        _ => return false,
    }
    true
}

/// How the replicas of an arm execute in parallel.
#[derive(Clone, Copy, Debug, Default)]
struct InParallel {
    /// 0: they execute one request after the other, on their own threads.
    workers: usize,
    /// The rules assign requests in turn to this number of buckets. 0: no request depends on another.
    buckets: usize,
    /// Short operations have runs, too.
    runs_always: bool,
}

impl InParallel {
    fn parallel(self, service: &Arc<Timed>) -> Parallel {
        let rules: Box<dyn Rules + Send> = match self.buckets {
            0 => Box::new(KeyRules::new(Arc::clone(service))),
            buckets => Box::new(InTurn { buckets, next: Cell::new(0) }),
        };
        Parallel {
            workers: self.workers,
            engine: EngineKind::GroupIndex,
            rules,
            replies_early: true,
            short_on_pages: !self.runs_always,
            secret: 7,
        }
    }
}

/// Assigns requests to buckets in turn: those of one bucket depend on each other [CBASE04 §6.1.2].
struct InTurn {
    buckets: usize,
    next: Cell<usize>,
}

impl Rules for InTurn {
    fn matrices(&self) -> Result<Matrices, MatrixError> {
        Matrices::new(1, |_, _| false, |_, _| true)
    }

    fn parse(&self, _operation: &[u8], arguments: &mut Arguments) {
        arguments.begin(0);
        let bucket = self.next.replace(self.next.get() + 1) % self.buckets;
        arguments.key(u64::try_from(bucket).unwrap_or(u64::MAX));
    }
}

/// Finds free addresses on a loopback IP that no other program uses.
pub(crate) fn free_addresses(count: usize) -> Result<Vec<SocketAddr>> {
    let [.., high, low] = std::process::id().to_be_bytes();
    let ip = [127, 78, high, low.clamp(1, 254)];
    Ok(ports::free(IpAddr::from(ip), count)?)
}

/// The replicas and the client principals with their processes, known to every process of a cluster.
pub(crate) struct Common {
    config: Config,
    keys: TestKeys,
    directory: Directory,
    addresses: Vec<SocketAddr>,
    /// Whether every datagram is also signed.
    signs: bool,
    in_parallel: InParallel,
}

impl Common {
    /// Returns the replicas and clients at these addresses, replicas first.
    pub(crate) fn new(f: &str, switches: &str, addresses: &[&str]) -> Result<Self> {
        let cluster = Cluster::tolerating(f.parse()?)?;
        let addresses = addresses.iter().map(|word| word.parse()).collect::<Result<Vec<SocketAddr>, _>>()?;
        let (replicas, clients) =
            addresses.split_at_checked(cluster.n()).context("expected the addresses of the replicas")?;
        let keys = TestKeys::new(1, cluster, u64::try_from(clients.len())?);
        let mut config = Config::new(cluster, keys.cluster_id());
        config.durability = Durability::Memory;
        // One process has all the lanes of a client, up to a thousand: the limit is the table's.
        config.lanes_max = config.clients_max;
        let (mut signs, mut in_parallel) = (false, InParallel::default());
        for switch in switches.split(',').filter(|switch| !switch.is_empty()) {
            let (key, value) = switch.split_once('=').context("expected KEY=VALUE")?;
            if switch == "signatures=on" {
                signs = true;
            } else if !set(&mut config, key, value) && !set_workers(&mut in_parallel, key, value) {
                bail!("no switch {switch}");
            }
        }
        config.workers = u64::try_from(in_parallel.workers.max(1))?;
        let mut directory = Directory::new(replicas);
        for (principal, address) in (1..).zip(clients) {
            directory.add_client(ClientId::new(principal, 0).into(), *address);
        }
        Ok(Self { config, keys, directory, addresses, signs, in_parallel })
    }

    fn link(&self, own: Principal, address: Option<&SocketAddr>) -> Result<Link> {
        let socket = Socket::open(*address.context("no address")?, &self.directory)?;
        let clients = self.addresses.len().saturating_sub(self.config.cluster.n());
        let everyone = self.config.cluster.replicas().map(Principal::Replica);
        let everyone = everyone
            .chain((1..=clients).filter_map(|c| Some(ClientId::new(u64::try_from(c).ok()?, 0).into())));
        let signing = self.signs.then(|| Signing::new(own, everyone, |who| self.keys.signer(who)));
        Ok(Link::new(socket, signing))
    }

    /// Runs replica `id` until it is killed.
    pub(crate) fn run_replica(self, id: u16, waiting: Waiting) -> Result<()> {
        let id = ReplicaId(id);
        let own = Principal::Replica(id);
        let mut link = self.link(own, self.addresses.get(id.index()))?;
        let Self { config, keys, directory, in_parallel, .. } = self;
        let door = keys.door(own, Clock::new().now().wall_ns);
        let (incarnation, service) = (1 << 20, Arc::new(Timed));
        let signer = keys.signer(own);
        let mut process = in_memory(id, &config, signer, door, directory, Arc::clone(&service), incarnation)?;
        let mut workers = None;
        if in_parallel.workers > 0 {
            let parallel = in_parallel.parallel(&service);
            process = process.with_workers(parallel).map_err(|error| anyhow!("{error}"))?;
            let (part, waker) = (process.executor().service_part(), Waker::new()?);
            workers = Some(Workers::start(in_parallel.workers, &service, part, &waker)?);
        }
        let mut lines = processes::ready()?;
        lines.next().context("the experiment has exited before the start")??;
        let never = AtomicBool::new(false);
        if let Some(socket) = link.plain() {
            quorate_node::run_replica(&mut process, socket, waiting, workers.as_mut(), &never)?;
            return Ok(());
        }
        let clock = Clock::new();
        process.step(clock.now(), Event::Start, &mut ());
        loop {
            process.flush(clock.now(), &mut link, &mut ());
            let mut is_idle = true;
            while let Some((source, datagram)) = link.receive()? {
                is_idle = false;
                let event = Event::Datagram { source, bytes: datagram };
                let by = process.step(clock.now(), event, &mut ());
                link.judge(by);
                process.flush(clock.now(), &mut link, &mut ());
            }
            if process.due() <= clock.mono_ns() {
                process.step(clock.now(), Event::Clock, &mut ());
            } else if is_idle {
                link.wait(1)?;
            }
        }
    }

    /// Returns the lanes of client `index`, with their sockets.
    pub(crate) fn client(self, index: usize, lanes: u16) -> Result<(ClientProcess, Link)> {
        let own = Principal::Client(ClientId::new(u64::try_from(index)? + 1, 0));
        let link = self.link(own, self.addresses.get(self.config.cluster.n() + index))?;
        let Self { config, keys, directory, .. } = self;
        let wall_ns = Clock::new().now().wall_ns;
        let door = keys.door(own, wall_ns);
        Ok((ClientProcess::new(&config, door, lanes, directory, Timestamp(wall_ns), ()), link))
    }
}
