//! What comes in over the side channel: frames from connections, up to the owner.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quorate_wire::Principal;
use quorate_wire::frame::FRAME_BYTES_MAX;

use super::slots::Slots;

/// Frames that wait for the owner, in bytes. Beyond it connections wait, but for those of replicas.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// The same for frames of clients that wait because these have enough here. Those beyond it are lost.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// The same for one connection, a replica's as well.
pub(super) const CONNECTION_BYTES_MAX: usize = 4 << 20;
/// Bytes that are taken from a connection at once. Once these have come, room is made for the rest of a frame.
const PIECE: usize = 64 << 10;
/// A connection that has brought no frame for so long is closed.
const IDLE: Duration = Duration::from_secs(20);
/// How long a whole frame may take.
const WHOLE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
/// How long to wait where the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(2);

/// A frame that has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Long {
    pub(crate) frame: Vec<u8>,
    /// The other end of the connection.
    pub(crate) from: SocketAddr,
    /// The connection.
    pub(crate) connection: u64,
}

/// What the threads share, behind one lock.
#[derive(Debug, Default)]
struct Shared {
    frames: VecDeque<Long>,
    /// The bytes of these.
    bytes: usize,
    /// Frames of clients that have enough here.
    kept: VecDeque<Long>,
    slots: Slots,
}

impl Shared {
    /// Puts a frame before the owner, or keeps it back.
    fn push(&mut self, long: Long) {
        if !self.slots.is_held(long.connection) {
            self.bytes += long.frame.len();
            return self.frames.push_back(long);
        }
        let bytes: usize = self.kept.iter().map(|kept| kept.frame.len()).sum();
        if bytes + long.frame.len() <= KEPT_BYTES_MAX {
            self.kept.push_back(long);
        } else {
            self.slots.takes(long.connection, long.frame.len());
        }
    }

    /// Sorts all frames again, after it has changed who has enough.
    fn sort(&mut self) {
        let (frames, kept) = (std::mem::take(&mut self.frames), std::mem::take(&mut self.kept));
        self.bytes = 0;
        for long in kept.into_iter().chain(frames) {
            self.push(long);
        }
    }
}

/// What the threads share with the owner.
#[derive(Debug)]
pub(super) struct Inbox {
    shared: Mutex<Shared>,
    /// There is room, or something has been judged.
    news: Condvar,
    /// How many frames there are.
    count: AtomicUsize,
    stop: AtomicBool,
    /// Wakes the owner.
    bell: UdpSocket,
    /// Frames of this length or less have no business here: they fit a datagram.
    above: usize,
}

