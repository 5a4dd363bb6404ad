//! What is still to happen, and how much of it a run may have: a cluster whose messages multiply without end fails,
//! instead of filling the memory of this machine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Event;
use crate::network::NodeId;

/// The most events of a run that are still to happen.
const EVENTS_MAX: usize = 400_000;
/// The most bytes of frames on their way.
const BYTES_MAX: usize = 128 << 20;

/// An event in the queue: earliest first, then in the order in which they were put there.
#[derive(Debug)]
pub(crate) struct Scheduled {
    pub(crate) at: u64,
    order: u64,
    pub(crate) node: NodeId,
    pub(crate) event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The events of a world that are still to happen.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    events: BinaryHeap<Reverse<Scheduled>>,
    /// How many there have ever been.
    order: u64,
    /// Bytes of the frames that are still to arrive.
    bytes: usize,
}

impl Queue {
    /// Adds an event.
    pub(crate) fn push(&mut self, at: u64, node: NodeId, event: Event) {
        let order = self.next_order();
        self.put(Scheduled { at, order, node, event });
    }

    /// Returns a number above all that it has returned, and that events have.
    pub(crate) fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Puts an event back.
    pub(crate) fn put(&mut self, event: Scheduled) {
        self.bytes += bytes(&event);
        self.events.push(Reverse(event));
    }

    /// Takes the next event.
    pub(crate) fn pop(&mut self) -> Option<Scheduled> {
        let Reverse(event) = self.events.pop()?;
        self.bytes -= bytes(&event);
        Some(event)
    }

    /// Returns the next event.
    pub(crate) fn peek(&self) -> Option<&Scheduled> {
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

fn bytes(event: &Scheduled) -> usize {
    if let Event::Arrive(frame) = &event.event { frame.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_than_the_bound_are_noticed_until_they_have_arrived() {
        let mut queue = Queue::default();
        let half = || Event::Arrive(vec![0; BYTES_MAX / 2].into());
        (0..2).for_each(|at| queue.push(at, NodeId::at(0), half()));
        assert_eq!(queue.exceeded(), None);
        queue.push(9, NodeId::at(0), Event::Arrive(vec![0].into()));
        assert!(queue.exceeded().is_some());
        assert_eq!(queue.pop().map(|event| event.at), Some(0));
        assert_eq!(queue.exceeded(), None);
    }

    #[test]
    fn more_events_than_the_bound_are_noticed() {
        let mut queue = Queue::default();
        (0..EVENTS_MAX).for_each(|_| queue.push(1, NodeId::at(0), Event::Wake));
        assert_eq!(queue.exceeded(), None);
        queue.push(0, NodeId::at(0), Event::Wake);
        assert!(queue.exceeded().is_some());
        assert_eq!(queue.pop().map(|event| event.at), Some(0), "the earliest comes first");
    }
}
