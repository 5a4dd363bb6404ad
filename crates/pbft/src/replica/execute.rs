//! Execution and replies: in order, tentatively when prepared, reads without ordering, results from
//! one replica and digests from the others [OSDI99 §5.1], spec §6.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;

use quorate_wire::batch::Body;
use quorate_wire::id::{ClientId, SeqNum, Timestamp};
use quorate_wire::message::{Kind, Reply, Request};
use quorate_wire::reply::{Outcome, Replies};
use quorate_wire::{Batch, Digest};

use crate::io::step::{
    Action, Actions, CachedReply, Lsn, Milestone, Now, ReadResult, Recipient, Reject, Ticket,
};
use crate::order::choice;
use crate::replica::Replica;
use crate::requests::table::{CLIENT_BYTES_MAX, lanes_of};

/// How far execution has come. At most one batch is tentative, the one after the last final one (TE-1).
#[derive(Debug, Default)]
pub(crate) struct Execution {
    /// The last batch that was executed and has committed (`last_exec`).
    pub(crate) executed: SeqNum,
    /// The last batch handed to the executor, tentative or not.
    pub(crate) handed_over: SeqNum,
    /// The last batch handed over that has committed.
    pub(crate) final_to: SeqNum,
    /// The last batch whose results are back.
    returned: SeqNum,
    /// The origin of the state: the last transfer, the image at the start, or 0.
    pub(crate) base: SeqNum,
    /// Results up to here go to nobody: they come of the log of an earlier life, which has answered, or whose
    /// clients ask again.
    pub(crate) replayed_to: SeqNum,
    /// What a reply that reflects the last final batch has to wait for (RO-4).
    pub(crate) shown: Lsn,
    /// The batch in the overlay.
    pub(crate) tentative: Option<(SeqNum, Digest)>,
    /// Undone executions whose results are still to come, oldest first (EX-6). At most one a view.
    undone: VecDeque<SeqNum>,
}

impl Execution {
    /// Returns whether the service is at work: results are still to come.
    pub(crate) fn is_running(&self) -> bool {
        self.returned < self.handed_over
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
    }
}

/// A read in progress.
#[derive(Clone, Copy, Debug)]
struct Reading {
    ticket: Ticket,
    client: ClientId,
    timestamp: Timestamp,
    replier: Option<u16>,
}

/// Read-only requests. At most one waiting for each client (RO-3).
#[derive(Debug, Default)]
pub(crate) struct Reads {
    waiting: BTreeMap<ClientId, Body>,
    under_way: VecDeque<Reading>,
    next_ticket: u64,
    /// Reads are served from here on: what the view took over must have been executed, and what was shown in an
    /// earlier life (RO-4).
    pub(crate) floor: SeqNum,
    /// What is known to have been shown, whatever a view takes over: committed, stable or fetched.
    pub(crate) shown: SeqNum,
}

/// The most reads of one principal that wait.
const CLIENT_READS_MAX: usize = 4096;
/// The most reads under way.
const READS_UNDER_WAY_MAX: usize = 65_536;

impl Reads {
    /// Says whether a principal may have this read waiting as well: its lanes and bytes are bounded (SR-1).
    fn has_room_for(&self, body: &Body) -> bool {
        let waiting = self.waiting.range(lanes_of(body.client.principal()));
        let others = waiting.filter(|(id, _)| **id != body.client).map(|(_, body)| body.frame().len());
        let (count, bytes) = others.fold((0, 0), |(count, bytes), len| (count + 1, bytes + len));
        count < CLIENT_READS_MAX && bytes + body.frame().len() <= CLIENT_BYTES_MAX
    }

    /// Says whether no read waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Replica {
    /// Passes batches to the executor as far as the log allows: after committed-local is true and "i's
    /// state reflects the sequential execution of all requests with lower sequence numbers"
    /// [OSDI99 §4.2]; or tentatively, one batch ahead of that [OSDI99 §5.1].
    pub(crate) fn try_execute(&mut self, now: Now, out: &mut Actions) {
        while !self.transfer.is_active() {
            let progressed = match self.exec.tentative {
                Some((seq, digest)) => self.settle_tentative(now, seq, digest, out),
                None => self.execute_next(now, out),
            };
            if !progressed {
                return;
            }
        }
    }

