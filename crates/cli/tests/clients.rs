//! Clients that are added to real processes and removed from them, and a machine that is replaced.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

#[allow(dead_code, reason = "shared with the tests that need more of it")]
mod support;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use quorate_node::Caller;
use quorate_node::caller::CallerOptions;
use quorate_service::kv::Operation;
use support::{Cluster, PATIENCE, quorate};

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

/// `quorate kv` as a client, with these lines; returns what it answers, a line each.
fn kv(cluster: &Cluster, client: &str, deadline: &str, lines: &str) -> String {
    let dir = cluster.dir.path().join("c").join(client);
    let mut child = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(["kv", "--deadline", deadline, "--dir"])
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    said(&child.wait_with_output().unwrap())
}

fn command(cluster: &Cluster, what: &str, rest: &[&str]) -> (Option<i32>, String) {
    let dir = cluster.dir.join("c");
    let output = quorate(&[&[what, "--dir", &dir, "--deadline", "30s"], rest].concat());
    (output.status.code(), said(&output))
}

/// EX-3: every replica accepts an added client within its rights, also after all replicas have restarted, and refuses it
/// after its removal.
#[test]
fn clients_come_and_go() {
    let mut cluster = Cluster::start("clients", &[], "checkpoint_interval = 16\nwindow = 32");
    let (status, text) = command(&cluster, "add-client", &["client-2"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("client-2 may read and write"), "{text}");
    let key = cluster.dir.path().join("c/client-2/keys/client.key");
    assert_eq!(fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(kv(&cluster, "client-2", "30s", "put k one\nget k\n"), "ok\nok one\n");
    // The same again changes nothing; other rights do.
    assert!(command(&cluster, "add-client", &["client-2"]).1.contains("already: nothing was changed"));
    assert_eq!(command(&cluster, "add-client", &["client-2", "--read-only"]).0, Some(0));
    let may_not = "fail permission denied: this client lacks the right; nothing was changed\n";
    assert_eq!(kv(&cluster, "client-2", "30s", "get k\nput k two\n"), format!("ok one\n{may_not}"));
    // It may not let in others, nor may a client that is not an administrator be named for one.
    let (status, text) = command(&cluster, "add-client", &["client-3", "--as", "client-2"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.starts_with("error Q046: client-2 may not add or remove clients"), "{text}");
    let (status, text) = command(&cluster, "remove-client", &["client-9"]);
    assert!(status == Some(2) && text.starts_with("error Q047"), "{text}");

    // A replica that restarts, from its own log or from the others' state, still knows it.
    (0..4).for_each(|i| cluster.kill(i));
    for sub in ["log", "checkpoint"] {
        fs::remove_dir_all(cluster.replica_dir(3).join(sub)).unwrap();
    }
    (0..4).for_each(|i| cluster.run(i));
    assert_eq!(kv(&cluster, "client-2", "60s", "get k\n"), "ok one\n");
    let many = "put x 1\n".repeat(80);
    assert_eq!(kv(&cluster, "client-0", "60s", &many), "ok\n".repeat(80));
    cluster.wait_for(3, "has rejoined");
    // Now replica 3 counts, which has it from the others' state.
    cluster.kill(0);
    assert_eq!(command(&cluster, "add-client", &["client-2"]).0, Some(0));
    assert_eq!(kv(&cluster, "client-2", "60s", "put k three\nget k\n"), "ok\nok three\n");

    let (status, text) = command(&cluster, "remove-client", &["client-2"]);
    assert_eq!(status, Some(0), "{text}");
    let out = kv(&cluster, "client-2", "2s", "put k four\n");
    assert!(
        out.starts_with("fail this client is not a member of the cluster") || out.starts_with("unknown"),
        "{out}"
    );
    assert!(command(&cluster, "remove-client", &["client-2"]).1.contains("already removed"));
    assert_eq!(kv(&cluster, "client-0", "60s", "get k\n"), "ok three\n");
}

/// docs/clients.md, "Replace a dead machine": the commands as they stand there.
#[test]
fn a_dead_machine_is_replaced() {
    let mut cluster = Cluster::start("replace", &[], "checkpoint_interval = 16\nwindow = 32");
    assert_eq!(kv(&cluster, "client-0", "30s", "put k one\n"), "ok\n");
    // The machine is gone; of its directory there is the copy of what `init` made: no log, no state.
    cluster.kill(2);
    let dir = cluster.replica_dir(2);
    for sub in ["log", "checkpoint"] {
        fs::remove_dir_all(dir.join(sub)).unwrap();
    }
    cluster.run(2);
    cluster.wait_for(2, "this replica's state is lost");
    let many = "put x 1\n".repeat(120);
    assert_eq!(kv(&cluster, "client-0", "60s", &many), "ok\n".repeat(120));
    cluster.wait_for(2, "has rejoined");
    // It is needed now.
    cluster.kill(1);
    assert_eq!(kv(&cluster, "client-1", "60s", "get k\nput k two\nget k\n"), "ok one\nok\nok two\n");
}

/// ADR 23: a replica moves to another port while a client runs. Nobody else restarts, and the moved one is needed after.
#[test]
fn a_replica_moves_and_nobody_restarts() {
    let mut cluster = Cluster::start("moves", &[], "checkpoint_interval = 16\nwindow = 32");
    let node = cluster.client(0, 4);
    let running = Caller::start(node, CallerOptions { lanes: 4, deadline: PATIENCE }).unwrap();
    let write = |running: &Caller, value: &str| {
        let mut operation = Vec::new();
        Operation::Put { key: b"k", value: value.as_bytes() }.encode(&mut operation);
        running.call(&operation, false).unwrap()
    };
    write(&running, "one");
    // The machine is gone, and the new one has another address and the files that `init` made.
    cluster.kill(1);
    let toml = cluster.replica_dir(1).join("node.toml");
    let file = fs::read_to_string(&toml).unwrap();
    let listen = file.lines().find(|line| line.starts_with("listen")).unwrap().to_owned();
    fs::write(&toml, file.replacen(&listen, &listen.replace(":7001", ":7091"), 1)).unwrap();
    for sub in ["log", "checkpoint"] {
        fs::remove_dir_all(cluster.replica_dir(1).join(sub)).unwrap();
    }
    cluster.run(1);
    let to = listen.split('"').nth(1).unwrap().replace(":7001", ":7091");
    let (status, text) = command(&cluster, "move-replica", &["replica-1", "--to", &to]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains(&format!("replica-1 is at {to} from now on")), "{text}");
    let (_, again) = command(&cluster, "move-replica", &["replica-1", "--to", &to]);
    assert!(again.contains("already: nothing was changed"), "{again}");
    // A new client: it asks all four.
    let root = cluster.dir.join("c");
    let until = Instant::now() + PATIENCE;
    let healthy = loop {
        write(&running, "two");
        let status = quorate(&["status", "--dir", &root]);
        if status.status.success() || Instant::now() > until {
            break said(&status);
        }
    };
    assert!(healthy.contains("HEALTHY"), "{healthy}");
    // The client that ran all the time reaches the four of them, too.
    while running.known().addresses()[1].to_string() != to {
        write(&running, "three");
        assert!(Instant::now() < until, "{:?}", running.known().addresses());
    }
    let all = || running.statements(Duration::from_secs(1)).iter().all(Option::is_some);
    while !all() {
        assert!(Instant::now() < until, "a replica does not answer the client that ran");
    }
    // Now replica 1 is needed.
    cluster.kill(3);
    write(&running, "four");
    assert_eq!(kv(&cluster, "client-1", "60s", "get k\nput k five\nget k\n"), "ok four\nok\nok five\n");

    let (status, text) = command(&cluster, "set", &["client_lanes_max", "2"]);
    assert_eq!(status, Some(0), "{text}");
    for (args, code, what) in [
        (["set", "window", "4096"], "Q004", "how long a rejoining replica waits before it votes"),
        (["set", "client_lanes_max", "0"], "Q002", "expected lanes of one client, 1 to 65536"),
        (["set", "client_lane_max", "1"], "Q002", "Nearest: client_lanes_max"),
        (["set", "workers", "2"], "Q004", "change it in node.toml of a node, and restart this node"),
    ] {
        let (status, text) = command(&cluster, args[0], &args[1..]);
        assert_eq!(status, Some(2), "{text}");
        assert!(text.starts_with(&format!("error {code}")) && text.contains(what), "{text}");
    }
    for (args, what) in [
        (["replica-4", "--to", "127.0.0.1"], "replica-0 to replica-3"),
        (["replica-0", "--to", &to], "is the address of replica-1"),
        (["replica-0", "--to", "0.0.0.0"], "nothing can be sent to this address"),
        (["r1", "--to", "127.0.0.1"], "use replica-N"),
    ] {
        let (status, text) = command(&cluster, "move-replica", &args);
        assert!(status == Some(2) && text.contains(what), "{text}");
    }
}
