//! What someone without any key can send to a cluster on loopback, and how much of its work is done all the same.
//!
//! Each test counts the operations that are done while the attacker makes a number of moves, and those that are
//! done while it makes as many and sends nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod cluster;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::Cluster;
use nix::fcntl::{Flock, FlockArg};
use quorate_node::caller::CallerOptions;
use quorate_node::{Caller, OpenClient, TestKeys, Waiting};
use quorate_service::kv::{Kv, Operation};
use quorate_wire::message::{RequestBody, RequestFlags};
use quorate_wire::{Principal, ReplicaId, Timestamp};

/// One attack at a time: each takes a good part of the machine.
static ALONE: Mutex<()> = Mutex::new(());

fn caller(cluster: &Cluster) -> Caller {
    let (drive, socket) = cluster.client(1);
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let lock = Flock::lock(file, FlockArg::LockSharedNonblock).unwrap();
    let client = OpenClient { drive, socket, waiting: Waiting::Block, lock };
    Caller::start(client, CallerOptions { lanes: 1, deadline: Duration::from_secs(10) }).unwrap()
}

fn put(value: &[u8]) -> Vec<u8> {
    let mut operation = Vec::new();
    Operation::Put { key: b"k", value }.encode(&mut operation);
    operation
}

/// Counts the operations that are done while the attacker moves `moves` times, a millisecond apart.
fn done_while(caller: &Caller, operation: &[u8], moves: usize, mut attack: impl FnMut() + Send) -> usize {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..moves {
                attack();
                std::thread::sleep(Duration::from_millis(1));
            }
            over.store(true, Ordering::Relaxed);
        });
        let mut done = 0;
        while !over.load(Ordering::Relaxed) {
            done += usize::from(caller.call(operation, false).is_ok());
        }
        done
    })
}

/// A REQUEST in a replica's name, as someone makes it who has no key: the signature is wrong.
fn forged_request(of: ReplicaId, timestamp: u64) -> Vec<u8> {
    let cluster = quorate_wire::Cluster::tolerating(1).unwrap();
    let mut door = TestKeys::new(99, cluster, 1).door(Principal::Replica(of), timestamp);
    let flags = RequestFlags { read_only: false, signed: true };
    let body = RequestBody { timestamp: Timestamp(timestamp), flags, replier: None, operation: b"?" };
    let mut frame = Vec::new();
    door.seal_request(&body, Principal::Replica(of).as_client(), true, &mut frame);
    frame
}

/// C2, A5: a check of a signature takes 30 us, and a REQUEST in a replica's name needs one. 2.4 MB/s of them took a
/// cluster from 3,800 operations a second to 7.
#[test]
fn c2_requests_in_a_replicas_name_do_not_stop_a_cluster() {
    let _alone = ALONE.lock();
    let cluster = Cluster::start(Kv);
    let caller = caller(&cluster);
    let operation = put(b"v");
    assert!(caller.call(&operation, false).is_ok());
    let calm = done_while(&caller, &operation, 1_000, || ());
    let socket = UdpSocket::bind("127.77.0.1:0").unwrap();
    // Several frames a datagram are as good as several datagrams, and cost the attacker less.
    let replicas = cluster.replicas();
    let datagrams: Vec<Vec<u8>> = (0..replicas.len())
        .map(|to| {
            let of = ReplicaId::at((to + 1) % replicas.len());
            (1..=50).flat_map(|timestamp| forged_request(of, timestamp)).collect()
        })
        .collect();
    let attacked = done_while(&caller, &operation, 1_000, || {
        for (address, datagram) in replicas.iter().zip(&datagrams) {
            let _ = socket.send_to(datagram, address);
        }
    });
    println!("{calm} operations calm, {attacked} under attack");
    assert!(attacked >= calm / 6, "{calm} operations calm, {attacked} under attack");
}

/// Connections that never bring what they have announced. What is closed is opened again, some at a time.
struct HalfOpen {
    connections: Vec<(SocketAddr, Option<TcpStream>)>,
    next: usize,
}

impl HalfOpen {
    fn new(addresses: &[SocketAddr], each: usize) -> Self {
        let connections = (0..each).flat_map(|_| addresses.iter().map(|address| (*address, None))).collect();
        Self { connections, next: 0 }
    }

    fn keep_up(&mut self, some: usize) {
        for _ in 0..some {
            let count = self.connections.len();
            let (address, stream) = &mut self.connections[self.next % count];
            self.next += 1;
            let lives = stream.as_mut().is_some_and(
                |stream| matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock),
            );
            if !lives {
                *stream = TcpStream::connect(*address).ok();
                if let Some(stream) = stream {
                    let _ = stream.write_all(&[0, 0, 0x10, 0, 0]); // a MiB, and a byte of it
                    let _ = stream.set_nonblocking(true);
                }
            }
        }
    }
}

/// H1: connections that bring nothing hold no place that a frame of somebody else needs. 256 of them to each replica
/// stopped everything that is longer than a datagram.
#[test]
fn h1_half_open_connections_do_not_stop_long_frames() {
    let _alone = ALONE.lock();
    let cluster = Cluster::start(Kv);
    let caller = caller(&cluster);
    let operation = put(&vec![7; 200_000]);
    assert!(caller.call(&operation, false).is_ok());
    let calm = done_while(&caller, &operation, 1_000, || ());
    // Someone who is connected stays so: the attack is on those who have to connect again.
    drop(caller);
    let mut half_open = HalfOpen::new(&cluster.replicas(), 300);
    half_open.keep_up(4 * 300);
    let caller = self::caller(&cluster);
    let attacked = done_while(&caller, &operation, 1_000, || half_open.keep_up(4));
    println!("{calm} operations calm, {attacked} under attack");
    assert!(attacked >= calm / 6, "{calm} operations calm, {attacked} under attack");
}
