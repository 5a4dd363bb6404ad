//! What a request of the kernel comes to: one call of the cluster, seldom a few.

use std::collections::VecDeque;

use fuser::Errno;
use quorate_fs::nfs3::{
    AccessArgs, Attr, Call, CreateArgs, CreateHow, CreateOk, DirOp, FileType, FsStatOk, LinkArgs, MkDirArgs,
    MkNodArgs, MkNodData, Outcome, ReadArgs, ReadDirPlusArgs, RenameArgs, Reply, SetAttr, SetAttrArgs,
    StableHow, Stat, SymLinkArgs, Wcc, WriteArgs,
};
use quorate_fs::xdr::Opaque;
use quorate_node::files::{Handle, User};

use crate::server::Server;
use crate::table::{Hidden, Table};
use crate::words;

/// Bytes of a file in one call: with all around them they fit a datagram.
const CHUNK_BYTES: usize = 32 << 10;
/// The most bytes of a part of a directory.
const LIST_BYTES: u32 = 32 << 10;
/// The longest target of a symbolic link, in bytes.
const TARGET_BYTES_MAX: usize = 4095;

/// The rights that ACCESS asks for, as the RFC has them.
pub(crate) const READ: u32 = 1;
pub(crate) const LOOKUP: u32 = 2;
pub(crate) const MODIFY: u32 = 4;
pub(crate) const EXTEND: u32 = 8;
pub(crate) const DELETE: u32 = 16;
pub(crate) const EXECUTE: u32 = 32;

/// An inode that was found or made.
pub(crate) struct Found {
    pub(crate) handle: Handle,
    pub(crate) attributes: Attr,
    /// Everyone may look names up in the directory in which it was found: whoever knows its name there has it.
    pub(crate) is_public: bool,
}

/// An entry of a directory.
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) inode: u64,
    pub(crate) cookie: u64,
    pub(crate) found: Option<Found>,
}

/// What is to be made.
pub(crate) enum Make<'a> {
    File { exclusive: bool, truncate: bool },
    Dir,
    Link(&'a [u8]),
    Pipe(FileType),
    Device(FileType, u32),
}

/// The requests, on the cluster and the table.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) server: Server,
    pub(crate) table: Table,
}

/// What is taken of the answer to a procedure, or to one of several; of one to another procedure it is nothing.
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

fn stat<T, F>(outcome: Outcome<T, F>) -> Result<T, Stat> {
    outcome.map_err(|(stat, _)| stat)
}

fn place<'a>(dir: &'a [u8], name: &'a [u8]) -> DirOp<'a> {
    DirOp { dir: Opaque(dir), name: Opaque(name) }
}

impl Work {
    pub(crate) fn attributes(&self, user: &User, file: &[u8]) -> Result<Attr, Errno> {
        self.server.ask(user, &Call::GetAttr(Opaque(file)), answer!(GetAttr))
    }

    pub(crate) fn look(&self, user: &User, dir: &[u8], name: &[u8]) -> Result<Found, Errno> {
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
    ) -> Result<Found, Errno> {
        let attributes = attributes.map_or_else(|| self.attributes(user, &handle), Ok)?;
        Ok(Found { handle, attributes, is_public })
    }

    /// Sees to it that the caller has one of these rights at least.
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

