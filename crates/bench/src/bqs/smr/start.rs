//! How a cell begins: replicas, clients, and their keys.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use quorate_node::memory::with_core;
use quorate_node::{ClientProcess, Core, Directory, Event, TestKeys};
use quorate_pbft::config::{Durability, Reads, RequestAuth};
use quorate_pbft::{Config, Now, Replica, Resume};
use quorate_quorum_sim::history::OperationKind;
use quorate_quorum_sim::machines::Machines;
use quorate_quorum_sim::model::{Model, UNIT};
use quorate_quorum_sim::rng::Rng;
use quorate_wire::sign::Signer;
use quorate_wire::{ClientId, Cluster, Principal, Timestamp};

use super::host::{Datagram, Host, INVOKE, Loop, Out, Process, START_NS, time};
use super::plan::{Faulty, SmrCell};
use crate::bqs::register::Register;

/// How long the leader may take, in nanoseconds: chosen once, for every cell (§13.3).
const LEADER_NS: u64 = 30_000_000;
/// What every replica starts with.
const INCARNATION: u64 = 1 << 20;
/// How often processes are called before the time begins.
const ROUNDS: u64 = 20;

fn config(cell: &SmrCell, cluster: Cluster, keys: &TestKeys) -> Config {
    let mut config = Config::new(cluster, keys.cluster_id());
    config.durability = Durability::Memory;
    config.request_auth = RequestAuth::Mac;
    config.tentative = cell.tentative;
    config.piggyback = false;
    config.batching = cell.batching;
    config.piggyback_ns = 0;
    config.digest_replies = false;
    config.separate_above = 0;
    config.reads = Reads::All;
    config.read_rule = cell.rule;
    if matches!(cell.load.model, Model::Lan { .. }) {
        config.request_timeout_min_ns = LEADER_NS;
    } else {
        // Between regions, a leader that takes its time is no reason to elect another one.
        config.request_timeout_min_ns = config.request_timeout_max_ns;
    }
    if !matches!(cell.faulty, Faulty::Leader(..)) {
        // Nothing is lost, so a client that asks twice only disturbs.
        config.client_timeout_min_ns = config.client_timeout_max_ns;
        config.status_ns = 60_000_000_000;
    }
    // A checkpoint has signatures, 14 ms each in 2006, which the paper's replication does not have.
    (config.checkpoint_interval, config.window) = (2048, 4096);
    config.seed = cell.load.seed;
    config
}

/// What a cell begins with.
#[derive(Debug)]
pub(in crate::bqs) struct Started<C: Core = Replica> {
    pub(in crate::bqs) machines: Machines<Datagram, Vec<(usize, Vec<u8>)>>,
    pub(in crate::bqs) hosts: Vec<Host<C>>,
    /// The measured client.
    pub(in crate::bqs) measured: usize,
}

