//! What creating, finding, listing and removing a file costs in a directory of a thousand files, and in
//! one of a million: `cargo bench -p quorate-fs --bench directory [-- FILES]`.
//!
//! One replica's executor alone, without agreement and with a batch for each call: the cost of the state.
//! The two directories are in states of their own and take turns; what is measured is processor time, so that
//! what else runs on the machine shows as little as can be (a part of the caches is gone all the same). Names
//! are in no order: each goes somewhere else.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::result_large_err,
    clippy::cast_precision_loss,
    reason = "a bench may panic, and its figures are rounded"
)]

#[path = "../tests/fs/support/mod.rs"]
mod support;

use support::{Bench, H};

/// Files of the small directory.
const SMALL: u32 = 1000;
/// Turns that the two directories take in each phase.
const TURNS: u32 = 20;
/// Maximum number of files that the small directory makes in a turn: it is made again and again, to be measured.
const SMALL_FILES_A_TURN: u32 = 10_000;
const PHASES: [&str; 5] = ["create", "stat", "list", "remove in order", "remove in no order"];

/// A directory with what has been measured.
struct Arm {
    bench: Bench,
    dir: H,
    /// Where the next listing continues.
    cookie: u64,
    /// Of each phase: nanoseconds, and files.
    spent: [(u64, u64); PHASES.len()],
}

/// Returns the processor time of this thread, in nanoseconds.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// Names in no order.
fn name(i: u32) -> String {
    format!("file{:08x}", i.wrapping_mul(0x9e37_79b1))
}

/// The numbers below `files`, each once, in no order. 7919 is a prime.
fn shuffled(i: u32, files: u32) -> u32 {
    u32::try_from(u64::from(i) * 7919 % u64::from(files)).unwrap()
}

impl Arm {
    fn new() -> Self {
        let mut bench = Bench::with(support::open_settings(), 1 << 20);
        let root = bench.root.clone();
        let dir = bench.mkdir(&root, "d", 0o755).unwrap();
        Self { bench, dir, cookie: 0, spent: Default::default() }
    }

    /// Does the part `from..to` of a phase in a directory of `files` files.
    fn work(&mut self, phase: usize, (from, to): (u32, u32), files: u32) {
        let Self { bench: b, dir, cookie, spent } = self;
        let start = cpu_ns();
        match phase {
            0 => (from..to).for_each(|i| drop(b.file(dir, &name(i)))),
            1 => (from..to).for_each(|i| drop(b.lookup(dir, &name(shuffled(i, files))).unwrap())),
            2 => {
                let mut left = to - from;
                while left > 0 {
                    let (entries, is_all) = b.readdir(dir, *cookie, 64 << 10).unwrap();
                    *cookie = if is_all { 0 } else { entries.last().unwrap().0 };
                    left = left.saturating_sub(u32::try_from(entries.len()).unwrap());
                }
            }
            3 => (from..to).for_each(|i| assert!(b.remove(dir, &name(i)).is_ok())),
            _ => (from..to).for_each(|i| assert!(b.remove(dir, &name(shuffled(i, files))).is_ok())),
        }
        spent[phase].0 += cpu_ns() - start;
        spent[phase].1 += u64::from(to - from);
    }

    fn a_file(&self, phase: usize) -> f64 {
        self.spent[phase].0 as f64 / self.spent[phase].1.max(1) as f64 / 1e3
    }
}

fn main() {
    let large = std::env::args().nth(1).and_then(|files| files.parse().ok()).unwrap_or(1_000_000);
    let (mut small, mut big) = (Arm::new(), Arm::new());
    // Twice created: removed in the order of creation, then in none.
    for removal in [3, 4] {
        for phase in [0, 1, 2, removal] {
            for turn in 0..TURNS {
                let part = (large / TURNS * turn, large / TURNS * (turn + 1));
                big.work(phase, part, large / TURNS * TURNS);
                for _ in 0..SMALL_FILES_A_TURN / SMALL / 4 {
                    for phase in [0, 1, 2, removal] {
                        small.work(phase, (0, SMALL), SMALL);
                    }
                }
            }
        }
    }
    println!("processor time a file, in us   {SMALL} files   {large} files   ratio");
    for (phase, name) in PHASES.iter().enumerate() {
        let (few, many) = (small.a_file(phase), big.a_file(phase));
        println!("{name:<32} {few:>8.2} {many:>15.2} {:>9.2}", many / few);
    }
}
