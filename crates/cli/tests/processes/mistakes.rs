//! Mistakes that a user makes, as one list. Each is answered with what is wrong, where, what to do, a code and the exit
//! status that the code has; and nothing is damaged. A disk that is full or read-only is in `tests/mistakes/disk.rs`.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::stat::Mode;
use nix::unistd::{geteuid, mkfifo};

use super::mount::running;
use super::up::Up;
use crate::support::{Dir, content, own_address, quorate};

/// A mistake on the command line: its name, the arguments, the code, and what the answer contains as well. `{up}` is the
/// directory of a cluster that `quorate up` runs, `{fs}` one of a cluster of files that runs, `{rest}` one of a cluster at
/// rest, `{dir}` one for what is new, `{taken}` an address that is taken, and `{free}` one that is not.
type Mistake = (&'static str, &'static str, &'static str, &'static [&'static str]);

const COMMANDS: &[Mistake] = &[
    ("a command", "statsu", "Q001", &["`statsu`. Nearest: status"]),
    ("a flag", "up --serivce kv", "Q001", &["`--serivce`. Nearest: --service"]),
    ("a service", "up --dir {dir}/n --service redis", "Q002", &["`redis`", "fs, kv, null", "--> --service"]),
    ("an experiment", "bench run nope", "Q014", &["`nope`", "do: quorate bench list"]),
    ("a scenario", "sim run --scenario nope", "Q005", &["`nope`", "do: quorate sim list"]),
    ("a code", "explain Q999", "Q013", &["`Q999`", "do: quorate explain"]),
    ("a seed", "sim run --seed abc", "Q002", &["`abc`", "7 or 0x2f81", "--> --seed"]),
    ("no seeds", "sim run --seeds 0", "Q002", &["`0`", "above 0", "--> --seeds"]),
    ("a directory that is none", "replica --dir {dir}/nowhere", "Q017", &["no such directory", "nowhere"]),
    ("a directory of something else", "replica --dir {dir}", "Q017", &["not a replica's directory"]),
    ("no cluster", "status --dir {dir}", "Q017", &["no client's directory found", "--dir"]),
    ("a client's directory", "replica --dir {rest}/client-0", "Q017", &["not a replica's directory"]),
    ("a replica's directory", "kv --dir {rest}/replica-0", "Q017", &["not a client's directory"]),
    ("f = 0", "init --dir {dir}/n --f 0", "Q004", &["f = 0: must be at least 1", "4 replicas"]),
    ("f = 9", "up --dir {dir}/n --f 9", "Q002", &["`9`: must be 1 to 4", "--> --f"]),
    ("two hosts", "init --dir {dir}/n --host 10.0.0.1 10.0.0.2", "Q004", &["2 hosts for 4", "do: give"]),
    (
        "a host without an address",
        "init --dir {dir}/n --host no.such.invalid",
        "Q002",
        &["`no.such.invalid`"],
    ),
    ("port 0", "init --dir {dir}/n --host 10.0.0.1:0", "Q004", &["port 0", "--> --host", "7000"]),
    (
        "a port alone",
        "resp --dir {rest}/client-0 --listen 6390",
        "Q002",
        &["`6390`", "127.0.0.1:6380", "--listen"],
    ),
    ("a full directory", "init --dir {rest}", "Q021", &["not empty", "never overwritten", "--dir"]),
    ("fault without up", "fault kill 1 --dir {rest}", "Q017", &["no cluster made by `quorate up`"]),
    ("a replica that is none", "fault kill 7 --dir {up}", "Q002", &["`7`", "0 to 3, or primary"]),
    ("a second up", "up --dir {up} --resp {free}", "Q022", &["another `quorate up`", "do: quorate down"]),
    ("the same up again", "up --dir {up} --service kv --resp {free}", "Q022", &["do: quorate down"]),
    ("a second replica", "replica --dir {up}/replica-0", "Q022", &["replica-0"]),
    ("fs on keys", "fs --dir {up}/client-3 ls q:/", "Q004", &["service kv", "needs fs"]),
    ("keys on fs", "kv --dir {fs}/client-1", "Q004", &["service fs", "needs kv"]),
    ("a port in use", "up --dir {dir}/n --service kv --resp {taken}", "Q003", &["is taken", "--resp"]),
    ("a client that is not there", "remove-client --dir {up} client-9", "Q047", &["client-9"]),
    ("a name that is none", "add-client --dir {up} alice", "Q002", &["`alice`", "use client-N"]),
    ("a mount on nothing", "mount --dir {fs}/client-1 {dir}/missing", "Q017", &["do: mkdir -p"]),
    ("a copy to nowhere", "fs --dir {fs}/client-1 cp q:/there /proc/there", "Q018", &["/proc/there"]),
    ("status of what is down", "kv --deadline 1s --dir {rest}/client-0", "Q025", &["quorate status"]),
];

/// What is wrong with the files of a replica: its name, how it came to that, the code, and what the answer contains.
type Broken = (&'static str, fn(&Path), &'static str, &'static [&'static str]);

const FILES: &[Broken] = &[
    ("garbage", |dir| put(dir, "node.toml", &[0xff; 3000]), "Q017", &["node.toml"]),
    ("no settings at all", |dir| put(dir, "node.toml", b"]["), "Q017", &["node.toml:1"]),
    (
        "a FIFO",
        |dir| replaced(dir, |path| mkfifo(path, Mode::S_IRWXU).unwrap()),
        "Q017",
        &["not a regular file"],
    ),
    (
        "an endless file",
        |dir| replaced(dir, |path| symlink("/dev/zero", path).unwrap()),
        "Q017",
        &["not a regular file"],
    ),
    (
        "a key that is misspelt",
        |dir| change(dir, "# pipeline = ", "pipelin = "),
        "Q009",
        &["`pipelin`", "did you mean `pipeline`?"],
    ),
    ("one in a table", |dir| change(dir, "\nr3 = ", "\nr33 = "), "Q009", &["`r33`", "r0 to r3"]),
    (
        "a number that is too large",
        |dir| change(dir, "# pipeline = 8", "pipeline = 800"),
        "Q004",
        &["pipeline = 800", "node.toml:"],
    ),
    (
        "a setting that differs",
        |dir| change(dir, "listen = ", "window = 1024\nlisten = "),
        "Q004",
        &["window = 1024", "cluster.toml says 2048"],
    ),
    (
        "another node's key",
        |dir| copied(dir, "replica-2/keys/replica.key", "keys/replica.key"),
        "Q019",
        &["another node's"],
    ),
    (
        "another cluster's list",
        |dir| copied(dir, "../other/replica-1/cluster.toml", "cluster.toml"),
        "Q019",
        &["cluster.toml"],
    ),
    ("no key", |dir| fs::remove_file(dir.join("keys/replica.key")).unwrap(), "Q017", &["keys/replica.key"]),
    ("a key for all to read", |dir| mode(dir, 0o644), "Q012", &["mode 0644", "do: chmod 600"]),
];

fn put(dir: &Path, name: &str, bytes: &[u8]) {
    fs::write(dir.join(name), bytes).unwrap();
}

fn replaced(dir: &Path, make: fn(&Path)) {
    fs::remove_file(dir.join("node.toml")).unwrap();
    make(&dir.join("node.toml"));
}

fn change(dir: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(dir.join("node.toml")).unwrap();
    assert!(text.contains(from), "no {from:?} in {text}");
    put(dir, "node.toml", text.replacen(from, to, 1).as_bytes());
}

fn copied(dir: &Path, from: &str, to: &str) {
    fs::copy(dir.with_file_name(from), dir.join(to)).unwrap();
}

fn mode(dir: &Path, mode: u32) {
    fs::set_permissions(dir.join("keys/replica.key"), fs::Permissions::from_mode(mode)).unwrap();
}

/// Checks the answer to a mistake.
#[track_caller]
fn check(what: &str, output: &Output, code: &str, parts: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("error Q")).collect();
    assert_eq!(errors.len(), 1, "{what}: one error: {text}");
    assert!(errors[0].starts_with(&format!("error {code}: ")), "{what}: {code} was expected: {text}");
    assert!(text.contains("\n  do: "), "{what}: no word of what to do: {text}");
    for part in parts {
        assert!(text.contains(part), "{what}: no {part:?} in {text}");
    }
    let explained = quorate(&["explain", code]);
    let status = output.status.code().unwrap();
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(
        explained.trim_end().ends_with(&format!("Exit status {status}.")),
        "{what}: {status}: {explained}"
    );
}

