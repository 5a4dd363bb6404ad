//! Clients that are added to real processes and removed from them, and a machine that is replaced.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

#[allow(dead_code, reason = "shared with the tests that need more of it")]
mod support;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use support::{Cluster, quorate};

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
