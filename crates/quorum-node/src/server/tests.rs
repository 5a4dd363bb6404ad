#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;

use quorate_node::init::Host;
use quorate_node::members::client_identity;
use quorate_quorum::access::{Rights, Who};
use quorate_quorum::message::Rid;

use super::*;
use crate::init::{NewRegister, server_dir};

struct TempDir(PathBuf);

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A register whose servers are not run.
fn made(name: &str, host: [u8; 4], config: Config) -> TempDir {
    let dir = std::env::temp_dir().join(format!("quorate-server-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    let register = NewRegister {
        f: 1,
        hosts: vec![Host { ip: IpAddr::from(host), port: None }],
        clients: 2,
        config,
        lines: Vec::new(),
        server_lines: vec!["durability = \"sync\"".to_owned()],
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

/// §15: news of a key go to those who may read it.
#[test]
fn who_may_not_read_may_not_watch() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let mut config = Config::new(Protocol::MinimalC);
    let only = Who::These(BTreeSet::from([1]));
    config.rules.insert("mine/".to_owned(), Rights { readers: only.clone(), writers: only });
    let dir = made("watch", [127, 91, high, low.max(1)], config);
    let mut server = open(&dir);
    let watch = Note::Watch(ObjectId::new(b"mine/", b"key"));
    for (client, watchers) in [(1, 0), (0, 1)] {
        server.note(1, client_identity(client), &watch);
        assert_eq!(server.around.watchers.len(), watchers, "client {client}");
    }
    assert_eq!(server.around.refused, 1);
}
