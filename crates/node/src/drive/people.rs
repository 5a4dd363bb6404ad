//! Whom the door lets in: by the committed state, never by what may still be undone (EX-3, TE-4).
//!
//! Whoever is added comes in as soon as that has committed. Whoever is removed stays at the door until the next stable
//! checkpoint: what it asks for is refused by the execution, with an answer; and what others have ordered of it can
//! still be checked here, so that nobody has to leave a view because of a request that has lost its key.

use std::collections::{BTreeMap, BTreeSet};

use quorate_service::Service;
use quorate_wire::sign::PublicKey;
use quorate_wire::{ClientId, Principal};

use super::Drive;
use crate::core::Core;
use crate::directory::Directory;
use crate::journal::Journal;
use crate::meter::Meter;

/// The clients that the door knows, as far as orders can change it. At most as many as the state has.
#[derive(Debug, Default)]
pub(super) struct Guests {
    /// The version of the state's table.
    version: u64,
    /// Their keys, by their principals.
    keys: BTreeMap<u64, [u8; 32]>,
    /// Those whose place is from the state, and not from this node's own table.
    placed: BTreeSet<u64>,
    /// Some of them are removed and not shut out yet.
    leaving: bool,
}

impl<S: Service, M: Meter, J: Journal, C: Core> Drive<S, M, J, C> {
    /// Lets in whom the state knows; and with `shut_out` nobody else.
    #[inline]
    pub(super) fn receive_guests(&mut self, shut_out: bool) {
        let version = self.executor.people_version();
        if version != self.guests.version || shut_out && (self.guests.leaving || self.guests.keys.is_empty())
        {
            self.guests.version = version;
            self.receive_all(shut_out);
        }
    }

    #[cold]
    fn receive_all(&mut self, shut_out: bool) {
        let Self { executor, door, directory, guests, .. } = self;
        let mut gone = guests.keys.clone();
        executor.people(&mut |principal, person| {
            let id = ClientId::new(principal, 0);
            let before = gone.remove(&principal);
            if before != Some(person.key) {
                if before.is_some() {
                    door.remove_client(id);
                }
                // A key that is none lets nobody in.
                door.add_client(id, &PublicKey::Ed25519(person.key));
                guests.keys.insert(principal, person.key);
            }
            if let Some(address) = person.address
                && (guests.placed.contains(&principal) || directory.find(Principal::Client(id)).is_none())
            {
                directory.add_client(Principal::Client(id), address);
                guests.placed.insert(principal);
            }
        });
        guests.leaving = !shut_out && !gone.is_empty();
        if shut_out {
            for principal in gone.into_keys() {
                let id = ClientId::new(principal, 0);
                door.remove_client(id);
                if guests.placed.remove(&principal) {
                    directory.remove_client(Principal::Client(id));
                }
                guests.keys.remove(&principal);
            }
        }
    }

    /// Returns who is where: clients that are added have a place, too.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }
}
