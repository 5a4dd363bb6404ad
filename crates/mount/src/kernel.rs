//! What the kernel asks, and how it is answered: the requests of `/dev/fuse`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request,
    TimeOrNow, WriteFlags,
};
use nix::libc;
use quorate_fs::nfs3::{FileType, SetAttr};
use quorate_node::files::{Handle, User};

use crate::server::{Server, user};
use crate::table::Table;
use crate::words::{of_attributes, of_kind, to_time};
use crate::work::{DELETE, EXECUTE, EXTEND, Entry, Found, LOOKUP, MODIFY, Make, READ, Work};

/// How long the kernel may keep attributes and names.
const KEEP: Duration = Duration::from_secs(1);
/// The most bytes of one request to read or write.
const TRANSFER_BYTES: u32 = 1 << 20;
/// How many requests the kernel may have under way ahead of those who ask.
const BACKGROUND: u16 = 64;
/// A file is opened to be executed: the kernel's own flag.
const FOR_EXECUTION: i32 = 0x20;
/// Bytes of a block, in which the kernel is told of room.
const BLOCK_BYTES: u32 = 4096;
const NAME_BYTES_MAX: u32 = 255;
/// Numbers of inodes are never used again: none needs another generation.
const GENERATION: Generation = Generation(0);

/// The file system, for the kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    work: Work,
}

impl Kernel {
    /// Returns what answers the kernel: of a server, and the handle and inode of what is mounted.
    pub(crate) fn new(server: Server, root: Handle, inode: u64) -> Self {
        Self { work: Work { server, table: Table::new(root, inode) } }
    }

    fn handle(&self, number: INodeNo) -> Result<Handle, Errno> {
        self.work.table.handle(number.0)
    }

