//! Worlds in which the state defines the registered clients (EX-3): the authenticators follow it, and the reference
//! model knows the rules.

use std::collections::{BTreeMap, BTreeSet};

use quorate_service::registry::{Client, RegistryOp, RegistryResult, Rights};
use quorate_service::{Context, Service};
use quorate_wire::ClientId;

use crate::app::{App, Double};
use crate::world::World;

/// Returns the first `count` clients: the first one is the administrator.
pub(crate) fn founders(count: usize) -> BTreeMap<u64, Client> {
    let principals = 1..=u64::try_from(count).unwrap_or(0);
    principals
        .map(|principal| (principal, person(if principal == 1 { Rights::Admin } else { Rights::Write })))
        .collect()
}

/// A client with these rights. Its key is whatever this world's client of that number has, so it does not stand here.
pub(crate) fn person(rights: Rights) -> Client {
    Client { rights, key: [0; 32], address: None }
}

/// Reads an order as people write it: `add c1`, `add c1 read`, `remove c1`.
pub(crate) fn parse(text: &str) -> Option<Vec<u8>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let principal = |name: &str| Some(name.strip_prefix('c')?.parse::<u64>().ok()? + 1);
    let order = match *words.as_slice() {
        ["add", name] => RegistryOp::Add(principal(name)?, person(Rights::Write)),
        ["add", name, "read"] => RegistryOp::Add(principal(name)?, person(Rights::Read)),
        ["add", name, "admin"] => RegistryOp::Add(principal(name)?, person(Rights::Admin)),
        ["remove", name] => RegistryOp::Remove(principal(name)?),
        _ => return None,
    };
    let mut bytes = Vec::new();
    order.encode(&mut bytes);
    Some(bytes)
}

/// Shows an order.
pub(crate) fn order_text(operation: &[u8]) -> Option<String> {
    let name = |principal: u64| ClientId::new(principal, 0);
    Some(match RegistryOp::decode(operation)? {
        Ok(RegistryOp::Add(principal, person)) => {
            format!("add {} {}", name(principal), format!("{:?}", person.rights).to_lowercase())
        }
        Ok(RegistryOp::Remove(principal)) => format!("remove {}", name(principal)),
        Err(_) => "(malformed order)".to_owned(),
    })
}

/// Shows the answer to an order, or that there was no right.
pub(crate) fn answer_text(result: &[u8]) -> Option<String> {
    Some(match RegistryResult::decode(result)? {
        RegistryResult::Done => "ok".to_owned(),
        RegistryResult::AlreadySo => "ok, already".to_owned(),
        RegistryResult::NoRight => "refused: no right".to_owned(),
        RegistryResult::NoClient => "refused: no client".to_owned(),
        RegistryResult::NoLane => "refused: table full".to_owned(),
        other @ (RegistryResult::OtherKey
        | RegistryResult::LastAdministrator
        | RegistryResult::Full
        | RegistryResult::Malformed) => {
            format!("refused: {other:?}")
        }
    })
}

/// The plainest machine with rights, around the one of a service. It knows only what the simulator asks for: the
/// table is never full here, and there is one key for each name.
pub(crate) struct Governed {
    inner: Box<dyn Double>,
    rights: BTreeMap<u64, Rights>,
    ever: BTreeSet<u64>,
}

impl Governed {
    pub(crate) fn new(inner: Box<dyn Double>, founders: &BTreeMap<u64, Client>) -> Self {
        let rights: BTreeMap<u64, Rights> =
            founders.iter().map(|(who, person)| (*who, person.rights)).collect();
        Self { inner, ever: rights.keys().copied().collect(), rights }
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

impl Double for Governed {
    fn is_admin(&self, principal: u64) -> bool {
        self.rights.get(&principal) == Some(&Rights::Admin)
    }

    fn execute(&mut self, cx: &Context, operation: &[u8]) -> Vec<u8> {
        match self.judge(cx.client.principal(), operation) {
            None => self.inner.execute(cx, operation),
            Some(answer) => {
                let mut result = Vec::new();
                answer.encode(&mut result);
                result
            }
        }
    }
}

impl<A: App> World<A> {
    /// Returns the clients that the state of host `h` knows, by their index.
    pub fn guests_of(&self, h: usize) -> Vec<u64> {
        let mut known = Vec::new();
        if let Some(process) = &self.hosts[h].process {
            process.executor().registered(&mut |principal, _| known.push(principal - 1));
        }
        known.sort_unstable();
        known
    }
}