    /// Executes the next batch if it has committed, or tentatively if it has prepared.
    fn execute_next(&mut self, now: Now, out: &mut Actions) -> bool {
        let seq = self.exec.handed_over.next();
        let Some(slot) = self.log.get(seq) else { return false };
        if let Some(digest) = slot.committed {
            let batch = self.find_batch(seq, &digest).filter(|batch| batch.is_complete()).cloned();
            let Some(batch) = batch else {
                if self.find_batch(seq, &digest).is_none() {
                    self.want_batch(now, digest, out);
                } else {
                    self.seek_bodies(now, out);
                }
                return false;
            };
            // D5: the log alone must be able to execute it again.
            if slot.prepared.as_ref().is_none_or(|(_, own)| own.digest() != digest) {
                self.persist_batch(seq, &batch, out);
            }
            self.hand_over(seq, batch, out);
            return true;
        }
        // TE-1: prepared in this view, and everything before it is executed and committed.
        let may = self.config.tentative && self.is_normal() && self.exec.executed == self.exec.handed_over;
        let prepared = slot.prepared.as_ref().filter(|(view, _)| may && *view == self.view);
        let Some((_, batch)) = prepared else { return false };
        let batch = batch.clone();
        self.exec.handed_over = seq;
        self.exec.tentative = Some((seq, batch.digest()));
        out.push(Action::Execute { seq, batch, tentative: true });
        if mutant!(M30, false, true) && self.config.is_checkpoint(seq) {
            out.push(Action::Checkpoint { seq }); // CHECKPOINT at tentative time
        }
        false
    }

    /// Hands a committed batch to the executor.
    pub(crate) fn hand_over(&mut self, seq: SeqNum, batch: Arc<Batch>, out: &mut Actions) {
        self.exec.handed_over = seq;
        self.exec.final_to = seq;
        self.note_shown(seq);
        out.push(Action::Execute { seq, batch, tentative: false });
        self.after_final(seq, out);
    }

    /// Notes what replies wait for from here on. A replica never answers below what it has shown, also after
    /// a restart: so a restart must know what it has shown (RO-4, §14.1).
    fn note_shown(&mut self, seq: SeqNum) {
        self.exec.shown = self.log.get(seq).map_or(Lsn(0), crate::order::log::Slot::shown_lsn);
    }

    /// The tentative batch has committed: its overlay becomes part of the state.
    fn settle_tentative(&mut self, now: Now, seq: SeqNum, digest: Digest, out: &mut Actions) -> bool {
        let Some(committed) = self.log.get(seq).and_then(|slot| slot.committed) else { return false };
        if committed != digest {
            self.undo_tentative(out); // another batch committed in a later view
            return true;
        }
        self.exec.tentative = None;
        self.exec.final_to = seq;
        self.note_shown(seq);
        out.push(Action::Merge { seq });
        self.after_final(seq, out);
        self.settle(now, out);
        true
    }

    /// Checkpoints are "generated periodically, when a request with a sequence number divisible by some constant
    /// (e.g., 100) is executed" [OSDI99 §4.3]: exactly after batch n, once it has committed (EX-4, TE-6).
    fn after_final(&mut self, seq: SeqNum, out: &mut Actions) {
        // Agreed now, and only now: batches in progress may arrive in any order (ND-2).
        let batch = self.log.get(seq).and_then(|slot| slot.committed).and_then(|d| self.find_batch(seq, &d));
        if let Some(agreed) = batch.and_then(|batch| choice::decode(batch.choice())) {
            self.last_choice = self.last_choice.max(agreed);
        }
        if self.config.is_checkpoint(seq) {
            out.push(Action::Checkpoint { seq });
        }
    }

    /// Drops the overlay: "A request that has executed tentatively may abort if there is a view change
    /// and it is replaced" [OSDI99 §5.1], TE-4.
    pub(crate) fn undo_tentative(&mut self, out: &mut Actions) {
        let Some((seq, _)) = self.exec.tentative.take() else { return };
        out.push(Action::Undo { after: self.exec.final_to });
        out.report(Milestone::RolledBack { seq });
        self.exec.handed_over = self.exec.final_to;
        mutant!(M82, self.lives.undo(self.exec.final_to), ());
        if self.exec.returned >= seq {
            self.exec.returned = self.exec.final_to;
        } else {
            self.exec.undone.push_back(seq);
        }
    }

