//! One lane of the request table: the request that waits, and what may be sent again.

use alloc::sync::Arc;

use quorate_wire::batch::{Body, StoredRequest};
use quorate_wire::frame::PACKED_BYTES_MAX;
use quorate_wire::id::{SeqNum, Timestamp};
use quorate_wire::message::{Proof, Request};

use crate::io::config::MS;

/// Requests up to this length are bounded by the number of lanes alone, in bytes.
pub(super) const SHORT_BYTES: usize = 4 << 10;
/// A cached reply is sent again to one client at most this often, in nanoseconds (RP-2).
const RESEND_NS: u64 = 10 * MS;

/// A request that waits to be executed.
#[derive(Debug)]
pub(crate) struct Pending {
    request: Body,
    /// The last number of this view for which it is proposed.
    proposed_at: Option<SeqNum>,
    /// When it came, in nanoseconds; the first time, if there was no room for it.
    came: u64,
    /// When its time began, in nanoseconds.
    since: u64,
    /// It counts for the request timer (TM-1, TM-2).
    timed: bool,
    /// It was sent on to the primary a second time.
    relayed_again: bool,
    /// How often this replica has said that it holds it.
    vouched: u32,
    /// It was taken because enough others vouch for it, and cannot be checked here (AU-6).
    unchecked: bool,
    /// The last number that had been accepted when it began to count for the timer.
    passed_over_from: SeqNum,
    /// How many requests had been proposed by then, of its principal and of all.
    proposed_before: (u64, u64),
}

impl Pending {
    fn new(request: Body, came: u64, now: u64) -> Self {
        Self {
            request,
            proposed_at: None,
            came,
            since: now,
            timed: false,
            relayed_again: false,
            vouched: 0,
            unchecked: false,
            passed_over_from: SeqNum(0),
            proposed_before: (0, 0),
        }
    }

    /// Returns the request.
    #[inline]
    pub(crate) fn request(&self) -> &Body {
        &self.request
    }

    /// Returns whether it is in a proposal of this view above `last`, the last number that is executed finally. One for
    /// a number up to that has lost its number to another batch: a primary may propose one thing to this replica and
    /// another to all others (B8, L30).
    pub(crate) fn is_proposed(&self, last: SeqNum) -> bool {
        self.proposed_at.is_some_and(|at| mutant!(M116, at > last, true))
    }

    /// Says whether it counts among its client's bytes (SR-1).
    pub(crate) fn is_long(&self) -> bool {
        self.request.frame().len() > SHORT_BYTES
    }

    /// Says whether it is longer than a datagram, so that its client's others have a pause after it (PR-8).
    pub(crate) fn has_pause(&self) -> bool {
        self.request.frame().len() > PACKED_BYTES_MAX
    }

    /// Returns its length, or 0 if it is short.
    pub(crate) fn long_bytes(&self) -> usize {
        if self.is_long() { self.request.frame().len() } else { 0 }
    }

    /// Returns when it came, or when its time began again.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// Returns whether it counts for the request timer.
    pub(crate) fn is_timed(&self) -> bool {
        self.timed
    }

    /// Returns whether it was sent on to the primary a second time.
    pub(crate) fn is_relayed_again(&self) -> bool {
        self.relayed_again
    }

    /// Returns how often this replica has said that it holds it.
    pub(crate) fn vouched(&self) -> u32 {
        self.vouched
    }

    /// Returns the last number that had been accepted when it began to count for the timer.
    pub(super) fn passed_over_from(&self) -> SeqNum {
        self.passed_over_from
    }

    /// Returns how many requests had been proposed by then, of its principal and of all.
    pub(super) fn proposed_before(&self) -> (u64, u64) {
        self.proposed_before
    }

    /// Notes how many requests have been proposed when it begins to count for the timer.
    pub(super) fn set_proposed_before(&mut self, before: (u64, u64)) {
        self.proposed_before = before;
    }

    /// Notes for which number of this view it is proposed, if it is.
    #[inline]
    pub(crate) fn set_proposed(&mut self, at: Option<SeqNum>) {
        self.proposed_at = at;
    }

    /// Returns whether it was taken because enough others vouch for it.
    pub(crate) fn is_unchecked(&self) -> bool {
        self.unchecked
    }

    /// It was taken because enough others vouch for it.
    pub(super) fn set_unchecked(&mut self) {
        self.unchecked = true;
    }

    /// It is sent on to the primary a second time.
    pub(crate) fn relay_again(&mut self) {
        self.relayed_again = true;
    }

    /// It counts for the request timer from now on. `accepted` is the last number accepted so far, `proposed` the one for
    /// which it is proposed. Says whether it did not count before.
    pub(super) fn start_waiting(&mut self, now: u64, accepted: SeqNum, proposed: Option<SeqNum>) -> bool {
        if self.timed {
            return false;
        }
        self.timed = true;
        // TM-1: time counts from when the timer had reason to run.
        self.since = now;
        self.passed_over_from = accepted;
        self.proposed_at = self.proposed_at.max(proposed);
        true
    }

    /// It does not count for the request timer.
    pub(super) fn stop_waiting(&mut self) {
        self.timed = false;
    }

    /// This replica says once more that it holds it.
    pub(super) fn vouch_again(&mut self) {
        self.vouched = self.vouched.saturating_add(1);
    }

