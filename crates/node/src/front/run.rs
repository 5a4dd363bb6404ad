//! The loop itself.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::connection::{Connection, Key, Slot, find, to_usize};
use super::{Backing, Cluster, Counts, Failure, INPUT_BYTES, Limits, Question, Refused, Talk, Turn};
use crate::clock::Clock;
use crate::idle::Waiting;

/// The most events of connections between two flushes.
const BURST_MAX: usize = 64;
/// How often deadlines are looked at, in nanoseconds.
const TICK_NS: u64 = 100_000_000;
/// The longest sleep, so that the thread sees that it is to stop, in milliseconds.
const SLEEP_MS_MAX: u64 = 50;

/// What the poller says of the listener and of what is behind the door; below are connections.
const LISTENER: u64 = u64::MAX;
const BACKING: u64 = u64::MAX - 1;

/// What a lane is doing, and for whom.
#[derive(Clone, Copy, Debug)]
struct Asked {
    key: Key,
    question: Question,
    at: u64,
}

/// A door with its connections. See the module.
#[derive(Debug)]
pub struct FrontDoor<T: Talk, B: Backing = Cluster> {
    limits: Limits,
    protocol: T::Protocol,
    listener: TcpListener,
    /// The listener is not looked at for a while: there are too many open files.
    paused: bool,
    poller: Epoll,
    backing: B,
    clock: Clock,
    slots: Vec<Slot<T>>,
    free_slots: Vec<u32>,
    counts: Counts,
    /// What each lane does. None: it is free, or whoever asked has given up and it is not done yet.
    asked: Vec<Option<Asked>>,
    free_lanes: Vec<u16>,
    /// Connections with questions that wait for a lane, in turn. At most one entry for each connection, and
    /// for those that are gone until their turn comes.
    waiting: VecDeque<Key>,
    held: usize,
    tick_at: u64,
    // Memory that is used again.
    buffer: Vec<u8>,
    operation: Vec<u8>,
    finished: Vec<Key>,
}

