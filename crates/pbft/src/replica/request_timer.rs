//! The request timer: how long a backup waits for the primary (spec §12.1; [OSDI99 §4.4]).

use quorate_wire::batch::Body;
use quorate_wire::message::{Kind, Proof, ReqAck, SuspectReason};

use crate::io::step::{Actions, Lsn, Now, Recipient, Timer};
use crate::replica::Replica;

/// A request may be passed over by this many windows of proposals (B8), and by more if there are many requests.
const PASSED_OVER_MAX: u64 = 4;

impl Replica {
    /// Returns `T_REQ`.
    pub(super) fn request_timeout(&self) -> u64 {
        self.watch.request_timeout(self.exec.batch_ns())
    }

    /// Returns how long the primary of this view has: longer after failed views (TM-3), and if the own disk is slow (TM-8).
    pub(super) fn patience(&self, now: Now) -> u64 {
        self.request_timeout().max(self.views.patience_ns()).max(self.watch.syncs_ns(now.mono_ns))
    }

    /// Returns whether this replica has a primary to watch.
    pub(super) fn watches(&self) -> bool {
        self.is_normal() && !self.is_primary() && !self.target.is_active() && !self.recovery.is_active()
    }

    /// Returns since when something has waited for the primary: a request that it has not proposed, or the first accepted
    /// proposal that is not executed.
    ///
    /// What is proposed waits for its turn, not for the primary: under overload that may take longer than any
    /// time-out, and continues as long as something is executed now and then, or the service is at work (A23). So does
    /// what cannot be proposed because `W` proposals are in progress; but not while others are proposed in its place
    /// forever (B8). When a batch has been executed, the next proposal is still on its way, and a replica that executes
    /// looks at its timers right then: so the time counts from when `W` were last in progress.
    fn waiting_since(&mut self, now: u64) -> Option<u64> {
        let pipeline = self.config.pipeline;
        let (accepted, done) = (self.watch.accepted(), self.exec.done());
        let at_work = self.exec.holds_up();
        let full_at = self.watch.full_at(done, at_work || self.is_held_up_by_workers(), now);
        let patient_to = PASSED_OVER_MAX.saturating_mul(pipeline);
        let unproposed = self.clients.unproposed(self.exec.executed()).map(|waits| {
            let late = accepted > waits.passed_over_from().plus(patient_to);
            let passed_over =
                if late { mutant!(M114, waits.since_unfair(), Some(waits.since())) } else { None };
            passed_over.unwrap_or(waits.since().max(full_at))
        });
        let unproposed = unproposed.min();
        // Results reset the clock as they arrive.
        let busy_since = self.watch.busy_since().filter(|_| !at_work && mutant!(M99, accepted > done, true));
        [unproposed, busy_since].into_iter().flatten().min()
    }

    /// Returns whether the primary has proposed up to the high water mark. While workers hang at more than f replicas,
    /// no later checkpoint becomes stable. CHECKPOINTs that are only missing here are sent again (SM-1).
    fn is_held_up_by_workers(&self) -> bool {
        self.exec.has_workers() && self.watch.accepted() >= self.log.high()
    }

    /// Arms the request timer if something waits: "A backup starts a timer when it receives a request
    /// and the timer is not already running" [OSDI99 §4.4].
    pub(super) fn watch_requests(&mut self, now: Now, out: &mut Actions) {
        if !self.watches() {
            return;
        }
        let patience = self.patience(now);
        // One that was set while the disk was slow may be far away.
        let latest = now.mono_ns.saturating_add(patience.saturating_mul(2));
        if self.watch.is_request_armed(latest) {
            return;
        }
        if self.waiting_since(now.mono_ns).is_some() {
            self.arm_request_timer(now.mono_ns.saturating_add(patience), out);
        }
    }

    fn arm_request_timer(&mut self, at: u64, out: &mut Actions) {
        self.watch.arm_request(at);
        Self::set_timer(out, Timer::Request, at);
    }

    /// The request timer ran out: suspect, or wait for what is waiting now.
    pub(super) fn on_request_timer(&mut self, now: Now, out: &mut Actions) {
        let armed = self.watch.take_request();
        if !self.watches() {
            return;
        }
        let Some(since) = self.waiting_since(now.mono_ns) else { return };
        let patience = self.patience(now);
        let deadline = since.saturating_add(patience);
        if now.mono_ns < deadline {
            return self.arm_request_timer(deadline, out);
        }
        let late = armed.map_or(0, |at| now.mono_ns.saturating_sub(at));
        if let Some(wait) = self.own_fault(now, late, out) {
            return self.arm_request_timer(now.mono_ns.saturating_add(wait), out);
        }
        // "If the timer of backup i expires in view v, the backup starts a view change": here it says
        // so first and continues working, until f + 1 replicas agree (LV-2).
        self.forward_overdue(now, out);
        self.suspect(now, SuspectReason::Timeout, out);
        if self.watches() {
            self.arm_request_timer(now.mono_ns.saturating_add(self.patience(now)), out);
        }
    }

    /// Returns how long to wait on if this replica itself is why something waits (TM-5): it stood still, so that its timer
    /// comes `late`; or f + 1 others, so a correct one, have executed what it has not, or it lacks their CHECKPOINTs, and
    /// it asks them; or the primary lacks them, and is told. Never more than `EXCUSES_MAX` times without progress.
    fn own_fault(&mut self, now: Now, late: u64, out: &mut Actions) -> Option<u64> {
        let patience = self.patience(now);
        let behind = self.peers.executed_by(self.cluster.weak()) > self.exec.done() || self.is_window_full();
        let behind = behind || self.primary_lacks_checkpoints(out);
        if !(behind || late >= patience / 2) || !self.watch.excuse() {
            return None;
        }
        if behind {
            self.peers.send_soon(now, out);
        }
        Some(patience)
    }

    /// Passes a request on, and says that it is authentic here: the receiver may be unable to check it, and may have lost
    /// the REQ-ACKs before (L130). A signed one says so itself.
    pub(super) fn pass_on(to: Recipient, request: &Body, out: &mut Actions) {
        out.forward(to, Kind::Request, Lsn(0), request.frame());
        if request.proof != Proof::Signed {
            let ack = ReqAck { client: request.client, timestamp: request.timestamp, digest: request.digest };
            out.send(to, Kind::ReqAck, Lsn(0), |w| ack.encode(w));
        }
    }

    /// Sends overdue requests to all replicas, so that all correct timers run (TM-2), and that they are authentic
    /// here. A replica that has just restarted may be the only one left that can vouch, and would otherwise stay
    /// alone.
    fn forward_overdue(&mut self, now: Now, out: &mut Actions) {
        const FORWARDED_BYTES_MAX: usize = 64 << 10;
        let before = now.mono_ns.saturating_sub(self.patience(now));
        let mut bytes = 0;
        for (_, pending) in self.clients.pending() {
            let request = pending.request();
            let len = request.frame().len();
            if pending.is_timed() && pending.since() <= before && bytes + len <= FORWARDED_BYTES_MAX {
                bytes += len;
                Self::pass_on(Recipient::All, request, out);
            }
        }
    }
}
