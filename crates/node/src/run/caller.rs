//! A client for programs, shared by any number of threads and tasks. Many operations can be in progress, each in its
//! own lane (CL-1).
//!
//! ```text
//! call, submit --> inbox --> [ one thread: lanes, authenticator, socket ] --> replicas
//!      result  <-- Pending <-----------------'
//! ```
//!
//! An invocation has one of three outcomes: its result; refused, and nothing was changed; or unknown, because it
//! timed out. An unknown outcome can be requested later: the lane keeps trying until there is an answer.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quorate_service::registry;
/// Maximum length of an operation, in bytes. An operation that does not fit a datagram uses the side channel.
pub use quorate_wire::message::OPERATION_BYTES_MAX;

mod error;

pub use self::error::{CallError, RequestId};
use crate::error::{NodeError, NodeErrorKind};
use crate::net::idle::Idle;
use crate::net::wake::Waker;
use crate::run::client::End;
use crate::run::client_node::{ClientNode, OpenClient};
use crate::run::clock::Clock;

mod asking;
mod pending;

use self::asking::Asking;
pub use self::asking::{Heard, Known};
pub use self::pending::Pending;
use self::pending::{Call, lock};

/// Maximum number of datagrams taken between two flushes.
const BURST_MAX: usize = 64;
/// How long an operation waits for a lane that is needed to ask for its result again.
const AGAIN: Duration = Duration::from_secs(10);
/// Maximum number of operations that wait for a lane. Further ones are refused.
const WAITING_MAX: usize = 1 << 16;
/// Maximum number of operations with an unknown outcome that are remembered. The oldest are forgotten.
const UNKNOWN_MAX: usize = 1024;
/// How often deadlines are checked, in nanoseconds.
const TICK_NS: u64 = 10_000_000;

/// The settings of a caller.
#[derive(Clone, Copy, Debug)]
pub struct CallerOptions {
    /// How many operations are in progress at a time; further ones wait.
    pub lanes: u16,
    /// The deadline of an operation, after which its outcome is unknown.
    pub deadline: Duration,
}

impl Default for CallerOptions {
    fn default() -> Self {
        Self { lanes: 64, deadline: Duration::from_secs(10) }
    }
}

/// An operation that waits for a lane.
#[derive(Debug)]
struct Ask {
    call: Arc<Call>,
    operation: Vec<u8>,
    read_only: bool,
    /// Whether the service recognises a repetition.
    is_known: bool,
    deadline: Instant,
}

/// What a lane is doing.
#[derive(Debug)]
struct Lane {
    call: Arc<Call>,
    /// The operation, if it may be repeated to get its result.
    again: Option<Vec<u8>>,
    /// The deadline. None: it has passed.
    deadline: Option<Instant>,
}

#[derive(Debug)]
struct Shared {
    inbox: Mutex<VecDeque<Ask>>,
    /// Whether the inbox may have something for the thread.
    news: AtomicBool,
    stop: AtomicBool,
    waker: Waker,
    asking: Asking,
    known: Known,
}

/// A client that threads and tasks share. See the module.
#[derive(Debug)]
pub struct Caller {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    next_id: AtomicU64,
    deadline: Duration,
    /// Operations whose deadline has passed, until their outcome is requested.
    unknown: Arc<Mutex<BTreeMap<RequestId, Arc<Call>>>>,
    /// The number of replicas.
    n: usize,
}

impl Caller {
    /// Opens the client in `dir`, made by `quorate init`.
    ///
    /// # Errors
    ///
    /// As [`ClientNode::open`].
    pub fn open(dir: &Path, options: CallerOptions) -> Result<Self, NodeError> {
        Self::start(ClientNode::open(dir)?.with_lanes(options.lanes), options)
    }

