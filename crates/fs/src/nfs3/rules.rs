//! Which calls depend on each other: the matrix of [CBASE04 §5.3.1], completed for all procedures of NFS and MOUNT.
//!
//! Two calls depend on each other always, or if they name the same file, or never. Two handles are the same file if
//! they have the same inode. Free space, and the numbers of inodes and bytes in use, make no pair dependent, except with
//! FSSTAT, which returns them (PX-D).

use quorate_service::parallel::{Arguments, Matrices, MatrixError, Rules};

use crate::nfs3::mount3::MountCall;
use crate::nfs3::operation::Operation;
use crate::nfs3::service::{AnyCall, Fs};
use crate::nfs3::{Call, CreateArgs, CreateHow, Fh};
use crate::settings::Atime;
use crate::volume::handle::Handle;

/// What calls do, as far as other calls depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// NULL and EXPORT: nothing.
    Nothing,
    /// Changes or returns a file that it finds by name: REMOVE, RMDIR, RENAME, and CREATE unless it is guarded.
    Tree,
    /// Adds an object to a directory, and changes none that is there: MKDIR, SYMLINK, MKNOD, guarded CREATE.
    Add,
    /// LINK.
    Link,
    /// Changes a file: WRITE, COMMIT, SETATTR.
    File,
    /// Returns the attributes of its own handle: GETATTR, ACCESS, FSINFO, PATHCONF.
    Attributes,
    /// FSSTAT.
    Space,
    /// Reads behind its own handle, and sets its access time: READ, READLINK, READDIR.
    Content,
    /// LOOKUP.
    LookUp,
    /// READDIRPLUS.
    ListPlus,
    /// MNT.
    Mount,
    /// UMNT and UMNTALL.
    Unmount,
    /// DUMP.
    Dump,
}

/// When two calls depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Never,
    /// If they name the same file.
    SameFile,
    Always,
}

/// The classes that depend on each other: each of the first list on each of the second. Pairs that are not listed are
/// independent. So are pairs with the flag, if reading sets no access times.
#[rustfmt::skip]
const PAIRS: &[(&[Class], &[Class], When, bool)] = {
    use Class::{Add, Attributes, Content, Dump, File, Link, ListPlus, LookUp, Mount, Space, Tree, Unmount};
    use When::{Always, SameFile};
    &[
        // A file has other handles than the directory in which it is found.
        (&[Tree], &[Tree, Add, Link, File, Attributes, Space, Content, LookUp, ListPlus, Mount], Always, false),
        // Handles are assigned in order.
        (&[Add], &[Add], Always, false),
        // They change the directory. LINK changes the file, too, and names it.
        (&[Link], &[Add, Link], SameFile, false),
        (&[Add, Link], &[File, Attributes, Content], SameFile, false),
        // They return free space, find what was added, or return attributes of a directory by its name.
        (&[Add, Link], &[Space, LookUp, ListPlus, Mount], Always, false),
        // The paper calls GETATTR independent of WRITE. But a write changes the attributes that it returns.
        (&[File], &[File, Attributes, Content], SameFile, false),
        // They return free space, or attributes of files whose handles are not among their arguments.
        (&[File], &[Space, LookUp, ListPlus], Always, false),
        // The one sets the access time that the other sets or returns.
        (&[Content], &[Content, Attributes, Space], SameFile, true),
        (&[ListPlus], &[Attributes, Space], SameFile, true),
        (&[ListPlus], &[Content, LookUp, ListPlus], Always, true),
        (&[LookUp], &[Content], Always, true),
        // The list of mounts, and the space that it takes.
        (&[Mount, Unmount], &[Mount, Unmount, Dump, Space], Always, false),
    ]
};

impl Class {
    const ALL: [Self; 13] = [
        Self::Nothing,
        Self::Tree,
        Self::Add,
        Self::Link,
        Self::File,
        Self::Attributes,
        Self::Space,
        Self::Content,
        Self::LookUp,
        Self::ListPlus,
        Self::Mount,
        Self::Unmount,
        Self::Dump,
    ];

