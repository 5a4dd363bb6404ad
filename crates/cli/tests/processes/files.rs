//! The file system as processes: by NFS with a client of somebody else's, and without a mount.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use quorate_node::caller::CallerOptions;
use quorate_node::files::{Files, Machine, User};
use quorate_node::{Caller, ClientNode};

use crate::support::{Cluster, Dir, PATIENCE, own_address, quorate};

/// A relay, until this is dropped.
pub(crate) struct Relay {
    process: Child,
    pub(crate) address: SocketAddr,
}

impl Relay {
    pub(crate) fn start(cluster: &Cluster, client: u64) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_quorate"))
            .args(["nfs", "--listen", &address.to_string(), "--dir"])
            .arg(cluster.dir.path().join(format!("c/client-{client}")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let until = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(address).is_err() {
            assert!(Instant::now() < until, "the relay does not listen");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Self { process, address }
    }

    fn libnfs(&self, program: &str, before: &[&str], path: &str) -> Output {
        libnfs(self.address, program, before, path)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a program of Debian's package `libnfs-utils` on a path.
fn libnfs(relay: SocketAddr, program: &str, before: &[&str], path: &str) -> Output {
    let (ip, port) = (relay.ip(), relay.port());
    let url = format!("nfs://{ip}//{path}?version=3&nfsport={port}&mountport={port}");
    let output = Command::new(program).args(before).arg(url).stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}: apt-get install libnfs-utils"))
}

fn cluster(name: &str) -> Cluster {
    cluster_with(name, "")
}

fn cluster_with(name: &str, lines: &str) -> Cluster {
    let exports = "fs_exports = \"/(rw,no_root_squash)\"";
    Cluster::start(name, &["--service", "fs"], &format!("{exports}\n{lines}"))
}

#[track_caller]
fn text(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What an NFS client of somebody else's writes is there for the next one, with a replica killed in between.
#[test]
fn a_client_of_somebody_elses_mounts_it() {
    let mut cluster = cluster("nfs");
    let relay = Relay::start(&cluster, 0);
    let local = cluster.dir.join("data");
    let data: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&local, &data).unwrap();
    let copied = relay.libnfs("nfs-cp", &[&local], "copy");
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    cluster.kill(0);
    let read = relay.libnfs("nfs-cat", &[], "copy");
    assert!(read.status.success() && read.stdout == data, "{}", String::from_utf8_lossy(&read.stderr));
    let listed = text(relay.libnfs("nfs-ls", &[], ""));
    assert!(listed.contains("1200000") && listed.contains("copy"), "{listed}");
}

/// A relay keeps nothing: with one killed the other has all that went through it, and so has one that comes new.
#[test]
fn a_relay_that_dies_takes_nothing_with_it() {
    let cluster = cluster("relays");
    let (local, other) = (cluster.dir.join("data"), cluster.dir.join("other"));
    fs::write(&local, b"through the first").unwrap();
    fs::write(&other, b"through the second").unwrap();
    let first = Relay::start(&cluster, 0);
    let second = Relay::start(&cluster, 1);
    let copied = first.libnfs("nfs-cp", &[&local], "a");
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    let address = first.address;
    drop(first);
    assert!(!libnfs(address, "nfs-cat", &[], "a").status.success(), "a relay that is dead answers");
    assert_eq!(text(second.libnfs("nfs-cat", &[], "a")), "through the first");
    let copied = second.libnfs("nfs-cp", &[&other], "b");
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    let first = Relay::start(&cluster, 0);
    assert_eq!(text(first.libnfs("nfs-cat", &[], "b")), "through the second");
    // What is not exported is not found, and what is gone is told.
    assert!(!first.libnfs("nfs-cat", &[], "nothing").status.success());
}

/// Files go in and out without a mount, beside a relay; what goes wrong is told in the words of a file system.
#[test]
fn files_are_used_without_a_mount() {
    let cluster = cluster("files");
    let client = cluster.dir.join("c/client-1");
    let fs = |arguments: &[&str]| quorate(&[&["fs", "--dir", &client], arguments].concat());
    let (local, back) = (cluster.dir.join("data"), cluster.dir.join("back"));
    let data: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&local, &data).unwrap();
    text(fs(&["mkdir", "q:/reports"]));
    text(fs(&["cp", &local, "q:/reports"]));
    text(fs(&["cp", "q:/reports/data", &back]));
    assert!(std::fs::read(&back).unwrap() == data);
    assert_eq!(text(fs(&["ls", "q:/reports"])), "data\n");
    assert!(text(fs(&["ls", "-l", "q:/"])).starts_with("drwxr-xr-x"));
    assert!(fs(&["cat", "q:/reports/data"]).stdout == data);
    assert!(text(fs(&["df"])).contains("free"));
    let relay = Relay::start(&cluster, 0);
    assert!(text(relay.libnfs("nfs-ls", &[], "reports")).contains("400000"));
    for (arguments, says) in [
        (&["cat", "q:/nothing"][..], "no such file or directory"),
        (&["rm", "q:/reports"], "directory not empty"),
        (&["mkdir", "q:/reports"], "file exists"),
        (&["cp", &local, &back], "exactly one of the two paths must begin with q:"),
        (&["cat", &local], "a path in the file system must begin with q:"),
    ] {
        let output = fs(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(says), "{arguments:?}: {error}");
    }
    text(fs(&["rm", "q:/reports/data"]));
    text(fs(&["rm", "q:/reports"]));
    assert_eq!(text(fs(&["ls"])), "");
}

/// What the file system refuses is told as what it is, with what to do; and a file that was to be replaced is as it was.
#[test]
fn a_refusal_is_told_as_what_it_is_and_costs_nothing() {
    let exports = "fs_exports = \"/(rw,no_root_squash) /d(rw,all_squash) /closed(rw,all_squash) /fixed(ro)\"";
    let lines = format!("{exports}\nfs_capacity = \"2MiB\"\nfs_quota_bytes = \"64KiB\"");
    let mut cluster = Cluster::start("refusals", &["--service", "fs"], &lines);
    let client = cluster.dir.join("c/client-1");
    let fs =
        |arguments: &[&str]| quorate(&[&["fs", "--deadline", "3s", "--dir", &client], arguments].concat());
    let (small, middle, large) =
        (cluster.dir.join("small"), cluster.dir.join("middle"), cluster.dir.join("large"));
    for (path, len) in [(&small, 5), (&middle, 300 << 10), (&large, 4 << 20)] {
        std::fs::write(path, vec![7; len]).unwrap();
    }
    // A directory in which everyone may make files; the others are root's.
    let node = ClientNode::open(&cluster.dir.path().join("c/client-0")).unwrap();
    let machine = Machine::of(&node);
    let caller = Caller::start(node.with_lanes(4), CallerOptions { lanes: 4, deadline: PATIENCE }).unwrap();
    let files = Files::open(caller, machine, &User::default(), "/", 1).unwrap();
    let root = files.find("/", true).unwrap();
    for (name, mode) in [("d", 0o777), ("closed", 0o755), ("fixed", 0o777)] {
        files.make_directory(&root, name, mode).unwrap();
    }
    for place in ["q:/a", "q:/d/a", "q:/closed/a", "q:/fixed/a"] {
        text(fs(&["cp", &small, place]));
    }
    let as_it_was = || {
        for place in ["q:/a", "q:/d/a", "q:/closed/a", "q:/fixed/a"] {
            assert_eq!(fs(&["cat", place]).stdout, [7; 5], "{place}");
        }
        assert_eq!(text(fs(&["ls"])), "a\nclosed\nd\nfixed\n");
        for dir in ["q:/d", "q:/closed", "q:/fixed"] {
            assert_eq!(text(fs(&["ls", dir])), "a\n");
        }
    };
    as_it_was();
    for (arguments, code, says, next) in [
        (&["cp", &large, "q:/a"][..], "Q055", "no space left", "fs_capacity"),
        (&["--export", "/d", "cp", &middle, "q:/b"], "Q055", "quota exceeded", "fs_quota_bytes"),
        (&["--export", "/closed", "cp", &small, "q:/a"], "Q056", "permission denied", "ls -l"),
        (&["--export", "/closed", "cp", &small, "q:/b"], "Q056", "permission denied", "ls -l"),
        (&["--export", "/closed", "rm", "q:/a"], "Q056", "permission denied", "ls -l"),
        (&["--export", "/fixed", "cp", &small, "q:/b"], "Q056", "read-only", "--export"),
        (&["--export", "/other", "ls"], "Q050", "cannot mount the export", "fs_exports"),
        (&["cp", &small, "q:/nothing/b"], "Q050", "no such file", "quorate fs ls"),
    ] {
        let output = fs(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        let is_told = [code, says, next].iter().all(|word| error.contains(word));
        assert!(output.status.code() == Some(1) && is_told, "{arguments:?}: {error}");
        as_it_was();
    }
    // Out of it too: what was to be replaced here is as it was.
    let output = fs(&["cp", "q:/d", &small]);
    assert!(!output.status.success() && std::fs::read(&small).unwrap() == [7; 5]);
    // What is replaced keeps its owner.
    text(fs(&["--export", "/d", "cp", &small, "q:/mine"]));
    text(fs(&["cp", &small, "q:/d/mine"]));
    let new = files.attributes(&files.find("/d/mine", true).unwrap()).unwrap();
    assert_eq!((new.uid, new.mode & 0o777), (65_534, 0o644));
    // With the cluster away nothing is said of the file, and it is what it was when the cluster is back.
    (0..4).for_each(|i| cluster.kill(i));
    for arguments in [["cp", &middle, "q:/a"], ["cp", "q:/a", &middle]] {
        let away = fs(&arguments);
        assert_eq!(away.status.code(), Some(3), "{}", String::from_utf8_lossy(&away.stderr));
    }
    assert!(std::fs::read(&middle).unwrap() == vec![7; 300 << 10]);
    (0..4).for_each(|i| cluster.run(i));
    let until = Instant::now() + PATIENCE;
    while fs(&["cat", "q:/a"]).stdout != [7; 5] {
        assert!(Instant::now() < until, "it does not come back");
    }
}

/// A replica that has stopped has its file system checked: image and log together are all that was written.
#[test]
fn the_state_of_a_replica_that_stopped_is_checked() {
    let mut cluster = cluster_with("fsck", "log_bytes_max = \"1MiB\"\ncheckpoint_interval = 16\nwindow = 32");
    let client = cluster.dir.join("c/client-0");
    let fs = |arguments: &[&str]| text(quorate(&[&["fs", "--dir", &client], arguments].concat()));
    let local = cluster.dir.join("data");
    std::fs::write(&local, vec![7; 3 << 20]).unwrap();
    fs(&["mkdir", "q:/d"]);
    fs(&["cp", &local, "q:/d/large"]);
    for i in 0..5 {
        fs(&["mkdir", &format!("q:/d/{i}")]);
    }
    let replica = cluster.replica_dir(1).display().to_string();
    let check = |dir: &str| quorate(&["fs", "--dir", dir, "fsck", "--json"]);
    let running = check(&replica);
    assert_eq!(running.status.code(), Some(2), "{}", String::from_utf8_lossy(&running.stderr));
    assert!(String::from_utf8_lossy(&running.stderr).contains("Q022"));
    assert!(String::from_utf8_lossy(&check(&client).stderr).contains("a client keeps no state"));
    cluster.stop(1);
    for _ in 0..2 {
        let said: serde_json::Value = serde_json::from_str(&text(check(&replica))).unwrap();
        assert_eq!((&said["clean"], &said["agrees"]), (&true.into(), &true.into()), "{said}");
        // The root, d, five directories, a file of 3 MiB.
        assert_eq!((&said["inodes"], &said["names"]), (&8.into(), &7.into()), "{said}");
        assert!(said["pages"].as_u64().unwrap() >= 768, "{said}");
    }
    assert!(text(quorate(&["fs", "--dir", &replica, "fsck"])).ends_with("clean\n"));
    // It has not been touched: it comes back with all that it had.
    cluster.run(1);
    cluster.kill(2);
    assert_eq!(fs(&["ls", "q:/d"]), "0\n1\n2\n3\n4\nlarge\n");
    assert!(!cluster.log(1).contains("state is lost"), "{}", cluster.log(1));
}

/// One command exports a file system, and another time it has what was written.
#[test]
fn one_command_exports_a_file_system() {
    let (dir, ip) = (Dir::new("up-fs"), own_address());
    let (data, local) = (dir.join("data"), dir.join("local"));
    std::fs::write(&local, b"hello").unwrap();
    let door = SocketAddr::new(ip, 20490);
    let page = SocketAddr::new(ip, 9640).to_string();
    for round in 0..2 {
        let mut arguments =
            vec!["up".to_owned(), "--dir".to_owned(), data.clone(), "--nfs".to_owned(), door.to_string()];
        arguments.extend(["--status".to_owned(), page.clone()]);
        if round == 0 {
            // The default is a file system.
            arguments.push("--host".to_owned());
            arguments.push(ip.to_string());
        }
        let said = std::fs::File::create(dir.path().join("up.txt")).unwrap();
        let mut up = Command::new(env!("CARGO_BIN_EXE_quorate"))
            .args(&arguments)
            .stdin(Stdio::null())
            .stderr(said.try_clone().unwrap())
            .stdout(said)
            .spawn()
            .unwrap();
        let text = || std::fs::read_to_string(dir.path().join("up.txt")).unwrap();
        let until = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(door).is_err() || !text().contains("tolerates 1 more crash") {
            assert!(up.try_wait().unwrap().is_none() && Instant::now() < until, "{}", text());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(text().contains("sudo mount -t nfs -o vers=3"), "{}", text());
        if round == 0 {
            let copied = libnfs(door, "nfs-cp", &[&local], "hello");
            assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        }
        assert_eq!(libnfs(door, "nfs-cat", &[], "hello").stdout, b"hello");
        assert!(quorate(&["down", "--dir", &data]).status.success());
        assert!(up.wait().unwrap().success());
    }
}
