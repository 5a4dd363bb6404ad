//! Who waits for whom: the engines that a replica can choose from (spec §17.4). The state does not depend on the choice.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::parallel::groups::{Groups, Ordinal};
use crate::parallel::rules::{Arguments, Matrices};

/// How a replica finds the requests that a new one depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// All requests depend on each other.
    #[default]
    Sequential,
    /// Compares the new request with every pending one, as the paper does [CBASE04 §5.2].
    Matrix,
    /// Looks only at the keys of the new request. Gives the same dependencies as [`Self::Matrix`].
    GroupIndex,
    /// Nobody waits, except a request that ran again twice.
    Free,
}

/// The pending requests and their dependencies. A request is pending from [`Self::insert`] to [`Self::remove`].
#[derive(Debug)]
pub(super) struct Engine {
    matrices: Matrices,
    /// Requests that wait: how many others each waits for.
    waits: BTreeMap<Ordinal, u32>,
    tracker: Tracker,
    /// The number of pairs and groups that were looked at so far: what tracking costs.
    steps: u64,
}

#[derive(Debug)]
enum Tracker {
    Sequential(VecDeque<Ordinal>),
    Matrix(BTreeMap<Ordinal, Vertex>),
    Groups(Box<Groups>),
    Free,
}

/// A vertex of the dependency graph, with its outgoing edges [CBASE04 §5].
#[derive(Debug)]
struct Vertex {
    arguments: Arguments,
    lane: u64,
    successors: Vec<Ordinal>,
}

impl Engine {
    /// Returns an engine without requests. `secret` is the replica's own: clients choose the keys of an index, and
    /// must not be able to choose where they collide.
    pub(super) fn new(kind: EngineKind, matrices: Matrices, secret: u64) -> Self {
        let tracker = match kind {
            EngineKind::Sequential => Tracker::Sequential(VecDeque::new()),
            EngineKind::Matrix => Tracker::Matrix(BTreeMap::new()),
            EngineKind::GroupIndex => Tracker::Groups(Box::new(Groups::new(secret))),
            EngineKind::Free => Tracker::Free,
        };
        Self { matrices, waits: BTreeMap::new(), tracker, steps: 0 }
    }

    /// Returns the number of pairs and groups that were looked at so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Adds a request behind all others. Returns whether it is ready.
    pub(super) fn insert(&mut self, ordinal: Ordinal, lane: u64, arguments: &Arguments) -> bool {
        let mut waits = 0;
        match &mut self.tracker {
            Tracker::Sequential(pending) => {
                self.steps += 1;
                waits = u32::from(!pending.is_empty());
                pending.push_back(ordinal);
            }
            Tracker::Matrix(graph) => {
                for vertex in graph.values_mut() {
                    self.steps += 1;
                    // Requests of one lane depend on each other (PX-4).
                    if plant!(1, vertex.lane == lane, false)
                        || plant!(2, vertex.arguments.depends(arguments, &self.matrices), false)
                    {
                        vertex.successors.push(ordinal);
                        waits += 1;
                    }
                }
                let vertex = Vertex { arguments: arguments.clone(), lane, successors: Vec::new() };
                graph.insert(ordinal, vertex);
            }
            Tracker::Groups(groups) => {
                waits = groups.insert(ordinal, lane, arguments, &self.matrices, &mut self.steps);
            }
            Tracker::Free => {}
        }
        if waits > 0 {
            self.waits.insert(ordinal, waits);
        }
        waits == 0
    }

    /// Removes a request that has run. Each request that waited for it alone goes to `free`.
    pub(super) fn remove(&mut self, ordinal: Ordinal, mut free: impl FnMut(Ordinal)) {
        let Self { waits, tracker, .. } = self;
        let mut release = |waiting: Ordinal| {
            let Some(left) = waits.get_mut(&waiting) else { return };
            *left -= 1;
            if plant!(3, *left == 0, true) {
                waits.remove(&waiting);
                free(waiting);
            }
        };
        match tracker {
            Tracker::Sequential(pending) => {
                // Only the first was ready.
                pending.pop_front();
                if let Some(next) = pending.front() {
                    release(*next);
                }
            }
            Tracker::Matrix(graph) => {
                let successors = graph.remove(&ordinal).map(|vertex| vertex.successors);
                successors.into_iter().flatten().for_each(release);
            }
            Tracker::Groups(groups) => groups.remove(ordinal, &mut release),
            Tracker::Free => {}
        }
    }
}
