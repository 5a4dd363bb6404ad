//! The file system through FUSE: a directory of this machine in which every request of the kernel becomes calls
//! of the cluster.
//!
//! ```text
//! process --> kernel --/dev/fuse--> [ threads: kernel.rs ] --> Caller --> 3f + 1 replicas
//! ```
//!
//! No relay stands between: this process is a client of the cluster and believes no single replica. Nothing is
//! kept here that matters. A write is durable when `write` returns, so that `fsync` has nothing left to do. The
//! kernel keeps attributes and names for a second: what others change is seen after that time at the latest. Where
//! several users share a mount it keeps no name of a directory in which not everyone may look.
//!
//! A call that has no answer within the patience fails with `ETIMEDOUT`; a change may have been made all the same,
//! or be made yet, after a later one too. So nobody waits without an end when the cluster is away.
//!
//! | Part | Module |
//! |---|---|
//! | mounting and unmounting | here |
//! | what the kernel asks, also through what is open; what that comes to | `kernel`, `through`, `work` |
//! | calls and their answers | `server` |
//! | what the kernel knows by number, and what it has open; with whose rights | `table`, `opens` |
//! | attributes and errors in the kernel's words | `words` |

mod kernel;
mod opens;
mod server;
mod table;
mod through;
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

/// How often is looked whether to stop.
const LOOK: Duration = Duration::from_millis(50);
/// The kernel's door.
const DEVICE: &str = "/dev/fuse";
/// The program that mounts for those who are not root.
const HELPER: &str = "fusermount3";

/// How it is mounted.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// All users of this machine may use it, and not only the one who mounts.
    pub allow_other: bool,
    /// How many requests of the kernel are worked on at a time.
    pub threads: usize,
}

/// Why it is not mounted, or was not unmounted.
#[derive(Debug)]
#[non_exhaustive]
pub enum MountError {
    /// The cluster gives no answer, or does not let it be mounted.
    Files(FilesError),
    /// There is no directory to mount on.
    NoDirectory(io::Error),
    /// This machine has no `/dev/fuse`.
    NoDevice,
    /// `/dev/fuse` is there, but not for whoever asks.
    Closed(io::Error),
    /// Who is not root needs `fusermount3`, and it is not there.
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
            Self::NoHelper => write!(f, "there is no {HELPER}, without which only root mounts"),
            Self::Kernel(error) => write!(f, "cannot be mounted: {}", error.to_string().trim()),
        }
    }
}

impl std::error::Error for MountError {}

/// A file system that is mounted.
#[derive(Debug)]
pub struct Mounted {
    session: BackgroundSession,
    dir: PathBuf,
}

/// Sees to it that this machine can mount at all.
///
/// # Errors
///
/// What is missing.
pub fn check(dir: &Path) -> Result<(), MountError> {
    let found = std::fs::metadata(dir).map_err(MountError::NoDirectory)?;
    if !found.is_dir() {
        return Err(MountError::NoDirectory(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    if !Path::new(DEVICE).exists() {
        return Err(MountError::NoDevice);
    }
    // Opened, it does nothing until something is mounted with it.
    File::options().read(true).write(true).open(DEVICE).map_err(MountError::Closed)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_helper = std::env::split_paths(&path).any(|dir| dir.join(HELPER).is_file());
    if !nix::unistd::geteuid().is_root() && !has_helper {
        return Err(MountError::NoHelper);
    }
    Ok(())
}

/// Mounts the directory `export` of the file system on `dir`. `machine` is the client's; `user` is who asks for it;
/// `first` is the number of the first call: no two processes should begin with the same.
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
    options: Options,
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
    /// Waits until `stop`, then unmounts; or until somebody else has unmounted it. Says whether something still
    /// used it: then it is out of sight, and gone when that ends.
    ///
    /// # Errors
    ///
    /// The kernel gives no more requests, or it cannot be unmounted.
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
            // A process is in it, or has a file of it open. Those that come now do not find it any more.
            Err(_) => detach(&dir).map(|()| true).map_err(MountError::Kernel),
        }
    }
}

/// Takes a mount out of sight, whoever uses it.
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
