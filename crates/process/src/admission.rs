//! Which clients the authenticator accepts, and where the replicas are: by the committed state, never by one that may
//! still be undone (EX-3, TE-4, ADR 23).
//!
//! An added client is accepted as soon as its addition has committed. The key of a removed client stays until the next
//! stable checkpoint. Execution refuses its requests with an answer, and its requests that are already ordered can still
//! be verified, so that no replica has to leave a view because of a request without a key.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

use quorate_service::page::PageStore;
use quorate_service::registry::Client;
use quorate_service::{Executor, Service};
use quorate_wire::sign::PublicKey;
use quorate_wire::{ClientId, Principal};

use crate::endpoint::Endpoint;

/// Where the public keys of registered clients come from.
pub trait KeySource: core::fmt::Debug + Send {
    /// Returns the public key of a registered client.
    fn public(&self, principal: u64, client: &Client) -> PublicKey;
}

/// The keys in the client registry.
#[derive(Clone, Copy, Debug)]
pub struct FromState;

impl KeySource for FromState {
    fn public(&self, _principal: u64, client: &Client) -> PublicKey {
        PublicKey::Ed25519(client.key)
    }
}

/// The clients that the authenticator knows, as far as ordered operations can change them. At most as many as in the
/// state.
#[derive(Debug)]
pub(crate) struct Admission {
    source: Box<dyn KeySource>,
    /// The version of the client registry.
    version: u64,
    /// Their keys, by their principals.
    keys: BTreeMap<u64, [u8; 32]>,
    /// Clients whose place is from the state, not from this node's own table.
    placed: BTreeSet<u64>,
    /// Whether some are removed and still accepted.
    leaving: bool,
}

impl Default for Admission {
    fn default() -> Self {
        Self::new(Box::new(FromState))
    }
}

impl Admission {
    pub(crate) fn new(source: Box<dyn KeySource>) -> Self {
        Self { source, version: 0, keys: BTreeMap::new(), placed: BTreeSet::new(), leaving: false }
    }

    /// Accepts the clients in the state, and sends to replicas where it says they are. With `shut_out`, no other clients
    /// are accepted any more.
    #[inline]
    pub(crate) fn follow<S: Service, P: PageStore>(
        &mut self,
        executor: &Executor<S, P>,
        endpoint: &mut Endpoint,
        shut_out: bool,
    ) {
        let version = executor.registry_version();
        if version != self.version || shut_out && (self.leaving || self.keys.is_empty()) {
            self.version = version;
            self.receive_all(executor, endpoint, shut_out);
        }
    }

    #[cold]
    fn receive_all<S: Service, P: PageStore>(
        &mut self,
        executor: &Executor<S, P>,
        endpoint: &mut Endpoint,
        shut_out: bool,
    ) {
        let (door, directory) = endpoint.parts_mut();
        let Self { source, keys, placed, leaving, .. } = self;
        if directory.move_replicas(&executor.table().replicas) {
            // What was sent to the old address is lost.
            door.announce();
        }
        let mut gone = keys.clone();
        executor.registered(&mut |principal, person| {
            let id = ClientId::new(principal, 0);
            let before = gone.remove(&principal);
            if before != Some(person.key) {
                if before.is_some() {
                    door.remove_client(id);
                }
                // An invalid key accepts no client.
                door.add_client(id, &source.public(principal, person));
                keys.insert(principal, person.key);
            }
            if let Some(address) = person.address
                && (placed.contains(&principal) || directory.find(Principal::Client(id)).is_none())
            {
                directory.add_client(Principal::Client(id), address);
                placed.insert(principal);
            }
        });
        *leaving = !shut_out && !gone.is_empty();
        if shut_out {
            for principal in gone.into_keys() {
                let id = ClientId::new(principal, 0);
                door.remove_client(id);
                if placed.remove(&principal) {
                    directory.remove_client(Principal::Client(id));
                }
                keys.remove(&principal);
            }
        }
    }
}
