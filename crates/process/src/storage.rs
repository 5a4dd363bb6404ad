//! A replica's files, on any disk: [`io::DiskIo`] is the disk, and everything else here is built on it.
//!
//! Nothing in this module waits by itself or reads a clock. The node runs it on threads over the files of a
//! directory, and the simulator runs it over a simulated disk.

pub mod io;
