//! The description of a world: its members, their settings, and which are Byzantine.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use quorate_pbft::client::step::ClientActions;
use quorate_pbft::config::Durability;
use quorate_pbft::{Config, Replica, Resume};
use quorate_process::{Directory, KeySource};
use quorate_service::registry::Client;
use quorate_service::{Executor, Options};
use quorate_wire::digest::ClusterId;
use quorate_wire::sign::{PublicKey, Signer, Verifier};
use quorate_wire::{ClientId, Cluster, Door, Principal, ReplicaId};

use crate::adversary::{Liar, Lying};
use crate::app::{App, Double};
use crate::checker::Checkers;
use crate::clock::Clock;
use crate::core::AnyCore;
use crate::disk::{Disk, Pace};
use crate::governed::{Governed, founders};
use crate::hash::TraceHash;
use crate::host::{Host, Life};
use crate::network::{Network, NodeId, Profile};
use crate::queue::Queue;
use crate::rng::{Concern, Rng};
use crate::summary::Counters;
use crate::world::{ClientHost, Load, Seen, TaskTime, World};

/// Names every simulated cluster.
pub(crate) const CLUSTER_ID: ClusterId = ClusterId(*b"a simulated cluster of quorate  ");

/// Makes a liar, again at each start of its replica.
pub struct LiarMaker(Box<dyn Fn() -> Box<dyn Liar>>);

impl LiarMaker {
    /// Returns a maker of what `make` makes.
    pub fn new<L: Liar + 'static>(make: impl Fn() -> L + 'static) -> Self {
        Self(Box::new(move || Box::new(make())))
    }

    /// Makes one.
    pub fn make(&self) -> Box<dyn Liar> {
        (self.0)()
    }
}

impl std::fmt::Debug for LiarMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.make().fmt(f)
    }
}

/// The description of a world.
#[derive(Debug)]
pub struct Setup {
    /// Everything random follows from it.
    pub seed: u64,
    /// The settings of every replica and client.
    pub config: Config,
    /// How many client principals there are, each on its own host.
    pub clients: usize,
    /// How many lanes each of them has.
    pub lanes: u16,
    /// The network.
    pub network: Profile,
    /// The disks.
    pub disk: Pace,
    /// How long the service takes for a task.
    pub task_time: TaskTime,
    /// How long it takes for each request of a batch in addition, in nanoseconds.
    pub request_ns: u64,
    /// Tasks keep the whole process from everything else, as they do in the node.
    pub inline: bool,
    /// How far each host's time of day is off, in nanoseconds, and how fast its clock runs, while nothing is wrong
    /// with it. Those that are not named have a clock that is right.
    pub clocks: Vec<(i64, u64)>,
    /// Bytes of a page of the state.
    pub page_bytes: usize,
    /// Replicas that lie.
    pub liars: BTreeMap<ReplicaId, LiarMaker>,
    /// Replicas that run twice.
    pub twins: Vec<ReplicaId>,
    /// Replicas whose inputs are recorded.
    pub recorded: Vec<ReplicaId>,
    /// Every node holds everyone's session keys from the start, so that a trace begins with a request.
    pub introduced: bool,
    /// How many of the clients may come in from the start, if the state says who may: the first one administers, the
    /// others come in by its order (EX-3). None: everyone may come in and ask for anything.
    pub founders: Option<usize>,
}

impl Setup {
    /// Returns a quiet world of `cluster`: a good network, good disks, no Byzantine nodes.
    pub fn new(seed: u64, cluster: Cluster) -> Self {
        Self {
            seed,
            config: Config { seed, ..Config::new(cluster, CLUSTER_ID) },
            clients: 1,
            lanes: 1,
            network: Profile::lan(),
            disk: Pace::FAST,
            task_time: (0, 0),
            request_ns: 0,
            inline: false,
            clocks: Vec::new(),
            page_bytes: 1024,
            liars: BTreeMap::new(),
            twins: Vec::new(),
            recorded: Vec::new(),
            introduced: true,
            founders: None,
        }
    }

    /// Makes replica `id` a liar.
    #[must_use]
    pub fn liar<L: Liar + 'static>(mut self, id: ReplicaId, make: impl Fn() -> L + 'static) -> Self {
        self.liars.insert(id, LiarMaker::new(make));
        self
    }

    /// Makes replica `id` run twice.
    #[must_use]
    pub fn twin(mut self, id: ReplicaId) -> Self {
        self.twins.push(id);
        self
    }
}

/// Everyone's long-term keys, of which each node is given its own and the public halves.
#[derive(Clone, Debug)]
pub struct Keys {
    signers: BTreeMap<u64, Signer>,
    verifier: Verifier,
}

impl Keys {
    fn new(rng: &mut Rng, cluster: Cluster, clients: usize) -> Self {
        let replicas = cluster.replicas().map(Principal::from);
        let clients = (1..=clients).map(|p| ClientId::new(u64::try_from(p).unwrap_or(1), 0).into());
        let mut keys = Self { signers: BTreeMap::new(), verifier: Verifier::default() };
        for principal in replicas.chain(clients) {
            let signer = Signer::Toy(rng.bytes());
            keys.verifier.insert(principal, &signer.public());
            keys.signers.insert(principal.key_holder(), signer);
        }
        keys
    }

