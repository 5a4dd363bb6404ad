//! The side channel: TCP for frames that do not fit a datagram.
//!
//! A frame proves by itself who sent it, so a connection needs no greeting: each carries `length 4 | frame`
//! again and again, in one direction. There is a thread for each connection in, and one for each place that
//! was ever sent a long frame. Everything is bounded, and what finds no room is lost, as on any network:
//! retransmission brings it again. Who may connect, and who stays, is in `slots.rs`.
//!
//! The owner of the socket sleeps on its datagrams; an empty datagram to itself announces a frame.

mod receive;
mod slots;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use quorate_wire::Principal;
use quorate_wire::frame::PACKED_BYTES_MAX;

use self::receive::{Inbox, accept};
use quorate_process::Place;

pub(crate) use self::receive::Long;

/// Frames that wait for one place.
const OUTGOING_MAX: usize = 64;
/// The longest attempt to connect or to write.
const PATIENCE: Duration = Duration::from_secs(3);

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
        Self::open_above(address, addresses, PACKED_BYTES_MAX)
    }

    /// The same for frames of more than `above` bytes: shorter ones have no business here.
    pub(crate) fn open_above(
        address: SocketAddr,
        addresses: &[SocketAddr],
        above: usize,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let bell = UdpSocket::bind(SocketAddr::new(address.ip(), 0))?;
        bell.connect(address)?;
        bell.set_nonblocking(true)?;
        let inbox = Arc::new(Inbox::new(bell, above));
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

    /// Takes a frame that has come, if there is one. The owner is to [`Self::judge`] it.
    #[inline]
    pub(crate) fn take(&self) -> Option<Long> {
        self.inbox.take()
    }

    /// Tells who has made a frame that a connection has brought, if it was authentic. A
    /// connection that brings no such frame is not kept.
    pub(crate) fn judge(&self, connection: u64, by: Option<Principal>) {
        self.inbox.judge(connection, by);
    }

    /// A client has enough with the owner: no frame of it is taken. Or not any more.
    pub(crate) fn hold(&self, client: Principal, holds: bool) {
        self.inbox.hold(client, holds);
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
        self.inbox.stop();
        // The listener looks at the flag when somebody comes.
        let _ = TcpStream::connect_timeout(&self.address, PATIENCE);
    }
}

/// Carries frames to one place until the owner is gone.
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
mod tests;
