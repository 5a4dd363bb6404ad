//! The client registry: clients with their keys and rights, as pages of the state (EX-3). Also the addresses of
//! replicas that have moved, and settings that were changed while the cluster ran (ADR 23).
//!
//! The clients in the initial configuration of a cluster are its *founders*: all replicas know them from the same
//! file. Later changes are in the state: added clients, with key, rights and address, and removed clients. They are
//! made by ordered operations, so all replicas see a change at the same point of the order. They are written to the
//! same overlay as all other data, so they are undone, checkpointed, transferred and restored together with it.
//!
//! ```text
//! entry, 64 bytes   1 | rights 1 | port 2 | - 4 | principal 8 | key 32 | address 16     a client
//!                   2 | - 7 | principal 8 | - 48                                        a client that was removed
//!                   3 | - 1 | port 2 | - 4 | replica 8 | - 32 | address 16              where a replica is
//!                   4 | - 7 | setting 8 | value 8 | - 40                                a setting
//! ```
//!
//! Port 0 of a replica stands for no address: every node has its own table (ADR 23).
//!
//! The pages are the last ones of the state, before those of the table of lives: one without changes has the digest
//! that it always had.

mod operation;
mod table;

pub use operation::{Client, MAGIC, RegistryOp, RegistryResult, Rights, Setting};
pub use table::Table;

use alloc::collections::BTreeMap;
use core::net::SocketAddr;

use quorate_wire::{ClientId, ReplicaId};

use crate::page::{PageFault, PageStore};
use crate::state::view::View;
use crate::stop::Stop;
use operation::{address, address_bytes};

/// The most clients that were ever added or removed, replicas that have moved and settings that were set. One more is
/// refused.
pub const ENTRIES_MAX: u32 = 4032;
const ENTRY_BYTES: usize = 64;

/// What an entry of the table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Client(u64),
    Replica(ReplicaId),
    Setting(Setting),
}

/// What an entry says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// The client, or that it was removed.
    Client(Option<Client>),
    /// Where the replica is. None: as every node's own table says.
    Address(Option<SocketAddr>),
    Value(u64),
}

impl Content {
    fn client(&self) -> Option<&Client> {
        match self {
            Self::Client(person) => person.as_ref(),
            Self::Address(_) | Self::Value(_) => None,
        }
    }
}

/// An entry of the table, and its place.
type RegistryEntry = (u32, Content);

/// The clients of a state. At most [`ENTRIES_MAX`] entries in addition to the founders.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    founders: BTreeMap<u64, Client>,
    /// The number of replicas.
    n: u16,
    /// The changes since then, in the committed state.
    committed: BTreeMap<Subject, RegistryEntry>,
    /// The same with what the tentative batch has changed, if it has.
    tentative: Option<BTreeMap<Subject, RegistryEntry>>,
    /// What the last operation of the tentative batch replaced. A request has one operation at most.
    replaced: Option<(Subject, Option<RegistryEntry>)>,
    /// Counts the changes of what is committed.
    version: u64,
}

impl Registry {
    pub(crate) fn new(founders: BTreeMap<u64, Client>, n: u16) -> Self {
        Self { founders, n, committed: BTreeMap::new(), tentative: None, replaced: None, version: 0 }
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
        let is_changed = |principal: &u64| self.committed.contains_key(&Subject::Client(*principal));
        let founders = self.founders.iter().filter(|(principal, _)| !is_changed(principal));
        founders.for_each(|(principal, person)| each(*principal, person));
        for (subject, (_, content)) in &self.committed {
            if let (Subject::Client(principal), Some(person)) = (subject, content.client()) {
                each(*principal, person);
            }
        }
    }

    /// Returns the addresses of replicas and the settings in the committed state.
    pub(crate) fn table(&self) -> Table {
        let mut table = Table::default();
        for (subject, (_, content)) in &self.committed {
            match (subject, content) {
                (Subject::Replica(replica), Content::Address(Some(at))) => {
                    table.replicas.insert(*replica, *at);
                }
                (Subject::Setting(setting), Content::Value(value)) => {
                    table.settings.insert(*setting, *value);
                }
                _ => {}
            }
        }
        table
    }

    /// Returns the value of a setting, as the running batch sees it. None: it was not set.
    pub(crate) fn setting(&self, setting: Setting) -> Option<u64> {
        let entries = self.tentative.as_ref().unwrap_or(&self.committed);
        match entries.get(&Subject::Setting(setting)) {
            Some((_, Content::Value(value))) => Some(*value),
            _ => None,
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
    fn find<'a>(
        &'a self,
        entries: &'a BTreeMap<Subject, RegistryEntry>,
        principal: u64,
    ) -> Option<&'a Client> {
        match entries.get(&Subject::Client(principal)) {
            Some((_, content)) => content.client(),
            None => self.founders.get(&principal),
        }
    }

