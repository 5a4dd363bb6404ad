//! What the handles of a client and its thread share: questions, their answers, and the values of watched keys.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quorate_node::wake::Waker;
use quorate_quorum::access::{AccessList, Rules, SignedList};
use quorate_quorum::accusation::Accusation;
use quorate_quorum::step::{Call, Failure, Outcome, Path as How};
use quorate_quorum::{ObjectId, ServerId, Value, Version};
use quorate_wire::ClientId;

use crate::config::Config;
use crate::note::State;

/// The value of a deleted register. It is a value like any other to servers, so that a deletion has the guarantees of a
/// write.
pub const TOMBSTONE: &[u8] = b"\0quorate: deleted\0";

/// A value with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionedValue {
    /// The value.
    pub value: Value,
    /// Its version.
    pub version: Version,
    /// How the operation went.
    pub path: How,
}

impl VersionedValue {
    /// Returns whether the key was deleted: watches show that.
    pub fn is_deleted(&self) -> bool {
        *self.value == *TOMBSTONE
    }
}

/// Why an operation has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// Too few servers answered in time. A write may still take effect.
    Unavailable,
    /// This client may not do that to this key. If servers said so, and not the rules, a write may still take effect.
    NotAllowed,
    /// A write of this key that was refused is unfinished. So this client cannot write the key until it is opened again.
    Unfinished,
    /// Too many operations wait.
    Busy,
    /// The value is longer than 1 MiB.
    TooLarge,
    /// The value is the one that deleted registers have.
    Reserved,
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
            Self::Unfinished => "a write that was refused before is unfinished: open the client again",
            Self::Busy => "too many operations wait",
            Self::TooLarge => "the value is longer than 1 MiB",
            Self::Reserved => "this value is reserved for deleted registers",
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
            Failure::NotAllowed => Self::NotAllowed,
            Failure::Unfinished => Self::Unfinished,
        }
    }
}

/// The access list of each server that has answered, if it has one.
pub type AccessLists = BTreeMap<ServerId, Option<Arc<SignedList>>>;

/// What the thread is asked for.
pub(super) enum Ask {
    Call { object: ObjectId, call: Call, reply: SyncSender<Result<Outcome, CallError>> },
    Watch { object: ObjectId, slot: Arc<Slot> },
    Probe { reply: SyncSender<Vec<(ServerId, State)>>, wait: Duration },
    Access { list: Option<AccessList>, reply: SyncSender<AccessLists>, wait: Duration },
    Evidence { reply: SyncSender<BTreeMap<ServerId, Vec<Accusation>>>, wait: Duration },
    Settle { reply: SyncSender<usize>, wait: Duration },
}

/// What threads and the client's own share.
pub(super) struct Shared {
    asks: SyncSender<Ask>,
    /// How many asks the thread has not taken.
    count: AtomicUsize,
    waker: Waker,
    stop: AtomicBool,
    me: ClientId,
    config: Arc<Config>,
    rules: Rules,
    servers: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shared").field("me", &self.me).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(
        asks: SyncSender<Ask>,
        waker: Waker,
        me: ClientId,
        (config, rules, servers): (Arc<Config>, Rules, usize),
    ) -> Self {
        let (count, stop, thread) = (AtomicUsize::new(0), AtomicBool::new(false), Mutex::new(None));
        Self { asks, count, waker, stop, me, config, rules, servers, thread }
    }

    /// Notes the thread, which the last handle waits for.
    pub(super) fn runs(&self, thread: JoinHandle<()>) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    }

    pub(super) fn me(&self) -> ClientId {
        self.me
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(super) fn servers(&self) -> usize {
        self.servers
    }

    /// The thread has taken one.
    pub(super) fn taken(&self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Says whether there is one that the thread has not taken.
    pub(super) fn waits(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    pub(super) fn ask(&self, ask: Ask) -> Result<(), CallError> {
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

/// The newest value that the watcher has not taken.
#[derive(Debug, Default)]
pub(super) struct Slot {
    inner: Mutex<Inner>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    entry: Option<VersionedValue>,
    /// Why nothing more comes.
    closed: Option<CallError>,
}

impl Slot {
    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        let result = act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner));
        self.news.notify_all();
        result
    }

    pub(super) fn deliver(&self, entry: VersionedValue) {
        self.with(|inner| inner.entry = Some(entry));
    }

    pub(super) fn close(&self, why: CallError) {
        self.with(|inner| inner.closed = Some(why));
    }

    pub(super) fn next(&self, wait: Duration) -> Result<Option<VersionedValue>, CallError> {
        let until = Instant::now() + wait;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(entry) = inner.entry.take() {
                return Ok(Some(entry));
            }
            if let Some(why) = inner.closed {
                return Err(why);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            inner = self.news.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
