//! The beginning of a world: its hosts, executors and cores.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use quorate_pbft::client::step::ClientActions;
use quorate_pbft::config::Durability;
use quorate_pbft::{Config, Replica, Resume};
use quorate_process::storage::owner::Owner;
use quorate_process::{Directory, Store as _};
use quorate_service::registry::Client;
use quorate_service::{Executor, Options};
use quorate_wire::{ClientId, Cluster, Principal, ReplicaId};

use super::World;
use super::clients::{ClientHost, Load, Seen};
use crate::adversary::maker::CLUSTER_ID;
use crate::adversary::{Liar, Lying};
use crate::app::{App, Double};
use crate::checker::Checkers;
use crate::clock::Clock;
use crate::core::AnyCore;
use crate::disk::{Disk, Paged};
use crate::governed::{Governed, founders};
use crate::hash::TraceHash;
use crate::host::{Host, Life};
use crate::network::{Network, NodeId};
use crate::orders::address;
use crate::queue::Queue;
use crate::rng::{Concern, Rng};
use crate::setup::{Keys, Setup};
use crate::summary::Counters;
use crate::work::Work;

/// Returns the places of a world: those of the replicas, and one for each client.
fn directory(cluster: Cluster, clients: usize) -> Directory {
    let replicas: Vec<SocketAddr> = (0..cluster.n()).map(address).collect();
    let mut directory = Directory::new(&replicas);
    for client in 1..=clients {
        let id = ClientId::new(u64::try_from(client).unwrap_or(u64::MAX), 0);
        directory.add_client(Principal::Client(id), address(cluster.n() + client));
    }
    directory
}

/// Returns the double of a service in the initial state, with the rights that it starts with.
pub(super) fn double<A: App>(app: &A, founders: Option<&BTreeMap<u64, Client>>, n: usize) -> Box<dyn Double> {
    match founders {
        None => app.double(),
        Some(founders) => Box::new(Governed::new(app.double(), founders, n)),
    }
}

impl<A: App> World<A> {
    /// Returns a world in which nothing has happened yet. Its replicas start with the first events.
    pub fn new(app: A, setup: Setup) -> Self {
        let Setup { seed, config, .. } = &setup;
        assert!(setup.workers.is_none() || !config.tentative, "workers run committed batches only (PX-7)");
        let cluster = config.cluster;
        let mut keys_rng = Rng::new(*seed, Concern::Keys);
        let keys = Keys::new(&mut keys_rng, cluster, setup.clients);
        let ids: Vec<ReplicaId> = cluster.replicas().chain(setup.twins.iter().copied()).collect();
        let mut addresses = vec![Vec::new(); cluster.n()];
        let book: Vec<SocketAddr> = cluster.replicas().map(|id| address(id.index())).collect();
        let mut hosts = Vec::new();
        for (index, id) in ids.iter().enumerate() {
            let node = NodeId::at(index);
            addresses[id.index()].push(node);
            let twin = index >= cluster.n();
            let correct = !setup.liars.contains_key(id) && !setup.twins.contains(id);
            hosts.push(Host {
                id: *id,
                node,
                name: if twin { format!("{id}'") } else { id.to_string() },
                correct,
                life: 0,
                clock: setup.clocks.get(index).map_or(Clock::RIGHT, |(off, rate)| Clock::usual(*off, *rate)),
                key_time: 0,
                disk: Disk::new(*seed, index, setup.disk, Owner { cluster: CLUSTER_ID, replica: *id }),
                busy_until: 0,
                away_since: 0,
                process: None,
                life_of: Life::default(),
                missed: None,
                old_disk: false,
                amnesic: false,
                imageless: false,
                dies_writing: false,
                listens: vec![address(id.index())],
                book: book.clone(),
                is_astray: false,
            });
        }
        let correct: Vec<ReplicaId> = hosts.iter().filter(|host| host.correct).map(|host| host.id).collect();
        let nodes = hosts.len() + setup.clients;
        let founders = setup.founders.map(founders);
        let double = double(&app, founders.as_ref(), cluster.n());
        let window = (config.checkpoint_interval, config.window);
        let lanes = (config.clients_max, config.lanes_max);
        let mut checkers = Checkers::new(cluster, window, config.domains(), &correct, lanes, double);
        if config.durability == Durability::Sync {
            checkers.watch_disks(cluster);
        }
        let mut world = Self {
            seed: *seed,
            keys,
            at: 0,
            step: 0,
            halt_at: u64::MAX,
            queue: Queue::default(),
            hosts,
            clients: Vec::new(),
            addresses,
            network: Network::new(*seed, nodes, setup.network),
            checkers,
            load: Load::Idle,
            seen: Seen::default(),
            counters: Counters::default(),
            hash: TraceHash::new(),
            trace: None,
            evidence: None,
            work: Work::new(*seed, setup.task_time, setup.request_ns, setup.inline, setup.workers.clone()),
            adversary_rng: Rng::new(*seed, Concern::Adversary),
            keys_rng,
            page_bytes: setup.page_bytes,
            pages_in_memory: setup.pages_in_memory,
            log_bytes_max: setup.log_bytes_max,
            image_pace: setup.image_pace,
            founders,
            clients_max: setup.clients,
            liars: setup.liars,
            heard: None,
            held: None,
            recorded: setup.recorded,
            client_actions: ClientActions::new(),
            directory: directory(cluster, setup.clients),
            flights: Vec::new(),
            orders: VecDeque::new(),
            has_moves: setup.has_moves,
            app,
            config: setup.config,
        };
        for index in 0..setup.clients {
            let client = ClientHost::new(&mut world, index, setup.lanes);
            world.clients.push(client);
        }
        // Twins are given the same secrets: they are one identity.
        for h in 0..world.hosts.len() {
            world.start_host(h);
        }
        if setup.introduced {
            world.introduce();
            (0..world.clients.len()).for_each(|c| world.client_keyed(c));
        }
        world
    }

