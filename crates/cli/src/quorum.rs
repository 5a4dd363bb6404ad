//! `quorate quorum`: registers without a leader.

mod cell;
mod latency;
mod mutants;
mod real;
mod swarm;
mod up;

use clap::{Args, Subcommand, ValueEnum};
use quorate_quorum::Protocol;
use quorate_quorum::settings::Variant;

use crate::explain::Code;
use crate::fail::{Failure, Outcome};

/// Run, simulate and measure registers that need no leader
///
/// A register tolerates f compromised servers of 3f + 1 and, with minimal-f and bft-bc, compromised
/// clients. docs/quorum.md has the protocols.
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
    Status(real::Status),
    Init(real::Init),
    Server(real::Server),
    Client(real::Client),
    Latency(latency::Latency),
    Run(cell::Run),
    Sim(swarm::Sim),
    Scenarios(swarm::Scenarios),
    Mutants(mutants::Mutants),
    Shapes(cell::Shapes),
}

impl Quorum {
    pub(crate) fn run(&self) -> Outcome {
        match &self.command {
            Command::Up(up) => up.run(),
            Command::Fault(fault) => fault.run(),
            Command::Status(status) => status.run(),
            Command::Init(init) => init.run(),
            Command::Server(server) => server.run(),
            Command::Client(client) => client.run(),
            Command::Latency(latency) => latency.run(),
            Command::Run(run) => run.run(),
            Command::Sim(sim) => sim.run(),
            Command::Scenarios(scenarios) => scenarios.run(),
            Command::Mutants(mutants) => mutants.run(),
            Command::Shapes(shapes) => shapes.run(),
        }
    }
}

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Signed values; readers write back
    Phalanx,
    /// Listeners, no signatures; clients must be correct
    MinimalC,
    /// Listeners, signed stores, relays between servers
    MinimalF,
    /// Certificates; clients may be Byzantine
    BftBc,
}

/// A variant of bft-bc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum VariantName {
    /// Writes in three phases
    Base,
    /// Writes in two phases when undisturbed
    #[default]
    Optimized,
    /// After two writes by correct clients, no write of a stopped client becomes visible
    Strong,
    /// Both
    StrongOptimized,
}

fn protocol(name: Name, variant: Option<VariantName>) -> Result<Protocol, Failure> {
    if name != Name::BftBc && variant.is_some() {
        return Err(Failure::new(Code::Value, "only bft-bc has variants").at("--variant"));
    }
    Ok(match name {
        Name::Phalanx => Protocol::Phalanx,
        Name::MinimalC => Protocol::MinimalC,
        Name::MinimalF => Protocol::MinimalF,
        Name::BftBc => Protocol::BftBc(match variant.unwrap_or_default() {
            VariantName::Base => Variant::Base,
            VariantName::Optimized => Variant::Optimized,
            VariantName::Strong => Variant::Strong,
            VariantName::StrongOptimized => Variant::StrongOptimized,
        }),
    })
}
