//! An operation of the service: a complete call, and the address of its client.
//!
//! ```text
//! version 1 | address of the client 16 | RPC call, from its number on
//! ```
//!
//! The result is the complete RPC reply. So all effects of a call are decided in one place, in one atomic step,
//! equally at all replicas. A gateway is trusted for the address, and for the credential in the call as far as
//! `AUTH_SYS` itself is.

use alloc::vec::Vec;

/// The version of the encoding.
const VERSION: u8 = 1;
/// Bytes before the call.
pub const HEAD_BYTES: usize = 17;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The client's address. One of version 4 is mapped into version 6.
    pub address: [u8; 16],
    /// The RPC call.
    pub call: &'a [u8],
}

impl<'a> Operation<'a> {
    /// Returns the operation in `bytes`; none if they have another version or are too short.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        let (address, call) = rest.split_first_chunk()?;
        (*version == VERSION).then_some(Self { address: *address, call })
    }

    /// Appends the operation.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend_from_slice(&self.address);
        out.extend_from_slice(self.call);
    }
}

/// Returns the IPv6 address for an IPv4 address.
pub fn mapped(v4: [u8; 4]) -> [u8; 16] {
    let mut address = [0; 16];
    address[10..12].fill(0xff);
    address[12..].copy_from_slice(&v4);
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_decodes_to_itself() {
        let operation = Operation { address: mapped([10, 0, 0, 1]), call: b"call" };
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        assert_eq!(bytes.len(), HEAD_BYTES + 4);
        assert_eq!(Operation::decode(&bytes), Some(operation));
        assert_eq!(Operation::decode(&bytes[..HEAD_BYTES - 1]), None);
        bytes[0] = 2;
        assert_eq!(Operation::decode(&bytes), None);
    }
}
