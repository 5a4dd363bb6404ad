//! Finds the process that holds a port of this machine, from `/proc`, for errors that name it. Also finds free ports.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

/// The kinds of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// UDP.
    Udp,
    /// TCP, listening.
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

/// Returns the process that holds a port at this address, if it is visible. Processes of other users often are not.
pub fn holder(port: Port, address: SocketAddr) -> Option<Holder> {
    let tables = match port {
        Port::Udp => ["/proc/net/udp", "/proc/net/udp6"],
        Port::Tcp => ["/proc/net/tcp", "/proc/net/tcp6"],
    };
    let look = || {
        tables.iter().find_map(|table| {
            let text = fs::read_to_string(table).ok()?;
            text.lines().skip(1).find_map(|line| inode_of(line, port, address))
        })
    };
    // A table is read in pieces, so a socket can be missed while others are opened and closed.
    let inode = (0..3).find_map(|_| look())?;
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
    // 0A: listening.
    if u16::from_str_radix(number, 16) != Ok(wanted.port()) || (port == Port::Tcp && *state != "0A") {
        return None;
    }
    let ip = ip_of(ip)?;
    (ip == wanted.ip() || ip.is_unspecified()).then(|| fields.get(9)?.parse().ok()).flatten()
}

/// Parses an address in a table: words of 32 bits in this machine's byte order.
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

/// The range of free ports, below those that a system assigns automatically (Linux: from 32768 on).
const FREE: Range<u16> = 10_000..32_000;

/// Returns `count` addresses on this IP whose UDP and TCP ports were free a moment ago. A process gets none twice until
/// all have been tried. For benchmarks and tests.
pub fn free(ip: IpAddr, count: usize) -> io::Result<Vec<SocketAddr>> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    let begin = u16::from_be_bytes([high, low]);
    let mut found = Vec::with_capacity(count);
    for _ in FREE {
        let step = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % (FREE.end - FREE.start);
        let address = SocketAddr::new(ip, FREE.start + step);
        if found.len() == count {
            break;
        }
        if UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok() {
            found.push(address);
        }
    }
    if found.len() < count {
        let says = format!("cannot find {count} free ports on {ip}");
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, says));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn free_ports_are_none_that_the_system_hands_out_and_none_that_is_taken() {
        let ip = IpAddr::from(Ipv4Addr::LOCALHOST);
        let mut all = free(ip, 20).unwrap();
        let taken = UdpSocket::bind(all[0]).unwrap();
        all.extend(free(ip, 20).unwrap());
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 40, "one was given twice");
        assert!(all.iter().all(|address| FREE.contains(&address.port())));
        drop(taken);
        assert!(free(Ipv4Addr::new(192, 0, 2, 1).into(), 1).is_err(), "not an address of this machine");
    }
}
