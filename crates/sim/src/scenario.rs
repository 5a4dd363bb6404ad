//! Named scenarios: one for each fault of `docs/faults.md`, at n = 4 and n = 7.
//!
//! A scenario is a fixed course of events: which replicas are Byzantine, and which faults are injected where; all
//! checkers run after every step. It has to show that its fault really happened at a correct replica ([`Expect`]).
//! Then the network heals, every host is up, Byzantine replicas continue to lie, and everything has to finish within
//! a limit of simulated time: every outstanding request, and all correct replicas in one view within one window.
//!
//! | Keys | Where |
//! |---|---|
//! | P1-P17 | [`primary`] |
//! | K1-K17 | [`backup`], [`decision`] |
//! | K18 | [`twins`] |
//! | C1-C7 | [`client`] |
//! | C8 | [`people`] |
//! | X1, X2 | [`busy`] |
//! | S3, L1, L4, L6, L37, L40, L61 | [`shares`] |
//! | N1-N9 | [`network`] |
//! | H1, H2, H8-H10 | [`host`] |
//! | H3-H7, H11 | [`disk`] |
//! | H12 | [`moves`] |
//! | B1-B37 | [`bugs`] |
//! | S1-S3, D1, L1-L31: faults found in this code | [`found`] |
//! | L32, L33, L36, L133 | [`late`] |
//! | L50-L52, L54, L56 | [`stalls`] |
//! | L126-L131 | [`authentic`] |
//! | L150-L152 | [`lives`] |
//! | attacks of spec §16.2 on view changes that have no key (A11, A14, ...) | [`views`] |

use std::collections::BTreeMap;
use std::fmt::Write as _;

use quorate_wire::{Cluster, ReplicaId};
use serde_json::{Value, json};

use crate::app::KvApp;
use crate::panics;
use crate::report::{Failure, Rule};
use crate::setup::Setup;
use crate::summary::Counters;
use crate::trace::Line;
use crate::world::World;
use crate::world::evidence::Evidence;

pub mod authentic;
pub mod backup;
pub mod bugs;
pub mod busy;
pub mod cleansed;
pub mod client;
pub mod decision;
pub mod disk;
pub mod durable;
pub mod found;
mod found_liars;
pub mod healed;
pub mod host;
pub mod late;
pub mod liars;
pub mod lives;
pub mod moves;
pub mod network;
pub mod people;
pub mod primary;
pub mod row;
pub mod shares;
pub mod stage;
pub mod stalls;
pub mod twins;
pub mod views;

pub use row::{BOTH, Expect, Scenario, one_each};
pub use stage::{Ended, Stage};

/// The files of scenarios, by name, in the order of the keys.
pub const GROUPS: &[(&str, &[Scenario])] = &[
    ("primary", primary::SCENARIOS),
    ("backup", backup::SCENARIOS),
    ("twins", twins::SCENARIOS),
    ("decision", decision::SCENARIOS),
    ("views", views::SCENARIOS),
    ("client", client::SCENARIOS),
    ("people", people::SCENARIOS),
    ("moves", moves::SCENARIOS),
    ("shares", shares::SCENARIOS),
    ("network", network::SCENARIOS),
    ("host", host::SCENARIOS),
    ("busy", busy::SCENARIOS),
    ("disk", disk::SCENARIOS),
    ("durable", durable::SCENARIOS),
    ("healed", healed::SCENARIOS),
    ("bugs", bugs::SCENARIOS),
    ("found", found::SCENARIOS),
    ("late", late::SCENARIOS),
    ("authentic", authentic::SCENARIOS),
    ("stalls", stalls::SCENARIOS),
    ("lives", lives::SCENARIOS),
];

/// Returns every scenario, in the order of the keys.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    GROUPS.iter().flat_map(|(_, scenarios)| *scenarios)
}

/// Returns the scenario of this name.
pub fn find(name: &str) -> Option<&'static Scenario> {
    all().find(|scenario| scenario.name == name)
}

/// How a scenario ended.
#[derive(Clone, Debug)]
pub struct ScenarioOutcome {
    /// Its name.
    pub scenario: &'static str,
    /// Replicas.
    pub n: usize,
    /// Everything random followed from it.
    pub seed: u64,
    /// The expected event, and how often it happened.
    pub provoked: BTreeMap<&'static str, u64>,
    /// The highest view of a correct replica.
    pub view: u64,
    /// At how many numbers two correct replicas have accepted different batches in one view.
    pub split: u64,
    /// Everything else that happened.
    pub counters: Counters,
    /// Simulated time, in nanoseconds.
    pub simulated_ns: u64,
    /// Steps of the world.
    pub steps: u64,
    /// Over every input and action of correct replicas.
    pub hash: [u8; 32],
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
    /// The last lines of its trace, if they were asked for.
    pub lines: Vec<Line>,
    /// The state of each host at the end, if lines were asked for.
    pub states: Vec<String>,
}

impl ScenarioOutcome {
    /// Returns whether all went as it must.
    pub fn is_good(&self) -> bool {
        self.failure.is_none()
    }

    /// Returns what a script needs to know.
    pub fn to_json(&self) -> Value {
        let mut hash = String::new();
        for byte in self.hash {
            _ = write!(hash, "{byte:02x}");
        }
        let stuck = self.failure.as_ref().is_some_and(Failure::is_stuck);
        json!({
            "scenario": self.scenario,
            "n": self.n,
            "seed": self.seed,
            "violations": u8::from(!self.is_good() && !stuck),
            "stuck": u8::from(stuck),
            "failure": self.failure.as_ref().map(ToString::to_string),
            "provoked": self.provoked,
            "view_changes": self.counters.view_changes,
            "simulated_s": self.simulated_ns / 1_000_000_000,
            "simulated_ms": self.simulated_ns / 1_000_000,
            "steps": self.steps,
            "trace_hash": hash,
        })
    }
}

