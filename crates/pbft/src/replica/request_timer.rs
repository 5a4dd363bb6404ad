//! The request timer: how long a backup waits for the primary (spec §12.1; [OSDI99 §4.4]).

use quorate_wire::id::SeqNum;
use quorate_wire::message::{Kind, Proof, ReqAck, SuspectReason};

use crate::io::config::Config;
use crate::io::step::{Actions, Lsn, Now, Recipient, Timer};
use crate::replica::Replica;

/// A backup that stays alone with a request says so after a time that doubles each time, so often at most.
const VOUCH_DOUBLINGS_MAX: u32 = 20;

/// The most waits, caused by this replica itself, that are ignored without progress between them (TM-5): claims of
/// Byzantine replicas about themselves must not keep a backup quiet permanently.
const EXCUSES_MAX: u32 = 4;
/// A request may be passed over by this many windows of proposals while the window is full (B8).
const PASSED_OVER_MAX: u64 = 4;

/// What a backup watches. The timers are re-armed lazily: one that runs out early looks at what is
/// waiting now and is set again, which is cheaper than moving it with every request.
#[derive(Debug)]
pub(crate) struct Watch {
    /// When the request timer is to run out, if it runs.
    request_armed: Option<u64>,
    relay_armed: bool,
    /// Since when there has been an accepted proposal without progress in executing.
    busy_since: Option<u64>,
    /// The highest number accepted in this view.
    pub(crate) accepted: SeqNum,
    /// Times that a wait was forgiven since something was executed last.
    excuses: u32,
    /// A slowly moving estimate of the 99th percentile from proposal to execution, in nanoseconds.
    p99_ns: u64,
    /// When records became durable last.
    durable_at: u64,
    /// What is up to here was not proposed and executed in the ordinary way, and says nothing about that.
    odd_to: SeqNum,
    timeout_min_ns: u64,
    timeout_max_ns: u64,
}

impl Watch {
    /// Returns a watch with nothing to watch.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            request_armed: None,
            relay_armed: false,
            busy_since: None,
            accepted: SeqNum(0),
            excuses: 0,
            p99_ns: config.request_timeout_min_ns / 4,
            durable_at: 0,
            odd_to: SeqNum(0),
            timeout_min_ns: config.request_timeout_min_ns,
            timeout_max_ns: config.request_timeout_max_ns,
        }
    }

    /// Returns `T_REQ` as it has adapted (TM-6): four times what one batch in a hundred exceeds, within the bounds,
    /// so that a primary cannot talk it up. It takes f + 1 that find so at once (LV-2).
    pub(crate) fn request_timeout(&self) -> u64 {
        self.p99_ns.saturating_mul(4).clamp(self.timeout_min_ns, self.timeout_max_ns)
    }

    /// Records that a proposal for `seq` was accepted, after this replica had `executed` so far. A NEW-VIEW also brings
    /// what is executed already: for that nobody waits.
    pub(crate) fn note_accepted(&mut self, seq: SeqNum, executed: SeqNum, now: u64) {
        if self.accepted <= executed {
            self.busy_since = None; // a transfer may have brought what was waited for
        }
        self.accepted = self.accepted.max(seq);
        if mutant!(M99, seq > executed, true) {
            self.busy_since.get_or_insert(now);
        }
    }

    /// Records that batches up to `seq` will take longer than usual: this replica is behind, has started again, or
    /// has them from a NEW-VIEW. That is no reason to wait longer for the next primary.
    pub(crate) fn note_odd(&mut self, seq: SeqNum) {
        self.odd_to = self.odd_to.max(seq);
    }

    /// Records that `seq` was executed, `took` nanoseconds after it was accepted.
    pub(crate) fn note_executed(&mut self, seq: SeqNum, took: Option<u64>, now: u64) {
        self.busy_since = (seq < self.accepted).then_some(now);
        self.excuses = 0;
        // Up by an eighth of the difference, down by a hundredth of that: where the two balance,
        // one sample in a hundred lies above. No single one counts as more than twice the estimate: a stall is
        // not what batches take.
        if let Some(took) = took.filter(|_| seq > self.odd_to) {
            if took > self.p99_ns {
                self.p99_ns += (took - self.p99_ns).min(self.p99_ns) / 8;
            } else {
                self.p99_ns -= (self.p99_ns - took) / 800;
            }
        }
    }

    /// Records that records have become durable.
    pub(crate) fn note_durable(&mut self, now: u64) {
        self.durable_at = now;
    }

    /// Gives what has been accepted the time from now on (TM-5).
    pub(crate) fn restart_clock(&mut self, now: u64) {
        self.busy_since = self.busy_since.map(|_| now);
    }

    /// Begins a view with nothing accepted. What it takes over goes up to `last`.
    pub(crate) fn start_view(&mut self, last: SeqNum) {
        self.accepted = SeqNum(0);
        self.busy_since = None;
        self.excuses = 0;
        self.note_odd(last);
    }
}