    /// Starts with an open client that has the lanes of the options.
    ///
    /// # Errors
    ///
    /// There are too many open files or threads.
    pub fn start(client: OpenClient, options: CallerOptions) -> Result<Self, NodeError> {
        let shared = Arc::new(Shared {
            inbox: Mutex::default(),
            news: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            waker: Waker::new()?,
            asking: Asking::default(),
            known: Known::new(client.drive.replica_addresses()),
        });
        let n = client.drive.cluster().n();
        let unknown = Arc::new(Mutex::default());
        let worker = Worker {
            client,
            shared: Arc::clone(&shared),
            unknown: Arc::clone(&unknown),
            waiting: VecDeque::new(),
            lanes: (0..options.lanes).map(|_| None).collect(),
            free: (0..options.lanes).rev().collect(),
            tick_at: 0,
            asked: (0, 0),
        };
        let thread = std::thread::Builder::new().name("quorate-client".to_owned());
        let thread = thread.spawn(move || worker.run()).map_err(|error| {
            NodeError::new(NodeErrorKind::Network, format!("cannot start the client's thread: {error}"))
        })?;
        let (next_id, deadline) = (AtomicU64::new(1), options.deadline);
        Ok(Self { shared, thread: Some(thread), next_id, deadline, unknown, n })
    }

    /// Runs an operation, and waits for its outcome. `read_only` is the caller's claim that it changes nothing; the
    /// service checks that itself.
    ///
    /// # Errors
    ///
    /// There is no result: see [`CallError`].
    pub fn call(&self, operation: &[u8], read_only: bool) -> Result<Vec<u8>, CallError> {
        self.submit(operation.to_vec(), read_only).wait()
    }

    /// Starts an operation, whose outcome is awaited or waited for.
    pub fn submit(&self, operation: Vec<u8>, read_only: bool) -> Pending {
        self.submit_as(operation, read_only, false)
    }

    /// Like [`Self::submit`], for an operation whose repetition the service recognises and does not execute twice: if
    /// its result was lost because it was too long, the operation is sent again to get the result.
    pub fn submit_known(&self, operation: Vec<u8>, read_only: bool) -> Pending {
        self.submit_as(operation, read_only, true)
    }

    fn submit_as(&self, operation: Vec<u8>, read_only: bool, is_known: bool) -> Pending {
        let id = RequestId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let is_order = operation.starts_with(&registry::MAGIC);
        let call = Arc::new(Call::new(id, is_order));
        let pending = Pending { call: Arc::clone(&call) };
        if operation.len() > OPERATION_BYTES_MAX {
            call.finish(Err(CallError::TooLong { len: operation.len() }));
            return pending;
        }
        let deadline = Instant::now() + self.deadline;
        let mut inbox = lock(&self.shared.inbox);
        if self.shared.stop.load(Ordering::Relaxed) {
            call.finish(Err(CallError::Closed));
        } else if inbox.len() >= WAITING_MAX {
            call.finish(Err(CallError::Busy));
        } else {
            inbox.push_back(Ask { call, operation, read_only, is_known, deadline });
            drop(inbox);
            self.shared.news.store(true, Ordering::SeqCst);
            self.shared.waker.wake();
        }
        pending
    }

    /// Returns an outcome that was unknown, after waiting for up to `within`.
    ///
    /// # Errors
    ///
    /// [`CallError::Unknown`]: it is still unknown. [`CallError::Forgotten`]: more than a thousand other outcomes
    /// became unknown since, or its outcome was requested before.
    pub fn outcome(&self, request: RequestId, within: Duration) -> Result<Vec<u8>, CallError> {
        let call = lock(&self.unknown).get(&request).cloned().ok_or(CallError::Forgotten)?;
        let outcome = call.wait(within);
        if outcome.is_some() {
            lock(&self.unknown).remove(&request);
        }
        outcome.unwrap_or(Err(CallError::Unknown { request }))
    }
}

impl Caller {
    /// Returns what it knows of the replicas.
    pub fn known(&self) -> &Known {
        &self.shared.known
    }

