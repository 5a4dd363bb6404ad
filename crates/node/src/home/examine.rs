//! Examines a node's directory without changing it: what a start would find.

use std::fs::{self, File, OpenOptions};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use quorate_wire::Principal;

use crate::error::{NodeError, NodeErrorKind};
use crate::home::members::{Members, client_identity, client_number};
use crate::home::place::replica_of;
use crate::home::secret;
use crate::home::settings::Settings;
use crate::storage;

/// A node with valid files.
#[derive(Clone, Debug)]
pub struct Examined {
    /// Its identity.
    pub own: Principal,
    /// Its settings.
    pub settings: Settings,
    /// The members of its cluster.
    pub members: Members,
    /// Whether a process uses the directory.
    pub runs: bool,
}

/// Reads and checks the files of the node in `dir`, like a start, and changes nothing.
///
/// # Errors
///
/// The error that a start would report.
pub fn examine(dir: &Path) -> Result<Examined, NodeError> {
    let full = fs::canonicalize(dir).map_err(|error| NodeError::unreadable(dir, &error))?;
    let name = full.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let (own, key) = match client_number(name) {
        Some(number) => (client_identity(number), "keys/client.key"),
        None => (replica_of(dir)?.into(), "keys/replica.key"),
    };
    let members = Members::read(&dir.join("cluster.toml"))?;
    let Some(public) = members.key_of(own) else {
        return Err(NodeError::new(NodeErrorKind::Rule, format!("{name} is not a member"))
            .in_file(&dir.join("cluster.toml")));
    };
    secret::read(&dir.join(key), public)?;
    let settings = Settings::read(&dir.join("node.toml"), own, members.cluster, members.cluster_id())?;
    let file = OpenOptions::new().read(true).open(dir.join("lock"));
    let runs = file.is_ok_and(is_locked);
    Ok(Examined { own, settings, members, runs })
}

fn is_locked(file: File) -> bool {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err()
}

/// Returns whether a stopped replica would find its complete state, and if not, why.
///
/// # Errors
///
/// Files cannot be read, or are of another version.
pub fn memory(dir: &Path, node: &Examined) -> Result<Result<(), String>, NodeError> {
    match node.own {
        Principal::Client(_) => Ok(Ok(())),
        Principal::Replica(id) => {
            storage::look(dir, node.members.cluster_id(), id, node.settings.config.durability)
        }
    }
}

/// Returns the time of a node's newest session keys, in nanoseconds since 1970, if it has ever started.
pub fn key_time(dir: &Path) -> Option<u64> {
    fs::read_to_string(dir.join("keys/time")).ok()?.trim().parse().ok()
}