impl Replica {
    /// Returns how long the primary of this view has: longer after failed views (TM-3).
    pub(crate) fn patience(&self) -> u64 {
        self.watch.request_timeout().max(self.views.patience_ns())
    }

    /// Returns whether this replica has a primary to watch.
    fn watches(&self) -> bool {
        self.is_normal() && !self.is_primary() && !self.transfer.is_active() && !self.recovery.is_active()
    }

    /// Returns since when something has waited for the primary: the oldest request that it has not proposed, or
    /// the first accepted proposal that is not executed.
    ///
    /// What is proposed waits for its turn, not for the primary: under overload that may take longer than any
    /// time-out, and continues as long as something is executed now and then, or the service is at work (A23). So does
    /// what cannot be proposed because `W` proposals are in progress; but not while others are proposed in its place
    /// forever (B8).
    fn waiting_since(&mut self) -> Option<u64> {
        let pipeline = self.config.pipeline;
        let (accepted, executed) = (self.watch.accepted, self.exec.executed);
        let at_work = self.exec.is_running();
        let full = at_work || accepted >= executed.plus(pipeline);
        let oldest = self.clients.oldest_unproposed().filter(|pending| {
            !full || accepted > pending.passed_over_from.plus(PASSED_OVER_MAX.saturating_mul(pipeline))
        });
        // Results reset the clock as they arrive.
        let busy_since =
            self.watch.busy_since.filter(|_| !at_work && mutant!(M99, accepted > executed, true));
        [oldest.map(|pending| pending.since), busy_since].into_iter().flatten().min()
    }

    /// Arms the request timer if something waits: "A backup starts a timer when it receives a request
    /// and the timer is not already running" [OSDI99 §4.4].
    pub(crate) fn watch_requests(&mut self, now: Now, out: &mut Actions) {
        if self.watch.request_armed.is_some() || !self.watches() {
            return;
        }
        if self.waiting_since().is_some() {
            self.arm_request_timer(now.mono_ns.saturating_add(self.patience()), out);
        }
    }

    fn arm_request_timer(&mut self, at: u64, out: &mut Actions) {
        self.watch.request_armed = Some(at);
        Self::set_timer(out, Timer::Request, at);
    }

