//! The parallelizer: a total order of requests in, a partial order out [CBASE04 §5.1].
//!
//! Agreement calls [`Parallelizer::insert`] and [`Parallelizer::sync`], the workers call
//! [`Parallelizer::next_request`] and [`Parallelizer::remove_request`], and the thread that settles calls
//! [`Parallelizer::settled`]. No call blocks: a worker that gets no request waits outside (DV-49).

use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::Reverse;

use quorate_wire::SeqNum;

use crate::parallel::engine::{Engine, EngineKind};
use crate::parallel::groups::Ordinal;
use crate::parallel::rules::{Arguments, MatrixError, Rules};

/// A request's place in the agreed order: its batch and its index there (EX-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The batch.
    pub seq: SeqNum,
    /// The request's place in the batch.
    pub index: u32,
}

/// The request cannot be inserted yet: too much is unsettled (PX-G). It can be as soon as the oldest has settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Maximum number of unsettled requests (PX-G).
pub const UNSETTLED_MAX: usize = 65_536;
/// Maximum number of unsettled requests with [`EngineKind::Matrix`], which looks at all of them for each new one.
pub const UNSETTLED_MAX_BY_PAIRS: usize = 1024;
/// Maximum number of buffered bytes of unsettled requests (PX-G).
pub const BUFFERED_BYTES_MAX: usize = 256 << 20;

/// A request that was inserted and has not settled.
#[derive(Clone, Copy, Debug)]
struct Node {
    position: Position,
    status: Status,
    is_short: bool,
    /// What it holds in memory: its operation, and what its run has buffered.
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Blocked,
    Ready,
    Running,
    /// It has run: its successors are free, its cells and its result are kept until it settles.
    Removed,
}

/// Requests that may run, the oldest first (PX-2).
#[derive(Debug, Default)]
struct Ready {
    /// Those that never waited. They come in order, so that their number does not matter.
    unblocked: VecDeque<Ordinal>,
    /// Those that waited for others.
    freed: BinaryHeap<Reverse<Ordinal>>,
}

impl Ready {
    fn peek(&self) -> Option<Ordinal> {
        let (unblocked, freed) = (self.unblocked.front(), self.freed.peek().map(|Reverse(freed)| freed));
        unblocked.into_iter().chain(freed).min().copied()
    }

    /// Takes out what [`Self::peek`] has returned.
    fn pop(&mut self, ordinal: Ordinal) {
        if self.unblocked.front() == Some(&ordinal) {
            self.unblocked.pop_front();
        } else {
            self.freed.pop();
        }
    }

    fn clear(&mut self) {
        self.unblocked.clear();
        self.freed.clear();
    }
}

/// The requests that are not settled, and which of them may run [CBASE04 §5.1].
#[derive(Debug)]
pub struct Parallelizer<R> {
    rules: R,
    engine: Engine,
    unsettled_max: usize,
    /// By their ordinals, the oldest first.
    nodes: VecDeque<Node>,
    /// The ordinal of the first node.
    first: Ordinal,
    /// Requests without incoming edges: those that take long, and those that do not.
    ready: [Ready; 2],
    bytes: usize,
    /// Requests above this batch are not issued.
    next_checkpoint: Option<SeqNum>,
    arguments: Arguments,
}

impl<R: Rules> Parallelizer<R> {
    /// Returns a parallelizer without requests. `secret` is a random number of this replica's own.
    ///
    /// # Errors
    ///
    /// The rules are not symmetric.
    pub fn new(kind: EngineKind, rules: R, secret: u64) -> Result<Self, MatrixError> {
        let engine = Engine::new(kind, rules.matrices()?, secret);
        Ok(Self {
            rules,
            engine,
            unsettled_max: if kind == EngineKind::Matrix { UNSETTLED_MAX_BY_PAIRS } else { UNSETTLED_MAX },
            nodes: VecDeque::new(),
            first: 0,
            ready: Default::default(),
            bytes: 0,
            next_checkpoint: None,
            arguments: Arguments::default(),
        })
    }

    /// Called by agreement for each committed request, in order. The request is blocked if it depends on a pending
    /// one. `barrier`: it changes rights, members or lanes, and depends on all others (PX-G).
    ///
    /// # Errors
    ///
    /// Too much is unsettled. The oldest request is always admitted.
    pub fn insert(
        &mut self,
        position: Position,
        lane: u64,
        operation: &[u8],
        barrier: bool,
    ) -> Result<(), Full> {
        assert!(
            self.nodes.back().is_none_or(|last| last.position < position),
            "requests come in order (EX-1)"
        );
        let is_full = !self.has_room(1, operation.len());
        if plant!(9, is_full, false) && plant!(10, !self.nodes.is_empty(), true) {
            return Err(Full);
        }
        self.admit(position, lane, operation, barrier, false);
        Ok(())
    }

    /// Returns whether this number of requests with these bytes can be inserted, if anything is unsettled.
    pub fn has_room(&self, requests: usize, bytes: usize) -> bool {
        self.nodes.len() + requests <= self.unsettled_max
            && self.bytes.saturating_add(bytes) <= BUFFERED_BYTES_MAX
    }

