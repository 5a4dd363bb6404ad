//! What users own, counted if there is a quota.

use quorate_service::Stop;

use crate::nfs3::Stat;
use crate::trouble::Done;
use crate::volume::{Volume, inline, le64};

/// What a user owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) pages: u64,
    pub(crate) inodes: u64,
}

impl Usage {
    pub(crate) fn decode(value: &[u8]) -> Result<Self, Stop> {
        Ok(Self { pages: le64(value, 0)?, inodes: le64(value, 8)? })
    }
}

impl Volume<'_, '_> {
    /// Returns what a user owns.
    pub(crate) fn usage(&self, uid: u32) -> Result<Usage, Stop> {
        match self.usage.get(self.view, &uid.to_be_bytes())? {
            Some(value) => Usage::decode(inline(&value)?),
            None => Ok(Usage::default()),
        }
    }

    /// Changes what a user owns.
    pub(crate) fn charge(&mut self, uid: u32, pages: i64, inodes: i64) -> Done<()> {
        if self.settings.quota.is_none() || (pages, inodes) == (0, 0) {
            return Ok(());
        }
        let usage = self.usage(uid)?;
        let pages = usage.pages.checked_add_signed(pages).ok_or(Stop::Corrupt)?;
        let inodes = usage.inodes.checked_add_signed(inodes).ok_or(Stop::Corrupt)?;
        if (pages, inodes) == (0, 0) {
            self.usage.remove(self.view, &uid.to_be_bytes())?;
        } else {
            let value = u128::from(pages) | u128::from(inodes) << 64;
            self.usage.insert(self.view, &uid.to_be_bytes(), &value.to_le_bytes())?;
        }
        Ok(())
    }

    /// Returns how many pages a user may still fill; none if there is no bound.
    pub(crate) fn quota_pages(&self, uid: u32) -> Result<Option<u64>, Stop> {
        let Some(quota) = self.settings.quota.filter(|_| uid != 0) else { return Ok(None) };
        Ok(Some(quota.pages_max.saturating_sub(self.usage(uid)?.pages)))
    }

    /// Checks that a user may own so many pages and inodes more.
    pub(crate) fn check_quota(&self, uid: u32, pages: u64, inodes: u64) -> Done<()> {
        let Some(quota) = self.settings.quota.filter(|_| uid != 0) else { return Ok(()) };
        let usage = self.usage(uid)?;
        if usage.pages.saturating_add(pages) > quota.pages_max
            || usage.inodes.saturating_add(inodes) > quota.inodes_max
        {
            return Err(Stat::DQuot.into());
        }
        Ok(())
    }
}
