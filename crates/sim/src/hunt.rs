//! The hunt for a seeded bug (spec §19.4): runs of the swarm and scenarios, with the bug enabled, until a checker
//! finds it.
//!
//! Only a run that fails with the bug and passes without it counts. The bug is enabled for the whole process, so
//! there is one hunt at a time, in one thread.

use std::fmt;

use quorate_pbft::mutants;

use crate::command::{Options, Play, cluster};
use crate::report::{self, Failure};
use crate::scenario;

/// Seeds of the swarm before the scenarios: what they find, they find quickly.
const SEEDS_FIRST: u64 = 40;
/// How many seeds of the swarm there are between two of the scenarios.
const SEEDS_BETWEEN: u64 = 400;

/// A seeded bug that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The run that failed, with the bug on.
    pub failure: Failure,
    /// Runs before and with it.
    pub runs: u64,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, scenario, cluster, rule, .. } = &self.failure;
        let by = scenario.unwrap_or("swarm");
        write!(f, "{} by {by} n {} seed {seed:#x}, {} runs", rule.name(), cluster.n(), self.runs)
    }
}

/// How a hunt went.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// The run that found it, if one did.
    pub found: Option<Found>,
    /// Processor time, in nanoseconds.
    pub cpu_ns: u64,
}

/// Turns the bug with this number on and runs until it is found or `budget_ns` of processor time are
/// used up.
pub fn hunt(mutant: u32, budget_ns: u64) -> Hunt {
    report::quiet_panics();
    let mut hunt = Hunt { found: None, cpu_ns: 0 };
    let options = Options::default();
    for (runs, (play, seed)) in plays().enumerate() {
        let mut run = |on: Option<u32>| {
            mutants::activate(on);
            quorate_service::mutants::activate(on);
            let done = play.run(seed, &options);
            mutants::activate(None);
            quorate_service::mutants::activate(None);
            hunt.cpu_ns += done.cpu_ns;
            done.failure
        };
        if let Some(failure) = run(Some(mutant))
            && run(None).is_none()
        {
            hunt.found = Some(Found { failure, runs: u64::try_from(runs + 1).unwrap_or(u64::MAX) });
        }
        if hunt.found.is_some() || hunt.cpu_ns >= budget_ns {
            break;
        }
    }
    hunt
}

/// The endless sequence of runs: some seeds of the swarm, every scenario, then seeds and scenarios in turn.
fn plays() -> impl Iterator<Item = (Play, u64)> {
    let sizes = [4, 7].map(|n| cluster(n, None).map(Play::Swarm));
    let [Ok(four), Ok(seven)] = sizes else { unreachable!("clusters of four and of seven exist") };
    let swarm = move |seed: u64| if seed % 3 == 0 { (seven, seed) } else { (four, seed) };
    let scenarios = |seed: u64| {
        scenario::all().flat_map(move |s| s.sizes.iter().map(move |n| (Play::Scenario(s, *n), seed)))
    };
    (1..=SEEDS_FIRST).map(swarm).chain((1..).flat_map(move |round| {
        let first = SEEDS_FIRST + (round - 1) * SEEDS_BETWEEN;
        scenarios(round).chain((first + 1..=first + SEEDS_BETWEEN).map(swarm))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bug that breaks everything is found at once, and none is found where none is on.
    #[test]
    fn a_plain_bug_is_found_and_nothing_else() {
        let found = hunt(mutants::M22, 20_000_000_000).found;
        assert!(found.is_some_and(|found| found.runs > 0));
        assert!(hunt(0, 1_000_000_000).found.is_none());
    }
}
