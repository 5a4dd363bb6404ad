//! The loop itself.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::backing::{Backing, Cluster};
use super::connection::{Connection, Key, Slot, find, to_usize};
use super::conversation::{
    Conversation, Counts, Ends, Failure, Goes, INPUT_BYTES, Limits, Progress, Question, Refused,
};
use quorate_node::clock::Clock;
use quorate_node::crowd::{Crowd, RunDelay};
use quorate_node::idle::{self, Waiting};

/// Maximum number of events of connections between two flushes.
const BURST_MAX: usize = 64;
/// Maximum number of unused connections that are closed at a time, and the time between two times, in nanoseconds.
const LET_GO_MAX: usize = 16;
const LET_GO_NS: u64 = 5_000_000;
/// How long a connection is new, in nanoseconds.
const NEW_NS: u64 = 1_000_000_000;
/// How often deadlines are checked, in nanoseconds.
const TICK_NS: u64 = 100_000_000;
/// The longest sleep, so that the thread notices the request to stop, in milliseconds.
const SLEEP_MS_MAX: u64 = 50;

/// The poller's tokens of the listener and of the backing; lower ones are connections.
const LISTENER: u64 = u64::MAX;
const BACKING: u64 = u64::MAX - 1;

/// The use of a lane.
#[derive(Clone, Copy, Debug)]
struct Asked {
    key: Key,
    question: Question,
    at: u64,
}

/// A gateway with its connections. See the module.
#[derive(Debug)]
pub struct FrontDoor<T: Conversation, B: Backing = Cluster> {
    limits: Limits,
    protocol: T::Protocol,
    listener: TcpListener,
    /// Whether the listener is ignored for a while: there are too many open files.
    paused: bool,
    poller: Epoll,
    backing: B,
    /// The real time, in which users wait.
    clock: Clock,
    /// The time of the backing's timers: what this thread was away counts little (TM-7).
    own_time: Clock,
    /// Both in this turn, after its wait, in nanoseconds: one reading is enough.
    now_ns: u64,
    own_ns: u64,
    slots: Vec<Slot<T>>,
    free_slots: Vec<u32>,
    counts: Counts,
    /// The use of each lane. None: it is free, or its client has given up and the operation is not finished yet.
    asked: Vec<Option<Asked>>,
    free_lanes: Vec<u16>,
    /// Connections with operations that wait for a lane, in order. At most one entry for each connection, and for
    /// closed ones until their turn.
    waiting: VecDeque<Key>,
    held: usize,
    tick_at: u64,
    /// When unused connections are looked for again.
    let_go_at: u64,
    // Buffers that are reused.
    buffer: Vec<u8>,
    operation: Vec<u8>,
    finished: Vec<Key>,
}

