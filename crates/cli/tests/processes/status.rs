//! `quorate status`, as a script reads it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::{Cluster, Dir, Ended, PATIENCE, own_address, quorate};
use crate::up::Up;

/// Runs `status --json`: its exit status, what it says of the cluster, and of each replica.
pub(crate) fn status(dir: &str) -> (Option<i32>, Value, Vec<Value>) {
    let ended = quorate(&["status", "--json", "--dir", dir]);
    let text = String::from_utf8(ended.stdout).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let cluster = lines.next().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&ended.stderr)));
    (ended.status.code(), cluster, lines.collect())
}

/// Waits until the cluster is what is said, and returns its replicas.
fn wait_for(dir: &str, verdict: &str, word: &str) -> Vec<Value> {
    let begin = Instant::now();
    loop {
        let (code, cluster, replicas) = status(dir);
        if cluster["verdict"] == verdict && replicas.iter().any(|replica| replica["state"] == word) {
            assert_eq!(code, Some(i32::from(verdict != "healthy")));
            return replicas;
        }
        assert!(begin.elapsed() < PATIENCE, "not {verdict}, {word}: {cluster} {replicas:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Takes what comes to `from` to `to`, until it is over. TCP does not come through.
fn forward(from: &UdpSocket, to: &str, over: &AtomicBool) {
    from.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut buffer = vec![0; 65_536];
    while !over.load(Ordering::Relaxed) {
        if let Ok(len) = from.recv(&mut buffer) {
            let _ = from.send_to(&buffer[..len], to);
        }
    }
}

/// Where a firewall lets UDP through and TCP not, every replica answers and says that all is well: only operations that are
/// longer than a datagram are not served, and that is what is said.
#[test]
fn h1_a_blocked_side_channel_is_no_health() {
    let cluster = Cluster::start("blocked", &[], "");
    let root = cluster.dir.join("c");
    wait_for(&root, "healthy", "ok");
    let clients = fs::read_dir(&root).unwrap().flatten().map(|entry| entry.path());
    let clients = clients.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("client-"));
    let clients: Vec<_> = clients.map(|path| path.join("node.toml")).collect();
    let text = fs::read_to_string(&clients[0]).unwrap();
    let addresses: Vec<String> = (0..4)
        .map(|id| text.lines().find_map(|line| line.strip_prefix(&format!("r{id} = \""))).unwrap())
        .map(|address| address.trim_end_matches('"').to_owned())
        .collect();
    let open: Vec<UdpSocket> = addresses.iter().map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for path in &clients {
        let mut text = fs::read_to_string(path).unwrap();
        for (address, socket) in addresses.iter().zip(&open) {
            text = text.replace(address, &socket.local_addr().unwrap().to_string());
        }
        fs::write(path, text).unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (socket, to) in open.iter().zip(&addresses) {
            scope.spawn(|| forward(socket, to, &over));
        }
        let begin = Instant::now();
        let (code, cluster, replicas) = loop {
            let seen = status(&root);
            // Until its keys are exchanged, a replica may be silent.
            if seen.2.iter().all(|replica| replica["state"] == "ok") || begin.elapsed() > PATIENCE {
                break seen;
            }
        };
        let page = quorate(&["status", "--dir", &root]);
        over.store(true, Ordering::Relaxed);
        assert_eq!((code, &cluster["verdict"]), (Some(1), &"degraded".into()), "{cluster} {replicas:?}");
        assert_eq!(cluster["unserved"], serde_json::json!(["large operations time out"]));
        let page = String::from_utf8_lossy(&page.stdout).into_owned();
        assert!(page.starts_with("DEGRADED") && page.contains("let TCP through"), "{page}");
    });
}

/// A watched cluster has little to do for it: at most one operation of each kind in 10 s.
#[test]
fn h1_status_watch_orders_little() {
    let cluster = Cluster::start("watched", &[], "");
    let root = cluster.dir.join("c");
    wait_for(&root, "healthy", "ok");
    let requests = || status(&root).2[0]["requests"].as_u64().unwrap();
    let (before, begin) = (requests(), Instant::now());
    let watch = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(["status", "--watch", "--dir", &root])
        .stdout(Stdio::piped())
        .spawn();
    let mut watch = Ended(watch.unwrap());
    let lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    assert!(lines.take(6).all(|line| line.unwrap().contains("  view ")));
    kill(Pid::from_raw(i32::try_from(watch.0.id()).unwrap()), Signal::SIGINT).unwrap();
    assert!(watch.0.wait().unwrap().code().is_some(), "Ctrl-C is no failure");
    // The first `status` was asked before it tried its own three operations.
    let (more, turns) = (requests() - before, begin.elapsed().as_secs() / 10 + 2);
    assert!((4..=3 * turns).contains(&more), "{more} requests in 6 lines");
}

/// The keys that scripts rely on, and the four ways to end.
#[test]
fn status_tells_scripts_how_a_cluster_is() {
    let mut cluster = Cluster::start("status", &[], "");
    let root = cluster.dir.join("c");
    let replicas = wait_for(&root, "healthy", "ok");
    let (_, whole, _) = status(&root);
    for (key, value) in [
        ("crashes_tolerated", 1),
        ("byzantine_tolerated", 1),
        ("replicas_needed", 0),
        ("asked", 4),
        ("answered", 4),
        ("n", 4),
        ("f", 1),
        ("schema", 2),
        // The keys of schema 1.
        ("may_stop", 1),
        ("may_lie", 1),
    ] {
        assert_eq!(whole[key], value, "{key} in {whole}");
    }
    assert_eq!(replicas.len(), 4);
    for (replica, id) in replicas.iter().zip(0..) {
        assert_eq!((&replica["replica"], &replica["reachable"]), (&id.into(), &true.into()));
        for key in [
            "view",
            "primary",
            "last_executed",
            "last_committed",
            "stable_checkpoint",
            "state_digest_at",
            "view_changes",
            "requests",
            "memory_bytes",
            "uptime_s",
            "fsync_p99_us",
        ] {
            assert!(replica[key].is_u64(), "{key} in {replica}");
        }
        for key in ["checkpoint_digest", "state_digest"] {
            assert_eq!(replica[key].as_str().map(str::len), Some(64), "{key} in {replica}");
        }
        assert_eq!((&replica["in_view_change"], &replica["transferring"]), (&false.into(), &false.into()));
        assert_eq!(replica["durability"], "sync");
        assert!(replica["rejected"].is_object() && replica["evidence"].is_array());
        assert!(replica["transfer"]["done"].is_u64() && replica["version"].is_string(), "{replica}");
    }
    cluster.kill(2);
    let replicas = wait_for(&root, "degraded", "silent");
    assert_eq!((&replicas[2]["reachable"], &replicas[2]["view"]), (&false.into(), &Value::Null));
    cluster.kill(1);
    wait_for(&root, "halted", "silent");
    cluster.kill(0);
    cluster.kill(3);
    let (code, whole, _) = status(&root);
    assert_eq!((code, &whole["answered"]), (Some(3), &0.into()));
}

/// A replica whose settings differ is named so, not as one that lies, and the command that helps is named too.
#[test]
fn a_replica_with_other_settings_is_named() {
    let mut cluster = Cluster::make("differs", &[], "");
    let path = cluster.replica_dir(3).join("cluster.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("client_lanes_max = 256\n"), "{text}");
    std::fs::write(&path, text.replace("client_lanes_max = 256\n", "client_lanes_max = 16\n")).unwrap();
    (0..4).for_each(|i| cluster.run(i));
    let root = cluster.dir.join("c");
    let replicas = wait_for(&root, "degraded", "settings differ");
    let words: Vec<&Value> = replicas.iter().map(|replica| &replica["state"]).collect();
    assert_eq!(words, ["ok", "ok", "ok", "settings differ"]);
    let page = String::from_utf8(quorate(&["status", "--dir", &root]).stdout).unwrap();
    assert!(
        page.contains("do        settings differ: client_lanes_max (r3): make [settings] in its"),
        "{page}"
    );
    assert_eq!(replicas[3]["settings_differ"], serde_json::json!(["client_lanes_max"]));
}

/// A replica that answers clients with what is wrong is named, by those whom it answered, and nobody else is.
#[test]
fn a_liar_is_named_by_its_evidence() {
    let up = Up::start(Dir::new("accused"), (own_address(), 6380).into());
    let data = up.dir().join("data");
    assert_eq!(up.redis("set k 1"), "+OK");
    let (code, said) = up.fault(&["lie", "2"]);
    assert_eq!(code, Some(0), "{said}");
    let replicas = wait_for(&data, "degraded", "wrong replies");
    let words: Vec<&Value> = replicas.iter().map(|replica| &replica["state"]).collect();
    assert_eq!(words, ["ok", "ok", "wrong replies", "ok"]);
    let item = &replicas[2]["evidence"][0];
    assert_eq!((&item["class"], &item["replica"]), (&"wrong replies".into(), &2.into()));
    assert!(
        item["count"].as_u64() > Some(0) && item["by"].as_str().unwrap().starts_with("client-"),
        "{item}"
    );
    let page = quorate(&["status", "--dir", &data]);
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(
        page.starts_with("DEGRADED") && page.contains("WRONG REPLIES") && page.contains("Q031"),
        "{page}"
    );
    up.down();
}

/// What `status` says: the verdict, further crashes and Byzantine replicas that are tolerated, the state of each replica,
/// and what there is to do.
type Said<'a> = (&'a str, [u64; 2], [&'a str; 4], &'a [&'a str]);

/// Thirteen states of one real cluster, one after the other, each as `quorate fault` makes or ends it.
#[test]
fn thirteen_states_of_a_real_cluster_are_judged_as_they_are() {
    const WELL: Said<'_> = ("healthy", [1, 1], ["ok"; 4], &[]);
    let up = Up::start(Dir::new("twelve"), (own_address(), 6380).into());
    let data = up.dir().join("data");
    let is = |what: &[&[&str]], expected: Said<'_>| {
        for arguments in what {
            let (code, said) = up.fault(arguments);
            assert_eq!(code, Some(0), "{said}");
        }
        let begin = Instant::now();
        loop {
            let (code, cluster, replicas) = status(&data);
            let (verdict, tolerated, words, advice) = expected;
            let margins =
                ["crashes_tolerated", "byzantine_tolerated"].map(|key| cluster[key].as_u64().unwrap());
            let is_so = cluster["verdict"] == verdict
                && margins == tolerated
                && replicas.iter().map(|replica| replica["state"].as_str().unwrap()).eq(words);
            if is_so {
                assert_eq!(code == Some(0), verdict == "healthy");
                let page = quorate(&["status", "--dir", &data]).stdout;
                let page = String::from_utf8(page).unwrap();
                assert!(advice.iter().all(|what| page.contains(what)), "{page}");
                assert_eq!(page.contains("\n  do "), !advice.is_empty(), "{page}");
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{what:?}: not {expected:?}: {cluster} {replicas:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    let heal: &[&[&str]] = &[&["heal", "all"]];
    is(&[], WELL);
    is(
        &[&["kill", "3"]],
        ("degraded", [0, 1], ["ok", "ok", "ok", "silent"], &["replica-3 is silent: check its process"]),
    );
    is(
        &[&["pause", "2", "--yes-break-it"]],
        (
            "halted",
            [0, 1],
            ["ok", "ok", "silent", "silent"],
            &[
                "2 replicas do not answer: nothing is executed, and nothing acknowledged is lost. Start r2 or r3: one of them is enough",
            ],
        ),
    );
    is(heal, WELL);
    is(&[&["kill", "primary"]], ("degraded", [0, 1], ["silent", "ok", "ok", "ok"], &["replica-0 is silent"]));
    is(heal, WELL);
    is(&[&["pause", "1"]], ("degraded", [0, 1], ["ok", "silent", "ok", "ok"], &["replica-1 is silent"]));
    is(heal, WELL);
    is(&[&["wipe", "2"]], WELL);
    is(&[&["corrupt", "3"]], WELL);
    is(
        &[&["kill", "0"], &["kill", "1", "--yes-break-it"], &["kill", "2", "--yes-break-it"]],
        (
            "halted",
            [0, 1],
            ["silent", "silent", "silent", "ok"],
            &[
                "3 replicas do not answer: nothing is executed, and nothing acknowledged is lost. Start r0 or r1 or r2: 2 of them are enough",
            ],
        ),
    );
    is(heal, WELL);
    // The gateway of `up` is the client that sees it.
    let (code, said) = up.fault(&["lie", "2"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(up.redis("set k 1"), "+OK");
    is(
        &[],
        (
            "degraded",
            [0, 0],
            ["ok", "ok", "wrong replies", "ok"],
            &["r2 answers clients wrongly; they use the answers of the others"],
        ),
    );
    up.down();
}
