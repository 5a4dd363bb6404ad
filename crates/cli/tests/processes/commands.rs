//! Commands on one cluster that follow each other in an unusual way, or run at the same time.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Dir, own_address};
use crate::up::Up;

fn up(name: &str) -> Up {
    Up::start(Dir::new(name), SocketAddr::new(own_address(), 6380))
}

/// Returns the process that runs a replica.
fn process(up: &Up, replica: u16) -> i32 {
    let file = up.dir().path().join(format!("data/run/replica-{replica}.pid"));
    fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

/// A liar that is paused stays one: healing it restarts it. A replica that does not run cannot be paused.
#[test]
fn a_paused_liar_is_healed_of_the_lie() {
    let up = up("paused-liar");
    for arguments in [&["lie", "2"][..], &["pause", "2"], &["heal", "2"]] {
        let (status, said) = up.fault(arguments);
        assert_eq!(status, Some(0), "{arguments:?}: {said}");
    }
    let line = fs::read_to_string(format!("/proc/{}/cmdline", process(&up, 2))).unwrap();
    assert!(line.contains("replica-2") && !line.contains("--liar"), "{line:?}");
    kill(Pid::from_raw(process(&up, 2)), Signal::SIGKILL).unwrap();
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
