//! The RESP front door: what a connection of a Redis client says and is told.
//!
//! ```text
//! bytes -> decode -> pack: commands of a connection -> one operation
//!          bytes <- encode <- replies, in order <------ one result
//! ```
//!
//! The loop around it, with its lanes and bounds, is the [`door`](crate::front)'s.
//!
//! | | |
//! |---|---|
//! | bytes to words | [`decode`] |
//! | words to operations | `command` |
//! | what the door answers itself | `session` |
//! | operations of a connection to one request | `pack` |
//! | answers to replies | `reply`, `encode` |
//! | a connection | `talk` |

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use quorate_wire::message::OPERATION_BYTES_MAX;

use crate::client::ClientDrive;
use crate::front::{Cluster, FrontDoor, Limits};
use crate::meter::Meter;
use crate::socket::Socket;
use crate::trouble::{Kind, Trouble};

mod command;
pub mod decode;
mod encode;
mod pack;
mod reply;
mod session;
mod talk;
#[cfg(test)]
mod talk_tests;
#[cfg(test)]
mod tests;

pub use self::talk::{Protocol, RespTalk};

/// A door for Redis clients.
pub type RespDoor<M = ()> = FrontDoor<RespTalk, Cluster<M>>;

/// The settings of a door.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Its bounds.
    pub limits: Limits,
    /// What clients have to give with AUTH, if anything.
    pub password: Option<Vec<u8>>,
}

/// Opens a door at `address`. `drive` has the lanes that the options say; `socket` is its own.
///
/// # Errors
///
/// The address is taken or not ours, or there are too many open files.
pub fn open<M: Meter>(
    address: SocketAddr,
    options: Options,
    drive: ClientDrive<M>,
    socket: Socket,
) -> io::Result<RespDoor<M>> {
    let Options { limits, password } = options;
    let connections_max = limits.connections_max;
    let protocol = Protocol { password, connections_max, operation_bytes_max: OPERATION_BYTES_MAX };
    FrontDoor::open(address, limits, protocol, Cluster { drive, socket })
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
