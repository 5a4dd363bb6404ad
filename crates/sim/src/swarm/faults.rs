//! Schedules faults, within what the cluster has to survive.
//!
//! Crashes with the disk intact may happen to all replicas at once. Faults that make a replica faulty in the sense of
//! the protocol (it lies, runs twice, has lost its state or its clock) happen to at most `f` at a time.

use quorate_pbft::config::{Durability, MS};

use super::budget::{has_budget, may_crash};
use super::disks::Disks;
use super::fall_back::{self, FallBack};
use super::forger::Forger;
use super::kinds::{FaultKind, Next};
use super::moves::Moves;
use super::plan::Plan;
use crate::adversary::roster::ROSTER;
use crate::app::App;
use crate::disk::files::Space;
use crate::disk::{Damage, Pace};
use crate::network::{NodeId, Profile};
use crate::rng::{Concern, Rng};
use crate::world::World;

/// Kinds of faults that each run sees at least, liars among them.
const KINDS_MIN: usize = 3;
/// Kinds that are possible in every cluster; they are added where the drawn ones are not possible.
const ALWAYS: [FaultKind; 4] = [FaultKind::Storm, FaultKind::Pause, FaultKind::Clog, FaultKind::NewKeys];

/// Brings faults about.
#[derive(Debug)]
pub struct Weather {
    pub(super) rng: Rng,
    kinds: Vec<FaultKind>,
    every_ns: u64,
    next_at: u64,
    count: u64,
    count_min: u64,
    /// Faults that the world has had from the start.
    odd: usize,
    /// Those that lied from the start are cleaned in the end.
    healed_in_the_end: bool,
    /// What follows from a fault later on: when, to whom. At most one a fault.
    pub(super) follows: Vec<(u64, usize, Next)>,
    normal: Profile,
    /// A client that lies, if there is one.
    pub forger: Option<Forger>,
    /// Snapshots of disks, with the host they are of. At most one a host.
    snapshots: Vec<(usize, crate::disk::Disk)>,
    /// The faults of disks that come in addition.
    disks: Option<Disks>,
    /// The moves of replicas, if there are any.
    moves: Option<Moves>,
    /// Replicas fall back to earlier views, if they do.
    fall_back: Option<FallBack>,
}

impl Weather {
    /// Returns the weather of a plan.
    pub fn new(seed: u64, plan: &Plan) -> Self {
        let mut rng = Rng::new(seed, Concern::Faults);
        let first = rng.below(plan.fault_every_ns);
        Self {
            rng,
            kinds: plan.kinds.clone(),
            every_ns: plan.fault_every_ns,
            next_at: first,
            count: 0,
            count_min: plan.faults_min,
            odd: plan.odd.len(),
            healed_in_the_end: plan.healed_in_the_end,
            follows: Vec::new(),
            normal: plan.setup.network,
            forger: None,
            snapshots: Vec::new(),
            disks: plan.has_bad_disks.then(|| Disks::new(seed)),
            moves: plan.setup.has_moves.then(|| Moves::new(seed)),
            fall_back: (plan.has_bad_disks && fall_back::is_drawn(seed)).then(|| FallBack::new(seed)),
        }
    }

    /// Returns when the next fault comes.
    pub fn next_at(&self) -> u64 {
        self.fall_back.as_ref().map(FallBack::next_at).into_iter().fold(self.due_at(), u64::min)
    }

    /// Returns when the next fault comes that does not wait for a moment of the protocol.
    fn due_at(&self) -> u64 {
        self.follows.iter().map(|(at, ..)| *at).fold(self.next_at, u64::min)
    }

    /// Returns whether there were enough faults and batches, or there has been enough time for both.
    pub fn is_over<A: App>(&self, world: &World<A>, batches: u64, late: bool) -> bool {
        let faults = self.count >= self.count_min && self.seen(world) >= KINDS_MIN;
        late || world.committed() >= batches && faults
    }

    /// Returns how many kinds of faults there have been.
    fn seen<A: App>(&self, world: &World<A>) -> usize {
        let lies = world.hosts.iter().any(|host| !host.correct);
        world.counters.faults.len().saturating_sub(self.odd) + usize::from(lies)
    }

    /// Ends every fault.
    pub fn end<A: App>(&mut self, world: &mut World<A>) {
        if self.healed_in_the_end {
            (0..world.hosts.len()).for_each(|h| _ = world.cleanse(h, 0));
        }
        if self.moves.is_some() {
            Moves::end(world);
        }
        if let Some(fall_back) = &mut self.fall_back {
            fall_back.end(world);
        }
        world.heal();
    }

