//! What creating, finding, listing and removing a file costs in a directory of a thousand files, and in
//! one of a million: `cargo run --release -p quorate-fs --example large_directory [FILES]`.
//!
//! One replica's executor alone, without agreement: the cost of the state.
#![allow(clippy::unwrap_used, clippy::panic, clippy::result_large_err, reason = "an example may panic")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use support::Bench;

fn main() {
    let most = std::env::args().nth(1).map_or(1_000_000, |files| files.parse().unwrap());
    let mut b = Bench::with(support::open_settings(), 1 << 20);
    println!("files     create  lookup  list    remove  (us a file)");
    for files in [1000, most] {
        let root = b.root.clone();
        let dir = b.mkdir(&root, "d", 0o755).unwrap();
        // Names in no order, so that each goes somewhere else.
        let name = |i: u32| format!("file{:08x}", i.wrapping_mul(0x9e37_79b1));
        let time = |b: &mut Bench, work: &dyn Fn(&mut Bench)| {
            let start = Instant::now();
            work(b);
            start.elapsed().as_secs_f64() * 1e6 / f64::from(files)
        };
        let create = time(&mut b, &|b| (0..files).for_each(|i| drop(b.file(&dir, &name(i)))));
        let lookup = time(&mut b, &|b| (0..files).for_each(|i| drop(b.lookup(&dir, &name(i)).unwrap())));
        let list = time(&mut b, &|b| assert_eq!(b.names(&dir, 64 << 10).len(), files as usize));
        let remove = time(&mut b, &|b| (0..files).for_each(|i| assert!(b.remove(&dir, &name(i)).is_ok())));
        println!("{files:<9} {create:<7.2} {lookup:<7.2} {list:<7.2} {remove:<7.2}");
        b.rmdir(&root, "d").unwrap();
    }
}
