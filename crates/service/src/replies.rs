//! The last reply of each client lane, as pages of the state [OSDI99 §4.2].
//!
//! Timestamps and replies are written to the same overlay as the operation they answer, so they are committed, rolled
//! back, checkpointed and transferred together with its effects. Exactly-once semantics therefore hold in all these
//! cases (EX-2, B12, B17). A lane has a slot of fixed size,
//!
//! ```text
//! 0        4          8        16          24     32       64               256
//! | kind - | length 4 | client | timestamp | time | digest | result to 192 |
//! ```
//!
//! `digest` is the reply's: it also says which request it answers (RP-5). Results that are longer stand in pages
//! of the lane's own, up to a bound (`RESULT_CACHE`); beyond that the digest is kept alone. Who has how many of the
//! slots is in [`crate::replies::shares`], whose entries stand behind the lanes' pages. `time` is the agreed time of the batch: the largest one is
//! the last agreed time of the state, which needs no place of its own.
//!
//! An index in memory gives the position of a lane's slot. It can be rebuilt from the pages at any time.

pub(crate) mod layout;
pub(crate) mod shares;

use alloc::vec::Vec;

use quorate_wire::{ClientId, Digest, Timestamp};

use crate::page::{PageFault, PageStore};
use crate::replies::layout::{INLINE_BYTES, Layout, SLOT_BYTES};
use crate::replies::shares::{Holder, IDLE_NS, Rules, Shares, Wants};
use crate::state::index::Index;
use crate::state::view::View;
use crate::stop::Stop;

const RESULT_AT: usize = SLOT_BYTES - INLINE_BYTES;

/// How a slot keeps its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyKind {
    /// In the slot.
    Inline,
    /// In pages of the lane's own.
    Pages,
    /// It is not stored: it is longer than the limit.
    Digest,
}

impl ReplyKind {
    fn to_byte(self) -> u8 {
        match self {
            Self::Inline => 1,
            Self::Pages => 2,
            Self::Digest => 3,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Inline),
            2 => Some(Self::Pages),
            3 => Some(Self::Digest),
            _ => None,
        }
    }
}

/// The content of a slot: its lane's last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) client: ClientId,
    pub(crate) timestamp: Timestamp,
    /// The agreed time of the batch that executed it, in nanoseconds.
    pub(crate) time_ns: u64,
    pub(crate) digest: Digest,
    slot: u32,
    kind: ReplyKind,
    len: usize,
}

impl Lane {
    /// Returns how many of its own pages it uses.
    fn own_pages_used(&self, page_bytes: usize) -> usize {
        if self.kind == ReplyKind::Pages { self.len.div_ceil(page_bytes) } else { 0 }
    }
}

/// A moment of the running batch, to which the lanes can go back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LanesMark {
    changes: usize,
    time_ns: u64,
}

/// The lanes of the state. Never more than `slots_max`.
#[derive(Debug)]
pub(crate) struct Lanes {
    layout: Layout,
    quota: u32,
    /// From a client to its slot.
    index: Index,
    /// Who has which slots.
    shares: Shares,
    /// The last agreed time: of the committed state, and with the overlay.
    time_ns: u64,
    tentative_time_ns: u64,
}

impl Lanes {
    /// Returns the lanes of an empty state.
    pub(crate) fn new(layout: Layout, quota: u32) -> Self {
        let rules = Rules::new(layout.slots_max, quota);
        let shares = Shares::new(rules);
        Self { layout, quota, index: Index::default(), shares, time_ns: 0, tentative_time_ns: 0 }
    }

    /// Builds the index from the committed state.
    pub(crate) fn rebuild(&mut self, store: &dyn PageStore) -> Result<(), PageFault> {
        *self = Self::new(self.layout, self.quota);
        self.visit(store, |lanes, lane| {
            lanes.index.insert(lane.client.0, lane.slot);
            lanes.shares.note_lane(lane.client, lane.slot);
            lanes.time_ns = lanes.time_ns.max(lane.time_ns);
        })?;
        self.shares.rebuild(store, self.layout.shares_at, self.layout.page_bytes)?;
        self.tentative_time_ns = self.time_ns;
        Ok(())
    }

