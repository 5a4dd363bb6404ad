//! The files that a replica writes. Tests can make the disk of a directory fail.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::fcntl::{FallocateFlags, fallocate};

/// A file with reads and writes at given offsets.
#[derive(Debug)]
pub(super) struct DiskFile {
    file: File,
    #[cfg(test)]
    path: std::path::PathBuf,
}

impl DiskFile {
    /// Opens a file for reading and writing, and creates it if it does not exist.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
        Ok(Self {
            file,
            #[cfg(test)]
            path: path.to_path_buf(),
        })
    }

    /// Opens a file for reading.
    pub(super) fn open_to_read(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self {
            file,
            #[cfg(test)]
            path: path.to_path_buf(),
        })
    }

    /// Writes bytes at an offset.
    pub(super) fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.fails(Deed::Write)?;
        self.file.write_all_at(bytes, at)
    }

    /// Reads bytes from an offset.
    pub(super) fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.fails(Deed::Read)?;
        self.file.read_exact_at(bytes, at)
    }

    /// Makes the written data durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.fails(Deed::Sync)?;
        self.file.sync_data()
    }

    /// Makes the data and the metadata durable.
    pub(super) fn sync_all(&self) -> io::Result<()> {
        self.fails(Deed::Sync)?;
        self.file.sync_all()
    }

    /// Allocates space, if the file system supports it.
    pub(super) fn allocate(&self, bytes: usize) -> io::Result<()> {
        self.fails(Deed::Write)?;
        if u64::try_from(bytes).is_ok_and(|bytes| self.len().is_ok_and(|len| len < bytes)) {
            self.fails(Deed::Grow(bytes))?;
        }
        let len = i64::try_from(bytes).unwrap_or(i64::MAX);
        match fallocate(&self.file, FallocateFlags::empty(), 0, len) {
            Ok(()) | Err(nix::errno::Errno::EOPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Truncates the file.
    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    /// Returns its length.
    pub(super) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    #[cfg(test)]
    fn fails(&self, deed: Deed) -> io::Result<()> {
        fault::check(&self.path, deed)
    }

    #[cfg(not(test))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests have disks that fail")]
    #[inline]
    fn fails(&self, _: Deed) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether an error means that the disk is full.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// The operations that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Read,
    Write,
    Sync,
    /// To this many bytes.
    Grow(usize),
}

/// Failing disks, by directory.
#[cfg(test)]
pub(super) mod fault {
    use super::{Deed, ErrorKind, Path, io};
    use std::path::PathBuf;
    use std::sync::{Mutex, PoisonError};

    /// The fault of a disk.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Fault {
        /// It is full.
        Full,
        /// There is little: for a file of this many bytes there is none.
        Little(usize),
        /// What was written does not become durable.
        Sync,
        /// It cannot be written.
        Write,
        /// It cannot be read.
        Read,
    }

    static FAULTS: Mutex<Vec<(PathBuf, Fault)>> = Mutex::new(Vec::new());

    /// Makes the files below `dir` fail from now on, or heals them.
    pub(crate) fn set(dir: &Path, fault: Option<Fault>) {
        let mut faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
        faults.retain(|(path, _)| path != dir);
        faults.extend(fault.map(|fault| (dir.to_path_buf(), fault)));
    }

    pub(super) fn check(path: &Path, deed: Deed) -> io::Result<()> {
        let faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = faults.iter().find(|(dir, _)| path.starts_with(dir)).map(|(_, fault)| *fault);
        match (fault, deed) {
            (Some(Fault::Full), Deed::Write) => Err(ErrorKind::StorageFull.into()),
            (Some(Fault::Little(most)), Deed::Grow(bytes)) if bytes >= most => {
                Err(ErrorKind::StorageFull.into())
            }
            (Some(Fault::Write), Deed::Write)
            | (Some(Fault::Sync), Deed::Sync)
            | (Some(Fault::Read), Deed::Read) => Err(io::Error::from(nix::errno::Errno::EIO)),
            _ => Ok(()),
        }
    }
}
