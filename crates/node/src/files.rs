//! Files without a mount: a client of the file system for programs and commands.
//!
//! Paths begin at the root of the mounted export. Symbolic links are followed, except as the last component. Each
//! method is one call of the cluster, or one for each component of a path.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Mutex;

use quorate_fs::nfs3::calls::{Calls, Unanswered, mount_reply, nfs_reply};
use quorate_fs::nfs3::mount3::MountStat;
use quorate_fs::nfs3::{
    Attr, Call, CreateArgs, CreateHow, DirOp, FileType, FsStatOk, MkDirArgs, Procedure, ReadArgs,
    ReadDirPlusArgs, Reply, SetAttr, SetAttrArgs, StableHow, Stat, WriteArgs,
};
use quorate_fs::rpc::xdr::Opaque;

use crate::run::caller::{CallError, Caller, Pending};

mod machine;
mod put;

pub use self::machine::{Machine, User};

/// Bytes of a file in one call, which fits a datagram.
const CHUNK_BYTES: usize = 32 << 10;
/// Number of parallel calls of a transfer.
const CALLS_MAX: usize = 16;
/// Maximum size of a part of a directory, in bytes.
const LIST_BYTES: u32 = 32 << 10;
/// Maximum number of symbolic links that are followed.
const LINKS_MAX: usize = 40;

/// A file handle.
pub type Handle = Vec<u8>;

/// Why an operation failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum FilesError {
    /// The cluster did not answer.
    Call(CallError),
    /// The file system refused it.
    Nfs(Stat),
    /// The export cannot be mounted.
    Mount(MountStat),
    /// The answer is invalid.
    Unanswered(Unanswered),
    /// The local file or stream failed.
    Local(io::Error),
}

