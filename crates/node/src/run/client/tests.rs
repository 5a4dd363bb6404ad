//! What the lanes of one client do for one another.

use std::net::SocketAddr;

use quorate_process::Place;
use quorate_wire::message::Request;
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{ClusterId, Kind};

use super::*;

const MS: u64 = 1_000_000;

/// The authenticator of a node of a cluster whose nodes have the same long-term key. One with more `entropy` started later.
fn door(own: Principal, entropy: u8) -> Door {
    let (cluster, signer) = (Cluster::tolerating(1).unwrap(), Signer::Toy([7; 32]));
    let mut verifier = Verifier::default();
    cluster.replicas().for_each(|replica| _ = verifier.insert(replica.into(), &signer.public()));
    Door::new(own, cluster, ClusterId([3; 32]), 0, signer, verifier, [entropy; 32], entropy.into())
}

fn drive(lanes: u16, timestamps: impl Into<Timestamps>) -> ClientProcess {
    let (cluster, id) = (Cluster::tolerating(1).unwrap(), ClusterId([3; 32]));
    let config = Config::new(cluster, id);
    let door = door(Principal::Client(ClientId::new(1, 0)), 9);
    let addresses: Vec<_> = (1..=4).map(|port| ([127, 0, 0, 1], port).into()).collect();
    ClientProcess::new(&config, door, lanes, Directory::new(&addresses), timestamps, ())
}

/// Lanes that have exchanged keys with all replicas.
fn keyed(lanes: u16, timestamps: impl Into<Timestamps>) -> ClientProcess {
    let mut drive = drive(lanes, timestamps);
    let ours = own_keys();
    (0..4).for_each(|replica| exchange(&mut drive, replica, &ours));
    assert_eq!(drive.keys_missing, 0);
    drive
}

/// What a client of [`drive`] sends to replicas first.
fn own_keys() -> Vec<u8> {
    door(Principal::Client(ClientId::new(1, 0)), 9).take_outgoing().unwrap().1
}

/// A replica is given the client's keys, `ours`, and answers with its own.
fn exchange(drive: &mut ClientProcess, replica: u16, ours: &[u8]) {
    let mut theirs = door(ReplicaId(replica).into(), 20);
    assert!(theirs.add_client(ClientId::new(1, 0), &Signer::Toy([7; 32]).public()));
    // What a replica sends to others when it starts is signed, and so good for all. But it may lack this client's.
    let (_, letter) = theirs.take_outgoing().unwrap();
    let (missing, sent) = (drive.keys_missing, drive.counters.sent);
    drive.receive(at(2), &letter);
    assert_eq!((drive.keys_missing, drive.counters.sent), (missing, sent), "{replica} cannot check it");
    assert!(theirs.admit(2, Frame::take(&mut Reader::new(ours)).unwrap()).is_ok());
    let letters = core::iter::from_fn(|| theirs.take_outgoing());
    let (_, answer) = letters.into_iter().find(|(to, _)| matches!(to, Principal::Client(_))).unwrap();
    drive.receive(at(3), &answer);
}

fn at(ns: u64) -> Now {
    Now { mono_ns: ns, wall_ns: ns }
}

/// Lets time pass until `to`, and returns how many requests were sent in it and the longest time without one.
fn pass(drive: &mut ClientProcess, from: u64, to: u64) -> (u64, u64) {
    let (before, mut last, mut longest, mut now) = (drive.counters.sent, from, 0, from);
    while now < to {
        let sent = drive.counters.sent;
        now = drive.due().clamp(now + 1, to);
        drive.expire(at(now));
        if drive.counters.sent > sent {
            (longest, last) = (longest.max(now - last), now);
        }
    }
    (drive.counters.sent - before, longest.max(to - last))
}

