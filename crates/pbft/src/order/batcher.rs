//! The primary's queue of requests, and the numbers that it assigns ([OSDI99 §4.2] on buffering requests; spec §5.2).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;

use quorate_wire::batch::{Batch, BatchPool};
use quorate_wire::id::{ClientId, SeqNum};

/// The lanes whose request is not in a proposal yet, by principal. Principals take turns, and the lanes of one take
/// turns with its turns (PR-3): a principal with many lanes has no more of the primary than others. A lane is there once,
/// since it has one request outstanding (CL-1); so it is never longer than the table of lanes.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Principals with lanes that wait, in the order of their turns.
    turns: VecDeque<u64>,
    /// Their lanes. What is empty stays, for the memory: one a principal.
    lanes: BTreeMap<u64, VecDeque<u16>>,
    /// How many lanes wait.
    len: usize,
}

impl Queue {
    fn push(&mut self, client: ClientId) {
        let lanes = self.lanes.entry(client.principal()).or_default();
        if lanes.is_empty() {
            self.turns.push_back(client.principal());
        }
        if !lanes.contains(&client.lane()) {
            lanes.push_back(client.lane());
            self.len += 1;
        }
    }

    /// Returns the lane whose turn it is.
    pub(crate) fn front(&self) -> Option<ClientId> {
        let principal = *self.turns.front()?;
        Some(ClientId::new(principal, *self.lanes.get(&principal)?.front()?))
    }

    /// Takes the lane away whose turn it is. `next`: the turn goes on to the next principal.
    pub(crate) fn pop(&mut self, next: bool) {
        let Some(principal) = self.turns.front().copied() else { return };
        let more = self.lanes.get_mut(&principal).is_some_and(|lanes| {
            self.len -= usize::from(lanes.pop_front().is_some());
            !lanes.is_empty()
        });
        if !more || next {
            self.turns.pop_front();
        }
        if more && next {
            self.turns.push_back(principal);
        }
    }
}

/// The queue, the memory of batches, and the last number assigned.
#[derive(Debug)]
pub(crate) struct Batcher {
    queue: Queue,
    pool: BatchPool,
    /// The last number assigned by this replica as primary, or fixed by the NEW-VIEW.
    assigned: SeqNum,
    /// The latest choice in a proposal of this view, whether of its NEW-VIEW or proposed here (ND-1).
    choice: u64,
    /// Waiting requests may be proposed once the burst has ended.
    owes: bool,
    /// The number of requests in the last batch.
    last_len: usize,
}

impl Batcher {
    /// Returns an empty queue.
    pub(crate) fn new(window: u64) -> Self {
        let pooled = usize::try_from(window).unwrap_or(usize::MAX).saturating_mul(2);
        Self {
            queue: Queue::default(),
            pool: BatchPool::new(pooled),
            assigned: SeqNum(0),
            choice: 0,
            owes: false,
            last_len: 0,
        }
    }

    /// Appends a lane whose request is new, unless it waits already.
    pub(crate) fn push(&mut self, client: ClientId) {
        self.queue.push(client);
    }

    /// Returns whether no lane waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.turns.is_empty()
    }

    /// Notes that waiting requests may be proposed, if any wait.
    pub(crate) fn owe(&mut self) {
        self.owes = !self.is_empty();
    }

    /// Returns whether that was noted.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.owes
    }

    /// The burst has ended.
    pub(crate) fn end_burst(&mut self) {
        self.owes = false;
    }

    /// Returns whether as many requests wait as the last batch had: enough for a batch beside one in progress.
    pub(crate) fn has_another(&self) -> bool {
        self.queue.len >= self.last_len
    }

    /// Fills a batch from the queue. Returns none where `take` finds nothing to put into it.
    pub(crate) fn fill(
        &mut self,
        take: impl FnOnce(&mut Queue, &mut Batch) -> Result<(), ()>,
    ) -> Option<Arc<Batch>> {
        let Self { queue, pool, last_len, .. } = self;
        let batch = pool.fill(|batch| take(queue, batch)).ok()?;
        *last_len = batch.len();
        Some(batch)
    }

    /// Returns the last number assigned.
    pub(crate) fn assigned(&self) -> SeqNum {
        self.assigned
    }

    /// Returns the latest choice in a proposal of this view.
    pub(crate) fn choice(&self) -> u64 {
        self.choice
    }

    /// Assigns the next number, of a window that ends at `high`, to a batch with this choice.
    pub(crate) fn assign(&mut self, choice: u64, high: SeqNum) -> SeqNum {
        self.assigned = self.assigned.next();
        assert!(self.assigned <= high); // I8
        self.choice = self.choice.max(choice);
        self.assigned
    }

    /// Numbers up to `seq` are taken: another replica or another view assigned them.
    pub(crate) fn skip_to(&mut self, seq: SeqNum) {
        self.assigned = self.assigned.max(seq);
    }

    /// Begins a view in which numbers up to `last` are taken: the queue is empty.
    pub(crate) fn start_view(&mut self, last: SeqNum) {
        self.queue.turns.clear();
        self.queue.lanes.clear();
        (self.queue.len, self.last_len, self.owes) = (0, 0, false);
        self.assigned = last;
    }

    /// The batches that the view has taken over have no later choice than this.
    pub(crate) fn start_choice(&mut self, choice: u64) {
        self.choice = choice;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_assigned_without_a_gap() {
        let mut batcher = Batcher::new(8);
        assert_eq!([batcher.assign(5, SeqNum(8)), batcher.assign(3, SeqNum(8))], [SeqNum(1), SeqNum(2)]);
        assert_eq!(batcher.choice(), 5, "the latest");
        batcher.skip_to(SeqNum(1));
        assert_eq!(batcher.assign(0, SeqNum(8)), SeqNum(3));
        batcher.start_view(SeqNum(6));
        assert_eq!(batcher.assign(0, SeqNum(8)), SeqNum(7));
    }

    /// I8.
    #[test]
    #[should_panic(expected = "assigned <= high")]
    fn i8_no_number_above_the_window() {
        Batcher::new(8).assign(0, SeqNum(0));
    }
}
