//! Admission of requests: which are new, which wait, and which clients have to sign [OSDI99 §4.1].
//!
//! Exactly-once is decided in the replicated state, in order (EX-2), by the client table. The request table of this
//! module is local. It has the timestamps of the client table, and is rebuilt from it after a transfer. It refuses
//! requests that could not execute, holds those that wait, and records which clients are on probation (AU-5).

use alloc::collections::{BTreeMap, VecDeque};

use quorate_wire::Cluster;
use quorate_wire::batch::Body;
use quorate_wire::id::{ClientId, ReplicaId, SeqNum, Timestamp};
use quorate_wire::message::{Proof, Request};

use crate::io::config::{MS, RequestAuth};
use crate::io::step::Reject;

mod lane;
mod turns;
mod vouchers;

use lane::SHORT_BYTES;
pub(crate) use lane::{Client, Pending};
pub(crate) use vouchers::{enough, enough_to_time};

/// The first probation, in nanoseconds; each further one doubles it.
const PROBATION_NS: u64 = 10_000 * MS;
/// How long a client is shut out that has shown a wrong signature, in nanoseconds: a check costs 30 us,
/// so that this bounds what a liar can cost to little.
const SHUT_OUT_NS: u64 = 200 * MS;
/// The longest probation, in nanoseconds.
const PROBATION_MAX_NS: u64 = 3_600_000 * MS;

/// The most bytes of a principal's requests that wait to be executed, in addition to those of at most [`SHORT_BYTES`].
pub(crate) const CLIENT_BYTES_MAX: usize = 16 << 20;

/// Returns the names of all lanes of a principal.
pub(crate) fn lanes_of(principal: u64) -> core::ops::RangeInclusive<ClientId> {
    ClientId::new(principal, 0)..=ClientId::new(principal, u16::MAX)
}

/// What this replica knows about a principal, for all lanes together: the principal holds the keys, and a Byzantine
/// client would use a new lane each time (AU-5). This is local and differs between replicas.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    probation_until: u64,
    probations: u32,
    shut_out_until: u64,
}

/// What a principal has here.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    lanes: usize,
    /// Its requests that were proposed while any waited for that.
    proposed: u64,
    /// Bytes of its requests that wait, but for the short ones.
    long_bytes: usize,
    /// When one of its long requests was last executed.
    served_at: u64,
    /// When the one of them that had waited for longest was last executed.
    in_turn_at: u64,
}

/// The request table: the client lanes. Never more than `clients_max`, of one client never more than `lanes_max` nor half
/// of all, and one of each replica in addition. At the bound, a new lane replaces one with nothing outstanding. The cost: if a
/// client repeats an executed request of the replaced lane, the request is ordered again, and the client table then refuses
/// it (EX-2). If something is outstanding for all lanes, clients share the places evenly (SR-1, L64).
#[derive(Debug)]
pub(crate) struct RequestTable {
    clients: BTreeMap<ClientId, Client>,
    /// Principals that were not in good standing some time. Never more than `clients_max`.
    standings: BTreeMap<u64, Standing>,
    /// What each principal has here.
    shares: BTreeMap<u64, Share>,
    clients_max: usize,
    lanes_max: usize,
    replicas: usize,
    /// Requests that count for the request timer, oldest first. May hold ones that are done.
    waiting: VecDeque<(ClientId, Timestamp)>,
    /// Requests that were proposed while any waited for that.
    proposed: u64,
    /// Bytes of all long requests that wait.
    all_long_bytes: usize,
    vouchers: vouchers::Vouchers,
}

impl RequestTable {
    /// Returns an empty table.
    pub(crate) fn new(clients_max: usize, lanes_max: usize, (cluster, own): (Cluster, ReplicaId)) -> Self {
        Self {
            clients: BTreeMap::new(),
            standings: BTreeMap::new(),
            shares: BTreeMap::new(),
            clients_max,
            lanes_max: lanes_max.min(clients_max / 2),
            replicas: cluster.n(),
            waiting: VecDeque::new(),
            proposed: 0,
            all_long_bytes: 0,
            vouchers: vouchers::Vouchers::new(cluster, own, clients_max),
        }
    }

