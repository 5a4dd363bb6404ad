//! How full the file system is, and its limits.

use super::Op;
use crate::error::Done;
use crate::types::{Attributes, Fullness, Limits};
use crate::volume::directory::NAME_BYTES_MAX;

impl Op<'_, '_, '_> {
    /// Returns the limits of the file system, and the attributes of the file that was named.
    pub(crate) fn limits(&self, handle: &[u8]) -> Done<(Limits, Attributes)> {
        let attributes = self.get_attributes(handle)?;
        let limits = Limits {
            page_bytes: self.volume.page_bytes(),
            file_bytes_max: self.volume.settings().file_bytes_max,
            name_bytes_max: NAME_BYTES_MAX,
            links_max: self.volume.settings().links_max,
        };
        Ok((limits, attributes))
    }

    /// Returns the unique id of the file system.
    pub(crate) fn volume_id(&self) -> u64 {
        self.volume.settings().service_id
    }

    /// Returns how full the file system is for the caller, and the attributes of the file that was named.
    pub(crate) fn fullness(&self, handle: &[u8]) -> Done<(Fullness, Attributes)> {
        // Every call changes what is counted.
        self.volume.needs_pages()?;
        let node = self.node(handle)?;
        let volume = &self.volume;
        let page_bytes = volume.page_bytes();
        let (used, free) = (volume.used_pages()?, volume.free_pages()?);
        let available = u64::from(volume.available_pages()?);
        let left = volume.quota_left(node.caller.uid)?;
        let available = left.map_or(available, |left| available.min(left.pages));
        let files = volume.settings().inodes_max;
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
