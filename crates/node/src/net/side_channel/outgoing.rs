//! Frames that wait to leave: a queue and a thread for each place.
//!
//! A place that does not read must not use up the memory of the node, or keep others from their frames. So at most as many bytes
//! wait for a place as others may still use: with k such places, 1/(k + 1) of all is left. Clients and replicas
//! have nothing of each other's.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use quorate_process::{Directory, Place};

/// Bytes that wait for all clients, and the same for all replicas.
pub(super) const WAITING_MAX: usize = 128 << 20;
/// Frames that wait for one place.
const FRAMES_MAX: usize = 64;
/// The most clients to which frames are carried at a time: each takes a thread and a descriptor.
const CLIENTS_MAX: usize = 256;
/// The longest attempt to connect or to write.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// A thread without a frame for this long ends.
const IDLE: Duration = Duration::from_secs(60);

/// Numbers that go down when their frames and threads are gone.
#[derive(Debug, Default)]
struct Load {
    bytes: AtomicUsize,
    frames: AtomicUsize,
    threads: AtomicUsize,
}

/// A frame that waits.
#[derive(Debug)]
struct Waiting {
    frame: Vec<u8>,
    loads: [Arc<Load>; 2],
}

impl Waiting {
    fn new(frame: Vec<u8>, loads: [&Arc<Load>; 2]) -> Self {
        let loads = loads.map(Arc::clone);
        for load in &loads {
            load.bytes.fetch_add(frame.len(), Ordering::Relaxed);
            load.frames.fetch_add(1, Ordering::Relaxed);
        }
        Self { frame, loads }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        for load in &self.loads {
            load.bytes.fetch_sub(self.frame.len(), Ordering::Relaxed);
            load.frames.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A thread that carries frames.
struct Carrier(Arc<Load>);

impl Drop for Carrier {
    fn drop(&mut self) {
        self.0.threads.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The destination of frames.
#[derive(Debug)]
struct Destination {
    address: SocketAddr,
    /// None: no thread has been started.
    queue: Option<SyncSender<Waiting>>,
    load: Arc<Load>,
}

impl Destination {
    fn new(address: SocketAddr) -> Self {
        Self { address, queue: None, load: Arc::default() }
    }
}

/// The frames that wait to leave. See the module.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// One for each place.
    destinations: Vec<Destination>,
    /// The first places are those of replicas.
    replicas: usize,
    to_replicas: Arc<Load>,
    to_clients: Arc<Load>,
}

impl Outgoing {
    /// Updates the destinations to the present addresses of all places.
    pub(super) fn follow(&mut self, directory: &Directory) {
        self.replicas = directory.replicas().count();
        for (place, address) in directory.addresses().iter().enumerate() {
            match self.destinations.get_mut(place) {
                Some(known) if known.address == *address => {}
                // Its thread ends with what it still has.
                Some(known) => *known = Destination::new(*address),
                None => self.destinations.push(Destination::new(*address)),
            }
        }
    }

    /// Returns how many bytes wait for clients.
    #[cfg(test)]
    pub(super) fn waiting_for_clients(&self) -> usize {
        self.to_clients.bytes.load(Ordering::Relaxed)
    }

    /// Says whether a frame of this length would find space.
    pub(super) fn has_room(&self, to: Place, len: usize) -> bool {
        let all = if to.index() >= self.replicas { &self.to_clients } else { &self.to_replicas };
        let Some(to) = self.destinations.get(to.index()) else { return false };
        let free = WAITING_MAX.saturating_sub(all.bytes.load(Ordering::Relaxed));
        // Its thread has one more in its hands.
        to.load.bytes.load(Ordering::Relaxed).saturating_add(len) <= free
            && to.load.frames.load(Ordering::Relaxed) <= FRAMES_MAX
    }

    /// Sends a frame to a place. Returns false if there was no space.
    pub(super) fn send(&mut self, to: Place, frame: Vec<u8>) -> bool {
        if !self.has_room(to, frame.len()) {
            return false;
        }
        let is_client = to.index() >= self.replicas;
        let all = if is_client { &self.to_clients } else { &self.to_replicas };
        let Some(to) = self.destinations.get_mut(to.index()) else { return false };
        let mut waiting = Waiting::new(frame, [&to.load, all]);
        // The thread of an idle queue has ended.
        for _ in 0..2 {
            let sent = match &to.queue {
                Some(queue) => queue.try_send(waiting),
                None => Err(TrySendError::Disconnected(waiting)),
            };
            waiting = match sent {
                Ok(()) => return true,
                Err(TrySendError::Full(_)) => return false,
                Err(TrySendError::Disconnected(waiting)) => waiting,
            };
            if is_client && all.threads.load(Ordering::Relaxed) >= CLIENTS_MAX {
                return false;
            }
            to.queue = start(to.address, all);
        }
        false
    }
}

/// Starts the thread of a place.
fn start(address: SocketAddr, load: &Arc<Load>) -> Option<SyncSender<Waiting>> {
    let (sender, receiver) = sync_channel(FRAMES_MAX);
    load.threads.fetch_add(1, Ordering::Relaxed);
    let carrier = Carrier(Arc::clone(load));
    let thread = std::thread::Builder::new().name("side channel out".to_owned());
    let started = thread.spawn(move || {
        carry(address, &receiver, IDLE);
        drop(carrier);
    });
    started.ok().map(|_| sender)
}

/// Carries frames to one place until the owner is gone, or sends nothing.
fn carry(address: SocketAddr, frames: &Receiver<Waiting>, idle: Duration) {
    let mut stream: Option<TcpStream> = None;
    while let Ok(waiting) = frames.recv_timeout(idle) {
        // The other side may have closed an idle connection: writing detects that.
        let sent = (0..2).any(|_| {
            if stream.is_none() {
                stream = connect(address).ok();
            }
            let sent = stream.as_mut().is_some_and(|stream| write(stream, &waiting.frame).is_ok());
            if !sent {
                stream = None;
            }
            sent
        });
        if !sent {
            // Nobody reads there: the others would each wait as long.
            while frames.try_recv().is_ok() {}
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

    /// L102: a place that is sent nothing for a while has no thread and no connection.
    #[test]
    fn l102_an_idle_thread_ends_and_the_next_frame_starts_another() {
        let (sender, receiver) = sync_channel(1);
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        carry(address, &receiver, Duration::from_millis(1));
        drop(receiver);
        let mut outgoing = Outgoing::default();
        outgoing.follow(&Directory::new(&[address]));
        outgoing.destinations[0].queue = Some(sender);
        let place = Directory::new(&[address]).replicas().next().unwrap();
        assert!(outgoing.send(place, vec![7; 1000]));
        let mut frame = vec![0; 1004];
        listener.accept().unwrap().0.read_exact(&mut frame).unwrap();
        assert_eq!((&frame[..4], &frame[4..]), (&1000_u32.to_le_bytes()[..], &[7; 1000][..]));
    }
}
