#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;

use quorate_node::init::Host;
use quorate_node::members::client_identity;
use quorate_quorum::Version;
use quorate_quorum::access::{Rights, Who};
use quorate_quorum::message::{Op, Proof, Rid};
use quorate_quorum::version::value_digest;

use super::*;
use crate::init::{NewRegister, server_dir};

mod lies;

struct TempDir(PathBuf);

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A register whose servers are not run.
fn made(name: &str, host: [u8; 4], config: Config) -> TempDir {
    made_with(name, host, config, vec!["durability = \"sync\"".to_owned()])
}

fn made_with(name: &str, host: [u8; 4], config: Config, server_lines: Vec<String>) -> TempDir {
    let dir = std::env::temp_dir().join(format!("quorate-server-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    let register = NewRegister {
        f: 1,
        hosts: vec![Host { ip: IpAddr::from(host), port: None }],
        clients: 2,
        config,
        lines: Vec::new(),
        server_lines,
    };
    register.make(&dir).unwrap();
    TempDir(dir)
}

fn open(dir: &TempDir) -> Server {
    Server::open(&server_dir(&dir.0, ReplicaId(0)), None, Carrier::Udp).unwrap()
}

/// Returns how many messages a READ brings forth.
fn answers(server: &mut Server) -> usize {
    let body = Body::Read { rid: Rid { incarnation: 1, counter: 1 }, attempt: 0 };
    let message = Message { object: ObjectId::new(b"", b"key"), body };
    server.take(1, client_identity(0), &message);
    server.around.held.drain(..).count()
}

/// §15: a server that lost its disk is silent until it is repaired: it would say that nothing was ever written.
#[test]
fn a_server_that_lost_its_disk_answers_no_reader() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let dir = made("lost", [127, 90, high, low.max(1)], Config::new(Protocol::MinimalC));
    let mut server = open(&dir);
    assert_eq!(answers(&mut server), 1, "a whole one answers");
    server.around.store.close().unwrap();
    drop((server.link, server.drive));
    fs::remove_dir_all(server_dir(&dir.0, ReplicaId(0)).join("state")).unwrap();
    let mut server = open(&dir);
    assert!(server.was_lost);
    assert_eq!((answers(&mut server), server.around.refused), (0, 1));
}

/// Reading a key that was never written makes no key.
#[test]
fn a_key_that_was_only_read_is_not_counted() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let dir = made("read", [127, 97, high, low.max(1)], Config::new(Protocol::MinimalF));
    let mut server = open(&dir);
    assert_eq!(answers(&mut server), 1);
    assert_eq!(server.state(1).objects, 0);
}

/// What is persisted is promised to nobody before it is durable; with `durability = "memory"` nothing waits.
#[test]
fn a_promise_waits_for_the_disk_and_nothing_else_does() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    for (number, durability, waits) in [(98, "sync", true), (99, "memory", false)] {
        let lines = vec![format!("durability = \"{durability}\"")];
        let config = Config::new(Protocol::MinimalC);
        let dir = made_with(durability, [127, number, high, low.max(1)], config, lines);
        let mut server = open(&dir);
        assert_eq!(answers(&mut server), 1);
        assert!(!server.around.store.has_batch(), "a read persists nothing");
        let message = Message { object: ObjectId::new(b"", b"key"), body: store(1, 64) };
        server.take(1, client_identity(0), &message);
        assert_eq!(server.around.store.has_batch(), waits, "{durability}");
    }
}

/// §15: news of a key go to those who may read it.
#[test]
fn who_may_not_read_may_not_watch() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let mut config = Config::new(Protocol::MinimalC);
    let only = Who::These(BTreeSet::from([1]));
    config
        .rules
        .insert("mine/".to_owned(), Rights { readers: only.clone(), writers: only, ..Rights::default() });
    let dir = made("watch", [127, 91, high, low.max(1)], config);
    let mut server = open(&dir);
    let watch = Note::Watch(ObjectId::new(b"mine/", b"key"));
    for (client, watchers) in [(1, 0), (0, 1)] {
        server.note(1, client_identity(client), &watch);
        assert_eq!(server.around.watchers.len(), watchers, "client {client}");
    }
    assert_eq!(server.around.refused, 1);
}

/// STORE of a value with this counter and length.
fn store(val: u64, bytes: usize) -> Body {
    let mut value = vec![7; bytes];
    value[..8].copy_from_slice(&val.to_le_bytes());
    let version = Version { val, client: client_identity(0).as_client(), digest: value_digest(&value) };
    let op = Op { incarnation: 1, number: val, phase: 2 };
    Body::Store { op, version, value: value.into(), proof: Proof::default(), write_back: false }
}

