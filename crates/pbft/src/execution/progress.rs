//! How far execution has come [OSDI99 §4.2, §5.1], spec §6.

use alloc::collections::{BTreeMap, VecDeque};

use quorate_wire::Digest;
use quorate_wire::id::{ClientId, SeqNum, Timestamp};
use quorate_wire::reply::Reply;

use crate::io::step::Lsn;
use crate::order::pace::Pace;

/// How far execution has come. At most one batch is tentative, the one after the last final one (TE-1).
#[derive(Debug, Default)]
pub(crate) struct Execution {
    /// The last batch that was executed and has committed (`last_exec`).
    executed: SeqNum,
    /// The last batch handed to the executor, tentative or not.
    handed_over: SeqNum,
    /// The last batch handed over that has committed.
    final_to: SeqNum,
    /// The last batch whose results are back.
    returned: SeqNum,
    /// The origin of the state: the last transfer, the image at the start, or 0.
    base: SeqNum,
    /// Results up to here go to nobody: they come of the log of an earlier life, which has answered, or whose
    /// clients ask again.
    replayed_to: SeqNum,
    /// What a reply that reflects the last final batch has to wait for (RO-4).
    shown: Lsn,
    /// The batch in the overlay.
    tentative: Option<(SeqNum, Digest)>,
    /// Undone executions whose results are still to come, oldest first (EX-6). At most one a view.
    undone: VecDeque<SeqNum>,
    /// Replies that left before the results of their batches were back (PX-C). Bounded by the window.
    replied: BTreeMap<(SeqNum, ClientId, Timestamp), Digest>,
    /// The last choice agreed, in nanoseconds of the day (ND-2).
    last_choice: u64,
    /// The agreed time of the state that a transfer or a restart began with. Each batch with the choice of the one before
    /// is 1 ns after it, so this may be later than that choice.
    time_ns: u64,
    /// At least the agreed time now, as far as the choices tell.
    latest_ns: u64,
    /// Workers execute: agreement does not wait for them (PR-2, TM-1).
    has_workers: bool,
    /// What executions take.
    pace: Pace,
}

impl Execution {
    /// Returns what has executed nothing. `has_workers`: several requests are executed at a time.
    pub(crate) fn new(has_workers: bool) -> Self {
        Self { has_workers, ..Self::default() }
    }

    /// Returns the last batch that was executed and has committed.
    #[inline]
    pub(crate) fn executed(&self) -> SeqNum {
        self.executed
    }

    /// Returns the last batch that is no longer in progress (PR-2): it was executed and has committed. With workers, it
    /// has committed, and so have all before it.
    #[inline]
    pub(crate) fn done(&self) -> SeqNum {
        if self.has_workers { self.final_to } else { self.executed }
    }

    /// Returns whether a batch is no longer in progress as soon as it has committed.
    pub(crate) fn has_workers(&self) -> bool {
        self.has_workers
    }

    /// Returns the last batch handed to the executor, tentative or not.
    pub(crate) fn handed_over(&self) -> SeqNum {
        self.handed_over
    }

    /// Returns the last batch handed over that has committed.
    pub(crate) fn final_to(&self) -> SeqNum {
        self.final_to
    }

    /// Returns the batch in the overlay.
    pub(crate) fn tentative(&self) -> Option<(SeqNum, Digest)> {
        self.tentative
    }

    /// Returns what a reply that reflects the last final batch has to wait for (RO-4).
    pub(crate) fn shown(&self) -> Lsn {
        self.shown
    }

    /// Returns the earliest choice that a proposal may have (ND-1), in nanoseconds of the day: other replicas may have executed
    /// all that this state reflects.
    pub(crate) fn earliest_choice(&self) -> u64 {
        self.last_choice.max(self.time_ns)
    }

    /// Returns the last choice agreed, below which no choice is; and the latest one that is right where this replica's clock
    /// is behind: its primary may have begun with a state that has this time (ND-1, L133).
    pub(crate) fn choices(&self) -> (u64, u64) {
        (self.last_choice, self.latest_ns)
    }

    /// Notes how long the service was at work on a batch with this number of requests.
    pub(crate) fn note_took(&mut self, seq: SeqNum, requests: usize, took_ns: u64) {
        if took_ns > 0 && requests > 0 && !self.is_replayed(seq) {
            self.pace.note(requests, took_ns);
        }
    }

    /// Returns how many requests a batch may have to be executed within `within_ns` (PR-7).
    pub(crate) fn requests_within(&self, within_ns: u64) -> usize {
        self.pace.requests_within(within_ns)
    }

    /// Returns how long the service is at work on a batch.
    pub(crate) fn batch_ns(&self) -> u64 {
        self.pace.batch_ns()
    }

    /// Returns the last batch whose results are back, tentative or not.
    pub(crate) fn returned(&self) -> SeqNum {
        self.returned
    }

    /// Returns whether the results of this batch come of the log of an earlier life.
    pub(crate) fn is_replayed(&self, seq: SeqNum) -> bool {
        seq <= self.replayed_to
    }

    /// Returns whether the service is at work: results are still to come.
    pub(crate) fn is_running(&self) -> bool {
        self.returned < self.handed_over
    }

    /// Returns whether the primary may wait for the service: results are still to come, and no workers execute (TM-1).
    pub(crate) fn holds_up(&self) -> bool {
        !self.has_workers && self.is_running()
    }

    /// Returns whether all that was handed over is executed and committed.
    pub(crate) fn is_settled(&self) -> bool {
        self.executed == self.handed_over
    }

