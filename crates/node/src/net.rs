//! Sockets, and waiting for them.

pub mod crowd;
pub mod descriptors;
pub mod idle;
pub mod names;
pub(crate) mod open;
pub mod other_end;
pub mod ports;
mod side_channel;
pub mod socket;
pub mod wake;
