//! The status page and the endpoints for machines, over HTTP, on a separate thread.
//!
//! A request never reaches the cluster: it is answered from the last observation, which another thread makes once a
//! second. So HTTP clients cannot slow a replica down, and no request waits for one.

mod host;
mod places;
mod reply;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use quorate_node::error::{NodeError, NodeErrorKind};
use quorate_node::observe::Board;
use tokio::time::{sleep, timeout};

use self::places::Places;

/// How long a client may take to send a request, and how long a connection may be idle.
const ASK_MAX: Duration = Duration::from_secs(5);
/// Maximum lifetime of a connection. Event streams reconnect after it, and slow readers are cut off.
const LIFE_MAX: Duration = Duration::from_secs(60);
/// Maximum size of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 16 << 10;

/// Listens on the page's address, before anything else is started. `flag` is what chooses another one.
///
/// # Errors
///
/// The address is taken or not on this machine.
pub fn listen(address: SocketAddr, flag: &str) -> Result<TcpListener, NodeError> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| {
        let other = SocketAddr::new(address.ip(), address.port().saturating_add(1));
        let (kind, what) = if error.kind() == std::io::ErrorKind::AddrInUse {
            (NodeErrorKind::Taken, format!("port {} is taken", address.port()))
        } else {
            (NodeErrorKind::Network, format!("cannot listen: {error}"))
        };
        NodeError::new(kind, what)
            .at(format!("status page, {address}"))
            .next(format!("{flag} {other}      or stop the other process"))
    })
}

/// Serves what is on the board, until the process ends. `name` is what the page calls the cluster.
///
/// # Errors
///
/// The thread cannot be started.
pub fn serve(listener: TcpListener, board: Arc<Board>, name: String) -> Result<(), NodeError> {
    let failed = |error: std::io::Error| {
        NodeError::new(NodeErrorKind::Network, format!("cannot serve the status page: {error}"))
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(failed)?;
    let page = Arc::new(reply::Page { board, name, host: host::own() });
    let serve = async move {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
        let mut places = Places::default();
        loop {
            let Ok((stream, peer)) = listener.accept().await else {
                sleep(Duration::from_millis(100)).await; // too many open files
                continue;
            };
            let page = Arc::clone(&page);
            let task = tokio::task::spawn(async move {
                let answer = service_fn(move |request| {
                    let reply = page.answer(&request);
                    async move { Ok::<_, std::convert::Infallible>(reply) }
                });
                let serving = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(ASK_MAX)
                    .max_buf_size(REQUEST_BYTES_MAX)
                    .serve_connection(TokioIo::new(stream), answer);
                let _ = timeout(LIFE_MAX, serving).await;
            });
            places.take(peer.ip(), task.abort_handle());
        }
    };
    let spawned = thread::Builder::new().name("page".to_owned()).spawn(move || runtime.block_on(serve));
    spawned.map(drop).map_err(failed)
}
