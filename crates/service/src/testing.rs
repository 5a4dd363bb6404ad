//! What the tests of several modules share.

use alloc::vec::Vec;

use quorate_wire::{Batch, ClientId, Timestamp};

use crate::options::Options;
use crate::page::{Memory, PageStore, Pool};
use crate::parallel::Unsettled;
use crate::state::cell::CellRun;
use crate::state::overlay::Overlay;
use crate::state::view::View;

/// A small generator of numbers that look random. Marsaglia's xorshift, 64 bits.
pub(crate) struct Xorshift(u64);

impl Xorshift {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }
}

/// Returns the digest domains of a cluster.
pub(crate) fn domains() -> quorate_wire::digest::Domains {
    quorate_wire::digest::Domains::new(quorate_wire::ClusterId([7; 32]))
}

/// Returns a batch of these requests with this choice of a time.
pub(crate) fn batch(requests: &[(ClientId, u64, &[u8])], time_ns: u64) -> Batch {
    let domains = domains();
    let mut batch = Batch::default();
    for &(client, timestamp, operation) in requests {
        batch.push_operation(&domains, client, Timestamp(timestamp), operation);
    }
    let choice = if requests.is_empty() { Vec::new() } else { time_ns.to_le_bytes().to_vec() };
    batch.seal(&domains, &choice);
    batch
}

/// Returns settings for small states.
pub(crate) fn options() -> Options {
    Options {
        page_bytes: 512,
        pages_max: 4096,
        clients_max: 40,
        result_bytes_max: 2048,
        ..Options::default()
    }
}

/// A state of its own for tests of what works on a [`View`].
pub(crate) struct Bench {
    store: Memory,
    overlay: Overlay,
    pool: Pool,
    zeros: Vec<u8>,
    pages: u32,
}

impl Bench {
    pub(crate) fn new(pages: u32) -> Self {
        Self {
            store: Memory::new(),
            overlay: Overlay::default(),
            pool: Pool::new(512, 1000),
            zeros: alloc::vec![0; 512],
            pages,
        }
    }

    /// Runs an operation and merges what it wrote.
    pub(crate) fn run<T>(&mut self, operation: impl FnOnce(&mut View<'_>) -> T) -> T {
        self.overlay.begin(&mut self.pool);
        let part = (0, self.pages);
        let mut view = View::new(&self.store, &mut self.overlay, &mut self.pool, &self.zeros, part);
        let done = operation(&mut view);
        self.overlay.drain(&mut self.pool, |page, content, _| {
            self.store.replace(page, content).unwrap();
        });
        done
    }

    /// Runs an operation on cells.
    pub(crate) fn run_on_cells<T>(&self, run: &mut CellRun, operation: impl FnOnce(&mut View<'_>) -> T) -> T {
        let below = Unsettled::default();
        let below = below.below(0);
        let base = (&self.store as &dyn PageStore, &self.overlay);
        operation(&mut View::on_cells(base, &below, run, &self.zeros, (0, self.pages)))
    }

    /// Returns every page that is not empty.
    pub(crate) fn content(&self) -> Vec<(u32, Vec<u8>)> {
        let first = self.store.next(0);
        core::iter::successors(first, |page| self.store.next(page + 1))
            .map(|page| (page, self.store.get(page).unwrap().unwrap().to_vec()))
            .collect()
    }

    /// Flips a bit of a written page.
    pub(crate) fn damage(&mut self, random: &mut Xorshift) {
        let from = u32::try_from(random.below(60)).unwrap();
        let Some(page) = self.store.next(from) else { return };
        let mut content = self.store.replace(page, None).unwrap().unwrap();
        let within = if random.below(2) == 0 { 24 } else { 512 };
        let at = usize::try_from(random.below(within)).unwrap();
        content[at] ^= 1 << random.below(8);
        self.store.replace(page, Some(content)).unwrap();
    }
}
