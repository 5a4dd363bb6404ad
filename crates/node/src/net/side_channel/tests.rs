//! Side channels on loopback, and those who do not keep to what is agreed.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use quorate_wire::frame::PACKED_BYTES_MAX;
use quorate_wire::{ClientId, ReplicaId};

use super::outgoing::WAITING_MAX;
use super::receive::CONNECTION_BYTES_MAX;
use super::slots::{PEER_MAX, STRANGERS_MAX};
use super::*;

/// The shortest frame that is taken.
const SHORT: usize = PACKED_BYTES_MAX + 1;
const R1: Principal = Principal::Replica(ReplicaId(1));

/// A channel with the datagram socket that it rings.
fn open(directory: &Directory) -> (SideChannel, UdpSocket) {
    // The port of a datagram socket may be taken for TCP: then another one is tried.
    for _ in 0..20 {
        let udp = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        udp.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        if let Ok(channel) = SideChannel::open(udp.local_addr().unwrap(), directory) {
            return (channel, udp);
        }
    }
    panic!("no port");
}

fn until(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "it never holds");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn wait(channel: &SideChannel) -> Long {
    let mut found = None;
    until(|| {
        found = channel.take();
        found.is_some()
    });
    found.unwrap()
}

/// Waits for a frame, which `by` has made.
fn wait_for(channel: &SideChannel, by: Option<Principal>) -> Vec<u8> {
    let long = wait(channel);
    channel.judge(long.connection, by);
    long.frame
}

fn frame(byte: u8, len: usize) -> Vec<u8> {
    [&u32::try_from(len).unwrap().to_le_bytes()[..], &vec![byte; len]].concat()
}

