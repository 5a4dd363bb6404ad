//! Handles the kernel's requests with calls of the cluster: usually one call, sometimes a few.

use std::collections::VecDeque;

use fuser::Errno;
use quorate_fs::nfs3::{
    AccessArgs, Attr, Call, CreateArgs, CreateHow, CreateOk, DirOp, FileType, FsStatOk, LinkArgs, MkDirArgs,
    MkNodArgs, MkNodData, NfsResult, ReadArgs, ReadDirPlusArgs, RenameArgs, Reply, SetAttr, SetAttrArgs,
    StableHow, Stat, SymLinkArgs, Wcc, WriteArgs,
};
use quorate_fs::rpc::xdr::Opaque;
use quorate_node::files::{Handle, User};

use crate::server::Server;
use crate::table::{Hidden, Table};
use crate::words;

/// Bytes of a file in one call, which fits a datagram.
const CHUNK_BYTES: usize = 32 << 10;
/// Maximum size of a part of a directory, in bytes.
const LIST_BYTES: u32 = 32 << 10;
/// The longest target of a symbolic link, in bytes.
const TARGET_BYTES_MAX: usize = 4095;

/// The rights of ACCESS, as in the RFC.
pub(crate) const READ: u32 = 1;
pub(crate) const LOOKUP: u32 = 2;
pub(crate) const MODIFY: u32 = 4;
pub(crate) const EXTEND: u32 = 8;
pub(crate) const DELETE: u32 = 16;
pub(crate) const EXECUTE: u32 = 32;

/// An inode that was found or created.
pub(crate) struct FoundFile {
    pub(crate) handle: Handle,
    pub(crate) attributes: Attr,
    /// Whether everyone may search the directory in which it was found.
    pub(crate) is_public: bool,
}

/// An entry of a directory.
pub(crate) struct ListedFile {
    pub(crate) name: Vec<u8>,
    pub(crate) inode: u64,
    pub(crate) cookie: u64,
    pub(crate) found: Option<FoundFile>,
}

/// The object to create.
pub(crate) enum Make<'a> {
    File { exclusive: bool, truncate: bool },
    Dir,
    Link(&'a [u8]),
    Pipe(FileType),
    Device(FileType, u32),
}

/// The handlers of requests, with the cluster and the table.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) server: Server,
    pub(crate) table: Table,
}

/// Extracts the result of a procedure's answer, or of one of several; none for an answer to another procedure.
macro_rules! answer {
    ([$($name:ident),+], $take:expr) => {
        |reply: Reply<'_>| {
            if let $(Reply::$name(said))|+ = reply { Some(stat(said).map($take)) } else { None }
        }
    };
    ($name:ident, $take:expr) => {
        answer!([$name], $take)
    };
    ($name:ident) => {
        |reply: Reply<'_>| if let Reply::$name(said) = reply { Some(stat(said)) } else { None }
    };
}

fn stat<T, F>(outcome: NfsResult<T, F>) -> Result<T, Stat> {
    outcome.map_err(|(stat, _)| stat)
}

fn place<'a>(dir: &'a [u8], name: &'a [u8]) -> DirOp<'a> {
    DirOp { dir: Opaque(dir), name: Opaque(name) }
}

impl Work {
    pub(crate) fn attributes(&self, user: &User, file: &[u8]) -> Result<Attr, Errno> {
        self.server.ask(user, &Call::GetAttr(Opaque(file)), answer!(GetAttr))
    }

    pub(crate) fn look(&self, user: &User, dir: &[u8], name: &[u8]) -> Result<FoundFile, Errno> {
        let (handle, attributes, is_public) = self.server.ask(
            user,
            &Call::Lookup(place(dir, name)),
            answer!(Lookup, |found| (
                found.object.0.to_vec(),
                found.attributes,
                is_public(found.dir.as_ref())
            )),
        )?;
        self.complete(user, handle, attributes, is_public)
    }

    fn complete(
        &self,
        user: &User,
        handle: Handle,
        attributes: Option<Attr>,
        is_public: bool,
    ) -> Result<FoundFile, Errno> {
        let attributes = attributes.map_or_else(|| self.attributes(user, &handle), Ok)?;
        Ok(FoundFile { handle, attributes, is_public })
    }

    /// Checks that the caller has at least one of these rights.
    pub(crate) fn check(&self, user: &User, file: &[u8], any_of: u32) -> Result<(), Errno> {
        let call = Call::Access(AccessArgs { object: Opaque(file), access: any_of });
        let granted = self.server.ask(user, &call, answer!(Access, |ok| ok.access))?;
        if granted & any_of == 0 { Err(Errno::EACCES) } else { Ok(()) }
    }

