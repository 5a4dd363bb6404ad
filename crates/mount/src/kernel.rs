//! The kernel's requests from `/dev/fuse`, and their replies.

mod through;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use nix::libc;
use quorate_fs::nfs3::{FileType, SetAttr};
use quorate_node::files::{Handle, User};

use crate::opens::Opens;
use crate::server::{Server, user};
use crate::table::Table;
use crate::words::{of_attributes, of_kind, to_time};
use crate::work::{DELETE, EXECUTE, EXTEND, FoundFile, LOOKUP, ListedFile, MODIFY, Make, READ, Work};

/// How long the kernel may cache attributes and names.
const KEEP: Duration = Duration::from_secs(1);
/// Maximum size of a read or write request, in bytes.
const TRANSFER_BYTES: u32 = 1 << 20;
/// How many requests the kernel may send in the background, such as for read-ahead.
const BACKGROUND: u16 = 64;
/// Size of a block in `statfs`, in bytes.
const BLOCK_BYTES: u32 = 4096;
const NAME_BYTES_MAX: u32 = 255;
/// Inode numbers are never reused, so they need no generations.
const GENERATION: Generation = Generation(0);

/// The file system, for the kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    work: Work,
    opens: Opens,
    /// Whether users other than the one who mounts are admitted.
    has_others: bool,
}

impl Kernel {
    /// Returns the file system of a server, from the handle and inode of the mounted directory.
    pub(crate) fn new(server: Server, root: Handle, inode: u64, has_others: bool) -> Self {
        let work = Work { server, table: Table::new(root, inode) };
        Self { work, opens: Opens::default(), has_others }
    }

    /// Returns how long the kernel may cache a name. Cached names are visible to all users, so a directory that not
    /// everyone may search gets no caching.
    fn keep(&self, found: &FoundFile) -> Duration {
        if self.has_others && !found.is_public { Duration::ZERO } else { KEEP }
    }

    pub(crate) fn handle(&self, number: INodeNo) -> Result<Handle, Errno> {
        self.work.table.handle(number.0)
    }

    /// Replies with an inode.
    fn tell(&self, found: Result<FoundFile, Errno>, reply: ReplyEntry) {
        match found {
            Ok(found) => {
                let FoundFile { handle, attributes, .. } = &found;
                let number = self.work.table.note(attributes.fileid, handle);
                let attributes = of_attributes(attributes, number);
                reply.entry_with_ttls(&KEEP, &self.keep(&found), &attributes, GENERATION);
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
    ) -> Result<FoundFile, Errno> {
        self.work.make(&of(req), &self.handle(dir)?, name.as_bytes(), mode, make)
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

/// Returns the requesting user.
pub(crate) fn of(req: &Request) -> User {
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
        // The service itself clears setuid on writes, and it lists names with attributes.
        // Capabilities that the kernel does not offer are not needed.
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
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mode = mode.map(|mode| mode & 0o7777);
        let set = SetAttr { mode, uid, gid, size, atime: to_time(atime), mtime: to_time(mtime) };
        match self.set_attributes(req, ino, fh, set) {
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
        // No call supports "no replace" or "exchange"; programs that ask for them have a fallback.
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
            self.work.link(&of(req), &handle, &self.handle(newparent)?, newname.as_bytes())
        });
        self.tell(linked, reply);
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        // Before the check: a file that is removed in between gets a hidden name.
        self.work.table.opened(ino.0);
        match self.open_for(req, ino, flags) {
            Ok(open) => reply.opened(open, FopenFlags::empty()),
            Err(errno) => {
                self.work.close(ino.0);
                reply.error(errno);
            }
        }
    }

    fn opendir(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_for(req, ino, flags) {
            Ok(open) => reply.opened(open, FopenFlags::empty()),
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
        match self.create_for(req, parent, name, mode, flags) {
            Ok((found, open)) => {
                let FoundFile { handle, attributes, .. } = &found;
                let number = self.work.table.note(attributes.fileid, handle);
                self.work.table.opened(number);
                let attributes = of_attributes(attributes, number);
                reply.created(&self.keep(&found), &attributes, GENERATION, open, FopenFlags::empty());
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = usize::try_from(size.min(TRANSFER_BYTES)).unwrap_or(0);
        let opener = self.opens.user(fh);
        let data = opener.and_then(|opener| self.work.read(&opener, &self.handle(ino)?, offset, len));
        match data {
            Ok(data) => reply.data(&data),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_through(req, ino, fh, offset, data) {
            Ok(count) => reply.written(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(errno),
        }
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.opens.close(fh);
        self.work.close(ino.0);
        reply.ok();
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.opens.close(fh);
        reply.ok();
    }

    /// Nothing to do: writes are durable.
    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    /// Nothing to do: writes are durable.
    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    /// Nothing to do: new files are durable.
    fn fsyncdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.list(ino, fh, offset) {
            Ok(entries) => {
                for ListedFile { name, inode, cookie, found } in entries {
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
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let entries = match self.list(ino, fh, offset) {
            Ok(entries) => entries,
            Err(errno) => return reply.error(errno),
        };
        let table = &self.work.table;
        for ListedFile { name, inode, cookie, found } in entries {
            let Some(found) = found else { continue };
            let FoundFile { handle, attributes, .. } = &found;
            // The kernel already counts lookups of these two.
            let is_new = name != b"." && name != b"..";
            let number = if is_new { table.note(inode, handle) } else { table.number(inode) };
            let (attributes, keep) = (of_attributes(attributes, number), self.keep(&found));
            let name = OsStr::from_bytes(&name);
            if reply.add(INodeNo(number), cookie, name, &keep, &attributes, GENERATION) {
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
