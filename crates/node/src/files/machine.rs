//! The identity of the caller in the file system.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use quorate_fs::nfs3::calls::Calls;
use quorate_fs::nfs3::operation::{HEAD_BYTES, Operation};

use crate::run::client_node::ClientNode;

/// A user with groups.
#[derive(Clone, Debug, Default)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// Further groups; the first 16 count.
    pub gids: Vec<u32>,
}

/// The calling machine. Together with the call's number it identifies a call: each client has a unique name, so that
/// no call gets the answer to another client's call.
#[derive(Clone, Debug)]
pub struct Machine {
    name: String,
    address: [u8; 16],
}

impl Machine {
    /// Returns the machine of a client. Its address is where the replicas reach it; exports limited to networks check
    /// that address.
    pub fn of(client: &ClientNode) -> Self {
        Self::at(client.number(), client.settings().listen, &client.settings().replicas)
    }

    /// Returns the machine of client `number`, which listens on `listen`.
    pub fn at(number: u64, listen: SocketAddr, replicas: &[SocketAddr]) -> Self {
        let ip = match listen.ip() {
            ip if ip.is_unspecified() => replicas.first().and_then(|to| towards(*to)).unwrap_or(ip),
            ip => ip,
        };
        let address = match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        Self { name: format!("quorate-client-{number}"), address }
    }

    /// Returns a user's calls from this machine. `first` is the number of the first one.
    pub fn calls(&self, user: &User, first: u32) -> Calls {
        Calls::new(&self.name, user.uid, user.gid, &user.gids, first)
    }

    /// Returns the operation for a call from this machine.
    pub fn operation(&self, call: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + call.len());
        Operation { address: self.address, call }.encode(&mut bytes);
        bytes
    }
}

/// Returns the local address from which an address is reached. Sends nothing.
fn towards(address: SocketAddr) -> Option<IpAddr> {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(address).ok()?;
    socket.local_addr().ok().map(|own| own.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_where_the_replicas_reach_it() {
        let replicas = [SocketAddr::from(([127, 0, 0, 1], 7000))];
        let at = |listen: &str| Machine::at(3, listen.parse().unwrap(), &replicas);
        let v4 = |a, b, c, d| quorate_fs::nfs3::operation::mapped([a, b, c, d]);
        assert_eq!(at("10.1.2.3:7100").address, v4(10, 1, 2, 3));
        assert_eq!(at("[::1]:7100").address[15], 1);
        // It listens on all addresses: the route to the replicas determines which one is meant.
        assert_eq!(at("0.0.0.0:7100").address, v4(127, 0, 0, 1));
        assert_eq!(at("10.1.2.3:7100").name, "quorate-client-3");
    }
}
