//! The data of files: inline bytes in the inode, or extents of pages; everything else is holes.
//!
//! An extent is a run of pages for a run of blocks. Extents grow when a file is extended, appear in holes, and are
//! truncated at the end. A write into an extent overwrites its pages. The bytes of a page after the end of the file
//! are zero, so that a file can grow without reading its last page.

use alloc::vec;
use alloc::vec::Vec;

use quorate_service::space::PageRun;
use quorate_service::{Stop, View};

use crate::error::Done;
use crate::volume::Volume;
use crate::volume::bytes::{be64, inline, le32, next_of, pair_key};
use crate::volume::inode::{INLINE_BYTES_MAX, Inode};
use crate::volume::later::{LaterKind, postpone};

/// The content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// A page, and the number of consecutive pages from here.
    Pages(u32, u64),
    /// A hole, of this many blocks.
    Hole(u64),
}

/// An extent: its first block and its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) block: u64,
    pub(crate) run: PageRun,
}

impl Extent {
    /// Returns the extent of a key and value in the tree of extents. The key is without the inode.
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<Self, Stop> {
        let run = PageRun { first: le32(value, 0)?, count: le32(value, 4)? };
        Ok(Self { block: be64(key)?, run })
    }

    pub(crate) fn end(&self) -> u64 {
        self.block.saturating_add(u64::from(self.run.count))
    }
}

impl Volume<'_, '_> {
    /// Appends bytes of a file, all before its end.
    pub(crate) fn read(
        &self,
        number: u64,
        inode: &Inode,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let end = out.len() + len;
        if inode.pages == 0 {
            let data = self.inline_data(number)?;
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
            out.extend_from_slice(&data[from..from.saturating_add(len).min(data.len())]);
            out.resize(end, 0);
            return Ok(());
        }
        self.check_drafts(number)?;
        let page_bytes = self.page_bytes();
        let (mut block, mut skip) = (offset / page_bytes, to_usize(offset % page_bytes));
        while out.len() < end {
            let blocks = self.read_block(number, block, skip, end - out.len(), out)?;
            block = block.saturating_add(blocks);
            skip = 0;
        }
        Ok(())
    }

    /// Appends at most `room` bytes from a block on, without its first `skip` bytes. Returns for how many blocks.
    fn read_block(
        &self,
        number: u64,
        block: u64,
        skip: usize,
        room: usize,
        out: &mut Vec<u8>,
    ) -> Result<u64, Stop> {
        if self.view.is_on_cells() {
            let room = room.min(self.view.page_bytes() - skip);
            match self.extents.drafted(self.view, &pair_key(number, block))?.flatten() {
                Some(content) => out.extend_from_slice(content.get(skip..skip + room).ok_or(Stop::Corrupt)?),
                None => {
                    self.settled(|volume| volume.read_block(number, block, skip, room, out))?;
                }
            }
            return Ok(1);
        }
        match self.block(number, block)? {
            At::Hole(blocks) => {
                let len = blocks.saturating_mul(self.page_bytes()).saturating_sub(to_u64(skip));
                out.resize(out.len() + to_usize(len).min(room), 0);
                Ok(blocks)
            }
            At::Pages(page, _) => {
                let content = self.view.page(page)?.get(skip..).ok_or(Stop::Corrupt)?;
                out.extend_from_slice(&content[..content.len().min(room)]);
                Ok(1)
            }
        }
    }

    /// Writes bytes to a file. Changes `inode`, which the caller must store with [`Self::put_inode`]. The caller has
    /// checked that there is space.
    pub(crate) fn write(&mut self, number: u64, inode: &mut Inode, offset: u64, data: &[u8]) -> Done<()> {
        if data.is_empty() {
            return Ok(());
        }
        let end = offset + to_u64(data.len());
        if inode.pages == 0 {
            let mut first = self.inline_data(number)?.to_vec();
            if let Ok(end @ ..=INLINE_BYTES_MAX) = usize::try_from(end) {
                first.resize(first.len().max(end), 0);
                first[end - data.len()..end].copy_from_slice(data);
                inode.size = inode.size.max(to_u64(end));
                inode.inline_len = first.len();
                return self.put_inode_with(number, inode, &first);
            }
            if !first.is_empty() {
                self.put_inode_with(number, inode, &[])?;
                inode.inline_len = 0;
                self.write_pages(number, inode, 0, &first)?;
            }
        }
        self.write_pages(number, inode, offset, data)?;
        inode.size = inode.size.max(end);
        Ok(())
    }