    /// The results of a batch are back: "After executing the requested operation, replicas send a reply
    /// to the client" [OSDI99 §4.2].
    pub(crate) fn on_executed(&mut self, now: Now, seq: SeqNum, replies: &Replies, out: &mut Actions) {
        if self.exec.undone.front() == Some(&seq) {
            self.exec.undone.pop_front();
            return;
        }
        assert!(seq == self.exec.returned.next()); // results come in the order of the batches
        self.exec.returned = seq;
        let tentative = seq > self.exec.final_to;
        out.report(Milestone::Executed { seq, tentative });
        // TE-5: the client's certificate counts on q prepared replicas, so P goes first.
        let after = if tentative {
            mutant!(M53, self.log.get(seq).map_or(Lsn(0), |slot| slot.prepared_lsn), Lsn(0))
        } else {
            self.shown()
        };
        for reply in replies.iter() {
            let refused = matches!(reply.outcome, Outcome::Refused | Outcome::Overtaken);
            self.clients.note_outcome(reply.client, reply.timestamp, refused);
            if reply.outcome == Outcome::Superseded {
                continue; // nothing was done, so there is nothing to say
            }
            if let Some(replica) = reply.client.replica() {
                self.recovery.note_request(replica, reply.timestamp, seq);
                if let (Outcome::Executed, Some(result)) = (reply.outcome, reply.result) {
                    self.note_life(seq, replica, reply.timestamp, result);
                }
                if tentative {
                    continue; // RC-6: committed replies only
                }
            }
            if seq <= self.exec.replayed_to {
                continue;
            }
            if reply.outcome == Outcome::Overtaken {
                // It says how far the client's lanes had come, as an older reply would (RP-5).
                let reached = reply.result.and_then(|bytes| bytes.first_chunk()).copied();
                let reached = Timestamp(reached.map_or(0, u64::from_le_bytes));
                self.send_reply(reply.client, reached, Digest::ZERO, tentative, None, after, out);
                continue;
            }
            let full = self.sends_full(reply.replier, reply.result.map_or(0, <[u8]>::len));
            let result = reply.result.filter(|_| full);
            self.send_reply(reply.client, reply.timestamp, reply.digest, tentative, result, after, out);
        }
        if !tentative {
            self.settle(now, out);
        }
        self.watch_recoveries(now, out);
        self.try_execute(now, out);
    }

    /// What a reply that reflects committed state waits for (RO-4).
    fn shown(&self) -> Lsn {
        mutant!(M54, self.exec.shown, Lsn(0))
    }