    /// The request timer ran out: suspect, or wait for what is waiting now.
    pub(crate) fn on_request_timer(&mut self, now: Now, out: &mut Actions) {
        let armed = self.watch.request_armed.take();
        if !self.watches() {
            return;
        }
        let Some(since) = self.waiting_since() else { return };
        let patience = self.patience();
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
            self.arm_request_timer(now.mono_ns.saturating_add(self.patience()), out);
        }
    }

    /// Returns how long to wait on if this replica itself is why something waits (TM-5): it stood still, so that its timer
    /// comes `late`; or f + 1 others, so a correct one, have executed what it has not, or it lacks their CHECKPOINTs, and
    /// it asks them; or the primary lacks them, and is told; or its own disk has been at work for half the time (TM-8).
    /// Never more than [`EXCUSES_MAX`] times without progress.
    fn own_fault(&mut self, now: Now, late: u64, out: &mut Actions) -> Option<u64> {
        let patience = self.patience();
        let behind =
            self.peers.executed_by(self.cluster.weak()) > self.exec.executed || self.is_window_full();
        let behind = behind || self.primary_lacks_checkpoints(out);
        let disk = self.disk_works_since(now.mono_ns.saturating_sub(patience / 2));
        if !(behind || disk || late >= patience / 2) || self.watch.excuses >= EXCUSES_MAX {
            return None;
        }
        // A sync takes as long as it takes; nobody else can make it look longer.
        let wait = if disk { patience.saturating_mul(1 << self.watch.excuses) } else { patience };
        self.watch.excuses += 1;
        if behind {
            self.status_soon(now, out);
        }
        Some(wait)
    }

    /// Returns whether a sync of the own log has been under way since `then`: this replica's votes wait for it.
    fn disk_works_since(&self, then: u64) -> bool {
        !self.is_durable(self.last_lsn()) && self.watch.durable_at <= then
    }

    /// Sends overdue requests to all replicas, so that all correct timers run (TM-2), and that they are authentic
    /// here. A replica that has just restarted may be the only one left that can vouch, and would otherwise stay
    /// alone.
    fn forward_overdue(&mut self, now: Now, out: &mut Actions) {
        const FORWARDED_BYTES_MAX: usize = 64 << 10;
        let before = now.mono_ns.saturating_sub(self.patience());
        let mut bytes = 0;
        for (client, pending) in self.clients.pending() {
            bytes += pending.request.frame().len();
            if bytes > FORWARDED_BYTES_MAX {
                break;
            }
            if pending.timed && pending.since <= before {
                let request = &pending.request;
                out.forward(Recipient::All, Kind::Request, Lsn(0), request.frame());
                if request.proof != Proof::Signed {
                    let ack = ReqAck { client, timestamp: request.timestamp, digest: request.digest };
                    out.send(Recipient::All, Kind::ReqAck, Lsn(0), |w| ack.encode(w));
                }
            }
        }
    }

    /// Arms the timer for requests that no timer covers yet.
    pub(crate) fn watch_relays(&mut self, now: Now, out: &mut Actions) {
        if !self.watch.relay_armed && self.watches() {
            self.watch.relay_armed = true;
            Self::set_timer(out, Timer::Relay, now.mono_ns.saturating_add(self.patience() / 4));
        }
    }

    /// A quarter of the time-out has passed: vouch for what has not been proposed; at half of it,
    /// send it to the primary again (TM-2).
    pub(crate) fn on_relay_timer(&mut self, now: Now, out: &mut Actions) {
        self.watch.relay_armed = false;
        if !self.watches() {
            return;
        }
        let patience = self.patience();
        let mut due = self.take_scratch();
        let mut more = false;
        for (client, pending) in self.clients.pending() {
            let waited = now.mono_ns.saturating_sub(pending.since);
            more |= !pending.timed || !pending.relayed_again;
            // Said again, but less and less often: nobody else may ever hold it (B31).
            let wait = (patience / 4) << pending.vouched.min(VOUCH_DOUBLINGS_MAX);
            if !pending.timed && waited >= wait {
                due.push(client.0);
            }
        }
        for client in due.iter().copied() {
            self.vouch(now, quorate_wire::ClientId(client), out);
        }
        self.put_scratch(due);
        let primary = Recipient::Replica(self.primary());
        for (_, pending) in self.clients.pending_mut() {
            if !pending.relayed_again && now.mono_ns.saturating_sub(pending.since) >= patience / 2 {
                pending.relayed_again = true;
                out.forward(primary, Kind::Request, Lsn(0), pending.request.frame());
            }
        }
        if more {
            self.watch_relays(now, out);
        }
    }
}