    /// Returns the signing key of `principal`, for itself alone.
    pub fn signer(&self, principal: Principal) -> Signer {
        match self.signers.get(&principal.key_holder()) {
            Some(signer) => signer.clone(),
            None => unreachable!("every node of the world has a key"),
        }
    }

    /// Returns an authenticator of `principal` with fresh session keys.
    pub fn door(&self, principal: Principal, cluster: Cluster, entropy: [u8; 32], wall_ns: u64) -> Door {
        let signer = self.signer(principal);
        Door::new(principal, cluster, CLUSTER_ID, 0, signer, self.verifier.clone(), entropy, wall_ns)
    }
}

/// A client's key is that of this world's client of that number: the registry holds no key here.
impl KeySource for Keys {
    fn public(&self, principal: u64, _client: &Client) -> PublicKey {
        self.signer(Principal::Client(ClientId::new(principal, 0))).public()
    }
}

/// Returns the places of a world: those of the replicas, and one for each client. The addresses mean nothing.
fn directory(cluster: Cluster, clients: usize) -> Directory {
    let address = |index: usize| {
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        SocketAddr::from((Ipv4Addr::from(number), 1))
    };
    let replicas: Vec<SocketAddr> = (0..cluster.n()).map(address).collect();
    let mut directory = Directory::new(&replicas);
    for client in 1..=clients {
        let id = ClientId::new(u64::try_from(client).unwrap_or(u64::MAX), 0);
        directory.add_client(Principal::Client(id), address(cluster.n() + client));
    }
    directory
}

/// Returns the double of a service in the initial state, with the rights that it starts with.
pub(crate) fn double<A: App>(app: &A, founders: Option<&BTreeMap<u64, Client>>) -> Box<dyn Double> {
    match founders {
        None => app.double(),
        Some(founders) => Box::new(Governed::new(app.double(), founders)),
    }
}

impl<A: App> World<A> {
    /// Returns a world in which nothing has happened yet. Its replicas start with the first events.
    pub fn new(app: A, setup: Setup) -> Self {
        let Setup { seed, config, .. } = &setup;
        let cluster = config.cluster;
        let mut keys_rng = Rng::new(*seed, Concern::Keys);
        let keys = Keys::new(&mut keys_rng, cluster, setup.clients);
        let ids: Vec<ReplicaId> = cluster.replicas().chain(setup.twins.iter().copied()).collect();
        let mut addresses = vec![Vec::new(); cluster.n()];
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
                disk: Disk::new(*seed, index, setup.disk),
                busy_until: 0,
                away_since: 0,
                image_ns: None,
                process: None,
                life_of: Life::default(),
                missed: None,
                old_disk: false,
                amnesic: false,
            });
        }
        let correct: Vec<ReplicaId> = hosts.iter().filter(|host| host.correct).map(|host| host.id).collect();
        let nodes = hosts.len() + setup.clients;
        let founders = setup.founders.map(founders);
        let double = double(&app, founders.as_ref());
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
            task_time: setup.task_time,
            request_ns: setup.request_ns,
            inline: setup.inline,
            task_rng: Rng::new(*seed, Concern::Executor),
            adversary_rng: Rng::new(*seed, Concern::Adversary),
            keys_rng,
            page_bytes: setup.page_bytes,
            founders,
            clients_max: setup.clients,
            liars: setup.liars,
            heard: None,
            held: None,
            recorded: setup.recorded,
            client_actions: ClientActions::new(),
            directory: directory(cluster, setup.clients),
            flights: Vec::new(),
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
        }
        world
    }

    /// Returns a new executor with the initial state.
    pub(crate) fn executor(&self, first_rid: u64) -> Executor<A::Service> {
        let Config { window, checkpoint_interval, clients_max, lanes_max, .. } = self.config;
        let options = Options {
            page_bytes: self.page_bytes,
            pages_max: 1 << 20,
            clients_max: u32::try_from(clients_max).unwrap_or(u32::MAX),
            lanes_max: u32::try_from(lanes_max).unwrap_or(u32::MAX),
            result_bytes_max: 8192,
            checkpoints_max: usize::try_from(window / checkpoint_interval).unwrap_or(2) + 1,
            pool_pages_max: 256,
            first_rid,
        };
        let executor = Executor::new(self.app.service(), self.config.domains(), options);
        match &self.founders {
            None => executor,
            Some(founders) => executor.governed(founders.clone()),
        }
    }

    /// Returns what host `h` is to run: its replica, or a liar in front of it.
    pub(crate) fn core(&mut self, h: usize, resume: Resume) -> AnyCore {
        let id = self.hosts[h].id;
        let signer = self.keys.signer(id.into());
        let replica = match Replica::new(id, self.config.clone(), signer.clone(), resume) {
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
