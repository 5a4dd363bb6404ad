//! Execution and replies: in order, tentatively when prepared, reads without ordering, results from
//! one replica and digests from the others [OSDI99 §5.1], spec §6.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::id::{ClientId, ReplicaId, SeqNum, Timestamp};
use quorate_wire::message::{Kind, Reply};
use quorate_wire::reply::{Replies, Reply as Executed, ReplyOutcome};
use quorate_wire::{Batch, Digest};

use crate::io::config::COLLECT_FROM_MAX;
use crate::io::step::{Action, Actions, CachedReply, Lsn, Milestone, Now, Recipient};
use crate::order::choice;
use crate::order::slot::Slot;
use crate::replica::Replica;
use crate::requests::table::Client;

/// The most batches that are asked for at once.
const BATCHES_AT_ONCE: u64 = 16;

impl Replica {
    /// Passes batches to the executor as far as the log allows: after committed-local is true and "i's
    /// state reflects the sequential execution of all requests with lower sequence numbers"
    /// [OSDI99 §4.2]; or tentatively, one batch ahead of that [OSDI99 §5.1].
    pub(super) fn try_execute(&mut self, now: Now, out: &mut Actions) {
        while !self.target.is_active() {
            let progressed = match self.exec.tentative() {
                Some((seq, digest)) => self.settle_tentative(now, seq, digest, out),
                None => self.execute_next(now, out),
            };
            if !progressed {
                break;
            }
        }
        self.peers.note_stalled(now, self.exec.done(), self.config.pipeline, out);
    }

    /// Executes the next batch if it has committed, or tentatively if it has prepared.
    fn execute_next(&mut self, now: Now, out: &mut Actions) -> bool {
        let seq = self.exec.handed_over().next();
        let Some(slot) = self.log.get(seq) else { return false };
        if let Some(digest) = slot.committed() {
            let batch = self.find_batch(seq, &digest).filter(|batch| batch.is_complete()).cloned();
            let Some(batch) = batch else {
                self.seek_next(now, seq, &digest, out);
                return false;
            };
            // D5: the log alone must be able to execute it again.
            if slot.prepared().is_none_or(|(_, own)| own.digest() != digest)
                && let Some(slot) = self.log.slot_mut(seq)
            {
                self.promises.persist_batch(slot, &batch, out);
            }
            self.hand_over(seq, batch, out);
            if self.exec.has_workers() {
                self.note_done(now, seq);
                self.propose();
            }
            return true;
        }
        // TE-1: prepared in this view, and everything before it is executed and committed.
        let may = self.config.tentative && self.is_normal() && self.exec.is_settled();
        let prepared = slot.prepared().filter(|(view, _)| may && *view == self.views.view());
        let Some((_, batch)) = prepared else { return false };
        let batch = batch.clone();
        self.exec.run_ahead(seq, batch.digest());
        out.push(Action::Execute { seq, batch, tentative: true });
        if mutant!(M30, false, true) && self.config.is_checkpoint(seq) {
            out.push(Action::Checkpoint { seq }); // CHECKPOINT at tentative time
        }
        false
    }

    /// Asks for the next batch, which has committed, and for those behind it that are missing; or for its bodies.
    #[cold]
    fn seek_next(&mut self, now: Now, seq: SeqNum, digest: &Digest, out: &mut Actions) {
        if self.find_batch(seq, digest).is_some() {
            return self.bodies.seek(now, out);
        }
        let next = seq.0..seq.plus(BATCHES_AT_ONCE).0;
        let committed = next.map_while(|n| Some((SeqNum(n), self.log.get(SeqNum(n))?.committed()?)));
        let missing = committed.filter(|(seq, digest)| self.find_batch(*seq, digest).is_none());
        let missing: Vec<Digest> = missing.map(|(_, digest)| digest).collect();
        self.want_batches(now, seq, &missing, out);
    }

    /// Hands a committed batch to the executor.
    pub(super) fn hand_over(&mut self, seq: SeqNum, batch: Arc<Batch>, out: &mut Actions) {
        self.exec.hand_over(seq, self.shown_from(seq));
        // After a restart the log may not have a slot for it.
        let choice = choice::decode(batch.choice());
        out.push(Action::Execute { seq, batch, tentative: false });
        self.after_final(seq, choice, out);
    }

