//! `quorate quorum`: registers without a leader.

mod access;
mod cell;
mod evidence;
mod latency;
mod metrics;
mod mutants;
mod name;
mod profiles;
mod real;
mod repair_time;
mod status;
mod swarm;
mod up;

use clap::{Args, Subcommand};

use crate::fail::CommandResult;

/// Run, simulate and measure registers: values that servers keep without a leader
///
/// A register has a key, and holds one value. Clients read and replace the value. Every server of a cluster stores all
/// registers. The cluster has 3f + 1 servers, and tolerates f Byzantine ones.
///
/// docs/registers.md shows how to run registers. docs/quorum.md describes the protocols.
///
/// Examples:
///
///   quorate quorum up
///   quorate quorum sim --protocol minimal-c --seeds 1000
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Quorum {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Up(up::Up),
    Fault(up::Fault),
    Status(status::Status),
    Init(real::Init),
    Server(real::Server),
    Client(real::Client),
    Access(access::Access),
    Evidence(evidence::Evidence),
    Latency(latency::Latency),
    RepairTime(repair_time::RepairTime),
    Run(cell::RunCell),
    Sim(swarm::Sim),
    Scenarios(swarm::Scenarios),
    Mutants(mutants::Mutants),
    Shapes(cell::Shapes),
}

impl Quorum {
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::Up(up) => up.run(),
            Command::Fault(fault) => fault.run(),
            Command::Status(status) => status.run(),
            Command::Init(init) => init.run(),
            Command::Server(server) => server.run(),
            Command::Client(client) => client.run(),
            Command::Access(access) => access.run(),
            Command::Evidence(evidence) => evidence.run(),
            Command::Latency(latency) => latency.run(),
            Command::RepairTime(repair) => repair.run(),
            Command::Run(run) => run.run(),
            Command::Sim(sim) => sim.run(),
            Command::Scenarios(scenarios) => scenarios.run(),
            Command::Mutants(mutants) => mutants.run(),
            Command::Shapes(shapes) => shapes.run(),
        }
    }
}
