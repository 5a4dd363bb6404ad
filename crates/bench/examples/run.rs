//! Runs experiments without the command `quorate`.
//!
//! ```text
//! cargo run --release -p quorate-bench --example run -- core-step quick
//! ```

use quorate_bench::{CHILD, EXPERIMENTS, Settings};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(rest) = arguments.strip_prefix(&CHILD.map(str::to_owned)) {
        return quorate_bench::child(rest);
    }
    let settings = Settings { quick: arguments.iter().any(|word| word == "quick") };
    for experiment in EXPERIMENTS.iter().filter(|e| arguments.iter().any(|word| word == e.name)) {
        print!("{}", (experiment.run)(settings)?);
    }
    Ok(())
}
