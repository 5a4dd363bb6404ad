//! The message log: one slot for each sequence number in the window `h < n <= h + L` [OSDI99 §4.2].

use alloc::vec::Vec;

use quorate_wire::Cluster;
use quorate_wire::id::{SeqNum, ViewNum};

use crate::order::slot::Slot;

/// The window of slots: `L` of them, in a ring whose size is a power of two, so that a number finds its
/// slot without a division.
#[derive(Debug)]
pub(crate) struct Log {
    slots: Vec<Slot>,
    /// The size of the ring, less 1.
    mask: u64,
    window: u64,
    stable: SeqNum,
    /// `H = h + L`.
    high: SeqNum,
    /// Lowest number that this view may use: the stable checkpoint or the NEW-VIEW's.
    low: SeqNum,
    /// The view that proposals, prepares and commits are of: the last one in which this replica was
    /// in normal operation.
    view: ViewNum,
    /// The view that the old commits are of.
    old_view: Option<ViewNum>,
    /// Slots above this number are as they were when they got their numbers.
    used_to: SeqNum,
}

impl Log {
    /// Returns an empty log above checkpoint 0.
    pub(crate) fn new(window: u64, cluster: Cluster) -> Self {
        let slots = (0..window.next_power_of_two()).map(|_| Slot::new(cluster.n())).collect();
        let mask = window.next_power_of_two() - 1;
        let none = SeqNum(0);
        let (view, old_view) = (ViewNum(0), None);
        let high = none.plus(window);
        let mut log =
            Self { slots, mask, window, stable: none, high, low: none, view, old_view, used_to: none };
        log.number_slots(SeqNum(0));
        log
    }

    /// Returns `h`, the last stable checkpoint.
    pub(crate) fn stable(&self) -> SeqNum {
        self.stable
    }

    /// Returns `H = h + L`.
    pub(crate) fn high(&self) -> SeqNum {
        mutant!(M24, self.high, self.low.plus(self.window))
    }

    /// Returns the lowest number that this view may use.
    pub(crate) fn low(&self) -> SeqNum {
        self.low
    }

    /// Raises the lowest number that this view may use.
    pub(crate) fn set_low(&mut self, low: SeqNum) {
        self.low = low.max(self.stable);
    }

    /// Returns the view that votes are of.
    pub(crate) fn view(&self) -> ViewNum {
        self.view
    }

    /// Returns the view before it, whose commits still count.
    pub(crate) fn old_view(&self) -> Option<ViewNum> {
        self.old_view
    }

    /// `in_window(n)`: "between a low water mark, h, and a high water mark, H" [OSDI99 §4.2]. The
    /// upper bound is this replica's own stable checkpoint plus L (DP-6).
    pub(crate) fn admits(&self, seq: SeqNum) -> bool {
        self.low < seq && seq <= self.high()
    }

    /// Returns whether there is a slot for `seq`: `h < n <= H`.
    pub(crate) fn holds(&self, seq: SeqNum) -> bool {
        self.stable < seq && seq <= self.high()
    }

    /// Returns the slot for `seq`.
    pub(crate) fn get(&self, seq: SeqNum) -> Option<&Slot> {
        if !self.holds(seq) {
            return None;
        }
        self.slots.get(self.index(seq))
    }

    /// Returns the slot for `seq`, whose verbs change it.
    pub(crate) fn slot_mut(&mut self, seq: SeqNum) -> Option<&mut Slot> {
        if !self.holds(seq) {
            return None;
        }
        self.used_to = self.used_to.max(seq);
        let index = self.index(seq);
        self.slots.get_mut(index)
    }

    /// Returns the last number of the window whose slot may hold anything.
    pub(crate) fn used_to(&self) -> SeqNum {
        self.used_to.min(self.high())
    }

    /// Returns the slots that may hold anything, from the lowest number to the highest.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.above(self.stable)
    }

    /// Returns those above `seq`.
    pub(crate) fn above(&self, seq: SeqNum) -> impl Iterator<Item = &Slot> {
        (self.stable.max(seq).0 + 1..=self.used_to().0).filter_map(|n| self.get(SeqNum(n)))
    }

    /// Returns the numbers of the slots that may hold anything, in order.
    pub(crate) fn used(&self) -> impl Iterator<Item = SeqNum> + use<> {
        (self.stable.0 + 1..=self.used_to().0).map(SeqNum)
    }

    /// Returns the numbers of the window in order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = SeqNum> + use<> {
        (self.stable.0 + 1..=self.high().0).map(SeqNum)
    }

    /// Drops everything at or below the stable checkpoint `seq` [OSDI99 §4.3].
    pub(crate) fn advance(&mut self, seq: SeqNum) {
        assert!(seq >= self.stable);
        let numbered = self.last_slot();
        self.stable = seq;
        self.high = seq.plus(self.window);
        self.low = self.low.max(seq);
        self.number_slots(numbered);
    }

    /// Starts a view: proposals and votes of the old one go, its commits stay for a while (PC-1), and the batches of
    /// `claims_max` claims for each number.
    pub(crate) fn start_view(&mut self, view: ViewNum, claims_max: usize) {
        self.old_view = Some(self.view);
        self.view = view;
        for slot in &mut self.slots {
            slot.start_view(claims_max);
        }
    }

    /// Ends the view that votes are of: each slot notes what it voted for.
    pub(crate) fn end_view(&mut self) {
        for seq in self.used() {
            let view = self.view;
            if let Some(slot) = self.slot_mut(seq) {
                slot.end_view(view);
            }
        }
    }

    /// Sets the view that votes are of, at a restart.
    pub(crate) fn restore_view(&mut self, view: ViewNum) {
        self.view = view;
    }

    fn index(&self, seq: SeqNum) -> usize {
        usize::try_from(seq.0 & self.mask).unwrap_or(0)
    }

    /// Returns the highest number that a slot has: at or above `H`.
    fn last_slot(&self) -> SeqNum {
        self.stable.plus(self.mask.saturating_add(1))
    }

    /// Gives each slot whose number has left the window the next one, above those up to `numbered`.
    fn number_slots(&mut self, numbered: SeqNum) {
        for n in numbered.max(self.stable).0 + 1..=self.last_slot().0 {
            let index = self.index(SeqNum(n));
            if let Some(slot) = self.slots.get_mut(index) {
                slot.reset(SeqNum(n));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever slot is changed is among those that are looked at when a checkpoint becomes stable, and none is above the
    /// window.
    #[test]
    fn used_slots_are_looked_at() {
        let mut log = Log::new(8, Cluster::tolerating(1).unwrap());
        assert_eq!(log.used_to(), SeqNum(0));
        for (seq, to) in [(5, 5), (3, 5), (9, 5), (8, 8)] {
            assert_eq!(log.slot_mut(SeqNum(seq)).is_some(), seq <= 8);
            assert_eq!(log.used_to(), SeqNum(to));
        }
        log.advance(SeqNum(4));
        assert_eq!((log.used_to(), log.high()), (SeqNum(8), SeqNum(12)));
        log.slot_mut(SeqNum(12));
        assert_eq!(log.used_to(), SeqNum(12));
    }
}
