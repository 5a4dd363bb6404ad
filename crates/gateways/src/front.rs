//! The loop of a gateway: connections of users on one side, lanes of the cluster's client on the other.
//!
//! ```text
//!   users                            the gateway                         the cluster
//!      --- TCP ---> Conversation::receive -> Conversation::question --- lane, UDP ---> replicas
//!      <----------- Conversation::output <- Conversation::answer <-- result, q replies agree ---
//! ```
//!
//! The protocol of a connection is a [`Conversation`], without sockets: [`resp`](crate::resp) and [`nfs`](crate::nfs) are
//! two. The service behind it is a [`Backing`]: the cluster, or for comparison a [service without
//! replicas](Unreplicated). One thread does everything. The gateway trusts no single replica. Its users trust the
//! gateway, so each machine that uses the cluster runs its own.
//!
//! Connections, lanes, and the memory of each connection and of all of them are bounded, by [`Limits`] or the conversation. A
//! user that does not read its replies gets no further operations; one that stalls in the middle of a command or a
//! reply is disconnected.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

pub use self::alone::Unreplicated;
pub use self::backing::{Backing, Cluster, HandOut};
pub(crate) use self::conversation::INPUT_BYTES;
pub use self::conversation::{
    Conversation, Counts, Ends, Failure, Goes, Limits, Progress, Question, Refused, Requests,
};
pub use self::run::FrontDoor;
use quorate_node::error::{NodeError, NodeErrorKind};
use quorate_node::ports::{Port, holder};

mod alone;
mod backing;
mod connection;
mod conversation;
mod run;
#[cfg(test)]
mod tests;

/// Returns the error of a gateway that cannot listen.
pub fn not_open(protocol: &str, address: SocketAddr, error: &io::Error) -> NodeError {
    let port = address.port();
    let trouble = if error.kind() == ErrorKind::AddrInUse {
        let who = holder(Port::Tcp, address).map_or(String::new(), |who| format!(" by {who}"));
        let next = format!(
            "stop the other process (ss -tlpn 'sport = {port}'), or choose another address with --listen"
        );
        NodeError::new(NodeErrorKind::Taken, format!("port {port} is taken{who}")).next(next)
    } else if error.kind() == ErrorKind::AddrNotAvailable {
        NodeError::new(NodeErrorKind::Rule, format!("{} is not an address of this machine", address.ip()))
    } else {
        NodeError::new(NodeErrorKind::Network, format!("cannot listen: {error}"))
    };
    trouble.at(format!("{protocol} gateway, {address}"))
}
