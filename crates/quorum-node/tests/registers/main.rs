//! Registers on real sockets and disks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod cluster;
mod rights;
mod suspects;
mod using;
