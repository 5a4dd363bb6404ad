//! What each principal has of the client table: how many lanes at most, and which of them make room.
//!
//! One client could use the whole table, with a new lane for each request (L1). So a principal has a *quota* of lanes;
//! a part of the table is a *reserve* for replicas and administrators, half of it for replicas alone; and a lane that was not used for long gives its
//! place away, when it is needed: of the same principal if that has its quota, of anybody if the table is full.
//!
//! A request of a lane that is gone must not be executed again, nor one that was refused be executed later: its client
//! has been told that nothing was done. So two numbers are kept of a principal, for as long as the state:
//!
//! - `released`: no lane that is gone had executed a later timestamp. Of a request up to here by a lane that is not in
//!   the table nobody knows whether it was executed: it is *overtaken*.
//! - `refused`: up to here a lane that is not in the table is refused.
//!
//! ```text
//! entry, 32 bytes   principal 8 | released 8 | refused 8 | - 8
//! ```
//!
//! They are written when there is something to keep, which for most principals is never.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use quorate_wire::{ClientId, Timestamp};

use crate::page::{PageFault, PageStore};
use crate::state::view::View;
use crate::stop::Stop;

/// A lane gives its place away if it was not used for so long, in nanoseconds of the agreed time.
pub(crate) const IDLE_NS: u64 = 60_000_000_000;
/// Bytes of an entry.
const ENTRY_BYTES: usize = 32;
/// Principals that can have an entry, in addition to as many as there are lanes.
const ENTRIES_BESIDES: u32 = 8192;

/// How the table is shared. Replicated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Slots of the table.
    pub(crate) slots: u32,
    /// The most lanes of one principal.
    pub(crate) quota: u32,
    /// Slots that are for replicas and administrators alone, half of them for replicas alone.
    pub(crate) reserve: u32,
}

impl Rules {
    /// Returns the rules for a table of `slots`, of which a principal is to have `quota` at most. It never has more
    /// than half of what is not reserved.
    pub(crate) fn new(slots: u32, quota: u32) -> Self {
        let reserve = (slots / 8).min(1024);
        Self { slots, quota: quota.min((slots - reserve) / 2).max(1), reserve }
    }

    /// Returns how many entries there can be.
    pub(crate) fn entries(slots: u32) -> u32 {
        slots.saturating_add(ENTRIES_BESIDES)
    }

    /// Returns how many pages the entries take.
    pub(crate) fn pages(slots: u32, page_bytes: usize) -> u32 {
        Self::entries(slots).div_ceil(per_page(page_bytes))
    }
}

fn per_page(page_bytes: usize) -> u32 {
    u32::try_from(page_bytes / ENTRY_BYTES).unwrap_or(1).max(1)
}

/// What is known of one principal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share {
    /// Where its entry is, if it has one.
    place: Option<u32>,
    pub(crate) released: Timestamp,
    pub(crate) refused: Timestamp,
    /// The slots of its lanes, in no order.
    pub(crate) slots: Vec<u32>,
    /// None of its lanes is idle before this agreed time. A lane is only ever used later, so it stays true.
    busy_until: u64,
}

/// A change that the overlay's end may undo.
#[derive(Clone, Copy, Debug)]
enum Change {
    Added { client: ClientId, slot: u32 },
    Freed { client: ClientId, slot: u32 },
    Numbers { principal: u64, place: Option<u32>, released: Timestamp, refused: Timestamp },
}

/// The shares of all principals, and which slots are free. As many lanes as there are slots, as many entries as
/// [`Rules::entries`].
#[derive(Debug)]
pub(crate) struct Shares {
    rules: Rules,
    /// The share of each.
    principals: BTreeMap<u64, Share>,
    /// Slots below `top` that are not in use.
    free: BTreeSet<u32>,
    top: u32,
    used: u32,
    entries: u32,
    /// No lane at all is idle before this agreed time.
    busy_until: u64,
    changes: Vec<Change>,
}

