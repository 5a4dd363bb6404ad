//! The disk, as the code of the storage sees it: named files with reads and writes at offsets, and directories.
//!
//! A name is a path below the directory of the replica, such as `log/starts`. A write is durable when
//! [`DiskFile::sync`] has returned. The name of a file is durable when [`DiskIo::sync_dir`] has returned for its
//! directory. A crash between a write and its sync may keep all of the write, none of it or parts of it.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use quorate_wire::SeqNum;

/// A directory with files.
pub trait DiskIo: Clone + fmt::Debug {
    /// An open file.
    type File: DiskFile;

    /// Opens a file for reading and writing, and creates it if it does not exist.
    fn open(&self, name: &str) -> Result<Self::File, DiskError>;

    /// Opens a file for reading.
    fn open_to_read(&self, name: &str) -> Result<Self::File, DiskError>;

    /// Reads a file as a whole.
    fn read(&self, name: &str) -> Result<Vec<u8>, DiskError>;

    /// Returns whether a file exists.
    fn exists(&self, name: &str) -> bool;

    /// Returns the names of the files in a directory, without the directory; none if it does not exist.
    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError>;

    /// Creates a directory if it does not exist.
    fn create_dir(&self, dir: &str) -> Result<(), DiskError>;

    /// Gives a file another name in the same directory. A file of that name is replaced.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file.
    fn remove(&self, name: &str) -> Result<(), DiskError>;

    /// Prepares a file for being read at a start: afterwards all that can be read of it is durable.
    ///
    /// A process that was killed leaves data that only the memory of the machine has. After a failed sync, even a sync
    /// that succeeds need not bring them to the disk. Data that were lost in this way can't be read afterwards.
    fn settle(&self, name: &str) -> Result<(), DiskError>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &str) -> Result<(), DiskError>;

    /// Something was found on the disk that an operator or a test may want to know.
    fn note(&self, _note: &DiskNote<'_>) {}
}

/// Something that was found on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskNote<'a> {
    /// A page cannot be read from its slot, or is another one.
    PageFault {
        /// The page.
        page: u32,
        /// Its slot.
        slot: u32,
        /// The cause.
        cause: &'a str,
    },
    /// The index of the pages cannot be read.
    IndexUnreadable(&'a DiskError),
    /// Pages that are not a complete state are kept for comparison with those of the others.
    Leftover {
        /// The number of good pages.
        good: usize,
    },
    /// Pages of a complete state are damaged.
    Damaged {
        /// The checkpoint.
        seq: SeqNum,
        /// The number of good pages.
        good: usize,
        /// The number of damaged or unreadable pages.
        bad: usize,
    },
}

/// A file with reads and writes at given offsets.
pub trait DiskFile: fmt::Debug {
    /// Reads bytes from an offset. All of them must be in the file.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<(), DiskError>;

    /// Writes bytes at an offset.
    fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), DiskError>;

    /// Makes the written data durable.
    fn sync(&self) -> Result<(), DiskError>;

    /// Makes the data and the length durable.
    fn sync_all(&self) -> Result<(), DiskError>;

    /// Allocates space for a file of this length, if the disk supports it.
    fn allocate(&self, len: u64) -> Result<(), DiskError>;

    /// Truncates or extends the file.
    fn set_len(&self, len: u64) -> Result<(), DiskError>;

    /// Returns its length.
    fn len(&self) -> Result<u64, DiskError>;

    /// Returns whether the file has no bytes.
    fn is_empty(&self) -> Result<bool, DiskError> {
        self.len().map(|len| len == 0)
    }
}

/// What a disk was asked to do when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskAction {
    /// Open or create a file, or create a directory.
    Open,
    /// Read a file or a directory.
    Read,
    /// Write a file, or allocate space for it.
    Write,
    /// Make data or names durable.
    Sync,
    /// Rename a file.
    Rename,
    /// Remove a file.
    Remove,
}

impl fmt::Display for DiskAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "opening",
            Self::Read => "reading",
            Self::Write => "writing",
            Self::Sync => "fsync",
            Self::Rename => "renaming",
            Self::Remove => "removing",
        })
    }
}

/// The kind of a disk's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskErrorKind {
    /// There is no space, or no descriptor for a file. The same can succeed later.
    Full,
    /// The file does not exist.
    Missing,
    /// The disk has failed. After a failed write or sync its content is unknown.
    Failed,
    /// The disk cannot read a part of the file. The rest may be readable.
    Unreadable,
    /// A file of a version that this program does not read.
    OtherFormat {
        /// The version.
        format: u32,
    },
    /// A state that an earlier version has written in another form.
    OtherState,
    /// A state that was written with other options of the cluster.
    OtherOptions,
}

/// An error of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskError {
    /// Its kind.
    pub kind: DiskErrorKind,
    /// What the disk was asked to do.
    pub action: DiskAction,
    /// The file or directory, as its user knows it.
    pub file: String,
    /// The cause, in words.
    pub cause: String,
}

impl DiskError {
    /// Returns whether there is no space.
    pub fn is_full(&self) -> bool {
        self.kind == DiskErrorKind::Full
    }

    /// The error is final, also if there was no space: what the disk holds is not known.
    #[must_use]
    pub fn into_final(mut self) -> Self {
        if self.is_full() {
            self.kind = DiskErrorKind::Failed;
        }
        self
    }

    /// Returns whether the disk cannot read a part of the file.
    pub fn is_unreadable(&self) -> bool {
        self.kind == DiskErrorKind::Unreadable
    }

    /// Returns whether the file does not exist.
    pub fn is_missing(&self) -> bool {
        self.kind == DiskErrorKind::Missing
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} failed: {}", self.action, self.file, self.cause)
    }
}

impl core::error::Error for DiskError {}