    /// Returns a new executor with the initial state, for host `h`.
    pub(crate) fn executor(&self, h: usize, first_rid: u64) -> Executor<A::Service, Paged> {
        let Config { window, checkpoint_interval, clients_max, lanes_max, durability, .. } = self.config;
        let options = Options {
            page_bytes: self.page_bytes,
            pages_max: 1 << 20,
            clients_max: u32::try_from(clients_max).unwrap_or(u32::MAX),
            lanes_max: u32::try_from(lanes_max).unwrap_or(u32::MAX),
            result_bytes_max: 8192,
            checkpoints_max: usize::try_from(window / checkpoint_interval).unwrap_or(2) + 2,
            pool_pages_max: 256,
            first_rid,
        };
        let domains = self.config.domains();
        let keeps = durability != Durability::Memory;
        let store = if keeps {
            self.hosts[h].disk.store(domains.clone(), self.page_bytes, self.pages_in_memory)
        } else {
            Paged::in_memory(domains.clone(), self.page_bytes)
        };
        let mut executor = Executor::with_store(self.app.service(), domains, options, store);
        if keeps {
            executor.limit_transfer(executor.store().pages_max() / 2);
        }
        match &self.founders {
            None => executor,
            Some(founders) => executor.governed(founders.clone(), self.config.cluster.n()),
        }
    }

    /// Returns the settings of a replica: those of the cluster, with its own number of workers.
    pub(super) fn config_of(&self, id: ReplicaId) -> Config {
        Config { workers: self.work.workers_of(id.index()), ..self.config.clone() }
    }

    /// Returns what host `h` is to run: its replica, or a liar in front of it.
    pub(crate) fn core(&mut self, h: usize, resume: Resume) -> AnyCore {
        let id = self.hosts[h].id;
        let signer = self.keys.signer(id.into());
        let replica = match Replica::new(id, self.config_of(id), signer.clone(), resume) {
            Ok(replica) => replica,
            Err(error) => unreachable!("the setup's settings were checked: {error}"),
        };
        match self.liars.get(&id) {
            None => AnyCore(Box::new(replica)),
            Some(maker) => {
                let liar = maker.make();
                self.lying(h, replica, liar)
            }
        }
    }

    /// Puts a liar in front of the replica of host `h`.
    pub(crate) fn lying(&mut self, h: usize, replica: Replica, liar: Box<dyn Liar>) -> AnyCore {
        let signer = self.keys.signer(self.hosts[h].id.into());
        let rng = Rng::nth(self.adversary_rng.bits(), Concern::Adversary, h);
        AnyCore(Box::new(Lying::new(replica, liar, signer, self.config.clone(), rng)))
    }
}
