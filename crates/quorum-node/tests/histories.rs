//! Histories of clients under load while servers are killed, restarted, wiped or lie: each has to be one of a register
//! (§14). Servers are processes: this test starts itself again for each.
//!
//! `QUORATE_HISTORY=100000 cargo test --release -p quorate-quorum-node --test histories` runs as many operations
//! for each protocol.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

use std::fs::{self, File};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quorate_node::init::Host;
use quorate_quorum::settings::Variant;
use quorate_quorum::{Protocol, ServerId};
use quorate_quorum_node::client::ClientOptions;
use quorate_quorum_node::init::server_dir;
use quorate_quorum_node::lie::Lie;
use quorate_quorum_node::link::Carrier;
use quorate_quorum_node::{Client, Config, NewRegister, Server};
use quorate_quorum_sim::checker;
use quorate_quorum_sim::history::{History, Operation, OperationKind};

const N: usize = 4;
/// What tells a process that it is a server, and how it lies.
const DIR: &str = "QUORATE_TEST_SERVER";
const LIE: &str = "QUORATE_TEST_LIE";
/// No operation takes longer, whatever happens to one server.
const HUNG: Duration = Duration::from_secs(120);

/// Not a test: a server, if the environment says so.
#[test]
fn a_server_process() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let lie = std::env::var(LIE).ok().and_then(|name| Lie::from_name(&name));
    let server = Server::open(Path::new(&dir), lie, Carrier::Udp).unwrap();
    server.run(&AtomicBool::new(false)).unwrap();
}

struct Servers {
    dir: PathBuf,
    children: Vec<Option<Child>>,
}

impl Servers {
    fn make(name: &str, protocol: Protocol) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let [.., high, low] = std::process::id().to_be_bytes();
        let number = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes()[1];
        let ip = IpAddr::from([127, 200 + high % 50, low, number]);
        let shared = Path::new("/dev/shm");
        let parent = if shared.is_dir() { shared.to_path_buf() } else { std::env::temp_dir() };
        let dir = parent.join(format!("quorate-histories-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let register = NewRegister {
            f: 1,
            hosts: vec![Host { ip, port: None }],
            clients: 5,
            config: Config::new(protocol),
            lines: vec!["poll = \"0ms\"".to_owned()],
            server_lines: Vec::new(),
        };
        register.make(&dir).unwrap();
        let mut servers = Self { dir, children: (0..N).map(|_| None).collect() };
        (0..N).for_each(|id| servers.start(id, None));
        servers
    }

