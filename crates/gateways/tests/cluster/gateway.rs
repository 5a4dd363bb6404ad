//! A gateway that runs beside its cluster.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use quorate_gateways::FrontDoor;
use quorate_gateways::front::Conversation;
use quorate_node::Waiting;

use crate::cluster::Cluster;

/// A gateway and its cluster, until this is dropped.
pub(crate) struct Door {
    pub(crate) cluster: Cluster,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Runs a gateway in front of this cluster.
    pub(crate) fn run<T>(cluster: Cluster, mut front: FrontDoor<T>) -> Self
    where
        T: Conversation + Send + 'static,
        T::Protocol: Send,
    {
        let address = front.address().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || front.run(Waiting::Block, &stopped).unwrap());
        Self { cluster, address, stop, thread: Some(thread) }
    }

    /// Returns a connection that gives up after 20 s.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the gateway panicked");
    }
}
