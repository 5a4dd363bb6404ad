//! `quorate quorum sim` and `quorate quorum scenarios`.

use std::process::ExitCode;

use clap::Args;
use quorate_bench::bqs::smr;
use quorate_quorum_sim::scenario;
use quorate_quorum_sim::swarm::{self, RegisterRun};
use quorate_quorum_sim::world::Counts;
use serde_json::json;

use super::cell::Subject;
use super::name::{VariantName, protocol};
use crate::code::Code;
use crate::fail::{CommandResult, Failure, nearest};
use crate::{out, values};

/// Run a register under random faults, from seeds
///
/// The seed of a run determines the clients, the network, the faults, and the restarts of correct servers. In every
/// run, f servers are faulty, and the protocol must tolerate their faults. A run fails if:
///
///   - the operations were not atomic: operations that run one after the other cannot have these results
///   - an operation never ends
///   - too many writes of a stopped client become visible (bft-bc)
///   - an assertion of the simulator fails
///
/// Exit status 1 if a run failed.
///
/// Example:
///
///   quorate quorum sim --protocol bft-bc --variant base --seeds 1000
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Sim {
    /// Protocol of the registers. With smr, each run has a faulty first leader, and no other faults than its profile and
    /// servers that answer readers with made-up values
    #[arg(long, value_enum)]
    protocol: Subject,
    /// Variant of bft-bc (default optimized)
    #[arg(long, value_enum)]
    variant: Option<VariantName>,
    /// Number of faulty servers: f of 3f + 1
    #[arg(long, value_name = "F", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=21))]
    f: u16,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// The number of seeds
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = values::count)]
    seeds: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Sim {
    pub(super) fn run(&self) -> CommandResult {
        let Some(name) = self.protocol.register() else { return self.replication() };
        let protocol = protocol(name, self.variant)?;
        let mut sum = Counts::default();
        let mut failed = Vec::new();
        for seed in self.seed..self.seed.saturating_add(self.seeds) {
            let run = RegisterRun { protocol, f: self.f, seed, mutant: None, guest: None };
            let verdict = swarm::run(run).map_err(|says| Failure::new(Code::Value, says))?;
            swarm::add(&mut sum, &verdict.counts);
            if let Some(finding) = verdict.finding {
                if !self.json {
                    out::line(format!(
                        "seed {seed}: {}: {} ({})",
                        finding.kind(),
                        finding.says(),
                        verdict.drawn
                    ));
                }
                failed.push(json!({ "seed": seed, "kind": finding.kind(), "says": finding.says() }));
            }
        }
        let Counts { done, messages, lost, replays, restarts, wipes, stops, .. } = sum;
        if self.json {
            out::line(json!({
                "protocol": protocol.name(), "f": self.f, "first": self.seed, "seeds": self.seeds,
                "failed": failed, "operations": done, "messages": messages, "lost": lost,
                "replays": replays, "restarts": restarts, "wipes": wipes, "stops": stops,
            }));
        } else {
            out::line(format!(
                "{}, f = {}: {} of {} seeds passed; {done} operations, {messages} messages, {lost} lost, \
                 {replays} replays dropped, {restarts} restarts, {wipes} disks lost, {stops} clients stopped",
                protocol.name(),
                self.f,
                self.seeds - u64::try_from(failed.len()).unwrap_or(0),
                self.seeds
            ));
        }
        passed(failed.len())
    }

    fn replication(&self) -> CommandResult {
        let (mut operations, mut failed) = (0, Vec::new());
        for seed in self.seed..self.seed.saturating_add(self.seeds) {
            let row = smr::swarm::run(self.f, seed).map_err(|error| format!("{error:#}"));
            match row.and_then(|row| row.verdict.map(|()| row.operations)) {
                Ok(done) => operations += done,
                Err(says) => {
                    if !self.json {
                        out::line(format!("seed {seed}: {says} ({:?})", smr::swarm::draw(self.f, seed)));
                    }
                    failed.push(json!({ "seed": seed, "says": says }));
                }
            }
        }
        if self.json {
            out::line(json!({
                "protocol": "smr", "f": self.f, "first": self.seed, "seeds": self.seeds, "failed": failed,
                "operations": operations,
            }));
        } else {
            let good = self.seeds - u64::try_from(failed.len()).unwrap_or(0);
            let Self { f, seeds, .. } = self;
            out::line(format!("smr, f = {f}: {good} of {seeds} seeds passed; {operations} operations"));
        }
        passed(failed.len())
    }
}

fn passed(failed: usize) -> CommandResult {
    if failed == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(Code::Violation, format!("{failed} seeds failed")))
}

/// Run the named scenarios
///
/// A scenario is a fixed schedule of messages and faults. It tests a case that random runs reach too rarely.
///
/// Example:
///
///   quorate quorum scenarios
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Scenarios {
    /// Run only the scenario with this name
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

impl Scenarios {
    pub(super) fn run(&self) -> CommandResult {
        let names = || scenario::ALL.iter().map(|scenario| scenario.name);
        if let Some(only) = &self.only
            && names().all(|name| name != only)
        {
            let near = nearest(only, names()).map_or(String::new(), |near| format!(". Nearest: {near}"));
            return Err(Failure::new(Code::Value, format!("no scenario `{only}`{near}")).at("--only"));
        }
        let mut failed = 0_usize;
        let chosen =
            scenario::ALL.iter().filter(|one| self.only.as_deref().is_none_or(|only| only == one.name));
        for scenario in chosen {
            let result = scenario.run(None);
            failed += usize::from(result.is_err());
            let says = result.err().unwrap_or_else(|| scenario.about.to_string());
            let mark = if says == scenario.about { "passed" } else { "FAILED" };
            out::line(format!("{mark} {:<28} {says}", scenario.name));
        }
        if failed == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::new(Code::Violation, format!("{failed} scenarios failed")))
    }
}
