//! Counts the messages and bytes of state transfers. The protocol does not depend on these figures.

use quorate_service::transfer::Progress;
use quorate_wire::SeqNum;
use quorate_wire::message;

/// Answers that arrive later than this after the end of a transfer are not counted for it, in nanoseconds.
const LATE_NS: u64 = 1_000_000_000;

/// The last transfer, and the total of all.
#[derive(Debug, Default)]
pub(crate) struct TransferMeter {
    seq: SeqNum,
    began_ns: u64,
    /// None while it runs.
    ended_ns: Option<u64>,
    /// Pages and bytes that have arrived.
    came: (u64, u64),
    /// Pages of the state at its end; before that, at its beginning.
    state_pages: u64,
    transfers: u64,
    since_start: (u64, u64),
}

impl TransferMeter {
    /// State is fetched up to `seq`: a transfer begins, or one in progress has another target.
    pub(crate) fn aim(&mut self, seq: SeqNum, runs: bool, now_ns: u64, state_pages: u64) {
        if !runs || self.transfers == 0 {
            let (transfers, since_start) = (self.transfers.saturating_add(1), self.since_start);
            *self = Self { began_ns: now_ns, state_pages, transfers, since_start, ..Self::default() };
        }
        self.seq = seq;
    }

    /// A message has brought `pages` pages, or none and digests. It counts even if it is useless, a duplicate, or
    /// false. Requested data may arrive after the transfer is over.
    pub(crate) fn note(&mut self, pages: u64, bytes: usize, now_ns: u64) {
        let is_its = self.ended_ns.is_none_or(|ended| now_ns.saturating_sub(ended) < LATE_NS);
        if self.transfers == 0 || !is_its {
            return;
        }
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        for sum in [&mut self.came, &mut self.since_start] {
            *sum = (sum.0.saturating_add(pages), sum.1.saturating_add(bytes));
        }
    }

    /// The state of `seq` is installed.
    pub(crate) fn end(&mut self, seq: SeqNum, now_ns: u64, state_pages: u64) {
        (self.seq, self.ended_ns, self.state_pages) = (seq, Some(now_ns), state_pages);
    }

    /// Returns the figures. None: there was no transfer.
    pub(crate) fn says(
        &self,
        now_ns: u64,
        page_bytes: u64,
        progress: Option<Progress>,
    ) -> Option<message::TransferStats> {
        if self.transfers == 0 {
            return None;
        }
        let of_pages = self.state_pages.max(progress.map_or(0, |progress| progress.total));
        Some(message::TransferStats {
            seq: self.seq,
            pages: self.came.0,
            bytes: self.came.1,
            of_pages,
            of_bytes: of_pages.saturating_mul(page_bytes),
            took_ms: self.ended_ns.unwrap_or(now_ns).saturating_sub(self.began_ns) / 1_000_000,
            transfers: self.transfers,
            since_start: self.since_start,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Duplicates count twice, also after a change of the target, and so do late messages; those long after the end
    /// do not count for the transfer.
    #[test]
    fn everything_that_comes_is_counted() {
        let mut meter = TransferMeter::default();
        assert_eq!(meter.says(0, 4096, None), None);
        meter.note(1, 4096, 0);
        meter.aim(SeqNum(8), false, SECOND, 10);
        meter.note(0, 80, SECOND);
        meter.note(1, 4096, SECOND);
        meter.aim(SeqNum(16), true, 2 * SECOND, 10);
        meter.note(1, 4096, 2 * SECOND);
        let progress = Progress { seq: SeqNum(16), fetched: 2, total: 40 };
        let says = meter.says(3 * SECOND, 4096, Some(progress)).unwrap();
        assert_eq!((says.seq, says.pages, says.bytes), (SeqNum(16), 2, 8272));
        assert_eq!((says.of_pages, says.of_bytes, says.took_ms), (40, 40 * 4096, 2000));
        meter.end(SeqNum(16), 3 * SECOND, 50);
        meter.note(1, 4096, 3 * SECOND + LATE_NS - 1);
        meter.note(1, 4096, 3 * SECOND + LATE_NS);
        let says = meter.says(9 * SECOND, 4096, None).unwrap();
        assert_eq!((says.pages, says.of_pages, says.took_ms, says.transfers), (3, 50, 2000, 1));
        // The next one starts from zero, the sum continues.
        meter.aim(SeqNum(24), false, 9 * SECOND, 50);
        meter.note(1, 4096, 9 * SECOND);
        let says = meter.says(9 * SECOND, 4096, None).unwrap();
        assert_eq!((says.pages, says.transfers, says.since_start), (1, 2, (4, 8272 + 2 * 4096)));
    }
}