/// After an outage of minutes a lane finds within half a second that it is over, and not all of them ask all the time.
#[test]
fn one_lane_finds_out_for_the_others() {
    let mut drive = keyed(100, Timestamp(1));
    for lane in 0..100 {
        drive.invoke(at(1), lane, b"put", false);
    }
    pass(&mut drive, 1, 60_000 * MS);
    let (sent, longest) = pass(&mut drive, 60_000 * MS, 120_000 * MS);
    assert!(longest <= 500 * MS, "{} ms without a request", longest / MS);
    assert!(sent < 60 * 30, "{sent} requests in a minute of silence");
    // Somebody was answered: all ask soon, once.
    drive.heard(at(120_000 * MS));
    let (sent, _) = pass(&mut drive, 120_000 * MS, 120_060 * MS);
    assert!((95..=105).contains(&sent), "{sent} of 100 lanes have asked again within 60 ms");
    drive.heard(at(120_061 * MS));
    let (sent, _) = pass(&mut drive, 120_061 * MS, 120_090 * MS);
    assert!(sent < 10, "{sent}: saying so all the time changes nothing");
}

/// Where no core is free an answer is late, and not lost: the request is not sent again so soon, but it is.
#[test]
fn a_crowded_machine_is_given_time() {
    for (crowded, early, late) in [(false, 2, 4), (true, 1, 2)] {
        let mut drive = keyed(1, Timestamp(1));
        drive.set_crowded(crowded);
        drive.invoke(at(1), 0, b"put", false);
        pass(&mut drive, 1, 60 * MS);
        assert_eq!(drive.counters.sent, early, "crowded: {crowded}");
        pass(&mut drive, 60 * MS, 400 * MS);
        assert!(drive.counters.sent >= late, "crowded: {crowded}");
    }
}

/// CL-10: a request whose timestamp cannot be kept does not leave; when it can, it does.
#[test]
fn what_cannot_be_kept_is_not_sent() {
    let dir = crate::testing::TempDir::new("client-timestamps");
    let (keys, away) = (dir.path().join("keys"), dir.path().join("away"));
    std::fs::create_dir(&keys).unwrap();
    let mut drive = keyed(1, Timestamps::open(dir.path(), 1_000).unwrap());
    drive.invoke(at(1), 0, b"put", false);
    assert_eq!(drive.counters.sent, 1);
    let used_up = Timestamp(drive.timestamps.next().0 + (1 << 21));
    drive.lanes[0].client =
        Client::new(ClientId::new(1, 0), &Config::new(drive.cluster, ClusterId([3; 32])), used_up, 1);
    drive.step(at(2), 0, ClientInput::Keys { missing: 0 });
    std::fs::rename(&keys, &away).unwrap();
    drive.invoke(at(2), 0, b"put", false);
    assert_eq!((drive.counters.sent, drive.counters.refused["timestamps-not-kept"]), (1, 1));
    std::fs::rename(&away, &keys).unwrap();
    pass(&mut drive, 2, 1_000 * MS);
    assert!(drive.counters.sent > 1, "it asks again");
}

/// CL-10, EX-2: a lane that is used for the first time begins above what all others have used.
#[test]
fn lanes_take_their_timestamps_from_one_row() {
    let mut drive = keyed(3, Timestamp(10));
    for (lane, expected) in [(0, 10), (2, 11), (1, 12)] {
        drive.invoke(at(1), lane, b"put", false);
        assert_eq!(drive.lanes[usize::from(lane)].client.outstanding(), Some(Timestamp(expected)));
    }
}

/// L36, CL-11: the first request waits until keys have been exchanged with all replicas, or for a moment after with all but
/// one, which may have stopped; and not for a time-out.
#[test]
fn l36_a_first_request_waits_for_keys_and_no_longer() {
    for (keys, sent, retransmitted) in [(4, 1, 0), (3, 1, 1), (2, 0, 0)] {
        let (mut drive, ours) = (drive(2, Timestamp(1)), own_keys());
        drive.invoke(at(1), 0, b"put", false);
        for replica in 0..keys {
            assert_eq!((drive.counters.sent, drive.counters.retransmitted), (0, 0), "{replica} keys");
            exchange(&mut drive, replica, &ours);
        }
        pass(&mut drive, 3, 40 * MS);
        let counters = &drive.counters;
        assert_eq!((counters.sent, counters.retransmitted), (sent, retransmitted), "{keys} keys");
    }
}

/// Counts NEW-KEYs, and takes nothing else.
struct Count(usize);
impl Transport for Count {
    fn send(&mut self, _: Place, datagram: &[u8]) {
        let mut reader = Reader::new(datagram);
        while !reader.is_empty() {
            assert_eq!(Frame::take(&mut reader).unwrap().kind, Kind::NewKey);
            self.0 += 1;
        }
    }
}

