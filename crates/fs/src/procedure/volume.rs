//! FSSTAT, FSINFO, PATHCONF.

use quorate_service::Stop;

use super::{Run, settle};
use crate::directory::NAME_BYTES_MAX;
use crate::nfs3::{Attr, Fh, FsInfoOk, FsStatOk, NfsTime, Outcome, PathConfOk, TRANSFER_BYTES_MAX};
use crate::trouble::Done;

/// The properties of the file system: hard links, symbolic links, uniform answers to PATHCONF, and times that can be
/// set.
const PROPERTIES: u32 = 0x01 | 0x02 | 0x08 | 0x10;
/// The recommended size of READDIR, in bytes.
const DIR_BYTES_PREFERRED: u32 = 64 << 10;

impl Run<'_, '_, '_> {
    pub(crate) fn fsstat(&self, fh: &Fh<'_>) -> Result<Outcome<FsStatOk, Option<Attr>>, Stop> {
        settle(self.statistics(fh), || self.post(fh))
    }

    fn statistics(&self, fh: &Fh<'_>) -> Done<FsStatOk> {
        let node = self.node(fh)?;
        let volume = &self.volume;
        let page_bytes = volume.page_bytes();
        let (used, free) = (volume.space.used(volume.view)?, volume.free_pages()?);
        let available = u64::from(volume.available_pages()?);
        let left = volume.quota_left(node.caller.uid)?;
        let available = left.map_or(available, |left| available.min(left.pages));
        let inodes_max = volume.settings.inodes_max;
        let free_inodes = inodes_max.saturating_sub(volume.inodes_used()?);
        Ok(FsStatOk {
            attributes: Some(self.attr(node.number, &node.inode)),
            tbytes: (u64::from(used) + u64::from(free)) * page_bytes,
            fbytes: u64::from(free) * page_bytes,
            abytes: available * page_bytes,
            tfiles: inodes_max,
            ffiles: free_inodes,
            afiles: left.map_or(free_inodes, |left| free_inodes.min(left.inodes)),
            invarsec: 0,
        })
    }

    pub(crate) fn fsinfo(&self, fh: &Fh<'_>) -> Result<Outcome<FsInfoOk, Option<Attr>>, Stop> {
        let transfer = u32::try_from(TRANSFER_BYTES_MAX).unwrap_or(u32::MAX);
        let unit = u32::try_from(self.volume.page_bytes()).unwrap_or(u32::MAX);
        let done = self.node(fh).map(|node| FsInfoOk {
            attributes: Some(self.attr(node.number, &node.inode)),
            rtmax: transfer,
            rtpref: transfer,
            rtmult: unit,
            wtmax: transfer,
            wtpref: transfer,
            wtmult: unit,
            dtpref: DIR_BYTES_PREFERRED,
            maxfilesize: self.volume.settings.file_bytes_max,
            time_delta: NfsTime { seconds: 0, nseconds: 1 },
            properties: PROPERTIES,
        });
        settle(done, || self.post(fh))
    }

    pub(crate) fn pathconf(&self, fh: &Fh<'_>) -> Result<Outcome<PathConfOk, Option<Attr>>, Stop> {
        let done = self.node(fh).map(|node| PathConfOk {
            attributes: Some(self.attr(node.number, &node.inode)),
            linkmax: self.volume.settings.links_max,
            name_max: u32::try_from(NAME_BYTES_MAX).unwrap_or(u32::MAX),
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        });
        settle(done, || self.post(fh))
    }
}
