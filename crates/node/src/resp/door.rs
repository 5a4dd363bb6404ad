//! The loop of the door: connections on one side, lanes of the client on the other.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use quorate_wire::frame::PACKED_BYTES_MAX;

use super::Options;
use super::connection::{Connection, INPUT_BYTES, OUTPUT_BYTES, State};
use super::pack::Then;
use super::reply::Facts;
use crate::client::ClientDrive;
use crate::clock::Clock;
use crate::idle::Waiting;
use crate::meter::Meter;
use crate::socket::Socket;

/// The longest operation, in bytes: alone in a frame with its authenticators it still fits a datagram.
const OPERATION_BYTES: usize = PACKED_BYTES_MAX - (4 << 10);
/// The most datagrams, and the most events of connections, between two flushes.
const BURST_MAX: usize = 64;
/// How often deadlines are looked at, in nanoseconds.
const TICK_NS: u64 = 100_000_000;
/// The longest sleep, so that the thread sees that it is to stop, in milliseconds.
const SLEEP_MS_MAX: u64 = 50;

/// What the poller says of the listener and of the cluster's sockets; below are connections.
const LISTENER: u64 = u64::MAX;
const CLUSTER: u64 = u64::MAX - 1;

/// No answer came in time for commands that may have been done.
const UNKNOWN: &str = "UNKNOWN no answer from the cluster in time: it may have been done or may be done yet";
/// Nothing was done.
const NOTHING_DONE: &str = "TRYAGAIN no answer from the cluster in time: nothing was done";
const RESULT_LOST: &str = "UNKNOWN it was done, but the answer was too long to be kept and got lost";

/// The place of a connection, and which one it is of those that were there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    slot: u32,
    life: u32,
}

impl Key {
    fn to_wire(self) -> u64 {
        u64::from(self.life) << 32 | u64::from(self.slot)
    }

    fn from_wire(number: u64) -> Self {
        let part = |bits: u64| u32::try_from(bits & 0xffff_ffff).unwrap_or(0);
        Self { slot: part(number), life: part(number >> 32) }
    }
}

/// What the door counts.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    connections: usize,
    connections_total: u64,
    commands_total: u64,
    opened_ns: u64,
}

/// A place for a connection.
#[derive(Debug, Default)]
struct Slot {
    life: u32,
    connection: Option<Box<Connection>>,
}

/// A door with its connections. See [`super`].
#[derive(Debug)]
pub struct RespDoor<M: Meter = ()> {
    options: Options,
    listener: TcpListener,
    /// The listener is not looked at for a while: there are too many open files.
    paused: bool,
    poller: Epoll,
    drive: ClientDrive<M>,
    socket: Socket,
    clock: Clock,
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    counts: Counts,
    /// Whose pack each lane has. None: it is free, or the connection has given up and it is not done yet.
    owners: Vec<Option<Key>>,
    free_lanes: Vec<u16>,
    /// Connections whose pack waits for a lane, in order. At most one entry for each connection, and for
    /// those that are gone until their turn comes.
    waiting: VecDeque<Key>,
    held: usize,
    tick_at: u64,
    // Memory that is used again.
    buffer: Vec<u8>,
    operation: Vec<u8>,
}

