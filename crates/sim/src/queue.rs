//! What is still to happen, and how much of it a run may have: a cluster whose messages multiply without end fails,
//! instead of filling the memory of this machine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The most events of a run that are still to happen.
const EVENTS_MAX: usize = 400_000;
/// The most bytes of frames on their way.
const BYTES_MAX: usize = 128 << 20;

/// An event in the queue: earliest first, then in the order in which they were put there.
#[derive(Debug)]
pub(crate) struct Scheduled<T> {
    /// When it happens.
    pub(crate) at: u64,
    order: u64,
    bytes: usize,
    /// What happens.
    pub(crate) event: T,
}

impl<T> PartialEq for Scheduled<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl<T> Eq for Scheduled<T> {}

impl<T> PartialOrd for Scheduled<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Scheduled<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The events of a world that are still to happen.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    events: BinaryHeap<Reverse<Scheduled<T>>>,
    /// How many there have ever been.
    order: u64,
    /// Bytes of the frames that are still to arrive.
    bytes: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { events: BinaryHeap::new(), order: 0, bytes: 0 }
    }
}

impl<T> Queue<T> {
    /// Adds an event that holds a frame of this many bytes, or none.
    pub(crate) fn push(&mut self, at: u64, bytes: usize, event: T) {
        let order = self.next_order();
        self.put(Scheduled { at, order, bytes, event });
    }

    /// Returns a number above all that it has returned, and that events have.
    pub(crate) fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Puts an event back.
    pub(crate) fn put(&mut self, event: Scheduled<T>) {
        self.bytes += event.bytes;
        self.events.push(Reverse(event));
    }

    /// Takes the next event.
    pub(crate) fn pop(&mut self) -> Option<Scheduled<T>> {
        let Reverse(event) = self.events.pop()?;
        self.bytes -= event.bytes;
        Some(event)
    }

    /// Returns the next event.
    pub(crate) fn peek(&self) -> Option<&Scheduled<T>> {
        self.events.peek().map(|Reverse(event)| event)
    }

    /// Describes how a bound is exceeded, if one is.
    pub(crate) fn exceeded(&self) -> Option<String> {
        let (events, bytes) = (self.events.len(), self.bytes);
        (events > EVENTS_MAX || bytes > BYTES_MAX).then(|| {
            format!(
                "{events} events and {bytes} bytes are on their way, of at most {EVENTS_MAX} and {BYTES_MAX}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_than_the_bound_are_noticed_until_they_have_arrived() {
        let mut queue = Queue::default();
        (0..2).for_each(|at| queue.push(at, BYTES_MAX / 2, ()));
        assert_eq!(queue.exceeded(), None);
        queue.push(9, 1, ());
        assert!(queue.exceeded().is_some());
        assert_eq!(queue.pop().map(|event| event.at), Some(0));
        assert_eq!(queue.exceeded(), None);
    }

    #[test]
    fn more_events_than_the_bound_are_noticed() {
        let mut queue = Queue::default();
        (0..EVENTS_MAX).for_each(|_| queue.push(1, 0, ()));
        assert_eq!(queue.exceeded(), None);
        queue.push(0, 0, ());
        assert!(queue.exceeded().is_some());
        assert_eq!(queue.pop().map(|event| event.at), Some(0), "the earliest comes first");
    }
}
