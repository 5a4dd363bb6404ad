//! UDP: one socket to receive, and one for each place to send.
//!
//! The sending sockets are connected, which saves the kernel a route lookup each time: 0.75 us per datagram instead
//! of 0.85. With very many places, the later ones share a socket: files and connections need descriptors, too (L101). Several datagrams per system call (`sendmmsg`, `recvmmsg`) were no faster for the usual one to three
//! datagrams.
//!
//! Nothing blocks: a datagram without buffer space is lost, as on any network.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use quorate_wire::{Principal, Source};
use tracing::warn;

use crate::net::descriptors;
use crate::net::side_channel::SideChannel;
use crate::net::wake::Waker;
use quorate_process::Transport;
use quorate_process::{Directory, Place};

/// Maximum length of a datagram.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;
/// The shortest wait in the receiving call itself: its time-out counts the ticks of the scheduler, up to 10 ms each.
const WAIT_MS_MIN: u16 = 16;
/// How long a client's long frames wait at most, in nanoseconds.
const HOLD_NS: u64 = 100_000_000;
/// Size of the receive buffer, in bytes, if the kernel allows that much.
const BUFFER_BYTES: usize = 4 << 20;

/// A node's sockets.
#[derive(Debug)]
pub struct Socket {
    inbound: UdpSocket,
    /// One for each place. None: the place shares `common`.
    outbound: Vec<Option<UdpSocket>>,
    common: UdpSocket,
    /// The most sockets of single places.
    outbound_max: usize,
    /// Their destinations.
    addresses: Vec<SocketAddr>,
    /// The version of the directory that they were made from.
    version: Option<u64>,
    buffer: Vec<u8>,
    lost: u64,
    long: Option<SideChannel>,
    /// The last long frame that was returned.
    frame: Vec<u8>,
    /// The connection that has brought it, until it is judged.
    connection: Option<u64>,
    /// Clients whose long frames wait, and until when at most.
    held: Vec<(Principal, u64)>,
    /// The receiving call waits this number of milliseconds. 0: it never waits.
    waits_ms: u16,
    /// Whether the kernel is asked where datagrams come from: 0.14 us for each.
    asks_sources: bool,
}

impl Socket {
    /// Opens the sockets of a node that listens on `address`.
    ///
    /// # Errors
    ///
    /// The address is taken or not on this machine, or there are too many open files.
    pub fn open(address: SocketAddr, directory: &Directory) -> io::Result<Self> {
        let inbound = UdpSocket::bind(address)?;
        inbound.set_nonblocking(true)?;
        // The kernel may grant less, which only costs datagrams under load.
        let _ = setsockopt(&inbound, sockopt::RcvBuf, &BUFFER_BYTES);
        let common = UdpSocket::bind(SocketAddr::new(inbound.local_addr()?.ip(), 0))?;
        common.set_nonblocking(true)?;
        let mut socket = Self {
            inbound,
            outbound: Vec::new(),
            common,
            outbound_max: descriptors::most() / 2,
            addresses: Vec::new(),
            version: None,
            buffer: vec![0; DATAGRAM_BYTES_MAX],
            lost: 0,
            long: None,
            frame: Vec::new(),
            connection: None,
            held: Vec::new(),
            waits_ms: 0,
            asks_sources: true,
        };
        socket.follow(directory)?;
        Ok(socket)
    }

    /// Updates the destinations to the present addresses of all places. Cheap if nothing has changed.
    ///
    /// # Errors
    ///
    /// An address cannot be used. Until a retry succeeds, datagrams to the place are lost.
    #[inline]
    pub fn follow(&mut self, directory: &Directory) -> io::Result<()> {
        if self.version == Some(directory.version()) { Ok(()) } else { self.connect(directory) }
    }

    #[cold]
    fn connect(&mut self, directory: &Directory) -> io::Result<()> {
        // After a failure, not again in every turn.
        self.version = Some(directory.version());
        let own = SocketAddr::new(self.inbound.local_addr()?.ip(), 0);
        for (place, address) in directory.addresses().iter().enumerate() {
            if self.addresses.get(place) == Some(address) {
                continue;
            }
            let socket = if place < self.outbound_max { connected(own, *address)? } else { None };
            if let (Some(slot), Some(old)) = (self.outbound.get_mut(place), self.addresses.get_mut(place)) {
                (*slot, *old) = (socket, *address);
            } else {
                self.outbound.push(socket);
                self.addresses.push(*address);
            }
        }
        if let Some(long) = &mut self.long {
            long.follow(directory);
        }
        Ok(())
    }

