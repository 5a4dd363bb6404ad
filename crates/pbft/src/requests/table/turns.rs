//! Whose turn it is: which requests wait for the primary and since when (TM-1, TM-2), who vouches for them (AU-3), and whose
//! long ones have room here (SR-1).

use alloc::vec::Vec;

use quorate_wire::Digest;
use quorate_wire::batch::Body;
use quorate_wire::id::{ClientId, ReplicaId, SeqNum, Timestamp};

use super::lane::SHORT_BYTES;
use super::vouchers::Vouchers;
use super::{Client, Pending, RequestTable};
use crate::io::config::RequestAuth;

/// Bytes of a principal's long requests that wait to be executed, beyond which no more are read of it.
const ENOUGH_BYTES: usize = 4 << 20;

/// Bytes of a client's long requests that are sent on to the primary at a time, and one more request.
const RELAYED_BYTES_MAX: usize = 1 << 20;

/// A request that waits to be proposed, and how others have fared since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unproposed {
    since: u64,
    /// When its client was last served, and when it was last served in turn: 0 for a short request.
    served_at: u64,
    in_turn_at: u64,
    passed_over_from: SeqNum,
    /// Requests proposed since: of its principal, and of all.
    own: u64,
    all: u64,
    /// Lanes of its principal, and principals.
    lanes: u64,
    principals: u64,
}

impl Unproposed {
    /// Returns since when it waits for the primary. A long request does not while its client is served: the primary may
    /// have no room for it (SR-1, L37).
    pub(crate) fn since(&self) -> u64 {
        self.since.max(self.served_at)
    }

    /// The same for one that was passed over: it waits while those that came after it are served.
    fn since_turn(&self) -> u64 {
        self.since.max(self.in_turn_at)
    }

    /// Returns the last number that had been accepted when it came.
    pub(crate) fn passed_over_from(&self) -> SeqNum {
        self.passed_over_from
    }

    /// Says whether each other lane of its principal has had its turn.
    fn is_next(&self) -> bool {
        self.own > self.lanes
    }

    /// Returns since when it waits for a primary that lets the principals take turns, and the lanes of each (PR-3), and
    /// would have proposed it by now: its lane has its turn when each of the others has had one, and so has its principal.
    /// Twice as much is granted for what came to the primary earlier. None: its turn has not come.
    pub(crate) fn since_unfair(&self) -> Option<u64> {
        if self.own > 2 * self.lanes {
            return Some(self.since_turn());
        }
        let turns = self.own.saturating_add(1).saturating_mul(self.principals);
        (self.all > turns.saturating_mul(2)).then(|| self.since())
    }
}

impl RequestTable {
    /// Says whether enough of a principal waits: no more need be read of it.
    pub(crate) fn has_enough_of(&self, principal: u64) -> bool {
        self.shares.get(&principal).is_some_and(|share| share.long_bytes >= ENOUGH_BYTES)
    }

    /// Notes that `replica` vouches for a request. Returns the set of those who do (TM-2).
    pub(crate) fn note_voucher(
        &mut self,
        client: ClientId,
        request: (Timestamp, Digest),
        replica: ReplicaId,
    ) -> u64 {
        self.vouchers.note(client, request, replica)
    }

    /// Notes that this replica, `own`, vouches for the waiting request, once more. Returns the set of those who do.
    pub(crate) fn vouch_again(&mut self, client: ClientId, own: ReplicaId) -> u64 {
        let Some(pending) = self.clients.get_mut(&client).and_then(Client::pending_mut) else { return 0 };
        pending.vouch_again();
        let request = (pending.request().timestamp, pending.request().digest);
        self.note_voucher(client, request, own)
    }

    /// Notes that a request is authentic here, also when its client has moved on.
    pub(crate) fn remember(&mut self, request: Digest) {
        self.vouchers.remember(request);
    }

    /// Says whether this number of other replicas vouch for the request of a lane: they hold it.
    pub(crate) fn is_held_by(&self, client: ClientId, others: usize) -> bool {
        let pending = self.get(client).and_then(Client::pending).map(Pending::request);
        pending.is_some_and(|request| self.vouchers.has(client, &request.digest, others))
    }

    /// No request of a lane up to this timestamp is wanted.
    pub(crate) fn want_no_more(&mut self, client: ClientId, timestamp: Timestamp) {
        self.vouchers.want_no_more(client, timestamp);
    }

    /// The waiting request, which enough others vouch for, cannot be checked here.
    pub(crate) fn set_unchecked(&mut self, client: ClientId, digest: &Digest) {
        let pending = self.clients.get_mut(&client).and_then(Client::pending_mut);
        if let Some(pending) = pending.filter(|p| p.request().digest == *digest) {
            pending.set_unchecked();
        }
    }

    /// Says whether the waiting request of a lane cannot be checked here, is in no proposal above `last`, and not enough others
    /// vouch for it any more: it would keep others of the lane out.
    pub(crate) fn waits_in_vain(&self, client: ClientId, last: SeqNum) -> bool {
        let pending = self.get(client).and_then(Client::pending).filter(|p| p.is_unchecked());
        pending
            .is_some_and(|p| !p.is_proposed(last) && !self.vouchers.has_enough(client, &p.request().digest))
    }

