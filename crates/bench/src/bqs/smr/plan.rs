//! What a cell of replication measures.

use quorate_pbft::config::ReadRule;
use quorate_quorum_sim::cell::Load;
use quorate_quorum_sim::history::OperationKind;
use quorate_quorum_sim::model::Model;

/// Which replica is faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faulty {
    /// None.
    Nobody,
    /// The `b` replicas after the leader answer reads with made-up values.
    Acceptors(u16),
    /// The leader does, and never proposes. Each operation is the first one of a new cluster, so that each begins with
    /// this leader.
    Proposer,
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct SmrCell {
    /// Who works. The model's unit is a millisecond.
    pub load: Load,
    /// Faults.
    pub faulty: Faulty,
    /// When an optimistic read is given up.
    pub rule: ReadRule,
    /// Whether one instance of agreement may carry several requests.
    pub batching: bool,
    /// Replicas answer before an operation is committed.
    pub tentative: bool,
}

impl SmrCell {
    /// A cell without faults or concurrency.
    pub fn new(f: u16, kind: OperationKind, model: Model) -> Self {
        Self {
            load: Load::new(f, kind, model),
            faulty: Faulty::Nobody,
            rule: ReadRule::FirstReplies,
            batching: true,
            tentative: false,
        }
    }
}