    /// Returns what is known of `client`.
    pub(crate) fn get(&self, client: ClientId) -> Option<&Client> {
        self.clients.get(&client)
    }

    /// Returns what is known of `client`.
    pub(crate) fn get_mut(&mut self, client: ClientId) -> Option<&mut Client> {
        self.clients.get_mut(&client)
    }

    /// Returns the entry of `client`, making one if there is room.
    pub(crate) fn entry(&mut self, client: ClientId) -> Option<&mut Client> {
        if self.has_entry(client) { self.clients.get_mut(&client) } else { None }
    }

    /// Makes an entry of `client`, if there is none and there is room. Says whether there is one now.
    fn has_entry(&mut self, client: ClientId) -> bool {
        if self.clients.contains_key(&client) {
            return true;
        }
        let has_room = self.make_room(client.principal());
        if has_room {
            self.add(client);
        }
        has_room
    }

    #[cold]
    fn add(&mut self, client: ClientId) {
        self.shares.entry(client.principal()).or_default().lanes += 1;
        self.clients.insert(client, Client::default());
    }

    /// As [`Self::entry`], for a request that its client has sent: the principal with most lanes gives one, if it still has
    /// as many as this one then. The youngest of its requests goes that is not proposed above `last`, and `drop` is told.
    pub(crate) fn entry_in_turn(
        &mut self,
        client: ClientId,
        last: SeqNum,
        drop: impl FnOnce(ClientId),
    ) -> Option<&mut Client> {
        if !self.clients.contains_key(&client) {
            if !self.make_room(client.principal()) {
                let other = self.gives_way_to(client.principal(), last)?;
                self.take_pending(other);
                self.forget(other);
                drop(other);
            }
            self.add(client);
        }
        self.clients.get_mut(&client)
    }

    /// Makes room for another lane of a principal. Says whether there is any.
    #[cold]
    fn make_room(&mut self, principal: u64) -> bool {
        let own = self.lanes(principal);
        if principal == 0 {
            own < self.replicas || self.forget_one(principal)
        } else if own >= self.lanes_max {
            self.forget_one(principal)
        } else if self.clients.len() - self.lanes(0) >= self.clients_max {
            // The principal with most lanes gives a place; if that is this one, its own.
            self.most_lanes().is_some_and(|(most, _)| self.forget_one(most))
                || (own > 0 && self.forget_one(principal))
        } else {
            true
        }
    }

    /// Returns the request that goes for a new lane of a principal, in a full table of lanes that wait.
    fn gives_way_to(&self, principal: u64, last: SeqNum) -> Option<ClientId> {
        let own = self.lanes(principal);
        let (most, lanes) = self.most_lanes()?;
        if principal == 0 || own >= self.lanes_max || own + 1 >= lanes {
            return None;
        }
        let unproposed = self.clients.range(lanes_of(most));
        let unproposed = unproposed.filter_map(|(id, client)| Some((client.unproposed_since(last)?, *id)));
        unproposed.max().map(|(_, id)| id)
    }

    fn lanes(&self, principal: u64) -> usize {
        self.shares.get(&principal).map_or(0, |share| share.lanes)
    }

    /// Returns the client with most lanes, and their number.
    fn most_lanes(&self) -> Option<(u64, usize)> {
        let clients = self.shares.range(1..).map(|(principal, share)| (*principal, share.lanes));
        clients.max_by_key(|(_, lanes)| *lanes)
    }

    /// Forgets a lane of a principal for which nothing waits: the one that executed the earliest timestamp.
    fn forget_one(&mut self, principal: u64) -> bool {
        let idle = self.clients.range(lanes_of(principal)).filter(|(_, client)| client.pending().is_none());
        let Some((id, _)) = idle.min_by_key(|(_, client)| client.executed()) else { return false };
        self.forget(*id);
        true
    }

    /// Forgets a lane for which nothing waits.
    fn forget(&mut self, id: ClientId) {
        self.clients.remove(&id);
        if let Some(share) = self.shares.get_mut(&id.principal()) {
            share.lanes -= 1;
            if share.lanes == 0 {
                self.shares.remove(&id.principal());
            }
        }
    }

