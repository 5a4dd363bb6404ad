//! What the loop of a gateway promises to the service in it.

use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollEvent};
use nix::sys::eventfd::EventFd;
use quorate_pbft::Now;

use super::*;
use quorate_node::clock::Clock;
use quorate_node::idle::Waiting;

/// What all conversations hold together: now, and at most; and how many of them have had input.
#[derive(Debug, Default)]
struct Held {
    now: AtomicUsize,
    most: AtomicUsize,
    heard: AtomicUsize,
}

/// How much a conversation holds once it has had input.
const HOLDS: usize = 1 << 20;

/// A conversation that says nothing, and holds much.
#[derive(Debug)]
struct Silent {
    all: Arc<Held>,
    holds: usize,
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.all.now.fetch_sub(self.holds, Ordering::Relaxed);
    }
}

impl Conversation for Silent {
    type Protocol = Arc<Held>;

    fn open(all: &Arc<Held>, _ends: Ends, _id: u64) -> Self {
        Self { all: Arc::clone(all), holds: 0 }
    }

    fn refuse(&mut self, _why: Refused) {}

    fn wants_input(&self) -> bool {
        self.holds == 0
    }

    fn is_large(&self) -> bool {
        false
    }

    fn receive(&mut self, all: &Arc<Held>, _bytes: &[u8]) {
        self.holds = HOLDS;
        let now = all.now.fetch_add(HOLDS, Ordering::Relaxed) + HOLDS;
        all.most.fetch_max(now, Ordering::Relaxed);
        all.heard.fetch_add(1, Ordering::Relaxed);
    }

    fn hang_up(&mut self) {}

    fn work(&mut self, _all: &Arc<Held>, _counts: &mut Counts) -> Progress {
        Progress::Rest
    }

    fn question(&mut self, _operation: &mut Vec<u8>) -> Option<Question> {
        None
    }

    fn has_question(&self) -> bool {
        false
    }

    fn answer(&mut self, _all: &Arc<Held>, _ticket: u64, _result: &[u8], _counts: &Counts) {}

    fn fail(&mut self, _ticket: u64, _failure: Failure) {}

    fn output(&self) -> &[u8] {
        &[]
    }

    fn sent(&mut self, _count: usize) {}

    fn has_ended(&self) -> bool {
        false
    }

    fn is_stalled(&self) -> bool {
        false
    }

    fn may_go(&self, _idle_ns: u64) -> Option<Goes> {
        None
    }

    fn held(&self) -> usize {
        self.holds
    }
}

/// Something comes in the `at`-th turn, and has to be answered. The gateway is asked to stop when that is let out.
struct Owing {
    turn: u32,
    at: u32,
    owes: bool,
    /// How often anybody has wanted to know when something is due, while an answer was owed.
    asked_due: Cell<u32>,
    event: EventFd,
    stop: Arc<AtomicBool>,
}

impl Backing for Owing {
    fn watch(&self, poller: &Epoll, event: EpollEvent) -> io::Result<()> {
        Ok(poller.add(&self.event, event)?)
    }

    fn receive(&mut self, _clock: &Clock) -> io::Result<bool> {
        self.turn += 1;
        self.owes = self.turn == self.at;
        Ok(self.owes)
    }

    fn invoke(&mut self, _now: Now, _lane: u16, _operation: &[u8], _read_only: bool) {}

    fn due(&self) -> u64 {
        self.asked_due.set(self.asked_due.get() + u32::from(self.owes));
        u64::MAX
    }

    fn expire(&mut self, _now: Now) {}

    fn flush(&mut self) -> io::Result<()> {
        self.stop.fetch_or(std::mem::take(&mut self.owes), Ordering::Relaxed);
        Ok(())
    }

    fn has_done(&self) -> bool {
        false
    }

