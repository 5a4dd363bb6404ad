//! `quorate up --demo`, and the faults that it is made of.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Dir, PATIENCE, own_address, quorate};
use crate::up::Up;

/// Starts the story with few keys; what it says goes to a file.
fn begin(dir: &Dir, door: SocketAddr) -> Child {
    let said = File::create(dir.path().join("said.txt")).unwrap();
    Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(["up", "--demo", "--service", "kv", "--demo-keys", "300", "--resp", &door.to_string()])
        .args(["--dir", &dir.join("demo")])
        .stdin(Stdio::null())
        .stderr(said.try_clone().unwrap())
        .stdout(said)
        .spawn()
        .unwrap()
}

fn said(dir: &Dir) -> String {
    fs::read_to_string(dir.path().join("said.txt")).unwrap()
}

/// The whole story ends well, leaves nothing running, and can be told again in its own directory.
#[test]
fn the_story_ends_well() {
    let (dir, door) = (Dir::new("demo"), SocketAddr::new(own_address(), 6380));
    let status = begin(&dir, door).wait().unwrap();
    let text = said(&dir);
    assert!(status.success(), "{text}");
    for step in 1..=5 {
        let line = text.lines().find(|line| line.starts_with(&format!("  {step} "))).unwrap_or("");
        assert!(line.contains(" ok "), "step {step}: {text}");
    }
    assert!(
        text.contains("300 of 300 keys")
            && text.contains("all digests agree at ")
            && text.contains("\nnothing was lost."),
        "{text}"
    );
    assert!(TcpStream::connect(door).is_err(), "the gateway still listens");
    assert!(dir.path().join("demo/made-by-quorate-up-demo").exists());
}

/// The story of the file system ends well too, and every replica's file system is in order after it.
#[test]
fn the_story_of_the_file_system_ends_well() {
    let (dir, door) = (Dir::new("demo-files"), SocketAddr::new(own_address(), 20490));
    let told = quorate(&[
        "up",
        "--demo",
        "--demo-files",
        "45",
        "--nfs",
        &door.to_string(),
        "--dir",
        &dir.join("demo"),
    ]);
    let text = String::from_utf8([told.stdout, told.stderr].concat()).unwrap();
    assert!(told.status.success(), "{text}");
    for (step, says) in [
        (1, "a tree of 45 files through a FUSE mount"),
        (2, "no commit for "),
        (3, "0 seen by the client"),
        (4, " fetched of "),
        (5, "compiled and run, "),
        (6, "4 of 4 clean"),
    ] {
        let line = text.lines().find(|line| line.starts_with(&format!("  {step} "))).unwrap_or("");
        assert!(line.contains(" ok ") && line.contains(says), "step {step}: {text}");
    }
    assert!(text.contains("\nnothing was lost."), "{text}");
}

/// On a machine that cannot mount it is told through a client of its own, and says so.
#[test]
fn the_story_is_told_without_a_mount_where_there_can_be_none() {
    let (dir, door) = (Dir::new("demo-unmounted"), SocketAddr::new(own_address(), 20490));
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    // Another file is in the place of the kernel's device.
    let without = "mount --bind /dev/null /dev/fuse && exec \"$@\"";
    let told = command
        .args(["--mount", "sh", "-c", without, "sh", env!("CARGO_BIN_EXE_quorate"), "up", "--demo"])
        .args(["--demo-files", "45", "--nfs", &door.to_string(), "--dir", &dir.join("demo")])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8([told.stdout, told.stderr].concat()).unwrap();
    assert!(told.status.success(), "{text}");
    for says in [
        "a tree of 45 files (no FUSE on this machine)",
        "45 of 45 files",
        "4 of 4 clean",
        "nothing was lost.",
    ] {
        assert!(text.contains(says), "{text}");
    }
    assert!(!text.contains("compiled"), "{text}");
}

/// A file is changed behind its back while it is told: it says which, and ends with status 1.
#[test]
fn a_changed_file_is_noticed() {
    let (dir, door) = (Dir::new("demo-changed"), SocketAddr::new(own_address(), 20490));
    let said = File::create(dir.path().join("said.txt")).unwrap();
    let mut process = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(["up", "--demo", "--demo-files", "45", "--nfs", &door.to_string(), "--dir", &dir.join("demo")])
        .stdin(Stdio::null())
        .stderr(said.try_clone().unwrap())
        .stdout(said)
        .spawn()
        .unwrap();
    let start = Instant::now();
    let said = || fs::read_to_string(dir.path().join("said.txt")).unwrap();
    while !said().contains("  1 wrote") {
        assert!(process.try_wait().unwrap().is_none() && start.elapsed() < PATIENCE, "{}", said());
        std::thread::sleep(Duration::from_millis(5));
    }
    let (other, client) = (dir.join("other"), dir.join("demo/cluster/client-3"));
    fs::write(&other, "something else").unwrap();
    let copied = quorate(&["fs", "--dir", &client, "cp", &other, "q:/tree/0000/f000003.c"]);
    assert!(copied.status.success(), "{copied:?}");
    assert_eq!(process.wait().unwrap().code(), Some(1), "{}", said());
    assert!(said().contains("tree/0000/f000003.c does not hold what was written"), "{}", said());
    assert!(!said().contains("nothing was lost"), "{}", said());
}

