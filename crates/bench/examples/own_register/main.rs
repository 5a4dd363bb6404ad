//! A register of your own, with a fault profile of your own, in the tools for registers (`docs/quorum/simulator.md`, "A
//! protocol of your own").
//!
//! ```text
//! cargo run --release -p quorate-bench --example own_register -- swarm
//! ```

#![allow(clippy::wildcard_enum_match_arm, reason = "what a protocol does not use is passed over")]

use anyhow::{Context, Result, bail, ensure};
use quorate_bench::Signatures;
use quorate_bench::bqs::sockets;
use quorate_quorum::Protocol;
use quorate_quorum_sim::cell::{Cell, Row};
use quorate_quorum_sim::guest::Guest;
use quorate_quorum_sim::history::OperationKind;
use quorate_quorum_sim::model::Model;
use quorate_quorum_sim::profile::Profile;
use quorate_quorum_sim::swarm::{self, RegisterRun};

mod profile;
mod protocol;

const GUEST: Guest = Guest { own: protocol::ABD, behaviour: Some(profile::tired), profile: Profile::Crash };
/// The same with servers that lie, which it does not tolerate.
const LIED_TO: Guest = Guest { behaviour: None, profile: Profile::FakeValue, ..GUEST };

/// Runs seeds, and returns the first finding.
fn swarm(guest: Guest, seeds: u64) -> Result<Option<String>> {
    for seed in 0..seeds {
        let run = RegisterRun { protocol: Protocol::Phalanx, f: 1, seed, mutant: None, guest: Some(guest) };
        let verdict = swarm::run(run).map_err(anyhow::Error::msg)?;
        if let Some(finding) = verdict.finding {
            return Ok(Some(format!("seed {seed}: {}: {}", finding.kind(), finding.says())));
        }
    }
    Ok(None)
}

fn cell(operations: usize) -> Cell {
    let mut cell = Cell::new(Protocol::Phalanx, 1, OperationKind::Read, Model::sim2006(30));
    (cell.guest, cell.faulty, cell.load.readers, cell.load.writer) = (Some(GUEST), 1, 2, true);
    (cell.load.operations, cell.load.warm_up, cell.load.think) = (operations, operations / 10, 3000);
    cell
}

fn print(name: &str, row: &Row) {
    println!(
        "{name}: read {:.2} +- {:.2} ms, {:.1} % wrote back, {:.1} messages an operation, atomic: {}",
        row.latency.mean(),
        row.latency.interval(),
        row.write_back,
        row.messages,
        row.verdict.is_ok()
    );
}

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("swarm") => {
            let found = swarm(GUEST, 2000)?;
            ensure!(found.is_none(), "{}", found.unwrap_or_default());
            println!("2000 seeds: atomic, and every operation ended");
        }
        // The history checker at work: it finds what a liar brings about.
        Some("liars") => println!("{}", swarm(LIED_TO, 2000)?.context("no seed was found")?),
        Some("cell") => print("simulated", &cell(1000).run().map_err(anyhow::Error::msg)?),
        Some("sockets") => print("sockets", &sockets::register(&cell(200), Signatures::Emulated, None)?.row),
        _ => bail!("usage: own_register swarm | liars | cell | sockets"),
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// Every tool runs it, and finds what it does not tolerate.
    #[test]
    fn every_tool_runs_it() {
        assert_eq!(swarm(GUEST, 200).unwrap(), None);
        assert!(swarm(LIED_TO, 200).unwrap().unwrap().contains("violation"));
        let simulated = cell(40).run().unwrap();
        let real = sockets::register(&cell(10), Signatures::Emulated, None).unwrap().row;
        for row in [simulated, real] {
            assert_eq!(row.verdict, Ok(()));
            assert!(row.latency.mean() > 1.0 && row.signs < 0.1, "{row:?}");
        }
    }

    /// What the guide promises.
    #[test]
    fn they_are_short() {
        for (source, most) in [(include_str!("protocol.rs"), 150), (include_str!("profile.rs"), 40)] {
            assert!(source.lines().count() < most);
        }
    }
}
