//! CREATE, MKDIR, SYMLINK, MKNOD, LINK: the procedures that add a name.

use alloc::vec::Vec;

use quorate_service::Stop;

use super::attributes::{permissions, time};
use super::{Node, Run, check_new_name, settle};
use crate::caller::{EXECUTE, SETGID, WRITE};
use crate::handle::HANDLE_BYTES;
use crate::inode::{INLINE_BYTES_MAX, Inode, Kind};
use crate::nfs3::{
    Attr, CreateArgs, CreateHow, CreateOk, DirOp, LinkArgs, LinkWcc, MkDirArgs, MkNodArgs, MkNodData,
    Outcome, SetAttr, SetTime, Stat, SymLinkArgs,
};
use crate::trouble::Done;
use crate::xdr::{Opaque, Xdr};

/// The longest target of a symbolic link, in bytes: what other file systems take.
const TARGET_BYTES_MAX: usize = 4095;

/// The object created, or found to exist already.
type Made = ([u8; HANDLE_BYTES], Attr);

impl<'s> Run<'_, 's, '_> {
    pub(crate) fn create(&mut self, args: &CreateArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        self.making(&args.place, out, |run| run.create_file(args))
    }

    pub(crate) fn mkdir(&mut self, args: &MkDirArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        self.making(&args.place, out, |run| {
            let dir = run.place(&args.place)?;
            if dir.inode.nlink >= run.volume.settings.links_max {
                return Err(Stat::MLink.into());
            }
            let mut inode = run.draft(&dir, Kind::Dir, &args.attributes)?;
            (inode.nlink, inode.parent) = (2, dir.number);
            inode.mode |= dir.inode.mode & SETGID;
            run.make(dir, args.place.name.0, inode, &[])
        })
    }

    pub(crate) fn symlink(&mut self, args: &SymLinkArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        self.making(&args.place, out, |run| {
            let dir = run.place(&args.place)?;
            let target = args.target.0;
            if target.len() > TARGET_BYTES_MAX {
                return Err(Stat::NameTooLong.into());
            }
            if target.is_empty() || target.contains(&0) {
                return Err(Stat::Inval.into());
            }
            let mut inode = run.draft(&dir, Kind::Lnk, &args.attributes)?;
            inode.mode = args.attributes.mode.map_or(0o777, permissions);
            if target.len() > INLINE_BYTES_MAX {
                let pages = run.volume.pages_of(target.len());
                run.volume.check_quota(inode.uid, pages, 1)?;
            }
            run.make(dir, args.place.name.0, inode, target)
        })
    }

    pub(crate) fn mknod(&mut self, args: &MkNodArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        self.making(&args.place, out, |run| {
            let (kind, attributes, rdev) = match &args.what {
                MkNodData::Device(kind, attributes, rdev) => (*kind, attributes, *rdev),
                MkNodData::Pipe(kind, attributes) => (*kind, attributes, crate::nfs3::SpecData::default()),
                MkNodData::Other(_) => return Err(Stat::BadType.into()),
            };
            let dir = run.place(&args.place)?;
            if matches!(kind, Kind::Blk | Kind::Chr) && !dir.caller.is_root() {
                return Err(Stat::Perm.into());
            }
            let inode = Inode { rdev, ..run.draft(&dir, kind, attributes)? };
            run.make(dir, args.place.name.0, inode, &[])
        })
    }

    pub(crate) fn link(&mut self, args: &LinkArgs<'_>) -> Result<Outcome<LinkWcc, LinkWcc>, Stop> {
        let before = self.before(&args.link.dir)?;
        let done = self.add_link(args);
        let wcc = LinkWcc { attributes: self.post(&args.file)?, wcc: self.wcc(&args.link.dir, before)? };
        settle(done.map(|()| wcc.clone()), || Ok(wcc))
    }

    fn add_link(&mut self, args: &LinkArgs<'_>) -> Done<()> {
        let Node { number, mut inode, export_index, .. } = self.node(&args.file)?;
        let dir = self.writable_dir(&args.link.dir)?;
        if export_index != dir.export_index {
            return Err(Stat::XDev.into());
        }
        if inode.is_dir() {
            return Err(Stat::Inval.into());
        }
        check_new_name(&args.link)?;
        dir.check(WRITE | EXECUTE)?;
        if self.volume.find(dir.number, args.link.name.0)?.is_some() {
            return Err(Stat::Exist.into());
        }
        if inode.nlink >= self.volume.settings.links_max {
            return Err(Stat::MLink.into());
        }
        self.volume.check_room()?;
        inode.nlink += 1;
        inode.ctime = self.volume.tick()?;
        self.volume.put_inode(number, &inode)?;
        self.add_name(dir, args.link.name.0, number)
    }