    pub(crate) fn target(&self, user: &User, link: &[u8]) -> Result<Vec<u8>, Errno> {
        self.server.ask(user, &Call::ReadLink(Opaque(link)), answer!(ReadLink, |ok| ok.target.0.to_vec()))
    }

    pub(crate) fn space(&self, user: &User, file: &[u8]) -> Result<FsStatOk, Errno> {
        self.server.ask(user, &Call::FsStat(Opaque(file)), answer!(FsStat))
    }

    pub(crate) fn set(&self, user: &User, file: &[u8], attributes: SetAttr) -> Result<Attr, Errno> {
        let call = Call::SetAttr(SetAttrArgs { object: Opaque(file), attributes, guard: None });
        let wcc = self.server.ask(user, &call, answer!(SetAttr))?;
        wcc.after.map_or_else(|| self.attributes(user, file), Ok)
    }

    /// Creates an object in a directory; a file may already exist unless it is exclusive.
    pub(crate) fn make(
        &self,
        user: &User,
        dir: &[u8],
        name: &[u8],
        mode: u32,
        what: &Make<'_>,
    ) -> Result<FoundFile, Errno> {
        let (place, attributes) =
            (place(dir, name), SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() });
        let call = match what {
            Make::File { exclusive: true, .. } => {
                Call::Create(CreateArgs { place, how: CreateHow::Guarded(attributes) })
            }
            Make::File { exclusive: false, truncate } => {
                let size = truncate.then_some(0);
                Call::Create(CreateArgs { place, how: CreateHow::Unchecked(SetAttr { size, ..attributes }) })
            }
            Make::Dir => Call::MkDir(MkDirArgs { place, attributes }),
            Make::Link(target) if target.len() > TARGET_BYTES_MAX => return Err(Errno::ENAMETOOLONG),
            Make::Link(target) => {
                let attributes = SetAttr::default();
                Call::SymLink(SymLinkArgs { place, attributes, target: Opaque(target) })
            }
            Make::Pipe(kind) => Call::MkNod(MkNodArgs { place, what: MkNodData::Pipe(*kind, attributes) }),
            Make::Device(kind, number) => {
                let device = MkNodData::Device(*kind, attributes, words::to_device(*number));
                Call::MkNod(MkNodArgs { place, what: device })
            }
        };
        let answer = self.server.ask(
            user,
            &call,
            answer!([Create, MkDir, SymLink, MkNod], |CreateOk { object, attributes, wcc }| {
                (object.map(|handle| handle.0.to_vec()), attributes, is_public(wcc.after.as_ref()))
            }),
        )?;
        match answer {
            (Some(handle), attributes, is_public) => self.complete(user, handle, attributes, is_public),
            (None, ..) => self.look(user, dir, name),
        }
    }

    pub(crate) fn link(&self, user: &User, file: &[u8], dir: &[u8], name: &[u8]) -> Result<FoundFile, Errno> {
        let call = Call::Link(LinkArgs { file: Opaque(file), link: place(dir, name) });
        let linked = answer!(Link, |ok| (ok.attributes, is_public(ok.wcc.after.as_ref())));
        let (attributes, is_public) = self.server.ask(user, &call, linked)?;
        self.complete(user, file.to_vec(), attributes, is_public)
    }

    /// Removes a name. An open file is kept under another name until it is closed, because otherwise its handle would be
    /// stale.
    pub(crate) fn remove(&self, user: &User, dir: &[u8], name: &[u8]) -> Result<(), Errno> {
        let Some(file) = self.hold(user, dir, name) else {
            return self.take_out(user, &Call::Remove(place(dir, name)));
        };
        let hidden = self.hide(user, &file, (dir, name));
        self.close(self.table.number(file.attributes.fileid));
        hidden.map(drop)
    }

    pub(crate) fn remove_dir(&self, user: &User, dir: &[u8], name: &[u8]) -> Result<(), Errno> {
        self.take_out(user, &Call::RmDir(place(dir, name)))
    }

    fn take_out(&self, user: &User, call: &Call<'_>) -> Result<(), Errno> {
        self.server.ask(user, call, answer!([Remove, RmDir], |_: Wcc| ()))
    }

    /// Renames. A replaced file that is open is kept until it is closed.
    pub(crate) fn rename(&self, user: &User, from: (&[u8], &[u8]), to: (&[u8], &[u8])) -> Result<(), Errno> {
        let target = if from == to { None } else { self.hold(user, to.0, to.1) };
        let Some(target) = target else { return self.rename_only(user, from, to) };
        // If the rename is impossible, the other file must keep its name.
        let renamed = self.look(user, from.0, from.1).and_then(|source| {
            // Refused, as the target is a file: once the target is hidden, it would not be.
            if source.attributes.kind == FileType::Dir {
                return self.rename_only(user, from, to);
            }
            let hidden = self.hide(user, &target, to)?;
            let renamed = self.rename_only(user, from, to);
            if let Err(errno) = renamed {
                self.give_back(user, &target, &hidden, to, errno);
            }
            renamed
        });
        self.close(self.table.number(target.attributes.fileid));
        renamed
    }

    /// Gives a hidden file its name again after a rename to this name that failed with `errno`. If its outcome is
    /// unknown, the renamed file may have the name, now or later. So the hidden file gets a second name: unlike a
    /// rename, this does not replace the renamed file.
    fn give_back(&self, user: &User, file: &FoundFile, hidden: &Hidden, to: (&[u8], &[u8]), errno: Errno) {
        let linked = self.link(user, &file.handle, to.0, to.1);
        if linked.is_ok() || linked.is_err_and(|errno| errno == Errno::EEXIST) {
            return;
        }
        if ![Errno::ETIMEDOUT, Errno::EIO].contains(&errno) {
            let _ = self.rename_only(user, (&hidden.dir, &hidden.name), to);
        }
        // It may have no other name than the hidden one, which therefore stays.
        self.table.unhide(file.attributes.fileid);
    }

    fn rename_only(&self, user: &User, from: (&[u8], &[u8]), to: (&[u8], &[u8])) -> Result<(), Errno> {
        let call = Call::Rename(RenameArgs { from: place(from.0, from.1), to: place(to.0, to.1) });
        self.server.ask(user, &call, answer!(Rename, drop))
    }

    /// Returns the file with this name if it is open, has no other name, and no hidden one yet. It then counts as open
    /// once more, until [`Self::close`]: its user may close it at any time.
    fn hold(&self, user: &User, dir: &[u8], name: &[u8]) -> Option<FoundFile> {
        if !self.table.has_open() {
            return None;
        }
        // The following call reports a missing name or a missing permission.
        let found = self.look(user, dir, name).ok()?;
        let Attr { fileid: inode, nlink, kind, .. } = found.attributes;
        (kind != FileType::Dir && nlink == 1 && self.table.hold(inode)).then_some(found)
    }

    /// Renames a held file to a hidden name, which is removed when the file is closed.
    fn hide(&self, user: &User, file: &FoundFile, from: (&[u8], &[u8])) -> Result<Hidden, Errno> {
        let inode = file.attributes.fileid;
        let name = format!(".quorate-open-{inode:016x}").into_bytes();
        let hidden = Hidden { dir: from.0.to_vec(), name, user: user.clone() };
        self.rename_only(user, from, (&hidden.dir, &hidden.name))?;
        self.table.hide(inode, hidden.clone());
        Ok(hidden)
    }

    /// Records that a file was closed, and removes it if its name was removed while it was open.
    pub(crate) fn close(&self, number: u64) {
        let Some(Hidden { dir, name, user }) = self.table.closed(number) else { return };
        if self.take_out(&user, &Call::Remove(place(&dir, &name))).is_err() {
            tracing::warn!(name = %name.escape_ascii(), "a file that was removed while open stays under this name");
        }
    }

    pub(crate) fn read(&self, user: &User, file: &[u8], offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let call = |at: usize| {
            let count = u32::try_from(CHUNK_BYTES.min(len - at)).unwrap_or(0);
            Call::Read(ReadArgs { file: Opaque(file), offset: offset.saturating_add(to_u64(at)), count })
        };
        // All parts are requested in parallel.
        let mut parts: VecDeque<_> =
            (0..len).step_by(CHUNK_BYTES).map(|at| (at, self.server.begin(user, &call(at)))).collect();
        let mut data = Vec::with_capacity(len);
        while let Some((at, pending)) = parts.pop_front() {
            let end = (at + CHUNK_BYTES).min(len);
            let mut first = Some(pending);
            // A part may be answered incompletely.
            while data.len() < end {
                let call = call_from(file, offset.saturating_add(to_u64(data.len())), end - data.len());
                let pending = first.take().unwrap_or_else(|| self.server.begin(user, &call));
                let (bytes, eof) = self.server.finish(
                    pending,
                    user,
                    &call,
                    answer!(Read, |ok| (ok.data.0.to_vec(), ok.eof)),
                )?;
                data.extend_from_slice(&bytes);
                if eof || bytes.is_empty() {
                    return Ok(data);
                }
            }
        }
        Ok(data)
    }

    /// Writes, and returns how many bytes from the start are written and durable. Later parts may have been written even
    /// if an earlier one was not. Also returns the file's attributes afterwards.
    pub(crate) fn write(
        &self,
        user: &User,
        file: &[u8],
        offset: u64,
        data: &[u8],
    ) -> Result<(usize, Option<Attr>), Errno> {
        let call = |at: usize| {
            let part = &data[at..(at + CHUNK_BYTES).min(data.len())];
            Call::Write(WriteArgs {
                file: Opaque(file),
                offset: offset.saturating_add(to_u64(at)),
                count: u32::try_from(part.len()).unwrap_or(0),
                stable: StableHow::FileSync,
                data: Opaque(part),
            })
        };
        let parts: Vec<_> =
            (0..data.len()).step_by(CHUNK_BYTES).map(|at| (at, self.server.begin(user, &call(at)))).collect();
        // Waits for all parts: none may take effect after the reply.
        prefix(parts.into_iter().map(|(at, pending)| {
            let take = answer!(Write, |ok| (ok.count, ok.wcc.after));
            (at, self.server.finish(pending, user, &call(at), take))
        }))
    }

    /// Returns a part of a directory, from the entry after `cookie` on, and whether it is the last part.
    pub(crate) fn list(
        &self,
        user: &User,
        dir: &[u8],
        cookie: u64,
    ) -> Result<(Vec<ListedFile>, bool), Errno> {
        let (verf, dircount, maxcount) = ([0; 8], LIST_BYTES, LIST_BYTES);
        let call = Call::ReadDirPlus(ReadDirPlusArgs { dir: Opaque(dir), cookie, verf, dircount, maxcount });
        self.server.ask(
            user,
            &call,
            answer!(ReadDirPlus, |list| {
                let is_public = is_public(list.dir.as_ref());
                let entries = list.entries.into_iter().map(|entry| ListedFile {
                    name: entry.name.0.to_vec(),
                    inode: entry.fileid,
                    cookie: entry.cookie,
                    found: entry.object.zip(entry.attributes).map(|(handle, attributes)| FoundFile {
                        handle: handle.0.to_vec(),
                        attributes,
                        is_public,
                    }),
                });
                (entries.collect(), list.eof)
            }),
        )
    }
}

