//! Operations that add a name.

use super::attributes::{check_size, drop_privileges, permissions, time};
use super::{Made, Node, Op, check_new_name};
use crate::error::{Done, Why};
use crate::op::caller::{EXECUTE, READ, SETGID, WRITE};
use crate::settings::Quota;
use crate::types::{Creation, Device, FileKind, SetAttributes, TimeChange};
use crate::volume::inode::{INLINE_BYTES_MAX, Inode};

/// The longest target of a symbolic link, in bytes: what other file systems take.
const TARGET_BYTES_MAX: usize = 4095;

impl<'s> Op<'_, 's, '_> {
    /// Creates a directory.
    pub(crate) fn create_dir(&mut self, dir: &[u8], name: &[u8], set: &SetAttributes) -> Done<Made> {
        let dir = self.place(dir, name)?;
        if dir.inode.nlink >= self.volume.settings().links_max {
            return Err(Why::MLink.into());
        }
        let mut inode = self.draft(&dir, FileKind::Dir, set)?;
        (inode.nlink, inode.parent) = (2, dir.number);
        inode.mode |= dir.inode.mode & SETGID;
        self.make(dir, name, inode, &[])
    }

    /// Creates a symbolic link.
    pub(crate) fn create_symlink(
        &mut self,
        dir: &[u8],
        name: &[u8],
        set: &SetAttributes,
        target: &[u8],
    ) -> Done<Made> {
        let dir = self.place(dir, name)?;
        if target.len() > TARGET_BYTES_MAX {
            return Err(Why::NameTooLong.into());
        }
        if target.is_empty() || target.contains(&0) {
            return Err(Why::Inval.into());
        }
        let mut inode = self.draft(&dir, FileKind::Lnk, set)?;
        inode.mode = set.mode.map_or(0o777, permissions);
        if target.len() > INLINE_BYTES_MAX {
            let pages = self.volume.pages_of(target.len());
            self.volume.check_quota(inode.uid, pages, 1)?;
        }
        self.make(dir, name, inode, target)
    }

    /// Creates a device, a socket or a pipe.
    pub(crate) fn create_node(
        &mut self,
        dir: &[u8],
        name: &[u8],
        (kind, device): (FileKind, Device),
        set: &SetAttributes,
    ) -> Done<Made> {
        let dir = self.place(dir, name)?;
        if matches!(kind, FileKind::Blk | FileKind::Chr) && !dir.caller.is_root() {
            return Err(Why::Perm.into());
        }
        let inode = Inode { device, ..self.draft(&dir, kind, set)? };
        self.make(dir, name, inode, &[])
    }

    /// Adds a name to a file.
    pub(crate) fn add_link(&mut self, file: &[u8], dir: &[u8], name: &[u8]) -> Done<()> {
        let Node { number, mut inode, export_index, caller, .. } = self.node(file)?;
        let dir = self.writable_dir(dir)?;
        if export_index != dir.export_index {
            return Err(Why::XDev.into());
        }
        if inode.is_dir() {
            return Err(Why::Inval.into());
        }
        check_new_name(name)?;
        dir.check(WRITE | EXECUTE)?;
        if self.volume.find(dir.number, name)?.is_some() {
            return Err(Why::Exist.into());
        }
        if inode.nlink >= self.volume.settings().links_max {
            return Err(Why::MLink.into());
        }
        // It counts for the file's owner, in whose name only those act who may write the file.
        let may_charge =
            caller.owns(&inode) || inode.kind == FileKind::Reg && caller.may(&inode, READ | WRITE);
        if self.volume.settings().quota != Quota::NONE && !may_charge {
            return Err(Why::Perm.into());
        }
        self.volume.check_quota(inode.uid, 0, 1)?;
        self.volume.check_room()?;
        self.volume.charge(inode.uid, 0, 0, 1)?;
        inode.nlink += 1;
        inode.ctime = self.volume.tick()?;
        self.volume.put_inode(number, &inode)?;
        self.add_name(dir, name, number)
    }

    /// Creates a file.
    pub(crate) fn create_file(&mut self, dir: &[u8], name: &[u8], how: &Creation) -> Done<Made> {
        let place = self.writable_dir(dir)?;
        check_new_name(name)?;
        if let Some((found, inode)) = self.entry(&place, name)? {
            return self.create_again(&place, how, found.inode, inode);
        }
        let dir = self.place(dir, name)?;
        let (attributes, verf) = match how {
            Creation::Unchecked(attributes) | Creation::Guarded(attributes) => (attributes.clone(), None),
            Creation::Exclusive(verf) => (SetAttributes::default(), Some(*verf)),
        };
        let mut inode = self.draft(&dir, FileKind::Reg, &attributes)?;
        check_size(self.volume, &inode, &attributes)?;
        inode.verf = verf;
        inode.size = attributes.size.unwrap_or(0);
        self.make(dir, name, inode, &[])
    }

