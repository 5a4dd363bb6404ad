//! Read-only requests that wait or are in progress, and from where on they may be answered [OSDI99 §5.1], spec §6.

use alloc::collections::{BTreeMap, VecDeque};

use quorate_wire::batch::Body;
use quorate_wire::id::{ClientId, SeqNum};

use crate::io::step::Ticket;
use crate::requests::table::CLIENT_BYTES_MAX;

/// The most reads of one principal that wait or are under way.
const CLIENT_READS_MAX: usize = 4096;
/// The most reads of all principals that wait, and the most under way.
const READS_MAX: usize = 65_536;

/// A read in progress.
#[derive(Debug)]
struct Reading {
    ticket: Ticket,
    request: Body,
    is_counted: bool,
}

/// How many reads a principal has here, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    count: usize,
    bytes: usize,
}

/// Read-only requests. At most one waiting for each client (RO-3), and at most one under way.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    waiting: BTreeMap<ClientId, Body>,
    /// Those that wait for the read of their lane that is under way.
    behind: BTreeMap<ClientId, Body>,
    /// In the order of their tickets.
    under_way: VecDeque<Reading>,
    /// The bytes of those under way that count: one of each lane.
    counted: BTreeMap<ClientId, usize>,
    /// By principal.
    shares: BTreeMap<u64, Share>,
    next_ticket: u64,
    /// Reads are served from here on: what the view took over must have been executed, and what was shown in an
    /// earlier life (RO-4).
    floor: SeqNum,
    /// What is known to have been shown, whatever a view takes over: committed, stable or fetched.
    shown: SeqNum,
}

impl Reads {
    /// Says whether no read waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.behind.is_empty()
    }

    /// Returns the number from which on reads are served.
    pub(crate) fn floor(&self) -> SeqNum {
        self.floor
    }

    /// Says whether a principal may have this read as well, in the place of the same lane's that waits: its reads and bytes
    /// are bounded (SR-1).
    fn has_room_for(&self, body: &Body) -> bool {
        let share = self.shares.get(&body.client.principal()).copied().unwrap_or_default();
        let own = self.waiting.get(&body.client).or_else(|| self.behind.get(&body.client));
        let own_bytes = own.map_or(0, |own| own.frame().len());
        share.count - usize::from(own.is_some()) < CLIENT_READS_MAX
            && share.bytes - own_bytes + body.frame().len() <= CLIENT_BYTES_MAX
    }

    fn add(&mut self, client: ClientId, bytes: usize) {
        let share = self.shares.entry(client.principal()).or_default();
        share.count += 1;
        share.bytes += bytes;
    }

    fn subtract(&mut self, client: ClientId, bytes: usize) {
        let Some(share) = self.shares.get_mut(&client.principal()) else { return };
        share.count -= 1;
        share.bytes -= bytes;
        if share.count == 0 {
            self.shares.remove(&client.principal());
        }
    }

    /// Lets a read wait, in the place of the same client's before it, which is returned. Returns the read where there
    /// is no room for it.
    pub(crate) fn queue(&mut self, body: Body) -> Result<Option<Body>, Body> {
        let (client, bytes) = (body.client, body.frame().len());
        let is_full = self.waiting.len() + self.behind.len() >= READS_MAX;
        let lane = if self.may_start(client) { &self.waiting } else { &self.behind };
        if is_full && !lane.contains_key(&client) || !self.has_room_for(&body) {
            return Err(body);
        }
        let lane = if self.may_start(client) { &mut self.waiting } else { &mut self.behind };
        let old = lane.insert(client, body);
        if let Some(old) = &old {
            self.subtract(client, old.frame().len());
        }
        self.add(client, bytes);
        Ok(old)
    }

    /// Returns whether a read of this lane may begin: none that counts is under way.
    pub(crate) fn may_start(&self, client: ClientId) -> bool {
        !self.counted.contains_key(&client)
    }

    /// Takes the first read that waits and may begin.
    pub(crate) fn next_waiting(&mut self) -> Option<Body> {
        let (client, body) = self.waiting.pop_first()?;
        self.subtract(client, body.frame().len());
        Some(body)
    }

    /// Notes that a read is in progress from now on. `is_kept`: the executor may keep it (PX-8). Returns its name, unless too
    /// many are in progress. Usually each read is done before the next one begins, so one of them need not count.
    pub(crate) fn start(&mut self, request: &Body, is_kept: bool) -> Option<Ticket> {
        let is_counted = is_kept || !self.under_way.is_empty();
        if is_counted {
            let client = request.client;
            if self.under_way.len() >= READS_MAX || !self.has_room_for(request) {
                return None;
            }
            let bytes = request.frame().len();
            self.counted.insert(client, bytes);
            self.add(client, bytes);
            if let Some(next) = self.waiting.remove(&client) {
                self.behind.insert(client, next);
            }
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.under_way.push_back(Reading { ticket, request: request.clone(), is_counted });
        Some(ticket)
    }

    /// A read is done. Returns its request.
    pub(crate) fn finish(&mut self, ticket: Ticket) -> Option<Body> {
        let at = self.under_way.binary_search_by_key(&ticket, |reading| reading.ticket).ok()?;
        let Reading { request, is_counted, .. } = self.under_way.remove(at)?;
        let client = request.client;
        if is_counted && let Some(bytes) = self.counted.remove(&client) {
            self.subtract(client, bytes);
            if let Some(next) = self.behind.remove(&client) {
                self.waiting.insert(client, next);
            }
        }
        Some(request)
    }

    /// What is up to `seq` has been shown to somebody. This only rises.
    pub(crate) fn note_shown(&mut self, seq: SeqNum) {
        self.shown = self.shown.max(seq);
    }

    /// Reads are served from `seq` on at least: that was shown to somebody. The floor only rises.
    pub(crate) fn raise_floor(&mut self, seq: SeqNum) {
        self.note_shown(seq);
        self.floor = self.floor.max(seq);
    }

    /// Begins a view that has taken over numbers up to `last`: no reads before those have been executed (RO-4). The one
    /// place where the floor may become lower: what only prepared in an earlier life, and is not among those numbers,
    /// was shown to nobody as a whole.
    pub(crate) fn start_view(&mut self, last: SeqNum) {
        self.floor = self.shown.max(last);
    }

    /// Begins again after a restart: what prepared in the earlier life may have been shown to clients, and what
    /// committed or was fetched was (RO-4).
    pub(crate) fn restore(&mut self, shown: SeqNum, last_prepared: SeqNum) {
        self.shown = shown;
        self.floor = shown.max(last_prepared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RO-4: what was shown stays below the floor, whatever a view takes over.
    #[test]
    fn the_floor_is_never_below_what_was_shown() {
        let mut reads = Reads::default();
        reads.restore(SeqNum(5), SeqNum(9));
        assert_eq!(reads.floor(), SeqNum(9));
        reads.start_view(SeqNum(7));
        assert_eq!(reads.floor(), SeqNum(7), "nobody was shown what only prepared");
        reads.raise_floor(SeqNum(8));
        reads.raise_floor(SeqNum(6));
        assert_eq!(reads.floor(), SeqNum(8));
        reads.note_shown(SeqNum(3));
        reads.start_view(SeqNum(1));
        assert_eq!(reads.floor(), SeqNum(8));
    }
}