/// L38, CL-11: a replica that lacks the client's keys has started again, and so may all others have: all are sent the keys, and
/// a request waits until a quorum has answered.
#[test]
fn l38_a_request_waits_when_a_replica_has_started_again() {
    let (mut drive, ours, mut count) = (keyed(2, Timestamp(1)), own_keys(), Count(0));
    drive.flush(&mut count);
    count.0 = 0;
    let (_, letter) = door(ReplicaId(0).into(), 30).take_outgoing().unwrap();
    drive.receive(at(20 * MS), &letter);
    drive.flush(&mut count);
    assert_eq!((drive.keys_missing, count.0), (4, 4), "to each replica");
    drive.invoke(at(20 * MS), 0, b"put", false);
    for replica in 1..4 {
        assert_eq!(drive.counters.sent, 0, "{replica} keys");
        exchange(&mut drive, replica, &ours);
    }
    pass(&mut drive, 20 * MS, 40 * MS);
    assert_eq!(drive.counters.sent, 1, "the last one may have stopped");
}

/// L36, CL-3: keys go out before the first request could, and again when it is time to ask again, once for all lanes.
#[test]
fn l36_keys_go_out_again_with_each_request_that_waits() {
    let (mut drive, mut count) = (drive(20, Timestamp(1)), Count(0));
    (0..20).for_each(|lane| drive.invoke(at(MS), lane, b"put", false));
    drive.flush(&mut count);
    assert_eq!(count.0, 4, "to each replica");
    pass(&mut drive, MS, 60 * MS);
    drive.flush(&mut count);
    assert_eq!((count.0, drive.counters.sent), (8, 0));
}

/// ADR 23: where the replicas are is read at the start, and when one is silent although it was asked. The read is never
/// ordered, however long nobody serves it.
#[test]
fn addresses_are_read_and_the_read_is_never_ordered() {
    use quorate_service::registry::Table;

    /// For each request that was sent: whether it reads where the replicas are, and is not to be ordered.
    struct Requests(Vec<(bool, bool)>);
    impl Transport for Requests {
        fn send(&mut self, _: Place, datagram: &[u8]) {
            let domains = Config::new(Cluster::tolerating(1).unwrap(), ClusterId([3; 32])).domains();
            let mut reader = Reader::new(datagram);
            while !reader.is_empty() {
                let frame = Frame::take(&mut reader).unwrap();
                if frame.kind == Kind::Request {
                    let request = Request::decode(&frame, &domains).unwrap();
                    self.0.push((request.operation == Table::read(), request.flags.read_only));
                }
            }
        }
    }
    let (mut drive, ours) = (drive(1, Timestamp(1)), own_keys());
    drive.follow_moves(&Config::new(drive.cluster, ClusterId([3; 32])));
    let before = drive.replica_addresses();
    (0..4).for_each(|replica| exchange(&mut drive, replica, &ours));
    let mut requests = Requests(Vec::new());
    pass(&mut drive, 3, 20_000 * MS);
    drive.flush(&mut requests);
    assert!((8..400).contains(&requests.0.len()), "{} in 20 s", requests.0.len());
    assert!(requests.0.iter().all(|sent| *sent == (true, true)), "{:?}", requests.0);

    let moved: SocketAddr = ([127, 0, 0, 9], 70).into();
    let table = Table { replicas: [(ReplicaId(1), moved)].into(), ..Table::default() };
    let mut result = Vec::new();
    table.encode(&mut result);
    drive.learn_moves(at(20_000 * MS), &result);
    assert_eq!(drive.take_table(), Some(table));
    assert_eq!((drive.replica_addresses()[1], drive.replica_addresses()[2]), (moved, before[2]));
    // What it had asked goes on for a moment.
    pass(&mut drive, 20_000 * MS, 40_000 * MS);
    let (sent, _) = pass(&mut drive, 40_000 * MS, 80_000 * MS);
    assert_eq!(sent, 0, "a client that asks for nothing reads nothing");
    drive.invoke(at(80_000 * MS), 0, b"put", false);
    let mut requests = Requests(Vec::new());
    pass(&mut drive, 80_000 * MS, 82_000 * MS);
    drive.flush(&mut requests);
    assert!(requests.0.contains(&(true, true)) && requests.0.contains(&(false, false)), "{:?}", requests.0);
}
