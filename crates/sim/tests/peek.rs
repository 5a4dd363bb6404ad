//! Scratch.
#![allow(missing_docs, clippy::pedantic, clippy::unwrap_used)]
use quorate_sim::scenario;
#[test]
fn peek() {
    let name = std::env::var("S").unwrap_or_default();
    let n: usize = std::env::var("N").ok().and_then(|s| s.parse().ok()).unwrap_or(4);
    let seed: u64 = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let lines: usize = std::env::var("LINES").ok().and_then(|s| s.parse().ok()).unwrap_or(200);
    let s = scenario::find(&name).unwrap();
    let o = scenario::run_watched(s, n, seed, Some(lines));
    for l in &o.lines {
        println!("{:>9} us {l}", l.at / 1000);
    }
    println!("{:#}", o.counters.to_json());
    println!("{:?}\n{:?}", o.provoked, o.failure.map(|w| w.to_string()));
}
