//! A named scenario, and how it is run.

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