    fn start(&mut self, id: usize, lie: Option<&str>) {
        let log = File::options().create(true).append(true).open(self.dir.join(format!("{id}.log"))).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "a_server_process", "--nocapture"])
            .env(DIR, server_dir(&self.dir, ServerId::at(id)));
        if let Some(lie) = lie {
            command.env(LIE, lie);
        }
        let child =
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.children[id] = Some(child);
    }

    /// kill -9.
    fn kill(&mut self, id: usize) {
        if let Some(mut child) = self.children[id].take() {
            assert!(
                child.try_wait().unwrap().is_none(),
                "server {id} had stopped: see {}",
                self.dir.display()
            );
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn wipe(&self, id: usize) {
        fs::remove_dir_all(server_dir(&self.dir, ServerId::at(id)).join("state")).unwrap();
    }

    fn client(&self, number: u64) -> Client {
        let options = ClientOptions { deadline: HUNG, carrier: Carrier::Udp };
        Client::open(&self.dir.join(format!("client-{number}")), options).unwrap()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Waits until a server answers and holds what it promised.
fn await_repaired(watcher: &Client, id: usize) {
    let end = Instant::now() + HUNG;
    loop {
        let states = watcher.states(Duration::from_millis(200)).unwrap();
        if states.iter().any(|(server, state)| server.index() == id && !state.lost) {
            return;
        }
        assert!(Instant::now() < end, "server {id} is not repaired");
    }
}

/// What the clients and the faults share.
struct Shared {
    /// Numbers of events: the order in real time.
    clock: AtomicU64,
    history: Mutex<History>,
    left: AtomicU64,
}

/// One client: it writes values that nobody else writes, or reads.
fn load(client: &Client, number: u64, shared: &Shared) {
    let mut count = 0_u64;
    while shared.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
        count += 1;
        let key = [u8::try_from(count % 3).unwrap()];
        let object = client.config().object(&key);
        let is_write = number.is_multiple_of(2);
        let value = [number.to_le_bytes(), count.to_le_bytes()].concat();
        let invoked = shared.clock.fetch_add(1, Ordering::SeqCst);
        let result = if is_write {
            client.write(&key, value.clone()).map(|entry| (value.clone(), Some(entry.version)))
        } else {
            client.read(&key).map(|entry| match entry {
                Some(entry) => (entry.value.to_vec(), Some(entry.version)),
                None => (Vec::new(), Some(quorate_quorum::Version::GENESIS)),
            })
        };
        let responded = shared.clock.fetch_add(1, Ordering::SeqCst);
        let (value, version) =
            result.unwrap_or_else(|error| panic!("client {number}, operation {count}: {error}"));
        let kind = if is_write { OperationKind::Write } else { OperationKind::Read };
        let operation = Operation {
            client: client.me(),
            object,
            kind,
            invoked,
            responded: Some(responded),
            value,
            version,
        };
        shared.history.lock().unwrap().operations.push(operation);
    }
}

/// Faults in turn, one server at a time: liars, stopped and wiped servers are never more than f. Returns how often
/// each kind took place.
fn break_servers(servers: &mut Servers, watcher: &Client, shared: &Shared, protocol: Protocol) -> [u32; 3] {
    let mut counts = [0; 3];
    let pause = || std::thread::sleep(Duration::from_millis(30));
    for round in 0_usize.. {
        if shared.left.load(Ordering::SeqCst) == 0 && counts.iter().all(|count| *count > 0) {
            break;
        }
        // A server of BFT-BC that was wiped approves nothing any more: only one may ever be (§15).
        let is_bc = matches!(protocol, Protocol::BftBc(_));
        let kind = round % 3;
        let id = if is_bc && kind > 0 { 0 } else { round / 3 % N };
        servers.kill(id);
        pause();
        match kind {
            0 => servers.start(id, None),
            1 => {
                servers.wipe(id);
                servers.start(id, None);
            }
            _ => {
                let lie = ["fake-value", "forget", "inflate", "equivocate"][round / 3 % 4];
                servers.start(id, Some(lie));
                pause();
                servers.kill(id);
                // What it acknowledged as a liar it may not hold.
                servers.wipe(id);
                servers.start(id, None);
            }
        }
        await_repaired(watcher, id);
        counts[kind] += 1;
    }
    counts
}

fn run(protocol: Protocol) {
    let operations = std::env::var("QUORATE_HISTORY").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let mut servers = Servers::make(protocol.name(), protocol);
    let clients: Vec<Client> = (0..4).map(|number| servers.client(number)).collect();
    let watcher = servers.client(4);
    let shared = Arc::new(Shared {
        clock: AtomicU64::new(1),
        history: Mutex::new(History::default()),
        left: AtomicU64::new(operations),
    });
    let begin = Instant::now();
    let threads: Vec<_> = clients
        .into_iter()
        .zip(0..)
        .map(|(client, number)| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || load(&client, number, &shared))
        })
        .collect();
    let counts = break_servers(&mut servers, &watcher, &shared, protocol);
    for thread in threads {
        thread.join().unwrap();
    }
    let took = begin.elapsed();
    let mut history = shared.history.lock().unwrap();
    history.operations.sort_by_key(|operation| operation.invoked);
    let count = u64::try_from(history.operations.len()).unwrap();
    assert_eq!(count, operations);
    checker::check(&history).unwrap_or_else(|says| panic!("{}: {says}", protocol.name()));
    let [killed, wiped, lied] = counts;
    println!(
        "{}: {count} operations in {:.1} s, {killed} killed, {wiped} wiped, {lied} lied: atomic",
        protocol.name(),
        took.as_secs_f64()
    );
    // The checker can fail: two operations in an order that was not.
    let last =
        history.operations.iter().rposition(|operation| operation.kind == OperationKind::Write).unwrap();
    let version = history.operations[0].version;
    history.operations[last].version = version;
    assert!(checker::check(&history).is_err());
}

#[test]
fn minimal_c_is_atomic_under_faults() {
    run(Protocol::MinimalC);
}

#[test]
fn minimal_f_is_atomic_under_faults() {
    run(Protocol::MinimalF);
}

#[test]
fn phalanx_is_atomic_under_faults() {
    run(Protocol::Phalanx);
}

#[test]
fn bft_bc_is_atomic_under_faults() {
    run(Protocol::BftBc(Variant::Optimized));
}

#[test]
fn bft_bc_base_is_atomic_under_faults() {
    run(Protocol::BftBc(Variant::Base));
}

#[test]
fn bft_bc_strong_is_atomic_under_faults() {
    run(Protocol::BftBc(Variant::Strong));
}

#[test]
fn bft_bc_strong_optimized_is_atomic_under_faults() {
    run(Protocol::BftBc(Variant::StrongOptimized));
}
