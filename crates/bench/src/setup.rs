//! The set-up of an experiment's cluster. Every process gets it as text.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use quorate_node::memory::in_memory;
use quorate_node::{ClientProcess, Clock, Directory, Event, Socket, TestKeys, Waiting, ports};
use quorate_pbft::Config;
use quorate_pbft::config::{Durability, RequestAuth};
use quorate_service::null::Null;
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
        ("pipeline", None, width) => match width.parse() {
            Ok(width) => config.pipeline = width,
            Err(_) => return false,
        },
        _ => return false,
    }
    true
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
        let mut signs = false;
        for switch in switches.split(',').filter(|switch| !switch.is_empty()) {
            let (key, value) = switch.split_once('=').context("expected KEY=VALUE")?;
            if switch == "signatures=on" {
                signs = true;
            } else if !set(&mut config, key, value) {
                bail!("no switch {switch}");
            }
        }
        let mut directory = Directory::new(replicas);
        for (principal, address) in (1..).zip(clients) {
            directory.add_client(ClientId::new(principal, 0).into(), *address);
        }
        Ok(Self { config, keys, directory, addresses, signs })
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
        let Self { config, keys, directory, .. } = self;
        let door = keys.door(own, Clock::new().now().wall_ns);
        let incarnation = 1 << 20;
        let mut process = in_memory(id, &config, keys.signer(own), door, directory, Null, incarnation)?;
        let mut lines = processes::ready()?;
        lines.next().context("the experiment has exited before the start")??;
        let never = AtomicBool::new(false);
        if let Some(socket) = link.plain() {
            quorate_node::run_replica(&mut process, socket, waiting, &never)?;
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
