//! The process of a replica, without clocks, threads, sockets and files: what the node and the simulator both run.
//!
//! A world, which is the node or the simulator, passes events to a [`Process`] and takes what may leave:
//!
//! ```text
//!             +----------+   +------+   +-------+   +----------+
//!    step --> | endpoint |-->| core |-->| queue |-->| executor |   the result is the core's next input
//!             +----------+   +------+   +-------+   +----------+
//!                                | Action::Send
//!                                v
//!             +----------+   +----------+
//!   flush <-- |  packs   |<--| endpoint |   sealed once, held until durable, packed by place
//!             +----------+   +----------+
//! ```
//!
//! | Subject | File |
//! |---|---|
//! | the process: events, `step`, `flush`, `due` | [`process`] |
//! | the one `match` over `Action` | `process/perform.rs` |
//! | the core: a replica, or a Byzantine one | [`core`] |
//! | what a world can observe; what the process counts | [`observer`], [`counters`] |
//! | one end of the wire: authenticator, places, packs | [`endpoint`] |
//! | the replies of all replicas to one request, sent at once | `collector` |
//! | which clients the authenticator accepts | [`admission`] |
//! | requests that workers run before their turn | `ahead` |
//! | how much of a turn goes to reads | `reads` |
//! | the timers; options | [`deadlines`], [`options`] |
//! | what a replica states about itself | [`statement`] |
//! | the files of a replica, on any disk | [`storage`] |
#![no_std]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

/// Is the second argument, or the third while the bug named first is active (`quorate_pbft::mutants`).
macro_rules! mutant {
    ($id:ident, $right:expr, $wrong:expr) => {
        if quorate_pbft::mutants::is_active(quorate_pbft::mutants::$id) { $wrong } else { $right }
    };
}

pub mod admission;
mod ahead;
mod collector;
pub mod core;
pub mod counters;
pub mod deadlines;
pub mod endpoint;
pub mod event;
pub mod observer;
pub mod options;
pub mod process;
mod reads;
pub mod statement;
pub mod storage;
mod transfer_meter;

pub use self::core::Core;
pub use admission::{FromState, KeySource};
pub use ahead::Parallel;
pub use counters::Counters;
pub use endpoint::{Directory, Endpoint, Place, Transport};
pub use event::{DiskEvent, Event};
pub use observer::{Meter, Metered, Observer, Outgoing, Part};
pub use options::{Execution, ImagePace, executor_options};
pub use process::Process;
pub use statement::{Room, Surroundings};
pub use storage::queue::{DiskQueue, INCARNATION_RANDOM_BITS};
pub use storage::store::{Pages, Store};
