//! Operations, users and attributes of files, in no protocol's format.

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpKind {
    /// Nothing is done.
    Null,
    /// Return the attributes of a file.
    GetAttributes,
    /// Set attributes.
    SetAttributes,
    /// Look up a name in a directory.
    LookUp,
    /// Return the rights of the caller.
    Rights,
    /// Read the target of a symbolic link.
    ReadLink,
    /// Read data.
    Read,
    /// Write data.
    Write,
    /// Create a file.
    CreateFile,
    /// Create a directory.
    CreateDir,
    /// Create a symbolic link.
    CreateSymlink,
    /// Create a device, a socket or a pipe.
    CreateNode,
    /// Remove the name of anything but a directory.
    RemoveFile,
    /// Remove an empty directory.
    RemoveDir,
    /// Move a name.
    Rename,
    /// Add a name to a file.
    AddLink,
    /// List the names in a directory.
    List,
    /// List the names in a directory, with attributes and handles.
    ListPlus,
    /// Return how full the file system is.
    Fullness,
    /// Return the limits of the file system.
    Limits,
    /// Return the limits of names and links.
    NameLimits,
    /// Make written data durable.
    Commit,
}

impl OpKind {
    /// Returns whether it changes nothing, except an access time.
    pub const fn reads(self) -> bool {
        self.reads_content()
            || matches!(
                self,
                Self::Null
                    | Self::GetAttributes
                    | Self::LookUp
                    | Self::Rights
                    | Self::Fullness
                    | Self::Limits
                    | Self::NameLimits
            )
    }

    /// Returns whether it reads the content of a file, and thus updates an access time.
    pub const fn reads_content(self) -> bool {
        matches!(self, Self::ReadLink | Self::Read | Self::List | Self::ListPlus)
    }
}

/// A set of kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpKinds(u32);

impl OpKinds {
    /// No kind.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self(u32::MAX);

    /// Returns the set of these kinds.
    pub fn of(kinds: impl IntoIterator<Item = OpKind>) -> Self {
        Self(kinds.into_iter().fold(0, |bits, kind| bits | 1 << kind as u32))
    }

    /// Returns whether a kind is among them.
    pub fn has(self, kind: OpKind) -> bool {
        self.0 >> (kind as u32) & 1 == 1
    }
}

/// The calling user, as the caller claims it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User<'a> {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Further groups.
    pub(crate) gids: &'a [u32],
}

/// The type of a file, with its number in the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Reg = 1,
    Dir = 2,
    Blk = 3,
    Chr = 4,
    Lnk = 5,
    Sock = 6,
    Fifo = 7,
}

impl FileKind {
    const ALL: [Self; 7] = [Self::Reg, Self::Dir, Self::Blk, Self::Chr, Self::Lnk, Self::Sock, Self::Fifo];

    /// Returns its number in the state.
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// Returns the type with this number in the state.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// The numbers of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// All attributes of a file. Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    /// Bytes that it uses.
    pub(crate) used: u64,
    pub(crate) device: Device,
    /// Names the file system.
    pub(crate) volume: u64,
    /// Names the file within it.
    pub(crate) number: u64,
    pub(crate) atime: u64,
    pub(crate) mtime: u64,
    pub(crate) ctime: u64,
}

/// The attributes to set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetAttributes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: TimeChange,
    pub(crate) mtime: TimeChange,
}

/// How to set a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TimeChange {
    #[default]
    Keep,
    /// The time of the operation.
    Now,
    /// The caller's; none: the caller sent one that does not exist.
    To(Option<u64>),
}

/// How a file is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    /// One that exists is used.
    Unchecked(SetAttributes),
    /// It must not exist.
    Guarded(SetAttributes),
    /// It must not exist, unless a call with the same verifier has created it.
    Exclusive([u8; 8]),
}

/// What a caller may do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// To search it, if it is a directory.
    pub(crate) execute: bool,
}

/// The limits of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The unit of space.
    pub(crate) page_bytes: u64,
    pub(crate) file_bytes_max: u64,
    pub(crate) name_bytes_max: usize,
    pub(crate) links_max: u32,
}

/// How full the file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fullness {
    pub(crate) bytes: u64,
    pub(crate) bytes_free: u64,
    /// Free bytes that the caller may use.
    pub(crate) bytes_available: u64,
    pub(crate) files: u64,
    pub(crate) files_free: u64,
    pub(crate) files_available: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_it_was_made_of() {
        let set = OpKinds::of([OpKind::GetAttributes, OpKind::Commit]);
        assert!(set.has(OpKind::GetAttributes) && set.has(OpKind::Commit) && !set.has(OpKind::Null));
        assert!(OpKinds::ALL.has(OpKind::Commit) && !OpKinds::NONE.has(OpKind::Null));
    }

    #[test]
    fn reading_content_is_reading() {
        assert!(OpKind::Read.reads_content() && OpKind::Read.reads());
        assert!(OpKind::LookUp.reads() && !OpKind::LookUp.reads_content());
        assert!(!OpKind::Write.reads() && !OpKind::Commit.reads());
    }

    #[test]
    fn a_type_has_its_number_in_the_state() {
        assert_eq!(FileKind::ALL.map(FileKind::number), [1, 2, 3, 4, 5, 6, 7]);
        assert!(FileKind::ALL.into_iter().all(|kind| FileKind::from_number(kind.number()) == Some(kind)));
        assert_eq!([FileKind::from_number(0), FileKind::from_number(8)], [None, None]);
    }
}