    /// Returns what replies wait for once `seq` is final. A replica never answers below what it has shown, also after
    /// a restart: so a restart must know what it has shown (RO-4, §14.1).
    fn shown_from(&self, seq: SeqNum) -> Lsn {
        self.log.get(seq).map_or(Lsn(0), Slot::shown_lsn)
    }

    /// The tentative batch has committed: its overlay becomes part of the state.
    fn settle_tentative(&mut self, now: Now, seq: SeqNum, digest: Digest, out: &mut Actions) -> bool {
        let Some(committed) = self.log.get(seq).and_then(Slot::committed) else { return false };
        if committed != digest {
            self.undo_tentative(out); // another batch committed in a later view
            return true;
        }
        self.exec.merge(self.shown_from(seq));
        out.push(Action::Merge { seq });
        let choice = self.find_batch(seq, &digest).and_then(|batch| choice::decode(batch.choice()));
        self.after_final(seq, choice, out);
        self.settle(now, out);
        true
    }

    /// Checkpoints are "generated periodically, when a request with a sequence number divisible by some constant
    /// (e.g., 100) is executed" [OSDI99 §4.3]: exactly after batch n, once it has committed (EX-4, TE-6).
    fn after_final(&mut self, seq: SeqNum, choice: Option<u64>, out: &mut Actions) {
        // Agreed now, and only now: batches in progress may arrive in any order (ND-2).
        if let Some(agreed) = choice {
            self.exec.agree_on(agreed);
        }
        if self.config.is_checkpoint(seq) {
            out.push(Action::Checkpoint { seq });
        }
    }

    /// Drops the overlay: "A request that has executed tentatively may abort if there is a view change
    /// and it is replaced" [OSDI99 §5.1], TE-4.
    pub(super) fn undo_tentative(&mut self, out: &mut Actions) {
        let Some(seq) = self.exec.undo() else { return };
        out.push(Action::Undo { after: self.exec.final_to() });
        out.report(Milestone::RolledBack { seq });
        mutant!(M82, self.lives.undo(self.exec.final_to()), ());
    }

    /// The results of a batch are back: "After executing the requested operation, replicas send a reply
    /// to the client" [OSDI99 §4.2].
    pub(super) fn on_executed(&mut self, now: Now, seq: SeqNum, replies: &Replies, out: &mut Actions) {
        if !self.exec.take_results(seq) {
            return;
        }
        let tentative = seq > self.exec.final_to();
        out.report(Milestone::Executed { seq, tentative });
        // TE-5: the client's certificate counts on q prepared replicas, so P goes first.
        let after = if tentative {
            mutant!(M53, self.log.get(seq).map_or(Lsn(0), Slot::prepared_lsn), Lsn(0))
        } else {
            self.shown()
        };
        let collects = are_spread(replies, usize::from(self.config.collect_from));
        for reply in replies.iter() {
            if reply.outcome == ReplyOutcome::Superseded {
                continue; // nothing was done, so there is nothing to say
            }
            if let Some(replica) = reply.client.replica() {
                mutant!(M191, (), self.recovery.note_request(replica, reply.timestamp, seq));
                if let (ReplyOutcome::Executed, Some(result)) = (reply.outcome, reply.result) {
                    self.lives.note_result(seq, self.cluster, replica, reply.timestamp, result);
                }
                if tentative {
                    continue; // RC-6: committed replies only
                }
            }
            if self.exec.is_replayed(seq) || self.exec.has_replied(seq, &reply) {
                continue;
            }
            if reply.outcome == ReplyOutcome::Overtaken {
                // It says how far the client's lanes had come, as an older reply would (RP-5).
                let reached = reply.result.and_then(|bytes| bytes.first_chunk()).copied();
                let reached = Timestamp(reached.map_or(0, u64::from_le_bytes));
                self.send_reply(None, reply.client, reached, Digest::ZERO, tentative, None, after, out);
                continue;
            }
            let full = self.sends_full(reply.replier, reply.result.map_or(0, <[u8]>::len));
            let result = reply.result.filter(|_| full);
            let by = reply.replier.map(ReplicaId).filter(|by| collects && self.cluster.contains(*by));
            self.send_reply(by, reply.client, reply.timestamp, reply.digest, tentative, result, after, out);
        }
        if collects {
            // They go into the datagrams that carry the replies.
            self.piggyback.flush(self.log.view(), out);
        }
        if !tentative {
            self.settle(now, out);
        }
        self.stop_if_reached();
        self.propose(); // no batch may be in progress any more
        self.watch_recoveries(now, out);
        self.try_execute(now, out);
    }

