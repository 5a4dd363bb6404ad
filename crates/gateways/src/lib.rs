//! Gateways: programs that speak another protocol reach a cluster through them.
//!
//! | Part | Module |
//! |---|---|
//! | the loop of a gateway: connections on one side, lanes of the client on the other | [`front`] |
//! | the Redis protocol for the key-value store | [`resp`] |
//! | NFS version 3 for the file system | [`nfs`] |
//! | what a gateway is: a row of data, and the function that serves | `row` |
//! | the status page over HTTP, and the endpoints for machines | [`page`] |
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]

pub mod front;
mod network;
pub mod nfs;
pub mod page;
pub mod resp;
mod row;

pub use front::FrontDoor;
pub use nfs::NfsDoor;
pub use resp::RespDoor;
pub use row::{GatewayRow, Given, OptionRow, Usage};

/// Every gateway. A new one is a file with its row, and a word here.
pub const GATEWAYS: &[GatewayRow] = &[nfs::ROW, resp::ROW];
