//! Which calls may run at the same time: the matrices of the file system [CBASE04 §5.2], for the 22 procedures of NFS and
//! the six of MOUNT.
//!
//! Two calls are related if they name the same file. A handle is not compared byte by byte: a file has one handle for each
//! export through which it is reached, so the key is the number of its inode.
//!
//! Nothing is declared for what every change writes: free space, counts, quotas, the time of the last change, the table
//! of replies. This makes no two changes dependent, but FSSTAT, which returns some of it, depends on all changes.

use quorate_service::parallel::{Arguments, Matrices, MatrixError, Rules};

use crate::nfs3::mount3::{self, MountCall};
use crate::nfs3::operation::Operation;
use crate::nfs3::service::{AnyCall, Fs};
use crate::nfs3::{Call, Fh, Procedure};
use crate::settings::Atime;
use crate::volume::handle::Handle;

/// Number of functions: 22 procedures of NFS, then six of MOUNT.
pub const FUNCTIONS: usize = Procedure::ALL.len() + mount3::Procedure::ALL.len();

/// Calls with the same row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// NULL of both programs, and EXPORT: they read no state.
    Nothing,
    /// They return attributes of the file that they name.
    Attributes,
    /// It returns such attributes, and how full the file system is.
    Fullness,
    /// They read what is behind their handle, and may set its access time.
    Content,
    /// It returns the attributes of a file that it does not name by handle.
    LookUp,
    /// It does both.
    ListPlus,
    /// They change a file that they name by handle.
    Change,
    /// They change the tree: handles are given or lost, and one file may be named by its directory.
    Tree,
    /// It walks along a path, and is recorded.
    Mount,
    /// They remove such records.
    Unmount,
    /// It lists them.
    Dump,
}

impl Group {
    /// All groups, in the order of the rows.
    pub const ALL: [Self; 11] = [
        Self::Nothing,
        Self::Attributes,
        Self::Fullness,
        Self::Content,
        Self::LookUp,
        Self::ListPlus,
        Self::Change,
        Self::Tree,
        Self::Mount,
        Self::Unmount,
        Self::Dump,
    ];

    /// Returns the group of a function.
    pub const fn of(function: usize) -> Option<Self> {
        if function < GROUPS.len() { Some(GROUPS[function]) } else { None }
    }
}

/// The group of each function.
const GROUPS: [Group; FUNCTIONS] = {
    use Group::*;
    [
        Nothing,    // NULL
        Attributes, // GETATTR
        Change,     // SETATTR
        LookUp,     // LOOKUP
        Attributes, // ACCESS
        Content,    // READLINK
        Content,    // READ
        Change,     // WRITE
        Tree,       // CREATE
        Tree,       // MKDIR
        Tree,       // SYMLINK
        Tree,       // MKNOD
        Tree,       // REMOVE
        Tree,       // RMDIR
        Tree,       // RENAME
        Tree,       // LINK
        Content,    // READDIR
        ListPlus,   // READDIRPLUS
        Fullness,   // FSSTAT
        Attributes, // FSINFO
        Attributes, // PATHCONF
        Change,     // COMMIT
        Nothing,    // MOUNT: NULL
        Mount,      // MNT
        Dump,       // DUMP
        Unmount,    // UMNT
        Unmount,    // UMNTALL
        Nothing,    // EXPORT
    ]
};

/// What two functions are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They may run at the same time.
    Independent,
    /// They depend on each other if they name the same file: an entry of OACM.
    SameFile,
    /// They depend on each other: an entry of OCM.
    Dependent,
}

/// One row for each group, one letter for each group before it and itself: `.` independent, `f` dependent if they name
/// the same file, `x` dependent. Small letters `a`, `b` stand for `f` and `x` where reads set access times, and for `.`
/// elsewhere.
///
/// The paper calls GETATTR independent of everything. It is not: WRITE changes the attributes that it returns (DV-50).
const ROWS: [&[u8]; Group::ALL.len()] = [
    b".",           // Nothing
    b"..",          // Attributes
    b"...",         // Fullness
    b".aaa",        // Content
    b"...b.",       // LookUp
    b".aabbb",      // ListPlus
    b".fxfxxf",     // Change
    b".xxxxxxx",    // Tree
    b"..x....xx",   // Mount
    b"..x.....xx",  // Unmount
    b"........xx.", // Dump
];

