//! What BODY-FETCH asks for, found by its digest: an index of the requests that this replica holds (SR-2, PC-5).
//!
//! Requests change with every batch, and are rarely fetched. So the index is updated only when a BODY-FETCH arrives,
//! and ordering has no cost for it. Each batch is then indexed once, for all senders and repetitions: without that, a
//! few hundred bytes from a Byzantine replica would cost a search through the whole log (K14).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use quorate_wire::Digest;
use quorate_wire::id::{ClientId, ReplicaId, SeqNum};
use quorate_wire::message::{BodyFetch, BodyKind, BodyMessage, Kind};

use crate::io::step::{Actions, Lsn, Now, Recipient, Reject};
use crate::order::log::Log;
use crate::replica::Replica;
use crate::requests::table::ClientTable;

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
    /// Forgets what only mattered below a stable checkpoint, or in an earlier view.
    pub(crate) fn clear(&mut self) {
        self.indexed.clear();
        self.batches.clear();
        self.requests.clear();
    }

    /// Adds what has come since. Returns how many requests it has looked at.
    fn refresh(&mut self, log: &Log) -> usize {
        let mut seen = 0;
        for slot in log.iter() {
            let known = self.indexed.get(&slot.seq).map_or(&[][..], Vec::as_slice);
            if slot.batches().map(|batch| batch.digest()).eq(known.iter().copied()) {
                continue;
            }
            let here: Vec<Digest> = slot.batches().map(|batch| batch.digest()).collect();
            for batch in slot.batches() {
                if known.contains(&batch.digest()) {
                    continue;
                }
                self.batches.insert(batch.digest(), slot.seq);
                self.requests.extend(batch.digests().enumerate().map(|(at, d)| (*d, (slot.seq, at))));
                seen += batch.len();
            }
            self.indexed.insert(slot.seq, here);
        }
        seen
    }

    /// Looks at what waits, if it has not done so for `good_for` nanoseconds.
    fn refresh_waiting(&mut self, now: u64, good_for: u64, clients: &ClientTable) {
        if now < self.waiting_until {
            return;
        }
        self.waiting_until = now.saturating_add(good_for);
        self.waiting.clear();
        self.waiting.extend(clients.pending().map(|(client, p)| (p.request.digest, client)));
    }
}

impl Replica {
    /// Answers with what is here, within the peer's budget. Anyone may supply anyone (PC-5).
    pub(crate) fn on_body_fetch(&mut self, now: Now, from: ReplicaId, m: &BodyFetch<'_>, out: &mut Actions) {
        let asked = m.digests().count();
        if !self.peers.allow_lookups(from, now.mono_ns, asked, &self.config) {
            return out.reject(Reject::TooSoon);
        }
        self.lookup.refresh(&self.log);
        if m.kind == BodyKind::Request {
            // An asker that is told nothing asks again after this time.
            self.lookup.refresh_waiting(now.mono_ns, self.config.fetch_retry_ns, &self.clients);
        }
        for digest in m.digests() {
            let answered = match m.kind {
                BodyKind::Request => self.send_request_body(now, from, &digest, out),
                BodyKind::Batch => self.send_batch_body(now, from, &digest, out),
            };
            if answered == Some(false) {
                return out.reject(Reject::TooSoon);
            }
        }
    }

    /// Returns the frame of a request, as it stands in the best copy that is here.
    fn find_request(&self, digest: &Digest) -> Option<Vec<u8>> {
        if let Some(body) = self.bodies.held(digest) {
            return Some(body.frame().to_vec());
        }
        let waiting = || self.clients.get(*self.lookup.waiting.get(digest)?)?.pending.as_ref();
        if let Some(pending) = waiting().filter(|p| p.request.digest == *digest) {
            return Some(pending.request.frame().to_vec());
        }
        let (seq, at) = *self.lookup.requests.get(digest)?;
        let mut batches = self.log.get(seq)?.batches();
        batches.find_map(|batch| batch.request_at(at).filter(|(d, _)| *d == digest)).map(|(_, f)| f.to_vec())
    }

    /// Returns none where the request is not here, and whether the budget allowed it.
    fn send_request_body(
        &mut self,
        now: Now,
        to: ReplicaId,
        digest: &Digest,
        out: &mut Actions,
    ) -> Option<bool> {
        let here = self.find_request(digest);
        let frame = here.or_else(|| Some(self.archive.body(digest)?.frame().to_vec()))?;
        if !self.peers.allow(to, now.mono_ns, frame.len(), &self.config) {
            return Some(false);
        }
        out.send(Recipient::Replica(to), Kind::Body, Lsn(0), |w| BodyMessage::encode_request(&frame, w));
        Some(true)
    }

    fn send_batch_body(
        &mut self,
        now: Now,
        to: ReplicaId,
        digest: &Digest,
        out: &mut Actions,
    ) -> Option<bool> {
        let place = self.lookup.batches.get(digest);
        let in_log = place.and_then(|seq| self.log.get(*seq)).and_then(|slot| slot.batch(digest));
        let here = in_log.or_else(|| self.bodies.batch(digest)).cloned();
        let batch = here.or_else(|| self.archive.batch(digest))?;
        if !self.peers.allow(to, now.mono_ns, batch.payload().len(), &self.config) {
            return Some(false);
        }
        out.send(Recipient::Replica(to), Kind::Body, Lsn(0), |w| BodyMessage::encode_batch(&batch, w));
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use quorate_wire::{Batch, Cluster};

    use super::*;
    use crate::order::log::Proposal;

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
            let slot = log.get_mut(SeqNum(u64::from(seq))).unwrap();
            slot.proposal =
                Some(Proposal { digest, batch: Some(Arc::new(batch)), authentic: true, since: 0 });
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