    /// Says whether a principal may have a request of `len` bytes waiting: what is short is bounded by its lanes, of
    /// all others it has a bounded number of bytes (SR-1). What the lane itself holds goes when it comes.
    #[inline]
    pub(crate) fn has_bytes_for(&self, client: ClientId, len: usize) -> bool {
        mutant!(M87, len <= SHORT_BYTES, true) || self.long_bytes(client) + len <= CLIENT_BYTES_MAX
    }

    /// Says whether a principal may have a request of `len` bytes waiting, and makes room if a lane waits for it: of the
    /// principal's long requests that are not proposed, those go that came after this lane was turned away first. So every
    /// lane has its turn, however many there are (L37). `drop` is told whose request goes.
    pub(crate) fn make_bytes_for(
        &mut self,
        id: ClientId,
        len: usize,
        (now, last): (u64, SeqNum),
        mut drop: impl FnMut(ClientId),
    ) -> bool {
        while !self.has_bytes_for(id, len) {
            let Some(client) = self.clients.get_mut(&id) else { return false };
            let came = client.turn_away(now);
            let others = self.clients.range(lanes_of(id.principal())).filter(|(other, _)| **other != id);
            let later = others.filter_map(|(other, client)| Some((client.may_give_way(last)?, *other)));
            let Some((_, other)) = later.filter(|(at, _)| *at > came).max() else { return false };
            self.change(other, Client::give_way);
            drop(other);
        }
        true
    }

    #[cold]
    fn long_bytes(&self, but: ClientId) -> usize {
        let all = self.shares.get(&but.principal()).map_or(0, |share| share.long_bytes);
        debug_assert_eq!(
            all,
            self.clients
                .range(lanes_of(but.principal()))
                .map(|(_, client)| client.long_bytes())
                .sum::<usize>()
        );
        all.saturating_sub(self.clients.get(&but).map_or(0, Client::long_bytes))
    }

    /// Changes what waits for a lane that is here, and keeps count of its principal's bytes.
    fn change(&mut self, id: ClientId, f: impl FnOnce(&mut Client)) -> Option<&Client> {
        let client = self.clients.get_mut(&id)?;
        let before = client.long_bytes();
        f(client);
        let after = client.long_bytes();
        if before != after
            && let Some(share) = self.shares.get_mut(&id.principal())
        {
            share.long_bytes = (share.long_bytes + after).saturating_sub(before);
            self.all_long_bytes = (self.all_long_bytes + after).saturating_sub(before);
        }
        Some(client)
    }

    /// Keeps a request until it is executed, in the memory of the one before it.
    pub(crate) fn keep(&mut self, request: &Request<'_>, now: u64) -> Option<&Client> {
        self.want_no_more(request.client, request.timestamp);
        self.change(request.client, |client| client.keep(request, now))
    }

    /// Keeps a request that is stored already.
    pub(crate) fn keep_stored(&mut self, request: Body, now: u64) {
        self.want_no_more(request.client, request.timestamp);
        self.change(request.client, |client| client.keep_stored(request, now));
    }

    /// Keeps the waiting request as it has come again: sealed with the keys that its client uses now, which
    /// is what others will check. A signature, once verified, stays valid forever.
    pub(crate) fn renew(&mut self, request: &Request<'_>) -> Option<&Client> {
        self.change(request.client, |client| client.renew(request))
    }

    /// Keeps the waiting request in another form, with a signature that has been looked at.
    pub(crate) fn renew_stored(&mut self, body: Body) {
        self.change(body.client, |client| client.renew_stored(body));
    }

    /// Drops the waiting request.
    pub(crate) fn take_pending(&mut self, client: ClientId) {
        self.change(client, Client::take_pending);
    }

