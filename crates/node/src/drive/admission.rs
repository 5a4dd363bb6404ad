//! Which clients the authenticator accepts: by the committed state, never by one that may still be undone (EX-3, TE-4).
//!
//! An added client is accepted as soon as its addition has committed. The key of a removed client stays until the next
//! stable checkpoint. Execution refuses its requests with an answer, and its requests that are already ordered can still
//! be verified, so that no replica has to leave a view because of a request without a key.

use std::collections::{BTreeMap, BTreeSet};

use quorate_service::Service;
use quorate_wire::sign::PublicKey;
use quorate_wire::{ClientId, Principal};

use super::Drive;
use crate::core::Core;
use crate::directory::Directory;
use crate::journal::Journal;
use crate::meter::Meter;

/// The clients that the authenticator knows, as far as ordered operations can change them. At most as many as in the
/// state.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// The version of the client registry.
    version: u64,
    /// Their keys, by their principals.
    keys: BTreeMap<u64, [u8; 32]>,
    /// Clients whose place is from the state, not from this node's own table.
    placed: BTreeSet<u64>,
    /// Whether some are removed and still accepted.
    leaving: bool,
}

impl<S: Service, M: Meter, J: Journal, C: Core> Drive<S, M, J, C> {
    /// Accepts the clients in the state. With `shut_out`, no others are accepted any more.
    #[inline]
    pub(super) fn admit_clients(&mut self, shut_out: bool) {
        let version = self.executor.registry_version();
        if version != self.admission.version
            || shut_out && (self.admission.leaving || self.admission.keys.is_empty())
        {
            self.admission.version = version;
            self.receive_all(shut_out);
        }
    }

    #[cold]
    fn receive_all(&mut self, shut_out: bool) {
        let Self { executor, door, directory, admission, .. } = self;
        let mut gone = admission.keys.clone();
        executor.registered(&mut |principal, person| {
            let id = ClientId::new(principal, 0);
            let before = gone.remove(&principal);
            if before != Some(person.key) {
                if before.is_some() {
                    door.remove_client(id);
                }
                // An invalid key accepts no client.
                door.add_client(id, &PublicKey::Ed25519(person.key));
                admission.keys.insert(principal, person.key);
            }
            if let Some(address) = person.address
                && (admission.placed.contains(&principal) || directory.find(Principal::Client(id)).is_none())
            {
                directory.add_client(Principal::Client(id), address);
                admission.placed.insert(principal);
            }
        });
        admission.leaving = !shut_out && !gone.is_empty();
        if shut_out {
            for principal in gone.into_keys() {
                let id = ClientId::new(principal, 0);
                door.remove_client(id);
                if admission.placed.remove(&principal) {
                    directory.remove_client(Principal::Client(id));
                }
                admission.keys.remove(&principal);
            }
        }
    }

    /// Returns the places of nodes, including added clients.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }
}
