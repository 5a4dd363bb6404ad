//! The errors an application gets from a gateway of the file system; and more than one gateway at a time.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quorate_fs::nfs3::Stat;
use quorate_fs::nfs3::mount3::MountStat;

use crate::files::Relay;
use crate::mount::Mount;
use crate::peer::Peer;
use crate::support::{Cluster, PATIENCE, quorate};

const NO_SPACE: i32 = 28;

/// Makes and starts a cluster with these settings.
fn running(name: &str, lines: &str) -> Cluster {
    let mut cluster = Cluster::make(name, &["--service", "fs"], lines);
    (0..4).for_each(|i| cluster.run(i));
    cluster
}

/// Stops a replica and has its file system checked.
fn check(cluster: &mut Cluster) {
    assert!(cluster.stop(1).success());
    let dir = cluster.replica_dir(1).display().to_string();
    let output = quorate(&["fs", "--dir", &dir, "fsck", "--json"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["clean"], true, "{said}");
    cluster.run(1);
}

/// Runs a program of `libnfs-utils` as a user, in one export alone.
fn libnfs(relay: &Relay, program: &str, before: &[&str], path: &str, uid: u32) -> Output {
    let (ip, port) = (relay.address.ip(), relay.address.port());
    let url = format!(
        "nfs://{ip}//{path}?version=3&nfsport={port}&mountport={port}&auto-traverse-mounts=0&autoreconnect=0\
         &uid={uid}&gid={uid}"
    );
    let output = Command::new(program).args(before).arg(url).stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}: apt-get install libnfs-utils"))
}

#[track_caller]
fn fails_with(output: &Output, words: &str) {
    let says = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && says.contains(words), "{words}: {says}");
}

/// Copies with `dd`, as a user who is not root, and returns what it says.
fn dd(to: &Path, flags: &[&str]) -> Output {
    let mut command = Command::new("dd");
    command.arg("if=/dev/zero").arg(format!("of={}", to.display())).args(flags);
    if nix::unistd::geteuid().is_root() {
        command.uid(1000).gid(1000);
    }
    command.env("LC_ALL", "C").stdin(Stdio::null()).output().unwrap()
}