/// The rules of a file system.
#[derive(Clone, Copy, Debug)]
pub struct FsRules<'a> {
    fs: &'a Fs,
}

impl<'a> FsRules<'a> {
    /// Returns the rules of `fs`.
    pub fn new(fs: &'a Fs) -> Self {
        Self { fs }
    }

    /// Returns what two groups are to each other.
    pub fn verdict(&self, a: Group, b: Group) -> Verdict {
        let (row, column) = (a.max(b) as usize, a.min(b) as usize);
        let sets_times = self.fs.settings().atime != Atime::None;
        match ROWS[row].get(column) {
            Some(b'.') => Verdict::Independent,
            Some(b'f') => Verdict::SameFile,
            Some(b'a') if sets_times => Verdict::SameFile,
            Some(b'a' | b'b') if !sets_times => Verdict::Independent,
            Some(_) | None => Verdict::Dependent,
        }
    }

    /// Returns the inode behind a handle; none if it is not a handle of this file system, and names nothing.
    fn key(&self, handle: &Fh<'_>) -> Option<u64> {
        Handle::decode(self.fs.settings(), handle.0).map(|handle| handle.inode)
    }
}

impl Rules for FsRules<'_> {
    fn matrices(&self) -> Result<Matrices, MatrixError> {
        let is = |a, b, wanted| match (Group::of(a), Group::of(b)) {
            (Some(a), Some(b)) => self.verdict(a, b) == wanted,
            (None, _) | (_, None) => wanted == Verdict::Dependent,
        };
        Matrices::new(
            FUNCTIONS,
            |a, b| is(a, b, Verdict::Dependent),
            |a, b| is(a, b, Verdict::SameFile),
        )
    }

    fn parse(&self, operation: &[u8], arguments: &mut Arguments) {
        // An invalid call is answered without the state, as NULL is.
        arguments.begin(Procedure::Null as usize);
        let Some(operation) = Operation::decode(operation) else { return };
        match self.fs.call(operation.call) {
            None => {}
            Some(AnyCall::Mount(call)) => arguments.begin(function_of_mount(&call)),
            Some(AnyCall::Nfs(call)) => {
                arguments.begin(call.procedure() as usize);
                if let Some(key) = named(&call).and_then(|handle| self.key(handle)) {
                    arguments.key(key);
                }
            }
        }
    }
}

fn function_of_mount(call: &MountCall<'_>) -> usize {
    Procedure::ALL.len() + call.procedure() as usize
}

/// Returns the handle of the file that a call reads or changes. Calls that change the tree depend on all that name a file:
/// they need none.
fn named<'c, 'a>(call: &'c Call<'a>) -> Option<&'c Fh<'a>> {
    match call {
        Call::GetAttr(file)
        | Call::ReadLink(file)
        | Call::FsStat(file)
        | Call::FsInfo(file)
        | Call::PathConf(file) => Some(file),
        Call::SetAttr(args) => Some(&args.object),
        Call::Lookup(place) => Some(&place.dir),
        Call::Access(args) => Some(&args.object),
        Call::Read(args) => Some(&args.file),
        Call::Write(args) => Some(&args.file),
        Call::ReadDir(args) => Some(&args.dir),
        Call::ReadDirPlus(args) => Some(&args.dir),
        Call::Commit(args) => Some(&args.file),
        Call::Null(())
        | Call::Create(_)
        | Call::MkDir(_)
        | Call::SymLink(_)
        | Call::MkNod(_)
        | Call::Remove(_)
        | Call::RmDir(_)
        | Call::Rename(_)
        | Call::Link(_) => None,
    }
}
