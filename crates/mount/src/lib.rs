//! The file system through FUSE: a mount on this machine, where every request of the kernel becomes calls of the cluster.
//!
//! ```text
//! process --> kernel --/dev/fuse--> [ threads: kernel.rs ] --> Caller --> 3f + 1 replicas
//! ```
//!
//! There is no gateway: this process is a client of the cluster, and trusts no single replica. It has no durable state. A
//! write is durable when `write` returns, so `fsync` has nothing to do. The kernel caches attributes and names for a
//! second, so changes by others become visible within that time. If several users share a mount, the kernel caches no
//! names of a directory that not all of them may search.
//!
//! A call without an answer within the time-out fails with `ETIMEDOUT`. Its change may or may not take effect, even after
//! a later one. So no process waits forever while the cluster is unreachable.
//!
//! | Part | Module |
//! |---|---|
//! | mounting and unmounting | here |
//! | the kernel's requests, on paths and on open files; their handling | `kernel`, `work` |
//! | calls and their answers | `server` |
//! | the inodes that the kernel knows; the open files, with the users who opened them | `table`, `opens` |
//! | attributes and errors in the kernel's format | `words` |

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]
#[path = "../../node/tests/cluster/mod.rs"]
mod cluster;
mod kernel;
mod opens;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod rename_tests;
mod server;
mod table;
mod words;
mod work;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use quorate_node::Caller;
use quorate_node::files::{FilesError, Machine, User};

use crate::kernel::Kernel;
use crate::server::Server;

/// How often to check whether to stop.
const LOOK: Duration = Duration::from_millis(50);
/// The kernel's FUSE device.
const DEVICE: &str = "/dev/fuse";
/// The program that mounts for users other than root.
const HELPER: &str = "fusermount3";

/// The options of a mount.
#[derive(Clone, Copy, Debug)]
pub struct MountOptions {
    /// Whether all users of this machine may use it, not only the one who mounts.
    pub allow_other: bool,
    /// How many requests of the kernel are handled in parallel.
    pub threads: usize,
}

/// Why a mount or unmount failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum MountError {
    /// The cluster does not answer, or refuses the mount.
    Files(FilesError),
    /// The directory to mount on does not exist.
    NoDirectory(io::Error),
    /// This machine has no `/dev/fuse`.
    NoDevice,
    /// This user may not open `/dev/fuse`.
    Closed(io::Error),
    /// `fusermount3` is missing, which users other than root need.
    NoHelper,
    /// The kernel refuses.
    Kernel(io::Error),
}

impl std::fmt::Display for MountError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Files(error) => error.fmt(f),
            Self::NoDirectory(error) => write!(f, "no directory to mount on: {error}"),
            Self::NoDevice => write!(f, "this machine has no {DEVICE}"),
            Self::Closed(error) => write!(f, "{DEVICE} cannot be opened: {error}"),
            Self::NoHelper => write!(f, "{HELPER} is missing, without which only root can mount"),
            Self::Kernel(error) => write!(f, "cannot mount: {}", error.to_string().trim()),
        }
    }
}

impl std::error::Error for MountError {}

/// A mounted file system.
#[derive(Debug)]
pub struct Mounted {
    session: BackgroundSession,
    dir: PathBuf,
}

/// Checks that this machine can mount.
///
/// # Errors
///
/// A requirement is missing.
pub fn check(dir: &Path) -> Result<(), MountError> {
    let found = std::fs::metadata(dir).map_err(MountError::NoDirectory)?;
    if !found.is_dir() {
        return Err(MountError::NoDirectory(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    if !Path::new(DEVICE).exists() {
        return Err(MountError::NoDevice);
    }
    // Opening the device has no effect until it is used to mount.
    File::options().read(true).write(true).open(DEVICE).map_err(MountError::Closed)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_helper = std::env::split_paths(&path).any(|dir| dir.join(HELPER).is_file());
    if !nix::unistd::geteuid().is_root() && !has_helper {
        return Err(MountError::NoHelper);
    }
    Ok(())
}

/// Mounts the directory `export` of the file system on `dir`. `machine` is the client's, `user` the one who mounts, and
/// `first` the number of the first call, which should differ between processes.
///
/// # Errors
///
/// See [`MountError`].
pub fn mount(
    caller: Caller,
    machine: Machine,
    user: &User,
    export: &str,
    dir: &Path,
    options: MountOptions,
    first: u32,
) -> Result<Mounted, MountError> {
    check(dir)?;
    let dir = dir.canonicalize().map_err(MountError::NoDirectory)?;
    let server = Server::new(caller, machine, first);
    let (root, attributes) = server.root(user, export).map_err(MountError::Files)?;
    let kernel = Kernel::new(server, root, attributes.fileid, options.allow_other);
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("quorate".to_owned()),
        MountOption::Subtype("quorate".to_owned()),
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    let session = Session::new(kernel, &dir, &config).and_then(Session::spawn);
    Ok(Mounted { session: session.map_err(MountError::Kernel)?, dir })
}

impl Mounted {
    /// Waits until `stop` and unmounts, or until another process has unmounted it. Returns whether a process still used
    /// it: then it is detached, and ends with that process.
    ///
    /// # Errors
    ///
    /// The kernel sends no more requests, or it cannot be unmounted.
    pub fn run(self, stop: &AtomicBool) -> Result<bool, MountError> {
        while !stop.load(Ordering::Relaxed) {
            if self.session.guard.is_finished() {
                return self.session.join().map(|()| false).map_err(MountError::Kernel);
            }
            std::thread::sleep(LOOK);
        }
        let Self { session, dir } = self;
        match session.umount_and_join() {
            Ok(()) => Ok(false),
            // A process uses it. New ones no longer find it.
            Err(_) => detach(&dir).map(|()| true).map_err(MountError::Kernel),
        }
    }
}

/// Detaches a mount, even if processes use it.
fn detach(dir: &Path) -> io::Result<()> {
    if nix::mount::umount2(dir, nix::mount::MntFlags::MNT_DETACH).is_ok() {
        return Ok(());
    }
    let done = std::process::Command::new(HELPER).args(["-u", "-z", "-q", "--"]).arg(dir).status()?;
    if done.success() { Ok(()) } else { Err(io::Error::other(format!("{HELPER} -u -z: {done}"))) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_directory_is_told_first() {
        let missing = check(Path::new("/no/such/directory")).unwrap_err();
        assert!(matches!(&missing, MountError::NoDirectory(_)), "{missing}");
        let file = check(Path::new("/proc/self/status")).unwrap_err();
        assert!(file.to_string().contains("no directory to mount on"), "{file}");
    }
}