/// A client, and a peer of a server under repair, fill what a server may store: what is beyond it is refused, and a value
/// that replaces another of its length is not beyond it.
#[test]
fn the_bytes_of_a_server_are_bounded() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let lines = ["durability = \"memory\"", "state_memory_max = \"1MiB\""].map(str::to_owned).to_vec();
    let dir = made_with("bytes", [127, 94, high, low.max(1)], Config::new(Protocol::MinimalC), lines);
    let mut server = open(&dir);
    server.turn(1).unwrap();
    let object = |number: u64| ObjectId::new(b"", &number.to_le_bytes());
    let send = |server: &mut Server, number: u64, val: u64| {
        let message = Message { object: object(number), body: store(val, 64 << 10) };
        server.take(1, client_identity(0), &message);
        server.commit().unwrap();
    };
    (0..100).for_each(|number| send(&mut server, number, 1));
    let full = server.around.store.live_bytes();
    assert!(full <= 1 << 20 && full > (1 << 20) - (65 << 10), "{full}");
    assert!(server.around.rejects[&Reject::Full] >= 80);
    let held = |server: &Server, number| server.drive.process().held(&object(number)).unwrap().val;
    send(&mut server, 0, 2);
    assert_eq!(held(&server, 0), 2, "it replaces another");
}

/// Peers fill a server under repair: a part that is beyond what it may store is refused, and one that is not is taken.
#[test]
fn the_copies_of_a_repair_are_bounded() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let lines = ["durability = \"memory\"", "state_memory_max = \"1MiB\""].map(str::to_owned).to_vec();
    let dir = made_with("copies", [127, 96, high, low.max(1)], Config::new(Protocol::MinimalC), lines);
    let mut server = open(&dir);
    server.turn(1).unwrap();
    let Body::Store { version, value, proof, .. } = store(1, 64 << 10) else { unreachable!() };
    let copy = |number: u8| quorate_quorum::message::Copy {
        object: ObjectId([number; 32]),
        version,
        value: Arc::clone(&value),
        proof: proof.clone(),
        pcert: None,
        wcert: None,
    };
    for (count, taken) in [(20, 0), (10, 10)] {
        let items: Vec<_> = (1..=count).map(copy).collect();
        for peer in 1..3 {
            let body = Body::Copies { items: items.clone().into(), more: true };
            server.take(1, ReplicaId(peer).into(), &Message { object: ObjectId([0; 32]), body });
        }
        server.commit().unwrap();
        assert_eq!(server.drive.process().objects(), taken, "{count} copies");
    }
    assert_eq!(server.around.rejects[&Reject::Full], 2);
    assert!(server.around.store.live_bytes() <= 1 << 20);
}

/// Values that are forwarded by their versions: a server keeps the last ones only.
#[test]
fn forwarded_values_are_bounded() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let dir = made("forwarded", [127, 95, high, low.max(1)], Config::new(Protocol::MinimalC));
    let mut server = open(&dir);
    let object = ObjectId::new(b"", b"key");
    let body = Body::Read { rid: Rid { incarnation: 1, counter: 1 }, attempt: 0 };
    server.take(1, client_identity(1), &Message { object, body });
    for val in 1..100 {
        server.take(1, client_identity(0), &Message { object, body: store(val, LONG_ABOVE + 1) });
    }
    assert_eq!(server.around.forwarded.len(), FORWARDED_MAX);
    assert_eq!(server.around.forwarded.back().map(|(_, version, _)| version.val), Some(99));
}

/// Q7: a client changes a key with a long value many times in one turn. The server writes the key once, and keeps no copy
/// of the value for each change.
#[test]
fn q7_a_key_is_written_once_in_a_turn() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let dir = made("once", [127, 97, high, low.max(1)], Config::new(Protocol::MinimalC));
    let mut server = open(&dir);
    server.turn(1).unwrap();
    let object = ObjectId::new(b"", b"key");
    for val in 1..100 {
        let message = Message { object, body: store(val, 64 << 10) };
        server.take(1, client_identity(0), &message);
    }
    assert_eq!(server.drive.process().held(&object).unwrap().val, 99);
    server.commit().unwrap();
    let bytes = server.around.store.log_bytes();
    assert!((64 << 10..128 << 10).contains(&bytes), "{bytes}");
}