    /// As [`Self::insert`], for a request of a batch that was admitted as a whole.
    pub(super) fn admit(
        &mut self,
        position: Position,
        lane: u64,
        operation: &[u8],
        barrier: bool,
        is_short: bool,
    ) {
        assert!(
            self.nodes.back().is_none_or(|last| last.position < position),
            "requests come in order (EX-1)"
        );
        self.rules.parse(operation, &mut self.arguments);
        if plant!(11, barrier, false) {
            self.arguments.everything();
        }
        let ordinal = self.next();
        let is_ready = self.engine.insert(ordinal, lane, &self.arguments);
        let status = if is_ready { Status::Ready } else { Status::Blocked };
        self.nodes.push_back(Node { position, status, is_short, bytes: operation.len() });
        self.bytes += operation.len();
        if is_ready {
            self.ready[usize::from(is_short)].unblocked.push_back(ordinal);
        }
    }

    /// Called by a worker: returns the oldest ready request, which is now running. None: the worker waits.
    pub fn next_request(&mut self) -> Option<Position> {
        let [long, short] = self.ready.each_ref().map(Ready::peek);
        self.next_of(short.is_some_and(|short| long.is_none_or(|long| short < long)))
    }

    /// As [`Self::next_request`], only of the requests that take long, or only of those that do not.
    pub(super) fn next_of(&mut self, is_short: bool) -> Option<Position> {
        let ready = &mut self.ready[usize::from(is_short)];
        let ordinal = ready.peek()?;
        let limit = self.next_checkpoint;
        let node = node(&mut self.nodes, self.first, ordinal);
        if limit.is_some_and(|limit| plant!(7, node.position.seq > limit, false)) {
            return None;
        }
        ready.pop(ordinal);
        node.status = Status::Running;
        Some(node.position)
    }

    /// Called by a worker when the request has run: it no longer blocks others. `buffered` is the number of bytes that
    /// its run keeps until the request settles.
    pub fn remove_request(&mut self, position: Position, buffered: usize) {
        let Some(ordinal) = self.ordinal(position) else { return };
        let node = node(&mut self.nodes, self.first, ordinal);
        assert_eq!(node.status, Status::Running, "only a request that was issued is removed");
        node.status = Status::Removed;
        node.bytes += buffered;
        self.bytes += buffered;
        let Self { engine, nodes, ready, first, .. } = self;
        engine.remove(ordinal, |freed| {
            let node = self::node(nodes, *first, freed);
            if plant!(8, node.status == Status::Blocked, false) {
                node.status = Status::Ready;
                ready[usize::from(node.is_short)].freed.push(Reverse(freed));
            }
        });
    }

    /// Called by agreement: requests above `next_checkpoint` are not issued until it is called with a later one. None:
    /// requests run ahead of checkpoints (PX-6).
    pub fn sync(&mut self, next_checkpoint: Option<SeqNum>) {
        self.next_checkpoint = next_checkpoint;
    }

    /// Called when the oldest request, which has been removed, is part of the state.
    pub fn settled(&mut self) {
        let Some(node) = self.nodes.pop_front() else { unreachable!("a request settles once") };
        assert_eq!(node.status, Status::Removed, "a request settles after its run");
        self.bytes -= node.bytes;
        self.first += 1;
    }

    /// Drops every request (PX-10). A worker that is still running is not waited for: its position is unknown from now
    /// on, and its result is dropped.
    pub fn drain(&mut self) {
        let ordinals = self.first..self.next();
        for (ordinal, node) in ordinals.zip(&self.nodes) {
            if node.status != Status::Removed {
                self.engine.remove(ordinal, |_| ());
            }
        }
        self.first += u64::try_from(self.nodes.len()).unwrap_or(u64::MAX);
        self.nodes.clear();
        self.ready.iter_mut().for_each(Ready::clear);
        self.bytes = 0;
    }

    /// Returns the oldest unsettled request, and whether it has run.
    pub fn oldest(&self) -> Option<(Position, bool)> {
        self.nodes.front().map(|node| (node.position, node.status == Status::Removed))
    }

    /// Parses an operation. Returns its function and its keys.
    pub(super) fn parse(&mut self, operation: &[u8]) -> &Arguments {
        self.rules.parse(operation, &mut self.arguments);
        &self.arguments
    }

    /// Returns the function and the keys that were parsed last.
    pub(super) fn parsed(&self) -> &Arguments {
        &self.arguments
    }

    /// Returns the number of unsettled requests.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether everything has settled.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the bytes that unsettled requests hold.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of pairs and groups that tracking has looked at so far.
    pub fn steps(&self) -> u64 {
        self.engine.steps()
    }

    /// The ordinal of the next request.
    fn next(&self) -> Ordinal {
        self.first + u64::try_from(self.nodes.len()).unwrap_or(u64::MAX)
    }

    /// Finds a request. What runs is near the oldest, so the search begins there, however many are behind.
    fn ordinal(&self, position: Position) -> Option<Ordinal> {
        let mut end = 1;
        while self.nodes.get(end - 1).is_some_and(|node| node.position < position) {
            end *= 2;
        }
        let (mut low, mut high) = (end / 2, end.min(self.nodes.len()));
        while low < high {
            let middle = low.midpoint(high);
            if self.nodes[middle].position < position { low = middle + 1 } else { high = middle }
        }
        self.nodes.get(low).filter(|node| node.position == position)?;
        Some(self.first + u64::try_from(low).unwrap_or(u64::MAX))
    }
}

fn node(nodes: &mut VecDeque<Node>, first: Ordinal, ordinal: Ordinal) -> &mut Node {
    let at = usize::try_from(ordinal - first).unwrap_or(usize::MAX);
    let Some(node) = nodes.get_mut(at) else { unreachable!("a pending request is not settled") };
    node
}