    /// RP-1: the replica that the client names returns the result, the others its digest.
    fn sends_full(&self, replier: Option<u16>, len: usize) -> bool {
        !self.config.digest_replies
            || len < self.config.small_reply
            || replier.is_none_or(|replier| replier == self.id.0)
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one message")]
    fn send_reply(
        &self,
        client: ClientId,
        timestamp: Timestamp,
        digest: Digest,
        tentative: bool,
        result: Option<&[u8]>,
        after: Lsn,
        out: &mut Actions,
    ) {
        let reply = Reply { view: self.view, timestamp, client, tentative, digest, result };
        let to = match client.replica() {
            Some(replica) => Recipient::Replica(replica),
            None => Recipient::Client(client),
        };
        if to != Recipient::Replica(self.id) {
            out.send(to, Kind::Reply, after, |w| reply.encode(w));
        }
    }

    /// Records batches that are both executed and committed by now.
    fn settle(&mut self, now: Now, out: &mut Actions) {
        let reached = self.exec.returned.min(self.exec.final_to);
        while self.exec.executed < reached {
            let seq = self.exec.executed.next();
            self.exec.executed = seq;
            let slot = self.log.get(seq);
            let batch = slot
                .and_then(|slot| slot.committed.and_then(|digest| self.find_batch(seq, &digest)))
                .cloned();
            let took =
                slot.and_then(|slot| slot.proposal.as_ref()).map(|p| now.mono_ns.saturating_sub(p.since));
            if let Some(batch) = batch {
                for request in batch.requests() {
                    self.clients.note_executed(request.client, request.timestamp);
                    if !batch.separate().is_empty() {
                        self.bodies.release(request.client, request.timestamp);
                    }
                }
            }
            self.watch.note_executed(seq, took, now.mono_ns);
            self.views.note_executed(seq, self.is_normal());
            mutant!(M46, (), self.clients.restart_clock(now.mono_ns));
        }
        self.settle_lives(now, out);
        self.serve_reads(out);
        self.propose(now, out);
        self.watch_requests(now, out);
    }

    /// Brings the cached reply to a client that asks again (RP-2). It is committed by now.
    pub(crate) fn on_cached(&mut self, client: ClientId, reply: Option<CachedReply<'_>>, out: &mut Actions) {
        let Some(reply) = reply else { return };
        let executed = self.clients.get(client).map_or(Timestamp(0), |c| c.executed);
        // The overlay may hold a newer one, which is not committed: it is not shown.
        if reply.timestamp <= executed {
            self.send_reply(client, reply.timestamp, reply.digest, false, reply.result, self.shown(), out);
        }
    }

    /// A read-only request: "Replicas execute the request immediately [...] after checking that the
    /// request is properly authenticated [...] and that the request is in fact read-only"
    /// [OSDI99 §5.1]; the service judges the latter (RO-1).
    pub(crate) fn on_read_request(&mut self, request: &Request<'_>, out: &mut Actions) {
        if mutant!(M95, self.recovery.is_active(), false) || self.transfer.is_repairing() {
            return out.reject(Reject::ReadNotServed);
        }
        let Some(client) = self.clients.entry(request.client) else { return out.reject(Reject::OverQuota) };
        let body = client.store(request);
        // PB-4: where all has committed, too: the others that were asked may lack this one's commit.
        self.flush_commits(out);
        if self.may_read() {
            return self.start_read(body, out);
        }
        if self.reads.waiting.len() >= READS_UNDER_WAY_MAX && !self.reads.waiting.contains_key(&body.client)
            || !self.reads.has_room_for(&body)
        {
            return out.reject(Reject::ReadNotServed);
        }
        out.report(Milestone::ReadQueued { client: body.client });
        if let Some(old) = self.reads.waiting.insert(body.client, body)
            && let Some(client) = self.clients.get_mut(old.client)
        {
            client.recycle(old);
        }
    }

    /// RO-1, RO-2, RO-4 (I19): in normal operation, nothing tentative, and past the barrier.
    fn may_read(&self) -> bool {
        let past = mutant!(M31, self.exec.executed >= self.reads.floor, true);
        let settled = mutant!(M32, self.exec.tentative.is_none(), true);
        self.is_normal()
            && !self.transfer.is_active()
            && mutant!(M95, !self.recovery.is_active(), true)
            // §14.3: this may be an old disk, which has forgotten what it has shown.
            && mutant!(M66, !self.recovery.waits_for_echoes(), true)
            && settled
            && past
            && self.exec.executed == self.exec.final_to
    }

    fn start_read(&mut self, request: Body, out: &mut Actions) {
        if self.reads.under_way.len() >= READS_UNDER_WAY_MAX {
            return out.reject(Reject::ReadNotServed);
        }
        let ticket = Ticket(self.reads.next_ticket);
        self.reads.next_ticket += 1;
        let (client, timestamp, replier) = (request.client, request.timestamp, request.replier);
        self.reads.under_way.push_back(Reading { ticket, client, timestamp, replier });
        out.push(Action::Read { ticket, request });
    }

    /// Serves the reads that waited, after a commit, a new view or a transfer (RO-3).
    pub(crate) fn serve_reads(&mut self, out: &mut Actions) {
        while self.may_read() {
            let Some((_, body)) = self.reads.waiting.pop_first() else { return };
            let fresh = self.clients.get(body.client).is_none_or(|c| c.executed < body.timestamp);
            if fresh {
                self.start_read(body, out);
            }
        }
    }

    /// A read is done.
    pub(crate) fn on_read(&mut self, ticket: Ticket, result: ReadResult<'_>, out: &mut Actions) {
        let Some(at) = self.reads.under_way.iter().position(|r| r.ticket == ticket) else { return };
        let Some(reading) = self.reads.under_way.remove(at) else { return };
        match result {
            ReadResult::Done { result, digest } => {
                out.report(Milestone::ReadServed { client: reading.client });
                let full = self.sends_full(reading.replier, result.len());
                let result = Some(result).filter(|_| full);
                let after = self.shown();
                self.send_reply(reading.client, reading.timestamp, digest, false, result, after, out);
            }
            // The client need not wait until it is out of patience (RO-1, DV-41). No result has this digest.
            ReadResult::NeedsOrder => {
                out.report(Milestone::ReadRefused { client: reading.client });
                let (client, timestamp) = (reading.client, reading.timestamp);
                self.send_reply(client, timestamp, Digest::ZERO, false, None, Lsn(0), out);
            }
        }
    }
}
