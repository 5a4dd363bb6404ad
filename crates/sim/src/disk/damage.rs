//! What disks do to data that was durable (H4-H7).

use std::collections::BTreeSet;

use quorate_process::storage::io::{DiskFile as _, DiskIo as _};
use quorate_process::storage::pages::PageWriter;
use quorate_service::image::Checker;
use quorate_wire::digest::Domains;

use super::Disk;
use super::files::{LOG_ENDING, SECTOR, SimFiles};
use super::spoil::{Damage, Spoiled};

/// The bytes of a commit's head that its checksum covers, or that are the checksum.
const HEAD_BYTES: usize = 56;
/// The page file.
const PAGES: &str = "checkpoint/pages";

impl Disk {
    /// Returns what something other than a crash has changed. Without that, nothing durable is lost.
    pub fn spoiled(&self) -> Spoiled {
        self.spoiled
    }

    /// Does damage to something that was durable, in a way that a start can notice: to the log of a host that is down,
    /// or to a page of one that runs. Returns whether there was anything to damage.
    pub fn damage(&mut self, how: Damage) -> bool {
        if how == Damage::ImageRot {
            return self.rot(0, &BTreeSet::new());
        }
        let commits = self.files.written(LOG_ENDING);
        if commits.is_empty() {
            return false;
        }
        let (name, at, len) = commits[self.faults.index(commits.len())].clone();
        let (other, other_at, other_len) = commits[self.faults.index(commits.len())].clone();
        let bit = self.faults.index(8 * HEAD_BYTES);
        self.spoiled.log = true;
        match how {
            Damage::BitRot => self.files.spoil(&name, |bytes| bytes[at + bit / 8] ^= 1 << (bit % 8)),
            Damage::Zeroed => self.files.spoil(&name, |bytes| bytes[at..at + len].fill(0)),
            Damage::Misdirected => {
                let mut found = vec![0; other_len];
                let copy =
                    |bytes: &mut Vec<u8>| found.copy_from_slice(&bytes[other_at..other_at + other_len]);
                self.files.spoil(&other, copy);
                if (&name, at) == (&other, other_at) {
                    found[bit / 8] ^= 1;
                }
                found.resize(len, 0);
                self.files.spoil(&name, |bytes| bytes[at..at + len].copy_from_slice(&found));
            }
            Damage::Lost => {
                let removed = self.files.remove(&name).and_then(|()| self.files.sync_dir("log"));
                return removed.is_ok();
            }
            Damage::ImageRot => unreachable!("handled above"),
        }
        true
    }

    /// Damages a page in its slot, but none of those that are `spared`: a bit flips, a sector is lost, is stale, or
    /// belongs to another page (H4). The host is running. Returns whether there is one.
    pub fn rot_page(&mut self, spared: &BTreeSet<u32>) -> bool {
        let how = self.faults.below(4);
        self.rot(how, spared)
    }

    fn rot(&mut self, how: u64, spared: &BTreeSet<u32>) -> bool {
        let Some(writers) = &self.writers else { return false };
        let len = writers.pages.page_bytes();
        let slots = writers.pages.slots().map(|(label, slot)| (label.page, slot));
        let slots: Vec<(u32, u32)> = slots.filter(|(page, _)| !spared.contains(page)).collect();
        let (Some((page, slot)), Some((_, other))) = (self.faults.pick(&slots), self.faults.pick(&slots))
        else {
            return false;
        };
        let place = |slot: u32| len * usize::try_from(slot).unwrap_or(0);
        let (at, other, bit, half) =
            (place(slot), place(other), self.faults.index(8 * len), len.min(SECTOR) / 2);
        self.spoiled.pages = true;
        self.rotten.insert(slot, page);
        self.files.spoil(PAGES, |bytes| match how {
            1 => bytes[at..at + half].fill(0),
            2 => bytes.copy_within(other..other + half, at),
            3 => bytes.copy_within(other..other + len, at),
            _ => bytes[at + bit / 8] ^= 1 << (bit % 8),
        });
        true
    }

    /// A page of the state is damaged in the memory of the process, which may write it to its disk (B21).
    pub fn note_wrong_memory(&mut self) {
        self.is_memory_wrong = true;
    }

    /// An image has been sealed. If memory was wrong, the image may have pages that are not what their labels say:
    /// they are damaged, although no disk has done that.
    pub(super) fn look_at_image(&mut self, pages: &PageWriter<SimFiles>) {
        if !self.is_memory_wrong {
            return;
        }
        let mut checker = Checker::new(Domains::new(self.owner.cluster));
        let mut content = vec![0; pages.page_bytes()];
        let Ok(file) = self.files.open_to_read(PAGES) else { return };
        for (label, slot) in pages.slots() {
            let at = u64::from(slot) * u64::try_from(content.len()).unwrap_or(u64::MAX);
            let read = file.read_at(&mut content, at);
            if read.is_ok() && !checker.fits(&label, &content) {
                self.rotten.insert(slot, label.page);
                self.spoiled.pages = true;
            }
        }
    }

    /// Returns the pages of the newest image that are damaged.
    pub fn rotten_pages(&self) -> impl Iterator<Item = u32> + '_ {
        self.rotten.values().copied()
    }

    /// Returns whether a page of the newest image is damaged.
    pub fn is_rotten(&self) -> bool {
        !self.rotten.is_empty()
    }

    /// Returns how many reads of a page have failed.
    pub fn page_faults(&self) -> u64 {
        self.files.page_faults()
    }

    /// Everything is gone (H6).
    pub fn wipe(&mut self) {
        self.files.wipe();
        self.spoiled = Spoiled::ALL;
        self.rotten.clear();
        (self.writers, self.newest) = (None, None);
    }
}
