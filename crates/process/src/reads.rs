//! How much of a turn goes to reads, and the reads that wait for another turn (RO-7).

use alloc::collections::{BTreeMap, VecDeque};
use core::ops::Bound;

use quorate_wire::Body;

/// No read begins in a turn when this time has passed since its first one began, in nanoseconds.
const TURN_NS: u64 = 5_000_000;
/// No read begins in a turn whose reads have results of this length together.
const TURN_BYTES: usize = 4 << 20;

/// What the reads of a turn have taken: until everything that may leave is sent.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// When the first read began, by the clock that measures executions.
    began_ns: Option<u64>,
    is_late: bool,
    bytes: usize,
}

impl Turn {
    /// A read begins. Only the first one of a turn reads the clock.
    #[inline]
    pub(crate) fn begin(&mut self, clock: impl FnOnce() -> u64) {
        if self.began_ns.is_none() {
            self.began_ns = Some(clock());
        }
    }

    /// A read has ended at this time, with a result of this length.
    #[inline]
    pub(crate) fn end(&mut self, clock_ns: u64, len: usize) {
        self.bytes += len;
        self.is_late = clock_ns.saturating_sub(self.began_ns.unwrap_or(clock_ns)) >= TURN_NS;
    }

    /// Returns whether no more reads begin in this turn.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.is_late || self.bytes >= TURN_BYTES
    }
}

/// A read that waits for another turn.
#[derive(Debug)]
pub(crate) struct LateRead {
    pub(crate) ticket: u64,
    pub(crate) request: Body,
    /// The batches that it had to wait for have settled (PX-8).
    pub(crate) is_due: bool,
}

/// Reads that wait for another turn. Principals take turns.
#[derive(Debug, Default)]
pub(crate) struct Late {
    reads: BTreeMap<u64, VecDeque<LateRead>>,
    /// The principal that was served last.
    last: u64,
}

impl Late {
    /// Lets a read wait.
    pub(crate) fn push(&mut self, read: LateRead) {
        self.reads.entry(read.request.client.principal()).or_default().push_back(read);
    }

    /// Takes the read whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<LateRead> {
        let mut above = self.reads.range((Bound::Excluded(self.last), Bound::Unbounded));
        let (&principal, _) = above.next().or_else(|| self.reads.first_key_value())?;
        self.last = principal;
        let reads = self.reads.get_mut(&principal)?;
        let read = reads.pop_front();
        if reads.is_empty() {
            self.reads.remove(&principal);
        }
        read
    }

    /// Returns whether none waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// Drops all reads. Returns their tickets.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = u64> + use<> {
        core::mem::take(&mut self.reads).into_values().flatten().map(|read| read.ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RO-7: the reads of a turn are bounded by time and by the length of their results.
    #[test]
    fn l46_the_reads_of_a_turn_are_bounded() {
        let mut turn = Turn::default();
        for (clock_ns, len) in [(100, 0), (TURN_NS + 6, 1000), (TURN_NS + 7, 0)] {
            turn.begin(|| 7);
            assert!(!turn.is_spent());
            turn.end(clock_ns, len);
        }
        assert!(turn.is_spent());
        let mut turn = Turn::default();
        for _ in 0..4 {
            turn.begin(|| 0);
            assert!(!turn.is_spent());
            turn.end(0, 1 << 20);
        }
        assert!(turn.is_spent());
    }
}
