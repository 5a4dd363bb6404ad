//! How full the file system is.

use super::Op;
use crate::error::Done;
use crate::types::{Attributes, Fullness};

impl Op<'_, '_, '_> {
    /// Returns how full the file system is for the caller, and the attributes of the file that was named.
    pub(crate) fn fullness(&self, handle: &[u8]) -> Done<(Fullness, Attributes)> {
        let node = self.node(handle)?;
        let volume = &self.volume;
        let page_bytes = volume.page_bytes();
        let (used, free) = (volume.space.used(volume.view)?, volume.free_pages()?);
        let available = u64::from(volume.available_pages()?);
        let left = volume.quota_left(node.caller.uid)?;
        let available = left.map_or(available, |left| available.min(left.pages));
        let files = volume.settings.inodes_max;
        let files_free = files.saturating_sub(volume.inodes_used()?);
        let fullness = Fullness {
            bytes: (u64::from(used) + u64::from(free)) * page_bytes,
            bytes_free: u64::from(free) * page_bytes,
            bytes_available: available * page_bytes,
            files,
            files_free,
            files_available: left.map_or(files_free, |left| files_free.min(left.inodes)),
        };
        Ok((fullness, self.attributes(node.number, &node.inode)))
    }
}
