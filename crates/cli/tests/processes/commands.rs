//! Commands on one cluster that follow each other in an unusual way, or run at the same time.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid};

use crate::support::{Cluster, Dir, Ended, PATIENCE, own_address, quorate};
use crate::up::Up;

fn up(name: &str) -> Up {
    Up::start(Dir::new(name), SocketAddr::new(own_address(), 6380))
}

/// Returns the process that runs a replica.
fn process(up: &Up, replica: u16) -> i32 {
    let file = up.dir().path().join(format!("data/run/replica-{replica}.pid"));
    fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

/// A liar that is paused stays one: healing it restarts it. Ctrl-C during `fault` does not reach what it has restarted. A
/// replica that does not run cannot be paused.
#[test]
fn a_paused_liar_is_healed_of_the_lie() {
    let up = up("paused-liar");
    for arguments in [&["lie", "2"][..], &["pause", "2"], &["heal", "2"]] {
        let (status, said) = up.fault(arguments);
        assert_eq!(status, Some(0), "{arguments:?}: {said}");
    }
    let line = fs::read_to_string(format!("/proc/{}/cmdline", process(&up, 2))).unwrap();
    assert!(line.contains("replica-2") && !line.contains("--liar"), "{line:?}");
    let healed = Pid::from_raw(process(&up, 2));
    assert_eq!(getpgid(Some(healed)), Ok(healed), "it is in the group of a process that a terminal can stop");
    kill(healed, Signal::SIGKILL).unwrap();
    while fs::read(format!("/proc/{}/cmdline", process(&up, 2))).is_ok_and(|line| !line.is_empty()) {}
    let (status, said) = up.fault(&["pause", "2"]);
    assert!(status == Some(2) && said.contains("r2 does not run"), "{said}");
    up.down();
}

/// Of two faults at the same time, one more than the cluster tolerates, one is refused. Before a replica is killed, both
/// look whether the cluster answers, which takes a moment.
#[test]
fn of_two_faults_at_once_one_is_refused() {
    let up = up("two-faults");
    let data = up.dir().join("data");
    let faults = ["1", "2"].map(|replica| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.args(["fault", "kill", replica, "--dir", &data]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    let mut ended: Vec<Output> = faults.map(|fault| fault.wait_with_output().unwrap()).into();
    ended.sort_by_key(|fault| fault.status.code());
    assert_eq!(ended[0].status.code(), Some(0), "{ended:?}");
    let said = String::from_utf8_lossy(&ended[1].stderr);
    assert!(ended[1].status.code() == Some(2) && said.contains("Q044"), "{ended:?}");
    up.down();
}

/// Returns `quorate up` of a new cluster with the RESP gateway at `door`, run by the words of `by`, such as `nohup`.
fn up_command(by: &[&str], data: &str, door: SocketAddr) -> Command {
    let words = [by, &[env!("CARGO_BIN_EXE_quorate")]].concat();
    let (host, resp) = (door.ip().to_string(), door.to_string());
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["up", "--service", "kv", "--dir", data, "--host", &host]);
    command.args(["--resp", &resp, "--status", &SocketAddr::new(door.ip(), 9640).to_string()]);
    command
}

/// `quorate up | head`: when nobody reads the output any more, `up` stops its replicas and ends.
#[test]
fn up_without_a_reader_stops_its_replicas() {
    let (dir, door) = (Dir::new("no-reader"), SocketAddr::new(own_address(), 6380));
    let data = dir.join("data");
    let mut command = up_command(&[], &data, door);
    let mut up = Ended(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
    let mut first = String::new();
    BufReader::new(up.0.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("created "), "{first}");
    // If `up` has printed all its lines already, this makes it print another one.
    quorate(&["fault", "kill", "1", "--dir", &data]);
    assert!(up.0.wait().unwrap().success());
    let down = quorate(&["down", "--dir", &data]);
    assert!(String::from_utf8_lossy(&down.stdout).contains("is not running"), "{down:?}");
}

/// A terminal that is closed stops `up` as Ctrl-C does, even if the shell sends the signal a second time. `nohup` keeps
/// `up` from that.
#[test]
fn a_closed_terminal_stops_up() {
    let (dir, door) = (Dir::new("hangup"), SocketAddr::new(own_address(), 6380));
    let data = dir.join("data");
    let run = |dir, how: &[&str]| Up::run(dir, door, up_command(how, &data, door));
    let hang_up = || {
        let process = fs::read_to_string(format!("{data}/up.lock")).unwrap().parse().unwrap();
        kill(Pid::from_raw(process), Signal::SIGHUP).unwrap();
    };
    // Those who run this test may ignore the signal.
    let up = run(dir, &["env", "--default-signal=HUP"]);
    hang_up();
    hang_up();
    let begin = Instant::now();
    while !up.said().contains("stopped. all data") {
        assert!(begin.elapsed() < PATIENCE, "{}", up.said());
        std::thread::sleep(Duration::from_millis(20));
    }
    let up = run(up.down(), &["nohup"]);
    hang_up();
    assert_eq!((up.redis("SET k one"), up.fault(&["kill", "1"]).0), ("+OK".to_owned(), Some(0)));
    assert!(!up.said().contains("stopped"), "{}", up.said());
    up.down();
}

/// `up` and `fault` read the logs of replicas, whatever the environment says about logs.
#[test]
fn up_and_fault_work_with_any_setting_of_the_log() {
    let (dir, door) = (Dir::new("log-setting"), SocketAddr::new(own_address(), 6380));
    let mut command = up_command(&[], &dir.join("data"), door);
    command.env("QUORATE_LOG", "error").env("QUORATE_LOG_FORMAT", "json");
    Up::run(dir, door, command).down();
}

/// A replica whose number cannot be written, as on a full disk, does not run on where no command finds it.
#[test]
fn a_replica_whose_number_cannot_be_written_is_stopped() {
    let cluster = Cluster::make("no-number", &["--clients", "5"], "");
    let (data, replica) = (cluster.dir.join("c"), cluster.replica_dir(3).canonicalize().unwrap());
    fs::create_dir_all(cluster.dir.path().join("c/run/replica-3.pid")).unwrap();
    let at = |port| SocketAddr::new(own_address(), port).to_string();
    let ended = quorate(&["up", "--dir", &data, "--resp", &at(6380), "--status", &at(9640)]);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(2) && said.contains("replica-3.pid"), "{said}");
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("cmdline"));
    let lines = processes.filter_map(|path| fs::read_to_string(path).ok());
    let left: Vec<String> = lines.filter(|line| line.contains(replica.to_str().unwrap())).collect();
    assert_eq!(left, Vec::<String>::new());
}
