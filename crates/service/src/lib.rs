//! Everything above agreement: the service, its paged state, execution, checkpoints, state transfer.
//!
//! Agreement decides the order of batches. This crate turns that order into replies and into a state with the same
//! digest at all correct replicas. It does not depend on replicas, views or clocks: it shares only identifiers,
//! batches and digests of `quorate-wire` with agreement.
//!
//! | Part | Module | Paper |
//! |---|---|---|
//! | what a service is | [`service`], [`view`] | [OSDI99 §3, §6.1] |
//! | batches in order, exactly once, tentative or not | [`executor`] | [OSDI99 §4.2, §5.1] |
//! | the last reply of each client, inside the state | `replies` | [OSDI99 §4.2] |
//! | the same without replicas, to compare with | [`alone`] | [OSDI99 §7.3] |
//! | pages, the write set of a batch | [`page`], `overlay` | [OSDI99 §6.3] |
//! | an allocator of pages, and a B+tree over them | [`space`], [`btree`] | |
//! | checkpoints by copy on write, their digests | `state`, `tree` | [OSDI99 §4.3, §6.3] |
//! | state transfer: walk, answers, inputs and outputs | `walk`, `answer`, [`transfer`] | [OSDI99 §4.4, §6.3] |
//! | a checkpoint as bytes; its changed pages, for a disk | [`image`], [`saving`] | |
//! | the client registry: who may use which operations | [`people`] | |
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

pub mod alone;
mod answer;
pub mod btree;
pub mod executor;
pub mod image;
mod index;
pub mod kv;
mod lives;
mod mend;
pub mod null;
pub mod options;
mod overlay;
pub mod page;
pub mod people;
mod replies;
pub mod saving;
pub mod service;
mod shares;
pub mod space;
mod state;
pub mod stop;
#[cfg(test)]
mod testing;
pub mod transfer;
mod tree;
pub mod view;
mod walk;

pub use alone::Alone;
pub use executor::{Cached, Executor};
pub use image::ImageError;
pub use options::{Options, OptionsError};
pub use page::PageFault;
pub use service::{Access, Context, Service};
pub use stop::Stop;
pub use transfer::{Progress, Refusal, Step, Steps};
pub use view::View;