    /// Brings the next fault about, or ends those that last.
    pub fn tick<A: App>(&mut self, world: &mut World<A>) {
        if let Some(fall_back) = &mut self.fall_back {
            fall_back.tick(world);
        }
        if world.time() < self.due_at() {
            return;
        }
        self.follow(world);
        if let Some(disks) = &mut self.disks {
            disks.tick(world);
        }
        if let Some(moves) = &mut self.moves {
            moves.tick(world);
        }
        if world.time() < self.next_at {
            return;
        }
        self.next_at = world.time() + self.rng.between(self.every_ns / 4, self.every_ns * 2);
        if let Some(forger) = &mut self.forger {
            forger.lie(world);
        }
        if self.rng.one_in(3) {
            return self.mend(world);
        }
        let few = self.count >= self.count_min && self.seen(world) < KINDS_MIN;
        let Some(kind) = self.rng.pick(if few { &ALWAYS } else { self.kinds.as_slice() }) else { return };
        self.count += 1;
        self.inject(world, kind);
    }

    /// Ends what lasts: cuts, storms, slow links and disks.
    fn mend<A: App>(&mut self, world: &mut World<A>) {
        world.network.heal();
        world.network.set_profile(self.normal);
        for h in 0..world.hosts.len() {
            world.set_disk(h, Pace::FAST);
            world.fill_disk(h, Space::Enough);
        }
    }

    fn inject<A: App>(&mut self, world: &mut World<A>, kind: FaultKind) {
        let h = self.rng.index(world.hosts.len());
        match kind {
            FaultKind::Crash => self.crash(world, h),
            FaultKind::CrashMany => {
                let count = if self.rng.one_in(2) { world.hosts.len() } else { world.config.cluster.weak() };
                let mut hosts: Vec<usize> = (0..world.hosts.len()).collect();
                self.rng.shuffle(&mut hosts);
                hosts.into_iter().take(count).for_each(|h| self.crash(world, h));
            }
            FaultKind::Pause => {
                // A stop of ten minutes ends with the faults.
                let long = if self.rng.one_in(8) { 600_000 } else { 2000 };
                world.pause(h, self.rng.between(10, long) * MS);
            }
            FaultKind::Partition
            | FaultKind::OneWay
            | FaultKind::Isolate
            | FaultKind::Star
            | FaultKind::Storm
            | FaultKind::Clog
            | FaultKind::Slow => self.disturb(world, h, kind),
            FaultKind::BadDisk => match self.rng.below(4) {
                0 => world.fill_disk(h, self.space()),
                1 if may_crash(world, h) && world.config.durability == Durability::Sync => world.fail_sync(h),
                _ => world.set_disk(h, Pace::SLOW),
            },
            FaultKind::Wipe | FaultKind::Damage | FaultKind::OldDisk => self.ruin(world, h, kind),
            FaultKind::Clock => {
                let hour = 3_600_000 * 1_000_000_i64;
                let offset = self.rng.pick(&[hour, -hour, 5_000_000_000, -5_000_000_000, 0]).unwrap_or(0);
                let rate = self.rng.between(900_000, 1_100_000);
                if has_budget(world, h) {
                    world.disturb_clock(h, offset, rate);
                }
            }
            FaultKind::DamageState => {
                let choice = self.rng.bits();
                if has_budget(world, h) && world.hosts[h].correct {
                    world.damage_state(h, choice);
                }
            }
            FaultKind::NewKeys => world.renew_keys(h),
            FaultKind::Hold => self.hold(world, h),
            FaultKind::Late => self.late(world),
            FaultKind::LeftAlone => self.leave_alone(world, h),
            FaultKind::Turn => {
                if has_budget(world, h)
                    && let Some(entry) = self.rng.pick(ROSTER)
                {
                    world.turn(h, entry.maker());
                }
            }
            FaultKind::Cleanse => {
                let liars = (0..world.hosts.len()).filter(|h| !world.hosts[*h].correct);
                let liars: Vec<usize> = liars.collect();
                if let Some(h) = self.rng.pick(&liars) {
                    let ns = self.rng.between(1, 500) * MS;
                    world.cleanse(h, ns);
                }
            }
        }
    }