    /// Also opens the side channel: TCP on the same address, for frames longer than a datagram. [`Self::receive`]
    /// returns them like datagrams.
    ///
    /// # Errors
    ///
    /// The address is taken or not on this machine, or there are too many open files.
    pub fn open_side_channel(&mut self, directory: &Directory) -> io::Result<()> {
        self.long = Some(SideChannel::open(self.address()?, directory)?);
        Ok(())
    }

    /// The same, for frames of more than `above` bytes.
    ///
    /// # Errors
    ///
    /// As [`Self::open_side_channel`].
    pub fn open_side_channel_above(&mut self, directory: &Directory, above: usize) -> io::Result<()> {
        self.long = Some(SideChannel::open_above(self.address()?, directory, above)?);
        Ok(())
    }

    /// Returns the address that it listens on.
    ///
    /// # Errors
    ///
    /// The kernel does not know it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.inbound.local_addr()
    }

    /// Takes a datagram if one is there, and where it came from. The caller is to [`Self::judge`] it before
    /// the next one.
    ///
    /// # Errors
    ///
    /// The socket has failed.
    #[inline]
    pub fn receive(&mut self) -> io::Result<Option<(Source, &[u8])>> {
        if let Some(from) = self.take_long() {
            return Ok(Some((from, &self.frame)));
        }
        let received = if self.waits_ms == 0 && self.asks_sources {
            self.inbound.recv_from(&mut self.buffer).map(|(len, from)| (len, source(from)))
        } else if self.waits_ms == 0 {
            self.inbound.recv(&mut self.buffer).map(|len| (len, Source::UNKNOWN))
        } else {
            receive_now(&self.inbound, &mut self.buffer)
        };
        self.received(received)
    }

    /// The same, but waits for a datagram, `wait_ms` milliseconds at most: one system call instead of a wait and a receive.
    /// A short wait costs both calls. A wait may end early, without a datagram.
    ///
    /// # Errors
    ///
    /// The socket has failed.
    #[inline]
    pub fn receive_within(&mut self, wait_ms: u16) -> io::Result<Option<(Source, &[u8])>> {
        if let Some(from) = self.take_long() {
            return Ok(Some((from, &self.frame)));
        }
        if wait_ms < WAIT_MS_MIN {
            self.wait(wait_ms, None)?;
            return self.receive();
        }
        // A power of two, so that it is set once and not at each wait.
        let ms = 1 << wait_ms.ilog2();
        if self.waits_ms != ms {
            self.inbound.set_read_timeout(Some(Duration::from_millis(ms.into())))?;
            self.inbound.set_nonblocking(false)?;
            self.waits_ms = ms;
        }
        let received = self.inbound.recv_from(&mut self.buffer).map(|(len, from)| (len, source(from)));
        // An empty one may announce a frame of the side channel.
        if matches!(received, Ok((0, _))) { self.receive() } else { self.received(received) }
    }

    /// Takes a frame of the side channel if one is there, and returns where it came from.
    #[inline]
    fn take_long(&mut self) -> Option<Source> {
        let long = self.long.as_ref().and_then(SideChannel::take)?;
        self.judge(None); // the one before, if nobody has
        (self.frame, self.connection) = (long.frame, Some(long.connection));
        Some(source(long.from))
    }

    #[inline]
    fn received(&self, received: io::Result<(usize, Source)>) -> io::Result<Option<(Source, &[u8])>> {
        match received {
            Ok((len, from)) => Ok(self.buffer.get(..len).map(|datagram| (from, datagram))),
            Err(error) if error.kind() == ErrorKind::WouldBlock || is_passing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tells who has made what was received last, if it was authentic. A connection of the side channel that
    /// brings what is not is not kept.
    #[inline]
    pub fn judge(&mut self, by: Option<Principal>) {
        self.judge_at(0, by, |_| false);
    }

    /// The same at `now_ns`. No long frame is taken of a client that `is_full` says to have enough, until
    /// [`Self::look_again`].
    #[inline]
    pub fn judge_at(&mut self, now_ns: u64, by: Option<Principal>, is_full: impl Fn(Principal) -> bool) {
        if let (Some(connection), Some(long)) = (self.connection.take(), &self.long) {
            long.judge(connection, by);
            let is_held = |by: &Principal| self.held.iter().any(|(held, _)| held == by);
            let by = by.filter(|by| matches!(by, Principal::Client(_)) && !is_held(by));
            if let Some(by) = by.filter(|by| is_full(*by)) {
                long.hold(by, true);
                self.held.push((by, now_ns.saturating_add(HOLD_NS)));
            }
        }
    }

    /// Takes long frames of clients again that have not enough any more, or wait for long: the next one may be what the
    /// others wait for, such as a copy with a signature.
    #[inline]
    pub fn look_again(&mut self, now_ns: u64, is_full: impl Fn(Principal) -> bool) {
        if let Some(long) = self.long.as_ref().filter(|_| !self.held.is_empty()) {
            self.held.retain(|(client, until)| {
                let holds = now_ns < *until && is_full(*client);
                if !holds {
                    long.hold(*client, false);
                }
                holds
            });
        }
    }

    /// Waits until a datagram is there or the waker is used, `wait_ms` milliseconds at most.
    ///
    /// # Errors
    ///
    /// The wait has failed.
    pub fn wait(&self, wait_ms: u16, waker: Option<&Waker>) -> io::Result<()> {
        let inbound = PollFd::new(self.inbound.as_fd(), PollFlags::POLLIN);
        let waker = waker.map(|waker| PollFd::new(waker.fd(), PollFlags::POLLIN));
        let both = waker.map(|waker| [inbound.clone(), waker]);
        let polled = match both {
            Some(mut fds) => poll(&mut fds, PollTimeout::from(wait_ms)),
            None => poll(&mut [inbound], PollTimeout::from(wait_ms)),
        };
        match polled {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Says whether a long frame of about this length would find space, before somebody makes it.
    #[inline]
    pub fn has_room(&self, to: Place, len: usize) -> bool {
        self.long.as_ref().is_some_and(|long| long.has_room(to, len))
    }

    /// Returns how many datagrams the kernel refused.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// The descriptor, to wait for it together with others.
impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inbound.as_fd()
    }
}

impl Transport for Socket {
    #[inline]
    fn look_up(&mut self, directory: &Directory) {
        if let Err(error) = self.follow(directory) {
            warn!(%error, "no socket for a client or replica with a new address: this node cannot send to it");
        }
    }

    #[inline]
    fn ask_sources(&mut self, asks: bool) {
        self.asks_sources = asks;
    }

    #[inline]
    fn send(&mut self, to: Place, datagram: &[u8]) {
        let sent = match (self.outbound.get(to.index()), self.addresses.get(to.index())) {
            (Some(Some(socket)), _) => {
                let sent = socket.send(datagram);
                // The error can be an earlier datagram's.
                if sent.as_ref().is_err_and(is_passing) { socket.send(datagram) } else { sent }
            }
            (Some(None), Some(address)) => self.common.send_to(datagram, address),
            _ => return,
        };
        self.lost += u64::from(sent.is_err());
    }

    fn send_long(&mut self, to: Place, frame: Vec<u8>) {
        let sent = self.long.as_mut().is_some_and(|long| long.send(to, frame));
        self.lost += u64::from(!sent);
    }
}

/// Returns a socket to send to an address. None: there is no descriptor for it.
fn connected(own: SocketAddr, to: SocketAddr) -> io::Result<Option<UdpSocket>> {
    let socket = match UdpSocket::bind(own) {
        Err(error) if descriptors::are_gone(&error) => return Ok(None),
        bound => bound?,
    };
    socket.connect(to)?;
    socket.set_nonblocking(true)?;
    Ok(Some(socket))
}

/// Takes a datagram from a socket that waits, if one is there.
fn receive_now(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, Source)> {
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let received = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, None, flags)?;
    let from = received.address.as_ref().and_then(|from| {
        let v4 = from.as_sockaddr_in().map(|v4| SocketAddr::from(std::net::SocketAddrV4::from(*v4)));
        v4.or_else(|| from.as_sockaddr_in6().map(|v6| SocketAddr::from(std::net::SocketAddrV6::from(*v6))))
    });
    Ok((received.bytes, source(from.ok_or(ErrorKind::InvalidData)?)))
}

/// Returns where a datagram came from, as the authenticator counts sources.
#[inline]
fn source(from: SocketAddr) -> Source {
    let host = match from.ip() {
        IpAddr::V4(host) => u128::from(host.to_bits()),
        IpAddr::V6(host) => host.to_bits(),
    };
    Source { host, port: from.port() }
}

/// Says whether an error tells of the fate of an earlier datagram: nobody listened.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn any() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn a_datagram_arrives_and_nothing_waits_for_one() {
        let mut b = Socket::open(any(), &Directory::new(&[])).unwrap();
        let directory = Directory::new(&[b.address().unwrap()]);
        let mut a = Socket::open(any(), &directory).unwrap();
        assert_eq!(b.receive().unwrap(), None);
        let to = directory.replicas().next().unwrap();
        a.send(to, b"one");
        a.send(to, b"two");
        b.wait(1000, None).unwrap();
        let (from, datagram) = b.receive().unwrap().unwrap();
        assert_eq!((from.host, datagram), (u128::from(u32::from_be_bytes([127, 0, 0, 1])), &b"one"[..]));
        let (again, datagram) = b.receive().unwrap().unwrap();
        assert_eq!((again, datagram), (from, &b"two"[..]));
        assert_eq!(b.receive().unwrap(), None);
    }

    /// A5: the kernel is asked where datagrams come from only if that matters.
    #[test]
    fn sources_are_known_if_they_are_asked_for() {
        let mut b = Socket::open(any(), &Directory::new(&[])).unwrap();
        let directory = Directory::new(&[b.address().unwrap()]);
        let mut a = Socket::open(any(), &directory).unwrap();
        let to = directory.replicas().next().unwrap();
        for asks in [None, Some(false), Some(true)] {
            if let Some(asks) = asks {
                b.ask_sources(asks);
            }
            a.send(to, b"one");
            b.wait(1000, None).unwrap();
            let (from, datagram) = b.receive().unwrap().unwrap();
            assert_eq!((from != Source::UNKNOWN, datagram), (asks != Some(false), &b"one"[..]));
        }
    }

    /// Waiting in the receiving call changes nothing for the calls that do not wait.
    #[test]
    fn a_socket_that_waits_receives_without_waiting_too() {
        let mut b = Socket::open(any(), &Directory::new(&[])).unwrap();
        let directory = Directory::new(&[b.address().unwrap()]);
        let mut a = Socket::open(any(), &directory).unwrap();
        let to = directory.replicas().next().unwrap();
        let mut source = None;
        for wait_ms in [0, WAIT_MS_MIN - 1, WAIT_MS_MIN, 50, 50, WAIT_MS_MIN] {
            assert_eq!(b.receive_within(wait_ms).unwrap(), None, "{wait_ms}");
            a.send(to, b"one");
            a.send(to, b"two");
            let end = Instant::now() + Duration::from_secs(20);
            let from = loop {
                if let Some((from, datagram)) = b.receive_within(wait_ms).unwrap() {
                    assert_eq!(datagram, b"one");
                    break from;
                }
                assert!(Instant::now() < end);
            };
            assert_eq!(*source.get_or_insert(from), from);
            assert_eq!(b.receive().unwrap(), Some((from, &b"two"[..])));
            // The fastest of many: a busy machine may delay some.
            let fastest = (0..100).map(|_| {
                let begin = Instant::now();
                assert_eq!(b.receive().unwrap(), None);
                begin.elapsed()
            });
            assert!(fastest.min() < Some(Duration::from_millis(WAIT_MS_MIN.into())));
        }
    }

    /// L101: with more places than descriptors, each place gets its datagrams, and some descriptors are left.
    #[test]
    fn l101_places_beyond_a_limit_share_a_socket() {
        let mut others: Vec<Socket> =
            (0..5).map(|_| Socket::open(any(), &Directory::new(&[])).unwrap()).collect();
        let mut a = Socket::open(any(), &Directory::new(&[])).unwrap();
        (a.outbound_max, a.version) = (2, None);
        let addresses: Vec<SocketAddr> = others.iter().map(|other| other.address().unwrap()).collect();
        let directory = Directory::new(&addresses);
        a.look_up(&directory);
        assert_eq!(a.outbound.iter().flatten().count(), 2);
        for (place, other) in directory.replicas().zip(&mut others) {
            a.send(place, b"there");
            other.wait(1000, None).unwrap();
            assert_eq!(other.receive().unwrap().map(|(_, datagram)| datagram), Some(&b"there"[..]));
        }
        assert_eq!(a.lost(), 0);
    }

    #[test]
    fn waiting_ends() {
        let socket = Socket::open(any(), &Directory::new(&[])).unwrap();
        let start = Instant::now();
        socket.wait(5, None).unwrap();
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    /// A peer that is down for a while loses only the datagrams of that time.
    #[test]
    fn a_peer_that_comes_back_gets_the_next_datagram() {
        let mut b = Socket::open(any(), &Directory::new(&[])).unwrap();
        let address = b.address().unwrap();
        let directory = Directory::new(&[address]);
        let mut a = Socket::open(any(), &directory).unwrap();
        let to = directory.replicas().next().unwrap();
        drop(b);
        a.send(to, b"lost");
        b = Socket::open(address, &Directory::new(&[])).unwrap();
        a.send(to, b"there");
        b.wait(1000, None).unwrap();
        assert_eq!(b.receive().unwrap().map(|(_, datagram)| datagram), Some(&b"there"[..]));
    }
}
