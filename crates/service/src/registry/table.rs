//! What clients read of the registry: the addresses of replicas and the settings that the state has (ADR 23).
//!
//! ```text
//! read              MAGIC 16 | 5                                     never ordered
//! result            MAGIC 16 | 128 | items: 3 replica 2 | address 16 | port 2
//!                                           4 setting 2 | value 8
//! ```
//!
//! The read is never ordered: replicas of an earlier version do not know it, and as an ordered operation it is malformed
//! at all replicas.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;

use quorate_wire::ReplicaId;

use super::operation::{MAGIC, Setting, address, address_bytes};

/// The code of the read.
const READ: u8 = 5;
/// The code of its result, which no [`RegistryResult`](super::RegistryResult) has.
const TABLE: u8 = 128;

/// What the state says of the replicas and the settings. What is not in it, every node has from its own files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The addresses of replicas that have moved.
    pub replicas: BTreeMap<ReplicaId, SocketAddr>,
    /// The settings that were set.
    pub settings: BTreeMap<Setting, u64>,
}

impl Table {
    /// Returns the operation that reads the table.
    pub fn read() -> [u8; 17] {
        let mut operation = [READ; 17];
        operation[..16].copy_from_slice(&MAGIC);
        operation
    }

    /// Appends the table.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.push(TABLE);
        for (replica, at) in &self.replicas {
            let (ip, port) = address_bytes(Some(*at));
            out.push(3);
            out.extend_from_slice(&replica.0.to_le_bytes());
            out.extend_from_slice(&ip);
            out.extend_from_slice(&port);
        }
        for (setting, value) in &self.settings {
            out.push(4);
            out.extend_from_slice(&setting.number().to_le_bytes());
            out.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// Reads a table. None: the result is another one. Settings that this version does not know are left out.
    pub fn decode(result: &[u8]) -> Option<Self> {
        let (code, mut items) = result.strip_prefix(&MAGIC)?.split_first()?;
        if *code != TABLE {
            return None;
        }
        let mut table = Self::default();
        while let Some((kind, rest)) = items.split_first() {
            let (number, rest) = rest.split_first_chunk()?;
            let number = u16::from_le_bytes(*number);
            items = match kind {
                3 => {
                    let (ip, rest) = rest.split_first_chunk()?;
                    let (port, rest) = rest.split_first_chunk()?;
                    table.replicas.insert(ReplicaId(number), address(*ip, *port)?);
                    rest
                }
                4 => {
                    let (value, rest) = rest.split_first_chunk()?;
                    if let Some(setting) = Setting::of_number(number) {
                        table.settings.insert(setting, u64::from_le_bytes(*value));
                    }
                    rest
                }
                _ => return None,
            };
        }
        Some(table)
    }
}