    /// Injects a fault of the network only, around host `h` if around one.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the other kinds are not the network's")]
    fn disturb<A: App>(&mut self, world: &mut World<A>, h: usize, kind: FaultKind) {
        let rng = &mut self.rng;
        let count = world.nodes();
        let any = |rng: &mut Rng| NodeId::at(rng.index(count));
        match kind {
            FaultKind::Partition => {
                let (mut some, mut rest) = (Vec::new(), Vec::new());
                for node in (0..count).map(NodeId::at) {
                    if rng.one_in(2) { some.push(node) } else { rest.push(node) }
                }
                world.network.partition(&[&some, &rest]);
                world.counters.fault("partition");
            }
            FaultKind::OneWay => {
                for _ in 0..rng.between(1, 6) {
                    let (from, to) = (any(rng), any(rng));
                    let cut = !world.network.is_cut(from, to);
                    world.network.cut(from, to, cut);
                }
                world.counters.fault("one-way cut");
            }
            FaultKind::Isolate => {
                let all: Vec<NodeId> = (0..count).map(NodeId::at).filter(|n| n.index() != h).collect();
                world.network.partition(&[&[NodeId::at(h)], &all]);
                world.counters.fault("isolation");
            }
            FaultKind::Star => {
                let others: Vec<usize> = (0..world.hosts.len()).filter(|other| *other != h).collect();
                for &a in &others {
                    for &b in &others {
                        world.network.cut(NodeId::at(a), NodeId::at(b), a != b);
                    }
                }
                world.counters.fault("star");
            }
            FaultKind::Clog => {
                for _ in 0..rng.between(1, 8) {
                    let until = world.time() + rng.between(10, 1000) * MS;
                    world.network.clog(any(rng), any(rng), until);
                }
                world.counters.fault("clog");
            }
            FaultKind::Slow => {
                for _ in 0..rng.between(1, 6) {
                    let (loss, slow) = (chance(rng, 200_000), rng.between(1, 100) * MS);
                    world.network.worsen(any(rng), any(rng), loss, slow);
                }
                world.counters.fault("slow link");
            }
            FaultKind::Storm => {
                world.network.set_profile(Profile {
                    loss: chance(rng, 300_000),
                    duplicate: chance(rng, 300_000),
                    reorder: chance(rng, 300_000),
                    reorder_ns: 1000 * MS,
                    corrupt: chance(rng, 100_000),
                    replay: chance(rng, 100_000),
                    ..self.normal
                });
                world.counters.fault("storm");
            }
            _ => {}
        }
    }

    fn space(&mut self) -> Space {
        if self.rng.one_in(2) { Space::None } else { Space::NoneToGrow }
    }

    /// A loss of what a disk promised: within the budget only.
    fn ruin<A: App>(&mut self, world: &mut World<A>, h: usize, kind: FaultKind) {
        if kind == FaultKind::OldDisk {
            match self.snapshots.iter().position(|(host, _)| *host == h) {
                None => self.snapshots.push((h, world.snapshot(h))),
                Some(at)
                    if has_budget(world, h)
                        // Nobody can tell an old disk whose later start was never heard of. That of one that rejoins
                        // may have been heard by one alone, and the old disk can come to the same count (14.3).
                        && !world.hosts[h].amnesic
                        && world.hosts[h].disk.starts() > self.snapshots[at].1.starts()
                        && world.cards().get(h).is_some_and(|card| card.contains(" v=") && !card.contains("unconfirmed")) =>
                {
                    let (_, disk) = self.snapshots.swap_remove(at);
                    world.put_back(h, disk);
                    self.start_again(world, h);
                }
                Some(_) => {}
            }
            return;
        }
        if !has_budget(world, h) {
            return;
        }
        if kind == FaultKind::Wipe {
            world.wipe(h);
        } else {
            let how = self.rng.pick(&Damage::ALL).unwrap_or(Damage::BitRot);
            world.damage(h, how);
        }
        self.start_again(world, h);
    }

    fn crash<A: App>(&mut self, world: &mut World<A>, h: usize) {
        if may_crash(world, h) {
            world.crash(h);
            self.start_again(world, h);
        }
    }

    pub(super) fn start_again<A: App>(&mut self, world: &mut World<A>, h: usize) {
        let ns = if self.rng.one_in(3) { self.rng.below(MS) } else { self.rng.between(1, 1500) * MS };
        world.restart_later(h, ns);
    }
}

/// A chance below `max` per million.
fn chance(rng: &mut Rng, max: u64) -> u32 {
    u32::try_from(rng.below(max)).unwrap_or(0)
}
