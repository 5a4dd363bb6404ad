//! `quorate sim`: the simulator.

mod list;
#[cfg(feature = "mutants")]
mod mutants;
mod replay;
mod run;
mod text;

use clap::{Args, Subcommand};
use quorate_sim::command::Refused;
use quorate_sim::scenario;
use quorate_wire::Cluster;

use crate::explain::Code;
use crate::fail::{Failure, Outcome, nearest};
use crate::values;

/// Simulate clusters with faults, from seeds
///
/// Time, network, disks, faults and load of a run follow from its seed, so the same seed and code
/// give the same run, debug or release.
///
///   quorate sim run --seeds 100
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Sim {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    List(list::List),
    Run(run::Run),
    Replay(replay::Replay),
    #[cfg(feature = "mutants")]
    Mutants(mutants::Mutants),
}

impl Sim {
    pub(crate) fn run(&self) -> Outcome {
        match &self.command {
            Command::List(list) => list.run(),
            Command::Run(run) => run.run(),
            Command::Replay(replay) => replay.run(),
            #[cfg(feature = "mutants")]
            Command::Mutants(mutants) => mutants.run(),
        }
    }
}

/// Checks a size and how many may be faulty.
fn size(n: Option<u16>, f: Option<u16>) -> Result<Option<Cluster>, Failure> {
    match (n, f) {
        (None, None) => Ok(None),
        (n, f) => values::cluster(n.unwrap_or(4), f).map(Some),
    }
}

/// Says why nothing was run.
fn refused(error: &Refused) -> Failure {
    match error {
        Refused::NoScenario(name) => {
            let near = nearest(name, scenario::all().map(|scenario| scenario.name));
            let says = match near {
                Some(near) => format!("no scenario `{name}`. Nearest: {near}"),
                None => format!("no scenario `{name}`"),
            };
            Failure::new(Code::Scenario, says).at("--scenario").next("quorate sim list")
        }
        Refused::NoCluster(n) => Failure::new(Code::Rule, error.to_string()).at(format!("--n {n}")),
        Refused::NotAtSize { n, sizes, .. } => {
            let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
            Failure::new(Code::Rule, error.to_string())
                .at(format!("--n {n}"))
                .next(format!("--n {}", sizes.join(" or --n ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_that_does_not_exist_is_answered_with_the_nearest() {
        let Some(any) = scenario::all().next() else { unreachable!("there are scenarios") };
        let typed = any.name[..any.name.len() - 1].to_owned();
        let says = refused(&Refused::NoScenario(typed)).to_string();
        assert!(says.starts_with("error Q005") && says.contains(&format!("Nearest: {}", any.name)), "{says}");
    }

    #[test]
    fn sizes_are_checked_with_key_value_and_rule() {
        assert!(matches!(size(None, None), Ok(None)));
        assert!(size(Some(3), None).is_err_and(|failure| failure.to_string().contains("n >= 3f + 1 = 4")));
        assert!(size(None, Some(2)).is_err_and(|failure| failure.to_string().contains("n >= 3f + 1 = 7")));
        let refused = refused(&Refused::NotAtSize { name: "p1_x", n: 5, sizes: &[4, 7] }).to_string();
        assert!(refused.contains("--n 5") && refused.contains("--n 4 or --n 7"), "{refused}");
    }
}
