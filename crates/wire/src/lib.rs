//! The wire format, on which all other crates are based.
//!
//! | Part | Module |
//! |---|---|
//! | views, sequence numbers, replicas, clients | [`id`] |
//! | quorum sizes, written once | [`cluster`] |
//! | canonical encoding: bounded, total decoding | [`codec`] |
//! | digests, domain separated | [`digest`] |
//! | every message, with its byte layout (`docs/wire-format.md`) | [`message`] |
//! | a batch of requests in wire form | [`batch`] |
//! | the replies of one executed batch | [`reply`] |
//! | frames: header, body, authentication | [`frame`] |
//! | session keys, MACs and authenticators | [`keys`] |
//! | signatures and signed evidence | [`sign`] |
//! | the exchange of session keys | [`exchange`] |
//! | lives of replicas, and what opens one | [`life`] |
//! | the authenticator: received bytes become [`Verified`] messages | [`door`] |
//!
//! This crate has no I/O, no clock and no randomness: they are passed in.
#![no_std]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod batch;
mod bounds;
pub mod cluster;
pub mod codec;
pub mod digest;
pub mod door;
pub mod exchange;
pub mod frame;
pub mod id;
pub mod keys;
mod kind;
pub mod life;
mod memo;
pub mod message;
pub mod reply;
mod short;
pub mod sign;

pub use batch::{Batch, Body};
pub use cluster::Cluster;
pub use digest::{ClusterId, Digest};
pub use door::{Admitted, Door, DoorError, Source, Verified};
pub use id::{ClientId, Principal, ReplicaId, SeqNum, Timestamp, ViewNum};
pub use message::{Kind, Message};
pub use reply::Replies;
pub use sign::Signed;
