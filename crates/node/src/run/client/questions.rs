//! A client's status requests to replicas, and its evidence of misbehaviour by them.

use std::net::SocketAddr;

use quorate_pbft::Now;
use quorate_pbft::config::Config;
use quorate_process::Meter;
use quorate_service::registry::Table;
use quorate_wire::codec::Writer;
use quorate_wire::message::{Probe, Statement};
use quorate_wire::{ClientId, Cluster, Kind, Principal, ReplicaId};

use super::moves::Moves;
use super::{ClientProcess, Lane};
use crate::run::client::ledger::{Class, Item, Ledger};

impl<M: Meter> ClientProcess<M> {
    /// Asks all replicas for their status. Answers with `nonce` are returned by [`Self::take_statements`].
    pub fn probe(&mut self, nonce: u64) {
        let mut body = Vec::new();
        Probe { nonce }.encode(&mut Writer::new(&mut body));
        self.frame.clear();
        self.endpoint.door_mut().seal(Kind::Probe, None, &body, &mut self.frame);
        self.endpoint.post_all(None, &self.frame);
        if let Some(moves) = &mut self.moves {
            moves.note_used();
        }
    }

    /// Returns the statements since the last call: the newest of each replica.
    pub fn take_statements(&mut self) -> Vec<(ReplicaId, Statement)> {
        std::mem::take(&mut self.statements)
    }

    /// Returns the digest of the shared settings that a replica has stated with its session keys, if it has.
    pub fn settings_of(&mut self, replica: ReplicaId) -> Option<u64> {
        self.endpoint.door_mut().settings_of(replica.into())
    }

    /// Returns the size of the cluster.
    pub fn cluster(&self) -> Cluster {
        self.cluster
    }

    /// Stores evidence against replicas in a ledger from now on.
    pub fn keep_evidence(&mut self, ledger: Ledger) {
        self.ledger = ledger;
    }

    /// Returns this client's evidence against replicas, with `by` as the witness.
    pub fn evidence(&self, by: &str) -> Vec<Item> {
        self.ledger.items(by)
    }

    /// Reads where the replicas are from now on (ADR 23).
    pub fn follow_moves(&mut self, config: &Config) {
        let principal = self.endpoint.door().own().as_client().principal();
        let last = u16::try_from(self.lanes.len()).unwrap_or(u16::MAX);
        let moves = Moves::new(config, ClientId::new(principal, last));
        let client = moves.client(self.timestamps.next());
        self.lanes.push(Lane { client, deadline: u64::MAX });
        self.moves = Some(moves);
    }

    /// Returns what the state says of replicas and settings, if a read has found it since the last call.
    pub fn take_table(&mut self) -> Option<Table> {
        self.moves.as_mut()?.take_table()
    }

    /// Returns the addresses of the replicas, as far as this client knows.
    pub fn replica_addresses(&self) -> Vec<SocketAddr> {
        self.endpoint.directory().addresses().iter().take(self.cluster.n()).copied().collect()
    }

    pub(super) fn on_statement(&mut self, sender: Principal, statement: &Statement) {
        let Principal::Replica(from) = sender else { return };
        self.statements.retain(|(earlier, _)| *earlier != from);
        self.statements.push((from, statement.clone()));
    }

    /// Records evidence against a replica.
    #[cold]
    pub(super) fn accuse(&mut self, class: Class, replica: ReplicaId) {
        self.ledger.note(class, replica, self.wall_s);
    }

    /// Remembers the time of day, and lets the ledger write its file.
    pub(super) fn tend_evidence(&mut self, now: Now) {
        self.wall_s = now.wall_ns / 1_000_000_000;
        self.ledger.tend(now.mono_ns);
    }
}