    /// The page that could not be read has come before the fetch of a later state began, and execution has reached that
    /// state: it is not fetched (ST-8, L66).
    fn stop_if_reached(&mut self) {
        let executed = self.exec.executed();
        if !self.target.is_repairing()
            && let Some(target) = self.target.get().filter(|(seq, _)| *seq <= executed)
        {
            self.target.reach(target);
        }
    }

    /// A request of a committed batch has run, and its result is certain: the reply need not wait for the others of the
    /// batch (PX-C).
    pub(super) fn on_replied(&mut self, seq: SeqNum, reply: &Executed<'_>, out: &mut Actions) {
        if self.exec.is_replayed(seq) || !self.exec.note_replied(seq, reply) {
            return;
        }
        let full = self.sends_full(reply.replier, reply.result.map_or(0, <[u8]>::len));
        let result = reply.result.filter(|_| full);
        let whose = (reply.client, reply.timestamp);
        self.send_reply(None, whose.0, whose.1, reply.digest, false, result, self.shown(), out);
    }

    /// What a reply that reflects committed state waits for (RO-4).
    pub(super) fn shown(&self) -> Lsn {
        mutant!(M54, self.exec.shown(), Lsn(0))
    }

    /// RP-1: the replica that the client names returns the result, the others its digest.
    pub(super) fn sends_full(&self, replier: Option<u16>, len: usize) -> bool {
        !self.config.digest_replies
            || len < self.config.small_reply
            || replier.is_none_or(|replier| replier == self.id.0)
    }

    /// A replica that rejoins goes to the latest view that f + 1 replies name (RC-7). One of these is of a correct replica,
    /// which must be there after a crash, too; before others have confirmed its start it may not record that it has left a
    /// view (L52).
    #[allow(clippy::too_many_arguments, reason = "the fields of one message")]
    pub(super) fn send_reply(
        &self,
        by: Option<ReplicaId>,
        client: ClientId,
        timestamp: Timestamp,
        digest: Digest,
        tentative: bool,
        result: Option<&[u8]>,
        after: Lsn,
        out: &mut Actions,
    ) {
        let reply = Reply { view: self.views.view(), timestamp, client, tentative, digest, result };
        let after = match client.replica() {
            Some(_) if self.recovery.waits_for_echoes() => return,
            Some(_) => after.max(mutant!(M172, self.promises.last(), after)),
            None => after,
        };
        let to = match (client.replica(), by) {
            (Some(replica), _) => Recipient::Replica(replica),
            (None, None) => Recipient::Client(client),
            (None, Some(by)) => Recipient::Collected { client, by },
        };
        if to != Recipient::Replica(self.id) {
            out.send(to, Kind::Reply, after, |w| reply.encode(w));
        }
    }

    /// Records batches that are both executed and committed by now.
    fn settle(&mut self, now: Now, out: &mut Actions) {
        while let Some(seq) = self.exec.settle_next() {
            let committed = self.log.get(seq).and_then(Slot::committed);
            let batch = committed.and_then(|digest| self.find_batch(seq, &digest)).cloned();
            if let Some(batch) = batch {
                for request in batch.requests() {
                    let (client, timestamp) = (request.client, request.timestamp);
                    self.clients.note_served(client, timestamp, request.operation.len(), now.mono_ns);
                    self.clients.note_executed(client, timestamp);
                    if !batch.separate().is_empty() {
                        self.bodies.release(client, timestamp);
                    }
                }
            }
            if !self.exec.has_workers() {
                self.note_done(now, seq);
            }
        }
        self.settle_lives(now, out);
        self.serve_reads(out);
        self.propose();
        self.watch_requests(now, out);
    }

