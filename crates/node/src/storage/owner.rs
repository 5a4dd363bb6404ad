//! What all files of a replica's disk have in common: the format, the owner, and the errors of the disk.

use std::fs;
use std::path::Path;

use quorate_wire::{ClusterId, ReplicaId};

use crate::trouble::{Kind, Trouble};

/// The version of the format.
pub const FORMAT: u32 = 3;

/// The oldest version that is read, and written on as [`FORMAT`]. It has fewer kinds of records.
pub(super) const FORMAT_READ: u32 = 2;

/// The owner of the disk: included in every checksum, so that another replica's files are detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(super) cluster: ClusterId,
    pub(super) replica: ReplicaId,
}

impl Owner {
    /// Returns the key of the checksums for one kind of object.
    pub(super) fn key(&self, context: &str, life: u64) -> [u8; 32] {
        let mut hash = blake3::Hasher::new_derive_key(context);
        hash.update(&self.cluster.0);
        hash.update(&self.replica.0.to_le_bytes());
        hash.update(&life.to_le_bytes());
        *hash.finalize().as_bytes()
    }
}

/// Makes changes to a directory durable.
pub(super) fn sync_dir(dir: &Path) -> Result<(), Trouble> {
    fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| Trouble::unwritable(dir, &error))
}

/// What to do about a full disk.
pub(super) const ROOM: &str = "free some space, and start it again: nothing is lost";

/// Returns the error of a failed disk.
pub(super) fn failed(path: &Path, what: &str, error: &std::io::Error) -> Trouble {
    let next = if error.kind() == std::io::ErrorKind::StorageFull {
        ROOM
    } else {
        "check the disk (dmesg, smartctl); the failed write was not acknowledged"
    };
    Trouble::new(Kind::Disk, format!("{what} failed: {error}")).in_file(path).next(next)
}
