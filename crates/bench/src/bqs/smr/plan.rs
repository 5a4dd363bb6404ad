//! What a cell of replication measures.

use quorate_pbft::config::ReadRule;
use quorate_quorum_sim::history::Kind;
use quorate_quorum_sim::model::{Costs, Model};

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
    /// Faults tolerated.
    pub f: u16,
    /// Faults.
    pub faulty: Faulty,
    /// What the measured client does.
    pub kind: Kind,
    /// Other readers.
    pub readers: u16,
    /// Whether a writer runs beside a measured reader.
    pub writer: bool,
    /// Measured operations.
    pub operations: usize,
    /// Operations before them.
    pub warm_up: usize,
    /// Thinking time of every client, in thousandths of the model's unit.
    pub think: u64,
    /// Network and processors. Its unit is a millisecond.
    pub model: Model,
    /// What signatures cost, if not what they cost under the model.
    pub costs: Option<Costs>,
    /// When an optimistic read is given up.
    pub rule: ReadRule,
    /// What chance is drawn from.
    pub seed: u64,
}

impl SmrCell {
    /// A cell without faults or concurrency.
    pub fn new(f: u16, kind: Kind, model: Model) -> Self {
        Self {
            f,
            faulty: Faulty::Nobody,
            kind,
            readers: 0,
            writer: false,
            operations: 1000,
            warm_up: 100,
            think: 10_000,
            model,
            costs: None,
            rule: ReadRule::FirstReplies,
            seed: 1,
        }
    }
}