    /// Creates a file with an existing name.
    fn create_again(&mut self, dir: &Node<'_>, how: &Creation, number: u64, mut inode: Inode) -> Done<Made> {
        match how {
            // "The same verifier again": a retransmission of a creation that succeeded.
            Creation::Exclusive(verf) if inode.verf == Some(*verf) => {}
            Creation::Guarded(_) | Creation::Exclusive(_) => return Err(Why::Exist.into()),
            Creation::Unchecked(_) if inode.kind != FileKind::Reg => return Err(Why::Exist.into()),
            Creation::Unchecked(attributes) => {
                if let Some(size) = attributes.size {
                    if !dir.caller.owns(&inode) && !dir.caller.may(&inode, WRITE) {
                        return Err(Why::Access.into());
                    }
                    check_size(self.volume, &inode, attributes)?;
                    let now = self.volume.tick()?;
                    self.volume.truncate(number, &mut inode, size)?;
                    (inode.mtime, inode.ctime) = (now, now);
                    if !dir.caller.is_root() {
                        drop_privileges(&mut inode);
                    }
                    self.volume.put_inode(number, &inode)?;
                }
            }
        }
        Ok((self.handle(dir, number, &inode), self.attributes(number, &inode)))
    }

    /// Returns the directory of a new name, if the caller may add it.
    fn place(&mut self, dir: &[u8], name: &[u8]) -> Done<Node<'s>> {
        let dir = self.writable_dir(dir)?;
        check_new_name(name)?;
        if self.entry(&dir, name)?.is_some() {
            return Err(Why::Exist.into());
        }
        dir.check(WRITE | EXECUTE)?;
        self.volume.check_inodes()?;
        self.volume.check_room()?;
        Ok(dir)
    }

    /// Returns the inode of a new object, with the requested attributes.
    fn draft(&mut self, dir: &Node<'_>, kind: FileKind, set: &SetAttributes) -> Done<Inode> {
        let caller = &dir.caller;
        let inherited = if dir.inode.mode & SETGID != 0 { dir.inode.gid } else { caller.gid };
        let uid = set.uid.unwrap_or(caller.uid);
        let gid = set.gid.unwrap_or(inherited);
        if !caller.is_root() && (uid != caller.uid || (gid != inherited && !caller.is_in(gid))) {
            return Err(Why::Perm.into());
        }
        for set in [set.atime, set.mtime] {
            if let TimeChange::To(time) = set {
                time.ok_or(Why::Inval)?;
            }
        }
        self.volume.check_quota(uid, 0, 1)?;
        let mut mode = permissions(set.mode.unwrap_or(0));
        if kind != FileKind::Dir && !caller.is_root() && !caller.is_in(gid) {
            mode &= !SETGID;
        }
        let mut inode = self.volume.new_inode(kind, mode, uid, gid);
        inode.nlink = 1;
        (inode.atime, inode.mtime) = (
            time(set.atime, inode.atime, self.volume.now()),
            time(set.mtime, inode.mtime, self.volume.now()),
        );
        Ok(inode)
    }

    /// Creates an inode with some data, and adds its name.
    fn make(&mut self, mut dir: Node<'_>, name: &[u8], mut inode: Inode, data: &[u8]) -> Done<Made> {
        let number = self.volume.add_inode(&inode, &[])?;
        if !data.is_empty() {
            self.volume.write(number, &mut inode, 0, data)?;
            self.volume.put_inode(number, &inode)?;
        }
        if inode.is_dir() {
            dir.inode.nlink += 1;
        }
        let made = (self.handle(&dir, number, &inode), self.attributes(number, &inode));
        self.add_name(dir, name, number)?;
        Ok(made)
    }

    /// Adds a name to a directory.
    fn add_name(&mut self, dir: Node<'_>, name: &[u8], number: u64) -> Done<()> {
        let Node { number: dir, mut inode, .. } = dir;
        self.volume.add_entry(dir, &mut inode, name, number)?;
        let now = self.volume.tick()?;
        (inode.mtime, inode.ctime) = (now, now);
        self.volume.put_inode(dir, &inode)
    }
}
