//! In a steady state executing, merging and cutting checkpoints allocate nothing: page buffers, records
//! and lists are used again.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use quorate_service::null::{self, Null};
use quorate_service::{Executor, Options};
use quorate_wire::digest::Domains;
use quorate_wire::{Batch, ClientId, ClusterId, Replies, SeqNum, Timestamp};

/// The system's allocator, counting.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[allow(unsafe_code, reason = "a global allocator cannot be had without; it only counts and passes on")]
// SAFETY: every call goes to the system's allocator with the caller's own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from `alloc` with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const CLIENTS: u64 = 500;
const CHECKPOINT_INTERVAL: u64 = 128;
/// Batches until every list has been as long as it gets.
const WARM_UP: u64 = 20 * CHECKPOINT_INTERVAL;

fn batch(domains: &Domains, seq: u64, requests: u64) -> Batch {
    let mut operation = Vec::new();
    null::operation(0, 0, false, &mut operation);
    let mut batch = Batch::default();
    for turn in (seq - 1) * requests..seq * requests {
        let (client, timestamp) = (ClientId::new(1 + turn % CLIENTS, 0), 1 + turn / CLIENTS);
        batch.push_operation(domains, client, Timestamp(timestamp), &operation);
    }
    batch.seal(domains, &seq.to_le_bytes());
    batch
}

/// Executes batches tentatively, undoes some of them once, and keeps two checkpoints. Returns the
/// allocations made while it executes.
fn allocations(requests: u64) -> u64 {
    let domains = Domains::new(ClusterId([7; 32]));
    let mut executor = Executor::new(Null, domains.clone(), Options::default());
    let mut replies = Replies::new();
    let mut counted = 0;
    for seq in 1..=2 * WARM_UP {
        let batch = batch(&domains, seq, requests);
        let (seq, before) = (SeqNum(seq), ALLOCATIONS.with(Cell::get));
        if seq.0 % 5 == 0 {
            executor.execute(seq, &batch, true, &mut replies).unwrap();
            executor.undo(seq.prev());
        }
        executor.execute(seq, &batch, true, &mut replies).unwrap();
        executor.merge(seq);
        if seq.0 % CHECKPOINT_INTERVAL == 0 {
            executor.checkpoint(seq);
            executor.discard(0, SeqNum(seq.0.saturating_sub(CHECKPOINT_INTERVAL)));
        }
        if seq.0 > WARM_UP {
            counted += ALLOCATIONS.with(Cell::get) - before;
        }
    }
    counted
}

#[test]
fn a_steady_state_allocates_nothing() {
    assert!(ALLOCATIONS.with(Cell::get) > 0, "the counter counts");
    for requests in [1, 40] {
        assert_eq!(allocations(requests), 0, "{requests} requests a batch");
    }
}