    /// Returns what waits and carries no signature, if it cannot be checked here or its client has to sign.
    pub(crate) fn doubtful(&self, mode: RequestAuth, now: u64) -> Vec<(ClientId, (Timestamp, Digest))> {
        let unsigned = self.pending().filter(|(_, p)| p.is_unchecked() || p.request().signature().is_none());
        let doubtful = unsigned.filter(|(id, p)| p.is_unchecked() || self.must_sign(*id, mode, now));
        doubtful.map(|(id, p)| (id, (p.request().timestamp, p.request().digest))).collect()
    }

    /// Returns the vouchers for requests.
    pub(crate) fn vouchers(&self) -> &Vouchers {
        &self.vouchers
    }

    /// Wants a request that is not here, if enough others vouch for it. Says whether it does.
    pub(crate) fn want(&mut self, client: ClientId, request: (Timestamp, Digest)) -> bool {
        self.vouchers.want(client, request)
    }

    /// Returns the requests that the timer guards and the primary has not proposed for a number above `last`, the
    /// last one that is executed finally: "this request", not "some request", so that a primary that serves only its
    /// friends trips it (TM-1, B8). Of the short ones the oldest; all long ones, for each of which another time counts.
    pub(crate) fn unproposed(&mut self, last: SeqNum) -> impl Iterator<Item = Unproposed> {
        while self.waiting.front().is_some_and(|entry| self.waits(*entry).is_none()) {
            self.waiting.pop_front();
        }
        let mut short = false;
        let all = self.waiting.iter().filter_map(|entry| Some((entry.0.principal(), self.waits(*entry)?)));
        let unproposed = all.filter(move |(_, pending)| !pending.is_proposed(last));
        let first = unproposed.filter(move |(_, p)| p.is_long() || !core::mem::replace(&mut short, true));
        // The oldest short request decides. If no long one waits, the search ends there.
        let first = first.take(if self.all_long_bytes == 0 { 1 } else { usize::MAX });
        first.map(|(principal, pending)| self.fared(principal, pending))
    }

    /// Returns the request of an entry of `waiting`, if it still counts for the timer.
    fn waits(&self, (client, timestamp): (ClientId, Timestamp)) -> Option<&Pending> {
        let pending = self.clients.get(&client)?.pending()?;
        (pending.is_timed() && pending.request().timestamp == timestamp).then_some(pending)
    }

    /// Returns how a request that waits and others have fared.
    fn fared(&self, principal: u64, pending: &Pending) -> Unproposed {
        let share = self.shares.get(&principal).copied().unwrap_or_default();
        let (own, all) = pending.proposed_before();
        let (served_at, in_turn_at) =
            if pending.is_long() { (share.served_at, share.in_turn_at) } else { (0, 0) };
        Unproposed {
            since: pending.since(),
            served_at,
            in_turn_at,
            passed_over_from: pending.passed_over_from(),
            own: share.proposed.saturating_sub(own),
            all: self.proposed.saturating_sub(all),
            lanes: u64::try_from(share.lanes).unwrap_or(u64::MAX),
            principals: u64::try_from(self.shares.len()).unwrap_or(u64::MAX),
        }
    }

    /// Notes that a client's request is executed, which is long if `len` is: its other long requests waited for it.
    pub(crate) fn note_served(&mut self, client: ClientId, timestamp: Timestamp, len: usize, now: u64) {
        if len <= SHORT_BYTES || self.waiting.is_empty() {
            return;
        }
        let principal = client.principal();
        let long = |entry: &&(ClientId, Timestamp)| self.waits(**entry).is_some_and(Pending::is_long);
        let first = self.waiting.iter().filter(|(id, _)| id.principal() == principal).find(long);
        let in_turn = first.is_none_or(|first| *first == (client, timestamp));
        let Some(share) = self.shares.get_mut(&principal) else { return };
        share.served_at = now;
        if in_turn {
            share.in_turn_at = now;
        }
    }

    /// Returns the requests that the primary is to be sent once more, after half of its time: the short ones once. Of the
    /// long ones of each client only as many as [`RELAYED_BYTES_MAX`], the others have to wait for these in any case.
    pub(crate) fn relay(&mut self, now: u64, half: u64, last: SeqNum, mut send: impl FnMut(&Body)) {
        let (mut principal, mut bytes) = (0, 0);
        let mut due = Vec::new();
        for (id, client) in &self.clients {
            let Some(pending) = client.pending().filter(|pending| !pending.is_relayed_again()) else {
                continue;
            };
            if !pending.is_long() {
                if now.saturating_sub(pending.since()) >= half {
                    due.push(*id);
                }
                continue;
            }
            if core::mem::replace(&mut principal, id.principal()) != principal {
                bytes = 0;
            }
            let fared = self.fared(principal, pending);
            let is_next = pending.is_timed() && fared.is_next();
            let since = if is_next { fared.since_turn() } else { fared.since() };
            let waits = !pending.is_proposed(last) && now.saturating_sub(since) >= half;
            if waits && bytes < RELAYED_BYTES_MAX {
                bytes += pending.request().frame().len();
                due.push(*id);
            }
        }
        for id in due {
            let Some(pending) = self.clients.get_mut(&id).and_then(Client::pending_mut) else { continue };
            pending.relay_again();
            send(pending.request());
        }
    }
}
