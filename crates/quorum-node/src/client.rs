//! A client that threads share: one thread of its own drives it, sends stores again until every server has acknowledged
//! them, and reads for those who watch.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use quorate_quorum_node::{Client, Register};
//!
//! let client = Client::open("registers/client-0".as_ref(), Default::default())?;
//! let greeting: Register<String> = client.register("greeting");
//! greeting.write(&"hello".to_owned())?;
//! assert_eq!(greeting.read()?.as_deref(), Some("hello"));
//! # Ok(())
//! # }
//! ```

mod engine;
mod typed;
mod watch;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use quorate_node::Trouble;
use quorate_node::trouble::Kind;
use quorate_node::wake::Waker;
use quorate_quorum::step::{Call, Failure, Outcome, Path as How};
use quorate_quorum::{ObjectId, ServerId, Value, Version};
use quorate_wire::ClientId;

use crate::config::Config;
use crate::core::Core;
use crate::link::Carrier;
use crate::note::State;

pub use self::typed::{Item, Register};
pub use self::watch::Watch;

/// Operations that wait for the thread.
const ASKS_MAX: usize = 4096;

/// How a client works.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long an operation may take before its caller is told that nothing is known.
    pub deadline: Duration,
    /// How messages travel. The servers have the same.
    pub carrier: Carrier,
}

impl Default for Options {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(10), carrier: Carrier::Udp }
    }
}

/// A value with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// Its version.
    pub version: Version,
    /// How the operation went.
    pub path: How,
}

/// Why an operation has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// Too few servers answered in time. A write may still take effect.
    Unavailable,
    /// This client may not do that to this key.
    NotAllowed,
    /// Too many operations wait.
    Busy,
    /// The value is longer than 1 MiB.
    TooLarge,
    /// The counter of versions is used up.
    Exhausted,
    /// The client was closed, or its sockets have failed.
    Closed,
}

impl core::fmt::Display for CallError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "too few servers answered in time",
            Self::NotAllowed => "this client has no right to that key",
            Self::Busy => "too many operations wait",
            Self::TooLarge => "the value is longer than 1 MiB",
            Self::Exhausted => "the counter of versions is used up",
            Self::Closed => "the client is closed",
        })
    }
}

impl std::error::Error for CallError {}

impl From<Failure> for CallError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::TimestampExhausted => Self::Exhausted,
            Failure::ValueTooLarge => Self::TooLarge,
            Failure::Busy | Failure::Backlog => Self::Busy,
        }
    }
}

/// What the thread is asked for.
enum Ask {
    Call { object: ObjectId, call: Call, reply: SyncSender<Result<Outcome, CallError>> },
    Watch { object: ObjectId, slot: Arc<watch::Slot> },
    Probe { reply: SyncSender<Vec<(ServerId, State)>>, wait: Duration },
    Settle { reply: SyncSender<usize>, wait: Duration },
}

/// What threads and the client's own share.
struct Shared {
    asks: SyncSender<Ask>,
    /// How many asks the thread has not taken.
    count: AtomicUsize,
    waker: Waker,
    stop: AtomicBool,
    me: ClientId,
    config: Arc<Config>,
    servers: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Shared {
    fn ask(&self, ask: Ask) -> Result<(), CallError> {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.asks.try_send(ask).is_err() {
            self.count.fetch_sub(1, Ordering::SeqCst);
            return Err(if self.stop.load(Ordering::SeqCst) { CallError::Closed } else { CallError::Busy });
        }
        self.waker.wake();
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.waker.wake();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // The last handle may be one that the thread itself holds for a moment.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

/// A client. Clones share it; the last one that is dropped ends its thread.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl core::fmt::Debug for Client {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Client").field("me", &self.shared.me).finish_non_exhaustive()
    }
}

impl Client {
    /// Opens the client in `dir` and starts its thread.
    ///
    /// # Errors
    ///
    /// A file is missing, invalid, or accessible to other users; a port is taken; another process uses the identity.
    pub fn open(dir: &Path, options: Options) -> Result<Self, Trouble> {
        let core = Core::open(dir, options.carrier)?;
        let (asks, receiver): (_, Receiver<Ask>) = sync_channel(ASKS_MAX);
        let shared = Arc::new(Shared {
            asks,
            count: AtomicUsize::new(0),
            waker: Waker::new()?,
            stop: AtomicBool::new(false),
            me: core.me(),
            config: Arc::clone(core.config()),
            servers: core.settings().thresholds.n(),
            thread: Mutex::new(None),
        });
        let weak = Arc::downgrade(&shared);
        let waker = shared.waker.clone();
        let run = move || engine::run(core, &receiver, &weak, &waker, options.deadline);
        let spawned = std::thread::Builder::new().name("register client".to_owned()).spawn(run);
        let thread = spawned
            .map_err(|error| Trouble::new(Kind::Network, format!("a thread cannot be started: {error}")))?;
        *shared.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(Self { shared })
    }

