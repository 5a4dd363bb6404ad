//! Who may read and write (§15).
//!
//! The *rules* are the same at all servers. So they apply to every version, from every sender: a correct server never
//! accepts what another one refuses by them. The list of *revoked* clients changes at one server before another. So it
//! applies to a client's own STORE, WR, PREPARE and READ-TS-PREP only.

use alloc::collections::{BTreeMap, BTreeSet};

use quorate_wire::{ClientId, Principal};

use crate::version::{Namespace, ObjectId};

/// The most clients that a list can name.
const REVOKED_MAX: usize = 65_536;

/// Whom a rule names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Who {
    /// Every client of the cluster.
    #[default]
    All,
    /// These principals, with all their lanes.
    These(BTreeSet<u64>),
}

impl Who {
    fn has(&self, client: ClientId) -> bool {
        match self {
            Self::All => true,
            Self::These(principals) => principals.contains(&client.principal()),
        }
    }
}

/// The rights on the objects of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Who may read.
    pub readers: Who,
    /// Who may write.
    pub writers: Who,
    /// Principals that may not write any more. What they wrote stays valid, from every sender.
    pub former: BTreeSet<u64>,
}

/// The rights on all namespaces. Without any rule everybody may do everything; with one, nobody may do anything in a
/// namespace without a rule. The administrator's, the same at all servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// By namespace.
    pub by: BTreeMap<Namespace, Rights>,
}

impl Rules {
    fn allow(&self, object: &ObjectId, allows: impl FnOnce(&Rights) -> bool) -> bool {
        self.by.is_empty() || self.by.get(&object.namespace()).is_some_and(allows)
    }

    /// Says whether `from` may read `object`. Servers may: they repair each other.
    pub fn may_read(&self, from: Principal, object: &ObjectId) -> bool {
        match from {
            Principal::Replica(_) => true,
            Principal::Client(client) => {
                self.allow(object, |rights| rights.readers.has(client) || rights.writers.has(client))
            }
        }
    }

    /// Says whether `client` may write `object`.
    pub fn may_write(&self, client: ClientId, object: &ObjectId) -> bool {
        self.allow(object, |rights| rights.writers.has(client))
    }

    /// Says whether `object` may have a version of `client`: it may write now, or could do so before.
    pub fn may_have_written(&self, client: ClientId, object: &ObjectId) -> bool {
        self.allow(object, |rights| rights.writers.has(client) || rights.former.contains(&client.principal()))
    }
}

/// The clients that may not write. It is the administrator's, so no client can make it grow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    revoked: BTreeSet<ClientId>,
}

impl Access {
    pub(crate) fn set(&mut self, client: ClientId, allowed: bool) {
        if allowed {
            self.revoked.remove(&client);
        } else if self.revoked.len() < REVOKED_MAX {
            self.revoked.insert(client);
        }
    }

    pub(crate) fn may_write(&self, client: ClientId, object: &ObjectId, rules: &Rules) -> bool {
        !self.revoked.contains(&client) && rules.may_write(client, object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use quorate_wire::ReplicaId;

    #[test]
    fn a_rule_is_for_its_namespace_and_its_clients() {
        let (alice, bob) = (ClientId::new(1, 7), ClientId::new(2, 0));
        let (ours, theirs) = (ObjectId::new(b"config/", b"a"), ObjectId::new(b"logs/", b"a"));
        let may = |rules: &Rules, client: ClientId, object| {
            [rules.may_read(client.into(), object), rules.may_write(client, object)]
        };
        assert_eq!(may(&Rules::default(), bob, &ours), [true; 2], "no rule at all");
        let only_alice = Who::These([alice.principal()].into());
        let rights =
            Rights { readers: Who::All, writers: only_alice.clone(), former: [bob.principal()].into() };
        let mut rules = Rules { by: [(Namespace::new(b"config/"), rights)].into() };
        assert_eq!(may(&rules, alice, &ours), [true; 2]);
        assert_eq!(may(&rules, bob, &ours), [true, false]);
        assert_eq!(may(&rules, alice, &theirs), [false; 2], "no rule for it");
        let wrote = |client| [&ours, &theirs].map(|object| rules.may_have_written(client, object));
        assert_eq!([alice, bob, ClientId::new(3, 0)].map(wrote), [[true, false], [true, false], [false; 2]]);
        assert!(rules.may_read(ReplicaId(0).into(), &theirs), "a server repairs");
        let secret =
            Rights { readers: Who::These(BTreeSet::new()), writers: only_alice, former: BTreeSet::new() };
        rules.by.insert(Namespace::new(b"logs/"), secret);
        assert_eq!(may(&rules, alice, &theirs), [true; 2], "who may write may read");
        assert_eq!(may(&rules, bob, &theirs), [false; 2]);
    }

    #[test]
    fn the_list_is_bounded_and_can_be_undone() {
        let (mut access, rules) = (Access::default(), Rules::default());
        let object = ObjectId::new(b"", b"a");
        let clients: Vec<ClientId> = (1..=70_000).map(|principal| ClientId::new(principal, 0)).collect();
        for client in &clients {
            access.set(*client, false);
        }
        assert_eq!(access.revoked.len(), REVOKED_MAX);
        assert!(!access.may_write(clients[5], &object, &rules));
        access.set(clients[5], true);
        assert!(access.may_write(clients[5], &object, &rules));
    }
}
