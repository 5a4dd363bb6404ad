//! A replica's disk: the storage of the crate `process` over the files of a directory, and the threads that write.

use std::path::{Path, PathBuf};

use quorate_pbft::Resume;
use quorate_pbft::config::Durability;
use quorate_process::storage::{log, owner, paged, recover};
use quorate_service::{Executor, Service};
use quorate_wire::digest::Domains;
use quorate_wire::{ClusterId, ReplicaId};
#[cfg(test)]
use quorate_wire::{Digest, SeqNum};

pub use self::disk::{Disk, DiskReports};
pub use self::files::Files;
use self::files::at_start;
use crate::error::{NodeError, NodeErrorKind};
pub use log::commits;
pub use owner::FORMAT;
pub(crate) use owner::Owner;
pub use recover::Past;

mod disk;
mod files;
mod imaging;

#[cfg(test)]
mod damage;
#[cfg(test)]
mod failing;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod healing;
#[cfg(test)]
mod little_memory;
#[cfg(test)]
mod page_faults;
#[cfg(test)]
mod world;

/// The pages of a replica's state.
pub type Paged = paged::Paged<Files>;

/// A replica's disk at a start.
#[derive(Debug)]
pub struct Storage {
    dir: PathBuf,
    opened: recover::Storage<Files>,
    /// Whether the replica waits for what is written.
    is_awaited: bool,
}

/// Creates the files of a replica that has never started.
pub(crate) fn create(dir: &Path, cluster: ClusterId, replica: ReplicaId) -> Result<(), NodeError> {
    let created = recover::create(&Files::below(dir), Owner { cluster, replica });
    created.map_err(|error| at_start(dir, &error))
}

/// Returns whether the disk of a stopped replica is complete, and if not, why. Changes nothing.
///
/// # Errors
///
/// The files cannot be read, or are of another version.
pub(crate) fn look(
    dir: &Path,
    cluster: ClusterId,
    replica: ReplicaId,
    durability: Durability,
) -> Result<Result<(), String>, NodeError> {
    let found = recover::look(&Files::below(dir), Owner { cluster, replica }, durability);
    found.map_err(|error| at_start(dir, &error))
}

/// Loads the image of a stopped replica into `executor`, which has the initial state, and returns the records of its
/// log. None: it has never started. Changes nothing.
///
/// # Errors
///
/// The files cannot be read, or are incomplete.
pub(crate) fn read<S: Service>(
    dir: &Path,
    (cluster, replica): (ClusterId, ReplicaId),
    durability: Durability,
    executor: &mut Executor<S, Paged>,
) -> Result<Option<Vec<Vec<u8>>>, NodeError> {
    let read = recover::read(&Files::below(dir), Owner { cluster, replica }, durability, executor);
    read.map_err(|error| at_start(dir, &error))?.map_err(|why| {
        NodeError::new(NodeErrorKind::Unreadable, format!("the replica has lost its state: {why}"))
            .in_file(dir)
            .next("check another replica; this one fetches the state from the others when it starts")
    })
}

impl Storage {
    /// Reads the disk of a replica. `seconds` is the time of day, used if the count of starts is lost. Writes nothing
    /// yet.
    ///
    /// # Errors
    ///
    /// The files cannot be read, or are of another version. Damage is not an error, but [`Past::Lost`].
    pub fn open(
        dir: &Path,
        cluster: ClusterId,
        replica: ReplicaId,
        durability: Durability,
        seconds: u64,
    ) -> Result<(Self, Past), NodeError> {
        Self::open_with(dir, Owner { cluster, replica }, durability, seconds, recover::SEGMENT_BYTES)
    }

    fn open_with(
        dir: &Path,
        owner: Owner,
        durability: Durability,
        seconds: u64,
        segment_bytes: usize,
    ) -> Result<(Self, Past), NodeError> {
        let opened = recover::Storage::open(&Files::below(dir), owner, durability, seconds, segment_bytes);
        let (storage, past) = opened.map_err(|error| at_start(dir, &error))?;
        let is_awaited = durability.waits_for_disk();
        Ok((Self { dir: dir.to_path_buf(), opened: storage, is_awaited }, past))
    }

    /// Returns the number of starts, including this one.
    pub fn starts(&self) -> u64 {
        self.opened.starts()
    }

    /// Returns an empty store for the state, which keeps at most `bytes_max` bytes in memory.
    pub fn store(&self, domains: Domains, page_bytes: usize, bytes_max: usize) -> Paged {
        self.opened.store(domains, page_bytes, bytes_max)
    }

    /// Loads the state into `executor`, which has the initial state, and returns what the replica continues from.
    ///
    /// # Errors
    ///
    /// The files cannot be read. Damage is not an error.
    pub fn resume<S: Service>(
        &mut self,
        past: Past,
        incarnation: u64,
        executor: &mut Executor<S, Paged>,
    ) -> Result<Resume, NodeError> {
        let resumed = self.opened.resume(past, incarnation, executor);
        resumed.map_err(|error| at_start(&self.dir, &error))
    }

    /// Loads the state into `executor`, and returns its checkpoint. None: it is incomplete.
    #[cfg(test)]
    pub(crate) fn load<S: Service>(
        &mut self,
        executor: &mut Executor<S, Paged>,
    ) -> Result<Option<(SeqNum, Digest)>, NodeError> {
        self.opened.load(executor).map_err(|error| at_start(&self.dir, &error))
    }

    /// Begins to write: records the start, and runs the disk from now on. After [`Past::Lost`] everything is removed
    /// except good pages, which a transfer may use. The state is written whenever the log is longer than
    /// `log_bytes_max`.
    ///
    /// # Errors
    ///
    /// The disk cannot be written, or a thread cannot be started.
    pub fn begin<S: Service>(
        self,
        executor: &Executor<S, Paged>,
        log_bytes_max: usize,
    ) -> Result<Disk, NodeError> {
        let life = crate::home::secret::number()?;
        let Self { dir, opened: storage, is_awaited } = self;
        let writers = storage.begin(executor, life).map_err(|error| at_start(&dir, &error))?;
        Disk::start(writers, dir, log_bytes_max, is_awaited)
    }
}
