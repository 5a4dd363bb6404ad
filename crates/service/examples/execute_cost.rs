//! Prints what executing and merging costs: `cargo run --release -p quorate-service --example execute_cost`
//!
//! One batch is one request of the null service, argument and result of zero bytes, each from another
//! of the clients. Best of several rounds, because the machine is shared.

#![allow(clippy::expect_used, clippy::cast_precision_loss, reason = "a measurement")]

use std::hint::black_box;
use std::time::Instant;

use quorate_service::null::{self, Null};
use quorate_service::{Executor, Options};
use quorate_wire::digest::Domains;
use quorate_wire::message::{Proof, Request, RequestFlags};
use quorate_wire::{Batch, ClientId, ClusterId, Replies, SeqNum, Timestamp};

const ROUNDS: u32 = 20;
const BATCHES: u64 = 12_800;
const CHECKPOINT_INTERVAL: u64 = 128;

fn main() {
    println!("execute and merge a batch of 0/0 requests, checkpoints every 128 batches included");
    println!("{:>8} {:>9} {:>12} {:>12}", "clients", "requests", "ns/batch", "ns/request");
    for (clients, requests) in [(1, 1), (16, 1), (1000, 1), (16, 16), (1000, 100)] {
        let batch_ns = measure(clients, requests);
        println!("{clients:>8} {requests:>9} {:>12.0} {:>12.0}", batch_ns, batch_ns / f64::from(requests));
    }
}

/// Returns the nanoseconds of one batch of `requests`, from `clients` in turn.
fn measure(clients: u64, requests: u32) -> f64 {
    let domains = Domains::new(ClusterId([7; 32]));
    let mut executor = Executor::new(Null, domains.clone(), Options::default());
    let mut replies = Replies::new();
    let mut operation = Vec::new();
    null::operation(0, 0, false, &mut operation);
    let (mut best, mut seq, mut turn) = (f64::MAX, 0, 0);
    for _ in 0..ROUNDS {
        let batches: Vec<Batch> = (0..BATCHES)
            .map(|at| {
                let mut batch = Batch::default();
                for _ in 0..requests {
                    let (client, timestamp) = (ClientId::new(1 + turn % clients, 0), 1 + turn / clients);
                    batch.push_inlined(&request(&domains, client, timestamp, &operation));
                    turn += 1;
                }
                batch.seal(&domains, &(seq + at).to_le_bytes());
                batch
            })
            .collect();
        let start = Instant::now();
        for batch in &batches {
            seq += 1;
            executor
                .execute(SeqNum(seq), batch, true, &mut replies)
                .expect("a store in memory has every page");
            executor.merge(SeqNum(seq));
            if seq % CHECKPOINT_INTERVAL == 0 {
                black_box(executor.checkpoint(SeqNum(seq)));
                executor.discard(SeqNum(seq - CHECKPOINT_INTERVAL));
            }
        }
        let took = start.elapsed().as_nanos();
        best = best.min(took as f64 / BATCHES as f64);
    }
    best
}

fn request<'a>(domains: &Domains, client: ClientId, timestamp: u64, operation: &'a [u8]) -> Request<'a> {
    Request {
        client,
        timestamp: Timestamp(timestamp),
        digest: domains.request(client.0, timestamp, operation),
        flags: RequestFlags::default(),
        replier: None,
        operation,
        operation_at: 0,
        frame: operation,
        proof: Proof::Mac,
    }
}
