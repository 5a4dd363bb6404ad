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

mod ask;
mod engine;
pub mod typed;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use quorate_node::NodeError;
use quorate_node::error::NodeErrorKind;
use quorate_node::wake::Waker;
use quorate_quorum::access::AccessList;
use quorate_quorum::accusation::Accusation;
use quorate_quorum::step::{Call, Outcome};
use quorate_quorum::{ObjectId, ServerId, Value};
use quorate_wire::ClientId;

use crate::config::Config;
use crate::core::Core;
use crate::link::Carrier;
use crate::note::State;

use self::ask::{Ask, Shared, Slot};

pub use self::ask::{AccessLists, CallError, TOMBSTONE, VersionedValue};
pub use self::watch::Watch;

/// Operations that wait for the thread.
const ASKS_MAX: usize = 4096;
/// Operations in progress of one call for many keys.
const MANY_MAX: usize = 512;

/// How a client works.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// How long an operation may take before its caller is told that nothing is known.
    pub deadline: Duration,
    /// How messages travel. The servers have the same.
    pub carrier: Carrier,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(10), carrier: Carrier::Udp }
    }
}

/// A client. Clones share it; the last one that is dropped ends its thread.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl core::fmt::Debug for Client {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Client").field("me", &self.shared.me()).finish_non_exhaustive()
    }
}

/// An operation that has begun.
struct Pending(Receiver<Result<Outcome, CallError>>);

impl Pending {
    fn result(self) -> Result<VersionedValue, CallError> {
        let Outcome { version, value, path, .. } = self.0.recv().map_err(|_| CallError::Closed)??;
        Ok(VersionedValue { value, version, path })
    }

    /// The result of a read, if the key has a value.
    fn present(self) -> Result<Option<VersionedValue>, CallError> {
        let entry = self.result()?;
        Ok((!entry.version.is_genesis() && !entry.is_deleted()).then_some(entry))
    }
}

/// Begins an operation for each item, at most [`MANY_MAX`] at the same time, and returns the results in the same order.
fn many<I, T>(
    items: impl IntoIterator<Item = I>,
    begin: impl Fn(I) -> Result<Pending, CallError>,
    end: impl Fn(Pending) -> Result<T, CallError>,
) -> Vec<Result<T, CallError>> {
    let (mut results, mut open) = (Vec::new(), VecDeque::new());
    for item in items {
        if open.len() >= MANY_MAX {
            results.extend(open.pop_front().map(|pending: Result<_, _>| pending.and_then(&end)));
        }
        open.push_back(begin(item));
    }
    results.extend(open.into_iter().map(|pending| pending.and_then(&end)));
    results
}

impl Client {
    /// Opens the client in `dir` and starts its thread.
    ///
    /// # Errors
    ///
    /// A file is missing, invalid, or accessible to other users; a port is taken; another process uses the identity.
    pub fn open(dir: &Path, options: ClientOptions) -> Result<Self, NodeError> {
        let core = Core::open(dir, options.carrier)?;
        let (asks, receiver): (_, Receiver<Ask>) = sync_channel(ASKS_MAX);
        let waker = Waker::new()?;
        let settings = core.settings();
        let about = (Arc::clone(core.config()), settings.rules.clone(), settings.thresholds.n());
        let shared = Arc::new(Shared::new(asks, waker.clone(), core.me(), about));
        let weak = Arc::downgrade(&shared);
        let run = move || engine::run(core, &receiver, &weak, &waker, options.deadline);
        let spawned = std::thread::Builder::new().name("register client".to_owned()).spawn(run);
        let thread = spawned.map_err(|error| {
            NodeError::new(NodeErrorKind::Network, format!("a thread cannot be started: {error}"))
        })?;
        shared.runs(thread);
        Ok(Self { shared })
    }

    /// Returns its number among clients and lanes.
    pub fn me(&self) -> ClientId {
        self.shared.me()
    }

    /// Returns its register.
    pub fn config(&self) -> &Config {
        self.shared.config()
    }

    fn begin(&self, object: ObjectId, call: Call) -> Result<Pending, CallError> {
        let (reply, result) = sync_channel(1);
        self.shared.ask(Ask::Call { object, call, reply })?;
        Ok(Pending(result))
    }

    fn begin_read(&self, key: &[u8]) -> Result<Pending, CallError> {
        let object = self.shared.config().object(key);
        self.may(&object, false)?;
        self.begin(object, Call::Read)
    }

