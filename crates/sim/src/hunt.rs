//! The hunt for a seeded bug (spec §19.4): runs of the swarm and scenarios, with the bug enabled, until a checker
//! finds it.
//!
//! Only a run that fails with the bug and passes without it counts. The bug is enabled for the whole process, so
//! there is one hunt at a time, in one thread.

use std::fmt;

use quorate_pbft::mutants;

use crate::command::{Play, RunOptions, cluster};
use crate::report::{Failure, Rule};
use crate::scenario::{self, Scenario};

/// Seeds of the swarm before the scenarios: what they find, they find quickly.
const SEEDS_FIRST: u64 = 10;
/// How many seeds of the swarm there are between two rounds of the scenarios.
const SEEDS_BETWEEN: u64 = 400;
/// The number of runs that have to show a bug that breaks no rule of the checkers: a run that is stuck, or a scenario
/// whose fault does not happen, may be due to the other schedule that a bug gives.
const WEAK_MIN: u64 = 3;
/// The number of steps of the world after which a seed of the swarm ends: several times what one takes that goes well.
const STEPS_MAX: u64 = 400_000;
/// Of this number of seeds of the swarm, one may be stuck for another reason.
const STUCK_OF: u64 = 30;

/// A seeded bug that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The run that failed, with the bug on.
    pub failure: Failure,
    /// Seeds of the swarm before it, and it, if it is one of them.
    pub seeds: u64,
    /// Runs of scenarios before it, and it, if it is one of them.
    pub scenarios: u64,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, scenario, cluster, rule, .. } = &self.failure;
        let (by, n) = (scenario.unwrap_or("swarm"), cluster.n());
        write!(f, "{:<20} {by} n {n} seed {seed}, {} seeds", rule.name(), self.seeds)?;
        if self.scenarios > 0 { write!(f, " and {} scenarios", self.scenarios) } else { Ok(()) }
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

/// Turns the bug with this number on and runs, from this seed on, until it is found or `budget_ns` of processor time
/// are used up.
///
/// A run counts if it fails with the bug and passes without it. If no checker saw a rule broken in it, more runs have to
/// fail: the same scenario with other seeds, or several seeds of the swarm. Before such a run counts, the hunt searches
/// all scenarios for a run that a checker stops, unless the scenario is about this bug.
pub fn hunt(mutant: u32, from: u64, budget_ns: u64) -> Hunt {
    let (mut cpu_ns, mut seeds, mut scenarios, mut stuck) = (0, 0, 0, 0);
    let mut found = None;
    let subjects = subjects(mutant);
    for (play, seed) in plays(&subjects, from) {
        match play {
            Play::Swarm(_) => seeds += 1,
            Play::Scenario(..) => scenarios += 1,
        }
        let mut shows = |seed: u64| shows(mutant, &play, seed, &mut cpu_ns);
        if let Some(failure) = shows(seed) {
            let weak = matches!(failure.rule, Rule::Stuck(_) | Rule::Missed(_));
            let is_meant = matches!(play, Play::Scenario(scenario, _) if is_about(scenario, &subjects));
            let enough = match play {
                Play::Swarm(_) if weak => {
                    stuck += 1;
                    stuck >= WEAK_MIN && stuck * STUCK_OF >= seeds
                }
                Play::Scenario(..) if weak => (1..WEAK_MIN).all(|more| shows(seed + more).is_some()),
                Play::Swarm(_) | Play::Scenario(..) => true,
            };
            if enough && (!weak || is_meant) {
                return Hunt { found: Some(Found { failure, seeds, scenarios }), cpu_ns };
            }
            if enough && found.is_none() {
                found = Some(Found { failure, seeds, scenarios });
            }
        }
        let all_played = scenarios > 0 && matches!(play, Play::Swarm(_));
        if cpu_ns >= budget_ns || found.is_some() && all_played {
            break;
        }
    }
    Hunt { found, cpu_ns }
}

/// Runs with the bug, and if that fails, without it. Returns the failure, if it is the bug's.
fn shows(mutant: u32, play: &Play, seed: u64, cpu_ns: &mut u64) -> Option<Failure> {
    let mut run = |on: Option<u32>| {
        mutants::activate(on);
        quorate_service::mutants::activate(on);
        let done = play.run(seed, &RunOptions { steps: STEPS_MAX, ..RunOptions::default() });
        mutants::activate(None);
        quorate_service::mutants::activate(None);
        *cpu_ns += done.cpu_ns;
        done.failure
    };
    run(Some(mutant)).filter(|_| run(None).is_none())
}

/// Returns the rules and faults that a bug's description names, such as `DP-2` and `L30`.
fn subjects(mutant: u32) -> Vec<&'static str> {
    let described = mutants::LIST.iter().find(|(id, ..)| *id == mutant);
    described.map_or_else(Vec::new, |(_, _, what)| names_in(what).collect())
}

/// Returns the words that begin with a capital letter and end with a digit.
fn names_in(text: &'static str) -> impl Iterator<Item = &'static str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.filter(|word| {
        word.starts_with(|c: char| c.is_ascii_uppercase()) && word.ends_with(|c: char| c.is_ascii_digit())
    })
}

/// Says whether a scenario names one of these rules and faults.
fn is_about(scenario: &Scenario, subjects: &[&str]) -> bool {
    let mut names = scenario.keys.iter().copied().chain(names_in(scenario.title));
    names.any(|name| subjects.contains(&name))
}

/// The endless sequence of runs from a seed on: some seeds of the swarm, every scenario, then seeds and scenarios in
/// turn. Of the scenarios, those about these rules and faults come first.
fn plays(subjects: &[&str], from: u64) -> impl Iterator<Item = (Play, u64)> {
    let sizes = [4, 7].map(|n| cluster(n, None).map(Play::Swarm));
    let [Ok(four), Ok(seven)] = sizes else { unreachable!("clusters of four and of seven exist") };
    let swarm = move |seed: u64| if seed.is_multiple_of(3) { (seven, seed) } else { (four, seed) };
    // The small clusters first: their runs take a quarter of the time.
    let scenarios = move |seed: u64| {
        let mut all: Vec<(usize, &'static Scenario)> =
            scenario::all().flat_map(|s| s.sizes.iter().map(move |n| (*n, s))).collect();
        all.sort_by_key(|(n, s)| (!is_about(s, subjects), *n));
        all.into_iter().map(move |(n, s)| (Play::Scenario(s, n), seed))
    };
    (from..from + SEEDS_FIRST).map(swarm).chain((0..).flat_map(move |round| {
        let first = from + SEEDS_FIRST + round * SEEDS_BETWEEN;
        scenarios(from + round).chain((first..first + SEEDS_BETWEEN).map(swarm))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written about a bug is played before everything else that is written.
    #[test]
    fn scenarios_about_a_bug_come_first() {
        let subjects = subjects(mutants::M182);
        assert_eq!(subjects, ["L128", "AU-2"]);
        let first = plays(&subjects, 1).find_map(|(play, _)| match play {
            Play::Scenario(scenario, n) => Some((scenario, n)),
            Play::Swarm(_) => None,
        });
        assert!(first.is_some_and(|(scenario, n)| is_about(scenario, &subjects) && n == 4));
    }

    /// A bug that breaks everything is found at once, and none is found where none is on.
    #[test]
    fn a_plain_bug_is_found_and_nothing_else() {
        let found = hunt(mutants::M22, 1, 20_000_000_000).found;
        assert!(found.is_some_and(|found| found.seeds > 0));
        assert!(hunt(0, 1, 1_000_000_000).found.is_none());
    }
}
