//! A service in this process, without replicas, behind a gateway, for comparison [OSDI99 §7.3].

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::epoll::{Epoll, EpollEvent};
use quorate_pbft::Now;
use quorate_pbft::config::Durability;
use quorate_service::{Alone, Service};

use super::backing::{Backing, HandOut};
use super::conversation::Failure;
use quorate_node::clock::Clock;

/// The length at which the log restarts: as much as a replica writes before it truncates its own.
const LOG_BYTES: u64 = 64 << 20;

/// A service without replicas behind a gateway.
#[derive(Debug)]
pub struct Unreplicated<S> {
    service: Alone<S>,
    log: Option<OperationLog>,
    /// Finished operations since the last results were returned. At most one for each lane.
    done: Vec<(u16, Range<usize>)>,
    results: Vec<u8>,
    result: Vec<u8>,
}

impl<S: Service> Unreplicated<S> {
    /// Returns a service that writes the records of a replica to a log at `path`, if `durability` requires it. The
    /// log exists only for its cost: after a restart the service is empty.
    ///
    /// # Errors
    ///
    /// The log cannot be created.
    pub fn new(service: Alone<S>, durability: Durability, path: &Path) -> io::Result<Self> {
        let log = match durability {
            Durability::Memory => None,
            Durability::Async => Some(OperationLog::make(path, false)?),
            Durability::Sync => Some(OperationLog::make(path, true)?),
        };
        Ok(Self { service, log, done: Vec::new(), results: Vec::new(), result: Vec::new() })
    }
}

impl<S: Service> Backing for Unreplicated<S> {
    fn watch(&self, _poller: &Epoll, _event: EpollEvent) -> io::Result<()> {
        Ok(())
    }

    fn receive(&mut self, _clock: &Clock) -> io::Result<bool> {
        Ok(self.has_done())
    }

    fn invoke(&mut self, now: Now, lane: u16, operation: &[u8], _read_only: bool) {
        let changed = self.service.execute(now.wall_ns, operation, &mut self.result);
        if let Some(log) = self.log.as_mut().filter(|_| changed) {
            log.note(now.wall_ns, operation);
        }
        let start = self.results.len();
        self.results.extend_from_slice(&self.result);
        self.done.push((lane, start..self.results.len()));
    }

    fn due(&self) -> u64 {
        if self.has_done() { 0 } else { u64::MAX }
    }

    fn expire(&mut self, _now: Now) {}

    /// Called before results are returned: if required, they are on disk afterwards.
    fn flush(&mut self) -> io::Result<()> {
        self.log.as_mut().map_or(Ok(()), OperationLog::write)
    }

    fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    fn hand_out(&mut self, each: &mut HandOut<'_>) {
        for (lane, range) in self.done.drain(..) {
            each(lane, self.results.get(range).ok_or(Failure::ResultLost));
        }
        self.results.clear();
    }
}

/// The operations that changed something, in order.
#[derive(Debug)]
struct OperationLog {
    file: File,
    syncs: bool,
    at: u64,
    /// The records to write. At most one operation for each lane.
    pending: Vec<u8>,
}

impl OperationLog {
    fn make(path: &Path, syncs: bool) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
        let len = i64::try_from(LOG_BYTES).unwrap_or(i64::MAX);
        match fallocate(&file, FallocateFlags::empty(), 0, len) {
            Ok(()) | Err(nix::errno::Errno::EOPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        file.sync_all()?;
        Ok(Self { file, syncs, at: 0, pending: Vec::new() })
    }

    fn note(&mut self, wall_ns: u64, operation: &[u8]) {
        let len = u32::try_from(operation.len()).unwrap_or(u32::MAX);
        self.pending.extend_from_slice(&len.to_le_bytes());
        self.pending.extend_from_slice(&wall_ns.to_le_bytes());
        self.pending.extend_from_slice(operation);
    }

    fn write(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if self.at >= LOG_BYTES {
            self.at = 0;
        }
        self.file.write_all_at(&self.pending, self.at)?;
        self.at += u64::try_from(self.pending.len()).unwrap_or(u64::MAX);
        self.pending.clear();
        if self.syncs { self.file.sync_data() } else { Ok(()) }
    }
}
