//! `quorate doctor` finds each kind of problem, prints one line with what to do, and changes nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;

#[allow(dead_code, reason = "shared with the tests that need more of it")]
mod support;

use support::{Cluster, Dir, own_address, quorate};

/// What the doctor says, and its status.
fn doctor(dir: &str) -> (Option<i32>, String) {
    let ended = quorate(&["doctor", "--dir", dir]);
    assert!(ended.stderr.is_empty(), "{ended:?}");
    (ended.status.code(), String::from_utf8(ended.stdout).unwrap())
}

fn line<'a>(text: &'a str, grade: &str, check: &str, of: &str) -> &'a str {
    let wanted = [grade, check, of];
    let found = text.lines().find(|line| line.split_whitespace().take(3).eq(wanted));
    found.unwrap_or_else(|| panic!("no line {wanted:?} in\n{text}"))
}

#[test]
fn trouble_is_found_and_nothing_is_changed() {
    let dir = Dir::new("doctor");
    let (root, host) = (dir.join("c"), own_address().to_string());
    assert!(quorate(&["init", "--dir", &root, "--host", &host]).status.success());
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let (status, text) = doctor(&root);
    assert_eq!(status, Some(0), "{text}");
    line(&text, "ok", "files", "replica-3");
    line(&text, "ok", "memory", "replica-0");
    line(&text, "ok", "disk", "writing");
    // Each replica may have a disk of its own.
    assert!((0..4).all(|i| text.contains(&format!("disk     replica-{i} "))), "{text}");
    assert!(line(&text, "ok", "ports", "replica-1").contains("does not run; free"), "{text}");
    assert!(line(&text, "warn", "places", "cluster").contains("4 replicas on 1 machine"), "{text}");
    assert!(text.lines().last().unwrap().ends_with(" 0 errors"), "{text}");

    let path = |name: &str| dir.path().join("c").join(name);
    fs::set_permissions(path("replica-0/keys/replica.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let toml = fs::read_to_string(path("replica-1/node.toml")).unwrap();
    fs::write(path("replica-1/node.toml"), format!("windov = 256\n{toml}")).unwrap();
    fs::set_permissions(path("replica-2"), fs::Permissions::from_mode(0o755)).unwrap();
    let taken = UdpSocket::bind((own_address_of(&host), 7002)).unwrap();
    let starts = path("replica-3/log/starts");
    let mut bytes = fs::read(&starts).unwrap();
    for byte in &mut bytes {
        *byte ^= 0x5a;
    }
    fs::write(&starts, bytes).unwrap();
    fs::write(path("client-0/keys/time"), format!("{}\n", u64::MAX / 2)).unwrap();
    let (status, text) = doctor(&root);
    assert_eq!(status, Some(1), "{text}");
    assert!(line(&text, "bad", "rights", "replica-2").contains("mode 0755"), "{text}");
    assert!(line(&text, "bad", "files", "replica-0").contains("mode 0644"), "{text}");
    assert!(text.contains("do: chmod 600 "), "{text}");
    assert!(line(&text, "bad", "files", "replica-1").contains("unknown key `windov`"), "{text}");
    let pid = format!("(pid {})", std::process::id());
    assert!(line(&text, "bad", "ports", "replica-2").contains(&pid), "{text}");
    assert!(line(&text, "warn", "memory", "replica-3").contains("it will rejoin"), "{text}");
    assert!(line(&text, "warn", "clock", "client-0").contains("set back"), "{text}");
    assert!(text.lines().last().unwrap().ends_with(" 4 errors"), "{text}");
    assert_eq!(names(), before, "something was left");
    drop(taken);

    let ended = quorate(&["doctor", "--json", "--dir", &root]);
    let json: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((ended.status.code(), &json["bad"], &json["schema"]), (Some(1), &3.into(), &1.into()));
    assert!(json["findings"].as_array().unwrap().len() > 12, "{json}");
    let none = quorate(&["doctor", "--dir", &dir.join("nowhere")]);
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).starts_with("error Q017: no node found"), "{none:?}");
}

/// A setting that must be the same everywhere and is not looks like a lie: the doctor names key, node and both values.
#[test]
fn settings_that_differ_are_named() {
    let dir = Dir::new("doctor-settings");
    let root = dir.join("c");
    let host = own_address().to_string();
    assert!(quorate(&["init", "--dir", &root, "--host", &host]).status.success());
    let (status, text) = doctor(&root);
    assert_eq!(status, Some(0), "{text}");
    assert!(
        line(&text, "ok", "settings", "cluster")
            .contains("14 shared settings equal at 6 nodes (a value from `quorate set` takes"),
        "{text}"
    );

    let change = |node: &str, lines: &str| {
        let path = dir.path().join("c").join(node).join("cluster.toml");
        let toml = fs::read_to_string(&path).unwrap();
        let toml = lines.lines().fold(toml, |toml, line| {
            let key = line.split(' ').next().unwrap();
            toml.replacen(&format!("\n{key} = "), &format!("\n{line} # "), 1)
        });
        fs::write(path, toml).unwrap();
    };
    // Written in another way, it is the same.
    change("replica-0", "fs_capacity = \"65536MiB\"");
    change("replica-3", "window = 1024\nclients_max = 4096");
    change("client-1", "read_only = false");
    let (status, text) = doctor(&root);
    assert_eq!(status, Some(1), "{text}");
    assert!(
        text.contains(" replica-3  window = 1024, but 2048 at client-0, client-1, replica-0, "),
        "{text}"
    );
    assert!(text.contains("do: set `window = 2048` in its cluster.toml and start it again"), "{text}");
    assert!(
        text.contains(" replica-3  clients_max = 4096, but 65536 at replica-0, replica-1, replica-2\n"),
        "{text}"
    );
    assert!(line(&text, "warn", "settings", "client-1").contains("read_only = false, but true at"), "{text}");
    assert!(!text.contains("fs_capacity"), "{text}");
}

/// For a running cluster, the ports are reported as its own, and the cluster is not disturbed.
#[test]
fn a_cluster_that_runs_is_well() {
    let cluster = Cluster::start("doctor-runs", &[], "");
    (0..4).for_each(|i| cluster.wait_for(i, " runs "));
    let (status, text) = doctor(&cluster.dir.join("c"));
    assert_eq!(status, Some(0), "{text}");
    let ports = line(&text, "ok", "ports", "replica-2");
    assert!(ports.contains(&format!("quorate (pid {})", cluster.pids()[2])), "{text}");
    let (status, text) = doctor(&cluster.dir.join("c/replica-2"));
    assert_eq!(status, Some(0), "{text}");
    assert!(!text.contains("replica-1"), "{text}");
}

fn own_address_of(host: &str) -> std::net::IpAddr {
    host.parse().unwrap()
}