    fn hand_out(&mut self, _each: &mut HandOut<'_>) {}
}

/// A reply may call for a request to others, as when a read has to be ordered after all: each first read of a file
/// took up to 50 ms, because the gateway slept between taking the one and sending the other.
#[test]
fn a_door_does_not_sleep_on_what_it_has_to_send() {
    let stop = Arc::new(AtomicBool::new(false));
    // What is readable all the time ends every sleep at once.
    let event = EventFd::from_value(1).unwrap();
    let owing =
        Owing { turn: 0, at: 5, owes: false, asked_due: Cell::new(0), event, stop: Arc::clone(&stop) };
    let address = ([127, 0, 0, 1], 0).into();
    let mut door: FrontDoor<Silent, Owing> =
        FrontDoor::open(address, Limits::default(), Arc::default(), owing).unwrap();
    door.run(Waiting::Block, &stop).unwrap();
    assert_eq!(door.backing().turn, 5);
    assert_eq!(door.backing().asked_due.get(), 1, "for what is due now, and not for how long to sleep");
}

/// A backing that takes a part of its input in each of the first turns, and that the poller never reports.
struct Slow {
    turn: u32,
    /// The turns in which input was taken.
    taken: Vec<u32>,
    event: EventFd,
    stop: Arc<AtomicBool>,
}

impl Backing for Slow {
    fn watch(&self, poller: &Epoll, event: EpollEvent) -> io::Result<()> {
        Ok(poller.add(&self.event, event)?)
    }

    fn receive(&mut self, _clock: &Clock) -> io::Result<bool> {
        self.taken.push(self.turn);
        self.stop.fetch_or(self.taken.len() == 4, Ordering::Relaxed);
        Ok(true)
    }

    fn invoke(&mut self, _now: Now, _lane: u16, _operation: &[u8], _read_only: bool) {}

    fn due(&self) -> u64 {
        u64::MAX
    }

    fn expire(&mut self, _now: Now) {}

    fn flush(&mut self) -> io::Result<()> {
        self.turn += 1;
        Ok(())
    }

    fn has_done(&self) -> bool {
        false
    }

    fn hand_out(&mut self, _each: &mut HandOut<'_>) {}
}

/// What is left of the input is taken in the next turn, whether or not the poller reports it.
#[test]
fn input_that_is_left_is_taken_in_the_next_turn() {
    let stop = Arc::new(AtomicBool::new(false));
    let event = EventFd::from_value(0).unwrap();
    let slow = Slow { turn: 0, taken: Vec::new(), event, stop: Arc::clone(&stop) };
    let address = ([127, 0, 0, 1], 0).into();
    let mut door: FrontDoor<Silent, Slow> =
        FrontDoor::open(address, Limits::default(), Arc::default(), slow).unwrap();
    door.run(Waiting::Block, &stop).unwrap();
    assert_eq!(door.backing().taken, [0, 1, 2, 3]);
}

/// L82: what connections hold is bounded also while many of them have input at the same time.
#[test]
fn l82_memory_is_looked_at_after_each_connection() {
    const CONNECTIONS: usize = 50;
    let (stop, all) = (Arc::new(AtomicBool::new(false)), Arc::new(Held::default()));
    let event = EventFd::from_value(1).unwrap();
    // One turn takes all connections, and the next one all that they have sent.
    let owing =
        Owing { turn: 0, at: 20, owes: false, asked_due: Cell::new(0), event, stop: Arc::clone(&stop) };
    let limits = Limits { memory_bytes_max: 4 * HOLDS, ..Limits::default() };
    let address = ([127, 0, 0, 1], 0).into();
    let mut door: FrontDoor<Silent, Owing> =
        FrontDoor::open(address, limits, Arc::clone(&all), owing).unwrap();
    let address = door.address().unwrap();
    let users: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let mut user = TcpStream::connect(address).unwrap();
            user.write_all(b"x").unwrap();
            user
        })
        .collect();
    door.run(Waiting::Block, &stop).unwrap();
    assert_eq!(all.heard.load(Ordering::Relaxed), users.len());
    assert_eq!(all.most.load(Ordering::Relaxed), 5 * HOLDS);
}

