//! The list of reported mounts.
//!
//! A mount is recorded under the client's address and the export, so the list is bounded: at most [`MOUNTS_MAX`].
//! Further mounts are not recorded, because the list is only for information.

use quorate_service::Stop;

use crate::error::OpError;
use crate::volume::bytes::next_of;
use crate::volume::{MOUNTS_USED_AT, Volume};

/// Maximum number of recorded mounts.
const MOUNTS_MAX: u64 = 4096;

impl Volume<'_, '_> {
    /// Records that a client has mounted an export.
    pub(crate) fn note_mount(&mut self, address: &[u8; 16], export: u32) -> Result<(), Stop> {
        let key = mount_key(address, export);
        let used = self.number(MOUNTS_USED_AT)?;
        let is_noted = self.mounts.get(self.view, &key)?.is_some();
        if is_noted || used >= MOUNTS_MAX || self.available_pages()? == 0 {
            return Ok(());
        }
        match self.mounts.insert(self.view, &key, &[]).map_err(OpError::from) {
            Ok(_) => self.set_number(MOUNTS_USED_AT, used + 1),
            Err(OpError::Stop(stop)) => Err(stop),
            Err(OpError::Refused(_)) => Err(Stop::Refused),
        }
    }

    /// Removes the record of a mount, if there is one.
    pub(crate) fn forget_mount(&mut self, address: &[u8; 16], export: u32) -> Result<(), Stop> {
        if self.mounts.remove(self.view, &mount_key(address, export))? {
            let used = self.number(MOUNTS_USED_AT)?;
            self.set_number(MOUNTS_USED_AT, used.checked_sub(1).ok_or(Stop::Corrupt)?)?;
        }
        Ok(())
    }

    /// Passes the address and the export of each recorded mount to `take`.
    pub(crate) fn each_mount(&self, mut take: impl FnMut(&[u8; 16], u32)) -> Result<(), Stop> {
        let mut cursor = self.mounts.first(self.view)?;
        while let Some((key, _)) = next_of(&mut cursor, self.view, &[])? {
            let (address, export) = key.split_first_chunk::<16>().ok_or(Stop::Corrupt)?;
            let export = export.first_chunk().map(|index| u32::from_be_bytes(*index)).ok_or(Stop::Corrupt)?;
            take(address, export);
        }
        Ok(())
    }
}

fn mount_key(address: &[u8; 16], export: u32) -> [u8; 20] {
    let mut key = [0; 20];
    key[..16].copy_from_slice(address);
    key[16..].copy_from_slice(&export.to_be_bytes());
    key
}
