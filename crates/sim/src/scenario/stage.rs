//! The commands that scenarios are written with.

use std::collections::BTreeMap;

use quorate_pbft::config::{Config, MS};
use quorate_wire::{Cluster, Kind, ReplicaId};

use crate::adversary::Liar;
use crate::app::{App, KvApp};
use crate::network::NodeId;
use crate::report::Rule;
use crate::setup::Setup;
use crate::swarm;
use crate::world::evidence::Evidence;
use crate::world::{Load, World};

/// The longest that a scenario may take to make the progress that it asks for, in simulated time.
const PROGRESS_NS: u64 = 60_000 * MS;
/// The longest that everything may take to finish once it has healed, in simulated time (I23, I24).
const FINISH_NS: u64 = 30_000 * MS;
/// Batches that have to become final after it has healed.
const BATCHES_AFTER: u64 = 20;

/// How a part of a story ended.
pub type Ended = Result<(), Rule>;

/// Returns the world that scenarios start from: small logs, two clients with two lanes, a good network.
pub fn setup(seed: u64, cluster: Cluster) -> Setup {
    let base = Setup::new(seed, cluster);
    let config = Config {
        checkpoint_interval: 8,
        window: 16,
        view_timeout_max_ns: 4_000 * MS,
        client_timeout_max_ns: 1_000 * MS,
        clients_max: 64,
        ..base.config
    };
    Setup { config, clients: 2, lanes: 2, page_bytes: 512, ..base }
}

/// A world on which a story is played.
#[derive(Debug)]
pub struct Stage {
    /// The world.
    pub world: World<KvApp>,
    noted: BTreeMap<&'static str, u64>,
    finished: bool,
}

impl Stage {
    pub(super) fn new(world: World<KvApp>) -> Self {
        Self { world, noted: BTreeMap::new(), finished: false }
    }

    pub(super) fn leave(self) -> (World<KvApp>, BTreeMap<&'static str, u64>) {
        (self.world, self.noted)
    }

    /// Returns `n` and `f`.
    pub fn cluster(&self) -> Cluster {
        self.world.config.cluster
    }

    /// Returns the last `f` replicas.
    pub fn last_f(&self) -> Vec<ReplicaId> {
        last_f(self.cluster())
    }

    /// Returns the hosts of correct replicas.
    pub fn correct(&self) -> Vec<usize> {
        (0..self.world.hosts.len()).filter(|h| self.world.hosts[*h].correct).collect()
    }

    /// Returns the places of all clients in the network.
    pub fn clients(&self) -> Vec<NodeId> {
        self.world.clients.iter().map(|client| client.node).collect()
    }

    /// Returns the highest view of a correct replica.
    pub fn view(&self) -> u64 {
        highest_view(&self.world)
    }

    /// Returns the last number that correct replica `id` has executed finally.
    pub fn executed(&self, id: ReplicaId) -> u64 {
        self.world.checkers.facts(id).executed.0
    }

    /// Returns what has been noted so far.
    pub fn evidence(&self) -> &Evidence {
        match &self.world.evidence {
            Some(evidence) => evidence,
            None => unreachable!("every scenario collects evidence"),
        }
    }

    /// Returns every replica.
    pub fn all(&self) -> Vec<ReplicaId> {
        self.cluster().replicas().collect()
    }

    /// Returns every replica but those in `without`.
    pub fn all_but(&self, without: &[ReplicaId]) -> Vec<ReplicaId> {
        self.cluster().replicas().filter(|id| !without.contains(id)).collect()
    }

    /// Returns where the hosts of these replicas are in the network.
    fn nodes(&self, ids: &[ReplicaId]) -> Vec<NodeId> {
        ids.iter().flat_map(|id| self.world.addresses[id.index()].iter().copied()).collect()
    }

    /// Cuts the replicas in `some` off from those in `others`, both ways.
    pub fn cut(&mut self, some: &[ReplicaId], others: &[ReplicaId]) {
        let (some, others) = (self.nodes(some), self.nodes(others));
        self.world.network.partition(&[&some, &others]);
    }

    /// Cuts the replicas in `some` off from all others. Clients still reach everyone.
    pub fn isolate(&mut self, some: &[ReplicaId]) {
        self.cut(some, &self.all_but(some));
    }

