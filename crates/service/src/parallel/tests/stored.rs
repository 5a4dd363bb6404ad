//! A service with a store of its own (PX-H).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use std::format;
use std::string::String;
use std::sync::Mutex;

use crate::kv::{Kv, Operation};
use crate::parallel::Position;
use crate::service::{Access, Context, Service};
use crate::state::view::View;
use crate::stop::Stop;

/// The key-value store, with a store for the operations PUT, INCR and APPEND, which change something if they are not refused.
#[derive(Debug, Default)]
pub(super) struct StoredKv {
    /// The agreed times with which an operation was written.
    written: Mutex<BTreeMap<Position, Vec<u64>>>,
}

impl StoredKv {
    /// Returns the times with which the operation at this place was written.
    pub(super) fn times(&self, place: Position) -> Vec<u64> {
        self.written.lock().unwrap().get(&place).cloned().unwrap_or_default()
    }

    /// Checks that the operation at this place, which has settled, was last written with the agreed time, as a sequential
    /// execution has written it; `once`: never twice with the same time.
    pub(super) fn check(&self, place: Position, sequential: &Self, once: bool) -> Result<(), String> {
        let (wanted, times) = (sequential.times(place), self.times(place));
        let repeats = (1..times.len()).any(|at| times[..at].contains(&times[at]));
        let is_right = wanted.is_empty() || times.last() == wanted.last();
        if is_right && !(once && repeats) {
            return Ok(());
        }
        Err(format!("{place:?}: stored with {times:?} in place of {wanted:?}"))
    }
}

impl Service for StoredKv {
    fn is_read_only(&self, operation: &[u8]) -> bool {
        Kv.is_read_only(operation)
    }

    fn access(&self, operation: &[u8], keys: &mut Access) {
        Kv.access(operation, keys);
        match Operation::decode(operation) {
            Ok(Operation::Incr { .. }) => keys.stored(),
            Ok(Operation::Append { .. }) => keys.long(),
            _ => {}
        }
    }

    fn step(&self, cx: Context, step: u32, state: &mut View<'_>) -> Result<(), Stop> {
        Kv.step(cx, step, state)
    }

    fn cost(&self, operation: &[u8], page_bytes: usize) -> Option<u32> {
        Kv.cost(operation, page_bytes)
    }

    fn room(&self, state: &View<'_>) -> Result<u32, Stop> {
        Kv.room(state)
    }

    fn store(&self, cx: Context, operation: &[u8]) {
        let decoded = Operation::decode(operation);
        if let Ok(Operation::Put { .. } | Operation::Incr { .. } | Operation::Append { .. }) = decoded {
            let place = Position { seq: cx.seq, index: cx.index };
            self.written.lock().unwrap().entry(place).or_default().push(cx.time_ns);
        }
    }

    fn execute(
        &self,
        cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        Kv.execute(cx, operation, state, out)
    }
}
