//! The file system: a deterministic service over the pages of the replicated state. Its operations are complete NFS
//! version 3 calls [OSDI99 §6.2, RFC1813].
//!
//! A gateway sends a client's RPC call as one operation, and the service computes the complete RPC reply: access
//! rights, attributes before and after, and the result come from one atomic step. The crate uses no sockets, clocks
//! or replicas.
//!
//! | Part | Module |
//! |---|---|
//! | attributes, users and kinds of operations, in no protocol's format | `types`, `error` |
//! | the settings | [`settings`] |
//! | where everything is in the state | `volume` |
//! | checking the consistency of the state | [`fsck`] |
//! | the operations, with the rights of the calling user | `op` |
//! | remote procedure calls: records, heads, values | [`rpc`] |
//! | NFS version 3 and MOUNT: calls become operations | [`nfs3`] |
//!
//! A module uses those above it in the table. `op` and `volume` know no protocol.
#![no_std]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod error;
pub mod nfs3;
mod op;
pub mod rpc;
pub mod settings;
mod types;
mod volume;

pub use nfs3::operation::Operation;
pub use nfs3::service::Fs;
pub use settings::Settings;
pub use types::{OpKind, OpKinds};
pub use volume::fsck;
