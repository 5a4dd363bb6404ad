//! The description of a world: its members, their settings, and which are Byzantine.

use std::collections::BTreeMap;

use quorate_pbft::Config;
use quorate_process::{ImagePace, KeySource};
use quorate_service::registry::Client;
use quorate_wire::sign::{PublicKey, Signer, Verifier};
use quorate_wire::{ClientId, Cluster, Door, Principal, ReplicaId};

use crate::adversary::Liar;
use crate::adversary::maker::{CLUSTER_ID, LiarMaker};
use crate::disk::Pace;
use crate::network::Profile;
use crate::rng::Rng;
use crate::work::{TaskTime, Workers};

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
    /// The workers of the replicas. Batches are then not executed tentatively.
    pub workers: Option<Workers>,
    /// How far each host's time of day is off, in nanoseconds, and how fast its clock runs, while nothing is wrong
    /// with it. Those that are not named have a clock that is right.
    pub clocks: Vec<(i64, u64)>,
    /// Bytes of a page of the state.
    pub page_bytes: usize,
    /// How many pages of its state each replica keeps in memory that its disk has.
    pub pages_in_memory: usize,
    /// How long a log may be before the state is written, in bytes.
    pub log_bytes_max: usize,
    /// How much of an image is worked on between two events.
    pub image_pace: ImagePace,
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
    /// Clients sometimes ask where the replicas are.
    pub has_moves: bool,
}

impl Setup {
    /// Returns a quiet world of `cluster`: a good network, good disks, no Byzantine nodes.
    pub fn new(seed: u64, cluster: Cluster) -> Self {
        Self {
            seed,
            // Operations of both kinds, those that travel with their batch and those that travel apart, are short here.
            config: Config { seed, separate_above: 255, ..Config::new(cluster, CLUSTER_ID) },
            clients: 1,
            lanes: 1,
            network: Profile::lan(),
            disk: Pace::FAST,
            task_time: (0, 0),
            request_ns: 0,
            inline: false,
            workers: None,
            clocks: Vec::new(),
            page_bytes: 1024,
            pages_in_memory: usize::MAX,
            log_bytes_max: 0,
            image_pace: ImagePace::default(),
            liars: BTreeMap::new(),
            twins: Vec::new(),
            recorded: Vec::new(),
            introduced: true,
            founders: None,
            has_moves: false,
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
    pub(crate) fn new(rng: &mut Rng, cluster: Cluster, clients: usize) -> Self {
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
