//! A cluster on loopback inside of one process: a thread for each replica, real sockets.
#![allow(clippy::needless_pass_by_value, reason = "a cluster takes its service")]

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::fcntl::{Flock, FlockArg};
use quorate_node::caller::CallerOptions;
use quorate_node::wake::Waker;
use quorate_node::{
    Caller, ClientProcess, Clock, Directory, Event, MemoryProcess, Observer, OpenClient, Parallel, Socket,
    TestKeys, Waiting, Workers, memory, ports,
};
use quorate_pbft::Config;
use quorate_pbft::config::Durability;
use quorate_service::Service;
use quorate_service::page::PageStore;
use quorate_service::parallel::{Counters as Runs, EngineKind, KeyRules, WrongRule};
use quorate_wire::{ClientId, Principal, Timestamp};

/// Replicas that run until this is dropped.
pub(crate) struct Cluster {
    controls: Vec<Arc<AtomicU8>>,
    stops: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    runs: Arc<Mutex<Vec<Runs>>>,
    keys: TestKeys,
    config: Config,
    directory: Directory,
    client_at: SocketAddr,
}

impl Cluster {
    /// Starts four replicas of a service, and knows a client.
    #[allow(dead_code, reason = "not every test does")]
    pub(crate) fn start<S: Service + Clone + Send + 'static>(service: S) -> Self {
        Self::with_workers(service, &[])
    }

    /// The same with the loop of a replica's process. Its replicas cannot be paused.
    #[allow(dead_code, reason = "not every test does")]
    pub(crate) fn in_processes<S: Service + Clone + Send + 'static>(service: S) -> Self {
        Self::of(service, &[], true)
    }

    /// The same with these numbers of workers, the same for each replica if there are fewer.
    #[allow(dead_code, reason = "not every test does")]
    pub(crate) fn with_workers<S: Service + Clone + Send + 'static>(service: S, workers: &[usize]) -> Self {
        Self::of(service, workers, false)
    }

    fn of<S: Service + Clone + Send + 'static>(service: S, workers: &[usize], as_process: bool) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let cluster = quorate_wire::Cluster::tolerating(1).unwrap();
        let keys = TestKeys::new(7, cluster, 1);
        let mut config = Config::new(cluster, keys.cluster_id());
        config.durability = Durability::Memory;
        config.tentative = workers.is_empty();
        let runs = Arc::new(Mutex::new(vec![Runs::default(); cluster.n()]));
        let addresses = ports::free(IpAddr::from([127, 77, 0, 1]), cluster.n() + 1).unwrap();
        let (replicas, client_at) = (&addresses[..cluster.n()], addresses[cluster.n()]);
        let mut directory = Directory::new(replicas);
        directory.add_client(Principal::Client(ClientId::new(1, 0)), client_at);
        let (mut controls, mut threads) = (Vec::new(), Vec::new());
        for id in cluster.replicas() {
            let own = Principal::Replica(id);
            let (signer, door) = (keys.signer(own), keys.door(own, wall_ns()));
            let workers_of = workers.iter().cycle().nth(id.index()).copied();
            let count = u64::try_from(workers_of.unwrap_or(1)).unwrap();
            let config = Config { workers: count, ..config.clone() };
            let (directory, service) = (directory.clone(), service.clone());
            let places = directory.clone();
            let service = Arc::new(service);
            let mut process =
                memory::in_memory(id, &config, signer, door, places, Arc::clone(&service), wall_ns())
                    .unwrap();
            let mut threads_of = None;
            if let Some(count) = &workers_of {
                let parallel = Parallel {
                    workers: *count,
                    engine: EngineKind::GroupIndex,
                    rules: Box::new(KeyRules::new(Arc::clone(&service))),
                    replies_early: true,
                    short_on_pages: true,
                    secret: 7,
                };
                process = process.with_workers(parallel).unwrap();
                let part = process.executor().service_part();
                let waker = Waker::new().unwrap();
                threads_of = Some(Workers::start(*count, &service, part, &waker).unwrap());
            }
            let mut seen = Seen { runs: Arc::clone(&runs), at: id.index() };
            let mut socket = Socket::open(replicas[id.index()], &directory).unwrap();
            socket.open_side_channel(&directory).unwrap();
            let control = Arc::new(AtomicU8::new(RUNS));
            controls.push(control.clone());
            let stop = Arc::clone(&stops);
            threads.push(std::thread::spawn(move || {
                if as_process {
                    let (waiting, workers) = (Waiting::Block, threads_of.as_mut());
                    quorate_node::run_replica(&mut process, &mut socket, waiting, workers, &stop).unwrap();
                    return;
                }
                run(&mut process, threads_of.as_mut(), &mut seen, &mut socket, &control);
            }));
        }
        Self { controls, stops, threads, runs, keys, config, directory, client_at }
    }

    /// Returns where the replicas are.
    #[allow(dead_code, reason = "not every test asks")]
    pub(crate) fn replicas(&self) -> Vec<SocketAddr> {
        self.directory.addresses()[..self.controls.len()].to_vec()
    }

    /// Returns the client with this number of lanes, and its sockets.
    pub(crate) fn client(&self, lanes: u16) -> (ClientProcess, Socket) {
        let door = self.keys.door(Principal::Client(ClientId::new(1, 0)), wall_ns());
        let directory = self.directory.clone();
        let mut socket = Socket::open(self.client_at, &directory).unwrap();
        socket.open_side_channel(&directory).unwrap();
        (ClientProcess::new(&self.config, door, lanes, directory, Timestamp(wall_ns()), ()), socket)
    }

    /// Returns the client with a thread of its own.
    #[allow(dead_code, reason = "not every test asks")]
    pub(crate) fn caller(&self, lanes: u16) -> Caller {
        let (drive, socket) = self.client(lanes);
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let lock = Flock::lock(file, FlockArg::LockSharedNonblock).unwrap();
        let client = OpenClient { drive, socket, waiting: Waiting::Block, lock };
        Caller::start(client, CallerOptions { lanes, deadline: Duration::from_secs(60) }).unwrap()
    }

    /// Returns what each replica's workers have done.
    #[allow(dead_code, reason = "not every test asks")]
    pub(crate) fn runs(&self) -> Vec<Runs> {
        self.runs.lock().unwrap().clone()
    }

    /// Lets a replica stand still. When this returns it does.
    #[allow(dead_code, reason = "not every test does")]
    pub(crate) fn pause(&self, replica: usize) {
        self.controls[replica].store(PAUSES, Ordering::Relaxed);
        while self.controls[replica].load(Ordering::Relaxed) != STANDS {
            assert!(!self.threads[replica].is_finished(), "the replica has ended");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets a replica go on.
    #[allow(dead_code, reason = "not every test does")]
    pub(crate) fn resume(&self, replica: usize) {
        self.controls[replica].store(RUNS, Ordering::Relaxed);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        self.controls.iter().for_each(|control| control.store(STOPS, Ordering::Relaxed));
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "a replica panicked");
        }
    }
}

