//! A cluster of processes for an experiment, with clients: what each process needs to know of the others.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use quorate_node::{ClientDrive, Clock, Directory, Drive, Socket, TestKeys, Waiting};
use quorate_pbft::Config;
use quorate_pbft::config::Durability;
use quorate_service::null::Null;
use quorate_wire::{ClientId, Cluster, Principal, ReplicaId, Timestamp};

use crate::processes;

/// Replicas of a cluster that tolerates one fault.
pub(crate) const N: usize = 4;

/// A way to run the protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) set: fn(&mut Config),
}

impl Variant {
    /// Finds a variant.
    pub(crate) fn find(all: &[Self], name: &str) -> Result<Self> {
        all.iter().find(|variant| variant.name == name).copied().context("no such variant")
    }
}

/// Finds addresses that nobody listens at.
pub(crate) fn free_addresses(count: usize) -> Result<Vec<SocketAddr>> {
    let sockets = (0..count).map(|_| UdpSocket::bind("127.0.0.1:0")).collect::<std::io::Result<Vec<_>>>()?;
    Ok(sockets.iter().map(UdpSocket::local_addr).collect::<std::io::Result<_>>()?)
}

/// What every process of a cluster knows: [`N`] replicas, and clients, each a principal with its process.
pub(crate) struct Common {
    config: Config,
    keys: TestKeys,
    directory: Directory,
    addresses: Vec<SocketAddr>,
}

impl Common {
    /// Returns what is known of the replicas and clients at these addresses, replicas first.
    pub(crate) fn new(variant: Variant, addresses: &[&str]) -> Result<Self> {
        let addresses = addresses.iter().map(|word| word.parse()).collect::<Result<Vec<SocketAddr>, _>>()?;
        let (replicas, clients) =
            addresses.split_at_checked(N).context("the addresses of the replicas are expected")?;
        let cluster = Cluster::tolerating(1)?;
        let keys = TestKeys::new(1, cluster, u64::try_from(clients.len())?);
        let mut config = Config::new(cluster, keys.cluster_id());
        config.durability = Durability::Memory;
        (variant.set)(&mut config);
        let mut directory = Directory::new(replicas);
        for (principal, address) in (1..).zip(clients) {
            directory.add_client(ClientId::new(principal, 0).into(), *address);
        }
        Ok(Self { config, keys, directory, addresses })
    }

    /// Is replica `id` until it is killed.
    pub(crate) fn run_replica(self, id: u16, waiting: Waiting) -> Result<()> {
        let Self { config, keys, directory, addresses } = self;
        let id = ReplicaId(id);
        let address = addresses.get(id.index()).context("no address")?;
        let mut socket = Socket::open(*address, &directory)?;
        let own = Principal::Replica(id);
        let door = keys.door(own, Clock::new().now().wall_ns);
        let incarnation = 1 << 20;
        let mut drive = Drive::new(id, config, keys.signer(own), door, directory, Null, incarnation, ())?;
        let mut lines = processes::ready()?;
        lines.next().context("nobody says when to start")??;
        quorate_node::run_replica(&mut drive, &mut socket, waiting, &AtomicBool::new(false))?;
        Ok(())
    }

    /// Returns the lanes of client `index`, with their sockets.
    pub(crate) fn client(self, index: usize, lanes: u16) -> Result<(ClientDrive, Socket)> {
        let Self { config, keys, directory, addresses } = self;
        let own = Principal::Client(ClientId::new(u64::try_from(index)? + 1, 0));
        let address = addresses.get(N + index).context("no address")?;
        let socket = Socket::open(*address, &directory)?;
        let wall_ns = Clock::new().now().wall_ns;
        let door = keys.door(own, wall_ns);
        Ok((ClientDrive::new(&config, door, lanes, directory, Timestamp(wall_ns), ()), socket))
    }
}
