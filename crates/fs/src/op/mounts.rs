//! From a path to the first handle, and the list of reported mounts.

use quorate_service::Stop;

use super::Op;
use super::read::components;
use crate::error::{Done, Why};
use crate::settings::Export;
use crate::volume::directory::NAME_BYTES_MAX;
use crate::volume::handle::{HANDLE_BYTES, Handle};

impl<'s> Op<'_, 's, '_> {
    /// Returns the handle of a directory that is an export, or is below one, and records that the client mounts it.
    pub(crate) fn mount(&mut self, path: &[u8]) -> Done<[u8; HANDLE_BYTES]> {
        let handle = self.first_handle(path)?;
        self.volume.note_mount(&self.address, handle.export)?;
        Ok(handle.encode(self.volume.settings()))
    }

    fn first_handle(&self, path: &[u8]) -> Done<Handle> {
        let (index, export) = self.export_of(path).ok_or(Why::Access)?;
        if !export.admits(&self.address) {
            return Err(Why::Access.into());
        }
        if components(path).any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(Why::NameTooLong.into());
        }
        let number = self.walk(path)?.ok_or(Why::NoEnt)?;
        let inode = self.volume.known_inode(number)?;
        if !inode.is_dir() {
            return Err(Why::NotDir.into());
        }
        Ok(Handle { inode: number, generation: inode.generation, export: index })
    }

    /// Returns the export that contains a path, if there is one. The longest one decides: a nested export has its own
    /// rules.
    fn export_of(&self, path: &[u8]) -> Option<(u32, &'s Export)> {
        (0..)
            .zip(self.exports())
            .filter(|(_, export)| is_within(path, export.path.as_bytes()))
            .max_by_key(|(_, export)| components(export.path.as_bytes()).count())
    }

    /// Removes the record of the client's mount of a path's export: the one that mounting that path has made.
    pub(crate) fn unmount(&mut self, path: &[u8]) -> Result<(), Stop> {
        let Some((index, _)) = self.export_of(path) else { return Ok(()) };
        self.volume.forget_mount(&self.address, index)
    }

    /// Removes the records of all mounts of the client.
    pub(crate) fn unmount_all(&mut self) -> Result<(), Stop> {
        (0..).zip(self.exports()).try_for_each(|(index, _)| self.volume.forget_mount(&self.address, index))
    }

    /// Passes the address and the export of each recorded mount to `take`.
    pub(crate) fn mounts(&self, mut take: impl FnMut(&[u8; 16], &Export)) -> Result<(), Stop> {
        let exports = self.exports();
        self.volume.each_mount(|address, index| {
            if let Some(export) = exports.get(usize::try_from(index).unwrap_or(usize::MAX)) {
                take(address, export);
            }
        })
    }

    /// Returns the exports.
    pub(crate) fn exports(&self) -> &'s [Export] {
        &self.volume.settings().exports
    }
}

/// Returns whether a path is equal to another or below it.
fn is_within(path: &[u8], other: &[u8]) -> bool {
    let mut names = components(path);
    path.first() == Some(&b'/') && components(other).all(|name| names.next() == Some(name))
}
