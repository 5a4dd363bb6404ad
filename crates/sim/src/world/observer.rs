//! What somebody from outside sees of a simulated cluster: the replicas' statements, what clients say of replicas, and
//! whether operations are served. For the observer of real clusters, which judges it.

use std::collections::BTreeMap;

use quorate_wire::message::Statement;
use quorate_wire::{Cluster, ReplicaId};

use super::World;
use crate::app::App;
use crate::network::NodeId;

impl<A: App> World<A> {
    /// Returns `n` and `f`.
    pub fn cluster(&self) -> Cluster {
        self.config.cluster
    }

    /// Returns what replica `id` answers to a status request; none if it does not run, or is cut off from the clients.
    pub fn statement(&mut self, id: ReplicaId) -> Option<Statement> {
        let h = self.host_of(id);
        let (node, now) = (self.hosts[h].node, self.now(h));
        let is_cut = self.clients.iter().all(|client| self.network.is_cut(node, client.node));
        let host = &mut self.hosts[h];
        if is_cut || host.is_paused() {
            return None;
        }
        Some(host.process.as_mut()?.statement(now, 1))
    }

    /// Lets the statements of replica `id` name settings with these digests.
    pub fn state_settings(&mut self, id: ReplicaId, settings: Vec<u16>) {
        let h = self.host_of(id);
        if let Some(process) = &mut self.hosts[h].process {
            process.set_settings(settings);
        }
    }

    /// Returns the replicas whose replies were contradicted: how often, and when last.
    pub fn accused(&self) -> &BTreeMap<ReplicaId, (u64, u64)> {
        &self.seen.accused
    }

    /// Cuts replica `id` off from everyone, or from the other replicas only.
    pub fn cut_off(&mut self, id: ReplicaId, from_clients: bool) {
        let own = self.hosts[self.host_of(id)].node;
        let replicas = self.hosts.iter().map(|host| host.node);
        let clients = self.clients.iter().map(|client| client.node).filter(|_| from_clients);
        let others: Vec<NodeId> = replicas.chain(clients).filter(|node| *node != own).collect();
        self.network.partition(&[&[own], &others]);
    }

    /// Returns whether a lane of a client waits for nothing.
    pub fn is_free(&self, c: usize, l: usize) -> bool {
        self.clients[c].lanes[l].outstanding.is_none()
    }
}
