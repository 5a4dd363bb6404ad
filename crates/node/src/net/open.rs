//! Binds the ports of a node, and says who has them if they are taken.

use std::net::SocketAddr;
use std::path::Path;

use quorate_process::Directory;
use quorate_wire::frame::PACKED_BYTES_MAX;

use crate::error::{NodeError, NodeErrorKind};
use crate::net::ports::{Port, holder};
use crate::net::socket::Socket;
use crate::patience::patiently;

/// Binds the ports of a node.
pub(crate) fn open_socket(
    listen: SocketAddr,
    directory: &Directory,
    file: &Path,
) -> Result<Socket, NodeError> {
    open_socket_above(listen, directory, file, PACKED_BYTES_MAX)
}

/// The same, with the side channel for frames of more than `above` bytes.
pub(crate) fn open_socket_above(
    listen: SocketAddr,
    directory: &Directory,
    file: &Path,
    above: usize,
) -> Result<Socket, NodeError> {
    let opened = patiently(|| {
        let mut socket = Socket::open(listen, directory)?;
        socket.open_side_channel_above(directory, above)?;
        Ok::<_, std::io::Error>(socket)
    });
    opened.map_err(|error| {
        let (port, place) =
            (listen.port(), format!("{}: listen = \"{listen}\"", file.display()));
        let trouble = if error.kind() == std::io::ErrorKind::AddrInUse {
            let udp = holder(Port::Udp, listen);
            let who = udp.or_else(|| holder(Port::Tcp, listen));
            let by = who.map_or(String::new(), |who| format!(" by {who}"));
            let next = format!(
                "stop the other process (ss -ulpn 'sport = {port}'), or choose another port: `listen` in node.toml, \
                                and [replicas] in the node.toml of every other node"
            );
            NodeError::new(NodeErrorKind::Taken, format!("port {port} is taken{by}")).next(next)
        } else if error.kind() == std::io::ErrorKind::AddrNotAvailable {
            NodeError::new(NodeErrorKind::Rule, format!("{} is not an address of this machine", listen.ip()))
        } else {
            NodeError::new(NodeErrorKind::Network, format!("cannot listen: {error}"))
        };
        trouble.at(place)
    })
}
