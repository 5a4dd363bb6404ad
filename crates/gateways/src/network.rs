//! Which network an address counts for, where each user of a gateway may have so much.

use std::net::IpAddr;

/// Returns the network of an address: one host of version 6 has 2^64 addresses. A host of version 4 has one.
pub(crate) fn network(of: IpAddr) -> IpAddr {
    match of.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() & !u128::from(u64::MAX)).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}