impl<C: Core> Started<C> {
    /// Starts replicas and clients, and exchanges their keys before the time begins. `core` may put a liar in front of a
    /// replica.
    pub(in crate::bqs) fn new(
        cell: &SmrCell,
        seed: u64,
        core: impl Fn(Replica, Signer, &Config) -> C,
    ) -> Result<Self> {
        let cluster = Cluster::tolerating(cell.load.f)?;
        let clients = 2 + cell.load.readers;
        let keys = TestKeys::new(seed, cluster, u64::from(clients));
        let config = config(cell, cluster, &keys);
        let port = |number: u16| SocketAddr::from(([127, 0, 0, 1], 1000 + number));
        let n = u16::try_from(cluster.n())?;
        let addresses: Vec<SocketAddr> = (0..n).map(port).collect();
        let mut directory = Directory::new(&addresses);
        let who = |client: u16| Principal::Client(ClientId::new(u64::from(client) + 1, 0));
        (0..clients).for_each(|client| directory.add_client(who(client), port(n + client)));
        let mut model = cell.load.model.clone();
        if let Model::Geo { regions, .. } = &mut model {
            let own = regions.last().copied().unwrap_or(0);
            regions.resize(64, own);
        }
        let mut machines = Machines::new(model, Rng::new(seed, 1));
        let now = time(0);
        let mut hosts = Vec::new();
        let host = |process, silent, job| Host {
            process,
            silent,
            job,
            started: None,
            finished: 0,
            samples: Vec::new(),
            timer_at: u64::MAX,
        };
        let nothing = Loop { kind: OperationKind::Read, operations: 0 };
        for id in cluster.replicas() {
            let lies = match cell.faulty {
                Faulty::Nobody => false,
                Faulty::Acceptors(b) => (1..=b).contains(&id.0),
                Faulty::Proposer => id.0 == 0,
                Faulty::Leader(_, others) => (1..=others).contains(&id.0),
            };
            let (own, service) = (Principal::Replica(id), Register { lies });
            let (signer, door) = (keys.signer(own), keys.door(own, now.wall_ns));
            let fresh = Resume::Fresh { incarnation: INCARNATION };
            let replica = Replica::new(id, config.clone(), signer.clone(), fresh)?;
            let core = core(replica, signer, &config);
            let drive = with_core(id, &config, core, door, directory.clone(), service, INCARNATION)?;
            let silent = cell.faulty == Faulty::Proposer && id.0 == 0;
            machines.add_on(cell.load.placement.of_server(usize::from(id.0)));
            hosts.push(host(Process::Replica(Box::new(drive)), silent, nothing));
        }
        for client in 0..clients {
            let door = keys.door(who(client), now.wall_ns);
            let drive = ClientProcess::new(&config, door, 1, directory.clone(), Timestamp(1), ());
            let place = match (usize::from(client), cell.load.kind) {
                (writer @ 0, OperationKind::Write) => writer,
                (0, OperationKind::Read) => 1,
                (1, OperationKind::Read) => 0,
                (reader, OperationKind::Write) => reader.saturating_sub(1),
                (reader, OperationKind::Read) => reader,
            };
            machines.add_on(cell.load.placement.of_client(place, usize::from(n)));
            let kind = if client == 0 { OperationKind::Write } else { OperationKind::Read };
            hosts.push(host(Process::Client(Box::new(drive)), false, Loop { kind, operations: 0 }));
        }
        let writer = usize::from(n);
        let measured = if cell.load.kind == OperationKind::Write { writer } else { writer + 1 };
        hosts[measured].job.operations = cell.load.operations + cell.load.warm_up;
        exchange_keys(cell, &mut hosts)?;
        machines.call(measured, 1, INVOKE);
        if cell.load.writer && measured != writer {
            machines.call(writer, 1, INVOKE);
        }
        for reader in 0..cell.load.readers {
            let delay = 1 + u64::from(reader + 1) * UNIT / 7;
            machines.call(writer + 2 + usize::from(reader), delay, INVOKE);
        }
        Ok(Self { machines, hosts, measured })
    }
}

/// Delivers what processes say at their start, at once. Keys are announced a second time after a second, so the
/// measurement begins when that is over: their signatures are not the register's. The cluster of a single operation
/// ends before that.
fn exchange_keys<C: Core>(cell: &SmrCell, hosts: &mut [Host<C>]) -> Result<()> {
    let mut queue = Out::default();
    let rounds = if cell.faulty == Faulty::Proposer { 1 } else { ROUNDS };
    for round in 0..rounds {
        let before = (rounds - 1 - round) * START_NS / ROUNDS;
        let now = Now { mono_ns: START_NS - before, ..time(0) };
        for host in hosts.iter_mut() {
            match &mut host.process {
                Process::Replica(process) => {
                    if round == 0 {
                        process.step(now, Event::Start, &mut ());
                    }
                    process.step(now, Event::Clock, &mut ());
                }
                Process::Client(drive) => drive.expire(now),
            }
            host.process.flush(now, &mut queue);
        }
        for _ in 0..100 {
            for (to, datagram) in queue.take() {
                let host = hosts.get_mut(to).context("a datagram for nobody")?;
                host.process.receive(now, &datagram);
                host.process.flush(now, &mut queue);
            }
        }
        ensure!(queue.datagrams().is_empty(), "the processes do not come to rest");
    }
    Ok(())
}
