//! Which replicas may become faulty, and which may crash.

use quorate_pbft::config::Durability;
use quorate_wire::ReplicaId;

use crate::app::App;
use crate::world::World;

/// Says whether the protocol survives another replica that is faulty, host `h`'s.
pub(super) fn has_budget<A: App>(world: &World<A>, h: usize) -> bool {
    let bad = |h: usize| {
        let host = &world.hosts[h];
        // Of an image with a damaged page, a start will find only a part, and its process is about to end.
        let loses_image = host.disk.is_rotten() && (host.dies_writing || host.disk.is_failing());
        let is_known = !host.correct || host.amnesic || host.imageless || host.is_astray || loses_image;
        is_known || host.clock.is_wrong() || world.is_suspect(h)
    };
    let mut faulty: Vec<ReplicaId> =
        (0..world.hosts.len()).filter(|h| bad(*h)).map(|h| world.hosts[h].id).collect();
    faulty.push(world.hosts[h].id);
    faulty.sort_unstable();
    faulty.dedup();
    faulty.len() <= world.config.cluster.f()
}

/// A crash loses nothing if everything promised is on the disk.
pub(super) fn may_crash<A: App>(world: &World<A>, h: usize) -> bool {
    // Of an image with a damaged page, a start finds only a part.
    let host = &world.hosts[h];
    let trusted = world.config.durability == Durability::Sync && !host.old_disk && !host.disk.is_rotten();
    trusted || !world.hosts[h].old_disk && has_budget(world, h)
}
