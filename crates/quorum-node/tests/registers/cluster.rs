//! A register on loopback: its servers are threads of the test.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quorate_node::init::Host;
use quorate_quorum::{Protocol, ServerId};
use quorate_quorum_node::client::ClientOptions;
use quorate_quorum_node::init::server_dir;
use quorate_quorum_node::lie::Lie;
use quorate_quorum_node::link::Carrier;
use quorate_quorum_node::note::State;
use quorate_quorum_node::{Client, Config, NewRegister, Server};

pub(crate) const N: usize = 4;

/// A register with four servers. Its directory is removed at the end.
pub(crate) struct Cluster {
    pub(crate) dir: PathBuf,
    servers: Vec<Option<Running>>,
    carrier: Carrier,
}

struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// An address that no other test has.
fn own_ip() -> IpAddr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let [.., high, low] = std::process::id().to_be_bytes();
    IpAddr::from([127, 100 + (high ^ number[0]) % 100, low, number[1]])
}

impl Cluster {
    /// Creates one, without running it.
    pub(crate) fn make(name: &str, config: Config, lines: &[&str]) -> Self {
        Self::over(name, config, lines, Carrier::Udp)
    }

    pub(crate) fn over(name: &str, config: Config, lines: &[&str], carrier: Carrier) -> Self {
        let shared = Path::new("/dev/shm");
        let parent = if shared.is_dir() { shared.to_path_buf() } else { std::env::temp_dir() };
        let dir = parent.join(format!("quorate-registers-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let register = NewRegister {
            f: 1,
            hosts: vec![Host { ip: own_ip(), port: None }],
            clients: 6,
            config,
            lines: ["poll = \"0ms\""].iter().chain(lines).map(|line| (*line).to_owned()).collect(),
            server_lines: Vec::new(),
        };
        register.make(&dir).unwrap();
        Self { dir, servers: (0..N).map(|_| None).collect(), carrier }
    }

    pub(crate) fn start_all(name: &str, protocol: Protocol) -> Self {
        let mut cluster = Self::make(name, Config::new(protocol), &[]);
        (0..N).for_each(|id| cluster.start(id, None));
        cluster
    }

    /// Starts a server.
    pub(crate) fn start(&mut self, id: usize, lie: Option<Lie>) {
        let server = Server::open(&self.server(id), lie, self.carrier).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || server.run(&flag).unwrap());
        self.servers[id] = Some(Running { stop, thread });
    }

    /// Stops a server, in order.
    pub(crate) fn stop(&mut self, id: usize) {
        if let Some(running) = self.servers[id].take() {
            running.stop.store(true, Ordering::Relaxed);
            running.thread.join().unwrap();
        }
    }

    /// Removes a stopped server's disk.
    pub(crate) fn wipe(&self, id: usize) {
        fs::remove_dir_all(self.server(id).join("state")).unwrap();
    }

    pub(crate) fn server(&self, id: usize) -> PathBuf {
        server_dir(&self.dir, ServerId::at(id))
    }

    pub(crate) fn client(&self, number: u64) -> Client {
        let options = ClientOptions { deadline: Duration::from_secs(60), carrier: self.carrier };
        Client::open(&self.dir.join(format!("client-{number}")), options).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for running in self.servers.iter().flatten() {
            running.stop.store(true, Ordering::Relaxed);
        }
        for running in self.servers.iter_mut().filter_map(Option::take) {
            let _ = running.thread.join();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Returns the state of a server, as soon as it is as wanted.
pub(crate) fn await_state(client: &Client, id: usize, wanted: impl Fn(&State) -> bool) -> State {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let states = client.states(Duration::from_millis(300)).unwrap();
        let found = states.iter().find(|(server, _)| server.index() == id).map(|(_, state)| state.clone());
        if let Some(state) = found.clone().filter(|state| wanted(state)) {
            return state;
        }
        assert!(Instant::now() < end, "server {id}: {found:?}");
    }
}