/// Notes what workers have done.
struct Seen {
    runs: Arc<Mutex<Vec<Runs>>>,
    at: usize,
}

impl<S: Service, P: PageStore> Observer<S, P> for Seen {
    fn ran(&mut self, counters: &Runs) {
        let runs = &mut self.runs.lock().unwrap()[self.at];
        *runs = runs.plus(*counters);
    }

    fn wrong_rule(&mut self, wrong: &WrongRule) {
        panic!("the rules are right: {wrong:?}");
    }
}

/// What a replica is told to do, and `STANDS`: that it has done it.
const RUNS: u8 = 0;
const PAUSES: u8 = 1;
const STANDS: u8 = 2;
const STOPS: u8 = 3;

/// Drives a replica, a little at a time.
fn run<S: Service>(
    process: &mut MemoryProcess<S>,
    mut workers: Option<&mut Workers>,
    seen: &mut Seen,
    socket: &mut Socket,
    control: &AtomicU8,
) {
    let clock = Clock::new();
    process.step(clock.now(), Event::Start, seen);
    loop {
        match control.load(Ordering::Relaxed) {
            STOPS => break,
            PAUSES => control.store(STANDS, Ordering::Relaxed),
            STANDS => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                while let Some((source, datagram)) = socket.receive().unwrap() {
                    let event = Event::Datagram { source, bytes: datagram };
                    let by = process.step(clock.now(), event, seen);
                    socket.judge(by);
                }
                if process.due() <= clock.mono_ns() {
                    process.step(clock.now(), Event::Clock, seen);
                }
                let served = workers.as_mut().map_or(0, |workers| workers.serve(process, &clock, seen));
                process.flush(clock.now(), socket, seen);
                socket.wait(if served > 0 { 0 } else { 2 }, None).unwrap();
            }
        }
    }
}

fn wall_ns() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}
