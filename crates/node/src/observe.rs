//! The status of a cluster: the statements of its replicas, the evidence of its clients, and the verdict.
//!
//! No single replica is trusted. Each makes a statement about itself, clients report what they have seen, and the
//! observer compares: f + 1 replicas that agree include a correct one.
//!
//! ```text
//! replicas --STATEMENT--> caller --.
//! clients  --ledger files--------->+--> model::judge --> json, text, metrics, page
//! ```
//!
//! | Part | Module |
//! |---|---|
//! | the evidence of a client, stored | [`ledger`](crate::run::client::ledger) |
//! | the verdict, as a pure function | [`model`] |
//! | which replicas agree at which checkpoint | [`agreement`] |
//! | what an operator can do | [`advice`](mod@advice) |
//! | output formats | [`json`], [`metrics`], [`text`] |
//! | what a client of the cluster gets | [`probe`] |
//! | observing a cluster, once and repeatedly | [`look`], [`watch`] |

pub mod advice;
pub mod agreement;
pub mod json;
pub mod look;
pub mod metrics;
pub mod model;
pub mod probe;
pub mod text;
mod units;
pub mod watch;

pub use agreement::{Agreement, Cell};
pub use look::Observer;
pub use model::{Health, Picture, Reading, Verdict, Word};
pub use probe::{Latency, ProbeOutcome, ProbeOutcomes};
pub use watch::{Board, Snapshot, Watch};

pub use crate::run::client::ledger::{Class, Item, Ledger};