/// A read-only export, a squashed root, an export for others, one that is not there; a share that is used up, and a disk
/// that is full: each is told to the application as what it is, and what was there before is there after.
#[test]
fn what_is_refused_is_told_in_its_word() {
    let mut cluster = running(
        "refused",
        "fs_exports = \"/(rw,no_root_squash) /ro(ro) /squashed(rw,root_squash) /far(rw,192.0.2.0/24)\"\n\
         fs_capacity = \"4MiB\"\nfs_quota_bytes = \"256KiB\"\nfs_quota_inodes = 3",
    );
    let is_root = nix::unistd::geteuid().is_root();
    let mut mount = Mount::start(&cluster, 1, if is_root { &["--allow-other"] } else { &[] });
    let at = |name: &str| mount.dir.join(name);
    let relay = Relay::start(&cluster, 0);
    let local = cluster.dir.join("local");
    fs::write(&local, b"hello").unwrap();
    for name in if is_root { &["ro", "squashed", "far"][..] } else { &["squashed"] } {
        fs::create_dir(at(name)).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o777)).unwrap();
    }
    // Exports. A directory that does not exist cannot be mounted, even within an export that may be used.
    fails_with(&libnfs(&relay, "nfs-ls", &[], "nothing/", 0), "MNT3ERR_NOENT");
    if is_root {
        fails_with(&libnfs(&relay, "nfs-cp", &[&local], "ro/x", 0), "NFS3ERR_ROFS");
        fails_with(&libnfs(&relay, "nfs-ls", &[], "far/", 0), "MNT3ERR_ACCES");
    }
    // Root is nobody there: what belongs to somebody else is closed, and what he makes is nobody's.
    fs::write(at("squashed/secret"), b"secret").unwrap();
    fs::set_permissions(at("squashed/secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let owner = if is_root { 1000 } else { nix::unistd::geteuid().as_raw() };
    if is_root {
        chown(at("squashed/secret"), Some(1000), Some(1000)).unwrap();
    }
    fails_with(&libnfs(&relay, "nfs-cat", &[], "squashed/secret", 0), "ACCESS denied");
    assert_eq!(libnfs(&relay, "nfs-cat", &[], "squashed/secret", owner).stdout, b"secret");
    let made = libnfs(&relay, "nfs-cp", &[&local], "squashed/roots", 0);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let listed = libnfs(&relay, "nfs-ls", &[], "squashed/", 0).stdout;
    assert!(String::from_utf8(listed).unwrap().contains("65534 65534            5 roots"));
    // The share of a user: 64 pages and three files, of which he has one. Then he can write over what is his.
    let full = dd(&at("share"), &["bs=300K", "count=1"]);
    fails_with(&full, "Disk quota exceeded");
    assert_eq!(fs::metadata(at("share")).unwrap().len(), 256 << 10);
    let over = dd(&at("share"), &["bs=64K", "count=4", "conv=notrunc"]);
    assert!(over.status.success(), "{}", String::from_utf8_lossy(&over.stderr));
    fails_with(&dd(&at("share"), &["bs=1K", "count=1", "seek=256", "conv=notrunc"]), "Disk quota exceeded");
    if is_root {
        assert!(dd(&at("small"), &["bs=100", "count=1"]).status.success());
        fails_with(&dd(&at("more"), &["bs=100", "count=1"]), "Disk quota exceeded");
        // A full disk; another user, whose share is not, fares no better.
        let data: Vec<u8> = (0..6_u32 << 20).map(|i| u8::try_from(i % 251).unwrap()).collect();
        fs::write(at("big"), b"").unwrap();
        let big = OpenOptions::new().read(true).write(true).open(at("big")).unwrap();
        let mut written = 0;
        let error = loop {
            match big.write_at(&data[written..], written as u64) {
                Ok(count) => written += count,
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(NO_SPACE), "{error}");
        assert!(written > 2 << 20 && fs::metadata(at("big")).unwrap().len() == written as u64);
        assert_eq!(fs::write(at("another"), b"x").unwrap_err().raw_os_error(), Some(NO_SPACE));
        fails_with(&libnfs(&relay, "nfs-cp", &[&local], "another", 0), "NFS3ERR_NOSPC");
        big.write_all_at(&data[1..=8192], 0).unwrap();
        drop(big);
        let mut expected = data[..written].to_vec();
        expected[..8192].copy_from_slice(&data[1..=8192]);
        assert!(libnfs(&relay, "nfs-cat", &[], "big", 0).stdout == expected);
        // What is removed makes room.
        fs::remove_file(at("big")).unwrap();
        fs::write(at("another"), &data[..2 << 20]).unwrap();
    }
    mount.stop();
    check(&mut cluster);
}

/// Two relays of one file system, used by two clients on one directory at the same time: each name is made by one of
/// them, and both see all. A client with four connections has one file. A relay that dies takes nothing with it that it
/// has answered. With the cluster away reads are put off and a mount fails; then all continues.
#[test]
fn two_relays_are_used_at_once_one_dies_and_the_cluster_goes_away() {
    let mut cluster = running("gateways", "fs_exports = \"/(rw,no_root_squash)\"");
    let (one, mut two) = (Relay::start(&cluster, 0), Some(Relay::start(&cluster, 1)));
    let second = two.as_ref().unwrap().address;
    both_make_the_same_names(&one, two.as_ref().unwrap());
    four_connections_have_one_file(&one, second);
    let data: Vec<u8> = (0..48_u32 << 20).map(|i| u8::try_from(i % 251).unwrap()).collect();
    dies_amid_a_transfer(&cluster, &one, &mut two, &data);
    check(&mut cluster);
    with_the_cluster_away(&mut cluster, &one);
    check(&mut cluster);
}

fn both_make_the_same_names(one: &Relay, two: &Relay) {
    const NAMES: usize = 80;
    let begin = Barrier::new(2);
    let made: Vec<Vec<bool>> = std::thread::scope(|scope| {
        let client = |relay: &Relay, first: u32| {
            let mut peer = Peer::connect(relay.address, 0, first);
            let root = peer.mount("/").unwrap();
            begin.wait();
            let mut made = Vec::new();
            for name in 0..NAMES {
                let created = peer.create(&root, &format!("both-{name}")).unwrap();
                assert!(created.is_ok() || created == Err(Stat::Exist), "{created:?}");
                made.push(created.is_ok());
                peer.create(&root, &format!("{first}-{name}")).unwrap().unwrap();
            }
            made
        };
        let (a, b) = (scope.spawn(move || client(one, 1000)), scope.spawn(move || client(two, 500_000)));
        [a, b].into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(made[0].iter().zip(&made[1]).all(|(a, b)| a != b), "a name was made by one of them: {made:?}");
    let names = |relay: &Relay| {
        let listed = String::from_utf8(libnfs(relay, "nfs-ls", &[], "", 0).stdout).unwrap();
        let mut names: Vec<String> =
            listed.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    let (all, others) = (names(one), names(two));
    assert!(all.len() == 3 * NAMES && all == others, "{} and {} names", all.len(), others.len());
}

fn four_connections_have_one_file(one: &Relay, other: std::net::SocketAddr) {
    const PIECE: usize = 64 << 10;
    const PIECES: usize = 64;
    const CONNECTIONS: usize = 4;
    let data: Vec<u8> = (0..PIECE * PIECES).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
    let mut first = Peer::connect(one.address, 0, 1_000_000);
    let root = first.mount("/").unwrap();
    let file = first.create(&root, "four").unwrap().unwrap();
    let over_all = |work: &(dyn Fn(&mut Peer, usize) + Sync)| {
        std::thread::scope(|scope| {
            for connection in 0..CONNECTIONS {
                let number = 2_000_000 + u32::try_from(connection).unwrap() * 10_000;
                let mut peer = Peer::connect(one.address, 0, number);
                scope.spawn(move || {
                    let mine = (0..PIECES).skip(connection).step_by(CONNECTIONS);
                    mine.for_each(|piece| work(&mut peer, piece * PIECE));
                });
            }
        });
    };
    over_all(&|peer, at| {
        let part = &data[at..at + PIECE];
        assert_eq!(peer.write(&file, at as u64, part).unwrap(), Ok(65_536));
    });
    // What one connection wrote another one reads.
    over_all(&|peer, at| {
        let at = (at + PIECE) % data.len();
        assert!(peer.read(&file, at as u64, 65_536).unwrap() == data[at..at + PIECE], "at {at}");
    });
    let mut peer = Peer::connect(other, 0, 3_000_000);
    assert_eq!(peer.size(&file), Ok(4 << 20));
}

fn dies_amid_a_transfer(cluster: &Cluster, one: &Relay, two: &mut Option<Relay>, data: &[u8]) {
    const PIECE: usize = 32 << 10;
    let local = cluster.dir.join("large");
    fs::write(&local, data).unwrap();
    let relay = two.as_ref().unwrap();
    let mut writer = Peer::connect(relay.address, 0, 4_000_000);
    let root = writer.mount("/").unwrap();
    let file = writer.create(&root, "pieces").unwrap().unwrap();
    let acknowledged = AtomicU64::new(0);
    let (ip, port) = (relay.address.ip(), relay.address.port());
    let url = format!("nfs://{ip}//large?version=3&nfsport={port}&mountport={port}&autoreconnect=0");
    let mut copy = Command::new("nfs-cp").args([&local, &url]).stdin(Stdio::null()).spawn().unwrap();
    std::thread::scope(|scope| {
        let (acknowledged, file) = (&acknowledged, &file);
        scope.spawn(move || {
            for (index, piece) in data.chunks(PIECE).enumerate() {
                let Ok(done) = writer.write(file, (index * PIECE) as u64, piece) else { return };
                assert_eq!(done, Ok(32_768));
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            panic!("the relay did not die in time");
        });
        let until = Instant::now() + PATIENCE;
        while acknowledged.load(Ordering::Relaxed) < 20 {
            assert!(Instant::now() < until, "nothing is written");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(two.take());
    });
    // The client of somebody else's ends, and says that it failed.
    let until = Instant::now() + PATIENCE;
    let ended = loop {
        if let Some(ended) = copy.try_wait().unwrap() {
            break ended;
        }
        if Instant::now() > until {
            copy.kill().unwrap();
            panic!("a client of a dead relay does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(!ended.success(), "it copied all before the relay died");
    // What was acknowledged is there; the piece that was on its way is there wholly, or not at all.
    let mut reader = Peer::connect(one.address, 0, 5_000_000);
    let acknowledged = usize::try_from(acknowledged.into_inner()).unwrap() * PIECE;
    let size = usize::try_from(reader.size(&file).unwrap()).unwrap();
    assert!(size == acknowledged || size == acknowledged + PIECE, "{size} of {acknowledged}");
    for at in (0..size).step_by(PIECE) {
        assert!(reader.read(&file, at as u64, 32_768).unwrap() == data[at..at + PIECE], "at {at}");
    }
    let copied = libnfs(one, "nfs-cat", &[], "large", 0).stdout;
    assert!(data.starts_with(&copied), "{} bytes were copied", copied.len());
}

fn with_the_cluster_away(cluster: &mut Cluster, relay: &Relay) {
    let mut peer = Peer::connect(relay.address, 0, 6_000_000);
    let root = peer.mount("/").unwrap();
    let file = peer.create(&root, "away").unwrap().unwrap();
    assert_eq!(peer.write(&file, 0, b"before").unwrap(), Ok(6));
    cluster.kill(2);
    cluster.kill(3);
    std::thread::scope(|scope| {
        // A change waits, however long: nothing says that it was not done.
        let mut writer = Peer::connect(relay.address, 0, 7_000_000);
        let root = &root;
        let late = scope.spawn(move || writer.create(root, "late").unwrap());
        let mut another = Peer::connect(relay.address, 0, 8_000_000);
        let refused = scope.spawn(move || another.mount("/"));
        let listed = scope.spawn(|| libnfs(relay, "nfs-ls", &[], "", 0));
        assert_eq!(peer.read(&file, 0, 10), Err(Stat::Jukebox));
        assert_eq!(refused.join().unwrap(), Err(MountStat::ServerFault));
        let listed = listed.join().unwrap();
        fails_with(&listed, "Failed to mount");
        assert!(!late.is_finished());
        cluster.run(2);
        cluster.run(3);
        late.join().unwrap().unwrap();
    });
    assert_eq!(peer.read(&file, 0, 10).unwrap(), b"before");
    assert_eq!(peer.create(&root, "late").unwrap(), Err(Stat::Exist), "it was made once");
    assert_eq!(libnfs(relay, "nfs-cat", &[], "away", 0).stdout, b"before");
}
