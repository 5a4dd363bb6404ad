//! What all files of a replica's disk have in common: the format, the owner and the directories.

use quorate_wire::{ClusterId, ReplicaId};

/// The version of the format.
pub const FORMAT: u32 = 3;

/// The version of `starts` while a log is written that no message waits for. An earlier version of this program would
/// take that log for complete, so it must not read it.
pub const FORMAT_UNAWAITED: u32 = 4;

/// The oldest version that is read, and written on as [`FORMAT`]. It has fewer kinds of records.
pub const FORMAT_READ: u32 = 2;

/// The directory of the log.
pub(super) const LOG: &str = "log";
/// The count of starts, in the directory of the log.
pub(super) const STARTS: &str = "starts";
/// The directory of the pages.
pub(super) const CHECKPOINT: &str = "checkpoint";
/// The file of the pages.
pub(super) const PAGES: &str = "checkpoint/pages";

/// The owner of the disk: included in every checksum, so that another replica's files are detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The cluster.
    pub cluster: ClusterId,
    /// The replica.
    pub replica: ReplicaId,
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
