//! What a service is: a deterministic state machine over pages [OSDI99 §3].

use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::{ClientId, SeqNum, Timestamp};

use crate::state::view::View;
use crate::stop::Stop;

/// A deterministic state machine. All its mutable state is in the pages of a [`View`]; the initial
/// state is all zeros.
///
/// Two executions of one operation on equal states give equal states and equal results, whatever the
/// machine, the process or the moment (spec §7, ND-6): no clock but [`Context::time_ns`], no
/// randomness, no floats, no iteration in an order that is not in the state.
pub trait Service: Sync {
    /// Returns whether `operation` changes nothing, by the service's own judgement and never by the
    /// client's flag (RO-1).
    fn is_read_only(&self, operation: &[u8]) -> bool;

    /// Names the keys that `operation` reads and writes (PX-1), and how long it takes. The
    /// default says everything and short, which is always right.
    fn access(&self, _operation: &[u8], keys: &mut Access) {
        keys.everything();
    }

    /// Does a step of an operation that [`View::later`] has left for the moment when the operation settles. The default
    /// does nothing.
    ///
    /// # Errors
    ///
    /// As [`Self::execute`].
    fn step(&self, _cx: Context, _step: u32, _state: &mut View<'_>) -> Result<(), Stop> {
        Ok(())
    }

    /// Makes a change of an operation that [`View::postpone`] has left for the moment when the operation settles. Returns
    /// whether its outcome is what the run has assumed; if not, the operation is executed on pages. The default says no.
    ///
    /// # Errors
    ///
    /// As [`Self::execute`].
    fn redo(&self, _cx: Context, _change: &[u8], _state: &mut View<'_>) -> Result<bool, Stop> {
        Ok(false)
    }

    /// Returns the most pages that `operation` takes, if it succeeds whenever that many are free. None, the default:
    /// not known, and the operation is not answered before it is part of the state (PX-C).
    fn cost(&self, _operation: &[u8], _page_bytes: usize) -> Option<u32> {
        None
    }

    /// Returns how many pages are free, for [`Self::cost`].
    ///
    /// # Errors
    ///
    /// As [`Self::execute`].
    fn room(&self, _state: &View<'_>) -> Result<u32, Stop> {
        Ok(0)
    }

    /// Writes an operation that was executed and not refused to a store of the service's own, before the operation is
    /// answered (PX-H). An operation that changes nothing need not be written. After a restart, a fault or a rollback, the
    /// same place in the agreed order ([`Context::seq`], [`Context::index`]) can be written again: the last writing counts,
    /// except that of a worker whose result is dropped (PX-10). The default does nothing.
    fn store(&self, _cx: Context, _operation: &[u8]) {}

    /// Executes `operation` and appends its result to `out`, which is empty at first.
    ///
    /// An operation that cannot be decoded or is not allowed is answered with a result that says so,
    /// never with a panic: a faulty client can send any bytes (EX-3).
    ///
    /// # Errors
    ///
    /// [`Stop::Refused`] undoes what the operation wrote and keeps its result. The other reasons to
    /// stop come from the view and are passed on.
    fn execute(
        &self,
        cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop>;
}

/// The threads of a replica share its service.
impl<S: Service + Send> Service for Arc<S> {
    fn is_read_only(&self, operation: &[u8]) -> bool {
        (**self).is_read_only(operation)
    }

    fn access(&self, operation: &[u8], keys: &mut Access) {
        (**self).access(operation, keys);
    }

    fn step(&self, cx: Context, step: u32, state: &mut View<'_>) -> Result<(), Stop> {
        (**self).step(cx, step, state)
    }

    fn redo(&self, cx: Context, change: &[u8], state: &mut View<'_>) -> Result<bool, Stop> {
        (**self).redo(cx, change, state)
    }

    fn cost(&self, operation: &[u8], page_bytes: usize) -> Option<u32> {
        (**self).cost(operation, page_bytes)
    }

    fn room(&self, state: &View<'_>) -> Result<u32, Stop> {
        (**self).room(state)
    }

    fn store(&self, cx: Context, operation: &[u8]) {
        (**self).store(cx, operation);
    }

    fn execute(
        &self,
        cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        (**self).execute(cx, operation, state, out)
    }
}

/// The inputs of an execution other than the operation and the state. Equal at all replicas, except for
/// a read-only execution, which is not ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The requesting client.
    pub client: ClientId,
    /// The client's number for the request.
    pub timestamp: Timestamp,
    /// The batch; for a read-only execution, the last one that the state reflects.
    pub seq: SeqNum,
    /// The request's place in the batch.
    pub index: u32,
    /// The agreed time in nanoseconds since 1970: what the primary chose, but later than that of
    /// every batch before (ND-2). For a read-only execution, that of the last batch.
    pub time_ns: u64,
    /// The execution is not ordered: it may read and not write (RO-1).
    pub read_only: bool,
}

/// How an operation uses a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// It reads the value of the key.
    Read,
    /// It writes, and may read, the value of the key.
    Write,
}

/// What of an operation takes long enough to be worth a hand-over to another thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// Nothing.
    #[default]
    Short,
    /// [`Service::store`] alone.
    Stored,
    /// [`Service::execute`].
    Long,
}

/// The keys of one operation, as declared by its service (spec §17.1). At most
/// [`Access::KEYS_MAX`]; more count as everything.
#[derive(Clone, Debug, Default)]
pub struct Access {
    keys: Vec<(u64, Mode)>,
    everything: bool,
    effort: Effort,
}

impl Access {
    /// Maximum number of keys of one operation (spec §17.4).
    pub const KEYS_MAX: usize = 64;

    /// Returns an empty declaration.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the declaration and keeps its memory.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.everything = false;
        self.effort = Effort::Short;
    }

    /// Declares that the operation reads the value of `key`. Equal things have equal keys;
    /// different things may share one, which costs parallelism and nothing else (PX-1).
    pub fn read(&mut self, key: u64) {
        self.add(key, Mode::Read);
    }

    /// Declares that the operation writes the value of `key`.
    pub fn write(&mut self, key: u64) {
        self.add(key, Mode::Write);
    }

    /// Declares that the operation may touch anything.
    pub fn everything(&mut self) {
        self.everything = true;
    }

    /// Declares that executing the operation takes long enough to be worth a hand-over to another thread.
    pub fn long(&mut self) {
        self.effort = Effort::Long;
    }

    /// Declares that only [`Service::store`] takes as long for the operation.
    pub fn stored(&mut self) {
        self.effort = self.effort.max(Effort::Stored);
    }

    /// Returns the keys, or none if the operation may touch anything.
    pub fn keys(&self) -> Option<&[(u64, Mode)]> {
        (!self.everything).then_some(&self.keys[..])
    }

    /// Returns what of the operation takes long.
    pub fn effort(&self) -> Effort {
        self.effort
    }

    fn add(&mut self, key: u64, mode: Mode) {
        if let Some((_, known)) = self.keys.iter_mut().find(|(other, _)| *other == key) {
            *known = mode.max(*known);
        } else if self.keys.len() == Self::KEYS_MAX {
            self.everything = true;
        } else {
            self.keys.push((key, mode));
        }
    }
}
