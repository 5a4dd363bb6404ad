//! Answers to BODY-FETCH: requests and batches that others lack, found by their digest (SR-2, PC-5).

use alloc::vec::Vec;

use quorate_wire::Digest;
use quorate_wire::id::ReplicaId;
use quorate_wire::message::{BodyFetch, BodyKind, BodyMessage, Kind};

use crate::io::step::{Actions, Lsn, Now, Recipient, Reject};
use crate::replica::Replica;

impl Replica {
    /// Answers with what is here, within the peer's budget. Anyone may supply anyone (PC-5).
    #[cold]
    pub(super) fn on_body_fetch(&mut self, now: Now, from: ReplicaId, m: &BodyFetch<'_>, out: &mut Actions) {
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
        let waiting = || self.clients.get(self.lookup.waiting(digest)?)?.pending();
        if let Some(pending) = waiting().filter(|p| p.request().digest == *digest) {
            return Some(pending.request().frame().to_vec());
        }
        let (seq, at) = self.lookup.request(digest)?;
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
        // Within the budget, one long body takes as long as a request time-out (L70).
        let given = self.lookup.request(digest).is_some() && self.bodies.gives(to, digest);
        if !given && !self.peers.allow(to, now.mono_ns, frame.len(), &self.config) {
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
        let place = self.lookup.batch(digest);
        let in_log = place.and_then(|seq| self.log.get(seq)).and_then(|slot| slot.batch(digest));
        let here = in_log.or_else(|| self.bodies.batch(digest)).cloned().map(|batch| (place, batch));
        let archived = || self.archive.batch(digest).map(|(seq, batch)| (Some(seq), batch));
        let (place, batch) = here.or_else(archived)?;
        let (at, len) = (now.mono_ns, batch.payload().len());
        let executed = place.filter(|seq| *seq <= self.exec.executed());
        let copy = executed.is_some_and(|seq| self.peers.allow_copy(to, at, seq, len, &self.config));
        if !copy && !self.peers.allow(to, at, len, &self.config) {
            return Some(false);
        }
        out.send(Recipient::Replica(to), Kind::Body, Lsn(0), |w| BodyMessage::encode_batch(&batch, w));
        Some(true)
    }
}