    /// Returns how many bytes of a write there is space for, from its beginning.
    pub(crate) fn room(
        &mut self,
        number: u64,
        inode: &Inode,
        offset: u64,
        len: usize,
    ) -> Result<usize, Stop> {
        if inode.pages == 0 && offset + to_u64(len) <= to_u64(INLINE_BYTES_MAX) {
            return Ok(len);
        }
        let room = self.settled(|volume| volume.room_now(number, inode, offset, len))?;
        postpone(self.view, LaterKind::Room, &[number, offset, to_u64(len), to_u64(room)], &[]);
        Ok(room)
    }

    pub(super) fn room_now(
        &self,
        number: u64,
        inode: &Inode,
        offset: u64,
        len: usize,
    ) -> Result<usize, Stop> {
        let page_bytes = self.page_bytes();
        let end = offset + to_u64(len);
        let (first, last) = (offset / page_bytes, (end - 1) / page_bytes);
        let mut available = u64::from(self.available_pages()?);
        // One more page, for the inline bytes that move out of the inode.
        if available > last - first + 2 {
            return Ok(len);
        }
        available = available.saturating_sub(u64::from(inode.pages == 0));
        let mut block = first;
        while block <= last {
            block += match self.block(number, block)? {
                At::Pages(_, pages) => pages,
                At::Hole(blocks) => {
                    let blocks = blocks.min(last - block + 1);
                    if blocks > available {
                        let fit = (block + available).saturating_mul(page_bytes).saturating_sub(offset);
                        return Ok(to_usize(fit).min(len));
                    }
                    available -= blocks;
                    blocks
                }
            };
        }
        Ok(len)
    }

    /// Sets a file's size: truncates it, or extends it with a hole. Changes `inode`, which the caller must store.
    pub(crate) fn truncate(&mut self, number: u64, inode: &mut Inode, size: u64) -> Done<()> {
        if size < inode.size {
            if inode.pages == 0 {
                let mut first = self.inline_data(number)?.to_vec();
                first.truncate(usize::try_from(size).unwrap_or(usize::MAX));
                inode.inline_len = first.len();
                inode.size = size;
                return self.put_inode_with(number, inode, &first);
            }
            let page_bytes = self.page_bytes();
            self.free_from(number, inode, size.div_ceil(page_bytes))?;
            if !postpone(self.view, LaterKind::Clear, &[number, size], &[]) {
                self.clear_behind(number, size)?;
            }
        }
        inode.size = size;
        Ok(())
    }

    /// Clears the last page of a file behind its end.
    pub(super) fn clear_behind(&mut self, number: u64, size: u64) -> Result<(), Stop> {
        let page_bytes = self.page_bytes();
        let within = to_usize(size % page_bytes);
        if within > 0
            && let At::Pages(page, _) = self.block(number, size / page_bytes)?
        {
            self.view.page_mut(page)?.get_mut(within..).ok_or(Stop::Corrupt)?.fill(0);
        }
        Ok(())
    }

    /// Frees all pages of a file from a block on.
    pub(super) fn free_from(&mut self, number: u64, inode: &mut Inode, block: u64) -> Done<()> {
        let before = inode.pages;
        if self.view.is_on_cells() {
            let file = number.to_be_bytes();
            if self.extents.has_drafts(self.view, &file)? {
                self.view.needs_pages()?;
            }
            let freed = self.settled(|volume| volume.pages_from(number, block))?;
            inode.pages = before.checked_sub(freed).ok_or(Stop::Corrupt)?;
            self.extents.draft(self.view, &file, None)?;
            let numbers = [number, inode.uid.into(), before.into(), inode.pages.into(), block];
            postpone(self.view, LaterKind::Free, &numbers, &[]);
            return Ok(());
        }
        while let Some(extent) = self.last_extent(number)?.filter(|extent| extent.end() > block) {
            let kept = u32::try_from(block.saturating_sub(extent.block)).unwrap_or(u32::MAX);
            let run = PageRun { first: extent.run.first + kept, count: extent.run.count - kept };
            self.space.free(self.view, run)?;
            inode.pages = inode.pages.checked_sub(run.count).ok_or(Stop::Corrupt)?;
            if kept == 0 {
                self.extents.remove(self.view, &pair_key(number, extent.block))?;
            } else {
                self.set_extent(number, Extent { run: PageRun { count: kept, ..extent.run }, ..extent })?;
            }
        }
        self.charge(inode.uid, i64::from(inode.pages) - i64::from(before), 0, 0)
    }