    /// Tells the kernel of an inode.
    fn tell(&self, found: Result<Found, Errno>, reply: ReplyEntry) {
        match found {
            Ok(Found { handle, attributes }) => {
                let number = self.work.table.note(attributes.fileid, &handle);
                reply.entry(&KEEP, &of_attributes(&attributes, number), GENERATION);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn make(
        &self,
        req: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        make: &Make<'_>,
    ) -> Result<Found, Errno> {
        self.work.make(&of(req), &self.handle(dir)?, name.as_bytes(), mode, make)
    }

    fn list(&self, req: &Request, dir: INodeNo, cookie: u64) -> Result<Vec<Entry>, Errno> {
        self.work.list(&of(req), &self.handle(dir)?, cookie).map(|(entries, _)| entries)
    }

    fn check_open(&self, req: &Request, file: INodeNo, flags: OpenFlags) -> Result<(), Errno> {
        let (user, handle) = (of(req), self.handle(file)?);
        let reads = if flags.0 & FOR_EXECUTION == 0 { READ } else { EXECUTE };
        match flags.acc_mode() {
            OpenAccMode::O_RDONLY => self.work.check(&user, &handle, reads),
            OpenAccMode::O_WRONLY => self.work.check(&user, &handle, MODIFY),
            OpenAccMode::O_RDWR => {
                self.work.check(&user, &handle, READ)?;
                self.work.check(&user, &handle, MODIFY)
            }
        }
    }

    fn check_access(&self, req: &Request, file: INodeNo, mask: AccessFlags) -> Result<(), Errno> {
        let (user, handle) = (of(req), self.handle(file)?);
        let rights = [
            (AccessFlags::R_OK, READ),
            (AccessFlags::W_OK, MODIFY | EXTEND | DELETE),
            (AccessFlags::X_OK, LOOKUP | EXECUTE),
        ];
        for (_, any_of) in rights.into_iter().filter(|(flag, _)| mask.contains(*flag)) {
            self.work.check(&user, &handle, any_of)?;
        }
        Ok(())
    }
}

/// Returns who asks.
fn of(req: &Request) -> User {
    user(req.uid(), req.gid(), req.pid())
}

fn done(outcome: Result<(), Errno>, reply: ReplyEmpty) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Kernel {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The service itself takes setuid away where something is written; and it lists names with attributes.
        // What a kernel does not offer is done without.
        let wanted = InitFlags::FUSE_HANDLE_KILLPRIV
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_PARALLEL_DIROPS;
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(TRANSFER_BYTES);
        let _ = config.set_max_readahead(TRANSFER_BYTES);
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.handle(parent).and_then(|dir| self.work.look(&of(req), &dir, name.as_bytes()));
        self.tell(found, reply);
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.work.table.forget(ino.0, nlookup);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.handle(ino).and_then(|file| self.work.attributes(&of(req), &file)) {
            Ok(attributes) => reply.attr(&KEEP, &of_attributes(&attributes, ino.0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mode = mode.map(|mode| mode & 0o7777);
        let set = SetAttr { mode, uid, gid, size, atime: to_time(atime), mtime: to_time(mtime) };
        match self.handle(ino).and_then(|file| self.work.set(&of(req), &file, set)) {
            Ok(attributes) => reply.attr(&KEEP, &of_attributes(&attributes, ino.0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.handle(ino).and_then(|link| self.work.target(&of(req), &link)) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let make = match mode & libc::S_IFMT {
            libc::S_IFREG => Make::File { exclusive: true, truncate: false },
            libc::S_IFIFO => Make::Pipe(FileType::Fifo),
            libc::S_IFSOCK => Make::Pipe(FileType::Sock),
            libc::S_IFCHR => Make::Device(FileType::Chr, rdev),
            libc::S_IFBLK => Make::Device(FileType::Blk, rdev),
            _ => return reply.error(Errno::EINVAL),
        };
        self.tell(self.make(req, parent, name, mode, &make), reply);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        self.tell(self.make(req, parent, name, mode, &Make::Dir), reply);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let dir = self.handle(parent);
        done(dir.and_then(|dir| self.work.remove(&of(req), &dir, name.as_bytes())), reply);
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let dir = self.handle(parent);
        done(dir.and_then(|dir| self.work.remove_dir(&of(req), &dir, name.as_bytes())), reply);
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let make = Make::Link(target.as_os_str().as_bytes());
        self.tell(self.make(req, parent, name, 0, &make), reply);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        // No call says "unless it is there" or "exchange": programs that ask for it know another way.
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let dirs = self.handle(parent).and_then(|from| Ok((from, self.handle(newparent)?)));
        let renamed = dirs.and_then(|(from, to)| {
            self.work.rename(&of(req), (&from, name.as_bytes()), (&to, newname.as_bytes()))
        });
        done(renamed, reply);
    }

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let linked = self.handle(ino).and_then(|handle| {
            let dir = self.handle(newparent)?;
            let attributes = self.work.link(&of(req), &handle, &dir, newname.as_bytes())?;
            Ok(Found { handle, attributes })
        });
        self.tell(linked, reply);
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.check_open(req, ino, flags) {
            Ok(()) => {
                self.work.table.opened(ino.0);
                reply.opened(FileHandle(0), FopenFlags::empty());
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (exclusive, truncate) = (flags & libc::O_EXCL != 0, flags & libc::O_TRUNC != 0);
        match self.make(req, parent, name, mode, &Make::File { exclusive, truncate }) {
            Ok(Found { handle, attributes }) => {
                let number = self.work.table.note(attributes.fileid, &handle);
                self.work.table.opened(number);
                let attributes = of_attributes(&attributes, number);
                reply.created(&KEEP, &attributes, GENERATION, FileHandle(0), FopenFlags::empty());
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = usize::try_from(size.min(TRANSFER_BYTES)).unwrap_or(0);
        match self.handle(ino).and_then(|file| self.work.read(&of(req), &file, offset, len)) {
            Ok(data) => reply.data(&data),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.handle(ino).and_then(|file| self.work.write(&of(req), &file, offset, data)) {
            Ok(count) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(errno),
        }
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.work.close(ino.0);
        reply.ok();
    }

    /// What was written is durable.
    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    /// What was written is durable.
    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    /// What was made is durable.
    fn fsyncdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(&self, req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.list(req, ino, offset) {
            Ok(entries) => {
                for Entry { name, inode, cookie, found } in entries {
                    let kind = found.map_or(FileType::Reg, |found| found.attributes.kind);
                    let number = INodeNo(self.work.table.number(inode));
                    if reply.add(number, cookie, of_kind(kind), OsStr::from_bytes(&name)) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let entries = match self.list(req, ino, offset) {
            Ok(entries) => entries,
            Err(errno) => return reply.error(errno),
        };
        let table = &self.work.table;
        for Entry { name, inode, cookie, found } in entries {
            let Some(Found { handle, attributes }) = found else { continue };
            // The kernel takes those two as told of already.
            let is_new = name != b"." && name != b"..";
            let number = if is_new { table.note(inode, &handle) } else { table.number(inode) };
            let attributes = of_attributes(&attributes, number);
            let name = OsStr::from_bytes(&name);
            if reply.add(INodeNo(number), cookie, name, &KEEP, &attributes, GENERATION) {
                if is_new {
                    table.forget(number, 1);
                }
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.handle(ino).and_then(|file| self.work.space(&of(req), &file)) {
            Ok(space) => {
                let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
                reply.statfs(
                    blocks(space.tbytes),
                    blocks(space.fbytes),
                    blocks(space.abytes),
                    space.tfiles,
                    space.ffiles,
                    BLOCK_BYTES,
                    NAME_BYTES_MAX,
                    BLOCK_BYTES,
                );
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn access(&self, req: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        done(self.check_access(req, ino, mask), reply);
    }
}