    /// Cuts replicas off from the clients.
    pub fn hide_from_clients(&mut self, some: &[ReplicaId]) {
        let (nodes, clients) = (self.nodes(some), self.clients());
        self.world.network.partition(&[&nodes, &clients]);
    }

    /// Loses every message of this kind on its way from one of `from` to one of `to`.
    pub fn mute(&mut self, kind: Kind, from: &[ReplicaId], to: &[ReplicaId]) {
        for from in self.nodes(from) {
            for to in self.nodes(to) {
                self.world.network.mute(from, to, kind);
            }
        }
    }

    /// Loses every message of these kinds among replicas.
    pub fn mute_all(&mut self, kinds: &[Kind]) {
        let all = self.all();
        for kind in kinds {
            self.mute(*kind, &all, &all);
        }
    }

    /// Loses the replies of `from` to client `c`.
    pub fn hold_replies(&mut self, from: &[ReplicaId], c: usize) {
        let client = self.world.clients[c].node;
        for from in self.nodes(from) {
            self.world.network.mute(from, client, Kind::Reply);
        }
    }

    /// Loses the requests of client `c` to `to`.
    pub fn hold_requests(&mut self, c: usize, to: &[ReplicaId]) {
        let client = self.world.clients[c].node;
        for to in self.nodes(to) {
            self.world.network.mute(client, to, Kind::Request);
        }
    }

    /// Makes the network whole.
    pub fn mend(&mut self) {
        self.world.network.heal();
    }

    /// Waits until every correct replica works in view `view` or a later one, at most `ns` nanoseconds.
    pub fn until_view(&mut self, view: u64, ns: u64) -> Ended {
        let entered = |w: &mut World<KvApp>| w.core_facts().all(|facts| facts.normal && facts.view.0 >= view);
        self.until(&format!("everyone in view {view}"), ns, entered)
    }

    /// Waits until every correct replica of `ids` has executed number `seq` finally.
    pub fn until_executed(&mut self, ids: &[ReplicaId], seq: u64, ns: u64) -> Ended {
        let ids: Vec<ReplicaId> = ids.iter().copied().filter(|id| self.world.checkers.watches(*id)).collect();
        let reached =
            move |w: &mut World<KvApp>| ids.iter().all(|id| w.checkers.facts(*id).executed.0 >= seq);
        self.until(&format!("n={seq} executed"), ns, reached)
    }

    /// Counts something that [`Expect::Noted`](super::Expect::Noted) names.
    pub fn note(&mut self, what: &'static str) {
        *self.noted.entry(what).or_default() += 1;
    }

    /// Asks that something holds.
    pub fn require(&self, holds: bool, what: impl Into<String>) -> Ended {
        if holds { Ok(()) } else { Err(Rule::Missed(what.into())) }
    }

    fn checked(&self) -> Ended {
        self.world.violation().map_or(Ok(()), |violation| Err(Rule::Broken(violation.clone())))
    }

    /// Lets `ns` nanoseconds pass.
    pub fn pass(&mut self, ns: u64) -> Ended {
        let until = self.world.at + ns;
        self.world.run(until, |_| false);
        self.checked()
    }

    /// Lets time pass until `stop` holds; within `ns` nanoseconds it must.
    pub fn until(&mut self, what: &str, ns: u64, stop: impl FnMut(&mut World<KvApp>) -> bool) -> Ended {
        let until = self.world.at + ns;
        let held = self.world.run(until, stop);
        self.checked()?;
        if held {
            return Ok(());
        }
        let open = self.open().map(|open| format!("; {open}")).unwrap_or_default();
        Err(Rule::Stuck(format!("not within {} ms: {what}{open}", ns / MS)))
    }

    /// Sends an operation of client `c` on its lane `l`, as typed by users ("put x 1", "get x").
    pub fn ask(&mut self, c: usize, l: usize, text: &str) {
        let Some(ask) = self.world.app.parse(text) else { unreachable!("{text}: not an operation") };
        self.world.ask_for(c, l, &ask);
    }

    /// Sends an operation of client `c`, and waits for the result, at most `ns` nanoseconds.
    pub fn answer(&mut self, c: usize, l: usize, text: &str, ns: u64) -> Result<String, Rule> {
        self.ask(c, l, text);
        self.until(text, ns, |w| w.clients[c].lanes[l].outstanding.is_none())?;
        let result = self.world.clients[c].lanes[l].last_result.clone().unwrap_or_default();
        Ok(crate::describe::Words::result(&self.world.app, &result))
    }

