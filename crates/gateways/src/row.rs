//! What a gateway is for the command line and for `up`: a row of data, and the function that serves.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use quorate_node::ClientNode;
use quorate_node::error::{NodeError, NodeErrorKind};
use quorate_node::services::ServiceName;

use crate::front::Limits;

/// A gateway.
#[derive(Clone, Copy, Debug)]
pub struct GatewayRow {
    /// The subcommand that runs it, and the flag of `up` with its address.
    pub name: &'static str,
    /// Its protocol, and the programs that speak it.
    pub protocol: &'static str,
    /// Its users: `Redis clients`.
    pub users: &'static str,
    /// Its usual port.
    pub port: u16,
    /// How long its users wait for an answer of the cluster.
    pub deadline: Duration,
    /// The service that it needs.
    pub service: ServiceName,
    /// The help text of the subcommand: a line, an empty line, and more.
    pub help: &'static str,
    /// Its own options, in addition to the address and the limits.
    pub options: &'static [OptionRow],
    /// Returns how to use a gateway at an address.
    pub usage: fn(SocketAddr) -> Usage,
    /// What somebody can do who reaches it from another machine.
    pub exposed: &'static str,
    /// More that `up` prints about it: `CLIENT` stands for the directory of a client that no gateway uses.
    pub notes: &'static [&'static str],
    /// Serves until it is told to stop.
    pub serve: fn(ClientNode, Given<'_>) -> Result<(), NodeError>,
}

/// An option of a gateway.
#[derive(Clone, Copy, Debug)]
pub struct OptionRow {
    /// Its name, without the dashes.
    pub name: &'static str,
    /// The name of its value. None: it has no value.
    pub value: Option<&'static str>,
    /// The only values that it takes. Empty: any.
    pub values: &'static [&'static str],
    /// Its value unless it is given. Empty: none.
    pub default: &'static str,
    /// The option without which it has no meaning. Empty: none.
    pub requires: &'static str,
    /// Its description.
    pub help: &'static str,
}

/// How to use a gateway.
#[derive(Clone, Debug)]
pub struct Usage {
    /// The command that uses it.
    pub command: String,
    /// The first command to try. `CLIENT` stands for the directory of a client that no other program uses.
    pub first: String,
}

/// What a gateway is started with.
pub struct Given<'a> {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Its limits.
    pub limits: Limits,
    /// The directory of its client.
    pub dir: &'a Path,
    /// Returns the value of an option of its own; of an option without a value an empty text, if it is given.
    pub option: &'a dyn Fn(&str) -> Option<String>,
    /// Prints a line for the operator, once it listens.
    pub ready: &'a dyn Fn(String),
    /// When to stop.
    pub stop: &'a AtomicBool,
}

impl std::fmt::Debug for Given<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Given")
            .field("listen", &self.listen)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl GatewayRow {
    /// Returns its usual address.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns a warning if other machines reach it at this address.
    pub fn warning(&self, address: SocketAddr) -> Option<String> {
        let text = || format!("warning: other machines can reach {address}: {}", self.exposed);
        (!address.ip().is_loopback()).then(text)
    }
}

/// The sockets of a gateway have failed.
pub(crate) fn failed(error: &std::io::Error) -> NodeError {
    NodeError::new(NodeErrorKind::Network, error.to_string())
}
