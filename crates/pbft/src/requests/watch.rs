//! What the request timer watches: proposals and how long they take (spec §12.1; [OSDI99 §4.4]).

use quorate_wire::id::SeqNum;

use crate::io::config::{Config, MS};

/// The most waits, caused by this replica itself, that are ignored without progress between them (TM-5): claims of
/// Byzantine replicas about themselves must not keep a backup quiet permanently.
const EXCUSES_MAX: u32 = 4;
/// How many syncs may follow each other, here and at others, while a request waits (TM-8).
const SYNCS: u64 = 16;
/// How long the time of a sync counts, if there is no later one: a disk that is at rest is soon unknown.
const SYNC_COUNTS_NS: u64 = 60_000 * MS;

/// What a backup watches. The timers are re-armed lazily: one that runs out early looks at what is
/// waiting now and is set again, which is cheaper than moving it with every request.
#[derive(Debug)]
pub(crate) struct Watch {
    /// When the request timer is to run out, if it runs.
    request_armed: Option<u64>,
    relay_armed: bool,
    /// Since when there has been an accepted proposal in progress without one that is done.
    busy_since: Option<u64>,
    /// When the primary had last proposed all that it may, or this replica could not know (TM-1).
    full_at: u64,
    /// The highest number accepted in this view.
    accepted: SeqNum,
    /// Times that a wait was forgiven since something was executed last.
    excuses: u32,
    /// A slowly moving estimate of the 99th percentile from proposal to execution, in nanoseconds.
    p99_ns: u64,
    /// Since when records wait for the own disk, if any do.
    records_since: Option<u64>,
    /// How long they waited lately, at the most.
    sync_ns: u64,
    /// When records became durable last.
    durable_at: u64,
    /// What is up to here was not proposed and executed in the ordinary way, and says nothing about that.
    odd_to: SeqNum,
    pipeline: u64,
    timeout_min_ns: u64,
    timeout_max_ns: u64,
    patience_max_ns: u64,
}

impl Watch {
    /// Returns a watch with nothing to watch.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            request_armed: None,
            relay_armed: false,
            busy_since: None,
            full_at: 0,
            accepted: SeqNum(0),
            excuses: 0,
            p99_ns: config.request_timeout_min_ns / 4,
            records_since: None,
            sync_ns: 0,
            durable_at: 0,
            odd_to: SeqNum(0),
            pipeline: config.pipeline,
            timeout_min_ns: config.request_timeout_min_ns,
            timeout_max_ns: config.request_timeout_max_ns,
            patience_max_ns: config.view_timeout_max_ns,
        }
    }

    /// Returns `T_REQ` as it has adapted (TM-6): four times what one batch in a hundred exceeds, or four times what the
    /// service is at work on one, within the bounds, so that a primary cannot talk it up. It takes f + 1 that find so at
    /// once (LV-2).
    pub(crate) fn request_timeout(&self, batch_ns: u64) -> u64 {
        self.p99_ns.max(batch_ns).saturating_mul(4).clamp(self.timeout_min_ns, self.timeout_max_ns)
    }

    /// Returns the highest number accepted in this view.
    pub(crate) fn accepted(&self) -> SeqNum {
        self.accepted
    }

    /// Returns since when there has been an accepted proposal without progress in executing.
    pub(crate) fn busy_since(&self) -> Option<u64> {
        self.busy_since
    }

    /// Returns when `W` proposals were last in progress, after this replica has `executed` so far, or at work (TM-1).
    pub(crate) fn full_at(&mut self, executed: SeqNum, at_work: bool, now: u64) -> u64 {
        let full = at_work || self.accepted >= executed.plus(self.pipeline);
        if full {
            self.full_at = now;
        }
        mutant!(M113, self.full_at, if full { now } else { 0 })
    }

    /// Returns how long others may take because of their disks, if those are as slow as the own one (TM-8): nobody can make
    /// that look slower than it is.
    pub(crate) fn syncs_ns(&self, now: u64) -> u64 {
        let under_way = self.records_since.map_or(0, |since| now.saturating_sub(since));
        let counts = now < self.durable_at.saturating_add(SYNC_COUNTS_NS);
        let longest = if counts { self.sync_ns.max(under_way) } else { under_way };
        longest.saturating_mul(SYNCS).min(self.patience_max_ns)
    }

    /// Returns whether the request timer runs, and ends at `latest` or before.
    pub(crate) fn is_request_armed(&self, latest: u64) -> bool {
        self.request_armed.is_some_and(|at| at <= latest)
    }

    /// The request timer runs until `at`.
    pub(crate) fn arm_request(&mut self, at: u64) {
        self.request_armed = Some(at);
    }

    /// The request timer has run out. Returns when it was to.
    pub(crate) fn take_request(&mut self) -> Option<u64> {
        self.request_armed.take()
    }

    /// The relay timer starts. Says whether it did not run.
    pub(crate) fn start_relay(&mut self) -> bool {
        !core::mem::replace(&mut self.relay_armed, true)
    }

    /// The relay timer has run out.
    pub(crate) fn stop_relay(&mut self) {
        self.relay_armed = false;
    }

    /// Forgives a wait, if there were not too many. Says whether it does.
    pub(crate) fn excuse(&mut self) -> bool {
        let forgives = self.excuses < EXCUSES_MAX;
        self.excuses += u32::from(forgives);
        forgives
    }

    /// Records that a proposal for `seq` was accepted, after this replica had `executed` so far. A NEW-VIEW also brings
    /// what is executed already: for that nobody waits.
    pub(crate) fn note_accepted(&mut self, seq: SeqNum, executed: SeqNum, now: u64) {
        if self.accepted <= executed {
            self.busy_since = None; // a transfer may have brought what was waited for
        }
        self.accepted = self.accepted.max(seq);
        self.full_at(executed, false, now);
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

    /// Records whether records wait for the disk.
    #[inline]
    pub(crate) fn note_records(&mut self, wait: bool, now: u64) {
        self.records_since = if wait { self.records_since.or(Some(now)) } else { None };
    }

    /// Records that records have become durable. A long wait counts at once, and is forgotten by and by.
    pub(crate) fn note_durable(&mut self, now: u64) {
        let took = self.records_since.take().map_or(0, |since| now.saturating_sub(since));
        self.sync_ns = took.max(self.sync_ns - self.sync_ns / 8);
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
