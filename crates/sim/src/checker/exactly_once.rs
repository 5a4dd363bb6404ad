//! Each request once, with the result that a sequential machine gives at its place in the order (I13,
//! I15).
//!
//! As soon as a batch is final anywhere, a double of the service executes it: that is the truth. What
//! each replica's own service answers, and what clients accept, is compared with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quorate_service::Context;
use quorate_service::registry::{self, RegistryResult};
use quorate_wire::digest::Domains;
use quorate_wire::life::Recovery;
use quorate_wire::reply::ReplyOutcome;
use quorate_wire::{Batch, ClientId, Digest, ReplicaId, Replies, SeqNum, Timestamp};

use super::ended::Tables;
use super::lanes::{Last, Table};
use super::order::Effect;
use super::verdict::{Verdict, Violation};
use crate::app::Double;

/// The result of one request, really or at a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    client: ClientId,
    timestamp: Timestamp,
    outcome: ReplyOutcome,
    /// Of client, timestamp and result. Not compared where there is no result of this request.
    digest: Digest,
}

impl Seen {
    fn agrees(&self, other: &Self) -> bool {
        let same =
            (self.client, self.timestamp, self.outcome) == (other.client, other.timestamp, other.outcome);
        // What a replica asks for, its recovery, is answered by the protocol and not by the service.
        let compared = self.outcome != ReplyOutcome::Superseded && self.client.replica().is_none();
        same && (!compared || self.digest == other.digest)
    }
}

/// A result that a client has accepted before the batch was final anywhere: q tentative replies.
#[derive(Clone, Copy, Debug)]
struct Early {
    timestamp: Timestamp,
    digest: Digest,
}

/// Watches over what is executed.
pub struct ExactlyOnce {
    domains: Domains,
    double: Box<dyn Double>,
    /// The agreed time of the last batch in which something was executed (ND-2).
    time_ns: u64,
    clients: Table,
    /// Batch `n` is at `n - 1`.
    truth: Vec<Vec<Seen>>,
    /// The results of each replica's tentative batch, until it is final.
    tentative: BTreeMap<ReplicaId, (SeqNum, Vec<Seen>)>,
    /// At most one for each client lane.
    early: BTreeMap<ClientId, Early>,
    /// What took effect, in order.
    pub effects: Vec<Effect>,
    /// Requests of which their clients have been told that nothing was done, nor will be.
    refused: BTreeSet<(ClientId, Timestamp)>,
    /// How many requests took effect.
    pub commands: u64,
    /// The lives that recovery requests have opened.
    pub lives: Tables,
}

impl ExactlyOnce {
    /// Returns a watcher with the initial state.
    pub fn new(domains: Domains, (slots, quota): (usize, usize), double: Box<dyn Double>) -> Self {
        Self {
            domains,
            double,
            time_ns: 0,
            clients: Table::new(slots, quota),
            truth: Vec::new(),
            tentative: BTreeMap::new(),
            early: BTreeMap::new(),
            effects: Vec::new(),
            refused: BTreeSet::new(),
            commands: 0,
            lives: Tables::default(),
        }
    }

    /// A batch is final, for the first time anywhere: the double executes it (EX-2).
    pub fn settle(&mut self, seq: SeqNum, batch: &Arc<Batch>) -> Verdict {
        let mut results = Vec::with_capacity(batch.len());
        let mut verdict = Ok(());
        let chosen = batch.choice().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let time_ns = chosen.max(self.time_ns.saturating_add(1));
        for (index, request) in (0..).zip(batch.requests()) {
            let last = self.clients.get(request.client);
            let privileged =
                request.client.replica().is_some() || self.double.is_admin(request.client.principal());
            let refusal = self.clients.refusal(request.client, request.timestamp, time_ns, privileged);
            let (outcome, digest) = match last {
                Some(last) if request.timestamp == last.timestamp => (ReplyOutcome::Repeated, last.digest),
                Some(last) if request.timestamp < last.timestamp => (ReplyOutcome::Superseded, Digest::ZERO),
                _ if refusal.is_some() => {
                    let outcome = refusal.unwrap_or(ReplyOutcome::Refused);
                    let mut result = Vec::new();
                    RegistryResult::NoLane.encode(&mut result);
                    let (client, t) = (request.client.0, request.timestamp.0);
                    let refused = outcome == ReplyOutcome::Refused;
                    let digest = refused.then(|| self.domains.reply(client, t, &request.digest, &result));
                    (outcome, digest.unwrap_or(Digest::ZERO))
                }
                _ => {
                    let mut result = Vec::new();
                    let digest = if let Some(replica) = request.client.replica() {
                        if let Some(recovery) = Recovery::decode(request.operation) {
                            self.lives.ask(seq, (replica, request.timestamp), time_ns, &recovery);
                        }
                        Digest::ZERO
                    } else {
                        let (client, timestamp) = (request.client, request.timestamp);
                        let cx = Context { client, timestamp, seq, index, time_ns, read_only: false };
                        result = self.double.execute(&cx, request.operation);
                        let (batch, index) = (Arc::clone(batch), usize::try_from(index).unwrap_or(0));
                        self.effects.push(Effect { batch, index, seq, time_ns });
                        self.domains.reply(request.client.0, request.timestamp.0, &request.digest, &result)
                    };
                    self.time_ns = time_ns;
                    self.commands += 1;
                    let last = Last { timestamp: request.timestamp, digest, seq, time_ns };
                    self.clients.executed(request.client, last, request.operation, &result);
                    verdict = verdict.and(self.compare_early(request.client, last));
                    if self.refused.contains(&(request.client, request.timestamp)) {
                        let (client, t) = (request.client, request.timestamp.0);
                        let text = format!("{client} t={t} is executed at n={} after it was refused", seq.0);
                        verdict = verdict.and(Err(Violation::new("exactly once (I13)", text, &[])));
                    }
                    (ReplyOutcome::Executed, digest)
                }
            };
            let (client, timestamp) = (request.client, request.timestamp);
            results.push(Seen { client, timestamp, outcome, digest });
        }
        self.truth.push(results);
        verdict
    }

