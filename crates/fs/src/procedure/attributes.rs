//! GETATTR, SETATTR, ACCESS.

use quorate_service::Stop;

use super::{Node, Run, settle};
use crate::caller::{Caller, EXECUTE, READ, SETGID, SETUID, WRITE};
use crate::inode::{Inode, Kind};
use crate::nfs3::{
    AccessArgs, AccessOk, Attr, Fh, NfsTime, Outcome, SetAttr, SetAttrArgs, SetTime, Stat, Wcc,
};
use crate::trouble::Done;

/// The rights in ACCESS.
const ACCESS_READ: u32 = 1;
const ACCESS_LOOKUP: u32 = 2;
const ACCESS_MODIFY: u32 = 4;
const ACCESS_EXTEND: u32 = 8;
const ACCESS_DELETE: u32 = 16;
const ACCESS_EXECUTE: u32 = 32;

impl Run<'_, '_, '_> {
    pub(crate) fn getattr(&self, fh: &Fh<'_>) -> Result<Outcome<Attr, ()>, Stop> {
        settle(self.node(fh).map(|node| self.attr(node.number, &node.inode)), || Ok(()))
    }

    pub(crate) fn setattr(&mut self, args: &SetAttrArgs<'_>) -> Result<Outcome<Wcc, Wcc>, Stop> {
        let before = self.before(&args.object)?;
        let done = self.set_attributes(args);
        let wcc = self.wcc(&args.object, before)?;
        settle(done.map(|()| wcc.clone()), || Ok(wcc.clone()))
    }

    fn set_attributes(&mut self, args: &SetAttrArgs<'_>) -> Done<()> {
        let node = self.node(&args.object)?;
        node.check_writable()?;
        // "If the guard's ctime is not the object's, nothing is changed."
        if args.guard.is_some_and(|guard| guard != NfsTime::of(node.inode.ctime)) {
            return Err(Stat::NotSync.into());
        }
        let set = &args.attributes;
        if *set == SetAttr::default() {
            return Ok(());
        }
        check_set(&node, set)?;
        let Node { number, mut inode, caller, .. } = node;
        if let Some(uid) = set.uid.filter(|uid| *uid != inode.uid) {
            self.volume.check_quota(uid, u64::from(inode.pages), 1)?;
        }
        self.check_size(&inode, set)?;
        let now = self.volume.tick()?;
        if let Some(size) = set.size {
            self.volume.truncate(number, &mut inode, size)?;
            inode.mtime = now;
            if !caller.is_root() {
                drop_privileges(&mut inode);
            }
        }
        if let Some(uid) = set.uid.filter(|uid| *uid != inode.uid) {
            self.volume.charge(inode.uid, -i64::from(inode.pages), -1)?;
            self.volume.charge(uid, i64::from(inode.pages), 1)?;
        }
        change(&mut inode, &caller, set, now);
        inode.ctime = now;
        self.volume.put_inode(number, &inode)
    }

    /// Checks that a file may have this size.
    pub(super) fn check_size(&self, inode: &Inode, set: &SetAttr) -> Done<()> {
        match set.size {
            Some(size) if size > self.volume.settings.file_bytes_max => Err(Stat::FBig.into()),
            Some(size) if size > inode.size => self.volume.check_room(),
            Some(_) | None => Ok(()),
        }
    }

    pub(crate) fn access(&self, args: &AccessArgs<'_>) -> Result<Outcome<AccessOk, Option<Attr>>, Stop> {
        let node = self.node(&args.object);
        let done = node.map(|node| AccessOk {
            attributes: Some(self.attr(node.number, &node.inode)),
            access: args.access & granted(&node),
        });
        settle(done, || self.post(&args.object))
    }
}

/// Checks that the caller may set these attributes.
fn check_set(node: &Node<'_>, set: &SetAttr) -> Done<()> {
    let Node { inode, caller, .. } = node;
    let owns = caller.owns(inode);
    if set.mode.is_some() && !owns {
        return Err(Stat::Perm.into());
    }
    if set.uid.is_some_and(|uid| !(caller.is_root() || owns && uid == inode.uid)) {
        return Err(Stat::Perm.into());
    }
    let may_give = |gid| caller.is_root() || (owns && (gid == inode.gid || caller.is_in(gid)));
    if set.gid.is_some_and(|gid| !may_give(gid)) {
        return Err(Stat::Perm.into());
    }
    for time in [set.atime, set.mtime] {
        match time {
            SetTime::Keep => {}
            SetTime::Server if owns => {}
            SetTime::Server => node.check(WRITE)?,
            SetTime::Client(time) => {
                if !owns {
                    return Err(Stat::Perm.into());
                }
                time.ns().ok_or(Stat::Inval)?;
            }
        }
    }
    if set.size.is_some() {
        match inode.kind {
            Kind::Reg => node.check_or_owner(WRITE)?,
            Kind::Dir => return Err(Stat::IsDir.into()),
            Kind::Blk | Kind::Chr | Kind::Lnk | Kind::Sock | Kind::Fifo => {
                return Err(Stat::Inval.into());
            }
        }
    }
    Ok(())
}

/// Returns the rights of a caller in the format of ACCESS.
fn granted(node: &Node<'_>) -> u32 {
    let Node { inode, caller, .. } = node;
    let mut granted = 0;
    if caller.may(inode, READ) {
        granted |= ACCESS_READ;
    }
    if caller.may(inode, EXECUTE) {
        granted |= if inode.is_dir() { ACCESS_LOOKUP } else { ACCESS_EXECUTE };
    }
    if caller.may(inode, WRITE) && !node.export.read_only {
        granted |= ACCESS_MODIFY | ACCESS_EXTEND;
        if inode.is_dir() {
            granted |= ACCESS_DELETE;
        }
    }
    granted
}

/// Sets the given attributes except the size. They have been checked.
fn change(inode: &mut Inode, caller: &Caller, set: &SetAttr, now: u64) {
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
pub(super) fn time(set: SetTime, old: u64, now: u64) -> u64 {
    match set {
        SetTime::Keep => old,
        SetTime::Server => now,
        SetTime::Client(time) => time.ns().unwrap_or(old),
    }
}
