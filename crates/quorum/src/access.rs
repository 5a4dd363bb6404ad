//! Who may read and write (§15).
//!
//! The *rules* are the same at all servers. So they apply to every version, from every sender: a correct server never
//! accepts what another one refuses by them. The *access list* narrows them. An administrator signs it, and it reaches one
//! server before another. So it applies to what a client asks for itself only: reads, and its own STORE, WR, PREPARE and
//! READ-TS-PREP. The same holds for the clients that an owner of a server revokes there.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};
use quorate_wire::{ClientId, Digest, Principal};

use crate::crypto::{Crypto, Signature, Statement};
use crate::version::{Namespace, ObjectId};

/// The most namespaces of an access list, and the most clients in one place of it.
const LIST_MAX: u16 = 1024;

/// What an access list is signed as, and what it is on a disk: no key has this name.
pub const ACCESS: ObjectId = ObjectId([0xff; 32]);

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
    pub(crate) fn has(&self, client: ClientId) -> bool {
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

/// Who may read and write now, of those that the rules permit. A namespace without an entry is as the rules say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessList {
    /// Rises with each list. The list without a signature, of a new cluster, has 0.
    pub number: u64,
    /// Readers and writers, by namespace. At most 1,024, with at most 1,024 clients each.
    pub by: BTreeMap<Namespace, (Who, Who)>,
}

/// An access list with its administrator's signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedList {
    /// The list.
    pub list: AccessList,
    /// Who signed it.
    pub administrator: ClientId,
    /// The signature on [`AccessList::statement`].
    pub signature: Signature,
}

impl AccessList {
    pub(crate) fn allows(&self, object: &ObjectId, allows: impl FnOnce(&(Who, Who)) -> bool) -> bool {
        self.by.get(&object.namespace()).is_none_or(allows)
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.number);
        w.count16(self.by.len());
        for (namespace, (readers, writers)) in &self.by {
            w.bytes(&namespace.0);
            for who in [readers, writers] {
                match who {
                    Who::All => w.u8(0),
                    Who::These(principals) => {
                        w.u8(1);
                        w.count16(principals.len());
                        for principal in principals {
                            w.u64(*principal);
                        }
                    }
                }
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        let mut list = Self { number: r.u64()?, by: BTreeMap::new() };
        for _ in 0..r.count16(LIST_MAX)? {
            let namespace = Namespace(r.array()?);
            let both = (who(r)?, who(r)?);
            if list.by.last_key_value().is_some_and(|(before, _)| *before >= namespace) {
                return Err(DecodeError::NotCanonical);
            }
            list.by.insert(namespace, both);
        }
        Ok(list)
    }

    /// Returns what an administrator signs, about [`ACCESS`].
    pub fn statement(&self) -> Statement {
        Statement::Access(self.digest())
    }

    fn digest(&self) -> Digest {
        let mut bytes = Vec::new();
        self.encode(&mut Writer::new(&mut bytes));
        Digest(blake3::derive_key("quorate/1/quorum/access", &bytes))
    }

    /// Returns the place in the order of lists. If an administrator signs two lists with one number, all servers keep the
    /// same one.
    pub fn rank(&self) -> (u64, Digest) {
        (self.number, self.digest())
    }
}

fn who(r: &mut Reader<'_>) -> Decoded<Who> {
    if !r.bool()? {
        return Ok(Who::All);
    }
    let mut principals = BTreeSet::new();
    for _ in 0..r.count16(LIST_MAX)? {
        let principal = r.u64()?;
        if principals.last().is_some_and(|before| *before >= principal) {
            return Err(DecodeError::NotCanonical);
        }
        principals.insert(principal);
    }
    Ok(Who::These(principals))
}

impl SignedList {
    /// Says whether one of these administrators of the cluster signed it.
    pub fn is_valid(&self, administrators: &BTreeSet<u64>, crypto: &mut dyn Crypto) -> bool {
        let Self { list, administrator, signature } = self;
        administrators.contains(&administrator.principal())
            && crypto.verify(Principal::from(*administrator), &ACCESS, &list.statement(), signature)
    }

    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        self.list.encode(w);
        w.u64(self.administrator.0);
        w.bytes(&self.signature);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        Ok(Self { list: AccessList::decode(r)?, administrator: ClientId(r.u64()?), signature: r.array()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
