//! What a page costs that is in memory, behind the page file and without one: `cargo bench -p quorate-node --bench pages`.
//!
//! The two stores take turns in one run, and what is measured is processor time. "kv" is batches of the key-value store,
//! each with a checkpoint now and then, as an executor runs them.
#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a bench may panic, and its figures are rounded"
)]

use std::hint::black_box;
use std::path::Path;

use nix::time::{ClockId, clock_gettime};
use quorate_node::storage::{Files, Paged};
use quorate_service::kv::{Kv, Operation};
use quorate_service::page::{Memory, PageStore};
use quorate_service::{Executor, Options};
use quorate_wire::digest::Domains;
use quorate_wire::{Batch, ClientId, ClusterId, Replies, SeqNum, Timestamp};

const PAGES: u32 = 50_000;
const TURNS: usize = 15;

/// Returns the processor time of this thread, in nanoseconds. `/proc` would have it of the last tick.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    u64::try_from(time.tv_sec() * 1_000_000_000 + time.tv_nsec()).unwrap()
}

fn domains() -> Domains {
    Domains::new(ClusterId([1; 32]))
}

fn paged() -> Paged {
    Paged::new(Files::below(Path::new("none")), domains(), 4096, 1 << 30)
}

/// Pages in no order. 48271 is a prime.
fn page(i: u32) -> u32 {
    u32::try_from(u64::from(i) * 48_271 % u64::from(PAGES)).unwrap()
}

fn fill<P: PageStore>(mut store: P) -> P {
    (0..PAGES).for_each(|page| _ = store.replace(page, Some(vec![1; 4096].into_boxed_slice())));
    store
}

fn gets(store: &dyn PageStore) -> u64 {
    let start = cpu_ns();
    for i in 0..2_000_000 {
        black_box(store.get(page(i)).unwrap().map(<[u8]>::len));
    }
    (cpu_ns() - start) / 2_000
}

fn replaces(store: &mut impl PageStore) -> u64 {
    let start = cpu_ns();
    let mut hand = Some(vec![2; 4096].into_boxed_slice());
    for i in 0..1_000_000 {
        hand = store.replace(page(i), hand).unwrap();
    }
    (cpu_ns() - start) / 1_000
}

/// Batches of 16 values of 200 bytes each, a checkpoint after 64 of them.
fn batches<P: PageStore>(executor: &mut Executor<Kv, P>, replies: &mut Replies) -> u64 {
    let domains = domains();
    let mut spent = 0;
    for _ in 0..128 {
        let seq = executor.last_executed().next();
        let mut batch = Batch::default();
        for number in 0..16 {
            let mut operation = Vec::new();
            let key = (seq.0 * 16 + number).wrapping_mul(48_271) % 20_000;
            Operation::Put { key: &key.to_be_bytes(), value: &[7; 200] }.encode(&mut operation);
            let (client, timestamp) = (ClientId::new(1 + number, 0), Timestamp(seq.0));
            batch.push_operation(&domains, client, timestamp, &operation);
        }
        batch.seal(&domains, &[0; 8]);
        let start = cpu_ns();
        executor.relax();
        executor.execute(seq, &batch, false, replies).unwrap();
        if seq.0.is_multiple_of(64) {
            executor.checkpoint(SeqNum(seq.0));
            executor.discard(0, seq);
        }
        spent += cpu_ns() - start;
    }
    spent * 1000 / (128 * 16)
}

fn median(mut samples: Vec<u64>) -> f64 {
    samples.sort_unstable();
    samples[samples.len() / 2] as f64 / 1000.0
}

fn main() {
    let (mut memory, mut behind) = (fill(Memory::new()), fill(paged()));
    let options = || Options { pages_max: 1 << 20, clients_max: 64, ..Options::default() };
    let mut one = Executor::with_store(Kv, domains(), options(), Memory::new());
    let mut two = Executor::with_store(Kv, domains(), options(), paged());
    let mut replies = Replies::new();
    let mut samples: [[Vec<u64>; 2]; 3] = Default::default();
    for _ in 0..TURNS {
        let [get, replace, kv] = &mut samples;
        get[0].push(gets(&memory));
        get[1].push(gets(&behind));
        replace[0].push(replaces(&mut memory));
        replace[1].push(replaces(&mut behind));
        kv[0].push(batches(&mut one, &mut replies));
        kv[1].push(batches(&mut two, &mut replies));
    }
    for (name, [memory, behind]) in ["get", "replace", "kv put"].iter().zip(samples) {
        let (memory, behind) = (median(memory), median(behind));
        println!("{name:8} {memory:9.1} ns in memory, {behind:9.1} ns behind a file: {:.2}", behind / memory);
    }
}
