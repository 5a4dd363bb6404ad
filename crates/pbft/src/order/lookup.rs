//! An index of the requests and batches that this replica holds, by digest (SR-2, PC-5).
//!
//! Requests change with every batch, and are rarely fetched. So the index is updated only when a BODY-FETCH arrives,
//! and ordering has no cost for it. Each batch is then indexed once, for all senders and repetitions: without that, a
//! few hundred bytes from a Byzantine replica would cost a search through the whole log (K14).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use quorate_wire::Digest;
use quorate_wire::id::{ClientId, SeqNum};

use crate::order::log::Log;
use crate::requests::table::RequestTable;

/// Where a request or batch is in the window. Entries may be out of date: a lookup also compares the
/// digest there. At most `f + 5` batches for each number, each of their requests, and one request for each lane.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    /// The batches at each number that are in the index.
    indexed: BTreeMap<SeqNum, Vec<Digest>>,
    batches: BTreeMap<Digest, SeqNum>,
    /// In which batches, and as which of their requests.
    requests: BTreeMap<Digest, (SeqNum, usize)>,
    /// Requests that wait for a batch.
    waiting: BTreeMap<Digest, ClientId>,
    /// Until then that is good enough.
    waiting_until: u64,
}

impl Lookup {
    /// Returns where the batch with this digest may be.
    pub(crate) fn batch(&self, digest: &Digest) -> Option<SeqNum> {
        self.batches.get(digest).copied()
    }

    /// Returns in which batch, and as which of its requests, the one with this digest may be.
    pub(crate) fn request(&self, digest: &Digest) -> Option<(SeqNum, usize)> {
        self.requests.get(digest).copied()
    }

    /// Returns for which client the request with this digest may wait.
    pub(crate) fn waiting(&self, digest: &Digest) -> Option<ClientId> {
        self.waiting.get(digest).copied()
    }

    /// Forgets what only mattered below a stable checkpoint, or in an earlier view.
    pub(crate) fn clear(&mut self) {
        self.indexed.clear();
        self.batches.clear();
        self.requests.clear();
    }

    /// Adds what has come since. Returns how many requests it has looked at.
    pub(crate) fn refresh(&mut self, log: &Log) -> usize {
        let mut seen = 0;
        for slot in log.iter() {
            let known = self.indexed.get(&slot.seq()).map_or(&[][..], Vec::as_slice);
            if slot.batches().map(|batch| batch.digest()).eq(known.iter().copied()) {
                continue;
            }
            let here: Vec<Digest> = slot.batches().map(|batch| batch.digest()).collect();
            for batch in slot.batches() {
                if known.contains(&batch.digest()) {
                    continue;
                }
                self.batches.insert(batch.digest(), slot.seq());
                self.requests.extend(batch.digests().enumerate().map(|(at, d)| (*d, (slot.seq(), at))));
                seen += batch.len();
            }
            self.indexed.insert(slot.seq(), here);
        }
        seen
    }

    /// Looks at what waits, if it has not done so for `good_for` nanoseconds.
    pub(crate) fn refresh_waiting(&mut self, now: u64, good_for: u64, clients: &RequestTable) {
        if now < self.waiting_until {
            return;
        }
        self.waiting_until = now.saturating_add(good_for);
        self.waiting.clear();
        self.waiting.extend(clients.pending().map(|(client, p)| (p.request().digest, client)));
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use quorate_wire::{Batch, Cluster};

    use super::*;
    use crate::order::slot::Proposal;

    /// Returns a log of 16 numbers with a proposal at each of the first `count`, of 100 requests.
    fn log(count: u8) -> Log {
        let mut log = Log::new(16, Cluster::tolerating(1).unwrap());
        for seq in 1..=count {
            let mut batch = Batch::default();
            for at in 0..100 {
                let mut digest = Digest([at; 32]);
                digest.0[0] = seq;
                batch.push_separate(digest, None);
            }
            let domains = quorate_wire::digest::Domains::new(quorate_wire::digest::ClusterId([0; 32]));
            batch.seal(&domains, &[]);
            let digest = batch.digest();
            let slot = log.slot_mut(SeqNum(u64::from(seq))).unwrap();
            slot.accept(Proposal { digest, batch: Some(Arc::new(batch)), authentic: true, since: 0 });
        }
        log
    }

    /// K14: asking again costs no search. Each batch is looked at once.
    #[test]
    fn k14_each_batch_is_looked_at_once() {
        let mut lookup = Lookup::default();
        assert_eq!(lookup.refresh(&log(8)), 800);
        assert_eq!(lookup.refresh(&log(8)), 0);
        assert_eq!(lookup.refresh(&log(10)), 200);
        assert_eq!((lookup.batches.len(), lookup.requests.len()), (10, 1000));
        let mut wanted = Digest([99; 32]);
        wanted.0[0] = 9;
        assert_eq!(lookup.requests.get(&wanted), Some(&(SeqNum(9), 99)));
        lookup.clear();
        assert_eq!(lookup.refresh(&log(1)), 100);
    }
}
