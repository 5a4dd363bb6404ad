//! Everything above agreement: the service, its paged state, execution, checkpoints, state transfer.
//!
//! Agreement decides the order of batches. This crate turns that order into replies and into a state with the same
//! digest at all correct replicas. It does not depend on replicas, views or clocks: it shares only identifiers,
//! batches and digests of `quorate-wire` with agreement.
//!
//! | Part | Module | Paper |
//! |---|---|---|
//! | pages, and where they are kept | [`page`] | [OSDI99 §6.3] |
//! | what a service is | [`service`], [`view`], [`stop`] | [OSDI99 §3, §6.1] |
//! | the committed pages, the write set of a batch, checkpoints by copy on write, their digests | `state` | [OSDI99 §4.3, §6.3] |
//! | an allocator of pages, and a B+tree over them | [`space`], [`btree`] | |
//! | the last reply of each client, inside the state | `replies` | [OSDI99 §4.2] |
//! | the client registry: who may use which operations | [`registry`] | |
//! | state transfer: walk, answers, inputs and outputs | [`transfer`] | [OSDI99 §4.4, §6.3] |
//! | a checkpoint as bytes; its changed pages, for a disk | [`image`] | |
//! | batches in order, exactly once, tentative or not | [`executor`] | [OSDI99 §4.2, §5.1] |
//! | the work of an executor, in order | [`queue`] | [OSDI99 §4.2] |
//! | the same without replicas, to compare with | [`alone`] | [OSDI99 §7.3] |
//! | the services of the papers' micro-benchmarks, and a key-value store | [`null`], [`kv`] | [OSDI99 §7.2] |
#![no_std]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[macro_use]
pub mod mutants;
#[macro_use]
mod planted;

pub mod alone;
mod builtin;
pub mod executor;
pub mod image;
mod lives;
pub mod options;
pub mod page;
pub mod parallel;
pub mod queue;
pub mod registry;
mod replies;
pub mod service;
mod state;
pub mod stop;
#[cfg(test)]
mod testing;
pub mod transfer;

pub use alone::Alone;
pub use builtin::*;
pub use executor::{Cached, Executor};
pub use image::ImageError;
pub use options::{Options, OptionsError};
pub use page::PageFault;
pub use queue::{Queue, Task, Unanswered};
pub use service::{Access, Context, Effort, Service};
pub use state::view::View;
pub use state::{btree, space, view};
pub use stop::Stop;
pub use transfer::{Progress, Refusal, Step, Steps};
