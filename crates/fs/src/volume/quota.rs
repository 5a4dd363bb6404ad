//! The space that users own, which is always counted, and its limits.
//!
//! Counting does not depend on a limit, so a limit can be set, changed and removed while users own data. Data beyond
//! the limit is kept; it can be overwritten and removed, but cannot grow.
//!
//! Each further name of a file takes space in the trees. It counts for the file's owner, like an inode. Earlier versions
//! did not count links, so a user can have more of them than are counted.

use alloc::vec::Vec;

use quorate_service::Stop;

use crate::error::{Done, Why};
use crate::volume::Volume;
use crate::volume::bytes::{inline, le64, next_of, pair_key};
use crate::volume::data::{Extent, to_u64, to_usize};
use crate::volume::inode::{INLINE_BYTES_MAX, Inode};
use crate::volume::later::{LaterKind, postpone};

/// The space that a user owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) pages: u64,
    pub(crate) inodes: u64,
    /// The names of files beyond their first ones.
    pub(crate) links: u64,
}

impl Usage {
    /// Returns the usage in the value of its tree. A user without links has the value that earlier versions store.
    pub(crate) fn decode(value: &[u8]) -> Result<Self, Stop> {
        let links = if value.len() > 16 { le64(value, 16)? } else { 0 };
        Ok(Self { pages: le64(value, 0)?, inodes: le64(value, 8)?, links })
    }

    fn encode(self) -> Vec<u8> {
        let numbers = [self.pages, self.inodes, self.links].map(u64::to_le_bytes);
        numbers[..if self.links > 0 { 3 } else { 2 }].concat()
    }
}

impl Volume<'_, '_> {
    /// Returns the space that a user owns.
    pub(crate) fn usage(&self, uid: u32) -> Result<Usage, Stop> {
        match self.usage.get(self.view, &uid.to_be_bytes())? {
            Some(value) => Usage::decode(inline(&value)?),
            None => Ok(Usage::default()),
        }
    }

    /// Changes the space that a user owns.
    pub(crate) fn charge(&mut self, uid: u32, pages: i64, inodes: i64, links: i64) -> Done<()> {
        if !self.is_counted || (pages, inodes, links) == (0, 0, 0) {
            return Ok(());
        }
        let change = [uid.into(), pages.cast_unsigned(), inodes.cast_unsigned(), links.cast_unsigned()];
        if postpone(self.view, LaterKind::Charge, &change, &[]) {
            return Ok(());
        }
        let usage = self.usage(uid)?;
        let pages = usage.pages.checked_add_signed(pages).ok_or(Stop::Corrupt)?;
        let inodes = usage.inodes.checked_add_signed(inodes).ok_or(Stop::Corrupt)?;
        let links = usage.links.saturating_add_signed(links);
        let usage = Usage { pages, inodes, links };
        if usage == Usage::default() {
            self.usage.remove(self.view, &uid.to_be_bytes())?;
        } else {
            self.usage.insert(self.view, &uid.to_be_bytes(), &usage.encode())?;
        }
        Ok(())
    }

    /// Returns the limit of a user in pages and inodes; none if there is no limit.
    fn limits(&self, uid: u32) -> Option<Usage> {
        let quota = self.settings.quota;
        let is_bound = uid != 0 && self.is_counted && quota != crate::settings::Quota::NONE;
        let pages = quota.bytes_max / self.page_bytes();
        is_bound.then_some(Usage { pages, inodes: quota.inodes_max, links: 0 })
    }

    /// Returns the space that is left to a user, where a link is an inode; none if there is no limit.
    pub(crate) fn quota_left(&self, uid: u32) -> Result<Option<Usage>, Stop> {
        let Some(limits) = self.limits(uid) else { return Ok(None) };
        let usage = self.usage(uid)?;
        Ok(Some(Usage {
            pages: limits.pages.saturating_sub(usage.pages),
            inodes: limits.inodes.saturating_sub(usage.inodes).saturating_sub(usage.links),
            links: 0,
        }))
    }

    /// Checks that a user may own this number of additional pages and inodes. A link is an inode here.
    pub(crate) fn check_quota(&mut self, uid: u32, pages: u64, inodes: u64) -> Done<()> {
        if self.limits(uid).is_none() {
            return Ok(());
        }
        let is_within = self.settled(|volume| volume.is_within_quota(uid, pages, inodes))?;
        postpone(self.view, LaterKind::Quota, &[uid.into(), pages, inodes, is_within.into()], &[]);
        if is_within { Ok(()) } else { Err(Why::DQuot.into()) }
    }

    /// Returns whether a user may own this number of additional pages and inodes.
    pub(super) fn is_within_quota(&self, uid: u32, pages: u64, inodes: u64) -> Result<bool, Stop> {
        let left = self.quota_left(uid)?;
        Ok(left.is_none_or(|left| left.pages >= pages && left.inodes >= inodes))
    }

    /// Returns how many bytes of a write, at least 1 byte long, its owner may add, from its beginning. Existing pages
    /// cost nothing: at the limit a file can still be overwritten.
    pub(crate) fn quota_room(
        &mut self,
        number: u64,
        inode: &Inode,
        offset: u64,
        len: usize,
    ) -> Result<usize, Stop> {
        if self.limits(inode.uid).is_none() {
            return Ok(len);
        }
        let room = self.settled(|volume| volume.quota_room_now(number, inode, offset, len))?;
        postpone(self.view, LaterKind::QuotaRoom, &[number, offset, to_u64(len), to_u64(room)], &[]);
        Ok(room)
    }

    pub(super) fn quota_room_now(
        &self,
        number: u64,
        inode: &Inode,
        offset: u64,
        len: usize,
    ) -> Result<usize, Stop> {
        let Some(Usage { pages: mut left, .. }) = self.quota_left(inode.uid)? else { return Ok(len) };
        let page_bytes = self.page_bytes();
        let end = offset.saturating_add(to_u64(len));
        if inode.pages == 0 && usize::try_from(end).is_ok_and(|end| end <= INLINE_BYTES_MAX) {
            return Ok(len);
        }
        let (first, last) = (offset / page_bytes, (end - 1) / page_bytes);
        if inode.inline_len > 0 && first > 0 {
            // Inline data moves to its own page.
            if left == 0 {
                return Ok(0);
            }
            left -= 1;
        }
        let prefix = number.to_be_bytes();
        let mut cursor = self.extents.seek(self.view, &pair_key(number, first))?;
        // Blocks before `at` have pages, or are before the write.
        let mut at = first;
        let mut back = cursor;
        if let Some((key, value)) = back.prev(self.view)?
            && let Some(key) = key.strip_prefix(&prefix)
        {
            at = at.max(Extent::decode(key, inline(&value)?)?.end());
        }
        loop {
            let next = next_of(&mut cursor, self.view, &prefix)?;
            let next = next.map(|(key, value)| Extent::decode(key, value)).transpose()?;
            let next = next.filter(|extent| extent.block <= last);
            let hole = next.map_or(last + 1, |extent| extent.block).saturating_sub(at);
            if hole > left {
                let fit = at.saturating_add(left).saturating_mul(page_bytes).saturating_sub(offset);
                return Ok(to_usize(fit).min(len));
            }
            left -= hole;
            let Some(next) = next else { return Ok(len) };
            at = next.end();
        }
    }
}