impl<T: Talk, B: Backing> FrontDoor<T, B> {
    /// Opens a door at `address`. `backing` has the lanes that the limits say.
    ///
    /// # Errors
    ///
    /// The address is taken or not ours, or there are too many open files.
    pub fn open(address: SocketAddr, limits: Limits, protocol: T::Protocol, backing: B) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let poller = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        poller.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        backing.watch(&poller, EpollEvent::new(EpollFlags::EPOLLIN, BACKING))?;
        let clock = Clock::new();
        Ok(Self {
            asked: vec![None; usize::from(limits.lanes)],
            free_lanes: (0..limits.lanes).rev().collect(),
            limits,
            protocol,
            listener,
            paused: false,
            poller,
            backing,
            clock,
            slots: Vec::new(),
            free_slots: Vec::new(),
            counts: Counts { opened_ns: clock.mono_ns(), ..Counts::default() },
            waiting: VecDeque::new(),
            held: 0,
            tick_at: 0,
            buffer: vec![0; INPUT_BYTES],
            operation: Vec::new(),
            finished: Vec::new(),
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

    /// Returns what is behind the door.
    pub fn backing(&self) -> &B {
        &self.backing
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
            let came = self.receive()?;
            // What came may have called for something to be sent, which leaves further down: no sleep before that.
            let wait_ms = if polls || came { 0 } else { self.sleep_ms(now_ns) };
            let worked = came | self.serve(&mut events, wait_ms)?;
            self.expire();
            self.relieve();
            self.dispatch();
            self.backing.flush()?;
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
        let due = self.backing.due().min(self.tick_at);
        let sleep_ms = due.saturating_sub(now_ns).div_ceil(1_000_000).min(SLEEP_MS_MAX);
        u16::try_from(sleep_ms).unwrap_or(0)
    }

    /// Takes what has come from behind. Says whether there was anything.
    fn receive(&mut self) -> io::Result<bool> {
        let came = self.backing.receive(&self.clock)?;
        if self.backing.has_done() {
            self.finish();
        }
        Ok(came)
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
                BACKING => {}
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
                Ok((stream, peer)) => self.admit(stream, peer),
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

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        let now_ns = self.clock.mono_ns();
        self.counts.connections_total += 1;
        let talk = T::open(&self.protocol, peer, self.counts.connections_total);
        let prepared = stream.set_nonblocking(true).and(stream.set_nodelay(true));
        let mut connection = Connection {
            stream,
            talk,
            moved_at: now_ns,
            waits_since: None,
            counted: 0,
            interest: (true, false),
        };
        if self.counts.connections >= self.limits.connections_max || prepared.is_err() {
            connection.talk.refuse(Refused::Connections);
            connection.write(now_ns);
            return;
        }
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(Slot { life: 0, connection: None });
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let Some(place) = self.slots.get_mut(to_usize(slot)) else { return };
        let key = Key { slot, life: place.life };
        let event = EpollEvent::new(EpollFlags::EPOLLIN, key.to_wire());
        if self.poller.add(&connection.stream, event).is_err() {
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
        let readable = flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP);
        if lives && readable && connection.talk.wants_input() {
            if connection.talk.is_large() && self.held > self.limits.memory_bytes_max {
                connection.talk.refuse(Refused::Memory);
            } else {
                lives = connection.read(&self.protocol, &mut self.buffer, now_ns);
            }
        } else if lives && flags.intersects(EpollFlags::EPOLLHUP) {
            lives = false;
        }
        if lives { self.advance(key) } else { self.close(key) }
    }

    /// Does for a connection what can be done now: writes, and puts it in the queue for a lane.
    fn advance(&mut self, key: Key) {
        let now_ns = self.clock.mono_ns();
        self.counts.uptime_s = (now_ns - self.counts.opened_ns) / 1_000_000_000;
        let Some(connection) = find(&mut self.slots, key) else { return };
        loop {
            if !connection.write(now_ns) {
                return self.close(key);
            }
            if connection.talk.work(&self.protocol, &mut self.counts) == Turn::Rest {
                break;
            }
        }
        if !connection.write(now_ns) {
            return self.close(key);
        }
        if connection.waits_since.is_none() && connection.talk.has_question() {
            connection.waits_since = Some(now_ns);
            self.waiting.push_back(key);
        }
        let held = connection.talk.held();
        self.held = (self.held + held).saturating_sub(std::mem::replace(&mut connection.counted, held));
        let interest = (connection.talk.wants_input(), !connection.talk.output().is_empty());
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

    /// Gives questions that wait to lanes that are free, one of each connection in turn.
    fn dispatch(&mut self) {
        while let Some(lane) = self.free_lanes.last().copied() {
            let Some(key) = self.waiting.pop_front() else { break };
            let Some(connection) = find(&mut self.slots, key) else { continue };
            connection.waits_since = None;
            let Some(question) = connection.talk.question(&mut self.operation) else { continue };
            let now = self.clock.now();
            if connection.talk.has_question() {
                connection.waits_since = Some(now.mono_ns);
                self.waiting.push_back(key);
            }
            self.free_lanes.pop();
            self.asked[usize::from(lane)] = Some(Asked { key, question, at: now.mono_ns });
            self.backing.invoke(now, lane, &self.operation, question.read_only);
        }
    }

    /// Hands out the results that have come.
    fn finish(&mut self) {
        let Self { backing, asked, free_lanes, slots, protocol, counts, finished, .. } = self;
        backing.hand_out(&mut |lane, result| {
            let Some(asked) = asked.get_mut(usize::from(lane)).map(Option::take) else { return };
            free_lanes.push(lane);
            let Some(Asked { key, question, .. }) = asked else { return };
            let Some(connection) = find(slots, key) else { return };
            match result {
                Ok(result) => connection.talk.answer(protocol, question.ticket, result, counts),
                Err(failure) => connection.talk.fail(question.ticket, failure),
            }
            finished.push(key);
        });
        let mut finished = std::mem::take(&mut self.finished);
        for key in finished.drain(..) {
            self.advance(key);
        }
        self.finished = finished;
    }

    /// Does what is due.
    fn expire(&mut self) {
        let now = self.clock.now();
        if self.backing.due() <= now.mono_ns {
            self.backing.expire(now);
            if self.backing.has_done() {
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
        self.give_up(now.mono_ns);
        for slot in 0..self.slots.len() {
            let Some(Slot { life, connection: Some(connection) }) = self.slots.get_mut(slot) else {
                continue;
            };
            let key = Key { slot: u32::try_from(slot).unwrap_or(u32::MAX), life: *life };
            if connection.talk.is_stalled() && now.mono_ns - connection.moved_at > self.limits.stall_ns {
                self.close(key);
            }
        }
    }

    /// With more held in all than may be, lets those go that hold much and have stood still longest: the clients
    /// that take their replies have moved since. A client that meant well connects again and asks again.
    fn relieve(&mut self) {
        while self.held > self.limits.memory_bytes_max {
            let large = self.slots.iter().zip(0..).filter_map(|(place, slot)| {
                let connection = place.connection.as_ref()?;
                let key = Key { slot, life: place.life };
                (connection.counted >= INPUT_BYTES).then_some((connection.moved_at, key))
            });
            let Some((_, key)) = large.min_by_key(|(moved_at, _)| *moved_at) else { break };
            self.close(key);
        }
    }

    /// Answers the clients for whose operations the cluster takes too long. A lane that has one stays busy
    /// until the cluster answers.
    fn give_up(&mut self, now_ns: u64) {
        let is_late = |since: u64| now_ns.saturating_sub(since) > self.limits.deadline_ns;
        for asked in &mut self.asked {
            let given_up = |asked: &mut Asked| is_late(asked.at) && asked.question.may_give_up;
            let Some(Asked { key, question, .. }) = asked.take_if(given_up) else { continue };
            let Some(connection) = find(&mut self.slots, key) else { continue };
            let failure = if question.read_only { Failure::NothingDone } else { Failure::Unknown };
            connection.talk.fail(question.ticket, failure);
            self.finished.push(key);
        }
        // No lane has become free for them in all that time.
        for key in &self.waiting {
            let Some(connection) = find(&mut self.slots, *key) else { continue };
            if connection.waits_since.is_some_and(is_late) {
                while let Some(question) = connection.talk.question(&mut self.operation) {
                    connection.talk.fail(question.ticket, Failure::NothingDone);
                }
                self.finished.push(*key);
            }
        }
        for key in std::mem::take(&mut self.finished) {
            self.advance(key);
        }
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
        // Closing the socket takes it out of the poller; its lanes are freed when they are done.
        for asked in &mut self.asked {
            asked.take_if(|asked| asked.key == key);
        }
        if connection.waits_since.is_some() {
            self.waiting.retain(|waiting| *waiting != key);
        }
    }
}
