//! The side channel: TCP for frames that do not fit a datagram.
//!
//! A frame authenticates its sender, so a connection needs no handshake: it carries `length 4 | frame` repeatedly, in
//! one direction. There is a thread for each incoming connection, and one for each place that was ever sent a long
//! frame. Everything is bounded, and a frame without space is lost, as on any network: it will be retransmitted.
//!
//! The owner of the socket sleeps on its datagrams; an empty datagram to itself announces a frame.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quorate_wire::frame::FRAME_BYTES_MAX;

use crate::directory::Place;

/// Maximum number of incoming connections. Further ones are closed immediately.
const CONNECTIONS_MAX: usize = 256;
/// Maximum bytes of frames that wait for the owner. Beyond it connections wait.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Maximum number of frames that wait for one place.
const OUTGOING_MAX: usize = 64;
/// A connection without a complete frame in this time is closed.
const IDLE: Duration = Duration::from_secs(20);
/// Maximum time to connect or to write.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a connection waits for space.
const PAUSE: Duration = Duration::from_millis(2);

/// The data shared by the threads and the owner.
#[derive(Debug)]
struct Inbox {
    frames: Mutex<VecDeque<Vec<u8>>>,
    /// Number of frames.
    count: AtomicUsize,
    /// Bytes of frames.
    bytes: AtomicUsize,
    connections: AtomicUsize,
    stop: AtomicBool,
    /// Wakes the owner.
    bell: UdpSocket,
}

/// The side channel of one node.
#[derive(Debug)]
pub(crate) struct SideChannel {
    inbox: Arc<Inbox>,
    address: SocketAddr,
    addresses: Vec<SocketAddr>,
    /// One for each place; none until its first frame.
    outgoing: Vec<Option<SyncSender<Vec<u8>>>>,
}

impl SideChannel {
    /// Listens on `address`, where the owner also takes datagrams. `addresses` are those of all places.
    pub(crate) fn open(address: SocketAddr, addresses: &[SocketAddr]) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let bell = UdpSocket::bind(SocketAddr::new(address.ip(), 0))?;
        bell.connect(address)?;
        bell.set_nonblocking(true)?;
        let inbox = Arc::new(Inbox {
            frames: Mutex::default(),
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            bell,
        });
        let shared = Arc::clone(&inbox);
        std::thread::Builder::new()
            .name("side channel".to_owned())
            .spawn(move || accept(&listener, &shared))?;
        let outgoing = addresses.iter().map(|_| None).collect();
        Ok(Self { inbox, address, addresses: addresses.to_vec(), outgoing })
    }

    /// Updates the destinations to the present addresses of all places.
    pub(crate) fn follow(&mut self, addresses: &[SocketAddr]) {
        self.outgoing.resize_with(addresses.len(), || None);
        for (place, address) in addresses.iter().enumerate() {
            if self.addresses.get(place).is_some_and(|old| old != address) {
                self.outgoing[place] = None; // its thread ends with what it still has
            }
        }
        self.addresses = addresses.to_vec();
    }

    /// Takes an arrived frame, if there is one.
    #[inline]
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        if self.inbox.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let frame = self.inbox.frames.lock().unwrap_or_else(PoisonError::into_inner).pop_front()?;
        self.inbox.count.fetch_sub(1, Ordering::AcqRel);
        self.inbox.bytes.fetch_sub(frame.len(), Ordering::AcqRel);
        Some(frame)
    }

    /// Sends a frame to a place. Returns false if there was no space.
    pub(crate) fn send(&mut self, to: Place, frame: Vec<u8>) -> bool {
        let (Some(address), Some(slot)) =
            (self.addresses.get(to.index()).copied(), self.outgoing.get_mut(to.index()))
        else {
            return false;
        };
        if slot.is_none() {
            let (sender, receiver) = sync_channel(OUTGOING_MAX);
            let thread = std::thread::Builder::new().name("side channel out".to_owned());
            if thread.spawn(move || carry(address, &receiver)).is_err() {
                return false;
            }
            *slot = Some(sender);
        }
        slot.as_ref().is_some_and(|sender| sender.try_send(frame).is_ok())
    }
}

impl Drop for SideChannel {
    fn drop(&mut self) {
        self.inbox.stop.store(true, Ordering::Release);
        // The listener checks the flag when a connection arrives.
        let _ = TcpStream::connect_timeout(&self.address, PATIENCE);
    }
}

