//! The directory of a node: whose it is, and the lock that keeps other processes from it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use quorate_wire::ReplicaId;

use crate::error::{NodeError, NodeErrorKind};
use crate::patience::patiently;

/// Returns the id of a directory's replica.
pub(crate) fn replica_of(dir: &Path) -> Result<ReplicaId, NodeError> {
    if !dir.is_dir() {
        return Err(NodeError::new(NodeErrorKind::Unreadable, "no such directory")
            .in_file(dir)
            .next("create the directories of a cluster with quorate init"));
    }
    let full = fs::canonicalize(dir).map_err(|error| NodeError::unreadable(dir, &error))?;
    let name = full.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let id = name.strip_prefix("replica-").and_then(|id| id.parse().ok()).map(ReplicaId);
    id.ok_or_else(|| {
        NodeError::new(NodeErrorKind::Unreadable, "not a replica's directory: its name is not replica-N")
            .in_file(dir)
    })
}

/// Makes sure that no other process runs on a directory: two with one identity would contradict each other. And that
/// nobody else gets at what is in it: a process that can open a lock can hold it.
pub(crate) fn lock(dir: &Path) -> Result<Flock<File>, NodeError> {
    let exposed = fs::metadata(dir).is_ok_and(|found| found.permissions().mode() & 0o077 != 0);
    if exposed {
        // A directory of an earlier version. Who may not change it may run here all the same.
        let _ = fs::set_permissions(dir, Permissions::from_mode(0o700));
    }
    lock_file(&dir.join("lock"))
}

/// Locks a file, which is created if needed, for as long as the result lives.
///
/// # Errors
///
/// It cannot be written, or another process holds it.
pub fn lock_file(path: &Path) -> Result<Flock<File>, NodeError> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
    let file = file
        .map_err(|error| NodeError::unwritable(path, &error).next("give this user write permission there"))?;
    let mut open = Some(file);
    let taken = patiently(|| {
        let file = open.take().ok_or(())?;
        Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(file, _)| open = Some(file))
    });
    taken.map_err(|()| {
        NodeError::new(NodeErrorKind::InUse, "another process uses this directory")
            .in_file(path.parent().unwrap_or(path))
            .next("stop it first")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    /// H5: a node's directory is its user's alone from its next start on.
    #[test]
    fn h5_a_nodes_directory_is_closed_to_others() {
        let dir = TempDir::new("exposed");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let held = lock(dir.path()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(dir.path()), mode(&dir.path().join("lock"))), (0o700, 0o600));
        assert_eq!(lock(dir.path()).unwrap_err().kind, NodeErrorKind::InUse);
        drop(held);
    }
}
