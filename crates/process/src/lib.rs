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

/// Is the second argument, or the third while the bug named first is active (`quorate_pbft::mutants`).
macro_rules! mutant {
    ($id:ident, $right:expr, $wrong:expr) => {
        if quorate_pbft::mutants::is_active(quorate_pbft::mutants::$id) { $wrong } else { $right }
    };
}

pub mod storage;