    /// Keeps the clients busy until `batches` more batches are final. The faults that the cluster has to
    /// bear do not keep it from that.
    pub fn busy(&mut self, batches: u64) -> Ended {
        self.world.set_load(Load::Busy(0, 2 * MS));
        let target = self.world.committed() + batches;
        self.until("enough batches", PROGRESS_NS, |w| w.committed() >= target)
    }

    /// Stops the clients, and waits until every request has its answer.
    pub fn quiet(&mut self) -> Ended {
        self.world.set_load(Load::Idle);
        self.until("every request answered", FINISH_NS, |w| w.outstanding().0 == 0)
    }

    /// Waits until all of `ids` work in view `view` or a later one, at most `ns` nanoseconds.
    pub fn until_entered(&mut self, ids: &[ReplicaId], view: u64, ns: u64) -> Ended {
        let ids = ids.to_vec();
        let entered = move |w: &mut World<KvApp>| {
            let mut facts = ids.iter().map(|id| w.checkers.facts(*id));
            facts.all(|facts| facts.normal && facts.view.0 >= view)
        };
        self.until(&format!("{view} entered"), ns, entered)
    }

    /// Lets client 0 send requests until number `seq` is final everywhere, one number per request, then waits.
    pub fn fill(&mut self, ids: &[ReplicaId], seq: u64) -> Ended {
        while self.world.committed() < seq {
            // The answer may be tentative: then the number is not final yet.
            let next = self.world.committed() + 1;
            self.answer(0, 0, "incr n 1", 5_000 * MS)?;
            self.until_executed(ids, next, 1_000 * MS)?;
        }
        self.require(self.world.committed() == seq, format!("number {seq} is the last"))
    }

    /// Records at how many numbers a correct replica has taken the null batch over.
    pub fn note_nulls(&mut self) {
        let null = self.world.config.domains().null_batch();
        let nulls =
            self.evidence().accepted().values().filter(|all| all.iter().any(|a| a.digest == null)).count();
        for _ in 0..nulls {
            self.note("null taken over");
        }
    }

    /// Ends the load and waits until everything has finished, then looks at the whole history.
    pub fn finish(&mut self) -> Ended {
        self.finished = true;
        swarm::finish(&mut self.world, FINISH_NS, |_| false)
    }

    /// Ends every fault but the lies, and demands progress.
    pub(super) fn heal_and_finish(&mut self) -> Ended {
        if self.finished {
            return Ok(());
        }
        self.world.heal();
        self.busy(BATCHES_AFTER)?;
        self.finish()
    }

    /// Describes what is still open, if anything is.
    pub fn open(&self) -> Option<String> {
        swarm::why(&self.world).map(|stuck| stuck.to_string())
    }
}

/// Returns the highest view of a correct replica.
pub(super) fn highest_view(world: &World<KvApp>) -> u64 {
    world.core_facts().map(|facts| facts.view.0).max().unwrap_or(0)
}

/// Returns the first `f` replicas: the primaries of the first `f` views.
pub fn first_f(cluster: Cluster) -> Vec<ReplicaId> {
    cluster.replicas().take(cluster.f()).collect()
}

/// Returns the last `f` replicas: backups in the first views.
pub fn last_f(cluster: Cluster) -> Vec<ReplicaId> {
    cluster.replicas().skip(cluster.n() - cluster.f()).collect()
}

impl Setup {
    /// Returns the last `f` replicas.
    pub fn last_f(&self) -> Vec<ReplicaId> {
        last_f(self.config.cluster)
    }

    /// Lets the primaries of the first `f` views lie.
    #[must_use]
    pub fn lying_primaries<L: Liar + 'static>(self, make: impl Fn() -> L + Clone + 'static) -> Self {
        let ids = first_f(self.config.cluster);
        ids.into_iter().fold(self, |setup, id| setup.liar(id, make.clone()))
    }

    /// Lets the last `f` replicas lie.
    #[must_use]
    pub fn lying_backups<L: Liar + 'static>(self, make: impl Fn() -> L + Clone + 'static) -> Self {
        let ids = last_f(self.config.cluster);
        ids.into_iter().fold(self, |setup, id| setup.liar(id, make.clone()))
    }
}
