//! What a watcher says.

use quorate_wire::ReplicaId;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule: its watcher's name, and where there is one its number in spec §18.
    pub rule: &'static str,
    /// The observation.
    pub text: String,
    /// The replica involved.
    pub replicas: Vec<ReplicaId>,
}

impl Violation {
    /// Returns a violation of `rule` by `replicas`.
    pub fn new(rule: &'static str, text: impl Into<String>, replicas: &[ReplicaId]) -> Self {
        Self { rule, text: text.into(), replicas: replicas.to_vec() }
    }
}

/// What a watcher says of one step.
pub type Verdict = Result<(), Violation>;
