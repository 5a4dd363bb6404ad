//! The directory of a replica as a disk. Tests can make the disk of a directory fail.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};
use quorate_process::storage::io::{DiskAction, DiskError, DiskErrorKind, DiskFile, DiskIo, DiskNote};
use quorate_process::storage::owner::{FORMAT, FORMAT_READ};

use crate::error::{NodeError, NodeErrorKind};
use crate::net::descriptors;

/// How long to wait for a descriptor.
const DESCRIPTOR_PATIENCE: Duration = Duration::from_secs(5);
/// What to do about a full disk.
pub(super) const ROOM: &str = "free some space, and start it again: nothing is lost";

/// The files below the directory of a replica.
#[derive(Clone, Debug)]
pub struct Files {
    root: Arc<Path>,
}

impl Files {
    /// Returns the files below a directory.
    pub fn below(root: &Path) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    #[cfg_attr(not(test), allow(clippy::unused_self, reason = "tests have disks that fail"))]
    fn file(&self, name: &str, file: io::Result<File>) -> Result<NodeFile, DiskError> {
        let file = file.map_err(|error| failed(DiskAction::Open, name, &error))?;
        Ok(NodeFile {
            file,
            name: name.into(),
            #[cfg(test)]
            path: self.path(name),
        })
    }
}

impl DiskIo for Files {
    type File = NodeFile;

