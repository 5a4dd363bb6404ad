//! The report of a failure: the rule, the seed, and the command that reproduces it (style §12).

use std::fmt;

use quorate_wire::{Cluster, ReplicaId};

use crate::checker::Violation;

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A watcher saw a rule broken.
    Broken(Violation),
    /// A correct replica, or the simulator, panicked.
    Panic(String),
    /// Not everything finished after the faults.
    Stuck(String),
    /// A scenario's fault did not happen, or was not noticed.
    Missed(String),
}

impl Rule {
    /// Returns the rule's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Broken(violation) => violation.rule,
            Self::Panic(_) => "panic",
            Self::Stuck(_) => "stuck",
            Self::Missed(_) => "scenario",
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Broken(violation) => &violation.text,
            Self::Panic(text) | Self::Stuck(text) | Self::Missed(text) => text,
        }
    }
}

/// A run that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// The scenario, if it was one.
    pub scenario: Option<&'static str>,
    /// The cluster.
    pub cluster: Cluster,
    /// The step of the world at which it was noticed.
    pub step: u64,
    /// The broken rule.
    pub rule: Rule,
    /// The liars, and how they lied.
    pub faulty: Vec<(ReplicaId, String)>,
    /// How each host stood in the end.
    pub cards: Vec<String>,
}

impl Failure {
    /// Returns whether the run only did not finish.
    pub fn is_stuck(&self) -> bool {
        matches!(self.rule, Rule::Stuck(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, step, cluster, .. } = self;
        let faulty: Vec<String> = self.faulty.iter().map(|(id, how)| format!("{id} ({how})")).collect();
        let faulty = if faulty.is_empty() { "nobody".to_owned() } else { faulty.join(", ") };
        let what = match self.scenario {
            Some(name) => format!("--scenario {name} --seed {seed:#x}"),
            None => format!("--seed {seed:#x}"),
        };
        let size = if cluster.n() == 4 { String::new() } else { format!(" --n {}", cluster.n()) };
        writeln!(f, "FAILED {}: {}", self.rule.name(), self.rule.text())?;
        writeln!(f, "  seed {seed:#x}  step {step}  n={} f={}  faulty: {faulty}", cluster.n(), cluster.f())?;
        for card in &self.cards {
            writeln!(f, "  {card}")?;
        }
        let from = step.saturating_sub(40);
        writeln!(f, "  again:   quorate sim replay {what}{size} --lanes --from {from}")?;
        let shown: Vec<String> = match &self.rule {
            Rule::Broken(violation) => violation.replicas.iter().map(ToString::to_string).collect(),
            Rule::Panic(_) | Rule::Stuck(_) | Rule::Missed(_) => Vec::new(),
        };
        let shown = if shown.is_empty() { "all".to_owned() } else { shown.join(",") };
        write!(f, "  state:   quorate sim replay {what}{size} --at {step} --show {shown}")
    }
}
