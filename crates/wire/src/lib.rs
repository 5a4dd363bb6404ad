//! The wire format, on which all other crates are based.
//!
//! [`envelope`] is what every protocol needs, [`protocol`] is that of replicas and their clients. The registers have one of
//! their own, in a crate above.
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
//! | the authenticator: received bytes become [`Verified`] messages | [`auth`] |
//! | how a protocol's kinds travel and are authenticated | [`seal`] |
//! | a message read again from a recording | [`recall`] |
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

pub mod envelope;
pub mod protocol;

pub use envelope::{auth, cluster, codec, digest, exchange, id, keys, seal};
pub use protocol::{batch, frame, life, message, pool, recall, reply, sign};

pub use auth::{AuthError, Source, Verified};
pub use batch::{Batch, Body};
pub use cluster::Cluster;
pub use digest::{ClusterId, Digest};
pub use id::{ClientId, Principal, ReplicaId, SeqNum, Timestamp, ViewNum};
pub use message::{Kind, Message};
pub use protocol::admit::Pbft;
pub use reply::Replies;
pub use sign::Signed;

/// The authenticator of a replica or a client.
pub type Door = auth::Authenticator<Pbft>;
pub use auth::AuthError as DoorError;
/// An incoming frame of a replica or a client.
pub type Admitted<'a> = auth::Admitted<Message<'a>>;