/// A conversation that repeats what it hears, one byte at a time: the next one when the last one is taken. Or each byte
/// is an operation, and is answered when it fails.
#[derive(Debug)]
struct Echo {
    asks: bool,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Conversation for Echo {
    type Protocol = bool;

    fn open(asks: &bool, _ends: Ends, _id: u64) -> Self {
        Self { asks: *asks, input: Vec::new(), output: Vec::new() }
    }

    fn refuse(&mut self, _why: Refused) {}

    fn wants_input(&self) -> bool {
        self.asks || self.input.is_empty()
    }

    fn is_large(&self) -> bool {
        false
    }

    fn receive(&mut self, _asks: &bool, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    fn hang_up(&mut self) {}

    fn work(&mut self, _asks: &bool, _counts: &mut Counts) -> Progress {
        if !self.asks && self.output.is_empty() && !self.input.is_empty() {
            self.output.push(self.input.remove(0));
        }
        Progress::Rest
    }

    fn question(&mut self, _operation: &mut Vec<u8>) -> Option<Question> {
        self.has_question().then(|| {
            self.input.remove(0);
            Question { ticket: 0, read_only: false, may_give_up: false }
        })
    }

    fn has_question(&self) -> bool {
        self.asks && !self.input.is_empty()
    }

    fn answer(&mut self, _asks: &bool, _ticket: u64, _result: &[u8], _counts: &Counts) {}

    fn fail(&mut self, _ticket: u64, _failure: Failure) {
        self.output.push(b'-');
    }

    fn output(&self) -> &[u8] {
        &self.output
    }

    fn sent(&mut self, count: usize) {
        self.output.drain(..count);
    }

    fn has_ended(&self) -> bool {
        false
    }

    fn is_stalled(&self) -> bool {
        false
    }

    fn may_go(&self, _idle_ns: u64) -> Option<Goes> {
        None
    }

    fn held(&self) -> usize {
        self.input.len() + self.output.len()
    }
}

/// Input that was held back because of output is taken when the output has gone, although nothing else happens: such a
/// connection stood still until it was cut.
#[test]
fn input_behind_output_is_taken_when_the_output_has_gone() {
    let stop = Arc::new(AtomicBool::new(false));
    let event = EventFd::from_value(1).unwrap();
    let owing =
        Owing { turn: 0, at: u32::MAX, owes: false, asked_due: Cell::new(0), event, stop: Arc::clone(&stop) };
    let address = ([127, 0, 0, 1], 0).into();
    let mut door: FrontDoor<Echo, Owing> = FrontDoor::open(address, Limits::default(), false, owing).unwrap();
    let mut user = TcpStream::connect(door.address().unwrap()).unwrap();
    user.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let asked = Arc::clone(&stop);
    let user = std::thread::spawn(move || {
        let mut heard = [0; 3];
        user.write_all(b"abc").unwrap();
        let outcome = user.read_exact(&mut heard);
        asked.store(true, Ordering::Relaxed);
        outcome.map(|()| heard)
    });
    door.run(Waiting::Block, &stop).unwrap();
    assert_eq!(user.join().unwrap().unwrap(), *b"abc");
}

/// L144: an operation waits for a lane as long as any other, although an earlier one of its connection has waited in
/// vain.
#[test]
fn l144_each_operation_waits_for_a_lane_until_its_own_deadline() {
    const DEADLINE: Duration = Duration::from_millis(300);
    let stop = Arc::new(AtomicBool::new(false));
    let event = EventFd::from_value(0).unwrap();
    let owing =
        Owing { turn: 0, at: u32::MAX, owes: false, asked_due: Cell::new(0), event, stop: Arc::clone(&stop) };
    let limits = Limits { lanes: 1, deadline_ns: 300_000_000, ..Limits::default() };
    let mut door: FrontDoor<Echo, Owing> =
        FrontDoor::open(([127, 0, 0, 1], 0).into(), limits, true, owing).unwrap();
    let mut user = TcpStream::connect(door.address().unwrap()).unwrap();
    user.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let asked = Arc::clone(&stop);
    let user = std::thread::spawn(move || {
        // The first one has the lane, and is never done.
        let waited = [&b"ab"[..], b"c"].map(|operations| {
            let begun = Instant::now();
            user.write_all(operations).and_then(|()| user.read_exact(&mut [0])).map(|()| begun.elapsed())
        });
        asked.store(true, Ordering::Relaxed);
        waited
    });
    door.run(Waiting::Block, &stop).unwrap();
    for waited in user.join().unwrap() {
        let waited = waited.unwrap();
        assert!(waited >= DEADLINE, "{waited:?}");
    }
}