    /// A batch is no longer in progress (PR-2): that is progress of this view.
    fn note_done(&mut self, now: Now, seq: SeqNum) {
        let proposal = self.log.get(seq).and_then(Slot::proposal);
        let took = proposal.map(|proposal| now.mono_ns.saturating_sub(proposal.since));
        self.watch.note_executed(seq, took, now.mono_ns);
        self.views.note_executed(seq);
        self.evidence.forget_req_rejects();
        mutant!(M46, (), self.clients.restart_clock(now.mono_ns));
    }

    /// Brings the cached reply to a client that asks again (RP-2). It is committed by now.
    pub(super) fn on_cached(&mut self, client: ClientId, reply: Option<CachedReply<'_>>, out: &mut Actions) {
        let executed = self.clients.get(client).map_or(Timestamp(0), Client::executed);
        if let Some(lane) = self.clients.get_mut(client) {
            lane.note_cached(reply.map_or(Timestamp(0), |reply| reply.timestamp));
        }
        let Some(reply) = reply else { return };
        // The overlay may hold a newer one, which is not committed: it is not shown. Where the lane has lost its entry, the
        // reply says how far the client's lanes had come (L42).
        if reply.timestamp <= executed || reply.digest == Digest::ZERO {
            self.send_reply(
                None,
                client,
                reply.timestamp,
                reply.digest,
                false,
                reply.result,
                self.shown(),
                out,
            );
        }
    }

    /// Batches have become final: lives that their recovery requests have opened begin.
    fn settle_lives(&mut self, now: Now, out: &mut Actions) {
        let begun = self.lives.settle(self.exec.executed());
        if !begun && !self.lives.is_void() {
            return;
        }
        if begun {
            self.lives.note_news();
            // RC-10: from the table, so that all replicas expect the same null batches (L152).
            if let Some(table) = self.lives.newest_known() {
                self.recovery.note_lives(table.entries(), self.exec.executed());
            }
            self.watch_recoveries(now, out);
        }
        if self.judge_view() {
            for seq in self.log.numbers() {
                self.advance(now, seq, out);
            }
        }
    }
}

/// Maximum number of requests for each client of a batch whose replies are collected, on average.
const COLLECTED_MAX: usize = 2;

/// Returns whether a batch has requests of at least this many clients, and few of each: then a datagram for each client, in
/// place of one from each replica, costs less than the collection (RP-6). Replies to many requests of a client share a
/// datagram anyway. The first requests tell enough. 0: never.
fn are_spread(replies: &Replies, count: usize) -> bool {
    let (mut seen, mut len) = ([0; COLLECT_FROM_MAX], 0);
    let looked = replies.len().min(COLLECT_FROM_MAX * COLLECTED_MAX);
    if count == 0 || looked < count {
        return false;
    }
    let least = count.max(looked.div_ceil(COLLECTED_MAX));
    for principal in replies.iter().take(looked).map(|reply| reply.client.principal()) {
        if seen.iter().take(len).all(|other| *other != principal) {
            let Some(room) = seen.get_mut(len) else { return true };
            (*room, len) = (principal, len + 1);
            if len >= least {
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are_collected(clients: u64, each: u16, count: usize) -> bool {
        let mut replies = Replies::new();
        for (principal, lane) in (0..clients).flat_map(|client| (0..each).map(move |lane| (client, lane))) {
            replies.push(Executed {
                client: ClientId::new(principal, lane),
                timestamp: Timestamp(1),
                digest: Digest::ZERO,
                replier: None,
                outcome: ReplyOutcome::Executed,
                result: None,
            });
        }
        are_spread(&replies, count)
    }

    /// RP-6: replies to many requests of a client share a datagram anyway. With 1,000 lanes in four processes, the
    /// collection of replies took three tenths of the throughput.
    #[test]
    fn replies_to_few_clients_or_many_requests_of_each_are_not_collected() {
        let each_max = u16::try_from(COLLECTED_MAX).unwrap();
        for (clients, each, expected) in
            [(3, 1, false), (4, 1, true), (4, each_max, true), (4, each_max + 1, false), (4, 250, false)]
        {
            assert_eq!(are_collected(clients, each, 4), expected, "{each} of each of {clients} clients");
        }
        assert!(are_collected(100, 1, COLLECT_FROM_MAX));
        assert!(!are_collected(100, 1, 0), "switched off");
    }
}