    /// Asks all replicas for their status, waits for up to `within`, and returns the statements in the order of the
    /// replicas' ids. They are not trusted: see [`crate::observe`].
    pub fn statements(&self, within: Duration) -> Vec<Option<Heard>> {
        // Each nonce is used once, so an answer to an earlier question is not taken for this one.
        let nonce = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.shared.asking.ask(self.n, nonce, within, || {
            self.shared.news.store(true, Ordering::SeqCst);
            self.shared.waker.wake();
        })
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.news.store(true, Ordering::SeqCst);
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already printed on standard error.
            let _ = thread.join();
        }
    }
}

/// The thread of a caller.
struct Worker {
    client: OpenClient,
    shared: Arc<Shared>,
    unknown: Arc<Mutex<BTreeMap<RequestId, Arc<Call>>>>,
    waiting: VecDeque<Ask>,
    /// The use and the deadline of each lane.
    lanes: Vec<Option<Lane>>,
    free: Vec<u16>,
    tick_at: u64,
    /// The last status question, and when to repeat it.
    asked: (u64, u64),
}

impl Worker {
    fn run(mut self) {
        // If the sockets fail, all that is left is to report it.
        let _ = self.serve();
    }

    fn serve(&mut self) -> io::Result<()> {
        let (mut clock, mut idle) = (Clock::new(), Idle::new(self.client.waiting));
        while !self.shared.stop.load(Ordering::Relaxed) {
            let looked = clock.look(|at| idle.looks(at));
            let mut worked = self.take() | self.dispatch(&clock);
            if let Some(nonce) = self.shared.asking.due(&mut self.asked, looked) {
                self.client.drive.probe(nonce);
            }
            let OpenClient { drive, socket, .. } = &mut self.client;
            drive.flush(socket);
            let mut burst = 0;
            while burst < BURST_MAX
                && let Some((source, datagram)) = socket.receive()?
            {
                burst += 1;
                let by = drive.receive_from(clock.looked(), source, datagram);
                socket.judge(by);
            }
            if drive.due() <= looked {
                drive.expire(clock.now());
                idle.worked();
            }
            worked |= burst > 0 || !drive.done().is_empty();
            self.finish();
            if let Some(table) = self.client.drive.take_table() {
                self.shared.known.learn(table, self.client.drive.replica_addresses());
            }
            for (from, statement) in self.client.drive.take_statements() {
                let settings = self.client.drive.settings_of(from);
                self.shared.asking.answer(from, statement, settings);
            }
            if looked >= self.tick_at {
                self.tick_at = looked.saturating_add(TICK_NS);
                self.expire();
                self.client.drive.set_crowded(idle.is_crowded(looked));
            }
            let OpenClient { drive, socket, .. } = &mut self.client;
            drive.flush(socket);
            if worked {
                idle.reset();
            } else {
                let busy = self.free.len() < self.lanes.len()
                    || !self.waiting.is_empty()
                    || self.shared.asking.is_open();
                let due = if busy { drive.due().min(self.tick_at) } else { drive.due() };
                let news = || self.shared.news.load(Ordering::SeqCst);
                idle.rest(looked, due, socket, Some(&self.shared.waker), news)?;
            }
        }
        Ok(())
    }

    /// Takes what is in the inbox.
    fn take(&mut self) -> bool {
        if !self.shared.news.swap(false, Ordering::SeqCst) {
            return false;
        }
        let room = WAITING_MAX.saturating_sub(self.waiting.len());
        let mut inbox = lock(&self.shared.inbox);
        let count = inbox.len().min(room);
        self.waiting.extend(inbox.drain(..count));
        if !inbox.is_empty() {
            self.shared.news.store(true, Ordering::SeqCst);
        }
        count > 0
    }

    /// Assigns waiting operations to free lanes.
    fn dispatch(&mut self, clock: &Clock) -> bool {
        let mut worked = false;
        while !self.free.is_empty()
            && let Some(ask) = self.waiting.pop_front()
        {
            let Some(lane) = self.free.pop() else { unreachable!("it was not empty") };
            self.client.drive.invoke(clock.now(), lane, &ask.operation, ask.read_only);
            let again = ask.is_known.then_some(ask.operation);
            self.lanes[usize::from(lane)] =
                Some(Lane { call: ask.call, again, deadline: Some(ask.deadline) });
            worked = true;
        }
        worked
    }

