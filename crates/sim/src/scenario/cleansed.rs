//! An intruder who held a replica for a while must not be able to cripple it after it has been cleaned: a liar of every kind,
//! healed, recovers fully (L17, L18).

use quorate_pbft::config::MS;
use quorate_wire::{Cluster, ReplicaId};

use super::host::everyone_remembers;
use super::stage::{self, Ended, Stage};
use crate::adversary::roster::RosterEntry;
use crate::app::KvApp;
use crate::panics;
use crate::report::Rule;
use crate::world::evidence::Evidence;
use crate::world::{Load, World};

/// The longest that a cleaned replica may take to rejoin, in simulated time.
const REJOIN_NS: u64 = 10_000 * MS;
/// For how long it lies, with state to fetch.
const LIES_NS: u64 = 2_000 * MS;

/// Lets a replica lie in this way for a while, cleans it, and waits until it recovers fully.
///
/// # Errors
///
/// It is not, or a rule was broken.
pub fn run(entry: &RosterEntry, cluster: Cluster, seed: u64) -> Ended {
    let mut setup = stage::setup(seed, cluster);
    // Who lies about proposals has to make some.
    let leads = entry.keys.iter().any(|key| key.starts_with('P'));
    let id = if leads { ReplicaId(0) } else { ReplicaId(2) };
    setup.liars.insert(id, entry.maker());
    let mut world = World::new(KvApp { keys: 4, ..KvApp::default() }, setup);
    world.evidence = Some(Evidence::default());
    let mut stage = Stage::new(world);
    panics::catch(|| story(&mut stage, id)).unwrap_or_else(|panic| Err(Rule::Panic(panic)))
}

fn story(stage: &mut Stage, id: ReplicaId) -> Ended {
    stage.busy(10)?;
    stage.isolate(&[id]);
    stage.busy(40)?;
    stage.mend();
    stage.pass(LIES_NS)?;
    let h = stage.world.host_of(id);
    stage.world.cleanse(h, 10 * MS);
    stage.pass(20 * MS)?;
    stage.world.set_load(Load::Busy(2 * MS, 10 * MS));
    stage.until("it has rejoined", REJOIN_NS, everyone_remembers)?;
    stage.heal_and_finish()
}
