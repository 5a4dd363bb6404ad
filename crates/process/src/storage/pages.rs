//! The state at a stable checkpoint: `checkpoint/pages`, an array of slots, and its index (`index.rs`).
//!
//! A changed page is written to a free slot. When all pages of a checkpoint are durable, one write to the index makes
//! them the state, and frees the slots of the replaced pages. So no part of a complete checkpoint is ever
//! overwritten, and only changed pages are written. A page in a slot is valid if it has its digest, which covers the
//! page's number and the checkpoint that modified it: older versions and other pages are detected.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use quorate_service::image::{CopiedPages, difference, is_of_another_form};
use quorate_service::page::PageLabel;
use quorate_service::{Executor, Service};
use quorate_wire::{Digest, SeqNum};

use super::index::{self, IndexEntry, Seal};
use super::io::{DiskAction, DiskError, DiskErrorKind, DiskFile, DiskIo, DiskNote};
use super::owner::{CHECKPOINT, Owner, PAGES};
use super::paged::Paged;
use super::queue::{PageJob, PagesDone};
use super::store::Store as _;

mod read;

/// A new index until it is complete.
const DRAFT: &str = "checkpoint/draft";

/// How far an index may grow beyond twice its shortest form before it is rewritten, in bytes.
const SLACK: usize = 1 << 20;

/// Removes everything.
pub(super) fn clear(disk: &impl DiskIo) -> Result<(), DiskError> {
    for file in disk.list(CHECKPOINT)? {
        disk.remove(&format!("{CHECKPOINT}/{file}"))?;
    }
    disk.sync_dir(CHECKPOINT)
}

/// Makes the indexes durable before they are read. The pages that they name are durable, or there would be no index.
pub(super) fn settle(disk: &impl DiskIo) -> Result<(), DiskError> {
    let indexes = indexes(disk)?;
    for (_, name) in &indexes {
        disk.settle(name)?;
    }
    if indexes.is_empty() { Ok(()) } else { disk.sync_dir(CHECKPOINT) }
}

