//! Replicate a service of your own over machines of which some may crash, lie or be taken over.
//!
//! A service is its state, its operations, and one function. What it is told to do, every correct replica
//! does alike, so the state is reached through [`Map`] and [`Cell`], and there is no clock but
//! [`Call::time_ns`]. From that, [`main!`] makes a program with everything that it takes to run it, and
//! [`sim::check`] runs liars against it in `cargo test`.
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
//! | what a service is, and how it becomes one of `quorate_service` | [`service`] |
//! | its state over pages | [`state`] |
//! | what operations, replies and state are made of | [`value`] |
//! | a client for it | [`client`] |
//! | liars against it | [`sim`] |
//! | the program around it | [`program`] |
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]

extern crate self as quorate;

pub mod client;
pub mod program;
pub mod service;
pub mod sim;
pub mod state;
pub mod value;

pub use client::{Client, Error};
pub use quorate_derive::{Operation, State, Value};
pub use service::{Call, Operation, Service};
pub use state::{Cell, Map, State};
pub use value::Value;

/// What the derives refer to.
#[doc(hidden)]
pub mod private {
    pub use crate::service::Family;
    pub use crate::state::{Field, Pages};
    pub use crate::value::{Dice, Json, field, named, tagged, untagged};
}

/// Makes the `main` of a program that runs a service: `init`, `replica`, `up`, `call` and `sim`.
#[macro_export]
macro_rules! main {
    ($service:ty) => {
        fn main() -> ::std::process::ExitCode {
            $crate::program::run::<$service>(option_env!("CARGO_BIN_NAME").unwrap_or(env!("CARGO_PKG_NAME")))
        }
    };
}