#[test]
fn each_mistake_says_what_where_and_what_to_do() {
    let up = Up::start(Dir::new("list-up"), SocketAddr::new(own_address(), 6380));
    let (files, dir) = (running("list-fs", ""), Dir::new("list"));
    let rest = dir.join("rest");
    for name in ["rest", "other"] {
        let made = quorate(&["init", "--dir", &dir.join(name), "--host", &own_address().to_string()]);
        assert!(made.status.success(), "{made:?}");
    }
    let client = files.dir.join("c/client-1");
    fs::write(dir.join("there"), b"there").unwrap();
    let copied = quorate(&["fs", "--dir", &client, "cp", &dir.join("there"), "q:/"]);
    assert!(copied.status.success(), "{copied:?}");
    assert_eq!(up.redis("SET k one"), "+OK");

    let before = content(Path::new(&rest));
    let free = SocketAddr::new(own_address(), 6380).to_string();
    let page = SocketAddr::new(own_address(), 9640).to_string();
    for (what, command, code, parts) in COMMANDS {
        let words: Vec<String> = command
            .split(' ')
            .map(|word| {
                word.replace("{up}", &up.dir().join("data"))
                    .replace("{fs}", &files.dir.join("c"))
                    .replace("{rest}", &rest)
                    .replace("{dir}", &dir.path().display().to_string())
                    .replace("{taken}", &up.door().to_string())
                    .replace("{free}", &free)
            })
            .collect();
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        if words[0] == "up" && words.contains(&"--resp") {
            words.extend(["--status", &page]);
        }
        check(what, &with_input(&words, "get k\n"), code, parts);
        assert!(!dir.path().join("n").exists(), "{what}: something was made");
    }
    // More than f faults.
    let (status, text) = up.fault(&["kill", "3"]);
    assert_eq!(status, Some(0), "{text}");
    let second = quorate(&["fault", "kill", "1", "--dir", &up.dir().join("data")]);
    check("more than f faults", &second, "Q044", &["r3 is killed", "quorate fault heal 3"]);
    assert_eq!(up.fault(&["heal", "3"]).0, Some(0));

    // Only what a client that has started keeps may have changed.
    let keeps_its_own = |path: &Path| path.to_string_lossy().contains("client-0/");
    let but_that = |all: std::collections::BTreeMap<_, _>| -> Vec<_> {
        all.into_iter().filter(|(path, _): &(std::path::PathBuf, _)| !keeps_its_own(path)).collect()
    };
    assert_eq!(but_that(content(Path::new(&rest))), but_that(before), "the cluster at rest was changed");
    assert_eq!(up.redis("GET k"), "$3\r\none");
    let there = quorate(&["fs", "--dir", &client, "cat", "q:/there"]);
    assert_eq!(there.stdout, b"there", "{there:?}");

    for (what, spoil, code, parts) in FILES {
        let replica = dir.path().join("rest/replica-1");
        let whole = dir.path().join("whole");
        copy_all(&replica, &whole);
        spoil(&replica);
        let output = quorate(&["replica", "--dir", &replica.display().to_string()]);
        check(what, &output, code, parts);
        assert_eq!(output.status.code(), Some(2), "{what}");
        fs::remove_dir_all(&replica).unwrap();
        fs::rename(&whole, &replica).unwrap();
    }
    limits_of_the_system(&dir, &rest);
    up.down();
}

