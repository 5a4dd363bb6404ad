//! A replica without a disk, for programs that put one together themselves: benchmarks and tests.

use quorate_pbft::config::{Config, Durability};
use quorate_pbft::{ConfigError, Replica, Resume};
use quorate_process::{Core, Directory, Process, executor_options};
use quorate_service::{Executor, Service};
use quorate_wire::sign::Signer;
use quorate_wire::{Door, ReplicaId};

use crate::storage::Paged;

/// The process of a replica without a disk.
pub type MemoryProcess<S, C = Replica> = Process<S, Paged, (), C>;

/// Why a replica without a disk cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessError {
    /// A setting breaks a rule.
    Config(ConfigError),
    /// Without a disk, only [`Durability::Memory`] is possible.
    Durability(Durability),
}

impl core::fmt::Display for ProcessError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Durability(durability) => {
                write!(f, "durability = {durability:?}: there is no disk here, use Memory")
            }
        }
    }
}

impl std::error::Error for ProcessError {}

/// Returns replica `id` with its authenticator and service, about to start without earlier state and without a
/// disk. `incarnation` is higher than at every earlier start.
///
/// # Errors
///
/// The settings break a rule, or ask for a log on disk.
pub fn in_memory<S: Service>(
    id: ReplicaId,
    config: &Config,
    signer: Signer,
    door: Door,
    directory: Directory,
    service: S,
    incarnation: u64,
) -> Result<MemoryProcess<S>, ProcessError> {
    let replica = Replica::new(id, config.clone(), signer, Resume::Fresh { incarnation });
    let replica = replica.map_err(ProcessError::Config)?;
    with_core(id, config, replica, door, directory, service, incarnation)
}

/// Returns the same around a replica of the caller's: a simulation may have put a liar in front of it.
///
/// # Errors
///
/// The settings ask for a log on disk.
pub fn with_core<S: Service, C: Core>(
    id: ReplicaId,
    config: &Config,
    core: C,
    door: Door,
    directory: Directory,
    service: S,
    incarnation: u64,
) -> Result<MemoryProcess<S, C>, ProcessError> {
    if config.durability != Durability::Memory {
        return Err(ProcessError::Durability(config.durability));
    }
    let (domains, options) = (config.domains(), executor_options(config, incarnation));
    let store = Paged::in_memory(domains.clone(), options.page_bytes);
    let executor = Executor::with_store(service, domains, options, store);
    Ok(Process::new(id, config, core, door, directory, executor, ()))
}