/// Combines the results of a write's parts, in order, each with its offset. Returns how many bytes are written without a
/// gap, and the file's last attributes; or, if none are written, the first error. Consumes all parts.
fn prefix(
    parts: impl Iterator<Item = (usize, Result<(u32, Option<Attr>), Errno>)>,
) -> Result<(usize, Option<Attr>), Errno> {
    let (mut written, mut failed, mut attributes) = (0, None, None);
    for (at, done) in parts {
        match done {
            Ok((count, after)) => {
                if at == written {
                    written += usize::try_from(count).unwrap_or(0);
                }
                attributes = after.or(attributes);
            }
            Err(errno) => failed = failed.or(Some(errno)),
        }
    }
    match failed {
        Some(errno) if written == 0 => Err(errno),
        Some(_) | None => Ok((written, attributes)),
    }
}

/// Returns whether everyone may search a directory.
fn is_public(dir: Option<&Attr>) -> bool {
    dir.is_some_and(|dir| dir.mode & 0o111 == 0o111)
}

fn call_from(file: &[u8], offset: u64, len: usize) -> Call<'_> {
    Call::Read(ReadArgs { file: Opaque(file), offset, count: u32::try_from(len).unwrap_or(u32::MAX) })
}

fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// Only bytes without a gap count, whatever happened to later parts.
    #[test]
    fn a_write_that_fails_in_the_middle_says_how_far_it_came() {
        let part = 100;
        let counted = |outcomes: &[Result<u32, Errno>]| {
            let parts = outcomes.iter().enumerate();
            let parts = parts.map(|(i, done)| (i * part, done.map(|count| (count, None))));
            prefix(parts).map(|(count, _)| count).map_err(Errno::code)
        };
        let (full, away) = (Errno::ENOSPC, Errno::ETIMEDOUT);
        assert_eq!(counted(&[Ok(100), Ok(100), Ok(7)]), Ok(207));
        assert_eq!(counted(&[Ok(100), Err(full), Ok(100)]), Ok(100));
        assert_eq!(counted(&[Ok(100), Ok(40), Ok(100), Err(full)]), Ok(140));
        assert_eq!(counted(&[Ok(100), Ok(0), Err(full)]), Ok(100));
        assert_eq!(counted(&[Err(full), Ok(100), Err(away)]), Err(full.code()));
        assert_eq!(counted(&[Err(away), Err(full)]), Err(away.code()));
        // All parts are waited for, also after one that failed.
        let mut taken = 0;
        let parts = [Err(full), Err(full), Err(full)].into_iter().enumerate().inspect(|_| taken += 1);
        assert!(prefix(parts).is_err());
        assert_eq!(taken, 3);
    }
}
