//! A replica's files, on any disk: [`io::DiskIo`] is the disk, and everything else here is built on it.
//!
//! Nothing in this module waits by itself or reads a clock. The node runs it on threads over the files of a
//! directory, and the simulator runs it over a simulated disk.
//!
//! ```text
//! log/starts             the number of starts, and the validity of the log; two copies
//! log/00..01.seg ...     the write-ahead log, segments named by their first commit
//! checkpoint/pages       the pages of the state
//! checkpoint/00..1.idx   the slots of the pages at a stable checkpoint
//! ```
//!
//! Disks lose, damage and exchange what was written. So everything has a checksum that includes its place, and each
//! commit of the log says how far the log was known to be durable. An incomplete tail that was not acknowledged to
//! anyone is cut. If anything else is missing, the replica has lost its state and must rejoin (spec §14.4). A part of
//! the log is never mistaken for the whole.

pub mod io;
pub mod log;
pub mod owner;
pub mod paged;
pub mod pages;
pub mod queue;
pub mod recover;
pub mod starts;
pub mod store;

mod commit;
mod index;

#[cfg(test)]
mod testing;
