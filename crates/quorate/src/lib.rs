//! Build replicated services that tolerate Byzantine machines: machines that crash, return wrong answers, or are
//! compromised.
//!
//! A service consists of its state, its operations, and one function. It must be deterministic: its state is in
//! [`Map`], [`Table`] and [`Cell`], and its only clock is [`Call::time_ns`]. [`main!`] turns it into a program with all commands to
//! run a cluster, and `sim::check` tests it against Byzantine replicas in `cargo test`.
//!
//! ```no_run
//! use quorate::{Call, Map, Operation, Service, State};
//!
//! #[derive(State)]
//! struct Counters<'a> {
//!     count: Map<'a, String, u64>,
//! }
//!
//! #[derive(Debug, Operation)]
//! enum Op {
//!     Add { name: String, by: u64 },
//!     #[read_only]
//!     Get { name: String },
//! }
//!
//! impl Service for Counters<'_> {
//!     type Operation = Op;
//!     type Reply = Result<u64, String>; // an Err undoes every write of this call
//!
//!     fn execute(&mut self, op: &Op, _call: &Call) -> Self::Reply {
//!         match op {
//!             Op::Add { name, by } => {
//!                 let sum = self.count.get(name).unwrap_or(0).checked_add(*by).ok_or("too many")?;
//!                 self.count.insert(name, &sum);
//!                 Ok(sum)
//!             }
//!             Op::Get { name } => self.count.get(name).ok_or(format!("no {name}")),
//!         }
//!     }
//! }
//!
//! quorate::main!(Counters);
//! ```
//!
//! | | |
//! |---|---|
//! | the traits of a service | [`service`] |
//! | its replicated state | [`state`], [`map`], [`table`], [`key`] |
//! | the values in operations, replies and state | [`value`] |
//! | a typed client | [`client`] |
//! | simulated clusters with injected faults | `sim`, with the feature `sim` |
//! | the generated program | `program`, with the feature `program` |
//!
//! A program that only calls a service needs neither feature: [`Client`] is always there.
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]

extern crate self as quorate;

pub mod client;
pub mod key;
pub mod map;
mod panics;
#[cfg(feature = "program")]
pub mod program;
pub mod service;
#[cfg(feature = "sim")]
pub mod sim;
pub mod state;
pub mod table;
pub mod value;

pub use client::{Client, Error};
pub use key::Key;
pub use map::Map;
pub use quorate_derive::{Key, Operation, State, Value};
pub use quorate_service::Access;
pub use service::{Call, Operation, Service, key_of};
pub use state::{Cell, State};
pub use table::{Record, Table};
pub use value::Value;

/// Items that the derives refer to.
#[doc(hidden)]
pub mod private {
    pub use crate::service::Family;
    pub use crate::state::{Field, Pages};
    pub use crate::value::{Dice, Json, Level, field, named, tagged, untagged};
}

/// Generates the `main` of a service's program, with the commands `up`, `init`, `replica`, `call`, `status` and `sim`.
#[cfg(feature = "program")]
#[macro_export]
macro_rules! main {
    ($service:ty) => {
        fn main() -> ::std::process::ExitCode {
            $crate::program::run::<$service>(option_env!("CARGO_BIN_NAME").unwrap_or(env!("CARGO_PKG_NAME")))
        }
    };
}

/// Generates the `main` of a service's program; needs the feature `program`.
#[cfg(not(feature = "program"))]
#[macro_export]
macro_rules! main {
    ($service:ty) => {
        ::std::compile_error!(
            "quorate::main! needs the feature `program`, and its command `sim` the feature `sim`: \
             cargo add quorate --features program,sim"
        );
    };
}
