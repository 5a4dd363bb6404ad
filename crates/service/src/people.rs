//! The client registry: clients with their keys and rights, as pages of the state (EX-3).
//!
//! The clients in the initial configuration of a cluster are its *founders*: all replicas know them from the same
//! file. Later changes are in the state: added clients, with key, rights and address, and removed clients. They are
//! made by ordered operations, so all replicas see a change at the same point of the order. They are written to the
//! same overlay as all other data, so they are undone, checkpointed, transferred and restored together with it.
//!
//! ```text
//! entry, 64 bytes   state 1 | rights 1 | port 2 | - 4 | principal 8 | key 32 | address 16
//! order             MAGIC 16 | 1 principal 8 | rights 1 | key 32 | address 16 | port 2       add, or change
//!                   MAGIC 16 | 2 principal 8                                                remove
//! answer            MAGIC 16 | what 1
//! ```
//!
//! The pages are the last ones of the state, before those of the table of lives: one without changes has the digest
//! that it always had.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use quorate_wire::ClientId;

use crate::page::{PageFault, PageStore};
use crate::stop::Stop;
use crate::view::View;

/// What every order and its answer begin with. An operation of a service that begins with it never reaches the
/// service.
pub const MAGIC: [u8; 16] = *b"\xff\xfequorate people";
/// The most clients that were ever added or removed. One more is refused.
pub const ENTRIES_MAX: u32 = 4032;
const ENTRY_BYTES: usize = 64;

/// The rights of a client. Each includes the previous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rights {
    /// Operations that change nothing.
    Read,
    /// All operations of the service.
    Write,
    /// Also to add and remove clients.
    Admin,
}

impl Rights {
    fn to_byte(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
            Self::Admin => 3,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Read, Self::Write, Self::Admin].into_iter().find(|rights| rights.to_byte() == byte)
    }
}

/// A client that may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Person {
    /// Its rights.
    pub rights: Rights,
    /// Its public key.
    pub key: [u8; 32],
    /// Its address for replies. None: every replica has its own table.
    pub address: Option<SocketAddr>,
}

/// A change of who may ask for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Adds the client, or gives one with this key these rights and this address.
    Add(u64, Person),
    /// From here on nothing that the client asks for is done.
    Remove(u64),
}

/// The result of an operation on the registry, or why an operation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is so now.
    Done,
    /// It was so already.
    AlreadySo,
    /// The requesting client lacks the right.
    NoRight,
    /// The requesting client was removed or not added yet; or the client to change never existed.
    NoClient,
    /// There is a client of this number with another key.
    OtherKey,
    /// Nobody could add or remove clients any more.
    LastAdministrator,
    /// There have been [`ENTRIES_MAX`] others.
    Full,
    /// Not an order.
    Malformed,
    /// The client table has no place for another lane of this client: nothing was done, nor will be.
    NoLane,
}

impl Answer {
    const ALL: [Self; 9] = [
        Self::Done,
        Self::AlreadySo,
        Self::NoRight,
        Self::NoClient,
        Self::OtherKey,
        Self::LastAdministrator,
        Self::Full,
        Self::Malformed,
        Self::NoLane,
    ];

    /// Appends the answer as a result.
    pub fn encode(self, out: &mut Vec<u8>) {
        let code = Self::ALL.iter().position(|answer| *answer == self).and_then(|at| u8::try_from(at).ok());
        out.extend_from_slice(&MAGIC);
        out.push(code.unwrap_or(u8::MAX));
    }

    /// Returns the answer that a result is. None: it is the service's.
    pub fn decode(result: &[u8]) -> Option<Self> {
        let [code] = result.strip_prefix(&MAGIC)? else { return None };
        Self::ALL.get(usize::from(*code)).copied()
    }
}

impl Order {
    /// Appends the order as an operation.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        match self {
            Self::Add(principal, person) => {
                out.push(1);
                out.extend_from_slice(&principal.to_le_bytes());
                out.push(person.rights.to_byte());
                out.extend_from_slice(&person.key);
                let (ip, port) = address_bytes(person.address);
                out.extend_from_slice(&ip);
                out.extend_from_slice(&port);
            }
            Self::Remove(principal) => {
                out.push(2);
                out.extend_from_slice(&principal.to_le_bytes());
            }
        }
    }

    /// Reads the order that an operation is. None: the operation is the service's.
    pub fn decode(operation: &[u8]) -> Option<Result<Self, Answer>> {
        Some(Self::decode_body(operation.strip_prefix(&MAGIC)?).ok_or(Answer::Malformed))
    }

    fn decode_body(body: &[u8]) -> Option<Self> {
        let (code, body) = body.split_first()?;
        let (principal, body) = body.split_first_chunk()?;
        let principal = u64::from_le_bytes(*principal);
        if !(1..1 << 48).contains(&principal) {
            return None;
        }
        match (code, body) {
            (1, [rights, body @ ..]) => {
                let rights = Rights::from_byte(*rights)?;
                let (key, body) = body.split_first_chunk()?;
                let (ip, port) = body.split_first_chunk()?;
                let address = address(*ip, port.try_into().ok()?);
                Some(Self::Add(principal, Person { rights, key: *key, address }))
            }
            (2, []) => Some(Self::Remove(principal)),
            _ => None,
        }
    }
}

