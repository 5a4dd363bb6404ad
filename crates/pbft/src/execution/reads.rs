//! Read-only requests that wait or are in progress, and from where on they may be answered [OSDI99 §5.1], spec §6.

use alloc::collections::{BTreeMap, VecDeque};
use core::ops::Bound;

use quorate_wire::batch::Body;
use quorate_wire::id::{ClientId, SeqNum, Timestamp};

use crate::io::step::Ticket;
use crate::requests::table::{CLIENT_BYTES_MAX, lanes_of};

/// The most reads of one principal that wait.
const CLIENT_READS_MAX: usize = 4096;
/// The most reads under way.
const READS_UNDER_WAY_MAX: usize = 65_536;

/// A read in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    ticket: Ticket,
    pub(crate) client: ClientId,
    pub(crate) timestamp: Timestamp,
    pub(crate) replier: Option<u16>,
}

/// Read-only requests. At most one waiting for each client (RO-3), and at most one that the executor keeps.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    waiting: BTreeMap<ClientId, Body>,
    /// In the order of their tickets.
    under_way: VecDeque<Reading>,
    /// Reads under way that the executor may keep (PX-8): the bytes of the one of each lane.
    kept: BTreeMap<ClientId, usize>,
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
        self.waiting.is_empty()
    }

    /// Returns the number from which on reads are served.
    pub(crate) fn floor(&self) -> SeqNum {
        self.floor
    }

    /// Says whether a principal may have this read waiting as well: its lanes and bytes are bounded (SR-1).
    fn has_room_for(&self, body: &Body) -> bool {
        if self.waiting.len() >= READS_UNDER_WAY_MAX && !self.waiting.contains_key(&body.client) {
            return false;
        }
        let lanes = lanes_of(body.client.principal());
        let waiting = self.waiting.range(lanes.clone()).filter(|(id, _)| **id != body.client);
        let kept = self.kept.range(lanes).map(|(_, len)| *len);
        let others = waiting.map(|(_, body)| body.frame().len()).chain(kept);
        let (count, bytes) = others.fold((0, 0), |(count, bytes), len| (count + 1, bytes + len));
        count < CLIENT_READS_MAX && bytes + body.frame().len() <= CLIENT_BYTES_MAX
    }

    /// Lets a read wait, in the place of the same client's before it, which is returned. Returns the read where there
    /// is no room for it.
    pub(crate) fn queue(&mut self, body: Body) -> Result<Option<Body>, Body> {
        if self.has_room_for(&body) { Ok(self.waiting.insert(body.client, body)) } else { Err(body) }
    }

    /// Returns whether the executor may keep a read of this lane: it has none.
    pub(crate) fn keeps_none_of(&self, client: ClientId) -> bool {
        !self.kept.contains_key(&client)
    }

    /// Takes the first read that waits, of the lanes above `above`, if the executor keeps none of its lane.
    pub(crate) fn next_waiting(&mut self, above: Option<ClientId>) -> Option<Body> {
        let from = above.map_or(Bound::Unbounded, Bound::Excluded);
        let mut lanes = self.waiting.range((from, Bound::Unbounded)).map(|(client, _)| *client);
        let next = lanes.find(|client| self.keeps_none_of(*client))?;
        self.waiting.remove(&next)
    }

    /// Takes the read of this lane that waits.
    pub(crate) fn take_waiting(&mut self, client: ClientId) -> Option<Body> {
        self.waiting.remove(&client)
    }

    /// Notes that a read is in progress from now on. `is_kept`: the executor may keep it. Returns its name, unless too many
    /// are in progress.
    pub(crate) fn start(&mut self, request: &Body, is_kept: bool) -> Option<Ticket> {
        if self.under_way.len() >= READS_UNDER_WAY_MAX || is_kept && !self.has_room_for(request) {
            return None;
        }
        if is_kept {
            self.kept.insert(request.client, request.frame().len());
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let (client, timestamp, replier) = (request.client, request.timestamp, request.replier);
        self.under_way.push_back(Reading { ticket, client, timestamp, replier });
        Some(ticket)
    }

    /// A read is done.
    pub(crate) fn finish(&mut self, ticket: Ticket) -> Option<Reading> {
        let at = self.under_way.binary_search_by_key(&ticket, |reading| reading.ticket).ok()?;
        let reading = self.under_way.remove(at)?;
        self.kept.remove(&reading.client);
        Some(reading)
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
