//! Read-only requests: answered without ordering, where what was shown before stays true [OSDI99 §5.1], spec §6.

use quorate_wire::Digest;
use quorate_wire::batch::Body;
use quorate_wire::message::Request;

use crate::io::step::{Action, Actions, Lsn, Milestone, ReadResult, Reject, Ticket};
use crate::replica::Replica;

impl Replica {
    /// A read-only request: "Replicas execute the request immediately [...] after checking that the
    /// request is properly authenticated [...] and that the request is in fact read-only"
    /// [OSDI99 §5.1]; the service judges the latter (RO-1).
    pub(super) fn on_read_request(&mut self, request: &Request<'_>, out: &mut Actions) {
        if mutant!(M95, self.recovery.is_active(), false) || self.target.is_repairing() {
            return out.reject(Reject::ReadNotServed);
        }
        let Some(client) = self.clients.entry(request.client) else { return out.reject(Reject::OverQuota) };
        let body = client.store(request);
        // PB-4: where all has committed, too: the others that were asked may lack this one's commit.
        self.piggyback.flush(self.log.view(), out);
        if self.may_read() && self.reads.may_start(body.client) {
            return self.start_read(body, out);
        }
        let Ok(old) = self.reads.queue(body) else { return out.reject(Reject::ReadNotServed) };
        out.report(Milestone::ReadQueued { client: request.client });
        if let Some(old) = old
            && let Some(client) = self.clients.get_mut(old.client)
        {
            client.recycle(old);
        }
    }

    /// RO-1, RO-2, RO-4 (I19): in normal operation, nothing tentative, and past the barrier. Where only committed batches
    /// are executed, the executor decides which of them a read waits for (PX-8).
    fn may_read(&self) -> bool {
        let past = mutant!(M31, self.exec.executed() >= self.reads.floor(), true);
        let settled = mutant!(M32, self.exec.tentative().is_none(), true);
        self.is_normal()
            && !self.target.is_active()
            && mutant!(M95, !self.recovery.is_active(), true)
            // §14.3: this may be an old disk, which has forgotten what it has shown.
            && mutant!(M66, !self.recovery.waits_for_echoes(), true)
            && settled
            && past
            && (!self.config.tentative || self.exec.executed() == self.exec.final_to())
    }

    fn start_read(&mut self, request: Body, out: &mut Actions) {
        let Some(ticket) = self.reads.start(&request, !self.config.tentative) else {
            return out.reject(Reject::ReadNotServed);
        };
        out.push(Action::Read { ticket, request });
    }

    /// Serves the reads that waited, after a commit, a new view, a transfer or another read (RO-3).
    pub(super) fn serve_reads(&mut self, out: &mut Actions) {
        while !self.reads.is_empty()
            && self.may_read()
            && let Some(body) = self.reads.next_waiting()
        {
            if self.clients.get(body.client).is_none_or(|c| c.executed() < body.timestamp) {
                self.start_read(body, out);
            }
        }
    }

    /// A read is done.
    pub(super) fn on_read(&mut self, ticket: Ticket, result: ReadResult<'_>, out: &mut Actions) {
        let Some(request) = self.reads.finish(ticket) else { return };
        let (client, timestamp) = (request.client, request.timestamp);
        match result {
            ReadResult::Done { result, digest } => {
                out.report(Milestone::ReadServed { client });
                let full = self.sends_full(request.replier, result.len());
                let result = Some(result).filter(|_| full);
                self.send_reply(None, client, timestamp, digest, false, result, self.shown(), out);
            }
            // The client need not wait until it is out of patience (RO-1, DV-41). No result has this digest.
            ReadResult::NeedsOrder => {
                out.report(Milestone::ReadRefused { client });
                self.send_reply(None, client, timestamp, Digest::ZERO, false, None, Lsn(0), out);
            }
        }
        if let Some(lane) = self.clients.get_mut(client) {
            lane.recycle(request);
        }
        self.serve_reads(out);
    }
}