    /// Returns its number among clients and lanes.
    pub fn me(&self) -> ClientId {
        self.shared.me
    }

    /// Returns its register.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    fn call(&self, object: ObjectId, call: Call) -> Result<Entry, CallError> {
        let (reply, result) = sync_channel(1);
        self.shared.ask(Ask::Call { object, call, reply })?;
        let Outcome { version, value, path, .. } = result.recv().map_err(|_| CallError::Closed)??;
        Ok(Entry { value, version, path })
    }

    fn may(&self, object: &ObjectId, write: bool) -> Result<(), CallError> {
        let by = self.shared.config.rules.iter();
        let by = by.map(|(prefix, rights)| {
            (quorate_quorum::version::Namespace::new(prefix.as_bytes()), rights.clone())
        });
        let rules = quorate_quorum::access::Rules { by: by.collect() };
        let me = self.shared.me;
        let may = if write { rules.may_write(me, object) } else { rules.may_read(me.into(), object) };
        if may { Ok(()) } else { Err(CallError::NotAllowed) }
    }

    /// Returns the value of a key. None: it was never written.
    ///
    /// # Errors
    ///
    /// Too few servers answered in time, or this client may not read the key.
    pub fn read(&self, key: &[u8]) -> Result<Option<Entry>, CallError> {
        let object = self.shared.config.object(key);
        self.may(&object, false)?;
        let entry = self.call(object, Call::Read)?;
        Ok((!entry.version.is_genesis()).then_some(entry))
    }

    /// Replaces the value of a key.
    ///
    /// # Errors
    ///
    /// Too few servers answered in time: then the write may still take effect. Or this client may not write the key, or
    /// the value is too long.
    pub fn write(&self, key: &[u8], value: impl Into<Value>) -> Result<Entry, CallError> {
        let object = self.shared.config.object(key);
        self.may(&object, true)?;
        self.call(object, Call::Write(value.into()))
    }

    /// Returns a handle for one key, whose value is a `T`.
    pub fn register<T: Item>(&self, key: &str) -> Register<T> {
        Register::new(self.clone(), key)
    }

    /// Watches a key: see [`Watch`].
    ///
    /// # Errors
    ///
    /// This client may not read the key, or watches too much.
    pub fn watch(&self, key: &[u8]) -> Result<Watch, CallError> {
        let object = self.shared.config.object(key);
        self.may(&object, false)?;
        let slot = Arc::new(watch::Slot::default());
        self.shared.ask(Ask::Watch { object, slot: Arc::clone(&slot) })?;
        Ok(Watch::new(self.clone(), slot))
    }

    /// Asks every server for its state, and waits for the answers, `wait` at most.
    ///
    /// # Errors
    ///
    /// The client is closed.
    pub fn states(&self, wait: Duration) -> Result<Vec<(ServerId, State)>, CallError> {
        let (reply, result) = sync_channel(1);
        self.shared.ask(Ask::Probe { reply, wait })?;
        result.recv().map_err(|_| CallError::Closed)
    }

    /// Returns the number of servers.
    pub fn servers(&self) -> usize {
        self.shared.servers
    }

    /// Waits until every server has acknowledged what was stored, `wait` at most, and returns the number of objects of
    /// which some server has not. A process that ends earlier leaves it to readers to write back (§4).
    ///
    /// # Errors
    ///
    /// The client is closed.
    pub fn settle(&self, wait: Duration) -> Result<usize, CallError> {
        let (reply, result) = sync_channel(1);
        self.shared.ask(Ask::Settle { reply, wait })?;
        result.recv().map_err(|_| CallError::Closed)
    }
}
