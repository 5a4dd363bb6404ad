//! Worlds in which the state defines the registered clients (EX-3): the authenticators follow it, and the reference
//! model knows the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use quorate_service::registry::{Client, RegistryOp, RegistryResult, Rights, Table};
use quorate_service::{Context, Service};
use quorate_wire::ReplicaId;

use crate::app::Double;
use crate::orders::person;

/// Returns the first `count` clients: the first one is the administrator.
pub(crate) fn founders(count: usize) -> BTreeMap<u64, Client> {
    let principals = 1..=u64::try_from(count).unwrap_or(0);
    principals
        .map(|principal| (principal, person(if principal == 1 { Rights::Admin } else { Rights::Write })))
        .collect()
}

/// The plainest machine with rights, around the one of a service. It knows only what the simulator asks for: the
/// table is never full here, and there is one key for each name.
pub(crate) struct Governed {
    inner: Box<dyn Double>,
    rights: BTreeMap<u64, Rights>,
    ever: BTreeSet<u64>,
    table: Table,
    /// The number of replicas.
    n: usize,
}

impl Governed {
    pub(crate) fn new(inner: Box<dyn Double>, founders: &BTreeMap<u64, Client>, n: usize) -> Self {
        let rights: BTreeMap<u64, Rights> =
            founders.iter().map(|(who, person)| (*who, person.rights)).collect();
        let ever = rights.keys().copied().collect();
        Self { inner, ever, rights, table: Table::default(), n }
    }

    fn judge(&mut self, who: u64, operation: &[u8]) -> Option<RegistryResult> {
        let Some(rights) = self.rights.get(&who).copied() else { return Some(RegistryResult::NoClient) };
        let Some(order) = RegistryOp::decode(operation) else {
            let reads = quorate_service::kv::Kv.is_read_only(operation);
            return (rights == Rights::Read && !reads).then_some(RegistryResult::NoRight);
        };
        if rights != Rights::Admin {
            return Some(RegistryResult::NoRight);
        }
        let (whom, now) = match order {
            Ok(RegistryOp::Add(whom, person)) => (whom, Some(person.rights)),
            Ok(RegistryOp::Remove(whom)) => (whom, None),
            Ok(RegistryOp::Move(replica, at)) => return Some(self.relocate(replica, at)),
            Ok(RegistryOp::Set(setting, value)) => {
                let before = self.table.settings.insert(setting, value);
                return Some(if before == Some(value) {
                    RegistryResult::AlreadySo
                } else {
                    RegistryResult::Done
                });
            }
            Err(answer) => return Some(answer),
        };
        let before = self.rights.get(&whom).copied();
        let admins = self.rights.values().filter(|rights| **rights == Rights::Admin).count();
        Some(match (before, now) {
            (None, None) if !self.ever.contains(&whom) => RegistryResult::NoClient,
            (before, now) if before == now => RegistryResult::AlreadySo,
            (Some(Rights::Admin), _) if admins == 1 => RegistryResult::LastAdministrator,
            (_, Some(now)) => {
                self.rights.insert(whom, now);
                self.ever.insert(whom);
                RegistryResult::Done
            }
            (_, None) => {
                self.rights.remove(&whom);
                RegistryResult::Done
            }
        })
    }
}

impl Governed {
    /// Returns the answer of the registry, or that of the service.
    fn answer(
        &mut self,
        cx: &Context,
        operation: &[u8],
        inner: impl FnOnce(&mut dyn Double) -> Vec<u8>,
    ) -> Vec<u8> {
        let Some(answer) = self.judge(cx.client.principal(), operation) else {
            return inner(&mut *self.inner);
        };
        let mut result = Vec::new();
        answer.encode(&mut result);
        result
    }

    fn relocate(&mut self, replica: ReplicaId, at: Option<SocketAddr>) -> RegistryResult {
        if replica.index() >= self.n {
            return RegistryResult::Malformed;
        }
        let before = self.table.replicas.get(&replica).copied();
        if before == at {
            return RegistryResult::AlreadySo;
        }
        match at {
            Some(at) => _ = self.table.replicas.insert(replica, at),
            None => _ = self.table.replicas.remove(&replica),
        }
        RegistryResult::Done
    }
}

impl Double for Governed {
    fn read(&mut self, cx: &Context, operation: &[u8]) -> Vec<u8> {
        if operation == Table::read() && self.rights.contains_key(&cx.client.principal()) {
            let mut result = Vec::new();
            self.table.encode(&mut result);
            return result;
        }
        self.answer(cx, operation, |inner| inner.read(cx, operation))
    }

    fn is_admin(&self, principal: u64) -> bool {
        self.rights.get(&principal) == Some(&Rights::Admin)
    }

    fn execute(&mut self, cx: &Context, operation: &[u8]) -> Vec<u8> {
        self.answer(cx, operation, |inner| inner.execute(cx, operation))
    }
}