impl<T: Conversation, B: Backing> FrontDoor<T, B> {
    /// Opens a gateway on `address`. `backing` has the number of lanes in the limits.
    ///
    /// # Errors
    ///
    /// The address is taken or not on this machine, or there are too many open files.
    pub fn open(address: SocketAddr, limits: Limits, protocol: T::Protocol, backing: B) -> io::Result<Self> {
        let limits = limits.within_descriptors();
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
            own_time: clock,
            now_ns: 0,
            own_ns: 0,
            slots: Vec::new(),
            free_slots: Vec::new(),
            counts: Counts { opened_ns: clock.mono_ns(), ..Counts::default() },
            waiting: VecDeque::new(),
            held: 0,
            tick_at: 0,
            let_go_at: 0,
            buffer: vec![0; INPUT_BYTES],
            operation: Vec::new(),
            finished: Vec::new(),
        })
    }

    /// Returns the address that it listens on.
    ///
    /// # Errors
    ///
    /// The kernel does not know it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the backing.
    pub fn backing(&self) -> &B {
        &self.backing
    }

    /// Serves until `stop`.
    ///
    /// # Errors
    ///
    /// The sockets have failed.
    pub fn run(&mut self, waiting: Waiting, stop: &AtomicBool) -> io::Result<()> {
        let (mut idle_since, mut crowd) = (None, Crowd::default());
        let (mut delay, mut came) = (RunDelay::default(), true);
        let mut events = vec![EpollEvent::empty(); BURST_MAX];
        while !stop.load(Ordering::Relaxed) {
            let (before, crowded) = (self.now_ns, crowd.is_here(self.now_ns));
            let polls = match (waiting, idle_since) {
                (_, None) => true,
                (Waiting::Block, Some(_)) => false,
                (Waiting::Poll(patience), Some(since)) => before < patience.saturating_add(since) && !crowded,
            };
            // Everything that input has created is sent by now.
            let wait_ms = if polls { 0 } else { self.sleep_ms() };
            self.backing.set_crowded(crowded);
            let mut count = 0;
            let rested_ns = idle::sleep(&mut delay, crowded, wait_ms, |wait_ms| {
                count = self.wait(&mut events, wait_ms)?;
                Ok::<_, io::Error>(())
            })?;
            let looked = Instant::now();
            crowd.looks(looked);
            self.now_ns = self.clock.real_ns(looked);
            self.own_ns = self.own_time.look_at(looked, rested_ns);
            let events = events.get(..count).unwrap_or(&[]);
            let mut worked = self.serve(events);
            // If the poller does not report it, there is nothing, unless the last look ended before all was taken.
            let is_there = || events.iter().any(|event| event.data() == BACKING) || self.backing.has_done();
            if came || wait_ms > 0 && count == 0 || is_there() {
                came = self.receive()?;
                worked |= came;
            }
            self.expire();
            self.dispatch();
            self.backing.flush()?;
            if worked {
                idle_since = None;
            } else {
                idle_since.get_or_insert(self.now_ns);
                if waiting != Waiting::Block && polls && !crowded {
                    crowd.make_room_from(looked, self.now_ns);
                }
            }
        }
        Ok(())
    }

    fn sleep_ms(&self) -> u64 {
        let backing = self.backing.due().saturating_sub(self.own_ns);
        let due = self.tick_at.saturating_sub(self.now_ns).min(backing);
        due.div_ceil(1_000_000).min(SLEEP_MS_MAX)
    }

    /// Takes input from the backing. Returns whether there was any.
    fn receive(&mut self) -> io::Result<bool> {
        let came = self.backing.receive(&self.own_time)?;
        if self.backing.has_done() {
            self.finish();
        }
        Ok(came)
    }

    /// Waits for events for this number of milliseconds, and returns their number.
    fn wait(&self, events: &mut [EpollEvent], wait_ms: u16) -> io::Result<usize> {
        match self.poller.wait(events, EpollTimeout::from(wait_ms)) {
            Ok(count) => Ok(count),
            Err(Errno::EINTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Exchanges data with users. Returns whether there was any.
    fn serve(&mut self, events: &[EpollEvent]) -> bool {
        let mut worked = false;
        for event in events {
            match event.data() {
                // The backing's datagrams are taken afterwards.
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
        worked
    }

    fn accept(&mut self) {
        for _ in 0..BURST_MAX {
            match self.listener.accept() {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    // Too many open files: waiting connections wait until others are closed.
                    self.paused = self.poller.delete(&self.listener).is_ok();
                    break;
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        let now_ns = self.now_ns;
        self.counts.connections_total += 1;
        // It may have been reset already.
        let Ok(own) = stream.local_addr() else { return };
        let conversation = T::open(&self.protocol, Ends { peer, own }, self.counts.connections_total);
        let prepared = stream.set_nonblocking(true).and(stream.set_nodelay(true));
        let mut connection = Connection::open(stream, conversation, now_ns);
        if self.counts.connections >= self.limits.connections_max {
            self.let_go(now_ns);
        }
        if self.counts.connections >= self.limits.connections_max || prepared.is_err() {
            connection.conversation.refuse(Refused::Connections);
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

    /// Makes room for new connections: closes some whose users may do nothing, or that nobody has used for a while.
    fn let_go(&mut self, now_ns: u64) {
        // Each search looks at all of them, and refused users come again at once.
        if now_ns < self.let_go_at {
            return;
        }
        self.let_go_at = now_ns.saturating_add(LET_GO_NS);
        let idle = self.slots.iter().zip(0..).filter_map(|(place, slot)| {
            let (goes, since) = place.connection.as_ref()?.may_go(now_ns)?;
            Some((goes, since, Key { slot, life: place.life }))
        });
        let mut idle: Vec<_> = idle.collect();
        // New ones have a moment to give a password, unless they have more than half of all places.
        if 2 * idle.iter().filter(|(goes, ..)| *goes == Goes::First).count() <= self.limits.connections_max {
            let is_new = |since: u64| now_ns.saturating_sub(since) <= NEW_NS;
            idle.retain(|(goes, since, _)| *goes != Goes::First || !is_new(*since));
        }
        idle.sort_unstable_by_key(|(goes, since, _)| (*goes, *since));
        for (.., key) in idle.into_iter().take(LET_GO_MAX) {
            self.close(key);
        }
    }

    fn on_event(&mut self, key: Key, flags: EpollFlags) {
        let now_ns = self.now_ns;
        let Some(connection) = find(&mut self.slots, key) else { return };
        let mut lives = !flags.intersects(EpollFlags::EPOLLERR);
        let readable = flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP);
        if lives && readable && connection.conversation.wants_input() {
            if connection.conversation.is_large() && self.held > self.limits.memory_bytes_max {
                connection.conversation.refuse(Refused::Memory);
            } else {
                lives = connection.read(&self.protocol, &mut self.buffer, now_ns);
            }
        } else if lives && flags.intersects(EpollFlags::EPOLLHUP) {
            lives = false;
        }
        if lives { self.advance(key) } else { self.close(key) }
    }

    /// Does what is possible for a connection: writes, and queues it for a lane.
    fn advance(&mut self, key: Key) {
        let now_ns = self.now_ns;
        self.counts.uptime_s = (now_ns - self.counts.opened_ns) / 1_000_000_000;
        let Some(connection) = find(&mut self.slots, key) else { return };
        loop {
            if !connection.write(now_ns) {
                return self.close(key);
            }
            // What is left now waits for an event. New output may be taken at once, and leave room for more.
            let unsent = connection.conversation.output().len();
            let progress = connection.conversation.work(&self.protocol, &mut self.counts);
            if progress == Progress::Rest && connection.conversation.output().len() == unsent {
                break;
            }
        }
        if connection.has_ended() {
            return self.close(key);
        }
        if connection.waits_since.is_none() && connection.conversation.has_question() {
            connection.waits_since = Some(now_ns);
            self.waiting.push_back(key);
        }
        let held = connection.conversation.held();
        self.held = (self.held + held).saturating_sub(std::mem::replace(&mut connection.counted, held));
        let interest = (connection.conversation.wants_input(), !connection.conversation.output().is_empty());
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
        self.relieve();
    }

    /// Assigns waiting operations to free lanes, one of each connection in turn.
    fn dispatch(&mut self) {
        while let Some(lane) = self.free_lanes.last().copied() {
            let Some(key) = self.waiting.pop_front() else { break };
            let Some(connection) = find(&mut self.slots, key) else { continue };
            connection.waits_since = None;
            let Some(question) = connection.conversation.question(&mut self.operation) else { continue };
            let now_ns = self.now_ns;
            if connection.conversation.has_question() {
                connection.waits_since = Some(now_ns);
                self.waiting.push_back(key);
            }
            self.free_lanes.pop();
            self.asked[usize::from(lane)] = Some(Asked { key, question, at: now_ns });
            self.backing.invoke(self.own_time.looked(), lane, &self.operation, question.read_only);
        }
    }

    /// Passes results to their connections.
    fn finish(&mut self) {
        let Self { backing, asked, free_lanes, slots, protocol, counts, finished, .. } = self;
        backing.hand_out(&mut |lane, result| {
            let Some(asked) = asked.get_mut(usize::from(lane)).map(Option::take) else { return };
            free_lanes.push(lane);
            let Some(Asked { key, question, .. }) = asked else { return };
            let Some(connection) = find(slots, key) else { return };
            match result {
                Ok(result) => connection.conversation.answer(protocol, question.ticket, result, counts),
                Err(failure) => connection.conversation.fail(question.ticket, failure),
            }
            finished.push(key);
        });
        let mut finished = std::mem::take(&mut self.finished);
        for key in finished.drain(..) {
            self.advance(key);
        }
        self.finished = finished;
    }

    /// Handles the timers that are due.
    fn expire(&mut self) {
        if self.backing.due() <= self.own_ns {
            self.backing.expire(self.own_time.now());
            if self.backing.has_done() {
                self.finish();
            }
        }
        let now_ns = self.now_ns;
        if now_ns < self.tick_at {
            return;
        }
        self.tick_at = now_ns.saturating_add(TICK_NS);
        self.counts.requests = self.backing.requests();
        if self.paused {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, LISTENER);
            self.paused = self.poller.add(&self.listener, event).is_err();
        }
        self.give_up(now_ns);
        for slot in 0..self.slots.len() {
            let Some(Slot { life, connection: Some(connection) }) = self.slots.get_mut(slot) else {
                continue;
            };
            let key = Key { slot: u32::try_from(slot).unwrap_or(u32::MAX), life: *life };
            if connection.conversation.is_stalled() && now_ns - connection.moved_at() > self.limits.stall_ns {
                self.close(key);
            }
        }
    }

    /// If too much memory is held in total, closes the connections that hold much and have been idle longest. Users
    /// that read their replies have been active since. A correct client connects again and repeats its requests.
    fn relieve(&mut self) {
        while self.held > self.limits.memory_bytes_max {
            let large = self.slots.iter().zip(0..).filter_map(|(place, slot)| {
                let connection = place.connection.as_ref()?;
                let key = Key { slot, life: place.life };
                (connection.counted >= INPUT_BYTES).then_some((connection.moved_at(), key))
            });
            let Some((_, key)) = large.min_by_key(|(moved_at, _)| *moved_at) else { break };
            self.close(key);
        }
    }

    /// Answers the users whose operations have passed the deadline. A lane with such an operation stays busy until
    /// the cluster answers.
    fn give_up(&mut self, now_ns: u64) {
        let Self { limits, asked, slots, waiting, operation, finished, .. } = self;
        let is_late = |since: u64| now_ns.saturating_sub(since) > limits.deadline_ns;
        for asked in asked {
            let given_up = |asked: &mut Asked| is_late(asked.at) && asked.question.may_give_up;
            let Some(Asked { key, question, .. }) = asked.take_if(given_up) else { continue };
            let Some(connection) = find(slots, key) else { continue };
            let failure = if question.read_only { Failure::NothingDone } else { Failure::Unknown };
            connection.conversation.fail(question.ticket, failure);
            finished.push(key);
        }
        // No lane has become free for them in that time.
        waiting.retain(|key| {
            let Some(connection) = find(slots, *key) else { return false };
            if !connection.waits_since.is_some_and(is_late) {
                return true;
            }
            connection.waits_since = None;
            while let Some(question) = connection.conversation.question(operation) {
                connection.conversation.fail(question.ticket, Failure::NothingDone);
            }
            finished.push(*key);
            false
        });
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
        // Closing the socket removes it from the poller; its lanes become free when their operations finish.
        for asked in &mut self.asked {
            asked.take_if(|asked| asked.key == key);
        }
        if connection.waits_since.is_some() {
            self.waiting.retain(|waiting| *waiting != key);
        }
    }
}
