//! The destination of a drive's records.

pub use quorate_process::storage::queue::{DiskQueue as Journal, INCARNATION_RANDOM_BITS};
