//! A service whose operations take 60 ms, and a load on it: a measurement on real processes of what slow operations do
//! to a cluster (docs/testing.md).
//!
//! ```text
//! slow up --dir data
//! slow load data/client-0 40 400      400 operations by 40 threads
//! ```
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quorate::{Call, Cell, Client, Operation, Service, State};

/// How long an operation takes.
const TAKES: Duration = Duration::from_millis(60);

#[derive(State)]
struct Slow<'a> {
    sum: Cell<'a, u64>,
}

#[derive(Operation)]
enum Op {
    Add { by: u64 },
}

impl Service for Slow<'_> {
    type Operation = Op;
    type Reply = u64;

    fn execute(&mut self, op: &Op, _call: &Call) -> u64 {
        let Op::Add { by } = op;
        std::thread::sleep(TAKES);
        self.sum.set(&(self.sum.get() + by));
        self.sum.get()
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, command, dir, threads, count] = args.as_slice() else { return program() };
    match (command.as_str(), threads.parse(), count.parse()) {
        ("load", Ok(threads), Ok(count)) => load(dir, threads, count),
        _ => program(),
    }
}

fn program() -> ExitCode {
    quorate::program::run::<Slow<'static>>("slow")
}

fn load(dir: &str, threads: u64, count: u64) -> ExitCode {
    let client = match Client::<Slow<'static>>::open(dir) {
        Ok(client) => client,
        Err(trouble) => {
            eprintln!("{trouble}");
            return ExitCode::from(2);
        }
    };
    let (left, failed, slowest) = (AtomicU64::new(count), AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                    let asked = Instant::now();
                    if let Err(error) = client.call(&Op::Add { by: 1 }) {
                        failed.fetch_add(1, Ordering::Relaxed);
                        eprintln!("{error}");
                    }
                    let took = u64::try_from(asked.elapsed().as_millis()).unwrap_or(u64::MAX);
                    slowest.fetch_max(took, Ordering::Relaxed);
                }
            });
        }
    });
    let took = began.elapsed().as_secs_f64();
    println!(
        "{count} operations, {threads} at once, {took:.1} s, {failed:?} without a result, slowest {slowest:?} ms"
    );
    if failed.into_inner() == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
