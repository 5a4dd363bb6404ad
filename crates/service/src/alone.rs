//! A service without replicas: it executes operations directly on the state, without agreement, copies for
//! checkpoints, digests or stored replies. Replication is compared with it [OSDI99 §7.3].

use alloc::vec;
use alloc::vec::Vec;

use quorate_wire::message::RESULT_BYTES_MAX;
use quorate_wire::{ClientId, SeqNum, Timestamp};

use crate::options::{Options, OptionsError};
use crate::page::{Memory, PageStore as _, Pool};
use crate::service::{Context, Service};
use crate::state::overlay::Overlay;
use crate::state::view::View;
use crate::stop::Stop;

/// A service with its state, in memory. Grows to `pages_max` pages.
#[derive(Debug)]
pub struct Alone<S> {
    service: S,
    store: Memory,
    overlay: Overlay,
    pool: Pool,
    zeros: Vec<u8>,
    pages: u32,
    executed: u64,
    time_ns: u64,
}

impl<S: Service> Alone<S> {
    /// Returns a service in its initial state.
    ///
    /// # Errors
    ///
    /// The first rule that `options` break. Of them the pages count.
    pub fn new(service: S, options: &Options) -> Result<Self, OptionsError> {
        options.check()?;
        Ok(Self {
            service,
            store: Memory::new(),
            overlay: Overlay::default(),
            pool: Pool::new(options.page_bytes, options.pool_pages_max),
            zeros: vec![0; options.page_bytes],
            pages: options.pages_max,
            executed: 0,
            time_ns: 0,
        })
    }

    /// Executes an operation and makes `out` its result: an empty one if there is nothing to say. `wall_ns` is
    /// the time of day in nanoseconds since 1970. Returns whether the state may have changed.
    pub fn execute(&mut self, wall_ns: u64, operation: &[u8], out: &mut Vec<u8>) -> bool {
        if self.service.is_read_only(operation) && self.read(operation, out) {
            return false;
        }
        out.clear();
        // As replicas agree on it: later than any time before (ND-2).
        self.time_ns = wall_ns.max(self.time_ns + 1);
        self.executed += 1;
        let cx = self.context(false);
        self.overlay.begin(&mut self.pool);
        let mut view =
            View::new(&self.store, &mut self.overlay, &mut self.pool, &self.zeros, (0, self.pages));
        let done = self.service.execute(cx, operation, &mut view, out);
        if done.is_ok() && out.len() <= RESULT_BYTES_MAX {
            let store = &mut self.store;
            self.overlay.drain(&mut self.pool, |page, content, pool| {
                if let Ok(Some(old)) = store.replace(page, content) {
                    pool.give(old);
                }
            });
            return true;
        }
        self.overlay.discard(&mut self.pool);
        if done != Err(Stop::Refused) || out.len() > RESULT_BYTES_MAX {
            out.clear();
        }
        false
    }

    /// Executes an operation that only reads. Returns whether it did: it may need to write after all.
    fn read(&self, operation: &[u8], out: &mut Vec<u8>) -> bool {
        out.clear();
        let mut view = View::read_only(&self.store, &self.zeros, (0, self.pages));
        let done = self.service.execute(self.context(true), operation, &mut view, out);
        matches!(done, Ok(()) | Err(Stop::Refused)) && out.len() <= RESULT_BYTES_MAX
    }

    fn context(&self, read_only: bool) -> Context {
        Context {
            client: ClientId::new(1, 0),
            timestamp: Timestamp(self.executed),
            seq: SeqNum(self.executed),
            index: 0,
            time_ns: self.time_ns,
            read_only,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts up with `+`, refuses `-` after it has written, reads with anything else.
    struct Counter;

    impl Service for Counter {
        fn is_read_only(&self, operation: &[u8]) -> bool {
            !matches!(operation, b"+" | b"-")
        }

        fn execute(
            &self,
            cx: Context,
            operation: &[u8],
            state: &mut View<'_>,
            out: &mut Vec<u8>,
        ) -> Result<(), Stop> {
            let count = state.page(0)?[0];
            match operation {
                b"?" => {}
                // It reads, and finds that it has to write.
                b"!" if cx.read_only => return Err(Stop::NeedsOrder),
                _ => state.write(0, 0, &[count + 1])?,
            }
            out.push(state.page(0)?[0]);
            if operation == b"-" { Err(Stop::Refused) } else { Ok(()) }
        }
    }

    #[test]
    fn operations_change_the_state_and_refused_ones_do_not() {
        let mut alone = Alone::new(Counter, &Options::default()).unwrap();
        let mut out = Vec::new();
        for (operation, changed, result) in
            [(b"+", true, 1), (b"-", false, 2), (b"?", false, 1), (b"!", true, 2), (b"?", false, 2)]
        {
            assert_eq!(alone.execute(5, operation, &mut out), changed, "{operation:?}");
            assert_eq!(out, [result], "{operation:?}");
        }
        assert_eq!(alone.time_ns, 7, "three that were not read only, each later than the one before");
    }
}
