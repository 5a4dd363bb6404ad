//! What servers can make a client keep (`docs/bounds.md`).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::net::IpAddr;
use std::path::PathBuf;

use quorate_node::init::Host;
use quorate_quorum::message::Rid;
use quorate_quorum::version::value_digest;
use quorate_wire::ReplicaId;

use super::*;
use crate::init::NewRegister;

struct TempDir(PathBuf);

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A client whose servers are not run.
fn client(name: &str, host: u8) -> (TempDir, Core) {
    let dir = std::env::temp_dir().join(format!("quorate-core-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let register = NewRegister {
        f: 1,
        hosts: vec![Host { ip: IpAddr::from([127, host, high, low.max(1)]), port: None }],
        clients: 1,
        config: Config::new(Protocol::MinimalC),
        lines: Vec::new(),
        server_lines: Vec::new(),
    };
    register.make(&dir).unwrap();
    let core = Core::open(&dir.join("client-0"), Carrier::Udp).unwrap();
    (TempDir(dir), core)
}

fn version(val: u64) -> Version {
    Version { val, client: ClientId::new(1, 0), digest: value_digest(&val.to_le_bytes()) }
}

/// A server forwards versions without values: of objects that nobody reads, none is kept, and of one that is read, one for
/// each server.
#[test]
fn versions_to_be_fetched_are_bounded() {
    let (_dir, mut core) = client("fetches", 92);
    let rid = Rid { incarnation: 1, counter: 1 };
    let read = ObjectId::new(b"", b"read");
    let forward = |core: &mut Core, server: u16, object, val| {
        core.take(1, ReplicaId(server).into(), Letter::Note(Note::Forwarded(object, rid, version(val))));
    };
    for number in 0..5000_u64 {
        forward(&mut core, 3, ObjectId::new(b"", &number.to_le_bytes()), number);
        forward(&mut core, 3, read, number);
    }
    assert_eq!(core.fetches.len(), 0, "nobody reads");
    core.invoke(1, read, Call::Read);
    for val in 0..5000 {
        for server in 0..4 {
            forward(&mut core, server, read, val * 4 + u64::from(server));
        }
    }
    assert_eq!(core.fetches.len(), 4);
    forward(&mut core, 3, ObjectId::new(b"", b"another"), 1);
    assert_eq!(core.fetches.len(), 4);
    // A second operation on the object is refused; the first one goes on, and with it what it waits for.
    core.invoke(1, read, Call::Read);
    assert_eq!(core.take_done().unwrap().1, Err(Failure::Busy));
    forward(&mut core, 0, read, 1 << 40);
    assert_eq!(core.fetches.len(), 4);
    // A value that comes is nothing to keep once the answers were taken.
    core.take(
        1,
        ReplicaId(0).into(),
        Letter::Note(Note::Fetched(read, version(1 << 40), (1_u64 << 40).to_le_bytes().as_slice().into())),
    );
    assert_eq!(core.fetches.len(), 3);
}

/// News and states that their owner does not take: those beyond the bound are dropped.
#[test]
fn news_and_states_are_bounded() {
    let (_dir, mut core) = client("news", 93);
    let object = ObjectId::new(b"", b"key");
    for val in 0..2000 {
        core.take(1, ReplicaId(2).into(), Letter::Note(Note::News(object, version(val))));
        core.take(1, ReplicaId(2).into(), Letter::Note(Note::State(val, State::default())));
    }
    assert_eq!(core.said.len(), NEWS_MAX);
    assert_eq!(core.take_said(), Some(Said::News(ReplicaId(2), object, version(0))), "the oldest stay");
}
