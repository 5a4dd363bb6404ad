//! A typed service that declares keys is executed in parallel. Its state and replies are those of sequential execution.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use quorate::service::Typed;
use quorate::{Access, Call, Map, Operation, Service, State, key_of, value};
use quorate_service::parallel::{EngineKind, KeyRules, Runs, Settled};
use quorate_service::{Executor, Options};
use quorate_wire::digest::Domains;
use quorate_wire::{Batch, ClientId, ClusterId, Replies, SeqNum, Timestamp};

#[derive(State)]
struct Counters<'a> {
    count: Map<'a, u64, u64>,
}

#[derive(Debug, Operation)]
enum Op {
    Add { counter: u64, by: u64 },
    Move { from: u64, to: u64 },
}

impl Service for Counters<'_> {
    type Operation = Op;
    type Reply = Result<u64, String>;

    fn execute(&mut self, op: &Op, _call: &Call) -> Self::Reply {
        let get = |counters: &Self, counter: &u64| counters.count.get(counter).unwrap_or(0);
        match op {
            Op::Add { counter, by } => {
                let sum = get(self, counter) + by;
                self.count.insert(counter, &sum);
                Ok(sum)
            }
            Op::Move { from, to } => {
                let (left, sum) = (get(self, from).checked_sub(1).ok_or("empty")?, get(self, to) + 1);
                self.count.insert(from, &left);
                self.count.insert(to, &sum);
                Ok(sum)
            }
        }
    }

    fn access(operation: &Op, keys: &mut Access) {
        match operation {
            Op::Add { counter, .. } => keys.write(key_of(counter)),
            Op::Move { from, to } => [from, to].into_iter().for_each(|counter| keys.write(key_of(counter))),
        }
        keys.long();
    }
}

const LANES: u64 = 16;

fn batches(domains: &Domains) -> Vec<Batch> {
    let batch = |seq: u64| {
        let mut batch = Batch::default();
        for lane in 0..LANES {
            let op = match seq {
                // The first batch makes the counters, so that the length of the map stays the same afterwards.
                1 => Op::Add { counter: lane, by: 1 },
                _ if lane % 3 == 0 => Op::Move { from: (seq + lane) % LANES, to: (3 * seq + lane) % LANES },
                _ => Op::Add { counter: (seq * lane) % LANES, by: seq },
            };
            let (client, operation) = (ClientId::new(lane + 1, 0), value::encode(&op));
            batch.push_operation(domains, client, Timestamp(seq), &operation);
        }
        batch.seal(domains, &seq.to_le_bytes());
        batch
    };
    (1..=40).map(batch).collect()
}

fn said(replies: &Replies) -> Vec<Vec<u8>> {
    replies.iter().map(|reply| reply.result.unwrap_or_default().to_vec()).collect()
}

#[test]
fn px3_a_typed_service_gives_what_sequential_execution_gives() {
    let domains = Domains::new(ClusterId([1; 32]));
    let options = Options { clients_max: 64, lanes_max: 64, ..Options::default() };
    let executor = || Executor::new(Typed::<Counters<'_>>::new(), domains.clone(), options.clone());
    let (mut sequential, mut ahead) = (executor(), executor());
    let rules = KeyRules::new(Typed::<Counters<'_>>::new());
    let mut runs = Runs::new(EngineKind::GroupIndex, rules, 7, false).unwrap();
    let (mut replies, mut expected, mut jobs) = (Replies::new(), Replies::new(), Vec::new());
    for (seq, batch) in (1..).map(SeqNum).zip(&batches(&domains)) {
        sequential.execute(seq, batch, false, &mut expected).unwrap();
        runs.insert(&mut ahead, seq, batch).unwrap();
        while ahead.last_executed() < seq {
            jobs.extend(std::iter::from_fn(|| runs.start(&mut ahead)));
            // The last one that began ends first.
            if let Some(job) = jobs.pop() {
                let done = runs.run(&ahead, &job);
                runs.finish(done);
            }
            while !matches!(runs.settle(&mut ahead, &mut replies).unwrap(), None | Some(Settled::Batch(_))) {}
        }
        assert_eq!(said(&replies), said(&expected), "{seq:?}");
        assert_eq!(ahead.checkpoint(seq), sequential.checkpoint(seq), "{seq:?}");
        ahead.discard(0, seq);
        sequential.discard(0, seq);
        replies.clear();
        expected.clear();
    }
    let counters = runs.counters();
    println!("{counters:?}");
    assert!(runs.wrong().is_empty() && counters.runs > 300 && counters.most > 4, "{counters:?}");
}
