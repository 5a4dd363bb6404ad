//! Operations that change the client registry, and their results (EX-3).
//!
//! ```text
//! operation         MAGIC 16 | 1 principal 8 | rights 1 | key 32 | address 16 | port 2       add, or change
//!                   MAGIC 16 | 2 principal 8                                                remove
//!                   MAGIC 16 | 3 replica 2 | address 16 | port 2                            move a replica
//!                   MAGIC 16 | 4 setting 2 | value 8                                        set
//! result            MAGIC 16 | what 1
//! ```

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use quorate_wire::ReplicaId;

/// What every operation on the registry and its result begin with. An operation of a service that begins with it never
/// reaches the service.
pub const MAGIC: [u8; 16] = *b"\xff\xfequorate people";
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
    pub(super) fn to_byte(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
            Self::Admin => 3,
        }
    }

    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Read, Self::Write, Self::Admin].into_iter().find(|rights| rights.to_byte() == byte)
    }
}

/// A registered client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its rights.
    pub rights: Rights,
    /// Its public key.
    pub key: [u8; 32],
    /// Its address for replies. None: every replica has its own table.
    pub address: Option<SocketAddr>,
}

/// A setting of the cluster that an ordered operation changes: it is read only while a batch is executed, from the
/// state as of that batch (ADR 23).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// How many lanes of one client have a last reply that is kept.
    ClientLanesMax,
}

impl Setting {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::ClientLanesMax];

    /// Returns the name that it has in `cluster.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClientLanesMax => "client_lanes_max",
        }
    }

    /// Returns whether it can have a value.
    pub fn allows(self, value: u64) -> bool {
        match self {
            Self::ClientLanesMax => (1..=65_536).contains(&value),
        }
    }

    pub(super) fn number(self) -> u16 {
        match self {
            Self::ClientLanesMax => 1,
        }
    }

    pub(super) fn of_number(number: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|setting| setting.number() == number)
    }
}

/// An operation on the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryOp {
    /// Adds the client, or gives one with this key these rights and this address.
    Add(u64, Client),
    /// From here on nothing that the client asks for is done.
    Remove(u64),
    /// The replica has this address. None: every node has its own table.
    Move(ReplicaId, Option<SocketAddr>),
    /// The setting has this value.
    Set(Setting, u64),
}

/// The result of an operation on the registry, or why an operation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryResult {
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
    /// There have been `ENTRIES_MAX` others.
    Full,
    /// Not an operation on the registry.
    Malformed,
    /// The client table has no place for another lane of this client: nothing was done, nor will be.
    NoLane,
}

impl RegistryResult {
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

    /// Appends the result.
    pub fn encode(self, out: &mut Vec<u8>) {
        let code = Self::ALL.iter().position(|answer| *answer == self).and_then(|at| u8::try_from(at).ok());
        out.extend_from_slice(&MAGIC);
        out.push(code.unwrap_or(u8::MAX));
    }

    /// Returns the result of an operation on the registry. None: it is the service's.
    pub fn decode(result: &[u8]) -> Option<Self> {
        let [code] = result.strip_prefix(&MAGIC)? else { return None };
        Self::ALL.get(usize::from(*code)).copied()
    }
}

impl RegistryOp {
    /// Appends the operation.
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
            Self::Move(replica, address) => {
                out.push(3);
                out.extend_from_slice(&replica.0.to_le_bytes());
                let (ip, port) = address_bytes(*address);
                out.extend_from_slice(&ip);
                out.extend_from_slice(&port);
            }
            Self::Set(setting, value) => {
                out.push(4);
                out.extend_from_slice(&setting.number().to_le_bytes());
                out.extend_from_slice(&value.to_le_bytes());
            }
        }
    }

    /// Reads an operation on the registry. None: the operation is the service's.
    pub fn decode(operation: &[u8]) -> Option<Result<Self, RegistryResult>> {
        Some(Self::decode_body(operation.strip_prefix(&MAGIC)?).ok_or(RegistryResult::Malformed))
    }

    fn decode_body(body: &[u8]) -> Option<Self> {
        let (code, body) = body.split_first()?;
        match code {
            1 | 2 => Self::decode_client(*code, body),
            3 => {
                let (replica, body) = body.split_first_chunk()?;
                let (ip, port) = body.split_first_chunk()?;
                let address = address(*ip, port.try_into().ok()?);
                let replica = ReplicaId(u16::from_le_bytes(*replica));
                // One encoding for each: none has no bytes of an address.
                (address.is_some() || *ip == [0; 16]).then_some(Self::Move(replica, address))
            }
            4 => {
                let (setting, value) = body.split_first_chunk()?;
                let setting = Setting::of_number(u16::from_le_bytes(*setting))?;
                let value = u64::from_le_bytes(value.try_into().ok()?);
                setting.allows(value).then_some(Self::Set(setting, value))
            }
            _ => None,
        }
    }

    fn decode_client(code: u8, body: &[u8]) -> Option<Self> {
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
                Some(Self::Add(principal, Client { rights, key: *key, address }))
            }
            (2, []) => Some(Self::Remove(principal)),
            _ => None,
        }
    }
}

/// An IPv4 address stands as one of IPv6; port 0 is no address.
pub(super) fn address_bytes(address: Option<SocketAddr>) -> ([u8; 16], [u8; 2]) {
    let Some(address) = address else { return ([0; 16], [0; 2]) };
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    (ip.octets(), address.port().to_le_bytes())
}

pub(super) fn address(ip: [u8; 16], port: [u8; 2]) -> Option<SocketAddr> {
    let port = u16::from_le_bytes(port);
    let ip = Ipv6Addr::from(ip);
    (port != 0).then(|| SocketAddr::new(ip.to_canonical(), port))
}
