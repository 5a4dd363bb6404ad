//! Mistakes, which are half of the first five minutes: one clear error each, with a code, and nothing damaged.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "mistakes/disk.rs"]
mod disk;
#[allow(dead_code, reason = "shared with the tests that need more of it")]
mod support;

use support::{Dir, content, own_address, quorate};

/// A new cluster in a directory; returns the directory of replica 1.
fn cluster(dir: &Dir) -> PathBuf {
    let made = quorate(&["init", "--dir", &dir.join("c"), "--host", &own_address().to_string()]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    dir.path().join("c/replica-1")
}

/// Tries to run the replica, and returns what it says: it fails with status 2, and has changed nothing.
fn refused(dir: &Path) -> String {
    let before = content(dir);
    let output = quorate(&["replica", "--dir", &dir.display().to_string()]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_eq!(content(dir), before, "something was changed");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("error Q") && text.matches("error Q").count() == 1, "one error:\n{text}");
    text
}

fn change(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn a_typing_error_in_node_toml() {
    let dir = Dir::new("typo");
    let replica = cluster(&dir);
    change(&replica.join("node.toml"), "# log_bytes_max = ", "log_byte_max = ");
    let says = refused(&replica);
    assert!(says.starts_with("error Q009: unknown key `log_byte_max`\n  --> "), "{says}");
    assert!(says.contains("did you mean `log_bytes_max`?"), "{says}");
    // The line, and the word underlined.
    assert!(says.contains(" | log_byte_max = ") && says.contains(" | ^^^^^^^^^^^^ did"), "{says}");
}

#[test]
fn a_setting_that_breaks_a_rule() {
    let dir = Dir::new("rule");
    let replica = cluster(&dir);
    change(&replica.join("cluster.toml"), "window = 2048", "window = 200");
    let says = refused(&replica);
    assert!(says.starts_with("error Q004: window = 200: at least twice checkpoint_interval\n"), "{says}");
    assert!(says.contains("cluster.toml:"), "{says}");
}

/// The settings that all nodes have alike are the cluster's. A node does not start with another value; with the same it
/// does, and a cluster of an earlier version, which has them in `node.toml`, does too.
#[test]
fn a_setting_that_is_the_cluster_s() {
    let dir = Dir::new("shared");
    let set = ["--set", "window=1024", "--set", "poll=20us", "--set", "log_bytes_max=8MiB"];
    let made = quorate(
        &[&["init", "--dir", &dir.join("c"), "--host", &own_address().to_string()], &set[..]].concat(),
    );
    assert!(made.status.success(), "{made:?}");
    let replica = dir.path().join("c/replica-1");
    let text = |file: &str| fs::read_to_string(dir.path().join("c").join(file)).unwrap();
    for node in ["replica-1", "client-1"] {
        let (node, cluster) = (text(&format!("{node}/node.toml")), text(&format!("{node}/cluster.toml")));
        assert!(
            cluster.contains("\nwindow = 1024\n") && cluster.contains("\nservice = \"kv\"\n"),
            "{cluster}"
        );
        assert!(node.contains("\npoll = \"20us\"\n") && !node.contains("window ="), "{node}");
    }
    assert!(text("replica-1/node.toml").contains("\nlog_bytes_max = \"8MiB\"\n"));
    assert!(!text("client-1/node.toml").contains("log_bytes_max"));

    let toml = text("replica-1/node.toml");
    fs::write(replica.join("node.toml"), format!("window = 2048\n{toml}")).unwrap();
    let says = refused(&replica);
    let what = "error Q004: window = 2048: must be the same at every node, and cluster.toml says 1024\n";
    assert!(says.starts_with(what) && says.contains("node.toml:1\n"), "{says}");
    assert!(says.contains("do: remove the line, or change the setting in cluster.toml"), "{says}");
    // It goes on to the next thing that is wrong.
    fs::write(replica.join("node.toml"), format!("window = 1024\npipelin = 1\n{toml}")).unwrap();
    assert!(refused(&replica).starts_with("error Q009: unknown key `pipelin`"));
    let cluster = text("replica-1/cluster.toml");
    let (before, _) = cluster.split_once("[settings]").unwrap();
    fs::write(replica.join("cluster.toml"), before).unwrap();
    fs::write(replica.join("node.toml"), format!("window = 2048\npipelin = 1\n{toml}")).unwrap();
    assert!(refused(&replica).starts_with("error Q009: unknown key `pipelin`"));

    for (set, says) in [
        ("windov=1024", "error Q009: no setting `windov`. Nearest: window\n  --> --set\n"),
        ("window=wide", "error Q002: window=wide: expected batches"),
        ("window=200", "error Q004: window = 200: at least twice checkpoint_interval\n"),
        ("window", "error Q002: `window`: expected KEY=VALUE"),
        // What a replica would refuse, and what another option has chosen.
        ("workers=8", "error Q004: workers = 8: tentative must be false"),
        ("service=fs", "error Q004: service = fs: given twice\n  --> --set\n"),
    ] {
        let output = quorate(&["init", "--dir", &dir.join("d"), "--set", set]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.starts_with(says) && !dir.path().join("d").exists(), "{text}");
    }
}

#[test]
fn a_port_that_is_taken() {
    let dir = Dir::new("port");
    let replica = cluster(&dir);
    let text = fs::read_to_string(replica.join("node.toml")).unwrap();
    let listen = text.lines().find_map(|line| line.strip_prefix("listen = ")).unwrap().trim_matches('"');
    let _other = UdpSocket::bind(listen).unwrap();
    let says = refused(&replica);
    let who = format!("(pid {})\n", std::process::id());
    assert!(says.starts_with("error Q003: port 7001 is taken by ") && says.contains(&who), "{says}");
    assert!(says.contains(&format!("listen = \"{listen}\"")), "{says}");
}

#[test]
fn a_key_that_others_can_read() {
    let dir = Dir::new("mode");
    let replica = cluster(&dir);
    let key = replica.join("keys/replica.key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let says = refused(&replica);
    assert!(
        says.starts_with("error Q012: key file can be read or written by others (mode 0644)\n"),
        "{says}"
    );
    assert!(says.contains("do: chmod 600 "), "{says}");
}

#[test]
fn a_key_that_is_damaged_or_gone() {
    let dir = Dir::new("key");
    let replica = cluster(&dir);
    let key = replica.join("keys/replica.key");
    let mut bytes = fs::read(&key).unwrap();
    bytes[40] = if bytes[40] == b'0' { b'1' } else { b'0' };
    fs::write(&key, bytes).unwrap();
    assert!(refused(&replica).starts_with("error Q019: the key is damaged"));
    fs::remove_file(&key).unwrap();
    assert!(refused(&replica).starts_with("error Q017: cannot be read"));
}

#[test]
fn members_that_are_damaged() {
    let dir = Dir::new("members");
    let replica = cluster(&dir);
    change(&replica.join("cluster.toml"), "f = 1", "f = 0");
    let says = refused(&replica);
    assert!(says.starts_with("error Q017: damaged: the cluster's name is not the digest"), "{says}");
    assert!(says.contains("copy the file from another node"), "{says}");
}

/// The next version's files are neither overwritten nor taken for damage: the replica does not forget.
#[test]
fn files_of_another_version() {
    let dir = Dir::new("format");
    let replica = cluster(&dir);
    change(&replica.join("cluster.toml"), "format = 1", "format = 2");
    assert!(refused(&replica).starts_with("error Q020: format 2: this version reads format 1"));
}

#[test]
fn a_directory_that_cannot_be_made_or_is_taken() {
    let dir = Dir::new("taken");
    cluster(&dir);
    let before = content(dir.path());
    let output = quorate(&["init", "--dir", &dir.join("c")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("error Q021: directory is not empty"));
    assert_eq!(content(dir.path()), before);
    // Nobody, not even root, can write there.
    let output = quorate(&["init", "--dir", "/proc/quorate"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("error Q018: cannot be written"));
    let output = quorate(&["init", "--dir", &dir.join("d"), "--host", "10.0.0.1", "10.0.0.2"]);
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("error Q004: 2 hosts for 4 replicas"));
    assert!(!dir.path().join("d").exists());
}

#[test]
fn what_is_no_replicas_directory() {
    let dir = Dir::new("nothing");
    let replica = cluster(&dir);
    let says = |path: &str| String::from_utf8(quorate(&["replica", "--dir", path]).stderr).unwrap();
    assert!(says(&dir.join("c/replica-9")).starts_with("error Q017: no such directory"));
    assert!(says(&dir.join("c/client-0")).starts_with("error Q017: not a replica's directory"));
    fs::rename(&replica, dir.path().join("c/replica-7")).unwrap();
    assert!(says(&dir.join("c/replica-7")).starts_with("error Q004: r7 is not a member"));
}

/// A key of another cluster's, or of another node of this one, speaks for nobody here.
#[test]
fn a_key_that_is_another_nodes() {
    let dir = Dir::new("wrongkey");
    let replica = cluster(&dir);
    let other = dir.path().join("c/replica-2/keys/replica.key");
    fs::copy(&other, replica.join("keys/replica.key")).unwrap();
    assert!(refused(&replica).starts_with("error Q019: the key is damaged, or another node's"));
    assert!(quorate(&["init", "--dir", &dir.join("d")]).status.success());
    fs::copy(dir.path().join("d/replica-1/keys/replica.key"), replica.join("keys/replica.key")).unwrap();
    assert!(refused(&replica).starts_with("error Q019: the key is damaged, or another node's"));
}

/// A cluster that tolerates nothing needs no protocol, and one that is too large no longer fits: told with the
/// rule, and nothing is made. Words that do not exist are told with the nearest.
#[test]
fn what_cannot_be_made_or_meant() {
    let dir = Dir::new("cannot");
    let path = dir.join("c");
    for (arguments, says) in [
        (&["init", "--dir", &path, "--f", "0"][..], "error Q004: f = 0: must be at least 1"),
        (&["init", "--dir", &path, "--f", "-1"], "error Q0"),
        (&["init", "--dir", &path, "--f", "99"], "error Q004: "),
        (&["up", "--dir", &path, "--f", "0"], "error Q002: `0`: must be 1 to 4\n  --> --f"),
        (&["stauts"], "error Q001: no command `stauts`"),
        (&["docter"], "error Q001: no command `docter`. Nearest: doctor"),
        (&["falut", "kill", "0"], "error Q001: no command `falut`. Nearest: fault"),
        (&["fault", "kil", "0"], "error Q002: `kil`: "),
        (&["fault", "kill", "0", "--dir", &path], "error Q017: no cluster made by `quorate up`"),
    ] {
        let output = quorate(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.starts_with(says) && text.matches("error Q").count() == 1, "{arguments:?}: {text}");
        assert!(output.stdout.is_empty() && !dir.path().join("c").exists(), "{arguments:?}");
    }
}

/// Operations that cannot be read are not passed over.
#[test]
fn an_input_that_cannot_be_read() {
    let dir = Dir::new("no-input");
    let client = cluster(&dir).with_file_name("client-0");
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    command.args(["kv", "--dir"]).arg(client).stdin(File::open(dir.path()).unwrap());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{text}");
    assert!(text.starts_with("error Q017: standard input cannot be read: "), "{text}");
}

/// What a simulation is told in a wrong way is refused with the key, the value and the rule, before anything
/// runs.
#[test]
fn settings_of_a_simulation() {
    for (flags, says) in [
        (&["--set", "widow=32"][..], "error Q009: no setting `widow`. Nearest: window\n  --> --set\n"),
        (&["--set", "pipeline=-1"], "error Q002: pipeline = -1: expected batches, 1 to 64\n"),
        (&["--set", "batch_bytes_max=1MiB"], "error Q004: batch_bytes_max = 1048576: from 1 KiB to 56 KiB"),
        (&["--set", "window=20"], "error Q004: window = 20: a multiple of checkpoint_interval\n"),
        (
            &["--set", "request_timeout_min=3s"],
            "error Q004: request_timeout_max = 2s: at least request_timeout_min\n",
        ),
        (&["--set", "window=32", "--scenario", "n1_loss"], "error Q004: "),
        (&["--n", "3"], "error Q004: n = 3"),
        (&["--n", "6", "--f", "2"], "error Q004: n = 6"),
        (&["--seeds", "5", "--minutes", "1"], "error Q004: "),
        (&["--seeds", "0"], "error Q002: `0`"),
        (&["--sed", "5"], "error Q001: no flag `--sed`. Nearest: --seed"),
    ] {
        let output = quorate(&[&["sim", "run"], flags].concat());
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {text}");
        assert!(output.stdout.is_empty() && text.starts_with(says), "{flags:?}: {text}");
    }
}

/// A setting is really given to the replicas, the run can be repeated, and another setting gives another run.
#[test]
fn a_simulation_with_settings() {
    let hash = |flags: &[&str]| {
        let output = quorate(&[&["sim", "run", "--seed", "5", "--json"], flags].concat());
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let (_, rest) = text.split_once("\"trace_hash\":\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    let serial = hash(&["--set", "pipeline=1"]);
    assert_eq!(hash(&["--set", "pipeline=1"]), serial);
    assert_ne!(hash(&["--set", "pipeline=2"]), serial);
}

/// The same for experiments.
#[test]
fn experiments_that_do_not_exist() {
    for (arguments, says) in [
        (
            &["bench", "run", "micro-latncy"][..],
            "error Q014: no experiment `micro-latncy`. Nearest: micro-latency",
        ),
        (&["bench", "run", "core-step", "--quik"], "error Q001: no flag `--quik`. Nearest: --quick"),
        (&["bench", "run"], "error Q001: "),
        (&["bench", "rum"], "error Q001: no command `rum`. Nearest: run"),
    ] {
        let output = quorate(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.starts_with(says), "{arguments:?}: {text}");
    }
}
