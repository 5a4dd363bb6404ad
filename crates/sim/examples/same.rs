//! Runs seeds of the swarm, or every scenario, and prints the hash of their traces: `same FROM SEEDS`, or `same scenarios`.
//!
//! `cargo xtask same` compares what it prints in debug and in release. It is a program of its own, because the whole of
//! `quorate` takes minutes to build.

use std::process::ExitCode;

use quorate_sim::command::{RunOptions, Seeds, run};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut options = RunOptions { jobs: 0, ..RunOptions::default() };
    match words[..] {
        ["scenarios"] => options.scenario = Some("all".to_owned()),
        [from, seeds] => match (from.parse(), seeds.parse()) {
            (Ok(from), Ok(seeds)) => options.seeds = Seeds::Range(from, seeds),
            _ => return usage(),
        },
        _ => return usage(),
    }
    match run(&options, |_, _| ()) {
        Ok(summary) => {
            println!("{}", summary.to_json());
            if summary.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(refused) => {
            eprintln!("{refused}");
            ExitCode::from(2)
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: same FROM SEEDS, or same scenarios");
    ExitCode::from(2)
}