/// Too few open files, another user's key, no FUSE: what the system denies.
fn limits_of_the_system(dir: &Dir, rest: &str) {
    let program = env!("CARGO_BIN_EXE_quorate");
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("Q", program).env("C", rest).env("D", dir.path());
        command.stdin(Stdio::null()).output().unwrap()
    };
    let few = shell("ulimit -n 16; exec $Q replica --dir $C/replica-1");
    check("16 open files", &few, "Q024", &["Too many open files", "do: raise", "ulimit -n"]);
    // 64 are enough.
    let enough = shell(
        "ulimit -n 64; $Q replica --dir $C/replica-1 2>$D/log & \
         until grep -q ' runs ' $D/log; do kill -0 $! || exit 1; sleep 0.1; done; kill -TERM $!; wait $!",
    );
    assert!(enough.status.success(), "{enough:?}");
    if geteuid().is_root() {
        let nobody = "ln $Q $D/quorate || cp $Q $D/quorate; exec setpriv --reuid 65534 --regid 65534 --clear-groups $D/quorate kv --dir $C/client-1";
        let others = shell(&format!("chmod 755 $D $C $C/client-1 $C/client-1/keys; {nobody}"));
        check("another user's key", &others, "Q017", &["Permission denied"]);
        let fuse = "mount -t tmpfs none /dev; exec $Q mount --dir $C/client-1 /mnt";
        let fuse = shell(&format!("exec unshare -m sh -c '{fuse}'"));
        check("no FUSE", &fuse, "Q052", &["/dev/fuse", "quorate fs"]);
    }
}

fn with_input(words: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that is refused does not read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Copies a directory, with its modes.
fn copy_all(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}
