//! The client table in its plainest form: which requests are executed, and which are refused (EX-2, §8.2).
//!
//! It says in maps and with searches of everything what the service says with slots, entries and hints.

use std::collections::BTreeMap;

use quorate_service::registry::{self, RegistryOp, RegistryResult, Setting};
use quorate_wire::reply::ReplyOutcome;
use quorate_wire::{ClientId, Digest, SeqNum, Timestamp};

/// A lane gives its place away if it was not used for a minute of the agreed time.
const IDLE_NS: u64 = 60_000_000_000;
/// A replica's request may be ahead of the agreed time by a day.
const DAY_NS: u64 = 86_400_000_000_000;

/// The last request of a client, in truth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    pub(super) timestamp: Timestamp,
    pub(super) digest: Digest,
    pub(super) seq: SeqNum,
    pub(super) time_ns: u64,
}

/// The lanes, and what is known of those that are gone.
#[derive(Debug)]
pub(super) struct Table {
    lanes: BTreeMap<ClientId, Last>,
    released: BTreeMap<u64, Timestamp>,
    refused: BTreeMap<u64, Timestamp>,
    slots: usize,
    reserve: usize,
    quota: usize,
    /// The addresses of replicas and the settings that were ordered.
    ordered: registry::Table,
}

impl Table {
    /// Returns the table of a cluster with room for `slots` lanes, `quota` of one client at most.
    pub(super) fn new(slots: usize, quota: usize) -> Self {
        let reserve = (slots / 8).min(1024);
        let (lanes, released, refused) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut table =
            Self { lanes, released, refused, slots, reserve, quota, ordered: registry::Table::default() };
        table.set_quota(quota);
        table
    }

    /// Sets how many lanes a client can have.
    fn set_quota(&mut self, quota: usize) {
        self.quota = quota.min((self.slots - self.reserve) / 2).max(1);
    }

    /// Returns the addresses of replicas and the settings that were ordered.
    pub(super) fn ordered(&self) -> &registry::Table {
        &self.ordered
    }

    /// Returns the last request of a lane.
    pub(super) fn get(&self, client: ClientId) -> Option<Last> {
        self.lanes.get(&client).copied()
    }

    /// Says what becomes of a request that is not one of those that a lane in the table has done. None: it is
    /// executed.
    pub(super) fn refusal(
        &mut self,
        client: ClientId,
        timestamp: Timestamp,
        time_ns: u64,
        privileged: bool,
    ) -> Option<ReplyOutcome> {
        let too_late = client.replica().is_some() && timestamp.0 > time_ns.saturating_add(DAY_NS);
        if timestamp.0 == 0 || too_late {
            return Some(ReplyOutcome::Superseded);
        }
        if self.lanes.contains_key(&client) {
            return None;
        }
        let of =
            |map: &BTreeMap<u64, Timestamp>| map.get(&client.principal()).copied().unwrap_or(Timestamp(0));
        if timestamp <= of(&self.released) {
            return Some(ReplyOutcome::Overtaken);
        }
        if timestamp > of(&self.refused) && self.make_room(client, time_ns, privileged) {
            return None;
        }
        let refused = self.refused.entry(client.principal()).or_insert(timestamp);
        *refused = timestamp.max(*refused);
        Some(ReplyOutcome::Refused)
    }

    fn make_room(&mut self, client: ClientId, time_ns: u64, privileged: bool) -> bool {
        let is_own = |id: &ClientId| id.principal() == client.principal();
        let own = self.lanes.keys().filter(|id| is_own(id)).count();
        let has_quota = client.replica().is_none() && own >= self.quota;
        let room = if privileged { self.slots } else { self.slots - self.reserve };
        let whose = self.lanes.iter().filter(|(id, _)| !has_quota || is_own(id));
        let oldest = whose.min_by_key(|(id, last)| (last.time_ns, **id)).map(|(id, last)| (*id, *last));
        if !has_quota && self.lanes.len() < room {
            return true;
        }
        match oldest {
            Some((id, last)) if time_ns >= last.time_ns.saturating_add(IDLE_NS) => {
                self.release(id);
                true
            }
            _ => false,
        }
    }

    fn release(&mut self, client: ClientId) {
        if let Some(last) = self.lanes.remove(&client) {
            let released = self.released.entry(client.principal()).or_insert(last.timestamp);
            *released = last.timestamp.max(*released);
        }
    }

    /// A request was executed. If it was an order that removes a client, its lanes go.
    pub(super) fn executed(&mut self, client: ClientId, last: Last, operation: &[u8], result: &[u8]) {
        let done = RegistryResult::decode(result) == Some(RegistryResult::Done);
        let order = RegistryOp::decode(operation).and_then(Result::ok).filter(|_| done);
        match order {
            Some(RegistryOp::Move(replica, Some(at))) => _ = self.ordered.replicas.insert(replica, at),
            Some(RegistryOp::Move(replica, None)) => _ = self.ordered.replicas.remove(&replica),
            Some(RegistryOp::Set(setting @ Setting::ClientLanesMax, lanes)) => {
                self.ordered.settings.insert(setting, lanes);
                self.set_quota(usize::try_from(lanes).unwrap_or(usize::MAX));
            }
            Some(RegistryOp::Add(..) | RegistryOp::Remove(_)) | None => {}
        }
        if let Some(RegistryOp::Remove(principal)) = order {
            let gone: Vec<ClientId> =
                self.lanes.keys().copied().filter(|id| id.principal() == principal).collect();
            for id in gone {
                self.release(id);
            }
        }
        self.lanes.insert(client, last);
    }
}