/// Waits until the other side has closed.
fn is_closed(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let end = stream.read(&mut [0]);
    assert!(matches!(end, Ok(0)) || end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
}

#[test]
fn long_frames_arrive_in_order_and_ring() {
    let (receiver, bell) = open(&Directory::default());
    let directory = Directory::new(&[receiver.address]);
    let (mut sender, _) = open(&directory);
    let place = directory.replicas().next().unwrap();
    for i in 0..5 {
        assert!(sender.send(place, vec![i; 300_000]));
    }
    assert_eq!(bell.recv(&mut [0; 8]).unwrap(), 0);
    for i in 0..5 {
        assert_eq!(wait_for(&receiver, Some(R1)), vec![i; 300_000]);
    }
    assert_eq!(receiver.take(), None);
}

/// H1: what is too long, empty, or fits a datagram ends its connection and no other.
#[test]
fn h1_a_frame_of_a_wrong_length_ends_its_connection_and_no_other() {
    let (receiver, _bell) = open(&Directory::default());
    let mut good = TcpStream::connect(receiver.address).unwrap();
    for len in [u32::MAX, 0, u32::try_from(PACKED_BYTES_MAX).unwrap()] {
        let mut bad = TcpStream::connect(receiver.address).unwrap();
        bad.write_all(&len.to_le_bytes()).unwrap();
        is_closed(&mut bad);
    }
    good.write_all(&frame(7, SHORT)).unwrap();
    assert_eq!(wait_for(&receiver, Some(R1)), vec![7; SHORT]);
}

/// H1: the owner is rung for once, not for each frame.
#[test]
fn h1_a_queue_that_is_not_empty_rings_no_more() {
    let (receiver, bell) = open(&Directory::default());
    let mut peer = TcpStream::connect(receiver.address).unwrap();
    peer.write_all(&frame(0, SHORT)).unwrap();
    assert_eq!(bell.recv(&mut [0; 8]).unwrap(), 0);
    wait_for(&receiver, Some(R1));
    (1..=10).for_each(|i| peer.write_all(&frame(i, SHORT)).unwrap());
    until(|| receiver.inbox.waiting() == 10);
    assert_eq!(bell.recv(&mut [0; 8]).unwrap(), 0);
    bell.set_nonblocking(true).unwrap();
    assert_eq!(bell.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// H1: connections that bring nothing keep nobody out, and a frame has to be whole in time.
#[test]
fn h1_half_open_connections_keep_nobody_out() {
    let (receiver, _bell) = open(&Directory::default());
    let mut known = TcpStream::connect(receiver.address).unwrap();
    known.write_all(&frame(1, SHORT)).unwrap();
    assert_eq!(wait_for(&receiver, Some(R1)), vec![1; SHORT]);
    let announce = &frame(0, 1 << 20)[..5];
    let mut half_open: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(receiver.address).unwrap();
            let _ = stream.write_all(announce);
            stream
        })
        .collect();
    let mut new = TcpStream::connect(receiver.address).unwrap();
    new.write_all(&frame(2, 200_000)).unwrap();
    assert_eq!(wait_for(&receiver, Some(R1)), vec![2; 200_000]);
    known.write_all(&frame(3, 200_000)).unwrap();
    assert_eq!(wait_for(&receiver, Some(R1)), vec![3; 200_000]);
    // All but some were closed for others, and those for being slow.
    half_open.iter_mut().for_each(is_closed);
}

/// H1: who has brought no authentic frame may bring one and no more, and holds one frame's memory.
#[test]
fn h1_a_stranger_brings_one_frame() {
    let (receiver, _bell) = open(&Directory::default());
    let mut strangers: Vec<TcpStream> =
        (0..STRANGERS_MAX).map(|_| TcpStream::connect(receiver.address).unwrap()).collect();
    for stranger in &mut strangers {
        stranger.write_all(&frame(9, SHORT)).unwrap();
        let _ = stranger.write_all(&frame(9, SHORT));
    }
    until(|| receiver.inbox.waiting() == STRANGERS_MAX);
    for _ in 0..STRANGERS_MAX {
        assert_eq!(wait_for(&receiver, None), vec![9; SHORT]);
    }
    strangers.iter_mut().for_each(is_closed);
    assert_eq!(receiver.take(), None);
}

/// H1: frames that nobody takes are bounded in bytes for each connection, and a connection is one of few.
#[test]
fn h1_frames_that_wait_are_bounded() {
    let (receiver, _bell) = open(&Directory::default());
    let mut peers: Vec<TcpStream> =
        (0..PEER_MAX).map(|_| TcpStream::connect(receiver.address).unwrap()).collect();
    for peer in &mut peers {
        peer.write_all(&frame(1, SHORT)).unwrap();
        assert_eq!(wait_for(&receiver, Some(R1)), vec![1; SHORT]);
        peer.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    }
    let (len, most) = (1 << 20, CONNECTION_BYTES_MAX >> 20);
    // Until the other side takes no more: what the kernel holds comes on top.
    for peer in &mut peers {
        while peer.write_all(&frame(2, len)).is_ok() {}
    }
    until(|| receiver.inbox.waiting() >= PEER_MAX * most);
    // Someone unknown has room all the same.
    let mut stranger = TcpStream::connect(receiver.address).unwrap();
    stranger.write_all(&frame(3, SHORT)).unwrap();
    until(|| receiver.inbox.waiting() > PEER_MAX * most);
    for _ in 0..PEER_MAX * most {
        let long = receiver.take().unwrap(); // without a verdict nothing of these connections changes
        assert_eq!(long.frame, vec![2; len]);
    }
    assert_eq!(wait_for(&receiver, Some(R1)), vec![3; SHORT]);
}

/// L37, SR-1: what a client sends that has enough here waits, soon at its own end. What others send does not.
#[test]
fn l37_what_a_client_with_enough_sends_waits() {
    let (receiver, _bell) = open(&Directory::default());
    let client = Principal::Client(ClientId::new(1, 0));
    let [mut full, mut other] = [client, R1].map(|by| {
        let mut peer = TcpStream::connect(receiver.address).unwrap();
        peer.write_all(&frame(1, SHORT)).unwrap();
        assert_eq!(wait_for(&receiver, Some(by)), vec![1; SHORT]);
        peer
    });
    receiver.hold(client, true);
    full.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    while full.write_all(&frame(2, 1 << 20)).is_ok() {}
    other.write_all(&frame(3, SHORT)).unwrap();
    assert_eq!(wait_for(&receiver, Some(R1)), vec![3; SHORT]);
    assert_eq!(receiver.take(), None);
    receiver.hold(client, false);
    assert_eq!(wait_for(&receiver, Some(client)), vec![2; 1 << 20]);
}

/// A receiver that was away costs the frames of that time and no more; nobody waits for it.
#[test]
fn a_receiver_that_comes_back_gets_the_next_frame() {
    let (receiver, _bell) = open(&Directory::default());
    let directory = Directory::new(&[receiver.address]);
    let (mut sender, _) = open(&directory);
    let place = directory.replicas().next().unwrap();
    let address = receiver.address;
    assert!(sender.send(place, vec![1; SHORT]));
    assert_eq!(wait_for(&receiver, Some(R1)), vec![1; SHORT]);
    drop(receiver);
    let mut again = None;
    until(|| {
        again = SideChannel::open(address, &Directory::default()).ok();
        again.is_some()
    });
    let again = again.unwrap();
    until(|| {
        let _ = sender.send(place, vec![2; SHORT]);
        again.inbox.waiting() > 0
    });
    assert_eq!(wait_for(&again, Some(R1)), vec![2; SHORT]);
}

/// What a place has no room for is lost.
#[test]
fn frames_for_a_place_are_bounded() {
    // Nobody accepts there, and connecting takes its time.
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = Directory::new(&[nowhere.local_addr().unwrap()]);
    let (mut sender, _) = open(&directory);
    let place = directory.replicas().next().unwrap();
    let taken = (0..100).filter(|_| sender.send(place, vec![0; 1 << 20])).count();
    assert!((64..100).contains(&taken), "{taken}");
}

/// L102: clients that do not read take a bounded part of the memory. Another client and the replicas still get their frames.
#[test]
fn l102_clients_that_do_not_read_leave_room_for_others() {
    let (replica, client) = (open(&Directory::default()).0, open(&Directory::default()).0);
    let mut directory = Directory::new(&[replica.address]);
    let of = |number| Principal::Client(ClientId::new(number, 0));
    let deaf: Vec<TcpListener> = (0..20).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    for (number, listener) in (0..).zip(&deaf) {
        directory.add_client(of(number), listener.local_addr().unwrap());
    }
    directory.add_client(of(20), client.address);
    let (mut sender, _) = open(&directory);
    for _ in 0..64 {
        for number in 0..20 {
            let _ = sender.send(directory.find(of(number)).unwrap(), vec![0; 1 << 20]);
        }
    }
    assert!(sender.outgoing.waiting_for_clients() <= WAITING_MAX);
    assert!(sender.send(directory.find(of(20)).unwrap(), vec![1; 1 << 20]));
    assert_eq!(wait_for(&client, Some(R1)), vec![1; 1 << 20]);
    assert!(sender.send(directory.replicas().next().unwrap(), vec![2; 1 << 20]));
    assert_eq!(wait_for(&replica, Some(R1)), vec![2; 1 << 20]);
    drop(deaf);
    until(|| sender.outgoing.waiting_for_clients() == 0);
}