impl Inbox {
    pub(super) fn new(bell: UdpSocket, above: usize) -> Self {
        Self {
            shared: Mutex::default(),
            news: Condvar::new(),
            count: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            bell,
            above,
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many frames wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Takes a frame that has come, if there is one.
    #[inline]
    pub(super) fn take(&self) -> Option<Long> {
        if self.count.load(Ordering::Acquire) == 0 { None } else { self.take_one() }
    }

    #[cold]
    fn take_one(&self) -> Option<Long> {
        let mut shared = self.shared();
        let long = shared.frames.pop_front()?;
        shared.bytes -= long.frame.len();
        shared.slots.takes(long.connection, long.frame.len());
        self.count.store(shared.frames.len(), Ordering::Release);
        drop(shared);
        self.news.notify_all();
        Some(long)
    }

    /// Tells who has made a frame that was taken, if it was authentic.
    pub(super) fn judge(&self, connection: u64, by: Option<Principal>) {
        self.shared().slots.judge(connection, by);
        self.news.notify_all();
    }

    /// A client has enough here: what it has brought and brings waits, and then its connections do. Or not any more.
    pub(super) fn hold(&self, client: Principal, holds: bool) {
        let mut shared = self.shared();
        shared.slots.hold(client, holds);
        shared.sort();
        self.count.store(shared.frames.len(), Ordering::Release);
        drop(shared);
        self.news.notify_all();
    }

    /// Ends every connection.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.shared().slots.close_all();
        self.news.notify_all();
    }

    /// Puts a frame before the owner, once there is room. Returns when the connection may bring another one.
    fn put(&self, long: Long) -> io::Result<()> {
        let (id, len) = (long.connection, long.frame.len());
        let mut shared = self.shared();
        loop {
            let held = shared.slots.is_held(id);
            let has_room = if held {
                shared.slots.waiting(id) == 0
            } else {
                shared.bytes + len <= WAITING_BYTES_MAX || shared.slots.is_replicas(id)
            };
            if has_room && shared.slots.waiting(id) + len <= CONNECTION_BYTES_MAX {
                break;
            }
            shared = self.wait(shared, id)?;
        }
        if !shared.slots.has(id) {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        let is_strangers = shared.slots.brings(id, len);
        let was_empty = shared.frames.is_empty();
        shared.push(long);
        self.count.store(shared.frames.len(), Ordering::Release);
        if was_empty && !shared.frames.is_empty() {
            // Once: from then on the owner is awake until it has seen the queue empty.
            let _ = self.bell.send(&[]);
        }
        while is_strangers && shared.slots.waits(id) {
            shared = self.wait(shared, id)?;
        }
        if shared.slots.has(id) { Ok(()) } else { Err(ErrorKind::ConnectionAborted.into()) }
    }

    fn wait<'a>(&self, shared: MutexGuard<'a, Shared>, id: u64) -> io::Result<MutexGuard<'a, Shared>> {
        if self.stop.load(Ordering::Acquire) || !shared.slots.has(id) {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        Ok(self.news.wait(shared).unwrap_or_else(PoisonError::into_inner))
    }
}

/// Takes connections until the owner is gone.
pub(super) fn accept(listener: &TcpListener, inbox: &Arc<Inbox>) {
    loop {
        let accepted = listener.accept();
        if inbox.stop.load(Ordering::Acquire) {
            return;
        }
        let Ok((stream, from)) = accepted else {
            // Too many open files, most likely.
            std::thread::sleep(PAUSE);
            continue;
        };
        let stream = Arc::new(stream);
        let Some(id) = inbox.shared().slots.enter(from.ip(), Arc::clone(&stream)) else { continue };
        let shared = Arc::clone(inbox);
        let thread = std::thread::Builder::new().name("side channel in".to_owned());
        let spawned = thread.spawn(move || {
            // Whatever ends it, the sender connects again.
            let _ = receive(&stream, from, id, &shared);
            shared.shared().slots.close(id);
        });
        if spawned.is_err() {
            inbox.shared().slots.close(id);
        }
    }
}

/// Takes frames from one connection until it ends, is idle or slow, or breaks a rule.
fn receive(stream: &TcpStream, from: SocketAddr, id: u64, inbox: &Inbox) -> io::Result<()> {
    loop {
        let mut len = [0; 4];
        read(stream, &mut len, Instant::now() + IDLE, || ())?;
        let until = Instant::now() + WHOLE;
        let len = usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX);
        if len <= inbox.above || len > FRAME_BYTES_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        // Room is made as bytes come, so that announcing a frame costs nobody memory.
        let mut frame = Vec::with_capacity(PIECE);
        while frame.len() < len {
            let have = frame.len();
            if have > 0 {
                frame.reserve_exact(len - have);
            }
            frame.resize((have + PIECE).min(len), 0);
            let Some(piece) = frame.get_mut(have..) else { break };
            read(stream, piece, until, || inbox.shared().slots.moves(id))?;
        }
        inbox.put(Long { frame, from, connection: id })?;
    }
}

/// Fills `buffer` until a moment, and tells whenever something comes.
fn read(mut stream: &TcpStream, mut buffer: &mut [u8], until: Instant, moves: impl Fn()) -> io::Result<()> {
    while !buffer.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                moves();
                buffer = buffer.get_mut(count..).unwrap_or_default();
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
