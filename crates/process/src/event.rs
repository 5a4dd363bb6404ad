//! The events of a process.

use quorate_pbft::step::{Lsn, Timer};
use quorate_service::parallel::Done;
use quorate_wire::Source;

/// Each thing that can happen to a process.
#[derive(Debug)]
pub enum Event<'a> {
    /// The process begins. Comes once, first.
    Start,
    /// A datagram, or what came as one. May hold many frames.
    Datagram {
        /// Where the datagram came from, as far as that is known.
        source: Source,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The moment of [`Process::due`](crate::Process::due) has come.
    Clock,
    /// A timer expires, whatever time it is: for scripts.
    Expired(Timer),
    /// The disk has completed some work.
    Disk(DiskEvent),
    /// The task that [`Process::has_work`](crate::Process::has_work) speaks of has had its time.
    Work {
        /// How long it took, in nanoseconds.
        took_ns: u64,
    },
    /// A worker has run a job ([`Process::take_job`](crate::Process::take_job)).
    Ran(Done),
    /// The process is about to end: it hands over the view if it is the primary.
    Shutdown,
}

/// A report of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskEvent {
    /// All records up to here are durable.
    Durable(Lsn),
}