    /// Returns the last agreed time of the committed state, in nanoseconds.
    pub(crate) fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// Returns the agreed time of a batch for which the primary chose `choice`: later than all before
    /// it, whatever was chosen (ND-2).
    pub(crate) fn agree_on_time(&self, choice: &[u8]) -> u64 {
        let chosen = choice.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        mutant!(M107, chosen.max(self.tentative_time_ns.saturating_add(1)), chosen)
    }

    /// Calls `each` with every lane of the committed state, in the order of the slots: pages that were never written
    /// have none.
    fn visit(
        &mut self,
        store: &dyn PageStore,
        mut each: impl FnMut(&mut Self, Lane),
    ) -> Result<(), PageFault> {
        let per_page = self.layout.slots_per_page;
        for page in 0..self.layout.lanes_at {
            let Some(bytes) = store.get(page)? else { continue };
            let slots = page * per_page..((page + 1) * per_page).min(self.layout.slots_max);
            for (slot, at) in slots.zip((0..).step_by(SLOT_BYTES)) {
                if let Some(lane) = decode(bytes, at, slot) {
                    each(self, lane);
                }
            }
        }
        Ok(())
    }

    /// Sets the number of lanes that a principal can have from now on.
    pub(crate) fn set_quota(&mut self, quota: u32) {
        self.shares.set_quota(quota);
    }

    /// Returns how many lanes there are, and how many there can be for clients.
    pub(crate) fn count(&self) -> (u32, u32) {
        (self.shares.used(), self.shares.room())
    }

    /// Returns the two numbers that are kept of a principal's lanes that are not in the table: what was released,
    /// and what was refused.
    #[inline]
    pub(crate) fn numbers(&self, client: ClientId) -> (Timestamp, Timestamp) {
        let share = self.shares.get(client.principal());
        share.map_or((Timestamp(0), Timestamp(0)), |share| (share.released, share.refused))
    }

    /// Makes sure that there is a slot for a new lane, at the agreed time `now`: one that was not used for long may
    /// have to go. Says whether there is.
    #[cold]
    pub(crate) fn make_room(
        &mut self,
        state: &mut View<'_>,
        client: ClientId,
        holder: Holder,
        now: u64,
    ) -> Result<bool, Stop> {
        let wants = self.shares.wants(client.principal(), holder);
        if self.shares.is_busy(wants, now) {
            return Ok(false);
        }
        let oldest = match wants {
            Wants::Nothing => return Ok(true),
            Wants::OneOf(principal) => {
                let share = self.shares.get(principal);
                self.oldest(state, share.into_iter().flat_map(|share| share.slots.iter().copied()))?
            }
            Wants::Any => self.oldest(state, self.shares.slots())?,
        };
        let Some(oldest) = oldest else { return Ok(false) };
        let idle_from = oldest.time_ns.saturating_add(IDLE_NS);
        if now < idle_from {
            self.shares.note_busy(wants, idle_from);
            return Ok(false);
        }
        self.release(state, &oldest)
    }

    /// Returns the lane that was used longest ago, of those in `slots`.
    fn oldest(&self, state: &View<'_>, slots: impl Iterator<Item = u32>) -> Result<Option<Lane>, Stop> {
        let mut oldest: Option<Lane> = None;
        for slot in slots {
            let (page, at) = self.layout.place(slot);
            let Some(lane) = decode(state.page(page)?, at, slot) else { continue };
            let key = |lane: &Lane| (lane.time_ns, lane.client);
            if oldest.as_ref().is_none_or(|oldest| key(&lane) < key(oldest)) {
                oldest = Some(lane);
            }
        }
        Ok(oldest)
    }

