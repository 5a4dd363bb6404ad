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

use std::fs;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::trouble::{Kind, Trouble};

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

/// Reads a password from a file that nobody else can read: all of it but a line's end.
///
/// # Errors
///
/// The file cannot be read, others can read it, or it is empty.
pub fn read_password(path: &Path) -> Result<Vec<u8>, Trouble> {
    let unreadable = |error: io::Error| Trouble::unreadable(path, &error);
    let mode = fs::metadata(path).map_err(unreadable)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let what = format!("password file can be read or written by others (mode {mode:04o})");
        let next = format!("chmod 600 {}", path.display());
        return Err(Trouble::new(Kind::Exposed, what).in_file(path).next(next));
    }
    let text = fs::read(path).map_err(unreadable)?;
    let password = text.trim_ascii_end();
    if password.is_empty() {
        return Err(Trouble::new(Kind::Unreadable, "there is no password in the file").in_file(path));
    }
    Ok(password.to_vec())
}

/// Returns the trouble of a door that could not be opened.
pub fn not_open(address: SocketAddr, error: &io::Error) -> Trouble {
    let port = address.port();
    let trouble = if error.kind() == ErrorKind::AddrInUse {
        let next = format!(
            "stop the other process (ss -tlpn 'sport = {port}'), or choose another address with --listen"
        );
        Trouble::new(Kind::Taken, format!("port {port} is taken")).next(next)
    } else if error.kind() == ErrorKind::AddrNotAvailable {
        Trouble::new(Kind::Rule, format!("{} is not an address of this machine", address.ip()))
    } else {
        Trouble::new(Kind::Network, format!("cannot listen: {error}"))
    };
    trouble.at(format!("door RESP, address {address}"))
}