    fn begin_write(&self, key: &[u8], value: Value) -> Result<Pending, CallError> {
        if *value == *TOMBSTONE { Err(CallError::Reserved) } else { self.begin_store(key, value) }
    }

    /// The same for any value, the one of deleted keys as well.
    fn begin_store(&self, key: &[u8], value: Value) -> Result<Pending, CallError> {
        let object = self.shared.config().object(key);
        self.may(&object, true)?;
        self.begin(object, Call::Write(value))
    }

    fn may(&self, object: &ObjectId, write: bool) -> Result<(), CallError> {
        let rules = self.shared.rules();
        let me = self.shared.me();
        let may = if write { rules.may_write(me, object) } else { rules.may_read(me.into(), object) };
        if may { Ok(()) } else { Err(CallError::NotAllowed) }
    }

    /// Returns the value of a key. None: it was never written, or was deleted.
    ///
    /// # Errors
    ///
    /// Too few servers answered in time, or this client may not read the key.
    pub fn read(&self, key: &[u8]) -> Result<Option<VersionedValue>, CallError> {
        self.begin_read(key)?.present()
    }

    /// Reads any number of keys, up to 512 at the same time. Each read is on its own: the values need not be of one
    /// moment.
    ///
    /// # Errors
    ///
    /// For each key as [`Self::read`]. If too few servers answer, each 512 keys take the deadline of an operation.
    pub fn read_many(&self, keys: &[&[u8]]) -> Vec<Result<Option<VersionedValue>, CallError>> {
        many(keys, |key| self.begin_read(key), Pending::present)
    }

    /// Replaces the value of a key.
    ///
    /// # Errors
    ///
    /// Too few servers answered in time: then the write may still take effect. Or this client may not write the key, or
    /// the value is too long or reserved.
    pub fn write(&self, key: &[u8], value: impl Into<Value>) -> Result<VersionedValue, CallError> {
        self.begin_write(key, value.into())?.result()
    }

    /// Writes any number of keys, up to 512 at the same time. Each write is on its own: a reader can see some of them
    /// only.
    ///
    /// # Errors
    ///
    /// For each key as [`Self::write`]. If too few servers answer, each 512 keys take the deadline of an operation.
    pub fn write_many(&self, values: &[(&[u8], Value)]) -> Vec<Result<VersionedValue, CallError>> {
        many(values, |(key, value)| self.begin_write(key, Arc::clone(value)), Pending::result)
    }

    /// Deletes a key: later reads return None until it is written again. Its version stays at the servers.
    ///
    /// # Errors
    ///
    /// As [`Self::write`].
    pub fn delete(&self, key: &[u8]) -> Result<VersionedValue, CallError> {
        self.begin_store(key, TOMBSTONE.into())?.result()
    }

    /// Watches a key: see [`Watch`].
    ///
    /// # Errors
    ///
    /// This client may not read the key, or watches too much.
    pub fn watch(&self, key: &[u8]) -> Result<Watch, CallError> {
        let object = self.shared.config().object(key);
        self.may(&object, false)?;
        let slot = Arc::new(Slot::default());
        self.shared.ask(Ask::Watch { object, slot: Arc::clone(&slot) })?;
        Ok(Watch::new(Arc::clone(&self.shared), slot))
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

    /// Returns the access list of each server that answers within `wait`. With a list of one's own, which needs the key of an
    /// administrator: signs it, sends it to all servers, and returns those that keep it or a newer one.
    ///
    /// A Byzantine server can return any list: [`Public`](crate::evidence::Public) says which ones an administrator signed.
    ///
    /// # Errors
    ///
    /// The client is closed.
    pub fn access(&self, list: Option<AccessList>, wait: Duration) -> Result<AccessLists, CallError> {
        let (reply, result) = sync_channel(1);
        self.shared.ask(Ask::Access { list, reply, wait })?;
        result.recv().map_err(|_| CallError::Closed)
    }

    /// Asks every server for its evidence, and waits for the answers, `wait` at most. Nothing is verified:
    /// [`Public`](crate::evidence::Public) does that.
    ///
    /// # Errors
    ///
    /// The client is closed.
    pub fn evidence(&self, wait: Duration) -> Result<BTreeMap<ServerId, Vec<Accusation>>, CallError> {
        let (reply, result) = sync_channel(1);
        self.shared.ask(Ask::Evidence { reply, wait })?;
        result.recv().map_err(|_| CallError::Closed)
    }

    /// Returns the number of servers.
    pub fn servers(&self) -> usize {
        self.shared.servers()
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