    /// Gives a lane's slot back. What it executed last is kept as its principal's number. Says whether there was
    /// room for that; if not, it stays.
    fn release(&mut self, state: &mut View<'_>, lane: &Lane) -> Result<bool, Stop> {
        let numbers = (lane.timestamp, Timestamp(0));
        let principal = lane.client.principal();
        if mutant!(M108, !self.shares.raise(state, self.layout.shares_at, principal, numbers)?, false) {
            return Ok(false);
        }
        let used = lane.own_pages_used(self.layout.page_bytes);
        if used > 0 {
            self.write_pages(state, lane.slot, used, &[])?;
        }
        let (page, at) = self.layout.place(lane.slot);
        state.write(page, at, &[0; SLOT_BYTES])?;
        self.index.remove(lane.client.0);
        self.shares.free(lane.client, lane.slot);
        Ok(true)
    }

    /// Gives the slots of all lanes of a principal back, which is no client any more.
    pub(crate) fn release_all(&mut self, state: &mut View<'_>, principal: u64) -> Result<(), Stop> {
        let slots = self.shares.get(principal).map(|share| share.slots.clone()).unwrap_or_default();
        for slot in slots {
            let (page, at) = self.layout.place(slot);
            if let Some(lane) = decode(state.page(page)?, at, slot) {
                self.release(state, &lane)?;
            }
        }
        Ok(())
    }

    /// Notes that a request of a lane that is not in the table is refused, for good. Says whether that could be
    /// noted.
    pub(crate) fn refuse(
        &mut self,
        state: &mut View<'_>,
        client: ClientId,
        timestamp: Timestamp,
    ) -> Result<bool, Stop> {
        let numbers = (Timestamp(0), timestamp);
        self.shares.raise(state, self.layout.shares_at, client.principal(), numbers)
    }

    /// Returns a client's lane as the running batch sees it.
    pub(crate) fn find(&self, state: &View<'_>, client: ClientId) -> Result<Option<Lane>, Stop> {
        self.find_part(state, client, |lane| lane)
    }

    /// Returns the timestamp of the last request of a client's lane.
    #[inline]
    pub(crate) fn reached(&self, state: &View<'_>, client: ClientId) -> Result<Option<Timestamp>, Stop> {
        self.find_part(state, client, |lane| lane.timestamp)
    }

    #[inline]
    fn find_part<T>(
        &self,
        state: &View<'_>,
        client: ClientId,
        part: impl FnOnce(Lane) -> T,
    ) -> Result<Option<T>, Stop> {
        let Some(slot) = self.index.get(client.0) else { return Ok(None) };
        let (page, at) = self.layout.place(slot);
        // In the committed state, the slot may still be another lane's: the index is that of the running batch.
        let lane = decode(state.page(page)?, at, slot).filter(|lane| lane.client == client);
        Ok(lane.map(part))
    }

