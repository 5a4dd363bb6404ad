//! What runs above agreement: the service, its paged state, execution, checkpoints, state transfer.
//!
//! Agreement decides the order of batches; this crate turns that order into replies and into a state
//! whose digest all correct replicas share. It knows no replica, no view and no clock: it shares
//! identifiers, batches and digests of `quorate-wire` with agreement, and nothing else.
//!
//! | Part | Module | Paper |
//! |---|---|---|
//! | what a service is | [`service`] | [OSDI99 §2, §6.2] |
//! | batches in order, exactly once, tentative or not | [`executor`] | [OSDI99 §4.2, §5.1.2] |
//! | walk of a state transfer, and its answers | [`transfer`] | [OSDI99 §6.3], [TOCS02] |
//! | the services of the papers' micro-benchmarks, and a key-value store | [`null`], [`kv`] | [OSDI99 §7.2] |
#![no_std]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic"))]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod executor;
pub mod kv;
pub mod null;
pub mod service;
pub mod transfer;
pub mod view;

pub use executor::{Cached, Executor, ImageError, Options, OptionsError};
pub use service::{Access, Context, PageFault, Service, Stop};
pub use transfer::{Progress, Step, Steps};
pub use view::View;
