//! The file system: a deterministic service over the pages of the replicated state. Its operations are complete NFS
//! version 3 calls [OSDI99 §6.2, RFC1813].
//!
//! A gateway sends a client's RPC call as one operation, and the service computes the complete RPC reply: access
//! rights, attributes before and after, and the result come from one atomic step. The crate uses no sockets, clocks
//! or replicas.
//!
//! | Part | Module |
//! |---|---|
//! | values on the wire: XDR, RPC, NFS, MOUNT | [`xdr`], [`rpc`], [`nfs3`], [`mount3`] |
//! | the operation: a call, and the address of its client | [`operation`] |
//! | the service: a call in, a reply out | [`service`] |
//! | a gateway's side of a connection, without sockets | [`relay`], [`record`] |
//! | the client side: encoding calls | [`calls`] |
//! | NFS version 3: calls become operations | `answer` |
//! | the operations, in no protocol's format | `op`, `types`, `error` |
//! | the calling user, and its rights | `caller`, [`settings`] |
//! | replies to calls that may be repeated | `replies` |
//! | checking the consistency of the state | [`fsck`] |
//! | the layout of the state | `volume`, `inode`, `inodes`, `bytes`, `directory`, `data`, `quota`, `handle` |
#![no_std]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod answer;
mod bytes;
mod caller;
pub mod calls;
mod data;
mod directory;
mod error;
pub mod fsck;
mod handle;
mod inode;
mod inodes;
pub mod mount3;
pub mod nfs3;
mod op;
pub mod operation;
mod quota;
pub mod record;
pub mod relay;
mod replies;
pub mod rpc;
pub mod service;
pub mod settings;
mod types;
mod volume;
pub mod xdr;

pub use operation::Operation;
pub use service::Fs;
pub use settings::Settings;
pub use types::{OpKind, OpKinds};