/// Somebody deletes a key while it is told: it says which, and ends with status 1.
#[test]
fn a_lost_key_is_noticed() {
    let (dir, door) = (Dir::new("demo-lost"), SocketAddr::new(own_address(), 6380));
    let mut process = begin(&dir, door);
    let start = Instant::now();
    while !said(&dir).contains("  1 wrote") {
        assert!(process.try_wait().unwrap().is_none() && start.elapsed() < PATIENCE, "{}", said(&dir));
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut stream = TcpStream::connect(door).unwrap();
    stream.write_all(b"DEL demo:000017\r\nQUIT\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with(":1"), "{reply}");
    assert_eq!(process.wait().unwrap().code(), Some(1), "{}", said(&dir));
    let text = said(&dir);
    assert!(text.contains("FAILED") && text.contains("error Q045: step "), "{text}");
    assert!(text.contains("1 of 300 keys are missing, demo:000017 the first"), "{text}");
    assert!(!text.contains("nothing was lost"), "{text}");
}

/// What is not its own is left alone.
#[test]
fn a_directory_of_somebody_elses_is_refused() {
    let dir = Dir::new("demo-other");
    fs::write(dir.path().join("letter"), "dear").unwrap();
    let refused = quorate(&["up", "--demo", "--dir", &dir.join("")]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).starts_with("error Q021"), "{refused:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let refused = quorate(&["up", "--demo", "--f", "2"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

/// A liar is outvoted, counts as one of f, and is healed; so is one that is slow. What does not exist is told.
#[test]
fn a_liar_and_a_slow_one_are_broken_and_healed() {
    let up = Up::start(Dir::new("fault-lie"), SocketAddr::new(own_address(), 6380));
    assert_eq!(up.redis("SET k one"), "+OK");
    for (arguments, code, says) in [
        (&["lie", "2", "--how", "wrong-repyl"][..], "Q002", "Nearest: wrong-reply"),
        (&["slow", "2", "--how", "soon"], "Q002", "500ms or 10s"),
        (&["kill", "2", "--how", "mute"], "Q004", "--how is only for lie and slow"),
    ] {
        let (status, said) = up.fault(arguments);
        assert!(status == Some(2) && said.contains(code) && said.contains(says), "{said}");
    }
    let (status, said) = up.fault(&["lie", "2"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.starts_with("r2 now answers clients with wrong values"), "{said}");
    // It is asked for what is ordered; reads soon leave it out.
    for _ in 0..50 {
        assert_eq!(up.redis("SET k one"), "+OK");
        assert_eq!(up.redis("GET k"), "$3\r\none");
    }
    // Not `primary`: on a busy machine that may be r2 by now, and it may be killed.
    let (status, said) = up.fault(&["kill", "3"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(
        said.starts_with("error Q044: r2 lies (wrong-reply) already and f = 1: one more fault"),
        "{said}"
    );
    assert!(said.contains("do: quorate fault heal 2"), "{said}");
    let (_, said) = up.fault(&["lie", "3"]);
    assert!(said.contains("could make clients accept wrong results"), "{said}");
    let (status, said) = up.fault(&["heal", "2"]);
    assert_eq!(status, Some(0), "{said}");
    let log = fs::read_to_string(up.dir().path().join("data/replica-2/replica.log")).unwrap();
    let (_, told) = log.rsplit_once("told=").unwrap();
    // The last requests may have been answered by the others, and r2 stopped before it came to them.
    assert!(told.lines().next().unwrap().parse::<u64>().unwrap() >= 25, "{log}");

    let (status, said) = up.fault(&["slow", "3", "--how", "30ms"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.starts_with("r3 now sends every message 30 ms late"), "{said}");
    assert_eq!(up.redis("APPEND k !"), ":4");
    let (status, said) = up.fault(&["heal", "r3"]);
    assert_eq!(status, Some(0), "{said}");
    // Who lied is needed now, and has the truth on its disk.
    let (status, said) = up.fault(&["kill", "primary"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("next commit after ") && said.contains(", primary r"), "{said}");
    assert_eq!(up.redis("GET k"), "$4\r\none!");
    // The present primary, which is not always the first replica.
    let first = said[1..2].to_owned();
    let other = if first == "1" { "0" } else { "1" };
    let (status, said) = up.fault(&["kill", other, "--yes-break-it"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("no commit for 5 s: the service has halted"), "{said}");
    for id in [&*first, other] {
        assert_eq!(up.fault(&["heal", id]).0, Some(0));
    }
    assert_eq!(up.redis("APPEND k !"), ":5");
    up.down();
}