impl<M: Meter> RespDoor<M> {
    /// Opens a door at `address`. `drive` has the lanes that the options say; `socket` is its own.
    ///
    /// # Errors
    ///
    /// The address is taken or not ours, or there are too many open files.
    pub fn open(
        address: SocketAddr,
        options: Options,
        drive: ClientDrive<M>,
        socket: Socket,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let poller = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        poller.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        poller.add(socket.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, CLUSTER))?;
        let clock = Clock::new();
        Ok(Self {
            owners: vec![None; usize::from(options.lanes)],
            free_lanes: (0..options.lanes).rev().collect(),
            options,
            listener,
            paused: false,
            poller,
            drive,
            socket,
            clock,
            slots: Vec::new(),
            free_slots: Vec::new(),
            counts: Counts { opened_ns: clock.mono_ns(), ..Counts::default() },
            waiting: VecDeque::new(),
            held: 0,
            tick_at: 0,
            buffer: vec![0; INPUT_BYTES],
            operation: Vec::new(),
        })
    }

    /// Returns the address that is listened at.
    ///
    /// # Errors
    ///
    /// The kernel does not know it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the client behind the door.
    pub fn drive(&self) -> &ClientDrive<M> {
        &self.drive
    }

    /// Serves until `stop`.
    ///
    /// # Errors
    ///
    /// The sockets cannot be used any more.
    pub fn run(&mut self, waiting: Waiting, stop: &AtomicBool) -> io::Result<()> {
        let mut idle_since = None;
        let mut events = vec![EpollEvent::empty(); BURST_MAX];
        while !stop.load(Ordering::Relaxed) {
            let now_ns = self.clock.mono_ns();
            let polls = match (waiting, idle_since) {
                (_, None) => true,
                (Waiting::Block, Some(_)) => false,
                (Waiting::Poll(patience), Some(since)) => now_ns < patience.saturating_add(since),
            };
            let worked =
                self.receive()? | self.serve(&mut events, if polls { 0 } else { self.sleep_ms(now_ns) })?;
            self.expire();
            self.dispatch();
            self.drive.flush(&mut self.socket);
            if worked {
                idle_since = None;
            } else {
                idle_since.get_or_insert(now_ns);
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn sleep_ms(&self, now_ns: u64) -> u16 {
        let due = self.drive.due().min(self.tick_at);
        let sleep_ms = due.saturating_sub(now_ns).div_ceil(1_000_000).min(SLEEP_MS_MAX);
        u16::try_from(sleep_ms).unwrap_or(0)
    }

    /// Takes what the replicas have sent. Says whether there was anything.
    fn receive(&mut self) -> io::Result<bool> {
        let mut burst = 0;
        while burst < BURST_MAX
            && let Some(datagram) = self.socket.receive()?
        {
            burst += 1;
            self.drive.receive(self.clock.now(), datagram);
        }
        if !self.drive.done().is_empty() {
            self.finish();
        }
        Ok(burst > 0)
    }

    /// Takes what clients have sent and gives what they have room for; waits for that so many
    /// milliseconds. Says whether there was anything.
    fn serve(&mut self, events: &mut [EpollEvent], wait_ms: u16) -> io::Result<bool> {
        let count = match self.poller.wait(events, EpollTimeout::from(wait_ms)) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut worked = false;
        for event in events.iter().take(count) {
            match event.data() {
                // Its datagrams are taken anyway.
                CLUSTER => {}
                LISTENER => {
                    worked = true;
                    self.accept();
                }
                number => {
                    worked = true;
                    self.on_event(Key::from_wire(number), event.events());
                }
            }
        }
        Ok(worked)
    }

    fn accept(&mut self) {
        for _ in 0..BURST_MAX {
            match self.listener.accept() {
                Ok((stream, _)) => self.admit(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // Too many open files: those that wait do so until some are closed.
                    self.paused = self.poller.delete(&self.listener).is_ok();
                    break;
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream) {
        let now_ns = self.clock.mono_ns();
        self.counts.connections_total += 1;
        let admitted = self.options.password.is_none();
        let mut connection = Connection::new(stream, self.counts.connections_total, admitted, now_ns);
        let prepared = connection.stream.set_nonblocking(true).and(connection.stream.set_nodelay(true));
        if self.counts.connections >= self.options.connections_max || prepared.is_err() {
            connection.refuse("ERR max number of clients reached");
            connection.write(now_ns);
            return;
        }
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let Some(place) = self.slots.get_mut(to_usize(slot)) else { return };
        let key = Key { slot, life: place.life };
        if self.poller.add(&connection.stream, EpollEvent::new(EpollFlags::EPOLLIN, key.to_wire())).is_err() {
            self.free_slots.push(slot);
            return;
        }
        place.connection = Some(Box::new(connection));
        self.counts.connections += 1;
    }

    fn on_event(&mut self, key: Key, flags: EpollFlags) {
        let now_ns = self.clock.mono_ns();
        let Some(connection) = find(&mut self.slots, key) else { return };
        let mut lives = !flags.intersects(EpollFlags::EPOLLERR);
        if lives && flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP) && connection.wants_input() {
            if connection.is_large() && self.held > self.options.memory_bytes_max {
                connection.refuse("ERR out of memory at the door: try again, or send less at a time");
            } else {
                lives = connection.read(&mut self.buffer, now_ns);
            }
        } else if lives && flags.intersects(EpollFlags::EPOLLHUP) {
            lives = false;
        }
        if lives { self.advance(key) } else { self.close(key) }
    }

    /// Does for a connection what can be done now: writes, and has the next commands done.
    fn advance(&mut self, key: Key) {
        let now_ns = self.clock.mono_ns();
        let facts = facts(&self.options, self.counts, now_ns);
        let Some(connection) = find(&mut self.slots, key) else { return };
        loop {
            if !connection.write(now_ns) {
                return self.close(key);
            }
            if connection.state != State::Idle || connection.pending() > OUTPUT_BYTES {
                break;
            }
            let before = connection.commands;
            connection.pack(&facts, OPERATION_BYTES);
            self.counts.commands_total += connection.commands - before;
            if connection.pack.is_empty() {
                if !connection.write(now_ns) {
                    return self.close(key);
                }
                break;
            }
            if connection.pack.question(&mut self.operation).is_some() {
                connection.state = State::Waiting;
                connection.asked_at = now_ns;
                self.waiting.push_back(key);
                break;
            }
            let (pack, output) = connection.parts();
            pack.known(output);
            pack.clear();
        }
        let held = connection.held();
        self.held = (self.held + held).saturating_sub(std::mem::replace(&mut connection.counted, held));
        let interest = (connection.wants_input(), connection.pending() > 0);
        if interest != connection.interest {
            connection.interest = interest;
            let mut flags = EpollFlags::empty();
            flags.set(EpollFlags::EPOLLIN, interest.0);
            flags.set(EpollFlags::EPOLLOUT, interest.1);
            let mut event = EpollEvent::new(flags, key.to_wire());
            if self.poller.modify(&connection.stream, &mut event).is_err() {
                self.close(key);
            }
        }
    }

    /// Gives packs that wait to lanes that are free.
    fn dispatch(&mut self) {
        while let Some(lane) = self.free_lanes.last().copied() {
            let Some(key) = self.waiting.pop_front() else { break };
            let Some(connection) = find(&mut self.slots, key) else { continue };
            if connection.state != State::Waiting {
                continue;
            }
            let Some(read_only) = connection.pack.question(&mut self.operation) else { continue };
            connection.state = State::Asked { lane, read_only };
            self.free_lanes.pop();
            self.owners[usize::from(lane)] = Some(key);
            self.drive.invoke(self.clock.now(), lane, &self.operation, read_only);
        }
    }

    /// Hands out the results that have come.
    fn finish(&mut self) {
        let now_ns = self.clock.mono_ns();
        let facts = facts(&self.options, self.counts, now_ns);
        let mut finished = Vec::new();
        let mut ordered = Vec::new();
        for done in self.drive.done() {
            let lane = done.lane;
            let Some(owner) = self.owners.get_mut(usize::from(lane)) else { continue };
            let key = owner.take();
            let connection = key.and_then(|key| find(&mut self.slots, key));
            let (Some(key), Some(connection)) = (key, connection) else {
                self.free_lanes.push(lane);
                continue;
            };
            let (pack, output) = connection.parts();
            let then = if done.result_lost {
                pack.fail(RESULT_LOST, output);
                Then::Finished
            } else {
                pack.answer(self.drive.result(done), &facts, output)
            };
            if then == Then::AskOrdered {
                connection.state = State::Asked { lane, read_only: false };
                *owner = Some(key);
                ordered.push((lane, key));
                continue;
            }
            self.free_lanes.push(lane);
            if then == Then::AskOn {
                connection.state = State::Waiting;
                self.waiting.push_front(key);
            } else {
                pack_done(connection);
                finished.push(key);
            }
        }
        self.drive.clear_done();
        for (lane, key) in ordered {
            if let Some(connection) = find(&mut self.slots, key) {
                connection.pack.question(&mut self.operation);
                self.drive.invoke(self.clock.now(), lane, &self.operation, false);
            }
        }
        for key in finished {
            self.advance(key);
        }
    }

    /// Does what is due.
    fn expire(&mut self) {
        let now = self.clock.now();
        if self.drive.due() <= now.mono_ns {
            self.drive.expire(now);
            if !self.drive.done().is_empty() {
                self.finish();
            }
        }
        if now.mono_ns < self.tick_at {
            return;
        }
        self.tick_at = now.mono_ns.saturating_add(TICK_NS);
        if self.paused {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, LISTENER);
            self.paused = self.poller.add(&self.listener, event).is_err();
        }
        for slot in 0..self.slots.len() {
            let Some(Slot { life, connection: Some(connection) }) = self.slots.get_mut(slot) else {
                continue;
            };
            let key = Key { slot: u32::try_from(slot).unwrap_or(u32::MAX), life: *life };
            if connection.is_stalled() && now.mono_ns - connection.moved_at > self.options.stall_ns {
                self.close(key);
            } else if connection.state != State::Idle
                && now.mono_ns - connection.asked_at > self.options.deadline_ns
            {
                self.give_up(key);
            }
        }
    }

    /// Answers the commands of a pack for which the cluster takes too long. A lane that has them stays
    /// busy until the cluster answers.
    fn give_up(&mut self, key: Key) {
        let Some(connection) = find(&mut self.slots, key) else { return };
        let text = match connection.state {
            State::Asked { lane, read_only } => {
                self.owners[usize::from(lane)] = None;
                if read_only { NOTHING_DONE } else { UNKNOWN }
            }
            State::Waiting | State::Idle => NOTHING_DONE,
        };
        let (pack, output) = connection.parts();
        pack.fail(text, output);
        pack_done(connection);
        self.waiting.retain(|waiting| *waiting != key);
        self.advance(key);
    }

    fn close(&mut self, key: Key) {
        let Some(place) = self.slots.get_mut(to_usize(key.slot)).filter(|place| place.life == key.life)
        else {
            return;
        };
        let Some(connection) = place.connection.take() else { return };
        place.life = place.life.wrapping_add(1);
        self.free_slots.push(key.slot);
        self.counts.connections -= 1;
        self.held = self.held.saturating_sub(connection.counted);
        // Closing the socket takes it out of the poller; a lane with its pack is freed when it is done.
        if let State::Asked { lane, .. } = connection.state {
            self.owners[usize::from(lane)] = None;
        }
        self.waiting.retain(|waiting| *waiting != key);
    }
}

fn pack_done(connection: &mut Connection) {
    connection.pack.clear();
    connection.state = State::Idle;
}

fn find(slots: &mut [Slot], key: Key) -> Option<&mut Connection> {
    let slot = slots.get_mut(to_usize(key.slot)).filter(|slot| slot.life == key.life)?;
    slot.connection.as_deref_mut()
}

fn facts(options: &Options, counts: Counts, now_ns: u64) -> Facts<'_> {
    Facts {
        password: options.password.as_deref(),
        connections_max: options.connections_max,
        connections: counts.connections,
        connections_total: counts.connections_total,
        commands_total: counts.commands_total,
        uptime_s: (now_ns - counts.opened_ns) / 1_000_000_000,
    }
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