    /// Executes an operation on the registry by a client with the right to it.
    #[cold]
    pub(crate) fn apply(&mut self, order: RegistryOp, view: &mut View<'_>) -> Result<RegistryResult, Stop> {
        let entries = self.tentative.as_ref().unwrap_or(&self.committed);
        let (subject, wanted) = match order {
            RegistryOp::Add(principal, person) => (Subject::Client(principal), Content::Client(Some(person))),
            RegistryOp::Remove(principal) => (Subject::Client(principal), Content::Client(None)),
            RegistryOp::Move(replica, address) => (Subject::Replica(replica), Content::Address(address)),
            RegistryOp::Set(setting, value) => (Subject::Setting(setting), Content::Value(value)),
        };
        if let Some(answer) = self.refusal(entries, subject, wanted) {
            return Ok(answer);
        }
        let next = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let slot = entries.get(&subject).map_or(next, |(slot, _)| *slot);
        if slot >= ENTRIES_MAX {
            return Ok(RegistryResult::Full);
        }
        let a_page = u32::try_from(view.page_bytes() / ENTRY_BYTES).unwrap_or(1).max(1);
        let at = usize::try_from(slot % a_page).unwrap_or(0) * ENTRY_BYTES;
        view.write(slot / a_page, at, &encode_entry(subject, wanted))?;
        let entries = self.tentative.get_or_insert_with(|| self.committed.clone());
        self.replaced = Some((subject, entries.insert(subject, (slot, wanted))));
        Ok(RegistryResult::Done)
    }

    /// Returns why nothing is changed. None: an entry is to be written.
    fn refusal(
        &self,
        entries: &BTreeMap<Subject, RegistryEntry>,
        subject: Subject,
        wanted: Content,
    ) -> Option<RegistryResult> {
        let known = entries.get(&subject).map(|(_, content)| *content);
        match (subject, wanted) {
            (Subject::Client(principal), Content::Client(wanted)) => {
                let now = self.find(entries, principal).copied();
                match (now, wanted) {
                    (Some(now), Some(wanted)) if now.key != wanted.key => {
                        return Some(RegistryResult::OtherKey);
                    }
                    (None, None) if known.is_none() => return Some(RegistryResult::NoClient),
                    (now, wanted) if now == wanted => return Some(RegistryResult::AlreadySo),
                    _ => {}
                }
                let is_admin = |person: Option<Client>| person.is_some_and(|p| p.rights == Rights::Admin);
                let is_last = is_admin(now) && !is_admin(wanted) && self.administrators(entries) == 1;
                is_last.then_some(RegistryResult::LastAdministrator)
            }
            (Subject::Replica(replica), _) if replica.0 >= self.n => Some(RegistryResult::Malformed),
            // It was never moved.
            (Subject::Replica(_), Content::Address(None)) if known.is_none() => {
                Some(RegistryResult::AlreadySo)
            }
            _ => (known == Some(wanted)).then_some(RegistryResult::AlreadySo),
        }
    }

    fn administrators(&self, entries: &BTreeMap<Subject, RegistryEntry>) -> usize {
        let admin = |person: &Client| person.rights == Rights::Admin;
        let is_changed = |principal: &u64| entries.contains_key(&Subject::Client(*principal));
        let founders = self.founders.iter().filter(|(principal, _)| !is_changed(principal));
        let added = entries.values().filter_map(|(_, content)| content.client());
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
        let (Some(entries), Some((subject, before))) = (&mut self.tentative, self.replaced.take()) else {
            return;
        };
        match before {
            Some(entry) => entries.insert(subject, entry),
            None => entries.remove(&subject),
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
                let Some((subject, content)) = decode_entry(bytes) else { return Ok(()) };
                let at = u32::try_from(at).unwrap_or(0);
                let slot = page * u32::try_from(a_page).unwrap_or(0) + at;
                self.committed.insert(subject, (slot, content));
            }
        }
        Ok(())
    }
}

fn encode_entry(subject: Subject, content: Content) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    let (kind, number) = match subject {
        Subject::Client(principal) => (if content.client().is_some() { 1 } else { 2 }, principal),
        Subject::Replica(replica) => (3, u64::from(replica.0)),
        Subject::Setting(setting) => (4, u64::from(setting.number())),
    };
    bytes[0] = kind;
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    let mut put_address = |address| {
        let (ip, port) = address_bytes(address);
        bytes[2..4].copy_from_slice(&port);
        bytes[48..].copy_from_slice(&ip);
    };
    match content {
        Content::Client(None) => {}
        Content::Client(Some(person)) => {
            put_address(person.address);
            bytes[1] = person.rights.to_byte();
            bytes[16..48].copy_from_slice(&person.key);
        }
        Content::Address(address) => put_address(address),
        Content::Value(value) => bytes[16..24].copy_from_slice(&value.to_le_bytes()),
    }
    bytes
}

/// Reads an entry; none if it is not in use.
fn decode_entry(bytes: &[u8]) -> Option<(Subject, Content)> {
    let bytes: &[u8; ENTRY_BYTES] = bytes.first_chunk()?;
    let number = u64::from_le_bytes(*bytes[8..].first_chunk()?);
    let short = || u16::try_from(number).ok();
    let address = || Some(address(*bytes[48..].first_chunk()?, [bytes[2], bytes[3]]));
    Some(match bytes[0] {
        1 => {
            let (rights, key) = (Rights::from_byte(bytes[1])?, *bytes[16..].first_chunk()?);
            let person = Client { rights, key, address: address()? };
            (Subject::Client(number), Content::Client(Some(person)))
        }
        2 => (Subject::Client(number), Content::Client(None)),
        3 => (Subject::Replica(ReplicaId(short()?)), Content::Address(address()?)),
        4 => {
            let value = u64::from_le_bytes(*bytes[16..].first_chunk()?);
            (Subject::Setting(Setting::of_number(short()?)?), Content::Value(value))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
