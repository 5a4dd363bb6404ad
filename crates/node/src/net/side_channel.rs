//! The side channel: TCP for frames that do not fit a datagram.
//!
//! A frame proves by itself who sent it, so a connection needs no greeting: each carries `length 4 | frame`
//! again and again, in one direction. There is a thread for each connection in, and one for each place that
//! was lately sent a long frame. Everything is bounded, and what finds no room is lost, as on any network:
//! retransmission brings it again. Who may connect, and who stays, is in `slots.rs`; what may wait to leave is in
//! `outgoing.rs`.
//!
//! The owner of the socket sleeps on its datagrams; an empty datagram to itself announces a frame.

mod outgoing;
mod receive;
mod slots;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;

use quorate_wire::Principal;
use quorate_wire::frame::PACKED_BYTES_MAX;

use self::outgoing::{Outgoing, PATIENCE};
use self::receive::{Inbox, accept};
use quorate_process::{Directory, Place};

pub(crate) use self::receive::Long;

/// The side channel of one node.
#[derive(Debug)]
pub(crate) struct SideChannel {
    inbox: Arc<Inbox>,
    address: SocketAddr,
    outgoing: Outgoing,
}

impl SideChannel {
    /// Listens on `address`, where the owner also takes datagrams.
    pub(crate) fn open(address: SocketAddr, directory: &Directory) -> io::Result<Self> {
        Self::open_above(address, directory, PACKED_BYTES_MAX)
    }

    /// The same for frames of more than `above` bytes: shorter ones have no business here.
    pub(crate) fn open_above(address: SocketAddr, directory: &Directory, above: usize) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let bell = UdpSocket::bind(SocketAddr::new(address.ip(), 0))?;
        bell.connect(address)?;
        bell.set_nonblocking(true)?;
        let inbox = Arc::new(Inbox::new(bell, above));
        let shared = Arc::clone(&inbox);
        std::thread::Builder::new()
            .name("side channel".to_owned())
            .spawn(move || accept(&listener, &shared))?;
        let mut outgoing = Outgoing::default();
        outgoing.follow(directory);
        Ok(Self { inbox, address, outgoing })
    }

    /// Updates the destinations to the present addresses of all places.
    pub(crate) fn follow(&mut self, directory: &Directory) {
        self.outgoing.follow(directory);
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

    /// Says whether a frame of this length to a place would find space.
    pub(crate) fn has_room(&self, to: Place, len: usize) -> bool {
        self.outgoing.has_room(to, len)
    }

    /// Sends a frame to a place. Returns false if there was no space.
    pub(crate) fn send(&mut self, to: Place, frame: Vec<u8>) -> bool {
        self.outgoing.send(to, frame)
    }
}

impl Drop for SideChannel {
    fn drop(&mut self) {
        self.inbox.stop();
        // The listener looks at the flag when somebody comes.
        let _ = TcpStream::connect_timeout(&self.address, PATIENCE);
    }
}

#[cfg(test)]
mod tests;
