//! Prints what executing and merging costs: `cargo run --release -p quorate-service --example execute_cost`
//!
//! Requests come from the clients in turn; the key-value store holds 100,000 keys with values of 100
//! bytes, asked for in no order. Checkpoints every 128 batches are included. Best of several rounds,
//! because machines are shared.
#![allow(clippy::expect_used, clippy::cast_precision_loss, reason = "a measurement")]

use std::hint::black_box;
use std::time::Instant;

use quorate_service::kv::{Kv, Operation};
use quorate_service::null::{self, Null};
use quorate_service::{Executor, Options, Service};
use quorate_wire::digest::Domains;
use quorate_wire::{Batch, ClientId, ClusterId, Digest, Replies, SeqNum, Timestamp};

const ROUNDS: u32 = 10;
const REQUESTS: u64 = 12_800;
const CHECKPOINT_INTERVAL: u64 = 128;
const KEYS: u64 = 100_000;

fn main() {
    println!(
        "{:<16} {:>8} {:>9} {:>12} {:>12}",
        "operation", "clients", "requests", "ns/batch", "ns/request"
    );
    let null = |_, out: &mut Vec<u8>| null::operation(0, 0, false, out);
    for (clients, requests) in [(1, 1), (16, 1), (1000, 1), (16, 16), (1000, 100)] {
        Bench::new(Null, clients).print("null 0/0", requests, null);
    }
    let null = |_, out: &mut Vec<u8>| null::operation(0, 4096, false, out);
    Bench::new(Null, 16).print("null 0/4", 1, null);

    let mut store = Bench::new(Kv, 1000);
    let put = |turn, out: &mut Vec<u8>| Operation::Put { key: &key(turn), value: &[7; 100] }.encode(out);
    for turn in (0..KEYS).collect::<Vec<_>>().chunks(1000) {
        let batch = store.batch(1000, |at, out| put(turn[usize::try_from(at % 1000).expect("small")], out));
        store.execute(&[batch]);
    }
    store.print("kv put", 1, |turn, out| put(turn * 7919, out));
    store.print("kv put", 100, |turn, out| put(turn * 7919, out));
    store.print("kv get", 1, |turn, out| Operation::Get { key: &key(turn * 7919) }.encode(out));
    store.print_reads();
}

fn key(turn: u64) -> Vec<u8> {
    format!("user{:012}", turn % KEYS).into_bytes()
}

struct Bench<S: Service> {
    executor: Executor<S>,
    domains: Domains,
    clients: u64,
    seq: u64,
    turn: u64,
    replies: Replies,
}

impl<S: Service> Bench<S> {
    fn new(service: S, clients: u64) -> Self {
        let domains = Domains::new(ClusterId([7; 32]));
        let executor = Executor::new(service, domains.clone(), Options::default());
        Self { executor, domains, clients, seq: 0, turn: 0, replies: Replies::new() }
    }

    /// Returns a batch of requests from the clients whose turn it is.
    fn batch(&mut self, requests: u64, operation: impl Fn(u64, &mut Vec<u8>)) -> Batch {
        let mut batch = Batch::default();
        let mut bytes = Vec::new();
        for _ in 0..requests {
            bytes.clear();
            operation(self.turn, &mut bytes);
            let client = ClientId::new(1 + self.turn % self.clients, 0);
            let timestamp = 1 + self.turn / self.clients;
            batch.push_operation(&self.domains, client, Timestamp(timestamp), &bytes);
            self.turn += 1;
        }
        batch.seal(&self.domains, &self.turn.to_le_bytes());
        batch
    }

    fn execute(&mut self, batches: &[Batch]) {
        for batch in batches {
            self.seq += 1;
            let seq = SeqNum(self.seq);
            self.executor
                .execute(seq, batch, true, &mut self.replies)
                .expect("a store in memory has every page");
            self.executor.merge(seq);
            if self.seq.is_multiple_of(CHECKPOINT_INTERVAL) {
                black_box(self.executor.checkpoint(seq));
                self.executor.discard(0, SeqNum(self.seq - CHECKPOINT_INTERVAL));
            }
        }
    }

    fn print(&mut self, name: &str, requests: u64, operation: impl Fn(u64, &mut Vec<u8>)) {
        let mut best = f64::MAX;
        for _ in 0..ROUNDS {
            let count = REQUESTS / requests;
            let batches: Vec<Batch> = (0..count).map(|_| self.batch(requests, &operation)).collect();
            let start = Instant::now();
            self.execute(&batches);
            best = best.min(start.elapsed().as_nanos() as f64 / count as f64);
        }
        let clients = self.clients;
        println!("{name:<16} {clients:>8} {requests:>9} {best:>12.0} {:>12.0}", best / requests as f64);
    }

    /// Prints what an unordered read costs.
    fn print_reads(&mut self) {
        let (mut best, mut out) = (f64::MAX, Vec::new());
        for _ in 0..ROUNDS {
            let mut operations = Vec::new();
            for turn in 0..REQUESTS {
                let mut operation = Vec::new();
                Operation::Get { key: &key(turn * 7919) }.encode(&mut operation);
                operations.push(operation);
            }
            let start = Instant::now();
            for operation in &operations {
                let client = ClientId::new(1, 0);
                black_box(self.executor.read((client, Timestamp(1), &Digest::ZERO), operation, &mut out));
            }
            best = best.min(start.elapsed().as_nanos() as f64 / REQUESTS as f64);
        }
        println!("{:<16} {:>8} {:>9} {:>12} {best:>12.0}", "kv get, unordered", "-", "-", "-");
    }
}
