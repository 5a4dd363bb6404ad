//! The RESP front door: speaks the Redis protocol to clients, and is a client of the cluster itself.
//!
//! ```text
//!   redis-cli, libraries          the door                             the cluster
//!        --- TCP ---> decode -> pack: commands of a connection --- lane, UDP ---> replicas
//!        <----------- encode <- replies, in order <------ result, q replies agree ------
//! ```
//!
//! One thread does all of it. The door believes no single replica; its clients believe the door, so each
//! machine that uses it runs its own.
//!
//! Nothing grows without bound: connections, lanes, the input, pack and output of each connection, and
//! all of it together have a bound, named in [`Options`] or where it is checked. A client that does not
//! take its replies gets no more done; one that stands still in the middle of a command is let go.
//!
//! | | |
//! |---|---|
//! | bytes to words | [`decode`] |
//! | words to operations | `command` |
//! | what the door answers itself | `session` |
//! | operations of a connection to one request | `pack` |
//! | answers to replies | `reply`, `encode` |
//! | a connection | `connection` |
//! | the loop | `door` |

mod command;
mod connection;
pub mod decode;
mod door;
mod encode;
mod pack;
mod reply;
mod session;
#[cfg(test)]
mod tests;

pub use door::RespDoor;

/// The settings of a door.
#[derive(Clone, Debug)]
pub struct Options {
    /// The lanes of the client: how many packs of commands are under way at a time.
    pub lanes: u16,
    /// The most connections; further ones are told so.
    pub connections_max: usize,
    /// The most memory that buffers may take before large commands are refused, in bytes.
    pub memory_bytes_max: usize,
    /// How long the cluster may take for a pack before its commands are answered with an error, in
    /// nanoseconds.
    pub deadline_ns: u64,
    /// How long a client may stand still in the middle of a command or of taking its replies, in
    /// nanoseconds.
    pub stall_ns: u64,
    /// What clients have to give with AUTH, if anything.
    pub password: Option<Vec<u8>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lanes: 256,
            connections_max: 4096,
            memory_bytes_max: 256 << 20,
            deadline_ns: 10_000_000_000,
            stall_ns: 60_000_000_000,
            password: None,
        }
    }
}