    fn of(call: &AnyCall<'_>) -> Self {
        match call {
            AnyCall::Nfs(call) => match call {
                Call::Null(()) => Self::Nothing,
                Call::Create(CreateArgs { how: CreateHow::Guarded(_), .. })
                | Call::MkDir(_)
                | Call::SymLink(_)
                | Call::MkNod(_) => Self::Add,
                Call::Create(_) | Call::Remove(_) | Call::RmDir(_) | Call::Rename(_) => Self::Tree,
                Call::Link(_) => Self::Link,
                Call::Write(_) | Call::Commit(_) | Call::SetAttr(_) => Self::File,
                Call::GetAttr(_) | Call::Access(_) | Call::FsInfo(_) | Call::PathConf(_) => Self::Attributes,
                Call::FsStat(_) => Self::Space,
                Call::Read(_) | Call::ReadLink(_) | Call::ReadDir(_) => Self::Content,
                Call::Lookup(_) => Self::LookUp,
                Call::ReadDirPlus(_) => Self::ListPlus,
            },
            AnyCall::Mount(call) => match call {
                MountCall::Null | MountCall::Export => Self::Nothing,
                MountCall::Mnt(_) => Self::Mount,
                MountCall::Umnt(_) | MountCall::UmntAll => Self::Unmount,
                MountCall::Dump => Self::Dump,
            },
        }
    }

    /// Returns when calls of these classes depend on each other. `sets_atime`: reading sets access times.
    fn meets(self, other: Self, sets_atime: bool) -> When {
        let is_pair = |one: &[Self], two: &[Self]| one.contains(&self) && two.contains(&other);
        let found = PAIRS.iter().find(|(one, two, _, for_atime)| {
            (sets_atime || !for_atime) && (is_pair(one, two) || is_pair(two, one))
        });
        found.map_or(When::Never, |(.., when, _)| *when)
    }
}

/// The rules of a file system.
#[derive(Clone, Debug)]
pub struct FsRules {
    fs: Fs,
}

impl FsRules {
    /// Returns the rules of `fs`.
    pub fn new(fs: Fs) -> Self {
        Self { fs }
    }

    fn name_files(&self, call: &Call<'_>, arguments: &mut Arguments) {
        let mut name = |handle: &Fh<'_>| {
            // A handle that is not one of this file system names no file.
            if let Some(handle) = Handle::decode(self.fs.settings(), handle.0) {
                arguments.key(handle.inode);
            }
        };
        match call {
            Call::Null(()) => {}
            Call::GetAttr(handle)
            | Call::ReadLink(handle)
            | Call::FsStat(handle)
            | Call::FsInfo(handle)
            | Call::PathConf(handle) => name(handle),
            Call::SetAttr(args) => name(&args.object),
            Call::Lookup(place) | Call::Remove(place) | Call::RmDir(place) => name(&place.dir),
            Call::Access(args) => name(&args.object),
            Call::Read(args) => name(&args.file),
            Call::Write(args) => name(&args.file),
            Call::Commit(args) => name(&args.file),
            Call::ReadDir(args) => name(&args.dir),
            Call::ReadDirPlus(args) => name(&args.dir),
            Call::Create(args) => name(&args.place.dir),
            Call::MkDir(args) => name(&args.place.dir),
            Call::SymLink(args) => name(&args.place.dir),
            Call::MkNod(args) => name(&args.place.dir),
            Call::Rename(args) => [&args.from.dir, &args.to.dir].into_iter().for_each(name),
            Call::Link(args) => [&args.file, &args.link.dir].into_iter().for_each(name),
        }
    }
}

impl Rules for FsRules {
    fn matrices(&self) -> Result<Matrices, MatrixError> {
        let sets_atime = self.fs.settings().atime != Atime::None;
        let meets = |a: usize, b: usize| Class::ALL[a].meets(Class::ALL[b], sets_atime);
        Matrices::new(
            Class::ALL.len(),
            |a, b| meets(a, b) == When::Always,
            |a, b| meets(a, b) == When::SameFile,
        )
    }

    fn parse(&self, operation: &[u8], arguments: &mut Arguments) {
        arguments.begin(0);
        let Some(operation) = Operation::decode(operation) else { return arguments.everything() };
        let Ok(request) = self.fs.understand(operation.call) else { return arguments.everything() };
        arguments.begin(Class::of(&request.call) as usize);
        if let AnyCall::Nfs(call) = &request.call {
            self.name_files(call, arguments);
        }
    }
}
