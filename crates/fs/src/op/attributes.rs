//! Reading and setting attributes, and rights.

use super::{Node, Op};
use crate::error::{Done, Why};
use crate::op::caller::{Caller, EXECUTE, READ, SETGID, SETUID, WRITE};
use crate::types::{Attributes, FileKind, Rights, SetAttributes, TimeChange};
use crate::volume::Volume;
use crate::volume::inode::Inode;

impl Op<'_, '_, '_> {
    /// Returns the attributes of a file.
    pub(crate) fn get_attributes(&self, handle: &[u8]) -> Done<Attributes> {
        self.node(handle).map(|node| self.attributes(node.number, &node.inode))
    }

    /// Sets attributes, if the file's ctime is as the caller expects.
    pub(crate) fn set_attributes(
        &mut self,
        handle: &[u8],
        set: &SetAttributes,
        is_expected: impl FnOnce(u64) -> bool,
    ) -> Done<()> {
        let node = self.node(handle)?;
        node.check_writable()?;
        if !is_expected(node.inode.ctime) {
            return Err(Why::NotSync.into());
        }
        if *set == SetAttributes::default() {
            return Ok(());
        }
        check_set(&node, set)?;
        let Node { number, mut inode, caller, .. } = node;
        if let Some(uid) = set.uid.filter(|uid| *uid != inode.uid) {
            self.volume.check_quota(uid, u64::from(inode.pages), 1 + u64::from(inode.links()))?;
        }
        check_size(self.volume, &inode, set)?;
        let now = self.volume.tick()?;
        if let Some(size) = set.size {
            self.volume.truncate(number, &mut inode, size)?;
            inode.mtime = now;
            if !caller.is_root() {
                drop_privileges(&mut inode);
            }
        }
        if let Some(uid) = set.uid.filter(|uid| *uid != inode.uid) {
            let (pages, links) = (i64::from(inode.pages), i64::from(inode.links()));
            self.volume.charge(inode.uid, -pages, -1, -links)?;
            self.volume.charge(uid, pages, 1, links)?;
        }
        change(&mut inode, &caller, set, now);
        inode.ctime = now;
        self.volume.put_inode(number, &inode)
    }

    /// Returns the rights of the caller, with the attributes that they follow from.
    pub(crate) fn rights(&self, handle: &[u8]) -> Done<(Rights, Attributes)> {
        let node = self.node(handle)?;
        let Node { inode, caller, export, .. } = &node;
        let rights = Rights {
            read: caller.may(inode, READ),
            write: caller.may(inode, WRITE) && !export.read_only,
            execute: caller.may(inode, EXECUTE),
        };
        Ok((rights, self.attributes(node.number, inode)))
    }
}

/// Checks that a file may have this size.
pub(super) fn check_size(volume: &mut Volume<'_, '_>, inode: &Inode, set: &SetAttributes) -> Done<()> {
    match set.size {
        Some(size) if size > volume.settings().file_bytes_max => Err(Why::FBig.into()),
        Some(size) if size > inode.size => volume.check_room(),
        Some(_) | None => Ok(()),
    }
}

/// Checks that the caller may set these attributes.
fn check_set(node: &Node<'_>, set: &SetAttributes) -> Done<()> {
    let Node { inode, caller, .. } = node;
    let owns = caller.owns(inode);
    if set.mode.is_some() && !owns {
        return Err(Why::Perm.into());
    }
    if set.uid.is_some_and(|uid| !(caller.is_root() || owns && uid == inode.uid)) {
        return Err(Why::Perm.into());
    }
    let may_give = |gid| caller.is_root() || (owns && (gid == inode.gid || caller.is_in(gid)));
    if set.gid.is_some_and(|gid| !may_give(gid)) {
        return Err(Why::Perm.into());
    }
    for time in [set.atime, set.mtime] {
        match time {
            TimeChange::Keep => {}
            TimeChange::Now if owns => {}
            TimeChange::Now => node.check(WRITE)?,
            TimeChange::To(time) => {
                if !owns {
                    return Err(Why::Perm.into());
                }
                time.ok_or(Why::Inval)?;
            }
        }
    }
    if set.size.is_some() {
        match inode.kind {
            FileKind::Reg => node.check_or_owner(WRITE)?,
            FileKind::Dir => return Err(Why::IsDir.into()),
            FileKind::Blk | FileKind::Chr | FileKind::Lnk | FileKind::Sock | FileKind::Fifo => {
                return Err(Why::Inval.into());
            }
        }
    }
    Ok(())
}

/// Sets the given attributes except the size. They have been checked.
fn change(inode: &mut Inode, caller: &Caller, set: &SetAttributes, now: u64) {
    if let Some(mode) = set.mode {
        inode.mode = permissions(mode);
        // A user outside a file's group cannot let others act in its name.
        let group = set.gid.unwrap_or(inode.gid);
        if !caller.is_root() && !caller.is_in(group) && !inode.is_dir() {
            inode.mode &= !SETGID;
        }
    }
    if set.uid.is_some() || set.gid.is_some() {
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        drop_privileges(inode);
    }
    inode.atime = time(set.atime, inode.atime, now);
    inode.mtime = time(set.mtime, inode.mtime, now);
}

/// Takes away what makes a program run in its owner's name, because it is not his any more, or not what
/// he wrote. From everything but directories, as Linux does, although only a file can be run.
pub(super) fn drop_privileges(inode: &mut Inode) {
    if !inode.is_dir() {
        inode.mode &= !SETUID;
        // Without execute permission for the group, the bit has another meaning.
        if inode.mode & 0o010 != 0 {
            inode.mode &= !SETGID;
        }
    }
}

/// Returns the bits of a mode that are stored.
pub(super) fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or(0)
}

/// Returns the new value of a time.
pub(super) fn time(set: TimeChange, old: u64, now: u64) -> u64 {
    match set {
        TimeChange::Keep => old,
        TimeChange::Now => now,
        TimeChange::To(time) => time.unwrap_or(old),
    }
}