    /// Returns how many pages a file has from a block on.
    fn pages_from(&self, number: u64, block: u64) -> Result<u32, Stop> {
        let mut cursor = self.extents.seek(self.view, &pair_key(number, u64::MAX))?;
        let mut pages: u32 = 0;
        while let Some((key, value)) = cursor.prev(self.view)?
            && let Some(key) = key.strip_prefix(&number.to_be_bytes())
        {
            let extent = Extent::decode(key, inline(&value)?)?;
            if extent.end() <= block {
                break;
            }
            let kept = u32::try_from(block.saturating_sub(extent.block)).unwrap_or(u32::MAX);
            pages = pages.checked_add(extent.run.count.saturating_sub(kept)).ok_or(Stop::Corrupt)?;
        }
        Ok(pages)
    }

    /// Stops a run on cells that sees an unsettled request which has freed pages of a file: nothing tells which.
    fn check_drafts(&self, number: u64) -> Result<(), Stop> {
        match self.extents.drafted(self.view, &number.to_be_bytes())? {
            Some(_) => self.view.needs_pages(),
            None => Ok(()),
        }
    }

    /// In a run on cells, notes the blocks that a write gives a file, for later runs to read.
    fn draft_pages(&mut self, number: u64, inode: &mut Inode, offset: u64, data: &[u8]) -> Done<()> {
        self.check_drafts(number)?;
        let (before, page_bytes) = (inode.pages, self.view.page_bytes());
        let (mut block, mut skip, mut rest) =
            (offset / to_u64(page_bytes), to_usize(offset % to_u64(page_bytes)), data);
        while !rest.is_empty() {
            let (part, later) = rest.split_at(rest.len().min(page_bytes - skip));
            let key = pair_key(number, block);
            let old = match self.extents.drafted(self.view, &key)?.flatten() {
                Some(content) => Some(content.to_vec()),
                None => self.settled(|volume| {
                    Ok(match volume.block(number, block)? {
                        At::Hole(_) => None,
                        // What is overwritten is not read.
                        At::Pages(..) if part.len() == page_bytes => Some(part.to_vec()),
                        At::Pages(page, _) => Some(volume.view.page(page)?.to_vec()),
                    })
                })?,
            };
            inode.pages = inode.pages.checked_add(u32::from(old.is_none())).ok_or(Stop::Corrupt)?;
            let mut content = old.unwrap_or_else(|| vec![0; page_bytes]);
            content.get_mut(skip..skip + part.len()).ok_or(Stop::Corrupt)?.copy_from_slice(part);
            self.extents.draft(self.view, &key, Some(content))?;
            (block, skip, rest) = (block + 1, 0, later);
        }
        let numbers = [number, inode.uid.into(), before.into(), inode.pages.into(), offset];
        postpone(self.view, LaterKind::Write, &numbers, &[data]);
        Ok(())
    }

