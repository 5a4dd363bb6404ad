//! `quorate quorum mutants`.

use std::process::ExitCode;

use clap::Args;
use quorate_quorum::Mutant;
use quorate_quorum_sim::hunt;

use crate::code::Code;
use crate::fail::{CommandResult, Failure, nearest};
use crate::{out, values};

/// Check that the scenarios and random runs find planted bugs
///
/// Plants one bug at a time. Needs a build with the feature `mutants`. Exit status 1 if a bug was not found.
///
/// Example:
///
///   quorate quorum mutants --only bc-no-lock
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Mutants {
    /// Plant only the bug with this name
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Number of random runs for each bug and protocol
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = values::count)]
    seeds: u64,
}

impl Mutants {
    pub(super) fn run(&self) -> CommandResult {
        let chosen = |mutant: &&Mutant| self.only.as_deref().is_none_or(|only| only == mutant.name());
        let chosen: Vec<Mutant> = Mutant::ALL.iter().filter(chosen).copied().collect();
        if let (Some(only), true) = (&self.only, chosen.is_empty()) {
            let names = Mutant::ALL.iter().map(|mutant| mutant.name());
            let near = nearest(only, names).map_or(String::new(), |near| format!(". Nearest: {near}"));
            return Err(Failure::new(Code::Value, format!("no seeded bug `{only}`{near}")).at("--only"));
        }
        let mut survived = 0_usize;
        for mutant in chosen {
            let scenario = hunt::by_scenario(mutant);
            let swarm = hunt::by_swarm(mutant, self.seeds).map_err(|says| Failure::new(Code::Value, says))?;
            let found = scenario.is_some() || swarm.is_some();
            survived += usize::from(!found);
            let by_scenario = scenario.map_or("-".to_string(), |found| found.by);
            let by_swarm = swarm.map_or_else(
                || format!("- in {} seeds", self.seeds),
                |found| format!("{} in {} seeds: {}", found.by, found.seeds, found.finding),
            );
            let mark = if found { "found   " } else { "SURVIVED" };
            out::line(format!("{mark} {:<34} {by_scenario:<28} {by_swarm}", mutant.name()));
        }
        if survived == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::new(Code::Violation, format!("{survived} seeded bugs survived")))
    }
}
