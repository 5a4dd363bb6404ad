//! The world runs.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quorate_sim::app::KvApp;
use quorate_sim::setup::Setup;
use quorate_sim::world::{Load, World};
use quorate_wire::Cluster;

#[test]
fn a_quiet_world_executes() {
    let mut setup = Setup::new(1, Cluster::tolerating(1).unwrap());
    setup.clients = 2;
    setup.lanes = 3;
    setup.config.checkpoint_interval = 8;
    setup.config.window = 16;
    let mut world = World::new(KvApp::default(), setup);
    world.watch(0);
    world.set_load(Load::Busy(0, 1_000_000));
    let started = std::time::Instant::now();
    let done = world.run(10_000_000_000, |w| w.committed() >= 200);
    for line in world.lines() {
        println!("{line}");
    }
    println!("{:?} {:?}", world.violation(), started.elapsed());
    println!("{:#}", world.counters().to_json());
    println!("{}", world.cards().join("\n"));
    assert!(done);
}