    pub(super) fn write_pages(
        &mut self,
        number: u64,
        inode: &mut Inode,
        offset: u64,
        data: &[u8],
    ) -> Done<()> {
        if self.view.is_on_cells() {
            return self.draft_pages(number, inode, offset, data);
        }
        let page_bytes = self.page_bytes();
        let before = inode.pages;
        let (mut block, mut skip, mut rest) = (offset / page_bytes, to_usize(offset % page_bytes), data);
        while !rest.is_empty() {
            let wanted = (to_u64(skip + rest.len())).div_ceil(page_bytes);
            let (first, count) = match self.block(number, block)? {
                At::Pages(page, pages) => (page, pages.min(wanted)),
                At::Hole(blocks) => {
                    let wanted = u32::try_from(blocks.min(wanted)).unwrap_or(u32::MAX);
                    let run = self.space.allocate_run(self.view, wanted, 1)?;
                    self.add_extent(number, Extent { block, run })?;
                    inode.pages = inode.pages.checked_add(run.count).ok_or(Stop::Corrupt)?;
                    (run.first, u64::from(run.count))
                }
            };
            for page in (first..).take(to_usize(count)) {
                let (part, later) = rest.split_at(rest.len().min(to_usize(page_bytes) - skip));
                write_page(self.view, page, skip, part)?;
                (rest, skip) = (later, 0);
            }
            block += count;
        }
        self.charge(inode.uid, i64::from(inode.pages) - i64::from(before), 0, 0)
    }

    /// Returns the content of a block.
    fn block(&self, number: u64, block: u64) -> Result<At, Stop> {
        let prefix = number.to_be_bytes();
        let mut cursor = self.extents.seek(self.view, &pair_key(number, block))?;
        let mut back = cursor;
        if let Some((key, value)) = next_of(&mut cursor, self.view, &prefix)? {
            let next = Extent::decode(key, value)?;
            if next.block == block {
                return Ok(At::Pages(next.run.first, u64::from(next.run.count)));
            }
            return self.before(&mut back, &prefix, block, next.block - block);
        }
        self.before(&mut back, &prefix, block, u64::MAX - block)
    }

    /// Returns the content of a block at which no extent begins; the next one begins `gap` blocks later.
    fn before(
        &self,
        cursor: &mut quorate_service::btree::Cursor,
        prefix: &[u8],
        block: u64,
        gap: u64,
    ) -> Result<At, Stop> {
        let Some((key, value)) = cursor.prev(self.view)? else { return Ok(At::Hole(gap)) };
        let Some(key) = key.strip_prefix(prefix) else { return Ok(At::Hole(gap)) };
        let extent = Extent::decode(key, inline(&value)?)?;
        if extent.end() <= block {
            return Ok(At::Hole(gap));
        }
        let within = u32::try_from(block - extent.block).unwrap_or(u32::MAX);
        let page = extent.run.first.checked_add(within).ok_or(Stop::Corrupt)?;
        Ok(At::Pages(page, extent.end() - block))
    }

    fn last_extent(&self, number: u64) -> Result<Option<Extent>, Stop> {
        let mut cursor = self.extents.seek(self.view, &pair_key(number, u64::MAX))?;
        let Some((key, value)) = cursor.prev(self.view)? else { return Ok(None) };
        let Some(key) = key.strip_prefix(&number.to_be_bytes()) else { return Ok(None) };
        Extent::decode(key, inline(&value)?).map(Some)
    }

    /// Adds an extent; if it continues the previous one, that one grows.
    fn add_extent(&mut self, number: u64, extent: Extent) -> Done<()> {
        let mut cursor = self.extents.seek(self.view, &pair_key(number, extent.block))?;
        if let Some((key, value)) = cursor.prev(self.view)?
            && let Some(key) = key.strip_prefix(&number.to_be_bytes())
        {
            let before = Extent::decode(key, inline(&value)?)?;
            if before.end() == extent.block
                && before.run.first.checked_add(before.run.count) == Some(extent.run.first)
            {
                let count = before.run.count + extent.run.count;
                return self.set_extent(number, Extent { run: PageRun { count, ..before.run }, ..before });
            }
        }
        self.set_extent(number, extent)
    }

    fn set_extent(&mut self, number: u64, extent: Extent) -> Done<()> {
        let value = u64::from(extent.run.first) | u64::from(extent.run.count) << 32;
        self.extents.insert(self.view, &pair_key(number, extent.block), &value.to_le_bytes())?;
        Ok(())
    }
}

/// Writes a part of a page, or all of it.
fn write_page(view: &mut View<'_>, page: u32, at: usize, bytes: &[u8]) -> Result<(), Stop> {
    if bytes.len() == view.page_bytes() { view.put(page, bytes) } else { view.write(page, at, bytes) }
}

pub(super) fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

pub(super) fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
