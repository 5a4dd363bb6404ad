//! Faults of disks that come beside the others: pages rot at any replicas, writes are torn, syncs fail, disks are full
//! for a while, and the power goes within a start.
//!
//! A page that rots at a correct replica comes from another one, as long as both run. A replica whose process ends
//! before that has lost its image: it counts toward `f`.

use quorate_pbft::config::Durability;

use super::budget::may_crash;
use crate::app::App;
use crate::disk::files::Space;
use crate::rng::{Concern, Rng};
use crate::world::World;

/// In how many looks at a host a page of it rots, in runs with rot.
const ROT: u64 = 3;
/// In how many looks at a host each other fault comes.
const OTHER: u64 = 100;

/// Brings the faults of disks about.
#[derive(Debug)]
pub(super) struct Disks {
    rng: Rng,
    rots: bool,
}

impl Disks {
    /// Returns those of a seed. In half of the runs pages rot.
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed, Concern::DiskWeather);
        let rots = rng.one_in(2);
        Self { rng, rots }
    }

    /// Looks at each host once.
    pub(super) fn tick<A: App>(&mut self, world: &mut World<A>) {
        for h in 0..world.hosts.len() {
            if self.rots && self.rng.one_in(ROT) {
                world.rot_page(h);
            }
            if !world.hosts[h].is_up() {
                if self.rng.one_in(30) {
                    world.cut_start(h);
                }
                continue;
            }
            let may_end = world.config.durability == Durability::Sync && may_crash(world, h);
            match self.rng.below(OTHER) {
                0..3 if may_end => world.die_writing(h),
                3 | 4 if may_end => world.fail_sync(h),
                5 => world.fill_disk(h, Space::None),
                6 => world.fill_disk(h, Space::NoneToGrow),
                7..15 => world.fill_disk(h, Space::Enough),
                _ => {}
            }
        }
    }
}
