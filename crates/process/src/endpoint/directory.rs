//! The addresses of nodes: each node has its own table of the others. An address of a replica that the state has takes
//! precedence over it (ADR 23).
//!
//! A *place* is a destination of datagrams: one address. Each replica has a place, in the order of their ids. Clients
//! of one process share a place, so that messages to all of them are packed together.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

use quorate_wire::{Principal, ReplicaId};

/// The index of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(usize);

impl Place {
    /// Returns the index, below [`Directory::len`].
    pub fn index(self) -> usize {
        self.0
    }
}

/// The places of all replicas and clients. Only the configuration and administrators can add entries, so it cannot
/// grow otherwise.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    addresses: Vec<SocketAddr>,
    /// The addresses of the replicas in this node's own table.
    replicas: Vec<SocketAddr>,
    /// By key holder: all lanes of a client are one process.
    clients: BTreeMap<u64, Place>,
    /// Counts the changes.
    version: u64,
}

impl Directory {
    /// Returns the directory of the replicas at these addresses, in the order of their ids, without
    /// clients.
    pub fn new(replicas: &[SocketAddr]) -> Self {
        Self { addresses: replicas.to_vec(), replicas: replicas.to_vec(), ..Self::default() }
    }

    /// Sets where the replicas are: at these addresses, and all others where this node's own table says. Returns
    /// whether that changes an address.
    pub fn move_replicas(&mut self, moved: &BTreeMap<ReplicaId, SocketAddr>) -> bool {
        let mut changed = false;
        for (id, (place, own)) in (0..).map(ReplicaId).zip(self.addresses.iter_mut().zip(&self.replicas)) {
            let at = *moved.get(&id).unwrap_or(own);
            changed |= core::mem::replace(place, at) != at;
        }
        self.version += u64::from(changed);
        changed
    }

    /// Adds a client, or changes its address. Clients with the same address share a place. Unused places are reused,
    /// so there are never more places than replicas and clients.
    pub fn add_client(&mut self, client: Principal, address: SocketAddr) {
        self.version += 1;
        self.clients.remove(&client.key_holder());
        let mut places = self.addresses.iter().enumerate().skip(self.replicas.len());
        let known = places.find(|(_, other)| **other == address).map(|(index, _)| Place(index));
        let mut unused = (self.replicas.len()..self.addresses.len()).map(Place);
        let unused = || unused.find(|place| self.clients.values().all(|other| other != place));
        let place = match known.or_else(unused) {
            Some(place) => place,
            None => Place(self.addresses.len()),
        };
        match self.addresses.get_mut(place.0) {
            Some(slot) => *slot = address,
            None => self.addresses.push(address),
        }
        self.clients.insert(client.key_holder(), place);
    }

    /// Removes a client.
    pub fn remove_client(&mut self, client: Principal) {
        self.clients.remove(&client.key_holder());
    }

    /// Returns a number that changes whenever a place may have changed.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the number of places.
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Returns whether there is no place.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Returns the addresses of all places, in order.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the place of a replica.
    #[inline]
    pub fn replica(&self, id: ReplicaId) -> Option<Place> {
        (id.index() < self.replicas.len()).then_some(Place(id.index()))
    }

    /// Returns the places of the replicas, in the order of their ids.
    pub fn replicas(&self) -> impl Iterator<Item = Place> + use<> {
        (0..self.replicas.len()).map(Place)
    }

    /// Returns the place of a principal.
    #[inline]
    pub fn find(&self, whom: Principal) -> Option<Place> {
        match whom {
            Principal::Replica(id) => self.replica(id),
            Principal::Client(_) => self.clients.get(&whom.key_holder()).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_wire::ClientId;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn clients_at_one_address_share_a_place_and_replicas_do_not() {
        let mut directory = Directory::new(&[at(1), at(1)]);
        let client = |principal| Principal::Client(ClientId::new(principal, 3));
        directory.add_client(client(1), at(1));
        directory.add_client(client(2), at(1));
        directory.add_client(client(3), at(9));
        assert_eq!(directory.len(), 4);
        let lane = Principal::Client(ClientId::new(2, 7));
        assert_eq!(directory.find(lane), directory.find(client(1)));
        assert_ne!(directory.find(client(1)), directory.find(client(3)));
        assert_eq!(directory.find(Principal::Replica(ReplicaId(1))).map(Place::index), Some(1));
        assert_eq!(directory.find(Principal::Replica(ReplicaId(2))), None);
        assert_eq!(directory.find(client(4)), None);
    }

    /// ADR 23: the index of a place stays, so what waits for it goes to the right replica.
    #[test]
    fn a_replica_that_moves_keeps_its_place() {
        let mut directory = Directory::new(&[at(1), at(2)]);
        directory.add_client(Principal::Client(ClientId::new(1, 0)), at(8));
        let version = directory.version();
        assert!(!directory.move_replicas(&BTreeMap::new()));
        assert!(!directory.move_replicas(&[(ReplicaId(1), at(2)), (ReplicaId(2), at(5))].into()));
        assert_eq!((directory.version(), directory.len()), (version, 3), "nothing has changed");
        assert!(directory.move_replicas(&[(ReplicaId(1), at(9))].into()));
        assert_eq!(directory.addresses(), [at(1), at(9), at(8)]);
        assert_ne!(directory.version(), version);
        assert!(directory.move_replicas(&BTreeMap::new()), "each node has its own table again");
        assert_eq!(directory.addresses(), [at(1), at(2), at(8)]);
    }

    #[test]
    fn a_place_that_nobody_has_any_more_is_used_again() {
        let mut directory = Directory::new(&[at(1)]);
        let client = |principal| Principal::Client(ClientId::new(principal, 0));
        (1..4).for_each(|principal| directory.add_client(client(principal), at(8)));
        directory.add_client(client(1), at(9));
        assert_eq!(directory.addresses(), [at(1), at(8), at(9)]);
        directory.add_client(client(1), at(7));
        assert_eq!(directory.addresses(), [at(1), at(8), at(7)], "it has moved");
        directory.remove_client(client(1));
        assert_eq!(directory.find(client(1)), None);
        directory.add_client(client(4), at(6));
        assert_eq!(directory.addresses(), [at(1), at(8), at(6)]);
        assert_eq!(directory.find(client(2)), directory.find(client(3)));
    }
}
