//! A client's status requests to replicas, and its evidence of misbehaviour by them.

use quorate_pbft::Now;
use quorate_process::Meter;
use quorate_wire::codec::Writer;
use quorate_wire::message::{Probe, Statement};
use quorate_wire::{Cluster, Kind, Principal, ReplicaId};

use super::ClientProcess;
use crate::run::client::ledger::{Class, Item, Ledger};

impl<M: Meter> ClientProcess<M> {
    /// Asks all replicas for their status. Answers with `nonce` are returned by [`Self::take_statements`].
    pub fn probe(&mut self, nonce: u64) {
        let mut body = Vec::new();
        Probe { nonce }.encode(&mut Writer::new(&mut body));
        self.frame.clear();
        self.endpoint.door_mut().seal(Kind::Probe, None, &body, &mut self.frame);
        self.endpoint.post_all(None, &self.frame);
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
