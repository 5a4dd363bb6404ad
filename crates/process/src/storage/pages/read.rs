//! Reading the index and the pages at a start. What the disk cannot read is damage, unless that is everything: then the
//! disk may only be away, and nothing is given up.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use quorate_service::image::Loading;

use super::super::commit::BLOCK;
use super::super::index::{self, Index, IndexEntry};
use super::super::io::{DiskError, DiskFile as _, DiskIo, DiskNote};
use super::super::owner::PAGES;
use super::PageWriter;

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

impl<D: DiskIo> PageWriter<D> {
    /// Returns the newest index that is not empty.
    pub(super) fn read_index(
        &self,
        indexes: &[(u64, String)],
    ) -> Result<Option<(u64, String, Index)>, DiskError> {
        for (generation, name) in indexes {
            let (bytes, unreadable) = match self.disk.read(name) {
                Err(error) if error.is_unreadable() => (self.read_blocks(name)?, Some(error)),
                read => (read?, None),
            };
            let found = index::read(&self.key, *generation, &bytes);
            if !found.entries.is_empty() || found.seal.is_some() {
                return Ok(Some((*generation, name.clone(), found)));
            }
            if let Some(error) = unreadable {
                // Without it the pages are none, and would be removed.
                return Err(error);
            }
        }
        Ok(None)
    }

    /// Reads an index of which the disk cannot read all: zeros stand for what it cannot.
    fn read_blocks(&self, name: &str) -> Result<Vec<u8>, DiskError> {
        let file = self.disk.open_to_read(name)?;
        let mut bytes = vec![0; usize::try_from(file.len()?).unwrap_or(usize::MAX)];
        for (block, at) in bytes.chunks_mut(BLOCK).zip((0..).step_by(BLOCK)) {
            match file.read_at(block, at) {
                Err(error) if error.is_unreadable() => {
                    self.disk.note(&DiskNote::IndexUnreadable(&error));
                    block.fill(0);
                }
                read => read?,
            }
        }
        Ok(bytes)
    }

    /// Reads pages in the order of their slots. The first `keep` good ones stay in memory. Returns the damaged ones.
    pub(super) fn read_pages(
        &self,
        found: &Index,
        keep: usize,
        loading: &mut Loading,
    ) -> Result<Vec<u32>, DiskError> {
        let (mut damaged, mut unreadable) = (Vec::new(), None);
        if !self.disk.exists(PAGES) {
            found.entries.values().for_each(|_| loading.miss());
            return Ok(found.entries.keys().copied().collect());
        }
        let file = self.disk.open(PAGES)?;
        let mut entries: Vec<&IndexEntry> = found.entries.values().collect();
        entries.sort_unstable_by_key(|entry| entry.slot);
        let at_once = (READ_BYTES / self.page_bytes).max(1);
        let mut buffer = vec![0; at_once * self.page_bytes];
        let follows = |a: &&IndexEntry, b: &&IndexEntry| a.slot.checked_add(1) == Some(b.slot);
        for run in entries.chunk_by(follows).flat_map(|run| run.chunks(at_once)) {
            let bytes = &mut buffer[..run.len() * self.page_bytes];
            if file.read_at(bytes, self.offset(run[0].slot)).is_ok() {
                for (entry, content) in run.iter().zip(bytes.chunks_exact(self.page_bytes)) {
                    let keep = loading.count().0 < keep;
                    if !loading.take(&entry.label, content, Some(entry.slot), keep) {
                        damaged.push(entry.label.page);
                    }
                }
                continue;
            }
            // One of these pages cannot be read: the others may be readable.
            for entry in run {
                let (mut content, keep) = (vec![0; self.page_bytes], loading.count().0 < keep);
                let is_good = match file.read_at(&mut content, self.offset(entry.slot)) {
                    Ok(()) => loading.take(&entry.label, &content, Some(entry.slot), keep),
                    Err(error) => {
                        unreadable = Some(error);
                        loading.miss();
                        false
                    }
                };
                damaged.extend((!is_good).then_some(entry.label.page));
            }
        }
        match unreadable {
            // The disk may only be away: no page is given up.
            Some(error) if loading.count().0 == 0 && error.is_unreadable() => Err(error),
            _ => Ok(damaged),
        }
    }
}
