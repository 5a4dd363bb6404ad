//! Opening files, and requests on open files.
//!
//! POSIX checks permissions when a file is opened. Afterwards a process with the descriptor may use it, even if it has
//! changed its user or got the descriptor from another process. The cluster has no open files and checks each call
//! separately. So a call on an open file is made on behalf of the user who opened it, with the groups at that time. If the
//! file has another owner and its mode is restricted while it is open, the user still loses access.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use fuser::{Errno, FileHandle, INodeNo, OpenAccMode, OpenFlags, Request};
use nix::libc;
use quorate_fs::nfs3::{Attr, SetAttr};
use quorate_node::files::User;

use crate::kernel::{Kernel, of};
use crate::work::{EXECUTE, FoundFile, ListedFile, MODIFY, Make, READ};

/// The kernel's flag for opening a file to execute it.
const FOR_EXECUTION: i32 = 0x20;

impl Kernel {
    pub(crate) fn list(&self, dir: INodeNo, open: FileHandle, cookie: u64) -> Result<Vec<ListedFile>, Errno> {
        let user = self.opens.user(open)?;
        self.work.list(&user, &self.handle(dir)?, cookie).map(|(entries, _)| entries)
    }

    /// Opens a file or a directory for the requesting user, whose rights apply to it from then on.
    pub(crate) fn open_for(
        &self,
        req: &Request,
        number: INodeNo,
        flags: OpenFlags,
    ) -> Result<FileHandle, Errno> {
        let (user, handle) = (of(req), self.handle(number)?);
        let reads = if flags.0 & FOR_EXECUTION == 0 { READ } else { EXECUTE };
        match flags.acc_mode() {
            OpenAccMode::O_RDONLY => self.work.check(&user, &handle, reads)?,
            OpenAccMode::O_WRONLY => self.work.check(&user, &handle, MODIFY)?,
            OpenAccMode::O_RDWR => {
                self.work.check(&user, &handle, READ)?;
                self.work.check(&user, &handle, MODIFY)?;
            }
        }
        self.opens.open(user)
    }

    pub(crate) fn create_for(
        &self,
        req: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(FoundFile, FileHandle), Errno> {
        let user = of(req);
        let dir = self.handle(dir)?;
        // If no more files can be open, the file is not created either.
        let open = self.opens.open(user.clone())?;
        let (exclusive, truncate) = (flags & libc::O_EXCL != 0, flags & libc::O_TRUNC != 0);
        let found = self.work.make(&user, &dir, name.as_bytes(), mode, &Make::File { exclusive, truncate });
        if found.is_err() {
            self.opens.close(open);
        }
        Ok((found?, open))
    }

    pub(crate) fn write_through(
        &self,
        req: &Request,
        file: INodeNo,
        open: FileHandle,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let (opener, file) = (self.opens.user(open)?, self.handle(file)?);
        let (count, attributes) = self.work.write(&opener, &file, offset, data)?;
        self.drop_privileges(req, &opener, &file, attributes.as_ref())?;
        Ok(count)
    }

    pub(crate) fn set_attributes(
        &self,
        req: &Request,
        file: INodeNo,
        open: Option<FileHandle>,
        set: SetAttr,
    ) -> Result<Attr, Errno> {
        let file = self.handle(file)?;
        // Setting the length needs only the right to write from opening; everything else is checked for the requesting user.
        let is_length = set.size.is_some() && (set.mode, set.uid, set.gid) == (None, None, None);
        let Some(open) = open.filter(|_| is_length) else { return self.work.set(&of(req), &file, set) };
        let opener = self.opens.user(open)?;
        let attributes = self.work.set(&opener, &file, set)?;
        Ok(self.drop_privileges(req, &opener, &file, Some(&attributes))?.unwrap_or(attributes))
    }

    /// Clears setuid and setgid when a user other than root writes. The cluster does that for the user on whose behalf
    /// the write is made; if root opened the file for another user, it is done here.
    fn drop_privileges(
        &self,
        req: &Request,
        opener: &User,
        file: &[u8],
        attributes: Option<&Attr>,
    ) -> Result<Option<Attr>, Errno> {
        let Some(attributes) = attributes.filter(|_| opener.uid == 0 && req.uid() != 0) else {
            return Ok(None);
        };
        let mode = without_privileges(attributes.mode);
        if mode == attributes.mode {
            return Ok(None);
        }
        let set = SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() };
        self.work.set(opener, file, set).map(Some)
    }
}

/// Returns a mode without setuid, and without setgid unless that marks mandatory locks.
fn without_privileges(mode: u32) -> u32 {
    let of_group = if mode & libc::S_IXGRP == 0 { 0 } else { libc::S_ISGID };
    mode & !(libc::S_ISUID | of_group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_go_and_locks_stay() {
        assert_eq!(without_privileges(0o106_755), 0o100_755);
        // Without execute permission for the group, the bit means mandatory locking.
        assert_eq!(without_privileges(0o102_644), 0o102_644);
        assert_eq!(without_privileges(0o101_777), 0o101_777);
    }
}