    /// Records the reply to a client's newest request. The caller has seen that the lane is there or
    /// that there is room for it.
    #[inline]
    pub(crate) fn record(
        &mut self,
        state: &mut View<'_>,
        (client, timestamp): (ClientId, Timestamp),
        time_ns: u64,
        digest: Digest,
        result: &[u8],
    ) -> Result<(), Stop> {
        let slot = if let Some(slot) = self.index.get(client.0) {
            slot
        } else {
            let slot = self.shares.add(client);
            self.index.insert(client.0, slot);
            slot
        };
        self.tentative_time_ns = self.tentative_time_ns.max(time_ns);
        let (page, at) = self.layout.place(slot);
        let before =
            decode(state.page(page)?, at, slot).map_or(0, |lane| lane.own_pages_used(self.layout.page_bytes));
        let kind = match result.len() {
            0..=INLINE_BYTES => ReplyKind::Inline,
            len if len <= self.layout.result_bytes_max => ReplyKind::Pages,
            _ => ReplyKind::Digest,
        };
        let mut bytes = [0; SLOT_BYTES];
        bytes[0] = kind.to_byte();
        bytes[4..8].copy_from_slice(&u32::try_from(result.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes[8..16].copy_from_slice(&client.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&timestamp.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&time_ns.to_le_bytes());
        bytes[32..64].copy_from_slice(&digest.0);
        if kind == ReplyKind::Inline {
            bytes[RESULT_AT..RESULT_AT + result.len()].copy_from_slice(result);
        }
        state.write(page, at, &bytes)?;
        if kind == ReplyKind::Pages || before > 0 {
            self.write_pages(state, slot, before, if kind == ReplyKind::Pages { result } else { &[] })?;
        }
        Ok(())
    }

    /// Appends the result of a lane's last request to `out`. Returns whether it is kept.
    pub(crate) fn result(&self, state: &View<'_>, lane: &Lane, out: &mut Vec<u8>) -> Result<bool, Stop> {
        match lane.kind {
            ReplyKind::Digest => return Ok(false),
            ReplyKind::Inline => {
                let (page, at) = self.layout.place(lane.slot);
                let at = at + RESULT_AT;
                let result = state.page(page)?.get(at..at + lane.len.min(INLINE_BYTES));
                out.extend_from_slice(result.unwrap_or(&[]));
            }
            ReplyKind::Pages => {
                let mut rest = lane.len;
                for page in self.layout.own_pages(lane.slot) {
                    let part = rest.min(self.layout.page_bytes);
                    out.extend_from_slice(&state.page(page)?[..part]);
                    rest -= part;
                }
            }
        }
        Ok(true)
    }

    /// Calls `each` with every lane of the committed state.
    pub(crate) fn for_each(&self, store: &dyn PageStore, mut each: impl FnMut(Lane)) {
        for slot in self.shares.slots() {
            // What cannot be read is asked for when a batch needs it.
            if let Ok(Some(lane)) = self.committed(store, slot) {
                each(lane);
            }
        }
    }

    /// The overlay has become part of the state.
    #[inline]
    pub(crate) fn settle(&mut self) {
        self.shares.settle();
        self.time_ns = self.tentative_time_ns;
    }

    /// The overlay has been dropped.
    pub(crate) fn forget(&mut self) {
        self.go_back(LanesMark { changes: 0, time_ns: self.time_ns });
    }

    /// Returns the present moment of the running batch.
    pub(crate) fn mark(&self) -> LanesMark {
        LanesMark { changes: self.shares.changes(), time_ns: self.tentative_time_ns }
    }

    /// Returns whether a lane was removed since `mark`.
    pub(crate) fn has_released(&self, mark: LanesMark) -> bool {
        self.shares.has_freed(mark.changes)
    }

    /// What the overlay has received since `mark` has been dropped.
    pub(crate) fn go_back(&mut self, mark: LanesMark) {
        let Self { shares, index, .. } = self;
        shares.forget(mark.changes, |client, slot| match slot {
            Some(slot) => index.insert(client.0, slot),
            None => index.remove(client.0),
        });
        self.tentative_time_ns = mark.time_ns;
    }

    /// Makes `result` the content of a lane's own pages, of which the first `before` are in use.
    #[cold]
    fn write_pages(&self, state: &mut View<'_>, slot: u32, before: usize, result: &[u8]) -> Result<(), Stop> {
        let mut parts = result.chunks(self.layout.page_bytes);
        for (at, page) in self.layout.own_pages(slot).enumerate() {
            match parts.next() {
                Some(part) => state.put(page, part)?,
                None if at < before => state.clear(page)?,
                None => break,
            }
        }
        Ok(())
    }

    fn committed(&self, store: &dyn PageStore, slot: u32) -> Result<Option<Lane>, PageFault> {
        let (page, at) = self.layout.place(slot);
        Ok(store.get(page)?.and_then(|page| decode(page, at, slot)))
    }
}

/// Reads a slot; none if it is not in use.
#[inline]
fn decode(page: &[u8], at: usize, slot: u32) -> Option<Lane> {
    let bytes: &[u8; SLOT_BYTES] = page.get(at..)?.first_chunk()?;
    let kind = ReplyKind::from_byte(bytes[0])?;
    let number = |at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let len = bytes[4..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    Some(Lane {
        client: ClientId(number(8)),
        timestamp: Timestamp(number(16)),
        time_ns: number(24),
        digest: Digest(*bytes[32..].first_chunk()?),
        slot,
        kind,
        len: usize::try_from(len).unwrap_or(usize::MAX),
    })
}
