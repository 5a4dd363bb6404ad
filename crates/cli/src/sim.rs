//! `quorate sim`: the simulator.

mod asked;
mod files;
mod list;
#[cfg(feature = "mutants")]
mod mutants;
mod page;
mod replay;
mod run;
mod text;

use clap::{Args, Subcommand};

use crate::fail::CommandResult;

/// Simulate clusters with injected faults, from seeds
///
/// Everything random in a run is drawn from its seed: the clocks, the delays of the network and the disks, the faults,
/// and the requests of clients. The same seed, options and code always give the same run, in debug and release builds.
///
/// Example:
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
    Run(run::RunSim),
    Replay(replay::Replay),
    #[cfg(feature = "mutants")]
    Mutants(mutants::Mutants),
}

impl Sim {
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::List(list) => list.run(),
            Command::Run(run) => run.run(),
            Command::Replay(replay) => replay.run(),
            #[cfg(feature = "mutants")]
            Command::Mutants(mutants) => mutants.run(),
        }
    }
}