/// Accepts connections until the owner is gone.
fn accept(listener: &TcpListener, inbox: &Arc<Inbox>) {
    loop {
        let accepted = listener.accept();
        if inbox.stop.load(Ordering::Acquire) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            // Too many open files, most likely.
            std::thread::sleep(PAUSE);
            continue;
        };
        if inbox.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            inbox.connections.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let shared = Arc::clone(inbox);
        let thread = std::thread::Builder::new().name("side channel in".to_owned());
        let spawned = thread.spawn(move || {
            // After any error, the sender connects again.
            let _ = receive(stream, &shared);
            shared.connections.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            inbox.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Takes frames from one connection until it ends, is idle, or breaks a rule.
fn receive(mut stream: TcpStream, inbox: &Inbox) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    loop {
        let mut len = [0; 4];
        stream.read_exact(&mut len)?;
        let len = usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX);
        if inbox.stop.load(Ordering::Acquire) {
            return Ok(());
        }
        if len > FRAME_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        // Memory is reserved as the bytes arrive, so that announcing a long frame costs no memory.
        let mut frame = Vec::new();
        (&mut stream).take(u64::try_from(len).unwrap_or(0)).read_to_end(&mut frame)?;
        if frame.len() < len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        while inbox.bytes.load(Ordering::Acquire) > WAITING_BYTES_MAX {
            std::thread::sleep(PAUSE);
            if inbox.stop.load(Ordering::Acquire) {
                return Ok(());
            }
        }
        inbox.bytes.fetch_add(frame.len(), Ordering::AcqRel);
        inbox.frames.lock().unwrap_or_else(PoisonError::into_inner).push_back(frame);
        inbox.count.fetch_add(1, Ordering::AcqRel);
        // It may be lost if there are others: then the owner is awake.
        let _ = inbox.bell.send(&[]);
    }
}

/// Sends frames to one place until the owner is gone.
fn carry(address: SocketAddr, frames: &Receiver<Vec<u8>>) {
    let mut stream: Option<TcpStream> = None;
    while let Ok(frame) = frames.recv() {
        // The other side may have closed an idle connection: writing detects that.
        for _ in 0..2 {
            if stream.is_none() {
                stream = connect(address).ok();
            }
            match stream.as_mut().map(|stream| write(stream, &frame)) {
                Some(Ok(())) => break,
                Some(Err(_)) => stream = None,
                None => {}
            }
        }
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn write(stream: &mut TcpStream, frame: &[u8]) -> io::Result<()> {
    // The other side sends nothing; reading detects the end of the stream.
    stream.set_nonblocking(true)?;
    let gone = stream.read(&mut [0]).is_ok();
    stream.set_nonblocking(false)?;
    if gone {
        return Err(ErrorKind::ConnectionAborted.into());
    }
    let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    stream.write_all(&len.to_le_bytes())?;
    stream.write_all(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Directory;
    use std::time::Instant;

    /// A channel with the datagram socket that it wakes.
    fn open(addresses: &[SocketAddr]) -> (SideChannel, UdpSocket) {
        // The port of a datagram socket may be taken for TCP: then another one is tried.
        for _ in 0..20 {
            let udp = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
            udp.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            if let Ok(channel) = SideChannel::open(udp.local_addr().unwrap(), addresses) {
                return (channel, udp);
            }
        }
        panic!("no port");
    }

    fn wait(channel: &SideChannel) -> Vec<u8> {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(frame) = channel.take() {
                return frame;
            }
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn long_frames_arrive_in_order_and_ring() {
        let (receiver, bell) = open(&[]);
        let directory = Directory::new(&[receiver.address]);
        let (mut sender, _) = open(directory.addresses());
        let place = directory.replicas().next().unwrap();
        for i in 0..5 {
            assert!(sender.send(place, vec![i; 300_000]));
        }
        assert_eq!(bell.recv(&mut [0; 8]).unwrap(), 0);
        for i in 0..5 {
            assert_eq!(wait(&receiver), vec![i; 300_000]);
        }
        assert_eq!(receiver.inbox.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_frame_that_is_too_long_ends_its_connection_and_no_other() {
        let (receiver, _bell) = open(&[]);
        let mut bad = TcpStream::connect(receiver.address).unwrap();
        bad.write_all(&u32::MAX.to_le_bytes()).unwrap();
        bad.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(bad.read(&mut [0]).unwrap(), 0, "closed");
        let mut good = TcpStream::connect(receiver.address).unwrap();
        good.write_all(&[3, 0, 0, 0, 7, 8, 9]).unwrap();
        assert_eq!(wait(&receiver), [7, 8, 9]);
    }

    /// A receiver that was away loses only the frames of that time; nothing waits for it.
    #[test]
    fn a_receiver_that_comes_back_gets_the_next_frame() {
        let (receiver, _bell) = open(&[]);
        let directory = Directory::new(&[receiver.address]);
        let (mut sender, _) = open(directory.addresses());
        let place = directory.replicas().next().unwrap();
        let address = receiver.address;
        assert!(sender.send(place, vec![1; 8]));
        assert_eq!(wait(&receiver), [1; 8]);
        drop(receiver);
        let until = Instant::now() + Duration::from_secs(10);
        let again = loop {
            match SideChannel::open(address, &[]) {
                Ok(again) => break again,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
        };
        while again.inbox.count.load(Ordering::Relaxed) == 0 {
            assert!(Instant::now() < until);
            let _ = sender.send(place, vec![2; 8]);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(wait(&again), [2; 8]);
    }

    /// Frames beyond the limit of a place are lost.
    #[test]
    fn frames_for_a_place_are_bounded() {
        // No one accepts there, and connecting takes time.
        let nowhere = TcpListener::bind("127.0.0.1:0").unwrap();
        let directory = Directory::new(&[nowhere.local_addr().unwrap()]);
        let (mut sender, _) = open(directory.addresses());
        let place = directory.replicas().next().unwrap();
        let taken = (0..100).filter(|_| sender.send(place, vec![0; 1 << 20])).count();
        assert!((OUTGOING_MAX..100).contains(&taken), "{taken}");
    }
}
