//! The observer's own operations: what a client of the cluster gets today. Statements alone do not tell: a replica that
//! says that all is well may be unable to serve.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use quorate_service::registry;

use crate::run::caller::{CallError, Caller, RequestId};

/// The lanes that the operations need: one for each.
pub(super) const LANES: u16 = 3;
/// The least time between two operations of a kind. An idle cluster writes what is ordered to its disks.
const EVERY: Duration = Duration::from_secs(10);
/// Bytes of the large operation: it fits no datagram, and goes through the side channel.
const LARGE_BYTES: usize = 64 << 10;

/// What a client got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// An answer.
    Served,
    /// An answer that says that there is no place for it in the client table.
    NoPlace,
    /// No answer in time.
    Silence,
}

/// The newest outcome of each kind of operation. None: it was not tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeOutcomes {
    /// A small operation that is ordered.
    pub ordered: Option<ProbeOutcome>,
    /// A small read that is not ordered.
    pub read_only: Option<ProbeOutcome>,
    /// An operation that is longer than a datagram.
    pub large: Option<ProbeOutcome>,
}

impl ProbeOutcomes {
    /// Returns whether an operation got no answer.
    pub fn are_missing(self) -> bool {
        [self.ordered, self.read_only, self.large].contains(&Some(ProbeOutcome::Silence))
    }

    /// Returns whether every kind that was tried was served.
    pub fn all_served(self) -> bool {
        [self.ordered, self.read_only, self.large]
            .iter()
            .flatten()
            .all(|outcome| *outcome == ProbeOutcome::Served)
    }
}

/// The latency of a probe operation on each path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Of an ordered operation.
    pub ordered: Option<Duration>,
    /// Of a read-only operation.
    pub read_only: Option<Duration>,
}

/// One kind of operation.
#[derive(Debug, Default)]
struct ProbeKind {
    /// When it was sent last.
    sent: Option<Instant>,
    /// The one that has no answer yet. No other is sent before that: it would take another lane for good.
    open: Option<RequestId>,
    outcome: Option<ProbeOutcome>,
    took: Option<Duration>,
}

impl ProbeKind {
    /// Sends the operation if it is due, and waits for its outcome. Returns whether its latency is a new one.
    fn turn(&mut self, caller: &Caller, operation: &[u8], read_only: bool, wait: Wait) -> bool {
        let result = match self.open {
            Some(request) => caller.outcome(request, wait.for_open),
            None if wait.now || self.sent.is_none_or(|at| at.elapsed() >= EVERY) => {
                let begin = Instant::now();
                self.sent = Some(begin);
                let result = caller.call(operation, read_only);
                self.took = Some(begin.elapsed());
                result
            }
            None => return false,
        };
        let was_open = self.open.take().is_some();
        self.outcome = Some(match result {
            Err(CallError::Unknown { request }) => {
                self.open = Some(request);
                ProbeOutcome::Silence
            }
            Err(CallError::NoLane) => ProbeOutcome::NoPlace,
            Err(CallError::Busy | CallError::Closed | CallError::Forgotten) => ProbeOutcome::Silence,
            Ok(_) | Err(_) => ProbeOutcome::Served,
        });
        if self.outcome != Some(ProbeOutcome::Served) || was_open {
            self.took = None;
        }
        self.took.is_some()
    }
}

/// How long an operation is waited for.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// Whether it is sent even if it is not due.
    now: bool,
    /// The time for one that has had its time before.
    for_open: Duration,
}

/// The operations, and what became of them.
#[derive(Debug)]
pub(super) struct Probe {
    /// The small one, which changes nothing.
    small: Vec<u8>,
    /// The large one: no valid operation on the client registry, so that it changes nothing whatever the service is.
    large: Vec<u8>,
    kinds: Mutex<[ProbeKind; 3]>,
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tried {
    pub(super) outcomes: ProbeOutcomes,
    pub(super) latency: Latency,
    /// Which latencies are of new operations.
    pub(super) is_new: (bool, bool),
}

impl Probe {
    /// Returns the probe with this small operation.
    pub(super) fn new(small: Vec<u8>) -> Self {
        let mut large = registry::MAGIC.to_vec();
        large.resize(LARGE_BYTES, 0);
        Self { small, large, kinds: Mutex::default() }
    }

    /// Runs the operations that are due, or all of them `now`.
    pub(super) fn turn(&self, caller: &Caller, now: bool) -> Tried {
        let mut kinds = self.kinds.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let [ordered, read_only, large] = &mut *kinds;
        let wait = Wait { now, for_open: Duration::ZERO };
        let mut is_new = (ordered.turn(caller, &self.small, false, wait), false);
        // Where nothing is ordered, the others tell nothing new.
        if ordered.outcome != Some(ProbeOutcome::Silence) {
            is_new.1 = read_only.turn(caller, &self.small, true, wait);
            large.turn(caller, &self.large, false, wait);
        }
        let outcomes =
            ProbeOutcomes { ordered: ordered.outcome, read_only: read_only.outcome, large: large.outcome };
        Tried { outcomes, latency: Latency { ordered: ordered.took, read_only: read_only.took }, is_new }
    }

    /// Runs the small operation, and waits for up to `patience` if one has no answer yet. Returns whether it was served.
    pub(super) fn orders(&self, caller: &Caller, patience: Duration) -> bool {
        let mut kinds = self.kinds.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let [ordered, ..] = &mut *kinds;
        ordered.turn(caller, &self.small, false, Wait { now: true, for_open: patience });
        ordered.outcome == Some(ProbeOutcome::Served)
    }
}
