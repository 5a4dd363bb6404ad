//! Moving a name.

use quorate_service::Stop;

use super::{Node, Op, check_name};
use crate::error::{Done, Why};
use crate::op::caller::{EXECUTE, WRITE};
use crate::volume::ROOT;
use crate::volume::directory::DirEntry;
use crate::volume::inode::Inode;

/// Maximum depth of a directory that others can be moved into: how far the check for cycles goes up.
const DEPTH_MAX: u32 = 16_384;

/// A checked rename.
struct Move<'s> {
    from: Node<'s>,
    to: Node<'s>,
    source: (DirEntry, Inode),
    target: Option<(DirEntry, Inode)>,
}

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) dir: &'a [u8],
    pub(crate) name: &'a [u8],
}

impl<'s> Op<'_, 's, '_> {
    /// Moves a name, and replaces what has the new one.
    pub(crate) fn rename(&mut self, from: Place<'_>, to: Place<'_>) -> Done<()> {
        match self.plan(from, to)? {
            Some(plan) => self.perform(from.name, to.name, plan),
            None => Ok(()),
        }
    }

    /// Checks a rename; none if there is nothing to do.
    fn plan(&mut self, old: Place<'_>, new: Place<'_>) -> Done<Option<Move<'s>>> {
        let (from, to) = (self.writable_dir(old.dir)?, self.writable_dir(new.dir)?);
        if from.export_index != to.export_index {
            return Err(Why::XDev.into());
        }
        check_name(old.name, Why::Inval)?;
        check_name(new.name, Why::Inval)?;
        let source = self.entry(&from, old.name)?.ok_or(Why::NoEnt)?;
        from.check_removal(&source.1)?;
        let target = self.entry(&to, new.name)?;
        to.check(WRITE | EXECUTE)?;
        // "If both names are of the same file, nothing is done and that is a success."
        if target.as_ref().is_some_and(|target| target.0.inode == source.0.inode) {
            return Ok(None);
        }
        let changes_parent = source.1.is_dir() && from.number != to.number;
        if changes_parent {
            // Its ".." changes.
            if !from.caller.may(&source.1, WRITE) {
                return Err(Why::Access.into());
            }
        }
        if source.1.is_dir() && self.is_within(to.number, source.0.inode)? {
            return Err(Why::Inval.into());
        }
        match &target {
            Some((_, inode)) => {
                to.check_removal(inode)?;
                if inode.is_dir() != source.1.is_dir() {
                    return Err(Why::Exist.into());
                }
                if inode.is_dir() && inode.entries > 0 {
                    return Err(Why::NotEmpty.into());
                }
            }
            None if changes_parent && to.inode.nlink >= self.volume.settings().links_max => {
                return Err(Why::MLink.into());
            }
            None => {}
        }
        self.volume.check_room()?;
        Ok(Some(Move { from, to, source, target }))
    }

    /// Returns whether a directory is equal to another, or below it.
    fn is_within(&self, mut dir: u64, other: u64) -> Done<bool> {
        for _ in 0..DEPTH_MAX {
            if dir == other {
                return Ok(true);
            }
            if dir == ROOT {
                return Ok(false);
            }
            dir = self.volume.known_inode(dir)?.parent;
        }
        Err(Why::NameTooLong.into())
    }

    fn perform(&mut self, old: &[u8], new: &[u8], plan: Move<'_>) -> Done<()> {
        let Move { from, to, source: (source, mut moved), target } = plan;
        let now = self.volume.tick()?;
        let is_same = from.number == to.number;
        let (mut from_inode, mut to_inode) = (from.inode, to.inode);
        self.volume.remove_entry(from.number, &mut from_inode, old, source.cookie)?;
        if moved.is_dir() {
            from_inode.nlink = from_inode.nlink.checked_sub(1).ok_or(Stop::Corrupt)?;
        }
        let dir = if is_same { &mut from_inode } else { &mut to_inode };
        match &target {
            Some((found, _)) => {
                let entry = DirEntry { inode: source.inode, cookie: found.cookie };
                self.volume.set_entry(to.number, new, entry)?;
            }
            None => self.volume.add_entry(to.number, dir, new, source.inode)?,
        }
        // Replacing a directory by another leaves the number of directories unchanged.
        if moved.is_dir() && target.is_none() {
            dir.nlink += 1;
        }
        for inode in [&mut from_inode, &mut to_inode] {
            (inode.mtime, inode.ctime) = (now, now);
        }
        self.volume.put_inode(from.number, &from_inode)?;
        if !is_same {
            self.volume.put_inode(to.number, &to_inode)?;
        }
        moved.ctime = now;
        if moved.is_dir() {
            moved.parent = to.number;
        }
        self.volume.put_inode(source.inode, &moved)?;
        match target {
            Some((found, inode)) if inode.is_dir() => self.volume.drop_inode(found.inode, &inode),
            Some((found, inode)) => self.unlink(found.inode, inode),
            None => Ok(()),
        }
    }
}