    /// The next batch goes to the executor and has not committed (TE-1).
    pub(crate) fn run_ahead(&mut self, seq: SeqNum, digest: Digest) {
        assert!(self.tentative.is_none() && seq == self.handed_over.next());
        self.handed_over = seq;
        self.tentative = Some((seq, digest));
    }

    /// The next batch, which has committed, goes to the executor. Replies wait for the record `shown` from here on.
    pub(crate) fn hand_over(&mut self, seq: SeqNum, shown: Lsn) {
        assert!(self.tentative.is_none() && seq == self.handed_over.next());
        self.handed_over = seq;
        self.final_to = seq;
        self.shown = shown;
    }

    /// The tentative batch has committed. Replies wait for the record `shown` from here on.
    pub(crate) fn merge(&mut self, shown: Lsn) {
        assert!(self.tentative.is_some());
        self.tentative = None;
        self.final_to = self.handed_over;
        self.shown = shown;
    }

    /// The tentative batch does not stay executed. Returns its number.
    pub(crate) fn undo(&mut self) -> Option<SeqNum> {
        let (seq, _) = self.tentative.take()?;
        self.handed_over = self.final_to;
        if self.returned >= seq {
            self.returned = self.final_to;
        } else {
            self.undone.push_back(seq);
        }
        Some(seq)
    }

    /// Results are back. Says whether they count: those of an undone execution do not.
    pub(crate) fn take_results(&mut self, seq: SeqNum) -> bool {
        if self.undone.front() == Some(&seq) {
            self.undone.pop_front();
            return false;
        }
        assert!(seq == self.returned.next()); // results come in the order of the batches
        self.returned = seq;
        true
    }

    /// A reply is about to leave before the results of its batch are back. Says whether it may: the batch is in progress and
    /// has committed.
    pub(crate) fn note_replied(&mut self, seq: SeqNum, reply: &Reply<'_>) -> bool {
        let may = seq > self.returned && seq <= self.final_to && self.undone.is_empty();
        if may {
            self.replied.insert((seq, reply.client, reply.timestamp), reply.digest);
        }
        may
    }

    /// Returns the last batch that a reply may have shown: the last one that was executed, or one that is executed while a
    /// reply has left (PX-C).
    pub(crate) fn replied_to(&self) -> SeqNum {
        self.replied.last_key_value().map_or(self.executed, |((seq, ..), _)| self.executed.max(*seq))
    }

    /// Returns whether this reply has left.
    pub(crate) fn has_replied(&self, seq: SeqNum, reply: &Reply<'_>) -> bool {
        self.replied.get(&(seq, reply.client, reply.timestamp)) == Some(&reply.digest)
    }

    /// Returns the next batch that is both executed and committed, and counts it.
    pub(crate) fn settle_next(&mut self) -> Option<SeqNum> {
        if self.executed >= self.returned.min(self.final_to) {
            return None;
        }
        self.executed = self.executed.next();
        let settled = (self.executed.next(), ClientId(0), Timestamp(0));
        while self.replied.first_key_value().is_some_and(|(reply, _)| *reply < settled) {
            self.replied.pop_first();
        }
        Some(self.executed)
    }

    /// A batch with this choice has become final (ND-2).
    pub(crate) fn agree_on(&mut self, choice: u64) {
        self.last_choice = self.last_choice.max(choice);
        self.latest_ns = choice.max(self.latest_ns.saturating_add(1));
    }

    /// The state that this replica begins with has this agreed time (ND-1, L133).
    pub(crate) fn note_time(&mut self, time_ns: u64) {
        self.time_ns = self.time_ns.max(time_ns);
        self.latest_ns = self.latest_ns.max(time_ns);
    }

    /// What was handed over so far comes of the log of an earlier life.
    pub(crate) fn note_replayed(&mut self) {
        self.replayed_to = self.final_to;
    }

    /// Replies wait for this record from here on.
    pub(crate) fn show_after(&mut self, shown: Lsn) {
        self.shown = shown;
    }

    /// Begins again after the state was replaced by the one after `seq` (ST-6).
    pub(crate) fn restart_at(&mut self, seq: SeqNum) {
        for pending in self.returned.0 + 1..=self.handed_over.0 {
            self.undone.push_back(SeqNum(pending));
        }
        self.base = seq;
        self.executed = seq;
        self.handed_over = seq;
        self.final_to = seq;
        self.returned = seq;
        self.tentative = None;
        self.replied.clear();
    }

    /// What holds between any two steps, where the window ends at `high`: I6.
    pub(crate) fn check(&self, high: SeqNum) {
        assert!(self.executed <= self.handed_over);
        // Above the window only by a transfer, whose checkpoint is not known to be stable yet.
        assert!(self.handed_over <= high.max(self.base));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Digest = Digest([1; 32]);

    /// EX-6: the results of an undone execution come and count no more; the batch is executed again.
    #[test]
    fn an_undone_batch_is_executed_again() {
        let mut exec = Execution::default();
        exec.run_ahead(SeqNum(1), D);
        assert_eq!(exec.undo(), Some(SeqNum(1)));
        exec.hand_over(SeqNum(1), Lsn(0));
        assert!(!exec.take_results(SeqNum(1)), "of the undone one");
        assert_eq!(exec.settle_next(), None);
        assert!(exec.take_results(SeqNum(1)));
        assert_eq!((exec.settle_next(), exec.settle_next()), (Some(SeqNum(1)), None));
    }

    /// Batches are executed in the order of their numbers.
    #[test]
    #[should_panic(expected = "handed_over.next()")]
    fn no_batch_is_left_out() {
        Execution::default().hand_over(SeqNum(2), Lsn(0));
    }
}
