//! RENAME.

use quorate_service::Stop;

use super::{Node, Run, check_name, settle};
use crate::caller::{EXECUTE, WRITE};
use crate::directory::Found;
use crate::inode::Inode;
use crate::nfs3::{Outcome, RenameArgs, RenameWcc, Stat};
use crate::trouble::Done;
use crate::volume::ROOT;

/// Maximum depth of a directory that others can be moved into: how far the check for cycles goes up.
const DEPTH_MAX: u32 = 16_384;

/// A checked rename.
struct Move<'s> {
    from: Node<'s>,
    to: Node<'s>,
    source: (Found, Inode),
    target: Option<(Found, Inode)>,
}

impl<'s> Run<'_, 's, '_> {
    pub(crate) fn rename(&mut self, args: &RenameArgs<'_>) -> Result<Outcome<RenameWcc, RenameWcc>, Stop> {
        let before = (self.before(&args.from.dir)?, self.before(&args.to.dir)?);
        let done = match self.plan(args) {
            Ok(Some(plan)) => self.perform(args, plan),
            Ok(None) => Ok(()),
            Err(trouble) => Err(trouble),
        };
        let from = self.wcc(&args.from.dir, before.0)?;
        let wcc = RenameWcc { from, to: self.wcc(&args.to.dir, before.1)? };
        settle(done.map(|()| wcc.clone()), || Ok(wcc))
    }

    /// Checks a rename; none if there is nothing to do.
    fn plan(&self, args: &RenameArgs<'_>) -> Done<Option<Move<'s>>> {
        let (from, to) = (self.writable_dir(&args.from.dir)?, self.writable_dir(&args.to.dir)?);
        if from.export_index != to.export_index {
            return Err(Stat::XDev.into());
        }
        check_name(args.from.name.0, Stat::Inval)?;
        check_name(args.to.name.0, Stat::Inval)?;
        let source = self.entry(&from, args.from.name.0)?.ok_or(Stat::NoEnt)?;
        from.check_removal(&source.1)?;
        let target = self.entry(&to, args.to.name.0)?;
        to.check(WRITE | EXECUTE)?;
        // "If both names are of the same file, nothing is done and that is a success."
        if target.as_ref().is_some_and(|target| target.0.inode == source.0.inode) {
            return Ok(None);
        }
        let changes_parent = source.1.is_dir() && from.number != to.number;
        if changes_parent {
            // Its ".." changes.
            if !from.caller.may(&source.1, WRITE) {
                return Err(Stat::Access.into());
            }
        }
        if source.1.is_dir() && self.is_within(to.number, source.0.inode)? {
            return Err(Stat::Inval.into());
        }
        match &target {
            Some((_, inode)) => {
                to.check_removal(inode)?;
                if inode.is_dir() != source.1.is_dir() {
                    return Err(Stat::Exist.into());
                }
                if inode.is_dir() && inode.entries > 0 {
                    return Err(Stat::NotEmpty.into());
                }
            }
            None if changes_parent && to.inode.nlink >= self.volume.settings.links_max => {
                return Err(Stat::MLink.into());
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
        Err(Stat::NameTooLong.into())
    }

    fn perform(&mut self, args: &RenameArgs<'_>, plan: Move<'_>) -> Done<()> {
        let Move { from, to, source: (source, mut moved), target } = plan;
        let now = self.volume.tick()?;
        let is_same = from.number == to.number;
        let (mut from_inode, mut to_inode) = (from.inode, to.inode);
        self.volume.remove_entry(from.number, &mut from_inode, args.from.name.0, source.cookie)?;
        if moved.is_dir() {
            from_inode.nlink = from_inode.nlink.checked_sub(1).ok_or(Stop::Corrupt)?;
        }
        let dir = if is_same { &mut from_inode } else { &mut to_inode };
        match &target {
            Some((found, _)) => {
                let entry = Found { inode: source.inode, cookie: found.cookie };
                self.volume.set_entry(to.number, args.to.name.0, entry)?;
            }
            None => self.volume.add_entry(to.number, dir, args.to.name.0, source.inode)?,
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
