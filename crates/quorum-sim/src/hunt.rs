//! The hunt for seeded bugs (§17): which seed of the swarm, or which scenario, finds each.

use quorate_quorum::settings::Variant;
use quorate_quorum::{Mutant, Protocol};

use crate::scenario;
use crate::swarm::{self, RegisterRun};

/// How a bug was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundMutant {
    /// `swarm` with its protocol, or the name of a scenario.
    pub by: String,
    /// Seeds that were needed. 0: a scenario.
    pub seeds: u64,
    /// What was found.
    pub finding: String,
}

/// Returns the protocols that have the line that a bug is in.
pub fn protocols(mutant: Mutant) -> Vec<Protocol> {
    let name = mutant.name();
    let bc = |variants: &[Variant]| variants.iter().map(|variant| Protocol::BftBc(*variant)).collect();
    match mutant {
        Mutant::RightsOfSender => vec![Protocol::Phalanx, Protocol::MinimalC, Protocol::MinimalF],
        Mutant::AccessOnRelays => vec![Protocol::Phalanx, Protocol::MinimalF],
        Mutant::NewerOnly => vec![Protocol::Phalanx, Protocol::BftBc(Variant::Base)],
        Mutant::Untagged | Mutant::NoLock => bc(&[Variant::Optimized]),
        Mutant::OptUnpreceded | Mutant::NamedPredecessor => bc(&[Variant::StrongOptimized]),
        Mutant::PreparedPredecessor | Mutant::ValueWithheld => bc(&[Variant::Strong]),
        Mutant::StaleList | Mutant::UnsignedList | Mutant::ListKept => {
            vec![Protocol::Phalanx, Protocol::MinimalF]
        }
        Mutant::RefusedByFew | Mutant::RefusedAskedOnce => {
            vec![Protocol::Phalanx, Protocol::MinimalC, Protocol::BftBc(Variant::Optimized)]
        }
        Mutant::SameCounter => bc(&[Variant::Base, Variant::StrongOptimized]),
        Mutant::NoH2 | Mutant::RightsIgnored => bc(&[Variant::Base, Variant::Optimized]),
        Mutant::DecideWeak => vec![Protocol::MinimalC],
        _ if name.starts_with("minimal-c") => vec![Protocol::MinimalC],
        _ if name.starts_with("minimal-f") => vec![Protocol::MinimalF],
        _ if name.starts_with("minimal") => vec![Protocol::MinimalC, Protocol::MinimalF],
        _ if name.starts_with("phalanx") => vec![Protocol::Phalanx],
        _ => bc(&[Variant::Base]),
    }
}

/// Looks for a bug with `seeds` seeds of the swarm for each protocol that has it.
pub fn by_swarm(mutant: Mutant, seeds: u64) -> Result<Option<FoundMutant>, String> {
    let protocols = protocols(mutant);
    for seed in 0..seeds {
        for protocol in &protocols {
            let verdict = swarm::run(RegisterRun {
                protocol: *protocol,
                f: 1,
                seed,
                mutant: Some(mutant),
                guest: None,
            })?;
            if let Some(finding) = verdict.finding {
                return Ok(Some(FoundMutant {
                    by: format!("swarm {}", protocol.name()),
                    seeds: seed + 1,
                    finding: format!("{}: {}", finding.kind(), finding.says()),
                }));
            }
        }
    }
    Ok(None)
}

/// Looks for a bug with the scenarios that name it.
pub fn by_scenario(mutant: Mutant) -> Option<FoundMutant> {
    let scenarios = scenario::ALL.iter().filter(|scenario| scenario.mutants.contains(&mutant));
    for scenario in scenarios {
        if let Err(finding) = scenario.run(Some(mutant)) {
            return Some(FoundMutant { by: scenario.name.to_string(), seeds: 0, finding });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules are drawn, and a client without the right to write tries its best; and no correct server can be accused (§15).
    #[test]
    fn the_swarm_finds_what_breaks_rights_and_evidence() {
        let rights = [Mutant::RightsOfSender, Mutant::RightsIgnored, Mutant::SameCounter];
        let lists = [Mutant::StaleList, Mutant::UnsignedList, Mutant::ListKept];
        let refusals = [Mutant::RefusedByFew, Mutant::RefusedAskedOnce];
        for mutant in rights.into_iter().chain(lists).chain(refusals) {
            let found = by_swarm(mutant, 400).unwrap();
            assert!(found.is_some(), "{}", mutant.name());
        }
    }
}
