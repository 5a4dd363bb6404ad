//! The named scenarios (§17): schedules written out by hand, for what random ones find too rarely.
//! Each passes with the rule and fails with its bug. n = 4, f = 1; server 3 lies unless said otherwise.

mod bftbc;
mod late;
mod minimal;
mod phalanx;
mod rogue;
mod strong;

use quorate_quorum::Mutant;

use crate::hand::Stage;

/// A scenario. `run` returns what is wrong.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// The paper whose rule it shows.
    pub source: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// The bugs with which it has to fail.
    pub mutants: &'static [Mutant],
    /// Runs it on a stage, with a bug or without.
    pub play: fn(&mut Stage) -> Result<(), String>,
}

impl Scenario {
    /// Runs it, with a bug or without.
    pub fn run(&self, mutant: Option<Mutant>) -> Result<(), String> {
        (self.play)(&mut Stage { mutant, lines: Vec::new() })
    }

    /// Runs it, and returns what was sent, delivered and returned, line by line.
    pub fn trace(&self) -> Result<Vec<String>, String> {
        let mut stage = Stage::default();
        (self.play)(&mut stage)?;
        Ok(stage.lines)
    }
}

/// Every scenario.
pub const ALL: &[Scenario] = &[
    bftbc::SLOW_READERS,
    bftbc::OPTIMISTIC_REPLAY,
    bftbc::UNTAGGED_THREE,
    bftbc::TWO_AHEAD,
    bftbc::WIPED_LISTS,
    bftbc::PRE_SIGNED,
    bftbc::OTHER_OBJECT,
    late::LATE_SIGNATURES,
    strong::CHAIN,
    strong::TIME_BOMB,
    strong::NAMED_BOMB,
    minimal::LOST_STORE,
    minimal::STOPPED_WRITER,
    minimal::EVIDENCE_MAXIMUM,
    minimal::LOST_RELAY,
    minimal::RESTARTED_RELAY,
    phalanx::LATE_WRITE_BACK,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_passes_with_the_rule() {
        for scenario in ALL {
            assert_eq!(scenario.run(None), Ok(()), "{}", scenario.name);
        }
    }

    #[test]
    fn every_scenario_fails_with_its_mutants() {
        for scenario in ALL {
            for mutant in scenario.mutants {
                assert!(scenario.run(Some(*mutant)).is_err(), "{} with {}", scenario.name, mutant.name());
            }
        }
    }
}