    fn open(&self, name: &str) -> Result<NodeFile, DiskError> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        self.file(name, opened(|| options.open(self.path(name))))
    }

    fn open_to_read(&self, name: &str) -> Result<NodeFile, DiskError> {
        let file = File::open(self.path(name));
        self.file(name, file).map_err(|error| DiskError { action: DiskAction::Read, ..error })
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, DiskError> {
        fs::read(self.path(name)).map_err(|error| failed(DiskAction::Read, name, &error))
    }

    fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        let unreadable = |error| failed(DiskAction::Read, dir, &error);
        let entries = match fs::read_dir(self.path(dir)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unreadable(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            // A name that is not UTF-8 is of none of our files.
            names.extend(entry.map_err(unreadable)?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        let path = self.path(dir);
        if path.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(&path).map_err(|error| failed(DiskAction::Open, dir, &error))?;
        // What will be in it is durable only if its own name is.
        let synced = File::open(path.parent().unwrap_or(&path)).and_then(|parent| parent.sync_all());
        synced.map_err(|error| failed(DiskAction::Sync, dir, &error))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        fs::rename(self.path(from), self.path(to)).map_err(|error| failed(DiskAction::Rename, from, &error))
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        fs::remove_file(self.path(name)).map_err(|error| failed(DiskAction::Remove, name, &error))
    }

    fn settle(&self, name: &str) -> Result<(), DiskError> {
        let file = self.open_to_read(name)?;
        file.sync_all()?;
        // After a failed sync, the kernel takes what it has for written, and never writes it. What it has is dropped,
        // so that the next read is one of the disk. That is best effort: not every file system does it.
        let _ = posix_fadvise(&file.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        let synced = opened(|| File::open(self.path(dir))).and_then(|dir| dir.sync_all());
        synced.map_err(|error| failed(DiskAction::Sync, dir, &error))
    }

    fn note(&self, note: &DiskNote<'_>) {
        let dir = &self.root;
        match note {
            DiskNote::PageFault { page, slot, cause } => {
                tracing::warn!(page, slot, cause, "a page of the state cannot be read from the disk");
            }
            DiskNote::IndexUnreadable(error) => {
                tracing::warn!(%error, ?dir, "the index of the pages cannot be read");
            }
            DiskNote::Leftover { good } => {
                tracing::warn!(
                    pages = good,
                    "pages of the state that are on the disk are kept for comparison"
                );
            }
            DiskNote::Damaged { seq, good, bad } => {
                tracing::warn!(seq = seq.0, good, bad, "pages of the state on the disk are damaged");
            }
        }
    }
}

/// A file with reads and writes at given offsets.
#[derive(Debug)]
pub struct NodeFile {
    file: File,
    /// Below the directory of the replica.
    name: Box<str>,
    #[cfg(test)]
    path: PathBuf,
}

impl NodeFile {
    fn done<T>(&self, action: DiskAction, done: io::Result<T>) -> Result<T, DiskError> {
        done.map_err(|error| failed(action, &self.name, &error))
    }
}

impl DiskFile for NodeFile {
    #[inline]
    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<(), DiskError> {
        self.done(DiskAction::Read, self.fails(Deed::Read).and_then(|()| self.file.read_exact_at(bytes, at)))
    }

    #[inline]
    fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), DiskError> {
        self.done(DiskAction::Write, self.fails(Deed::Write).and_then(|()| self.file.write_all_at(bytes, at)))
    }

    #[inline]
    fn sync(&self) -> Result<(), DiskError> {
        self.done(DiskAction::Sync, self.fails(Deed::Sync).and_then(|()| self.file.sync_data()))
    }

    fn sync_all(&self) -> Result<(), DiskError> {
        self.done(DiskAction::Sync, self.fails(Deed::Sync).and_then(|()| self.file.sync_all()))
    }

    fn allocate(&self, len: u64) -> Result<(), DiskError> {
        self.done(DiskAction::Write, self.fails(Deed::Write))?;
        if self.len()? < len {
            self.done(DiskAction::Write, self.fails(Deed::Grow(len)))?;
        }
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        match fallocate(&self.file, FallocateFlags::empty(), 0, len) {
            Ok(()) | Err(nix::errno::Errno::EOPNOTSUPP) => Ok(()),
            Err(error) => self.done(DiskAction::Write, Err(error.into())),
        }
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.done(DiskAction::Write, self.file.set_len(len))
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.done(DiskAction::Read, self.file.metadata()).map(|metadata| metadata.len())
    }
}

impl NodeFile {
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

/// Opens something. If no descriptor is left, it waits: some error would be final here, and other threads close theirs.
fn opened(open: impl Fn() -> io::Result<File>) -> io::Result<File> {
    let until = Instant::now() + DESCRIPTOR_PATIENCE;
    loop {
        match open() {
            Err(error) if descriptors::are_gone(&error) && Instant::now() < until => {
                std::thread::sleep(DESCRIPTOR_PATIENCE / 100);
            }
            done => return done,
        }
    }
}

fn failed(action: DiskAction, name: &str, error: &io::Error) -> DiskError {
    let is_full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
    let kind = if is_full || descriptors::are_gone(error) {
        DiskErrorKind::Full
    } else if error.kind() == ErrorKind::NotFound {
        DiskErrorKind::Missing
    } else if action == DiskAction::Read && error.raw_os_error() == Some(nix::errno::Errno::EIO as i32) {
        DiskErrorKind::Unreadable
    } else {
        DiskErrorKind::Failed
    };
    DiskError { kind, action, file: name.to_owned(), cause: error.to_string() }
}

/// Returns the error of a disk at a start.
pub(super) fn at_start(dir: &Path, error: &DiskError) -> NodeError {
    let path = dir.join(&error.file);
    let (kind, next) = match (error.kind, error.action) {
        (DiskErrorKind::OtherFormat { format }, _) => {
            let what = format!(
                "format {format} of a replica's files: this version reads formats {FORMAT_READ} to {FORMAT}"
            );
            return NodeError::new(NodeErrorKind::OtherFormat, what).in_file(&path).next(
                "run the version that wrote it, or move log/ and checkpoint/ away: the replica then rejoins",
            );
        }
        (DiskErrorKind::OtherState, _) => {
            return NodeError::new(NodeErrorKind::OtherState, error.cause.clone()).in_file(&path).next(
                "copy the data out with the version that wrote it, and into a new cluster of this version",
            );
        }
        (DiskErrorKind::OtherOptions, _) => {
            return NodeError::new(NodeErrorKind::Rule, error.cause.clone()).in_file(&path).next(
                "put the setting in cluster.toml back; if only the program has changed, run the version that wrote the state",
            );
        }
        (DiskErrorKind::Unreadable, _) => {
            let what = format!("cannot be read: {}", error.cause);
            return NodeError::new(NodeErrorKind::Unreadable, what).in_file(&path).next(
                "check the disk (dmesg, smartctl); to give the state up, move log/ and checkpoint/ away: the replica then rejoins",
            );
        }
        (_, DiskAction::Read) => {
            return NodeError::new(NodeErrorKind::Unreadable, format!("cannot be read: {}", error.cause))
                .in_file(&path);
        }
        (_, DiskAction::Write | DiskAction::Sync) => return running(dir, error),
        (DiskErrorKind::Full, _) => (NodeErrorKind::Disk, "free some space there"),
        (_, DiskAction::Open | DiskAction::Rename | DiskAction::Remove) => {
            (NodeErrorKind::Unwritable, "make it writable for this user, or choose another directory")
        }
    };
    NodeError::new(kind, format!("cannot be written: {}", error.cause)).in_file(&path).next(next)
}

/// Returns the error of a disk that has failed while the replica runs.
pub(super) fn running(dir: &Path, error: &DiskError) -> NodeError {
    let next = if error.is_full() {
        ROOM
    } else {
        "check the disk (dmesg, smartctl); the failed write was not acknowledged"
    };
    let what = format!("{} failed: {}", error.action, error.cause);
    NodeError::new(NodeErrorKind::Disk, what).in_file(&dir.join(&error.file)).next(next)
}

/// The operations that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Read,
    Write,
    Sync,
    /// To this many bytes.
    Grow(u64),
}

/// Failing disks, by directory.
#[cfg(test)]
pub(super) mod fault {
    use super::{Deed, ErrorKind, Path, PathBuf, io};
    use std::sync::{Mutex, PoisonError};

    /// The fault of a disk.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Fault {
        /// It is full.
        Full,
        /// There is little: for a file of this many bytes there is none.
        Little(u64),
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

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;
    use std::cell::Cell;

    /// L101: a lack of descriptors passes, so nothing that the disk does ends with it.
    #[test]
    fn l101_a_lack_of_descriptors_is_no_broken_disk() {
        for errno in [Errno::EMFILE, Errno::ENFILE, Errno::ENOSPC] {
            let error = failed(DiskAction::Open, "log/1", &errno.into());
            assert!(error.is_full(), "{errno}");
            let attempts = Cell::new(0);
            let file = opened(|| {
                attempts.set(attempts.get() + 1);
                if attempts.get() < 3 { Err(errno.into()) } else { File::open("/dev/null") }
            });
            assert_eq!(
                (file.is_ok(), attempts.get()),
                if errno == Errno::ENOSPC { (false, 1) } else { (true, 3) }
            );
        }
        assert!(!failed(DiskAction::Open, "log/1", &Errno::EIO.into()).is_full());
    }
}
