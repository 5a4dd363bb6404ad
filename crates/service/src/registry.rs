//! The client registry: clients with their keys and rights, as pages of the state (EX-3).
//!
//! The clients in the initial configuration of a cluster are its *founders*: all replicas know them from the same
//! file. Later changes are in the state: added clients, with key, rights and address, and removed clients. They are
//! made by ordered operations, so all replicas see a change at the same point of the order. They are written to the
//! same overlay as all other data, so they are undone, checkpointed, transferred and restored together with it.
//!
//! ```text
//! entry, 64 bytes   state 1 | rights 1 | port 2 | - 4 | principal 8 | key 32 | address 16
//! ```
//!
//! The pages are the last ones of the state, before those of the table of lives: one without changes has the digest
//! that it always had.

mod operation;

pub use operation::{Client, MAGIC, RegistryOp, RegistryResult, Rights};

use alloc::collections::BTreeMap;

use quorate_wire::ClientId;

use crate::page::{PageFault, PageStore};
use crate::state::view::View;
use crate::stop::Stop;
use operation::{address, address_bytes};

/// The most clients that were ever added or removed. One more is refused.
pub const ENTRIES_MAX: u32 = 4032;
const ENTRY_BYTES: usize = 64;

/// An entry of the table: the client, or that it was removed, and its place.
type RegistryEntry = (u32, Option<Client>);

/// The clients of a state. At most [`ENTRIES_MAX`] entries in addition to the founders.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    founders: BTreeMap<u64, Client>,
    /// The changes since then, in the committed state.
    committed: BTreeMap<u64, RegistryEntry>,
    /// The same with what the tentative batch has changed, if it has.
    tentative: Option<BTreeMap<u64, RegistryEntry>>,
    /// What the last operation of the tentative batch replaced. A request has one operation at most.
    replaced: Option<(u64, Option<RegistryEntry>)>,
    /// Counts the changes of what is committed.
    version: u64,
}

impl Registry {
    pub(crate) fn new(founders: BTreeMap<u64, Client>) -> Self {
        Self { founders, committed: BTreeMap::new(), tentative: None, replaced: None, version: 0 }
    }

    /// Returns how many pages of a size this table and that of lives take, in whole nodes of the digest tree.
    pub(crate) fn pages(page_bytes: usize) -> u32 {
        let a_page = u32::try_from(page_bytes / ENTRY_BYTES).unwrap_or(1).max(1);
        (ENTRIES_MAX.div_ceil(a_page) + crate::lives::pages(page_bytes)).next_multiple_of(64)
    }

    /// Counts the changes of what is committed.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Calls `each` with every registered client, by the committed state.
    pub(crate) fn for_each(&self, each: &mut dyn FnMut(u64, &Client)) {
        let founders = self.founders.iter().filter(|(principal, _)| !self.committed.contains_key(principal));
        founders.for_each(|(principal, person)| each(*principal, person));
        for (principal, (_, person)) in &self.committed {
            if let Some(person) = person {
                each(*principal, person);
            }
        }
    }

    /// Returns what a client may ask for, as the running batch sees it.
    #[inline]
    pub(crate) fn rights(&self, client: ClientId) -> Option<Rights> {
        self.find(self.tentative.as_ref().unwrap_or(&self.committed), client.principal()).map(|p| p.rights)
    }

    /// Returns what a client may ask for by the committed state.
    #[inline]
    pub(crate) fn committed_rights(&self, client: ClientId) -> Option<Rights> {
        self.find(&self.committed, client.principal()).map(|person| person.rights)
    }

    #[inline]
    fn find<'a>(&'a self, entries: &'a BTreeMap<u64, RegistryEntry>, principal: u64) -> Option<&'a Client> {
        match entries.get(&principal) {
            Some((_, person)) => person.as_ref(),
            None => self.founders.get(&principal),
        }
    }

