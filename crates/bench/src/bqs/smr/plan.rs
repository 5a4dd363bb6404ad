//! What a cell of replication measures.

use quorate_pbft::config::ReadRule;
use quorate_pbft::step::Recipient;
use quorate_pbft::{Config, Replica};
use quorate_quorum::thresholds::ServerSet;
use quorate_quorum_sim::cell::Load;
use quorate_quorum_sim::history::OperationKind;
use quorate_quorum_sim::model::Model;
use quorate_sim::adversary::primary::{DelayProposals, EquivocateToHalves, SilentPrimary};
use quorate_sim::adversary::{Fate, Liar, Lie, Lying, Said};
use quorate_sim::core::AnyCore;
use quorate_sim::rng::{Concern, Rng};
use quorate_wire::sign::Signer;
use quorate_wire::{Kind, ReplicaId};

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
    /// The first leader has a profile, and this many replicas after it answer reads with made-up values.
    Leader(Leader, u16),
}

/// The profile of a faulty leader (§10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leader {
    /// Proposes nothing.
    Silent,
    /// Proposes when nine tenths of the time-out are over.
    Delay,
    /// Proposes different batches to the two halves of the others.
    Equivocate,
    /// Proposes to all but these, and answers no client (R4).
    Exclude(ServerSet),
}

impl Leader {
    /// Every profile, with its name and what it does.
    pub const ALL: &[(&str, &str)] = &[
        ("leader-silent", "proposes nothing"),
        ("leader-delay", "proposes when nine tenths of the time-out are over"),
        ("leader-equivocate", "proposes one batch to half of the replicas, and another one to the rest"),
        (
            "leader-exclude[:R,R,...]",
            "proposes to all but these replicas (default: the last f), and answers no client",
        ),
    ];

    /// Returns the profile with this name. None: there is none, or it names no replicas of the cluster.
    pub fn from_name(name: &str, f: u16) -> Option<Self> {
        let n = 3 * f + 1;
        let excluded = |list: Vec<u16>| {
            let mut set = ServerSet::default();
            list.into_iter().all(|id| (1..n).contains(&id) && set.insert(ReplicaId(id))).then_some(set)
        };
        match name.split_once(':').unwrap_or((name, "")) {
            ("leader-silent", "") => Some(Self::Silent),
            ("leader-delay", "") => Some(Self::Delay),
            ("leader-equivocate", "") => Some(Self::Equivocate),
            ("leader-exclude", "") => excluded((n - f..n).collect()).map(Self::Exclude),
            ("leader-exclude", list) => {
                let list = list.split(',').map(|id| id.parse().ok()).collect::<Option<_>>();
                list.and_then(excluded).map(Self::Exclude)
            }
            _ => None,
        }
    }

    pub(super) fn liar(self) -> Box<dyn Liar> {
        match self {
            Self::Silent => Box::new(SilentPrimary),
            Self::Delay => Box::new(DelayProposals),
            Self::Equivocate => Box::new(EquivocateToHalves),
            Self::Exclude(excluded) => Box::new(Exclude(excluded)),
        }
    }
}

/// Proposes to the others only. With the faulty leader's own, fewer than q replies reach the client, although the operation is
/// committed.
#[derive(Debug)]
struct Exclude(ServerSet);

impl Liar for Exclude {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        match (said.kind, said.to) {
            (Kind::PrePrepare, Recipient::All) => {
                for to in lie.others().into_iter().filter(|to| !self.0.contains(*to)) {
                    lie.say(Recipient::Replica(to), Kind::PrePrepare, said.body);
                }
            }
            (Kind::Reply, _) => lie.count(),
            _ => return Fate::Keep,
        }
        Fate::Drop
    }
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

    /// Puts the liar in front of the first leader.
    pub(super) fn core(&self, replica: Replica, signer: Signer, config: &Config) -> AnyCore {
        let Faulty::Leader(leader, _) = self.faulty else { return AnyCore(Box::new(replica)) };
        if replica.id().0 != 0 {
            return AnyCore(Box::new(replica));
        }
        let rng = Rng::new(self.load.seed, Concern::Adversary);
        AnyCore(Box::new(Lying::new(replica, leader.liar(), signer, config.clone(), rng)))
    }
}
