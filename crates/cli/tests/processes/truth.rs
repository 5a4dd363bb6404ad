//! Commands that say what they did, and not more: a heal that heals nobody, an `up` beside other replicas, a view that
//! nobody has stated, operations that failed.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::up::Up;
use crate::support::{Dir, PATIENCE, own_address, quorate};

/// Runs a command, and returns its status and all that it printed.
fn said(arguments: &[&str]) -> (Option<i32>, String) {
    let ended = quorate(arguments);
    (ended.status.code(), String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned())
}

/// `heal` changes only a replica that has a fault. It names the one that has, and `heal all` heals it.
#[test]
fn heal_names_the_replica_that_is_broken() {
    let up = Up::start(Dir::new("truth"), SocketAddr::new(own_address(), 6380));
    let data = up.dir().join("data");
    let (status, text) = up.fault(&["kill", "3"]);
    assert_eq!(status, Some(0), "{text}");
    let pid = up.dir().path().join("data/run/replica-3.pid");
    assert!(!pid.exists(), "it names a dead process");

    let (status, text) = up.fault(&["heal", "1"]);
    assert_eq!(status, Some(2), "{text}");
    for what in ["r1 has no fault", "nothing was changed", "r3 is killed", "quorate fault heal 3"] {
        assert!(text.contains(what), "no `{what}` in {text}");
    }
    let (status, text) = up.fault(&["heal", "all"]);
    assert_eq!((status, text.contains("r3 healed")), (Some(0), true), "{text}");
    assert!(!text.contains("r1"), "{text}");
    let (status, text) = up.fault(&["heal", "all"]);
    assert_eq!((status, text.contains("no replica has a fault")), (Some(0), true), "{text}");
    let (status, text) = up.fault(&["heal", "0"]);
    assert_eq!((status, text.contains("nothing was changed")), (Some(0), true), "{text}");

    // The same words as at the creation are no conflict; other words are.
    let host = own_address().to_string();
    let (status, text) = said(&["up", "--dir", &data, "--service", "fs"]);
    assert!(status == Some(2) && text.contains("Q004") && text.contains("--service"), "{text}");
    let same = ["up", "--dir", &data, "--service", "kv", "--f", "1", "--durability", "sync"];
    let (status, text) = said(&same);
    assert!(
        status == Some(2) && text.contains("Q022"),
        "another `up` runs, and nothing else is wrong: {text}"
    );
    let (status, text) = said(&["up", "--dir", &data, "--host", &format!("{host}:7100")]);
    assert!(status == Some(2) && text.contains("--host"), "{text}");

    // An operation that failed is not a success.
    for (line, expected) in [("put k v", 0), ("put", 1), ("put k v\nincr k 1", 1)] {
        assert_eq!(kv(&up.dir().join("data/client-3"), line), Some(expected), "{line}");
    }

    // A cluster that does not answer has no view that anybody could know.
    let dir = up.down();
    let (status, text) = said(&["status", "--dir", &dir.join("data")]);
    assert_eq!(status, Some(3), "{text}");
    assert!(text.contains("view unknown") && !text.contains("view 0"), "{text}");
    let (_, text) = said(&["status", "--json", "--dir", &dir.join("data")]);
    assert!(text.contains("\"view\":null") && text.contains("\"primary\":null"), "{text}");
}

/// Gives lines to `quorate kv`, and returns its status.
fn kv(dir: &str, lines: &str) -> Option<i32> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(["kv", "--dir", dir])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{lines}").unwrap();
    child.wait().unwrap().code()
}

/// Replicas that somebody started by hand. They end with the test.
struct ByHand(Vec<Child>);

impl Drop for ByHand {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// `up` over replicas that run already does not take their answers for those of its own processes.
#[test]
fn up_says_that_its_replicas_did_not_start() {
    let door = SocketAddr::new(own_address(), 6380);
    let dir = Up::start(Dir::new("truth-up"), door).down();
    let start = |i: u16| {
        Command::new(env!("CARGO_BIN_EXE_quorate"))
            .args(["replica", "--dir", &dir.join(&format!("data/replica-{i}"))])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let _by_hand = ByHand((0..4).map(start).collect());
    let begin = Instant::now();
    while kv(&dir.join("data/client-3"), "put k v") != Some(0) {
        assert!(begin.elapsed() < PATIENCE, "the replicas that were started by hand do not answer");
    }
    let page = SocketAddr::new(door.ip(), 9640).to_string();
    let (status, text) =
        said(&["up", "--dir", &dir.join("data"), "--resp", &door.to_string(), "--status", &page]);
    assert!(status != Some(0) && text.contains("did not start"), "{text}");
    assert!(!text.contains("the service responds"), "{text}");
}
