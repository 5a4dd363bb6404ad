//! Where the replicas are: a client reads that in the state (ADR 23), when it starts, and when a replica is silent.
//!
//! The read has a lane of its own. It is never ordered: replicas of earlier versions would answer it differently, and
//! their states would differ. It is accepted when f + 1 replicas answer alike. One of them is correct, so the addresses
//! were right once, and old ones do no more harm than those in the file. More answers cannot be asked for: where f
//! replicas have moved and f others are down, no more than f + 1 can be reached.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use quorate_pbft::client::step::ClientAction;
use quorate_pbft::config::{Config, ReadRule, Reads, RequestAuth};
use quorate_pbft::{Client, Now};
use quorate_service::registry::Table;
use quorate_wire::digest::Domains;
use quorate_wire::{ClientId, ReplicaId, Timestamp};

/// A replica is silent that does not answer for so long although others are asked, in nanoseconds.
const SILENT_NS: u64 = 10_000_000_000;
/// When a read is tried again that nobody has served, in nanoseconds.
const AGAIN_NS: u64 = 2_000_000_000;

/// The reads of a client. See the module.
#[derive(Debug)]
pub(super) struct Moves {
    config: Config,
    domains: Arc<Domains>,
    /// The lane that reads: the last one.
    id: ClientId,
    /// The next read is no earlier than this.
    ask_at: u64,
    /// The last read was not served, and would have been ordered.
    gave_up: bool,
    /// When each replica has last answered.
    heard: Vec<u64>,
    /// Something was sent since the last read, so that all replicas have reason to answer.
    used: bool,
    /// What the last read has found.
    table: Option<Table>,
    is_new: bool,
}

impl Moves {
    /// Returns the reads of a client whose last lane is `id`.
    pub(super) fn new(config: &Config, id: ClientId) -> Self {
        // It is signed, because keys may be missing with more than f replicas (CL-11). It is no read of the service, so it
        // may see less than the last write also where the service's reads are ordered.
        let config = Config {
            read_only: true,
            reads: Reads::All,
            read_rule: ReadRule::AnyCorrect,
            request_auth: RequestAuth::SigMac,
            ..config.clone()
        };
        Self {
            domains: Arc::new(config.domains()),
            id,
            ask_at: 0,
            gave_up: false,
            heard: vec![0; config.cluster.n()],
            used: false,
            table: None,
            is_new: false,
            config,
        }
    }

    /// Returns the index of the lane that reads.
    pub(super) fn lane(&self) -> usize {
        usize::from(self.id.lane())
    }

    /// Returns a client for the lane that reads, whose first timestamp is this.
    pub(super) fn client(&self, first: Timestamp) -> Client {
        let (id, domains) = (self.id, Arc::clone(&self.domains));
        Client::with_domains(id, &self.config, domains, first, self.config.seed ^ id.0)
    }

    /// Notes that a replica has answered. That it has sent its keys is no answer: a replica that has moved sends them.
    #[inline]
    pub(super) fn note_heard(&mut self, now: Now, replica: ReplicaId) {
        if let Some(heard) = self.heard.get_mut(replica.index()) {
            *heard = now.mono_ns;
        }
    }

    /// Notes that something was sent to replicas.
    #[inline]
    pub(super) fn note_used(&mut self) {
        self.used = true;
    }

    /// Returns whether it is time for a read.
    pub(super) fn is_due(&self, now: Now) -> bool {
        let silent = |heard: &u64| heard.saturating_add(SILENT_NS) <= now.mono_ns;
        now.mono_ns >= self.ask_at && (self.table.is_none() || self.used && self.heard.iter().any(silent))
    }

    /// Begins a read. Returns whether the lane needs a new client, with which the read that was given up is forgotten.
    pub(super) fn begin(&mut self, now: Now) -> bool {
        (self.ask_at, self.used) = (now.mono_ns.saturating_add(SILENT_NS), false);
        std::mem::take(&mut self.gave_up)
    }

    /// Returns whether this action would end the read without a result, or have it ordered. It is given up then.
    pub(super) fn gives_up(&mut self, now: Now, action: &ClientAction) -> bool {
        let gives_up = match action {
            ClientAction::Send { flags, .. } => !flags.read_only,
            ClientAction::DoneWithoutResult { .. } | ClientAction::Overtaken { .. } => true,
            ClientAction::SetTimer(_)
            | ClientAction::StopTimer
            | ClientAction::SendKeys
            | ClientAction::Done { .. }
            | ClientAction::Report(_) => false,
        };
        if gives_up && !std::mem::replace(&mut self.gave_up, true) {
            self.ask_at = now.mono_ns.saturating_add(AGAIN_NS);
        }
        gives_up
    }

    /// Takes the result of a read. Returns the addresses of the replicas that have moved, if it has them.
    pub(super) fn learn(&mut self, now: Now, result: &[u8]) -> Option<&BTreeMap<ReplicaId, SocketAddr>> {
        let Some(table) = Table::decode(result) else {
            // This client is not registered, perhaps not yet.
            self.ask_at = now.mono_ns.saturating_add(AGAIN_NS);
            return None;
        };
        self.is_new = true;
        Some(&self.table.insert(table).replicas)
    }

    /// Returns what the state says, if a read has found it since the last call.
    pub(super) fn take_table(&mut self) -> Option<Table> {
        if std::mem::take(&mut self.is_new) { self.table.clone() } else { None }
    }
}
