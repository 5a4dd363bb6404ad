//! Who holds a port of this machine: what Linux says under `/proc`, for errors that name whoever is in the way.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Which kind of port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Datagrams.
    Udp,
    /// Connections that are listened for.
    Tcp,
}

/// A process that holds a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// The name of its program.
    pub program: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.program, self.pid)
    }
}

/// Returns who holds a port at this address, if that can be seen: of processes of other users it often cannot.
pub fn holder(port: Port, address: SocketAddr) -> Option<Holder> {
    let tables = match port {
        Port::Udp => ["/proc/net/udp", "/proc/net/udp6"],
        Port::Tcp => ["/proc/net/tcp", "/proc/net/tcp6"],
    };
    let inode = tables.iter().find_map(|table| {
        let text = fs::read_to_string(table).ok()?;
        text.lines().skip(1).find_map(|line| inode_of(line, port, address))
    })?;
    let socket = format!("socket:[{inode}]");
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let mut open = fs::read_dir(entry.path().join("fd")).ok()?.flatten();
        let holds =
            open.any(|file| fs::read_link(file.path()).is_ok_and(|link| link.as_os_str() == socket.as_str()));
        let program = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        holds.then(|| Holder { pid, program: program.trim().to_owned() })
    })
}

/// Returns the socket's number in a line of one of the tables, if it holds this address.
fn inode_of(line: &str, port: Port, wanted: SocketAddr) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, state) = (fields.get(1)?, fields.get(3)?);
    let (ip, number) = address.split_once(':')?;
    // 0A: it listens.
    if u16::from_str_radix(number, 16) != Ok(wanted.port()) || (port == Port::Tcp && *state != "0A") {
        return None;
    }
    let ip = ip_of(ip)?;
    (ip == wanted.ip() || ip.is_unspecified()).then(|| fields.get(9)?.parse().ok()).flatten()
}

/// Reads an address as the tables have it: words of 32 bits in this machine's byte order.
fn ip_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(hex.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match hex.len() {
        8 => word(0).map(|bytes| Ipv4Addr::from(bytes).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes = <[u8; 16]>::try_from(words.concat()).ok()?;
            let ip = Ipv6Addr::from(bytes);
            Some(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn this_process_is_found_by_its_ports_and_only_by_those() {
        let (udp, tcp) = (UdpSocket::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        for (port, address) in
            [(Port::Udp, udp.local_addr().unwrap()), (Port::Tcp, tcp.local_addr().unwrap())]
        {
            let found = holder(port, address).unwrap();
            assert_eq!(found.pid, std::process::id());
            assert!(!found.program.is_empty());
            let elsewhere = SocketAddr::new(Ipv4Addr::new(127, 9, 9, 9).into(), address.port());
            assert_eq!(holder(port, elsewhere), None);
        }
        let free = tcp.local_addr().unwrap();
        drop(tcp);
        assert_eq!(holder(Port::Tcp, free), None);
    }
}
