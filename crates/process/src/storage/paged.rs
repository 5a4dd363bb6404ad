//! The state in the page file: a page is in memory, or in its slot, or both.
//!
//! ```text
//!   page 0   in memory             changed since it was stored, or never stored: stays
//!   page 1   in memory, slot 17    may be dropped
//!   page 2              slot 3     read when needed, checked, and kept
//! ```
//!
//! A page gets its slot when the image that contains it is sealed and it has not changed since it was copied
//! ([`PageStore::stored`]). It loses the slot when it is replaced. A page from a slot is valid if it has its digest,
//! over its number, the checkpoint that modified it and its content. If not, or if it cannot be read, it is a
//! [`PageFault`], and is fetched from the other replicas.
//!
//! Pages are dropped only between steps. The pages that an open batch has written stay in memory until it is merged. Beyond the
//! limit a clock hand drops the pages that were not used since it last passed (CLOCK, with one bit per page). A page
//! that was read from its slot begins without that bit, so pages used once, as in a scan, are dropped before pages
//! used repeatedly.
//!
//! **No slot is written while a page is read from it.** A slot of a sealed checkpoint becomes free when an image is
//! sealed that has another version of its page ([`super::pages::PageWriter::seal`]). To be in that image, the page was
//! replaced after it had got its slot, and lost the slot then. Or it was installed with another label; then it lost
//! its slot too. Free slots are written by the next image only, whose first page is passed after this store has
//! received all slots of the previous one: the process begins no image before
//! that. Slots that a transfer may use
//! (`leftover`) become free with the first seal, and there is none during a transfer. An older checkpoint may still need
//! a page that was replaced without being read ([`PageStore::look_at`]). It is read from its slot, too. The sealed
//! checkpoint and later ones have that slot, or it is not needed; the slots of those before it are named with the seal
//! ([`super::queue::DiskQueue::image`]), and do not become free.

use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};

use quorate_service::PageFault;
use quorate_service::image::Checker;
use quorate_service::page::{OldPage, PageLabel, PageStore};
use quorate_wire::digest::Domains;
use quorate_wire::{Digest, SeqNum};

use super::io::{DiskError, DiskFile, DiskIo, DiskNote};
use super::owner::PAGES;
use super::store::{Pages, Store};

/// Pages in a group.
const GROUP: usize = 64;
/// Maximum number of pages that are dropped at a time: half a millisecond's work.
const DROPPED_MAX: usize = 2048;

type Page = Box<[u8]>;

/// The slot and the digest of a page.
#[derive(Clone, Copy, Debug, Default)]
struct Home {
    slot: u32,
    modified: SeqNum,
    digest: Digest,
}

/// A group of consecutive pages, with bits for their properties.
#[derive(Debug)]
struct Group {
    content: [OnceCell<Page>; GROUP],
    /// It is in memory.
    here: Cell<u64>,
    /// It was used since the hand last passed.
    used: Cell<u64>,
    /// It has a slot.
    stored: u64,
    /// None: no page has had a slot.
    homes: Option<Box<[Home; GROUP]>>,
}

impl Group {
    fn new() -> Box<Self> {
        Box::new(Self {
            content: [const { OnceCell::new() }; GROUP],
            here: Cell::new(0),
            used: Cell::new(0),
            stored: 0,
            homes: None,
        })
    }
}

/// The pages of a state, with a limit for those in memory that can be read again.
#[derive(Debug)]
pub struct Paged<D: DiskIo> {
    groups: Vec<Option<Box<Group>>>,
    /// The page file, if it has been opened.
    file: OnceCell<D::File>,
    /// None: the whole state is in memory.
    disk: Option<D>,
    page_bytes: usize,
    checker: RefCell<Checker>,
    /// Maximum number of pages in memory.
    pages_max: usize,
    /// Pages in memory, and those of them that have a slot.
    here: Cell<usize>,
    clean: Cell<usize>,
    stored: usize,
    /// The next group of the hand.
    hand: usize,
    reads: Cell<u64>,
    faults: Cell<u64>,
}

/// Returns the group of a page, its index there, and the bit of that index.
#[inline]
fn place(page: u32) -> (usize, usize, u64) {
    let Ok(page) = usize::try_from(page) else { unreachable!("an address has 32 bits or more") };
    (page / GROUP, page % GROUP, 1 << (page % GROUP))
}

impl<D: DiskIo> Paged<D> {
    /// Returns an empty store for pages of this size. Of the pages in the page file of `disk`, at most `bytes_max`
    /// bytes are kept in memory.
    pub fn new(disk: D, domains: Domains, page_bytes: usize, bytes_max: usize) -> Self {
        Self::with(Some(disk), domains, page_bytes, bytes_max)
    }