    /// Makes something new in a directory; a file that is not exclusive may be there.
    pub(crate) fn make(
        &self,
        user: &User,
        dir: &[u8],
        name: &[u8],
        mode: u32,
        what: &Make<'_>,
    ) -> Result<Found, Errno> {
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

    pub(crate) fn link(&self, user: &User, file: &[u8], dir: &[u8], name: &[u8]) -> Result<Found, Errno> {
        let call = Call::Link(LinkArgs { file: Opaque(file), link: place(dir, name) });
        let linked = answer!(Link, |ok| (ok.attributes, is_public(ok.wcc.after.as_ref())));
        let (attributes, is_public) = self.server.ask(user, &call, linked)?;
        self.complete(user, file.to_vec(), attributes, is_public)
    }

    /// Removes a name. A file that is open stays, under another name, until it is closed: its handle would stand
    /// for nothing.
    pub(crate) fn remove(&self, user: &User, dir: &[u8], name: &[u8]) -> Result<(), Errno> {
        if self.hide(user, dir, name, None)?.is_some() {
            return Ok(());
        }
        self.take_out(user, &Call::Remove(place(dir, name)))
    }

    pub(crate) fn remove_dir(&self, user: &User, dir: &[u8], name: &[u8]) -> Result<(), Errno> {
        self.take_out(user, &Call::RmDir(place(dir, name)))
    }

    fn take_out(&self, user: &User, call: &Call<'_>) -> Result<(), Errno> {
        self.server.ask(user, call, answer!([Remove, RmDir], |_: Wcc| ()))
    }

    /// Renames. What was at the new name and is open stays until it is closed.
    pub(crate) fn rename(&self, user: &User, from: (&[u8], &[u8]), to: (&[u8], &[u8])) -> Result<(), Errno> {
        let hidden = self.hide(user, to.0, to.1, Some(from))?;
        let renamed = self.rename_only(user, from, to);
        if let (Err(_), Some((inode, hidden))) = (&renamed, &hidden) {
            // Nothing has come in its place: it has its name back.
            if self.rename_only(user, (&hidden.dir, &hidden.name), to).is_ok() {
                self.table.unhide(*inode);
            }
        }
        renamed
    }

    fn rename_only(&self, user: &User, from: (&[u8], &[u8]), to: (&[u8], &[u8])) -> Result<(), Errno> {
        let call = Call::Rename(RenameArgs { from: place(from.0, from.1), to: place(to.0, to.1) });
        self.server.ask(user, &call, answer!(Rename, drop))
    }

    /// Gives a file that is open, and has no other name than this one, a name that nobody looks for. Returns its
    /// inode and that name if so. `unless` stands for the same file: it is to be renamed to itself.
    fn hide(
        &self,
        user: &User,
        dir: &[u8],
        name: &[u8],
        unless: Option<(&[u8], &[u8])>,
    ) -> Result<Option<(u64, Hidden)>, Errno> {
        if !self.table.has_open() || unless == Some((dir, name)) {
            return Ok(None);
        }
        // What is not there, or may not be looked for, is told by the call that follows.
        let Ok(found) = self.look(user, dir, name) else { return Ok(None) };
        let Attr { fileid: inode, nlink, kind, .. } = found.attributes;
        if kind == FileType::Dir || nlink > 1 || !self.table.is_open(inode) {
            return Ok(None);
        }
        if let Some((dir, name)) = unless {
            // What cannot be renamed must not take the other's name away.
            self.look(user, dir, name)?;
        }
        let hidden = format!(".quorate-open-{inode:016x}").into_bytes();
        let hidden = Hidden { dir: dir.to_vec(), name: hidden, user: user.clone() };
        self.rename_only(user, (dir, name), (dir, &hidden.name))?;
        if !self.table.hide(inode, hidden.clone()) {
            // It was closed meanwhile.
            self.take_out(user, &Call::Remove(place(dir, &hidden.name)))?;
        }
        Ok(Some((inode, hidden)))
    }

    /// Notes that a file was closed, and removes it if it was removed while it was open.
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
        // All parts are under way at a time.
        let mut parts: VecDeque<_> =
            (0..len).step_by(CHUNK_BYTES).map(|at| (at, self.server.begin(user, &call(at)))).collect();
        let mut data = Vec::with_capacity(len);
        while let Some((at, pending)) = parts.pop_front() {
            let end = (at + CHUNK_BYTES).min(len);
            let mut first = Some(pending);
            // A part may be answered in part.
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

    /// Writes, and returns how many bytes from the beginning on are written: they are durable. What stands behind them
    /// is not said: later parts may have been written where an earlier one was not. Says also what the file's attributes
    /// are then.
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
        // All are waited for: what comes later must not be done behind the back of whoever is told.
        prefix(parts.into_iter().map(|(at, pending)| {
            let take = answer!(Write, |ok| (ok.count, ok.wcc.after));
            (at, self.server.finish(pending, user, &call(at), take))
        }))
    }

    /// Returns a part of a directory, from behind `cookie` on, and whether it ends there.
    pub(crate) fn list(&self, user: &User, dir: &[u8], cookie: u64) -> Result<(Vec<Entry>, bool), Errno> {
        let (verf, dircount, maxcount) = ([0; 8], LIST_BYTES, LIST_BYTES);
        let call = Call::ReadDirPlus(ReadDirPlusArgs { dir: Opaque(dir), cookie, verf, dircount, maxcount });
        self.server.ask(
            user,
            &call,
            answer!(ReadDirPlus, |list| {
                let is_public = is_public(list.dir.as_ref());
                let entries = list.entries.into_iter().map(|entry| Entry {
                    name: entry.name.0.to_vec(),
                    inode: entry.fileid,
                    cookie: entry.cookie,
                    found: entry.object.zip(entry.attributes).map(|(handle, attributes)| Found {
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

/// Of the parts of a write, in their order and each with where it begins: how many bytes are written without a gap,
/// and the last that was said of the file; or, if that is none, what the first of them came to. Takes all parts.
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

/// Says whether everyone may look names up in a directory.
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

    /// What is written without a gap counts, whatever became of the parts behind it.
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
        // All parts are waited for, also behind one that failed.
        let mut taken = 0;
        let parts = [Err(full), Err(full), Err(full)].into_iter().enumerate().inspect(|_| taken += 1);
        assert!(prefix(parts).is_err());
        assert_eq!(taken, 3);
    }
}