impl std::fmt::Display for FilesError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::Nfs(stat) => f.write_str(says(*stat)),
            Self::Mount(stat) => write!(f, "cannot mount the export: {stat:?}"),
            Self::Unanswered(error) => error.fmt(f),
            Self::Local(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FilesError {}

impl From<CallError> for FilesError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<Unanswered> for FilesError {
    fn from(error: Unanswered) -> Self {
        Self::Unanswered(error)
    }
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct FileEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// Its attributes, unless it has been removed since.
    pub attributes: Option<Attr>,
}

/// A file system, as one user sees it.
#[derive(Debug)]
pub struct Files {
    caller: Caller,
    machine: Machine,
    calls: Mutex<Calls>,
    root: Handle,
}

impl Files {
    /// Opens the directory `export` of the file system. `first` is the number of the first call, which should differ
    /// between processes.
    ///
    /// # Errors
    ///
    /// The cluster does not answer, or the export cannot be mounted.
    pub fn open(
        caller: Caller,
        machine: Machine,
        user: &User,
        export: &str,
        first: u32,
    ) -> Result<Self, FilesError> {
        let mut calls = machine.calls(user, first);
        let call = calls.mount(export);
        let reply = caller.call(&machine.operation(&call), false)?;
        let root = mount_reply(&reply)?.map_err(FilesError::Mount)?.to_vec();
        Ok(Self { caller, machine, calls: Mutex::new(calls), root })
    }

    /// Returns the handle of a path. A symbolic link as its last component is followed if `follow`.
    ///
    /// # Errors
    ///
    /// It does not exist, or may not be searched for.
    pub fn find(&self, path: &str, follow: bool) -> Result<Handle, FilesError> {
        let mut rest: VecDeque<Vec<u8>> = components(path.as_bytes()).collect();
        let (mut at, mut links) = (vec![self.root.clone()], 0);
        while let Some(name) = rest.pop_front() {
            let dir = at.last().unwrap_or(&self.root);
            if name == b".." {
                if at.len() > 1 {
                    at.pop();
                }
                continue;
            }
            let place = DirOp { dir: Opaque(dir), name: Opaque(&name) };
            let reply = self.ask(&Call::Lookup(place))?;
            let Reply::Lookup(found) = nfs_reply(Procedure::Lookup, &reply)? else { return Err(odd()) };
            let found = found.map_err(|(stat, _)| FilesError::Nfs(stat))?;
            let handle = found.object.0.to_vec();
            let is_link = match &found.attributes {
                Some(attributes) => attributes.kind == FileType::Lnk,
                None => self.attributes(&handle)?.kind == FileType::Lnk,
            };
            if is_link && (follow || !rest.is_empty()) {
                links += 1;
                if links > LINKS_MAX {
                    return Err(FilesError::Nfs(Stat::Inval));
                }
                let target = self.link_target(&handle)?;
                if target.starts_with(b"/") {
                    at.truncate(1);
                }
                for name in components(&target).collect::<Vec<_>>().into_iter().rev() {
                    rest.push_front(name);
                }
            } else {
                at.push(handle);
            }
        }
        Ok(at.pop().unwrap_or_else(|| self.root.clone()))
    }

    /// Returns a file's attributes.
    ///
    /// # Errors
    ///
    /// It was removed.
    pub fn attributes(&self, file: &[u8]) -> Result<Attr, FilesError> {
        let reply = self.ask(&Call::GetAttr(Opaque(file)))?;
        let Reply::GetAttr(said) = nfs_reply(Procedure::GetAttr, &reply)? else { return Err(odd()) };
        said.map_err(|(stat, ())| FilesError::Nfs(stat))
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    ///
    /// It is not a symbolic link.
    pub fn link_target(&self, link: &[u8]) -> Result<Vec<u8>, FilesError> {
        let reply = self.ask(&Call::ReadLink(Opaque(link)))?;
        let Reply::ReadLink(said) = nfs_reply(Procedure::ReadLink, &reply)? else { return Err(odd()) };
        said.map(|ok| ok.target.0.to_vec()).map_err(|(stat, _)| FilesError::Nfs(stat))
    }

    /// Calls `each` for every entry of a directory except `.` and `..`.
    ///
    /// # Errors
    ///
    /// It is not a directory, or may not be read.
    pub fn list(&self, dir: &[u8], mut each: impl FnMut(FileEntry)) -> Result<(), FilesError> {
        let (mut cookie, mut verf) = (0, [0; 8]);
        loop {
            let (dircount, maxcount) = (LIST_BYTES, LIST_BYTES);
            let args = ReadDirPlusArgs { dir: Opaque(dir), cookie, verf, dircount, maxcount };
            let reply = self.ask(&Call::ReadDirPlus(args))?;
            let Reply::ReadDirPlus(said) = nfs_reply(Procedure::ReadDirPlus, &reply)? else {
                return Err(odd());
            };
            let said = said.map_err(|(stat, _)| FilesError::Nfs(stat))?;
            let before = cookie;
            for entry in said.entries {
                cookie = entry.cookie;
                let name = entry.name.0;
                if name != b"." && name != b".." {
                    each(FileEntry { name: name.to_vec(), attributes: entry.attributes });
                }
            }
            if said.eof || cookie == before {
                return Ok(());
            }
            verf = said.verf;
        }
    }

    /// Creates a regular file in a directory, or truncates an existing one.
    ///
    /// # Errors
    ///
    /// The file system refuses it.
    pub fn create(&self, dir: &[u8], name: &str, mode: u32) -> Result<Handle, FilesError> {
        let attributes = SetAttr { mode: Some(mode), size: Some(0), ..SetAttr::default() };
        self.create_as(dir, name, CreateHow::Unchecked(attributes))
    }

    fn create_as(&self, dir: &[u8], name: &str, how: CreateHow) -> Result<Handle, FilesError> {
        let place = DirOp { dir: Opaque(dir), name: Opaque(name.as_bytes()) };
        let reply = self.ask(&Call::Create(CreateArgs { place, how }))?;
        let Reply::Create(done) = nfs_reply(Procedure::Create, &reply)? else { return Err(odd()) };
        let done = done.map_err(|(stat, _)| FilesError::Nfs(stat))?;
        done.object.map(|handle| handle.0.to_vec()).ok_or_else(odd)
    }

    /// Creates a directory.
    ///
    /// # Errors
    ///
    /// The file system refuses it.
    pub fn make_directory(&self, dir: &[u8], name: &str, mode: u32) -> Result<(), FilesError> {
        let place = DirOp { dir: Opaque(dir), name: Opaque(name.as_bytes()) };
        let attributes = SetAttr { mode: Some(mode), ..SetAttr::default() };
        let reply = self.ask(&Call::MkDir(MkDirArgs { place, attributes }))?;
        let Reply::MkDir(done) = nfs_reply(Procedure::MkDir, &reply)? else { return Err(odd()) };
        done.map(drop).map_err(|(stat, _)| FilesError::Nfs(stat))
    }

    /// Removes a file's name, or an empty directory.
    ///
    /// # Errors
    ///
    /// The file system refuses it.
    pub fn remove(&self, dir: &[u8], name: &str) -> Result<(), FilesError> {
        let place = || DirOp { dir: Opaque(dir), name: Opaque(name.as_bytes()) };
        let answer = self.ask(&Call::Remove(place()))?;
        let Reply::Remove(outcome) = nfs_reply(Procedure::Remove, &answer)? else { return Err(odd()) };
        let outcome = match outcome {
            Err((Stat::IsDir, _)) => {
                let answer = self.ask(&Call::RmDir(place()))?;
                let Reply::RmDir(outcome) = nfs_reply(Procedure::RmDir, &answer)? else { return Err(odd()) };
                outcome
            }
            outcome => outcome,
        };
        outcome.map(drop).map_err(|(stat, _)| FilesError::Nfs(stat))
    }

    /// Sets the length of a file.
    ///
    /// # Errors
    ///
    /// The file system refuses it.
    pub fn set_size(&self, file: &[u8], size: u64) -> Result<(), FilesError> {
        let attributes = SetAttr { size: Some(size), ..SetAttr::default() };
        let reply =
            self.ask(&Call::SetAttr(SetAttrArgs { object: Opaque(file), attributes, guard: None }))?;
        let Reply::SetAttr(said) = nfs_reply(Procedure::SetAttr, &reply)? else { return Err(odd()) };
        said.map(drop).map_err(|(stat, _)| FilesError::Nfs(stat))
    }

    /// Returns the used and free space.
    ///
    /// # Errors
    ///
    /// The cluster does not answer.
    pub fn space(&self) -> Result<FsStatOk, FilesError> {
        let reply = self.ask(&Call::FsStat(Opaque(&self.root)))?;
        let Reply::FsStat(said) = nfs_reply(Procedure::FsStat, &reply)? else { return Err(odd()) };
        said.map_err(|(stat, _)| FilesError::Nfs(stat))
    }

    /// Writes a file's content to `out`, and returns its length. Makes many calls in parallel.
    ///
    /// # Errors
    ///
    /// It cannot be read, or `out` written.
    pub fn read_to(&self, file: &[u8], out: &mut impl Write) -> Result<u64, FilesError> {
        let count = u32::try_from(CHUNK_BYTES).unwrap_or(u32::MAX);
        let (mut asked, mut taken) = (0, 0_u64);
        let mut under_way: VecDeque<Pending> = VecDeque::new();
        loop {
            while under_way.len() < CALLS_MAX {
                under_way.push_back(self.begin(&Call::Read(ReadArgs {
                    file: Opaque(file),
                    offset: asked,
                    count,
                })));
                asked += u64::from(count);
            }
            let Some(first) = under_way.pop_front() else { return Ok(taken) };
            let reply = first.wait()?;
            let Reply::Read(said) = nfs_reply(Procedure::Read, &reply)? else { return Err(odd()) };
            let said = said.map_err(|(stat, _)| FilesError::Nfs(stat))?;
            out.write_all(said.data.0).map_err(FilesError::Local)?;
            taken += said.data.0.len() as u64;
            if said.eof {
                return Ok(taken);
            }
            if said.data.0.len() < CHUNK_BYTES {
                // A part other than the last was short: the calls after it begin too late.
                under_way.clear();
                asked = taken;
            }
        }
    }

    /// Writes all of `input` to the beginning of a file, and returns its length. The data is durable when this
    /// returns.
    ///
    /// # Errors
    ///
    /// `input` cannot be read, or the file written.
    pub fn write_from(&self, file: &[u8], input: &mut impl Read) -> Result<u64, FilesError> {
        let (mut offset, mut done) = (0, 0);
        let mut under_way: VecDeque<(Pending, u64, Vec<u8>)> = VecDeque::new();
        let mut ended = false;
        while !ended || !under_way.is_empty() {
            while !ended && under_way.len() < CALLS_MAX {
                let mut data = Vec::with_capacity(CHUNK_BYTES);
                let part = u64::try_from(CHUNK_BYTES).unwrap_or(u64::MAX);
                input.by_ref().take(part).read_to_end(&mut data).map_err(FilesError::Local)?;
                ended = data.len() < CHUNK_BYTES;
                if !data.is_empty() {
                    let pending = self.begin_write(file, offset, &data);
                    let count = u64::try_from(data.len()).unwrap_or(u64::MAX);
                    under_way.push_back((pending, offset, data));
                    offset += count;
                }
            }
            let Some((mut pending, mut at, data)) = under_way.pop_front() else { break };
            let mut rest = &data[..];
            loop {
                let reply = pending.wait()?;
                let Reply::Write(said) = nfs_reply(Procedure::Write, &reply)? else { return Err(odd()) };
                let count = said.map_err(|(stat, _)| FilesError::Nfs(stat))?.count;
                rest = usize::try_from(count).ok().and_then(|count| rest.get(count..)).ok_or_else(odd)?;
                (at, done) = (at + u64::from(count), done + u64::from(count));
                if rest.is_empty() {
                    break;
                }
                if count == 0 {
                    return Err(odd());
                }
                // It was written incompletely: the reply to the rest will say why.
                pending = self.begin_write(file, at, rest);
            }
        }
        Ok(done)
    }

    fn begin_write(&self, file: &[u8], offset: u64, data: &[u8]) -> Pending {
        let count = u32::try_from(data.len()).unwrap_or(0);
        let stable = StableHow::FileSync;
        let args = WriteArgs { file: Opaque(file), offset, count, stable, data: Opaque(data) };
        self.begin(&Call::Write(args))
    }

    fn ask(&self, call: &Call<'_>) -> Result<Vec<u8>, CallError> {
        self.begin(call).wait()
    }

    fn begin(&self, call: &Call<'_>) -> Pending {
        let read_only = call.procedure().kind().reads();
        let mut calls = self.calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let bytes = calls.nfs(call);
        drop(calls);
        self.caller.submit_known(self.machine.operation(&bytes), read_only)
    }
}

/// The components of a path.
fn components(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").map(<[u8]>::to_vec)
}

/// A reply of another procedure: no correct service gives one.
fn odd() -> FilesError {
    FilesError::Unanswered(Unanswered::Malformed(quorate_fs::rpc::xdr::XdrError::Invalid))
}

/// Describes it like `strerror`.
fn says(stat: Stat) -> &'static str {
    match stat {
        Stat::Perm => "operation not permitted",
        Stat::NoEnt => "no such file or directory",
        Stat::Io => "input/output error",
        Stat::NxIo => "no such device or address",
        Stat::Access => "permission denied",
        Stat::Exist => "file exists",
        Stat::XDev => "invalid cross-device link",
        Stat::NoDev => "no such device",
        Stat::NotDir => "not a directory",
        Stat::IsDir => "is a directory",
        Stat::Inval => "invalid argument",
        Stat::FBig => "file too large",
        Stat::NoSpc => "no space left in the file system",
        Stat::RoFs => "read-only file system",
        Stat::MLink => "too many links",
        Stat::NameTooLong => "file name too long",
        Stat::NotEmpty => "directory not empty",
        Stat::DQuot => "disk quota exceeded",
        Stat::Stale => "stale file handle",
        Stat::Remote => "object is remote",
        Stat::BadHandle => "not a file handle",
        Stat::NotSync => "the file has changed",
        Stat::BadCookie => "the directory has changed",
        Stat::NotSupp => "operation not supported",
        Stat::TooSmall => "buffer too small",
        Stat::ServerFault => "the file system is damaged",
        Stat::BadType => "file type not supported",
        Stat::Jukebox => "try again later",
    }
}