    /// Returns an empty store for a state that is entirely in memory, whatever its size.
    pub fn in_memory(domains: Domains, page_bytes: usize) -> Self {
        Self::with(None, domains, page_bytes, usize::MAX)
    }

    fn with(disk: Option<D>, domains: Domains, page_bytes: usize, bytes_max: usize) -> Self {
        Self {
            groups: Vec::new(),
            file: OnceCell::new(),
            disk,
            page_bytes,
            checker: RefCell::new(Checker::new(domains)),
            pages_max: (bytes_max / page_bytes.max(1)).max(1),
            here: Cell::new(0),
            clean: Cell::new(0),
            stored: 0,
            hand: 0,
            reads: Cell::new(0),
            faults: Cell::new(0),
        }
    }

    /// Reads a page from its slot.
    #[cold]
    fn read(&self, page: u32, home: Home, buffer: &mut [u8]) -> Result<(), PageFault> {
        self.reads.set(self.reads.get() + 1);
        let cause = match self.read_slot(home.slot, buffer) {
            Ok(()) => {
                let label = PageLabel { page, modified: home.modified, digest: home.digest };
                if mutant!(M148, self.checker.borrow_mut().fits(&label, buffer), true) {
                    return Ok(());
                }
                String::from("it is another page, an older one, or damaged")
            }
            Err(None) => String::from("it has no disk"),
            Err(Some(error)) => error.to_string(),
        };
        self.faults.set(self.faults.get() + 1);
        if let Some(disk) = &self.disk {
            disk.note(&DiskNote::PageFault { page, slot: home.slot, cause: &cause });
        }
        Err(PageFault { page })
    }

    fn read_slot(&self, slot: u32, buffer: &mut [u8]) -> Result<(), Option<DiskError>> {
        let file = if let Some(file) = self.file.get() {
            file
        } else {
            let file = self.disk.as_ref().ok_or(None)?.open_to_read(PAGES)?;
            self.file.get_or_init(|| file)
        };
        let at = u64::from(slot) * u64::try_from(self.page_bytes).unwrap_or(u64::MAX);
        file.read_at(buffer, at).map_err(Some)
    }

    /// Returns the group of a page, and its slot; none if it is empty, or in memory.
    fn away(&self, page: u32) -> Option<(&Group, Home)> {
        let (group, at, bit) = place(page);
        let group = self.groups.get(group)?.as_deref()?;
        let home = group.homes.as_ref().filter(|_| group.stored & bit != 0 && group.here.get() & bit == 0)?;
        Some((group, home[at]))
    }

    /// Loads a page that is not in memory, and keeps it.
    #[cold]
    fn fetch(&self, page: u32) -> Result<Option<&[u8]>, PageFault> {
        let Some((group, home)) = self.away(page) else { return Ok(None) };
        let (_, at, bit) = place(page);
        let mut content = vec![0; self.page_bytes].into_boxed_slice();
        self.read(page, home, &mut content)?;
        group.here.set(group.here.get() | bit);
        self.here.set(self.here.get() + 1);
        self.clean.set(self.clean.get() + 1);
        Ok(Some(group.content[at].get_or_init(|| content)))
    }

    /// Drops pages with a slot until at most the limit less a sixteenth are in memory, so that there is space for a
    /// while.
    #[cold]
    fn drop_some(&mut self, keeps: &dyn Fn(u32) -> bool) {
        let target = self.pages_max - self.pages_max / 16;
        let mut dropped = 0;
        // Twice around: in the first pass all pages may have been used.
        for _ in 0..2 * self.groups.len() {
            if self.here.get() <= target || dropped >= DROPPED_MAX || self.clean.get() == 0 {
                return;
            }
            let at = self.hand % self.groups.len();
            self.hand = at + 1;
            let Some(group) = &mut self.groups[at] else { continue };
            let may_go = group.here.get() & mutant!(M146, group.stored, u64::MAX);
            let mut going = may_go & !group.used.get();
            group.used.set(group.used.get() & !may_go);
            let mut gone = 0_u64;
            while going != 0 {
                let Ok(place) = usize::try_from(going.trailing_zeros()) else { break };
                let bit = going & going.wrapping_neg();
                going &= !bit;
                if u32::try_from(at * GROUP + place).is_ok_and(keeps) {
                    continue;
                }
                group.content[place].take();
                gone |= bit;
            }
            group.here.set(group.here.get() & !gone);
            let count = usize::try_from(gone.count_ones()).unwrap_or(0);
            self.here.set(self.here.get() - count);
            self.clean.set(self.clean.get().saturating_sub(count));
            dropped += count;
        }
    }
}

