//! Sockets, and waiting for them.

pub mod crowd;
pub mod idle;
pub(crate) mod open;
pub mod ports;
mod side_channel;
pub mod socket;
pub mod wake;
