//! The RESP gateway: the protocol of a Redis client's connection.
//!
//! ```text
//! bytes -> decode -> pack: commands of a connection -> one operation
//!          bytes <- encode <- replies, in order <------ one result
//! ```
//!
//! The loop around it, with its lanes and limits, is in [`crate::front`].
//!
//! | | |
//! |---|---|
//! | bytes to words | [`decode`] |
//! | words to operations | `command`, `data`, `elements`, `script`, `table`, `refusal` |
//! | MULTI, EXEC and WATCH | `transaction` |
//! | commands that the gateway answers itself | `session` |
//! | commands of a connection to one request | `pack` |
//! | answers to replies | `reply`, `encode` |
//! | a connection | `conversation` |

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use quorate_wire::message::OPERATION_BYTES_MAX;

use crate::front::{self, Cluster, FrontDoor, Limits};
use crate::row::{GatewayRow, Given, OptionRow, Usage, failed};
use quorate_node::ClientNode;
use quorate_node::Meter;
use quorate_node::client::ClientProcess;
use quorate_node::error::{NodeError, NodeErrorKind};
use quorate_node::services::ServiceName;
use quorate_node::socket::Socket;

#[cfg(test)]
mod beside_redis;
mod command;
mod conversation;
#[cfg(test)]
mod conversation_tests;
mod cursors;
mod data;
pub mod decode;
#[cfg(test)]
mod desk;
#[cfg(test)]
mod document_tests;
mod elements;
mod encode;
mod guesses;
mod lists;
mod pack;
mod refusal;
mod reply;
mod script;
mod scripts;
mod session;
mod sha1;
mod table;
#[cfg(test)]
mod tests;
mod transaction;

pub use self::conversation::{Protocol, RespConversation};
pub use self::table::document;

/// A RESP gateway.
pub type RespDoor<M = ()> = FrontDoor<RespConversation, Cluster<M>>;

/// The gateway on the command line.
pub(crate) const ROW: GatewayRow = GatewayRow {
    name: "resp",
    protocol: "RESP",
    users: "Redis clients",
    port: 6380,
    // Less than clients wait before they try again by themselves.
    deadline: Duration::from_secs(2),
    service: ServiceName::KV,
    help: HELP,
    options: &[OptionRow {
        name: "password-file",
        value: Some("FILE"),
        values: &[],
        default: "",
        requires: "",
        help: "File with the password for AUTH, mode 0600 (default: no password)",
    }],
    usage: |address| {
        let port = address.port();
        Usage {
            command: format!("redis-cli -p {port}"),
            first: format!("redis-cli -p {port} set hello world"),
        }
    },
    exposed: "without --password-file, anyone there can read and write all data",
    notes: &[],
    serve,
};

const HELP: &str = "Run a RESP gateway for Redis clients

The gateway is a client of the cluster. A faulty gateway can give wrong answers to its users. So run a separate gateway
on each machine whose programs use the cluster.

The gateway has the commands of Redis for strings, hashes, sets, lists and expiry. It also has transactions, scans and
16 databases. docs/redis.md lists the commands and limits.

The gateway can reply with three errors that Redis does not have:

  -TRYAGAIN   nothing was changed. A command that only reads got no answer within the time of --deadline. Or the
              gateway could not send the command to the cluster in that time. Or the replicas had no free entry in
              their client table for a further lane of this gateway: `quorate explain Q063`
  -UNKNOWN    a command that can change data got no answer within the time of --deadline. It may have taken effect,
              or may do so later. Or the command took effect, but its reply was lost, and is too long for the
              cluster to keep
  -TOOLARGE   a hash, set or list has too many elements for the command. Nothing was changed

Example:

  quorate resp --dir cluster/client-0 --listen 127.0.0.1:6380";

fn serve(node: ClientNode, given: Given<'_>) -> Result<(), NodeError> {
    let password = (given.option)("password-file").map(|file| read_password(Path::new(&file))).transpose()?;
    let client = node.with_lanes(given.limits.lanes);
    let (listen, waiting) = (given.listen, client.waiting);
    let mut door = open(listen, RespOptions { limits: given.limits, password }, client.drive, client.socket)
        .map_err(|error| front::not_open("RESP", listen, &error))?;
    (given.ready)(format!("RESP  {listen}     redis-cli -p {}", listen.port()));
    door.run(waiting, given.stop).map_err(|error| failed(&error))?;
    drop(client.lock);
    Ok(())
}

/// The settings of a RESP gateway.
#[derive(Clone, Debug, Default)]
pub struct RespOptions {
    /// Its limits.
    pub limits: Limits,
    /// The password for AUTH, if there is one.
    pub password: Option<Vec<u8>>,
}

/// Opens a gateway on `address`. `drive` has the number of lanes in the options; `socket` is the client's.
///
/// # Errors
///
/// The address is taken or not on this machine, or there are too many open files.
pub fn open<M: Meter>(
    address: SocketAddr,
    options: RespOptions,
    drive: ClientProcess<M>,
    socket: Socket,
) -> io::Result<RespDoor<M>> {
    let RespOptions { limits, password } = options;
    let limits = limits.within_descriptors();
    let connections_max = limits.connections_max;
    let protocol = Protocol {
        password,
        connections_max,
        operation_bytes_max: OPERATION_BYTES_MAX,
        ..Protocol::default()
    };
    FrontDoor::open(address, limits, protocol, Cluster::new(drive, socket))
}

/// Reads a password from a file that is not accessible to other users: its content without a final newline.
///
/// # Errors
///
/// The file cannot be read, is accessible to other users, or is empty.
pub fn read_password(path: &Path) -> Result<Vec<u8>, NodeError> {
    let unreadable = |error: io::Error| NodeError::unreadable(path, &error);
    let mode = fs::metadata(path).map_err(unreadable)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let what = format!("password file can be read or written by others (mode {mode:04o})");
        let next = format!("chmod 600 {}", path.display());
        return Err(NodeError::new(NodeErrorKind::Exposed, what).in_file(path).next(next));
    }
    let text = fs::read(path).map_err(unreadable)?;
    let password = text.trim_ascii_end();
    if password.is_empty() {
        return Err(NodeError::new(NodeErrorKind::Unreadable, "the file contains no password").in_file(path));
    }
    Ok(password.to_vec())
}