    /// Returns the addresses of replicas and the settings that were ordered.
    pub fn table(&self) -> registry::Table {
        self.clients.ordered().clone()
    }

    /// Returns the number at which the last request of `client` took effect, if it is this one.
    pub fn place(&self, client: ClientId, timestamp: Timestamp) -> Option<SeqNum> {
        self.clients.get(client).filter(|last| last.timestamp == timestamp).map(|last| last.seq)
    }

    /// The service of a replica has executed a batch. If it is not final, what it gave is kept.
    pub fn executed(&mut self, by: ReplicaId, seq: SeqNum, replies: &Replies, settled: bool) -> Verdict {
        let seen: Vec<Seen> = replies
            .iter()
            .map(|r| Seen { client: r.client, timestamp: r.timestamp, outcome: r.outcome, digest: r.digest })
            .collect();
        if settled {
            return self.compare(by, seq, &seen);
        }
        self.tentative.insert(by, (seq, seen));
        Ok(())
    }

    /// A replica's tentative batch is final.
    pub fn merged(&mut self, by: ReplicaId, seq: SeqNum) -> Verdict {
        match self.tentative.remove(&by) {
            Some((tentative, seen)) if tentative == seq => self.compare(by, seq, &seen),
            _ => Ok(()), // its service has not answered yet
        }
    }

    /// A replica's tentative batch is dropped.
    pub fn undone(&mut self, by: ReplicaId) {
        self.tentative.remove(&by);
    }

    fn compare(&self, by: ReplicaId, seq: SeqNum, seen: &[Seen]) -> Verdict {
        let place = usize::try_from(seq.0.saturating_sub(1)).unwrap_or(usize::MAX);
        let Some(truth) = self.truth.get(place) else { return Ok(()) };
        if truth.len() != seen.len() {
            let text = format!("{by} has {} results for n={}, not {}", seen.len(), seq.0, truth.len());
            return Err(Violation::new("exactly once (I13)", text, &[by]));
        }
        for (place, (truth, seen)) in truth.iter().zip(seen).enumerate() {
            if !truth.agrees(seen) {
                let rule = if truth.outcome == seen.outcome { "results (I15)" } else { "exactly once (I13)" };
                let show =
                    |r: &Seen| format!("{} t={} {:?} {}", r.client, r.timestamp.0, r.outcome, r.digest);
                let text = format!("{by} at n={}.{place}: {}, should be {}", seq.0, show(seen), show(truth));
                return Err(Violation::new(rule, text, &[by]));
            }
        }
        Ok(())
    }

    /// I15: a client has accepted a result of an ordered request.
    pub fn accepted(
        &mut self,
        (client, timestamp): (ClientId, Timestamp),
        operation: &[u8],
        result: &[u8],
    ) -> Verdict {
        let request = self.domains.request(client.0, timestamp.0, operation);
        let digest = self.domains.reply(client.0, timestamp.0, &request, result);
        let known = self.clients.get(client);
        if RegistryResult::decode(result) == Some(RegistryResult::NoLane)
            && known.is_none_or(|last| last.timestamp < timestamp)
        {
            self.refused.insert((client, timestamp));
            return Ok(());
        }
        match known {
            Some(last) if last.timestamp == timestamp => differs(client, last, digest),
            Some(last) if last.timestamp > timestamp => {
                let text =
                    format!("{client} accepts t={} after t={} was executed", timestamp.0, last.timestamp.0);
                Err(Violation::new("results (I15)", text, &[]))
            }
            _ => {
                self.early.insert(client, Early { timestamp, digest });
                Ok(())
            }
        }
    }

    fn compare_early(&mut self, client: ClientId, last: Last) -> Verdict {
        match self.early.remove(&client) {
            Some(early) if early.timestamp == last.timestamp => differs(client, last, early.digest),
            Some(early) => {
                let text = format!("{client} accepted t={}, which was never executed", early.timestamp.0);
                Err(Violation::new("results (I15)", text, &[]))
            }
            None => Ok(()),
        }
    }

    /// Returns whether a client has accepted what is not final anywhere yet.
    pub fn is_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// Everything has finished: nothing that was accepted may be missing.
    pub fn finish(&self) -> Verdict {
        match self.early.first_key_value() {
            None => Ok(()),
            Some((client, early)) => {
                let text = format!("{client} accepted t={}, which was never executed", early.timestamp.0);
                Err(Violation::new("results (I15)", text, &[]))
            }
        }
    }
}

fn differs(client: ClientId, truth: Last, accepted: Digest) -> Verdict {
    if truth.digest == accepted {
        return Ok(());
    }
    let text = format!(
        "{client} accepted {accepted} for t={}, executed at n={} with {}",
        truth.timestamp.0, truth.seq.0, truth.digest
    );
    Err(Violation::new("results (I15)", text, &[]))
}
