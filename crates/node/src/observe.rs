//! What a person and a machine see of a cluster: statements of its replicas, the evidence of its clients,
//! and what a reader makes of them.
//!
//! No replica is believed. Each says something of itself, clients say what they have seen, and the reader
//! compares: f + 1 that agree include a correct one.
//!
//! ```text
//! replicas --STATEMENT--> caller --.
//! doors    --ledger files--------->+--> model::judge --> json, text, metrics, page
//! ```
//!
//! | Part | Module |
//! |---|---|
//! | what clients have seen of replicas, kept | [`ledger`] |
//! | the verdict, as a function of what is known | [`model`] |
//! | who agrees with whom at which checkpoint | [`agreement`] |
//! | for machines, for people | [`json`], [`metrics`], [`text`] |
//! | looking at a cluster from its directories; again and again | [`look`], [`watch`] |

pub mod agreement;
pub mod json;
pub mod ledger;
pub mod look;
pub mod metrics;
pub mod model;
pub mod text;
pub mod watch;

pub use agreement::{Agreement, Cell};
pub use ledger::{Class, Item, Ledger};
pub use look::Observer;
pub use model::{Health, Picture, Reading, Verdict, Word};
pub use watch::{Snapshot, Watch};