/// Returns the indexes, newest first.
fn indexes(disk: &impl DiskIo) -> Result<Vec<(u64, String)>, DiskError> {
    let mut found = Vec::new();
    for file in disk.list(CHECKPOINT)? {
        if let Some(generation) = file.strip_suffix(".idx").and_then(|number| number.parse().ok()) {
            found.push((generation, format!("{CHECKPOINT}/{file}")));
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

/// Returns the name of an index.
fn index_name(generation: u64) -> String {
    format!("{CHECKPOINT}/{generation:020}.idx")
}

/// The page file with its index, for writing. What it does waits for the disk, so the node runs it on a thread.
#[derive(Debug)]
pub struct PageWriter<D: DiskIo> {
    disk: D,
    key: [u8; 32],
    shape: [u8; 16],
    page_bytes: usize,
    pages: Option<D::File>,
    index: Option<D::File>,
    generation: u64,
    /// The number and the offset of the next chunk.
    number: u64,
    end: usize,
    /// A crash may have left chunks behind the last one.
    has_tail: bool,
    /// The entries of the last durable checkpoint.
    table: BTreeMap<u32, IndexEntry>,
    /// The entries written since.
    pending: BTreeMap<u32, IndexEntry>,
    /// The slots of those whose pages the disk had before. A checkpoint may be read from there.
    found: BTreeSet<u32>,
    /// Pages that were passed again since, although the disk has them.
    same: Vec<u32>,
    /// Good pages that were found but are not a state, or came with a transfer: it may use them until the next seal.
    leftover: BTreeMap<u32, IndexEntry>,
    /// Pages that a transfer has made part of the state, and that may be nowhere else: kept until the next seal.
    adopted: BTreeMap<u32, IndexEntry>,
    /// Slots that have been replaced: they become free with the next seal, unless an older checkpoint needs them.
    replaced: BTreeSet<u32>,
    /// Free slots below `slots`.
    free: BTreeSet<u32>,
    slots: u32,
    /// Bytes written since the last sync.
    unsynced: usize,
    buffer: Vec<u8>,
}

impl<D: DiskIo> PageWriter<D> {
    /// Returns one for a directory without pages.
    pub fn new<S: Service>(disk: D, owner: Owner, executor: &Executor<S, Paged<D>>) -> Self {
        let shape = executor.shape();
        let page_bytes = u32::from_le_bytes(shape.first_chunk().copied().unwrap_or_default());
        Self {
            disk,
            key: owner.key("quorate 2026 storage index", 0),
            shape,
            page_bytes: usize::try_from(page_bytes).unwrap_or(usize::MAX),
            pages: None,
            index: None,
            generation: 0,
            number: 0,
            end: 0,
            has_tail: false,
            table: BTreeMap::new(),
            pending: BTreeMap::new(),
            found: BTreeSet::new(),
            same: Vec::new(),
            leftover: BTreeMap::new(),
            adopted: BTreeMap::new(),
            replaced: BTreeSet::new(),
            free: BTreeSet::new(),
            slots: 0,
            unsynced: 0,
            buffer: Vec::new(),
        }
    }

    /// Reads the files into an executor. If all pages are good it returns their checkpoint. If not, the good pages
    /// are set aside in the executor for a state transfer, and stay in their slots. At most the store's limit is kept
    /// in memory.
    ///
    /// # Errors
    ///
    /// The directory cannot be read, or has the state of a replica with other options. Nothing has changed.
    pub fn load<S: Service>(
        &mut self,
        executor: &mut Executor<S, Paged<D>>,
        whole: bool,
    ) -> Result<Option<(SeqNum, Digest)>, DiskError> {
        let indexes = indexes(&self.disk)?;
        let Some((generation, name, mut found)) = self.read_index(&indexes)? else { return Ok(None) };
        if found.seal.as_ref().is_some_and(|seal| is_of_another_form(&seal.shape)) {
            return Err(DiskError {
                kind: DiskErrorKind::OtherState,
                action: DiskAction::Read,
                file: name,
                cause: "the state on the disk is in the form of an earlier version".to_string(),
            });
        }
        let difference = found.seal.as_ref().and_then(|seal| difference(&seal.shape, &self.shape));
        if let Some((option, before, now)) = difference {
            return Err(DiskError {
                kind: DiskErrorKind::OtherOptions,
                action: DiskAction::Read,
                file: name,
                cause: format!(
                    "the state on the disk was written with {option} = {before}, and this is {now} now"
                ),
            });
        }
        let mut loading = executor.begin_load();
        let damaged = self.read_pages(&found, executor.store().pages_max(), &mut loading)?;
        let (good, bad) = loading.count();
        let mut entries = core::mem::take(&mut found.entries);
        for page in &damaged {
            entries.remove(page);
        }
        self.slots = entries.values().map(|entry| entry.slot + 1).max().unwrap_or(0);
        let used: BTreeSet<u32> = entries.values().map(|entry| entry.slot).collect();
        self.free = (0..self.slots).filter(|slot| !used.contains(slot)).collect();
        self.generation = generation;
        let Some(seal) = found.seal.filter(|_| whole) else {
            self.disk.note(&DiskNote::Leftover { good });
            executor.keep_for_transfer(loading);
            self.leftover = entries;
            return Ok(None);
        };
        if executor.end_load(loading, seal.seq, seal.root).is_err() {
            // The votes are in the log; the pages come from the others.
            self.disk.note(&DiskNote::Damaged { seq: seal.seq, good, bad });
            self.leftover = entries;
            return Ok(None);
        }
        self.table = entries;
        (self.number, self.end) = (found.number, found.end);
        self.index = self.disk.open(&name).ok();
        self.has_tail = true;
        Ok(Some((seal.seq, seal.root)))
    }

    /// Returns whether there are pages that a transfer may use.
    pub(super) fn has_leftover(&self) -> bool {
        !self.leftover.is_empty()
    }

    /// Replaces the index by one without a seal: the good pages stay in their slots, and are no checkpoint. A transfer may
    /// use them, after another start, too.
    pub(super) fn forget_seal(&mut self) -> Result<(), DiskError> {
        let before = indexes(&self.disk)?;
        let entries: Vec<IndexEntry> = self.leftover.values().copied().collect();
        match self.begin_index(&entries, None) {
            // On a full disk, a transfer brings all pages after another start.
            Err(error) if !error.is_full() => return Err(error),
            Ok(()) | Err(_) => self.index = None,
        }
        for (_, name) in before {
            self.remove_index(&name)?;
        }
        self.disk.sync_dir(CHECKPOINT)
    }

    /// Removes an index, if it exists.
    fn remove_index(&self, name: &str) -> Result<(), DiskError> {
        match self.disk.remove(name) {
            Err(error) if !error.is_missing() => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Does a job.
    ///
    /// # Errors
    ///
    /// There is no space: the same job can be run again. Any other error is final.
    pub fn run(&mut self, job: &PageJob) -> Result<PagesDone, DiskError> {
        match job {
            PageJob::Write(copied) => self.write(copied)?,
            PageJob::Stage(copied) => return self.stage(copied).map(PagesDone::Staged),
            PageJob::Adopt => self.adopt(),
            PageJob::Seal(seq, root, kept) => {
                return self.seal(*seq, *root, kept).map(|stored| PagesDone::Sealed(*seq, stored));
            }
        }
        Ok(PagesDone::Written)
    }

    /// Writes pages. They become part of the state with the next [`Self::seal`]. If the disk is full, nothing has
    /// changed.
    pub fn write(&mut self, copied: &CopiedPages) -> Result<(), DiskError> {
        let labels = copied.labels();
        let unused: Vec<u32> = self.free.iter().copied().chain(self.slots..).take(labels.len()).collect();
        let (mut unused, mut content) = (unused.into_iter(), copied.content().chunks_exact(self.page_bytes));
        let mut entries = Vec::with_capacity(labels.len());
        let (mut same, mut found) = (Vec::new(), Vec::new());
        self.buffer.clear();
        for label in labels {
            let page = if label.digest == Digest::ZERO { None } else { content.next() };
            let known = self.pending.get(&label.page).or_else(|| self.table.get(&label.page));
            let is_anew = copied.is_anew(label.page);
            if !is_anew
                && known
                    .map_or(page.is_none(), |known| mutant!(M150, known.label == *label, !known.is_empty()))
            {
                same.push(label.page);
                continue;
            }
            // A transfer found the page in its slot.
            let places = [self.leftover.get(&label.page), self.adopted.get(&label.page)];
            if let Some(entry) = places.into_iter().flatten().find(|entry| !is_anew && entry.label == *label)
            {
                found.push(*entry);
                continue;
            }
            let mut slot = 0;
            if let Some(page) = page {
                slot = unused.next().unwrap_or(u32::MAX);
                self.buffer.extend_from_slice(page);
            }
            entries.push(IndexEntry { slot, label: *label });
        }
        self.write_content(&entries)?;
        self.same.extend(same);
        for (label, slot) in copied.in_place() {
            let entry = IndexEntry { slot: *slot, label: *label };
            if self.table.get(&label.page) != Some(&entry) {
                found.push(entry);
            } else if let Some(before) = self.pending.remove(&label.page) {
                self.release(before);
            }
        }
        for entry in &found {
            self.replaced.remove(&entry.slot);
            self.found.insert(entry.slot);
            for pages in [&mut self.leftover, &mut self.adopted] {
                if pages.get(&entry.label.page) == Some(entry) {
                    pages.remove(&entry.label.page);
                }
            }
        }
        for entry in entries.into_iter().chain(found) {
            if !entry.is_empty() {
                self.free.remove(&entry.slot);
                self.slots = self.slots.max(entry.slot + 1);
            }
            let before = self.pending.insert(entry.label.page, entry).filter(|before| *before != entry);
            let before = mutant!(M149, before, before.or(self.table.get(&entry.label.page).copied()));
            if let Some(before) = before {
                self.release(before);
            }
        }
        Ok(())
    }

    /// An entry is not pending any more.
    fn release(&mut self, before: IndexEntry) {
        if before.is_empty() {
            return;
        }
        let slots = if self.found.remove(&before.slot) { &mut self.replaced } else { &mut self.free };
        slots.insert(before.slot);
    }

    /// Writes pages of a state transfer, and returns their slots. They become part of the state with an image. Until
    /// the first seal they stay, unless they are replaced. If the disk is full, nothing has changed.
    pub fn stage(&mut self, copied: &CopiedPages) -> Result<Vec<(PageLabel, u32)>, DiskError> {
        let labels = copied.labels();
        let unused = self.free.iter().copied().chain(self.slots..);
        let entries: Vec<IndexEntry> =
            unused.zip(labels).map(|(slot, label)| IndexEntry { slot, label: *label }).collect();
        self.buffer.clear();
        self.buffer.extend_from_slice(copied.content());
        self.write_content(&entries)?;
        for entry in &entries {
            self.free.remove(&entry.slot);
            self.slots = self.slots.max(entry.slot + 1);
            let before = self.leftover.insert(entry.label.page, *entry);
            self.free.extend(before.map(|before| before.slot));
        }
        Ok(entries.iter().map(|entry| (entry.label, entry.slot)).collect())
    }

    /// A transfer is over: its pages may be part of the state. The next one may not use their slots, nor those of
    /// earlier transfers, except where this one has another version.
    pub fn adopt(&mut self) {
        for (page, entry) in core::mem::take(&mut self.leftover) {
            let before = self.adopted.insert(page, entry);
            self.replaced.extend(before.map(|before| before.slot));
        }
    }

    /// Writes the buffer to the slots of these entries; adjacent slots in one write.
    fn write_content(&mut self, entries: &[IndexEntry]) -> Result<(), DiskError> {
        if self.pages.is_none() {
            let file = self.disk.open(PAGES)?;
            // Its name has to be durable before an image is. An index that only grows does not see to that.
            self.disk.sync_dir(CHECKPOINT).map_err(DiskError::into_final)?;
            self.pages = Some(file);
        }
        let Some(file) = &self.pages else { unreachable!("it has been opened") };
        let filled: Vec<u32> =
            entries.iter().filter(|entry| !entry.is_empty()).map(|entry| entry.slot).collect();
        let mut rest = &self.buffer[..];
        for run in filled.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
            let (bytes, after) = rest.split_at(run.len() * self.page_bytes);
            file.write_at(bytes, self.offset(run[0]))?;
            rest = after;
        }
        self.unsynced += self.buffer.len();
        Ok(())
    }

    /// Returns the size of a page, in bytes.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Returns the pages of the last durable checkpoint in their order, with their slots.
    pub fn slots(&self) -> impl Iterator<Item = (PageLabel, u32)> + '_ {
        self.table.values().map(|entry| (entry.label, entry.slot))
    }

    /// Returns how many bytes have been written since the last sync.
    pub fn unsynced(&self) -> usize {
        self.unsynced
    }

    /// Makes the written pages durable.
    ///
    /// # Errors
    ///
    /// The disk has failed.
    pub fn sync(&mut self) -> Result<(), DiskError> {
        if let Some(file) = &self.pages {
            // Never retried: after a failed sync the content of the disk is unknown (GC-4).
            file.sync().map_err(DiskError::into_final)?;
        }
        self.unsynced = 0;
        Ok(())
    }

    /// Makes the written pages checkpoint `seq`, durably. Replaced slots become free, but none in `kept`. Returns the slots
    /// of the pages that are new in it, or were passed again for it. If the disk is full, nothing has changed.
    pub fn seal(
        &mut self,
        seq: SeqNum,
        root: Digest,
        kept: &[u32],
    ) -> Result<Vec<(PageLabel, u32)>, DiskError> {
        mutant!(M143, self.sync(), Ok(()))?;
        let seal = Seal { seq, root, shape: self.shape };
        let worth = 2 * index::size(self.table.len() + self.pending.len()) + SLACK;
        if self.index.is_some() && self.end < worth {
            self.append(&seal)?;
        } else {
            let mut all = self.table.clone();
            all.extend(self.pending.iter().map(|(page, entry)| (*page, *entry)));
            let entries: Vec<IndexEntry> = all.into_values().filter(|entry| !entry.is_empty()).collect();
            self.begin_index(&entries, Some(&seal))?;
        }
        self.found.clear();
        let mut stored = core::mem::take(&mut self.same);
        for (page, entry) in core::mem::take(&mut self.pending) {
            stored.push(page);
            let before =
                if entry.is_empty() { self.table.remove(&page) } else { self.table.insert(page, entry) };
            self.replaced.extend(before.map(|before| before.slot));
        }
        for pages in [&mut self.leftover, &mut self.adopted] {
            self.replaced.extend(core::mem::take(pages).into_values().map(|entry| entry.slot));
        }
        let kept: BTreeSet<u32> = kept.iter().copied().collect();
        let replaced = core::mem::take(&mut self.replaced).into_iter();
        let (stay, mut free) = replaced.partition(|slot| kept.contains(slot));
        self.replaced = stay;
        self.free.append(&mut free);
        let entries = stored.iter().filter_map(|page| self.table.get(page));
        let stored = entries.map(|entry| (entry.label, entry.slot)).collect();
        self.shrink().map_err(DiskError::into_final)?;
        Ok(stored)
    }

    fn append(&mut self, seal: &Seal) -> Result<(), DiskError> {
        let entries: Vec<IndexEntry> = self.pending.values().copied().collect();
        let mut bytes = Vec::new();
        let count = index::encode(&self.key, self.generation, self.number, &entries, Some(seal), &mut bytes);
        let Some(file) = &self.index else { unreachable!("there is an index") };
        let at = u64::try_from(self.end).unwrap_or(u64::MAX);
        if self.has_tail && file.len()? > at {
            // Beside a part of what is written now, it could be read as a whole (L93).
            file.set_len(at)?;
            file.sync_all().map_err(DiskError::into_final)?;
        }
        self.has_tail = false;
        file.write_at(&bytes, at)?;
        mutant!(M144, file.sync(), Ok(())).map_err(DiskError::into_final)?;
        self.number += count;
        self.end += bytes.len();
        Ok(())
    }

    /// Rewrites the index to a temporary file, and renames that.
    fn begin_index(&mut self, entries: &[IndexEntry], seal: Option<&Seal>) -> Result<(), DiskError> {
        let (generation, mut bytes) = (self.generation + 1, Vec::new());
        let count = index::encode(&self.key, generation, 0, entries, seal, &mut bytes);
        if self.disk.exists(DRAFT) {
            self.disk.remove(DRAFT)?;
        }
        let file = self.disk.open(DRAFT)?;
        file.write_at(&bytes, 0)?;
        mutant!(M145, file.sync_all(), Ok(())).map_err(DiskError::into_final)?;
        self.disk.rename(DRAFT, &index_name(generation))?;
        self.disk.sync_dir(CHECKPOINT).map_err(DiskError::into_final)?;
        if self.generation > 0 {
            self.remove_index(&index_name(self.generation))?;
        }
        self.index = Some(file);
        (self.generation, self.number, self.end) = (generation, count, bytes.len());
        Ok(())
    }

    /// Truncates free space at the end of the file.
    fn shrink(&mut self) -> Result<(), DiskError> {
        let before = self.slots;
        while let Some(last) = self.slots.checked_sub(1).filter(|last| self.free.remove(last)) {
            self.slots = last;
        }
        if let Some(file) = self.pages.as_ref().filter(|_| self.slots < before) {
            file.set_len(self.offset(self.slots))?;
        }
        Ok(())
    }

    fn offset(&self, slot: u32) -> u64 {
        u64::from(slot) * u64::try_from(self.page_bytes).unwrap_or(u64::MAX)
    }
}
