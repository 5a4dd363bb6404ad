//! Replicas that follow a hand-over, and crash before their disks know of it, while one is ahead (L41).
//!
//! Chance alone hardly ever brings this together: the primary of a view is heard by nobody when it begins, and restarts;
//! the primary of the next view hands it over, too, and says nothing else; and the others lose their power in between.

use quorate_pbft::config::{Durability, MS};
use quorate_wire::{Kind, ReplicaId, ViewNum};

use super::budget::{has_budget, may_crash};
use crate::adversary::maker::LiarMaker;
use crate::adversary::sly::HandsOver;
use crate::app::App;
use crate::disk::Pace;
use crate::rng::{Concern, Rng};
use crate::world::World;

/// The interval at which it checks whether the next step is due, and the longest wait for a step.
const LOOK_NS: u64 = 2 * MS;
const STEP_NS: u64 = 600 * MS;
/// A disk that has written nothing when the power goes.
const STILL: Pace = Pace { low_ns: 2 * STEP_NS, high_ns: 2 * STEP_NS };

/// Says whether this happens in the run with this seed.
pub(super) fn is_drawn(seed: u64) -> bool {
    Rng::new(seed, Concern::FallBack).one_in(8)
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A primary restarts, so that all leave its view.
    Begin,
    /// The replica has begun the next view: it restarts, and the disks of the others stand still.
    Freeze(ReplicaId, ViewNum),
    /// It is two views ahead: the others lose their power.
    LosePower(ReplicaId, ViewNum),
}

/// Lets replicas fall back.
#[derive(Debug)]
pub(super) struct FallBack {
    rng: Rng,
    step: Step,
    next_at: u64,
    /// When the step is given up.
    until: u64,
}

impl FallBack {
    /// Returns what happens in the run with this seed.
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::nth(seed, Concern::FallBack, 0);
        let next_at = rng.below(1_000 * MS);
        Self { rng, step: Step::Begin, next_at, until: 0 }
    }

    /// Returns when to look at it.
    pub(super) fn next_at(&self) -> u64 {
        self.next_at
    }

    /// Does what is due.
    pub(super) fn tick<A: App>(&mut self, world: &mut World<A>) {
        let now = world.time();
        if now < self.next_at {
            return;
        }
        let next = match self.step {
            Step::Begin => begin(world),
            Step::Freeze(ahead, view) => {
                let facts = world.checkers.facts(ahead);
                if facts.normal && facts.view == view && may_restart(world, ahead) {
                    restart(world, ahead);
                    for h in others(world, ahead) {
                        world.set_disk(h, STILL);
                    }
                    Some(Step::LosePower(ahead, ViewNum(view.0 + 2)))
                } else {
                    Some(self.step).filter(|_| now < self.until)
                }
            }
            Step::LosePower(ahead, view) => {
                if now < self.until && world.checkers.facts(ahead).view < view {
                    Some(self.step)
                } else {
                    self.end(world);
                    None
                }
            }
        };
        if next != Some(self.step) {
            self.until = now + STEP_NS;
        }
        self.next_at = now
            + match (next, self.step) {
                (Some(_), _) => LOOK_NS,
                (None, Step::Begin) => 10 * LOOK_NS,
                (None, _) => self.rng.between(200, 3_000) * MS,
            };
        self.step = next.unwrap_or(Step::Begin);
    }

    /// Lets those whose disks stand still lose their power.
    pub(super) fn end<A: App>(&mut self, world: &mut World<A>) {
        let Step::LosePower(ahead, _) = self.step else { return };
        for h in others(world, ahead) {
            world.set_disk(h, Pace::FAST);
            world.lose_power(h);
            world.restart_later(h, self.rng.below(MS));
        }
        world.counters.fault("fell back");
    }
}

/// The primary of a view in which all work restarts, and the next one will not be heard when it begins its view. Returns the
/// next step, if the primary of the view after that lies.
fn begin<A: App>(world: &mut World<A>) -> Option<Step> {
    let view = world.core_facts().next()?.view;
    let [first, ahead, liar] = [0, 1, 2].map(|k| world.config.cluster.primary(ViewNum(view.0 + k)));
    let liar = world.host_of(liar);
    let works = world.config.durability == Durability::Sync
        && world.core_facts().all(|facts| facts.normal && facts.view == view)
        && [first, ahead].iter().all(|id| may_restart(world, *id));
    let lies = !world.hosts[liar].correct || works && has_budget(world, liar);
    if !works || !lies {
        return None;
    }
    world.turn(liar, LiarMaker::new(|| HandsOver));
    restart(world, first);
    let (node, frames) = (world.hosts[world.host_of(ahead)].node, 4 * world.hosts.len());
    world.network.schedule.hold(node, Kind::NewView, frames, world.time() + 2 * STEP_NS);
    Some(Step::Freeze(ahead, view.next()))
}

/// Returns the hosts of correct replicas that may crash, without that of `ahead`.
fn others<A: App>(world: &World<A>, ahead: ReplicaId) -> Vec<usize> {
    let is_other = |h: &usize| world.hosts[*h].correct && world.hosts[*h].id != ahead && may_crash(world, *h);
    (0..world.hosts.len()).filter(is_other).collect()
}

fn may_restart<A: App>(world: &World<A>, id: ReplicaId) -> bool {
    let h = world.host_of(id);
    world.hosts[h].correct && world.hosts[h].is_up() && may_crash(world, h)
}

fn restart<A: App>(world: &mut World<A>, id: ReplicaId) {
    let h = world.host_of(id);
    world.crash(h);
    world.restart_later(h, 10 * MS);
}