impl Shares {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            principals: BTreeMap::new(),
            free: BTreeSet::new(),
            top: 0,
            used: 0,
            entries: 0,
            busy_until: 0,
            changes: Vec::new(),
        }
    }

    /// Sets the number of lanes that a principal can have from now on.
    pub(crate) fn set_quota(&mut self, quota: u32) {
        self.rules = Rules::new(self.rules.slots, quota);
    }

    /// Returns how many lanes there are.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Returns how many lanes there can be for clients.
    pub(crate) fn room(&self) -> u32 {
        self.rules.slots - self.rules.reserve
    }

    /// Returns every lane's slot, those of one principal after another.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.principals.values().flat_map(|share| share.slots.iter().copied())
    }

    /// Returns the share of a principal, if it has any.
    pub(crate) fn get(&self, principal: u64) -> Option<&Share> {
        self.principals.get(&principal)
    }

    /// Says whether a new lane of a principal makes another one go, and whose that may be.
    pub(crate) fn wants(&self, principal: u64, holder: Holder) -> Wants {
        let own = self.principals.get(&principal).map_or(0, |share| share.slots.len());
        let room = match holder {
            Holder::Replica => self.rules.slots,
            Holder::Admin => self.rules.slots - self.rules.reserve.div_ceil(2),
            Holder::Client => self.room(),
        };
        match () {
            // The replicas are one principal here, with a lane for each (L40).
            () if principal != 0
                && own
                    >= mutant!(M101, usize::try_from(self.rules.quota), Ok(usize::MAX))
                        .unwrap_or(usize::MAX) =>
            {
                Wants::OneOf(principal)
            }
            () if self.used >= room => Wants::Any,
            () => Wants::Nothing,
        }
    }

    /// Says whether it is known that nothing that is wanted is idle at `now`.
    pub(crate) fn is_busy(&self, wants: Wants, now: u64) -> bool {
        match wants {
            Wants::Nothing => false,
            Wants::OneOf(principal) => {
                self.principals.get(&principal).is_some_and(|share| now < share.busy_until)
            }
            Wants::Any => now < self.busy_until,
        }
    }

    /// Notes that nothing that is wanted is idle before `until`.
    pub(crate) fn note_busy(&mut self, wants: Wants, until: u64) {
        match wants {
            Wants::Nothing => {}
            Wants::OneOf(principal) => {
                if let Some(share) = self.principals.get_mut(&principal) {
                    share.busy_until = until;
                }
            }
            Wants::Any => self.busy_until = until,
        }
    }

    /// Takes the lowest free slot for a lane. The caller has seen that there is one.
    pub(crate) fn add(&mut self, client: ClientId) -> u32 {
        let slot = self.free.pop_first().unwrap_or_else(|| {
            self.top += 1;
            self.top - 1
        });
        self.insert(client, slot);
        self.changes.push(Change::Added { client, slot });
        slot
    }

    /// Takes a lane's slot back. What was its last timestamp is noted with [`Self::raise`].
    pub(crate) fn free(&mut self, client: ClientId, slot: u32) {
        self.remove(client, slot);
        self.changes.push(Change::Freed { client, slot });
    }

    fn insert(&mut self, client: ClientId, slot: u32) {
        self.principals.entry(client.principal()).or_default().slots.push(slot);
        self.free.remove(&slot);
        self.used += 1;
    }

    fn remove(&mut self, client: ClientId, slot: u32) {
        if let Some(share) = self.principals.get_mut(&client.principal()) {
            share.slots.retain(|other| *other != slot);
        }
        self.free.insert(slot);
        self.used = self.used.saturating_sub(mutant!(M102, 1, 2));
    }

    /// Raises the numbers of a principal, here and in the state, whose entries begin at page `first`. Says whether
    /// there was room for an entry.
    pub(crate) fn raise(
        &mut self,
        state: &mut View<'_>,
        first: u32,
        principal: u64,
        (released, refused): (Timestamp, Timestamp),
    ) -> Result<bool, Stop> {
        let share = self.principals.entry(principal).or_default();
        let Share { place, released: was_released, refused: was_refused, .. } = *share;
        if released <= was_released && refused <= was_refused {
            return Ok(true);
        }
        let at = place.unwrap_or(self.entries);
        if at >= Rules::entries(self.rules.slots) {
            return Ok(false);
        }
        (share.released, share.refused) = (released.max(was_released), refused.max(was_refused));
        share.place = Some(at);
        self.entries += u32::from(place.is_none());
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&principal.to_le_bytes());
        bytes[8..16].copy_from_slice(&share.released.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&share.refused.0.to_le_bytes());
        let change = Change::Numbers { principal, place, released: was_released, refused: was_refused };
        self.changes.push(change);
        let per_page = per_page(state.page_bytes());
        let offset = usize::try_from(at % per_page).unwrap_or(0) * ENTRY_BYTES;
        state.write(first + at / per_page, offset, &bytes)?;
        Ok(true)
    }

    /// The overlay has become part of the state.
    #[inline]
    pub(crate) fn settle(&mut self) {
        self.changes.clear();
    }

    /// Returns the number of changes that the overlay's end may undo.
    pub(crate) fn changes(&self) -> usize {
        self.changes.len()
    }

    /// Returns whether a lane is among the changes from this number on that has gone.
    pub(crate) fn has_freed(&self, from: usize) -> bool {
        self.changes.iter().skip(from).any(|change| matches!(change, Change::Freed { .. }))
    }

    /// The changes from this number on have been dropped from the overlay. Calls `lane` with every lane that is not in
    /// the table any more, or is there again in this slot.
    pub(crate) fn forget(&mut self, from: usize, mut lane: impl FnMut(ClientId, Option<u32>)) {
        while self.changes.len() > from
            && let Some(change) = self.changes.pop()
        {
            match change {
                Change::Added { client, slot } => {
                    self.remove(client, slot);
                    lane(client, None);
                }
                Change::Freed { client, slot } => {
                    self.insert(client, slot);
                    lane(client, Some(slot));
                }
                Change::Numbers { principal, place, released, refused } => {
                    let share = self.principals.entry(principal).or_default();
                    self.entries -= u32::from(share.place.is_some() && place.is_none());
                    (share.place, share.released, share.refused) = (place, released, refused);
                }
            }
        }
        // What was found out about times may have been the overlay's.
        self.busy_until = 0;
        self.principals.values_mut().for_each(|share| share.busy_until = 0);
    }

    /// Notes a lane of the committed state; those of one state come in the order of their slots.
    pub(crate) fn note_lane(&mut self, client: ClientId, slot: u32) {
        self.free.extend(self.top..slot);
        self.top = slot + 1;
        self.insert(client, slot);
    }

    /// Reads the entries of the committed state, which begin at page `first`.
    pub(crate) fn rebuild(
        &mut self,
        store: &dyn PageStore,
        first: u32,
        page_bytes: usize,
    ) -> Result<(), PageFault> {
        for page in 0..Rules::pages(self.rules.slots, page_bytes) {
            let Some(bytes) = store.get(first + page)? else { return Ok(()) };
            for entry in bytes.chunks_exact(ENTRY_BYTES) {
                let number =
                    |at: usize| entry[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                let (released, refused) = (Timestamp(number(8)), Timestamp(number(16)));
                if released.0 == 0 && refused.0 == 0 {
                    return Ok(());
                }
                let share = self.principals.entry(number(0)).or_default();
                (share.place, share.released, share.refused) = (Some(self.entries), released, refused);
                self.entries += 1;
            }
        }
        Ok(())
    }
}

/// Whose a lane is: how far it may fill the table depends on that. What administrators cannot fill is for recovery requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Replica,
    Admin,
    Client,
}

/// Which lanes may make room for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// There is room.
    Nothing,
    /// One of this principal, which has its quota.
    OneOf(u64),
    /// Anybody's: the table is full.
    Any,
}