    /// Returns every lane that has a request waiting.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (ClientId, &Pending)> {
        self.clients.iter().filter_map(|(id, client)| Some((*id, client.pending()?)))
    }

    /// Returns every lane that has a request waiting.
    pub(crate) fn pending_mut(&mut self) -> impl Iterator<Item = (ClientId, &mut Pending)> {
        self.clients.iter_mut().filter_map(|(id, client)| Some((*id, client.pending_mut()?)))
    }

    /// Records that a request counts for the request timer, after those that came before it. `accepted` is the last
    /// number accepted so far, `proposed` the one for which the request is proposed.
    pub(crate) fn start_waiting(
        &mut self,
        client: ClientId,
        now: u64,
        accepted: SeqNum,
        proposed: Option<SeqNum>,
    ) {
        if let Some(pending) = self.clients.get_mut(&client).and_then(Client::pending_mut)
            && pending.start_waiting(now, accepted, proposed)
        {
            let own = self.shares.get(&client.principal()).map_or(0, |share| share.proposed);
            pending.set_proposed_before((own, self.proposed));
            let entry = (client, pending.request().timestamp);
            // A client that moves on leaves its old entry behind: sweep before that adds up (B24).
            if self.waiting.len() >= 2 * self.clients.len().max(64) {
                let clients = &self.clients;
                self.waiting.retain(|(client, timestamp)| {
                    let still = clients.get(client).and_then(Client::pending);
                    still.is_some_and(|p| p.is_timed() && p.request().timestamp == *timestamp)
                });
            }
            self.waiting.push_back(entry);
        }
    }

    /// Lets nobody be timed for what a principal has not signed. It waits on, for its signature.
    fn stop_waiting_unsigned(&mut self, client: ClientId) {
        for (_, client) in self.clients.range_mut(lanes_of(client.principal())) {
            if let Some(pending) = client.pending_mut().filter(|p| p.request().proof != Proof::Signed) {
                pending.stop_waiting();
            }
        }
    }

    /// Returns whether any request counts for the request timer.
    pub(crate) fn any_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Records that the primary has proposed `count` requests, of whatever clients.
    pub(crate) fn count_proposed(&mut self, count: usize) {
        self.proposed += u64::try_from(count).unwrap_or(0);
    }

    /// Records that the primary has proposed a request for `seq`, and that it does not wait any more if it waits here.
    pub(crate) fn note_proposed(&mut self, seq: SeqNum, client: ClientId, digest: &quorate_wire::Digest) {
        if let Some(share) = self.shares.get_mut(&client.principal()) {
            share.proposed += 1;
        }
        let pending = self.clients.get_mut(&client).and_then(Client::pending_mut);
        if let Some(pending) = pending.filter(|p| p.request().digest == *digest) {
            pending.set_proposed(Some(seq));
        }
    }

    /// Notes for which number of this view the request of a client that waits is proposed. Returns the request.
    pub(crate) fn set_proposed(&mut self, client: ClientId, at: Option<SeqNum>) -> Option<&Pending> {
        let pending = self.clients.get_mut(&client)?.pending_mut()?;
        pending.set_proposed(at);
        Some(pending)
    }

    /// Gives every waiting request the time from now on: timers stood still until now (TM-5).
    pub(crate) fn restart_clock(&mut self, now: u64) {
        for (_, pending) in self.pending_mut() {
            pending.restart_clock(now);
        }
    }

    /// Gives every waiting request the time from now on, as a new view begins that takes over numbers up to `last`.
    pub(crate) fn restart_waiting(&mut self, now: u64, last: SeqNum) {
        let Self { clients, shares, proposed, .. } = self;
        for (id, client) in clients.iter_mut() {
            if let Some(pending) = client.pending_mut() {
                let own = shares.get(&id.principal()).map_or(0, |share| share.proposed);
                pending.set_proposed_before((own, *proposed));
                pending.restart_in_view(now, last);
            }
        }
    }

    /// Notes that a batch with a client's request was executed and has committed. Older ones do not wait any more.
    pub(crate) fn note_executed(&mut self, client: ClientId, timestamp: Timestamp) {
        self.vouchers.forget(client, timestamp);
        if self.has_entry(client) {
            self.change(client, |entry| entry.note_executed(timestamp));
        }
    }

    fn standing(&self, client: ClientId) -> Standing {
        self.standings.get(&client.principal()).copied().unwrap_or_default()
    }

    fn standing_mut(&mut self, client: ClientId) -> Option<&mut Standing> {
        if self.standings.len() >= self.clients_max && !self.standings.contains_key(&client.principal()) {
            return None;
        }
        Some(self.standings.entry(client.principal()).or_default())
    }

    /// Returns whether the requests of a client must be signed now (AU-5).
    pub(crate) fn on_probation(&self, client: ClientId, now: u64) -> bool {
        now < self.standing(client).probation_until
    }

    /// Returns whether a client has to sign, or its requests are ignored.
    pub(crate) fn must_sign(&self, client: ClientId, mode: RequestAuth, now: u64) -> bool {
        match mode {
            RequestAuth::Mac => false,
            RequestAuth::Adaptive => self.on_probation(client, now),
            RequestAuth::SigMac => true,
        }
    }

    /// Puts a client on probation, longer each time: it has to sign for a while (AU-5).
    pub(crate) fn start_probation(&mut self, client: ClientId, mode: RequestAuth, now: u64) {
        self.lengthen_probation(client, now);
        if self.must_sign(client, mode, now) {
            self.stop_waiting_unsigned(client);
        }
    }

    fn lengthen_probation(&mut self, client: ClientId, now: u64) {
        let Some(standing) = self.standing_mut(client) else { return };
        let length = PROBATION_NS.saturating_mul(1 << standing.probations.min(20)).min(PROBATION_MAX_NS);
        standing.probations = standing.probations.saturating_add(1);
        standing.probation_until = now.saturating_add(length);
    }

    /// Shuts a client out here for a while: its MAC was valid and its signature was not. The MAC covers the signature
    /// (CR-3), so the client is faulty (AU-1). A while is enough to bound the cost of such checks.
    pub(crate) fn shut_out(&mut self, client: ClientId, now: u64) {
        if let Some(standing) = self.standing_mut(client) {
            standing.shut_out_until = now.saturating_add(SHUT_OUT_NS);
        }
    }

    /// Returns whether a request may be taken up as it is, in the order of AU-1. `Ok(false)` asks for its
    /// signature to be checked first.
    pub(crate) fn admits(&self, request: &Request<'_>, mode: RequestAuth, now: u64) -> Result<bool, Reject> {
        let standing = self.standing(request.client);
        if now < standing.shut_out_until {
            return Err(Reject::Blacklisted);
        }
        let must_sign = match mode {
            RequestAuth::Mac => false,
            RequestAuth::Adaptive => now < standing.probation_until,
            RequestAuth::SigMac => true,
        };
        match (request.proof, must_sign) {
            (Proof::Signed, _) | (Proof::Mac, false) => Ok(true),
            (Proof::Mac | Proof::Unproven, _) if request.flags.signed => Ok(false),
            (Proof::Mac, true) => Err(Reject::OnProbation),
            (Proof::Unproven, _) => Err(Reject::UnprovenRequest),
        }
    }

    /// Returns the request of a client that waits to be proposed for a number above `last`, if it may be: one of a client
    /// on probation "only when signed" (AU-5), or the backups would refuse the proposal and one view after the other would
    /// end.
    pub(crate) fn proposable(
        &mut self,
        client: ClientId,
        last: SeqNum,
        (mode, enough): (RequestAuth, usize),
        now: u64,
    ) -> Option<&mut Pending> {
        let on_probation = mode == RequestAuth::Adaptive && self.on_probation(client, now);
        let Self { clients, vouchers, .. } = self;
        let pending = clients.get_mut(&client)?.pending_mut()?;
        // Others hold it as authentic, and will time this primary for it: they will take it (AU-2, TM-2).
        let is_held = || vouchers.has(client, &pending.request().digest, enough);
        let may_do_without =
            mode != RequestAuth::SigMac && (!(on_probation || pending.is_unchecked()) || is_held());
        let is_signed = pending.request().proof == Proof::Signed;
        // Where only signatures count, nobody takes a request on others' word (AU-2).
        (!pending.is_proposed(last) && (is_signed || may_do_without)).then_some(pending)
    }

    /// Takes the table of a transferred state (ST-6): what it shows as executed does not wait.
    pub(crate) fn reload(&mut self, executed: &[(ClientId, Timestamp)]) {
        for client in self.clients.values_mut() {
            client.forget_executed();
        }
        for (client, timestamp) in executed {
            self.note_executed(*client, *timestamp);
        }
    }
}
