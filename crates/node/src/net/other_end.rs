//! Which user has the other end of a TCP connection, as the kernel knows it. Within one machine nobody can claim to be
//! somebody else.
//!
//! The kernel is asked over netlink (`sock_diag`) for the one socket with the connection's addresses the other way
//! round. It answers for sockets in its own network namespace, listening ones and closed ones among them; only a
//! connection counts that some process still holds. Where the kernel cannot be asked, it knows nobody.
//!
//! The port of a connection that has been reset may be another user's by now. So what came over a connection may not be
//! believed once it has been reset, even if it was sent before.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recvmsg, sendmsg, socket,
};

/// The kind of the request and of its answer: about a socket of a family.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// A message is a request.
const NLM_F_REQUEST: u16 = 1;
/// The bytes before a message's body.
const HEAD_BYTES: usize = 16;
/// The protocol, as the kernel counts.
const IPPROTO_TCP: u8 = 6;
/// The state of a connection whose two ends are open.
const ESTABLISHED: u8 = 1;

/// Returns the user whose process holds the other end of an open connection between `own` and `peer`. None: no process
/// of this network namespace does.
pub fn user_of(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    // A socket of version 6 that speaks version 4 is found by the addresses of version 4.
    let (from, to) = (SocketAddr::new(peer.ip().to_canonical(), peer.port()), own.ip().to_canonical());
    let request = request(from, SocketAddr::new(to, own.port()))?;
    answer(&request).as_deref().and_then(user_in)
}

/// Returns the request about the socket at `from` that is connected to `to`. None: they are of two families.
fn request(from: SocketAddr, to: SocketAddr) -> Option<Vec<u8>> {
    let (family, [source, destination]) = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (AddressFamily::Inet, [from, to].map(padded)),
        (IpAddr::V6(from), IpAddr::V6(to)) => (AddressFamily::Inet6, [from, to].map(|ip| ip.octets())),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return None,
    };
    let mut body = vec![u8::try_from(family as i32).ok()?, IPPROTO_TCP, 0, 0];
    body.extend(u32::MAX.to_ne_bytes()); // in any state
    body.extend(from.port().to_be_bytes());
    body.extend(to.port().to_be_bytes());
    body.extend(source);
    body.extend(destination);
    body.extend([0; 4]); // on any device
    body.extend([0xff; 8]); // with any cookie
    let len = u32::try_from(HEAD_BYTES + body.len()).ok()?;
    let mut message = len.to_ne_bytes().to_vec();
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]); // a number for the answer, and the sender
    message.extend(body);
    Some(message)
}

fn padded(ip: std::net::Ipv4Addr) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&ip.octets());
    bytes
}

/// Asks the kernel, which answers before the question has been handed over.
fn answer(request: &[u8]) -> Option<Vec<u8>> {
    let kernel = socket(
        AddressFamily::Netlink,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        SockProtocol::NetlinkSockDiag,
    )
    .ok()?;
    let (none, to) = (MsgFlags::empty(), NetlinkAddr::new(0, 0));
    sendmsg(kernel.as_raw_fd(), &[IoSlice::new(request)], &[], none, Some(&to)).ok()?;
    let mut buffer = [0; 1024];
    let mut into = [IoSliceMut::new(&mut buffer)];
    let len = recvmsg::<NetlinkAddr>(kernel.as_raw_fd(), &mut into, None, none).ok()?.bytes;
    buffer.get(..len).map(<[u8]>::to_vec)
}

/// Returns the user in the kernel's answer, if it is about an open connection that a process holds.
fn user_in(answer: &[u8]) -> Option<u32> {
    let number = |at: usize| answer.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes);
    let kind = answer.get(4..6)?.first_chunk().copied().map(u16::from_ne_bytes)?;
    let state = *answer.get(HEAD_BYTES + 1)?;
    // After the state: the addresses (48 bytes), and three numbers about timers and queues.
    let (user, inode) = (number(HEAD_BYTES + 64)?, number(HEAD_BYTES + 68)?);
    (kind == SOCK_DIAG_BY_FAMILY && state == ESTABLISHED && inode != 0).then_some(user)
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream};

    use super::*;

    /// H2: the kernel knows who holds the other end. Of a closed end it says that it is root's: that counts for nobody.
    #[test]
    fn h2_the_kernel_knows_the_user_of_the_other_end() {
        for ip in ["127.0.0.1:0", "[::1]:0"] {
            // A machine may have no version 6.
            let Ok(listener) = TcpListener::bind(ip) else { continue };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (accepted, peer) = listener.accept().unwrap();
            let own = accepted.local_addr().unwrap();
            assert_eq!(user_of(peer, own), Some(nix::unistd::geteuid().as_raw()));
            // Where nobody is connected, and where somebody only listens.
            assert_eq!(user_of(SocketAddr::new(peer.ip(), 1), own), None);
            assert_eq!(user_of(own, SocketAddr::new(peer.ip(), 1)), None);
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(user_of(peer, own), None, "it sends nothing more");
            drop(stream);
            assert_eq!(user_of(peer, own), None, "nobody holds it");
        }
    }
}
