//! The process of a replica, without clocks, threads, sockets and files: what the node and the simulator both run.
//!
//! | Subject | File |
//! |---|---|
//! | the files of a replica, on any disk | [`storage`] |
#![no_std]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod storage;
