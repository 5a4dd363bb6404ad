//! Faults that belong together, which chance alone would hardly ever bring together: what the network holds back, and
//! what happens to its author before it arrives.

use quorate_pbft::config::MS;
use quorate_wire::Kind;

use super::budget::has_budget;
use super::faults::Weather;
use super::kinds::Next;
use crate::app::App;
use crate::network::{Delay, NodeId};
use crate::world::World;

/// What is often held back: each is a promise, or what ends a wait.
const HELD: [Kind; 12] = [
    Kind::ViewChange,
    Kind::ViewChange,
    Kind::ViewChange,
    Kind::Suspect,
    Kind::NewView,
    Kind::PrePrepare,
    Kind::Prepare,
    Kind::Commit,
    Kind::Checkpoint,
    Kind::Committed,
    Kind::Proof,
    Kind::Reply,
];

impl Weather {
    /// Holds a few of the next frames of one kind from host `h`, for as long as half a minute: longer than most
    /// restarts and rejoins take.
    pub(super) fn hold<A: App>(&mut self, world: &mut World<A>, h: usize) {
        let kind = self.rng.pick(&HELD).unwrap_or(Kind::ViewChange);
        let frames = 1 + self.rng.index(2 * world.hosts.len());
        let until = world.time() + self.rng.between(20, 30_000) * MS;
        world.network.schedule.hold(world.hosts[h].node, kind, frames, until);
        world.counters.fault("held frames");
        if self.rng.one_in(3) {
            let at = world.time() + self.rng.between(50, 1_000) * MS;
            self.follows.push((at, h, Next::Wipe));
        }
    }

    /// Lets the frames of one kind come late, all of them or those about every n-th number.
    pub(super) fn late<A: App>(&mut self, world: &mut World<A>) {
        let kind = self.rng.pick(&Kind::ALL).unwrap_or(Kind::Commit);
        let by = self.rng.between(2, 9);
        let numbers = self.rng.one_in(2).then_some((self.rng.below(by), by));
        let by_ns = self.rng.between(1, 400) * MS;
        let from = self.rng.one_in(2).then(|| NodeId::at(self.rng.index(world.hosts.len())));
        world.network.schedule.delay(Delay { kind, from, numbers, by_ns });
        world.counters.fault("late kind");
    }

    /// Host `h` and f others do not hear the primary for a while, so that it has reason to leave its view, and
    /// nobody hears that it has. Then the network is whole, and it loses its disk.
    pub(super) fn leave_alone<A: App>(&mut self, world: &mut World<A>, h: usize) {
        let view = world.core_facts().map(|facts| facts.view).max().unwrap_or_default();
        let primary = world.host_of(world.config.cluster.primary(view));
        if h == primary || !world.hosts[h].correct {
            return;
        }
        let until = world.time() + self.rng.between(2_000, 30_000) * MS;
        for kind in [Kind::Suspect, Kind::ViewChange] {
            world.network.schedule.hold(world.hosts[h].node, kind, 4 * world.hosts.len(), until);
        }
        let mut cut = vec![h];
        let mut others: Vec<usize> =
            (0..world.hosts.len()).filter(|other| *other != h && *other != primary).collect();
        self.rng.shuffle(&mut others);
        cut.extend(others.into_iter().take(world.config.cluster.f()));
        for other in cut {
            world.network.cut(NodeId::at(primary), NodeId::at(other), true);
        }
        let wait = world.config.request_timeout_max_ns.min(1_000 * MS);
        let at = world.time() + wait + self.rng.between(0, 200) * MS;
        self.follows.push((at, h, Next::WipeAfterCut));
        world.counters.fault("left alone");
    }

    /// Brings about what follows from earlier faults and is due.
    pub(super) fn follow<A: App>(&mut self, world: &mut World<A>) {
        let now = world.time();
        let (due, later) = self.follows.iter().partition(|(at, ..)| *at <= now);
        self.follows = later;
        let due: Vec<(u64, usize, Next)> = due;
        for (_, h, next) in due {
            if next == Next::WipeAfterCut {
                for from in 0..world.hosts.len() {
                    for to in 0..world.hosts.len() {
                        world.network.cut(NodeId::at(from), NodeId::at(to), false);
                    }
                }
            }
            if has_budget(world, h) {
                world.wipe(h);
                self.start_again(world, h);
                world.counters.fault("wiped after a promise");
            }
        }
    }
}