/// Runs a scenario with `n` replicas.
pub fn run(scenario: &Scenario, n: usize, seed: u64) -> ScenarioOutcome {
    run_watched(scenario, n, seed, None, None)
}

/// Runs a scenario with `n` replicas and keeps the last `lines` lines of its trace, or all for 0. After
/// `halt` steps the world is frozen: then the states are of that moment, and the verdict means nothing.
pub fn run_watched(
    scenario: &Scenario,
    n: usize,
    seed: u64,
    lines: Option<usize>,
    halt: Option<u64>,
) -> ScenarioOutcome {
    let f = n.saturating_sub(1) / 3;
    let size = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let Ok(cluster) = Cluster::new(size(n), size(f)) else {
        unreachable!("a scenario names sizes that a cluster may have")
    };
    let setup = scenario.set_up(stage::setup(seed, cluster));
    let faulty = faulty(&setup);
    let mut world = World::new(KvApp { keys: 4, ..KvApp::default() }, setup);
    if let Some(max) = lines {
        world.watch(max);
    }
    world.halt_at = halt.unwrap_or(u64::MAX);
    let mut evidence = Evidence::default();
    for expect in scenario.expects {
        if let Expect::Milestone(_, matches) = expect {
            evidence.watch(*matches);
        }
    }
    world.evidence = Some(evidence);
    let mut stage = Stage::new(world);
    let ended = panics::catch(|| {
        scenario.tell(&mut stage)?;
        stage.heal_and_finish()?;
        let (view, most) = (stage.view(), scenario.most_views(cluster));
        stage.require(view <= most, format!("it has come to view {view}, and view {most} should do"))
    });
    let (mut world, noted) = stage.leave();
    let provoked = provoked(scenario, &world, &noted);
    let missed = || {
        let name = provoked.iter().find(|(_, count)| **count == 0).map(|(name, _)| *name)?;
        Some(Rule::Missed(format!("\"{name}\" has never happened at a correct replica")))
    };
    let rule = match ended {
        Ok(Ok(())) => missed(),
        Ok(Err(rule)) => Some(rule),
        Err(panic) => Some(Rule::Panic(panic)),
    };
    let step = world.step_count();
    let failure = rule.map(|rule| Failure {
        seed,
        scenario: Some(scenario.name),
        cluster,
        step,
        rule,
        faulty,
        cards: world.cards(),
    });
    ScenarioOutcome {
        scenario: scenario.name,
        n,
        seed,
        view: stage::highest_view(&world),
        split: world.evidence.as_ref().map_or(0, Evidence::split),
        counters: world.counters(),
        simulated_ns: world.time(),
        steps: step,
        hash: world.finish_hash(),
        failure,
        states: if lines.is_some() { world.states() } else { Vec::new() },
        lines: world.take_lines(),
        provoked,
    }
}

/// Returns who lies, and how.
fn faulty(setup: &Setup) -> Vec<(ReplicaId, String)> {
    let liars = setup.liars.iter().map(|(id, maker)| (*id, format!("{maker:?}")));
    let twins = setup.twins.iter().map(|id| (*id, "runs twice".to_owned()));
    liars.chain(twins).collect()
}

/// Counts what was expected.
fn provoked(
    scenario: &Scenario,
    world: &World<KvApp>,
    noted: &BTreeMap<&'static str, u64>,
) -> BTreeMap<&'static str, u64> {
    let counters = world.counters();
    let Some(evidence) = &world.evidence else { unreachable!("every scenario collects evidence") };
    let mut watched = evidence.watched();
    let count = |expect: &Expect| match expect {
        Expect::Reject(reason) => counters.rejects.get(reason.name()).copied().unwrap_or(0),
        Expect::ClientReject(reason) => counters.client_rejects.get(reason.name()).copied().unwrap_or(0),
        Expect::Door(name) => counters.turned_away.get(name).copied().unwrap_or(0),
        Expect::Milestone(..) => watched.next().unwrap_or(0),
        Expect::Heard(kind) => evidence.heard_of(*kind),
        Expect::Split => evidence.split(),
        Expect::Astray => evidence.astray(),
        Expect::Skipped => evidence.skipped(),
        Expect::Named => evidence.named(),
        Expect::Count(_, count) => count(&counters),
        Expect::Noted(name) => noted.get(name).copied().unwrap_or(0),
    };
    scenario.expects.iter().map(Expect::name).zip(scenario.expects.iter().map(count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each name begins with its first key, is used once, and can be found.
    #[test]
    fn names_begin_with_keys() {
        let mut names = Vec::new();
        for scenario in all() {
            let Scenario { name, keys, title, sizes, expects, .. } = scenario;
            let key = keys[0].to_lowercase();
            assert_eq!(name.split('_').next(), Some(key.as_str()), "{name}");
            assert!(!names.contains(name), "{name} is used twice");
            assert!(!title.is_empty() && !title.ends_with('.') && !sizes.is_empty(), "{name}");
            assert!(!expects.is_empty(), "{name} expects nothing");
            assert!(find(name).is_some());
            names.push(*name);
        }
        assert!(find("p0_nothing").is_none());
    }
}