    /// Appends the result of a procedure that creates an object.
    fn making(
        &mut self,
        place: &DirOp<'_>,
        out: &mut Vec<u8>,
        build: impl FnOnce(&mut Self) -> Done<Made>,
    ) -> Result<(), Stop> {
        let before = self.before(&place.dir)?;
        let made = build(self);
        let wcc = self.wcc(&place.dir, before)?;
        let done = match &made {
            Ok((handle, attributes)) => Ok(CreateOk {
                object: Some(Opaque(handle)),
                attributes: Some(attributes.clone()),
                wcc: wcc.clone(),
            }),
            Err(trouble) => Err(*trouble),
        };
        settle(done, || Ok(wcc))?.encode(out);
        Ok(())
    }

    fn create_file(&mut self, args: &CreateArgs<'_>) -> Done<Made> {
        let dir = self.writable_dir(&args.place.dir)?;
        check_new_name(&args.place)?;
        if let Some((found, inode)) = self.entry(&dir, args.place.name.0)? {
            return self.create_again(&dir, args, found.inode, inode);
        }
        let dir = self.place(&args.place)?;
        let (attributes, verf) = match &args.how {
            CreateHow::Unchecked(attributes) | CreateHow::Guarded(attributes) => (attributes.clone(), None),
            CreateHow::Exclusive(verf) => (SetAttr::default(), Some(*verf)),
        };
        let mut inode = self.draft(&dir, Kind::Reg, &attributes)?;
        self.check_size(&inode, &attributes)?;
        inode.verf = verf;
        inode.size = attributes.size.unwrap_or(0);
        self.make(dir, args.place.name.0, inode, &[])
    }

    /// Creates a file with an existing name.
    fn create_again(
        &mut self,
        dir: &Node<'_>,
        args: &CreateArgs<'_>,
        number: u64,
        mut inode: Inode,
    ) -> Done<Made> {
        match &args.how {
            // "The same verifier again": a retransmission of a creation that succeeded.
            CreateHow::Exclusive(verf) if inode.verf == Some(*verf) => {}
            CreateHow::Guarded(_) | CreateHow::Exclusive(_) => return Err(Stat::Exist.into()),
            CreateHow::Unchecked(_) if inode.kind != Kind::Reg => return Err(Stat::Exist.into()),
            CreateHow::Unchecked(attributes) => {
                if let Some(size) = attributes.size {
                    if !dir.caller.owns(&inode) && !dir.caller.may(&inode, WRITE) {
                        return Err(Stat::Access.into());
                    }
                    self.check_size(&inode, attributes)?;
                    let now = self.volume.tick()?;
                    self.volume.truncate(number, &mut inode, size)?;
                    (inode.mtime, inode.ctime) = (now, now);
                    self.volume.put_inode(number, &inode)?;
                }
            }
        }
        Ok((self.handle(dir, number, &inode), self.attr(number, &inode)))
    }

    /// Returns the directory of a new name, if the caller may add it.
    fn place(&self, place: &DirOp<'_>) -> Done<Node<'s>> {
        let dir = self.writable_dir(&place.dir)?;
        check_new_name(place)?;
        if self.entry(&dir, place.name.0)?.is_some() {
            return Err(Stat::Exist.into());
        }
        dir.check(WRITE | EXECUTE)?;
        if self.volume.inodes_used()? >= self.volume.settings.inodes_max {
            return Err(Stat::NoSpc.into());
        }
        self.volume.check_room()?;
        Ok(dir)
    }

    /// Returns the inode of a new object, with the requested attributes.
    fn draft(&self, dir: &Node<'_>, kind: Kind, set: &SetAttr) -> Done<Inode> {
        let caller = &dir.caller;
        let inherited = if dir.inode.mode & SETGID != 0 { dir.inode.gid } else { caller.gid };
        let uid = set.uid.unwrap_or(caller.uid);
        let gid = set.gid.unwrap_or(inherited);
        if !caller.is_root() && (uid != caller.uid || (gid != inherited && !caller.is_in(gid))) {
            return Err(Stat::Perm.into());
        }
        for set in [set.atime, set.mtime] {
            if let SetTime::Client(time) = set {
                time.ns().ok_or(Stat::Inval)?;
            }
        }
        self.volume.check_quota(uid, 0, 1)?;
        let mut mode = permissions(set.mode.unwrap_or(0));
        if kind != Kind::Dir && !caller.is_root() && !caller.is_in(gid) {
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
        let made = (self.handle(&dir, number, &inode), self.attr(number, &inode));
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