    fn finish(&mut self) {
        let drive = &mut self.client.drive;
        for done in drive.done() {
            let lane = self.lanes.get_mut(usize::from(done.lane)).and_then(Option::take);
            let Some(Lane { call, again, .. }) = lane else { continue };
            self.free.push(done.lane);
            if done.end == End::ResultLost
                && let Some(operation) = again
            {
                call.set(|state| state.took_effect = true);
                // The first waiting operation gets the lane that has just become free.
                let deadline = Instant::now() + AGAIN;
                self.waiting.push_front(Ask { call, operation, read_only: false, is_known: false, deadline });
                continue;
            }
            let result = drive.result(done);
            call.finish(match (done.end, registry::RegistryResult::decode(result)) {
                (End::ResultLost, _) => Err(CallError::ResultLost),
                (End::Overtaken, _) => Err(CallError::Overtaken { request: call.id }),
                (End::Result, Some(registry::RegistryResult::NoLane)) => Err(CallError::NoLane),
                (
                    End::Result,
                    Some(why @ (registry::RegistryResult::NoRight | registry::RegistryResult::NoClient)),
                ) if !call.is_order => Err(CallError::NotAllowed { why }),
                (End::Result, _) => Ok(result.to_vec()),
            });
        }
        drive.clear_done();
    }

    /// Ends operations whose deadline has passed: a waiting one is refused, one in progress becomes unknown.
    fn expire(&mut self) {
        let now = Instant::now();
        while self.waiting.front().is_some_and(|ask| ask.deadline <= now) {
            if let Some(ask) = self.waiting.pop_front() {
                ask.call.finish(Err(CallError::Busy));
            }
        }
        for Lane { call, deadline, .. } in self.lanes.iter_mut().flatten() {
            if deadline.is_some_and(|deadline| deadline <= now) {
                *deadline = None;
                let mut unknown = lock(&self.unknown);
                unknown.insert(call.id, Arc::clone(call));
                if unknown.len() > UNKNOWN_MAX {
                    unknown.pop_first();
                }
                drop(unknown);
                call.set(|state| state.overdue = true);
            }
        }
    }
}

impl Drop for Worker {
    /// Ends all operations, also if the thread has panicked: their callers wait for nothing else.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for Lane { call, .. } in self.lanes.drain(..).flatten() {
            call.set(|state| state.overdue = true);
        }
        self.waiting.extend(lock(&self.shared.inbox).drain(..));
        for ask in self.waiting.drain(..) {
            ask.call.finish(Err(CallError::Closed));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::future::Future as _;
    use std::net::Ipv4Addr;
    use std::pin::pin;
    use std::task::{Context, Wake};

    use super::*;
    use crate::home::init::{Host, NewCluster, client_dir};
    use crate::testing::TempDir;

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("in the thread of the caller");
        }
    }

    /// A thread that panics, as in the waker of a task, leaves nobody waiting.
    #[test]
    fn a_thread_that_panics_ends_all_operations() {
        let dir = TempDir::new("caller-panics");
        let [.., c, d] = std::process::id().to_be_bytes();
        let hosts = vec![Host { ip: Ipv4Addr::new(127, 62, c, d).into(), port: None }];
        NewCluster { hosts, ..NewCluster::local(1) }.make(&dir.path().join("c")).unwrap();
        let options = CallerOptions { lanes: 2, deadline: Duration::from_secs(2) };
        let caller = Caller::open(&client_dir(&dir.path().join("c"), 0), options).unwrap();
        // No replica answers. The deadline of the first passes first.
        let (mut first, second) = (pin!(caller.submit(Vec::new(), false)), caller.submit(Vec::new(), false));
        let task = Arc::new(Panics).into();
        assert!(first.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
        assert!(matches!(second.wait(), Err(CallError::Unknown { .. })));
        assert_eq!(caller.call(&[], false), Err(CallError::Closed));
    }
}