    /// It has the time from now on.
    pub(super) fn restart_clock(&mut self, now: u64) {
        self.since = now;
    }

    /// It has the time from now on, in a new view that takes over numbers up to `last`.
    pub(super) fn restart_in_view(&mut self, now: u64, last: SeqNum) {
        self.since = now;
        self.passed_over_from = last;
        self.proposed_at = None;
        self.relayed_again = false;
        self.vouched = 0;
    }
}

/// The record of one client lane.
#[derive(Debug, Default)]
pub(crate) struct Client {
    /// The last request in a batch that was executed and has committed.
    executed: Timestamp,
    /// The one that waits, authentic here. At most one (`CW`).
    pending: Option<Pending>,
    resent_at: u64,
    /// The last request in such a batch when the cached reply was asked for.
    asked_at: Timestamp,
    /// Since when a long request of it finds no room.
    turned_away: Option<u64>,
    /// Memory of the last request, to be used again.
    spare: Option<Body>,
}

impl Client {
    /// Returns the last request in a batch that was executed and has committed. The service may have refused it.
    #[inline]
    pub(crate) fn executed(&self) -> Timestamp {
        self.executed
    }

    /// Returns the request that waits.
    #[inline]
    pub(crate) fn pending(&self) -> Option<&Pending> {
        self.pending.as_ref()
    }

    #[inline]
    pub(super) fn pending_mut(&mut self) -> Option<&mut Pending> {
        self.pending.as_mut()
    }

    /// A request was executed and has committed. It, and older ones, do not wait any more.
    #[inline]
    pub(super) fn note_executed(&mut self, timestamp: Timestamp) {
        self.executed = self.executed.max(timestamp);
        if self.pending.as_ref().is_some_and(|pending| pending.request.timestamp <= timestamp) {
            self.take_pending();
        }
    }

    /// Nothing is known to be executed any more.
    pub(super) fn forget_executed(&mut self) {
        self.executed = Timestamp(0);
    }

    /// Returns whether the cached reply may be sent again now (RP-2), and notes it.
    pub(crate) fn may_resend(&mut self, now: u64) -> bool {
        let may = self.resent_at == 0 || now >= self.resent_at.saturating_add(RESEND_NS);
        if may {
            self.resent_at = now.max(1);
            self.asked_at = self.executed;
        }
        may
    }

    /// The state has no reply to a later request of this lane than `known`: it has refused what came later, as it had no
    /// room for an entry (EX-2). The next copy of that is ordered again, and answered (L61).
    pub(crate) fn note_cached(&mut self, known: Timestamp) {
        // A batch that has committed since says more than the state did then.
        if self.executed == self.asked_at {
            self.executed = self.executed.min(known);
        }
    }

    /// Returns the length of the waiting request, or 0 for none and for a short one.
    pub(super) fn long_bytes(&self) -> usize {
        self.pending.as_ref().map_or(0, Pending::long_bytes)
    }

    pub(super) fn keep(&mut self, request: &Request<'_>, now: u64) {
        let body = self.store(request);
        self.keep_stored(body, now);
    }

    pub(super) fn renew(&mut self, request: &Request<'_>) {
        if self.pending.as_ref().is_some_and(|p| p.request.proof == Proof::Signed) {
            return;
        }
        let body = self.store(request);
        self.renew_stored(body);
    }

    pub(super) fn renew_stored(&mut self, body: Body) {
        let Some(pending) = &mut self.pending else { return };
        pending.unchecked = false;
        let old = core::mem::replace(&mut pending.request, body);
        self.recycle(old);
    }

    pub(super) fn keep_stored(&mut self, request: Body, now: u64) {
        self.take_pending();
        let came = self.turned_away.take().unwrap_or(now);
        self.pending = Some(Pending::new(request, came, now));
    }

    /// A long request of it finds no room. Returns since when that is so.
    pub(super) fn turn_away(&mut self, now: u64) -> u64 {
        *self.turned_away.get_or_insert(now)
    }

    /// Returns when its long request came, if that may go.
    pub(super) fn may_give_way(&self, last: SeqNum) -> Option<u64> {
        self.unproposed_since(last).filter(|_| self.long_bytes() > 0)
    }

    /// Returns when its request came, if that is not in a proposal above `last`.
    pub(super) fn unproposed_since(&self, last: SeqNum) -> Option<u64> {
        let pending = self.pending.as_ref()?;
        (!pending.is_proposed(last)).then_some(pending.came)
    }

    /// Its request goes, and keeps its turn.
    pub(super) fn give_way(&mut self) {
        self.turned_away = self.pending.take().map(|pending| pending.came);
    }

    /// Copies a request into memory that was used before, if that is free again.
    pub(crate) fn store(&mut self, request: &Request<'_>) -> Body {
        match self.spare.take() {
            Some(mut spare) => match Arc::get_mut(&mut spare) {
                Some(room) => {
                    room.replace(request);
                    spare
                }
                None => Arc::new(StoredRequest::new(request)),
            },
            None => Arc::new(StoredRequest::new(request)),
        }
    }

    /// Gives memory back.
    pub(crate) fn recycle(&mut self, body: Body) {
        const SPARE_BYTES_MAX: usize = 8 << 10;
        if body.frame().len() <= SPARE_BYTES_MAX {
            self.spare = Some(body);
        }
    }

    pub(super) fn take_pending(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.recycle(pending.request);
        }
    }
}
