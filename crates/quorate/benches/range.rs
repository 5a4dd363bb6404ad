//! What `Map::range` costs in a map of a million keys, in the pages of a replica: `cargo bench -p quorate --bench range`.
//!
//! One process alone, without agreement. It prints processor time, so that other work on the machine shows as little as
//! it can.
#![allow(clippy::unwrap_used, reason = "a bench may panic")]

use quorate::{Call, Map, Operation, Service, State};
use quorate_service::{Alone, Options};

#[derive(State)]
struct Numbers<'a> {
    squares: Map<'a, u64, u64>,
}

#[derive(Debug, Operation)]
enum Op {
    Fill {
        from: u64,
        to: u64,
    },
    #[read_only]
    Range {
        from: u64,
        count: u64,
    },
}

impl Service for Numbers<'_> {
    type Operation = Op;
    type Reply = u64;

    fn execute(&mut self, op: &Op, _call: &Call) -> u64 {
        match op {
            Op::Fill { from, to } => {
                (*from..*to).for_each(|number| {
                    self.squares.insert(&number, &(number * number));
                });
                self.squares.len()
            }
            Op::Range { from, count } => self
                .squares
                .range(*from..from + count)
                .fold(0, |sum, (_, square): (u64, u64)| sum.wrapping_add(square)),
        }
    }
}

/// Keys of the map, keys of a range, and how many ranges are read.
const KEYS: u64 = 1_000_000;
const COUNT: u64 = 1000;
const RANGES: u64 = 500;

/// Returns the processor time of this thread, in nanoseconds.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

fn main() {
    let mut alone =
        Alone::new(quorate::service::Typed::<Numbers<'static>>::new(), &Options::default()).unwrap();
    let (mut out, mut time) = (Vec::new(), 0);
    let mut run = |op: &Op| {
        time += 1;
        alone.execute(time, &quorate::value::encode(op), &mut out);
        out.clone()
    };
    for from in (0..KEYS).step_by(1000) {
        run(&Op::Fill { from, to: from + 1000 });
    }
    let mut took = Vec::new();
    for turn in 0..RANGES {
        let from = turn * 7919 * 97 % (KEYS - COUNT);
        let begin = cpu_ns();
        let reply = run(&Op::Range { from, count: COUNT });
        took.push(cpu_ns() - begin);
        let sum = (from..from + COUNT).fold(0_u64, |sum, number| sum.wrapping_add(number * number));
        assert_eq!(reply[1..], sum.to_le_bytes(), "the range from {from}");
    }
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100] / 1000;
    println!("{COUNT} of {KEYS} keys: median {} us, 99 % at most {} us of processor time", at(50), at(99));
}
