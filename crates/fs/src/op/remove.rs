//! Operations that remove a name.

use quorate_service::Stop;

use super::{Node, Op, check_name};
use crate::error::{Done, Why};

impl Op<'_, '_, '_> {
    /// Removes the name of anything but a directory.
    pub(crate) fn remove_file(&mut self, dir: &[u8], name: &[u8]) -> Done<()> {
        let dir = self.writable_dir(dir)?;
        check_name(name, Why::IsDir)?;
        let (found, inode) = self.entry(&dir, name)?.ok_or(Why::NoEnt)?;
        dir.check_removal(&inode)?;
        if inode.is_dir() {
            return Err(Why::IsDir.into());
        }
        self.remove_name(dir, name, found.cookie, 0)?;
        self.unlink(found.inode, inode)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_dir(&mut self, dir: &[u8], name: &[u8]) -> Done<()> {
        let dir = self.writable_dir(dir)?;
        check_name(name, if name == b"." { Why::Inval } else { Why::Exist })?;
        let (found, inode) = self.entry(&dir, name)?.ok_or(Why::NoEnt)?;
        dir.check_removal(&inode)?;
        if !inode.is_dir() {
            return Err(Why::NotDir.into());
        }
        if inode.entries > 0 {
            return Err(Why::NotEmpty.into());
        }
        self.remove_name(dir, name, found.cookie, 1)?;
        self.volume.drop_inode(found.inode, &inode)
    }

    /// Removes a name from a directory, which has `links` links less afterwards.
    fn remove_name(&mut self, dir: Node<'_>, name: &[u8], cookie: u64, links: u32) -> Done<()> {
        let Node { number, mut inode, .. } = dir;
        self.volume.remove_entry(number, &mut inode, name, cookie)?;
        inode.nlink = inode.nlink.checked_sub(links).ok_or(Stop::Corrupt)?;
        let now = self.volume.tick()?;
        (inode.mtime, inode.ctime) = (now, now);
        self.volume.put_inode(number, &inode)
    }
}