impl<D: DiskIo> Store for Paged<D> {
    /// Returns how many pages may be in memory.
    fn pages_max(&self) -> usize {
        self.pages_max
    }

    /// Returns the numbers of pages.
    fn pages(&self) -> Pages {
        Pages {
            in_memory: self.here.get(),
            dirty: self.here.get() - self.clean.get(),
            on_disk: self.stored - self.clean.get(),
            reads: self.reads.get(),
            faults: self.faults.get(),
        }
    }

    /// Returns whether enough pages are only in memory for them to be stored. `others` are in memory for other
    /// reasons and count too.
    #[inline]
    fn is_crowded(&self, others: usize) -> bool {
        self.here.get() - self.clean.get() + others > self.pages_max / 2
    }
}

impl<D: DiskIo> PageStore for Paged<D> {
    #[inline]
    fn get(&self, page: u32) -> Result<Option<&[u8]>, PageFault> {
        let (at_group, at, bit) = place(page);
        let Some(Some(group)) = self.groups.get(at_group) else { return Ok(None) };
        if let Some(content) = group.content[at].get() {
            if group.used.get() & bit == 0 {
                group.used.set(group.used.get() | bit);
            }
            return Ok(Some(content));
        }
        if group.stored & bit == 0 { Ok(None) } else { self.fetch(page) }
    }

    fn look<'a>(&'a self, page: u32, buffer: &'a mut Vec<u8>) -> Result<Option<&'a [u8]>, PageFault> {
        let Some((_, home)) = self.away(page) else { return self.get(page) };
        buffer.resize(self.page_bytes, 0);
        self.read(page, home, buffer)?;
        Ok(Some(buffer))
    }

    #[inline]
    fn replace(&mut self, page: u32, content: Option<Page>) -> OldPage {
        let (at_group, at, bit) = place(page);
        if content.is_none() && self.groups.get(at_group).is_none_or(Option::is_none) {
            return Ok(None);
        }
        if at_group >= self.groups.len() {
            self.groups.resize_with(at_group + 1, || None);
        }
        let group = self.groups[at_group].get_or_insert_with(Group::new);
        let was = group.content[at].take();
        let was_stored = group.stored & bit != 0;
        let slot = group.homes.as_ref().filter(|_| was_stored && was.is_none()).map(|homes| homes[at].slot);
        if was_stored {
            group.stored &= mutant!(M147, !bit, u64::MAX);
            self.stored -= mutant!(M147, 1, 0);
            self.clean.set(self.clean.get() - usize::from(was.is_some()));
        }
        let (mut here, mut used) = (group.here.get() & !bit, group.used.get() & !bit);
        self.here.set(self.here.get() + usize::from(content.is_some()) - usize::from(was.is_some()));
        if let Some(content) = content {
            group.content[at] = OnceCell::from(content);
            (here, used) = (here | bit, used | bit);
        }
        group.here.set(here);
        group.used.set(used);
        slot.map_or(Ok(was), Err)
    }

    fn look_at<'a>(&'a self, label: &PageLabel, slot: u32, buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        buffer.resize(self.page_bytes, 0);
        self.read(label.page, Home { slot, modified: label.modified, digest: label.digest }, buffer).ok()?;
        Some(buffer)
    }

    fn next(&self, from: u32) -> Option<u32> {
        let (mut group, at, _) = place(from);
        let mut mask = u64::MAX << at;
        while group < self.groups.len() {
            let there = self.groups[group].as_ref().map_or(0, |group| group.here.get() | group.stored) & mask;
            if there != 0 {
                let at = usize::try_from(there.trailing_zeros()).unwrap_or(0);
                return u32::try_from(group * GROUP + at).ok();
            }
            (group, mask) = (group + 1, u64::MAX);
        }
        None
    }

    fn stored(&mut self, label: &PageLabel, slot: u32) {
        if label.digest == Digest::ZERO {
            return; // an empty page has no slot
        }
        let (at_group, at, bit) = place(label.page);
        if at_group >= self.groups.len() {
            self.groups.resize_with(at_group + 1, || None);
        }
        let group = self.groups[at_group].get_or_insert_with(Group::new);
        if group.stored & bit == 0 {
            group.stored |= bit;
            self.stored += 1;
            self.clean.set(self.clean.get() + usize::from(group.here.get() & bit != 0));
        }
        let homes = group.homes.get_or_insert_with(|| Box::new([Home::default(); GROUP]));
        homes[at] = Home { slot, modified: label.modified, digest: label.digest };
    }

    #[inline]
    fn relax(&mut self, keeps: &dyn Fn(u32) -> bool) {
        if self.here.get() > self.pages_max {
            self.drop_some(keeps);
        }
    }
}

#[cfg(test)]
mod tests;