/// An IPv4 address stands as one of IPv6; port 0 is no address.
fn address_bytes(address: Option<SocketAddr>) -> ([u8; 16], [u8; 2]) {
    let Some(address) = address else { return ([0; 16], [0; 2]) };
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    (ip.octets(), address.port().to_le_bytes())
}

fn address(ip: [u8; 16], port: [u8; 2]) -> Option<SocketAddr> {
    let port = u16::from_le_bytes(port);
    let ip = Ipv6Addr::from(ip);
    (port != 0).then(|| SocketAddr::new(ip.to_canonical(), port))
}

/// An entry of the table: the client, or that it was removed, and its place.
type Entry = (u32, Option<Person>);

/// The clients of a state. At most [`ENTRIES_MAX`] entries in addition to the founders.
#[derive(Clone, Debug)]
pub(crate) struct People {
    founders: BTreeMap<u64, Person>,
    /// The changes since then, in the committed state.
    committed: BTreeMap<u64, Entry>,
    /// The same with what the tentative batch has changed, if it has.
    tentative: Option<BTreeMap<u64, Entry>>,
    /// Counts the changes of what is committed.
    version: u64,
}

impl People {
    pub(crate) fn new(founders: BTreeMap<u64, Person>) -> Self {
        Self { founders, committed: BTreeMap::new(), tentative: None, version: 0 }
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

    /// Calls `each` with every client that may come in, by the committed state.
    pub(crate) fn for_each(&self, each: &mut dyn FnMut(u64, &Person)) {
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
    fn find<'a>(&'a self, entries: &'a BTreeMap<u64, Entry>, principal: u64) -> Option<&'a Person> {
        match entries.get(&principal) {
            Some((_, person)) => person.as_ref(),
            None => self.founders.get(&principal),
        }
    }

    /// Executes an operation on the registry by a client with the right to it.
    #[cold]
    pub(crate) fn obey(&mut self, order: Order, view: &mut View<'_>) -> Result<Answer, Stop> {
        let entries = self.tentative.as_ref().unwrap_or(&self.committed);
        let (principal, wanted) = match order {
            Order::Add(principal, person) => (principal, Some(person)),
            Order::Remove(principal) => (principal, None),
        };
        let known = entries.get(&principal);
        let now = self.find(entries, principal).copied();
        let loses_an_administrator = now.is_some_and(|person| person.rights == Rights::Admin)
            && wanted.is_none_or(|person| person.rights != Rights::Admin);
        match (now, wanted) {
            (Some(now), Some(wanted)) if now.key != wanted.key => return Ok(Answer::OtherKey),
            (None, None) if known.is_none() => return Ok(Answer::NoClient),
            (now, wanted) if now == wanted => return Ok(Answer::AlreadySo),
            _ => {}
        }
        if loses_an_administrator && self.administrators(entries) == 1 {
            return Ok(Answer::LastAdministrator);
        }
        let next = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let slot = known.map_or(next, |(slot, _)| *slot);
        if slot >= ENTRIES_MAX {
            return Ok(Answer::Full);
        }
        let a_page = u32::try_from(view.page_bytes() / ENTRY_BYTES).unwrap_or(1).max(1);
        let at = usize::try_from(slot % a_page).unwrap_or(0) * ENTRY_BYTES;
        view.write(slot / a_page, at, &encode_entry(principal, wanted))?;
        self.tentative.get_or_insert_with(|| self.committed.clone()).insert(principal, (slot, wanted));
        Ok(Answer::Done)
    }

    fn administrators(&self, entries: &BTreeMap<u64, Entry>) -> usize {
        let admin = |person: &Person| person.rights == Rights::Admin;
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

fn encode_entry(principal: u64, person: Option<Person>) -> [u8; ENTRY_BYTES] {
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
fn decode_entry(bytes: &[u8]) -> Option<(u64, Option<Person>)> {
    let bytes: &[u8; ENTRY_BYTES] = bytes.first_chunk()?;
    let principal = u64::from_le_bytes(*bytes[8..].first_chunk()?);
    match bytes[0] {
        1 => {
            let address = address(*bytes[48..].first_chunk()?, [bytes[2], bytes[3]]);
            let (rights, key) = (Rights::from_byte(bytes[1])?, *bytes[16..].first_chunk()?);
            Some((principal, Some(Person { rights, key, address })))
        }
        2 => Some((principal, None)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
