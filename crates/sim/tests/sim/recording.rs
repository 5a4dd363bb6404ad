//! A recorded replica does the same again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use quorate_pbft::recording::RecordingError;
use quorate_sim::app::KvApp;
use quorate_sim::recording::{show, show_signed};
use quorate_sim::setup::Setup;
use quorate_sim::trace::{Line, What};
use quorate_sim::world::{Load, World};
use quorate_wire::sign::Signer;
use quorate_wire::{Cluster, ReplicaId};

const R1: ReplicaId = ReplicaId(1);

/// A world with view changes, checkpoints, reads and a state transfer at r1, its lines and recording.
fn recorded() -> (Vec<Line>, Vec<u8>, Signer) {
    let mut setup = Setup::new(7, Cluster::tolerating(1).unwrap());
    (setup.clients, setup.lanes) = (2, 2);
    (setup.config.checkpoint_interval, setup.config.window) = (8, 16);
    setup.recorded = vec![R1];
    let mut world = World::new(KvApp::default(), setup);
    world.watch(0);
    world.set_load(Load::Busy(0, 1_000_000));
    assert!(world.run(10_000_000_000, |w| w.committed() >= 60));
    world.crash(0);
    assert!(world.run(20_000_000_000, |w| w.committed() >= 100));
    world.pause(1, 1_500_000_000);
    assert!(world.run(40_000_000_000, |w| w.committed() >= 200));
    world.heal();
    world.set_load(Load::Idle);
    world.run(50_000_000_000, |_| false);
    let bytes = world.recording(R1).unwrap().to_vec();
    let signer = world.signer(R1);
    (world.take_lines(), bytes, signer)
}

/// What r1 reported and sent through its replica, in order and in words.
fn told(lines: &[Line]) -> Vec<String> {
    let own = |line: &&Line| line.who == "r1";
    let by_replica = |line: &&Line| match &line.what {
        // The authenticator and the state's walk send these by themselves; the authenticator turns frames away.
        What::Sent { text, .. } => {
            !["NEW-KEY", "FETCH", "META-DATA", "DATA"].iter().any(|k| text.starts_with(k))
        }
        // A world tells of an execution with its requests and results instead.
        What::Milestone(text) => !text.starts_with("turned away") && !text.starts_with("executed"),
        What::Executed(_) | What::Fault(_) => false,
    };
    let mut told: Vec<String> =
        lines.iter().filter(own).filter(by_replica).map(|line| without_sender(&line.to_string())).collect();
    // What waits for the disk leaves later in a world; a recording knows no disk.
    told.sort();
    told
}

/// A world also says whose message was rejected, which the replica does not report.
fn without_sender(line: &str) -> String {
    let kept = if line.contains("rejected: ") { line.split(" (").next().unwrap_or(line) } else { line };
    kept.to_owned()
}

#[test]
fn a_recorded_replica_does_the_same_again() {
    let (lines, bytes, signer) = recorded();
    let shown = show_signed(&bytes, signer, &KvApp::default(), 0).unwrap();
    let (live, again) = (told(&lines), told(&shown.lines));
    assert!(live.len() > 500, "{} lines", live.len());
    assert!(live.iter().any(|line| line.contains("entered v=1")));
    let differs = live.iter().zip(&again).find(|(a, b)| a != b);
    assert_eq!(differs, None);
    assert_eq!(live.len(), again.len());
}

#[test]
fn a_recording_is_shown_up_to_an_input_and_refused_where_it_is_damaged() {
    let (_, mut bytes, _) = recorded();
    let whole = show(&bytes, &KvApp::default(), 0).unwrap();
    let part = show(&bytes, &KvApp::default(), 100).unwrap();
    assert!(part.lines.iter().all(|line| line.step <= 100));
    assert_ne!(part.state, whole.state);
    assert!(matches!(show(&bytes[..3], &KvApp::default(), 0), Err(RecordingError::Malformed(_))));
    bytes.truncate(bytes.len() - 1);
    assert!(matches!(show(&bytes, &KvApp::default(), 0), Err(RecordingError::BadInput { .. })));
    bytes[0] ^= 1;
    assert!(matches!(show(&bytes, &KvApp::default(), 0), Err(RecordingError::Malformed(_))));
}