    /// Executes an operation on the registry by a client with the right to it.
    #[cold]
    pub(crate) fn apply(&mut self, order: RegistryOp, view: &mut View<'_>) -> Result<RegistryResult, Stop> {
        let entries = self.tentative.as_ref().unwrap_or(&self.committed);
        let (principal, wanted) = match order {
            RegistryOp::Add(principal, person) => (principal, Some(person)),
            RegistryOp::Remove(principal) => (principal, None),
        };
        let known = entries.get(&principal);
        let now = self.find(entries, principal).copied();
        let loses_an_administrator = now.is_some_and(|person| person.rights == Rights::Admin)
            && wanted.is_none_or(|person| person.rights != Rights::Admin);
        match (now, wanted) {
            (Some(now), Some(wanted)) if now.key != wanted.key => return Ok(RegistryResult::OtherKey),
            (None, None) if known.is_none() => return Ok(RegistryResult::NoClient),
            (now, wanted) if now == wanted => return Ok(RegistryResult::AlreadySo),
            _ => {}
        }
        if loses_an_administrator && self.administrators(entries) == 1 {
            return Ok(RegistryResult::LastAdministrator);
        }
        let next = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let slot = known.map_or(next, |(slot, _)| *slot);
        if slot >= ENTRIES_MAX {
            return Ok(RegistryResult::Full);
        }
        let a_page = u32::try_from(view.page_bytes() / ENTRY_BYTES).unwrap_or(1).max(1);
        let at = usize::try_from(slot % a_page).unwrap_or(0) * ENTRY_BYTES;
        view.write(slot / a_page, at, &encode_entry(principal, wanted))?;
        let entries = self.tentative.get_or_insert_with(|| self.committed.clone());
        self.replaced = Some((principal, entries.insert(principal, (slot, wanted))));
        Ok(RegistryResult::Done)
    }

    fn administrators(&self, entries: &BTreeMap<u64, RegistryEntry>) -> usize {
        let admin = |person: &Client| person.rights == Rights::Admin;
        let founders = self.founders.iter().filter(|(principal, _)| !entries.contains_key(principal));
        let added = entries.values().filter_map(|(_, person)| person.as_ref());
        founders.filter(|(_, person)| admin(person)).count() + added.filter(|person| admin(person)).count()
    }

    /// The overlay has become part of the state.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if let Some(entries) = self.tentative.take() {
            self.committed = entries;
            self.version += 1;
        }
    }

    /// The overlay has been dropped.
    pub(crate) fn forget(&mut self) {
        self.tentative = None;
    }

    /// The next request of the tentative batch begins.
    pub(crate) fn begin_request(&mut self) {
        self.replaced = None;
    }

    /// What the request has written has been dropped.
    pub(crate) fn undo_request(&mut self) {
        let (Some(entries), Some((principal, before))) = (&mut self.tentative, self.replaced.take()) else {
            return;
        };
        match before {
            Some(entry) => entries.insert(principal, entry),
            None => entries.remove(&principal),
        };
    }

    /// Reads the table from the committed state: from the first of its pages on, all of them.
    pub(crate) fn rebuild(
        &mut self,
        store: &dyn PageStore,
        page_bytes: usize,
        (first, pages): (u32, u32),
    ) -> Result<(), PageFault> {
        self.forget();
        self.committed.clear();
        self.version += 1;
        let a_page = page_bytes / ENTRY_BYTES;
        for page in 0..pages {
            let Some(bytes) = store.get(first + page)? else { break };
            for (at, bytes) in bytes.chunks_exact(ENTRY_BYTES).take(a_page).enumerate() {
                let Some((principal, person)) = decode_entry(bytes) else { return Ok(()) };
                let at = u32::try_from(at).unwrap_or(0);
                let slot = page * u32::try_from(a_page).unwrap_or(0) + at;
                self.committed.insert(principal, (slot, person));
            }
        }
        Ok(())
    }
}

fn encode_entry(principal: u64, person: Option<Client>) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[0] = 2;
    bytes[8..16].copy_from_slice(&principal.to_le_bytes());
    if let Some(person) = person {
        let (ip, port) = address_bytes(person.address);
        bytes[0] = 1;
        bytes[1] = person.rights.to_byte();
        bytes[2..4].copy_from_slice(&port);
        bytes[16..48].copy_from_slice(&person.key);
        bytes[48..].copy_from_slice(&ip);
    }
    bytes
}

/// Reads an entry; none if it is not in use.
fn decode_entry(bytes: &[u8]) -> Option<(u64, Option<Client>)> {
    let bytes: &[u8; ENTRY_BYTES] = bytes.first_chunk()?;
    let principal = u64::from_le_bytes(*bytes[8..].first_chunk()?);
    match bytes[0] {
        1 => {
            let address = address(*bytes[48..].first_chunk()?, [bytes[2], bytes[3]]);
            let (rights, key) = (Rights::from_byte(bytes[1])?, *bytes[16..].first_chunk()?);
            Some((principal, Some(Client { rights, key, address })))
        }
        2 => Some((principal, None)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
